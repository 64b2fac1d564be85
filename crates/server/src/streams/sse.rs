//! `GET ?live=sse`: an event stream of what is there and what comes.
//!
//! Every `data` event is followed by its own `control` event, in one piece, which says where to go
//! on. What a batch adds is encoded once and shared by all readers at the tail.

use std::fmt::Write;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::StatusCode;
use http::header::{self, HeaderValue};
use reveille_core::media::Framing;
use reveille_core::stream::{Head, StreamId};
use reveille_core::{Millis, Offset, ReadFrom, StreamPath, cursor};
use reveille_engine::streams::live::{StreamGrowth, TailEvent, TailWatch, WatchEvent};
use reveille_engine::streams::read::Reading;
use reveille_engine::{Damaged, Engine};
use tokio::sync::watch;

use super::error::Error;
use super::read::ReadRequest;
use super::{framing, headers};
use crate::Server;
use crate::http::auth::Caller;
use crate::http::reply::{self, BodyError, ChunkSource, Reply, ReplyBody};
use crate::metrics::LiveReader;

/// A connection is closed after this long, so that caches may collapse readers; they come back.
const SESSION_MS: u64 = 60_000;
/// Stored bytes that go into one event when catching up.
const EVENT_BYTES: usize = 64 << 10;

pub(super) fn answer(
    server: &Server,
    caller: &Caller,
    read: ReadRequest<'_>,
    head: Head,
) -> Result<Reply, Error> {
    let engine = &server.engine;
    let watch = engine.watch(&caller.tenant, head.id);
    // Looked at again after watching began: nothing can fall in between.
    let head = engine
        .head(&caller.tenant, read.path)
        .map(|new| if new.id == head.id { new } else { head })?;
    let reading = engine.read(&caller.tenant, &head, read.from)?;
    let framing = head.content_type.framing();
    let events = EventStream {
        engine: engine.clone(),
        caller: caller.clone(),
        path: read.path.clone(),
        id: head.id,
        framing,
        cursor: read.cursor,
        at: reading.from(),
        tail: reading.to(),
        is_closed: head.closed.is_some(),
        reading: Some(reading),
        has_sent_position: false,
        watch,
        ends_at: engine.clock().now() + SESSION_MS,
        stopping: server.stopping.clone(),
        is_done: false,
        _reader: server.metrics.live_reader(),
    };
    let mut reply = reply::status(StatusCode::OK);
    let out = reply.headers_mut();
    out.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    out.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    if framing == Framing::Binary {
        out.insert(headers::SSE_DATA_ENCODING, HeaderValue::from_static("base64"));
    }
    *reply.body_mut() = ReplyBody::chunks(events, None);
    Ok(reply)
}

/// One reader's event stream.
struct EventStream {
    engine: Engine,
    caller: Caller,
    path: StreamPath,
    id: StreamId,
    framing: Framing,
    /// The cursor that the client came with.
    cursor: Option<String>,
    /// Everything before this has been sent.
    at: Offset,
    /// What is known of the stream's end.
    tail: Offset,
    is_closed: bool,
    /// What is being caught up with.
    reading: Option<Reading>,
    /// Whether the client knows where it stands.
    has_sent_position: bool,
    watch: TailWatch,
    ends_at: Millis,
    stopping: watch::Receiver<bool>,
    is_done: bool,
    _reader: LiveReader,
}

impl ChunkSource for EventStream {
    async fn next(&mut self) -> Option<Result<Bytes, BodyError>> {
        loop {
            // Whoever lost the right to read is not sent a word more.
            if self.is_done || !self.caller.is_key_valid() {
                return None;
            }
            if let Some(reading) = &mut self.reading {
                match read_event(reading).await {
                    Err(error) => return Some(Err(BodyError(error.to_string()))),
                    Ok(stored) if !stored.is_empty() => return Some(Ok(self.catch_up(stored))),
                    Ok(_) => self.reading = None,
                }
            }
            if !self.has_sent_position || (self.is_closed && self.at == self.tail) {
                return Some(Ok(self.position()));
            }
            if let Some(event) = self.wait().await {
                return self.caller.is_key_valid().then_some(event);
            }
        }
    }
}

impl EventStream {
    /// The event of what was there already.
    fn catch_up(&mut self, stored: Bytes) -> Bytes {
        let mut out = String::new();
        self.at = self.at.plus(u64::try_from(stored.len()).unwrap_or(u64::MAX));
        write_data(&mut out, self.framing, stored);
        let control = self.control();
        out.push_str(&control);
        self.has_sent_position = true;
        out.into()
    }

    /// The event of where the reader stands, without data.
    fn position(&mut self) -> Bytes {
        self.has_sent_position = true;
        self.control().into()
    }

    /// The control event for the reader's place; the last one if the stream ends there.
    fn control(&mut self) -> String {
        let up_to_date = self.at == self.tail;
        let closed = self.is_closed && up_to_date;
        self.is_done = closed;
        control_event(self.at, self.next_cursor(), up_to_date, closed)
    }

    fn next_cursor(&self) -> u64 {
        let now = self.engine.clock().now();
        cursor::next(now, self.cursor.as_deref(), self.engine.entropy().number())
    }

    /// Waits for news; `None` if there is something to read by offset, or nothing to say.
    async fn wait(&mut self) -> Option<Result<Bytes, BodyError>> {
        let event = tokio::select! {
            biased;
            event = self.watch.next() => event,
            _ = self.stopping.wait_for(|stop| *stop) => {
                self.is_done = true;
                return None;
            }
            () = self.engine.clock().sleep_until(self.ends_at) => {
                self.is_done = true;
                return None;
            }
            () = self.caller.key_revoked() => {
                self.is_done = true;
                return None;
            }
        };
        match event {
            WatchEvent::TailEvent(TailEvent::Grown(growth))
                if growth.from == self.at && growth.is_whole() =>
            {
                Some(Ok(self.growth(&growth)))
            }
            WatchEvent::TailEvent(TailEvent::Grown(growth))
                if growth.to <= self.at && !growth.closed =>
            {
                None
            }
            WatchEvent::TailEvent(TailEvent::Ended) => {
                self.is_done = true;
                None
            }
            WatchEvent::TailEvent(TailEvent::Grown(_)) | WatchEvent::Behind => self.read_on(),
        }
    }

    /// What a batch added, in the encoding that all readers share.
    fn growth(&mut self, growth: &StreamGrowth) -> Bytes {
        self.at = growth.to;
        self.tail = growth.to;
        self.is_closed = growth.closed;
        self.is_done = growth.closed;
        let now = self.engine.clock().now();
        let shared = cursor::next(now, None, 0);
        let encode = |cursor| {
            let mut out = String::new();
            if !growth.data.is_empty() {
                write_data(&mut out, self.framing, growth.data.clone());
            }
            out.push_str(&control_event(growth.to, cursor, true, growth.closed));
            Bytes::from(out)
        };
        let own = self.next_cursor();
        if own == shared {
            growth.encoded.get_or_init(|| encode(shared)).clone()
        } else {
            encode(own)
        }
    }

    /// Goes on by offset after having fallen behind.
    fn read_on(&mut self) -> Option<Result<Bytes, BodyError>> {
        let head = match self.engine.head(&self.caller.tenant, &self.path) {
            Ok(head) if head.id == self.id => head,
            Ok(_) | Err(_) => {
                self.is_done = true;
                return None;
            }
        };
        self.tail = head.tail;
        self.is_closed = head.closed.is_some();
        match self.engine.read(&self.caller.tenant, &head, ReadFrom::At(self.at)) {
            Ok(reading) => {
                self.reading = Some(reading);
                None
            }
            Err(error) => Some(Err(BodyError(error.to_string()))),
        }
    }
}

/// Enough stored bytes for one event; empty at the end.
async fn read_event(reading: &mut Reading) -> Result<Bytes, Damaged> {
    let Some(first) = reading.next().await? else {
        return Ok(Bytes::new());
    };
    if first.len() >= EVENT_BYTES && reading.at_boundary() {
        return Ok(first);
    }
    let mut all = Vec::from(first);
    // An event holds whole appends.
    while all.len() < EVENT_BYTES || !reading.at_boundary() {
        match reading.next().await? {
            Some(chunk) => all.extend_from_slice(&chunk),
            None => break,
        }
    }
    Ok(all.into())
}

/// A data event. Line ends would end its lines, so each line gets its own field.
fn write_data(out: &mut String, framing: Framing, stored: Bytes) {
    out.push_str("event: data\n");
    match framing {
        Framing::Binary => {
            out.push_str("data:");
            STANDARD.encode_string(&stored, out);
            out.push('\n');
        }
        Framing::Text | Framing::Json => {
            let body = framing::unframe(framing, stored);
            let text = String::from_utf8_lossy(&body);
            let mut rest = text.as_ref();
            loop {
                let end = rest.find(['\r', '\n']);
                let (line, after) = rest.split_at(end.unwrap_or(rest.len()));
                let _ = writeln!(out, "data:{line}");
                if end.is_none() {
                    break;
                }
                rest = after.strip_prefix("\r\n").or_else(|| after.get(1..)).unwrap_or_default();
            }
        }
    }
    out.push('\n');
}

/// A control event.
fn control_event(at: Offset, cursor: u64, up_to_date: bool, closed: bool) -> String {
    let mut out = format!("event: control\ndata:{{\"streamNextOffset\":\"{at}\"");
    if closed {
        out.push_str(",\"upToDate\":true,\"streamClosed\":true");
    } else {
        let _ = write!(out, ",\"streamCursor\":\"{cursor}\"");
        if up_to_date {
            out.push_str(",\"upToDate\":true");
        }
    }
    out.push_str("}\n\n");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(framing: Framing, stored: &'static [u8], expected: &str) {
        let mut out = String::new();
        write_data(&mut out, framing, Bytes::from_static(stored));
        assert_eq!(out, expected);
    }

    #[test]
    fn every_line_is_a_field_of_its_own() {
        check(Framing::Text, b"one", "event: data\ndata:one\n\n");
        check(Framing::Text, b"a\nb\r\nc\rd", "event: data\ndata:a\ndata:b\ndata:c\ndata:d\n\n");
        check(Framing::Text, b"a\n", "event: data\ndata:a\ndata:\n\n");
        let injected = b"x\r\n\r\nevent: control\r\ndata:{}";
        let expected = "event: data\ndata:x\ndata:\ndata:event: control\ndata:data:{}\n\n";
        check(Framing::Text, injected, expected);
        check(Framing::Json, b"{\"a\":1},2,", "event: data\ndata:[{\"a\":1},2]\n\n");
        check(Framing::Binary, &[0, 255], "event: data\ndata:AP8=\n\n");
    }

    #[test]
    fn control_events_say_where_to_go_on() {
        let open = control_event(Offset::new(5), 7, true, false);
        let zeros = "0000000000000000_0000000000000005";
        let expected = format!(
            "event: control\ndata:{{\"streamNextOffset\":\"{zeros}\",\"streamCursor\":\"7\",\"upToDate\":true}}\n\n"
        );
        assert_eq!(open, expected);
        assert!(!control_event(Offset::ZERO, 7, false, false).contains("upToDate"));
        let closed = control_event(Offset::ZERO, 7, true, true);
        assert!(closed.contains("streamClosed") && !closed.contains("streamCursor"));
    }
}
