//! The one file of this world that calls the engine.

use std::sync::Arc;

use reveille_core::consumer::{AnnouncedOffset, Rejected};
use reveille_core::stream::Head;
use reveille_core::subscription::{Subscription, SubscriptionId};
use reveille_core::{Millis, Tenant};
use reveille_engine::command::Answer;
pub(super) use reveille_engine::command::callback::{Report, Standing};
pub(super) use reveille_engine::command::consumer::WakeOutcome;
pub(super) use reveille_engine::command::lease::{Lease, LeaseRequest};
pub(super) use reveille_engine::effect::WakeAttempt;
pub(super) use reveille_engine::encoder::NotifiedStream;
use reveille_engine::outbox::Attempt;
use reveille_engine::{Failure, Refused, outbound};
use reveille_schema::record::ConsumerRecord;

use super::Wakes;
use super::action::{Action, WakeAnswer, WakeError, WakeResult};
use crate::base::engine::{self, Command, Engine};
use crate::base::{CheckResult, WorldCall, violation};

pub(super) fn call(tenant: &Tenant, action: &Action) -> WorldCall<Wakes> {
    let tenant = tenant.clone();
    let command = match action.clone() {
        Action::Create { path, request } => Command::Create { tenant, path, request, anchor: None },
        Action::Append { path, request } => Command::Append { tenant, path, request },
        Action::Delete { path } => Command::Delete { tenant, path },
        Action::Subscribe(spec) => Command::Subscribe { tenant, spec, secret: None },
        Action::Unsubscribe { dialect, name } => Command::Unsubscribe { tenant, dialect, name },
        Action::EditStreams { name, add, remove } => {
            Command::EditStreams { tenant, name, add, remove }
        }
        Action::Report(report) => Command::Report(report),
        Action::Lease { name, request } => Command::Lease { tenant, name, request },
        Action::RecordOutcomes(outcomes) => Command::RecordWakeOutcomes(outcomes),
        Action::Timer(timer) => *timer.command,
    };
    engine::call(command, translate)
}

fn translate(outcome: engine::Outcome) -> WakeResult {
    let failure = match outcome {
        Ok(Answer::Created { head, new: true }) => return Ok(WakeAnswer::Created(head.id)),
        Ok(Answer::Appended(_)) => return Ok(WakeAnswer::Appended),
        Ok(Answer::Reported(standing)) => return Ok(WakeAnswer::Reported(standing)),
        Ok(Answer::Leased(lease)) => return Ok(WakeAnswer::Leased(lease)),
        Ok(_) => return Ok(WakeAnswer::Other),
        Err(failure) => failure,
    };
    Err(match failure {
        Failure::Unavailable(_) => WakeError::Unavailable,
        Failure::Refused(Refused::TokenExpired { .. }) => WakeError::TokenExpired,
        Failure::Refused(Refused::Consumer(Rejected::InvalidOffset { path })) => {
            WakeError::InvalidOffset(path)
        }
        Failure::Refused(Refused::Append { .. } | Refused::Consumer(Rejected::AlreadyClaimed)) => {
            WakeError::Conflict
        }
        Failure::Rejected(_) | Failure::Refused(_) | Failure::Damaged(_) => WakeError::Refused,
    })
}

/// The next attempt whose turn it is.
pub(super) fn next_attempt(engine: &Engine) -> Option<WakeAttempt> {
    match engine.shared().outbox.next() {
        Some(Attempt::Wake(attempt)) => Some(attempt),
        Some(Attempt::Delivery(_)) | None => None,
    }
}

/// An attempt is over, made or not.
pub(super) fn end_attempt(engine: &Engine, attempt: WakeAttempt) {
    engine.shared().outbox.ended(&Attempt::Wake(attempt), false);
}

pub(super) fn subscription(engine: &Engine, id: SubscriptionId) -> Option<Arc<Subscription>> {
    engine.shared().lock().registry.get(id).cloned()
}

/// What an attempt would say now; `None` if there is nothing to say any more.
pub(super) fn notice(
    engine: &Engine,
    subscription: &Subscription,
    attempt: &WakeAttempt,
    now: Millis,
) -> CheckResult<Option<(ConsumerRecord, Vec<NotifiedStream>)>> {
    let access_times = &engine.shared().access_times;
    let notice = outbound::current(&engine.reader(), subscription, attempt, now, access_times);
    notice.map_err(|error| violation(format!("no notice: {error}")))
}

/// The streams that a consumer learns of.
pub(super) fn streams(
    engine: &Engine,
    subscription: &Subscription,
    record: &ConsumerRecord,
) -> CheckResult<Vec<NotifiedStream>> {
    let streams = outbound::streams(&engine.reader(), subscription, record);
    streams.map_err(|error| violation(format!("no streams: {error}")))
}

pub(super) fn announced(streams: &[NotifiedStream]) -> Vec<AnnouncedOffset> {
    outbound::announced(streams)
}

pub(super) fn expires_at(engine: &Engine, head: &Head) -> Millis {
    engine.shared().access_times.expires_at(head)
}
