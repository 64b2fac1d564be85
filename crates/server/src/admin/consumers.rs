//! Consumers: where each of them stands, what went wrong, and what an operator can do about it.

use std::sync::Arc;

use http::{Request, StatusCode};
use hyper::body::Incoming;
use reveille_core::consumer::{Dialect, Phase, RemovalReason, Stage};
use reveille_core::subscription::Subscription;
use reveille_core::{Millis, Offset, ReadFrom, StreamPath};
use reveille_engine::encoder::NotifiedStream;
use reveille_engine::wakes::{ConsumerFilter, ConsumerItem, ConsumerOrder};
use serde_json::{Map, Value, json};

use super::dlq::tenant_of;
use super::error::Error;
use crate::Server;
use crate::http::auth::Caller;
use crate::http::error::RequestError;
use crate::http::fields::{FieldError, Fields};
use crate::http::inbound;
use crate::http::known::check_fields;
use crate::http::page::{Page, page_limit};
use crate::http::query::{self, Query};
use crate::http::reply::Reply;
use crate::http::subscription::{AckedOffset, consumer_name};

/// Where consumers are; the rest of the path is the name of one.
const CONSUMERS: &str = "/admin/v1/consumers/";

/// What a consumer may be.
const STATES: [&str; 7] = ["idle", "collecting", "waking", "retrying", "live", "given_up", "gone"];

/// `GET /admin/v1/consumers?tenant=&subscription=&state=&after=&limit=`
pub(super) async fn list(
    server: &Server,
    caller: &Caller,
    query: Option<&str>,
) -> Result<Reply, Error> {
    let query = Query::parse(query);
    query.check_known(&["tenant", "subscription", "state", "after", "limit"])?;
    let tenant = tenant_of(caller, &query)?;
    let (named, after) = (query.get("subscription")?, query.get("after")?);
    let state = query.get("state")?;
    if state.is_some_and(|state| !STATES.contains(&state)) {
        let message = format!("`state` is one of `{}`", STATES.join("`, `"));
        return Err(RequestError::Query(message).into());
    }
    let after = after.filter(|after| !after.is_empty());
    if after.is_some_and(|after| !is_page_start(after)) {
        let message = "`after` is the `next` of the page before, percent-encoded";
        return Err(RequestError::Query(message.into()).into());
    }
    let limit = page_limit(&query)?;
    let mut page = Page::begin(&server.engine, &caller.tenant, "consumers").await?;
    let mut take = |item: &ConsumerItem| {
        let mut fields = consumer_json(server, item);
        let streams = item.streams.iter().map(stream_json).collect();
        fields.insert("streams".into(), Value::Array(streams));
        page.push(&fields)
    };
    let is_in_state = |item: &ConsumerItem| state == Some(state_of(item));
    let is_wanted = state.map(|_| &is_in_state as &dyn Fn(&ConsumerItem) -> bool);
    let filter = ConsumerFilter { named, is_wanted };
    let next = server.engine.consumers(&tenant, &filter, after, limit, &mut take)?;
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
    let (subscription, path) = find(server, caller, name)?;
    show_one(server, caller, &subscription, path.as_ref()).await
}

/// `POST /admin/v1/consumers/{name}/wake`, `/seek` or `/revive`; the answer is the consumer.
pub(super) async fn operate(
    server: &Server,
    caller: &Caller,
    request: Request<Incoming>,
) -> Result<Reply, Error> {
    let (parts, body) = request.into_parts();
    let rest = parts.uri.path().strip_prefix(CONSUMERS).unwrap_or_default();
    let (name, verb) = rest.rsplit_once('/').unwrap_or((rest, ""));
    if !matches!(verb, "wake" | "seek" | "revive") {
        let message = "a consumer takes POST on its `/wake`, `/seek` and `/revive`";
        return Err(Error::ConsumerNotFound(message.to_owned()));
    }
    let (tenant, headers) = (&caller.tenant, &parts.headers);
    let body = inbound::read_optional_object::<Error>(server, tenant, headers, body).await?;
    let (subscription, path) = find(server, caller, name)?;
    let order = parse_order(verb, &body, path.is_some())?;
    let reason = Fields(&body).text("reason")?.map(str::trim).filter(|reason| !reason.is_empty());
    let (tenant, consumer) = (caller.tenant.as_str(), display_name(&subscription, path.as_ref()));
    let (engine, reason) = (caller.engine(server), reason.map(Arc::from));
    let (path_of_it, asked) = (path.as_ref(), order.clone());
    engine.operate_consumer(&subscription, path_of_it, asked, &consumer, reason).await?;
    tracing::info!(consumer, tenant, ?order, "an operator has moved a consumer");
    show_one(server, caller, &subscription, path.as_ref()).await
}

fn parse_order(
    verb: &str,
    body: &Map<String, Value>,
    is_of_stream: bool,
) -> Result<ConsumerOrder, FieldError> {
    let fields = Fields(body);
    match verb {
        "wake" => {
            check_fields(body, &["force", "reason"])?;
            Ok(ConsumerOrder::Wake { force: fields.flag("force")? })
        }
        "seek" => {
            check_fields(body, &["stream", "offset", "reason"])?;
            let stream = fields.text("stream")?.map(StreamPath::parse).transpose();
            let stream = stream.map_err(|error| format!("`stream`: {error}"))?;
            if stream.is_none() && !is_of_stream {
                let message = "`stream` is missing: a subscription with leases is for any number \
                               of streams; name the one to move in";
                return Err(message.into());
            }
            let offset = fields.text("offset")?.ok_or(
                "`offset` is missing; send `-1` for the beginning, `now` for the end, or a \
                 Stream-Next-Offset",
            )?;
            let to: ReadFrom = offset.parse().map_err(|error| format!("`offset`: {error}"))?;
            Ok(ConsumerOrder::Seek { stream, to })
        }
        _ => {
            check_fields(body, &["reason"])?;
            Ok(ConsumerOrder::Revive)
        }
    }
}

/// The subscription and the stream of the consumer of a name, whether there is one or not.
fn find(
    server: &Server,
    caller: &Caller,
    name: &str,
) -> Result<(Subscription, Option<StreamPath>), Error> {
    let (subscription, path) = parse_name(name);
    let dialect = if path.is_some() { Dialect::Webhooks } else { Dialect::Leases };
    let found = server.engine.subscription(&caller.tenant, dialect, &subscription)?;
    let Some(found) = found else {
        return Err(Error::ConsumerNotFound(format!("there is no subscription {subscription:?}")));
    };
    let path = path.map(|path| StreamPath::parse(&path)).transpose().map_err(RequestError::from)?;
    Ok((found, path))
}

async fn show_one(
    server: &Server,
    caller: &Caller,
    subscription: &Subscription,
    path: Option<&StreamPath>,
) -> Result<Reply, Error> {
    let mut page = Page::begin(&server.engine, &caller.tenant, "streams").await?;
    let name = &*subscription.spec.name;
    match (server.engine.consumer(subscription, path)?, path) {
        (Some(found), _) => {
            let mut fields = consumer_json(server, &found);
            let mut streams = found.streams.iter();
            if !streams.all(|stream| page.push(&stream_json(stream))) {
                fields.insert("more_streams".into(), true.into());
            }
            Ok(page.finish(StatusCode::OK, &fields))
        }
        (None, Some(path)) => Err(Error::ConsumerNotFound(format!(
            "subscription {name:?} has no consumer for {path}: there is no such stream, or its \
             pattern does not match it"
        ))),
        (None, None) => {
            Err(Error::ConsumerNotFound(format!("subscription {name:?} has no consumer")))
        }
    }
}

fn display_name(subscription: &Subscription, path: Option<&StreamPath>) -> String {
    match path {
        Some(path) => consumer_name(subscription, path),
        None => subscription.spec.name.to_string(),
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
        Phase::Gone(RemovalReason::Failed) => {
            ConsumerStatus { state: "given_up", ..ConsumerStatus::default() }
        }
        Phase::Gone(RemovalReason::Unsubscribed) => {
            ConsumerStatus { state: "gone", ..ConsumerStatus::default() }
        }
    }
}

fn state_of(item: &ConsumerItem) -> &'static str {
    let phase = item.record.as_ref().map(|it| &it.consumer.phase);
    let idle = Phase::Idle { wake_at: None };
    consumer_status(phase.unwrap_or(&idle), item.subscription.spec.dialect).state
}

/// Whether it has work; `None` if no stream that is shown has any, and another one may.
fn has_work(item: &ConsumerItem) -> Option<bool> {
    let marked = item.record.as_ref().map(|it| it.marked.as_deref());
    let may_be_elsewhere = item.more_streams && marked.is_some_and(|marked| marked != Some(&[]));
    (item.is_pending() || !may_be_elsewhere).then(|| item.is_pending())
}

/// All that is told of a consumer but the streams that it follows.
fn consumer_json(server: &Server, item: &ConsumerItem) -> Map<String, Value> {
    let date = |at: Millis| server.engine.date_of(at).0;
    let (subscription, consumer) = (&item.subscription, item.consumer());
    let dialect = subscription.spec.dialect;
    let status = consumer_status(&consumer.phase, dialect);
    let id = display_name(subscription, item.path.as_ref());
    let dialect = match dialect {
        Dialect::Webhooks => "webhooks",
        Dialect::Leases => "__ds",
    };
    let last_error = item.record.as_ref().and_then(|it| it.last_error.as_ref());
    let last_error =
        last_error.map(|(at, message)| json!({ "at": date(*at), "message": &**message }));
    let ms = |time: Option<Millis>| time.map(date).into();
    let fields: [(&str, Value); 22] = [
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
        ("fruitless_dones", consumer.fruitless_dones.into()),
        ("given_up_at", ms(consumer.given_up.map(|it| it.at))),
        ("kept_until", ms(consumer.given_up.map(|it| it.until))),
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
