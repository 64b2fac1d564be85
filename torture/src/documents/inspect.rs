//! What is looked at after every restart: the changes, what was promised of them, and whether
//! documents, scans and indexes say the same.

use std::cmp::Ordering;

use harness::http::Connection;
use serde_json::{Value, json};

use super::indexes::{Declared, wait_until_ready};
use super::model::{Answer, Model, Sent, Shown, hash, is_same, is_tombstone};
use super::repeat::{Repeatable, check_repeated, settle_unanswered};
use super::write::{COLLECTIONS, Fields, GROUPS, MARKS, NUMBERS, OWN};
use crate::exchange::ExchangeError;
use crate::model::Violation;
use crate::random::Random;
use crate::requests::{ask, object, read_changes, unexpected};
use crate::tenants::Tenant;

/// Transactions of earlier rounds that are sent again after a restart.
const REPEATED: usize = 10;

/// One tenant's documents, and what its clients were told of them in the last round.
pub(super) struct TenantState {
    /// Its place in the list of tenants.
    pub(super) number: usize,
    /// As it is called in paths.
    pub(super) name: String,
    pub(super) model: Model,
    /// The changes that a reader saw since the last inspection, as they came.
    pub(super) seen: Vec<String>,
    pub(super) shown: Vec<Shown>,
    pub(super) indexes: Declared,
}

/// What was found out about all tenants.
#[derive(Default)]
pub(super) struct Findings {
    /// Transactions of the last round, with how they ended.
    pub(super) repeatable: Vec<Repeatable>,
    /// Unanswered transactions that were there, and that were done now.
    pub(super) found: u64,
    pub(super) done_now: u64,
    /// Queries that were answered from an index.
    pub(super) from_indexes: u64,
}

/// One server after its restart, and one tenant of it.
pub(super) struct Inspection<'a> {
    pub(super) connection: &'a mut Connection,
    pub(super) tenant: &'a Tenant,
    pub(super) random: &'a mut Random,
    pub(super) findings: &'a mut Findings,
}

impl Inspection<'_> {
    /// All of it, for one tenant.
    pub(super) fn inspect(
        &mut self,
        state: &mut TenantState,
        repeatable: &[Repeatable],
    ) -> Result<(), ExchangeError> {
        self.follow_changes(state)?;
        self.settle_pending(state, repeatable)?;
        state.model.check_shown(&std::mem::take(&mut state.shown))?;
        self.check_documents(&state.model)?;
        state.indexes.check(self.connection, self.tenant, &state.name)?;
        self.check_queries(&state.model)
    }

    fn follow_changes(&mut self, state: &mut TenantState) -> Result<(), ExchangeError> {
        let from = state.model.next_offset.as_deref().unwrap_or("-1");
        let (changes, next) = read_changes(self.connection, self.tenant, &state.name, from)?;
        let seen = std::mem::take(&mut state.seen);
        if !changes.starts_with(&seen) {
            let at = changes.iter().zip(&seen).take_while(|(one, other)| one == other).count();
            let (seen, found) = (seen.get(at), changes.get(at));
            return Err(format!("a reader saw the change {seen:?}, now there is {found:?}").into());
        }
        state.model.next_offset = Some(next);
        state.model.follow(&state.name, &changes)?;
        Ok(())
    }

    /// Whoever got no answer asks again, under the same key.
    fn settle_pending(
        &mut self,
        state: &mut TenantState,
        repeatable: &[Repeatable],
    ) -> Result<(), ExchangeError> {
        let missing = state.model.check_pending()?;
        let is_there = |model: &Model, sent: &Sent| model.is_settled(sent.write.id);
        let (mut again, mut ended) = (Vec::new(), Vec::new());
        let found = state.model.take_found();
        for sent in found.into_iter().chain(missing) {
            if sent.write.key.is_none() {
                continue;
            }
            let there = is_there(&state.model, &sent);
            let (answer, is_new) =
                settle_unanswered(self.connection, self.tenant, &sent.write, there)?;
            self.findings.found += u64::from(there);
            let sent = Sent { write: sent.write, answer: Some(answer) };
            ended.extend(Repeatable::of(&sent));
            if is_new && matches!(sent.answer, Some(Answer::Done(_))) {
                self.findings.done_now += 1;
                again.push(sent);
            }
        }
        for sent in again {
            state.model.pending.insert(sent.write.id, sent);
        }
        self.follow_changes(state)?;
        state.model.check_pending()?;
        for known in &ended {
            check_repeated(self.connection, self.tenant, known)?;
        }
        for _ in 0..REPEATED {
            let Some(known) = self.random.pick(repeatable) else { break };
            check_repeated(self.connection, self.tenant, known)?;
        }
        self.findings.repeatable.extend(ended);
        Ok(())
    }

    /// Every collection, read as a whole, is what its changes have made of it.
    fn check_documents(&mut self, model: &Model) -> Result<(), ExchangeError> {
        for collection in COLLECTIONS.iter().chain(&[MARKS, OWN]) {
            let query = json!({ "collection": collection, "showDeleted": true });
            let limit = self.random.between(3, 1_000);
            let found = self.query_all(query, limit)?;
            let mut known: Vec<&Fields> = model.collection(collection).collect();
            known.sort_by_key(|document| text(document, "id"));
            check_same(collection, &known, &found)?;
        }
        let collection = self.random.pick(&COLLECTIONS).copied().unwrap_or_default();
        for document in model.collection(collection) {
            let path = format!("/api/v1/{collection}/{}", text(document, "id"));
            let answer = ask(self.connection, self.tenant, "GET", &path, None)?;
            let is_right = match is_tombstone(document) {
                true => answer.status == 404,
                false => answer.status == 200 && object(&answer)? == *document,
            };
            if !is_right {
                return Err(unexpected(&format!("{path}, which is {document:?}"), &answer));
            }
        }
        Ok(())
    }

    /// Queries that an index may answer find what the documents say.
    pub(super) fn check_queries(&mut self, model: &Model) -> Result<(), ExchangeError> {
        let (group, low) = (self.random.between(0, GROUPS), self.random.between(0, NUMBERS / 2));
        let high = low + NUMBERS / 3;
        let number = |document: &Fields| document.get("n").and_then(Value::as_u64);
        for collection in COLLECTIONS {
            let live = || model.collection(collection).filter(|document| !is_tombstone(document));
            let filters = json!([{ "field": "group", "op": "==", "value": group }]);
            let order = json!([{ "field": "n", "direction": "desc" }]);
            let query = json!({ "collection": collection, "filters": filters, "orderBy": order });
            let of_group = live().filter(|it| it.get("group") == Some(&group.into()));
            self.check_query(query, of_group.collect(), |one, other| by_number(other, one))?;
            let filters = json!([{ "field": "n", "op": ">=", "value": low },
                                 { "field": "n", "op": "<", "value": high }]);
            let order = json!([{ "field": "n" }]);
            let query = json!({ "collection": collection, "filters": filters, "orderBy": order });
            let within = live().filter(|it| number(it).is_some_and(|n| (low..high).contains(&n)));
            self.check_query(query, within.collect(), by_number)?;
            let order = json!([{ "field": "n", "direction": "desc" }, { "field": "updatedAt" }]);
            let query = json!({ "collection": collection, "orderBy": order });
            let time = |it: &Fields| it.get("updatedAt").and_then(Value::as_u64);
            self.check_query(query, live().collect(), |one, other| {
                by_number(other, one).then_with(|| time(one).cmp(&time(other)))
            })?;
        }
        Ok(())
    }

    /// What has the same place is in the order of its ids.
    fn check_query(
        &mut self,
        query: Value,
        mut expected: Vec<&Fields>,
        order: impl Fn(&Fields, &Fields) -> Ordering,
    ) -> Result<(), ExchangeError> {
        expected.sort_by(|one, other| {
            order(one, other).then_with(|| text(one, "id").cmp(text(other, "id")))
        });
        let what = query.to_string();
        let limit = self.random.between(2, 30);
        let found = self.query_all(query, limit)?;
        Ok(check_same(&what, &expected, &found)?)
    }

    /// All pages of a query.
    fn query_all(&mut self, query: Value, limit: u64) -> Result<Vec<Fields>, ExchangeError> {
        let mut found = Vec::new();
        let mut query = query.as_object().cloned().unwrap_or_default();
        query.insert("limit".to_owned(), limit.into());
        query.insert("explain".to_owned(), true.into());
        loop {
            let body = Value::from(query.clone()).to_string();
            let answer = ask(self.connection, self.tenant, "POST", "/api/v1/query", Some(&body))?;
            if answer.status != 200 {
                return Err(unexpected(&body, &answer));
            }
            let page = object(&answer)?;
            let plan = page.get("explain").and_then(|cost| cost.pointer("/plan/kind"));
            self.findings.from_indexes += u64::from(plan == Some(&json!("index")));
            let documents = page.get("documents").and_then(Value::as_array);
            let documents = documents.ok_or_else(|| unexpected(&body, &answer))?;
            found.extend(documents.iter().filter_map(Value::as_object).cloned());
            let Some(cursor) = page.get("nextCursor") else { return Ok(found) };
            query.insert("startAfter".to_owned(), cursor.clone());
        }
    }

    /// All changes there ever were, read once more from the first on.
    pub(super) fn read_again(&mut self, state: &TenantState) -> Result<usize, ExchangeError> {
        let (changes, _) = read_changes(self.connection, self.tenant, &state.name, "-1")?;
        if !changes.iter().map(|text| hash(text)).eq(state.model.changes.iter().copied()) {
            return Err(format!("{}: the changes are not what they were", state.name).into());
        }
        Ok(changes.len())
    }

    /// Waits until every index that was declared is used.
    pub(super) fn wait_for_indexes(&mut self, state: &TenantState) -> Result<(), ExchangeError> {
        wait_until_ready(self.connection, self.tenant, &state.name)
    }
}

fn text<'a>(document: &'a Fields, name: &str) -> &'a str {
    document.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// Numbers before texts, each among themselves.
fn by_number(one: &Fields, other: &Fields) -> Ordering {
    let of = |document: &Fields| {
        let value = document.get("n");
        let number = value.and_then(Value::as_u64);
        (number.is_none(), number, value.and_then(Value::as_str).map(str::to_owned))
    };
    of(one).cmp(&of(other))
}

fn check_same(what: &str, known: &[&Fields], found: &[Fields]) -> Result<(), Violation> {
    let ids = |documents: Vec<&Fields>| -> Vec<String> {
        documents.into_iter().map(|document| text(document, "id").to_owned()).collect()
    };
    let differs = known.iter().zip(found).find(|(known, found)| !is_same(known, found));
    match differs {
        Some((known, found)) => Err(format!("{what}: {found:?} where {known:?} should be")),
        None if known.len() == found.len() => Ok(()),
        None => {
            let (known, found) = (ids(known.to_vec()), ids(found.iter().collect()));
            Err(format!("{what}: found {found:?}, there are {known:?}"))
        }
    }
}
