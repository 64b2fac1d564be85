//! Random histories, held against a plain model in memory: documents, versions, changes, outcomes
//! and indexes agree, also after a start.

use proptest::prelude::*;
use reveille_core::document::idempotency::WriteEnd;
use serde_json::{Map, json};

use super::*;

const TTL_MS: u64 = 5_000;
const TOMBSTONE_MS: u64 = 3_000;

/// What one step does.
#[derive(Debug, Clone)]
enum Step {
    Write { ops: Vec<PlainOp>, tag: Option<(u8, u8)> },
    Declare(Vec<usize>),
    Fire,
    Pass(u64),
    Reopen,
}

#[derive(Debug, Clone)]
struct PlainOp {
    at: usize,
    kind: u8,
    value: u8,
    /// A version that the document must have.
    version: Option<u64>,
}

const PATHS: [&str; 5] = ["a/1", "a/2", "a/1/b/1", "a/2/b/1", "c/1"];
const INDEXES: [(&str, &[&str]); 4] =
    [("a", &["x"]), ("a/*/b", &["-x", "version"]), ("*", &["updatedAt"]), ("c", &["y"])];

#[derive(Debug, Clone, Default)]
struct Plain {
    version: u64,
    created_at: u64,
    updated_at: u64,
    data: Option<Map<String, Value>>,
}

/// All that there should be.
#[derive(Debug, Clone, Default)]
struct Model {
    documents: BTreeMap<&'static str, Plain>,
    changes: Vec<(&'static str, &'static str, Option<Value>, Option<Value>)>,
    outcomes: BTreeMap<u8, (u8, WriteEnd, u64)>,
}

impl PlainOp {
    fn op(&self) -> Op {
        let (at, x) = (PATHS[self.at], json!({"x": self.value}));
        let op = match self.kind {
            0 => create(at, x),
            1 => set(at, x),
            2 => patch(at, json!({"y": self.value})),
            _ => delete(at),
        };
        let preconditions = self.version.map(Filter::version_is).into_iter().collect();
        Op { preconditions, ..op }
    }
}

impl Plain {
    fn shown(&self, at: &str) -> Option<Value> {
        let mut fields = self.data.clone()?;
        let (collection, id) = at.rsplit_once('/').unwrap();
        fields.insert("id".into(), id.into());
        fields.insert("collection".into(), collection.into());
        fields.insert("version".into(), self.version.into());
        fields.insert("createdAt".into(), self.created_at.into());
        fields.insert("updatedAt".into(), self.updated_at.into());
        Some(fields.into())
    }
}

impl Model {
    /// What a write should come to.
    fn write(
        &mut self,
        ops: &[PlainOp],
        tag: Option<(u8, u8)>,
        now: u64,
    ) -> Result<Option<WriteEnd>, Option<WriteEnd>> {
        if let Some((key, body)) = tag
            && let Some((first, end, expires)) = self.outcomes.get(&key)
            && now < *expires
        {
            return if *first == body { Ok(Some(*end)) } else { Err(None) };
        }
        let mut done = self.clone();
        let end = ops.iter().find_map(|op| done.apply(op, now)).unwrap_or(WriteEnd::Success);
        if end == WriteEnd::Success {
            *self = done;
        }
        if let Some((key, body)) = tag {
            self.outcomes.insert(key, (body, end, now + TTL_MS));
        }
        if end == WriteEnd::Success { Ok(None) } else { Err(Some(end)) }
    }

    fn apply(&mut self, op: &PlainOp, now: u64) -> Option<WriteEnd> {
        let at = PATHS[op.at];
        let before = self.documents.get(at).cloned().unwrap_or_default();
        let is_live = before.data.is_some();
        match op.kind {
            0 if is_live => return Some(WriteEnd::PreconditionFailed),
            2.. if !is_live => return Some(WriteEnd::NotFound),
            _ if op.version.is_some_and(|it| !is_live || it != before.version) => {
                return Some(WriteEnd::PreconditionFailed);
            }
            _ => {}
        }
        let plain = |name: &str| Map::from_iter([(name.to_owned(), op.value.into())]);
        let data = match op.kind {
            0 | 1 => Some(plain("x")),
            2 => before.data.clone().map(|data| data.into_iter().chain(plain("y")).collect()),
            _ => None,
        };
        let updated_at = now.max(before.updated_at);
        let created_at = if is_live { before.created_at } else { updated_at };
        let after = Plain { version: before.version + 1, created_at, updated_at, data };
        let kind = match (is_live, after.data.is_some()) {
            (false, _) => "create",
            (true, true) => "update",
            (true, false) => "delete",
        };
        self.changes.push((kind, at, before.shown(at), after.shown(at)));
        self.documents.insert(at, after);
        None
    }

    fn purge(&mut self, now: u64) {
        let is_old = |it: &Plain| it.data.is_none() && it.updated_at + TOMBSTONE_MS <= now;
        self.documents.retain(|_, it| !is_old(it));
    }
}

fn check(world: &World, model: &Model) {
    let stored = world.pairs(keys::tenant_documents(&world.tenant));
    assert_eq!(stored.len(), model.documents.len());
    for (at, plain) in &model.documents {
        let found = world.document(at).unwrap();
        let data = found.data.map(|data| data.fields().clone());
        let found = (found.version, found.created_at.0, found.updated_at.0, data);
        let plain = plain.clone();
        assert_eq!(found, (plain.version, plain.created_at, plain.updated_at, plain.data), "{at}");
    }
    let changes = world.changes();
    assert_eq!(changes.len(), model.changes.len());
    let mut last = None;
    for ((seq, found), (kind, at, before, after)) in (1..).zip(&changes).zip(&model.changes) {
        assert_eq!((&found["seq"], &found["type"]), (&json!(seq), &json!(kind)));
        assert_eq!(found["path"], *at);
        let shown = |it: &Option<Value>| it.clone().unwrap_or(Value::Null);
        assert_eq!((&found["before"], &found["after"]), (&shown(before), &shown(after)));
        let lsn: reveille_core::document::change::Lsn =
            found["lsn"].as_str().unwrap().parse().unwrap();
        assert!(last < Some(lsn), "an lsn is larger than the one before");
        last = Some(lsn);
    }
    world.check_indexes();
}

fn plain_op() -> impl Strategy<Value = PlainOp> {
    let version = prop::option::weighted(0.2, 1..4_u64);
    (0..PATHS.len(), 0..4_u8, 0..4_u8, version).prop_map(|(at, kind, value, version)| PlainOp {
        at,
        kind,
        value,
        version,
    })
}

fn step() -> impl Strategy<Value = Step> {
    let tag = prop::option::weighted(0.4, (0..4_u8, 0..2_u8));
    let ops = prop::collection::vec(plain_op(), 1..4);
    let indexes = (0..INDEXES.len()).collect::<Vec<_>>();
    prop_oneof![
        8 => (ops, tag).prop_map(|(ops, tag)| Step::Write { ops, tag }),
        1 => prop::sample::subsequence(indexes, 0..4).prop_map(Step::Declare),
        2 => Just(Step::Fire),
        2 => (1..2_500_u64).prop_map(Step::Pass),
        1 => Just(Step::Reopen),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn everything_agrees_with_a_plain_model(steps in prop::collection::vec(step(), 1..40)) {
        let mut world = World::with(DocumentSettings {
            idempotency_ttl_ms: TTL_MS,
            tombstone_ttl_ms: TOMBSTONE_MS,
            ..DocumentSettings::default()
        });
        let mut model = Model::default();
        for step in steps {
            match step {
                Step::Write { ops, tag: by } => {
                    let expected = model.write(&ops, by, world.bench.now.0);
                    let ops = ops.iter().map(PlainOp::op).collect();
                    let by = by.and_then(|(key, body)| tag(&key.to_string(), &body.to_string()));
                    let found = match world.write(ops, by) {
                        Ok(receipt) => Ok(receipt.repeated.map(|record| record.end)),
                        Err(DocumentRejection::OtherBody) => Err(None),
                        Err(DocumentRejection::Failed(failure)) => Err(Some(failure.reason.end())),
                        Err(other) => panic!("{other}"),
                    };
                    prop_assert_eq!(found, expected);
                }
                Step::Declare(indexes) => {
                    let wanted = indexes.iter().map(|it| INDEXES[*it]);
                    let wanted = wanted.map(|(collection, fields)| definition(collection, fields));
                    world.declare(wanted.collect());
                }
                Step::Fire => {
                    world.fire_all();
                    model.purge(world.bench.now.0);
                }
                Step::Pass(ms) => world.bench.now = world.bench.now + ms,
                Step::Reopen => world.bench.reopen(),
            }
            check(&world, &model);
        }
        world.fire_all();
        model.purge(world.bench.now.0);
        check(&world, &model);
    }
}
