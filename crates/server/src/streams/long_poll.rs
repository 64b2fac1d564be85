//! `GET ?live=long-poll`: what is there, or else what comes next.

use http::header::{self, HeaderValue};
use http::{Response, StatusCode};
use reveille_core::media::Framing;
use reveille_core::stream::Head;
use reveille_core::{ReadFrom, cursor};
use reveille_engine::streams::live::{StreamGrowth, TailEvent, WatchEvent};

use super::error::Error;
use super::read::{ReadRequest, catch_up, hold};
use super::{etag, framing, headers};
use crate::Server;
use crate::http::auth::Caller;
use crate::http::clock;
use crate::http::error::RequestError;
use crate::http::reply::{self, Reply, ReplyBody};

pub(super) async fn answer(
    server: &Server,
    caller: &Caller,
    read: &ReadRequest<'_>,
) -> Result<Reply, Error> {
    let _reader = server.metrics.live_reader();
    let engine = &server.engine;
    let deadline = engine.clock().now() + server.config.long_poll_timeout_ms;
    let mut from = read.from;
    loop {
        // Watching begins before looking: nothing can fall in between.
        let id = engine.head(&caller.tenant, read.path)?.id;
        let mut watch = engine.watch(&caller.tenant, id);
        let head = engine.head(&caller.tenant, read.path)?;
        let at = head.offset(from);
        from = ReadFrom::At(at);
        if at != head.tail {
            let cursor = next_cursor(server, read);
            let read = ReadRequest { from, cursor: None, ..*read };
            return catch_up(server, caller, &read, &head, Some(cursor)).await;
        }
        if head.closed.is_some() {
            return Ok(empty_reply(server, read, &head));
        }
        let left = deadline.since(engine.clock().now());
        let mut stopping = server.stopping.clone();
        let waited = clock::within(engine.clock().as_ref(), left, async {
            tokio::select! {
                biased;
                event = watch.next() => Some(event),
                _ = stopping.wait_for(|stop| *stop) => None,
                () = caller.key_revoked() => None,
            }
        });
        let event = waited.await.flatten();
        if !caller.is_key_valid() {
            return Err(RequestError::KeyUnknown.into());
        }
        match event {
            Some(WatchEvent::TailEvent(TailEvent::Grown(growth)))
                if growth.from == at && growth.to > at && growth.is_whole() =>
            {
                return Ok(growth_reply(server, caller, read, &head, &growth));
            }
            // Whatever else it was, the next look shows it.
            Some(
                WatchEvent::TailEvent(TailEvent::Grown(_) | TailEvent::Ended) | WatchEvent::Behind,
            ) => {}
            None => return Ok(empty_reply(server, read, &head)),
        }
    }
}

/// What a batch added, just as it was published.
fn growth_reply(
    server: &Server,
    caller: &Caller,
    read: &ReadRequest<'_>,
    head: &Head,
    growth: &StreamGrowth,
) -> Reply {
    let body = growth.body.get_or_init(|| {
        let framing = head.content_type.framing();
        let body = framing::unframe(framing, growth.data.clone());
        if framing == Framing::Json { hold(server, caller, body) } else { body }
    });
    let mut reply = Response::new(ReplyBody::Full(body.clone()));
    let out = reply.headers_mut();
    let tag = etag::tag(head.id, growth.from, growth.to, growth.closed);
    reply::set(out, header::ETAG, tag);
    reply::set(out, header::CONTENT_TYPE, head.content_type.as_str());
    headers::set_next_offset(out, growth.to);
    headers::set_up_to_date(out);
    headers::set_closed(out, growth.closed);
    out.insert(headers::STREAM_CURSOR, HeaderValue::from(next_cursor(server, read)));
    reply
}

fn next_cursor(server: &Server, read: &ReadRequest<'_>) -> u64 {
    let now = server.engine.clock().now();
    cursor::next(now, read.cursor.as_deref(), server.engine.entropy().number())
}

/// Nothing new: come back with this cursor.
fn empty_reply(server: &Server, read: &ReadRequest<'_>, head: &Head) -> Reply {
    let mut reply = reply::status(StatusCode::NO_CONTENT);
    let out = reply.headers_mut();
    headers::set_next_offset(out, head.tail);
    headers::set_up_to_date(out);
    headers::set_closed(out, head.closed.is_some());
    out.insert(headers::STREAM_CURSOR, HeaderValue::from(next_cursor(server, read)));
    reply
}
