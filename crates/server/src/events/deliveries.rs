//! Deliveries of a subscription: where they stand, each attempt, and those that were given up.

use http::StatusCode;
use reveille_core::delivery::{AttemptRecord, DeadReason, Phase};
use reveille_engine::deliveries::DeliveryRejection;
use reveille_engine::events::hook::EventHook;
use reveille_engine::events::{DeadLetter, DeliveryView, delivery_name, delivery_named};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::Scope;
use super::error::Error;
use super::show::{find_hook, page_limit};
use crate::Server;
use crate::http::delivery::status_label;
use crate::http::query::Query;
use crate::http::reply::{self, Reply};

/// Entries on a page, unless the caller asks for another number.
const PAGE: usize = 100;

/// `GET /subscriptions/{id}/deliveries?limit=&after=`: in the order of their events.
pub(super) fn list(
    server: &Server,
    scope: &Scope,
    id: &str,
    query: Option<&str>,
) -> Result<Reply, Error> {
    let query = Query::parse(query);
    let limit = page_limit(&query, PAGE)?;
    let after = query.get("after")?.map(delivery_named).transpose();
    let after =
        after.map_err(|_| Error::invalid_parameter("after", "must be the id of a delivery"))?;
    let EventHook { hook, .. } = find_hook(server, scope, id)?;
    if after.is_some_and(|after| after.hook != hook.id) {
        let why = "must be the id of a delivery of this subscription";
        return Err(Error::invalid_parameter("after", why));
    }
    let page = server.engine.deliveries(&hook, after, limit)?;
    let mut answer =
        json!({ "deliveries": page.items.iter().map(delivery_json).collect::<Vec<_>>() });
    if let (Some(next), Some(object)) = (page.next, answer.as_object_mut()) {
        object.insert("next".into(), delivery_name(next).into());
    }
    Ok(reply::json(StatusCode::OK, &answer))
}

fn delivery_json(view: &DeliveryView) -> Value {
    let delivery = &view.record.delivery;
    let next = match delivery.phase {
        Phase::Pending { at } => Some(at.0),
        _ => None,
    };
    json!({
        "id": delivery_name(view.id),
        "subscriptionId": &*view.hook.name,
        "eventId": view.event.as_ref().map(|event| &*event.id),
        "eventType": view.event.as_ref().map(|event| event.kind.as_str()),
        "status": status_label(delivery.standing()),
        "attempts": delivery.attempts.len(),
        "nextAttemptAt": next,
        "createdAt": view.record.created_at.0,
        "endedAt": delivery.ended_at().map(|at| at.0),
        "lastError": last_error(&delivery.attempts),
    })
}

fn last_error(attempts: &[AttemptRecord]) -> Option<&str> {
    attempts.last().and_then(|attempt| attempt.error.as_deref())
}

/// `GET /subscriptions/deliveries/{id}/logs`: one entry per attempt, oldest first.
pub(super) fn logs(server: &Server, scope: &Scope, id: &str) -> Result<Reply, Error> {
    let found = match delivery_named(id) {
        Ok(id) => server.engine.delivery(scope.reach(), id)?,
        Err(_) => None,
    };
    let logs = found.map_or_else(Vec::new, |view| {
        let attempts = view.record.delivery.attempts.iter();
        attempts.map(|attempt| log_json(&view, attempt)).collect()
    });
    Ok(reply::json(StatusCode::OK, &json!({ "logs": logs })))
}

fn log_json(view: &DeliveryView, attempt: &AttemptRecord) -> Value {
    let delivery = delivery_name(view.id);
    let mut log = json!({
        "id": format!("{delivery}-{}", attempt.number),
        "deliveryId": delivery,
        "subscriptionId": &*view.hook.name,
        "attemptNumber": attempt.number,
        "status": if attempt.error.is_none() { "success" } else { "failed" },
        "durationMs": attempt.took_ms,
        "createdAt": attempt.at.0,
    });
    if let Some(object) = log.as_object_mut() {
        if let Some(error) = &attempt.error {
            object.insert("errorMessage".into(), error.as_ref().into());
        }
        if let Some(response) = &attempt.response {
            object.insert("workerResponse".into(), response.as_ref().into());
        }
    }
    log
}

/// `GET /subscriptions/{id}/dead-letters`: newest first, none for a subscription that is not there.
pub(super) fn dead_letters(
    server: &Server,
    scope: &Scope,
    id: &str,
    query: Option<&str>,
) -> Result<Reply, Error> {
    let limit = page_limit(&Query::parse(query), PAGE)?;
    let letters = match server.engine.find_hook(scope.reach(), id)? {
        Some(EventHook { hook, .. }) => server.engine.dead_letters(&hook, limit)?,
        None => Vec::new(),
    };
    let letters: Vec<Value> = letters.iter().map(dead_letter_json).collect();
    Ok(reply::json(StatusCode::OK, &json!({ "deadLetters": letters })))
}

fn dead_letter_json(letter: &DeadLetter) -> Value {
    let DeadLetter { shown, died_at, payload } = letter;
    let id = delivery_name(shown.id);
    let delivery = &shown.record.delivery;
    let reason = match delivery.phase {
        Phase::Dead { why: DeadReason::Refused, .. } => "refused",
        _ => "max_retries_exceeded",
    };
    json!({
        "id": id,
        "deliveryId": id,
        "subscriptionId": &*shown.hook.name,
        "eventId": shown.event.as_ref().map(|event| &*event.id),
        "eventPayload": payload_json(payload),
        "reason": reason,
        "lastError": last_error(&delivery.attempts),
        "createdAt": died_at.0,
    })
}

/// The event as it was sent, out of its envelope.
fn payload_json(envelope: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Envelope<'a> {
        #[serde(borrow)]
        payload: &'a RawValue,
    }
    let envelope: Envelope<'_> = serde_json::from_slice(envelope).ok()?;
    Some(envelope.payload.get().to_owned())
}

/// `POST /subscriptions/{id}/dead-letters/{letter}/retry`
pub(super) async fn retry(
    server: &Server,
    scope: &Scope,
    id: &str,
    letter: &str,
) -> Result<Reply, Error> {
    let EventHook { hook, .. } = find_hook(server, scope, id)?;
    let dead = delivery_named(letter).ok().filter(|dead| dead.hook == hook.id);
    let dead = dead.ok_or(DeliveryRejection::NoDeadLetter)?;
    let retry = server.engine.retry_dead_letter(&hook.tenant, dead).await?;
    let answer = json!({ "ok": true, "deliveryId": delivery_name(retry) });
    Ok(reply::json(StatusCode::OK, &answer))
}
