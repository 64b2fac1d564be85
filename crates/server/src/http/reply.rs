//! Answers: the headers that all of them carry, and bodies that are made chunk by chunk.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::header::{self, HeaderName, HeaderValue};
use http::request::Parts;
use http::uri::Authority;
use http::{HeaderMap, Response, StatusCode};
use http_body::SizeHint;
use reveille_engine::ReplyRoom;
use serde::Serialize;

pub(crate) type Reply = Response<ReplyBody>;

/// The address by which a client reached the server.
pub(crate) fn base_url(request: &Parts) -> Option<String> {
    // HTTP/2 has the host in the target of the request.
    let host = request.headers.get(header::HOST).and_then(|host| host.to_str().ok());
    let host = host.or(request.uri.authority().map(|authority| authority.as_str()));
    host.map(|host| format!("http://{host}"))
}

/// The address by which a client reached the server, if that is one that can be called.
pub(crate) fn callable_base_url(request: &Parts) -> Option<String> {
    let mut hosts = request.headers.get_all(header::HOST).iter();
    let host = match (hosts.next(), hosts.next()) {
        (None, _) => request.uri.authority()?.as_str(),
        (Some(host), None) => host.to_str().ok()?,
        (Some(_), Some(_)) => return None,
    };
    is_host(host).then(|| format!("http://{host}"))
}

/// Whether this is a host, with a port or without.
pub(crate) fn is_host(text: &str) -> bool {
    let Ok(authority) = text.parse::<Authority>() else { return false };
    let is_port = |port: &str| port.is_empty() || authority.port_u16().is_some();
    let host = authority.host();
    let rest = text.strip_prefix(host).filter(|_| !host.is_empty());
    rest.is_some_and(|rest| rest.is_empty() || rest.strip_prefix(':').is_some_and(is_port))
}

/// The body of an answer.
pub(crate) enum ReplyBody {
    Full(Bytes),
    /// One chunk after another, for as long as the source has some.
    Chunks(Chunks),
    /// The same, most of the time without any.
    Live(Chunks),
}

/// A source of chunks had to give up: the connection is cut so that nobody takes the part for the
/// whole.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct BodyError(pub(crate) String);

/// Makes a body chunk by chunk.
pub(crate) trait ChunkSource: Send + 'static {
    fn next(&mut self) -> impl Future<Output = Option<Result<Bytes, BodyError>>> + Send;
}

type NextChunk = Pin<
    Box<dyn Future<Output = (Option<Result<Bytes, BodyError>>, Box<dyn AnyChunkSource>)> + Send>,
>;

/// A source of whatever type.
trait AnyChunkSource: Send {
    fn advance(self: Box<Self>) -> NextChunk;
}

impl<S: ChunkSource> AnyChunkSource for S {
    fn advance(mut self: Box<Self>) -> NextChunk {
        Box::pin(async move {
            let chunk = self.next().await;
            let rest: Box<dyn AnyChunkSource> = self;
            (chunk, rest)
        })
    }
}

/// A body that is on its way out.
pub(crate) struct Chunks {
    next: Option<NextChunk>,
    /// Bytes that are still to come, if that is known.
    remaining: Option<u64>,
    /// Where what is made is counted.
    room: ReplyRoom,
}

impl ReplyBody {
    pub(crate) fn empty() -> ReplyBody {
        ReplyBody::Full(Bytes::new())
    }

    /// A body from a source, whose chunks are counted there; `len` if its length is known
    /// beforehand.
    pub(crate) fn chunks(source: impl ChunkSource, room: ReplyRoom, len: Option<u64>) -> ReplyBody {
        ReplyBody::Chunks(Chunks { next: Some(Box::new(source).advance()), remaining: len, room })
    }

    /// A body that stays open, and is silent for most of the time.
    pub(crate) fn live(source: impl ChunkSource, room: ReplyRoom) -> ReplyBody {
        let next = Some(Box::new(source).advance());
        ReplyBody::Live(Chunks { next, remaining: None, room })
    }

    /// Where what is made of it is counted, if it is made while it is sent.
    pub(crate) fn room(&self) -> Option<&ReplyRoom> {
        match self {
            ReplyBody::Full(_) => None,
            ReplyBody::Chunks(chunks) | ReplyBody::Live(chunks) => Some(&chunks.room),
        }
    }
}

impl ReplyBody {
    pub(crate) fn poll_next(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, BodyError>>> {
        match self {
            ReplyBody::Full(bytes) => {
                let bytes = std::mem::take(bytes);
                Poll::Ready((!bytes.is_empty()).then_some(Ok(bytes)))
            }
            ReplyBody::Chunks(chunks) | ReplyBody::Live(chunks) => chunks.poll_next(context),
        }
    }

    pub(crate) fn is_end(&self) -> bool {
        match self {
            ReplyBody::Full(bytes) => bytes.is_empty(),
            ReplyBody::Chunks(chunks) | ReplyBody::Live(chunks) => chunks.next.is_none(),
        }
    }

    pub(crate) fn size_hint(&self) -> SizeHint {
        match self {
            ReplyBody::Full(bytes) => {
                SizeHint::with_exact(u64::try_from(bytes.len()).unwrap_or(u64::MAX))
            }
            ReplyBody::Chunks(chunks) | ReplyBody::Live(chunks) => match chunks.remaining {
                Some(len) => SizeHint::with_exact(len),
                None => SizeHint::default(),
            },
        }
    }
}

impl Chunks {
    pub(crate) fn poll_next(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, BodyError>>> {
        let Some(next) = &mut self.next else {
            return Poll::Ready(None);
        };
        let (chunk, rest) = ready!(next.as_mut().poll(context));
        self.next = matches!(chunk, Some(Ok(_))).then(|| rest.advance());
        if let (Some(Ok(bytes)), Some(remaining)) = (&chunk, &mut self.remaining) {
            *remaining -= u64::try_from(bytes.len()).unwrap_or(0).min(*remaining);
        }
        Poll::Ready(chunk)
    }
}

/// An answer without a body.
pub(crate) fn status(status: StatusCode) -> Reply {
    let mut reply = Response::new(ReplyBody::empty());
    *reply.status_mut() = status;
    reply
}

/// An answer with a JSON body.
pub(crate) fn json(code: StatusCode, body: &impl Serialize) -> Reply {
    let json = serde_json::to_vec(body).expect("what is answered can be written");
    let mut reply = status(code);
    let kind = HeaderValue::from_static("application/json");
    reply.headers_mut().insert(header::CONTENT_TYPE, kind);
    *reply.body_mut() = ReplyBody::Full(json.into());
    reply
}

/// Public keys, for everybody.
pub(crate) fn jwk_set(keys: Vec<serde_json::Value>) -> Reply {
    let mut reply = json(StatusCode::OK, &serde_json::json!({ "keys": keys }));
    let headers = reply.headers_mut();
    let kind = HeaderValue::from_static("application/jwk-set+json");
    headers.insert(header::CONTENT_TYPE, kind);
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("public, max-age=300"));
    reply
}

/// A header from text that this server made or has checked; anything else is left out.
pub(crate) fn set(headers: &mut HeaderMap, name: HeaderName, value: impl AsRef<str>) {
    if let Ok(value) = HeaderValue::from_str(value.as_ref()) {
        headers.insert(name, value);
    }
}

const ALLOW_METHODS: &str = "GET, POST, PUT, DELETE, HEAD, OPTIONS";
const ALLOW_HEADERS: &str = "content-type, authorization, x-tenant-namespace, if-none-match, cache-control, \
     traceparent, tracestate, stream-seq, stream-ttl, stream-expires-at, stream-closed, \
     producer-id, producer-epoch, producer-seq, stream-forked-from, stream-fork-offset, \
     stream-fork-sub-offset";
const EXPOSE_HEADERS: &str = "stream-next-offset, stream-cursor, stream-up-to-date, stream-closed, \
     stream-ttl, stream-expires-at, stream-sse-data-encoding, producer-epoch, producer-seq, \
     producer-expected-seq, producer-received-seq, etag, content-type, content-encoding, vary, \
     location, retry-after";

// Constants, because checking a header's bytes again for every answer would show in profiles.
const NOSNIFF: HeaderValue = HeaderValue::from_static("nosniff");
const CROSS_ORIGIN: HeaderValue = HeaderValue::from_static("cross-origin");
const SAME_ORIGIN: HeaderValue = HeaderValue::from_static("same-origin");
const SANDBOX: HeaderValue = HeaderValue::from_static("sandbox");
const ANY_ORIGIN: HeaderValue = HeaderValue::from_static("*");
const EXPOSED: HeaderValue = HeaderValue::from_static(EXPOSE_HEADERS);
const RESOURCE_POLICY: HeaderName = HeaderName::from_static("cross-origin-resource-policy");

/// What every answer carries: browsers never guess its type, and show it to no page of another
/// origin.
pub(crate) fn finish(reply: &mut Reply) {
    let headers = reply.headers_mut();
    headers.reserve(2);
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, NOSNIFF);
    headers.insert(RESOURCE_POLICY, SAME_ORIGIN);
}

/// What every answer about a stream carries: browsers show it to all pages, never guess its type,
/// and give what was stored no power over the server that it came from.
pub(crate) fn finish_stream(reply: &mut Reply) {
    let headers = reply.headers_mut();
    headers.reserve(6);
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, NOSNIFF);
    headers.insert(RESOURCE_POLICY, CROSS_ORIGIN);
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, ANY_ORIGIN);
    headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED);
    if headers.get(header::CONTENT_TYPE).is_some_and(|kind| !is_inert(kind)) {
        headers.insert(header::CONTENT_SECURITY_POLICY, SANDBOX);
    }
}

/// Types of which it is certain that no browser runs what they hold. HTML, SVG and XML are not the
/// only ones that some browser does.
const INERT_TYPES: [&str; 4] =
    ["application/json", "text/event-stream", "application/octet-stream", "text/plain"];

fn is_inert(kind: &HeaderValue) -> bool {
    let kind = kind.to_str().unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    INERT_TYPES.iter().any(|inert| kind.eq_ignore_ascii_case(inert))
}

/// The answer to whoever asks what can be done, where no page of another origin can do anything.
pub(crate) fn options() -> Reply {
    allowed("GET, POST, PUT, PATCH, DELETE, HEAD, OPTIONS")
}

fn allowed(methods: &'static str) -> Reply {
    let mut reply = status(StatusCode::NO_CONTENT);
    reply.headers_mut().insert(header::ALLOW, HeaderValue::from_static(methods));
    reply
}

/// The answer to a browser that asks whether it may use a stream.
pub(crate) fn preflight() -> Reply {
    let mut reply = allowed(ALLOW_METHODS);
    let fixed = [
        (header::ACCESS_CONTROL_ALLOW_METHODS, ALLOW_METHODS),
        (header::ACCESS_CONTROL_ALLOW_HEADERS, ALLOW_HEADERS),
        (header::ACCESS_CONTROL_MAX_AGE, "86400"),
    ];
    for (name, value) in fixed {
        reply.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    reply
}
