//! Deliveries: what became of an event, wherever it went.

use http::StatusCode;
use reveille_core::delivery::{AttemptRecord, Phase};
use reveille_engine::events::{DeliveryView, delivery_name, delivery_named};
use serde_json::{Value, json};

use super::error::Error;
use super::page_limit;
use crate::Server;
use crate::http::auth::Caller;
use crate::http::delivery::status_label;
use crate::http::error::RequestError;
use crate::http::query::Query;
use crate::http::reply::{self, Reply};

/// Where deliveries are; the rest of the path is the id of one.
const DELIVERIES: &str = "/admin/v1/deliveries/";

/// `GET /admin/v1/deliveries?event=&hook=&after=&limit=`: hook by hook, in the order of their
/// events; or all of one event.
pub(super) fn list(server: &Server, caller: &Caller, query: Option<&str>) -> Result<Reply, Error> {
    let query = Query::parse(query);
    let (event, hook, limit) = (query.get("event")?, query.get("hook")?, page_limit(&query)?);
    let after = query.get("after")?.map(delivery_named).transpose();
    let after = after.map_err(|_| RequestError::Query("`after` is the id of a delivery".into()))?;
    let page = server.engine.find_deliveries(&caller.tenant, event, hook, after, limit)?;
    let mut body =
        json!({ "deliveries": page.items.iter().map(delivery_json).collect::<Vec<_>>() });
    if let (Some(next), Some(object)) = (page.next, body.as_object_mut()) {
        object.insert("next".into(), delivery_name(next).into());
    }
    Ok(reply::json(StatusCode::OK, &body))
}

/// `GET /admin/v1/deliveries/{id}`: with every attempt.
pub(super) fn show(server: &Server, caller: &Caller, path: &str) -> Result<Reply, Error> {
    let name = path.strip_prefix(DELIVERIES).unwrap_or_default();
    let found = match delivery_named(name) {
        Ok(id) => server.engine.delivery(Some(&caller.tenant), id)?,
        Err(_) => None,
    };
    let Some(found) = found else {
        return Err(Error::DeliveryNotFound(format!("there is no delivery {name:?}")));
    };
    let mut body = delivery_json(&found);
    let attempts: Vec<Value> = found.record.delivery.attempts.iter().map(attempt_json).collect();
    if let Some(object) = body.as_object_mut() {
        object.insert("attempts".into(), attempts.into());
    }
    Ok(reply::json(StatusCode::OK, &body))
}

fn delivery_json(view: &DeliveryView) -> Value {
    let delivery = &view.record.delivery;
    let last = delivery.attempts.last();
    let mut value = json!({
        "id": delivery_name(view.id),
        "hook": &*view.hook.name,
        "event_id": view.event.as_ref().map(|event| &*event.id),
        "event_type": view.event.as_ref().map(|event| event.kind.as_str()),
        "state": status_label(delivery.standing()),
        "waits_for": waits_for(delivery.phase),
        "attempts_made": delivery.attempts.len(),
        "created_at": view.record.created_at.0,
    });
    let optional = [
        ("next_attempt_at", next_attempt_at(delivery.phase)),
        ("ended_at", delivery.ended_at().map(|at| at.0.into())),
        ("last_error", last.and_then(|it| it.error.as_deref()).map(Value::from)),
    ];
    if let Some(object) = value.as_object_mut() {
        for (name, value) in optional {
            if let Some(value) = value {
                object.insert(name.into(), value);
            }
        }
    }
    value
}

/// What has to happen before anything else does.
fn waits_for(phase: Phase) -> Option<&'static str> {
    match phase {
        Phase::Queued => Some("its turn"),
        Phase::Pending { .. } => Some("its time"),
        Phase::Leased { .. } => Some("an answer"),
        Phase::Held => Some("its hook to be active"),
        Phase::Delivered { .. } | Phase::Dead { .. } | Phase::Dropped { .. } => None,
    }
}

fn next_attempt_at(phase: Phase) -> Option<Value> {
    match phase {
        Phase::Pending { at } => Some(at.0.into()),
        _ => None,
    }
}

fn attempt_json(attempt: &AttemptRecord) -> Value {
    let AttemptRecord { number, at, took_ms, status, error, response } = attempt;
    json!({
        "number": number,
        "at": at.0,
        "took_ms": took_ms,
        "status": status,
        "error": error.as_deref(),
        "response": response.as_deref(),
    })
}
