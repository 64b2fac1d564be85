//! Telling consumers: takes attempts out of the outbox, makes them, and brings home what came of
//! them.

mod addresses;
mod complaints;
pub mod deliveries;
mod reports;

use std::sync::Arc;

use reveille_core::consumer::{AnnouncedOffset, Answer as Ending, Dialect, Phase, Stage};
use reveille_core::delivery::hook::{Hook, HookId};
use reveille_core::subscription::{Subscription, SubscriptionId, Target, Timings};
use reveille_core::trace::Trace;
use reveille_core::{Millis, Offset, StreamPath, Tenant};
use reveille_deliver::courier::{Answer, Courier, Request, SendError};
use reveille_deliver::destination::{Destination, DestinationError, Rules};
use reveille_schema::keys::{self, ConsumerKey};
use reveille_schema::record::{self, ConsumerRecord, LinkRecord};
use reveille_store::state::Reader;

use crate::access_times::AccessTimes;
use crate::command::Command;
use crate::command::consumer::WakeOutcome;
use crate::command::delivery::DeliveryOutcome;
use crate::committer::Shared;
use crate::doors::{Clock, Entropy};
use crate::effect::WakeAttempt;
use crate::encoder::{EncodedRequest, Encoder, NotifiedStream, WakeNotification};
use crate::failure::Failure;
use crate::fairness::{self, Fairness};
use crate::keyring::Keyring;
use crate::limits::{NOTICE_STREAMS_MAX, SLOW_AFTER_MS};
use crate::metrics::AttemptResult;
use crate::outbox::Attempt;
use crate::spans::{self, Begun, Spans};
use crate::{decide, due, reading, task};
pub(crate) use addresses::Addresses;
pub(crate) use complaints::Complaints;
pub(crate) use reports::{Reports, write_down};

/// Everything that telling takes.
pub(crate) struct Outbound {
    pub(crate) shared: Arc<Shared>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) courier: Arc<dyn Courier>,
    pub(crate) encoder: Arc<dyn Encoder>,
    pub(crate) keyring: Arc<Keyring>,
    pub(crate) rules: Rules,
    pub(crate) timings: Timings,
    pub(crate) complaints: Complaints,
    /// Of hooks.
    pub(crate) workers: Addresses<HookId, Hook>,
    /// Of subscriptions.
    pub(crate) webhooks: Addresses<SubscriptionId, Subscription>,
    pub(crate) entropy: Arc<dyn Entropy>,
    /// Of consumers that were told, or were not.
    pub(crate) told: Reports<WakeOutcome>,
    /// Of events that were delivered, or were not.
    pub(crate) delivered: Reports<DeliveryOutcome>,
    pub(crate) fairness: Arc<Fairness>,
}

/// Errands that are set out on at once.
const DISPATCH_MAX: usize = 64;

/// An attempt that is to be made.
struct Prepared {
    notification: WakeNotification,
    destination: Result<Destination, DestinationError>,
    span: Option<Begun>,
}

enum Whose {
    Subscription(Arc<Subscription>),
    Hook(Arc<Hook>),
}

/// Why nothing came back: a kind to count, and a sentence to keep.
struct Unsent {
    kind: &'static str,
    text: String,
}

impl From<SendError> for Unsent {
    fn from(error: SendError) -> Unsent {
        Unsent { kind: error.kind(), text: error.to_string() }
    }
}

/// Makes attempts until the partition stops.
pub(crate) async fn run(outbound: Arc<Outbound>) {
    let shared = outbound.shared.clone();
    tokio::spawn(task::blocking(move || deliveries::recover(&shared)));
    loop {
        let mut next = outbound.dispatch();
        while let Next::AtOnce = next {
            // However many there are, others have their turns between them.
            tokio::task::yield_now().await;
            next = outbound.dispatch();
        }
        while let Some((hook, from)) = outbound.shared.outbox.next_refill() {
            let shared = outbound.shared.clone();
            tokio::spawn(async move {
                task::blocking(move || deliveries::refill(&shared, hook, from)).await;
            });
        }
        if outbound.shared.lock().stopping {
            return;
        }
        let ready = outbound.shared.outbox.ready.notified();
        match next {
            Next::At(time) => tokio::select! {
                () = ready => {}
                () = outbound.clock.sleep_until(time) => {}
            },
            Next::AtOnce | Next::WhenReady => ready.await,
        }
    }
}

/// When there is more to set out on.
enum Next {
    AtOnce,
    /// When a tenant that uses much may go on.
    At(Millis),
    WhenReady,
}

impl Outbound {
    /// Sets out on the next errands.
    fn dispatch(self: &Arc<Outbound>) -> Next {
        let mut later: Option<Millis> = None;
        let attempts = self.shared.outbox.next_few(DISPATCH_MAX, |tenant| {
            let entered = self.fairness.try_attempt(tenant);
            later = later.into_iter().chain(entered.err()).min();
            entered.is_ok()
        });
        let next = match later {
            _ if attempts.len() == DISPATCH_MAX => Next::AtOnce,
            Some(time) => Next::At(time),
            None => Next::WhenReady,
        };
        for (attempt, whose) in self.look_up(attempts) {
            tokio::spawn(self.clone().run_attempts(attempt, whose));
        }
        next
    }

    /// Makes an attempt, and goes on with the next one as long as there is one.
    async fn run_attempts(self: Arc<Outbound>, attempt: Attempt, whose: Option<Whose>) {
        let mut going = Some((attempt, whose));
        while let Some((attempt, whose)) = going {
            let next = match (attempt, whose) {
                (Attempt::Wake(told), Some(Whose::Subscription(subscription))) => {
                    self.attempt(told, subscription).await
                }
                (Attempt::Delivery(job), Some(Whose::Hook(hook))) => self.deliver(job, hook).await,
                // Whose it was has ended, and so has it.
                (attempt, _) => {
                    self.shared.outbox.ended(&attempt, false);
                    None
                }
            };
            going = next.and_then(|attempt| self.look_up(vec![attempt]).pop());
            // Attempts that fail at once must not keep others from the processor.
            tokio::task::coop::consume_budget().await;
        }
    }

    /// An attempt was answered; what is next, if anything may be sent now.
    fn answered(&self, attempt: &Attempt, slow: bool, good: Option<u64>) -> Option<Attempt> {
        let may = |tenant: &Tenant| self.fairness.try_attempt(tenant).is_ok();
        self.shared.outbox.answered(attempt, slow, good, may)
    }

    /// Whose errands these are: one look for all of them. None are gone on when the server stops:
    /// what came of them could not be written down.
    fn look_up(&self, attempts: Vec<Attempt>) -> Vec<(Attempt, Option<Whose>)> {
        if attempts.is_empty() {
            return Vec::new();
        }
        let partition = self.shared.lock();
        if partition.stopping {
            return Vec::new();
        }
        let registry = &partition.registry;
        let looked_up = attempts.into_iter().map(|attempt| {
            let whose = match &attempt {
                Attempt::Wake(told) => {
                    registry.get(told.consumer.subscription).cloned().map(Whose::Subscription)
                }
                Attempt::Delivery(job) => registry.hooks.get(job.id.hook).cloned().map(Whose::Hook),
            };
            (attempt, whose)
        });
        looked_up.collect()
    }

    async fn attempt(&self, told: WakeAttempt, subscription: Arc<Subscription>) -> Option<Attempt> {
        let mut slow = false;
        let attempt = Attempt::Wake(told.clone());
        if let Some(prepared) = self.prepare(&told, subscription) {
            let Prepared { notification, destination, span } = prepared;
            let started = notification.now;
            self.fairness.count(&notification.subscription.tenant, fairness::ATTEMPT);
            if told.attempt == 1 {
                self.shared.metrics.telling.sent(started.since(notification.woken_at));
            }
            let answer = self.send(&notification, destination, &attempt, &mut slow).await;
            let took = self.clock.now().since(started);
            let (how, ended) = self.judge(&told, &notification, answer);
            let good = ended.error.is_none().then_some(took);
            let next = self.answered(&attempt, slow, good);
            self.shared.metrics.telling.attempted(how, took);
            self.tell_operators(&notification, how, &ended, took);
            if let Some(span) = span {
                self.end_span(span, &notification, &ended);
            }
            self.told.push(ended, attempt);
            next
        } else {
            self.shared.outbox.ended(&attempt, slow);
            None
        }
    }

    /// Sends a notice and waits for its answer; one that takes long makes room for others.
    async fn send(
        &self,
        notification: &WakeNotification,
        destination: Result<Destination, DestinationError>,
        attempt: &Attempt,
        slow: &mut bool,
    ) -> Result<Answer, Unsent> {
        let destination =
            destination.map_err(|error| Unsent { kind: "destination", text: error.to_string() })?;
        let message = self.encoder.encode_wake(notification);
        let timeout_ms = self.timings.webhook_timeout_ms;
        self.post(destination, message, timeout_ms, attempt, slow).await
    }

    /// Sends a request and waits for its answer, but no longer than this; one that takes a while
    /// makes room for others.
    async fn post(
        &self,
        destination: Destination,
        message: EncodedRequest,
        timeout_ms: u64,
        attempt: &Attempt,
        slow: &mut bool,
    ) -> Result<Answer, Unsent> {
        let EncodedRequest { headers, body } = message;
        let mut posting = self.courier.post(Request { destination, headers, body });
        let deadline = self.clock.now() + timeout_ms;
        let mut slow_at = self.clock.now() + SLOW_AFTER_MS;
        loop {
            let until = slow_at.min(deadline);
            tokio::select! {
                biased;
                answer = &mut posting => return answer.map_err(Unsent::from),
                () = self.clock.sleep_until(until) => {}
            }
            if until == deadline {
                return Err(SendError::TimedOut.into());
            }
            *slow = self.shared.outbox.slows(attempt);
            slow_at = deadline;
        }
    }

    fn judge(
        &self,
        told: &WakeAttempt,
        notification: &WakeNotification,
        answer: Result<Answer, Unsent>,
    ) -> (AttemptResult, WakeOutcome) {
        let (how, answer, error) = match answer {
            Ok(answer) if (200..300).contains(&answer.status) => {
                if !answer.truncated && self.encoder.is_done(&answer.body) {
                    let announced = announced(&notification.streams);
                    (AttemptResult::Done, Ending::Done(announced), None)
                } else {
                    (AttemptResult::Accepted, Ending::Accepted, None)
                }
            }
            Ok(answer) => {
                let error = format!("answered {}", answer.status);
                (AttemptResult::Failed("status"), Ending::Failed, Some(error))
            }
            Err(error) => (AttemptResult::Failed(error.kind), Ending::Failed, Some(error.text)),
        };
        (how, WakeOutcome { told: told.clone(), answer, error: error.map(Into::into) })
    }

    fn tell_operators(
        &self,
        notification: &WakeNotification,
        how: AttemptResult,
        ended: &WakeOutcome,
        took_ms: u64,
    ) {
        let subscription = &*notification.subscription.spec.name;
        let stream = notification.primary.as_ref().map(StreamPath::as_str);
        let (epoch, attempt) = (notification.epoch, ended.told.attempt);
        let error = ended.error.as_deref();
        tracing::debug!(subscription, stream, epoch, attempt, ?how, error, took_ms, "attempt");
        // One failure is an accident; the next one of the same wake is worth a look.
        if let Some(error) = error
            && attempt > 1
            && self.complaints.is_due(notification.subscription.id, self.clock.now())
        {
            tracing::warn!(subscription, stream, attempt, error, "an endpoint keeps failing");
        }
    }

    /// What came of an attempt is written down, however long that takes: until then nobody makes
    /// the next one. Says whether it was.
    async fn report(&self, command: &Command) -> bool {
        loop {
            match decide::run(&self.shared, self.clock.as_ref(), command).await {
                Err(Failure::Unavailable(crate::failure::Unavailable::Busy)) => {
                    let later = self.clock.now() + due::PAUSE_MS;
                    self.clock.sleep_until(later).await;
                }
                Err(error) => {
                    tracing::debug!(%error, "an answer could not be written down");
                    return false;
                }
                Ok(_) => return true,
            }
        }
    }

    /// What is to be said, if the attempt is still to be made; and to whom.
    fn prepare(&self, told: &WakeAttempt, subscription: Arc<Subscription>) -> Option<Prepared> {
        let reader = self.shared.state.reader();
        let now = self.clock.now();
        let found = current(&reader, &subscription, told, now, &self.shared.access_times);
        let (record, streams) = match found {
            Ok(found) => found?,
            Err(error) => {
                tracing::error!(%error, "a consumer cannot be told");
                return None;
            }
        };
        let Target::Webhook(url) = &subscription.spec.target else {
            return None;
        };
        let find = || Destination::parse(url, &self.rules);
        let destination = self.webhooks.of(subscription.id, &subscription, find);
        let token = self.keyring.mint(
            &subscription,
            told.consumer.path.as_ref(),
            record.primary,
            told.epoch,
            now + self.timings.token_ttl_ms,
        );
        let span = record.trace.map(Trace::from_bytes).and_then(|parent| {
            spans::begin(self.spans(), self.entropy.as_ref(), "wake", Some(parent), now)
        });
        let notification = WakeNotification {
            primary: told.consumer.path.clone(),
            epoch: told.epoch,
            wake_id: record.consumer.wake_id?,
            woken_at: record.consumer.woken_at.unwrap_or(now),
            streams,
            token,
            now,
            signing: self.keyring.signing(),
            traceparent: span.map(|span| span.trace.to_string()),
            subscription,
        };
        Some(Prepared { notification, destination, span })
    }

    fn spans(&self) -> Option<&Spans> {
        self.shared.spans.get().map(|spans| &**spans)
    }

    fn end_span(&self, span: Begun, notification: &WakeNotification, ended: &WakeOutcome) {
        let stream =
            notification.primary.as_ref().map(|path| ("reveille.stream", path.to_string()));
        let attributes = [
            ("reveille.subscription", notification.subscription.spec.name.to_string()),
            ("reveille.epoch", notification.epoch.to_string()),
            ("reveille.attempt", ended.told.attempt.to_string()),
        ];
        let attributes = attributes.into_iter().chain(stream).collect();
        let error = ended.error.as_deref().map(str::to_owned);
        spans::end(self.spans(), span, self.clock.now(), attributes, error);
    }
}

/// The consumer that an attempt is to tell, and the streams to tell it of; `None` if the attempt is
/// no longer to be made.
#[allow(clippy::type_complexity, reason = "a record and its streams, or neither")]
pub fn current(
    reader: &Reader,
    subscription: &Subscription,
    told: &WakeAttempt,
    now: Millis,
    access_times: &AccessTimes,
) -> Result<Option<(ConsumerRecord, Vec<NotifiedStream>)>, Failure> {
    let Some(record) = record(reader, &told.consumer)? else {
        return Ok(None);
    };
    let Phase::Waking { attempt, stage: Stage::Sent { .. } } = record.consumer.phase else {
        return Ok(None);
    };
    if record.consumer.epoch != told.epoch || attempt != told.attempt {
        return Ok(None);
    }
    if let Some(path) = &told.consumer.path {
        // What is left of a consumer whose stream has ended waits to be forgotten.
        let head = reading::head(reader, &subscription.tenant, path)?;
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
pub(crate) fn record(
    reader: &Reader,
    key: &ConsumerKey,
) -> Result<Option<ConsumerRecord>, Failure> {
    let value = reader.get(&keys::consumer(key)).map_err(reading::damaged)?;
    let read = value.map(|value| record::decode_consumer(&value)).transpose();
    read.map_err(|error| Failure::Damaged(error.to_string()))
}

/// The streams of a subscription that have a mark in its backlog, or as many as a notice names.
fn marked(
    reader: &Reader,
    subscription: &Subscription,
    record: &ConsumerRecord,
) -> Result<Vec<StreamPath>, Failure> {
    if let Some(marked) = &record.marked {
        return Ok(marked.clone());
    }
    let (from, to) = keys::backlogs(subscription.id);
    let marks = reader.keys(&from, &to, NOTICE_STREAMS_MAX).map_err(reading::damaged)?;
    Ok(marks.iter().filter_map(|key| keys::parse_linked(key)).collect())
}

/// The streams that a consumer is to be told of.
pub fn streams(
    reader: &Reader,
    subscription: &Subscription,
    record: &ConsumerRecord,
) -> Result<Vec<NotifiedStream>, Failure> {
    let tenant = &subscription.tenant;
    let tail = |path: &StreamPath, id| -> Result<Option<Offset>, Failure> {
        let head = reading::head(reader, tenant, path)?;
        let head = head.filter(|head| !head.soft_deleted);
        Ok(head.filter(|head| id == Some(head.id)).map(|head| head.tail))
    };
    let mut found = Vec::new();
    match subscription.spec.dialect {
        Dialect::Webhooks => {
            for link in &record.consumer.links {
                let (path, acked) = (link.path.clone(), link.acked);
                let tail = tail(&path, link.stream)?;
                found.push(NotifiedStream {
                    path,
                    stream: link.stream,
                    acked,
                    tail,
                    explicit: true,
                });
            }
        }
        Dialect::Leases => {
            for path in marked(reader, subscription, record)? {
                let key = keys::link(subscription.id, &path);
                let Some(value) = reader.get(&key).map_err(reading::damaged)? else { continue };
                let link = record::decode_link(&value)
                    .map_err(|error| Failure::Damaged(error.to_string()))?;
                let tail = tail(&path, link.stream)?;
                let LinkRecord { stream, acked, explicit } = link;
                found.push(NotifiedStream { path, stream, acked, tail, explicit });
            }
        }
    }
    Ok(found)
}
