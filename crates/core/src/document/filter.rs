//! Filters: which documents a query is for, and which one a write may change.

use std::fmt;

use serde_json::Value;

use super::field::{Field, FieldError, shown};
use super::limits::{FILTER_LIST_MAX, FILTER_VALUE_BYTES_MAX, FILTERS_MAX};
use super::snapshot::{DataError, DocumentView, size};
use super::value::{ValueRef, compare};
use crate::time::Millis;

/// One comparison of a field with a value.
///
/// A field that is missing is equal to nothing and in no range: it matches `!=` and `not-in`
/// alone. Ranges never reach from one kind of value into another: no text is more than a number.
#[derive(Debug, Clone, PartialEq)]
pub struct Filter {
    pub field: Field,
    pub op: FilterOp,
    /// For `in` and `not-in` an array, sorted and each value once.
    value: Value,
}

/// How a field is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FilterOp {
    Equal,
    NotEqual,
    More,
    AtLeast,
    Less,
    AtMost,
    In,
    NotIn,
    ArrayContains,
}

/// The filter cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FilterError {
    #[error(transparent)]
    Field(#[from] FieldError),
    #[error(
        "there is no operator `{0}`; use one of ==, !=, >, >=, <, <=, in, not-in, array-contains"
    )]
    UnknownOp(String),
    #[error("`{0}` takes an array of values")]
    NotAList(FilterOp),
    #[error("`{0}` takes at most {FILTER_LIST_MAX} values")]
    ListTooLong(FilterOp),
    #[error("the value of a filter is at most {FILTER_VALUE_BYTES_MAX} bytes long")]
    ValueTooLarge,
    #[error("the value of a filter is nested too deep")]
    ValueTooDeep,
    #[error("there are at most {FILTERS_MAX} filters")]
    TooMany,
}

impl Filter {
    pub fn new(field: &str, op: &str, value: Value) -> Result<Filter, FilterError> {
        Filter { field: Field::parse(field)?, op: FilterOp::parse(op)?, value }.checked()
    }

    /// `ifMatchVersion`.
    pub fn version_is(version: u64) -> Filter {
        Filter { field: Field::Version, op: FilterOp::Equal, value: version.into() }
    }

    /// `ifModifiedSince`, which guards a write: the document must not have been written after the
    /// moment at which its writer has read it.
    pub fn not_updated_after(moment: Millis) -> Filter {
        Filter { field: Field::UpdatedAt, op: FilterOp::AtMost, value: moment.0.into() }
    }

    fn checked(mut self) -> Result<Filter, FilterError> {
        match size(&self.value, 0, &mut 0) {
            Ok(bytes) if bytes > FILTER_VALUE_BYTES_MAX => return Err(FilterError::ValueTooLarge),
            Err(DataError::TooDeep) => return Err(FilterError::ValueTooDeep),
            Err(_) => return Err(FilterError::ValueTooLarge),
            Ok(_) => {}
        }
        if matches!(self.op, FilterOp::In | FilterOp::NotIn) {
            let Value::Array(list) = &mut self.value else {
                return Err(FilterError::NotAList(self.op));
            };
            if list.len() > FILTER_LIST_MAX {
                return Err(FilterError::ListTooLong(self.op));
            }
            list.sort_by(compare);
            list.dedup_by(|left, right| compare(left, right).is_eq());
        }
        Ok(self)
    }

    pub fn value(&self) -> &Value {
        &self.value
    }

    /// The values of `in` and `not-in`, sorted; for others the value.
    pub fn values(&self) -> &[Value] {
        match (&self.value, self.op) {
            (Value::Array(list), FilterOp::In | FilterOp::NotIn) => list,
            (value, _) => std::slice::from_ref(value),
        }
    }

    pub fn matches(&self, view: &DocumentView<'_>) -> bool {
        let Some(found) = self.field.value(view) else {
            return matches!(self.op, FilterOp::NotEqual | FilterOp::NotIn);
        };
        let value = ValueRef::from(&self.value);
        let is_comparable = || found.kind() == value.kind();
        match self.op {
            FilterOp::Equal => found == value,
            FilterOp::NotEqual => found != value,
            FilterOp::More => is_comparable() && found > value,
            FilterOp::AtLeast => is_comparable() && found >= value,
            FilterOp::Less => is_comparable() && found < value,
            FilterOp::AtMost => is_comparable() && found <= value,
            FilterOp::In => self.lists(found),
            FilterOp::NotIn => !self.lists(found),
            FilterOp::ArrayContains => match found {
                ValueRef::Array(elements) => elements.iter().any(|it| ValueRef::from(it) == value),
                _ => false,
            },
        }
    }

    /// How many elements of an array it looks through.
    pub(super) fn elements(&self, view: &DocumentView<'_>) -> usize {
        match (self.op, self.field.value(view)) {
            (FilterOp::ArrayContains, Some(ValueRef::Array(elements))) => elements.len(),
            _ => 0,
        }
    }

    fn lists(&self, found: ValueRef<'_>) -> bool {
        self.values().binary_search_by(|value| ValueRef::from(value).cmp(&found)).is_ok()
    }
}

/// Refuses more filters than a query or a write may have.
pub fn check_count(filters: &[Filter]) -> Result<(), FilterError> {
    if filters.len() > FILTERS_MAX { Err(FilterError::TooMany) } else { Ok(()) }
}

impl FilterOp {
    /// `contains` is another name of `array-contains`.
    pub fn parse(text: &str) -> Result<FilterOp, FilterError> {
        Ok(match text {
            "==" => FilterOp::Equal,
            "!=" => FilterOp::NotEqual,
            ">" => FilterOp::More,
            ">=" => FilterOp::AtLeast,
            "<" => FilterOp::Less,
            "<=" => FilterOp::AtMost,
            "in" => FilterOp::In,
            "not-in" => FilterOp::NotIn,
            "array-contains" | "contains" => FilterOp::ArrayContains,
            _ => return Err(FilterError::UnknownOp(shown(text))),
        })
    }

    pub fn is_range(self) -> bool {
        matches!(self, FilterOp::More | FilterOp::AtLeast | FilterOp::Less | FilterOp::AtMost)
    }
}

impl fmt::Display for FilterOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            FilterOp::Equal => "==",
            FilterOp::NotEqual => "!=",
            FilterOp::More => ">",
            FilterOp::AtLeast => ">=",
            FilterOp::Less => "<",
            FilterOp::AtMost => "<=",
            FilterOp::In => "in",
            FilterOp::NotIn => "not-in",
            FilterOp::ArrayContains => "array-contains",
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::document::snapshot::{Data, Document};

    fn matches(field: &str, op: &str, value: Value) -> bool {
        let data = json!({"n": 5, "big": 9_007_199_254_740_993_u64, "f": 1.5, "t": "b",
                          "yes": true, "nil": null, "tags": ["x", 1, [2]], "o": {"k": 1}});
        let data = Data::new(data.as_object().unwrap().clone()).unwrap();
        let document = Document {
            version: 7,
            created_at: Millis(1),
            updated_at: Millis(100),
            data: Some(data.into()),
        };
        let view = DocumentView { collection: "rooms", id: "r1", document: &document };
        Filter::new(field, op, value).unwrap().matches(&view)
    }

    #[test]
    fn each_operator_is_what_it_says() {
        let table = [
            ("n", "==", json!(5), true),
            ("n", "==", json!(5.0), true),
            ("n", "==", json!("5"), false),
            ("n", "!=", json!(5), false),
            ("n", "!=", json!("5"), true),
            ("n", ">", json!(4.5), true),
            ("n", ">", json!(5), false),
            ("n", ">=", json!(5), true),
            ("n", "<", json!(5), false),
            ("n", "<", json!(5.5), true),
            ("n", "<=", json!(5), true),
            ("n", "in", json!([7, 5.0, "x"]), true),
            ("n", "in", json!(["5"]), false),
            ("n", "in", json!([]), false),
            ("n", "not-in", json!([]), true),
            ("n", "not-in", json!([5]), false),
            ("n", "not-in", json!([6]), true),
            ("tags", "array-contains", json!("x"), true),
            ("tags", "contains", json!(1.0), true),
            ("tags", "contains", json!([2]), true),
            ("tags", "contains", json!(2), false),
            ("t", "contains", json!("b"), false),
            ("tags", "==", json!(["x", 1, [2]]), true),
            ("o", "==", json!({"k": 1.0}), true),
            ("o.k", "<", json!(2), true),
            ("version", "==", json!(7), true),
            ("updatedAt", "<=", json!(100), true),
            ("collection", "==", json!("rooms"), true),
            ("id", "in", json!(["r1", "r2"]), true),
            ("yes", ">", json!(false), true),
        ];
        for (field, op, value, expected) in table {
            assert_eq!(matches(field, op, value.clone()), expected, "{field} {op} {value}");
        }
    }

    #[test]
    fn large_numbers_are_not_rounded() {
        let two_to_53 = || json!(9_007_199_254_740_992.0);
        assert!(!matches("big", "==", two_to_53()));
        assert!(matches("big", ">", two_to_53()));
        assert!(!matches("big", "in", json!([two_to_53(), 9_007_199_254_740_994_u64])));
        assert!(matches("big", "in", json!([two_to_53(), 9_007_199_254_740_993_u64])));
    }

    #[test]
    fn ranges_do_not_reach_other_kinds() {
        for value in [json!("5"), json!(null), json!(true), json!([]), json!({})] {
            for op in [">", ">=", "<", "<="] {
                assert!(!matches("n", op, value.clone()), "{op} {value}");
            }
        }
        assert!(matches("nil", ">=", json!(null)));
    }

    #[test]
    fn what_is_missing_matches_only_what_it_is_not() {
        for op in ["==", "!=", ">", ">=", "<", "<=", "array-contains"] {
            assert_eq!(matches("gone", op, json!(null)), op == "!=", "{op}");
            assert_eq!(matches("n.gone", op, json!(5)), op == "!=", "{op}");
        }
        assert!(!matches("gone", "in", json!([null])));
        assert!(matches("gone", "not-in", json!([null])));
        assert!(matches("nil", "==", json!(null)));
        assert!(!matches("nil", "!=", json!(null)));
    }

    #[test]
    fn sugar_is_a_filter() {
        assert_eq!(Filter::version_is(7), Filter::new("version", "==", json!(7)).unwrap());
        let since = Filter::not_updated_after(Millis(9));
        assert_eq!(since, Filter::new("updatedAt", "<=", json!(9)).unwrap());
    }

    #[test]
    fn what_is_no_filter_says_why() {
        let refused = |field, op, value| Filter::new(field, op, value).unwrap_err();
        assert_eq!(refused("a", "like", json!(1)), FilterError::UnknownOp("like".into()));
        assert_eq!(refused("", "==", json!(1)), FilterError::Field(FieldError::Empty));
        assert_eq!(refused("a", "in", json!(1)), FilterError::NotAList(FilterOp::In));
        let long = json!((0..101).collect::<Vec<_>>());
        assert_eq!(refused("a", "not-in", long), FilterError::ListTooLong(FilterOp::NotIn));
        let large = json!("x".repeat(FILTER_VALUE_BYTES_MAX));
        assert_eq!(refused("a", "==", large), FilterError::ValueTooLarge);
        let deep = (0..40).fold(json!(1), |inner, _| json!([inner]));
        assert_eq!(refused("a", "==", deep), FilterError::ValueTooDeep);
        let many = vec![Filter::version_is(1); FILTERS_MAX + 1];
        assert_eq!(check_count(&many), Err(FilterError::TooMany));
        assert_eq!(check_count(&many[1..]), Ok(()));
    }
}
