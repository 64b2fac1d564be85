//! Waking consumers: what is said to whom, one request, and its outcome home.

use std::sync::Arc;

use reveille_core::consumer::{
    AnnouncedOffset, Answer as WakeResponse, Dialect, Link, Phase, Stage,
};
use reveille_core::secret::SealBroken;
use reveille_core::stream::StreamId;
use reveille_core::subscription::{Subscription, SubscriptionId, Target};
use reveille_core::trace::Trace;
use reveille_core::{Millis, Offset, StreamPath, Tenant};
use reveille_deliver::courier::Answer;
use reveille_deliver::destination::{Destination, DestinationError};
use reveille_kernel::error::Damaged;
use reveille_kernel::outbound::{OutcomeQueue, PostError, SendFailure, Sender};
use reveille_kernel::timers::walk;
use reveille_schema::keys::{self, ConsumerKey};
use reveille_schema::record::{self, ConsumerRecord, LinkRecord};
use reveille_schema::wakes::WakeTimer;
use reveille_store::state::Reader;

use super::activity::activity_of;
use super::consumer::WakeOutcome;
use super::gauges::{SubscriptionGauges, load_of};
use super::index::SubscriptionIndex;
use super::trouble::host;
use crate::addresses::Addresses;
use crate::app::{App, Shared};
use crate::effect::{Attempt, WakeAttempt};
use crate::encoder::{NotifiedStream, WakeNotification};
use crate::limits::NOTICE_STREAMS_MAX;
use crate::metrics::{AttemptResult, WakeMetrics};
use crate::outbound::OutboundContext;
use crate::records::{ReadRecord, Scan, damaged};
use crate::spans::{self, OpenSpan, SpanCollector};
use crate::streams::access_times::AccessTimes;
use crate::streams::read;

/// What waking keeps from one attempt to the next.
#[derive(Default)]
pub struct WakeSender {
    addresses: Addresses<SubscriptionId, Subscription>,
    pub(crate) outcomes: OutcomeQueue<WakeOutcome, Attempt>,
}

/// An attempt that is to be made.
struct PreparedWake {
    notification: WakeNotification,
    destination: Result<Destination, DestinationError>,
    span: Option<OpenSpan>,
}

/// Makes an attempt, and returns the next one to make.
pub(crate) async fn attempt(
    sender: &Sender<App>,
    context: &OutboundContext,
    wakes: &WakeSender,
    wake: WakeAttempt,
    subscription: Arc<Subscription>,
) -> Option<Attempt> {
    let attempt = Attempt::Wake(wake.clone());
    let Some(prepared) = prepare(sender, context, wakes, &wake, subscription) else {
        sender.shared.outbox.ended(&attempt);
        return None;
    };
    let PreparedWake { notification, destination, span } = prepared;
    let started = notification.now;
    let metrics = sender.shared.domains.part::<WakeMetrics>();
    if wake.attempt == 1 {
        metrics.sent(started.since(notification.woken_at));
    }
    let answer = match destination {
        Ok(destination) => {
            let request = context.encoder.encode_wake(&notification);
            let timeout_ms = context.timings.webhook_timeout_ms;
            match sender.post(destination, request, timeout_ms, &attempt).await {
                Ok(answer) => Ok(answer),
                Err(PostError::Failed(failure)) => Err(failure),
                Err(PostError::PutBack) => return None,
            }
        }
        Err(error) => Err(SendFailure::new("destination", error.to_string())),
    };
    let took = sender.clock.now().since(started);
    let detail = answer.as_ref().err().and_then(|failure| failure.detail.clone());
    let (result, outcome) = judge(context, wake, &notification, answer);
    let good = outcome.error.is_none().then_some(took);
    let next = sender.answered(&attempt, good);
    metrics.attempted(result, took);
    let error = detail.as_deref().or(outcome.error.as_deref());
    tell_operators(sender, context, &notification, result, outcome.attempt.attempt, error, took);
    if let Some(span) = span {
        end_span(sender, span, &notification, &outcome);
    }
    wakes.outcomes.push(outcome, attempt);
    next
}

fn judge(
    context: &OutboundContext,
    attempt: WakeAttempt,
    notification: &WakeNotification,
    answer: Result<Answer, SendFailure>,
) -> (AttemptResult, WakeOutcome) {
    let (result, response, error) = match answer {
        Ok(answer) if (200..300).contains(&answer.status) => {
            if !answer.truncated && context.encoder.is_done(&answer.body) {
                let announced = announced(&notification.streams);
                (AttemptResult::Done, WakeResponse::Done(announced), None)
            } else {
                (AttemptResult::Accepted, WakeResponse::Accepted, None)
            }
        }
        Ok(answer) => {
            let error = format!("answered {}", answer.status);
            (AttemptResult::Failed("status"), WakeResponse::Failed, Some(error))
        }
        Err(error) => (AttemptResult::Failed(error.kind), WakeResponse::Failed, Some(error.text)),
    };
    (result, WakeOutcome { attempt, response, error: error.map(Into::into) })
}

fn tell_operators(
    sender: &Sender<App>,
    context: &OutboundContext,
    notification: &WakeNotification,
    how: AttemptResult,
    attempt: u32,
    error: Option<&str>,
    took_ms: u64,
) {
    let subscription = &*notification.subscription.spec.name;
    let stream = notification.primary.as_ref().map(StreamPath::as_str);
    let epoch = notification.epoch;
    tracing::debug!(subscription, stream, epoch, attempt, ?how, error, took_ms, "attempt");
    // One failure is an accident; the next one of the same wake is worth a look.
    if let Some(error) = error
        && attempt > 1
        && context.complaints.is_due(notification.subscription.id.0, sender.clock.now())
    {
        let tenant = notification.subscription.tenant.as_str();
        let host = host(&notification.subscription);
        tracing::warn!(
            subscription,
            stream,
            tenant,
            host,
            attempt,
            error,
            "an endpoint keeps failing"
        );
    }
}

/// What is to be said, if the attempt is still to be made; and to whom.
fn prepare(
    sender: &Sender<App>,
    context: &OutboundContext,
    wakes: &WakeSender,
    wake: &WakeAttempt,
    subscription: Arc<Subscription>,
) -> Option<PreparedWake> {
    let reader = sender.shared.state.reader();
    let (now, wall) = (sender.clock.now(), sender.clock.wall());
    let access_times = sender.shared.domains.part::<AccessTimes>();
    let (record, streams) = match current(&reader, &subscription, wake, now, access_times) {
        Ok(found) => found?,
        Err(error) => {
            tracing::error!(%error, "a consumer cannot be told");
            return None;
        }
    };
    let Target::Webhook(url) = &subscription.spec.target else {
        return None;
    };
    let (secret, previous_secret) = match open_secrets(context, &subscription, wall) {
        Ok(secrets) => secrets,
        Err(error) => {
            tracing::error!(%error, subscription = &*subscription.spec.name, "a consumer cannot be told");
            return None;
        }
    };
    let find = || Destination::parse(url, &context.rules);
    let destination = wakes.addresses.of(subscription.id, &subscription, find);
    let token = context.keyring.mint(
        &subscription,
        wake.consumer.path.as_ref(),
        record.primary,
        wake.epoch,
        wall + context.timings.token_ttl_ms,
    );
    let spans = sender.shared.domains.part::<SpanCollector>().get();
    let span = record.trace.map(Trace::from_bytes).and_then(|parent| {
        spans::begin(spans, context.entropy.as_ref(), "wake", Some(parent), now)
    });
    let notification = WakeNotification {
        primary: wake.consumer.path.clone(),
        epoch: wake.epoch,
        wake_id: record.consumer.wake_id?,
        woken_at: record.consumer.woken_at.unwrap_or(now),
        streams,
        token,
        now,
        wall,
        secret,
        previous_secret,
        signing: context.keyring.signing(),
        traceparent: span.map(|span| span.trace.to_string()),
        subscription,
    };
    Some(PreparedWake { notification, destination, span })
}

/// What signs, and what does so beside it until its time has passed.
fn open_secrets(
    context: &OutboundContext,
    subscription: &Subscription,
    wall: Millis,
) -> Result<(Option<String>, Option<String>), SealBroken> {
    let open = |sealed| context.keyring.open_webhook_secret(&subscription.tenant, sealed);
    let current = subscription.secret.as_ref().map(open).transpose()?;
    let previous = subscription.previous_secret(wall).map(open).transpose()?;
    Ok((current, previous))
}

fn end_span(
    sender: &Sender<App>,
    span: OpenSpan,
    notification: &WakeNotification,
    outcome: &WakeOutcome,
) {
    let stream = notification.primary.as_ref().map(|path| ("reveille.stream", path.to_string()));
    let attributes = [
        ("reveille.subscription", notification.subscription.spec.name.to_string()),
        ("reveille.epoch", notification.epoch.to_string()),
        ("reveille.attempt", outcome.attempt.attempt.to_string()),
    ];
    let attributes = attributes.into_iter().chain(stream).collect();
    let error = outcome.error.as_deref().map(str::to_owned);
    let spans = sender.shared.domains.part::<SpanCollector>().get();
    spans::end(spans, span, sender.clock.now(), attributes, error);
}

/// When a partition becomes the writer: attempts that were on their way are made again, and
/// consumers that are busy are counted. Attempts whose time has run out meanwhile are left to their
/// timers: to have been under way again for a moment would make that the endpoint's failure.
pub fn recover(shared: &Shared, now: Millis) -> Result<(), Damaged> {
    let reader = shared.state.reader();
    let gauges = shared.domains.part::<SubscriptionGauges>();
    let (from, to) = keys::all_resting();
    for pair in Scan::new(&reader, from, to) {
        let Some(consumer) = keys::parse_resting(&pair?.0) else { continue };
        let Ok(Some(record)) = consumer_record(&reader, &consumer) else { continue };
        gauges.found(consumer.subscription, load_of(&record));
    }
    walk(&reader, |at, timer, _| {
        let Some(WakeTimer::Consumer(consumer)) = WakeTimer::decode(timer) else { return };
        let Ok(Some(record)) = consumer_record(&reader, &consumer) else { return };
        if record.timer_at == Some(at) {
            shared.domains.part::<WakeMetrics>().found(activity_of(&record));
            gauges.found(consumer.subscription, load_of(&record));
        }
        if let Phase::Waking { attempt, stage: Stage::Sent { until } } = record.consumer.phase
            && now < until
        {
            let epoch = record.consumer.epoch;
            let index = &shared.lock().index;
            let Some(subscription) = index.of::<SubscriptionIndex>().get(consumer.subscription)
            else {
                return;
            };
            let tenant = subscription.tenant.clone();
            shared.outbox.push(Attempt::Wake(WakeAttempt { consumer, epoch, attempt, tenant }));
        }
    })
}

/// The consumer that an attempt is to tell, and the streams to tell it of; `None` if the attempt is
/// no longer to be made.
#[allow(clippy::type_complexity, reason = "a record and its streams, or neither")]
pub fn current(
    reader: &Reader,
    subscription: &Subscription,
    wake: &WakeAttempt,
    now: Millis,
    access_times: &AccessTimes,
) -> Result<Option<(ConsumerRecord, Vec<NotifiedStream>)>, Damaged> {
    // What waits in the outbox is not said; the consumer's timer finds that it was not.
    if subscription.paused_at.is_some() {
        return Ok(None);
    }
    let Some(record) = consumer_record(reader, &wake.consumer)? else {
        return Ok(None);
    };
    let Phase::Waking { attempt, stage: Stage::Sent { .. } } = record.consumer.phase else {
        return Ok(None);
    };
    if record.consumer.epoch != wake.epoch || attempt != wake.attempt {
        return Ok(None);
    }
    if let Some(path) = &wake.consumer.path {
        // What is left of a consumer whose stream has ended waits to be forgotten.
        let head = read::head(reader, &subscription.tenant, path)?;
        let lives = head.is_some_and(|head| {
            let same = !head.soft_deleted && Some(head.id) == record.primary;
            same && now < access_times.expires_at(&head)
        });
        if !lives {
            return Ok(None);
        }
    }
    let streams = streams(reader, subscription, &record)?;
    Ok(Some((record, streams)))
}

/// What a notice announces: streams with work, and where they end.
pub fn announced(streams: &[NotifiedStream]) -> Vec<AnnouncedOffset> {
    let pending = streams.iter().filter(|it| it.is_pending());
    let announced = |it: &NotifiedStream| {
        Some(AnnouncedOffset { path: it.path.clone(), stream: it.stream, tail: it.tail? })
    };
    pending.filter_map(announced).collect()
}

/// A consumer as it is kept.
pub(crate) fn consumer_record(
    reader: &Reader,
    key: &ConsumerKey,
) -> Result<Option<ConsumerRecord>, Damaged> {
    let mut reader = reader;
    reader.read(&keys::consumer(key), record::decode_consumer)
}

/// The streams of a subscription that have a mark in its backlog, or as many as a notice names.
fn marked(
    reader: &Reader,
    subscription: &Subscription,
    record: &ConsumerRecord,
) -> Result<Vec<StreamPath>, Damaged> {
    if let Some(marked) = &record.marked {
        return Ok(marked.clone());
    }
    let (from, to) = keys::backlogs(subscription.id);
    let marks = reader.keys(&from, &to, NOTICE_STREAMS_MAX)?;
    Ok(marks.iter().filter_map(|key| keys::parse_linked(key)).collect())
}

/// The streams that a consumer is to be told of.
pub fn streams(
    reader: &Reader,
    subscription: &Subscription,
    record: &ConsumerRecord,
) -> Result<Vec<NotifiedStream>, Damaged> {
    let tenant = &subscription.tenant;
    let mut found = Vec::new();
    match subscription.spec.dialect {
        Dialect::Webhooks => return followed(reader, tenant, &record.consumer.links),
        Dialect::Leases => {
            for path in marked(reader, subscription, record)? {
                let key = keys::link(subscription.id, &path);
                let Some(value) = reader.get(&key)? else { continue };
                let link = record::decode_link(&value).map_err(damaged)?;
                let tail = tail(reader, tenant, &path, link.stream)?;
                let LinkRecord { stream, acked, explicit } = link;
                found.push(NotifiedStream { path, stream, acked, tail, explicit });
            }
        }
    }
    Ok(found)
}

/// The streams of some links.
pub(super) fn followed(
    reader: &Reader,
    tenant: &Tenant,
    links: &[Link],
) -> Result<Vec<NotifiedStream>, Damaged> {
    let mut found = Vec::with_capacity(links.len());
    for Link { path, stream, acked } in links {
        let tail = tail(reader, tenant, path, *stream)?;
        let (path, stream, acked) = (path.clone(), *stream, *acked);
        found.push(NotifiedStream { path, stream, acked, tail, explicit: true });
    }
    Ok(found)
}

/// Where a stream ends, if it is still the one that is followed.
fn tail(
    reader: &Reader,
    tenant: &Tenant,
    path: &StreamPath,
    id: Option<StreamId>,
) -> Result<Option<Offset>, Damaged> {
    let head = read::head(reader, tenant, path)?;
    let head = head.filter(|head| !head.soft_deleted && id == Some(head.id));
    Ok(head.map(|head| head.tail))
}
