//! Consumers: where each of them stands, and what went wrong.

use http::StatusCode;
use reveille_core::consumer::{Dialect, Phase, Stage};
use reveille_core::{Millis, Offset, StreamPath};
use reveille_engine::encoder::NotifiedStream;
use reveille_engine::wakes::ConsumerItem;
use serde_json::{Map, Value, json};

use super::error::Error;
use crate::Server;
use crate::http::auth::Caller;
use crate::http::error::RequestError;
use crate::http::page::{Page, page_limit};
use crate::http::query::{self, Query};
use crate::http::reply::Reply;
use crate::http::subscription::{AckedOffset, consumer_name};

/// Where consumers are; the rest of the path is the name of one.
const CONSUMERS: &str = "/admin/v1/consumers/";

/// `GET /admin/v1/consumers?subscription=&after=&limit=`
pub(super) async fn list(
    server: &Server,
    caller: &Caller,
    query: Option<&str>,
) -> Result<Reply, Error> {
    let query = Query::parse(query);
    let (named, after) = (query.get("subscription")?, query.get("after")?);
    let after = after.filter(|after| !after.is_empty());
    if after.is_some_and(|after| !is_page_start(after)) {
        let message = "`after` is the `next` of the page before, percent-encoded";
        return Err(RequestError::Query(message.into()).into());
    }
    let limit = page_limit(&query)?;
    let mut page = Page::begin(&server.engine, &caller.tenant, "consumers").await?;
    let mut take = |item: &ConsumerItem| {
        let mut fields = consumer_json(item);
        let streams = item.streams.iter().map(stream_json).collect();
        fields.insert("streams".into(), Value::Array(streams));
        page.push(&fields)
    };
    let next = server.engine.consumers(&caller.tenant, named, after, limit, &mut take)?;
    Ok(page.finish_with_next(next))
}

/// Whether a page can begin there: after a subscription, or after one of its streams.
fn is_page_start(after: &str) -> bool {
    let (id, path) = after.split_at(after.find('/').unwrap_or(after.len()));
    id.parse::<u64>().is_ok() && (path.is_empty() || StreamPath::parse(path).is_ok())
}

/// `GET /admin/v1/consumers/{name}`: the name as it stands in notifications and callback URLs, or
/// percent-encoded once more.
pub(super) async fn show(server: &Server, caller: &Caller, path: &str) -> Result<Reply, Error> {
    let name = path.strip_prefix(CONSUMERS).unwrap_or_default();
    let (subscription, path) = parse_name(name);
    let dialect = if path.is_some() { Dialect::Webhooks } else { Dialect::Leases };
    let found = server.engine.subscription(&caller.tenant, dialect, &subscription)?;
    let Some(found) = found else {
        return Err(Error::ConsumerNotFound(format!("there is no subscription {subscription:?}")));
    };
    let path = path.map(|path| StreamPath::parse(&path)).transpose().map_err(RequestError::from)?;
    let mut page = Page::begin(&server.engine, &caller.tenant, "streams").await?;
    match (server.engine.consumer(&found, path.as_ref())?, &path) {
        (Some(found), _) => {
            let mut fields = consumer_json(&found);
            let mut streams = found.streams.iter();
            if !streams.all(|stream| page.push(&stream_json(stream))) {
                fields.insert("more_streams".into(), true.into());
            }
            Ok(page.finish(StatusCode::OK, &fields))
        }
        (None, Some(path)) => Err(Error::ConsumerNotFound(format!(
            "subscription {subscription:?} has no consumer for {path}: there is no such stream, or \
             its pattern does not match it"
        ))),
        (None, None) => {
            Err(Error::ConsumerNotFound(format!("subscription {subscription:?} has no consumer")))
        }
    }
}

/// The subscription and the path in the name of a consumer.
fn parse_name(name: &str) -> (String, Option<String>) {
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

/// What the phase of a consumer means to those who watch.
#[derive(Default)]
struct ConsumerStatus {
    state: &'static str,
    attempt: Option<u32>,
    next_attempt_at: Option<Millis>,
    lease_until: Option<Millis>,
}

fn consumer_status(phase: &Phase, dialect: Dialect) -> ConsumerStatus {
    match *phase {
        Phase::Idle { wake_at: None } => {
            ConsumerStatus { state: "idle", ..ConsumerStatus::default() }
        }
        Phase::Idle { wake_at } => ConsumerStatus {
            state: "collecting",
            next_attempt_at: wake_at,
            ..ConsumerStatus::default()
        },
        Phase::Waking { attempt, stage: Stage::Sent { until } } => {
            let until = Some(until).filter(|until| *until != Millis::NEVER);
            let (next_attempt_at, lease_until) = match dialect {
                Dialect::Webhooks => (until, None),
                // There the lease begins with the wake.
                Dialect::Leases => (None, until),
            };
            ConsumerStatus { state: "waking", attempt: Some(attempt), next_attempt_at, lease_until }
        }
        Phase::Waking { attempt, stage: Stage::Paused { until } } => ConsumerStatus {
            state: "retrying",
            attempt: Some(attempt),
            next_attempt_at: Some(until),
            lease_until: None,
        },
        Phase::Live { until } => {
            ConsumerStatus { state: "live", lease_until: Some(until), ..ConsumerStatus::default() }
        }
        Phase::Gone(_) => ConsumerStatus { state: "gone", ..ConsumerStatus::default() },
    }
}

/// Whether it has work; `None` if no stream that is shown has any, and another one may.
fn has_work(item: &ConsumerItem) -> Option<bool> {
    let marked = item.record.as_ref().map(|it| it.marked.as_deref());
    let may_be_elsewhere = item.more_streams && marked.is_some_and(|marked| marked != Some(&[]));
    (item.is_pending() || !may_be_elsewhere).then(|| item.is_pending())
}

/// All that is told of a consumer but the streams that it follows.
fn consumer_json(item: &ConsumerItem) -> Map<String, Value> {
    let (subscription, consumer) = (&item.subscription, item.consumer());
    let dialect = subscription.spec.dialect;
    let status = consumer_status(&consumer.phase, dialect);
    let id = match &item.path {
        Some(path) => consumer_name(subscription, path),
        None => subscription.spec.name.to_string(),
    };
    let dialect = match dialect {
        Dialect::Webhooks => "webhooks",
        Dialect::Leases => "__ds",
    };
    let last_error = item.record.as_ref().and_then(|it| it.last_error.as_ref());
    let last_error = last_error.map(|(at, message)| json!({ "at": at.0, "message": &**message }));
    let ms = |time: Option<Millis>| time.map(|time| time.0).into();
    let fields: [(&str, Value); 19] = [
        ("id", id.into()),
        ("subscription", subscription.spec.name.as_ref().into()),
        ("dialect", dialect.into()),
        ("primary_stream", item.path.as_ref().map(StreamPath::as_str).into()),
        ("state", status.state.into()),
        ("epoch", consumer.epoch.into()),
        ("wake_id", consumer.wake_id.map(|id| id.to_string()).into()),
        ("attempt", status.attempt.into()),
        ("pending", has_work(item).into()),
        ("more_streams", item.more_streams.into()),
        ("stream_count", item.stream_count.into()),
        ("woken_at", ms(consumer.woken_at)),
        ("next_attempt_at", ms(status.next_attempt_at)),
        ("lease_until", ms(status.lease_until)),
        ("holder", consumer.holder.as_deref().into()),
        ("last_error", last_error.into()),
        ("failures", item.record.as_ref().map_or(0, |it| it.failures).into()),
        ("failing_since", ms(consumer.failing_since)),
        ("wakes_saved", consumer.wakes_saved.into()),
    ];
    fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

fn stream_json(stream: &NotifiedStream) -> Value {
    let position = |at: Option<Offset>| at.map_or(0, Offset::position);
    json!({
        "path": stream.path.as_str(),
        "acked": AckedOffset(stream.acked),
        "tail": stream.tail.map(|tail| tail.to_string()),
        "lag_bytes": position(stream.tail).saturating_sub(position(stream.acked)),
    })
}
