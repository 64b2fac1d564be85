//! The one file of this world that calls the engine.

use std::sync::Arc;

use reveille_core::consumer::{AnnouncedOffset, Rejected};
use reveille_core::stream::{self, Head};
use reveille_core::subscription::{Subscription, SubscriptionId};
use reveille_core::{Millis, Tenant};
use reveille_engine::effect::Attempt;
pub(super) use reveille_engine::effect::WakeAttempt;
pub(super) use reveille_engine::encoder::NotifiedStream;
use reveille_engine::streams::access_times::AccessTimes;
use reveille_engine::streams::append::AppendToStream;
use reveille_engine::streams::create::{CreateStream, CreatedStream};
use reveille_engine::streams::delete::DeleteStream;
use reveille_engine::wakes::WakeRejection;
pub(super) use reveille_engine::wakes::callback::{ApplyCallback, CallbackBody, CallbackReceipt};
use reveille_engine::wakes::consumer::RecordWakeOutcomes;
pub(super) use reveille_engine::wakes::consumer::WakeOutcome;
use reveille_engine::wakes::index::SubscriptionIndex;
use reveille_engine::wakes::lease::ClaimLease;
pub(super) use reveille_engine::wakes::lease::{Lease, ReleaseLease, RenewLease};
use reveille_engine::wakes::send;
use reveille_engine::wakes::subscribe::{
    ChangeSubscription, CreateSubscription, DeleteSubscription, EditSubscriptionStreams,
};
use reveille_kernel::error::{Error, Never};
use reveille_schema::record::ConsumerRecord;

use super::Wakes;
use super::action::{Action, WakeAnswer, WakeError, WakeResult};
use crate::base::engine::{self, Engine, Outcome};
use crate::base::{CheckResult, WorldCall, violation};

pub(super) fn call(tenant: &Tenant, action: &Action) -> WorldCall<Wakes> {
    let tenant = tenant.clone();
    match action.clone() {
        Action::Create { path, request } => {
            let command = CreateStream { tenant, path, request, anchor: None };
            engine::call(command, |outcome| translate(outcome, created, refused))
        }
        Action::Append { path, request } => {
            let command = AppendToStream { tenant, path, request };
            engine::call(command, |outcome| translate(outcome, |_| WakeAnswer::Appended, refused))
        }
        Action::Delete { path } => engine::call(DeleteStream { tenant, path }, |outcome| {
            translate(outcome, other, refused)
        }),
        Action::Subscribe(spec) => {
            let command = CreateSubscription { tenant, spec, secret: None, created_by: None };
            engine::call(command, |outcome| translate(outcome, other, rejected))
        }
        Action::Change { name, change } => {
            let command = ChangeSubscription { tenant, name, change };
            engine::call(command, |outcome| translate(outcome, other, rejected))
        }
        Action::Unsubscribe { dialect, name } => {
            engine::call(DeleteSubscription { tenant, dialect, name }, done)
        }
        Action::EditStreams { name, add, remove } => {
            let command = EditSubscriptionStreams { tenant, name, add, remove };
            engine::call(command, |outcome| translate(outcome, other, rejected))
        }
        Action::Callback(callback) => {
            engine::call(*callback, |outcome| translate(outcome, WakeAnswer::Heard, rejected))
        }
        Action::Claim { name, worker } => {
            let command = ClaimLease { tenant, name, worker };
            engine::call(command, |outcome| translate(outcome, WakeAnswer::Leased, rejected))
        }
        Action::Renew(renew) => engine::call(renew, |outcome| translate(outcome, other, rejected)),
        Action::Release(release) => {
            engine::call(release, |outcome| translate(outcome, other, rejected))
        }
        Action::RecordOutcomes(outcomes) => engine::call(RecordWakeOutcomes(outcomes), |outcome| {
            translate(outcome, WakeAnswer::Recorded, |never| match never {})
        }),
        Action::Timer(timer) => engine::call(timer.command, done),
    }
}

fn translate<A, R>(
    outcome: Outcome<A, R>,
    answer: fn(A) -> WakeAnswer,
    rejected: fn(R) -> WakeError,
) -> WakeResult {
    outcome.map(answer).map_err(|error| match error {
        Error::Rejected(rejection) => rejected(rejection),
        Error::Unavailable(_) => WakeError::Unavailable,
        Error::Damaged(_) => WakeError::Refused,
    })
}

/// What becomes of a command that is never rejected.
fn done(outcome: Outcome<(), Never>) -> WakeResult {
    translate(outcome, other, |never| match never {})
}

fn created(stream: CreatedStream) -> WakeAnswer {
    if stream.is_new { WakeAnswer::Created(stream.head.id) } else { WakeAnswer::Other }
}

fn other<A>(_answer: A) -> WakeAnswer {
    WakeAnswer::Other
}

/// A stream does not allow it.
fn refused(_rejected: stream::Rejected) -> WakeError {
    WakeError::Refused
}

fn rejected(rejection: WakeRejection) -> WakeError {
    match rejection {
        WakeRejection::TokenExpired => WakeError::TokenExpired,
        WakeRejection::Consumer(Rejected::InvalidOffset { path }) => WakeError::InvalidOffset(path),
        WakeRejection::Append { .. } | WakeRejection::Consumer(Rejected::AlreadyClaimed) => {
            WakeError::Conflict
        }
        _ => WakeError::Refused,
    }
}

fn access_times(engine: &Engine) -> &AccessTimes {
    engine.shared().domains.part::<AccessTimes>()
}

/// The next attempt whose turn it is.
pub(super) fn next_attempt(engine: &Engine, now: Millis) -> Option<WakeAttempt> {
    match engine.shared().outbox.next(now) {
        Some(Attempt::Wake(attempt)) => Some(attempt),
        Some(Attempt::Delivery(_)) | None => None,
    }
}

/// An attempt is over, made or not.
pub(super) fn end_attempt(engine: &Engine, attempt: WakeAttempt) {
    engine.shared().outbox.ended(&Attempt::Wake(attempt));
}

pub(super) fn subscription(engine: &Engine, id: SubscriptionId) -> Option<Arc<Subscription>> {
    engine.shared().lock().index.of::<SubscriptionIndex>().get(id).cloned()
}

/// What an attempt would say now; `None` if there is nothing to say any more.
pub(super) fn notice(
    engine: &Engine,
    subscription: &Subscription,
    attempt: &WakeAttempt,
    now: Millis,
) -> CheckResult<Option<(ConsumerRecord, Vec<NotifiedStream>)>> {
    let access_times = access_times(engine);
    let notice = send::current(&engine.reader(), subscription, attempt, now, access_times);
    notice.map_err(|error| violation(format!("no notice: {error}")))
}

/// The streams that a consumer learns of.
pub(super) fn streams(
    engine: &Engine,
    subscription: &Subscription,
    record: &ConsumerRecord,
) -> CheckResult<Vec<NotifiedStream>> {
    let streams = send::streams(&engine.reader(), subscription, record);
    streams.map_err(|error| violation(format!("no streams: {error}")))
}

pub(super) fn announced(streams: &[NotifiedStream]) -> Vec<AnnouncedOffset> {
    send::announced(streams)
}

pub(super) fn expires_at(engine: &Engine, head: &Head) -> Millis {
    access_times(engine).expires_at(head)
}
