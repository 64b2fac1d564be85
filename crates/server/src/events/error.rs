//! How this face refuses: `{"ok":false,"error":"…","code":"…"}`, whatever the reason is.

use std::fmt::Display;

use http::StatusCode;
use reveille_core::event::Ingest;
use reveille_core::event::ingest::{BatchError, IngestError};
use reveille_core::stream::Rejected;
use reveille_engine::deliveries::{DeliveryError, DeliveryRejection};
use reveille_engine::streams::StreamError;
use reveille_engine::{self as engine, Damaged, Never, Unavailable};
use serde_json::{Map, Value, json};

use crate::http::error::{EngineRefusal, Refusal, RequestError};
use crate::http::fields::FieldError;
use crate::http::known;
use crate::http::reply::{self, Reply};

/// Why a request is not done. In a box: every answer would be as large as a refusal.
#[derive(Debug)]
pub(super) struct Error(Box<Refusal>);

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Error {
        Error(Box::new(refusal))
    }
}

impl Error {
    pub(super) fn bad_request(code: &'static str, message: impl Display) -> Error {
        Refusal::bad_request(code, message).into()
    }

    /// There is no such subscription, or none within reach.
    pub(super) fn subscription_not_found() -> Error {
        DeliveryRejection::NotFound.into()
    }

    pub(super) fn unknown_endpoint(path: &str) -> Error {
        let refusal = Refusal::not_found("UNKNOWN_ENDPOINT", "Unknown subscription endpoint");
        refusal.with_detail("path", path).into()
    }

    /// A field that is there and not as it should be.
    pub(super) fn invalid_field(name: &str, why: impl Display) -> Error {
        Error::bad_request("INVALID_FIELD", format!("Invalid field: {name} {why}"))
    }

    /// A parameter that is there and not as it should be.
    pub(super) fn invalid_parameter(name: &str, why: &str) -> Error {
        Error::bad_request("INVALID_QUERY", format!("Invalid query param: {name} {why}"))
    }

    pub(super) fn reply(self) -> Reply {
        let Refusal { status, code, message, details, headers } = *self.0;
        let mut body = Map::new();
        body.insert("ok".into(), false.into());
        body.insert("error".into(), message.into());
        body.insert("code".into(), code.into());
        body.extend(details);
        let mut reply = reply::json(status, &body);
        reply.headers_mut().extend(headers);
        reply
    }
}

impl From<RequestError> for Error {
    fn from(error: RequestError) -> Error {
        let mut refusal = error.refusal();
        if matches!(error, RequestError::BodyTooLarge { .. }) {
            // Clients of this face know it by this name.
            refusal.code = "PAYLOAD_TOO_LARGE";
        }
        refusal.into()
    }
}

impl From<FieldError> for Error {
    fn from(error: FieldError) -> Error {
        Error::bad_request("INVALID_FIELD", error)
    }
}

impl From<DeliveryError> for Error {
    fn from(error: DeliveryError) -> Error {
        error.refusal_with(rejection_refusal).into()
    }
}

impl From<DeliveryRejection> for Error {
    fn from(rejection: DeliveryRejection) -> Error {
        rejection_refusal(&rejection).into()
    }
}

impl From<StreamError> for Error {
    fn from(error: StreamError) -> Error {
        error.refusal_with(stream_refusal).into()
    }
}

impl From<Damaged> for Error {
    fn from(damaged: Damaged) -> Error {
        DeliveryError::from(damaged).into()
    }
}

impl From<Unavailable> for Error {
    fn from(why: Unavailable) -> Error {
        DeliveryError::from(why).into()
    }
}

impl From<engine::Error<Never>> for Error {
    fn from(error: engine::Error<Never>) -> Error {
        DeliveryError::from(error.map_rejection(|never| match never {})).into()
    }
}

impl From<IngestError> for Error {
    fn from(error: IngestError) -> Error {
        let indices = |indices: Value| json!({ "indices": indices });
        let refusal = match &error {
            IngestError::InvalidJson | IngestError::TooDeep => {
                Refusal::bad_request("INVALID_JSON", error)
            }
            IngestError::InvalidBatch(BatchError::UnknownField(name)) => {
                let sentence = known::describe("field", name, &Ingest::FIELDS);
                Refusal::bad_request("INVALID_BATCH", sentence)
            }
            IngestError::InvalidBatch(_) => Refusal::bad_request("INVALID_BATCH", error),
            IngestError::InvalidEvent { indices: events, .. } => {
                let details = indices(json!(events));
                Refusal::bad_request("INVALID_EVENT", error).with_detail("details", details)
            }
            IngestError::EventTooLarge { index } => {
                let details = indices(json!([index]));
                let refusal = Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, "EVENT_TOO_LARGE", error);
                refusal.with_detail("details", details)
            }
        };
        refusal.into()
    }
}

/// What the engine says to subscriptions and their deliveries.
fn rejection_refusal(rejection: &DeliveryRejection) -> Refusal {
    match rejection {
        DeliveryRejection::NotFound => Refusal::not_found("NOT_FOUND", "Subscription not found"),
        DeliveryRejection::Exists => Refusal::conflict("DUPLICATE_ENTRY", rejection),
        DeliveryRejection::PatternBusy => Refusal::conflict("PATTERN_BUSY", rejection),
        DeliveryRejection::NoSecret => Refusal::conflict("NO_SECRET", rejection),
        DeliveryRejection::TooManyHooks { .. } => {
            Refusal::new(StatusCode::FORBIDDEN, "QUOTA_EXCEEDED", rejection)
        }
        DeliveryRejection::NoEvent => Refusal::not_found("EVENT_NOT_FOUND", rejection),
        DeliveryRejection::NoDeadLetter => Refusal::not_found("DEAD_LETTER_NOT_FOUND", rejection),
        DeliveryRejection::PreviewStale => Refusal::conflict("PREVIEW_STALE", rejection),
        DeliveryRejection::HookInactive { .. } => Refusal::conflict("HOOK_INACTIVE", rejection),
        DeliveryRejection::HookGone { .. } => Refusal::conflict("HOOK_GONE", rejection),
        DeliveryRejection::NoVersions { .. } => {
            Refusal::bad_request("VERSIONS_NOT_KEPT", rejection)
        }
        DeliveryRejection::TooManyDeadLetters { .. } => {
            Refusal::conflict("TOO_MANY_DEAD_LETTERS", rejection)
        }
    }
}

/// What it says to events: they are appended to a stream of their tenant, which may be full.
fn stream_refusal(rejected: &Rejected) -> Refusal {
    match rejected {
        Rejected::Full => Refusal::conflict("STREAM_FULL", rejected),
        _ => Refusal::internal(rejected),
    }
}
