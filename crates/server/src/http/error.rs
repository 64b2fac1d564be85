//! Every way to be refused, as a status, a code and a sentence. One exhaustive table.

use http::header::{self, HeaderName, HeaderValue};
use http::{Method, StatusCode};
use reveille_core::consumer;
use reveille_core::json::JsonError;
use reveille_core::path::PathError;
use reveille_core::pattern::PatternError;
use reveille_core::producer::{ProducerRejected, TagError};
use reveille_core::stream::Rejected;
use reveille_core::stream::expiry::ExpiryError;
use reveille_engine::{DestinationError, Failure, Refused, Unavailable};
use serde_json::json;

use crate::events;
use crate::http::reply::{self, Reply};
use crate::streams::headers;

/// Why a request is not answered as it hoped.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Error {
    #[error(transparent)]
    Failure(#[from] Failure),
    #[error(transparent)]
    Path(#[from] PathError),
    #[error("{0}")]
    Offset(String),
    #[error("{0}")]
    Query(String),
    #[error("{0}")]
    Header(String),
    #[error(transparent)]
    Producer(#[from] TagError),
    #[error(transparent)]
    Expiry(#[from] ExpiryError),
    #[error("the body is empty; send at least one byte, or `Stream-Closed: true` to close")]
    EmptyBody,
    #[error("Content-Type is missing; send the type that the stream was created with")]
    NoContentType,
    #[error("the body is larger than {max} bytes, the limit of this server (--max-body)")]
    TooLarge { max: usize },
    #[error("the body did not arrive in time")]
    TooSlow,
    #[error("the body broke off")]
    BrokenBody,
    #[error("{method} is not something that can be done here; {allowed} are")]
    Method { method: Method, allowed: &'static str },
    #[error("streams whose name begins with `_` are written by the server alone")]
    Internal,
    #[error("nothing is served at this path; names like this one are reserved")]
    Reserved,
    #[error("this server asks for a key; send it as `Authorization: Bearer KEY`")]
    NoKey,
    #[error("the header Authorization must be `Bearer`, a space and a key")]
    KeyFormat,
    #[error("the key is not known here; it may have been revoked, or is another server's")]
    KeyUnknown,
    #[error("{0}")]
    Forbidden(&'static str),
    #[error("there is no key with this id")]
    NoSuchKey,
    #[error("{0}")]
    Subscription(String),
    #[error("{0}")]
    NoConsumer(String),
    #[error("{0}")]
    NoDelivery(String),
    #[error(transparent)]
    Pattern(#[from] PatternError),
    #[error("the token has expired; claim the work again, or wait for the next notification")]
    LeaseTokenExpired,
    #[error("the webhook cannot be called: {0}")]
    Destination(#[from] DestinationError),
}

impl From<Rejected> for Error {
    fn from(rejected: Rejected) -> Error {
        Error::Failure(rejected.into())
    }
}

impl From<Refused> for Error {
    fn from(refused: Refused) -> Error {
        Error::Failure(refused.into())
    }
}

impl From<Unavailable> for Error {
    fn from(unavailable: Unavailable) -> Error {
        Error::Failure(unavailable.into())
    }
}

impl Error {
    /// The status and the code that clients may rely on.
    pub(crate) fn meaning(&self) -> (StatusCode, &'static str) {
        const BAD: StatusCode = StatusCode::BAD_REQUEST;
        match self {
            Error::Failure(Failure::Rejected(rejected)) => rejected_meaning(rejected),
            Error::Failure(Failure::Refused(refused)) => refused_meaning(refused),
            Error::Failure(Failure::Unavailable(why)) => match why {
                Unavailable::Busy => (StatusCode::SERVICE_UNAVAILABLE, "BUSY"),
                Unavailable::Stopping => (StatusCode::SERVICE_UNAVAILABLE, "STOPPING"),
                Unavailable::DiskFull => (StatusCode::INSUFFICIENT_STORAGE, "DISK_FULL"),
            },
            Error::Failure(Failure::Damaged(_)) => {
                (StatusCode::INTERNAL_SERVER_ERROR, "STORAGE_DAMAGED")
            }
            Error::Path(PathError::TooLong) => (StatusCode::URI_TOO_LONG, "INVALID_PATH"),
            Error::Path(PathError::Empty | PathError::BadByte) => (BAD, "INVALID_PATH"),
            Error::Offset(_) => (BAD, "INVALID_OFFSET"),
            Error::Query(_) => (BAD, "INVALID_QUERY"),
            Error::Header(_) => (BAD, "INVALID_HEADER"),
            Error::Producer(_) => (BAD, "INVALID_PRODUCER"),
            Error::Expiry(_) => (BAD, "INVALID_EXPIRY"),
            Error::EmptyBody => (BAD, "EMPTY_BODY"),
            Error::NoContentType => (BAD, "CONTENT_TYPE_REQUIRED"),
            Error::TooLarge { .. } => (StatusCode::PAYLOAD_TOO_LARGE, "BODY_TOO_LARGE"),
            Error::TooSlow => (StatusCode::REQUEST_TIMEOUT, "BODY_TOO_SLOW"),
            Error::BrokenBody => (BAD, "BODY_INCOMPLETE"),
            Error::Method { .. } => (StatusCode::METHOD_NOT_ALLOWED, "METHOD_NOT_ALLOWED"),
            Error::Internal => (StatusCode::FORBIDDEN, "RESERVED_STREAM"),
            Error::Reserved => (StatusCode::NOT_FOUND, "RESERVED_PATH"),
            Error::NoKey => (StatusCode::UNAUTHORIZED, "AUTH_REQUIRED"),
            Error::KeyFormat => (StatusCode::UNAUTHORIZED, "INVALID_AUTH_FORMAT"),
            Error::KeyUnknown => (StatusCode::UNAUTHORIZED, "INVALID_API_KEY"),
            Error::Forbidden(_) => (StatusCode::FORBIDDEN, "FORBIDDEN"),
            Error::NoSuchKey => (StatusCode::NOT_FOUND, "KEY_NOT_FOUND"),
            Error::Subscription(_) => (BAD, "INVALID_REQUEST"),
            Error::NoConsumer(_) => (StatusCode::NOT_FOUND, "CONSUMER_NOT_FOUND"),
            Error::NoDelivery(_) => (StatusCode::NOT_FOUND, "DELIVERY_NOT_FOUND"),
            Error::Pattern(_) => (BAD, "INVALID_PATTERN"),
            Error::LeaseTokenExpired => (StatusCode::UNAUTHORIZED, "TOKEN_EXPIRED"),
            Error::Destination(_) => (BAD, "WEBHOOK_URL_REJECTED"),
        }
    }

    /// What a client is told. Of damage the operator's log says more.
    pub(crate) fn message(&self) -> String {
        match self {
            Error::Failure(Failure::Damaged(cause)) => {
                tracing::error!(cause, "stored data could not be read");
                "stored data could not be read; the server's log says which".to_owned()
            }
            other => other.to_string(),
        }
    }

    pub(crate) fn reply(&self) -> Reply {
        let (status, code) = self.meaning();
        let message = self.message();
        let mut error = json!({ "code": code, "message": message });
        if let Error::Failure(Failure::Refused(Refused::Consumer(held))) = self
            && let consumer::Rejected::Held { holder, generation } = held
            && let Some(error) = error.as_object_mut()
        {
            error.insert("current_holder".into(), holder.as_ref().into());
            error.insert("generation".into(), (*generation).into());
        }
        let mut reply = reply::json(status, &json!({ "error": error }));
        self.add_headers(reply.headers_mut());
        reply
    }

    /// Headers that belong to a refusal, in whatever words it is told.
    pub(crate) fn add_headers(&self, reply: &mut http::HeaderMap) {
        if self.meaning().0 == StatusCode::UNAUTHORIZED {
            let challenge = HeaderValue::from_static("Bearer");
            reply.insert(header::WWW_AUTHENTICATE, challenge);
        }
        let mut number = |name: HeaderName, value: u64| {
            reply.insert(name, HeaderValue::from(value));
        };
        match self {
            Error::Failure(Failure::Rejected(Rejected::Producer(rejected))) => match rejected {
                ProducerRejected::Fenced { current } => number(headers::PRODUCER_EPOCH, *current),
                ProducerRejected::Gap { expected, received } => {
                    number(headers::PRODUCER_EXPECTED_SEQ, *expected);
                    number(headers::PRODUCER_RECEIVED_SEQ, *received);
                }
                ProducerRejected::EpochStart => {}
            },
            Error::Failure(Failure::Rejected(Rejected::Closed { tail })) => {
                reply.insert(headers::STREAM_CLOSED, HeaderValue::from_static("true"));
                reply::set(reply, headers::STREAM_NEXT_OFFSET, tail.to_string());
            }
            Error::Failure(Failure::Unavailable(_)) => number(header::RETRY_AFTER, 1),
            Error::Method { allowed, .. } => {
                reply.insert(header::ALLOW, HeaderValue::from_static(allowed));
            }
            // The rest of the body is not read: the connection cannot be used again.
            Error::TooLarge { .. } | Error::TooSlow | Error::BrokenBody => {
                reply.insert(header::CONNECTION, HeaderValue::from_static("close"));
            }
            _ => {}
        }
    }
}

fn rejected_meaning(rejected: &Rejected) -> (StatusCode, &'static str) {
    const BAD: StatusCode = StatusCode::BAD_REQUEST;
    const CONFLICT: StatusCode = StatusCode::CONFLICT;
    match rejected {
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
        Rejected::Json(JsonError::Invalid) => (BAD, "INVALID_JSON"),
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
    }
}

/// What is refused about a subscription, where a dialect has no words of its own for it.
fn refused_meaning(refused: &Refused) -> (StatusCode, &'static str) {
    match refused {
        Refused::Exists => (StatusCode::CONFLICT, "SUBSCRIPTION_ALREADY_EXISTS"),
        Refused::NotFound => (StatusCode::NOT_FOUND, "SUBSCRIPTION_NOT_FOUND"),
        Refused::TooManyStreams { .. } => (StatusCode::BAD_REQUEST, "INVALID_REQUEST"),
        Refused::TooManyKeys { .. } => (StatusCode::FORBIDDEN, "FORBIDDEN"),
        Refused::TokenInvalid | Refused::TokenExpired { .. } => {
            (StatusCode::UNAUTHORIZED, "TOKEN_INVALID")
        }
        Refused::Append { .. } => (StatusCode::CONFLICT, "APPEND_REJECTED"),
        Refused::HookExists => events::HOOK_EXISTS,
        Refused::NoEvent => events::NO_EVENT,
        Refused::NoDeadLetter => events::NO_DEAD_LETTER,
        Refused::Consumer(rejected) => match rejected {
            consumer::Rejected::InvalidOffset { .. } => (StatusCode::CONFLICT, "INVALID_OFFSET"),
            consumer::Rejected::Held { .. }
            | consumer::Rejected::AlreadyClaimed
            | consumer::Rejected::Overtaken { .. } => (StatusCode::CONFLICT, "ALREADY_CLAIMED"),
            consumer::Rejected::NoPendingWork => (StatusCode::CONFLICT, "NO_PENDING_WORK"),
            consumer::Rejected::TooManyLinks { .. } => (StatusCode::BAD_REQUEST, "INVALID_REQUEST"),
            consumer::Rejected::StaleEpoch { .. } | consumer::Rejected::Fenced => {
                (StatusCode::CONFLICT, "FENCED")
            }
            consumer::Rejected::Gone => (StatusCode::NOT_FOUND, "SUBSCRIPTION_NOT_FOUND"),
        },
    }
}
