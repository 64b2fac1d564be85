//! Subscriptions for those who look: one, many, those that match, and what they have come to.

use http::StatusCode;
use reveille_core::delivery::hook::DeliveryCounts;
use reveille_core::event::{EventType, Shard};
use reveille_engine::events::hook::EventHook;
use serde_json::{Value, json};

use super::error::Error;
use super::{Scope, namespace_of};
use crate::Server;
use crate::http::query::Query;
use crate::http::reply::{self, Reply};

/// Entries on a page, unless the caller asks for fewer.
const PAGE: usize = 1_000;

/// The subscription of this id, if it is within reach.
pub(super) fn find_hook(server: &Server, scope: &Scope, id: &str) -> Result<EventHook, Error> {
    server.engine.find_hook(scope.reach(), id)?.ok_or_else(Error::subscription_not_found)
}

/// A subscription without its secret.
pub(super) fn hook_json(hook: &EventHook) -> Value {
    let EventHook { hook, spec } = hook;
    let namespace = namespace_of(&hook.tenant);
    json!({
        "id": &*hook.name,
        "workerId": spec.worker.as_str(),
        "workerBinding": spec.binding.as_deref(),
        "pattern": spec.pattern.as_str(),
        "patternPrefix": spec.pattern.literal_prefix(),
        "rpcMethod": spec.method.as_str(),
        "maxRetries": spec.max_retries,
        "timeoutMs": spec.timeout_ms,
        "signed": spec.secret.is_some(),
        "active": hook.is_active(),
        "createdAt": hook.created_at.0,
        "created_by": hook.created_by.as_deref(),
        "updatedAt": hook.updated_at.0,
        "shard": Shard::of_pattern(&spec.pattern).label(namespace),
        "namespace": namespace,
    })
}

/// `GET /subscriptions/{id}`
pub(super) fn one(server: &Server, scope: &Scope, id: &str) -> Result<Reply, Error> {
    let hook = find_hook(server, scope, id)?;
    Ok(reply::json(StatusCode::OK, &json!({ "subscription": hook_json(&hook) })))
}

/// `GET /subscriptions/list`: those that all filters let through, newest first.
pub(super) fn list(server: &Server, scope: &Scope, query: Option<&str>) -> Result<Reply, Error> {
    let query = Query::parse(query);
    let active = match query.get("active")? {
        None => None,
        Some("true") => Some(true),
        Some("false") => Some(false),
        Some(_) => return Err(Error::invalid_parameter("active", "must be true or false")),
    };
    let (worker, prefix) = (query.get("workerId")?, query.get("patternPrefix")?);
    let (shard, created_by) = (query.get("shard")?, query.get("created_by")?);
    let (limit, offset) = (page_limit(&query, PAGE)?, parse_number(&query, "offset")?.unwrap_or(0));
    let is_wanted = |hook: &EventHook| {
        let EventHook { hook, spec } = hook;
        let own = Shard::of_pattern(&spec.pattern);
        active.is_none_or(|active| hook.is_active() == active)
            && worker.is_none_or(|worker| spec.worker.as_str() == worker)
            && created_by.is_none_or(|key| hook.created_by.as_deref() == Some(key))
            && prefix.is_none_or(|prefix| spec.pattern.as_str().starts_with(prefix))
            && shard.is_none_or(|shard| own.is_meant_by(shard, namespace_of(&hook.tenant)))
    };
    let mut hooks = server.engine.hooks(scope.reach());
    hooks.retain(is_wanted);
    let page = hooks.iter().rev().skip(offset).take(limit).map(list_item_json);
    let mut answer = json!({
        "subscriptions": page.collect::<Vec<_>>(),
        "namespace": scope.name(),
    });
    if let (Some(shard), Some(object)) = (shard, answer.as_object_mut()) {
        let label = match Shard::parse_label(shard) {
            Some((None, own)) => own.label(scope.name()),
            _ => shard.to_owned(),
        };
        object.insert("shard".into(), label.into());
    }
    Ok(reply::json(StatusCode::OK, &answer))
}

fn list_item_json(hook: &EventHook) -> Value {
    let mut value = hook_json(hook);
    let shard = value.get("shard").cloned().unwrap_or_default();
    if let Some(object) = value.as_object_mut() {
        object.insert("_shard".into(), shard);
    }
    value
}

/// `GET /subscriptions/match?eventType=TYPE`: the active ones that would get such an event.
pub(super) fn matching(
    server: &Server,
    scope: &Scope,
    query: Option<&str>,
) -> Result<Reply, Error> {
    let query = Query::parse(query);
    let kind = query.get("eventType")?.filter(|kind| !kind.is_empty());
    let kind = kind.ok_or_else(|| {
        Error::bad_request("MISSING_PARAM", "Missing required query param: eventType")
    })?;
    let kind = parse_event_type(kind)?;
    let hooks = server.engine.matching_hooks(&scope.tenant, &kind);
    let answer = json!({
        "subscriptions": hooks.iter().map(list_item_json).collect::<Vec<_>>(),
        "eventType": kind.as_str(),
        "shard": Shard::of_type(&kind).label(scope.name()),
        "namespace": scope.name(),
    });
    Ok(reply::json(StatusCode::OK, &answer))
}

/// The type of an event in a query.
pub(super) fn parse_event_type(text: &str) -> Result<EventType, Error> {
    let invalid =
        |error| Error::bad_request("INVALID_EVENT_TYPE", format!("Invalid eventType: {error}"));
    EventType::parse(text).map_err(invalid)
}

/// `GET /subscriptions/status/{id}`: nobody and nothing for one that is not there.
pub(super) fn status(server: &Server, scope: &Scope, id: &str) -> Result<Reply, Error> {
    let hook = server.engine.find_hook(scope.reach(), id)?;
    let counts = match &hook {
        Some(EventHook { hook, .. }) => server.engine.counts(hook)?,
        None => DeliveryCounts::default(),
    };
    let answer = json!({
        "subscription": hook.as_ref().map(hook_json),
        "stats": {
            "pendingDeliveries": counts.pending,
            "failedDeliveries": counts.failed,
            "deadLetters": counts.dead_letters,
            "successRate": ratio(counts.delivered, counts.attempts),
            "totalDelivered": counts.delivered,
            "totalAttempts": counts.attempts,
        },
    });
    Ok(reply::json(StatusCode::OK, &answer))
}

/// A part of a whole; nothing of nothing is nothing.
fn ratio(part: u64, whole: u64) -> f64 {
    // As floating-point numbers both are exact up to 2^53.
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// How many entries a page has.
pub(super) fn page_limit(query: &Query, default: usize) -> Result<usize, Error> {
    let Some(limit) = parse_number(query, "limit")? else { return Ok(default) };
    if (1..=PAGE).contains(&limit) {
        return Ok(limit);
    }
    Err(Error::invalid_parameter("limit", &format!("must be from 1 to {PAGE}")))
}

fn parse_number(query: &Query, name: &str) -> Result<Option<usize>, Error> {
    let Some(text) = query.get(name)? else { return Ok(None) };
    let is_plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let number = text.parse().ok().filter(|_| is_plain);
    number.map(Some).ok_or_else(|| Error::invalid_parameter(name, "must be a whole number"))
}
