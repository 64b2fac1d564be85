//! The one file of this world that calls the engine.

use std::sync::Arc;

use bytes::Bytes;
use reveille_core::delivery::hook::{Hook, HookId, HookSpec};
use reveille_core::delivery::id::DeliveryId;
use reveille_core::stream::Head;
use reveille_core::stream::create::Create;
use reveille_core::{ContentType, Millis, StreamPath, Tenant};
use reveille_engine::command::Answer;
pub(super) use reveille_engine::command::delivery::DeliveryOutcome;
pub(super) use reveille_engine::command::hook::{HookChange, Since};
pub(super) use reveille_engine::command::ingest::{Ingest, NewEvent};
pub(super) use reveille_engine::command::trim::Look as TrimPlan;
pub(super) use reveille_engine::effect::DeliveryAttempt;
pub(super) use reveille_engine::outbound::deliveries::Ready;
use reveille_engine::outbound::deliveries::{self, payload_of};
use reveille_engine::outbox::Attempt;
use reveille_engine::{Failure, Refused, reading};
use reveille_schema::record::EventRecord;
use reveille_store::state::Reader;

use super::Deliveries;
use super::action::{Action, DeliveryAnswer, DeliveryError, DeliveryResult};
use crate::base::engine::{self, Command, Engine};
use crate::base::{CheckResult, WorldCall, violation};

pub(super) fn call(action: &Action) -> WorldCall<Deliveries> {
    let command = match action.clone() {
        Action::CreateTextStream { tenant, path } => {
            let content_type = ContentType::parse("text/plain");
            let request = Create { content_type, ..Create::default() };
            Command::Create { tenant, path, request, anchor: None }
        }
        Action::Ingest(ingest) => Command::Ingest(ingest),
        Action::CreateHook { tenant, name, spec, since } => {
            Command::Hook { tenant, name, spec: HookSpec::Events(spec), since }
        }
        Action::ChangeHook { tenant, name, change } => Command::ChangeHook { tenant, name, change },
        Action::Retry { tenant, id } => Command::Retry { tenant, id },
        Action::CleanUp { hook, cutoff } => Command::CleanUp { hook, cutoff, after: Bytes::new() },
        Action::Trim { tenant, stream, plan } => Command::Trim { tenant, stream, look: plan },
        Action::Sweep { found } => Command::Sweep { found },
        Action::RecordOutcome(outcome) => Command::RecordDeliveryOutcomes(vec![outcome]),
        Action::RecordUnsent { id, attempt } => Command::Unsent { id, attempt },
        Action::Timer(timer) => *timer.command,
    };
    engine::call(command, translate)
}

fn translate(outcome: engine::Outcome) -> DeliveryResult {
    match outcome {
        Ok(Answer::Ingested { received, repeated }) => {
            Ok(DeliveryAnswer::Ingested { received, repeated })
        }
        Ok(Answer::Hooked(_)) => Ok(DeliveryAnswer::Hooked),
        Ok(Answer::Unhooked(_)) => Ok(DeliveryAnswer::Unhooked),
        Ok(_) => Ok(DeliveryAnswer::Other),
        Err(Failure::Unavailable(_)) => Err(DeliveryError::Unavailable),
        Err(Failure::Rejected(_)) => Err(DeliveryError::Rejected),
        Err(Failure::Refused(Refused::HookExists)) => Err(DeliveryError::HookExists),
        Err(Failure::Refused(Refused::NoEvent)) => Err(DeliveryError::NoEvent),
        Err(Failure::Refused(Refused::NotFound)) => Err(DeliveryError::NotFound),
        Err(other) => Err(DeliveryError::Other(format!("{other:?}"))),
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
    let plan = TrimPlan::take(&engine.reader(), tenant, cutoff);
    plan.map_err(|error| violation(format!("a look failed: {error}")))
}

pub(super) fn head(
    reader: &Reader,
    tenant: &Tenant,
    path: &StreamPath,
) -> CheckResult<Option<Head>> {
    reading::head(reader, tenant, path).map_err(|error| violation(error.to_string()))
}

/// What an event says, as it is stored.
pub(super) fn payload(reader: &Reader, event: &EventRecord) -> Result<Bytes, String> {
    payload_of(reader, event).map_err(|error| error.to_string())
}

/// The hooks in memory, unless something is decided that is not durable.
pub(super) fn hooks_if_idle(engine: &Engine) -> Option<Vec<Arc<Hook>>> {
    let partition = engine.shared().lock();
    partition.is_idle().then(|| partition.registry.hooks.of(None))
}

pub(super) fn hook(engine: &Engine, id: HookId) -> Option<Arc<Hook>> {
    engine.shared().lock().registry.hooks.get(id).cloned()
}

/// The next attempt whose turn it is.
pub(super) fn next_attempt(engine: &Engine) -> Option<DeliveryAttempt> {
    match engine.shared().outbox.next() {
        Some(Attempt::Delivery(attempt)) => Some(attempt),
        Some(Attempt::Wake(_)) | None => None,
    }
}

/// What an attempt would send now.
pub(super) fn ready(engine: &Engine, hook: &Hook, attempt: &DeliveryAttempt) -> CheckResult<Ready> {
    let ready = deliveries::ready(&engine.reader(), hook, attempt);
    ready.map_err(|error| violation(format!("nothing to say: {error}")))
}

/// An attempt is over, made or not.
pub(super) fn end_attempt(engine: &Engine, attempt: DeliveryAttempt, was_slow: bool) {
    engine.shared().outbox.ended(&Attempt::Delivery(attempt), was_slow);
}

/// An attempt has been open for a while; true if it counts as slow now.
pub(super) fn slow_down(engine: &Engine, attempt: &DeliveryAttempt) -> bool {
    engine.shared().outbox.slows(&Attempt::Delivery(attempt.clone()))
}

/// Whether an attempt is under way, or waits for its turn.
pub(super) fn has_delivery(engine: &Engine, id: DeliveryId) -> bool {
    engine.shared().outbox.has_delivery(id)
}

/// A hook with room in memory has more of its deliveries there; which, if any.
pub(super) fn refill(engine: &Engine) -> Option<HookId> {
    let (hook, from) = engine.shared().outbox.next_refill()?;
    deliveries::refill(engine.shared(), hook, from);
    Some(hook)
}

/// What is left in the outbox, if anything is.
pub(super) fn outbox_remains(engine: &Engine) -> Option<String> {
    let traffic = engine.shared().outbox.traffic();
    let open = traffic.queued + traffic.quick + traffic.slow;
    (open > 0).then(|| format!("{traffic:?}"))
}
