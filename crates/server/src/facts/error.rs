//! How this face refuses: `{"error":{"code","message"}}`, the codes in small letters.
//!
//! What is wrong on every face, and what may be tried again, has the code that it has everywhere.

use std::fmt::Display;

use http::StatusCode;
use reveille_core::fact::access::WriteDenied;
use reveille_core::fact::subscription::SubscriptionError;
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
        refusal(&FactRejection::FactNotFound).into()
    }

    pub(super) fn token_not_found() -> Error {
        refusal(&FactRejection::TokenNotFound).into()
    }

    pub(super) fn subscription_not_found() -> Error {
        refusal(&FactRejection::SubscriptionNotFound).into()
    }

    pub(super) fn garden_not_found(slug: &str) -> Error {
        refusal(&FactRejection::GardenNotFound(slug.into())).into()
    }

    pub(super) fn member_not_found(entity: &str) -> Error {
        refusal(&FactRejection::MemberNotFound(entity.into())).into()
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
    const FORBIDDEN: StatusCode = StatusCode::FORBIDDEN;
    const NOT_FOUND: StatusCode = StatusCode::NOT_FOUND;
    const CONFLICT: StatusCode = StatusCode::CONFLICT;
    const UNPROCESSABLE: StatusCode = StatusCode::UNPROCESSABLE_ENTITY;
    let (status, code) = match rejection {
        FactRejection::Name(_) => (UNPROCESSABLE, "invalid_fact"),
        FactRejection::WriteDenied(WriteDenied::Scope(_)) => (UNPROCESSABLE, "scope_mismatch"),
        FactRejection::WriteDenied(WriteDenied::Permission) | FactRejection::ReadDenied => {
            (FORBIDDEN, "forbidden")
        }
        FactRejection::WriteDenied(WriteDenied::Role)
        | FactRejection::NotMember
        | FactRejection::NotGardenAdmin => (FORBIDDEN, "garden_forbidden"),
        FactRejection::FactNotFound => (NOT_FOUND, "fact_not_found"),
        FactRejection::FactForbidden => (FORBIDDEN, "fact_forbidden"),
        FactRejection::CardNotFound => (NOT_FOUND, "card_not_found"),
        FactRejection::ScopeForbidden(_) | FactRejection::InsufficientScope => {
            (FORBIDDEN, "insufficient_scope")
        }
        FactRejection::GardenNotFound(_) => (NOT_FOUND, "garden_not_found"),
        FactRejection::GardenExists(_) => (CONFLICT, "garden_exists"),
        FactRejection::LastAdmin => (FORBIDDEN, "last_admin"),
        FactRejection::MemberExists(_) => (CONFLICT, "member_exists"),
        FactRejection::MemberNotFound(_) => (NOT_FOUND, "member_not_found"),
        FactRejection::TooManyGardens
        | FactRejection::TooManyMembers
        | FactRejection::TooManyGardensOfMember
        | FactRejection::TooManyTokens
        | FactRejection::TooManySubscriptions { .. } => (FORBIDDEN, "quota_exceeded"),
        FactRejection::NotAdmin => (FORBIDDEN, "admin_required"),
        FactRejection::TokenNotFound => (NOT_FOUND, "token_not_found"),
        FactRejection::TokenRevoked => (CONFLICT, "token_already_revoked"),
        FactRejection::Capability(error) => (FORBIDDEN, error.code()),
        FactRejection::KeyRevoked => (StatusCode::UNAUTHORIZED, "unauthenticated"),
        FactRejection::KeyElsewhere => (FORBIDDEN, "key_of_all_tenants"),
        FactRejection::SubscriptionNotFound => (NOT_FOUND, "subscription_not_found"),
        FactRejection::EventNotFound => (NOT_FOUND, "event_not_found"),
        FactRejection::Cursor => (StatusCode::BAD_REQUEST, "invalid_query"),
    };
    Refusal::new(status, code, rejection)
}
