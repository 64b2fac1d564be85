//! Values as bytes whose order is that of the values: the keys of indexes, and what is sorted by.
//!
//! | value | bytes |
//! |---|---|
//! | missing, null, false, true | `02`, `03`, `04`, `05` |
//! | number | `06`, the nearest float (8 bytes, made to sort), what the number is more (2 bytes) |
//! | text | `07`, its bytes with `00` as `00 ff`, then `00 01` |
//! | array | `08`, its elements, then `00 01` |
//! | object | `09`, each key as a text and its value, then `00 01` |
//!
//! A descending value has all of its bytes complemented. No encoding begins another one, so that
//! several stand one after another and are compared as a list.
//!
//! Only the first [`INDEX_VALUE_BYTES_MAX`] bytes of an encoding are kept, and this is the order
//! by which documents are sorted, with an index or without one: values that differ later are ties,
//! and the next field decides, or the id. Filters look at whole values, so that whoever finds
//! documents by their keys looks at each of them again. What is cut off begins no other encoding
//! either, and none is cut off to be the beginning of it.

use super::limits::INDEX_VALUE_BYTES_MAX;
use super::order::Direction;
use super::value::{Kind, Num, ValueRef};

const MISSING: u8 = 2;
const NULL: u8 = 3;
const FALSE: u8 = 4;
const TRUE: u8 = 5;
const NUMBER: u8 = 6;
const STRING: u8 = 7;
const ARRAY: u8 = 8;
const OBJECT: u8 = 9;
const END: [u8; 2] = [0, 1];
const ESCAPED_ZERO: [u8; 2] = [0, 0xff];

/// Appends a value, `None` if it is missing, which is less than null. Says whether nothing was cut
/// off.
pub fn encode(value: Option<ValueRef<'_>>, direction: Direction, out: &mut Vec<u8>) -> bool {
    let begin = out.len();
    let mut encoder = Encoder { end: begin + INDEX_VALUE_BYTES_MAX, out };
    let is_whole = match value {
        None => encoder.put(&[MISSING]),
        Some(value) => encoder.value(value),
    }
    .is_some();
    if direction == Direction::Desc {
        complement(out.get_mut(begin..).unwrap_or_default());
    }
    is_whole
}

/// Turns ascending bytes into descending ones, and back.
pub(super) fn complement(bytes: &mut [u8]) {
    for byte in bytes {
        *byte = !*byte;
    }
}

/// The first and the last of the bytes with which values of a kind begin.
pub(super) fn tags(kind: Kind) -> (u8, u8) {
    match kind {
        Kind::Null => (NULL, NULL),
        Kind::Bool => (FALSE, TRUE),
        Kind::Number => (NUMBER, NUMBER),
        Kind::String => (STRING, STRING),
        Kind::Array => (ARRAY, ARRAY),
        Kind::Object => (OBJECT, OBJECT),
    }
}

/// Writes until there is no more room; then it is `None`, and nothing more is looked at.
struct Encoder<'o> {
    out: &'o mut Vec<u8>,
    end: usize,
}

impl Encoder<'_> {
    fn put(&mut self, bytes: &[u8]) -> Option<()> {
        let room = self.end.saturating_sub(self.out.len());
        self.out.extend_from_slice(bytes.get(..room).unwrap_or(bytes));
        (bytes.len() <= room).then_some(())
    }

    fn value(&mut self, value: ValueRef<'_>) -> Option<()> {
        match value {
            ValueRef::Null => self.put(&[NULL]),
            ValueRef::Bool(value) => self.put(&[if value { TRUE } else { FALSE }]),
            ValueRef::Number(number) => self.number(number),
            ValueRef::String(text) => self.text(text),
            ValueRef::Array(elements) => {
                self.put(&[ARRAY])?;
                for element in elements {
                    self.value(element.into())?;
                }
                self.put(&END)
            }
            ValueRef::Object(fields) => {
                self.put(&[OBJECT])?;
                for (key, value) in fields {
                    self.text(key)?;
                    self.value(value.into())?;
                }
                self.put(&END)
            }
        }
    }

    /// Rounding to a float keeps the order, and where it makes numbers equal the rest tells them
    /// apart: it is exact, and at most 1,024 either way.
    fn number(&mut self, number: Num) -> Option<()> {
        let (float, rest) = match number {
            Num::Int(int) => {
                let float = int as f64;
                (float, int - float as i128)
            }
            Num::Float(float) => (float, 0),
        };
        // Minus zero is zero.
        let bits = if float == 0.0 { 0 } else { float.to_bits() };
        let sign = 1 << 63;
        let sortable = if bits & sign == 0 { bits | sign } else { !bits };
        let rest = u16::try_from(rest + 0x8000).unwrap_or(u16::MAX);
        self.put(&[NUMBER])?;
        self.put(&sortable.to_be_bytes())?;
        self.put(&rest.to_be_bytes())
    }

    fn text(&mut self, text: &str) -> Option<()> {
        self.put(&[STRING])?;
        let mut pieces = text.as_bytes().split(|byte| *byte == 0);
        self.put(pieces.next().unwrap_or_default())?;
        for piece in pieces {
            self.put(&ESCAPED_ZERO)?;
            self.put(piece)?;
        }
        self.put(&END)
    }
}

#[cfg(test)]
mod tests {
    use std::cmp::Ordering;

    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;
    use crate::document::arbitrary::{number, plain_value, value};
    use crate::document::value::compare;

    fn encoded(value: Option<&Value>, direction: Direction) -> (Vec<u8>, bool) {
        let mut out = Vec::new();
        let is_whole = encode(value.map(ValueRef::from), direction, &mut out);
        (out, is_whole)
    }

    fn check(left: &Value, right: &Value) {
        let (a, a_whole) = encoded(Some(left), Direction::Asc);
        let (b, b_whole) = encoded(Some(right), Direction::Asc);
        let order = compare(left, right);
        match a.cmp(&b) {
            Ordering::Equal => assert!(order.is_eq() || !(a_whole || b_whole), "{left} {right}"),
            by_bytes => assert_eq!(by_bytes, order, "{left} {right}"),
        }
        assert!(a == b || !b.starts_with(&a), "{left} begins {right}");
        let (down_a, _) = encoded(Some(left), Direction::Desc);
        let (down_b, _) = encoded(Some(right), Direction::Desc);
        assert_eq!(down_a.cmp(&down_b), b.cmp(&a));
    }

    #[test]
    fn what_is_missing_comes_before_null() {
        let (missing, _) = encoded(None, Direction::Asc);
        let (null, _) = encoded(Some(&Value::Null), Direction::Asc);
        assert!(missing < null);
    }

    #[test]
    fn long_texts_are_cut_off_and_keep_their_place() {
        let texts: Vec<Value> = ["a", "b", "\0", ""]
            .iter()
            .flat_map(|end| (505..515).map(move |len| json!("x".repeat(len) + end)))
            .collect();
        for left in &texts {
            for right in &texts {
                check(left, right);
            }
        }
        let (bytes, is_whole) = encoded(Some(&json!("x".repeat(1 << 20))), Direction::Asc);
        assert_eq!((bytes.len(), is_whole), (INDEX_VALUE_BYTES_MAX, false));
        let (bytes, is_whole) = encoded(Some(&json!("x".repeat(509))), Direction::Asc);
        assert_eq!((bytes.len(), is_whole), (INDEX_VALUE_BYTES_MAX, true));
        let many = json!(vec![7; 10_000]);
        assert_eq!(encoded(Some(&many), Direction::Asc).0.len(), INDEX_VALUE_BYTES_MAX);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        #[test]
        fn bytes_have_the_order_of_values(left in value(), right in value()) {
            check(&left, &right);
        }

        #[test]
        fn bytes_have_the_order_of_numbers(left in number(), right in number()) {
            check(&left, &right);
        }

        #[test]
        fn lists_of_values_are_compared_value_by_value(
            left in prop::collection::vec(plain_value(), 3),
            right in prop::collection::vec(plain_value(), 3),
            down in prop::collection::vec(any::<bool>(), 3),
        ) {
            let direction = |is_down| if is_down { Direction::Desc } else { Direction::Asc };
            let list = |values: &[Value]| {
                let parts = values.iter().zip(&down);
                let parts = parts.map(|(value, down)| encoded(Some(value), direction(*down)).0);
                parts.collect::<Vec<_>>()
            };
            let (left, right) = (list(&left), list(&right));
            prop_assert_eq!(left.concat().cmp(&right.concat()), left.cmp(&right));
        }
    }
}
