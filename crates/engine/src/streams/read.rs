//! Reading a stream: which bytes, from which ancestors, piece by piece.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use reveille_core::stream::create::ForkAnchor;
use reveille_core::stream::{Head, Rejected, StreamId};
use reveille_core::{Offset, StreamPath, Tenant};
use reveille_kernel::error::{Damaged, Error};
use reveille_kernel::limits::REPLY_PIECE_BYTES;
use reveille_kernel::reply_budget::{ReplyPermit, ReplyRoom};
use reveille_kernel::task;
use reveille_schema::keys;
use reveille_schema::record;
use reveille_store::chunk::Chunk;
use reveille_store::keys::BlobId;
use reveille_store::state::{Reader, State};

use super::StreamError;
use crate::records::ReadRecord;

/// Bytes that are read from the table in one go, once a reader has shown that it takes them.
const READ_AHEAD_BYTES: usize = 512 << 10;
/// The longest piece: what a reader that does not read holds in memory.
const PIECE_BYTES: usize = REPLY_PIECE_BYTES;
/// Less than this is not worth being counted.
const UNCOUNTED_BYTES: usize = 4 << 10;

/// A range of a stream that is being read. Nothing is held in memory but the next piece.
pub struct Reading {
    state: Arc<State>,
    spans: VecDeque<Span>,
    ready: VecDeque<Piece>,
    /// How much is read from the table next time.
    ahead: usize,
    /// Where what was read is counted for as long as anybody holds it.
    room: Option<ReplyRoom>,
    /// Whether the last piece ended where an append ends.
    at_boundary: bool,
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

/// A part of a chunk.
struct Piece {
    bytes: Bytes,
    ends_append: bool,
}

impl Span {
    fn len(&self) -> usize {
        usize::try_from(self.to - self.from).unwrap_or(usize::MAX)
    }
}

impl Piece {
    /// The part of a chunk from a position on, at most up to another, and so many bytes.
    fn of(chunk: &Chunk, from: u64, to: u64, max: usize) -> Piece {
        let end = from.saturating_add(u64::try_from(max).unwrap_or(u64::MAX));
        let to = to.min(end).min(chunk.end());
        let slice = chunk.slice(from, to);
        // Copied out of a much larger value, so that a slow reader does not keep all of that in
        // memory.
        let copies = u64::try_from(slice.len()).unwrap_or(u64::MAX).saturating_mul(2) < chunk.len();
        let bytes = if copies { Bytes::copy_from_slice(&slice) } else { slice };
        Piece { bytes, ends_append: chunk.is_boundary(to) }
    }
}

/// The head at a path, whatever its state.
pub fn head(reader: &Reader, tenant: &Tenant, path: &StreamPath) -> Result<Option<Head>, Damaged> {
    let mut reader = reader;
    reader.read(&keys::stream(tenant, path), record::decode_head)
}

impl Reading {
    /// The bytes of a stream between two offsets. `from` must be one that the stream has named, or
    /// where it begins.
    pub fn open(
        state: &Arc<State>,
        tenant: &Tenant,
        stream: &Head,
        from: Offset,
        to: Offset,
    ) -> Result<Reading, StreamError> {
        if from > to {
            return Err(Error::Rejected(Rejected::ReadOffset { tail: stream.tail }));
        }
        if from < stream.first {
            return Err(Error::Rejected(Rejected::Trimmed { first: stream.first }));
        }
        let reader = state.reader();
        let spans = if from == to {
            VecDeque::new()
        } else {
            spans(&reader, tenant, stream, from.position(), to.position())?
        };
        if let Some(first) = spans.front()
            && from != stream.first
            && !is_boundary(&reader, first)?
        {
            return Err(Error::Rejected(Rejected::ReadOffset { tail: stream.tail }));
        }
        Ok(Reading {
            state: state.clone(),
            spans,
            ready: VecDeque::new(),
            ahead: PIECE_BYTES,
            room: None,
            at_boundary: true,
            from,
            to,
        })
    }

    /// Has what is read counted: it waits for room before it reads.
    #[must_use]
    pub fn within(self, room: ReplyRoom) -> Reading {
        Reading { room: Some(room), ..self }
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

    /// Whether what was read so far ends where an append ends.
    pub fn at_boundary(&self) -> bool {
        self.at_boundary || self.spans.is_empty()
    }

    /// The next piece; `None` after the last.
    pub async fn next(&mut self) -> Result<Option<Bytes>, Damaged> {
        if let Some(span) = self.spans.front().copied().filter(|_| self.ready.is_empty()) {
            let room = self.room.clone().filter(|_| span.len() >= UNCOUNTED_BYTES);
            let mut permit = match &room {
                Some(room) => Some(room.acquire(span.len().min(PIECE_BYTES)).await),
                None => None,
            };
            if let Some(span) = self.beyond_memory()? {
                let more = room.as_ref().filter(|_| self.ahead > PIECE_BYTES);
                let more = more.and_then(|room| room.try_acquire_spare(self.ahead - PIECE_BYTES));
                let ahead = if more.is_some() || room.is_none() { self.ahead } else { PIECE_BYTES };
                if let (Some(permit), Some(more)) = (&mut permit, more) {
                    permit.join(more);
                }
                // A reader that takes what it gets is given more at a time.
                self.ahead = (self.ahead * 2).min(READ_AHEAD_BYTES);
                let state = self.state.clone();
                self.ready = task::blocking(move || read_ahead(&state, span, ahead)).await?;
            }
            if let Some(permit) = permit {
                count(&mut self.ready, permit);
            }
        }
        Ok(self.pop())
    }

    /// The same on the caller's thread, which may have to wait for the disk.
    pub fn next_blocking(&mut self) -> Result<Option<Bytes>, Damaged> {
        if let Some(span) = self.beyond_memory()? {
            self.ready = read_ahead(&self.state, span, READ_AHEAD_BYTES)?;
        }
        Ok(self.pop())
    }

    /// Takes the next piece from memory; what is to be read from the table if it is not there.
    fn beyond_memory(&mut self) -> Result<Option<Span>, Damaged> {
        let Some(span) = self.spans.front().copied().filter(|_| self.ready.is_empty()) else {
            return Ok(None);
        };
        let reader = self.state.reader();
        let Some(chunk) = reader.recent_chunk_at(BlobId(span.id.0), span.from)? else {
            return Ok(Some(span));
        };
        self.ready.push_back(Piece::of(&chunk, span.from, span.to, PIECE_BYTES));
        Ok(None)
    }

    fn pop(&mut self) -> Option<Bytes> {
        let first = self.ready.front_mut()?;
        let bytes = first.bytes.split_to(first.bytes.len().min(PIECE_BYTES));
        self.at_boundary = first.bytes.is_empty() && first.ends_append;
        if first.bytes.is_empty() {
            self.ready.pop_front();
        }
        if let Some(span) = self.spans.front_mut() {
            span.from += u64::try_from(bytes.len()).unwrap_or(u64::MAX);
            if span.from >= span.to {
                self.spans.pop_front();
            }
        }
        Some(bytes)
    }

    /// Everything at once, for a range that is known to be small.
    pub async fn collect(&mut self) -> Result<Bytes, Damaged> {
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
}

/// Pieces from the beginning of the span on, so many bytes at most.
fn read_ahead(state: &State, span: Span, max: usize) -> Result<VecDeque<Piece>, Damaged> {
    let reader = state.reader();
    let mut pieces = VecDeque::new();
    let (mut at, mut left) = (span.from, max);
    while at < span.to && left > 0 {
        let chunk = reader.chunk_at(BlobId(span.id.0), at)?;
        let chunk = chunk.ok_or_else(|| lost(span.id, at))?;
        let piece = Piece::of(&chunk, at, span.to, left);
        at += u64::try_from(piece.bytes.len()).unwrap_or(u64::MAX);
        left -= piece.bytes.len();
        pieces.push_back(piece);
    }
    Ok(pieces)
}

/// Has each piece carry its part of the permit.
fn count(pieces: &mut VecDeque<Piece>, mut permit: ReplyPermit) {
    for piece in pieces {
        let part = permit.split(piece.bytes.len());
        piece.bytes = part.attach(std::mem::take(&mut piece.bytes));
    }
}

/// The bytes are not there: the stream was ended and cleaned up meanwhile, or they are lost.
fn lost(id: StreamId, at: u64) -> Damaged {
    Damaged(format!("stream {} has no bytes at {at}; it may have been deleted", id.0))
}

/// The streams of a fork's chain that hold a range, oldest first.
fn spans(
    reader: &Reader,
    tenant: &Tenant,
    stream: &Head,
    from: u64,
    to: u64,
) -> Result<VecDeque<Span>, Damaged> {
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
            .ok_or_else(|| Damaged(format!("the fork's source {} is gone", fork.source)))?;
    }
}

/// Whether a span begins where an append begins.
fn is_boundary(reader: &Reader, span: &Span) -> Result<bool, Damaged> {
    let chunk = reader.chunk_at(BlobId(span.id.0), span.from)?;
    Ok(chunk.ok_or_else(|| lost(span.id, span.from))?.is_boundary(span.from))
}

/// What stands at an offset of a stream, for a fork that is to leave it there.
pub fn anchor(
    reader: &Reader,
    tenant: &Tenant,
    source: &Head,
    at: Offset,
) -> Result<ForkAnchor, Damaged> {
    if at == source.tail {
        return Ok(ForkAnchor::Tail);
    }
    if at < source.first || at > source.tail {
        return Ok(ForkAnchor::Nowhere);
    }
    let position = at.position();
    let spans = spans(reader, tenant, source, position, source.tail.position())?;
    let Some(span) = spans.front() else {
        return Ok(ForkAnchor::Nowhere);
    };
    let Some(append) = append_at(reader, span.id, position)? else {
        return Ok(ForkAnchor::Nowhere);
    };
    // A source that is itself a fork may end in the middle of its ancestor's append.
    let len = usize::try_from(span.to - position).unwrap_or(usize::MAX).min(append.len());
    Ok(ForkAnchor::Append(append.slice(..len)))
}

/// The whole append that begins at a position, if one does.
fn append_at(reader: &Reader, id: StreamId, position: u64) -> Result<Option<Bytes>, Damaged> {
    let Some(mut chunk) = reader.chunk_at(BlobId(id.0), position)? else {
        return Ok(None);
    };
    let Some(first) = chunk.append_at(position) else { return Ok(None) };
    let first_len = u64::try_from(first.len()).unwrap_or(u64::MAX);
    if !chunk.is_unfinished() || position + first_len < chunk.end() {
        return Ok(Some(first));
    }
    let mut whole = Vec::from(first);
    while chunk.is_unfinished() {
        let at = chunk.end();
        chunk = reader.chunk_at(BlobId(id.0), at)?.ok_or_else(|| lost(id, at))?;
        whole.extend_from_slice(&chunk.appends().next().unwrap_or_default());
    }
    Ok(Some(whole.into()))
}
