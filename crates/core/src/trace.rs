//! Which trace something belongs to, and how that is written (W3C Trace Context).

use std::fmt;

/// A place in a trace: the trace, and the span that what follows is a part of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Trace {
    pub trace_id: [u8; 16],
    /// The span.
    pub span_id: [u8; 8],
}

/// `sampled`, the only flag that version 00 knows.
const SAMPLED: u8 = 1;

impl Trace {
    /// What a `traceparent` says; `None` if it says nothing, or that the trace is not recorded.
    pub fn parse(text: &str) -> Option<Trace> {
        let mut parts = text.trim().splitn(5, '-');
        let version = hex::<1>(parts.next()?)?;
        let trace_id = hex(parts.next()?)?;
        let span_id = hex(parts.next()?)?;
        let [flags] = hex::<1>(parts.next()?)?;
        // Later versions may have more to say; this one may not, and ff is none.
        let known = match version {
            [0] => parts.next().is_none(),
            [0xff] => false,
            _ => true,
        };
        let there = trace_id != [0; 16] && span_id != [0; 8];
        (known && there && flags & SAMPLED != 0).then_some(Trace { trace_id, span_id })
    }

    /// As it is kept.
    pub fn to_bytes(self) -> [u8; 24] {
        let mut bytes = [0; 24];
        let ids = self.trace_id.into_iter().chain(self.span_id);
        for (byte, id) in bytes.iter_mut().zip(ids) {
            *byte = id;
        }
        bytes
    }

    /// As it was kept.
    pub fn from_bytes(bytes: [u8; 24]) -> Trace {
        let mut trace = Trace { trace_id: [0; 16], span_id: [0; 8] };
        let ids = trace.trace_id.iter_mut().chain(&mut trace.span_id);
        for (id, byte) in ids.zip(bytes) {
            *id = byte;
        }
        trace
    }
}

/// As a `traceparent`.
impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("00-")?;
        self.trace_id.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        f.write_str("-")?;
        self.span_id.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        write!(f, "-{SAMPLED:02x}")
    }
}

/// Bytes from digits of lower-case hexadecimal.
fn hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let (pairs, rest) = text.as_bytes().as_chunks();
    if pairs.len() != N || !rest.is_empty() {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
        *byte = (digit(*high)? << 4) | digit(*low)?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_traceparent_reads_back() {
        let trace = Trace::parse(TEXT).unwrap();
        assert_eq!(trace.to_string(), TEXT);
        assert_eq!(Trace::from_bytes(trace.to_bytes()), trace);
        let later = "cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-03-more";
        assert_eq!(Trace::parse(later), Some(trace));
    }

    #[test]
    fn what_is_none_is_as_good_as_absent() {
        for bad in [
            "",
            "00",
            // Not recorded.
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e473-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
        ] {
            assert_eq!(Trace::parse(bad), None, "{bad}");
        }
    }
}
