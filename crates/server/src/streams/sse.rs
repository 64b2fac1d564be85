//! `GET ?live=sse`: an event stream of what is there and what comes.
//!
//! Every `data` event is followed by its own `control` event, which says where to go on. What a
//! batch adds is encoded once and shared by all readers at the tail. Whatever is longer is encoded
//! piece by piece, as the client takes it; an event may be longer than a piece.

use std::collections::VecDeque;
use std::fmt::Write;

use bytes::Bytes;
use http::StatusCode;
use http::header::{self, HeaderValue};
use reveille_core::media::Framing;
use reveille_core::stream::{Head, StreamId};
use reveille_core::{Millis, Offset, ReadFrom, StreamPath, cursor};
use reveille_engine::Engine;
use reveille_engine::streams::live::{StreamGrowth, TailEvent, TailWatch, WatchEvent};
use reveille_engine::streams::read::Reading;
use reveille_kernel::limits::REPLY_PIECE_BYTES;
use tokio::sync::watch;

use super::error::Error;
use super::headers;
use super::read::ReadRequest;
use super::sse_event::{EventEncoder, data_event, data_len};
use crate::Server;
use crate::http::auth::Caller;
use crate::http::reply::{self, BodyError, ChunkSource, Reply, ReplyBody};
use crate::metrics::LiveReader;

/// A connection is closed after this long, so that caches may collapse readers; they come back.
const SESSION_MS: u64 = 60_000;
/// Stored bytes that go into one event when catching up; more if an append is longer.
const EVENT_BYTES: usize = 64 << 10;
/// The longest piece, without the end of an event and the control event after it.
const PIECE_BYTES: usize = REPLY_PIECE_BYTES - 512;
/// A piece of this size does not wait for more to be read.
const PIECE_BYTES_MIN: usize = 16 << 10;
/// Less than this is not worth being counted.
const UNCOUNTED_BYTES: usize = 4 << 10;

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
        catch_up: Some(Box::new(CatchUp::new(reading, framing))),
        ready: VecDeque::new(),
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
    *reply.body_mut() = ReplyBody::live(events, engine.reply_room(&caller.tenant));
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
    /// Every event before this has been sent.
    at: Offset,
    /// What is known of the stream's end.
    tail: Offset,
    is_closed: bool,
    /// What is being caught up with.
    catch_up: Option<Box<CatchUp>>,
    /// What has been put into words already.
    ready: VecDeque<Bytes>,
    /// Whether the client knows where it stands.
    has_sent_position: bool,
    watch: TailWatch,
    ends_at: Millis,
    stopping: watch::Receiver<bool>,
    is_done: bool,
    _reader: LiveReader,
}

/// Stored bytes on their way into events.
struct CatchUp {
    reading: Reading,
    encoder: EventEncoder,
    /// What was read and is not yet part of an event.
    input: Bytes,
    /// Stored bytes of the event that has been begun.
    event_bytes: usize,
}

impl CatchUp {
    fn new(reading: Reading, framing: Framing) -> CatchUp {
        let encoder = EventEncoder::new(framing);
        CatchUp { reading, encoder, input: Bytes::new(), event_bytes: 0 }
    }

    /// Goes on with the event until it is whole, and says so, or the piece is full.
    async fn fill(&mut self, out: &mut Vec<u8>) -> Result<Filled, BodyError> {
        loop {
            if self.input.is_empty() {
                let is_whole = self.event_bytes >= EVENT_BYTES && self.reading.at_boundary();
                if is_whole {
                    return Ok(Filled::Event);
                }
                // What is here goes first: nobody knows how long the next takes.
                if out.len() >= PIECE_BYTES_MIN {
                    return Ok(Filled::Piece);
                }
                match self.reading.next().await.map_err(|error| BodyError(error.to_string()))? {
                    Some(input) => self.input = input,
                    None => return Ok(Filled::End),
                }
                if self.event_bytes == 0 {
                    self.encoder.begin(out);
                }
            }
            let room = PIECE_BYTES.saturating_sub(out.len());
            let len = self.encoder.input_for(room).min(self.input.len());
            if len == 0 {
                return Ok(Filled::Piece);
            }
            let part = self.input.split_to(len);
            self.encoder.push(&part, out);
            self.event_bytes += len;
        }
    }
}

/// Why no more is put into a piece.
enum Filled {
    /// An event is whole.
    Event,
    /// The event goes on in the next piece.
    Piece,
    /// Nothing is left to catch up with.
    End,
}

impl ChunkSource for EventStream {
    async fn next(&mut self) -> Option<Result<Bytes, BodyError>> {
        loop {
            // Whoever lost the right to read is not sent a word more.
            if !self.caller.is_key_valid() {
                return None;
            }
            if let Some(piece) = self.ready.pop_front() {
                return Some(Ok(piece));
            }
            if self.is_done {
                return None;
            }
            match self.catch_up().await {
                Err(error) => return Some(Err(error)),
                Ok(piece) if !piece.is_empty() => return Some(Ok(piece)),
                Ok(_) => {}
            }
            if !self.has_sent_position || (self.is_closed && self.at == self.tail) {
                return Some(Ok(self.position()));
            }
            if let Err(error) = self.wait().await {
                return Some(Err(error));
            }
        }
    }
}

impl EventStream {
    /// The next piece of what was there already; empty if there is nothing.
    async fn catch_up(&mut self) -> Result<Bytes, BodyError> {
        let Some(catch_up) = &mut self.catch_up else { return Ok(Bytes::new()) };
        let mut out = Vec::new();
        let filled = catch_up.fill(&mut out).await?;
        let is_whole = !matches!(filled, Filled::Piece) && catch_up.event_bytes > 0;
        if is_whole {
            catch_up.encoder.finish(&mut out);
            let len = u64::try_from(std::mem::take(&mut catch_up.event_bytes));
            self.at = self.at.plus(len.unwrap_or(u64::MAX));
        }
        if matches!(filled, Filled::End) {
            self.catch_up = None;
        }
        if is_whole {
            out.extend_from_slice(self.control().as_bytes());
            self.has_sent_position = true;
        }
        Ok(self.hold(out.into()))
    }

    /// Counts what waits for the client.
    fn hold(&self, bytes: Bytes) -> Bytes {
        if bytes.len() < UNCOUNTED_BYTES {
            return bytes;
        }
        self.engine.reply_room(&self.caller.tenant).hold(bytes)
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

    /// Waits for news: there is something to send then, or to read by offset, or nothing to say.
    async fn wait(&mut self) -> Result<(), BodyError> {
        let event = tokio::select! {
            biased;
            event = self.watch.next() => event,
            _ = self.stopping.wait_for(|stop| *stop) => {
                self.is_done = true;
                return Ok(());
            }
            () = self.engine.clock().sleep_until(self.ends_at) => {
                self.is_done = true;
                return Ok(());
            }
            () = self.caller.key_revoked() => {
                self.is_done = true;
                return Ok(());
            }
        };
        match event {
            WatchEvent::TailEvent(TailEvent::Grown(growth))
                if growth.from == self.at && growth.is_whole() =>
            {
                self.grow(&growth);
            }
            WatchEvent::TailEvent(TailEvent::Grown(growth))
                if growth.to <= self.at && !growth.closed => {}
            WatchEvent::TailEvent(TailEvent::Ended) => self.is_done = true,
            WatchEvent::TailEvent(TailEvent::Grown(_)) | WatchEvent::Behind => self.read_on()?,
        }
        Ok(())
    }

    /// Sends what a batch added, in the encoding that all readers share.
    fn grow(&mut self, growth: &StreamGrowth) {
        self.at = growth.to;
        self.tail = growth.to;
        self.is_closed = growth.closed;
        self.is_done = growth.closed;
        let shared = cursor::next(self.engine.clock().now(), None, 0);
        let own = self.next_cursor();
        let control = |cursor| control_event(growth.to, cursor, true, growth.closed);
        let encoded = growth.encoded.get_or_init(|| {
            let mut out = data_event(self.framing, &growth.data);
            out.extend_from_slice(control(shared).as_bytes());
            self.hold(out.into())
        });
        let mut rest = encoded.clone();
        // The cursor may be another by now, or the reader may need one of its own.
        let tail = control(own);
        if !encoded.ends_with(tail.as_bytes()) {
            rest.truncate(data_len(encoded));
        }
        let has_control = rest.len() == encoded.len();
        while !rest.is_empty() {
            self.ready.push_back(rest.split_to(rest.len().min(PIECE_BYTES)));
        }
        if !has_control {
            self.ready.push_back(tail.into());
        }
    }

    /// Goes on by offset after having fallen behind.
    fn read_on(&mut self) -> Result<(), BodyError> {
        let head = match self.engine.head(&self.caller.tenant, &self.path) {
            Ok(head) if head.id == self.id => head,
            Ok(_) | Err(_) => {
                self.is_done = true;
                return Ok(());
            }
        };
        self.tail = head.tail;
        self.is_closed = head.closed.is_some();
        let reading = self.engine.read(&self.caller.tenant, &head, ReadFrom::At(self.at));
        let reading = reading.map_err(|error| BodyError(error.to_string()))?;
        self.catch_up = Some(Box::new(CatchUp::new(reading, self.framing)));
        Ok(())
    }
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
