//! Reading a stream: which bytes, from which ancestors, piece by piece.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use reveille_core::stream::create::Anchor;
use reveille_core::stream::{Head, Rejected, StreamId};
use reveille_core::{Offset, StreamPath, Tenant};
use reveille_store::keys;
use reveille_store::record;
use reveille_store::state::{Reader, State};
use reveille_store::table::TableError;

use crate::failure::Failure;
use crate::task;

/// Bytes that are read from the table in one go.
const READ_AHEAD_BYTES: u64 = 1 << 20;

/// A range of a stream that is being read. Nothing is held in memory but the next piece.
pub struct Reading {
    state: Arc<State>,
    spans: VecDeque<Span>,
    ready: VecDeque<Bytes>,
    from: Offset,
    to: Offset,
}

/// A part of the range that one stream of the fork's chain holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Span {
    id: StreamId,
    from: u64,
    to: u64,
}

/// The head at a path, whatever its state.
pub fn head(reader: &Reader, tenant: &Tenant, path: &StreamPath) -> Result<Option<Head>, Failure> {
    let Some(value) = reader.get(&keys::stream(tenant, path)).map_err(damaged)? else {
        return Ok(None);
    };
    let head = record::decode_head(&value);
    head.map(Some).map_err(|error| Failure::Damaged(format!("{path}: {error}")))
}

/// Something on disk is not what it was.
pub(crate) fn damaged(error: TableError) -> Failure {
    tracing::error!(%error, "a read failed");
    Failure::Damaged(error.to_string())
}

impl Reading {
    /// The bytes of a stream between two offsets. `from` must be one that the stream has named.
    pub fn open(
        state: &Arc<State>,
        tenant: &Tenant,
        stream: &Head,
        from: Offset,
        to: Offset,
    ) -> Result<Reading, Failure> {
        if from > to {
            return Err(Rejected::ReadOffset { tail: stream.tail }.into());
        }
        let reader = state.reader();
        let spans = if from == to {
            VecDeque::new()
        } else {
            spans(&reader, tenant, stream, from.position(), to.position())?
        };
        if let Some(first) = spans.front()
            && !is_boundary(&reader, first)?
        {
            return Err(Rejected::ReadOffset { tail: stream.tail }.into());
        }
        Ok(Reading { state: state.clone(), spans, ready: VecDeque::new(), from, to })
    }

    /// Where it begins.
    pub fn from(&self) -> Offset {
        self.from
    }

    /// Where it ends.
    pub fn to(&self) -> Offset {
        self.to
    }

    /// The number of stored bytes in it.
    pub fn len(&self) -> u64 {
        self.to.position() - self.from.position()
    }

    /// Whether there is nothing to read.
    pub fn is_empty(&self) -> bool {
        self.from == self.to
    }

    /// The next piece; `None` after the last.
    pub async fn next(&mut self) -> Result<Option<Bytes>, Failure> {
        if let Some(piece) = self.at_hand()? {
            return Ok(Some(piece));
        }
        let Some(span) = self.spans.front().copied() else {
            return Ok(None);
        };
        let state = self.state.clone();
        let pieces = task::blocking(move || read_ahead(&state, span)).await?;
        Ok(self.take_ahead(pieces))
    }

    /// The same on the caller's thread, which may wait for the disk.
    pub fn next_blocking(&mut self) -> Result<Option<Bytes>, Failure> {
        if let Some(piece) = self.at_hand()? {
            return Ok(Some(piece));
        }
        let Some(span) = self.spans.front().copied() else {
            return Ok(None);
        };
        let pieces = read_ahead(&self.state, span)?;
        Ok(self.take_ahead(pieces))
    }

    /// The next piece if it is in memory.
    fn at_hand(&mut self) -> Result<Option<Bytes>, Failure> {
        if let Some(piece) = self.ready.pop_front() {
            return Ok(Some(piece));
        }
        let Some(span) = self.spans.front() else {
            return Ok(None);
        };
        let reader = self.state.reader();
        let recent = reader.recent_chunk_at(span.id, span.from).map_err(damaged)?;
        let piece = recent.map(|chunk| chunk.slice(span.from, span.to));
        if let Some(piece) = &piece {
            self.advance(piece);
        }
        Ok(piece)
    }

    /// Keeps pieces that were read ahead, and returns the first.
    fn take_ahead(&mut self, pieces: VecDeque<Bytes>) -> Option<Bytes> {
        for piece in &pieces {
            self.advance(piece);
        }
        self.ready = pieces;
        self.ready.pop_front()
    }

    /// Everything at once, for a range that is known to be small.
    pub async fn collect(&mut self) -> Result<Bytes, Failure> {
        let Some(first) = self.next().await? else {
            return Ok(Bytes::new());
        };
        if self.spans.is_empty() && self.ready.is_empty() {
            return Ok(first);
        }
        let mut all = Vec::from(first);
        while let Some(piece) = self.next().await? {
            all.extend_from_slice(&piece);
        }
        Ok(all.into())
    }

    fn advance(&mut self, piece: &Bytes) {
        let Some(span) = self.spans.front_mut() else {
            return;
        };
        span.from += u64::try_from(piece.len()).unwrap_or(u64::MAX);
        if span.from >= span.to {
            self.spans.pop_front();
        }
    }
}

/// Pieces from the beginning of the span on.
fn read_ahead(state: &State, span: Span) -> Result<VecDeque<Bytes>, Failure> {
    let reader = state.reader();
    let mut pieces = VecDeque::new();
    let mut at = span.from;
    while at < span.to && at < span.from + READ_AHEAD_BYTES {
        let chunk = reader.chunk_at(span.id, at).map_err(damaged)?;
        let chunk = chunk.ok_or_else(|| lost(span.id, at))?;
        let piece = chunk.slice(at, span.to);
        at += u64::try_from(piece.len()).unwrap_or(u64::MAX);
        pieces.push_back(piece);
    }
    Ok(pieces)
}

/// The bytes are not there: the stream was ended and cleaned up meanwhile, or they are lost.
fn lost(id: StreamId, at: u64) -> Failure {
    Failure::Damaged(format!("stream {} has no bytes at {at}; it may have been deleted", id.0))
}

/// The streams of a fork's chain that hold a range, oldest first.
fn spans(
    reader: &Reader,
    tenant: &Tenant,
    stream: &Head,
    from: u64,
    to: u64,
) -> Result<VecDeque<Span>, Failure> {
    let mut spans = VecDeque::new();
    let mut current = stream.clone();
    let mut to = to;
    loop {
        let own = current.own_start().position();
        if to > own {
            spans.push_front(Span { id: current.id, from: from.max(own), to });
        }
        let Some(fork) = current.fork.filter(|_| from < own) else {
            return Ok(spans);
        };
        to = to.min(own);
        current = head(reader, tenant, &fork.source)?
            .filter(|source| source.id == fork.source_id)
            .ok_or_else(|| {
                Failure::Damaged(format!("the fork's source {} is gone", fork.source))
            })?;
    }
}

/// Whether a span begins where an append begins.
fn is_boundary(reader: &Reader, span: &Span) -> Result<bool, Failure> {
    let chunk = reader.chunk_at(span.id, span.from).map_err(damaged)?;
    Ok(chunk.ok_or_else(|| lost(span.id, span.from))?.is_boundary(span.from))
}

/// What stands at an offset of a stream, for a fork that is to leave it there.
pub fn anchor(
    reader: &Reader,
    tenant: &Tenant,
    source: &Head,
    at: Offset,
) -> Result<Anchor, Failure> {
    if at == source.tail {
        return Ok(Anchor::Tail);
    }
    if at > source.tail {
        return Ok(Anchor::Nowhere);
    }
    let position = at.position();
    let spans = spans(reader, tenant, source, position, source.tail.position())?;
    let Some(span) = spans.front() else {
        return Ok(Anchor::Nowhere);
    };
    let chunk = reader.chunk_at(span.id, position).map_err(damaged)?;
    let append = chunk.and_then(|chunk| chunk.append_at(position));
    Ok(match append {
        // A source that is itself a fork may end in the middle of its ancestor's append.
        Some(append) => {
            let len = usize::try_from(span.to - position).unwrap_or(usize::MAX).min(append.len());
            Anchor::Append(append.slice(..len))
        }
        None => Anchor::Nowhere,
    })
}
