//! A chunk: consecutive appends of one stream as one value, ready for the wire.
//!
//! | bytes | what |
//! |---|---|
//! | 4 | number of appends, little-endian; bit 31: the first began in the chunk before; bit 30: the last goes on in the next |
//! | 4 each | length of each append, as far as it is in this chunk, little-endian |
//! | rest | the appends' stored bytes, one after another |
//!
//! The position of the first byte is in the key. Boundaries between appends are kept because
//! forks begin at them and readers resume at them. A long append is cut into several chunks, so
//! that nobody has to hold all of it in memory to send it.

use bytes::{BufMut, Bytes, BytesMut};

/// The first append began in the chunk before.
const CONTINUES: u32 = 1 << 31;
/// The last append goes on in the next chunk.
const UNFINISHED: u32 = 1 << 30;

/// One chunk, with its place in the stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk {
    start: u64,
    continues: bool,
    unfinished: bool,
    lens: Bytes,
    payload: Bytes,
}

/// The value is not a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a chunk whose lengths do not fit its bytes")]
pub struct ChunkError;

impl Chunk {
    /// Reads a chunk that starts at `start`.
    pub fn decode(start: u64, value: &Bytes) -> Result<Chunk, ChunkError> {
        let count = value.first_chunk::<4>().ok_or(ChunkError)?;
        let head = u32::from_le_bytes(*count);
        let count = usize::try_from(head & !(CONTINUES | UNFINISHED)).map_err(|_| ChunkError)?;
        let payload_at = count.checked_mul(4).and_then(|n| n.checked_add(4)).ok_or(ChunkError)?;
        if payload_at > value.len() {
            return Err(ChunkError);
        }
        let chunk = Chunk {
            start,
            continues: head & CONTINUES != 0,
            unfinished: head & UNFINISHED != 0,
            lens: value.slice(4..payload_at),
            payload: value.slice(payload_at..),
        };
        let total: u64 = chunk.append_lens().sum();
        if total != chunk.len() {
            return Err(ChunkError);
        }
        Ok(chunk)
    }

    /// Writes a chunk of these appends.
    pub fn encode<'a>(
        out: &mut BytesMut,
        appends: impl ExactSizeIterator<Item = &'a Bytes> + Clone,
    ) {
        out.put_u32_le(u32::try_from(appends.len()).unwrap_or(u32::MAX));
        for append in appends.clone() {
            out.put_u32_le(u32::try_from(append.len()).unwrap_or(u32::MAX));
        }
        for append in appends {
            out.put_slice(append);
        }
    }

    /// Writes a part of one long append.
    pub fn encode_part(part: &[u8], first: bool, last: bool) -> Bytes {
        let mut out = BytesMut::with_capacity(8 + part.len());
        let continues = if first { 0 } else { CONTINUES };
        let unfinished = if last { 0 } else { UNFINISHED };
        out.put_u32_le(1 | continues | unfinished);
        out.put_u32_le(u32::try_from(part.len()).unwrap_or(u32::MAX));
        out.put_slice(part);
        out.freeze()
    }

    /// The position of its first byte.
    pub fn start(&self) -> u64 {
        self.start
    }

    /// The position after its last byte.
    pub fn end(&self) -> u64 {
        self.start + self.len()
    }

    pub fn len(&self) -> u64 {
        u64::try_from(self.payload.len()).unwrap_or(u64::MAX)
    }

    pub fn is_empty(&self) -> bool {
        self.payload.is_empty()
    }

    /// The stored bytes from one position to another, as far as this chunk has them.
    pub fn slice(&self, from: u64, to: u64) -> Bytes {
        let clamp = |at: u64| {
            let at = at.clamp(self.start, self.end()) - self.start;
            usize::try_from(at).unwrap_or(usize::MAX)
        };
        let (from, to) = (clamp(from), clamp(to));
        if from >= to { Bytes::new() } else { self.payload.slice(from..to) }
    }

    /// Whether its first append began in the chunk before.
    pub fn continues(&self) -> bool {
        self.continues
    }

    /// Whether its last append goes on in the next chunk.
    pub fn is_unfinished(&self) -> bool {
        self.unfinished
    }

    /// Whether an append begins or ends at this position.
    pub fn is_boundary(&self, position: u64) -> bool {
        if position == self.start {
            return !self.continues;
        }
        if position == self.end() {
            return !self.unfinished;
        }
        self.boundaries().any(|end| end == position)
    }

    /// The append that begins at this position, as far as this chunk has it.
    pub fn append_at(&self, position: u64) -> Option<Bytes> {
        if self.continues && position == self.start {
            return None;
        }
        let mut begin = self.start;
        for end in self.boundaries() {
            if begin == position {
                return Some(self.slice(begin, end));
            }
            begin = end;
        }
        None
    }

    /// Its appends, in order.
    pub fn appends(&self) -> impl Iterator<Item = Bytes> + '_ {
        self.boundaries().scan(self.start, |begin, end| {
            let append = self.slice(*begin, end);
            *begin = end;
            Some(append)
        })
    }

    /// The part of the chunk from this boundary on; `None` if it is not one.
    pub fn split_from(&self, position: u64) -> Option<Chunk> {
        let before = self.boundaries().position(|end| end == position)?;
        let lens = self.lens.slice((before + 1) * 4..);
        Some(Chunk {
            start: position,
            continues: false,
            unfinished: self.unfinished,
            lens,
            payload: self.slice(position, self.end()),
        })
    }

    fn append_lens(&self) -> impl Iterator<Item = u64> + '_ {
        self.lens.as_chunks::<4>().0.iter().map(|len| u64::from(u32::from_le_bytes(*len)))
    }

    /// Where each append ends.
    fn boundaries(&self) -> impl Iterator<Item = u64> + '_ {
        self.append_lens().scan(self.start, |at, len| {
            *at += len;
            Some(*at)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(start: u64, appends: &[&str]) -> Chunk {
        let appends: Vec<Bytes> =
            appends.iter().map(|text| Bytes::copy_from_slice(text.as_bytes())).collect();
        let mut value = BytesMut::new();
        Chunk::encode(&mut value, appends.iter());
        Chunk::decode(start, &value.freeze()).unwrap()
    }

    #[test]
    fn slices_and_boundaries() {
        let chunk = chunk(10, &["ab", "cde", "f"]);
        assert_eq!((chunk.start(), chunk.end()), (10, 16));
        assert_eq!(chunk.slice(0, 99), "abcdef");
        assert_eq!(chunk.slice(11, 13), "bc");
        assert_eq!(chunk.slice(13, 11), "");
        let boundaries: Vec<u64> = (9..18).filter(|at| chunk.is_boundary(*at)).collect();
        assert_eq!(boundaries, [10, 12, 15, 16]);
        assert_eq!(chunk.append_at(12), Some(Bytes::from_static(b"cde")));
        assert_eq!(chunk.append_at(13), None);
        assert_eq!(chunk.append_at(16), None);
    }

    #[test]
    fn a_chunk_splits_at_its_boundaries() {
        let whole = chunk(0, &["a", "bc", "d"]);
        assert_eq!(whole.split_from(3), Some(chunk(3, &["d"])));
        assert_eq!(whole.split_from(2), None);
        let appends: Vec<Bytes> = whole.appends().collect();
        assert_eq!(appends, ["a", "bc", "d"]);
    }

    #[test]
    fn parts_of_a_long_append_have_no_boundary_between_them() {
        let part =
            |at, first, last| Chunk::decode(at, &Chunk::encode_part(b"abc", first, last)).unwrap();
        let (first, middle, last) =
            (part(0, true, false), part(3, false, false), part(6, false, true));
        let boundary = |chunk: &Chunk, at| chunk.is_boundary(at);
        assert!(boundary(&first, 0) && !boundary(&first, 3));
        assert!(!boundary(&middle, 3) && !boundary(&middle, 6));
        assert!(!boundary(&last, 6) && boundary(&last, 9));
        assert_eq!(first.append_at(0), Some(Bytes::from_static(b"abc")));
        assert_eq!(middle.append_at(3), None);
    }

    #[test]
    fn damaged_values_are_refused() {
        for bad in [&b""[..], b"\x01\0\0", b"\x01\0\0\0", b"\x01\0\0\0\x05\0\0\0ab"] {
            assert_eq!(Chunk::decode(0, &Bytes::from_static(bad)), Err(ChunkError));
        }
        assert_eq!(Chunk::decode(0, &Bytes::from_static(b"\xff\xff\xff\xff")), Err(ChunkError));
    }
}
