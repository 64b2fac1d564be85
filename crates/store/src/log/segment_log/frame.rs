//! Records and marks: the frames a segment is made of, byte by byte.
//!
//! ```text
//! 0   magic        u32   of a record or of a mark, each xor the upper half of the salt
//! 4   len          u32   bytes of payload; in a mark 0 = idle, 1 = continued
//! 8   seq          u64   of the record; in a mark that of the next record
//! 16  payload crc  u32   of payload and padding; in a mark 0
//! 20  header crc   u32   of the twenty bytes before
//! 24  payload, then zeros up to the next multiple of 16
//! ```
//!
//! Integers are little-endian, checksums CRC-32C that start from the lower half of the salt. The
//! salt is new with every use of a segment and known to nobody outside: neither a record that an
//! earlier use left behind nor bytes chosen by a user can pass for a frame.

pub(super) const HEADER_BYTES: usize = 24;
/// Frames begin at multiples of this.
pub(super) const ALIGN: u64 = 16;
/// What a mark takes; kept free behind the last record of a segment, so that a mark always fits.
pub(super) const MARK_BYTES: u64 = (HEADER_BYTES as u64).next_multiple_of(ALIGN);

const RECORD: u32 = 0x6472_6f63;
const MARK: u32 = 0x6b72_616d;

/// What the salt of a segment makes of the constants.
#[derive(Debug, Clone, Copy)]
pub(super) struct FrameKeys {
    record: u32,
    mark: u32,
    seed: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) seq: u64,
    pub(super) kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Record {
        len: u32,
        crc: u32,
    },
    /// Everything before was synced; `continued` if the log goes on in the next segment.
    Mark {
        continued: bool,
    },
}

impl FrameKeys {
    pub(super) fn new(salt: u64) -> FrameKeys {
        let mask = (salt >> 32) as u32;
        FrameKeys { record: RECORD ^ mask, mark: MARK ^ mask, seed: salt as u32 }
    }

    /// The checksum of a payload with its padding.
    pub(super) fn crc(self, bytes: &[u8]) -> u32 {
        crc32c::crc32c_append(self.seed, bytes)
    }
}

impl Header {
    pub(super) fn encode(&self, keys: FrameKeys) -> [u8; HEADER_BYTES] {
        let (magic, len, crc) = match self.kind {
            Kind::Record { len, crc } => (keys.record, len, crc),
            Kind::Mark { continued } => (keys.mark, u32::from(continued), 0),
        };
        let mut bytes = [0; HEADER_BYTES];
        bytes[0..4].copy_from_slice(&magic.to_le_bytes());
        bytes[4..8].copy_from_slice(&len.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.seq.to_le_bytes());
        bytes[16..20].copy_from_slice(&crc.to_le_bytes());
        let header_crc = keys.crc(&bytes[0..20]);
        bytes[20..24].copy_from_slice(&header_crc.to_le_bytes());
        bytes
    }

    /// Reads the header at the start of `bytes`, if there is a valid one.
    pub(super) fn decode(keys: FrameKeys, bytes: &[u8]) -> Option<Header> {
        let fields = HeaderFields::read(bytes)?;
        if fields.magic != keys.record && fields.magic != keys.mark {
            return None;
        }
        if keys.crc(bytes.get(..20)?) != fields.header_crc {
            return None;
        }
        let kind = if fields.magic == keys.record {
            Kind::Record { len: fields.len, crc: fields.crc }
        } else {
            Kind::Mark { continued: fields.len == 1 }
        };
        Some(Header { seq: fields.seq, kind })
    }

    /// What the frame takes in the segment.
    pub(super) fn frame_bytes(&self) -> u64 {
        match self.kind {
            Kind::Record { len, .. } => frame_bytes(u64::from(len)),
            Kind::Mark { .. } => MARK_BYTES,
        }
    }
}

/// What a payload takes in the segment.
pub(super) fn frame_bytes(payload: u64) -> u64 {
    (HEADER_BYTES as u64).saturating_add(payload).next_multiple_of(ALIGN)
}

/// Makes `buffer` the whole frame of a record whose payload is `parts` one after the other.
pub(super) fn write_record(buffer: &mut Vec<u8>, keys: FrameKeys, seq: u64, parts: &[&[u8]]) {
    buffer.clear();
    buffer.resize(HEADER_BYTES, 0);
    for part in parts {
        buffer.extend_from_slice(part);
    }
    let len = u32::try_from(buffer.len() - HEADER_BYTES).expect("a segment is below 4 GiB");
    buffer.resize(buffer.len().next_multiple_of(ALIGN as usize), 0);
    if let Some((header, payload)) = buffer.split_first_chunk_mut::<HEADER_BYTES>() {
        let kind = Kind::Record { len, crc: keys.crc(payload) };
        *header = Header { seq, kind }.encode(keys);
    }
}

/// Whether `bytes` are the remains of a frame this segment once had here: a header of which at
/// least the magic or the sequence is left. Whatever an earlier use of the segment wrote is not.
pub(super) fn are_remains(keys: FrameKeys, bytes: &[u8], seq: u64) -> bool {
    HeaderFields::read(bytes).is_some_and(|fields| {
        fields.magic == keys.record || fields.magic == keys.mark || fields.seq == seq
    })
}

struct HeaderFields {
    magic: u32,
    len: u32,
    seq: u64,
    crc: u32,
    header_crc: u32,
}

impl HeaderFields {
    fn read(mut bytes: &[u8]) -> Option<HeaderFields> {
        Some(HeaderFields {
            magic: u32::from_le_bytes(take(&mut bytes)?),
            len: u32::from_le_bytes(take(&mut bytes)?),
            seq: u64::from_le_bytes(take(&mut bytes)?),
            crc: u32::from_le_bytes(take(&mut bytes)?),
            header_crc: u32::from_le_bytes(take(&mut bytes)?),
        })
    }
}

/// Cuts a fixed number of bytes from the front.
pub(super) fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (head, rest) = bytes.split_first_chunk::<N>()?;
    *bytes = rest;
    Some(*head)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_reads_back_and_is_aligned() {
        let keys = FrameKeys::new(0x0123_4567_89ab_cdef);
        for len in [0, 1, 7, 8, 9, 100, 5000] {
            let payload: Vec<u8> = (0..len).map(|n: u32| n as u8).collect();
            let (left, right) = payload.split_at(payload.len() / 3);
            let mut buffer = vec![9; 77];
            write_record(&mut buffer, keys, 42, &[left, right]);

            let header = Header::decode(keys, &buffer).unwrap();
            assert_eq!(header.seq, 42);
            assert_eq!(header.kind, Kind::Record { len, crc: keys.crc(&buffer[24..]) });
            assert_eq!(header.frame_bytes(), buffer.len() as u64);
            assert_eq!(buffer.len() as u64 % ALIGN, 0);
            assert_eq!(&buffer[24..24 + payload.len()], payload);
        }
    }

    #[test]
    fn a_mark_reads_back() {
        let keys = FrameKeys::new(7);
        for continued in [false, true] {
            let mark = Header { seq: 9, kind: Kind::Mark { continued } };
            assert_eq!(Header::decode(keys, &mark.encode(keys)), Some(mark));
        }
    }

    #[test]
    fn every_flipped_bit_of_a_header_is_noticed() {
        let keys = FrameKeys::new(0xfeed_beef_0000_0001);
        let kind = Kind::Record { len: 12, crc: 77 };
        let good = Header { seq: 9, kind }.encode(keys);
        for bit in 0..HEADER_BYTES * 8 {
            let mut bad = good;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Header::decode(keys, &bad), None, "bit {bit}");
            assert!(are_remains(keys, &bad, 9), "bit {bit}");
        }
    }

    #[test]
    fn another_salt_sees_nothing() {
        let good = Header { seq: 9, kind: Kind::Mark { continued: false } }
            .encode(FrameKeys::new(1 << 32));
        for salt in [0, 1, 2 << 32, 3 << 40] {
            assert_eq!(Header::decode(FrameKeys::new(salt), &good), None);
            assert!(!are_remains(FrameKeys::new(salt), &good, 10));
        }
        // Half of a salt is not enough either.
        assert_eq!(Header::decode(FrameKeys::new((1 << 32) + 1), &good), None);
    }

    #[test]
    fn zeros_are_nothing() {
        let keys = FrameKeys::new(0x1111_2222_3333_4444);
        assert_eq!(Header::decode(keys, &[0; 64]), None);
        assert!(!are_remains(keys, &[0; 64], 1));
        assert_eq!(Header::decode(keys, &[]), None);
    }
}
