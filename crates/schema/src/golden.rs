//! Bytes that are on disks already, and so must never change.

use std::fmt::{self, Write as _};

use crate::codec::Record;

/// The bytes are these, written in hex.
#[track_caller]
pub(crate) fn check(bytes: &[u8], expected: &str) {
    let found = bytes.iter().fold(String::new(), |mut hex, byte| {
        write!(hex, "{byte:02x}").unwrap();
        hex
    });
    assert_eq!(found, expected);
}

/// Both keys of a range.
#[track_caller]
pub(crate) fn check_range((from, to): (bytes::Bytes, bytes::Bytes), first: &str, end: &str) {
    check(&from, first);
    check(&to, end);
}

/// The record, a map, is written as these bytes and read from them, with fields that nobody knows
/// too; a part of them is damage.
#[track_caller]
pub(crate) fn check_record<T: Record + PartialEq + fmt::Debug>(record: &T, expected: &str) {
    let bytes = record.encode();
    check(&bytes, expected);
    assert_eq!(T::decode(&bytes).as_ref(), Ok(record));
    for cut in 0..bytes.len() {
        assert!(T::decode(&bytes[..cut]).is_err(), "cut at {cut}");
    }
    for at in 0..bytes.len() {
        for flipped in [0x01, 0x20, 0x80, 0xff] {
            let mut damaged = bytes.to_vec();
            damaged[at] ^= flipped;
            // Not every damage shows; none ends the process.
            let _ = T::decode(&damaged);
        }
    }
    let unknown = b"\x18\x63\x82\x65later\xa1\x01\xf6";
    let (head, fields) = bytes.split_first().unwrap();
    let last = [&[head + 1], fields, unknown].concat();
    let first = [&[head + 1], &unknown[..], fields].concat();
    assert_eq!(T::decode(&last).as_ref(), Ok(record), "with another field behind");
    assert_eq!(T::decode(&first).as_ref(), Ok(record), "with another field before");
}

/// Reads what is written in hex.
pub(crate) fn decode<T: Record>(hex: &str) -> Result<T, String> {
    let digits: Vec<_> = hex.bytes().map(|digit| char::from(digit).to_digit(16).unwrap()).collect();
    let byte = |pair: &[u32]| u8::try_from(pair[0] * 16 + pair[1]).unwrap();
    let bytes: Vec<u8> = digits.chunks(2).map(byte).collect();
    T::decode(&bytes).map_err(|error| error.to_string())
}
