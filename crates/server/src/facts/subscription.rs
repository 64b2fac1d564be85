//! Subscriptions: made by whoever holds a token for their target, looked at and ended by their
//! owners.

use http::{HeaderName, Request, StatusCode};
use hyper::body::Incoming;
use reveille_core::delivery::hook::HookId;
use reveille_core::fact::access::{Check, Ruling};
use reveille_core::fact::subscription::{
    Channel, FactEventKind, SubscriptionError, SubscriptionRequest, SubscriptionRules, Wanted,
};
use reveille_engine::facts::SubscriptionView;
use serde_json::{Map, Value, json};

use super::body::{Body, page_limit};
use super::error::Error;
use super::fact_caller;
use crate::Server;
use crate::http::auth::Caller;
use crate::http::error::RequestError;
use crate::http::page::Page;
use crate::http::query::Query;
use crate::http::reply::{self, Reply};

/// Says by which token one subscribes.
const CAPABILITY: HeaderName = HeaderName::from_static("stigmem-capability");

/// Subscriptions of a page, unless the caller says otherwise, and at most.
const PAGE: (usize, usize) = (500, 500);

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
    let (engine, by) = (caller.engine(server), fact_caller(caller));
    let made = engine.subscribe_to_facts(&by, wanted, token.as_deref()).await?;
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
    let limit = page_limit(query, PAGE)?;
    let after = query.get("after")?.map(|text| {
        let why = "`after` is the `next` of the page before";
        text.parse().map(HookId).map_err(|_| RequestError::Query(why.to_owned()))
    });
    let after = after.transpose()?;
    let mut page = Page::begin(&server.engine, &caller.tenant, "subscriptions").await?;
    let found = server.engine.fact_subscriptions(&fact_caller(caller), after, limit)?;
    let all = &found.subscriptions;
    let taken = all.iter().take_while(|it| page.push(&subscription_json(server, it))).count();
    let cut = all.get(..taken).and_then(|it| it.last()).filter(|_| taken < all.len());
    let mut fields = Map::new();
    fields.insert("total".into(), found.total.into());
    if let Some(next) = cut.map(|it| it.hook).or(found.next) {
        fields.insert("next".into(), next.0.to_string().into());
    }
    Ok(page.finish(StatusCode::OK, &fields))
}

/// `GET /v1/subscriptions/{id}`
pub(super) fn show(server: &Server, caller: &Caller, id: &str) -> Result<Reply, Error> {
    let view = server.engine.fact_subscription(&fact_caller(caller), id)?;
    Ok(reply::json(StatusCode::OK, &subscription_json(server, &view)))
}

/// `DELETE /v1/subscriptions/{id}`
pub(super) async fn delete(server: &Server, caller: &Caller, id: &str) -> Result<Reply, Error> {
    let engine = caller.engine(server);
    engine.delete_fact_subscription(&fact_caller(caller), id).await?;
    Ok(reply::status(StatusCode::NO_CONTENT))
}

/// `GET /v1/subscriptions/{id}/explain`: what would become of a delivery now, and which check says
/// so.
pub(super) fn explain(server: &Server, caller: &Caller, id: &str) -> Result<Reply, Error> {
    let by = fact_caller(caller);
    let view = server.engine.fact_subscription(&by, id)?;
    let ruling = match (server.engine.fact_ruling(&by, id)?, view.cancelled) {
        (_, Some(cancelled)) => Ruling::Cancel(cancelled.why),
        (Some(ruling), None) => ruling,
        (None, None) => return Err(Error::subscription_not_found()),
    };
    let outcome = match ruling {
        Ruling::Deliver => "deliver",
        Ruling::Withhold(_) => "withhold",
        Ruling::Cancel(_) => "cancel",
    };
    let answer = json!({
        "id": id,
        "outcome": outcome,
        "decided_by": ruling.check().map(Check::code),
        "explanation": ruling.sentence(),
        "cancelled_at": view.cancelled.map(|it| server.engine.date_of(it.at).0),
    });
    Ok(reply::json(StatusCode::OK, &answer))
}

fn subscription_json(server: &Server, view: &SubscriptionView) -> Value {
    let SubscriptionView { id, spec, created_at, last_event_at, cancelled, .. } = view;
    let Wanted { target, channel, filter, scope, idempotency_key } = &spec.wanted;
    let (webhook_url, wake_agent_id) = match channel {
        Channel::Webhook(url) => (Some(&**url), None),
        Channel::Wake(agent) => (None, Some(&**agent)),
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
        "replay_window_s": server.config.facts.replay_window_s,
    })
}
