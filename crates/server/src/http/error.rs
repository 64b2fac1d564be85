//! What can be wrong with a request on every face, and the shape in which all of them refuse.
//!
//! What the engine refuses is not here: each face has a table of its own for that, in its
//! `error.rs`.

use std::fmt::Display;

use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Method, StatusCode};
use reveille_core::path::PathError;
use reveille_engine::{self as engine, Unavailable};
use serde_json::{Map, Value, json};

use super::fields::FieldError;
use super::reply::{self, Reply};

/// What the engine says, in the words of a face.
pub(crate) trait EngineRefusal<R> {
    /// The refusal, given the face's table for what the caller got wrong.
    fn refusal_with(&self, table: impl FnOnce(&R) -> Refusal) -> Refusal;
}

impl<R> EngineRefusal<R> for engine::Error<R> {
    fn refusal_with(&self, table: impl FnOnce(&R) -> Refusal) -> Refusal {
        match self {
            engine::Error::Rejected(rejection) => table(rejection),
            engine::Error::Unavailable(why) => Refusal::unavailable(*why),
            engine::Error::Damaged(cause) => Refusal::damaged(&cause.0),
        }
    }
}

/// A request that is not done: the status, the code that clients may rely on, a sentence for
/// people, and what else the answer carries.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) status: StatusCode,
    pub(crate) code: &'static str,
    pub(crate) message: String,
    /// Fields that stand beside the code and the message.
    pub(crate) details: Map<String, Value>,
    pub(crate) headers: HeaderMap,
}

impl Refusal {
    pub(crate) fn new(status: StatusCode, code: &'static str, message: impl Display) -> Refusal {
        let mut headers = HeaderMap::new();
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        let message = message.to_string();
        Refusal { status, code, message, details: Map::new(), headers }
    }

    pub(crate) fn bad_request(code: &'static str, message: impl Display) -> Refusal {
        Refusal::new(StatusCode::BAD_REQUEST, code, message)
    }

    pub(crate) fn not_found(code: &'static str, message: impl Display) -> Refusal {
        Refusal::new(StatusCode::NOT_FOUND, code, message)
    }

    pub(crate) fn conflict(code: &'static str, message: impl Display) -> Refusal {
        Refusal::new(StatusCode::CONFLICT, code, message)
    }

    /// A failure that no request of the face can come to.
    pub(crate) fn internal(message: impl Display) -> Refusal {
        Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "INTERNAL", message)
    }

    /// The caller may try again.
    pub(crate) fn unavailable(why: Unavailable) -> Refusal {
        let (status, code) = match why {
            Unavailable::Busy => (StatusCode::SERVICE_UNAVAILABLE, "BUSY"),
            Unavailable::Stopping => (StatusCode::SERVICE_UNAVAILABLE, "STOPPING"),
            Unavailable::DiskFull => (StatusCode::INSUFFICIENT_STORAGE, "DISK_FULL"),
            Unavailable::NotLeader => (StatusCode::SERVICE_UNAVAILABLE, "NOT_LEADER"),
            Unavailable::TooLarge => (StatusCode::PAYLOAD_TOO_LARGE, "CHANGE_TOO_LARGE"),
        };
        let refusal = Refusal::new(status, code, why);
        // The same is too large again.
        if why == Unavailable::TooLarge {
            return refusal;
        }
        refusal.with_header(header::RETRY_AFTER, HeaderValue::from(1))
    }

    /// Stored bytes cannot be read. The operator's log says more than the client is told.
    pub(crate) fn damaged(cause: &str) -> Refusal {
        tracing::error!(cause, "stored data could not be read");
        let message = "stored data could not be read; the server's log says which";
        Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "STORAGE_DAMAGED", message)
    }

    pub(crate) fn with_header(mut self, name: HeaderName, value: HeaderValue) -> Refusal {
        self.headers.insert(name, value);
        self
    }

    pub(crate) fn with_detail(mut self, name: &str, value: impl Into<Value>) -> Refusal {
        self.details.insert(name.to_owned(), value.into());
        self
    }

    /// The answer of every face that has no shape of its own.
    pub(crate) fn reply(self) -> Reply {
        let mut error = Map::new();
        error.insert("code".into(), self.code.into());
        error.insert("message".into(), self.message.into());
        error.extend(self.details);
        let mut reply = reply::json(self.status, &json!({ "error": error }));
        reply.headers_mut().extend(self.headers);
        reply
    }
}

/// What is wrong with a request, whatever it asks for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RequestError {
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
    #[error(transparent)]
    Path(#[from] PathError),
    #[error("{0}")]
    Query(String),
    #[error("{0}")]
    Header(String),
    #[error(transparent)]
    Field(#[from] FieldError),
    #[error("the body is larger than {max} bytes, the limit of this server (--max-body)")]
    BodyTooLarge { max: usize },
    #[error("the body did not arrive in time")]
    BodyTooSlow,
    #[error("the body broke off")]
    BodyIncomplete,
    #[error(
        "this tenant is busy on {share} connections, its share of those that this server may have \
         open; use fewer, or let the server open more files (ulimit -n)"
    )]
    TooManyConnections { share: usize },
    #[error("{method} is not something that can be done here; {allowed} are")]
    Method { method: Method, allowed: &'static str },
    #[error("nothing is served at this path; names like this one are reserved")]
    ReservedPath,
    #[error("this server asks for a key; send it as `Authorization: Bearer KEY`")]
    KeyRequired,
    #[error("the header Authorization must be `Bearer`, a space and a key")]
    KeyFormat,
    #[error("the key is not known here; it may have been revoked, or is another server's")]
    KeyUnknown,
    #[error("{0}")]
    Forbidden(&'static str),
    #[error(
        "this is not the host of this server, which asks nobody for a key and so answers to \
         loopback names and to the host of --public-url alone; use one of those, or start it with \
         --public-url"
    )]
    ForeignHost,
    #[error(
        "a page of another origin may use streams alone while this server asks nobody for a key; \
         ask from a program, or start the server with --auth keys"
    )]
    CrossOrigin,
}

impl RequestError {
    pub(crate) fn refusal(&self) -> Refusal {
        const BAD: StatusCode = StatusCode::BAD_REQUEST;
        const UNAUTHORIZED: StatusCode = StatusCode::UNAUTHORIZED;
        let (status, code) = match self {
            RequestError::Unavailable(why) => return Refusal::unavailable(*why),
            RequestError::Path(PathError::TooLong) => (StatusCode::URI_TOO_LONG, "INVALID_PATH"),
            RequestError::Path(PathError::Empty | PathError::BadByte) => (BAD, "INVALID_PATH"),
            RequestError::Query(_) => (BAD, "INVALID_QUERY"),
            RequestError::Header(_) => (BAD, "INVALID_HEADER"),
            RequestError::Field(_) => (BAD, "INVALID_REQUEST"),
            RequestError::BodyTooLarge { .. } => (StatusCode::PAYLOAD_TOO_LARGE, "BODY_TOO_LARGE"),
            RequestError::BodyTooSlow => (StatusCode::REQUEST_TIMEOUT, "BODY_TOO_SLOW"),
            RequestError::BodyIncomplete => (BAD, "BODY_INCOMPLETE"),
            RequestError::TooManyConnections { .. } => {
                (StatusCode::SERVICE_UNAVAILABLE, "TOO_MANY_CONNECTIONS")
            }
            RequestError::Method { .. } => (StatusCode::METHOD_NOT_ALLOWED, "METHOD_NOT_ALLOWED"),
            RequestError::ReservedPath => (StatusCode::NOT_FOUND, "RESERVED_PATH"),
            RequestError::KeyRequired => (UNAUTHORIZED, "AUTH_REQUIRED"),
            RequestError::KeyFormat => (UNAUTHORIZED, "INVALID_AUTH_FORMAT"),
            RequestError::KeyUnknown => (UNAUTHORIZED, "INVALID_API_KEY"),
            RequestError::Forbidden(_) => (StatusCode::FORBIDDEN, "FORBIDDEN"),
            RequestError::ForeignHost => (StatusCode::MISDIRECTED_REQUEST, "MISDIRECTED_REQUEST"),
            RequestError::CrossOrigin => (StatusCode::FORBIDDEN, "CROSS_ORIGIN"),
        };
        let refusal = Refusal::new(status, code, self);
        match self {
            RequestError::Method { allowed, .. } => {
                refusal.with_header(header::ALLOW, HeaderValue::from_static(allowed))
            }
            // The rest of the body is not read: the connection cannot be used again.
            RequestError::BodyTooLarge { .. }
            | RequestError::BodyTooSlow
            | RequestError::BodyIncomplete
            | RequestError::TooManyConnections { .. } => {
                refusal.with_header(header::CONNECTION, HeaderValue::from_static("close"))
            }
            _ => refusal,
        }
    }
}
