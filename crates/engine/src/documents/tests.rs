//! Decisions about documents.

mod history;
mod indexes;
mod queries;
mod rules;

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use reveille_core::delivery::id::EventNo;
use reveille_core::document::body::ReservedFields;
use reveille_core::document::change::FACE;
use reveille_core::document::filter::Filter;
use reveille_core::document::idempotency::{BodyHash, IdempotencyKey, WriteEnd};
use reveille_core::document::index::{CollectionPattern, IndexDefinition};
use reveille_core::document::order::{Direction, SortField};
use reveille_core::document::origin::Origin;
use reveille_core::document::patch::Patch;
use reveille_core::document::path::DocumentPath;
use reveille_core::document::settings::DocumentSettings;
use reveille_core::document::snapshot::{Data, Document};
use reveille_core::document::transaction::{Failure, Op, OpError, Write};
use reveille_core::{Millis, Tenant};
use reveille_kernel::error::Error;
use reveille_schema::{Record, keys, record};
use serde_json::{Value, json};

use super::declare::{IndexView, SetDocumentIndexes};
use super::error::DocumentRejection;
use super::outcome::{WriteTag, WritesInFlight};
use super::query;
use super::write::{WriteDocuments, WriteReceipt};
use crate::app::Settings;
use crate::deliveries::source;
use crate::deliveries::trim::{TrimEvents, TrimPlan};
use crate::engine::Engine;
use crate::records::{ReadRecord, Scan};
use crate::testing::{Bench, Decided};

type Written = Decided<Result<WriteReceipt, DocumentRejection>, DocumentRejection>;

pub(super) struct World {
    pub(super) bench: Bench,
    pub(super) tenant: Tenant,
}

impl World {
    pub(super) fn new() -> World {
        World::with(DocumentSettings::default())
    }

    pub(super) fn with(documents: DocumentSettings) -> World {
        let bench = Bench::with(Settings { documents, ..Settings::default() });
        World { tenant: bench.tenant.clone(), bench }
    }

    pub(super) fn command(&self, ops: Vec<Op>, tag: Option<WriteTag>) -> WriteDocuments {
        let (tenant, ops) = (self.tenant.clone(), ops.into());
        WriteDocuments {
            tenant,
            ops,
            origin: Origin::CLIENT,
            tag,
            verdict: None,
            prepared: None,
            may_retry: false,
            audit: None,
            decide_by: Millis::NEVER,
        }
    }

    fn decide(&mut self, ops: Vec<Op>, tag: Option<WriteTag>) -> Written {
        let command = self.command(ops, tag);
        self.bench.when(&command)
    }

    pub(super) fn write(
        &mut self,
        ops: Vec<Op>,
        tag: Option<WriteTag>,
    ) -> Result<WriteReceipt, DocumentRejection> {
        match self.decide(ops, tag).outcome {
            Ok(answer) => answer,
            Err(Error::Rejected(rejection)) => Err(rejection),
            Err(error) => panic!("it was not decided: {error}"),
        }
    }

    fn document(&self, at: &str) -> Option<Document> {
        let reader = self.bench.reader();
        (&reader).read(&keys::document(&self.tenant, &path(at)), Document::decode).unwrap()
    }

    pub(super) fn declare(&mut self, definitions: Vec<IndexDefinition>) -> Vec<IndexView> {
        let command = SetDocumentIndexes::new(self.tenant.clone(), definitions).unwrap();
        self.bench.when(&command).answer()
    }

    /// Whatever is due happens, until nothing is.
    pub(super) fn fire_all(&mut self) {
        for _ in 0..10_000 {
            let due = self.bench.timers().into_iter().find(|it| it.at() <= self.bench.now);
            let Some(timer) = due else { return };
            self.bench.fire(timer).answer();
        }
        panic!("there is always something to be done");
    }

    /// The messages of the change stream, and what their events say of them.
    pub(super) fn changes(&self) -> Vec<Value> {
        let reader = self.bench.reader();
        let stream = keys::stream(&self.tenant, &Engine::change_stream(&self.tenant));
        let Some(head) = reader.get(&stream).unwrap() else { return Vec::new() };
        let head = record::decode_head(&head).unwrap();
        let (mut changes, mut at) = (Vec::new(), head.first.position());
        let (from, to) = keys::events(FACE, &self.tenant, EventNo(0));
        for pair in Scan::new(&reader, from, to) {
            let (key, value) = pair.unwrap();
            let event = record::decode_event(&value).unwrap();
            let message = source::content(&reader, &event).unwrap().unwrap();
            let message: Value = serde_json::from_slice(&message).unwrap();
            assert_eq!(message["seq"].to_string(), *event.id);
            assert_eq!(message["path"], *event.subject.unwrap());
            assert_eq!(message["type"], *event.kind);
            let place = keys::change_place(&self.tenant, message["seq"].as_u64().unwrap());
            let place = record::decode_u64(&reader.get(&place).unwrap().unwrap()).unwrap();
            assert_eq!(keys::parse_event(&key), Some(EventNo(place)));
            let record::EventPlace::Stream { from, len, .. } = event.place else { panic!() };
            assert_eq!(from.position(), at, "one follows the other");
            at += len + 1;
            changes.push(message);
        }
        assert_eq!(at, head.tail.position(), "there is nothing else in the stream");
        changes
    }

    fn pairs(&self, (from, to): (Bytes, Bytes)) -> BTreeMap<Bytes, Bytes> {
        self.bench.reader().range(&from, &to, usize::MAX).unwrap().into_iter().collect()
    }
}

pub(super) fn path(text: &str) -> DocumentPath {
    DocumentPath::parse(text).unwrap()
}

pub(super) fn data(json: Value) -> Arc<Data> {
    let Value::Object(fields) = json else { panic!("is an object") };
    Arc::new(Data::new(fields).unwrap())
}

fn op(at: &str, write: Write) -> Op {
    Op { path: path(at), write, preconditions: Vec::new() }
}

pub(super) fn create(at: &str, json: Value) -> Op {
    op(at, Write::Create(data(json)))
}

pub(super) fn set(at: &str, json: Value) -> Op {
    op(at, Write::Set(data(json)))
}

pub(super) fn patch(at: &str, json: Value) -> Op {
    let Value::Object(fields) = json else { panic!("is an object") };
    let patch = Patch::parse(fields, path(at).id(), ReservedFields::Refuse).unwrap();
    op(at, Write::Patch(patch))
}

pub(super) fn delete(at: &str) -> Op {
    op(at, Write::Delete)
}

pub(super) fn tag(key: &str, body: &str) -> Option<WriteTag> {
    let key = IdempotencyKey::parse(key).unwrap();
    Some(WriteTag { scope: "k1".into(), key, body: BodyHash::of(body.as_bytes()) })
}

pub(super) fn definition(collection: &str, fields: &[&str]) -> IndexDefinition {
    let field = |name: &&str| match name.strip_prefix('-') {
        Some(name) => SortField::new(name, Direction::Desc).unwrap(),
        None => SortField::new(name, Direction::Asc).unwrap(),
    };
    let collection = CollectionPattern::parse(collection).unwrap();
    IndexDefinition::new(collection, fields.iter().map(field).collect()).unwrap()
}

#[test]
fn a_write_is_its_document_its_change_and_its_event() {
    let mut world = World::new();
    let receipt = world.write(vec![create("rooms/r1", json!({"a": 1}))], None).unwrap();
    assert_eq!(receipt.results.len(), 1);
    assert_eq!(receipt.documents[&path("rooms/r1")], world.document("rooms/r1").unwrap());
    world.bench.now = Millis(2_500);
    world.write(vec![patch("rooms/r1", json!({"b": 2}))], None).unwrap();
    world.write(vec![delete("rooms/r1")], None).unwrap();
    let changes = world.changes();
    let own = json!({"id": "r1", "collection": "rooms", "createdAt": 1_000});
    let snapshot = |version: u64, updated_at: u64, more: Value| {
        let mut snapshot = own.as_object().unwrap().clone();
        snapshot.insert("version".into(), version.into());
        snapshot.insert("updatedAt".into(), updated_at.into());
        snapshot.extend(more.as_object().unwrap().clone());
        Value::Object(snapshot)
    };
    let first = snapshot(1, 1_000, json!({"a": 1}));
    let second = snapshot(2, 2_500, json!({"a": 1, "b": 2}));
    let expected = [
        ("create", "1:0", Value::Null, first.clone()),
        ("update", "2:0", first, second.clone()),
        ("delete", "2:1", second, Value::Null),
    ];
    for ((seq, change), (kind, lsn, before, after)) in (1..).zip(&changes).zip(expected) {
        assert_eq!(change["seq"], seq);
        assert_eq!((&change["type"], &change["lsn"]), (&json!(kind), &json!(lsn)));
        assert_eq!((&change["before"], &change["after"]), (&before, &after));
    }
    assert_eq!(changes.len(), 3);
    assert!(world.document("rooms/r1").unwrap().is_tombstone());
}

#[test]
fn changes_say_which_triggers_led_to_them() {
    let mut world = World::new();
    let origin = Origin::CLIENT.followed_by("trg_a").unwrap().followed_by("trg_b").unwrap();
    let ops = vec![create("rooms/r1", json!({})), create("rooms/r2", json!({}))];
    let command = WriteDocuments { origin: origin.clone(), ..world.command(ops, None) };
    world.bench.when(&command).answer().unwrap();
    world.write(vec![delete("rooms/r1")], None).unwrap();
    let origins: Vec<_> =
        world.changes().iter().map(|it| Origin::of_json(it.get("origin"))).collect();
    assert_eq!(origins, [Ok(origin.clone()), Ok(origin), Ok(Origin::CLIENT)]);
}

#[test]
fn all_is_done_or_nothing_and_the_write_that_fails_is_named() {
    let mut world = World::new();
    let ops =
        vec![create("rooms/r1", json!({})), delete("rooms/r1"), delete("rooms/r2"), delete("a/b")];
    let decided = world.decide(ops, None);
    assert!(decided.writes.is_empty());
    let reason = OpError::NotFound(path("rooms/r2"));
    let failure = Failure { op_index: 2, reason };
    assert_eq!(decided.answer(), Err(failure.into()));
    assert_eq!(world.document("rooms/r1"), None);
    assert!(world.changes().is_empty());
}

#[test]
fn writes_of_one_document_see_each_other_and_each_is_a_change() {
    let mut world = World::new();
    let mut guarded = patch("rooms/r1", json!({"a": 3}));
    guarded.preconditions = vec![Filter::version_is(2)];
    let ops =
        vec![create("rooms/r1", json!({"a": 1})), patch("rooms/r1", json!({"a": 2})), guarded];
    let receipt = world.write(ops, None).unwrap();
    assert_eq!(receipt.results.iter().map(|it| it.version).collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!(world.changes().len(), 3);
    assert_eq!(world.document("rooms/r1").unwrap().version, 3);
}

#[test]
fn a_repetition_is_told_how_the_first_ended() {
    let mut world = World::new();
    let ops = || vec![create("rooms/r1", json!({}))];
    world.write(ops(), tag("one", "a")).unwrap();
    let repeated = world.decide(ops(), tag("one", "a"));
    assert!(repeated.writes.is_empty());
    let repeated = repeated.answer().unwrap();
    assert_eq!(repeated.repeated.map(|it| it.end), Some(WriteEnd::Success));
    assert!(repeated.results.is_empty());
    let other = world.write(ops(), tag("one", "b"));
    assert_eq!(other, Err(DocumentRejection::OtherBody));
    // A failure is remembered as well, and nothing that could have been otherwise since.
    assert!(matches!(world.write(ops(), tag("two", "a")), Err(DocumentRejection::Failed(_))));
    world.write(vec![delete("rooms/r1")], None).unwrap();
    let record = world.write(ops(), tag("two", "a")).unwrap().repeated.unwrap();
    assert_eq!(record.end, WriteEnd::PreconditionFailed);
    assert_eq!(&*record.message, "there is a document `rooms/r1` already");
    // Another scope has keys of its own.
    let mut other = tag("two", "a");
    other.as_mut().unwrap().scope = "k2".into();
    assert_eq!(world.write(ops(), other).unwrap().repeated, None);
}

#[test]
fn a_key_that_has_expired_is_as_good_as_new_and_is_forgotten_some_time() {
    let settings = DocumentSettings { idempotency_ttl_ms: 100, ..DocumentSettings::default() };
    let mut world = World::with(settings);
    let ops = || vec![set("rooms/r1", json!({}))];
    world.write(ops(), tag("one", "a")).unwrap();
    world.bench.now = Millis(1_099);
    assert!(world.write(ops(), tag("one", "a")).unwrap().repeated.is_some());
    world.bench.now = Millis(1_100);
    let due = world.pairs(keys::later_until(Millis(1_100)));
    assert!(world.write(ops(), tag("one", "b")).unwrap().repeated.is_none());
    // Whoever looked for what is of no use before that does not take the younger one for it.
    let found = due.into_keys().collect();
    world.bench.when(&crate::deliveries::retention::SweepKeys { found }).answer();
    assert!(world.write(ops(), tag("one", "b")).unwrap().repeated.is_some());
    let found = world.pairs(keys::later_until(Millis(1_200))).into_keys().collect();
    world.bench.when(&crate::deliveries::retention::SweepKeys { found }).answer();
    assert!(world.pairs(keys::all_write_outcomes()).is_empty());
    assert!(world.pairs(keys::later_until(Millis(1 << 40))).is_empty());
}

#[test]
fn what_meets_a_limit_is_not_remembered() {
    let settings = DocumentSettings { ops_max: 1, ..DocumentSettings::default() };
    let mut world = World::with(settings);
    let ops = vec![set("rooms/r1", json!({})), set("rooms/r2", json!({}))];
    let Err(DocumentRejection::Failed(failure)) = world.write(ops, tag("one", "a")) else {
        panic!("it is too much");
    };
    assert_eq!(failure.reason, OpError::TooManyOps(1));
    assert!(world.write(vec![set("rooms/r1", json!({}))], tag("one", "b")).is_ok());
}

#[test]
fn a_tombstone_is_purged_when_its_time_has_come_and_not_before() {
    let settings = DocumentSettings { tombstone_ttl_ms: 100, ..DocumentSettings::default() };
    let mut world = World::with(settings);
    world.declare(vec![definition("rooms", &["a"])]);
    world.fire_all();
    world.write(vec![create("rooms/r1", json!({"a": 1})), delete("rooms/r1")], None).unwrap();
    world.bench.now = Millis(1_050);
    world.write(vec![create("rooms/r1", json!({"a": 2}))], None).unwrap();
    assert!(world.bench.timers().is_empty(), "it is no tombstone any more");
    world.write(vec![delete("rooms/r1")], None).unwrap();
    world.bench.now = Millis(1_149);
    world.fire_all();
    assert_eq!(world.document("rooms/r1").unwrap().version, 4);
    world.bench.now = Millis(1_150);
    world.fire_all();
    assert_eq!(world.document("rooms/r1"), None);
    let (from, to) = keys::all_index_entries(&world.tenant, reveille_schema::documents::IndexNo(1));
    assert!(world.pairs((from, to)).is_empty());
    assert_eq!(world.changes().len(), 4, "that a tombstone is purged is no change");
    let receipt = world.write(vec![create("rooms/r1", json!({}))], None).unwrap();
    assert_eq!(receipt.results[0].version, 1);
}

#[test]
fn changes_are_forgotten_with_their_places() {
    let mut world = World::new();
    for number in 0..5 {
        world.bench.now = Millis(1_000 * (number + 1));
        world.write(vec![set("rooms/r1", json!({"n": number}))], None).unwrap();
    }
    let (tenant, reader) = (world.tenant.clone(), world.bench.reader());
    let plan = TrimPlan::make(&reader, FACE, &tenant, Millis(3_001)).unwrap().unwrap();
    let forgotten = world.bench.when(&TrimEvents { face: FACE, tenant, plan }).answer();
    assert_eq!(forgotten.forgotten, 3);
    let seqs: Vec<_> = world.changes().iter().map(|it| it["seq"].as_u64().unwrap()).collect();
    assert_eq!(seqs, [4, 5]);
    let places = world.pairs(keys::change_places(&world.tenant, 0));
    let places: Vec<_> = places.keys().filter_map(|key| keys::parse_change_place(key)).collect();
    assert_eq!(places, [4, 5]);
    // Numbers go on however much was forgotten.
    world.write(vec![delete("rooms/r1")], None).unwrap();
    assert_eq!(world.changes().last().unwrap()["seq"], 6);
}

#[test]
fn a_transaction_that_the_log_does_not_take_changes_nothing() {
    let mut world = World::new();
    let large = "x".repeat(900 << 10);
    let ops: Vec<_> = (0..5).map(|it| set(&format!("a/{it}"), json!({"x": large}))).collect();
    let Err(DocumentRejection::Failed(failure)) = world.write(ops, None) else {
        panic!("it is too much");
    };
    assert_eq!((failure.op_index, failure.reason.end()), (4, WriteEnd::Exhausted));
    assert!(world.changes().is_empty());
}

#[test]
fn of_documents_that_are_too_much_together_only_the_first_are_read() {
    let mut world = World::new();
    let large = json!({"x": "x".repeat(500_000)});
    for it in 0..40 {
        world.write(vec![set(&format!("a/{it:02}"), large.clone())], None).unwrap();
    }
    for it in 0..40 {
        world.write(vec![set(&format!("b/{it:02}"), json!({}))], None).unwrap();
    }
    let changes = world.changes().len();
    world.bench.empty_memory();
    let deleted = |name: &str, count: usize| -> Vec<_> {
        (0..count).map(|it| delete(&format!("{name}/{it:02}"))).collect()
    };
    // It fails where it would have if all of them had been read.
    let Err(DocumentRejection::Failed(failure)) = world.write(deleted("a", 40), None) else {
        panic!("it is too much");
    };
    assert_eq!((failure.op_index, failure.reason.end()), (8, WriteEnd::Exhausted));
    assert!(world.bench.fetched_bytes < 13 << 20, "{}", world.bench.fetched_bytes);
    assert_eq!(world.bench.rounds, 2);
    let mut ops = deleted("a", 8);
    ops.extend(deleted("b", 40));
    world.write(ops, None).unwrap();
    assert_eq!(world.bench.rounds, 2);
    assert_eq!(world.changes().len(), changes + 48);
}

#[test]
fn who_comes_too_late_is_refused_before_anything_is_decided() {
    use reveille_kernel::command::Command as _;
    let world = World::new();
    let mut command = world.command(vec![delete("a/b")], None);
    command.decide_by = Millis(5);
    assert_eq!(command.too_late(Millis(4)), None);
    assert_eq!(command.too_late(Millis(5)), Some(DocumentRejection::TimedOut));
}

#[test]
fn a_write_that_is_still_being_done_is_not_begun_again() {
    let (writes, tenant) = (WritesInFlight::default(), Tenant::default_tenant());
    let (one, other) = (tag("one", "a").unwrap(), tag("one", "b").unwrap());
    let first = writes.begin(&tenant, &one).unwrap();
    let refused = |tag: &WriteTag| writes.begin(&tenant, tag).err();
    assert_eq!(refused(&one), Some(DocumentRejection::InProgress));
    assert_eq!(refused(&other), Some(DocumentRejection::OtherBody));
    let scope = WriteTag { scope: "k2".into(), ..one.clone() };
    assert_eq!(refused(&scope), None);
    assert!(writes.begin(&Tenant::parse("other").unwrap(), &one).is_ok());
    drop(first);
    assert_eq!(refused(&other), None);
}

#[test]
fn tenants_do_not_see_each_other() {
    let mut world = World::new();
    world.write(vec![create("rooms/r1", json!({}))], tag("one", "a")).unwrap();
    let mut command = world.command(vec![delete("rooms/r1")], tag("one", "b"));
    command.tenant = Tenant::parse("other").unwrap();
    let decided = world.bench.when(&command);
    let Ok(Err(DocumentRejection::Failed(failure))) = decided.outcome else { panic!("not found") };
    assert_eq!(failure.reason, OpError::NotFound(path("rooms/r1")));
}
