//! The bytes of an HTTP/1.1 answer or request: its head, and where its body ends. No I/O.

use std::ops::Range;

/// The head of an answer, of which only what a load generator needs is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) status: u16,
    pub(crate) framing: Framing,
    /// The server will take another request on this connection.
    pub(crate) is_keep_alive: bool,
    /// `Stream-Up-To-Date: true`.
    pub(crate) is_up_to_date: bool,
    /// Where `Stream-Next-Offset` stands in the bytes that were parsed.
    pub(crate) next_offset: Option<Range<usize>>,
    /// Where `Stream-Cursor` stands in the bytes that were parsed.
    pub(crate) cursor: Option<Range<usize>>,
    /// How many bytes the head took, its empty line included.
    pub(crate) head_bytes: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Framing {
    Length(u64),
    Chunked,
    UntilClose,
}

/// The server did not speak HTTP/1.1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ParseError;

/// `None` when the head is not complete yet.
pub(crate) fn parse_head(bytes: &[u8]) -> Result<Option<Head>, ParseError> {
    let Some(first) = line(bytes, 0) else {
        return Ok(None);
    };
    let head = parse_status(at(bytes, &first.text))?;
    parse_fields(bytes, first.next, head)
}

/// The head of a request, whose status is 0, and where its path stands in the bytes.
pub(crate) fn parse_request(bytes: &[u8]) -> Result<Option<(Head, Range<usize>)>, ParseError> {
    let Some(first) = line(bytes, 0) else {
        return Ok(None);
    };
    let text = at(bytes, &first.text).strip_suffix(b" HTTP/1.1").ok_or(ParseError)?;
    let space = text.iter().position(|byte| *byte == b' ').ok_or(ParseError)?;
    let Some(mut head) = parse_fields(bytes, first.next, Head::new(0))? else {
        return Ok(None);
    };
    if head.framing == Framing::UntilClose {
        // RFC 9112 §6.3: a request that says nothing has no body.
        head.framing = Framing::Length(0);
    }
    Ok(Some((head, first.text.start + space + 1..first.text.start + text.len())))
}

fn parse_fields(
    bytes: &[u8],
    mut position: usize,
    mut head: Head,
) -> Result<Option<Head>, ParseError> {
    let mut length = None;
    let mut is_chunked = false;
    loop {
        let Some(current) = line(bytes, position) else {
            return Ok(None);
        };
        position = current.next;
        if current.text.is_empty() {
            break;
        }
        let (name, value) = parse_field(bytes, current.text)?;
        let text = at(bytes, &value);
        // The lengths of the names sort out nearly every other header without comparing text.
        match name.len() {
            14 if name.eq_ignore_ascii_case(b"content-length") => {
                length = Some(parse_decimal(text)?);
            }
            17 if name.eq_ignore_ascii_case(b"transfer-encoding") => {
                is_chunked = text.eq_ignore_ascii_case(b"chunked");
            }
            17 if name.eq_ignore_ascii_case(b"stream-up-to-date") => {
                head.is_up_to_date = text.eq_ignore_ascii_case(b"true");
            }
            10 if name.eq_ignore_ascii_case(b"connection") => {
                head.is_keep_alive = !text.eq_ignore_ascii_case(b"close");
            }
            18 if name.eq_ignore_ascii_case(b"stream-next-offset") => {
                head.next_offset = Some(value);
            }
            13 if name.eq_ignore_ascii_case(b"stream-cursor") => head.cursor = Some(value),
            _ => {}
        }
    }
    head.head_bytes = position;
    head.framing = framing(head.status, length, is_chunked);
    Ok(Some(head))
}

/// RFC 9112 §6.3: no body for 1xx, 204 and 304, then chunked, then the length, then until close.
fn framing(status: u16, length: Option<u64>, is_chunked: bool) -> Framing {
    match (status, is_chunked, length) {
        (100..=199 | 204 | 304, _, _) => Framing::Length(0),
        (_, true, _) => Framing::Chunked,
        (_, false, Some(length)) => Framing::Length(length),
        (_, false, None) => Framing::UntilClose,
    }
}

fn parse_status(line: &[u8]) -> Result<Head, ParseError> {
    let rest = line.strip_prefix(b"HTTP/1.1 ").ok_or(ParseError)?;
    let status = parse_decimal(rest.get(..3).ok_or(ParseError)?)?;
    Ok(Head::new(u16::try_from(status).map_err(|_| ParseError)?))
}

impl Head {
    fn new(status: u16) -> Head {
        Head {
            status,
            framing: Framing::UntilClose,
            is_keep_alive: true,
            is_up_to_date: false,
            next_offset: None,
            cursor: None,
            head_bytes: 0,
        }
    }
}

fn parse_field(bytes: &[u8], line: Range<usize>) -> Result<(&[u8], Range<usize>), ParseError> {
    let text = at(bytes, &line);
    let colon = text.iter().position(|byte| *byte == b':').ok_or(ParseError)?;
    let name = text.get(..colon).ok_or(ParseError)?;
    let after = text.get(colon + 1..).ok_or(ParseError)?;
    let blank = after.len() - after.trim_ascii_start().len();
    let start = line.start + colon + 1 + blank;
    Ok((name, start..start + after.trim_ascii().len()))
}

fn parse_decimal(digits: &[u8]) -> Result<u64, ParseError> {
    if digits.is_empty() {
        return Err(ParseError);
    }
    digits.iter().try_fold(0u64, |value, digit| {
        let digit = digit.is_ascii_digit().then(|| u64::from(digit - b'0')).ok_or(ParseError)?;
        value.checked_mul(10).and_then(|value| value.checked_add(digit)).ok_or(ParseError)
    })
}

struct Line {
    text: Range<usize>,
    next: usize,
}

fn line(bytes: &[u8], start: usize) -> Option<Line> {
    let rest = bytes.get(start..)?;
    let length = rest.iter().position(|byte| *byte == b'\n')?;
    let text = at(rest, &(0..length));
    let text = text.strip_suffix(b"\r").unwrap_or(text);
    Some(Line { text: start..start + text.len(), next: start + length + 1 })
}

fn at<'a>(bytes: &'a [u8], range: &Range<usize>) -> &'a [u8] {
    bytes.get(range.clone()).unwrap_or_default()
}

/// Where the body of one answer stands; fed with whatever has arrived.
#[derive(Debug)]
pub(crate) enum Body {
    Length { left: u64 },
    Chunked(Chunk),
    UntilClose,
}

/// What the next bytes of a chunked body are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Chunk {
    /// Hexadecimal digits, then perhaps an extension, up to the line end.
    Size {
        size: u64,
        digits: u8,
        extension: bool,
    },
    Data {
        left: u64,
    },
    /// The line end after the data.
    DataEnd,
    /// Trailer lines up to an empty one.
    Trailer {
        empty: bool,
    },
    Done,
}

/// What one look at the arrived bytes gave.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct BodyStep<'a> {
    /// Bytes of the body, without framing. May be empty.
    pub(crate) data: &'a [u8],
    /// How many of the given bytes are done with.
    pub(crate) used: usize,
    /// The body has ended.
    pub(crate) is_end: bool,
}

impl Body {
    pub(crate) fn new(framing: Framing) -> Body {
        match framing {
            Framing::Length(left) => Body::Length { left },
            Framing::Chunked => Body::Chunked(Chunk::START),
            Framing::UntilClose => Body::UntilClose,
        }
    }

    /// A body with nothing used and not done needs more bytes.
    pub(crate) fn decode<'a>(&mut self, input: &'a [u8]) -> Result<BodyStep<'a>, ParseError> {
        match self {
            Body::Length { left } => {
                let data = take(input, left);
                Ok(BodyStep { data, used: data.len(), is_end: *left == 0 })
            }
            Body::UntilClose => Ok(BodyStep { data: input, used: input.len(), is_end: false }),
            Body::Chunked(chunk) => chunk.decode(input),
        }
    }
}

impl Chunk {
    const START: Chunk = Chunk::Size { size: 0, digits: 0, extension: false };

    fn decode<'a>(&mut self, input: &'a [u8]) -> Result<BodyStep<'a>, ParseError> {
        let mut used = 0;
        loop {
            if let Chunk::Data { left } = self {
                let data = take(input.get(used..).unwrap_or_default(), left);
                if *left == 0 {
                    *self = Chunk::DataEnd;
                }
                return Ok(BodyStep { data, used: used + data.len(), is_end: false });
            }
            if *self == Chunk::Done {
                return Ok(BodyStep { data: &[], used, is_end: true });
            }
            let Some(byte) = input.get(used) else {
                return Ok(BodyStep { data: &[], used, is_end: false });
            };
            used += 1;
            *self = self.after(*byte)?;
        }
    }

    /// The state after one byte of framing.
    fn after(self, byte: u8) -> Result<Chunk, ParseError> {
        match (self, byte) {
            (Chunk::Size { digits: 0, .. }, b'\r' | b'\n' | b';') => Err(ParseError),
            (Chunk::Size { size: 0, .. }, b'\n') => Ok(Chunk::Trailer { empty: true }),
            (Chunk::Size { size, .. }, b'\n') => Ok(Chunk::Data { left: size }),
            (Chunk::Size { size, digits, .. }, b';' | b'\r') => {
                Ok(Chunk::Size { size, digits, extension: true })
            }
            (Chunk::Size { extension: true, .. }, _) => Ok(self),
            // Fifteen digits cannot overflow, and no chunk is that long.
            (Chunk::Size { size, digits: digits @ ..15, .. }, _) => {
                let digit = char::from(byte).to_digit(16).ok_or(ParseError)?;
                let size = size * 16 + u64::from(digit);
                Ok(Chunk::Size { size, digits: digits + 1, extension: false })
            }
            (Chunk::DataEnd, b'\r') | (Chunk::Trailer { .. }, b'\r') => Ok(self),
            (Chunk::DataEnd, b'\n') => Ok(Chunk::START),
            (Chunk::Trailer { empty: true }, b'\n') => Ok(Chunk::Done),
            (Chunk::Trailer { empty: false }, b'\n') => Ok(Chunk::Trailer { empty: true }),
            (Chunk::Trailer { .. }, _) => Ok(Chunk::Trailer { empty: false }),
            (Chunk::Size { .. } | Chunk::DataEnd | Chunk::Data { .. } | Chunk::Done, _) => {
                Err(ParseError)
            }
        }
    }
}

fn take<'a>(input: &'a [u8], left: &mut u64) -> &'a [u8] {
    let wanted = usize::try_from(*left).unwrap_or(usize::MAX).min(input.len());
    *left -= u64::try_from(wanted).unwrap_or(0);
    input.get(..wanted).unwrap_or_default()
}

#[cfg(test)]
mod tests;
