//! How this face refuses: its table from what can be wrong to a status and a code.

use http::StatusCode;
use reveille_core::consumer::Rejected;
use reveille_engine::auth::{KeyError, KeyRejection};
use reveille_engine::deliveries::{DeliveryError, DeliveryRejection};
use reveille_engine::documents::{DocumentError, DocumentRejection};
use reveille_engine::wakes::{WakeError, WakeRejection};
use reveille_engine::{self as engine, Damaged, Never, Unavailable};

use crate::http::error::{EngineRefusal, Refusal, RequestError};
use crate::http::fields::FieldError;

/// Why a request of an operator or an admin is not done.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error(transparent)]
    Request(#[from] RequestError),
    #[error(transparent)]
    Key(#[from] KeyError),
    #[error(transparent)]
    Engine(#[from] DeliveryError),
    #[error(transparent)]
    Consumer(#[from] WakeError),
    #[error("there is no key with this id")]
    KeyNotFound,
    #[error("{0}")]
    ConsumerNotFound(String),
    #[error("{0}")]
    DeliveryNotFound(String),
    #[error("{0}")]
    DeadLetterNotFound(String),
    #[error("{0}")]
    ReplayNotFound(String),
    #[error("{0}")]
    TriggerNotFound(String),
    #[error(transparent)]
    Document(#[from] DocumentError),
    #[error(
        "this tenant has no rules: whoever has a key for it may read and write all of its documents"
    )]
    RulesNotFound,
    #[error("the server has no key to sign tokens with")]
    NoTokenKey,
    #[error("no timer of this id is set aside; `GET /admin/v1/timers` lists those that are")]
    TimerNotFound,
}

impl From<FieldError> for Error {
    fn from(error: FieldError) -> Error {
        Error::Request(error.into())
    }
}

impl From<Damaged> for Error {
    fn from(damaged: Damaged) -> Error {
        Error::Engine(damaged.into())
    }
}

impl From<Unavailable> for Error {
    fn from(why: Unavailable) -> Error {
        Error::Engine(why.into())
    }
}

impl From<engine::Error<Never>> for Error {
    fn from(error: engine::Error<Never>) -> Error {
        Error::Engine(error.map_rejection(|never| match never {}))
    }
}

impl Error {
    pub(super) fn refusal(&self) -> Refusal {
        match self {
            Error::Request(error) => error.refusal(),
            Error::Key(error) => error.refusal_with(key_refusal),
            Error::Engine(error) => error.refusal_with(delivery_refusal),
            Error::Consumer(error) => error.refusal_with(consumer_refusal),
            Error::KeyNotFound => Refusal::not_found("KEY_NOT_FOUND", self),
            Error::ConsumerNotFound(_) => Refusal::not_found("CONSUMER_NOT_FOUND", self),
            Error::DeliveryNotFound(_) => Refusal::not_found("DELIVERY_NOT_FOUND", self),
            Error::DeadLetterNotFound(_) => Refusal::not_found("DEAD_LETTER_NOT_FOUND", self),
            Error::ReplayNotFound(_) => Refusal::not_found("REPLAY_NOT_FOUND", self),
            Error::TriggerNotFound(_) => Refusal::not_found("TRIGGER_NOT_FOUND", self),
            Error::Document(error) => error.refusal_with(document_refusal),
            Error::RulesNotFound => Refusal::not_found("RULES_NOT_FOUND", self),
            Error::NoTokenKey => Refusal::internal(self),
            Error::TimerNotFound => Refusal::not_found("TIMER_NOT_FOUND", self),
        }
    }
}

/// What the engine says to those who manage keys.
fn key_refusal(rejection: &KeyRejection) -> Refusal {
    match rejection {
        KeyRejection::TooManyKeys { .. } => {
            Refusal::new(StatusCode::FORBIDDEN, "FORBIDDEN", rejection)
        }
    }
}

/// What it says to those who wake, move or revive consumers.
fn consumer_refusal(rejection: &WakeRejection) -> Refusal {
    let rejected = match rejection {
        WakeRejection::Consumer(rejected) => rejected,
        WakeRejection::NotFound | WakeRejection::NoConsumer { .. } => {
            return Refusal::not_found("CONSUMER_NOT_FOUND", rejection);
        }
        _ => return Refusal::internal(rejection),
    };
    let code = match rejected {
        Rejected::AtWork { .. } => "CONSUMER_LIVE",
        Rejected::NothingPending => "NOTHING_PENDING",
        Rejected::GivenUp => "CONSUMER_GIVEN_UP",
        Rejected::SubscriptionPaused => "SUBSCRIPTION_PAUSED",
        Rejected::NotGivenUp => "NOT_GIVEN_UP",
        Rejected::Gone => "CONSUMER_GONE",
        Rejected::NotFollowed { .. } => {
            return Refusal::not_found("STREAM_NOT_FOLLOWED", rejection);
        }
        Rejected::OutOfRange { .. } => return Refusal::bad_request("INVALID_OFFSET", rejection),
        _ => return Refusal::internal(rejection),
    };
    Refusal::new(StatusCode::CONFLICT, code, rejection)
}

/// What it says to those who look at deliveries.
fn delivery_refusal(rejection: &DeliveryRejection) -> Refusal {
    match rejection {
        DeliveryRejection::NotFound => Refusal::not_found("SUBSCRIPTION_NOT_FOUND", rejection),
        DeliveryRejection::NoEvent => Refusal::not_found("EVENT_NOT_FOUND", rejection),
        DeliveryRejection::Exists
        | DeliveryRejection::TooManyHooks { .. }
        | DeliveryRejection::PatternBusy
        | DeliveryRejection::NoSecret => Refusal::internal(rejection),
        DeliveryRejection::NoDeadLetter => Refusal::not_found("DEAD_LETTER_NOT_FOUND", rejection),
        DeliveryRejection::PreviewStale => Refusal::conflict("PREVIEW_STALE", rejection),
        DeliveryRejection::HookInactive { .. } => Refusal::conflict("HOOK_INACTIVE", rejection),
        DeliveryRejection::HookGone { .. } => Refusal::conflict("HOOK_GONE", rejection),
        DeliveryRejection::NoVersions { .. } => {
            Refusal::bad_request("VERSIONS_NOT_KEPT", rejection)
        }
        DeliveryRejection::TooManyDeadLetters { .. } => {
            Refusal::conflict("TOO_MANY_DEAD_LETTERS", rejection)
        }
    }
}

/// What it says to those who declare indexes and put rules.
fn document_refusal(rejection: &DocumentRejection) -> Refusal {
    match rejection {
        DocumentRejection::Index(_) => Refusal::bad_request("INVALID_REQUEST", rejection),
        DocumentRejection::TooManyIndexes => Refusal::conflict("TOO_MANY_INDEXES", rejection),
        DocumentRejection::NotFound(_)
        | DocumentRejection::Failed(_)
        | DocumentRejection::RuleDenied { .. }
        | DocumentRejection::InProgress
        | DocumentRejection::OtherBody
        | DocumentRejection::Conflict
        | DocumentRejection::Stale
        | DocumentRejection::TimedOut
        | DocumentRejection::MissingIndex(_)
        | DocumentRejection::TooManyBytes { .. }
        | DocumentRejection::QueryTooCostly { .. } => Refusal::internal(rejection),
    }
}
