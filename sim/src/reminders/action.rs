//! What can be asked about reminders, their hooks and their deliveries, and what it may come to.

use std::sync::Arc;

use reveille_core::Tenant;
use reveille_core::delivery::hook::{FaceId, OpenDeliveries};
use reveille_core::delivery::id::DeliveryId;
use reveille_engine::deliveries::DeliveryRejection;
use reveille_engine::deliveries::dead_letter::DiscardDeadLetter;
use reveille_engine::deliveries::delivery::{
    DeliveryOutcome, DropDelivery, HoldDelivery, RecordDeliveryOutcomes, RetryDelivery,
};
use reveille_engine::deliveries::hook::{DeleteHook, SetHookActive};
use reveille_engine::deliveries::replay::StartReplay;
use reveille_engine::deliveries::retention::{ForgetDeliveries, ForgetReplays};
use reveille_kernel::error::{Error, Never};

use super::Reminders;
use super::face::{
    ChangeReminderHook, CreateReminderHook, FACE, MuteSubject, RevokeHook, SetReminder,
};
use crate::base::WorldCall;
use crate::base::engine::{self, Outcome, Timer};

#[derive(Debug, Clone)]
pub(super) enum Action {
    Set(SetReminder),
    Mute(MuteSubject),
    CreateHook(CreateReminderHook),
    ChangeHook(ChangeReminderHook),
    Revoke(RevokeHook),
    /// Perhaps in the name of another face, which must not find it.
    Activate {
        face: FaceId,
        tenant: Tenant,
        name: Arc<str>,
        active: bool,
    },
    End {
        face: FaceId,
        tenant: Tenant,
        name: Arc<str>,
        open: OpenDeliveries,
    },
    Discard(DiscardDeadLetter),
    Replay(StartReplay),
    Forget(ForgetDeliveries),
    ForgetReplays(ForgetReplays),
    Retry {
        tenant: Tenant,
        id: DeliveryId,
    },
    RecordOutcome(DeliveryOutcome),
    Hold(HoldDelivery),
    Drop(DropDelivery),
    Timer(Box<Timer>),
}

/// Why something was not done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ReminderError {
    Unavailable,
    Rejected(DeliveryRejection),
    /// Nothing that is ever expected.
    Other(String),
}

pub(super) type ReminderResult = Result<(), ReminderError>;

impl Action {
    /// The command that it is.
    pub(super) fn call(&self) -> WorldCall<Reminders> {
        match self.clone() {
            Action::Set(command) => engine::call(command, done),
            Action::Mute(command) => engine::call(command, done),
            Action::CreateHook(command) => engine::call(command, perhaps),
            Action::ChangeHook(command) => engine::call(command, perhaps),
            Action::Revoke(command) => engine::call(command, done),
            Action::Activate { face, tenant, name, active } => {
                engine::call(SetHookActive { face, tenant, name, active }, perhaps)
            }
            Action::End { face, tenant, name, open } => {
                engine::call(DeleteHook { face, tenant, name, open }, perhaps)
            }
            Action::Discard(command) => engine::call(command, perhaps),
            Action::Replay(command) => engine::call(command, done),
            Action::Forget(command) => engine::call(command, done),
            Action::ForgetReplays(command) => engine::call(command, done),
            Action::Retry { tenant, id } => {
                engine::call(RetryDelivery { face: FACE, tenant, id }, perhaps)
            }
            Action::RecordOutcome(outcome) => {
                engine::call(RecordDeliveryOutcomes(vec![outcome]), done)
            }
            Action::Hold(command) => engine::call(command, done),
            Action::Drop(command) => engine::call(command, done),
            Action::Timer(timer) => engine::call(timer.command, done),
        }
    }
}

fn perhaps<A>(outcome: Outcome<A, DeliveryRejection>) -> ReminderResult {
    outcome.map(drop).map_err(|error| match error {
        Error::Rejected(rejection) => ReminderError::Rejected(rejection),
        Error::Unavailable(_) => ReminderError::Unavailable,
        Error::Damaged(what) => ReminderError::Other(what.to_string()),
    })
}

fn done<A>(outcome: Outcome<A, Never>) -> ReminderResult {
    outcome.map(drop).map_err(|error| match error {
        Error::Rejected(never) => match never {},
        Error::Unavailable(_) => ReminderError::Unavailable,
        Error::Damaged(what) => ReminderError::Other(what.to_string()),
    })
}
