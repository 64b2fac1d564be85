//! How this face refuses: its table from what can be wrong to a status and a code.

use http::StatusCode;
use reveille_core::consumer::Rejected;
use reveille_engine::wakes::{WakeError, WakeRejection};
use reveille_engine::{self as engine, Damaged, DestinationError, Never, Unavailable};

use crate::http::error::{EngineRefusal, Refusal, RequestError};
use crate::http::fields::FieldError;

/// Why a request about subscriptions or leases is not done.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error(transparent)]
    Request(#[from] RequestError),
    #[error(transparent)]
    Engine(#[from] WakeError),
    #[error("the token has expired; claim the work again, or wait for the next notification")]
    TokenExpired,
    #[error("the webhook cannot be called: {0}")]
    Destination(#[from] DestinationError),
}

impl From<FieldError> for Error {
    fn from(error: FieldError) -> Error {
        Error::Request(error.into())
    }
}

impl From<WakeRejection> for Error {
    fn from(rejection: WakeRejection) -> Error {
        Error::Engine(rejection.into())
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
            Error::TokenExpired => Refusal::new(StatusCode::UNAUTHORIZED, "TOKEN_EXPIRED", self),
            Error::Destination(_) => Refusal::bad_request("WEBHOOK_URL_REJECTED", self),
        }
    }
}

/// What the engine says to subscriptions and leases.
fn rejection_refusal(rejection: &WakeRejection) -> Refusal {
    const BAD: StatusCode = StatusCode::BAD_REQUEST;
    const CONFLICT: StatusCode = StatusCode::CONFLICT;
    let (status, code) = match rejection {
        WakeRejection::Exists => (CONFLICT, "SUBSCRIPTION_ALREADY_EXISTS"),
        WakeRejection::NotFound => (StatusCode::NOT_FOUND, "SUBSCRIPTION_NOT_FOUND"),
        WakeRejection::TooManyStreams { .. } | WakeRejection::Spec(_) => (BAD, "INVALID_REQUEST"),
        WakeRejection::TooManySubscriptions { .. } => (StatusCode::FORBIDDEN, "QUOTA_EXCEEDED"),
        WakeRejection::TokenInvalid | WakeRejection::TokenExpired => {
            (StatusCode::UNAUTHORIZED, "TOKEN_INVALID")
        }
        WakeRejection::Consumer(rejected) => match rejected {
            Rejected::InvalidOffset { .. } => (CONFLICT, "INVALID_OFFSET"),
            Rejected::Held { holder, generation } => {
                return Refusal::conflict("ALREADY_CLAIMED", rejection)
                    .with_detail("current_holder", holder.as_ref())
                    .with_detail("generation", *generation);
            }
            Rejected::AlreadyClaimed | Rejected::Overtaken { .. } => (CONFLICT, "ALREADY_CLAIMED"),
            Rejected::NoPendingWork => (CONFLICT, "NO_PENDING_WORK"),
            Rejected::TooManyLinks { .. } | Rejected::LinksTooLong { .. } => {
                (BAD, "INVALID_REQUEST")
            }
            Rejected::StaleEpoch { .. } | Rejected::Fenced => (CONFLICT, "FENCED"),
            Rejected::Gone => (StatusCode::NOT_FOUND, "SUBSCRIPTION_NOT_FOUND"),
            // What only an operator can be told.
            Rejected::AtWork { .. }
            | Rejected::NothingPending
            | Rejected::SubscriptionPaused
            | Rejected::GivenUp
            | Rejected::NotGivenUp
            | Rejected::NotFollowed { .. }
            | Rejected::OutOfRange { .. } => return Refusal::internal(rejection),
        },
        WakeRejection::Append { .. } | WakeRejection::NoConsumer { .. } => {
            return Refusal::internal(rejection);
        }
    };
    Refusal::new(status, code, rejection)
}
