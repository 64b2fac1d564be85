//! The one file of this world that calls the engine.

use std::sync::Arc;

use bytes::Bytes;
use reveille_core::consumer::AnnouncedOffset;
use reveille_core::delivery::hook::Hook;
use reveille_core::subscription::Subscription;
use reveille_core::{Millis, StreamPath, Tenant};
pub(super) use reveille_engine::deliveries::delivery::DeliveryOutcome;
use reveille_engine::deliveries::delivery::RecordDeliveryOutcomes;
use reveille_engine::deliveries::index::HookIndex;
use reveille_engine::deliveries::send::{self as delivery_send, DeliveryReadiness};
pub(super) use reveille_engine::effect::{Attempt, DeliveryAttempt, WakeAttempt};
use reveille_engine::effect::{AttemptSource, EventPayload};
pub(super) use reveille_engine::encoder::NotifiedStream;
use reveille_engine::events::face::EventFace;
use reveille_engine::events::hook::{CreateHook, StartFrom};
pub(super) use reveille_engine::events::ingest::{IngestEvents, NewEvent};
use reveille_engine::streams::access_times::AccessTimes;
use reveille_engine::streams::append::AppendToStream;
use reveille_engine::streams::create::CreateStream;
use reveille_engine::wakes::consumer::RecordWakeOutcomes;
pub(super) use reveille_engine::wakes::consumer::WakeOutcome;
use reveille_engine::wakes::index::SubscriptionIndex;
use reveille_engine::wakes::send as wake_send;
use reveille_engine::wakes::subscribe::CreateSubscription;
use reveille_kernel::error::Error;
use reveille_kernel::keys;

use super::request::{Action, Refusal};
use super::{PARTITIONS, Partitions};
use crate::base::engine::{self, Engine, Outcome};
use crate::base::raw_state::unreadable;
use crate::base::{CheckResult, WorldCall};

/// The partition of a tenant, as the engine routes it.
pub(super) fn partition_of(tenant: &Tenant) -> usize {
    let count = u32::try_from(PARTITIONS).expect("few");
    usize::try_from(keys::partition_of(tenant, count)).expect("few")
}

pub(super) fn call(tenant: &Tenant, action: &Action) -> WorldCall<Partitions> {
    let tenant = tenant.clone();
    match action.clone() {
        Action::Create { path, request } => {
            let command = CreateStream { tenant, path, request, anchor: None };
            engine::call(command, translate)
        }
        Action::Append { path, request, .. } => {
            engine::call(AppendToStream { tenant, path, request }, translate)
        }
        Action::Subscribe(spec) => engine::call(
            CreateSubscription { tenant, spec, secret: None, created_by: None },
            translate,
        ),
        Action::CreateHook { name, spec } => {
            let start = StartFrom::Now;
            engine::call(CreateHook { tenant, name, spec, start, created_by: None }, translate)
        }
        Action::Ingest(ingest) => engine::call(*ingest, translate),
        Action::RecordWake(outcome) => engine::call(RecordWakeOutcomes(vec![outcome]), translate),
        Action::RecordDelivery(outcome) => {
            engine::call(RecordDeliveryOutcomes(vec![outcome]), translate)
        }
        Action::Timer(timer) => engine::call(timer.command, translate),
    }
}

fn translate<A, R: std::fmt::Debug>(outcome: Outcome<A, R>) -> Result<(), Refusal> {
    outcome.map(drop).map_err(|error| match error {
        Error::Unavailable(_) => Refusal::Unavailable,
        Error::Rejected(rejection) => Refusal::Rejected(format!("{rejection:?}")),
        Error::Damaged(what) => Refusal::Rejected(what.to_string()),
    })
}

/// The stream that has the events of a tenant.
pub(super) fn event_stream(tenant: &Tenant) -> StreamPath {
    reveille_engine::Engine::event_stream(tenant)
}

pub(super) fn next_attempt(engine: &Engine, now: Millis) -> Option<Attempt> {
    engine.shared().outbox.next(now)
}

/// An attempt is over, made or not.
pub(super) fn end_attempt(engine: &Engine, attempt: &Attempt) {
    engine.shared().outbox.ended(attempt);
}

/// An attempt has been open for a while; true if it goes on, and if not it waits again.
pub(super) fn slow_down(engine: &Engine, attempt: &Attempt) -> bool {
    let outbox = &engine.shared().outbox;
    let goes_on = outbox.slows(attempt);
    if !goes_on {
        outbox.put_back(attempt.clone(), true);
    }
    goes_on
}

/// A hook with room in memory has more of its deliveries there; true if one has.
pub(super) fn refill(engine: &Engine) -> bool {
    let Some((AttemptSource::Hook(hook), from)) = engine.shared().outbox.next_refill() else {
        return false;
    };
    delivery_send::refill(engine.shared(), hook, from);
    true
}

/// What a wake would say now; `None` if there is nothing to say any more.
pub(super) fn notice(
    engine: &Engine,
    attempt: &WakeAttempt,
    now: Millis,
) -> CheckResult<Option<(Arc<Subscription>, Vec<NotifiedStream>)>> {
    let id = attempt.consumer.subscription;
    let known = engine.shared().lock().index.of::<SubscriptionIndex>().get(id).cloned();
    let Some(subscription) = known else { return Ok(None) };
    let access_times = engine.shared().domains.part::<AccessTimes>();
    let notice = wake_send::current(&engine.reader(), &subscription, attempt, now, access_times);
    let notice = notice.map_err(unreadable)?;
    Ok(notice.map(|(_, streams)| (subscription, streams)))
}

pub(super) fn announced(streams: &[NotifiedStream]) -> Vec<AnnouncedOffset> {
    wake_send::announced(streams)
}

/// What a delivery would say now; `None` if there is nothing to say any more.
pub(super) fn event(
    engine: &Engine,
    attempt: &DeliveryAttempt,
    now: Millis,
) -> CheckResult<Option<(Arc<Hook>, EventPayload)>> {
    let known = engine.shared().lock().index.of::<HookIndex>().get(attempt.id.hook).cloned();
    let Some(hook) = known else { return Ok(None) };
    let ready = delivery_send::readiness(&engine.reader(), &EventFace, &hook, attempt, now);
    Ok(match ready.map_err(unreadable)? {
        DeliveryReadiness::Send(event) => Some((hook, event)),
        DeliveryReadiness::Held
        | DeliveryReadiness::Dropped { .. }
        | DeliveryReadiness::Nothing => None,
    })
}

/// What an event says: whose it is, so that nobody else gets it.
pub(super) fn said(tenant: &Tenant, id: &str) -> Bytes {
    Bytes::from(format!("{{\"tenant\":\"{tenant}\",\"id\":\"{id}\"}}"))
}
