//! Delivering events: what a face says of them, one request, and its outcome home.

use std::sync::Arc;

use bytes::Bytes;
use reveille_core::delivery::hook::{Hook, HookId};
use reveille_core::delivery::id::{DeliveryId, DeliveryNo};
use reveille_core::delivery::outcome::hash_headers;
use reveille_core::delivery::{AttemptRecord, DropReason, Phase, Policy, Verdict};
use reveille_core::key_range::above;
use reveille_core::secret::SealedSecret;
use reveille_deliver::courier::Answer;
use reveille_deliver::destination::Destination;
use reveille_kernel::domains::Pages;
use reveille_kernel::error::Damaged;
use reveille_kernel::outbound::{OutcomeQueue, PostError, SendFailure, Sender};
use reveille_kernel::outbox::PushResult;
use reveille_kernel::timers::walk;
use reveille_schema::deliveries::DeliveryTimer;
use reveille_schema::keys;
use reveille_schema::record::{self, DeliveryRecord};
use reveille_store::state::Reader;

use super::delivery::{DeliveryOutcome, DropDelivery, HoldDelivery, is_leased};
use super::face::{DeliveryFace, DeliveryFaces, Gate};
use super::index::HookIndex;
use super::outcome;
use super::timer_group::OpenDelivery;
use crate::addresses::Addresses;
use crate::app::{App, Shared};
use crate::effect::{Attempt, DeliveryAttempt, EventPayload};
use crate::encoder::{DeliveryNotification, DeliveryTarget};
use crate::metrics::DeliveryMetrics;
use crate::outbound::OutboundContext;
use crate::records::ReadRecord;

/// How much of an answer is kept with the attempt.
const RESPONSE_BYTES_MAX: usize = 4 << 10;
/// The same for an attempt that failed: only the latest few of a delivery have it.
const FAILURE_BYTES_MAX: usize = 2 << 10;
/// How long an error text may be that is kept with an attempt.
const ERROR_BYTES_MAX: usize = 256;

/// Deliveries that are read at once.
const REFILL_SLICE: usize = 256;

/// What delivering keeps from one attempt to the next.
#[derive(Default)]
pub struct DeliverySender {
    targets: Addresses<HookId, Hook, KnownTarget>,
    pub(crate) outcomes: OutcomeQueue<DeliveryOutcome, Attempt>,
}

/// Whom a hook is for, and where that is.
type KnownTarget = (Destination, Arc<dyn DeliveryTarget>);

/// What is to be done about an attempt whose turn it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeliveryReadiness {
    /// It is made, of this event.
    Send(EventPayload),
    /// It is not made: the hook is not active.
    Held,
    /// It is not made, and none will be: the event is not owed any more.
    Dropped,
    /// There is nothing to be done any more.
    Nothing,
}

/// Whether an attempt is still to be made, and what is to be said.
pub fn readiness(
    reader: &Reader,
    face: &dyn DeliveryFace,
    hook: &Hook,
    attempt: &DeliveryAttempt,
) -> Result<DeliveryReadiness, Damaged> {
    let no = attempt.id.no.event;
    // What came a moment ago is as it was decided, but for its hook: nobody else makes an attempt
    // that waits in the outbox.
    let at_hand = attempt.event.as_ref().filter(|_| hook.is_sending());
    if at_hand.is_none() {
        let record = delivery_record(reader, attempt.id)?;
        if !record.is_some_and(|it| is_leased(&it.delivery, attempt.attempt)) {
            return Ok(DeliveryReadiness::Nothing);
        }
        if !hook.is_sending() {
            return Ok(DeliveryReadiness::Held);
        }
    }
    if face.gate(reader, hook, no)? == Gate::Closed {
        return Ok(DeliveryReadiness::Dropped);
    }
    if let Some(event) = at_hand {
        return Ok(DeliveryReadiness::Send(event.clone()));
    }
    let event = face.payload(reader, hook, no)?;
    let event = event.ok_or_else(|| Damaged(format!("event {} is gone", no.0)))?;
    Ok(DeliveryReadiness::Send(event))
}

/// Makes an attempt, and returns the next one to make.
pub(crate) async fn attempt(
    sender: &Sender<App>,
    context: &OutboundContext,
    deliveries: &DeliverySender,
    delivery: DeliveryAttempt,
    hook: Arc<Hook>,
) -> Option<Attempt> {
    let reader = sender.shared.state.reader();
    let faces = sender.shared.domains.part::<DeliveryFaces>();
    let ready = faces.get(hook.face).and_then(|face| readiness(&reader, face, &hook, &delivery));
    drop(reader);
    let (id, number) = (delivery.id, delivery.attempt);
    let attempt = Attempt::Delivery(DeliveryAttempt { event: None, ..delivery });
    let outcome = match ready {
        Ok(DeliveryReadiness::Send(event)) => {
            let now = sender.clock.now();
            if number == 1 && id.no.round == 0 {
                let metrics = sender.shared.domains.part::<DeliveryMetrics>();
                metrics.sent(now.since(event.at));
            }
            let EventPayload { id: event, payload, .. } = event;
            let notification = DeliveryNotification {
                hook,
                id,
                attempt: number,
                event,
                payload,
                now,
                wall: sender.clock.wall(),
            };
            // One that was put back waits for its turn again.
            try_once(sender, context, deliveries, notification, &attempt).await?
        }
        Err(error) => {
            tracing::error!(%error, "an event cannot be delivered");
            unreadable(sender, id, number)
        }
        Ok(DeliveryReadiness::Held) => {
            // It counts as under way until that is written down: the same attempt may not
            // be made for good before.
            sender.record(&HoldDelivery { id, attempt: number }).await;
            sender.shared.outbox.ended(&attempt);
            return None;
        }
        Ok(DeliveryReadiness::Dropped) => {
            sender.record(&DropDelivery { id, attempt: number, why: DropReason::NotOwed }).await;
            sender.shared.outbox.ended(&attempt);
            return None;
        }
        Ok(DeliveryReadiness::Nothing) => {
            sender.shared.outbox.ended(&attempt);
            return None;
        }
    };
    let good = (outcome.verdict == Verdict::Delivered).then_some(outcome.attempt.took_ms);
    let next = sender.answered(&attempt, good);
    deliveries.outcomes.push(outcome, attempt);
    next
}

/// An attempt that failed because what is to be delivered cannot be read.
fn unreadable(sender: &Sender<App>, id: DeliveryId, number: u32) -> DeliveryOutcome {
    let error = Some("the stored event cannot be read; the server's log says why".into());
    let at = sender.clock.now();
    let attempt = AttemptRecord { error, ..AttemptRecord::new(number, at, 0) };
    DeliveryOutcome { id, attempt, verdict: Verdict::Failed }
}

/// What came of an attempt; `None` if it was put back.
async fn try_once(
    sender: &Sender<App>,
    context: &OutboundContext,
    deliveries: &DeliverySender,
    notification: DeliveryNotification,
    attempt: &Attempt,
) -> Option<DeliveryOutcome> {
    let hook = &notification.hook;
    let policy = &hook.policy;
    let answer = match deliveries.targets.of(hook.id, hook, || find_target(context, hook)) {
        Ok((destination, target)) => {
            let request = target.encode(&notification);
            match sender.post(destination, request, policy.timeout_ms, attempt).await {
                Ok(answer) => Ok(answer),
                Err(PostError::Failed(failure)) => Err(failure),
                Err(PostError::PutBack) => return None,
            }
        }
        Err(failure) => Err(failure),
    };
    let at = sender.clock.now();
    let took_ms = at.since(notification.now);
    let number = notification.attempt;
    let mut record = AttemptRecord::new(number, at, took_ms);
    let (verdict, word) = match &answer {
        Ok(answer) => (judge(policy, answer, &mut record), "status"),
        Err(failure) => {
            record.kind = Some(outcome::kind_of(failure.kind));
            record.error = Some(cut(&failure.text, ERROR_BYTES_MAX));
            (Verdict::Failed, failure.kind)
        }
    };
    sender.shared.domains.part::<DeliveryMetrics>().attempted(verdict, word, took_ms);
    let detail = answer.as_ref().err().and_then(|failure| failure.detail.as_deref());
    tell_operators(sender, context, &notification, detail.or(record.error.as_deref()), took_ms);
    Some(DeliveryOutcome { id: notification.id, attempt: record, verdict })
}

/// What an answer means, and what is kept of it.
fn judge(policy: &Policy, answer: &Answer, record: &mut AttemptRecord) -> Verdict {
    let verdict = policy.judge(answer.status);
    record.status = Some(answer.status);
    if verdict == Verdict::Delivered {
        record.response = Some(beginning_of(&answer.body, RESPONSE_BYTES_MAX));
    } else {
        record.kind = Some(outcome::kind_of_status(answer.status));
        record.error = Some(format!("answered {}", answer.status).into());
        record.response = Some(beginning_of(&answer.body, FAILURE_BYTES_MAX));
        let headers = answer.headers.iter();
        let headers = headers.map(|(name, value)| (name.as_str().as_bytes(), value.as_bytes()));
        record.headers_hash = Some(Arc::new(hash_headers(headers)));
    }
    verdict
}

fn find_target(context: &OutboundContext, hook: &Hook) -> Result<KnownTarget, SendFailure> {
    let nowhere = |text| SendFailure::new("destination", text);
    let open = |sealed: &SealedSecret| context.keyring.open_webhook_secret(&hook.tenant, sealed);
    let target = context.delivery_encoders.target(hook, &open);
    let target = target.map_err(|error| nowhere(error.to_string()))?;
    let destination = Destination::parse(&target.address(), &context.rules);
    Ok((destination.map_err(|error| nowhere(error.to_string()))?, target))
}

fn tell_operators(
    sender: &Sender<App>,
    context: &OutboundContext,
    notification: &DeliveryNotification,
    error: Option<&str>,
    took_ms: u64,
) {
    let DeliveryNotification { hook, event, attempt, .. } = notification;
    let (id, hook, tenant) = (hook.id, &*hook.name, hook.tenant.as_str());
    tracing::debug!(hook, tenant, event = &**event, attempt, error, took_ms, "delivery");
    // One failure is an accident; the next one of the same event is worth a look.
    if let Some(error) = error
        && *attempt > 1
        && context.complaints.is_due(id.0, sender.clock.now())
    {
        tracing::warn!(hook, tenant, attempt, error, "deliveries keep failing");
    }
}

fn beginning_of(body: &[u8], max: usize) -> Arc<str> {
    cut(&String::from_utf8_lossy(body.get(..max).unwrap_or(body)), max)
}

fn cut(text: &str, max: usize) -> Arc<str> {
    text.get(..text.floor_char_boundary(max)).unwrap_or_default().into()
}

/// A delivery as it is kept.
pub(crate) fn delivery_record(
    reader: &Reader,
    id: DeliveryId,
) -> Result<Option<DeliveryRecord>, Damaged> {
    let mut reader = reader;
    reader.read(&keys::delivery(id), record::decode_delivery)
}

/// After a start, attempts that were on their way are made again.
pub fn recover(shared: &Shared) -> Result<(), Damaged> {
    let reader = shared.state.reader();
    walk(&reader, |_, timer, value| match DeliveryTimer::decode(timer) {
        Some(DeliveryTimer::Delivery(id)) => recover_one(shared, &reader, id),
        Some(DeliveryTimer::DeliveryGroup(_)) => match record::decode_delivery_group(value) {
            Ok(group) => group.into_iter().for_each(|id| recover_one(shared, &reader, id)),
            Err(error) => tracing::error!(%error, "deliveries that began together cannot be read"),
        },
        _ => {}
    })
}

/// Deliveries of a group that are still waited for by its entry alone.
pub(crate) fn open_of_group(reader: &Reader, entry: &Bytes) -> Result<Vec<OpenDelivery>, Damaged> {
    let Some(value) = reader.get(entry)? else {
        return Ok(Vec::new());
    };
    let group = record::decode_delivery_group(&value).map_err(Damaged::new)?;
    let waits = |it: &DeliveryRecord| it.timer_at.is_none() && it.delivery.ended_at().is_none();
    let mut open = Vec::new();
    for of_hook in group.chunk_by(|one, next| one.hook == next.hook) {
        let (Some(first), Some(last)) = (of_hook.first(), of_hook.last()) else { continue };
        if first == last {
            let it = delivery_record(reader, *first)?;
            open.extend(it.filter(waits).map(|_| *first));
            continue;
        }
        // Those that a hook has between its first and its last began with them.
        let (from, to) = (keys::delivery(*first), above(&keys::delivery(*last)));
        for (key, value) in reader.range(&from, &to, usize::MAX)? {
            let it = record::decode_delivery(&value);
            let it = it.map_err(Damaged::new)?;
            open.extend(keys::parse_delivery(&key).filter(|_| waits(&it)));
        }
    }
    Ok(open.into_iter().map(|id| OpenDelivery { id, in_flight: false }).collect())
}

fn recover_one(shared: &Shared, reader: &Reader, id: DeliveryId) {
    let hook = shared.lock().index.of::<HookIndex>().get(id.hook).cloned();
    if let (Some(hook), Ok(Some(record))) = (hook, delivery_record(reader, id)) {
        push(shared, &hook, id, &record);
    }
}

/// Says whether there was no room for it.
fn push(shared: &Shared, hook: &Hook, id: DeliveryId, record: &DeliveryRecord) -> bool {
    let Phase::Leased { attempt, .. } = record.delivery.phase else {
        return false;
    };
    let attempt = DeliveryAttempt { id, attempt, tenant: hook.tenant.clone(), event: None };
    shared.outbox.try_push(Attempt::Delivery(attempt)) == PushResult::LeftOut
}

/// Fills the memory up with deliveries of a hook that found no room there, from one on.
pub fn refill(shared: &Shared, id: HookId, from: DeliveryNo) {
    if let Err(error) = try_refill(shared, id, from) {
        tracing::error!(%error, "deliveries cannot be read");
    }
}

fn try_refill(shared: &Shared, id: HookId, from: DeliveryNo) -> Result<(), Damaged> {
    let Some(hook) = shared.lock().index.of::<HookIndex>().get(id).cloned() else {
        return Ok(());
    };
    let reader = shared.state.reader();
    let first = keys::delivery(DeliveryId { hook: id, no: from });
    let mut pages = Pages::new(first, keys::deliveries(id).1, REFILL_SLICE);
    while let Some(found) = pages.next(&reader)? {
        for (key, value) in &found {
            let Some(delivery) = keys::parse_delivery(key) else { continue };
            let Ok(record) = record::decode_delivery(value) else { continue };
            // The first that finds no room is remembered: the next time it goes on from there.
            if push(shared, &hook, delivery, &record) {
                return Ok(());
            }
        }
    }
    Ok(())
}
