//! Everything durable, against the model.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use reveille_core::delivery::id::EventNo;
use reveille_core::document::change::{ChangeHead, FACE};
use reveille_core::document::idempotency::WriteRecord;
use reveille_core::document::snapshot::{Document, DocumentView};
use reveille_core::{Millis, Tenant};
use reveille_engine::Engine;
use reveille_engine::deliveries::source;
use reveille_engine::documents::index::DocumentIndex;
use reveille_kernel::keys::parse_timer;
use reveille_schema::documents::{DocumentTimer, IndexNo, IndexRecord, IndexState};
use reveille_schema::record::{self, EventPlace};
use reveille_schema::{Record, keys};
use reveille_store::state::Reader;

use super::Documents;
use super::action::{object, write_tag};
use super::model::{TenantModel, index_name};
use crate::base::engine::timer_keys;
use crate::base::raw_state::unreadable;
use crate::base::{CheckResult, violation};

type Pairs = BTreeMap<Bytes, Bytes>;
/// When, and what.
type Timers = BTreeSet<(Millis, Bytes)>;

pub(super) fn pairs(reader: &Reader, (from, to): (Bytes, Bytes)) -> CheckResult<Pairs> {
    let pairs = reader.range(&from, &to, usize::MAX).map_err(unreadable)?;
    Ok(pairs.into_iter().collect())
}

fn check(holds: bool, what: impl FnOnce() -> String) -> CheckResult {
    if holds { Ok(()) } else { Err(violation(what())) }
}

impl Documents {
    pub(super) fn audit_all(&self) -> CheckResult {
        let reader = self.base.reader();
        let nothing = TenantModel::default();
        let mut timers = timers(&reader)?;
        let mut outcomes = 0;
        for tenant in &self.tenants {
            let model = self.durable.tenants.get(tenant).unwrap_or(&nothing);
            let documents = self.check_documents(&reader, tenant, model, &mut timers)?;
            self.check_changes(&reader, tenant, model)?;
            outcomes += self.check_outcomes(&reader, tenant, model)?;
            check_indexes(&reader, tenant, model, &documents, &timers)?;
        }
        // A timer of an index may find it gone; each of a tombstone has found one.
        let is_purge = |name: &Bytes| {
            matches!(DocumentTimer::decode(name), Some(DocumentTimer::PurgeTombstone(..)))
        };
        let stray = timers.iter().find(|(_, name)| is_purge(name));
        check(stray.is_none(), || format!("a timer of nothing: {stray:?}"))?;
        let (from, to) = keys::later_until(Millis(1 << 60));
        let later = pairs(&reader, (from, to))?;
        check(later.len() == outcomes, || {
            format!("{outcomes} outcomes are kept, and {} are to be removed", later.len())
        })?;
        self.check_memory()
    }

    fn check_documents(
        &self,
        reader: &Reader,
        tenant: &Tenant,
        model: &TenantModel,
        timers: &mut Timers,
    ) -> CheckResult<Pairs> {
        let stored = pairs(reader, keys::tenant_documents(tenant))?;
        check(stored.len() == model.documents.len(), || {
            format!("there are {:?}, and should be {:?}", stored.keys(), model.documents)
        })?;
        for (key, value) in &stored {
            let (_, path) = keys::parse_document(key).ok_or_else(|| violation("a key"))?;
            let found = Document::decode(value).map_err(unreadable)?;
            let expected = model.documents.get(path.to_string().as_str());
            let data = found.data.as_ref().map(|data| data.json().to_vec());
            let is_same = expected.is_some_and(|it| {
                let json = it.data.as_ref().map(|data| object(data).into_bytes());
                (it.version, it.created_at, it.updated_at)
                    == (found.version, found.created_at, found.updated_at)
                    && json == data
            });
            check(is_same, || format!("{path} is {found:?} and should be {expected:?}"))?;
            if found.is_tombstone() {
                let at = found.updated_at + self.ttls().tombstone_ttl_ms;
                let timer = DocumentTimer::PurgeTombstone(tenant.clone(), path.clone());
                check(timers.remove(&(at, timer.encode())), || format!("nobody purges {path}"))?;
            }
        }
        Ok(stored)
    }

    /// Changes are those of the model, one after another; the oldest may have been forgotten.
    fn check_changes(&self, reader: &Reader, tenant: &Tenant, model: &TenantModel) -> CheckResult {
        let events = pairs(reader, keys::events(FACE, tenant, EventNo(0)))?;
        let mut places = pairs(reader, keys::change_places(tenant, 0))?;
        let forgotten = model.changes.len().checked_sub(events.len());
        let forgotten = forgotten.ok_or_else(|| violation("there are more changes than writes"))?;
        let cutoff = self.cutoffs.get(tenant).copied().unwrap_or(Millis(0));
        let is_old = |(at, _): &(Millis, _)| *at < cutoff;
        check(model.changes.iter().take(forgotten).all(is_old), || {
            format!("{forgotten} changes of {tenant} are gone, and not all were to be forgotten")
        })?;
        let head = reader.get(&keys::change_head(tenant)).map_err(unreadable)?;
        let head = head.map(|head| ChangeHead::decode(&head)).transpose().map_err(unreadable)?;
        let seq = head.map_or(0, |head| head.seq);
        check(seq == model.changes.len() as u64, || format!("the last change is {seq}"))?;
        let stream = keys::stream(tenant, &Engine::change_stream(tenant));
        let stream = reader.get(&stream).map_err(unreadable)?;
        let Some(stream) = stream else {
            return check(model.changes.is_empty(), || "there is no change stream".to_owned());
        };
        let stream = record::decode_head(&stream).map_err(unreadable)?;
        let mut at = stream.first;
        let numbered = (1_u64..).zip(&model.changes).skip(forgotten);
        for ((key, value), (seq, (_, expected))) in events.iter().zip(numbered) {
            let event = record::decode_event(value).map_err(unreadable)?;
            let content = source::content(reader, &event).map_err(unreadable)?;
            check(content.as_deref() == Some(expected.as_bytes()), || {
                format!("change {seq} is {content:?} and should be {expected}")
            })?;
            let no = keys::parse_event(key).map(|no| no.0);
            let place = places.remove(&keys::change_place(tenant, seq));
            let place = place.and_then(|place| record::decode_u64(&place).ok());
            check(no.is_some() && place == no, || format!("the place of {seq} is {place:?}"))?;
            let EventPlace::Stream { stream: id, from, len } = event.place else {
                return Err(violation("a change is not in a stream"));
            };
            check(id == stream.id && from == at, || format!("{seq} is at {from:?}, not {at:?}"))?;
            at = from.plus(len + 1);
        }
        check(at == stream.tail, || "the change stream has something else".to_owned())?;
        check(places.is_empty(), || format!("places of no change: {places:?}"))
    }

    /// What counts is remembered; what does not may have been forgotten. Says how much there is.
    fn check_outcomes(
        &self,
        reader: &Reader,
        tenant: &Tenant,
        model: &TenantModel,
    ) -> CheckResult<usize> {
        let now = self.base.engine().time();
        let mut count = 0;
        for (key, (body, end, expires)) in &model.outcomes {
            let tag = write_tag(*key, *body);
            let key = keys::write_outcome(tenant, &tag.scope, &tag.key);
            let found = reader.get(&key).map_err(unreadable)?;
            let found = found.map(|it| WriteRecord::decode(&it)).transpose().map_err(unreadable)?;
            let Some(found) = found else {
                let swept = now.max(self.base.latest);
                check(*expires <= swept, || format!("{key:?} is forgotten before its time"))?;
                continue;
            };
            check((found.body, found.end, found.expires) == (tag.body, *end, *expires), || {
                format!("{key:?} is {found:?} and should be {body} {end:?} {expires:?}")
            })?;
            let later = reader.get(&keys::later(*expires, &key)).map_err(unreadable)?;
            check(later.is_some(), || format!("nobody forgets {key:?}"))?;
            count += 1;
        }
        Ok(count)
    }

    /// Memory is what a fresh load of the state gives. Decisions may be ahead of it.
    fn check_memory(&self) -> CheckResult {
        if !self.base.is_idle() {
            return Ok(());
        }
        let (reader, shared) = (self.base.reader(), self.base.engine().shared());
        let known = shared.lock();
        for tenant in &self.tenants {
            let indexes = known.index.of::<DocumentIndex>().indexes(tenant);
            let known: Vec<_> = indexes.map(|(no, it)| (no, it.clone())).collect();
            let stored = indexes_of(&reader, tenant)?;
            check(known == stored, || format!("{known:?} is known, {stored:?} is"))?;
        }
        Ok(())
    }
}

fn indexes_of(reader: &Reader, tenant: &Tenant) -> CheckResult<Vec<(IndexNo, IndexRecord)>> {
    let mut indexes = Vec::new();
    for (key, value) in pairs(reader, keys::indexes(tenant))? {
        let (_, no) = keys::parse_index(&key).ok_or_else(|| violation("the key of an index"))?;
        indexes.push((no, IndexRecord::decode(&value).map_err(unreadable)?));
    }
    Ok(indexes)
}

/// All timers of documents.
fn timers(reader: &Reader) -> CheckResult<Timers> {
    let mut timers = BTreeSet::new();
    for key in pairs(reader, timer_keys())?.into_keys() {
        let (at, name) = parse_timer(&key).ok_or_else(|| violation("a timer"))?;
        if name.first() == Some(&DocumentTimer::DOMAIN) {
            timers.insert((at, Bytes::copy_from_slice(name)));
        }
    }
    Ok(timers)
}

/// An index that is ready has what a fresh look at the documents gives; one that is being built has
/// a part of it.
fn check_indexes(
    reader: &Reader,
    tenant: &Tenant,
    model: &TenantModel,
    documents: &Pairs,
    timers: &Timers,
) -> CheckResult {
    let mut wanted = BTreeSet::new();
    for (no, index) in indexes_of(reader, tenant)? {
        let found = pairs(reader, keys::all_index_entries(tenant, no))?;
        let begun = match index.state {
            IndexState::Building { .. } => Some(DocumentTimer::BuildIndex(tenant.clone(), no)),
            IndexState::Ready => None,
            IndexState::Removing => Some(DocumentTimer::RemoveIndex(tenant.clone(), no)),
        };
        if let Some(timer) = begun.map(|timer| timer.encode()) {
            let is_begun = timers.iter().any(|(_, it)| *it == timer);
            check(is_begun, || format!("nobody goes on with {index:?}"))?;
        }
        if index.state == IndexState::Removing {
            continue;
        }
        wanted.insert(index_name(&index.definition));
        let mut expected = Pairs::new();
        for (key, value) in documents {
            let (_, path) = keys::parse_document(key).ok_or_else(|| violation("a key"))?;
            let document = Document::decode(value).map_err(unreadable)?;
            if index.definition.collection.matches(path.collection()) {
                let view = DocumentView::new(&path, &document);
                let (key, value) = keys::index_entry(tenant, no, &index.definition, &view);
                expected.insert(key, value);
            }
        }
        let is_whole = index.state != IndexState::Ready || found.len() == expected.len();
        let is_right = found.iter().all(|(key, value)| expected.get(key) == Some(value));
        check(is_whole && is_right, || {
            format!("{index:?} has {found:?} and should have {expected:?}")
        })?;
    }
    check(wanted == model.indexes, || format!("{wanted:?} are wanted, not {:?}", model.indexes))
}
