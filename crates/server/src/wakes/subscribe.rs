//! Making, showing, listing and ending subscriptions; the pattern is the path of the URL.

use http::{Request, StatusCode};
use hyper::body::Incoming;
use reveille_core::condition::WakeCondition;
use reveille_core::consumer::{Dialect, SyncDone};
use reveille_core::pattern::Pattern;
use reveille_core::subscription::{Coalescing, Subscription, SubscriptionSpec, Target};
use serde_json::{Value, json};

use super::fields::{self, Fields};
use crate::Server;
use crate::http::auth::Caller;
use crate::http::error::Error;
use crate::http::inbound;
use crate::http::reply::{self, Reply};

/// A body larger than this is no subscription.
const BODY_BYTES_MAX: usize = 64 << 10;

/// `PUT /{pattern}?subscription=NAME`
pub(super) async fn create(
    server: &Server,
    caller: &Caller,
    name: &str,
    request: Request<Incoming>,
) -> Result<Reply, Error> {
    super::check_name(name)?;
    let (parts, body) = request.into_parts();
    let pattern = Pattern::parse(parts.uri.path())?;
    // Who may not read the server's own streams is not told of them either.
    if pattern.as_str().starts_with("/_") {
        caller.check_reading(pattern.as_str())?;
    }
    let max = BODY_BYTES_MAX.min(server.config.max_body_bytes);
    let body = inbound::read(&server.engine, &parts.headers, body, max).await?;
    let body = fields::object(&body.bytes).map_err(Error::Subscription)?;
    let fields = Fields(&body);
    let mut asked = asked(name, pattern, &fields).map_err(Error::Subscription)?;
    asked.base_url = super::callback_base(server, &parts)?;
    asked.check().map_err(|error| Error::Subscription(error.to_string()))?;
    // Whether the name is taken comes before whether the address is safe: asking twice alike must
    // not fail because the rules have changed since.
    let known = server.engine.subscription(&caller.tenant, Dialect::Webhooks, name)?;
    if known.is_none()
        && let Target::Webhook(url) = &asked.target
    {
        server.engine.check_destination(url)?;
    }
    let (subscription, new) = server.engine.subscribe(&caller.tenant, asked).await?;
    let mut body = shown(&subscription);
    if new && let (Some(object), Some(secret)) = (body.as_object_mut(), &subscription.secret) {
        object.insert("webhook_secret".into(), secret.as_ref().into());
    }
    Ok(reply::json(if new { StatusCode::CREATED } else { StatusCode::OK }, &body))
}

fn asked(
    name: &str,
    pattern: Pattern,
    fields: &Fields<'_>,
) -> Result<SubscriptionSpec, fields::Wrong> {
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
    let found = found.ok_or(Error::from(reveille_engine::Refused::NotFound))?;
    Ok(reply::json(StatusCode::OK, &shown(&found)))
}

/// `GET /{pattern}?subscriptions`: those with this very pattern; `/**` lists all.
pub(super) fn list(server: &Server, caller: &Caller, path: &str) -> Result<Reply, Error> {
    let pattern = Pattern::parse(path)?;
    let mut all = server.engine.subscriptions(&caller.tenant, Dialect::Webhooks)?;
    if !pattern.matches_everything() {
        all.retain(|it| it.spec.pattern.as_ref() == Some(&pattern));
    }
    let shown: Vec<Value> = all.iter().map(shown).collect();
    Ok(reply::json(StatusCode::OK, &json!({ "subscriptions": shown })))
}

/// `DELETE /{pattern}?subscription=NAME`
pub(super) async fn delete(server: &Server, caller: &Caller, name: &str) -> Result<Reply, Error> {
    server.engine.unsubscribe(&caller.tenant, Dialect::Webhooks, name).await?;
    Ok(reply::status(StatusCode::NO_CONTENT))
}

/// A subscription without its secret.
fn shown(subscription: &Subscription) -> Value {
    let asked = &subscription.spec;
    let mut body = json!({
        "subscription_id": &*asked.name,
        "pattern": asked.pattern.as_ref().map(Pattern::as_str),
    });
    let Some(object) = body.as_object_mut() else { return body };
    if let Target::Webhook(url) = &asked.target {
        object.insert("webhook".into(), url.as_ref().into());
    }
    if let Some(description) = &asked.description {
        object.insert("description".into(), description.as_ref().into());
    }
    let Coalescing { min_interval_ms, max_delay_ms, wake_if, sync_done } = &asked.coalescing;
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
