//! How this face refuses: its table from what can be wrong to a status and a code.

use http::StatusCode;
use reveille_core::consumer::Rejected;
use reveille_engine::{DestinationError, Failure, Refused};

use crate::http::error::{Refusal, RequestError};
use crate::http::fields::FieldError;

/// Why a request about subscriptions or leases is not done.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error(transparent)]
    Request(#[from] RequestError),
    #[error(transparent)]
    Failure(#[from] Failure),
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

impl From<Refused> for Error {
    fn from(refused: Refused) -> Error {
        Error::Failure(refused.into())
    }
}

impl Error {
    pub(super) fn refusal(&self) -> Refusal {
        match self {
            Error::Request(error) => error.refusal(),
            Error::Failure(failure) => failure_refusal(failure),
            Error::TokenExpired => Refusal::new(StatusCode::UNAUTHORIZED, "TOKEN_EXPIRED", self),
            Error::Destination(_) => Refusal::bad_request("WEBHOOK_URL_REJECTED", self),
        }
    }
}

/// What the engine says to subscriptions and leases.
fn failure_refusal(failure: &Failure) -> Refusal {
    const BAD: StatusCode = StatusCode::BAD_REQUEST;
    const CONFLICT: StatusCode = StatusCode::CONFLICT;
    let refused = match failure {
        Failure::Refused(refused) => refused,
        Failure::Unavailable(why) => return Refusal::unavailable(*why),
        Failure::Damaged(cause) => return Refusal::damaged(cause),
        Failure::Rejected(rejected) => return Refusal::internal(rejected),
    };
    let (status, code) = match refused {
        Refused::Exists => (CONFLICT, "SUBSCRIPTION_ALREADY_EXISTS"),
        Refused::NotFound => (StatusCode::NOT_FOUND, "SUBSCRIPTION_NOT_FOUND"),
        Refused::TooManyStreams { .. } => (BAD, "INVALID_REQUEST"),
        Refused::TokenInvalid | Refused::TokenExpired { .. } => {
            (StatusCode::UNAUTHORIZED, "TOKEN_INVALID")
        }
        Refused::Consumer(rejected) => match rejected {
            Rejected::InvalidOffset { .. } => (CONFLICT, "INVALID_OFFSET"),
            Rejected::Held { holder, generation } => {
                return Refusal::conflict("ALREADY_CLAIMED", refused)
                    .with_detail("current_holder", holder.as_ref())
                    .with_detail("generation", *generation);
            }
            Rejected::AlreadyClaimed | Rejected::Overtaken { .. } => (CONFLICT, "ALREADY_CLAIMED"),
            Rejected::NoPendingWork => (CONFLICT, "NO_PENDING_WORK"),
            Rejected::TooManyLinks { .. } => (BAD, "INVALID_REQUEST"),
            Rejected::StaleEpoch { .. } | Rejected::Fenced => (CONFLICT, "FENCED"),
            Rejected::Gone => (StatusCode::NOT_FOUND, "SUBSCRIPTION_NOT_FOUND"),
        },
        Refused::Append { .. }
        | Refused::TooManyKeys { .. }
        | Refused::HookExists
        | Refused::NoEvent
        | Refused::NoDeadLetter => return Refusal::internal(refused),
    };
    Refusal::new(status, code, refused)
}
