//! The keys that the store itself must know: bytes of blobs are kept in chunks, apart from
//! everything else.
//!
//! | tag | key | value |
//! |---|---|---|
//! | `04` chunk | blob id `u64`, first position `u64` | consecutive appends ([`crate::chunk`]); see [`trim`] |
//!
//! All other tags are the business of whoever writes them; the store only keeps them in order.

use bytes::{BufMut, Bytes, BytesMut};

/// Bytes that are only ever appended to, and read by position.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlobId(pub u64);

const CHUNK: u8 = 0x04;

/// No blob has so many bytes.
const TRIM_POSITION: u64 = u64::MAX;

/// How long the key of a chunk is.
pub(crate) const CHUNK_KEY_BYTES: usize = 17;

/// The key of the chunk that begins at `start`.
pub fn chunk(id: BlobId, start: u64) -> Bytes {
    let mut key = BytesMut::with_capacity(CHUNK_KEY_BYTES);
    key.put_u8(CHUNK);
    key.put_u64(id.0);
    key.put_u64(start);
    key.freeze()
}

/// The key that says from where on a blob's bytes are kept, as `u64`; it comes after all of its
/// chunks, and the table does as it says and does not have it.
pub fn trim(id: BlobId) -> Bytes {
    chunk(id, TRIM_POSITION)
}

/// Whether a chunk's key is that one.
pub(crate) fn is_trim(key: &[u8]) -> bool {
    parse_chunk(key).is_some_and(|(_, position)| position == TRIM_POSITION)
}

/// All keys of a blob's chunks: from the first, to before the second.
pub fn chunks(id: BlobId) -> (Bytes, Bytes) {
    (of_blob(id.0), of_blob(id.0 + 1))
}

/// Whether the key is a chunk's.
pub fn is_chunk(key: &[u8]) -> bool {
    key.first() == Some(&CHUNK)
}

/// The blob and first position of a chunk's key.
pub fn parse_chunk(key: &[u8]) -> Option<(BlobId, u64)> {
    let (id, start) = key.strip_prefix(&[CHUNK])?.split_first_chunk::<8>()?;
    Some((BlobId(u64::from_be_bytes(*id)), u64::from_be_bytes(start.try_into().ok()?)))
}

fn of_blob(id: u64) -> Bytes {
    let mut key = BytesMut::with_capacity(9);
    key.put_u8(CHUNK);
    key.put_u64(id);
    key.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_read_back_in_the_order_of_positions() {
        assert_eq!(parse_chunk(&chunk(BlobId(7), 42)), Some((BlobId(7), 42)));
        assert_eq!(parse_chunk(b"\x04short"), None);
        let (from, to) = chunks(BlobId(7));
        assert!(from <= chunk(BlobId(7), 0) && chunk(BlobId(7), 255) < chunk(BlobId(7), 256));
        assert!(is_trim(&trim(BlobId(7))) && trim(BlobId(7)) < to);
    }
}
