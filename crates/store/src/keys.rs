//! Every key of the state, in one place.
//!
//! A key begins with a tag byte. Tags are persisted: they are never changed and never reused.
//! Integers are big-endian, so that byte order is the order of the numbers.
//!
//! | tag | key | value |
//! |---|---|---|
//! | `01` meta | name | see [`Meta`] |
//! | `02` stream | tenant, `00`, path | [`Head`](reveille_core::stream::Head) as CBOR ([`crate::record`]) |
//! | `03` producer | stream id `u64`, producer id | epoch and sequence as CBOR |
//! | `04` chunk | stream id `u64`, first position `u64` | consecutive appends ([`crate::chunk`]) |
//! | `05` due | due time in ms `u64`, kind `u8`, subject | empty: the key says it all ([`Due`]) |

use bytes::{BufMut, Bytes, BytesMut};
use reveille_core::stream::StreamId;
use reveille_core::{Millis, StreamPath, Tenant};

const META: u8 = 0x01;
const STREAM: u8 = 0x02;
const PRODUCER: u8 = 0x03;
/// Chunks live in a table of their own; see [`is_chunk`].
const CHUNK: u8 = 0x04;
const DUE: u8 = 0x05;

const DUE_EXPIRE: u8 = 0x01;
const DUE_PURGE: u8 = 0x02;
const DUE_RELEASE: u8 = 0x03;

/// The names under the meta tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Meta {
    /// `probe`: when somebody last asked whether writing works, ms, `u64` big-endian.
    Probe,
    /// `next_stream_id`: an id that no stream has had yet, `u64` big-endian.
    NextStreamId,
}

/// The key of a meta value.
pub fn meta(name: Meta) -> Bytes {
    match name {
        Meta::Probe => named("probe"),
        Meta::NextStreamId => named("next_stream_id"),
    }
}

fn named(name: &str) -> Bytes {
    let mut key = BytesMut::with_capacity(1 + name.len());
    key.put_u8(META);
    key.put_slice(name.as_bytes());
    key.freeze()
}

/// The key of a stream's head.
pub fn stream(tenant: &Tenant, path: &StreamPath) -> Bytes {
    stream_prefix(tenant, path.as_str())
}

/// The beginning of the keys of all streams of a tenant whose path begins with `prefix`.
pub fn stream_prefix(tenant: &Tenant, prefix: &str) -> Bytes {
    let mut key = BytesMut::with_capacity(2 + tenant.as_str().len() + prefix.len());
    key.put_u8(STREAM);
    key.put_slice(tenant.as_str().as_bytes());
    key.put_u8(0);
    key.put_slice(prefix.as_bytes());
    key.freeze()
}

/// The first key that does not begin with this prefix.
pub fn after_prefix(prefix: &[u8]) -> Bytes {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            break;
        }
    }
    end.into()
}

/// The partition that a tenant lives in. Persisted by its consequences: never changed.
pub fn partition_of(tenant: &Tenant, partitions: u32) -> u32 {
    crc32c::crc32c(tenant.as_str().as_bytes()) % partitions.max(1)
}

/// The tenant and path of a stream's key.
pub fn parse_stream(key: &[u8]) -> Option<(Tenant, StreamPath)> {
    parse_subject(key.strip_prefix(&[STREAM])?)
}

/// The key of a producer's state in a stream.
pub fn producer(id: StreamId, producer: &str) -> Bytes {
    let mut key = BytesMut::with_capacity(9 + producer.len());
    key.put_u8(PRODUCER);
    key.put_u64(id.0);
    key.put_slice(producer.as_bytes());
    key.freeze()
}

/// All keys of a stream's producers: from the first, to before the second.
pub fn producers(id: StreamId) -> (Bytes, Bytes) {
    (tagged(PRODUCER, id.0), tagged(PRODUCER, id.0 + 1))
}

/// The key of the chunk that begins at `start`.
pub fn chunk(id: StreamId, start: u64) -> Bytes {
    let mut key = BytesMut::with_capacity(17);
    key.put_u8(CHUNK);
    key.put_u64(id.0);
    key.put_u64(start);
    key.freeze()
}

/// All keys of a stream's chunks: from the first, to before the second.
pub fn chunks(id: StreamId) -> (Bytes, Bytes) {
    (tagged(CHUNK, id.0), tagged(CHUNK, id.0 + 1))
}

/// Whether the key is a chunk's.
pub fn is_chunk(key: &[u8]) -> bool {
    key.first() == Some(&CHUNK)
}

/// The stream and first position of a chunk's key.
pub fn parse_chunk(key: &[u8]) -> Option<(StreamId, u64)> {
    let (id, start) = key.strip_prefix(&[CHUNK])?.split_first_chunk::<8>()?;
    Some((StreamId(u64::from_be_bytes(*id)), u64::from_be_bytes(start.try_into().ok()?)))
}

fn tagged(tag: u8, id: u64) -> Bytes {
    let mut key = BytesMut::with_capacity(9);
    key.put_u8(tag);
    key.put_u64(id);
    key.freeze()
}

/// An obligation: something that must happen at a time, whatever crashes before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Due {
    /// The stream may have expired: look, and end it or come back later.
    Expire(Tenant, StreamPath),
    /// The bytes and producers of an ended incarnation are to be removed.
    Purge(StreamId),
    /// A fork of this stream has ended: count it off, and end the stream if it was kept for it.
    Release(Tenant, StreamPath),
}

/// The key of an obligation.
pub fn due(at: Millis, due: &Due) -> Bytes {
    let mut key = BytesMut::with_capacity(64);
    key.put_u8(DUE);
    key.put_u64(at.0);
    match due {
        Due::Expire(tenant, path) => put_subject(&mut key, DUE_EXPIRE, tenant, path),
        Due::Release(tenant, path) => put_subject(&mut key, DUE_RELEASE, tenant, path),
        Due::Purge(id) => {
            key.put_u8(DUE_PURGE);
            key.put_u64(id.0);
        }
    }
    key.freeze()
}

/// A release is told apart from others of the same source by the fork that ended.
pub fn due_release(at: Millis, tenant: &Tenant, source: &StreamPath, fork: StreamId) -> Bytes {
    let mut key = BytesMut::from(due(at, &Due::Release(tenant.clone(), source.clone())).as_ref());
    key.put_u8(0);
    key.put_u64(fork.0);
    key.freeze()
}

/// Where the obligations of a time begin.
pub fn due_from(at: Millis) -> Bytes {
    tagged(DUE, at.0)
}

/// After the last obligation.
pub fn due_end() -> Bytes {
    Bytes::from_static(&[DUE + 1])
}

/// All obligations up to and including a time: from the first key, to before the second.
pub fn due_until(at: Millis) -> (Bytes, Bytes) {
    (tagged(DUE, 0), tagged(DUE, at.0.saturating_add(1)))
}

/// The time and content of an obligation's key.
pub fn parse_due(key: &[u8]) -> Option<(Millis, Due)> {
    let (at, rest) = key.strip_prefix(&[DUE])?.split_first_chunk::<8>()?;
    let (kind, subject) = rest.split_first()?;
    let due = match *kind {
        DUE_EXPIRE => parse_subject(subject).map(|(tenant, path)| Due::Expire(tenant, path))?,
        DUE_PURGE => Due::Purge(StreamId(u64::from_be_bytes(subject.try_into().ok()?))),
        DUE_RELEASE => {
            let (subject, _fork) = subject.split_at_checked(subject.len().checked_sub(9)?)?;
            parse_subject(subject).map(|(tenant, path)| Due::Release(tenant, path))?
        }
        _ => return None,
    };
    Some((Millis(u64::from_be_bytes(*at)), due))
}

fn put_subject(key: &mut BytesMut, kind: u8, tenant: &Tenant, path: &StreamPath) {
    key.put_u8(kind);
    key.put_slice(tenant.as_str().as_bytes());
    key.put_u8(0);
    key.put_slice(path.as_str().as_bytes());
}

fn parse_subject(subject: &[u8]) -> Option<(Tenant, StreamPath)> {
    let text = std::str::from_utf8(subject).ok()?;
    let (tenant, path) = text.split_once('\0')?;
    Some((Tenant::parse(tenant).ok()?, StreamPath::parse(path).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subject() -> (Tenant, StreamPath) {
        (Tenant::parse("acme").unwrap(), StreamPath::parse("/a/b").unwrap())
    }

    #[test]
    fn keys_read_back() {
        let (tenant, path) = subject();
        assert_eq!(parse_stream(&stream(&tenant, &path)), Some((tenant.clone(), path.clone())));
        assert_eq!(parse_chunk(&chunk(StreamId(7), 42)), Some((StreamId(7), 42)));
        for obligation in [Due::Expire(tenant.clone(), path.clone()), Due::Purge(StreamId(9))] {
            let key = due(Millis(5), &obligation);
            assert_eq!(parse_due(&key), Some((Millis(5), obligation)));
        }
        let key = due_release(Millis(5), &tenant, &path, StreamId(3));
        assert_eq!(parse_due(&key), Some((Millis(5), Due::Release(tenant, path))));
    }

    #[test]
    fn damaged_keys_are_nothing() {
        assert_eq!(parse_stream(b"\x02acme/a"), None);
        assert_eq!(parse_chunk(b"\x04short"), None);
        assert_eq!(parse_due(b"\x05\0\0\0\0\0\0\0\x01\x09x"), None);
        assert_eq!(parse_due(b"\x05\0\0\0\0\0\0\0\x01\x03x"), None);
    }

    #[test]
    fn byte_order_is_time_order_and_position_order() {
        let (tenant, path) = subject();
        let early = due(Millis(255), &Due::Expire(tenant, path));
        let late = due(Millis(256), &Due::Purge(StreamId(1)));
        assert!(early < late);
        let (from, to) = due_until(Millis(255));
        assert!(from <= early && early < to && to <= late);
        assert!(chunk(StreamId(1), 255) < chunk(StreamId(1), 256));
        assert!(chunk(StreamId(1), u64::MAX) < chunk(StreamId(2), 0));
    }
}
