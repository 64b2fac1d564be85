//! Making, showing, listing and ending subscriptions; the pattern is the path of the URL.

use http::{Request, StatusCode};
use hyper::body::Incoming;
use reveille_core::ReadFrom;
use reveille_core::condition::WakeCondition;
use reveille_core::consumer::{Dialect, SyncDone};
use reveille_core::pattern::Pattern;
use reveille_core::subscription::{
    Coalescing, RetrySettings, Subscription, SubscriptionSpec, Target,
};
use reveille_engine::wakes::{WakeError, WakeRejection};
use serde_json::{Value, json};

use super::error::Error;
use crate::Server;
use crate::http::auth::Caller;
use crate::http::fields::{FieldError, Fields};
use crate::http::inbound;
use crate::http::known::{check_fields, check_fields_of};
use crate::http::page::{Page, page_limit};
use crate::http::query::Query;
use crate::http::reply::{self, Reply};
use crate::http::subscription::{callback_base, check_name};

/// What may be said of a subscription that is to be made.
const CREATE_FIELDS: &[&str] = &[
    "webhook",
    "description",
    "min_interval",
    "max_delay",
    "wake_if",
    "sync_done",
    "retry",
    "start",
];

/// `PUT /{pattern}?subscription=NAME`
pub(super) async fn create(
    server: &Server,
    caller: &Caller,
    name: &str,
    request: Request<Incoming>,
) -> Result<Reply, Error> {
    check_name(name)?;
    let (parts, body) = request.into_parts();
    let pattern = Pattern::parse(parts.uri.path())?;
    // Who may not read the server's own streams is not told of them either.
    if pattern.as_str().starts_with("/_") {
        caller.check_reading(pattern.as_str())?;
    }
    let body = inbound::read_object::<Error>(server, &caller.tenant, &parts.headers, body).await?;
    check_fields(&body, CREATE_FIELDS)?;
    let fields = Fields(&body);
    let mut spec = parse_spec(name, pattern, &fields)?;
    spec.base_url = callback_base(server.config.public_url.as_deref(), &parts)?;
    spec.check().map_err(|error| FieldError(error.to_string()))?;
    // Whether the name is taken comes before whether the address is safe: asking twice alike must
    // not fail because the rules have changed since.
    let known = server.engine.subscription(&caller.tenant, Dialect::Webhooks, name)?;
    if known.is_none()
        && let Target::Webhook(url) = &spec.target
    {
        server.engine.check_destination(url)?;
    }
    let (subscription, secret, is_new) =
        server.engine.subscribe(&caller.tenant, spec, caller.key_id()).await?;
    let mut body = subscription_json(&subscription);
    if let (Some(object), Some(secret)) = (body.as_object_mut(), secret) {
        object.insert("webhook_secret".into(), secret.into());
    }
    Ok(reply::json(if is_new { StatusCode::CREATED } else { StatusCode::OK }, &body))
}

fn parse_spec(
    name: &str,
    pattern: Pattern,
    fields: &Fields<'_>,
) -> Result<SubscriptionSpec, FieldError> {
    let webhook = parse_webhook(fields)?;
    let coalescing = Coalescing {
        min_interval_ms: fields.period_ms("min_interval")?.unwrap_or(0),
        max_delay_ms: fields.period_ms("max_delay")?,
        wake_if: parse_wake_if(fields)?.map(Into::into),
        sync_done: parse_sync_done(fields)?,
    };
    Ok(SubscriptionSpec {
        dialect: Dialect::Webhooks,
        name: name.into(),
        pattern: Some(pattern),
        streams: Vec::new(),
        target: Target::Webhook(webhook.into()),
        description: fields.text("description")?.map(Into::into),
        lease_ms: None,
        coalescing,
        retry: parse_retry(fields)?,
        start: parse_start(fields)?,
        base_url: None,
    })
}

pub(super) fn parse_webhook<'a>(fields: &Fields<'a>) -> Result<&'a str, FieldError> {
    let webhook = fields.text("webhook")?.filter(|url| !url.is_empty());
    Ok(webhook.ok_or("`webhook` is missing; give the URL that is to be called")?)
}

pub(super) fn parse_sync_done(fields: &Fields<'_>) -> Result<SyncDone, FieldError> {
    match fields.text("sync_done")? {
        None | Some("tail") => Ok(SyncDone::Tail),
        Some("snapshot") => Ok(SyncDone::Snapshot),
        Some(_) => Err("`sync_done` must be \"tail\" or \"snapshot\"".into()),
    }
}

pub(super) fn parse_wake_if<'a>(fields: &Fields<'a>) -> Result<Option<&'a str>, FieldError> {
    let condition = fields.text("wake_if")?;
    if let Some(condition) = condition {
        WakeCondition::parse(condition).map_err(|error| format!("`wake_if`: {error}"))?;
    }
    Ok(condition)
}

pub(super) fn parse_retry(fields: &Fields<'_>) -> Result<RetrySettings, FieldError> {
    let Some(retry) = fields.get("retry") else { return Ok(RetrySettings::default()) };
    let message = "`retry` must be an object like {\"initial\": \"1s\", \"max\": \"10m\", \
                   \"giveUpAfter\": \"1d\"}";
    let retry = retry.as_object().ok_or(message)?;
    check_fields_of("retry", retry, &["initial", "max", "giveUpAfter"])?;
    let period = |name| {
        let period = Fields(retry).period_ms(name);
        period.map_err(|FieldError(why)| FieldError(format!("`retry`: {why}")))
    };
    Ok(RetrySettings {
        initial_ms: period("initial")?,
        max_ms: period("max")?,
        give_up_after_ms: period("giveUpAfter")?,
    })
}

/// Where it begins in streams that are there already.
fn parse_start(fields: &Fields<'_>) -> Result<ReadFrom, FieldError> {
    let message = "`start` must be \"now\", \"beginning\" or {\"offset\": \"…\"}, with a \
                   Stream-Next-Offset";
    match fields.get("start") {
        None => Ok(ReadFrom::Now),
        Some(Value::String(text)) => match text.as_str() {
            "now" => Ok(ReadFrom::Now),
            "beginning" => Ok(ReadFrom::Start),
            _ => Err(message.into()),
        },
        Some(Value::Object(start)) => {
            check_fields_of("start", start, &["offset"])?;
            let offset = Fields(start).text("offset")?.ok_or(message)?;
            offset.parse().map_err(|error| format!("`start`: {error}").into())
        }
        Some(_) => Err(message.into()),
    }
}

/// Where it begins, unless that is now.
fn start_json(start: ReadFrom) -> Option<Value> {
    match start {
        ReadFrom::Now => None,
        ReadFrom::Start => Some("beginning".into()),
        ReadFrom::At(offset) => Some(json!({ "offset": offset.to_string() })),
    }
}

/// `GET /**?subscription=NAME`
pub(super) fn show(server: &Server, caller: &Caller, name: &str) -> Result<Reply, Error> {
    let found = server.engine.subscription(&caller.tenant, Dialect::Webhooks, name)?;
    let found = found.ok_or(WakeError::from(WakeRejection::NotFound))?;
    Ok(reply::json(StatusCode::OK, &subscription_json(&found)))
}

/// `GET /{pattern}?subscriptions[&created_by=KEY][&limit=&after=]`: those with this very pattern;
/// `/**` lists all.
pub(super) async fn list(
    server: &Server,
    caller: &Caller,
    path: &str,
    query: &Query,
) -> Result<Reply, Error> {
    let pattern = Pattern::parse(path)?;
    let created_by = query.get("created_by")?;
    let (mut left, after) = (page_limit(query)?, query.get("after")?);
    let mut page = Page::begin(&server.engine, &caller.tenant, "subscriptions").await?;
    let is_wanted = |it: &Subscription| {
        (pattern.matches_everything() || it.spec.pattern.as_ref() == Some(&pattern))
            && (created_by.is_none() || it.created_by.as_deref() == created_by)
    };
    let mut take = |it: &Subscription| {
        if !is_wanted(it) {
            return true;
        }
        let is_taken = left > 0 && page.push(&subscription_json(it));
        left -= usize::from(is_taken);
        is_taken
    };
    let (tenant, dialect) = (&caller.tenant, Dialect::Webhooks);
    let next = server.engine.subscriptions(tenant, dialect, after, &mut take)?;
    Ok(page.finish_with_next(next.as_deref()))
}

/// `DELETE /{pattern}?subscription=NAME`
pub(super) async fn delete(server: &Server, caller: &Caller, name: &str) -> Result<Reply, Error> {
    caller.engine(server).unsubscribe(&caller.tenant, Dialect::Webhooks, name).await?;
    Ok(reply::status(StatusCode::NO_CONTENT))
}

/// A subscription without its secret, which is shown once.
pub(super) fn subscription_json(subscription: &Subscription) -> Value {
    let spec = &subscription.spec;
    let mut body = json!({
        "subscription_id": &*spec.name,
        "pattern": spec.pattern.as_ref().map(Pattern::as_str),
    });
    let Some(object) = body.as_object_mut() else { return body };
    if let Target::Webhook(url) = &spec.target {
        object.insert("webhook".into(), url.as_ref().into());
    }
    if let Some(description) = &spec.description {
        object.insert("description".into(), description.as_ref().into());
    }
    if let Some(key) = &subscription.created_by {
        object.insert("created_by".into(), key.as_ref().into());
    }
    let Coalescing { min_interval_ms, max_delay_ms, wake_if, sync_done } = &spec.coalescing;
    if *min_interval_ms > 0 {
        object.insert("min_interval".into(), format!("{min_interval_ms}ms").into());
    }
    if let Some(ms) = max_delay_ms {
        object.insert("max_delay".into(), format!("{ms}ms").into());
    }
    if let Some(condition) = wake_if {
        object.insert("wake_if".into(), condition.as_ref().into());
    }
    if *sync_done == SyncDone::Snapshot {
        object.insert("sync_done".into(), "snapshot".into());
    }
    if spec.retry != RetrySettings::default() {
        object.insert("retry".into(), retry_json(spec.retry));
    }
    if let Some(since) = subscription.paused_at {
        object.insert("paused".into(), true.into());
        object.insert("paused_since".into(), since.0.into());
    }
    if let Some(previous) = &subscription.previous_secret {
        object.insert("previous_secret_until".into(), previous.until.0.into());
    }
    if let Some(start) = start_json(spec.start) {
        object.insert("start".into(), start);
    }
    body
}

fn retry_json(retry: RetrySettings) -> Value {
    let RetrySettings { initial_ms, max_ms, give_up_after_ms } = retry;
    let fields = [("initial", initial_ms), ("max", max_ms), ("giveUpAfter", give_up_after_ms)];
    let chosen = fields.into_iter().filter_map(|(name, ms)| Some((name, ms?)));
    chosen.map(|(name, ms)| (name.to_owned(), Value::from(format!("{ms}ms")))).collect()
}
