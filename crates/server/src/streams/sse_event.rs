//! Data events, encoded piece by piece: nobody has to hold a long message to send it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use reveille_core::media::Framing;

const BEGIN: &[u8] = b"event: data\ndata:";
/// Where a line of the data ends and the next one begins: line ends would end the field.
const NEXT_LINE: &[u8] = b"\ndata:";
const END: &[u8] = b"\n\n";
/// Begins a control event, which data cannot: every line of it has its field's name before it.
const CONTROL: &[u8] = b"event: control\n";

/// Turns the stored bytes of one event after another into text.
pub(super) struct EventEncoder {
    framing: Framing,
    /// Bytes that mean something only with those that follow: a part of a character, or of a group
    /// of base64.
    carry: Vec<u8>,
    /// The data ended with a carriage return: a line feed after it belongs to the same line end.
    is_after_return: bool,
    /// A comma is held back: an array ends without its last one.
    has_comma: bool,
}

/// A whole data event; nothing if there is no data.
pub(super) fn data_event(framing: Framing, stored: &Bytes) -> Vec<u8> {
    let mut out = Vec::with_capacity(stored.len() + stored.len() / 2 + 256);
    if !stored.is_empty() {
        let mut encoder = EventEncoder::new(framing);
        encoder.begin(&mut out);
        encoder.push(stored, &mut out);
        encoder.finish(&mut out);
    }
    out
}

/// Where in a data event and its control event the latter begins.
pub(super) fn data_len(encoded: &[u8]) -> usize {
    // The control event is short, and at the end.
    let found = encoded.windows(CONTROL.len()).rposition(|part| part == CONTROL);
    found.unwrap_or(encoded.len())
}

impl EventEncoder {
    pub(super) fn new(framing: Framing) -> EventEncoder {
        EventEncoder { framing, carry: Vec::new(), is_after_return: false, has_comma: false }
    }

    /// How many stored bytes take no more room than this, whatever they are.
    pub(super) fn input_for(&self, room: usize) -> usize {
        match self.framing {
            Framing::Binary => room.saturating_sub(4) / 4 * 3,
            // Nothing becomes longer than a line end. A little room is not worth an effort.
            Framing::Text | Framing::Json if room < 1 << 10 => 0,
            Framing::Text | Framing::Json => (room - 16) / NEXT_LINE.len(),
        }
    }

    pub(super) fn begin(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(BEGIN);
        if self.framing == Framing::Json {
            out.push(b'[');
        }
    }

    /// Goes on with the event.
    pub(super) fn push(&mut self, stored: &[u8], out: &mut Vec<u8>) {
        match self.framing {
            Framing::Binary => self.push_binary(stored, out),
            Framing::Text => self.push_text(stored, out),
            Framing::Json => {
                let whole = stored.strip_suffix(b",");
                if std::mem::replace(&mut self.has_comma, whole.is_some()) {
                    out.push(b',');
                }
                self.push_text(whole.unwrap_or(stored), out);
            }
        }
    }

    /// Ends the event; the next one may begin.
    pub(super) fn finish(&mut self, out: &mut Vec<u8>) {
        let rest = std::mem::take(&mut self.carry);
        match self.framing {
            Framing::Binary => out.extend_from_slice(STANDARD.encode(rest).as_bytes()),
            Framing::Text | Framing::Json if rest.is_empty() => {}
            Framing::Text | Framing::Json => self.push_lines("\u{FFFD}", out),
        }
        self.is_after_return = false;
        self.has_comma = false;
        if self.framing == Framing::Json {
            out.push(b']');
        }
        out.extend_from_slice(END);
    }

    fn push_binary(&mut self, stored: &[u8], out: &mut Vec<u8>) {
        let missing = (3 - self.carry.len()) % 3;
        let (first, rest) = stored.split_at(missing.min(stored.len()));
        self.carry.extend_from_slice(first);
        if self.carry.len() == 3 {
            out.extend_from_slice(STANDARD.encode(&self.carry).as_bytes());
            self.carry.clear();
        }
        if rest.is_empty() {
            return;
        }
        let (whole, part) = rest.split_at(rest.len() / 3 * 3);
        let begin = out.len();
        out.resize(begin + whole.len() / 3 * 4, 0);
        let room = out.get_mut(begin..).unwrap_or_default();
        STANDARD.encode_slice(whole, room).expect("three bytes become four characters");
        self.carry.extend_from_slice(part);
    }

    fn push_text(&mut self, stored: &[u8], out: &mut Vec<u8>) {
        let joined;
        let stored = if self.carry.is_empty() {
            stored
        } else {
            joined = [std::mem::take(&mut self.carry).as_slice(), stored].concat();
            &joined
        };
        let mut parts = stored.utf8_chunks().peekable();
        while let Some(part) = parts.next() {
            self.push_lines(part.valid(), out);
            if parts.peek().is_none() && is_begun_character(part.invalid()) {
                self.carry.extend_from_slice(part.invalid());
            } else if !part.invalid().is_empty() {
                self.push_lines("\u{FFFD}", out);
            }
        }
    }

    /// Text, each line with its field's name before it.
    fn push_lines(&mut self, text: &str, out: &mut Vec<u8>) {
        if text.is_empty() {
            return;
        }
        let is_after_return = std::mem::take(&mut self.is_after_return);
        let mut rest = text.strip_prefix('\n').filter(|_| is_after_return).unwrap_or(text);
        while let Some(end) = rest.find(['\r', '\n']) {
            let (line, after) = rest.split_at(end);
            out.extend_from_slice(line.as_bytes());
            out.extend_from_slice(NEXT_LINE);
            self.is_after_return = after == "\r";
            rest = after.strip_prefix("\r\n").or_else(|| after.get(1..)).unwrap_or_default();
        }
        out.extend_from_slice(rest.as_bytes());
    }
}

/// Whether these bytes are the beginning of a character and not the whole of it.
fn is_begun_character(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_err_and(|error| error.error_len().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whole, and in pieces of every length.
    fn check(framing: Framing, stored: &'static [u8], expected: &str) {
        let whole = data_event(framing, &Bytes::from_static(stored));
        assert_eq!(String::from_utf8(whole).unwrap(), expected);
        for len in 1..=stored.len() {
            let mut encoder = EventEncoder::new(framing);
            // Twice: nothing of an event is left for the next.
            for _ in 0..2 {
                let mut out = Vec::new();
                encoder.begin(&mut out);
                stored.chunks(len).for_each(|piece| encoder.push(piece, &mut out));
                encoder.finish(&mut out);
                assert_eq!(String::from_utf8(out).unwrap(), expected, "in pieces of {len}");
            }
        }
    }

    #[test]
    fn every_line_is_a_field_of_its_own() {
        check(Framing::Text, b"one", "event: data\ndata:one\n\n");
        check(Framing::Text, b"a\nb\r\nc\rd", "event: data\ndata:a\ndata:b\ndata:c\ndata:d\n\n");
        check(Framing::Text, b"a\n", "event: data\ndata:a\ndata:\n\n");
        check(Framing::Text, b"a\r", "event: data\ndata:a\ndata:\n\n");
        check(Framing::Text, b"\r\n\n\r", "event: data\ndata:\ndata:\ndata:\ndata:\n\n");
        let injected = b"x\r\n\r\nevent: control\r\ndata:{}";
        let expected = "event: data\ndata:x\ndata:\ndata:event: control\ndata:data:{}\n\n";
        check(Framing::Text, injected, expected);
        check(Framing::Json, b"{\"a\":1},2,", "event: data\ndata:[{\"a\":1},2]\n\n");
        check(
            Framing::Json,
            b"[1,\n2],\"\xc3\xa4,\",",
            "event: data\ndata:[[1,\ndata:2],\"\u{e4},\"]\n\n",
        );
    }

    #[test]
    fn binary_is_one_line_of_base64() {
        check(Framing::Binary, &[0, 255], "event: data\ndata:AP8=\n\n");
        check(Framing::Binary, b"Many hands", "event: data\ndata:TWFueSBoYW5kcw==\n\n");
    }

    #[test]
    fn what_is_no_text_is_replaced_as_a_whole_would_be() {
        let cases: [&'static [u8]; 5] = [
            b"a\xffb",
            b"\xe2\x82",
            b"\xe2\x82\xac\xe2\x82x",
            b"\xf0\x9f\x98\x80",
            b"\xc3\xc3\xa4\xed\xa0\x80",
        ];
        for stored in cases {
            let text = String::from_utf8_lossy(stored);
            check(Framing::Text, stored, &format!("event: data\ndata:{text}\n\n"));
        }
    }

    #[test]
    fn whatever_it_is_it_takes_no_more_room_than_expected() {
        let worst: [(Framing, &[u8]); 3] = [
            (Framing::Text, &[b'\n'; 1 << 16]),
            (Framing::Json, &[0xff; 1 << 16]),
            (Framing::Binary, &[1; 1 << 16]),
        ];
        for (framing, stored) in worst {
            for room in [1 << 10, 10_000, 40_000] {
                let mut encoder = EventEncoder::new(framing);
                let mut out = Vec::new();
                encoder.push(&[0xe2], &mut Vec::new());
                encoder.push(&stored[..encoder.input_for(room)], &mut out);
                assert!(out.len() <= room && out.len() * 2 > room / 2, "{framing:?} {room}");
            }
        }
    }

    #[test]
    fn a_control_event_is_told_from_the_data_before_it() {
        let mut encoded = data_event(Framing::Text, &Bytes::from_static(b"event: control\n"));
        let len = encoded.len();
        encoded.extend_from_slice(b"event: control\ndata:{}\n\n");
        assert_eq!(data_len(&encoded), len);
    }
}
