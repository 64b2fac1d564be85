//! Values of documents as they are compared: without copies, and exactly.
//!
//! The order is total: null < false < true < numbers < texts < arrays < objects. Numbers are one
//! kind, whatever they were written as: `1` and `1.0` are equal, and no two numbers are taken for
//! equal because one of them is too large for a float. Texts go by their bytes (UTF-8), arrays by
//! their elements, objects by their sorted keys and values.

use std::cmp::Ordering;

use serde_json::{Map, Value};

/// A value that lies in a document, or one of the document's own fields.
#[derive(Debug, Clone, Copy)]
pub enum ValueRef<'a> {
    Null,
    Bool(bool),
    Number(Num),
    String(&'a str),
    Array(&'a [Value]),
    Object(&'a Map<String, Value>),
}

/// A number of JSON.
#[derive(Debug, Clone, Copy)]
pub enum Num {
    /// Within `i64::MIN..=u64::MAX`.
    Int(i128),
    /// Finite.
    Float(f64),
}

/// Values of different kinds are never in a range of each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Null,
    Bool,
    Number,
    String,
    Array,
    Object,
}

impl ValueRef<'_> {
    pub fn kind(&self) -> Kind {
        match self {
            ValueRef::Null => Kind::Null,
            ValueRef::Bool(_) => Kind::Bool,
            ValueRef::Number(_) => Kind::Number,
            ValueRef::String(_) => Kind::String,
            ValueRef::Array(_) => Kind::Array,
            ValueRef::Object(_) => Kind::Object,
        }
    }
}

impl<'a> From<&'a Value> for ValueRef<'a> {
    fn from(value: &'a Value) -> ValueRef<'a> {
        match value {
            Value::Null => ValueRef::Null,
            Value::Bool(value) => ValueRef::Bool(*value),
            Value::Number(number) => ValueRef::Number(Num::from(number)),
            Value::String(text) => ValueRef::String(text),
            Value::Array(elements) => ValueRef::Array(elements),
            Value::Object(fields) => ValueRef::Object(fields),
        }
    }
}

impl From<&serde_json::Number> for Num {
    fn from(number: &serde_json::Number) -> Num {
        let int = number.as_i64().map(i128::from).or_else(|| number.as_u64().map(i128::from));
        // Without arbitrary precision each number is one of the three.
        int.map_or_else(|| Num::Float(number.as_f64().unwrap_or(0.0)), Num::Int)
    }
}

impl From<u64> for Num {
    fn from(number: u64) -> Num {
        Num::Int(i128::from(number))
    }
}

impl Ord for ValueRef<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (ValueRef::Bool(left), ValueRef::Bool(right)) => left.cmp(right),
            (ValueRef::Number(left), ValueRef::Number(right)) => left.cmp(right),
            (ValueRef::String(left), ValueRef::String(right)) => left.cmp(right),
            (ValueRef::Array(left), ValueRef::Array(right)) => {
                let pairs = left.iter().zip(right.iter());
                let mut unequal = pairs.map(|(left, right)| compare(left, right));
                unequal.find(|it| it.is_ne()).unwrap_or_else(|| left.len().cmp(&right.len()))
            }
            (ValueRef::Object(left), ValueRef::Object(right)) => {
                let pairs = left.iter().zip(right.iter());
                let mut unequal = pairs.map(|((left_key, left), (right_key, right))| {
                    left_key.cmp(right_key).then_with(|| compare(left, right))
                });
                unequal.find(|it| it.is_ne()).unwrap_or_else(|| left.len().cmp(&right.len()))
            }
            _ => self.kind().cmp(&other.kind()),
        }
    }
}

/// The order of two values. Recursion ends where nesting does: what was read is not deeper than
/// the reader of JSON goes.
pub fn compare(left: &Value, right: &Value) -> Ordering {
    ValueRef::from(left).cmp(&ValueRef::from(right))
}

impl PartialOrd for ValueRef<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for ValueRef<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for ValueRef<'_> {}

impl Ord for Num {
    fn cmp(&self, other: &Self) -> Ordering {
        match (*self, *other) {
            (Num::Int(left), Num::Int(right)) => left.cmp(&right),
            // Both are finite; minus zero is zero.
            (Num::Float(left), Num::Float(right)) => {
                left.partial_cmp(&right).unwrap_or(Ordering::Equal)
            }
            (Num::Int(left), Num::Float(right)) => compare_int(left, right),
            (Num::Float(left), Num::Int(right)) => compare_int(right, left).reverse(),
        }
    }
}

/// Exact: a float is a whole number and a fraction, and both are known without rounding.
fn compare_int(int: i128, float: f64) -> Ordering {
    // 2^64 and -2^64: beyond every integer, and within what the conversion below can hold.
    const BEYOND: f64 = 18_446_744_073_709_551_616.0;
    if float >= BEYOND {
        return Ordering::Less;
    }
    if float <= -BEYOND {
        return Ordering::Greater;
    }
    let whole = float.trunc();
    let by_fraction = || 0.0.partial_cmp(&(float - whole)).unwrap_or(Ordering::Equal);
    int.cmp(&(whole as i128)).then_with(by_fraction)
}

impl PartialOrd for Num {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Num {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Num {}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::document::arbitrary::{number, value};

    #[test]
    fn the_kinds_have_an_order_and_so_has_each() {
        let sorted = [
            json!(null),
            json!(false),
            json!(true),
            json!(-1e300),
            json!(i64::MIN),
            json!(-1.5),
            json!(-1),
            json!(0),
            json!(0.5),
            json!(1),
            json!(9_007_199_254_740_992_u64),
            json!(9_007_199_254_740_993_u64),
            json!(u64::MAX - 1),
            json!(u64::MAX),
            json!(1e300),
            json!(""),
            json!("A"),
            json!("a"),
            json!("a\0"),
            json!("aa"),
            json!("\u{e9}"),
            json!([]),
            json!([null]),
            json!([1]),
            json!([1, 0]),
            json!([2]),
            json!({}),
            json!({"a": 1}),
            json!({"a": 1, "b": 0}),
            json!({"a": 2}),
            json!({"b": 0}),
        ];
        for (i, left) in sorted.iter().enumerate() {
            for (j, right) in sorted.iter().enumerate() {
                assert_eq!(compare(left, right), i.cmp(&j), "{left} {right}");
            }
        }
    }

    #[test]
    fn numbers_are_not_rounded() {
        let equal = |left: Value, right: Value| compare(&left, &right).is_eq();
        assert!(equal(json!(1), json!(1.0)));
        assert!(equal(json!(0), json!(-0.0)));
        assert!(equal(json!(9_007_199_254_740_992_u64), json!(9_007_199_254_740_992.0)));
        // As floats these would be the same.
        assert!(!equal(json!(9_007_199_254_740_993_u64), json!(9_007_199_254_740_992.0)));
        assert!(!equal(json!(u64::MAX), json!(18_446_744_073_709_551_616.0)));
        assert!(!equal(json!(i64::MAX), json!(9_223_372_036_854_775_808.0)));
        assert!(equal(json!(i64::MIN), json!(-9_223_372_036_854_775_808.0)));
    }

    proptest! {
        #[test]
        fn the_order_is_total(a in value(), b in value(), c in value()) {
            prop_assert_eq!(compare(&a, &b), compare(&b, &a).reverse());
            prop_assert!(compare(&a, &a).is_eq());
            if compare(&a, &b).is_le() && compare(&b, &c).is_le() {
                prop_assert!(compare(&a, &c).is_le());
            }
        }

        #[test]
        fn numbers_have_a_total_order(mut numbers in prop::collection::vec(number(), 3)) {
            numbers.sort_by(compare);
            prop_assert!(compare(&numbers[0], &numbers[2]).is_le());
            prop_assert!(compare(&numbers[0], &numbers[1]).is_le());
        }

        /// Index entries are found again by what is stored, so that must be what was sent.
        #[test]
        fn a_number_that_is_stored_is_read_again_as_itself(number in number()) {
            let stored: Value = serde_json::from_str(&number.to_string()).unwrap();
            prop_assert_eq!(stored, number);
        }
    }

    /// Objects are compared in the order of their keys, which their map must keep.
    #[test]
    fn objects_are_sorted_maps() {
        let object: Map<String, Value> = serde_json::from_str(r#"{"b":1,"a":2}"#).unwrap();
        assert_eq!(object.keys().collect::<Vec<_>>(), ["a", "b"]);
    }
}
