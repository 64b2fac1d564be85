//! Subscriptions: made by whoever holds a token for their target, looked at and ended by their
//! owners.

use http::{HeaderName, Request, StatusCode};
use hyper::body::Incoming;
use reveille_core::fact::subscription::{
    Channel, FactEventKind, SubscriptionError, SubscriptionRequest, SubscriptionRules, Wanted,
};
use reveille_engine::facts::SubscriptionView;
use serde_json::{Map, Value, json};

use super::body::{Body, page_limit};
use super::error::Error;
use super::principal_of;
use crate::Server;
use crate::http::auth::Caller;
use crate::http::error::RequestError;
use crate::http::page::{PAGE, Page};
use crate::http::query::Query;
use crate::http::reply::{self, Reply};

/// Says by which token one subscribes.
const CAPABILITY: HeaderName = HeaderName::from_static("stigmem-capability");

/// What can be said of a subscription.
const FIELDS: &[&str] = &[
    "target",
    "on_change",
    "webhook_url",
    "wake_agent_id",
    "event_filter",
    "idempotency_key",
    "scope",
];

/// `POST /v1/subscriptions`: 201 with a new one, 200 with the one that is there already.
pub(super) async fn create(
    server: &Server,
    caller: &Caller,
    request: Request<Incoming>,
) -> Result<Reply, Error> {
    let token = match request.headers().get(CAPABILITY) {
        None => None,
        Some(value) => {
            let text = value.to_str().map_err(|_| {
                RequestError::Header("the header Stigmem-Capability is a token".to_owned())
            })?;
            Some(text.trim().to_owned())
        }
    };
    let body = Body::read(server, caller, request, "invalid_subscription", FIELDS).await?;
    let wanted = judge(server, &body)?;
    let (engine, principal) = (caller.engine(server), principal_of(caller));
    let made = engine
        .subscribe_to_facts(&caller.tenant, &principal, caller.key_id(), wanted, token)
        .await?;
    let status = if made.is_new { StatusCode::CREATED } else { StatusCode::OK };
    Ok(reply::json(status, &subscription_json(server, &made.view)))
}

/// What is asked for, if there is such a thing and this server does it.
fn judge(server: &Server, body: &Body) -> Result<Wanted, Error> {
    // A field of another type is as wrong as one with another value.
    let text = |name: &str, wrong: SubscriptionError| match body.get(name) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(_) => Err(Error::from(wrong)),
    };
    let event_filter = match body.get("event_filter") {
        None => None,
        Some(Value::Array(names)) => {
            let names = names.iter().map(|name| name.as_str().map(str::to_owned));
            Some(names.collect::<Option<Vec<_>>>().ok_or(SubscriptionError::EventFilter)?)
        }
        Some(_) => return Err(SubscriptionError::EventFilter.into()),
    };
    let request = SubscriptionRequest {
        target: text(
            "target",
            SubscriptionError::Target(reveille_core::fact::target::TargetError),
        )?,
        on_change: text("on_change", SubscriptionError::OnChange)?,
        webhook_url: text("webhook_url", SubscriptionError::WebhookUrl)?,
        wake_agent_id: text("wake_agent_id", SubscriptionError::WakeAgent)?,
        event_filter,
        idempotency_key: text("idempotency_key", SubscriptionError::IdempotencyKey)?,
        scope: text("scope", SubscriptionError::ScopeMismatch)?,
    };
    let wakes = server.config.facts.wake_template.is_some();
    // Whether loopback may be called without TLS is asked below, with everything else about the
    // address.
    let wanted = request.judge(SubscriptionRules { wakes, http_loopback: true })?;
    if let Channel::Webhook(url) = &wanted.channel {
        server.engine.check_destination(url).map_err(|error| {
            let why = format!("`webhook_url` cannot be called: {error}");
            Error::unprocessable(SubscriptionError::WebhookUrl.code(), why)
        })?;
    }
    Ok(wanted)
}

/// `GET /v1/subscriptions?limit=&after=`: one's own, newest first.
pub(super) async fn list(server: &Server, caller: &Caller, query: &Query) -> Result<Reply, Error> {
    let limit = page_limit(query, (PAGE, PAGE))?;
    let after = query.get("after")?;
    let mut page = Page::begin(&server.engine, &caller.tenant, "subscriptions").await?;
    let mut take = |view: &SubscriptionView| page.push(&subscription_json(server, view));
    let principal = principal_of(caller);
    let (total, next) =
        server.engine.fact_subscriptions(&caller.tenant, &principal, after, limit, &mut take)?;
    let mut fields = Map::new();
    fields.insert("total".into(), total.into());
    if let Some(next) = next {
        fields.insert("next".into(), next.into());
    }
    Ok(page.finish(StatusCode::OK, &fields))
}

/// `GET /v1/subscriptions/{id}`
pub(super) async fn show(server: &Server, caller: &Caller, id: &str) -> Result<Reply, Error> {
    let view = server.engine.fact_subscription(&caller.tenant, &principal_of(caller), id)?;
    let view = view.ok_or_else(Error::subscription_not_found)?;
    Ok(reply::json(StatusCode::OK, &subscription_json(server, &view)))
}

/// `DELETE /v1/subscriptions/{id}`
pub(super) async fn delete(server: &Server, caller: &Caller, id: &str) -> Result<Reply, Error> {
    let engine = caller.engine(server);
    engine.delete_fact_subscription(&caller.tenant, &principal_of(caller), id).await?;
    Ok(reply::status(StatusCode::NO_CONTENT))
}

fn subscription_json(server: &Server, view: &SubscriptionView) -> Value {
    let SubscriptionView { id, spec, created_at, last_event_at, cancelled } = view;
    let Wanted { target, channel, filter, scope, idempotency_key } = &spec.wanted;
    let (webhook_url, wake_agent_id) = match channel {
        Channel::Webhook(url) => (Some(url), None),
        Channel::Wake(agent) => (None, Some(agent)),
    };
    let date = |at| server.engine.date_of(at).0;
    json!({
        "id": &**id,
        "target": target.to_string(),
        "on_change": channel.on_change(),
        "webhook_url": webhook_url,
        "wake_agent_id": wake_agent_id,
        "event_filter": filter.kinds().map(FactEventKind::as_str).collect::<Vec<_>>(),
        "scope": scope.to_string(),
        "idempotency_key": idempotency_key.as_deref(),
        "created_at": date(*created_at),
        "last_event_at": last_event_at.map(date),
        "cancelled_at": cancelled.map(|it| date(it.at)),
        "cancel_reason": cancelled.map(|_| FactEventKind::Cancelled.as_str()),
        "cancelled_by": cancelled.map(|it| it.why.code()),
        "replay_window_s": server.engine.replay_window_s(),
    })
}
