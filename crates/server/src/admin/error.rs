//! How this face refuses: its table from what can be wrong to a status and a code.

use http::StatusCode;
use reveille_engine::{Failure, Refused};

use crate::http::error::{Refusal, RequestError};
use crate::http::fields::FieldError;

/// Why a request of an operator or an admin is not done.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error(transparent)]
    Request(#[from] RequestError),
    #[error(transparent)]
    Failure(#[from] Failure),
    #[error("there is no key with this id")]
    KeyNotFound,
    #[error("{0}")]
    ConsumerNotFound(String),
    #[error("{0}")]
    DeliveryNotFound(String),
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
            Error::KeyNotFound => Refusal::not_found("KEY_NOT_FOUND", self),
            Error::ConsumerNotFound(_) => Refusal::not_found("CONSUMER_NOT_FOUND", self),
            Error::DeliveryNotFound(_) => Refusal::not_found("DELIVERY_NOT_FOUND", self),
        }
    }
}

/// What the engine says to those who look, and to those who manage keys.
fn failure_refusal(failure: &Failure) -> Refusal {
    let refused = match failure {
        Failure::Refused(refused) => refused,
        Failure::Unavailable(why) => return Refusal::unavailable(*why),
        Failure::Damaged(cause) => return Refusal::damaged(cause),
        Failure::Rejected(rejected) => return Refusal::internal(rejected),
    };
    match refused {
        Refused::TooManyKeys { .. } => Refusal::new(StatusCode::FORBIDDEN, "FORBIDDEN", refused),
        Refused::NotFound => Refusal::not_found("SUBSCRIPTION_NOT_FOUND", refused),
        Refused::NoEvent => Refusal::not_found("EVENT_NOT_FOUND", refused),
        Refused::Consumer(_)
        | Refused::Exists
        | Refused::TokenInvalid
        | Refused::TokenExpired { .. }
        | Refused::Append { .. }
        | Refused::HookExists
        | Refused::NoDeadLetter
        | Refused::TooManyStreams { .. } => Refusal::internal(refused),
    }
}
