//! A stream: its head record, and what may be done to it.
//!
//! The laws below are pure: they take the head as it is and return it as it becomes. What is
//! missing, expired or deleted is settled by the caller before it asks.

pub mod append;
pub mod create;
pub mod delete;
pub mod expiry;

use std::sync::Arc;

use bytes::Bytes;

use crate::json::{self, JsonError};
use crate::media::{ContentType, Framing};
use crate::offset::{Offset, ReadFrom};
use crate::path::StreamPath;
use crate::producer::{ProducerRejected, ProducerTag};
use crate::time::Millis;
pub use expiry::Expiry;

/// One incarnation of a stream. A path that is deleted and created again gets a new one, so that
/// nothing of the old stream can appear in the new.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(pub u64);

/// Everything that is known of a stream except its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// This incarnation.
    pub id: StreamId,
    /// As its creator wrote it, or its source's.
    pub content_type: ContentType,
    /// After the last byte.
    pub tail: Offset,
    /// Before the first byte that is kept; what came before it was trimmed.
    pub first: Offset,
    /// When it ends by itself.
    pub expiry: Expiry,
    /// The expiry that the creator asked for; differs from `expiry` when a fork inherited it.
    pub requested_expiry: Expiry,
    /// When it was created.
    pub created_at: Millis,
    /// The last read or write that counts for a sliding expiry, as far as it was written down.
    pub touched_at: Millis,
    /// The last `Stream-Seq`.
    pub stream_seq: Option<Arc<str>>,
    /// Set when nothing more can be appended.
    pub closed: Option<Closed>,
    /// Where it was forked from.
    pub fork: Option<Fork>,
    /// How many forks read their first part from this stream.
    pub forks: u32,
    /// Deleted, but kept because forks still read from it.
    pub soft_deleted: bool,
    /// Whether consumers may follow it by name: they are looked for when it grows.
    pub followed: bool,
    /// Whether an append has left consumers to be told later: see [`crate::crowd`].
    pub has_fan_out: bool,
}

/// How a stream was closed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Closed {
    /// The producer's request that closed it: its repetition is answered as a success.
    pub by: Option<ProducerTag>,
}

/// Where a fork's first bytes are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fork {
    /// The stream it was forked from; it keeps its path for as long as the fork lives.
    pub source: StreamPath,
    /// The incarnation of the source.
    pub source_id: StreamId,
    /// Everything before this is the source's, everything from here on the fork's own.
    pub at: Offset,
    /// The offset that the creator asked for, if any.
    pub requested_at: Option<Offset>,
    /// The sub-offset that the creator asked for.
    pub sub_offset: u64,
    /// How many ancestors there are.
    pub depth: u32,
}

impl Head {
    /// When the stream ends if nobody touches it after `touched`.
    pub fn expires_at(&self, touched: Millis) -> Millis {
        match &self.expiry {
            Expiry::Never => Millis::NEVER,
            Expiry::Ttl(seconds) => touched.max(self.touched_at).plus_seconds(*seconds),
            Expiry::At(at, _) => *at,
        }
    }

    /// The offset that a reader means.
    pub fn offset(&self, from: ReadFrom) -> Offset {
        match from {
            ReadFrom::Start => self.first,
            ReadFrom::Now => self.tail,
            ReadFrom::At(offset) => offset,
        }
    }

    /// Where the stream's own bytes begin.
    pub fn own_start(&self) -> Offset {
        self.fork.as_ref().map_or(Offset::ZERO, |fork| fork.at)
    }
}

/// The body of a create or an append, with the costly framing done before the decision.
#[derive(Debug, Clone, Default)]
pub struct Body {
    raw: Bytes,
    json: Option<Result<Bytes, JsonError>>,
}

impl Body {
    /// A body sent with this content type; JSON is framed here.
    pub fn new(raw: Bytes, content_type: Option<&ContentType>) -> Body {
        let is_json = content_type.is_some_and(|kind| kind.framing() == Framing::Json);
        let json = (is_json && !raw.is_empty()).then(|| json::frame(&raw));
        Body { raw, json }
    }

    /// Messages of a JSON stream as they are stored, each followed by a comma.
    pub fn of_messages(framed: Bytes) -> Body {
        Body { raw: framed.clone(), json: Some(Ok(framed)) }
    }

    /// Whether nothing was sent.
    pub fn is_empty(&self) -> bool {
        self.raw.is_empty()
    }

    /// The number of bytes that it keeps in memory.
    pub fn size(&self) -> usize {
        self.raw.len()
    }

    /// The bytes as a stream of this framing stores them.
    fn framed(&self, framing: Framing) -> Result<Bytes, JsonError> {
        match framing {
            Framing::Text | Framing::Binary => Ok(self.raw.clone()),
            Framing::Json => self.json.clone().unwrap_or_else(|| json::frame(&self.raw)),
        }
    }
}

/// The caller is wrong: one variant for each documented answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Rejected {
    /// No such stream, or no longer.
    #[error("no stream at this path")]
    NotFound,
    /// Deleted, but forks still read from it.
    #[error("the stream was deleted; forks still read from it")]
    Gone,
    /// Nothing can be appended any more.
    #[error("the stream is closed at {tail}")]
    Closed {
        /// Its final tail.
        tail: Offset,
    },
    /// The stream holds another media type.
    #[error("the stream holds `{expected}`; send that Content-Type")]
    ContentType {
        /// The stream's type.
        expected: ContentType,
    },
    /// `Stream-Seq` did not increase.
    #[error("Stream-Seq must be above `{last}` (compared byte by byte)")]
    StreamSeq {
        /// The newest that was accepted.
        last: Arc<str>,
    },
    /// The stream would outgrow its offsets.
    #[error("the stream is full: it holds as many bytes as an offset can count")]
    Full,
    /// The producer's headers do not fit its state.
    #[error(transparent)]
    Producer(#[from] ProducerRejected),
    /// The body is not what a JSON stream takes.
    #[error(transparent)]
    Json(#[from] JsonError),
    /// The path is taken by a stream with other settings.
    #[error("a stream with another {0} exists at this path")]
    Exists(&'static str),
    /// The path is held by a deleted stream that forks still read from.
    #[error("the path is held by a deleted stream that forks still read from")]
    PathHeld,
    /// There is nothing to fork.
    #[error("no stream at the path in Stream-Forked-From")]
    SourceNotFound,
    /// The source was deleted.
    #[error("the source of the fork was deleted")]
    SourceGone,
    /// The offset is not one that the source has.
    #[error("Stream-Fork-Offset is not an offset of the source, whose tail is {tail}")]
    ForkOffset {
        /// The source's tail.
        tail: Offset,
    },
    /// The append at the anchor is shorter than the sub-offset.
    #[error("Stream-Fork-Sub-Offset reaches past the append that starts at the fork's offset")]
    ForkSubOffset,
    /// Too many forks of forks.
    #[error("the source is already the {depth}th fork of a fork; fork one nearer to the root")]
    ForkDepth {
        /// Its distance from the root.
        depth: u32,
    },
    /// A read from beyond the end.
    #[error("the offset is not one of this stream, whose tail is {tail}")]
    ReadOffset {
        /// The stream's tail.
        tail: Offset,
    },
    /// A read from before the beginning.
    #[error("what was before {first} is no longer kept; read from -1 to begin with what is")]
    Trimmed {
        /// Where the stream begins now.
        first: Offset,
    },
}
