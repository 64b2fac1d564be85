//! How this face refuses: its table from what can be wrong to a status and a code.

use http::StatusCode;
use http::header::HeaderValue;
use reveille_core::json::JsonError;
use reveille_core::producer::{ProducerRejected, TagError};
use reveille_core::stream::Rejected;
use reveille_core::stream::expiry::ExpiryError;
use reveille_engine::streams::StreamError;
use reveille_engine::{Damaged, Unavailable};

use super::headers;
use crate::http::error::{EngineRefusal, Refusal, RequestError};

/// Why a request for a stream is not done.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error(transparent)]
    Request(#[from] RequestError),
    #[error(transparent)]
    Engine(#[from] StreamError),
    #[error("{0}")]
    Offset(String),
    #[error(transparent)]
    Producer(#[from] TagError),
    #[error(transparent)]
    Expiry(#[from] ExpiryError),
    #[error("the body is empty; send at least one byte, or `Stream-Closed: true` to close")]
    EmptyBody,
    #[error("Content-Type is missing; send the type that the stream was created with")]
    ContentTypeMissing,
    #[error("streams whose name begins with `_` are written by the server alone")]
    ReservedStream,
    #[error(
        "streams whose name begins with `_` are the server's own and cannot be forked: a fork would \
         keep their past for ever; read them instead"
    )]
    ReservedSource,
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

impl Error {
    pub(super) fn refusal(&self) -> Refusal {
        match self {
            Error::Request(error) => error.refusal(),
            Error::Engine(error) => error.refusal_with(rejection_refusal),
            Error::Offset(_) => Refusal::bad_request("INVALID_OFFSET", self),
            Error::Producer(_) => Refusal::bad_request("INVALID_PRODUCER", self),
            Error::Expiry(_) => Refusal::bad_request("INVALID_EXPIRY", self),
            Error::EmptyBody => Refusal::bad_request("EMPTY_BODY", self),
            Error::ContentTypeMissing => Refusal::bad_request("CONTENT_TYPE_REQUIRED", self),
            Error::ReservedStream | Error::ReservedSource => {
                Refusal::new(StatusCode::FORBIDDEN, "RESERVED_STREAM", self)
            }
        }
    }
}

/// What the engine says to a request for a stream.
fn rejection_refusal(rejected: &Rejected) -> Refusal {
    const BAD: StatusCode = StatusCode::BAD_REQUEST;
    const CONFLICT: StatusCode = StatusCode::CONFLICT;
    let (status, code) = match rejected {
        Rejected::NotFound => (StatusCode::NOT_FOUND, "STREAM_NOT_FOUND"),
        Rejected::Gone => (StatusCode::GONE, "STREAM_GONE"),
        Rejected::Closed { .. } => (CONFLICT, "STREAM_CLOSED"),
        Rejected::ContentType { .. } => (CONFLICT, "CONTENT_TYPE_MISMATCH"),
        Rejected::StreamSeq { .. } => (CONFLICT, "SEQUENCE_CONFLICT"),
        Rejected::Full => (CONFLICT, "STREAM_FULL"),
        Rejected::Producer(ProducerRejected::Fenced { .. }) => {
            (StatusCode::FORBIDDEN, "PRODUCER_FENCED")
        }
        Rejected::Producer(ProducerRejected::Gap { .. }) => (CONFLICT, "PRODUCER_GAP"),
        Rejected::Producer(ProducerRejected::EpochStart) => (BAD, "PRODUCER_EPOCH_START"),
        Rejected::Json(JsonError::Invalid | JsonError::TooDeep) => (BAD, "INVALID_JSON"),
        Rejected::Json(JsonError::EmptyArray) => (BAD, "EMPTY_ARRAY"),
        Rejected::Exists(_) => (CONFLICT, "STREAM_EXISTS"),
        Rejected::PathHeld => (CONFLICT, "PATH_HELD"),
        Rejected::SourceNotFound => (StatusCode::NOT_FOUND, "FORK_SOURCE_NOT_FOUND"),
        Rejected::SourceGone => (CONFLICT, "FORK_SOURCE_GONE"),
        Rejected::ForkOffset { .. } => (BAD, "INVALID_FORK_OFFSET"),
        Rejected::ForkSubOffset => (BAD, "INVALID_FORK_SUB_OFFSET"),
        Rejected::ForkDepth { .. } => (BAD, "FORK_TOO_DEEP"),
        Rejected::ReadOffset { .. } => (BAD, "INVALID_OFFSET"),
        Rejected::Trimmed { .. } => (StatusCode::GONE, "OFFSET_GONE"),
    };
    add_headers(Refusal::new(status, code, rejected), rejected)
}

/// What the protocol has in headers for those who must go on after a rejection.
fn add_headers(refusal: Refusal, rejected: &Rejected) -> Refusal {
    match rejected {
        Rejected::Producer(ProducerRejected::Fenced { current }) => {
            refusal.with_header(headers::PRODUCER_EPOCH, HeaderValue::from(*current))
        }
        Rejected::Producer(ProducerRejected::Gap { expected, received }) => refusal
            .with_header(headers::PRODUCER_EXPECTED_SEQ, HeaderValue::from(*expected))
            .with_header(headers::PRODUCER_RECEIVED_SEQ, HeaderValue::from(*received)),
        Rejected::Closed { tail } => {
            let mut refusal = refusal;
            headers::set_next_offset(&mut refusal.headers, *tail);
            headers::set_closed(&mut refusal.headers, true);
            refusal
        }
        _ => refusal,
    }
}
