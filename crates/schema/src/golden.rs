//! Bytes that are on disks already, and so must never change.

use std::fmt::Write as _;

/// The bytes are these, written in hex.
#[track_caller]
pub(crate) fn check(bytes: &[u8], expected: &str) {
    let found = bytes.iter().fold(String::new(), |mut hex, byte| {
        write!(hex, "{byte:02x}").unwrap();
        hex
    });
    assert_eq!(found, expected);
}
