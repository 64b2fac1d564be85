//! Values, filters and orders at random, small enough to meet each other often.

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::filter::Filter;
use super::order::{Direction, Order, SortField};
use super::snapshot::{Data, Document};
use crate::time::Millis;

/// Numbers, close to each other and where floats become coarse.
pub(crate) fn number() -> impl Strategy<Value = Value> {
    prop_oneof![
        (-3i64..4).prop_map(Value::from),
        (-6i64..7).prop_map(|half| json!(f64::from(i32::try_from(half).unwrap()) / 2.0)),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        (0u64..4, 52u32..64).prop_map(|(more, bits)| json!((1u64 << bits) + more)),
        (0u64..4, 52u32..64).prop_map(|(more, bits)| json!(((1u64 << bits) + more) as f64)),
        (0i64..4, 52u32..63).prop_map(|(more, bits)| json!(-(1i64 << bits) - more)),
        any::<f64>().prop_filter("finite", |it| it.is_finite()).prop_map(|it| json!(it)),
    ]
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof!["[ab\u{0}\u{1}\u{ff}]{0,3}", ".{0,6}"]
}

/// Any value, three levels deep.
pub(crate) fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        number(),
        text().prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::btree_map(text(), inner, 0..3)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

/// Few values, so that filters match, with texts that are longer than what an order looks at.
pub(crate) fn plain_value() -> impl Strategy<Value = Value> {
    prop_oneof![
        4 => (0i64..4).prop_map(Value::from),
        1 => Just(json!(1.5)),
        2 => "[ab]{1,2}".prop_map(Value::from),
        1 => "[ab]{1}".prop_map(|end| json!("x".repeat(600) + &end)),
        1 => Just(Value::Null),
        1 => any::<bool>().prop_map(Value::from),
        1 => prop::collection::vec(0i64..3, 0..3).prop_map(Value::from),
    ]
}

pub(crate) const FIELDS: [&str; 6] = ["a", "b", "c.d", "version", "updatedAt", "id"];

pub(crate) fn document() -> impl Strategy<Value = Document> {
    let field = || prop::option::weighted(0.8, plain_value());
    let live = (field(), field(), field(), 1u64..4, 0u64..3, prop::bool::weighted(0.1));
    live.prop_map(|(a, b, d, version, updated, is_deleted)| {
        let mut fields = Map::new();
        fields.extend(a.map(|a| ("a".to_owned(), a)));
        fields.extend(b.map(|b| ("b".to_owned(), b)));
        fields.extend(d.map(|d| ("c".to_owned(), json!({"d": d}))));
        let data = (!is_deleted).then(|| Data::new(fields).unwrap().into());
        Document { version, created_at: Millis(0), updated_at: Millis(updated), data }
    })
}

pub(crate) fn filter() -> impl Strategy<Value = Filter> {
    let op = prop::sample::select(vec![
        "==",
        "==",
        "==",
        "!=",
        ">",
        ">=",
        "<",
        "<=",
        "in",
        "in",
        "not-in",
        "array-contains",
    ]);
    let list = prop::collection::vec(plain_value(), 0..4);
    let id = prop_oneof![plain_value(), (0u8..30).prop_map(|n| json!(format!("d{n:02}")))];
    (prop::sample::select(FIELDS.to_vec()), op, plain_value(), list, id).prop_map(
        |(field, op, value, list, id)| {
            let value = match (op, field) {
                ("in" | "not-in", _) => Value::from(list),
                (_, "id") => id,
                _ => value,
            };
            Filter::new(field, op, value).unwrap()
        },
    )
}

pub(crate) fn sort_fields() -> impl Strategy<Value = Vec<(&'static str, Direction)>> {
    let direction = prop::sample::select(vec![Direction::Asc, Direction::Desc]);
    let fields = prop::sample::subsequence(FIELDS.to_vec(), 0..4).prop_shuffle();
    (fields, prop::collection::vec(direction, 4))
        .prop_map(|(fields, directions)| fields.into_iter().zip(directions).collect())
}

pub(crate) fn order() -> impl Strategy<Value = Order> {
    sort_fields().prop_map(|fields| {
        let field = |(name, direction)| SortField::new(name, direction).unwrap();
        Order::new(fields.into_iter().map(field).collect()).unwrap()
    })
}
