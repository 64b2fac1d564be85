//! Delivering events: the words from the stream that keeps them, one request, and its outcome home.

use std::sync::Arc;

use bytes::Bytes;
use reveille_core::Tenant;
use reveille_core::delivery::hook::{Hook, HookId};
use reveille_core::delivery::id::{DeliveryId, DeliveryNo, EventNo};
use reveille_core::delivery::{AttemptRecord, Phase, Verdict};
use reveille_core::key_range::above;
use reveille_deliver::courier::Answer;
use reveille_deliver::destination::Destination;
use reveille_schema::keys;
use reveille_schema::keys::Due;
use reveille_schema::record::{self, DeliveryRecord, EventRecord};
use reveille_store::keys::BlobId;
use reveille_store::state::Reader;
use reveille_store::table::Pair;

use super::{Outbound, Unsent};
use crate::command::Command;
use crate::command::delivery::DeliveryOutcome;
use crate::command::timer_group::Open;
use crate::committer::Shared;
use crate::effect::{DeliveryAttempt, Fresh};
use crate::encoder::DeliveryNotification;
use crate::failure::Failure;
use crate::outbox::{Attempt, PushResult};
use crate::{due, reading};

/// How much of an answer is kept with the attempt.
const RESPONSE_BYTES_MAX: usize = 4 << 10;
/// How long an error text may be that is kept with an attempt.
const ERROR_BYTES_MAX: usize = 256;

/// What is to be done about an attempt whose turn it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ready {
    /// It is made, of this event.
    Send(Fresh),
    /// It is not made: the hook is not active.
    Held,
    /// There is nothing to be done any more.
    Nothing,
}

/// Whether an attempt is still to be made, and what is to be said.
pub fn ready(reader: &Reader, hook: &Hook, job: &DeliveryAttempt) -> Result<Ready, Failure> {
    // What came a moment ago is as it was decided, but for its hook: nobody else makes an attempt
    // that waits in the outbox.
    if let Some(fresh) = job.fresh.as_ref().filter(|_| hook.is_active()) {
        return Ok(Ready::Send(fresh.clone()));
    }
    let record = record(reader, job.id)?;
    let current = record.is_some_and(
        |it| matches!(it.delivery.phase, Phase::Leased { attempt, .. } if attempt == job.attempt),
    );
    if !current {
        return Ok(Ready::Nothing);
    }
    if !hook.is_active() {
        return Ok(Ready::Held);
    }
    let Some(event) = event(reader, &hook.tenant, job.id.no.event)? else {
        return Err(Failure::Damaged(format!("event {} is gone", job.id.no.event.0)));
    };
    let payload = payload_of(reader, &event)?;
    Ok(Ready::Send(Fresh { id: event.id, at: event.at, payload }))
}

impl Outbound {
    pub(super) async fn deliver(&self, job: DeliveryAttempt, hook: Arc<Hook>) -> Option<Attempt> {
        let mut slow = false;
        let ready = ready(&self.shared.state.reader(), &hook, &job);
        let (id, number) = (job.id, job.attempt);
        let attempt = Attempt::Delivery(DeliveryAttempt { fresh: None, ..job });
        let delivered = match ready {
            Ok(Ready::Send(event)) => {
                let notification = self.notification(hook, id, number, event);
                self.try_once(notification, &attempt, &mut slow).await
            }
            Err(error) => {
                tracing::error!(%error, "an event cannot be delivered");
                self.unreadable(id, number)
            }
            Ok(Ready::Held) => {
                // It counts as under way until that is written down: the same attempt may not
                // be made for good before.
                self.report(&Command::Unsent { id, attempt: number }).await;
                self.shared.outbox.ended(&attempt, slow);
                return None;
            }
            Ok(Ready::Nothing) => {
                self.shared.outbox.ended(&attempt, slow);
                return None;
            }
        };
        let good = (delivered.verdict == Verdict::Delivered).then_some(delivered.attempt.took_ms);
        let next = self.answered(&attempt, slow, good);
        self.delivered.push(delivered, attempt);
        next
    }

    /// What is to be put into words.
    fn notification(
        &self,
        hook: Arc<Hook>,
        id: DeliveryId,
        attempt: u32,
        event: Fresh,
    ) -> DeliveryNotification {
        let now = self.clock.now();
        if attempt == 1 && id.no.round == 0 {
            self.shared.metrics.delivering.sent(now.since(event.at));
        }
        DeliveryNotification { hook, id, attempt, event: event.id, payload: event.payload, now }
    }

    /// An attempt that failed because what is to be delivered cannot be read.
    fn unreadable(&self, id: DeliveryId, number: u32) -> DeliveryOutcome {
        let error = Some("the stored event cannot be read; the server's log says why".into());
        let at = self.clock.now();
        let attempt = AttemptRecord { number, at, took_ms: 0, status: None, error, response: None };
        DeliveryOutcome { id, attempt, verdict: Verdict::Failed }
    }

    async fn try_once(
        &self,
        notification: DeliveryNotification,
        attempt: &Attempt,
        slow: &mut bool,
    ) -> DeliveryOutcome {
        let policy = notification.hook.policy(self.timings.retry_scale_milli);
        let hook = &notification.hook;
        let find = || Destination::parse(&self.encoder.address(hook), &self.rules);
        let answer = match self.workers.of(hook.id, hook, find) {
            Ok(destination) => {
                let message = self.encoder.encode_delivery(&notification);
                self.post(destination, message, policy.timeout_ms, attempt, slow).await
            }
            Err(error) => Err(Unsent { kind: "destination", text: error.to_string() }),
        };
        let at = self.clock.now();
        let took_ms = at.since(notification.now);
        let (verdict, kind, status, error, response) = match &answer {
            Ok(answer) => {
                let verdict = policy.judge(answer.status);
                let good = verdict == Verdict::Delivered;
                let error = (!good).then(|| format!("answered {}", answer.status));
                let response = good.then(|| response_of(answer));
                (verdict, "status", Some(answer.status), error, response)
            }
            Err(unsent) => (Verdict::Failed, unsent.kind, None, Some(unsent.text.clone()), None),
        };
        self.shared.metrics.delivering.attempted(verdict, kind, took_ms);
        self.tell_operators_of(&notification, error.as_deref(), took_ms);
        let (error, number) = (error.map(|text| cut(&text, ERROR_BYTES_MAX)), notification.attempt);
        let attempt = AttemptRecord { number, at, took_ms, status, error, response };
        DeliveryOutcome { id: notification.id, attempt, verdict }
    }

    fn tell_operators_of(
        &self,
        notification: &DeliveryNotification,
        error: Option<&str>,
        took_ms: u64,
    ) {
        let DeliveryNotification { hook, event, attempt, .. } = notification;
        let (hook, tenant) = (&*hook.name, hook.tenant.as_str());
        tracing::debug!(hook, tenant, event = &**event, attempt, error, took_ms, "delivery");
        // One failure is an accident; the next one of the same event is worth a look.
        if let Some(error) = error
            && *attempt > 1
            && self.complaints.is_due_for_hook(notification.hook.id, self.clock.now())
        {
            tracing::warn!(hook, tenant, attempt, error, "deliveries keep failing");
        }
    }
}

fn response_of(answer: &Answer) -> Arc<str> {
    let bytes = answer.body.get(..RESPONSE_BYTES_MAX).unwrap_or(&answer.body);
    cut(&String::from_utf8_lossy(bytes), RESPONSE_BYTES_MAX)
}

fn cut(text: &str, max: usize) -> Arc<str> {
    text.get(..text.floor_char_boundary(max)).unwrap_or_default().into()
}

/// A delivery as it is kept.
pub(crate) fn record(reader: &Reader, id: DeliveryId) -> Result<Option<DeliveryRecord>, Failure> {
    let value = reader.get(&keys::delivery(id)).map_err(reading::damaged)?;
    let read = value.map(|value| record::decode_delivery(&value)).transpose();
    read.map_err(|error| Failure::Damaged(error.to_string()))
}

/// The event of a number.
pub(crate) fn event(
    reader: &Reader,
    tenant: &Tenant,
    no: EventNo,
) -> Result<Option<EventRecord>, Failure> {
    let value = reader.get(&keys::event(tenant, no)).map_err(reading::damaged)?;
    let read = value.map(|value| record::decode_event(&value)).transpose();
    read.map_err(|error| Failure::Damaged(error.to_string()))
}

/// What an event says, if it can be read; nothing if not.
pub(crate) fn said(reader: &Reader, tenant: &Tenant, no: EventNo) -> Vec<Bytes> {
    let event = event(reader, tenant, no).ok().flatten();
    event.and_then(|event| payload_of(reader, &event).ok()).into_iter().collect()
}

/// What an event says.
pub fn payload_of(reader: &Reader, event: &EventRecord) -> Result<Bytes, Failure> {
    let (mut at, end) = (event.from.position(), event.from.position() + event.len);
    let mut payload = Vec::with_capacity(usize::try_from(event.len).unwrap_or(0));
    while at < end {
        let chunk = reader.chunk_at(BlobId(event.stream.0), at).map_err(reading::damaged)?;
        let chunk = chunk.ok_or_else(|| {
            Failure::Damaged(format!("stream {} has no bytes at {at}", event.stream.0))
        })?;
        let to = chunk.end().min(end);
        let piece = chunk.slice(at, to);
        if at == event.from.position() && to == end {
            return Ok(piece);
        }
        payload.extend_from_slice(&piece);
        at = to;
    }
    Ok(payload.into())
}

/// After a start, attempts that were on their way are made again.
pub fn recover(shared: &Shared) {
    let reader = shared.state.reader();
    due::walk(&reader, |_, due, value| match due {
        Due::Delivery(id) => recover_one(shared, &reader, id),
        Due::DeliveryGroup(_) => match record::decode_delivery_group(value) {
            Ok(group) => group.into_iter().for_each(|id| recover_one(shared, &reader, id)),
            Err(error) => tracing::error!(%error, "deliveries that began together cannot be read"),
        },
        _ => {}
    });
}

/// Deliveries of a lot that are still waited for by its entry alone.
pub(crate) fn open_of_group(reader: &Reader, entry: &Bytes) -> Result<Vec<Open>, Failure> {
    let Some(value) = reader.get(entry).map_err(reading::damaged)? else {
        return Ok(Vec::new());
    };
    let group = record::decode_delivery_group(&value)
        .map_err(|error| Failure::Damaged(error.to_string()))?;
    let waits = |it: &DeliveryRecord| it.timer_at.is_none() && it.delivery.ended_at().is_none();
    let mut open = Vec::new();
    for of_hook in group.chunk_by(|one, next| one.hook == next.hook) {
        let (Some(first), Some(last)) = (of_hook.first(), of_hook.last()) else { continue };
        if first == last {
            let it = record(reader, *first)?;
            open.extend(it.filter(waits).map(|_| *first));
            continue;
        }
        // Those that a hook has between its first and its last began with them.
        let (from, to) = (keys::delivery(*first), above(&keys::delivery(*last)));
        for (key, value) in reader.range(&from, &to, usize::MAX).map_err(reading::damaged)? {
            let it = record::decode_delivery(&value);
            let it = it.map_err(|error| Failure::Damaged(error.to_string()))?;
            open.extend(keys::parse_delivery(&key).filter(|_| waits(&it)));
        }
    }
    Ok(open.into_iter().map(|id| Open { id, in_flight: false }).collect())
}

fn recover_one(shared: &Shared, reader: &Reader, id: DeliveryId) {
    let hook = shared.lock().registry.hooks.get(id.hook).cloned();
    if let (Some(hook), Ok(Some(record))) = (hook, record(reader, id)) {
        push(shared, &hook, id, &record);
    }
}

/// Says whether there was no room for it.
fn push(shared: &Shared, hook: &Hook, id: DeliveryId, record: &DeliveryRecord) -> bool {
    let Phase::Leased { attempt, .. } = record.delivery.phase else {
        return false;
    };
    let job = DeliveryAttempt { id, attempt, tenant: hook.tenant.clone(), fresh: None };
    shared.outbox.try_push(Attempt::Delivery(job)) == PushResult::LeftOut
}

/// Fills the memory up with deliveries of a hook that found no room there, from one on.
pub fn refill(shared: &Shared, id: HookId, from: DeliveryNo) {
    let Some(hook) = shared.lock().registry.hooks.get(id).cloned() else {
        return;
    };
    let reader = shared.state.reader();
    let (mut next, to) =
        (keys::delivery(DeliveryId { hook: id, no: from }), keys::deliveries(id).1);
    loop {
        let found: Vec<Pair> = match reader.range(&next, &to, REFILL_SLICE) {
            Ok(found) => found,
            Err(error) => {
                tracing::error!(%error, "deliveries cannot be read");
                return;
            }
        };
        for (key, value) in &found {
            let Some(delivery) = keys::parse_delivery(key) else { continue };
            let Ok(record) = record::decode_delivery(value) else { continue };
            // The first that finds no room is remembered: the next time it goes on from there.
            if push(shared, &hook, delivery, &record) {
                return;
            }
        }
        match found.last() {
            Some((last, _)) if found.len() == REFILL_SLICE => next = above(last),
            _ => return,
        }
    }
}

/// Deliveries that are read at once.
const REFILL_SLICE: usize = 256;
