//! Dead letters of a tenant, whatever face they are of: looking at them, having them made again or
//! discarded after a look at what that would be (`selection`), and discarding one, with a reason.

mod selection;

use std::sync::Arc;

use http::{Method, Request, StatusCode};
use hyper::body::Incoming;
use reveille_core::delivery::hook::{FaceId, Standing};
use reveille_core::delivery::outcome::hash_text;
use reveille_core::delivery::replay::LetterAction;
use reveille_core::delivery::{AttemptRecord, DeadReason};
use reveille_core::event::hook::FACE as EVENTS;
use reveille_core::fact::FACE as FACTS;
use reveille_core::trigger::message::ChangeMessage;
use reveille_core::trigger::payload::idempotency_key;
use reveille_core::trigger::{FACE as TRIGGERS, TriggerId};
use reveille_core::{Millis, Tenant};
use reveille_engine::deliveries::dead_letter::{DeadLetterView, LetterFilter, LetterState};
use reveille_engine::deliveries::replay::replay_name;
use reveille_engine::deliveries::{DeliveryError, DeliveryRejection};
use reveille_engine::events::{delivery_name, delivery_named};
use serde_json::{Map, Value, json};

use super::audit::tenant_asked_for;
use super::error::Error;
use crate::Server;
use crate::http::auth::Caller;
use crate::http::error::RequestError;
use crate::http::fields::{FieldError, Fields};
use crate::http::page::{Page, page_limit};
use crate::http::query::Query;
use crate::http::reply::{self, Reply};
use crate::http::{inbound, known, moment};

const DLQ: &str = "/admin/v1/dlq";

/// Answers a request about dead letters.
pub(super) async fn answer(
    server: &Server,
    caller: &Caller,
    request: Request<Incoming>,
) -> Result<Reply, Error> {
    let path = request.uri().path().to_owned();
    let rest = path.strip_prefix(DLQ).unwrap_or_default().trim_start_matches('/');
    let reads = matches!(*request.method(), Method::GET | Method::HEAD);
    let query = Query::parse(request.uri().query());
    match (rest.split_once('/'), rest) {
        (None, "") if reads => list(server, caller, &query).await,
        (None, "replay" | "discard") if request.method() == Method::POST => {
            let action =
                if rest == "replay" { LetterAction::Replay } else { LetterAction::Discard };
            selection::answer(server, caller, action, &query, request).await
        }
        (Some((id, "discard")), _) if request.method() == Method::POST => {
            discard(server, caller, &query, id, request).await
        }
        (None, "replay" | "discard") | (Some(_), _) => {
            let method = request.method().clone();
            Err(RequestError::Method { method, allowed: "POST, OPTIONS" }.into())
        }
        (None, id) if reads => show(server, caller, &query, id).await,
        _ => {
            let method = request.method().clone();
            Err(RequestError::Method { method, allowed: "GET, HEAD, OPTIONS" }.into())
        }
    }
}

/// The tenant that is asked about: the one that is named, or the caller's.
pub(super) fn tenant_of(caller: &Caller, query: &Query) -> Result<Tenant, RequestError> {
    Ok(tenant_asked_for(caller, query)?.unwrap_or_else(|| caller.tenant.clone()))
}

/// A hook by its name, which for a trigger is its id.
fn hook_of(hook: Option<&str>, trigger: Option<&str>) -> Result<Option<Arc<str>>, RequestError> {
    match (hook, trigger) {
        (Some(hook), Some(trigger)) if hook != trigger => {
            let said = "`hook` and `triggerId` name two: leave one of them out";
            Err(RequestError::Query(said.to_owned()))
        }
        (hook, trigger) => Ok(hook.or(trigger).map(Into::into)),
    }
}

/// Whoever names a trigger that is not there is told of triggers.
fn unknown_hook(error: DeliveryError, trigger: Option<&str>) -> Error {
    match (error, trigger) {
        (DeliveryError::Rejected(DeliveryRejection::NotFound), Some(id)) => {
            Error::TriggerNotFound(format!(
                "there is no trigger {id:?} of this tenant, and no dead letter of one; `GET \
                 /admin/v1/triggers` lists those that there are"
            ))
        }
        (error, _) => error.into(),
    }
}

/// `GET /admin/v1/dlq?tenant=&hook=&triggerId=&reason=&from=&to=&state=&after=&limit=`
async fn list(server: &Server, caller: &Caller, query: &Query) -> Result<Reply, Error> {
    query.check_known(&[
        "tenant",
        "hook",
        "triggerId",
        "reason",
        "from",
        "to",
        "state",
        "limit",
        "after",
        "cursor",
    ])?;
    let time = |date| server.engine.time_of(date);
    let trigger = query.get("triggerId")?;
    let filter = LetterFilter {
        tenant: tenant_of(caller, query)?,
        hook: hook_of(query.get("hook")?, trigger)?,
        why: query.get("reason")?.map(parse_reason).transpose().map_err(RequestError::Query)?,
        from: moment::of_query(query, "from")?.map_or(Millis(0), time),
        to: moment::of_query(query, "to")?.map_or(Millis::NEVER, time),
        state: parse_state(query.get("state")?)?,
    };
    let limit = page_limit(query)?;
    let after = query.after_or_cursor()?.map(parse_cursor).transpose()?;
    let mut page = Page::begin(&server.engine, &caller.tenant, "deadLetters").await?;
    let mut take = |view: &DeadLetterView| page.push(&letter_json(server, view));
    let next = server.engine.tenant_dead_letters(&filter, after, limit, &mut take).await;
    let next = next.map_err(|error| unknown_hook(error, trigger))?;
    Ok(page.finish_with_next(next.map(|(at, id)| format!("{:x}.{}", at.0, delivery_name(id)))))
}

fn parse_cursor(
    text: &str,
) -> Result<(Millis, reveille_core::delivery::id::DeliveryId), RequestError> {
    let parts = text.split_once('.').and_then(|(at, name)| {
        Some((Millis(u64::from_str_radix(at, 16).ok()?), delivery_named(name).ok()?))
    });
    parts.ok_or_else(|| RequestError::Query("`after` is `next` of a page".into()))
}

fn parse_reason(code: &str) -> Result<DeadReason, String> {
    let known = || DeadReason::ALL.map(DeadReason::code).join(", ");
    DeadReason::parse(code).ok_or_else(|| format!("the reason of a death is one of {}", known()))
}

fn parse_state(name: Option<&str>) -> Result<LetterState, RequestError> {
    match name {
        None | Some("dead") => Ok(LetterState::Dead),
        Some("replayed" | "replaying") => Ok(LetterState::Retried),
        Some("discarded") => Ok(LetterState::Discarded),
        Some(_) => Err(RequestError::Query("`state` is dead, replayed or discarded".into())),
    }
}

/// `GET /admin/v1/dlq/{id}`: with what was to be delivered.
async fn show(server: &Server, caller: &Caller, query: &Query, name: &str) -> Result<Reply, Error> {
    query.check_known(&["tenant"])?;
    let tenant = tenant_of(caller, query)?;
    let mut page = Page::begin(&server.engine, &caller.tenant, "replays").await?;
    let found = match delivery_named(name) {
        Ok(id) => server.engine.dead_letter_view(&tenant, id, true)?,
        Err(_) => None,
    };
    let found = found.ok_or_else(|| no_letter(name))?;
    if let Some((id, again)) = &found.again {
        let replay =
            again.replay.map(|replay| server.engine.replay(&tenant, replay)).transpose()?;
        let replay = replay.flatten();
        page.push(&json!({
            "replayId": again.replay.map(replay_name),
            "operator": replay.as_ref().map(|it| &*it.actor),
            "reason": replay.as_ref().and_then(|it| it.reason.as_deref()),
            "at": server.engine.date_of(again.created_at).0,
            "deliveryId": delivery_name(*id),
            "outcome": outcome(again.delivery.standing()),
        }));
    }
    let mut fields = letter_json(server, &found);
    if let Some(event) = &found.event {
        fields.extend(change_fields(&found, &event.payload));
        fields.insert("eventId".into(), event.id.as_ref().into());
        fields.insert("bytes".into(), event.payload.len().into());
        let payload = serde_json::from_slice(&event.payload);
        let text = || String::from_utf8_lossy(&event.payload).into_owned().into();
        fields.insert("payload".into(), payload.unwrap_or_else(|_| text()));
    }
    Ok(page.finish(StatusCode::OK, &fields))
}

fn outcome(standing: Standing) -> &'static str {
    match standing {
        Standing::Delivered => "succeeded",
        Standing::Dead => "failed",
        Standing::Dropped => "dropped",
        Standing::Pending | Standing::Failed => "pending",
    }
}

fn no_letter(name: &str) -> Error {
    Error::DeadLetterNotFound(format!("there is no dead letter {name:?} of this tenant"))
}

fn face_name(face: FaceId) -> String {
    match face {
        EVENTS => "events".to_owned(),
        TRIGGERS => "triggers".to_owned(),
        FACTS => "facts".to_owned(),
        other => format!("face-{}", other.0),
    }
}

/// What tells which change of a document a letter of a trigger is about.
fn change_fields(view: &DeadLetterView, message: &[u8]) -> Map<String, Value> {
    let trigger = TriggerId::parse(&view.hook.name).ok();
    let change = ChangeMessage::parse(message).ok();
    let Some((trigger, change)) = trigger.zip(change).filter(|_| view.hook.face == TRIGGERS) else {
        return Map::new();
    };
    let fields = [
        ("event", Value::from(change.kind.as_str())),
        ("collection", change.path.collection().as_str().into()),
        ("docKey", change.path.id().as_str().into()),
        ("path", change.path.to_string().into()),
        ("lsn", change.lsn.as_str().into()),
        ("seq", change.seq.into()),
        ("idempotencyKey", idempotency_key(&change.tenant, &trigger, change.seq).into()),
    ];
    fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

fn letter_json(server: &Server, view: &DeadLetterView) -> Map<String, Value> {
    let attempts = &view.record.delivery.attempts;
    let date = |at: Millis| server.engine.date_of(at).0;
    let state = match (view.state, &view.again) {
        (LetterState::Dead, _) => "dead",
        (LetterState::Discarded, _) => "discarded",
        (LetterState::Retried, Some((_, again))) if again.delivery.ended_at().is_none() => {
            "replaying"
        }
        (LetterState::Retried, _) => "replayed",
    };
    let fields = [
        ("dlqId", delivery_name(view.id).into()),
        ("tenant", view.hook.tenant.as_str().into()),
        ("face", face_name(view.hook.face).into()),
        ("hookId", view.hook.name.as_ref().into()),
        ("hookVersion", view.record.hook_version.into()),
        ("hookEndedAt", view.hook_ended_at.map(date).into()),
        ("reason", view.why.code().into()),
        ("attempts", attempts.len().into()),
        ("firstAttemptAt", attempts.first().map(|it| date(it.at)).into()),
        ("lastAttemptAt", attempts.last().map(|it| date(it.at)).into()),
        ("deadAt", date(view.died_at).into()),
        ("state", state.into()),
        ("advice", view.why.advice().into()),
        ("lastError", attempts.last().map(|last| error_json(last, attempts.len())).into()),
    ];
    let own = fields.into_iter().map(|(name, value)| (name.to_owned(), value));
    // What a trigger's letter is called where only triggers have some.
    let of_trigger = (view.hook.face == TRIGGERS).then(|| {
        [
            ("triggerId".to_owned(), view.hook.name.as_ref().into()),
            ("triggerVersion".to_owned(), view.record.hook_version.into()),
        ]
    });
    own.chain(of_trigger.into_iter().flatten()).collect()
}

/// The last error as it was: what came back, and how quickly.
fn error_json(last: &AttemptRecord, attempts: usize) -> Value {
    json!({
        "status": last.status,
        "headersHash": last.headers_hash.as_deref().map(hash_text),
        "body": last.response.as_deref(),
        "bodyTruncated": last.is_cut,
        "attempts": attempts,
        "errorKind": last.kind.map(|kind| kind.code()),
        "latencyMs": last.took_ms,
        "message": last.error.as_deref(),
    })
}

/// `POST /admin/v1/dlq/{id}/discard {"reason"}`
async fn discard(
    server: &Server,
    caller: &Caller,
    query: &Query,
    name: &str,
    request: Request<Incoming>,
) -> Result<Reply, Error> {
    query.check_known(&["tenant"])?;
    let tenant = tenant_of(caller, query)?;
    let body = read_body(server, caller, request).await?;
    known::check_fields(&body, &["reason"])?;
    let reason = required_reason(&Fields(&body))?;
    let id = delivery_named(name).map_err(|_| no_letter(name))?;
    caller.engine(server).discard_dead_letter(&tenant, id, name, &reason).await?;
    let answer = json!({ "dlqId": name, "state": "discarded" });
    Ok(reply::json(StatusCode::OK, &answer))
}

/// Why somebody does something: it is written down, and they have to say.
fn required_reason(fields: &Fields<'_>) -> Result<Arc<str>, FieldError> {
    let reason = fields.text("reason")?.map(str::trim).filter(|reason| !reason.is_empty());
    let reason = reason.ok_or("`reason` must say why; it is kept in the audit log")?;
    Ok(reason.into())
}

async fn read_body(
    server: &Server,
    caller: &Caller,
    request: Request<Incoming>,
) -> Result<Map<String, Value>, Error> {
    let (parts, body) = request.into_parts();
    inbound::read_object(server, &caller.tenant, &parts.headers, body).await
}
