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

use bytes::{BufMut, Bytes, BytesMut};
use reveille_core::producer::ProducerTag;
use reveille_core::stream::{Closed, Expiry, Fork, Head, Rejected, StreamId};
use reveille_core::{ContentType, Millis, Offset};
use reveille_engine::command::{Answer, Command};
use reveille_engine::partition::Outcome;

use crate::request::Request;

/// All streams at one moment.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Model {
    pub(crate) streams: BTreeMap<String, Rc<Stream>>,
    /// Ended incarnations whose bytes and producers are still to be removed.
    pub(crate) purging: BTreeSet<u64>,
    /// Ended forks that their source still counts.
    pub(crate) releases: BTreeSet<(String, u64)>,
    /// The next incarnation's number, as it is stored.
    pub(crate) next_id: u64,
}

/// What the server knows and does not store.
#[derive(Debug, Clone, Default)]
pub(crate) struct Volatile {
    pub(crate) started: Millis,
    pub(crate) touched: BTreeMap<u64, Millis>,
    pub(crate) next_id: u64,
}

/// A stream with everything that can be read from it, its source's part included.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Stream {
    pub(crate) id: u64,
    pub(crate) kind: ContentType,
    pub(crate) pieces: Vec<Piece>,
    pub(crate) expiry: Expiry,
    pub(crate) requested: Expiry,
    pub(crate) created_at: Millis,
    pub(crate) touched_at: Millis,
    pub(crate) seq: Option<Arc<str>>,
    pub(crate) closed: Option<Option<ProducerTag>>,
    pub(crate) fork: Option<Fork>,
    pub(crate) forks: u32,
    pub(crate) soft: bool,
    pub(crate) producers: BTreeMap<Arc<str>, (u64, u64)>,
}

/// One append.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Piece {
    pub(crate) data: Bytes,
    /// Where its JSON messages end.
    ends: Vec<usize>,
}

/// What stood at an offset of a source when somebody looked.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Anchor {
    pub(crate) source_id: u64,
    pub(crate) at: u64,
    pub(crate) what: Stands,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Stands {
    Tail,
    Piece(Piece),
    Nowhere,
}

/// A decision: what is told, and the world after it.
pub(crate) type Decision = (Outcome, Model);

impl Model {
    /// What the engine must make of a command.
    pub(crate) fn decide(&self, request: &Request, now: Millis, memory: &Volatile) -> Decision {
        let mut next = self.clone();
        let told = next.change(request, now, memory);
        match told {
            Ok(answer) => (Ok(answer), next),
            Err(rejected) => (Err(rejected.into()), self.clone()),
        }
    }

    fn change(
        &mut self,
        request: &Request,
        now: Millis,
        memory: &Volatile,
    ) -> Result<Answer, Rejected> {
        match &request.command {
            Command::Create { path, request: asked, .. } => {
                self.create(path.as_str(), asked, request, now, memory)
            }
            Command::Append { path, request: asked, .. } => {
                self.append(path.as_str(), asked, &request.payload, now, memory)
            }
            Command::Delete { path, .. } => self.delete(path.as_str(), now, memory),
            Command::Touch { path, id, at, .. } => {
                self.touch(path.as_str(), id.0, *at, now, memory);
                Ok(Answer::Done)
            }
            Command::Obligation { key, due, found } => {
                self.fulfil(key, due, found.is_empty(), now, memory);
                Ok(Answer::Done)
            }
            Command::Probe => Ok(Answer::Done),
            other => unreachable!("no client of this world asks for {other:?}"),
        }
    }

    fn stream(&mut self, path: &str) -> &mut Stream {
        let stream = self.streams.get_mut(path).expect("the stream exists");
        Rc::make_mut(stream)
    }

    /// What a reader gets who asks for a stream.
    pub(crate) fn visible(
        &self,
        path: &str,
        now: Millis,
        memory: &Volatile,
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
    pub(crate) fn by_id(&self, id: u64) -> Option<&Stream> {
        let found = self.streams.values().find(|stream| stream.id == id);
        found.map(Rc::as_ref)
    }

    /// What stands at an offset of a stream.
    pub(crate) fn anchor(&self, path: &str, at: u64) -> Option<Anchor> {
        let source = self.streams.get(path)?;
        let what = if at == source.tail() {
            Stands::Tail
        } else {
            let piece = source.starts().find(|(start, _)| *start == at);
            piece.map_or(Stands::Nowhere, |(_, piece)| Stands::Piece(piece.clone()))
        };
        Some(Anchor { source_id: source.id, at, what })
    }
}

impl Volatile {
    pub(crate) fn expires_at(&self, stream: &Stream) -> Millis {
        match &stream.expiry {
            Expiry::Never => Millis::NEVER,
            Expiry::At(at, _) => *at,
            Expiry::Ttl(seconds) => {
                let read = self.touched.get(&stream.id).unwrap_or(&self.started);
                Millis(stream.touched_at.max(*read).0 + seconds * 1000)
            }
        }
    }

    pub(crate) fn expired(&self, stream: &Stream, now: Millis) -> bool {
        now >= self.expires_at(stream)
    }
}

impl Stream {
    pub(crate) fn tail(&self) -> u64 {
        self.pieces.iter().map(Piece::len).sum()
    }

    /// Every append with its position.
    pub(crate) fn starts(&self) -> impl Iterator<Item = (u64, &Piece)> {
        self.pieces.iter().scan(0, |at, piece| {
            let start = *at;
            *at += piece.len();
            Some((start, piece))
        })
    }

    /// Its bytes between two positions.
    pub(crate) fn content(&self, from: u64, to: u64) -> Vec<u8> {
        let mut content = Vec::new();
        for (start, piece) in self.starts() {
            let inside = |at: u64| usize::try_from(at.clamp(start, start + piece.len()) - start);
            let (from, to) = (inside(from).expect("small"), inside(to).expect("small"));
            content.extend_from_slice(piece.data.get(from..to).unwrap_or_default());
        }
        content
    }

    /// The record that the engine should have of it.
    pub(crate) fn head(&self) -> Head {
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

impl Piece {
    pub(crate) fn raw(data: Bytes) -> Piece {
        Piece { data, ends: Vec::new() }
    }

    pub(crate) fn messages(messages: &[Bytes]) -> Piece {
        let mut data = BytesMut::new();
        let mut ends = Vec::new();
        for message in messages {
            data.put_slice(message);
            data.put_u8(b',');
            ends.push(data.len());
        }
        Piece { data: data.freeze(), ends }
    }

    pub(crate) fn len(&self) -> u64 {
        self.data.len() as u64
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.data.is_empty()
    }

    /// Its first messages if it is JSON, its first bytes if not.
    fn first(&self, count: u64, json: bool) -> Option<Piece> {
        let count = usize::try_from(count).ok()?;
        let len = if json { *self.ends.get(count.checked_sub(1)?)? } else { count };
        (len <= self.data.len()).then(|| Piece {
            data: self.data.slice(..len),
            ends: self.ends.iter().copied().take(count).collect(),
        })
    }
}
