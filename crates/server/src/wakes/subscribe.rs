//! Making, showing, listing and ending subscriptions; the pattern is the path of the URL.

use http::{Request, StatusCode};
use hyper::body::Incoming;
use reveille_core::condition::WakeCondition;
use reveille_core::consumer::{Dialect, SyncDone};
use reveille_core::pattern::Pattern;
use reveille_core::subscription::{Coalescing, Subscription, SubscriptionSpec, Target};
use reveille_engine::wakes::{WakeError, WakeRejection};
use serde_json::{Value, json};

use super::error::Error;
use crate::Server;
use crate::http::auth::Caller;
use crate::http::fields::{self, FieldError, Fields};
use crate::http::inbound;
use crate::http::known::check_fields;
use crate::http::page::{Page, page_limit};
use crate::http::query::Query;
use crate::http::reply::{self, Reply};
use crate::http::subscription::{callback_base, check_name};

/// A body larger than this is no subscription.
const BODY_BYTES_MAX: usize = 64 << 10;
/// What may be said of a subscription that is to be made.
const CREATE_FIELDS: &[&str] =
    &["webhook", "description", "min_interval", "max_delay", "wake_if", "sync_done"];

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
    let max = BODY_BYTES_MAX.min(server.config.max_body_bytes);
    let body = inbound::read(&server.engine, &caller.tenant, &parts.headers, body, max).await?;
    let body = fields::parse_object(&body.bytes)?;
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
    let webhook = fields.text("webhook")?.filter(|url| !url.is_empty());
    let webhook = webhook.ok_or("`webhook` is missing; give the URL that is to be called")?;
    let sync_done = match fields.text("sync_done")? {
        None | Some("tail") => SyncDone::Tail,
        Some("snapshot") => SyncDone::Snapshot,
        Some(_) => return Err("`sync_done` must be \"tail\" or \"snapshot\"".into()),
    };
    let max_delay_ms = fields.period_ms("max_delay")?;
    let wake_if = fields.text("wake_if")?;
    if wake_if.is_some() && max_delay_ms.is_none() {
        return Err("`wake_if` needs a `max_delay`: nothing may wait for ever".into());
    }
    if let Some(condition) = wake_if {
        WakeCondition::parse(condition).map_err(|error| format!("`wake_if`: {error}"))?;
    }
    let coalescing = Coalescing {
        min_interval_ms: fields.period_ms("min_interval")?.unwrap_or(0),
        max_delay_ms,
        wake_if: wake_if.map(Into::into),
        sync_done,
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
        base_url: None,
    })
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
fn subscription_json(subscription: &Subscription) -> Value {
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
    body
}
