//! How this face refuses: its table from what can be wrong to a status and a code.

use http::StatusCode;
use reveille_core::consumer::Rejected;
use reveille_core::pattern::PatternError;
use reveille_engine::{DestinationError, Failure, Refused};

use crate::http::error::{Refusal, RequestError};
use crate::http::fields::FieldError;

/// Why a request about subscriptions is not done.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error(transparent)]
    Request(#[from] RequestError),
    #[error(transparent)]
    Failure(#[from] Failure),
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

impl Error {
    pub(super) fn refusal(&self) -> Refusal {
        match self {
            Error::Request(error) => error.refusal(),
            Error::Failure(failure) => failure_refusal(failure),
            Error::Pattern(_) => Refusal::bad_request("INVALID_PATTERN", self),
            Error::Destination(_) => Refusal::bad_request("WEBHOOK_URL_REJECTED", self),
        }
    }
}

/// What the engine says to subscriptions and callbacks, in the codes of the specification.
pub(super) fn failure_refusal(failure: &Failure) -> Refusal {
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
        Refused::TokenInvalid => (StatusCode::UNAUTHORIZED, "TOKEN_INVALID"),
        Refused::TokenExpired { .. } => (StatusCode::UNAUTHORIZED, "TOKEN_EXPIRED"),
        Refused::Consumer(rejected) => match rejected {
            Rejected::StaleEpoch { .. } | Rejected::Fenced => (CONFLICT, "STALE_EPOCH"),
            Rejected::AlreadyClaimed
            | Rejected::Overtaken { .. }
            | Rejected::Held { .. }
            | Rejected::NoPendingWork => (CONFLICT, "ALREADY_CLAIMED"),
            Rejected::InvalidOffset { .. } => (CONFLICT, "INVALID_OFFSET"),
            Rejected::TooManyLinks { .. } => (BAD, "INVALID_REQUEST"),
            Rejected::Gone => (StatusCode::GONE, "CONSUMER_GONE"),
        },
        Refused::Append { .. } => (CONFLICT, "APPEND_REJECTED"),
        Refused::TooManyKeys { .. }
        | Refused::HookExists
        | Refused::NoEvent
        | Refused::NoDeadLetter => return Refusal::internal(refused),
    };
    Refusal::new(status, code, refused)
}
