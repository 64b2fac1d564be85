//! How this face refuses: its table from what can be wrong to a status and a code.

use http::StatusCode;
use http::header::{self, HeaderValue};
use reveille_core::trigger::definition::DefinitionError;
use reveille_core::trigger::signature::{ADMIN_HEADER, TriggerSignatureError};
use reveille_engine::documents::DocumentError;
use reveille_engine::encoder::RefusedDelivery;
use reveille_engine::triggers::{TriggerError, TriggerRejection};
use reveille_engine::{Damaged, DestinationError, Unavailable};
use serde_json::{Map, Value};

use crate::http::error::{EngineRefusal, Refusal, RequestError};
use crate::http::fields::FieldError;

/// Why a request about triggers is not done.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error(transparent)]
    Request(#[from] RequestError),
    #[error("{}", .0.0)]
    Field(FieldError),
    #[error(transparent)]
    Engine(#[from] TriggerError),
    #[error(transparent)]
    Definition(#[from] DefinitionError),
    #[error("`url`: {0}")]
    Destination(#[from] DestinationError),
    #[error("{}", describe_signature(*.0))]
    Signature(#[from] TriggerSignatureError),
    #[error("nothing can be sent: {0}")]
    Refused(String),
    #[error(
        "the endpoint is not well ({why}); mend it, or send {{\"force\":true,\"reason\":\"…\"}}"
    )]
    HealthCheck { why: String, details: Map<String, Value> },
    #[error("so many requests of this kind are on their way already; try again in a moment")]
    TooManyAtOnce,
    #[error("there is no document `{0}`")]
    DocumentNotFound(String),
    #[error(
        "there is no secret `{0}`; make it first (POST /admin/v1/tenants/{{tenant}}/secrets/{0})"
    )]
    SecretNotFound(std::sync::Arc<str>),
    #[error("change {0} is not kept any more, or was never made")]
    ChangeNotFound(u64),
}

impl From<FieldError> for Error {
    fn from(error: FieldError) -> Error {
        Error::Field(error)
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

impl From<TriggerRejection> for Error {
    fn from(rejection: TriggerRejection) -> Error {
        Error::Engine(rejection.into())
    }
}

impl From<RefusedDelivery> for Error {
    fn from(refused: RefusedDelivery) -> Error {
        Error::Refused(refused.text)
    }
}

impl Error {
    /// What reading a document comes to, where there is one to be read.
    pub(super) fn of_document(error: DocumentError, path: &str) -> Error {
        match error {
            reveille_engine::Error::Rejected(_) => Error::DocumentNotFound(path.to_owned()),
            reveille_engine::Error::Unavailable(why) => why.into(),
            reveille_engine::Error::Damaged(damaged) => damaged.into(),
        }
    }

    pub(super) fn refusal(&self) -> Refusal {
        match self {
            Error::Request(RequestError::Field(_)) | Error::Field(_) => {
                Refusal::bad_request("INVALID_ARGUMENT", self)
            }
            Error::Request(error) => error.refusal(),
            Error::Engine(error) => error.refusal_with(engine_refusal),
            Error::Definition(error) => {
                let refusal = Refusal::bad_request("INVALID_ARGUMENT", self);
                if error.field.is_empty() {
                    return refusal;
                }
                refusal.with_detail("field", error.field.as_str())
            }
            Error::Destination(_) => {
                Refusal::bad_request("INVALID_ARGUMENT", self).with_detail("field", "url")
            }
            Error::Signature(error) => Refusal::new(StatusCode::FORBIDDEN, error.code(), self),
            Error::Refused(_) => Refusal::conflict("NOTHING_TO_SEND", self),
            Error::HealthCheck { details, .. } => {
                let mut refusal = Refusal::conflict("HEALTH_CHECK_FAILED", self);
                refusal.details.extend(details.clone());
                refusal
            }
            Error::TooManyAtOnce => {
                let status = StatusCode::TOO_MANY_REQUESTS;
                Refusal::new(status, "RESOURCE_EXHAUSTED", self)
                    .with_header(header::RETRY_AFTER, HeaderValue::from(1))
            }
            Error::DocumentNotFound(_) => Refusal::not_found("DOCUMENT_NOT_FOUND", self),
            Error::SecretNotFound(_) => Refusal::not_found("SECRET_NOT_FOUND", self),
            Error::ChangeNotFound(_) => Refusal::not_found("CHANGE_NOT_FOUND", self),
        }
    }
}

/// What to do about a signature that is missing or wrong.
fn describe_signature(error: TriggerSignatureError) -> String {
    match error {
        TriggerSignatureError::Required => format!(
            "this changes where a trigger sends, or what signs it, or lets loose what nobody has \
             signed: send `{ADMIN_HEADER}: t=SECONDS,v1=HEX`, the HMAC-SHA256 of `SECONDS.BODY` \
             with the key of this request in hexadecimal; `reveille` does that by itself"
        ),
        error => error.to_string(),
    }
}

/// What the engine says to those who look after triggers and their secrets.
fn engine_refusal(rejection: &TriggerRejection) -> Refusal {
    match rejection {
        TriggerRejection::NotFound { .. } => Refusal::not_found("TRIGGER_NOT_FOUND", rejection),
        TriggerRejection::Exists { .. } => Refusal::conflict("TRIGGER_EXISTS", rejection),
        TriggerRejection::TooManyTriggers { .. }
        | TriggerRejection::TooManyHooks { .. }
        | TriggerRejection::TooManySecrets { .. } => {
            Refusal::new(StatusCode::FORBIDDEN, "QUOTA_EXCEEDED", rejection)
        }
        TriggerRejection::VersionMismatch { current, .. } => {
            Refusal::new(StatusCode::PRECONDITION_FAILED, "PRECONDITION_FAILED", rejection)
                .with_detail("version", *current)
        }
        TriggerRejection::Gone { .. } => {
            Refusal::new(StatusCode::PRECONDITION_FAILED, "PRECONDITION_FAILED", rejection)
        }
        TriggerRejection::NoVersion { .. } => Refusal::not_found("VERSION_NOT_FOUND", rejection),
        TriggerRejection::SameVersion { .. } => Refusal::conflict("SAME_VERSION", rejection),
        TriggerRejection::Busy => Refusal::conflict("TRIGGER_BUSY", rejection)
            .with_header(header::RETRY_AFTER, HeaderValue::from(1)),
        TriggerRejection::NoSecret { .. } => Refusal::conflict("SECRET_NOT_FOUND", rejection),
        TriggerRejection::SecretExists { .. } => Refusal::conflict("SECRET_EXISTS", rejection),
        TriggerRejection::SecretInUse { .. } => Refusal::conflict("SECRET_IN_USE", rejection),
        TriggerRejection::NoDryRun => Refusal::not_found("DRY_RUN_NOT_FOUND", rejection),
        TriggerRejection::WrongState { .. } => Refusal::conflict("WRONG_STATE", rejection),
    }
}
