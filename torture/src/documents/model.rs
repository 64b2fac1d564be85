//! What a tenant's documents must be: its changes, each decided a second time.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};

use serde_json::Value;

use super::write::{DocumentWrite, Fields, MARKS, OWN, Op, WriteId, without_own_fields};
use crate::model::Violation;

/// A request, and what its client was told before the server was killed.
pub(super) struct Sent {
    pub(super) write: DocumentWrite,
    pub(super) answer: Option<Answer>,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Answer {
    /// Version and time of every op; no time where the answer does not say.
    Done(Vec<OpResult>),
    /// A status, and the code beside it.
    Failed(u16, String),
    /// Told to come again: nothing was done, and nothing is remembered.
    Busy,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct OpResult {
    pub(super) version: u64,
    pub(super) updated_at: Option<u64>,
}

/// A document that a reader was shown.
pub(super) struct Shown {
    pub(super) path: String,
    pub(super) document: Fields,
}

/// The documents of one tenant, and where its changes have been read to.
#[derive(Default)]
pub(super) struct Model {
    /// As everybody sees them, tombstones too. A tombstone has a time only if somebody was told.
    documents: BTreeMap<String, Fields>,
    /// What every version of every document was.
    history: HashMap<(String, u64), u64>,
    /// Of each change, in order.
    pub(super) changes: Vec<u64>,
    pub(super) next_offset: Option<String>,
    lsn: Option<(u64, u64)>,
    /// Requests that were found among the changes.
    settled: HashSet<WriteId>,
    /// Requests that may be found there, or must.
    pub(super) pending: BTreeMap<WriteId, Sent>,
    /// Those that were not answered, and are there.
    found: Vec<Sent>,
}

/// A change, as it stands in the stream.
struct Change {
    kind: String,
    path: String,
    before: Option<Fields>,
    after: Option<Fields>,
    text: String,
}

impl Model {
    /// The documents of a collection by their ids, tombstones too.
    pub(super) fn collection(&self, collection: &str) -> impl Iterator<Item = &Fields> {
        let collection = collection.to_owned();
        let of = move |path: &str| path.rsplit_once('/').is_some_and(|(it, _)| it == collection);
        self.documents.iter().filter(move |(path, _)| of(path)).map(|(_, document)| document)
    }

    pub(super) fn is_settled(&self, id: WriteId) -> bool {
        self.settled.contains(&id)
    }

    /// Takes in the changes that follow those that are known.
    pub(super) fn follow(&mut self, tenant: &str, changes: &[String]) -> Result<(), Violation> {
        let parsed = changes.iter().map(|text| self.parse(tenant, text));
        let parsed = parsed.collect::<Result<Vec<_>, _>>()?;
        // Numbers were checked one by one; from here on it is about whose they are.
        let mut rest = parsed.as_slice();
        while let [first, ..] = rest {
            let count = match mark_of(first) {
                Some(of) => 1 + of,
                None => 1,
            };
            let (group, left) = rest.split_at_checked(count).ok_or_else(|| {
                format!("torn: of {count} changes there are {}: {}", rest.len(), first.text)
            })?;
            self.settle(group)?;
            rest = left;
        }
        Ok(())
    }

    fn parse(&mut self, tenant: &str, text: &str) -> Result<Change, Violation> {
        let wrong = |what: &str| format!("{tenant}: a change {what}: {text}");
        let value: Value = serde_json::from_str(text).map_err(|_| wrong("is no JSON"))?;
        let word = |name: &str| value.get(name).and_then(Value::as_str).map(str::to_owned);
        let image = |name: &str| value.get(name).and_then(Value::as_object).cloned();
        let seq = value.get("seq").and_then(Value::as_u64);
        if seq != Some(self.changes.len() as u64 + 1) {
            return Err(wrong(&format!("where number {} should be", self.changes.len() + 1)));
        }
        let lsn = word("lsn").and_then(|lsn| {
            let (second, ordinal) = lsn.split_once(':')?;
            Some((second.parse().ok()?, ordinal.parse().ok()?))
        });
        let lsn: (u64, u64) = lsn.ok_or_else(|| wrong("without an lsn"))?;
        if self.lsn.is_some_and(|last| lsn <= last) {
            return Err(wrong(&format!("whose lsn does not follow {:?}", self.lsn)));
        }
        if value.get("ts").and_then(Value::as_u64) != Some(lsn.0) {
            return Err(wrong("whose time is not that of its lsn"));
        }
        if word("tenant").as_deref() != Some(tenant) {
            return Err(wrong("of another tenant"));
        }
        self.lsn = Some(lsn);
        self.changes.push(hash(text));
        Ok(Change {
            kind: word("type").ok_or_else(|| wrong("without a type"))?,
            path: word("path").ok_or_else(|| wrong("without a path"))?,
            before: image("before"),
            after: image("after"),
            text: text.to_owned(),
        })
    }

    /// The changes of one request: all that it must have made, in order, once.
    fn settle(&mut self, group: &[Change]) -> Result<(), Violation> {
        let Some(first) = group.first() else { return Ok(()) };
        let id = self
            .whose(first)
            .ok_or_else(|| format!("a change that nobody made: {}", first.text))?;
        if !self.settled.insert(id) {
            return Err(format!("request {id} is there twice: {}", first.text));
        }
        let sent = self.pending.remove(&id);
        let sent =
            sent.ok_or_else(|| format!("request {id} is there, and was not sent: {}", first.text))?;
        if sent.write.ops.len() != group.len() {
            return Err(format!(
                "{} of {} changes of request {id}",
                group.len(),
                sent.write.ops.len()
            ));
        }
        let results = match &sent.answer {
            None => None,
            Some(Answer::Done(results)) => Some(results),
            Some(refused) => {
                return Err(format!(
                    "request {id} was refused ({refused:?}) and is there: {}",
                    first.text
                ));
            }
        };
        for (at, (op, change)) in sent.write.ops.iter().zip(group).enumerate() {
            let result = results.and_then(|results| results.get(at)).copied();
            let applied = self.apply(op, change, result);
            applied.map_err(|what| format!("request {id}, write {at}: {what}: {}", change.text))?;
        }
        if results.is_none() {
            self.found.push(sent);
        }
        Ok(())
    }

    /// What was not answered, and was found to be there since this was last asked.
    pub(super) fn take_found(&mut self) -> Vec<Sent> {
        std::mem::take(&mut self.found)
    }

    /// Which request made a change.
    fn whose(&self, change: &Change) -> Option<WriteId> {
        let of = |document: &Fields| document.get("write").and_then(Value::as_u64);
        if let Some(after) = &change.after {
            return of(after);
        }
        // What is deleted alone is its client's own.
        let is_own = change.path.starts_with(&format!("{OWN}/"));
        let deletes = |sent: &Sent| {
            let may_be = matches!(sent.answer, None | Some(Answer::Done(_)));
            may_be && sent.write.ops.iter().all(|op| op.path == change.path && op.is_delete())
        };
        // One after another: the first that may have been done.
        let mut candidates = self.pending.iter().filter(|(_, sent)| is_own && deletes(sent));
        candidates.next().map(|(id, _)| *id)
    }

    fn apply(
        &mut self,
        op: &Op,
        change: &Change,
        result: Option<OpResult>,
    ) -> Result<(), Violation> {
        if op.path != change.path {
            return Err(format!("it writes {}", op.path));
        }
        let current = self.documents.get(&op.path);
        let live = current.filter(|document| !is_tombstone(document));
        if change.before.as_ref() != live {
            return Err(format!("before it there was {live:?}"));
        }
        let data = op.apply(live)?;
        let kind = match (live, &data) {
            (None, _) => "create",
            (Some(_), Some(_)) => "update",
            (Some(_), None) => "delete",
        };
        if change.kind != kind {
            return Err(format!("it is a {kind}"));
        }
        let number = |name: &str, of: Option<&Fields>| of?.get(name)?.as_u64();
        let version = number("version", current).unwrap_or(0) + 1;
        let updated_at = number("updatedAt", change.after.as_ref());
        let updated_at = updated_at.or_else(|| result.and_then(|result| result.updated_at));
        let created_at = number("createdAt", live).or(updated_at);
        if let Some(result) = result
            && (result.version != version
                || result.updated_at.is_some_and(|it| Some(it) != updated_at))
        {
            return Err(format!("its client was told {result:?}"));
        }
        let expected = document(&op.path, data.as_ref(), version, created_at, updated_at);
        if change.after.as_ref() != data.is_some().then_some(&expected) {
            return Err(format!("it leaves {expected:?}"));
        }
        self.history.insert((op.path.clone(), version), hash_of(&expected));
        self.documents.insert(op.path.clone(), expected);
        Ok(())
    }

    /// What was acknowledged is there; returns what was not answered and is not there.
    pub(super) fn check_pending(&mut self) -> Result<Vec<Sent>, Violation> {
        let mut unanswered = Vec::new();
        for (id, sent) in std::mem::take(&mut self.pending) {
            match &sent.answer {
                Some(Answer::Done(_)) => {
                    let target = sent.write.sending().target;
                    return Err(format!("request {id} ({target}) was acknowledged and is lost"));
                }
                Some(_) => {}
                None => unanswered.push(sent),
            }
        }
        Ok(unanswered)
    }

    /// Whatever a reader was shown has been a document, and was on disk.
    pub(super) fn check_shown(&self, shown: &[Shown]) -> Result<(), Violation> {
        for Shown { path, document } in shown {
            let version = document.get("version").and_then(Value::as_u64).unwrap_or(0);
            let known = self.history.get(&(path.clone(), version));
            if known != Some(&hash_of(document)) {
                return Err(format!("a reader was shown {path} as it never was: {document:?}"));
            }
        }
        Ok(())
    }
}

pub(super) fn is_tombstone(document: &Fields) -> bool {
    document.contains_key("deleted")
}

/// Whether two views are of the same document; of a tombstone a time may not be known.
pub(super) fn is_same(known: &Fields, found: &Fields) -> bool {
    if known.contains_key("updatedAt") {
        return known == found;
    }
    let mut found = found.clone();
    found.remove("updatedAt");
    *known == found
}

/// How many changes follow a mark.
fn mark_of(change: &Change) -> Option<usize> {
    let after = change.after.as_ref().filter(|_| change.path.starts_with(&format!("{MARKS}/")))?;
    usize::try_from(after.get("of")?.as_u64()?).ok()
}

fn document(
    path: &str,
    data: Option<&Fields>,
    version: u64,
    created_at: Option<u64>,
    updated_at: Option<u64>,
) -> Fields {
    let (collection, id) = path.rsplit_once('/').unwrap_or_default();
    let mut document = data.map(without_own_fields).unwrap_or_default();
    let own = [
        ("id", Some(Value::from(id))),
        ("collection", Some(collection.into())),
        ("version", Some(version.into())),
        ("createdAt", created_at.map(Value::from)),
        ("updatedAt", updated_at.map(Value::from)),
        ("deleted", data.is_none().then_some(Value::Bool(true))),
    ];
    document.extend(own.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))));
    document
}

pub(super) fn hash(text: &str) -> u64 {
    BuildHasherDefault::<DefaultHasher>::default().hash_one(text)
}

/// The order of the fields does not matter: a map has them by name.
fn hash_of(document: &Fields) -> u64 {
    hash(&serde_json::to_string(document).unwrap_or_default())
}

#[cfg(test)]
mod tests;
