//! Deliveries of a subscription: where they stand, each attempt, and those that were given up.

use http::{Request, StatusCode};
use hyper::body::Incoming;
use reveille_core::Millis;
use reveille_core::delivery::replay::LetterAction;
use reveille_core::delivery::{AttemptRecord, DeadReason, Phase};
use reveille_core::event::hook::FACE;
use reveille_engine::deliveries::DeliveryRejection;
use reveille_engine::deliveries::find::DeliveryView;
use reveille_engine::deliveries::replay::{ReplayRequest, replay_name};
use reveille_engine::events::hook::EventHook;
use reveille_engine::events::{DeadLetter, DeadLetterCursor, delivery_name, delivery_named};
use reveille_engine::limits::REPLAY_IDS_MAX;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::Scope;
use super::body::Body;
use super::error::Error;
use super::show::{find_hook, not_a_next, page_limit, parse_u64};
use crate::Server;
use crate::http::delivery::status_label;
use crate::http::moment;
use crate::http::page::Page;
use crate::http::query::Query;
use crate::http::reply::{self, Reply};

/// Entries on a page, unless the caller asks for another number.
const PAGE: usize = 100;

/// `GET /subscriptions/{id}/deliveries?limit=&after=`: those of the newest event first.
pub(super) async fn list(
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
    let mut page = Page::begin(&server.engine, &scope.tenant, "deliveries").await?;
    let mut take = |view: &DeliveryView| page.push(&delivery_json(server, view));
    let next = server.engine.deliveries(&hook, after, limit, &mut take)?;
    Ok(page.finish_with_next(next.map(delivery_name)))
}

fn delivery_json(server: &Server, view: &DeliveryView) -> Value {
    let date = |at: Millis| server.engine.date_of(at).0;
    let delivery = &view.record.delivery;
    let next = match delivery.phase {
        Phase::Pending { at } => Some(date(at)),
        _ => None,
    };
    json!({
        "id": delivery_name(view.id),
        "subscriptionId": &*view.hook.name,
        "eventId": view.event.as_ref().map(|event| &*event.id),
        "eventType": view.event.as_ref().map(|event| &*event.kind),
        "status": status_label(delivery.standing()),
        "attempts": delivery.attempts.len(),
        "nextAttemptAt": next,
        "createdAt": date(view.record.created_at),
        "endedAt": delivery.ended_at().map(date),
        "lastError": last_error(&delivery.attempts),
    })
}

fn last_error(attempts: &[AttemptRecord]) -> Option<&str> {
    attempts.last().and_then(|attempt| attempt.error.as_deref())
}

/// `GET /subscriptions/deliveries/{id}/logs`: one entry per attempt, oldest first. Of all of them
/// less is kept than a page holds.
pub(super) async fn logs(server: &Server, scope: &Scope, id: &str) -> Result<Reply, Error> {
    let mut page = Page::begin(&server.engine, &scope.tenant, "logs").await?;
    let found = match delivery_named(id) {
        Ok(id) => server.engine.delivery(scope.reach(), id)?.filter(|it| it.hook.face == FACE),
        Err(_) => None,
    };
    if let Some(view) = &found {
        for attempt in &view.record.delivery.attempts {
            page.push(&log_json(server, view, attempt));
        }
    }
    Ok(page.finish_with_next(None::<Value>))
}

fn log_json(server: &Server, view: &DeliveryView, attempt: &AttemptRecord) -> Value {
    let delivery = delivery_name(view.id);
    let mut log = json!({
        "id": format!("{delivery}-{}", attempt.number),
        "deliveryId": delivery,
        "subscriptionId": &*view.hook.name,
        "attemptNumber": attempt.number,
        "status": if attempt.error.is_none() { "success" } else { "failed" },
        "durationMs": attempt.took_ms,
        "createdAt": server.engine.date_of(attempt.at).0,
    });
    if let Some(object) = log.as_object_mut() {
        if let Some(error) = &attempt.error {
            object.insert("errorMessage".into(), error.as_ref().into());
        }
        // What a worker says of a failure is for operators: a log has its answer to what it took.
        if attempt.error.is_none()
            && let Some(response) = &attempt.response
        {
            object.insert("workerResponse".into(), response.as_ref().into());
        }
    }
    log
}

/// `GET /subscriptions/{id}/dead-letters?limit=&after=`: newest first, none for a subscription that
/// is not there.
pub(super) async fn dead_letters(
    server: &Server,
    scope: &Scope,
    id: &str,
    query: Option<&str>,
) -> Result<Reply, Error> {
    let query = Query::parse(query);
    let limit = page_limit(&query, PAGE)?;
    let after = query.get("after")?.map(parse_dead_letter_cursor).transpose()?;
    let mut page = Page::begin(&server.engine, &scope.tenant, "deadLetters").await?;
    let Some(EventHook { hook, .. }) = server.engine.find_hook(scope.reach(), id)? else {
        return Ok(page.finish_with_next(None::<Value>));
    };
    if after.is_some_and(|after| after.id.hook != hook.id) {
        return Err(not_a_next());
    }
    let mut take = |letter: &DeadLetter| page.push(&DeadLetterJson::of(server, letter));
    let next = server.engine.dead_letters(&hook, after, limit, &mut take)?;
    let next = next.map(|it| format!("{}-{}", it.died_at.0, delivery_name(it.id)));
    Ok(page.finish_with_next(next))
}

/// Where a list of dead letters goes on.
fn parse_dead_letter_cursor(text: &str) -> Result<DeadLetterCursor, Error> {
    let parts =
        text.split_once('-').and_then(|(at, id)| Some((parse_u64(at)?, delivery_named(id).ok()?)));
    let (at, id) = parts.ok_or_else(not_a_next)?;
    Ok(DeadLetterCursor { died_at: Millis(at), id })
}

/// A dead letter as it is written: what was to be delivered is not copied on the way.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct DeadLetterJson<'a> {
    id: String,
    delivery_id: String,
    subscription_id: &'a str,
    event_id: Option<&'a str>,
    event_payload: Option<&'a str>,
    reason: &'static str,
    last_error: Option<&'a str>,
    created_at: u64,
}

impl DeadLetterJson<'_> {
    fn of<'a>(server: &Server, letter: &'a DeadLetter) -> DeadLetterJson<'a> {
        let DeadLetter { shown, died_at, payload } = letter;
        let id = delivery_name(shown.id);
        let delivery = &shown.record.delivery;
        DeadLetterJson {
            delivery_id: id.clone(),
            id,
            subscription_id: &shown.hook.name,
            event_id: shown.event.as_ref().map(|event| &*event.id),
            event_payload: inner_payload(payload),
            reason: match delivery.phase {
                Phase::Dead { why: DeadReason::Refused, .. } => "refused",
                Phase::Dead { why: DeadReason::Expired, .. } => "EXPIRED",
                _ => "max_retries_exceeded",
            },
            last_error: last_error(&delivery.attempts),
            created_at: server.engine.date_of(*died_at).0,
        }
    }
}

/// The event as it was sent, out of its envelope.
fn inner_payload(envelope: &[u8]) -> Option<&str> {
    #[derive(Deserialize)]
    struct Envelope<'a> {
        #[serde(borrow)]
        payload: &'a RawValue,
    }
    let envelope: Envelope<'_> = serde_json::from_slice(envelope).ok()?;
    Some(envelope.payload.get())
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

/// `POST /subscriptions/{id}/dead-letters/retry`: all that are meant, as a replay.
pub(super) async fn retry_many(
    server: &Server,
    scope: &Scope,
    id: &str,
    request: Request<Incoming>,
) -> Result<Reply, Error> {
    let body = Body::read(server, &scope.tenant, request).await?;
    body.check_known(&["from", "to", "ids", "dryRun"])?;
    let moment = |name: &str| match body.get(name) {
        None => Ok(None),
        Some(value) => {
            let text = value.as_str().map(str::to_owned).unwrap_or_else(|| value.to_string());
            let parsed = moment::parse(&text).map(Some);
            parsed.ok_or_else(|| Error::invalid_field(name, moment::message(name)))
        }
    };
    let ids = match body.get("ids") {
        None => Vec::new(),
        Some(Value::Array(ids)) if ids.len() <= REPLAY_IDS_MAX => ids.clone(),
        Some(_) => {
            let said = format!("must be an array of at most {REPLAY_IDS_MAX} ids");
            return Err(Error::invalid_field("ids", said));
        }
    };
    let parse = |id: &Value| {
        let id = id.as_str().and_then(|name| delivery_named(name).ok());
        id.ok_or_else(|| Error::invalid_field("ids", "must hold ids of dead letters".to_owned()))
    };
    let EventHook { hook, .. } = find_hook(server, scope, id)?;
    let selection = ReplayRequest {
        tenant: hook.tenant.clone(),
        action: LetterAction::Replay,
        hook: Some(hook.name.clone()),
        why: None,
        from: moment("from")?,
        to: moment("to")?,
        ids: ids.iter().map(parse).collect::<Result<_, _>>()?,
        original: false,
    };
    let _room = Page::begin(&server.engine, &scope.tenant, "retry").await?;
    if body.get("dryRun").and_then(Value::as_bool).unwrap_or(false) {
        let preview = server.engine.preview_replay(&selection).await?;
        let (count, bytes) = (preview.count.count, preview.count.bytes);
        let answer = json!({ "ok": true, "dryRun": true, "count": count, "bytes": bytes });
        return Ok(reply::json(StatusCode::OK, &answer));
    }
    let replay = scope.engine(server).replay_now(&selection).await?;
    let answer = json!({ "ok": true, "replayId": replay_name(replay.id), "count": replay.total });
    Ok(reply::json(StatusCode::ACCEPTED, &answer))
}
