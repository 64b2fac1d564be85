//! How this face refuses: its table from what can be wrong to a status and a code.

use http::StatusCode;
use reveille_core::consumer::Rejected;
use reveille_core::pattern::PatternError;
use reveille_engine::wakes::{WakeError, WakeRejection};
use reveille_engine::{self as engine, Damaged, DestinationError, Never, Unavailable};

use crate::http::error::{EngineRefusal, Refusal, RequestError};
use crate::http::fields::FieldError;

/// Why a request about subscriptions is not done.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error(transparent)]
    Request(#[from] RequestError),
    #[error(transparent)]
    Engine(#[from] WakeError),
    #[error(transparent)]
    Pattern(#[from] PatternError),
    #[error("the webhook cannot be called: {0}")]
    Destination(#[from] DestinationError),
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
            Error::Engine(error) => error.refusal_with(rejection_refusal),
            Error::Pattern(_) => Refusal::bad_request("INVALID_PATTERN", self),
            Error::Destination(_) => Refusal::bad_request("WEBHOOK_URL_REJECTED", self),
        }
    }
}

const OTHER_SETTINGS: &str = "a subscription with this id exists and has other settings; change it \
                              in place with PATCH /{pattern}?subscription=ID, which keeps what its \
                              consumers have done, or choose another id";

/// What the engine says to subscriptions and callbacks, in the codes of the specification.
pub(super) fn rejection_refusal(rejection: &WakeRejection) -> Refusal {
    const BAD: StatusCode = StatusCode::BAD_REQUEST;
    const CONFLICT: StatusCode = StatusCode::CONFLICT;
    let (status, code) = match rejection {
        WakeRejection::Exists => {
            return Refusal::conflict("SUBSCRIPTION_ALREADY_EXISTS", OTHER_SETTINGS);
        }
        WakeRejection::Spec(_) => (BAD, "INVALID_REQUEST"),
        WakeRejection::NotFound => (StatusCode::NOT_FOUND, "SUBSCRIPTION_NOT_FOUND"),
        WakeRejection::NoConsumer { .. } => (StatusCode::NOT_FOUND, "CONSUMER_NOT_FOUND"),
        WakeRejection::TooManyStreams { .. } => (BAD, "INVALID_REQUEST"),
        WakeRejection::TooManySubscriptions { .. } => (StatusCode::FORBIDDEN, "QUOTA_EXCEEDED"),
        WakeRejection::TokenInvalid => (StatusCode::UNAUTHORIZED, "TOKEN_INVALID"),
        WakeRejection::TokenExpired => (StatusCode::UNAUTHORIZED, "TOKEN_EXPIRED"),
        WakeRejection::Consumer(rejected) => match rejected {
            Rejected::StaleEpoch { .. } | Rejected::Fenced => (CONFLICT, "STALE_EPOCH"),
            Rejected::AlreadyClaimed
            | Rejected::Overtaken { .. }
            | Rejected::Held { .. }
            | Rejected::NoPendingWork => (CONFLICT, "ALREADY_CLAIMED"),
            Rejected::InvalidOffset { .. } => (CONFLICT, "INVALID_OFFSET"),
            Rejected::TooManyLinks { .. } | Rejected::LinksTooLong { .. } => {
                (BAD, "INVALID_REQUEST")
            }
            Rejected::Gone => (StatusCode::GONE, "CONSUMER_GONE"),
            // What only an operator can be told.
            Rejected::AtWork { .. }
            | Rejected::NothingPending
            | Rejected::SubscriptionPaused
            | Rejected::GivenUp
            | Rejected::NotGivenUp
            | Rejected::NotFollowed { .. }
            | Rejected::OutOfRange { .. } => return Refusal::internal(rejection),
        },
        WakeRejection::Append { .. } => (CONFLICT, "APPEND_REJECTED"),
    };
    Refusal::new(status, code, rejection)
}
