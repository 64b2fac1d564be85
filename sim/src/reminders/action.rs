//! What can be asked about reminders, their hooks and their deliveries, and what it may come to.

use std::sync::Arc;

use reveille_core::delivery::hook::{FaceId, OpenDeliveries};
use reveille_core::delivery::id::DeliveryId;
use reveille_core::stream::Rejected;
use reveille_core::stream::append::Append;
use reveille_core::stream::create::Create;
use reveille_core::{ContentType, Tenant};
use reveille_engine::deliveries::DeliveryRejection;
use reveille_engine::deliveries::append::AppendDelivery;
use reveille_engine::deliveries::dead_letter::DiscardDeadLetter;
use reveille_engine::deliveries::delivery::{
    DeliveryOutcome, DropDelivery, HoldDelivery, RecordDeliveryOutcomes, RetryDelivery,
};
use reveille_engine::deliveries::hook::{DeleteHook, SetHookActive};
use reveille_engine::deliveries::replay::StartReplay;
use reveille_engine::deliveries::retention::{ExpireDeliveries, ForgetDeliveries, ForgetReplays};
use reveille_engine::streams::append::AppendToStream;
use reveille_engine::streams::create::CreateStream;
use reveille_engine::streams::delete::DeleteStream;
use reveille_kernel::error::{Error, Never};

use super::Reminders;
use super::face::{
    ChangeReminderHook, CreateReminderHook, FACE, MuteSubject, RevokeHook, SetReminder, path_of,
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
    /// What has waited for too long is given up.
    Expire(ExpireDeliveries),
    /// A client has something else in mind with a stream.
    Stream {
        tenant: Tenant,
        endpoint: u8,
        change: StreamChange,
    },
    Append(Box<AppendDelivery>),
    RecordOutcome(DeliveryOutcome),
    Hold(HoldDelivery),
    Drop(DropDelivery),
    Timer(Box<Timer>),
}

/// What clients do with the streams that reminders are appended to.
#[derive(Debug, Clone, Copy)]
pub(super) enum StreamChange {
    /// It is made, of a type that takes no reminders.
    CreateText,
    Close,
    Delete,
}

/// Why something was not done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ReminderError {
    Unavailable,
    Rejected(DeliveryRejection),
    /// It was not owed any more, or somebody else has done it.
    NotMade,
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
            Action::Expire(command) => engine::call(command, done),
            Action::Stream { tenant, endpoint, change } => change.call(tenant, endpoint),
            Action::Append(command) => engine::call(*command, made),
            Action::RecordOutcome(outcome) => {
                engine::call(RecordDeliveryOutcomes(vec![outcome]), done)
            }
            Action::Hold(command) => engine::call(command, done),
            Action::Drop(command) => engine::call(command, done),
            Action::Timer(timer) => engine::call(timer.command, done),
        }
    }
}

impl StreamChange {
    fn call(self, tenant: Tenant, endpoint: u8) -> WorldCall<Reminders> {
        let path = path_of(endpoint);
        match self {
            StreamChange::CreateText => {
                let content_type = ContentType::parse("text/plain");
                let request = Create { content_type, ..Create::default() };
                engine::call(CreateStream { tenant, path, request, anchor: None }, whatever)
            }
            StreamChange::Close => {
                let request = Append { close: true, ..Append::default() };
                engine::call(AppendToStream { tenant, path, request }, whatever)
            }
            StreamChange::Delete => engine::call(DeleteStream { tenant, path }, whatever),
        }
    }
}

/// What becomes of streams is seen, and not asked.
fn whatever<A>(outcome: Outcome<A, Rejected>) -> ReminderResult {
    match outcome {
        Ok(_) | Err(Error::Rejected(_)) => Ok(()),
        Err(Error::Unavailable(_)) => Err(ReminderError::Unavailable),
        Err(Error::Damaged(what)) => Err(ReminderError::Other(what.to_string())),
    }
}

fn made(outcome: Outcome<Option<DeliveryOutcome>, Never>) -> ReminderResult {
    match outcome {
        Ok(None) => Err(ReminderError::NotMade),
        other => done(other),
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
