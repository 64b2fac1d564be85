//! Deliveries: what became of an event, wherever it went.

use http::StatusCode;
use reveille_core::Millis;
use reveille_core::delivery::hook::Standing;
use reveille_core::delivery::outcome::hash_text;
use reveille_core::delivery::{AttemptRecord, ErrorKind, Phase};
use reveille_engine::deliveries::find::{DeliveryFilter, DeliveryView};
use reveille_engine::events::{delivery_name, delivery_named};
use serde_json::{Map, Value, json};

use super::dlq::tenant_of;
use super::error::Error;
use crate::Server;
use crate::http::auth::Caller;
use crate::http::delivery::status_label;
use crate::http::error::RequestError;
use crate::http::explanation::{Words, outcome};
use crate::http::moment;
use crate::http::page::{Page, page_limit};
use crate::http::query::Query;
use crate::http::reply::Reply;

/// Where deliveries are; the rest of the path is the id of one.
const DELIVERIES: &str = "/admin/v1/deliveries/";

const WORDS: Words =
    Words { hook: "hook", step: "match", matches: "the hook is for events like this" };

/// What can be asked for.
const PARAMETERS: &[&str] = &["tenant", "state", "hook", "event", "from", "to", "after", "limit"];

/// `GET /admin/v1/deliveries?tenant=&state=&hook=&event=&from=&to=&after=&limit=`: hook by hook from the
/// youngest on, those of the newest event first; or all of one event. With filters a page may be
/// short, or empty, and have a next one.
pub(super) async fn list(
    server: &Server,
    caller: &Caller,
    query: Option<&str>,
) -> Result<Reply, Error> {
    let query = Query::parse(query);
    query.check_known(PARAMETERS)?;
    let time = |date| server.engine.time_of(date);
    let filter = DeliveryFilter {
        event: query.get("event")?,
        hook: query.get("hook")?,
        standing: query.get("state")?.map(parse_state).transpose()?,
        from: moment::of_query(&query, "from")?.map(time),
        to: moment::of_query(&query, "to")?.map(time),
    };
    let tenant = tenant_of(caller, &query)?;
    let limit = page_limit(&query)?;
    let after = query.get("after")?.map(delivery_named).transpose();
    let after = after.map_err(|_| RequestError::Query("`after` is the id of a delivery".into()))?;
    let mut page = Page::begin(&server.engine, &caller.tenant, "deliveries").await?;
    let mut take = |view: &DeliveryView| page.push(&delivery_json(server, view));
    let next = server.engine.find_deliveries(&tenant, filter, after, limit, &mut take)?;
    Ok(page.finish_with_next(next.map(delivery_name)))
}

fn parse_state(text: &str) -> Result<Standing, RequestError> {
    let known = Standing::ALL.into_iter().find(|standing| status_label(*standing) == text);
    known.ok_or_else(|| {
        let labels = Standing::ALL.map(status_label).join(", ");
        RequestError::Query(format!("`state` is one of {labels}"))
    })
}

/// `GET /admin/v1/deliveries/explain?tenant=&hook=&event=`: why the event was delivered to the hook, or was
/// not, whatever face they are of.
pub(super) async fn explain(
    server: &Server,
    caller: &Caller,
    query: Option<&str>,
) -> Result<Reply, Error> {
    let query = Query::parse(query);
    query.check_known(&["tenant", "hook", "event"])?;
    let tenant = tenant_of(caller, &query)?;
    let (Some(hook), Some(event)) = (query.get("hook")?, query.get("event")?) else {
        let message = "it takes `hook` and `event`: the ids of the hook and of the event";
        return Err(RequestError::Query(message.into()).into());
    };
    let mut page = Page::begin(&server.engine, &caller.tenant, "steps").await?;
    let explained = server.engine.explain_named(&tenant, hook, event)?;
    WORDS.write_steps(server, &mut page, &explained.reasons);
    let fields = [
        ("hook", hook.into()),
        ("event_id", explained.event.id.as_ref().into()),
        ("event_type", explained.event.kind.as_ref().into()),
        ("outcome", Value::from(outcome(&explained.reasons))),
    ];
    let fields = fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    Ok(page.finish(StatusCode::OK, &fields))
}

/// `GET /admin/v1/deliveries/{id}`: with every attempt. Of all of them less is kept than a page holds.
pub(super) async fn show(
    server: &Server,
    caller: &Caller,
    path: &str,
    query: Option<&str>,
) -> Result<Reply, Error> {
    let query = Query::parse(query);
    query.check_known(&["tenant"])?;
    let tenant = tenant_of(caller, &query)?;
    let name = path.strip_prefix(DELIVERIES).unwrap_or_default();
    let mut page = Page::begin(&server.engine, &caller.tenant, "attempts").await?;
    let found = match delivery_named(name) {
        Ok(id) => server.engine.delivery(Some(&tenant), id)?,
        Err(_) => None,
    };
    let Some(found) = found else {
        return Err(Error::DeliveryNotFound(format!("there is no delivery {name:?}")));
    };
    for attempt in &found.record.delivery.attempts {
        page.push(&attempt_json(server, attempt));
    }
    Ok(page.finish(StatusCode::OK, &delivery_json(server, &found)))
}

fn delivery_json(server: &Server, view: &DeliveryView) -> Map<String, Value> {
    let date = |at: Millis| server.engine.date_of(at).0;
    let delivery = &view.record.delivery;
    let last = delivery.attempts.last();
    let event = view.event.as_ref();
    let always = [
        ("id", delivery_name(view.id).into()),
        ("hook", view.hook.name.as_ref().into()),
        ("event_id", event.map(|event| event.id.as_ref()).into()),
        ("event_type", event.map(|event| &*event.kind).into()),
        ("state", status_label(delivery.standing()).into()),
        ("waits_for", waits_for(delivery.phase).into()),
        ("attempts_made", delivery.attempts.len().into()),
        ("created_at", date(view.record.created_at).into()),
    ];
    let optional = [
        ("next_attempt_at", next_attempt_at(delivery.phase).map(|at| date(at).into())),
        ("ended_at", delivery.ended_at().map(|at| date(at).into())),
        ("last_error", last.and_then(|it| it.error.as_deref()).map(Value::from)),
    ];
    let optional = optional.into_iter().filter_map(|(name, value)| Some((name, value?)));
    always.into_iter().chain(optional).map(|(name, value)| (name.to_owned(), value)).collect()
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

fn next_attempt_at(phase: Phase) -> Option<Millis> {
    match phase {
        Phase::Pending { at } => Some(at),
        _ => None,
    }
}

fn attempt_json(server: &Server, attempt: &AttemptRecord) -> Value {
    let AttemptRecord { number, at, took_ms, status, error, response, kind, .. } = attempt;
    let AttemptRecord { headers_hash, retry_after_s, is_cut, .. } = attempt;
    json!({
        "number": number,
        "at": server.engine.date_of(*at).0,
        "took_ms": took_ms,
        "status": status,
        "error": error.as_deref(),
        "retry_after_s": retry_after_s,
        "error_kind": kind.map(ErrorKind::code),
        "response": response.as_deref(),
        "response_truncated": is_cut,
        "headers_hash": headers_hash.as_deref().map(hash_text),
    })
}
