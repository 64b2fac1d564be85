//! How the state's values are written: CBOR maps with small integer keys.
//!
//! A field's number is persisted and never reused; absent fields have their default, unknown ones
//! are skipped, so that a newer server reads what an older one wrote.

mod consumer;
mod delivery;
mod fan_out;
mod hook;
mod key;
mod subscription;

use std::sync::Arc;

use bytes::Bytes;
use minicbor::data::Type;
use minicbor::{Decoder, Encoder};
use reveille_core::producer::{ProducerState, ProducerTag};
use reveille_core::stream::{Closed, Expiry, Fork, Head, StreamId};
use reveille_core::{ContentType, Millis, Offset, StreamPath};

pub use consumer::{
    ConsumerRecord, LinkRecord, decode_consumer, decode_link, encode_consumer, encode_link,
};
pub use delivery::{
    DeliveryRecord, EventRecord, decode_delivery, decode_delivery_counts, decode_delivery_group,
    decode_event, decode_lane, encode_delivery, encode_delivery_counts, encode_delivery_group,
    encode_event, encode_lane,
};
pub use fan_out::{decode_fan_out_cursor, encode_fan_out_cursor};
pub use hook::{decode_hook, encode_hook};
pub use key::{decode_key, encode_key};
pub use subscription::{
    SigningKey, decode_signing_keys, decode_subscription, encode_signing_keys, encode_subscription,
};

/// The value is damaged, or of a kind that this server does not know.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a stored {what} cannot be read: {why}")]
pub struct RecordError {
    what: &'static str,
    why: String,
}

mod head {
    pub(super) const ID: u32 = 0;
    pub(super) const CONTENT_TYPE: u32 = 1;
    pub(super) const TAIL: u32 = 2;
    pub(super) const EXPIRY: u32 = 3;
    pub(super) const REQUESTED_EXPIRY: u32 = 4;
    pub(super) const CREATED_AT: u32 = 5;
    pub(super) const TOUCHED_AT: u32 = 6;
    pub(super) const STREAM_SEQ: u32 = 7;
    pub(super) const CLOSED: u32 = 8;
    pub(super) const FORK: u32 = 9;
    pub(super) const FORKS: u32 = 10;
    pub(super) const SOFT_DELETED: u32 = 11;
    pub(super) const FOLLOWED: u32 = 12;
    pub(super) const CROWDED: u32 = 13;
    pub(super) const FIRST: u32 = 14;
}

type Writer = Encoder<Vec<u8>>;
type Written = Result<(), minicbor::encode::Error<std::convert::Infallible>>;
type Read<T> = Result<T, minicbor::decode::Error>;

/// Writes a stream's head.
pub fn encode_head(head: &Head) -> Bytes {
    finish(128, |out| write_head(out, head))
}

/// Reads a stream's head.
pub fn decode_head(value: &[u8]) -> Result<Head, RecordError> {
    let whole =
        |why: minicbor::decode::Error| RecordError { what: "stream head", why: why.to_string() };
    read_head(&mut Decoder::new(value)).map_err(whole)
}

/// Writes a producer's state.
pub fn encode_producer(state: ProducerState) -> Bytes {
    finish(24, |out| {
        out.map(2)?.u32(0)?.u64(state.epoch)?.u32(1)?.u64(state.seq)?;
        Ok(())
    })
}

/// Reads a producer's state.
pub fn decode_producer(value: &[u8]) -> Result<ProducerState, RecordError> {
    let mut state = ProducerState { epoch: 0, seq: 0 };
    fields(&mut Decoder::new(value), |field, input| {
        match field {
            0 => state.epoch = input.u64()?,
            1 => state.seq = input.u64()?,
            _ => input.skip()?,
        }
        Ok(())
    })
    .map_err(|why| RecordError { what: "producer", why: why.to_string() })?;
    Ok(state)
}

/// Writes a counter.
pub fn encode_u64(value: u64) -> Bytes {
    Bytes::copy_from_slice(&value.to_be_bytes())
}

/// Reads a counter.
pub fn decode_u64(value: &[u8]) -> Result<u64, RecordError> {
    let bytes = value.try_into().map_err(|_| RecordError {
        what: "counter",
        why: format!("{} bytes long instead of 8", value.len()),
    })?;
    Ok(u64::from_be_bytes(bytes))
}

fn finish(capacity: usize, write: impl FnOnce(&mut Writer) -> Written) -> Bytes {
    let mut out = Encoder::new(Vec::with_capacity(capacity));
    write(&mut out).expect("writing to memory cannot fail");
    out.into_writer().into()
}

fn write_head(out: &mut Writer, head: &Head) -> Written {
    let optional = [
        head.expiry != Expiry::Never,
        head.requested_expiry != Expiry::Never,
        head.stream_seq.is_some(),
        head.closed.is_some(),
        head.fork.is_some(),
        head.forks > 0,
        head.soft_deleted,
        head.followed,
        head.has_fan_out,
        head.first > Offset::ZERO,
    ];
    let count = optional.iter().filter(|there| **there).count();
    out.map(5 + u64::try_from(count).unwrap_or(0))?;
    out.u32(head::ID)?.u64(head.id.0)?;
    out.u32(head::CONTENT_TYPE)?.str(head.content_type.as_str())?;
    out.u32(head::TAIL)?.u64(head.tail.position())?;
    out.u32(head::CREATED_AT)?.u64(head.created_at.0)?;
    out.u32(head::TOUCHED_AT)?.u64(head.touched_at.0)?;
    if head.expiry != Expiry::Never {
        out.u32(head::EXPIRY)?;
        write_expiry(out, &head.expiry)?;
    }
    if head.requested_expiry != Expiry::Never {
        out.u32(head::REQUESTED_EXPIRY)?;
        write_expiry(out, &head.requested_expiry)?;
    }
    if let Some(seq) = &head.stream_seq {
        out.u32(head::STREAM_SEQ)?.str(seq)?;
    }
    if let Some(closed) = &head.closed {
        out.u32(head::CLOSED)?;
        match &closed.by {
            None => out.array(0)?,
            Some(tag) => out.array(3)?.str(&tag.id)?.u64(tag.epoch)?.u64(tag.seq)?,
        };
    }
    if let Some(fork) = &head.fork {
        out.u32(head::FORK)?;
        write_fork(out, fork)?;
    }
    if head.forks > 0 {
        out.u32(head::FORKS)?.u32(head.forks)?;
    }
    if head.soft_deleted {
        out.u32(head::SOFT_DELETED)?.bool(true)?;
    }
    if head.followed {
        out.u32(head::FOLLOWED)?.bool(true)?;
    }
    if head.has_fan_out {
        out.u32(head::CROWDED)?.bool(true)?;
    }
    if head.first > Offset::ZERO {
        out.u32(head::FIRST)?.u64(head.first.position())?;
    }
    Ok(())
}

/// A number is a sliding lifetime in seconds; a pair is a moment and the text it was given as.
fn write_expiry(out: &mut Writer, expiry: &Expiry) -> Written {
    match expiry {
        Expiry::Never => out.null()?,
        Expiry::Ttl(seconds) => out.u64(*seconds)?,
        Expiry::At(at, text) => out.array(2)?.u64(at.0)?.str(text)?,
    };
    Ok(())
}

fn write_fork(out: &mut Writer, fork: &Fork) -> Written {
    out.map(5 + u64::from(fork.requested_at.is_some()))?;
    out.u32(0)?.str(fork.source.as_str())?;
    out.u32(1)?.u64(fork.source_id.0)?;
    out.u32(2)?.u64(fork.at.position())?;
    if let Some(at) = fork.requested_at {
        out.u32(3)?.u64(at.position())?;
    }
    out.u32(4)?.u64(fork.sub_offset)?;
    out.u32(5)?.u32(fork.depth)?;
    Ok(())
}

fn read_head(input: &mut Decoder<'_>) -> Read<Head> {
    let mut content_type = None;
    let mut head = Head {
        id: StreamId(0),
        content_type: ContentType::octet_stream(),
        tail: Offset::ZERO,
        first: Offset::ZERO,
        expiry: Expiry::Never,
        requested_expiry: Expiry::Never,
        created_at: Millis(0),
        touched_at: Millis(0),
        stream_seq: None,
        closed: None,
        fork: None,
        forks: 0,
        soft_deleted: false,
        followed: false,
        has_fan_out: false,
    };
    fields(input, |field, input| {
        match field {
            head::ID => head.id = StreamId(input.u64()?),
            head::CONTENT_TYPE => content_type = ContentType::parse(input.str()?),
            head::TAIL => head.tail = Offset::new(input.u64()?),
            head::EXPIRY => head.expiry = read_expiry(input)?,
            head::REQUESTED_EXPIRY => head.requested_expiry = read_expiry(input)?,
            head::CREATED_AT => head.created_at = Millis(input.u64()?),
            head::TOUCHED_AT => head.touched_at = Millis(input.u64()?),
            head::STREAM_SEQ => head.stream_seq = Some(input.str()?.into()),
            head::CLOSED => head.closed = Some(read_closed(input)?),
            head::FORK => head.fork = Some(read_fork(input)?),
            head::FORKS => head.forks = input.u32()?,
            head::SOFT_DELETED => head.soft_deleted = input.bool()?,
            head::FOLLOWED => head.followed = input.bool()?,
            head::CROWDED => head.has_fan_out = input.bool()?,
            head::FIRST => head.first = Offset::new(input.u64()?),
            _ => input.skip()?,
        }
        Ok(())
    })?;
    head.content_type =
        content_type.ok_or_else(|| minicbor::decode::Error::message("no content type"))?;
    Ok(head)
}

fn read_expiry(input: &mut Decoder<'_>) -> Read<Expiry> {
    match input.datatype()? {
        Type::Null => {
            input.null()?;
            Ok(Expiry::Never)
        }
        Type::Array => {
            input.array()?;
            let at = Millis(input.u64()?);
            Ok(Expiry::At(at, Arc::from(input.str()?)))
        }
        _ => Ok(Expiry::Ttl(input.u64()?)),
    }
}

fn read_closed(input: &mut Decoder<'_>) -> Read<Closed> {
    if input.array()? != Some(3) {
        return Ok(Closed { by: None });
    }
    let id = Arc::from(input.str()?);
    let by = ProducerTag { id, epoch: input.u64()?, seq: input.u64()? };
    Ok(Closed { by: Some(by) })
}

fn read_fork(input: &mut Decoder<'_>) -> Read<Fork> {
    let mut source = None;
    let (mut source_id, mut at, mut requested_at) = (StreamId(0), Offset::ZERO, None);
    let (mut sub_offset, mut depth) = (0, 1);
    fields(input, |field, input| {
        match field {
            0 => source = StreamPath::parse(input.str()?).ok(),
            1 => source_id = StreamId(input.u64()?),
            2 => at = Offset::new(input.u64()?),
            3 => requested_at = Some(Offset::new(input.u64()?)),
            4 => sub_offset = input.u64()?,
            5 => depth = input.u32()?,
            _ => input.skip()?,
        }
        Ok(())
    })?;
    let source = source.ok_or_else(|| minicbor::decode::Error::message("no fork source"))?;
    Ok(Fork { source, source_id, at, requested_at, sub_offset, depth })
}

/// Walks over a map with integer keys.
fn fields<'b>(
    input: &mut Decoder<'b>,
    mut each: impl FnMut(u32, &mut Decoder<'b>) -> Read<()>,
) -> Read<()> {
    let count = input.map()?.ok_or_else(|| minicbor::decode::Error::message("open-ended map"))?;
    for _ in 0..count {
        let field = input.u32()?;
        each(field, input)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full_head() -> Head {
        let tag = ProducerTag { id: "p".into(), epoch: 3, seq: 4 };
        Head {
            id: StreamId(u64::MAX),
            content_type: ContentType::parse("text/plain; charset=utf-8").unwrap(),
            tail: Offset::new(12),
            first: Offset::new(5),
            expiry: Expiry::At(Millis(9), "1970-01-01T00:00:00.009Z".into()),
            requested_expiry: Expiry::Ttl(60),
            created_at: Millis(1),
            touched_at: Millis(2),
            stream_seq: Some("007".into()),
            closed: Some(Closed { by: Some(tag) }),
            fork: Some(Fork {
                source: StreamPath::parse("/src").unwrap(),
                source_id: StreamId(5),
                at: Offset::new(6),
                requested_at: Some(Offset::new(6)),
                sub_offset: 2,
                depth: 1,
            }),
            forks: 3,
            soft_deleted: true,
            followed: true,
            has_fan_out: true,
        }
    }

    #[test]
    fn heads_read_back() {
        let full = full_head();
        assert_eq!(decode_head(&encode_head(&full)), Ok(full.clone()));
        let plain = Head {
            first: Offset::ZERO,
            expiry: Expiry::Never,
            requested_expiry: Expiry::Never,
            stream_seq: None,
            closed: Some(Closed { by: None }),
            fork: None,
            forks: 0,
            soft_deleted: false,
            followed: false,
            has_fan_out: false,
            ..full
        };
        assert_eq!(decode_head(&encode_head(&plain)), Ok(plain));
    }

    #[test]
    fn producers_and_counters_read_back() {
        let state = ProducerState { epoch: 7, seq: u64::MAX };
        assert_eq!(decode_producer(&encode_producer(state)), Ok(state));
        assert_eq!(decode_u64(&encode_u64(42)), Ok(42));
        assert!(decode_u64(b"short").is_err());
    }

    #[test]
    fn unknown_fields_are_skipped_and_damage_is_an_error() {
        let mut out = Encoder::new(Vec::new());
        out.map(3).unwrap().u32(0).unwrap().u64(1).unwrap();
        out.u32(99).unwrap().str("later").unwrap().u32(1).unwrap().u64(2).unwrap();
        let value = out.into_writer();
        assert_eq!(decode_producer(&value), Ok(ProducerState { epoch: 1, seq: 2 }));
        let whole = encode_head(&full_head());
        for cut in 0..whole.len() {
            assert!(decode_head(&whole[..cut]).is_err(), "cut at {cut}");
        }
    }
}
