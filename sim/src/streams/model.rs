//! What streams are, told once more and as simply as possible, to hold the engine against.
//!
//! A model is a whole world of streams at one moment. Deciding a command gives the outcome that
//! the engine must tell and the world that follows; a world is kept for every batch, so that
//! after a crash it is known what must be there.

mod append;
mod create;
mod end;

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

use reveille_core::producer::ProducerTag;
use reveille_core::stream::{Closed, Expiry, Fork, Head, Rejected, StreamId};
use reveille_core::{ContentType, Millis, Offset};

use super::action::{Action, StreamAnswer, StreamError, StreamResult};
use super::payload::{Payload, Piece};

/// All streams at one moment.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Model {
    pub(super) streams: BTreeMap<String, Rc<Stream>>,
    /// Ended incarnations whose bytes and producers are still to be removed.
    pub(super) purging: BTreeSet<u64>,
    /// Ended forks that their source still counts.
    pub(super) releases: BTreeSet<(String, u64)>,
    /// The next incarnation's number, as it is stored.
    pub(super) next_id: u64,
}

/// What the server knows and does not store.
#[derive(Debug, Clone, Default)]
pub(super) struct ServerMemory {
    pub(super) started: Millis,
    pub(super) touched: BTreeMap<u64, Millis>,
    pub(super) next_id: u64,
}

/// A stream with everything that can be read from it, its source's part included.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Stream {
    pub(super) id: u64,
    pub(super) kind: ContentType,
    pub(super) pieces: Vec<Piece>,
    pub(super) expiry: Expiry,
    pub(super) requested: Expiry,
    pub(super) created_at: Millis,
    pub(super) touched_at: Millis,
    pub(super) seq: Option<Arc<str>>,
    pub(super) closed: Option<Option<ProducerTag>>,
    pub(super) fork: Option<Fork>,
    pub(super) forks: u32,
    pub(super) soft: bool,
    pub(super) producers: BTreeMap<Arc<str>, (u64, u64)>,
}

/// What stood at an offset of a source when somebody looked.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct SourceAnchor {
    pub(super) source_id: u64,
    pub(super) at: u64,
    pub(super) content: AnchorContent,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum AnchorContent {
    Tail,
    Piece(Piece),
    Nowhere,
}

/// What a decision rests on beside the state.
#[derive(Debug, Clone, Copy)]
pub(super) struct ModelInput<'a> {
    pub(super) action: &'a Action,
    pub(super) payload: &'a Payload,
    /// What stood at a fork's offset when somebody looked.
    pub(super) anchor: Option<&'a SourceAnchor>,
}

/// A decision: what is told, and the world after it.
pub(super) type ModelDecision = (StreamResult, Model);

impl Model {
    /// What the engine must make of a command.
    pub(super) fn decide(
        &self,
        input: &ModelInput<'_>,
        now: Millis,
        memory: &ServerMemory,
    ) -> ModelDecision {
        let mut next = self.clone();
        match next.change(input, now, memory) {
            Ok(answer) => (Ok(answer), next),
            Err(rejected) => (Err(StreamError::Rejected(rejected)), self.clone()),
        }
    }

    fn change(
        &mut self,
        input: &ModelInput<'_>,
        now: Millis,
        memory: &ServerMemory,
    ) -> Result<StreamAnswer, Rejected> {
        match input.action {
            Action::Create { path, request: create } => {
                self.create(path.as_str(), create, input, now, memory)
            }
            Action::Append { path, request: append } => {
                self.append(path.as_str(), append, input.payload, now, memory)
            }
            Action::Delete { path } => self.delete(path.as_str(), now, memory),
            Action::Touch { path, id, at } => {
                self.touch(path.as_str(), id.0, *at, now, memory);
                Ok(StreamAnswer::Done)
            }
            Action::Timer(timer) => {
                self.work_off(timer, now, memory);
                Ok(StreamAnswer::Done)
            }
            Action::Probe => Ok(StreamAnswer::Done),
        }
    }

    fn stream(&mut self, path: &str) -> &mut Stream {
        let stream = self.streams.get_mut(path).expect("the stream exists");
        Rc::make_mut(stream)
    }

    /// What a reader gets who asks for a stream.
    pub(super) fn visible(
        &self,
        path: &str,
        now: Millis,
        memory: &ServerMemory,
    ) -> Result<&Stream, Rejected> {
        let stream = self.streams.get(path).ok_or(Rejected::NotFound)?;
        if stream.soft || (stream.forks > 0 && memory.expired(stream, now)) {
            Err(Rejected::Gone)
        } else if memory.expired(stream, now) {
            Err(Rejected::NotFound)
        } else {
            Ok(stream)
        }
    }

    /// Whether this incarnation still holds its path, seen or not.
    pub(super) fn by_id(&self, id: u64) -> Option<&Stream> {
        let found = self.streams.values().find(|stream| stream.id == id);
        found.map(Rc::as_ref)
    }

    /// What stands at an offset of a stream.
    pub(super) fn anchor(&self, path: &str, at: u64) -> Option<SourceAnchor> {
        let source = self.streams.get(path)?;
        let content = if at == source.tail() {
            AnchorContent::Tail
        } else {
            let piece = source.starts().find(|(start, _)| *start == at);
            piece.map_or(AnchorContent::Nowhere, |(_, piece)| AnchorContent::Piece(piece.clone()))
        };
        Some(SourceAnchor { source_id: source.id, at, content })
    }
}

impl ServerMemory {
    pub(super) fn expires_at(&self, stream: &Stream) -> Millis {
        match &stream.expiry {
            Expiry::Never => Millis::NEVER,
            Expiry::At(at, _) => *at,
            Expiry::Ttl(seconds) => {
                let read = self.touched.get(&stream.id).unwrap_or(&self.started);
                Millis(stream.touched_at.max(*read).0 + seconds * 1000)
            }
        }
    }

    pub(super) fn expired(&self, stream: &Stream, now: Millis) -> bool {
        now >= self.expires_at(stream)
    }
}

impl Stream {
    pub(super) fn tail(&self) -> u64 {
        self.pieces.iter().map(Piece::len).sum()
    }

    /// Every append with its position.
    pub(super) fn starts(&self) -> impl Iterator<Item = (u64, &Piece)> {
        self.pieces.iter().scan(0, |at, piece| {
            let start = *at;
            *at += piece.len();
            Some((start, piece))
        })
    }

    /// Its bytes between two positions.
    pub(super) fn content(&self, from: u64, to: u64) -> Vec<u8> {
        let mut content = Vec::new();
        for (start, piece) in self.starts() {
            let inside = |at: u64| usize::try_from(at.clamp(start, start + piece.len()) - start);
            let (from, to) = (inside(from).expect("small"), inside(to).expect("small"));
            content.extend_from_slice(piece.data.get(from..to).unwrap_or_default());
        }
        content
    }

    /// The record that the engine should have of it.
    pub(super) fn head(&self) -> Head {
        Head {
            id: StreamId(self.id),
            content_type: self.kind.clone(),
            tail: Offset::new(self.tail()),
            expiry: self.expiry.clone(),
            requested_expiry: self.requested.clone(),
            created_at: self.created_at,
            touched_at: self.touched_at,
            stream_seq: self.seq.clone(),
            closed: self.closed.clone().map(|by| Closed { by }),
            fork: self.fork.clone(),
            forks: self.forks,
            soft_deleted: self.soft,
            followed: false,
            has_fan_out: false,
            first: Offset::ZERO,
        }
    }
}
