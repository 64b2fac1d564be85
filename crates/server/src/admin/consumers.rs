//! Consumers: where each of them stands, and what went wrong.

use http::StatusCode;
use reveille_core::consumer::{Dialect, Phase, Stage};
use reveille_core::{Millis, Offset, StreamPath};
use reveille_engine::ConsumerItem;
use reveille_engine::encoder::NotifiedStream;
use serde_json::{Value, json};

use super::limit;
use crate::Server;
use crate::http::auth::Caller;
use crate::http::error::Error;
use crate::http::query::{self, Query};
use crate::http::reply::{self, Reply};
use crate::wakes::consumer_name;
use crate::wakes::fields::acked_text;

/// `GET /admin/v1/consumers?subscription=&after=&limit=`
pub(crate) fn consumers(
    server: &Server,
    caller: &Caller,
    query: Option<&str>,
) -> Result<Reply, Error> {
    let query = Query::parse(query);
    let (named, after) = (query.get("subscription")?, query.get("after")?);
    let after = after.filter(|after| !after.is_empty());
    if after.is_some_and(|after| !is_place(after)) {
        let wrong = "`after` is the `next` of the page before, percent-encoded";
        return Err(Error::Query(wrong.into()));
    }
    let page = server.engine.consumers(&caller.tenant, named, after, limit(&query)?)?;
    let mut body = json!({ "consumers": page.items.iter().map(item).collect::<Vec<_>>() });
    if let (Some(next), Some(object)) = (page.next, body.as_object_mut()) {
        object.insert("next".into(), next.into());
    }
    Ok(reply::json(StatusCode::OK, &body))
}

/// Whether a page can begin there: after a subscription, or after one of its streams.
fn is_place(after: &str) -> bool {
    let (id, path) = after.split_at(after.find('/').unwrap_or(after.len()));
    id.parse::<u64>().is_ok() && (path.is_empty() || StreamPath::parse(path).is_ok())
}

/// `GET /admin/v1/consumers/{name}`: the name as it stands in notices and callback URLs, or
/// percent-encoded once more.
pub(crate) fn consumer(server: &Server, caller: &Caller, name: &str) -> Result<Reply, Error> {
    let (subscription, path) = named(name);
    let dialect = if path.is_some() { Dialect::Webhooks } else { Dialect::Leases };
    let found = server.engine.subscription(&caller.tenant, dialect, &subscription)?;
    let Some(found) = found else {
        return Err(Error::NoConsumer(format!("there is no subscription {subscription:?}")));
    };
    let path = path.map(|path| StreamPath::parse(&path)).transpose()?;
    match (server.engine.consumer(&found, path.as_ref())?, &path) {
        (Some(found), _) => Ok(reply::json(StatusCode::OK, &item(&found))),
        (None, Some(path)) => Err(Error::NoConsumer(format!(
            "subscription {subscription:?} has no consumer for {path}: there is no such stream, or \
             its pattern does not match it"
        ))),
        (None, None) => {
            Err(Error::NoConsumer(format!("subscription {subscription:?} has no consumer")))
        }
    }
}

/// The subscription and the path in the name of a consumer.
fn named(name: &str) -> (String, Option<String>) {
    let decode = query::decode_path;
    if let Some((subscription, path)) = name.split_once(':') {
        return (decode(subscription), Some(decode(path)));
    }
    let whole = decode(name);
    match whole.split_once(':') {
        // Only the colon was encoded once more: the path is bare by now.
        Some((subscription, path)) if path.starts_with('/') => {
            (subscription.to_owned(), Some(path.to_owned()))
        }
        Some((subscription, path)) => (subscription.to_owned(), Some(decode(path))),
        None => (whole, None),
    }
}

/// What its phase means to those who watch.
#[derive(Default)]
struct Standing {
    state: &'static str,
    attempt: Option<u32>,
    next_attempt_at: Option<Millis>,
    lease_until: Option<Millis>,
}

fn standing(phase: &Phase, dialect: Dialect) -> Standing {
    match *phase {
        Phase::Idle { wake_at: None } => Standing { state: "idle", ..Standing::default() },
        Phase::Idle { wake_at } => {
            Standing { state: "collecting", next_attempt_at: wake_at, ..Standing::default() }
        }
        Phase::Waking { attempt, stage: Stage::Sent { until } } => {
            let until = Some(until).filter(|until| *until != Millis::NEVER);
            let (next_attempt_at, lease_until) = match dialect {
                Dialect::Webhooks => (until, None),
                // There the lease begins with the wake.
                Dialect::Leases => (None, until),
            };
            Standing { state: "waking", attempt: Some(attempt), next_attempt_at, lease_until }
        }
        Phase::Waking { attempt, stage: Stage::Paused { until } } => Standing {
            state: "retrying",
            attempt: Some(attempt),
            next_attempt_at: Some(until),
            lease_until: None,
        },
        Phase::Live { until } => {
            Standing { state: "live", lease_until: Some(until), ..Standing::default() }
        }
        Phase::Gone(_) => Standing { state: "gone", ..Standing::default() },
    }
}

/// Whether it has work; `None` if no stream that is shown has any, and another one may.
fn pending(item: &ConsumerItem) -> Option<bool> {
    let marked = item.record.as_ref().map(|it| it.marked.as_deref());
    let elsewhere = item.more_streams && marked.is_some_and(|marked| marked != Some(&[]));
    (item.is_pending() || !elsewhere).then(|| item.is_pending())
}

fn item(item: &ConsumerItem) -> Value {
    let (subscription, consumer) = (&item.subscription, item.consumer());
    let dialect = subscription.spec.dialect;
    let standing = standing(&consumer.phase, dialect);
    let id = match &item.path {
        Some(path) => consumer_name(subscription, path),
        None => subscription.spec.name.to_string(),
    };
    let last_error = item.record.as_ref().and_then(|it| it.last_error.as_ref());
    let ms = |time: Option<Millis>| time.map(|time| time.0);
    json!({
        "id": id,
        "subscription": &*subscription.spec.name,
        "dialect": match dialect {
            Dialect::Webhooks => "webhooks",
            Dialect::Leases => "__ds",
        },
        "primary_stream": item.path.as_ref().map(StreamPath::as_str),
        "state": standing.state,
        "epoch": consumer.epoch,
        "wake_id": consumer.wake_id.map(|id| id.to_string()),
        "attempt": standing.attempt,
        "pending": pending(item),
        "streams": item.streams.iter().map(stream).collect::<Vec<_>>(),
        "more_streams": item.more_streams,
        "woken_at": ms(consumer.woken_at),
        "next_attempt_at": ms(standing.next_attempt_at),
        "lease_until": ms(standing.lease_until),
        "holder": consumer.holder.as_deref(),
        "last_error": last_error.map(|(at, message)| json!({ "at": at.0, "message": &**message })),
        "failures": item.record.as_ref().map_or(0, |it| it.failures),
        "failing_since": ms(consumer.failing_since),
        "wakes_saved": consumer.wakes_saved,
    })
}

fn stream(stream: &NotifiedStream) -> Value {
    let position = |at: Option<Offset>| at.map_or(0, Offset::position);
    json!({
        "path": stream.path.as_str(),
        "acked": acked_text(stream.acked),
        "tail": stream.tail.map(|tail| tail.to_string()),
        "lag_bytes": position(stream.tail).saturating_sub(position(stream.acked)),
    })
}
