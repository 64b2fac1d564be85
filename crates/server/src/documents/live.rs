//! `GET /api/v1/{collection}?live=sse`: the documents of a collection, then what becomes of them.
//!
//! | event | `id` | data |
//! |---|---|---|
//! | `document` | `17/r1`: all up to this document is there | the document, as it is |
//! | `ready` | `17` | `{"seq"}`: everything is there, as of this change |
//! | `change` | `18` | `{"seq","type","document"}`: the document, as it is from then on |
//! | `removed` | `19` | `{"id"}`: it is deleted, or none of those that are followed any more |
//! | `reset` | none | `{"reason"}`: forget everything, it is sent again |
//!
//! An `id` is how far the client has come: sent as `Last-Event-ID` it goes on from there.

use std::collections::VecDeque;
use std::fmt::Write;

use bytes::Bytes;
use http::header::{self, HeaderName, HeaderValue};
use http::{HeaderMap, Request, StatusCode};
use hyper::body::Incoming;
use reveille_core::document::filter::Filter;
use reveille_core::document::live::LivePlace;
use reveille_core::document::path::CollectionPath;
use reveille_engine::documents::live::{
    ChangeBatch, LiveEvent, LiveFeed, LiveNews, LiveUpdate, ResetReason,
};
use reveille_engine::{Engine, ReplyPermit, ReplyRoom};
use reveille_kernel::limits::REPLY_PIECE_BYTES;
use tokio::sync::watch;

use super::document_caller;
use super::error::Error;
use super::filter::parse_filters;
use crate::Server;
use crate::http::auth::Caller;
use crate::http::query::Query;
use crate::http::reply::{self, BodyError, ChunkSource, Reply, ReplyBody};
use crate::metrics::LiveReader;

/// The parameters of a live query.
pub(super) const PARAMETERS: [&str; 2] = ["live", "filters"];

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
/// After so long without news the client is told how far it has come.
const SILENCE_MS: u64 = 20_000;
/// A value takes about so many bytes for each of its text, at most.
const FILTER_ROOM: usize = 24;
/// What an event has beside the document in it, about.
const EVENT_BYTES: usize = 192;

/// Answers with an event stream that ends when the client goes, its key does, or the server.
pub(super) async fn answer(
    server: &Server,
    caller: &Caller,
    collection: &CollectionPath,
    query: &Query,
    request: &Request<Incoming>,
) -> Result<Reply, Error> {
    if query.get("live")? != Some("sse") {
        return Err(Error::bad_request("`live` is `sse`"));
    }
    let filters = query.get("filters")?;
    let room = room_for(server, caller, filters).await?;
    let filters = read_filters(filters)?;
    let from = last_event_id(request.headers())?;
    let engine = &server.engine;
    let feed = engine.follow_documents(&document_caller(caller), collection, filters, from);
    let mut feed = feed.map_err(Error::internal)??;
    // What cannot be answered is refused with a status, before the head has left.
    let first = feed.next().await?;
    let mut events = DocumentEvents {
        engine: engine.clone(),
        caller: caller.clone(),
        room: engine.reply_room(&caller.tenant),
        feed,
        told: String::new(),
        ready: VecDeque::new(),
        is_done: false,
        stopping: server.stopping.clone(),
        _filters: room,
        _reader: server.metrics.live_reader(),
    };
    events.tell(first);
    let mut reply = reply::status(StatusCode::OK);
    let out = reply.headers_mut();
    out.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    out.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    *reply.body_mut() = ReplyBody::live(events, engine.reply_room(&caller.tenant));
    Ok(reply)
}

/// Room for what filters become, which is kept for as long as somebody follows.
async fn room_for(
    server: &Server,
    caller: &Caller,
    filters: Option<&str>,
) -> Result<Option<ReplyPermit>, Error> {
    let Some(text) = filters else { return Ok(None) };
    let (room, clock) = (server.engine.reply_room(&caller.tenant), server.engine.clock());
    let bytes = text.len().saturating_mul(FILTER_ROOM);
    Ok(Some(room.admit(bytes, clock.as_ref()).await?))
}

/// The parameter `filters`: as in the body of a query.
fn read_filters(text: Option<&str>) -> Result<Vec<Filter>, Error> {
    let Some(text) = text else { return Ok(Vec::new()) };
    let value = serde_json::from_str(text)
        .map_err(|error| Error::bad_request(format!("`filters` is not JSON: {error}")))?;
    Ok(parse_filters("filters", Some(&value))?)
}

/// Where the client stands; one that has nothing yet may say so.
fn last_event_id(headers: &HeaderMap) -> Result<Option<LivePlace>, Error> {
    let Some(value) = headers.get(LAST_EVENT_ID).filter(|value| !value.is_empty()) else {
        return Ok(None);
    };
    // What is no text is no id either.
    let text = value.to_str().unwrap_or("?");
    text.parse().map(Some).map_err(Error::bad_request)
}

/// One client's event stream.
struct DocumentEvents {
    engine: Engine,
    caller: Caller,
    room: ReplyRoom,
    feed: LiveFeed,
    /// The last id that the client was sent.
    told: String,
    /// What has been put into words already, piece by piece.
    ready: VecDeque<Bytes>,
    is_done: bool,
    stopping: watch::Receiver<bool>,
    _filters: Option<ReplyPermit>,
    _reader: LiveReader,
}

/// How waiting ended.
enum Waited {
    Update(LiveUpdate),
    Silence,
    End,
}

impl ChunkSource for DocumentEvents {
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
            if let Err(error) = self.wait().await {
                return Some(Err(error));
            }
        }
    }
}

impl DocumentEvents {
    /// Waits until there is something to send, or nothing to say.
    async fn wait(&mut self) -> Result<(), BodyError> {
        let clock = self.engine.clock().clone();
        let is_waiting = self.feed.is_waiting();
        let silence = async {
            match is_waiting {
                true => clock.sleep_until(clock.now() + SILENCE_MS).await,
                false => std::future::pending().await,
            }
        };
        let update = tokio::select! {
            biased;
            _ = self.stopping.wait_for(|stop| *stop) => Waited::End,
            () = self.caller.key_revoked() => Waited::End,
            update = self.feed.next() => {
                Waited::Update(update.map_err(|error| BodyError(error.to_string()))?)
            }
            () = silence => Waited::Silence,
        };
        match update {
            Waited::Update(update) => self.tell(update),
            Waited::Silence => self.tell_place(),
            Waited::End => self.is_done = true,
        }
        Ok(())
    }

    fn tell(&mut self, update: LiveUpdate) {
        match update {
            LiveUpdate::Nothing => {}
            LiveUpdate::Events(events, _permit) => {
                let Some(last) = events.last() else { return };
                self.told = last.place.to_string();
                let encoded = encode(&events);
                self.push(self.room.hold(encoded.into()));
            }
            LiveUpdate::Shared(batch) => self.share(&batch),
            LiveUpdate::Ready(seq) => {
                self.told = seq.to_string();
                let ready = format!("event: ready\nid: {seq}\ndata: {{\"seq\":{seq}}}\n\n");
                self.push(ready.into());
            }
            LiveUpdate::Reset(reason) => {
                self.told.clear();
                let reason = match reason {
                    ResetReason::Forgotten => {
                        "what has changed since `Last-Event-ID` is not kept any more"
                    }
                    ResetReason::Rules => "what you may see has changed",
                };
                // An empty id: whoever comes back now begins anew.
                let reset = format!("event: reset\nid:\ndata: {{\"reason\":\"{reason}\"}}\n\n");
                self.push(reset.into());
            }
        }
    }

    /// Sends what a batch brought, in the encoding that all share who may see all of it.
    fn share(&mut self, batch: &ChangeBatch) {
        let Some(last) = batch.events.last() else { return };
        self.told = last.place.to_string();
        let encoded = batch.encoded.get_or_init(|| self.room.hold(encode(&batch.events).into()));
        self.push(encoded.clone());
    }

    /// Tells a client how far it has come, though there was nothing for it: otherwise it would come
    /// back with a place that nobody knows any more. It also shows whether somebody is there.
    fn tell_place(&mut self) {
        self.feed.note_silence();
        let place = self.feed.place().to_string();
        let said = if place == self.told { ":\n\n".to_owned() } else { format!("id: {place}\n\n") };
        self.told = place;
        self.push(said.into());
    }

    fn push(&mut self, mut bytes: Bytes) {
        while !bytes.is_empty() {
            self.ready.push_back(bytes.split_to(bytes.len().min(REPLY_PIECE_BYTES)));
        }
    }
}

fn encode(events: &[LiveEvent]) -> Vec<u8> {
    let bytes = events.iter().map(|event| match &event.news {
        LiveNews::Document(json) | LiveNews::Changed(_, json) => json.len() + EVENT_BYTES,
        LiveNews::Removed => EVENT_BYTES,
    });
    let mut out = Vec::with_capacity(bytes.sum());
    for LiveEvent { place, id, news } in events {
        let mut head = String::with_capacity(EVENT_BYTES);
        // Writing to memory cannot fail. Stored JSON has no line ends, so it is one line of data.
        let _ = match news {
            LiveNews::Document(_) => write!(head, "event: document\nid: {place}\ndata: "),
            LiveNews::Changed(kind, _) => write!(
                head,
                "event: change\nid: {place}\ndata: {{\"seq\":{},\"type\":\"{}\",\"document\":",
                place.seq,
                kind.as_str()
            ),
            LiveNews::Removed => write!(
                head,
                "event: removed\nid: {place}\ndata: {{\"id\":\"{}\"}}\n\n",
                id.as_str()
            ),
        };
        out.extend_from_slice(head.as_bytes());
        match news {
            LiveNews::Document(json) => {
                out.extend_from_slice(json);
                out.extend_from_slice(b"\n\n");
            }
            LiveNews::Changed(_, json) => {
                out.extend_from_slice(json);
                out.extend_from_slice(b"}\n\n");
            }
            LiveNews::Removed => {}
        }
    }
    out
}
