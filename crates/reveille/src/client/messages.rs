//! What a reader prints of an answer's body, and how far it has come: bytes as they are, or the
//! messages of a JSON array, one per line.
//!
//! A body may break off. The next answer from the same offset begins with the same bytes, so what
//! was printed of the first is skipped in the second.

use std::mem;

/// A body that is printed while it arrives.
#[derive(Debug)]
pub(crate) struct Printer {
    kind: BodyKind,
    /// Bytes or messages that were printed of an earlier answer from the same offset.
    skip: u64,
    /// Bytes or messages that have been received.
    received: u64,
}

#[derive(Debug)]
enum BodyKind {
    Bytes,
    Messages(ArrayParser),
}

/// A JSON array on its way in.
#[derive(Debug, Default)]
struct ArrayParser {
    state: ArrayState,
    /// Open brackets and braces within the message.
    depth: u32,
    string: Option<Escape>,
    /// The message so far, without the blanks between its tokens.
    message: Vec<u8>,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum ArrayState {
    #[default]
    Start,
    Inside,
    End,
}

/// Whether the next character of a string is an escaped one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Escape {
    No,
    Yes,
}

/// The body is not what a server of JSON streams sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the server's answer is not a JSON array")]
pub(crate) struct ArrayError;

impl Printer {
    /// For a stream of bytes, or of JSON messages; what was `printed` already is skipped.
    pub(crate) fn new(json: bool, printed: u64) -> Printer {
        let kind = if json { BodyKind::Messages(ArrayParser::default()) } else { BodyKind::Bytes };
        Printer { kind, skip: printed, received: 0 }
    }

    /// Takes the next bytes of the body and adds what is to be printed of them.
    pub(crate) fn push(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<(), ArrayError> {
        match &mut self.kind {
            BodyKind::Bytes => {
                let skip = usize::try_from(self.skip.saturating_sub(self.received));
                let skip = skip.unwrap_or(usize::MAX).min(bytes.len());
                out.extend_from_slice(bytes.get(skip..).unwrap_or_default());
                self.received += u64::try_from(bytes.len()).unwrap_or(0);
            }
            BodyKind::Messages(array) => {
                for byte in bytes {
                    let Some(message) = array.push(*byte)? else {
                        continue;
                    };
                    if self.received >= self.skip {
                        out.extend_from_slice(&message);
                        out.push(b'\n');
                    }
                    self.received += 1;
                }
            }
        }
        Ok(())
    }

    /// How much has been printed from this offset on.
    pub(crate) fn printed(&self) -> u64 {
        self.received.max(self.skip)
    }

    /// Whether the body can end here.
    pub(crate) fn is_complete(&self) -> bool {
        match &self.kind {
            BodyKind::Bytes => true,
            // An answer without a body has no messages.
            BodyKind::Messages(array) => array.state != ArrayState::Inside,
        }
    }
}

impl ArrayParser {
    /// The message that this byte has completed, if it has.
    fn push(&mut self, byte: u8) -> Result<Option<Vec<u8>>, ArrayError> {
        if let Some(escape) = self.string {
            self.message.push(byte);
            self.string = match (escape, byte) {
                (Escape::Yes, _) => Some(Escape::No),
                (Escape::No, b'\\') => Some(Escape::Yes),
                (Escape::No, b'"') => None,
                (Escape::No, _) => Some(Escape::No),
            };
            return Ok(None);
        }
        match (self.state, byte) {
            (_, b' ' | b'\t' | b'\r' | b'\n') => {}
            (ArrayState::Start, b'[') => self.state = ArrayState::Inside,
            (ArrayState::Start | ArrayState::End, _) => return Err(ArrayError),
            (ArrayState::Inside, b',') if self.depth == 0 => return self.complete().map(Some),
            (ArrayState::Inside, b']') if self.depth == 0 => {
                self.state = ArrayState::End;
                if !self.message.is_empty() {
                    return self.complete().map(Some);
                }
            }
            (ArrayState::Inside, _) => {
                match byte {
                    b'"' => self.string = Some(Escape::No),
                    b'[' | b'{' => self.depth += 1,
                    b']' | b'}' => self.depth = self.depth.checked_sub(1).ok_or(ArrayError)?,
                    _ => {}
                }
                self.message.push(byte);
            }
        }
        Ok(None)
    }

    fn complete(&mut self) -> Result<Vec<u8>, ArrayError> {
        if self.message.is_empty() {
            return Err(ArrayError);
        }
        Ok(mem::take(&mut self.message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// However the body is cut into pieces, and wherever it breaks off, the output is the same.
    fn check(json: bool, body: &str, printed: &str) {
        for size in 1..=body.len().max(1) {
            let mut out = Vec::new();
            let mut printer = Printer::new(json, 0);
            for piece in body.as_bytes().chunks(size) {
                printer.push(piece, &mut out).unwrap();
            }
            assert!(printer.is_complete(), "{body}");
            assert_eq!(String::from_utf8(out).unwrap(), printed, "{body} in pieces of {size}");
        }
        for cut in 0..=body.len() {
            let mut out = Vec::new();
            let mut first = Printer::new(json, 0);
            first.push(&body.as_bytes()[..cut], &mut out).unwrap();
            let mut second = Printer::new(json, first.printed());
            // The second answer breaks off even earlier, the third one does not.
            second.push(&body.as_bytes()[..cut / 2], &mut out).unwrap();
            let mut third = Printer::new(json, second.printed());
            third.push(body.as_bytes(), &mut out).unwrap();
            assert_eq!(String::from_utf8(out).unwrap(), printed, "{body} cut at {cut}");
        }
    }

    #[test]
    fn bytes_are_printed_as_they_are() {
        check(false, "", "");
        check(false, "line 1\r\n[not json", "line 1\r\n[not json");
    }

    #[test]
    fn messages_are_printed_one_per_line() {
        check(true, "", "");
        check(true, "[]", "");
        check(true, " [ \n ] ", "");
        check(true, "[1]", "1\n");
        check(true, "[1,\"a\",null]", "1\n\"a\"\nnull\n");
        check(true, r#"[{"a":[1,2]},[3,[4]]]"#, "{\"a\":[1,2]}\n[3,[4]]\n");
        check(
            true,
            r#"["],[", "a\"b,\\", {"}": "{ x"}]"#,
            "\"],[\"\n\"a\\\"b,\\\\\"\n{\"}\":\"{ x\"}\n",
        );
        check(true, "[{\n  \"a\": 1,\r\n\t\"b\": [ 2 ]\n}]", "{\"a\":1,\"b\":[2]}\n");
        check(true, "[\"zwölf\"]", "\"zwölf\"\n");
    }

    #[test]
    fn what_is_no_array_is_refused() {
        for bad in ["1", "{}", "x", "[,1]", "[1,,2]", "[1]]", "[}]", "[1] 2"] {
            let taken = Printer::new(true, 0).push(bad.as_bytes(), &mut Vec::new());
            assert_eq!(taken, Err(ArrayError), "{bad}");
        }
        for half in ["[", "[1", "[1,", "[\"]", "[[]"] {
            let mut printer = Printer::new(true, 0);
            printer.push(half.as_bytes(), &mut Vec::new()).unwrap();
            assert!(!printer.is_complete(), "{half}");
        }
    }
}
