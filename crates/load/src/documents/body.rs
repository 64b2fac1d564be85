//! The data of documents: JSON of one exact size, with fields that can be indexed.

use std::io::Write as _;

use anyhow::{Context as _, ensure};

use crate::message::MessageWriter;

/// Documents of one group: a query finds all of one.
pub(super) const GROUP_SIZE: u64 = 20;
/// Values begin here and stay below ten times as much: all are written with as many digits.
const VALUES_FROM: u64 = 10_000;
const VALUES: u64 = 90_000;

/// Writes document after document, each `{"group":10007,"f0":…,"n":NUMBER,"text":"…"}`.
pub(super) struct Bodies {
    messages: MessageWriter,
    fields: u32,
    groups: u64,
    bytes: usize,
}

impl Bodies {
    pub(super) fn new(bytes: usize, fields: u32, documents: u64) -> anyhow::Result<Bodies> {
        let mut before = Vec::new();
        write_fields(0, fields, VALUES_FROM, &mut before);
        let rest = bytes.checked_sub(before.len() - 1).context("--body is too small")?;
        let groups = documents / GROUP_SIZE;
        ensure!(groups <= VALUES, "--count is at most {}", VALUES * GROUP_SIZE);
        let messages = MessageWriter::new(rest)?;
        Ok(Bodies { messages, fields, groups: groups.max(1), bytes })
    }

    pub(super) fn bytes(&self) -> u64 {
        u64::try_from(self.bytes).unwrap_or(u64::MAX)
    }

    /// The group of the document with this number.
    pub(super) fn group_of(&self, number: u64) -> u64 {
        VALUES_FROM + number % self.groups
    }

    /// Appends the data of document `number` to `out`.
    pub(super) fn write(&self, number: u64, out: &mut Vec<u8>) {
        write_fields(number, self.fields, self.group_of(number), out);
        let rest = out.len();
        self.messages.write(number, out);
        // The message is an object of its own: what begins it is there already.
        out.remove(rest);
    }
}

fn write_fields(number: u64, fields: u32, group: u64, out: &mut Vec<u8>) {
    write!(out, "{{\"group\":{group},").expect("a vector takes every byte");
    for field in 0..fields {
        // Scattered, and another one each time that a document is written.
        let value = (number ^ u64::from(field) << 32).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
        let value = VALUES_FROM + value % VALUES;
        write!(out, "\"f{field}\":{value},").expect("a vector takes every byte");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_document_has_its_size_its_group_and_its_fields() {
        for (bytes, fields) in [(100, 0), (300, 10)] {
            let bodies = Bodies::new(bytes, fields, 1_000_000).unwrap();
            for number in [0, 7, 50_007, 999_999, 12_345_678] {
                let mut out = Vec::new();
                bodies.write(number, &mut out);
                assert_eq!(out.len(), bytes, "{number}");
                let value: serde_json::Value = serde_json::from_slice(&out).unwrap();
                assert_eq!(
                    (&value["n"], &value["group"]),
                    (&number.into(), &bodies.group_of(number).into())
                );
                assert_eq!(value.as_object().unwrap().len(), 3 + fields as usize);
            }
            assert_eq!(bodies.group_of(7), bodies.group_of(50_007));
        }
        assert!(Bodies::new(40, 0, 100).is_err());
        assert!(Bodies::new(100, 10, 100).is_err());
    }
}
