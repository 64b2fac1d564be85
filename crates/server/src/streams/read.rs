//! `GET` and `HEAD`: what a stream holds, from an offset to its tail.

use bytes::Bytes;
use http::header::{self, HeaderValue};
use http::{HeaderMap, Request, Response, StatusCode};
use hyper::body::Incoming;
use reveille_core::media::Framing;
use reveille_core::stream::{Expiry, Head};
use reveille_core::{ReadFrom, StreamPath};
use reveille_engine::ReplyRoom;
use reveille_engine::streams::read::Reading;

use super::compress::{self, Gzip};
use super::error::Error;
use super::{etag, framing, headers, long_poll, sse};
use crate::Server;
use crate::http::auth::Caller;
use crate::http::error::RequestError;
use crate::http::query::Query;
use crate::http::reply::{self, BodyError, ChunkSource, Reply, ReplyBody};

/// Up to here an answer is put together in memory; beyond, it is sent chunk by chunk.
const WHOLE_BYTES: u64 = 64 << 10;

/// A shorter body is not worth being counted.
const UNCOUNTED_BYTES: usize = 4 << 10;

const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");

/// How a reader learns of what comes later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    CatchUp,
    LongPoll,
    Sse,
}

/// From where a reader wants to read, and what it came with.
pub(super) struct ReadRequest<'a> {
    pub(super) path: &'a StreamPath,
    pub(super) from: ReadFrom,
    pub(super) cursor: Option<String>,
    pub(super) headers: &'a HeaderMap,
}

pub(super) async fn answer(
    server: &Server,
    caller: &Caller,
    path: &StreamPath,
    request: &Request<Incoming>,
) -> Result<Reply, Error> {
    let head = server.engine.head(&caller.tenant, path)?;
    let query = Query::parse(request.uri().query());
    let offset = query.get("offset")?;
    let mode = match query.get("live")? {
        None => Mode::CatchUp,
        Some("long-poll") => Mode::LongPoll,
        Some("sse") => Mode::Sse,
        Some(_) => {
            return Err(RequestError::Query("`live` is `long-poll` or `sse`".into()).into());
        }
    };
    if mode != Mode::CatchUp && offset.is_none() {
        let text = "a live read needs `offset`: -1 for all, `now`, or where the last read ended";
        return Err(RequestError::Query(text.into()).into());
    }
    let from = match offset {
        None => ReadFrom::Start,
        Some(text) => text.parse().map_err(|error: reveille_core::offset::OffsetError| {
            Error::Offset(error.to_string())
        })?,
    };
    let cursor = query.get("cursor")?.map(str::to_owned);
    let read = ReadRequest { path, from, cursor, headers: request.headers() };
    server.engine.touch(&caller.tenant, path, &head);
    match mode {
        Mode::CatchUp if from == ReadFrom::Now => Ok(tail_reply(&head)),
        Mode::CatchUp => catch_up(server, caller, &read, &head, None).await,
        Mode::LongPoll => long_poll::answer(server, caller, &read).await,
        Mode::Sse => sse::answer(server, caller, read, head),
    }
}

/// `HEAD`: what is known of a stream except its bytes. Does not prolong its life.
pub(super) fn head(server: &Server, caller: &Caller, path: &StreamPath) -> Result<Reply, Error> {
    let head = server.engine.head(&caller.tenant, path)?;
    let mut reply = reply::status(StatusCode::OK);
    let out = reply.headers_mut();
    reply::set(out, header::CONTENT_TYPE, head.content_type.as_str());
    out.insert(header::CACHE_CONTROL, NO_STORE);
    headers::set_next_offset(out, head.tail);
    headers::set_closed(out, head.closed.is_some());
    match &head.expiry {
        Expiry::Never => {}
        Expiry::Ttl(seconds) => {
            out.insert(headers::STREAM_TTL, HeaderValue::from(*seconds));
        }
        Expiry::At(_, text) => reply::set(out, headers::STREAM_EXPIRES_AT, text),
    }
    Ok(reply)
}

/// `offset=now`: nothing yet, and where to go on.
fn tail_reply(head: &Head) -> Reply {
    let body = framing::unframe(head.content_type.framing(), Bytes::new());
    let mut reply = Response::new(ReplyBody::Full(body));
    let out = reply.headers_mut();
    reply::set(out, header::CONTENT_TYPE, head.content_type.as_str());
    out.insert(header::CACHE_CONTROL, NO_STORE);
    headers::set_next_offset(out, head.tail);
    headers::set_up_to_date(out);
    headers::set_closed(out, head.closed.is_some());
    reply
}

/// Everything from the offset to the tail, with a cursor if the read is a live one.
pub(super) async fn catch_up(
    server: &Server,
    caller: &Caller,
    read: &ReadRequest<'_>,
    head: &Head,
    cursor: Option<u64>,
) -> Result<Reply, Error> {
    let engine = &server.engine;
    let explain = |error| engine.explain_read(&caller.tenant, read.path, head, error);
    let mut reading = engine.read(&caller.tenant, head, read.from).map_err(explain)?;
    let closed = head.closed.is_some();
    let tag = etag::tag(head.id, reading.from(), reading.to(), closed);
    let mut reply = reply::status(StatusCode::OK);
    let out = reply.headers_mut();
    reply::set(out, header::ETAG, &tag);
    headers::set_next_offset(out, reading.to());
    headers::set_up_to_date(out);
    headers::set_closed(out, closed);
    if let Some(cursor) = cursor {
        out.insert(headers::STREAM_CURSOR, HeaderValue::from(cursor));
    }
    out.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
    if etag::matches(read.headers, &tag) {
        *reply.status_mut() = StatusCode::NOT_MODIFIED;
        return Ok(reply);
    }
    reply::set(out, header::CONTENT_TYPE, head.content_type.as_str());
    let kind = head.content_type.framing();
    let len = framing::unframed_len(kind, reading.len());
    let gzip = compress::is_wanted(read.headers, kind, len);
    let gzip = gzip.then(|| Gzip::new(&server.compressors)).flatten();
    if gzip.is_some() {
        out.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    *reply.body_mut() = if reading.len() <= WHOLE_BYTES {
        let body =
            framing::unframe(kind, reading.collect().await.map_err(|it| explain(it.into()))?);
        let body = match gzip {
            None => body,
            Some(mut gzip) => [gzip.push(&body), gzip.finish()].concat().into(),
        };
        ReplyBody::Full(hold(server, caller, body))
    } else {
        let known = gzip.is_none().then_some(len);
        let room = engine.reply_room(&caller.tenant);
        let (left, state) = (reading.len(), ArrayState::Start);
        let body = CatchUpBody { reading, left, kind, gzip, room: room.clone(), state };
        ReplyBody::chunks(body, room, known)
    };
    Ok(reply)
}

/// Counts a body that waits for its client, unless it is short.
pub(super) fn hold(server: &Server, caller: &Caller, body: Bytes) -> Bytes {
    if body.len() < UNCOUNTED_BYTES {
        return body;
    }
    server.engine.reply_room(&caller.tenant).hold(body)
}

/// A long body that is read while it is sent.
struct CatchUpBody {
    reading: Reading,
    /// Stored bytes that have not been read.
    left: u64,
    kind: Framing,
    gzip: Option<Gzip>,
    room: ReplyRoom,
    state: ArrayState,
}

/// How much of a JSON array has been sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ArrayState {
    Start,
    Inside,
    End,
}

impl ChunkSource for CatchUpBody {
    async fn next(&mut self) -> Option<Result<Bytes, BodyError>> {
        loop {
            let chunk = match self.next_plain().await {
                Ok(chunk) => chunk,
                Err(error) => return Some(Err(error)),
            };
            let Some(gzip) = &mut self.gzip else {
                return chunk.map(Ok);
            };
            let ready = match chunk {
                Some(chunk) => gzip.push(&chunk),
                None => {
                    let rest = gzip.finish();
                    return (!rest.is_empty()).then_some(Ok(rest));
                }
            };
            if !ready.is_empty() {
                return Some(Ok(self.room.hold(ready)));
            }
        }
    }
}

impl CatchUpBody {
    /// The next chunk before compression.
    async fn next_plain(&mut self) -> Result<Option<Bytes>, BodyError> {
        match (self.kind, self.state) {
            (Framing::Text | Framing::Binary, _) => self.next_stored().await,
            (Framing::Json, ArrayState::Start) => {
                self.state = ArrayState::Inside;
                Ok(Some(Bytes::from_static(b"[")))
            }
            (Framing::Json, ArrayState::Inside) => {
                let Some(chunk) = self.next_stored().await? else {
                    self.state = ArrayState::End;
                    return Ok(Some(Bytes::from_static(b"]")));
                };
                self.left = self.left.saturating_sub(u64::try_from(chunk.len()).unwrap_or(0));
                if self.left > 0 {
                    return Ok(Some(chunk));
                }
                // An array ends without its last comma; nothing is stored after that.
                let len = chunk.strip_suffix(b",").unwrap_or(&chunk).len();
                Ok(Some(chunk.slice(..len)))
            }
            (Framing::Json, ArrayState::End) => Ok(None),
        }
    }

    async fn next_stored(&mut self) -> Result<Option<Bytes>, BodyError> {
        self.reading.next().await.map_err(|error| BodyError(error.to_string()))
    }
}
