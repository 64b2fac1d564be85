//! Messages that say who they are and whose every byte follows from that, so that one that is
//! torn, mixed up or invented cannot pass.
//!
//! ```text
//! text   0000000000000a07 0 1 12 Zk3v…\n                      append, index, of, pad bytes, pad
//! json   {"append":"0000000000000a07","index":0,"of":3,"pad":"Zk3v…"}
//! ```

use std::fmt::Write as _;

use serde_json::value::RawValue;

use crate::random::Random;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MessageFormat {
    Json,
    Text,
}

impl MessageFormat {
    pub(crate) fn content_type(self) -> &'static str {
        match self {
            MessageFormat::Json => "application/json",
            MessageFormat::Text => "text/plain",
        }
    }
}

/// What padding is made of: nothing that text or JSON would have to escape.
const PAD: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+-";

/// Names one append for all time.
pub(crate) type AppendId = u64;

/// One request's worth of messages, by the length of their padding. Text has exactly one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Append {
    pub(crate) id: AppendId,
    pub(crate) pads: Vec<usize>,
}

impl Append {
    pub(crate) fn body(&self, kind: MessageFormat) -> Vec<u8> {
        let messages = self.pads.iter().enumerate();
        let mut messages = messages.map(|(index, &pad)| self.message(kind, index, pad));
        match kind {
            MessageFormat::Text => messages.collect::<String>().into_bytes(),
            MessageFormat::Json if self.pads.len() == 1 => {
                messages.next().unwrap_or_default().into_bytes()
            }
            MessageFormat::Json => {
                format!("[{}]", messages.collect::<Vec<_>>().join(",")).into_bytes()
            }
        }
    }

    fn message(&self, kind: MessageFormat, index: usize, pad: usize) -> String {
        message(kind, MessageId { append: self.id, index, of: self.pads.len() }, pad)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct MessageId {
    append: AppendId,
    index: usize,
    of: usize,
}

/// The appends in `bytes`, in order, each found whole.
pub(crate) fn read(kind: MessageFormat, bytes: &[u8]) -> Result<Vec<AppendId>, String> {
    let text = std::str::from_utf8(bytes).map_err(|error| format!("not UTF-8: {error}"))?;
    let messages = match kind {
        MessageFormat::Text => read_text(text)?,
        MessageFormat::Json => read_json(text)?,
    };
    let mut appends = Vec::new();
    let mut messages = messages.into_iter();
    while let Some(first) = messages.next() {
        let mut found = first;
        for index in 0..first.of {
            if index > 0 {
                found = messages.next().ok_or_else(|| format!("{first:x?} ends too early"))?;
            }
            if found != (MessageId { index, ..first }) {
                return Err(format!("{found:x?} within {first:x?}"));
            }
        }
        appends.push(first.append);
    }
    Ok(appends)
}

fn read_text(text: &str) -> Result<Vec<MessageId>, String> {
    let mut messages = Vec::new();
    for line in text.split_inclusive('\n') {
        let words: Vec<&str> = line.splitn(5, ' ').collect();
        let [append, index, of, pad, _] = words.as_slice() else {
            return Err(format!("torn message {:?}", start(line)));
        };
        messages.push(recognize(MessageFormat::Text, line, append, index, of, pad.parse().ok())?);
    }
    Ok(messages)
}

fn read_json(text: &str) -> Result<Vec<MessageId>, String> {
    let raw: Vec<&RawValue> =
        serde_json::from_str(text).map_err(|error| format!("not a JSON array: {error}"))?;
    let mut messages = Vec::new();
    for value in raw {
        let message = value.get();
        let parts: Vec<&str> = message.splitn(5, [':', ',']).collect();
        let [_, append, _, index, rest] = parts.as_slice() else {
            return Err(format!("foreign message {:?}", start(message)));
        };
        let of = rest.strip_prefix("\"of\":").and_then(|rest| rest.split(',').next());
        let pad = message.split_once("\"pad\":\"").map(|(_, pad)| pad.len().saturating_sub(2));
        let (append, of) = (append.trim_matches('"'), of.unwrap_or_default());
        messages.push(recognize(MessageFormat::Json, message, append, index, of, pad)?);
    }
    Ok(messages)
}

/// The message as named, if its bytes are exactly those of the message of that name.
fn recognize(
    kind: MessageFormat,
    bytes: &str,
    append: &str,
    index: &str,
    of: &str,
    pad: Option<usize>,
) -> Result<MessageId, String> {
    let id = || {
        let append = AppendId::from_str_radix(append, 16).ok()?;
        let of = of.parse().ok().filter(|of| *of > 0)?;
        Some(MessageId { append, index: index.parse().ok()?, of })
    };
    match (id(), pad) {
        // A damaged length must not make us render gigabytes.
        (Some(id), Some(pad)) if pad <= bytes.len() && message(kind, id, pad) == bytes => Ok(id),
        _ => Err(format!("damaged message {:?}", start(bytes))),
    }
}

fn message(kind: MessageFormat, id: MessageId, pad: usize) -> String {
    let MessageId { append, index, of } = id;
    let mut text = String::with_capacity(pad + 80);
    let written = match kind {
        MessageFormat::Text => write!(text, "{append:016x} {index} {of} {pad} "),
        MessageFormat::Json => {
            write!(text, "{{\"append\":\"{append:016x}\",\"index\":{index},\"of\":{of},\"pad\":\"")
        }
    };
    written.expect("writing to a string cannot fail");
    let mut random = Random::new(append).branch((index as u64) << 32 | of as u64);
    let end = text.len() + pad;
    while text.len() < end {
        for byte in random.next().to_le_bytes().into_iter().take(end - text.len()) {
            text.push(PAD.get(usize::from(byte & 63)).map_or('-', |plain| char::from(*plain)));
        }
    }
    text.push_str(match kind {
        MessageFormat::Text => "\n",
        MessageFormat::Json => "\"}",
    });
    text
}

/// Enough of a message to tell which one it is.
fn start(message: &str) -> &str {
    message.get(..80).unwrap_or(message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn append(id: AppendId, pads: &[usize]) -> Append {
        Append { id, pads: pads.to_vec() }
    }

    #[test]
    fn what_was_written_is_read_back() {
        let text = [append(1, &[0]), append(2, &[7]), append(u64::MAX, &[100_000])];
        let bodies: Vec<u8> =
            text.iter().flat_map(|append| append.body(MessageFormat::Text)).collect();
        assert_eq!(read(MessageFormat::Text, &bodies), Ok(vec![1, 2, u64::MAX]));
        assert_eq!(read(MessageFormat::Text, b""), Ok(vec![]));

        assert_eq!(
            read(MessageFormat::Json, &append(3, &[5, 0, 900]).body(MessageFormat::Json)),
            Ok(vec![3])
        );
        let one = append(4, &[3]).body(MessageFormat::Json);
        let two = append(5, &[3]).body(MessageFormat::Json);
        let array = [b"[", one.as_slice(), b" , ", two.as_slice(), b"]"].concat();
        assert_eq!(read(MessageFormat::Json, &array), Ok(vec![4, 5]));
        assert_eq!(read(MessageFormat::Json, b"[]"), Ok(vec![]));
    }

    #[test]
    fn any_flipped_bit_and_any_cut_is_noticed() {
        let wholes = [
            (MessageFormat::Text, append(7, &[20]).body(MessageFormat::Text)),
            (MessageFormat::Json, append(7, &[3, 9]).body(MessageFormat::Json)),
        ];
        for (kind, whole) in wholes {
            for position in 0..whole.len() {
                for bit in 0..8 {
                    let mut damaged = whole.clone();
                    damaged[position] ^= 1 << bit;
                    // Another whole message of another name is not damage: the model knows names.
                    assert_ne!(read(kind, &damaged), Ok(vec![7]), "{kind:?} {position} {bit}");
                }
                let cut = read(kind, &whole[..position]);
                assert!(
                    position == 0 && kind == MessageFormat::Text || cut.is_err(),
                    "{kind:?} {position}"
                );
            }
        }
    }

    #[test]
    fn part_of_an_append_is_noticed() {
        let whole = append(9, &[1, 1, 1]).body(MessageFormat::Json);
        let whole = std::str::from_utf8(&whole).unwrap();
        let messages: Vec<&str> = whole[1..whole.len() - 1].split_inclusive('}').collect();
        let without_last = format!("[{}{}]", messages[0], messages[1]);
        let without_first = format!("[{}{}]", &messages[1][1..], messages[2]);
        for part in [without_last, without_first] {
            assert!(read(MessageFormat::Json, part.as_bytes()).is_err(), "{part}");
        }
    }
}
