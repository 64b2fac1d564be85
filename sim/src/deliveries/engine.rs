//! The one file of this world that calls the engine.

use std::sync::Arc;

use bytes::Bytes;
use reveille_core::delivery::hook::{Hook, HookId, OpenDeliveries};
use reveille_core::delivery::id::DeliveryId;
use reveille_core::event::hook::FACE;
use reveille_core::stream::create::Create;
use reveille_core::stream::{Head, Rejected};
use reveille_core::{ContentType, Millis, StreamPath, Tenant};
use reveille_engine::deliveries::DeliveryRejection;
pub(super) use reveille_engine::deliveries::delivery::DeliveryOutcome;
use reveille_engine::deliveries::delivery::{HoldDelivery, RecordDeliveryOutcomes, RetryDelivery};
use reveille_engine::deliveries::hook::{DeleteHook, SetHookActive, SetHookPaused};
use reveille_engine::deliveries::index::HookIndex;
use reveille_engine::deliveries::retention::{ForgetDeliveries, SweepKeys};
use reveille_engine::deliveries::send;
pub(super) use reveille_engine::deliveries::send::DeliveryReadiness;
use reveille_engine::deliveries::source;
use reveille_engine::deliveries::trim::TrimEvents;
pub(super) use reveille_engine::deliveries::trim::TrimPlan;
pub(super) use reveille_engine::effect::DeliveryAttempt;
use reveille_engine::effect::{Attempt, AttemptKey, AttemptSource};
use reveille_engine::events::face::EventFace;
pub(super) use reveille_engine::events::hook::StartFrom;
use reveille_engine::events::hook::{CreateHook, UpdateHook};
use reveille_engine::events::ingest::IngestReceipt;
pub(super) use reveille_engine::events::ingest::{IngestEvents, NewEvent};
use reveille_engine::streams;
use reveille_engine::streams::create::CreateStream;
use reveille_kernel::error::{Error, Never};
use reveille_schema::record::EventRecord;
use reveille_store::state::Reader;

use super::Deliveries;
use super::action::{Action, DeliveryAnswer, DeliveryError, DeliveryResult, HookChange};
use crate::base::engine::{self, Engine, Outcome};
use crate::base::{CheckResult, WorldCall, violation};

pub(super) fn call(action: &Action) -> WorldCall<Deliveries> {
    match action.clone() {
        Action::CreateTextStream { tenant, path } => {
            let content_type = ContentType::parse("text/plain");
            let request = Create { content_type, ..Create::default() };
            let command = CreateStream { tenant, path, request, anchor: None };
            engine::call(command, |outcome| translate(outcome, other, unfit))
        }
        Action::Ingest(ingest) => {
            engine::call(*ingest, |outcome| translate(outcome, ingested, unfit))
        }
        Action::CreateHook { tenant, name, spec, start } => {
            engine::call(CreateHook { tenant, name, spec, start, created_by: None }, hooked)
        }
        Action::ChangeHook { tenant, name, change } => match change {
            HookChange::Update(update) => engine::call(UpdateHook { tenant, name, update }, hooked),
            HookChange::Activate(active) => {
                engine::call(SetHookActive { face: FACE, tenant, name, active }, hooked)
            }
            HookChange::Pause(paused) => {
                engine::call(SetHookPaused { face: FACE, tenant, name, paused }, hooked)
            }
            HookChange::End => engine::call(
                DeleteHook { face: FACE, tenant, name, open: OpenDeliveries::Drop },
                |outcome| translate(outcome, |_| DeliveryAnswer::Unhooked, rejected),
            ),
        },
        Action::Retry { tenant, id } => {
            let command = RetryDelivery { face: FACE, tenant, id };
            engine::call(command, |outcome| translate(outcome, other, rejected))
        }
        Action::Forget { hook, cutoff } => {
            engine::call(ForgetDeliveries { hook, cutoff, after: Bytes::new() }, done)
        }
        Action::Trim { tenant, plan } => {
            engine::call(TrimEvents { face: FACE, tenant, plan }, done)
        }
        Action::Sweep { found } => engine::call(SweepKeys { found }, done),
        Action::RecordOutcome(outcome) => engine::call(RecordDeliveryOutcomes(vec![outcome]), done),
        Action::Hold { id, attempt } => engine::call(HoldDelivery { id, attempt }, done),
        Action::Timer(timer) => engine::call(timer.command, done),
    }
}

fn translate<A, R>(
    outcome: Outcome<A, R>,
    answer: fn(A) -> DeliveryAnswer,
    rejected: fn(R) -> DeliveryError,
) -> DeliveryResult {
    outcome.map(answer).map_err(|error| match error {
        Error::Rejected(rejection) => rejected(rejection),
        Error::Unavailable(_) => DeliveryError::Unavailable,
        Error::Damaged(what) => DeliveryError::Other(what.to_string()),
    })
}

/// What becomes of a command that is never rejected.
fn done<A>(outcome: Outcome<A, Never>) -> DeliveryResult {
    translate(outcome, other, |never| match never {})
}

fn hooked(outcome: Outcome<Arc<Hook>, DeliveryRejection>) -> DeliveryResult {
    translate(outcome, |_| DeliveryAnswer::Hooked, rejected)
}

fn ingested(receipt: IngestReceipt) -> DeliveryAnswer {
    let IngestReceipt { received, repeated } = receipt;
    DeliveryAnswer::Ingested { received, repeated }
}

fn other<A>(_answer: A) -> DeliveryAnswer {
    DeliveryAnswer::Other
}

/// The stream is none for events.
fn unfit(_rejected: Rejected) -> DeliveryError {
    DeliveryError::Rejected
}

fn rejected(rejection: DeliveryRejection) -> DeliveryError {
    match rejection {
        DeliveryRejection::Exists => DeliveryError::HookExists,
        DeliveryRejection::NoEvent => DeliveryError::NoEvent,
        DeliveryRejection::NotFound => DeliveryError::NotFound,
        DeliveryRejection::NoDeadLetter
        | DeliveryRejection::PreviewStale
        | DeliveryRejection::TooManyDeadLetters { .. }
        | DeliveryRejection::HookInactive { .. }
        | DeliveryRejection::HookGone { .. }
        | DeliveryRejection::NoVersions { .. }
        | DeliveryRejection::TooManyHooks { .. }
        | DeliveryRejection::PatternBusy
        | DeliveryRejection::NoSecret => DeliveryError::Other(rejection.to_string()),
    }
}

/// The stream that has the events of a tenant.
pub(super) fn event_stream(tenant: &Tenant) -> StreamPath {
    reveille_engine::Engine::event_stream(tenant)
}

/// Which of a tenant's events may be forgotten, if any.
pub(super) fn plan_trim(
    engine: &Engine,
    tenant: &Tenant,
    cutoff: Millis,
) -> CheckResult<Option<TrimPlan>> {
    let plan = TrimPlan::make(&engine.reader(), FACE, tenant, cutoff);
    plan.map_err(|error| violation(format!("a look failed: {error}")))
}

pub(super) fn head(
    reader: &Reader,
    tenant: &Tenant,
    path: &StreamPath,
) -> CheckResult<Option<Head>> {
    streams::read::head(reader, tenant, path).map_err(|error| violation(error.to_string()))
}

/// What an event says, as it is stored.
pub(super) fn payload(reader: &Reader, event: &EventRecord) -> Result<Bytes, String> {
    let content = source::content(reader, event).map_err(|error| error.to_string())?;
    content.ok_or_else(|| "it is gone".to_owned())
}

/// The hooks in memory, unless something is decided that is not durable.
pub(super) fn hooks_if_idle(engine: &Engine) -> Option<Vec<Arc<Hook>>> {
    let partition = engine.shared().lock();
    partition.is_idle().then(|| partition.index.of::<HookIndex>().of(None))
}

pub(super) fn hook(engine: &Engine, id: HookId) -> Option<Arc<Hook>> {
    engine.shared().lock().index.of::<HookIndex>().get(id).cloned()
}

/// The next attempt whose turn it is.
pub(super) fn next_attempt(engine: &Engine, now: Millis) -> Option<DeliveryAttempt> {
    match engine.shared().outbox.next(now) {
        Some(Attempt::Delivery(attempt)) => Some(attempt),
        Some(Attempt::Wake(_)) | None => None,
    }
}

/// What an attempt would send now.
pub(super) fn readiness(
    engine: &Engine,
    hook: &Arc<Hook>,
    attempt: &DeliveryAttempt,
    now: Millis,
) -> CheckResult<DeliveryReadiness> {
    let readiness = send::readiness(&engine.reader(), &EventFace, hook, attempt, now);
    readiness.map_err(|error| violation(format!("nothing to say: {error}")))
}

/// An attempt is over, made or not.
pub(super) fn end_attempt(engine: &Engine, attempt: DeliveryAttempt) {
    engine.shared().outbox.ended(&Attempt::Delivery(attempt));
}

/// An attempt has been open for a while; true if it goes on, and if not it waits again.
pub(super) fn slow_down(engine: &Engine, attempt: &DeliveryAttempt) -> bool {
    let (outbox, attempt) = (&engine.shared().outbox, Attempt::Delivery(attempt.clone()));
    let goes_on = outbox.slows(&attempt);
    if !goes_on {
        outbox.put_back(attempt, true);
    }
    goes_on
}

/// Whether an attempt is under way, or waits for its turn.
pub(super) fn has_delivery(engine: &Engine, id: DeliveryId) -> bool {
    engine.shared().outbox.knows(&AttemptKey::Delivery(id))
}

/// A hook with room in memory has more of its deliveries there; which, if any.
pub(super) fn refill(engine: &Engine) -> Option<HookId> {
    let (AttemptSource::Hook(hook), from) = engine.shared().outbox.next_refill()? else {
        return None;
    };
    send::refill(engine.shared(), hook, from);
    Some(hook)
}

/// What is left in the outbox, if anything is.
pub(super) fn outbox_remains(engine: &Engine) -> Option<String> {
    let traffic = engine.shared().outbox.traffic();
    let open = traffic.queued + traffic.quick + traffic.slow;
    (open > 0).then(|| format!("{traffic:?}"))
}
