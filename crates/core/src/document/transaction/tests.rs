//! Transactions: the law of each write, and all of them against a map of documents.

use std::convert::Infallible;

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::*;
use crate::document::body::ReservedFields;
use crate::document::limits::FILTERS_MAX;

/// The documents of a tenant.
#[derive(Debug, Clone, Default, PartialEq)]
struct Store(BTreeMap<DocumentPath, Document>);

fn path(id: &str) -> DocumentPath {
    DocumentPath::parse(&format!("rooms/{id}")).unwrap()
}

fn data(value: Value) -> Data {
    Data::new(value.as_object().unwrap().clone()).unwrap()
}

fn op(kind: &str, id: &str, body: Value) -> Op {
    let path = path(id);
    let fields = body.as_object().unwrap().clone();
    let write = match kind {
        "create" => Write::Create(data(body).into()),
        "set" => Write::Set(data(body).into()),
        "patch" => Write::Patch(Patch::parse(fields, path.id(), ReservedFields::Refuse).unwrap()),
        _ => Write::Delete,
    };
    Op { path, write, preconditions: Vec::new() }
}

fn guarded(op: Op, field: &str, by: &str, value: Value) -> Op {
    let mut op = op;
    op.preconditions.push(Filter::new(field, by, value).unwrap());
    op
}

impl Store {
    fn apply(&mut self, ops: &[Op], now: u64) -> Result<Applied, Failure> {
        let read = |path: &DocumentPath| Ok::<_, Infallible>(self.0.get(path).cloned());
        match apply(ops, Millis(now), TransactionLimits::default(), read) {
            Ok(applied) => {
                self.0.extend(applied.documents.clone());
                Ok(applied)
            }
            Err(ApplyError::Failed(failure)) => Err(failure),
            Err(ApplyError::Unread(never)) => match never {},
        }
    }

    fn one(&mut self, op: Op, now: u64) -> Result<(ChangeKind, u64), OpError> {
        let applied = self.apply(&[op], now).map_err(|failure| failure.reason)?;
        Ok((applied.changes[0].kind, applied.results[0].version))
    }

    fn document(&self, id: &str) -> (u64, u64, u64, Option<Value>) {
        let document = &self.0[&path(id)];
        let Document { version, created_at, updated_at, data } = document.clone();
        let fields = data.map(|data| Value::Object(data.fields().clone()));
        (version, created_at.0, updated_at.0, fields)
    }
}

use ChangeKind::{Create, Delete, Update};

#[test]
fn a_document_lives_and_comes_back_and_its_version_goes_on() {
    let mut store = Store::default();
    assert_eq!(store.one(op("create", "a", json!({"n": 1, "m": 1})), 10), Ok((Create, 1)));
    assert_eq!(store.one(op("patch", "a", json!({"n": 2})), 20), Ok((Update, 2)));
    assert_eq!(store.document("a"), (2, 10, 20, Some(json!({"n": 2, "m": 1}))));
    // Nothing changes but the version.
    assert_eq!(store.one(op("patch", "a", json!({"n": 2})), 30), Ok((Update, 3)));
    assert_eq!(store.one(op("set", "a", json!({"q": 1})), 40), Ok((Update, 4)));
    assert_eq!(store.document("a"), (4, 10, 40, Some(json!({"q": 1}))));
    assert_eq!(store.one(op("delete", "a", json!({})), 50), Ok((Delete, 5)));
    assert_eq!(store.document("a"), (5, 10, 50, None));
    assert_eq!(store.one(op("create", "a", json!({})), 60), Ok((Create, 6)));
    assert_eq!(store.document("a"), (6, 60, 60, Some(json!({}))));
    assert_eq!(store.one(op("delete", "a", json!({})), 70), Ok((Delete, 7)));
    assert_eq!(store.one(op("set", "a", json!({})), 80), Ok((Create, 8)));
    assert_eq!(store.one(op("set", "b", json!({})), 80), Ok((Create, 1)));
}

#[test]
fn each_write_has_its_refusals() {
    let mut store = Store::default();
    store.one(op("create", "live", json!({"t": "x"})), 10).unwrap();
    store.one(op("create", "dead", json!({})), 10).unwrap();
    store.one(op("delete", "dead", json!({})), 10).unwrap();
    let before = store.clone();
    let mut refused = |op: Op| store.one(op, 20).unwrap_err();
    assert_eq!(refused(op("create", "live", json!({}))), OpError::AlreadyExists(path("live")));
    for id in ["dead", "gone"] {
        for kind in ["patch", "delete"] {
            let op = op(kind, id, json!({"n": 1}));
            assert_eq!(refused(op.clone()), OpError::NotFound(path(id)), "{kind} {id}");
            // That it is not there comes before what it would have to be.
            let guarded = guarded(op, "version", "==", json!(2));
            assert_eq!(refused(guarded), OpError::NotFound(path(id)), "{kind} {id}");
        }
        for kind in ["create", "set"] {
            let guarded = guarded(op(kind, id, json!({})), "version", "!=", json!(7));
            assert_eq!(refused(guarded), OpError::NothingToCompare(path(id)), "{kind} {id}");
        }
    }
    for kind in ["set", "patch", "delete"] {
        let by = |field, by, value| guarded(op(kind, "live", json!({"n": 1})), field, by, value);
        assert_eq!(refused(by("version", "==", json!(2))), OpError::VersionMismatch(1));
        let reason =
            OpError::PreconditionFailed { index: 0, field: "t".into(), op: FilterOp::NotEqual };
        assert_eq!(refused(by("t", "!=", json!("x"))), reason);
        let mut late = op(kind, "live", json!({"n": 1}));
        late.preconditions = vec![Filter::version_is(1), Filter::not_updated_after(Millis(9))];
        assert!(matches!(refused(late), OpError::PreconditionFailed { index: 1, .. }));
    }
    let inside = OpError::Body(BodyError::NotAnObject("t".into()));
    assert_eq!(refused(op("patch", "live", json!({"t.x": 1}))), inside);
    assert_eq!(store, before);
    let mut in_time = op("patch", "live", json!({"n": 1}));
    in_time.preconditions = vec![Filter::version_is(1), Filter::not_updated_after(Millis(10))];
    assert_eq!(store.one(in_time, 20), Ok((Update, 2)));
}

#[test]
fn writes_of_a_transaction_see_each_other_and_become_one_change_each() {
    let mut store = Store::default();
    let ops = [
        op("create", "a", json!({"n": 1})),
        guarded(op("patch", "a", json!({"n": 2})), "n", "==", json!(1)),
        guarded(op("delete", "a", json!({})), "version", "==", json!(2)),
        op("create", "b", json!({})),
        op("create", "a", json!({"n": 3})),
    ];
    let applied = store.apply(&ops, 10).unwrap();
    let versions: Vec<u64> = applied.results.iter().map(|result| result.version).collect();
    assert_eq!(versions, [1, 2, 3, 1, 4]);
    let kinds: Vec<_> = applied.changes.iter().map(|change| change.kind).collect();
    assert_eq!(kinds, [Create, Update, Delete, Create, Create]);
    let shape = |change: &Change| {
        let version = |document: &Option<Document>| document.as_ref().map(|it| it.version);
        (change.ordinal, version(&change.before), version(&change.after))
    };
    let shapes: Vec<_> = applied.changes.iter().map(shape).collect();
    let expected = [
        (0, None, Some(1)),
        (1, Some(1), Some(2)),
        (2, Some(2), None),
        (3, None, Some(1)),
        (4, None, Some(4)),
    ];
    assert_eq!(shapes, expected);
    assert_eq!(applied.documents.len(), 2);
    assert_eq!(store.document("a"), (4, 10, 10, Some(json!({"n": 3}))));
}

#[test]
fn one_refusal_undoes_all() {
    let mut store = Store::default();
    let ops = [
        op("create", "a", json!({})),
        op("create", "b", json!({})),
        op("delete", "c", json!({})),
        op("create", "d", json!({})),
    ];
    let failure = store.apply(&ops, 10).unwrap_err();
    assert_eq!(failure, Failure { op_index: 2, reason: OpError::NotFound(path("c")) });
    assert_eq!(failure.to_string(), "write 2: there is no document `rooms/c`");
    assert_eq!(store, Store::default());
}

#[test]
fn time_that_goes_back_does_not_take_a_document_along() {
    let mut store = Store::default();
    store.one(op("create", "a", json!({})), 50).unwrap();
    store.one(op("patch", "a", json!({"n": 1})), 40).unwrap();
    assert_eq!(store.document("a").2, 50);
}

#[test]
fn a_transaction_has_its_limits() {
    let mut store = Store::default();
    let many = vec![op("set", "a", json!({})); TRANSACTION_OPS_MAX + 1];
    let failure = store.apply(&many, 1).unwrap_err();
    assert_eq!(failure.op_index, TRANSACTION_OPS_MAX);
    assert_eq!(failure.reason.end(), WriteEnd::Exhausted);
    assert!(store.apply(&many[1..], 1).is_ok());
    // A small patch of a large document is as large a change as the document, twice.
    store.one(op("set", "large", json!({"t": "x".repeat(1_000_000)})), 1).unwrap();
    let patches = vec![op("patch", "large", json!({"n": 1})); 3];
    assert!(store.apply(&patches[1..], 1).is_ok());
    let failure = store.apply(&patches, 1).unwrap_err();
    assert_eq!(failure.op_index, 2);
    assert_eq!(failure.reason, OpError::TooManyBytes(TRANSACTION_BYTES_MAX));
    // As many elements as there may be, and one more write that looks at any.
    let count = PRECONDITION_ELEMENTS_MAX / (FILTERS_MAX * 10);
    store.one(op("set", "list", json!({"t": vec![1; count - 1], "few": [1]})), 1).unwrap();
    let has = |field: &str| Filter::new(field, "array-contains", json!(1)).unwrap();
    let guarded = |preconditions| Op { preconditions, ..op("patch", "list", json!({"n": 1})) };
    let mut ops = vec![guarded(vec![has("t"); FILTERS_MAX]); 10];
    ops.extend(vec![guarded(vec![has("few"); FILTERS_MAX]); 10]);
    assert!(store.apply(&ops, 1).is_ok());
    ops.push(guarded(vec![has("t")]));
    let failure = store.apply(&ops, 1).unwrap_err();
    assert_eq!((failure.op_index, failure.reason.end()), (20, WriteEnd::Exhausted));
}

#[test]
fn a_document_that_cannot_be_read_is_no_missing_one() {
    let read = |_: &DocumentPath| Err("cold");
    let ops = [op("create", "a", json!({}))];
    let unread = apply(&ops, Millis(1), TransactionLimits::default(), read);
    assert_eq!(unread, Err(ApplyError::Unread("cold")));
}

/// What a client knows of a document: version and fields, no fields once it is deleted.
type Model = BTreeMap<String, (u64, Option<Map<String, Value>>)>;

/// The same laws once more, written the short way. `None` if the write is refused.
fn model(state: &mut Model, kind: &str, id: &str, n: u64, if_version: Option<u64>) -> Option<()> {
    let entry = state.entry(id.to_owned()).or_default();
    let is_live = entry.1.is_some();
    let is_allowed = match kind {
        "create" => !is_live && if_version.is_none(),
        "set" => if_version.is_none_or(|version| is_live && version == entry.0),
        _ => is_live && if_version.is_none_or(|version| version == entry.0),
    };
    if !is_allowed {
        return None;
    }
    let fields = || Map::from_iter([("n".to_owned(), json!(n))]);
    entry.0 += 1;
    entry.1 = match kind {
        "delete" => None,
        "patch" => {
            let mut before = entry.1.take()?;
            before.insert(format!("f{n}"), json!(1));
            Some(before)
        }
        _ => Some(fields()),
    };
    Some(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn transactions_do_what_the_model_does(
        transactions in prop::collection::vec(
            prop::collection::vec(
                (
                    prop::sample::select(vec!["create", "set", "set", "patch", "delete"]),
                    prop::sample::select(vec!["a", "b"]),
                    0u64..3,
                    prop::option::weighted(0.3, 1u64..5),
                ),
                1..4,
            ),
            1..20,
        ),
    ) {
        let mut store = Store::default();
        let mut expected = Model::new();
        for (now, transaction) in (1..).zip(transactions) {
            let ops: Vec<Op> = transaction
                .iter()
                .map(|(kind, id, n, if_version)| {
                    let name = if *kind == "patch" { format!("f{n}") } else { "n".to_owned() };
                    let value = if *kind == "patch" { 1 } else { *n };
                    let mut op = op(kind, id, json!({ name: value }));
                    op.preconditions.extend(if_version.map(Filter::version_is));
                    op
                })
                .collect();
            let mut next = expected.clone();
            let refused = transaction.iter().position(|(kind, id, n, if_version)| {
                model(&mut next, kind, id, *n, *if_version).is_none()
            });
            match store.apply(&ops, now) {
                Ok(applied) => {
                    prop_assert_eq!(refused, None);
                    prop_assert_eq!(applied.changes.len(), ops.len());
                    expected = next;
                }
                Err(failure) => prop_assert_eq!(refused, Some(failure.op_index)),
            }
            for (id, (version, fields)) in &expected {
                let found = store.0.get(&path(id));
                prop_assert_eq!(found.map_or(0, |it| it.version), *version);
                let data = found.and_then(|it| it.data.as_ref());
                prop_assert_eq!(data.map(|data| data.fields()), fields.as_ref());
            }
        }
    }
}
