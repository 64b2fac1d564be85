//! Delivering events: what a face says of them, one request, and its outcome home.

use std::sync::Arc;

use bytes::Bytes;
use reveille_core::delivery::hook::{FIRST_VERSION, Hook, HookId};
use reveille_core::delivery::id::{DeliveryId, DeliveryNo, EventNo};
use reveille_core::delivery::policy::{Outcome, Refusal};
use reveille_core::delivery::replay::ReplayRecord;
use reveille_core::delivery::{AttemptRecord, DropReason, Phase, Policy, Transport, Verdict};
use reveille_core::key_range::above;
use reveille_core::secret::SealedSecret;
use reveille_core::trace::Trace;
use reveille_core::{Millis, Tenant};
use reveille_deliver::destination::Destination;
use reveille_kernel::domains::Pages;
use reveille_kernel::error::Damaged;
use reveille_kernel::outbound::{OutcomeQueue, PostError, SendFailure, Sender};
use reveille_kernel::outbox::PushResult;
use reveille_kernel::timers::walk;
use reveille_kernel::txn::ReadError;
use reveille_schema::Record;
use reveille_schema::deliveries::DeliveryTimer;
use reveille_schema::keys;
use reveille_schema::record::{self, DeliveryRecord, EventRecord};
use reveille_store::state::Reader;

use super::delivery::{DeliveryOutcome, DropDelivery, HoldDelivery, is_leased};
use super::face::{DeliveryFace, DeliveryFaces, Gate};
use super::index::HookIndex;
use super::source;
use super::timer_group::OpenDelivery;
use super::{append, outcome};
use crate::addresses::Addresses;
use crate::app::{App, Shared};
use crate::complaints::host_of;
use crate::effect::{Attempt, DeliveryAttempt, EventPayload};
use crate::encoder::{
    AppendTarget, DeliveryNotification, DeliveryTarget, RefusedDelivery, ReplayMark, Signer,
    TargetContext, TargetError,
};
use crate::metrics::DeliveryMetrics;
use crate::outbound::OutboundContext;
use crate::records::ReadRecord;
use crate::spans::{self, OpenSpan, SpanCollector};

/// Deliveries that are read at once.
const REFILL_SLICE: usize = 256;

/// What delivering keeps from one attempt to the next.
#[derive(Default)]
pub struct DeliverySender {
    /// By hook and version.
    targets: Addresses<(HookId, u64), Hook, KnownTarget>,
    pub(super) append_targets: Addresses<(HookId, u64), Hook, Arc<dyn AppendTarget>>,
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
    /// It is not made, and none will be: the event is not owed any more, or nothing is.
    Dropped { why: DropReason, ends_hook: bool },
    /// There is nothing to be done any more.
    Nothing,
}

/// Whether an attempt is still to be made, and what is to be said.
pub fn readiness(
    reader: &Reader,
    face: &dyn DeliveryFace,
    hook: &Arc<Hook>,
    attempt: &DeliveryAttempt,
    now: Millis,
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
    // What a gate lets through is what the same look finds.
    if let Some(event) = at_hand.filter(|_| !face.has_gate()) {
        return Ok(DeliveryReadiness::Send(event.clone()));
    }
    let gone = || Damaged(format!("event {} is gone", no.0));
    let event = source::event(reader, hook.face, &hook.tenant, no)?.ok_or_else(gone)?;
    let dropped = |why, ends_hook| Ok(DeliveryReadiness::Dropped { why, ends_hook });
    let mut look = reader;
    match face.gate(&mut look, hook, &event, now).map_err(damage_of)? {
        Gate::Open => {}
        Gate::Closed(why) => return dropped(why, false),
        Gate::Cancelled(why) => return dropped(why, true),
    }
    let payload = payload_of(reader, face, hook, event)?;
    Ok(DeliveryReadiness::Send(payload.ok_or_else(gone)?))
}

/// What keeps a look at what is durable from succeeding.
fn damage_of(error: ReadError) -> Damaged {
    match error {
        ReadError::Damaged(damaged) => damaged,
        ReadError::NotLoaded(_) => Damaged::new("what is durable needs no loading"),
    }
}

/// What is delivered of an event, for whoever looks at a dead letter; `None` if there is no such event,
/// or a gate is in front of it: that is asked for whom the event is, not for who looks.
pub(crate) fn payload(
    reader: &Reader,
    face: &dyn DeliveryFace,
    hook: &Hook,
    no: EventNo,
) -> Result<Option<EventPayload>, Damaged> {
    if face.has_gate() {
        return Ok(None);
    }
    match source::event(reader, hook.face, &hook.tenant, no)? {
        Some(event) => payload_of(reader, face, hook, event),
        None => Ok(None),
    }
}

fn payload_of(
    reader: &Reader,
    face: &dyn DeliveryFace,
    hook: &Hook,
    event: EventRecord,
) -> Result<Option<EventPayload>, Damaged> {
    let payload = face.payload(reader, hook, &event)?;
    Ok(payload.map(|payload| EventPayload::of(event, payload)))
}

/// The hook as an attempt follows it: as it is, or as it was when the delivery began.
pub fn followed(
    reader: &Reader,
    hook: Arc<Hook>,
    attempt: &DeliveryAttempt,
) -> Result<Arc<Hook>, Damaged> {
    // Nothing is read for a hook that was never changed, or that is followed as it is.
    if hook.follows(FIRST_VERSION).is_none() {
        return Ok(hook);
    }
    let record = delivery_record(reader, attempt.id)?;
    let Some(version) = record.and_then(|record| hook.follows(record.hook_version)) else {
        return Ok(hook);
    };
    let mut look = reader;
    let former = look.read(&keys::hook_version(hook.id, version), record::decode_hook)?;
    let former = match former {
        Some(former) => Some(former),
        // A change that is decided and not durable has not made it a former one yet.
        None => {
            let key = keys::hook(hook.face, &hook.tenant, &hook.name);
            let durable = look.read(&key, record::decode_hook)?;
            durable.filter(|it| it.id == hook.id && it.version == version)
        }
    };
    Ok(former.map_or_else(|| hook.clone(), |former| Arc::new(hook.as_formerly(former))))
}

/// The replay that has made a delivery, if one has. Nothing is read for first rounds.
pub fn replay_mark(
    mut reader: &Reader,
    tenant: &Tenant,
    id: DeliveryId,
) -> Result<Option<ReplayMark>, Damaged> {
    if id.no.round == 0 {
        return Ok(None);
    }
    let Some(replay) = delivery_record(reader, id)?.and_then(|it| it.replay) else {
        return Ok(None);
    };
    let known = reader.read(&keys::replay(tenant, replay), ReplayRecord::decode)?;
    let (reason, at) = known.map_or((None, None), |it| (it.reason, Some(it.begun_at)));
    Ok(Some(ReplayMark { id: replay, reason, at, count: id.no.round }))
}

/// What is to be done about an attempt, and the replay that its delivery was made by.
type LookedAt = (DeliveryReadiness, Option<ReplayMark>);

/// What is to be done about an attempt, all of it seen at one moment: the hook as it is followed,
/// and the replay that the delivery was made by.
fn look(
    sender: &Sender<App>,
    hook: Arc<Hook>,
    delivery: &DeliveryAttempt,
) -> (Arc<Hook>, Result<LookedAt, Damaged>) {
    let reader = sender.shared.state.reader();
    let face = sender.shared.domains.part::<DeliveryFaces>().get(hook.face);
    let hook = match followed(&reader, hook.clone(), delivery) {
        Ok(hook) => hook,
        Err(error) => return (hook, Err(error)),
    };
    let now = sender.clock.now();
    let ready = face.and_then(|face| readiness(&reader, face, &hook, delivery, now));
    let ready = ready.and_then(|ready| {
        let mark = replay_mark(&reader, &hook.tenant, delivery.id)?;
        Ok((ready, mark))
    });
    (hook, ready)
}

/// Makes an attempt, and returns the next one to make.
pub(crate) async fn attempt(
    sender: &Sender<App>,
    context: &OutboundContext,
    deliveries: &DeliverySender,
    delivery: DeliveryAttempt,
    hook: Arc<Hook>,
) -> Option<Attempt> {
    let (hook, ready) = look(sender, hook, &delivery);
    let (id, number) = (delivery.id, delivery.attempt);
    let attempt = Attempt::Delivery(DeliveryAttempt { event: None, ..delivery });
    let outcome = match ready {
        Ok((DeliveryReadiness::Send(event), replay)) => {
            let now = sender.clock.now();
            if number == 1 && id.no.round == 0 {
                let metrics = sender.shared.domains.part::<DeliveryMetrics>();
                metrics.sent(now.since(event.at));
            }
            let EventPayload { id: event, payload, trace, .. } = event;
            let span = begin_span(sender, context, trace, now);
            let notification = DeliveryNotification {
                hook,
                id,
                attempt: number,
                event,
                payload,
                now,
                wall: sender.clock.wall(),
                replay,
                traceparent: span.map(|span| span.trace.to_string()),
            };
            if notification.hook.policy.transport == Transport::Append {
                return append::attempt(sender, context, deliveries, notification, attempt, span)
                    .await;
            }
            // One that was put back waits for its turn again.
            let hook = notification.hook.clone();
            let outcome = try_once(sender, context, deliveries, notification, &attempt).await?;
            if let Some(span) = span {
                end_span(sender, span, &hook, &outcome);
            }
            outcome
        }
        Err(error) => {
            tracing::error!(%error, "an event cannot be delivered");
            unreadable(sender, &hook.policy, id, number)
        }
        Ok((DeliveryReadiness::Held, _)) => {
            // It counts as under way until that is written down: the same attempt may not
            // be made for good before.
            sender.record(&HoldDelivery { id, attempt: number }).await;
            sender.shared.outbox.ended(&attempt);
            return None;
        }
        Ok((DeliveryReadiness::Dropped { why, ends_hook }, _)) => {
            sender.record(&DropDelivery { id, attempt: number, why, ends_hook }).await;
            sender.shared.outbox.ended(&attempt);
            return None;
        }
        Ok((DeliveryReadiness::Nothing, _)) => {
            sender.shared.outbox.ended(&attempt);
            return None;
        }
    };
    report(sender, deliveries, outcome, attempt)
}

/// What came of an attempt is to be written down; returns the next one to make.
pub(super) fn report(
    sender: &Sender<App>,
    deliveries: &DeliverySender,
    outcome: DeliveryOutcome,
    attempt: Attempt,
) -> Option<Attempt> {
    let good = (outcome.verdict == Verdict::Delivered).then_some(outcome.attempt.took_ms);
    let next = sender.answered(&attempt, good);
    deliveries.outcomes.push(outcome, attempt);
    next
}

/// Begins the span of an attempt, if its event came as a part of a trace.
fn begin_span(
    sender: &Sender<App>,
    context: &OutboundContext,
    trace: Option<Trace>,
    now: Millis,
) -> Option<OpenSpan> {
    let spans = sender.shared.domains.part::<SpanCollector>().get();
    spans::begin(spans, context.entropy.as_ref(), "delivery", Some(trace?), now)
}

pub(super) fn end_span(
    sender: &Sender<App>,
    span: OpenSpan,
    hook: &Hook,
    outcome: &DeliveryOutcome,
) {
    let AttemptRecord { number, status, kind, error, .. } = &outcome.attempt;
    let always =
        [("reveille.hook", hook.name.to_string()), ("reveille.attempt", number.to_string())];
    let status = status.map(|status| ("http.response.status_code", status.to_string()));
    let kind = kind.map(|kind| ("error.type", kind.code().to_owned()));
    let attributes = always.into_iter().chain(status).chain(kind).collect();
    let error = error.as_deref().map(str::to_owned);
    let spans = sender.shared.domains.part::<SpanCollector>().get();
    spans::end(spans, span, sender.clock.now(), attributes, error);
}

/// An attempt that failed because what is to be delivered cannot be read.
pub(super) fn unreadable(
    sender: &Sender<App>,
    policy: &Policy,
    id: DeliveryId,
    number: u32,
) -> DeliveryOutcome {
    let error = Some("the stored event cannot be read; the server's log says why".into());
    let attempt = AttemptRecord { error, ..AttemptRecord::new(number, sender.clock.now(), 0) };
    DeliveryOutcome { id, attempt, verdict: policy.judge(Outcome::Unreadable) }
}

/// Why an attempt has no answer.
enum AttemptFailure {
    /// Nothing came back.
    Sent(SendFailure),
    /// Nothing was sent.
    Refused(RefusedDelivery),
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
    let request =
        match deliveries.targets.of((hook.id, hook.version), hook, || find_target(context, hook)) {
            Ok((destination, target)) => match target.encode(&notification) {
                Ok(request) => Ok((destination, request)),
                Err(refused) => Err(AttemptFailure::Refused(refused)),
            },
            Err(failure) => Err(failure),
        };
    let answer = match request {
        Ok((destination, request)) => {
            match sender.post(destination, request, policy.timeout_ms, attempt).await {
                Ok(answer) => Ok(answer),
                Err(PostError::Failed(failure)) => Err(AttemptFailure::Sent(failure)),
                Err(PostError::PutBack) => return None,
            }
        }
        Err(failure) => Err(failure),
    };
    let at = sender.clock.now();
    let took_ms = at.since(notification.now);
    let mut record = AttemptRecord::new(notification.attempt, at, took_ms);
    let (outcome, word, detail) = match answer {
        Ok(answer) => (outcome::answered(&answer, &mut record), "status", None),
        Err(AttemptFailure::Sent(SendFailure { kind, text, detail })) => {
            record.error = Some(outcome::cut(&text, outcome::ERROR_BYTES_MAX));
            (Outcome::Failed(outcome::kind_of(kind)), kind, detail)
        }
        Err(AttemptFailure::Refused(RefusedDelivery { why, text })) => {
            record.error = Some(outcome::cut(&text, outcome::ERROR_BYTES_MAX));
            (Outcome::Refused(why), "refused", None)
        }
    };
    record.kind = outcome.kind();
    // What is behind a gate is kept nowhere, also where an endpoint repeats it.
    let face = sender.shared.domains.part::<DeliveryFaces>().get(hook.face);
    record.response = record.response.filter(|_| face.is_ok_and(|face| !face.has_gate()));
    let verdict = policy.judge(outcome);
    sender.shared.domains.part::<DeliveryMetrics>().attempted(verdict, word, took_ms);
    let error = detail.as_deref().or(record.error.as_deref());
    let whom = || {
        let target =
            deliveries.targets.of((hook.id, hook.version), hook, || find_target(context, hook));
        let target = target.map(|(destination, target)| {
            (host_of(destination.as_str()).to_owned(), target.receiver())
        });
        target.unwrap_or_default()
    };
    tell_operators(sender, context, &notification, verdict, error, took_ms, whom);
    Some(DeliveryOutcome { id: notification.id, attempt: record, verdict })
}

fn find_target(context: &OutboundContext, hook: &Hook) -> Result<KnownTarget, AttemptFailure> {
    let nowhere = |text| AttemptFailure::Sent(SendFailure::new("destination", text));
    let target =
        with_target_context(context, hook, |it| context.delivery_encoders.target(hook, it));
    let target = target.map_err(|error| match error {
        TargetError::Secret => AttemptFailure::Refused(secret_missing()),
        TargetError::Damaged(damaged) => nowhere(damaged.to_string()),
    })?;
    let destination = Destination::parse(&target.address(), &context.rules);
    Ok((destination.map_err(|error| nowhere(error.to_string()))?, target))
}

/// Finds out something for a hook with what its encoder gets.
pub(super) fn with_target_context<T>(
    context: &OutboundContext,
    hook: &Hook,
    find: impl FnOnce(&TargetContext<'_>) -> T,
) -> T {
    let open = |sealed: &SealedSecret| context.keyring.open_webhook_secret(&hook.tenant, sealed);
    let signer: Arc<dyn Signer> = context.keyring.clone();
    find(&TargetContext { open: &open, signer: &signer, secrets: &context.secrets })
}

pub(super) fn secret_missing() -> RefusedDelivery {
    RefusedDelivery { why: Refusal::SecretMissing, text: TargetError::Secret.to_string() }
}

/// `whom` says where the attempts of the hook go, and to whom there.
pub(super) fn tell_operators(
    sender: &Sender<App>,
    context: &OutboundContext,
    notification: &DeliveryNotification,
    verdict: Verdict,
    error: Option<&str>,
    took_ms: u64,
    whom: impl FnOnce() -> (String, String),
) {
    let DeliveryNotification { hook, event, attempt, .. } = notification;
    let (name, tenant, event) = (&*hook.name, hook.tenant.as_str(), &**event);
    tracing::debug!(hook = name, tenant, event, attempt, error, took_ms, "delivery");
    let Some(error) = error else { return };
    let now = sender.clock.now();
    let is_last = *attempt >= hook.policy.attempts || matches!(verdict, Verdict::Dead(_));
    // Of each hook one line of either sort: one that fails may have had its line a moment ago.
    let source = if is_last { !hook.id.0 } else { hook.id.0 };
    // One failure is an accident; the next one of the same event is worth a look.
    if (*attempt > 1 || is_last) && context.complaints.is_due(source, now) {
        let (host, worker) = whom();
        // Not every face has workers.
        let (host, worker) = (host.as_str(), Some(&*worker).filter(|it| !it.is_empty()));
        if is_last {
            tracing::warn!(
                hook = name,
                tenant,
                worker,
                host,
                event,
                attempt,
                error,
                "a delivery was given up"
            );
        } else {
            tracing::warn!(
                hook = name,
                tenant,
                worker,
                host,
                attempt,
                error,
                "deliveries keep failing"
            );
        }
    }
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
    let (tenant, transport) = (hook.tenant.clone(), hook.policy.transport);
    let attempt = DeliveryAttempt { id, attempt, tenant, transport, event: None };
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
