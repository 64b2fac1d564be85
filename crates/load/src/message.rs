//! The messages: JSON objects of one exact size that do not compress away.

use std::io::Write as _;

use anyhow::ensure;

/// Room for the longest number, the field names and one byte of text.
const BYTES_MIN: usize = 40;
/// Past this no server takes a body.
const BYTES_MAX: usize = 10 * 1024 * 1024;
const ALPHABET: &[u8; 64] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_";
const TEXT_BYTES: usize = 64 * 1024;

/// Writes message after message, each `{"n":NUMBER,"text":"…"}`.
#[derive(Debug, Clone)]
pub(crate) struct MessageWriter {
    bytes: usize,
    /// What stands before the number: the type of an event, or nothing.
    head: String,
    /// Random letters, the same in every run: a store that compresses must not gain from a
    /// constant body that no real client would send.
    text: Vec<u8>,
}

impl MessageWriter {
    pub(crate) fn new(bytes: usize) -> anyhow::Result<MessageWriter> {
        MessageWriter::with_head(String::new(), bytes)
    }

    /// Messages that are events of a type, each `{"type":"KIND","n":NUMBER,"text":"…"}`.
    pub(crate) fn events(kind: &str, bytes: usize) -> anyhow::Result<MessageWriter> {
        MessageWriter::with_head(format!("\"type\":\"{kind}\","), bytes)
    }

    fn with_head(head: String, bytes: usize) -> anyhow::Result<MessageWriter> {
        let min = BYTES_MIN + head.len();
        ensure!(
            (min..=BYTES_MAX).contains(&bytes),
            "a message has {min} to {BYTES_MAX} bytes, not {bytes}"
        );
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let letters = std::iter::repeat_with(|| {
            // xorshift64: good enough that nothing compresses.
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let index = usize::try_from(state >> 58).unwrap_or(0);
            ALPHABET.get(index).copied().unwrap_or(b'x')
        });
        let text = letters.take(TEXT_BYTES.max(bytes) + TEXT_BYTES).collect();
        Ok(MessageWriter { bytes, head, text })
    }

    /// The size of each.
    pub(crate) fn bytes(&self) -> u64 {
        u64::try_from(self.bytes).unwrap_or(u64::MAX)
    }

    /// Appends message `number` to `out`.
    pub(crate) fn write(&self, number: u64, out: &mut Vec<u8>) {
        let end = out.len() + self.bytes;
        write!(out, "{{{}\"n\":{number},\"text\":\"", self.head)
            .expect("a vector takes every byte");
        self.write_text(number, end.saturating_sub(out.len() + 2), out);
        out.extend_from_slice(b"\"}");
    }

    /// Appends so many letters, those of message `number`.
    pub(crate) fn write_text(&self, number: u64, bytes: usize, out: &mut Vec<u8>) {
        // Odd, so that every start in the text is used before one repeats.
        let start = usize::try_from(number).unwrap_or(0).wrapping_mul(61) % TEXT_BYTES;
        out.extend_from_slice(self.text.get(start..start + bytes).unwrap_or_default());
    }

    /// What stands in message `number` and in no other.
    pub(crate) fn marker(number: u64) -> Vec<u8> {
        format!("\"n\":{number},").into_bytes()
    }

    /// Appends `count` messages from `first` on to `out`, as one JSON array.
    pub(crate) fn write_array(&self, first: u64, count: u64, out: &mut Vec<u8>) {
        out.push(b'[');
        for number in first..first + count {
            if number != first {
                out.push(b',');
            }
            self.write(number, out);
        }
        out.push(b']');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_message_is_json_of_the_exact_size() {
        for bytes in [40, 100, 70_000] {
            let messages = MessageWriter::new(bytes).unwrap();
            for number in [0, 9, 10, 65_535, 1_000_000, u64::MAX] {
                let mut out = Vec::new();
                messages.write(number, &mut out);
                assert_eq!(out.len(), bytes, "{number} in {bytes}");
                let value: serde_json::Value = serde_json::from_slice(&out).unwrap();
                assert_eq!(value["n"], number);
                assert!(
                    out.windows(30).any(|part| part.starts_with(&MessageWriter::marker(number)))
                );
            }
        }
        assert!(MessageWriter::new(39).is_err());
        assert!(MessageWriter::new(10 * 1024 * 1024 + 1).is_err());
    }

    #[test]
    fn an_event_has_its_type_and_the_exact_size() {
        let mut out = Vec::new();
        MessageWriter::events("bench.r", 100).unwrap().write(u64::MAX, &mut out);
        let value: serde_json::Value = serde_json::from_slice(&out).unwrap();
        assert_eq!((out.len(), &value["type"]), (100, &"bench.r".into()));
        assert!(MessageWriter::events("bench.r", 56).is_err());
    }

    #[test]
    fn an_array_holds_its_messages_in_order() {
        let mut out = Vec::new();
        MessageWriter::new(100).unwrap().write_array(5, 3, &mut out);
        assert_eq!(out.len(), 3 * 100 + 2 + 2);
        let values: Vec<serde_json::Value> = serde_json::from_slice(&out).unwrap();
        let numbers: Vec<_> = values.iter().map(|value| value["n"].as_u64().unwrap()).collect();
        assert_eq!(numbers, [5, 6, 7]);
    }

    #[test]
    fn messages_differ() {
        let messages = MessageWriter::new(100).unwrap();
        let (mut one, mut other) = (Vec::new(), Vec::new());
        messages.write(1, &mut one);
        messages.write(2, &mut other);
        let same = one.iter().zip(&other).filter(|(a, b)| a == b).count();
        assert!(same < 40, "{same} of 100 bytes are equal");
    }
}
