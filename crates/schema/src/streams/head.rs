//! The head of a stream.
//!
//! | field | type | what |
//! |---|---|---|
//! | 0 | integer | stream id: one incarnation of the path |
//! | 1 | text | content type as its creator wrote it |
//! | 2 | integer | tail: position after the last byte |
//! | 3 | expiry | in force |
//! | 4 | expiry | that was asked for |
//! | 5 | integer | created at, ms |
//! | 6 | integer | last read or write that was written down, ms |
//! | 7 | text | last `Stream-Seq` |
//! | 8 | array | closed: empty, or producer id, epoch, sequence of the closing request |
//! | 9 | map | fork: 0 source path, 1 source id, 2 position where it leaves the source, 3 position that was asked for, 4 sub-offset, 5 distance from the root |
//! | 10 | integer | number of forks |
//! | 11 | bool | deleted, kept for its forks |
//! | 12 | bool | consumers may follow it by name |
//! | 13 | bool | it has a fan-out cursor |
//! | 14 | integer | position of the first byte that is kept |
//!
//! An expiry is an integer (sliding lifetime in seconds) or a pair (time in ms, the text it was
//! given as).
//!
//! Written by hand: fields 5 and 6 come before 3 and 4.

use bytes::Bytes;
use minicbor::data::Type;
use minicbor::encode::Write;
use minicbor::{Decode, Decoder, Encode, Encoder, decode, encode};
use reveille_core::producer::ProducerTag;
use reveille_core::stream::{Closed, Expiry, Fork, Head, StreamId};
use reveille_core::{ContentType, Millis, Offset, StreamPath};

use crate::codec::{self, MapWriter, Record, RecordError};

impl Record for Head {
    fn encode(&self) -> Bytes {
        let mut map = MapWriter::new(128);
        map.put(0, self.id.0);
        map.put(1, self.content_type.as_str());
        map.put(2, self.tail.position());
        map.put(5, self.created_at.0);
        map.put(6, self.touched_at.0);
        map.put_some(3, ExpiryFields::of(&self.expiry));
        map.put_some(4, ExpiryFields::of(&self.requested_expiry));
        map.put_some(7, self.stream_seq.as_deref());
        map.put_some(8, self.closed.as_ref().map(ClosedFields::from));
        map.put_some(9, self.fork.as_ref().map(ForkFields::from));
        map.put_some(10, Some(self.forks).filter(|forks| *forks > 0));
        map.put_some(11, self.soft_deleted.then_some(true));
        map.put_some(12, self.followed.then_some(true));
        map.put_some(13, self.has_fan_out.then_some(true));
        map.put_some(14, Some(self.first.position()).filter(|first| *first > 0));
        map.finish()
    }

    fn decode(value: &[u8]) -> Result<Head, RecordError> {
        codec::read::<HeadFields<'_>, _>("stream head", value)
    }
}

#[derive(Decode)]
#[cbor(map)]
struct HeadFields<'a> {
    #[cbor(n(0), default)]
    id: u64,
    #[n(1)]
    content_type: &'a str,
    #[cbor(n(2), default)]
    tail: u64,
    #[b(3)]
    expiry: Option<ExpiryFields<'a>>,
    #[b(4)]
    requested_expiry: Option<ExpiryFields<'a>>,
    #[cbor(n(5), default)]
    created_at: u64,
    #[cbor(n(6), default)]
    touched_at: u64,
    #[n(7)]
    stream_seq: Option<&'a str>,
    #[b(8)]
    closed: Option<ClosedFields<'a>>,
    #[b(9)]
    fork: Option<ForkFields<'a>>,
    #[cbor(n(10), default)]
    forks: u32,
    #[cbor(n(11), default)]
    soft_deleted: bool,
    #[cbor(n(12), default)]
    followed: bool,
    #[cbor(n(13), default)]
    has_fan_out: bool,
    #[cbor(n(14), default)]
    first: u64,
}

impl TryFrom<HeadFields<'_>> for Head {
    type Error = &'static str;

    #[inline]
    fn try_from(fields: HeadFields<'_>) -> Result<Head, &'static str> {
        Ok(Head {
            id: StreamId(fields.id),
            content_type: ContentType::parse(fields.content_type).ok_or("no content type")?,
            tail: Offset::new(fields.tail),
            first: Offset::new(fields.first),
            expiry: fields.expiry.map_or(Expiry::Never, Expiry::from),
            requested_expiry: fields.requested_expiry.map_or(Expiry::Never, Expiry::from),
            created_at: Millis(fields.created_at),
            touched_at: Millis(fields.touched_at),
            stream_seq: fields.stream_seq.map(Into::into),
            closed: fields.closed.map(Closed::try_from).transpose()?,
            fork: fields.fork.map(Fork::try_from).transpose()?,
            forks: fields.forks,
            soft_deleted: fields.soft_deleted,
            followed: fields.followed,
            has_fan_out: fields.has_fan_out,
        })
    }
}

/// Told apart by their types, which cannot be derived.
enum ExpiryFields<'a> {
    Ttl(u64),
    At(u64, &'a str),
}

impl ExpiryFields<'_> {
    fn of(expiry: &Expiry) -> Option<ExpiryFields<'_>> {
        match expiry {
            Expiry::Never => None,
            Expiry::Ttl(seconds) => Some(ExpiryFields::Ttl(*seconds)),
            Expiry::At(at, text) => Some(ExpiryFields::At(at.0, text)),
        }
    }
}

impl From<ExpiryFields<'_>> for Expiry {
    fn from(fields: ExpiryFields<'_>) -> Expiry {
        match fields {
            ExpiryFields::Ttl(seconds) => Expiry::Ttl(seconds),
            ExpiryFields::At(at, text) => Expiry::At(Millis(at), text.into()),
        }
    }
}

impl<C> Encode<C> for ExpiryFields<'_> {
    fn encode<W: Write>(
        &self,
        out: &mut Encoder<W>,
        ctx: &mut C,
    ) -> Result<(), encode::Error<W::Error>> {
        match self {
            ExpiryFields::Ttl(seconds) => out.u64(*seconds)?.ok(),
            ExpiryFields::At(at, text) => (at, text).encode(out, ctx),
        }
    }
}

impl<'b: 'a, 'a, C> Decode<'b, C> for ExpiryFields<'a> {
    fn decode(input: &mut Decoder<'b>, ctx: &mut C) -> Result<ExpiryFields<'a>, decode::Error> {
        if input.datatype()? == Type::Array {
            let (at, text) = Decode::decode(input, ctx)?;
            return Ok(ExpiryFields::At(at, text));
        }
        Ok(ExpiryFields::Ttl(input.u64()?))
    }
}

/// All of them, or none.
#[derive(Encode, Decode)]
struct ClosedFields<'a> {
    #[n(0)]
    id: Option<&'a str>,
    #[n(1)]
    epoch: Option<u64>,
    #[n(2)]
    seq: Option<u64>,
}

impl<'a> From<&'a Closed> for ClosedFields<'a> {
    fn from(closed: &'a Closed) -> ClosedFields<'a> {
        let by = closed.by.as_ref();
        ClosedFields {
            id: by.map(|tag| &*tag.id),
            epoch: by.map(|tag| tag.epoch),
            seq: by.map(|tag| tag.seq),
        }
    }
}

impl TryFrom<ClosedFields<'_>> for Closed {
    type Error = &'static str;

    fn try_from(fields: ClosedFields<'_>) -> Result<Closed, &'static str> {
        match (fields.id, fields.epoch, fields.seq) {
            (None, None, None) => Ok(Closed { by: None }),
            (Some(id), Some(epoch), Some(seq)) => {
                Ok(Closed { by: Some(ProducerTag { id: id.into(), epoch, seq }) })
            }
            _ => Err("half a producer"),
        }
    }
}

#[derive(Encode, Decode)]
#[cbor(map)]
struct ForkFields<'a> {
    #[n(0)]
    source: &'a str,
    #[cbor(n(1), default)]
    source_id: u64,
    #[cbor(n(2), default)]
    at: u64,
    #[n(3)]
    requested_at: Option<u64>,
    #[cbor(n(4), default)]
    sub_offset: u64,
    #[n(5)]
    depth: Option<u32>,
}

impl<'a> From<&'a Fork> for ForkFields<'a> {
    fn from(fork: &'a Fork) -> ForkFields<'a> {
        ForkFields {
            source: fork.source.as_str(),
            source_id: fork.source_id.0,
            at: fork.at.position(),
            requested_at: fork.requested_at.map(Offset::position),
            sub_offset: fork.sub_offset,
            depth: Some(fork.depth),
        }
    }
}

impl TryFrom<ForkFields<'_>> for Fork {
    type Error = &'static str;

    fn try_from(fields: ForkFields<'_>) -> Result<Fork, &'static str> {
        Ok(Fork {
            source: StreamPath::parse(fields.source).map_err(|_| "no fork source")?,
            source_id: StreamId(fields.source_id),
            at: Offset::new(fields.at),
            requested_at: fields.requested_at.map(Offset::new),
            sub_offset: fields.sub_offset,
            depth: fields.depth.unwrap_or(1),
        })
    }
}
