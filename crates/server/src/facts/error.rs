//! How this face refuses: `{"error":{"code","message"}}`, the codes in small letters.
//!
//! What is wrong on every face, and what may be tried again, has the code that it has everywhere.

use std::fmt::Display;

use http::StatusCode;
use reveille_core::fact::subscription::SubscriptionError;
use reveille_core::fact::token::CapabilityError;
use reveille_engine::facts::{FactError, FactRejection};
use reveille_engine::{Damaged, Unavailable};

use crate::http::error::{EngineRefusal, Refusal, RequestError};
use crate::http::fields::FieldError;
use crate::http::reply::Reply;

/// Why a request is not done. In a box: every answer would be as large as a refusal.
#[derive(Debug)]
pub(super) struct Error(Box<Refusal>);

impl Error {
    pub(super) fn reply(self) -> Reply {
        self.0.reply()
    }

    /// The body is no JSON object.
    pub(super) fn invalid_json(why: FieldError) -> Error {
        Refusal::bad_request("invalid_json", why).into()
    }

    /// The body is JSON, and asks for nothing that there is.
    pub(super) fn unprocessable(code: &'static str, why: impl Display) -> Error {
        Refusal::new(StatusCode::UNPROCESSABLE_ENTITY, code, why).into()
    }

    pub(super) fn fact_not_found() -> Error {
        Refusal::not_found("fact_not_found", "there is no fact of this id").into()
    }

    pub(super) fn token_not_found() -> Error {
        Refusal::not_found("token_not_found", "there is no capability token of this id").into()
    }

    /// There is no such subscription, or it is somebody else's.
    pub(super) fn subscription_not_found() -> Error {
        let text = "there is no subscription of this id; `GET /v1/subscriptions` lists yours";
        Refusal::not_found("subscription_not_found", text).into()
    }

    /// A replay cannot go on after this event.
    pub(super) fn event_not_found() -> Error {
        let text = "this event is not among those that can still be replayed: what came between it \
                    and the oldest of them is gone; leave `after` out to begin there";
        Refusal::not_found("event_not_found", text).into()
    }

    /// Only an admin does this.
    pub(super) fn admin_required(what: &str) -> Error {
        let text = format!("only an admin of the tenant {what}");
        Refusal::new(StatusCode::FORBIDDEN, "admin_required", text).into()
    }
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Error {
        Error(Box::new(refusal))
    }
}

impl From<RequestError> for Error {
    fn from(error: RequestError) -> Error {
        let mut refusal = error.refusal();
        refusal.code = match (refusal.status, refusal.code) {
            (StatusCode::UNAUTHORIZED, _) => "unauthenticated",
            (_, "FORBIDDEN") => "forbidden",
            (_, "INVALID_QUERY") => "invalid_query",
            (_, "METHOD_NOT_ALLOWED") => "method_not_allowed",
            (_, code) => code,
        };
        refusal.into()
    }
}

impl From<SubscriptionError> for Error {
    fn from(error: SubscriptionError) -> Error {
        Error::unprocessable(error.code(), error)
    }
}

impl From<CapabilityError> for Error {
    fn from(error: CapabilityError) -> Error {
        Refusal::new(StatusCode::FORBIDDEN, error.code(), error).into()
    }
}

impl From<FactError> for Error {
    fn from(error: FactError) -> Error {
        error.refusal_with(refusal).into()
    }
}

impl From<Damaged> for Error {
    fn from(damaged: Damaged) -> Error {
        Refusal::damaged(&damaged.0).into()
    }
}

impl From<Unavailable> for Error {
    fn from(why: Unavailable) -> Error {
        Refusal::unavailable(why).into()
    }
}

/// What the engine says to those who read, write and subscribe.
fn refusal(rejection: &FactRejection) -> Refusal {
    Refusal::internal(rejection)
}
