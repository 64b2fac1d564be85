//! How this face refuses: `{"code","message"}`, and with some codes what else there is to say.
//!
//! Clients know the codes below. What is wrong on every face, and what may be tried again, has the
//! status that it has everywhere, and the code of this face for it.

use std::fmt::Display;

use http::StatusCode;
use reveille_core::document::body::BodyError;
use reveille_core::document::filter::FilterError;
use reveille_core::document::order::OrderError;
use reveille_core::document::path::{IdError, PathError};
use reveille_core::document::query::QueryError;
use reveille_core::document::snapshot::DataError;
use reveille_core::document::transaction::OpError;
use reveille_engine::Unavailable;
use reveille_engine::documents::{DocumentError, DocumentRejection};
use serde_json::Map;

use super::body::BodyFailure;
use crate::http::error::{EngineRefusal, Refusal, RequestError};
use crate::http::fields::FieldError;
use crate::http::index::index_json;
use crate::http::object::TreeError;
use crate::http::reply::{self, Reply};

pub(super) const MISSING_INDEX: &str = "MISSING_INDEX";
const TOO_LARGE: StatusCode = StatusCode::PAYLOAD_TOO_LARGE;

/// Why a request is not done. In a box: every answer would be as large as a refusal.
#[derive(Debug)]
pub(super) struct Error(Box<Refusal>);

impl Error {
    fn new(status: StatusCode, message: impl Display) -> Error {
        Refusal::new(status, code_of(status).unwrap_or("INTERNAL_ERROR"), message).into()
    }

    pub(super) fn bad_request(message: impl Display) -> Error {
        Error::new(StatusCode::BAD_REQUEST, message)
    }

    /// A failure that no request can come to.
    pub(super) fn internal(message: impl Display) -> Error {
        Error::new(StatusCode::INTERNAL_SERVER_ERROR, message)
    }

    pub(super) fn into_refusal(self) -> Refusal {
        *self.0
    }

    pub(super) fn reply(self) -> Reply {
        let Refusal { status, code, message, details, headers } = *self.0;
        let mut body = Map::new();
        body.insert("code".into(), code.into());
        body.insert("message".into(), message.into());
        body.extend(details);
        let mut reply = reply::json(status, &body);
        reply.headers_mut().extend(headers);
        reply
    }
}

/// What this face calls a status. Others have the code that they have on every face.
fn code_of(status: StatusCode) -> Option<&'static str> {
    Some(match status {
        StatusCode::BAD_REQUEST => "BAD_REQUEST",
        StatusCode::UNAUTHORIZED => "UNAUTHORIZED",
        StatusCode::FORBIDDEN => "FORBIDDEN",
        StatusCode::NOT_FOUND => "NOT_FOUND",
        StatusCode::REQUEST_TIMEOUT => "REQUEST_TIMEOUT",
        StatusCode::CONFLICT => "CONFLICT",
        StatusCode::PRECONDITION_FAILED => "PRECONDITION_FAILED",
        StatusCode::PAYLOAD_TOO_LARGE => "REQUEST_TOO_LARGE",
        StatusCode::INTERNAL_SERVER_ERROR => "INTERNAL_ERROR",
        _ => return None,
    })
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Error {
        Error(Box::new(refusal))
    }
}

/// The refusal with this face's code for its status, unless it has one that says more.
fn in_own_words(mut refusal: Refusal) -> Error {
    if refusal.code != MISSING_INDEX {
        refusal.code = code_of(refusal.status).unwrap_or(refusal.code);
    }
    refusal.into()
}

impl From<RequestError> for Error {
    fn from(error: RequestError) -> Error {
        match error {
            // The limit of this face, which no setting raises.
            RequestError::BodyTooLarge { max } => in_own_words(Refusal {
                message: format!(
                    "the body is larger than {max} bytes, which one document may have"
                ),
                ..error.refusal()
            }),
            _ => in_own_words(error.refusal()),
        }
    }
}

impl From<BodyFailure> for Error {
    fn from(failure: BodyFailure) -> Error {
        match failure {
            BodyFailure::Request(error) => error.into(),
            BodyFailure::Tree(TreeError::TooLarge(error) | TreeError::Malformed(error)) => {
                error.into()
            }
        }
    }
}

impl From<FieldError> for Error {
    fn from(error: FieldError) -> Error {
        Error::bad_request(error)
    }
}

impl From<PathError> for Error {
    fn from(error: PathError) -> Error {
        Error::bad_request(error)
    }
}

impl From<IdError> for Error {
    fn from(error: IdError) -> Error {
        Error::bad_request(error)
    }
}

impl From<FilterError> for Error {
    fn from(error: FilterError) -> Error {
        Error::bad_request(error)
    }
}

impl From<OrderError> for Error {
    fn from(error: OrderError) -> Error {
        Error::bad_request(error)
    }
}

impl From<QueryError> for Error {
    fn from(error: QueryError) -> Error {
        Error::bad_request(error)
    }
}

impl From<BodyError> for Error {
    fn from(error: BodyError) -> Error {
        Error::new(body_status(&error), error)
    }
}

impl From<Unavailable> for Error {
    fn from(why: Unavailable) -> Error {
        in_own_words(Refusal::unavailable(why))
    }
}

impl From<DocumentError> for Error {
    fn from(error: DocumentError) -> Error {
        in_own_words(error.refusal_with(refusal))
    }
}

fn body_status(error: &BodyError) -> StatusCode {
    match error {
        BodyError::Data(DataError::TooLarge(_)) => TOO_LARGE,
        _ => StatusCode::BAD_REQUEST,
    }
}

/// What the engine says to those who read, write and look for documents.
fn refusal(rejection: &DocumentRejection) -> Refusal {
    let status = match rejection {
        DocumentRejection::NotFound(_) => StatusCode::NOT_FOUND,
        DocumentRejection::Failed(failure) => {
            // One write is all there is: which of them failed says nothing.
            let status = op_status(&failure.reason);
            return Refusal::new(status, "INTERNAL_ERROR", &failure.reason);
        }
        DocumentRejection::RuleDenied { .. } => StatusCode::FORBIDDEN,
        DocumentRejection::InProgress | DocumentRejection::OtherBody => StatusCode::CONFLICT,
        DocumentRejection::Conflict | DocumentRejection::Stale => StatusCode::PRECONDITION_FAILED,
        DocumentRejection::TimedOut => StatusCode::REQUEST_TIMEOUT,
        DocumentRejection::TooManyBytes { .. } => TOO_LARGE,
        DocumentRejection::MissingIndex(index) => {
            let refusal = Refusal::bad_request(MISSING_INDEX, rejection);
            return refusal.with_detail("suggestedIndex", index_json(index));
        }
        DocumentRejection::QueryTooCostly { .. } => StatusCode::BAD_REQUEST,
        DocumentRejection::Index(_) | DocumentRejection::TooManyIndexes => {
            StatusCode::INTERNAL_SERVER_ERROR
        }
    };
    Refusal::new(status, "INTERNAL_ERROR", rejection)
}

fn op_status(error: &OpError) -> StatusCode {
    match error {
        OpError::NotFound(_) => StatusCode::NOT_FOUND,
        OpError::AlreadyExists(_) => StatusCode::CONFLICT,
        OpError::VersionMismatch(_)
        | OpError::PreconditionFailed { .. }
        | OpError::NothingToCompare(_) => StatusCode::PRECONDITION_FAILED,
        OpError::Body(error) => body_status(error),
        OpError::TooManyOps(_) | OpError::TooManyBytes(_) | OpError::TooManyElements => TOO_LARGE,
        OpError::VersionsUsedUp => StatusCode::INTERNAL_SERVER_ERROR,
    }
}
