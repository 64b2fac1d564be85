//! What clients write: transactions whose every change says whose it is, so that one that is torn,
//! repeated or invented cannot pass.
//!
//! ```text
//! transaction   set marks/c3 {"write": 17, "of": 4}, then its four writes
//! single write  one that leaves data says {"write": 17} in it; what is deleted alone is a
//!               document that one client alone writes
//! ```

use serde_json::{Map, Value, json};

use crate::random::Random;

/// Names one request for all time.
pub(super) type WriteId = u64;
pub(super) type Fields = Map<String, Value>;

/// What everybody writes to.
pub(super) const COLLECTIONS: [&str; 3] = ["rooms", "houses/h1/rooms", "houses/h2/rooms"];
/// Where each client says which transaction comes, and what each deletes alone.
pub(super) const MARKS: &str = "marks";
pub(super) const OWN: &str = "own";
/// Documents of each of the collections: few, so that clients meet.
const DOCUMENTS: u64 = 14;
pub(super) const GROUPS: u64 = 4;
pub(super) const NUMBERS: u64 = 100;
/// Most writes of a transaction, its mark not counted.
const OPS: u64 = 6;
/// One in so many documents is large.
const LARGE_ONE_IN: u64 = 150;

/// One request that writes.
#[derive(Debug, Clone)]
pub(super) struct DocumentWrite {
    pub(super) id: WriteId,
    /// Whose it is, as a position in the list of tenants.
    pub(super) tenant: usize,
    /// The idempotency key of a transaction; `None` for a write of a single document.
    pub(super) key: Option<String>,
    /// With the mark of a transaction.
    pub(super) ops: Vec<Op>,
}

#[derive(Debug, Clone)]
pub(super) struct Op {
    pub(super) path: String,
    pub(super) kind: OpKind,
    pub(super) guard: Option<Guard>,
}

#[derive(Debug, Clone)]
pub(super) enum OpKind {
    Create(Fields),
    Set(Fields),
    /// With dots in the names of what lies deeper.
    Patch(Fields),
    Delete,
}

/// What the document must be like before.
#[derive(Debug, Clone, Copy)]
pub(super) enum Guard {
    Version(u64),
    /// Its `group`.
    Group(u64),
}

/// A request, ready to be sent as often as it takes.
pub(super) struct Sending {
    pub(super) method: &'static str,
    pub(super) target: String,
    pub(super) key: Option<String>,
    pub(super) body: String,
}

impl DocumentWrite {
    /// A transaction of some writes under a mark of the client's own.
    pub(super) fn transaction(
        id: WriteId,
        tenant: usize,
        key: String,
        mark: Op,
        ops: Vec<Op>,
    ) -> DocumentWrite {
        let ops = std::iter::once(mark).chain(ops).collect();
        DocumentWrite { id, tenant, key: Some(key), ops }
    }

    pub(super) fn single(id: WriteId, tenant: usize, op: Op) -> DocumentWrite {
        DocumentWrite { id, tenant, key: None, ops: vec![op] }
    }

    /// The same bytes each time.
    pub(super) fn sending(&self) -> Sending {
        if let Some(key) = &self.key {
            let ops: Vec<Value> = self.ops.iter().map(Op::to_json).collect();
            let body = json!({ "ops": ops }).to_string();
            let target = "/api/v1/batch".to_owned();
            return Sending { method: "POST", target, key: Some(key.clone()), body };
        }
        let op = self.ops.first().expect("a request writes something");
        let guards = op.guard.map(Guard::to_filter);
        let guards: Vec<Value> = guards.into_iter().collect();
        let (collection, id) = op.path.rsplit_once('/').unwrap_or_default();
        let (method, path, body) = match &op.kind {
            OpKind::Create(fields) => {
                let mut body = fields.clone();
                body.insert("id".to_owned(), id.into());
                ("POST", collection, Value::from(body))
            }
            OpKind::Set(fields) => {
                ("PUT", op.path.as_str(), json!({ "doc": fields, "ifMatch": guards }))
            }
            OpKind::Patch(fields) => {
                ("PATCH", op.path.as_str(), json!({ "doc": fields, "ifMatch": guards }))
            }
            OpKind::Delete => ("DELETE", op.path.as_str(), json!({ "ifMatch": guards })),
        };
        Sending { method, target: format!("/api/v1/{path}"), key: None, body: body.to_string() }
    }
}

impl Op {
    /// The mark that comes before the writes of a transaction.
    pub(super) fn mark(client: usize, id: WriteId, of: usize) -> Op {
        let mut fields = Fields::new();
        fields.insert("write".to_owned(), id.into());
        fields.insert("of".to_owned(), of.into());
        Op { path: format!("{MARKS}/c{client}"), kind: OpKind::Set(fields), guard: None }
    }

    /// Some write of a document that others write too.
    pub(super) fn any(id: WriteId, at: usize, random: &mut Random) -> Op {
        let collection = random.pick(&COLLECTIONS).copied().unwrap_or_default();
        let path = format!("{collection}/d{:02}", random.between(0, DOCUMENTS));
        let kind = match random.between(0, 10) {
            0..2 => OpKind::Create(data(id, at, random)),
            2..6 => OpKind::Set(data(id, at, random)),
            6..9 => OpKind::Patch(patch(id, at, random)),
            _ => OpKind::Delete,
        };
        let is_create = matches!(kind, OpKind::Create(_));
        let guard = (!is_create && random.one_in(6)).then(|| match random.one_in(2) {
            true => Guard::Version(random.between(1, 40)),
            false => Guard::Group(random.between(0, GROUPS)),
        });
        Op { path, kind, guard }
    }

    /// Many writes fail; a transaction of several would seldom be done. Sets do not.
    pub(super) fn several(id: WriteId, random: &mut Random) -> Vec<Op> {
        let count = random.between(1, OPS + 1) as usize;
        let may_fail = random.one_in(3);
        let ops = (0..count).map(|at| {
            let op = Op::any(id, at, random);
            match may_fail {
                true => op,
                false => Op { kind: OpKind::Set(data(id, at, random)), guard: None, ..op },
            }
        });
        ops.collect()
    }

    pub(super) fn is_delete(&self) -> bool {
        matches!(self.kind, OpKind::Delete)
    }

    fn to_json(&self) -> Value {
        let mut json = match &self.kind {
            OpKind::Create(fields) => json!({ "type": "create", "data": fields }),
            OpKind::Set(fields) => json!({ "type": "set", "data": fields }),
            OpKind::Patch(fields) => json!({ "type": "patch", "data": fields }),
            OpKind::Delete => json!({ "type": "delete" }),
        };
        if let Some(object) = json.as_object_mut() {
            object.insert("path".to_owned(), self.path.as_str().into());
            if let Some(guard) = self.guard {
                object.insert("precondition".to_owned(), json!([guard.to_filter()]));
            }
        }
        json
    }

    /// The data that the document has afterwards, `None` if it is deleted; or why the write must
    /// have failed.
    pub(super) fn apply(&self, live: Option<&Fields>) -> Result<Option<Fields>, String> {
        if let Some(guard) = self.guard {
            let document = live.ok_or("its guard looks at nothing")?;
            if !guard.holds(document) {
                return Err(format!("{guard:?} does not hold"));
            }
        }
        match (&self.kind, live) {
            (OpKind::Create(_), Some(_)) => Err("it creates what is there".to_owned()),
            (OpKind::Patch(_) | OpKind::Delete, None) => {
                Err("there is nothing to change".to_owned())
            }
            (OpKind::Create(fields) | OpKind::Set(fields), _) => Ok(Some(fields.clone())),
            (OpKind::Patch(patch), Some(document)) => Ok(Some(patched(document, patch)?)),
            (OpKind::Delete, Some(_)) => Ok(None),
        }
    }
}

impl Guard {
    fn to_filter(self) -> Value {
        match self {
            Guard::Version(version) => json!({ "field": "version", "op": "==", "value": version }),
            Guard::Group(group) => json!({ "field": "group", "op": "==", "value": group }),
        }
    }

    fn holds(self, document: &Fields) -> bool {
        let (name, value) = match self {
            Guard::Version(version) => ("version", version),
            Guard::Group(group) => ("group", group),
        };
        document.get(name).and_then(Value::as_u64) == Some(value)
    }
}

/// The data of a document that says who wrote it.
pub(super) fn data(id: WriteId, at: usize, random: &mut Random) -> Fields {
    let number = random.between(0, NUMBERS);
    // Texts among the numbers: an order goes across types.
    let number = if random.one_in(8) { format!("t{number}").into() } else { Value::from(number) };
    let pad = if random.one_in(LARGE_ONE_IN) { 60_000 } else { 200 };
    let data = json!({
        "write": id, "at": at, "group": random.between(0, GROUPS), "n": number,
        "deep": { "a": random.between(0, 9), "b": { "c": id } },
        "pad": "x".repeat(random.between(0, pad) as usize),
    });
    data.as_object().cloned().unwrap_or_default()
}

fn patch(id: WriteId, at: usize, random: &mut Random) -> Fields {
    let mut patch = Fields::new();
    patch.insert("write".to_owned(), id.into());
    patch.insert("at".to_owned(), at.into());
    if random.one_in(2) {
        patch.insert("group".to_owned(), random.between(0, GROUPS).into());
    }
    if random.one_in(2) {
        patch.insert("deep.b.c".to_owned(), id.into());
    } else {
        patch.insert("n".to_owned(), random.between(0, NUMBERS).into());
    }
    patch
}

/// The own fields of a document, over its data.
pub(super) const OWN_FIELDS: [&str; 6] =
    ["id", "collection", "version", "createdAt", "updatedAt", "deleted"];

/// A document without its own fields.
pub(super) fn without_own_fields(document: &Fields) -> Fields {
    let data = document.iter().filter(|(name, _)| !OWN_FIELDS.contains(&name.as_str()));
    data.map(|(name, value)| (name.clone(), value.clone())).collect()
}

fn patched(document: &Fields, patch: &Fields) -> Result<Fields, String> {
    let mut data = without_own_fields(document);
    for (name, value) in patch {
        let mut within = &mut data;
        let mut segments = name.split('.').peekable();
        while let Some(segment) = segments.next() {
            if segments.peek().is_none() {
                within.insert(segment.to_owned(), value.clone());
                break;
            }
            let next = within.entry(segment).or_insert_with(|| Fields::new().into());
            within = next.as_object_mut().ok_or("a patch goes into something else")?;
        }
    }
    Ok(data)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(value: Value) -> Fields {
        value.as_object().cloned().unwrap()
    }

    #[test]
    fn a_patch_writes_its_fields_and_leaves_the_others() {
        let before =
            fields(json!({ "id": "d1", "version": 3, "a": 1, "deep": { "b": 1, "c": 2 } }));
        let op = |kind, guard| Op { path: "rooms/d1".to_owned(), kind, guard };
        let patch = OpKind::Patch(fields(json!({ "deep.b": 5, "new.x": 1 })));
        let after = op(patch.clone(), Some(Guard::Version(3))).apply(Some(&before)).unwrap();
        let expected = json!({ "a": 1, "deep": { "b": 5, "c": 2 }, "new": { "x": 1 } });
        assert_eq!(after, Some(fields(expected)));
        assert!(op(patch.clone(), Some(Guard::Version(2))).apply(Some(&before)).is_err());
        assert!(op(patch, None).apply(None).is_err());
        assert!(op(OpKind::Create(Fields::new()), None).apply(Some(&before)).is_err());
        assert_eq!(op(OpKind::Delete, None).apply(Some(&before)), Ok(None));
    }

    #[test]
    fn a_transaction_is_sent_with_its_mark_first_and_the_same_each_time() {
        let mut random = Random::new(7);
        let ops = vec![Op::any(9, 0, &mut random), Op::any(9, 1, &mut random)];
        let mark = Op::mark(3, 9, ops.len());
        let write = DocumentWrite::transaction(9, 0, "k9".to_owned(), mark, ops);
        let (one, other) = (write.sending(), write.sending());
        assert_eq!((&one.body, one.key.as_deref()), (&other.body, Some("k9")));
        let body: Value = serde_json::from_str(&one.body).unwrap();
        assert_eq!(body.pointer("/ops/0/path"), Some(&json!("marks/c3")));
        assert_eq!(body.pointer("/ops/0/data"), Some(&json!({ "write": 9, "of": 2 })));
        assert_eq!(body.pointer("/ops").and_then(Value::as_array).map(Vec::len), Some(3));
    }
}
