//! How transactions are refused: `{"error":{"code","message","details"},"idempotencyKey"}`.
//!
//! The set of codes is stable. `details` say which write failed, and what of its own was wrong with
//! it. What may be tried again later has the status and code that it has on every face.

use std::fmt::Display;

use http::StatusCode;
use http::header::{HeaderName, HeaderValue};
use reveille_core::document::body::BodyError;
use reveille_core::document::idempotency::{IdempotencyKey, KeyError, WriteEnd};
use reveille_core::document::path::PathError;
use reveille_core::document::transaction::{Failure, OpError};
use reveille_engine as engine;
use reveille_engine::documents::{DocumentError, DocumentRejection};
use serde_json::{Map, Value, json};

use crate::documents::body::BodyFailure;
use crate::documents::error::{self as single, MISSING_INDEX};
use crate::http::error::{EngineRefusal, Refusal, RequestError};
use crate::http::fields::FieldError;
use crate::http::object::TreeError;
use crate::http::reply::{self, Reply};

/// Why a transaction is not done. In a box: every answer would be as large as a refusal.
#[derive(Debug)]
pub(crate) struct Error(Box<Parts>);

#[derive(Debug)]
struct Parts {
    refusal: Refusal,
    /// What is wrong with single writes.
    details: Vec<Value>,
    key: Option<IdempotencyKey>,
    /// Whether this is how it ended before.
    is_replayed: bool,
}

impl Error {
    pub(in crate::documents) fn new(status: StatusCode, message: impl Display) -> Error {
        Refusal::new(status, code_of(status).unwrap_or("INTERNAL"), message).into()
    }

    pub(in crate::documents) fn invalid(message: impl Display) -> Error {
        Error::new(StatusCode::BAD_REQUEST, message)
    }

    /// It is this write that is wrong.
    pub(in crate::documents) fn of_op(self, op_index: usize) -> Error {
        let code = self.0.refusal.code;
        self.with_detail(Some(op_index), code)
    }

    /// The code of a detail may say more than that of the whole.
    pub(in crate::documents) fn with_detail(
        mut self,
        op_index: Option<usize>,
        code: &str,
    ) -> Error {
        let mut detail = Map::new();
        if let Some(op_index) = op_index {
            detail.insert("opIndex".into(), op_index.into());
        }
        detail.insert("code".into(), code.into());
        detail.insert("message".into(), self.0.refusal.message.clone().into());
        self.0.details.push(detail.into());
        self
    }

    pub(in crate::documents) fn code(&self) -> &'static str {
        self.0.refusal.code
    }

    pub(in crate::documents) fn is_denial(&self) -> bool {
        self.0.refusal.status == StatusCode::FORBIDDEN
    }

    /// The code that says most: that of the first detail, or that of the whole.
    pub(in crate::documents) fn precise_code(&self) -> String {
        let detail = self.0.details.first().and_then(|detail| detail.get("code"));
        detail.and_then(Value::as_str).unwrap_or(self.code()).to_owned()
    }

    pub(in crate::documents) fn with_header(
        mut self,
        name: HeaderName,
        value: HeaderValue,
    ) -> Error {
        self.0.refusal.headers.insert(name, value);
        self
    }

    pub(in crate::documents) fn with_message(mut self, message: String) -> Error {
        self.0.refusal.message = message;
        self
    }

    /// The transaction had this key.
    pub(in crate::documents) fn under(mut self, key: &IdempotencyKey) -> Error {
        self.0.key = Some(key.clone());
        self
    }

    pub(in crate::documents) fn reply(self) -> Reply {
        let Parts { refusal, details, key, is_replayed } = *self.0;
        let mut error = Map::new();
        error.insert("code".into(), refusal.code.into());
        error.insert("message".into(), refusal.message.into());
        error.extend(refusal.details);
        if !details.is_empty() {
            error.insert("details".into(), details.into());
        }
        let mut body = json!({ "error": error });
        if let Some(object) = body.as_object_mut() {
            if let Some(key) = key {
                object.insert("idempotencyKey".into(), key.as_str().into());
            }
            if is_replayed {
                object.insert("replayed".into(), true.into());
            }
        }
        let mut reply = reply::json(refusal.status, &body);
        reply.headers_mut().extend(refusal.headers);
        reply
    }
}

/// How a transaction ended when it was sent for the first time.
pub(super) fn replayed(end: WriteEnd, message: &str) -> Error {
    let mut error = Error::new(status_of(end), message);
    error.0.is_replayed = true;
    error
}

fn status_of(end: WriteEnd) -> StatusCode {
    match end {
        WriteEnd::Success => StatusCode::OK,
        WriteEnd::NotFound => StatusCode::NOT_FOUND,
        WriteEnd::PreconditionFailed => StatusCode::PRECONDITION_FAILED,
        WriteEnd::RuleDenied | WriteEnd::Forbidden => StatusCode::FORBIDDEN,
        WriteEnd::Invalid => StatusCode::BAD_REQUEST,
        WriteEnd::Unauthenticated => StatusCode::UNAUTHORIZED,
        WriteEnd::TimedOut => StatusCode::REQUEST_TIMEOUT,
        WriteEnd::Exhausted => StatusCode::TOO_MANY_REQUESTS,
        WriteEnd::Internal => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

/// What transactions call a status. Others have the code that they have on every face.
fn code_of(status: StatusCode) -> Option<&'static str> {
    Some(match status {
        StatusCode::BAD_REQUEST => "INVALID_ARGUMENT",
        StatusCode::UNAUTHORIZED => "UNAUTHENTICATED",
        StatusCode::FORBIDDEN => "PERMISSION_DENIED",
        StatusCode::NOT_FOUND => "NOT_FOUND",
        StatusCode::REQUEST_TIMEOUT => "REQUEST_TIMEOUT",
        StatusCode::CONFLICT => "IDEMPOTENCY_REPLAY",
        StatusCode::PRECONDITION_FAILED => "PRECONDITION_FAILED",
        StatusCode::TOO_MANY_REQUESTS => "RESOURCE_EXHAUSTED",
        StatusCode::INTERNAL_SERVER_ERROR => "INTERNAL",
        _ => return None,
    })
}

/// What is wrong on every face. Whatever is too large is a limit that is exhausted.
fn in_own_words(mut refusal: Refusal) -> Error {
    if refusal.status == StatusCode::PAYLOAD_TOO_LARGE {
        refusal.status = StatusCode::TOO_MANY_REQUESTS;
    }
    if refusal.code != MISSING_INDEX {
        refusal.code = code_of(refusal.status).unwrap_or(refusal.code);
    }
    refusal.into()
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Error {
        let details = Vec::new();
        Error(Box::new(Parts { refusal, details, key: None, is_replayed: false }))
    }
}

/// What is said of single documents and queries.
impl From<single::Error> for Error {
    fn from(error: single::Error) -> Error {
        in_own_words(error.into_refusal())
    }
}

impl From<RequestError> for Error {
    fn from(error: RequestError) -> Error {
        in_own_words(error.refusal())
    }
}

impl From<BodyFailure> for Error {
    fn from(failure: BodyFailure) -> Error {
        match failure {
            BodyFailure::Request(error) => error.into(),
            BodyFailure::Tree(TreeError::TooLarge(error)) => {
                Error::new(StatusCode::TOO_MANY_REQUESTS, error)
            }
            BodyFailure::Tree(TreeError::Malformed(error)) => error.into(),
        }
    }
}

impl From<FieldError> for Error {
    fn from(error: FieldError) -> Error {
        Error::invalid(error)
    }
}

impl From<KeyError> for Error {
    fn from(error: KeyError) -> Error {
        Error::invalid(error)
    }
}

impl From<PathError> for Error {
    fn from(error: PathError) -> Error {
        Error::invalid(error)
    }
}

impl From<BodyError> for Error {
    fn from(error: BodyError) -> Error {
        Error::invalid(error)
    }
}

impl From<OpError> for Error {
    fn from(error: OpError) -> Error {
        Error::new(status_of(error.end()), error)
    }
}

impl From<Failure> for Error {
    fn from(Failure { op_index, reason }: Failure) -> Error {
        let exists = matches!(reason, OpError::AlreadyExists(_));
        let error = Error::from(reason);
        if exists {
            error.with_detail(Some(op_index), "ALREADY_EXISTS")
        } else {
            error.of_op(op_index)
        }
    }
}

impl From<engine::Unavailable> for Error {
    fn from(why: engine::Unavailable) -> Error {
        in_own_words(Refusal::unavailable(why))
    }
}

impl From<DocumentError> for Error {
    fn from(error: DocumentError) -> Error {
        match error {
            engine::Error::Rejected(rejection) => rejection.into(),
            other => in_own_words(other.refusal_with(|rejection| Refusal::internal(rejection))),
        }
    }
}

/// What the engine says to transactions.
impl From<DocumentRejection> for Error {
    fn from(rejection: DocumentRejection) -> Error {
        let status = match rejection {
            DocumentRejection::Failed(failure) => return failure.into(),
            DocumentRejection::RuleDenied { op_index } => {
                let error = Error::new(StatusCode::FORBIDDEN, rejection);
                return error.with_detail(op_index, "RULE_DENY");
            }
            DocumentRejection::NotFound(_) => StatusCode::NOT_FOUND,
            DocumentRejection::InProgress | DocumentRejection::OtherBody => StatusCode::CONFLICT,
            DocumentRejection::Conflict | DocumentRejection::Stale => {
                StatusCode::PRECONDITION_FAILED
            }
            DocumentRejection::TimedOut => StatusCode::REQUEST_TIMEOUT,
            DocumentRejection::TooManyBytes { .. } => StatusCode::TOO_MANY_REQUESTS,
            DocumentRejection::MissingIndex(_)
            | DocumentRejection::QueryTooCostly { .. }
            | DocumentRejection::Index(_)
            | DocumentRejection::TooManyIndexes => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Error::new(status, rejection)
    }
}
