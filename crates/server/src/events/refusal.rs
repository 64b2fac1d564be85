//! How this face refuses: `{"ok":false,"error":"…","code":"…"}`, whatever the reason is.

use http::StatusCode;
use reveille_core::event::ingest::IngestError;
use reveille_engine::{Failure, Refused};
use serde_json::{Map, Value};

use crate::http::error::Error;
use crate::http::reply::{self, Reply};

/// Why a request is not answered as it hoped.
#[derive(Debug)]
pub(super) enum Refusal {
    /// Something that is wrong on every face.
    Common(Error),
    /// Something that is wrong on this one.
    Own {
        status: StatusCode,
        code: &'static str,
        text: String,
        /// A field that says more.
        more: Option<(&'static str, Value)>,
    },
}

impl Refusal {
    /// The request is wrong.
    pub(super) fn bad(code: &'static str, text: impl Into<String>) -> Refusal {
        Refusal::own(StatusCode::BAD_REQUEST, code, text)
    }

    /// What is asked for is not there.
    pub(super) fn not_found(code: &'static str, text: impl Into<String>) -> Refusal {
        Refusal::own(StatusCode::NOT_FOUND, code, text)
    }

    /// There is no such subscription, or none within reach.
    pub(super) fn no_subscription() -> Refusal {
        Refused::NotFound.into()
    }

    /// A field that is there and wrong.
    pub(super) fn field(name: &str, why: impl std::fmt::Display) -> Refusal {
        Refusal::bad("INVALID_FIELD", format!("Invalid field: {name} {why}"))
    }

    /// A parameter that is there and wrong.
    pub(super) fn parameter(name: &str, why: &str) -> Refusal {
        Refusal::bad("INVALID_QUERY", format!("Invalid query param: {name} {why}"))
    }

    fn own(status: StatusCode, code: &'static str, text: impl Into<String>) -> Refusal {
        Refusal::Own { status, code, text: text.into(), more: None }
    }

    /// The same with a field that says more.
    pub(super) fn with(mut self, name: &'static str, value: Value) -> Refusal {
        if let Refusal::Own { more, .. } = &mut self {
            *more = Some((name, value));
        }
        self
    }

    pub(super) fn reply(&self) -> Reply {
        let (status, code, text, more) = match self {
            Refusal::Own { status, code, text, more } => (*status, *code, text.clone(), more),
            Refusal::Common(error) => {
                let (status, code) = error.meaning();
                // Clients of this face know it by this name.
                let large = matches!(error, Error::TooLarge { .. });
                let code = if large { "PAYLOAD_TOO_LARGE" } else { code };
                (status, code, error.message(), &None)
            }
        };
        let mut body = Map::new();
        body.insert("ok".into(), false.into());
        body.insert("error".into(), text.into());
        body.insert("code".into(), code.into());
        if let Some((name, value)) = more {
            body.insert((*name).into(), value.clone());
        }
        let mut reply = reply::json(status, &body.into());
        if let Refusal::Common(error) = self {
            error.add_headers(reply.headers_mut());
        }
        reply
    }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Refusal {
        match error {
            Error::Failure(failure) => failure.into(),
            error => Refusal::Common(error),
        }
    }
}

impl From<Failure> for Refusal {
    fn from(failure: Failure) -> Refusal {
        match failure {
            Failure::Refused(refused) => refused.into(),
            failure => Refusal::Common(Error::Failure(failure)),
        }
    }
}

impl From<Refused> for Refusal {
    fn from(refused: Refused) -> Refusal {
        match refused {
            Refused::NotFound => Refusal::not_found("NOT_FOUND", "Subscription not found"),
            refused => Refusal::Common(refused.into()),
        }
    }
}

impl From<IngestError> for Refusal {
    fn from(error: IngestError) -> Refusal {
        let text = error.to_string();
        match error {
            IngestError::InvalidJson => Refusal::bad("INVALID_JSON", text),
            IngestError::InvalidBatch(_) => Refusal::bad("INVALID_BATCH", text),
            IngestError::InvalidEvent { indices, .. } => Refusal::bad("INVALID_EVENT", text)
                .with("details", serde_json::json!({ "indices": indices })),
            IngestError::EventTooLarge { index } => {
                Refusal::own(StatusCode::PAYLOAD_TOO_LARGE, "EVENT_TOO_LARGE", text)
                    .with("details", serde_json::json!({ "indices": [index] }))
            }
        }
    }
}

/// There is such a subscription already.
pub(crate) const HOOK_EXISTS: (StatusCode, &str) = (StatusCode::CONFLICT, "DUPLICATE_ENTRY");
/// There is no such event.
pub(crate) const NO_EVENT: (StatusCode, &str) = (StatusCode::NOT_FOUND, "EVENT_NOT_FOUND");
/// There is no such dead letter.
pub(crate) const NO_DEAD_LETTER: (StatusCode, &str) =
    (StatusCode::NOT_FOUND, "DEAD_LETTER_NOT_FOUND");
