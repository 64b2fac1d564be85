//! What a decision reads and writes: kept apart until it is known to be whole.

use std::collections::{BTreeMap, HashMap};

use bytes::Bytes;
use reveille_core::delivery::hook::{DeliveryCounts, HookId};
use reveille_core::key_range::above;
use reveille_core::producer::ProducerState;
use reveille_core::stream::delete::{Deletion, delete};
use reveille_core::stream::{Head, StreamId};
use reveille_core::subscription::Timings;
use reveille_core::trace::Trace;
use reveille_core::{Millis, Offset, StreamPath, Tenant};
use reveille_schema::keys::{self, Due, Meta};
use reveille_schema::record;
use reveille_store::keys::{self as store_keys, BlobId};
use reveille_store::state::Reader;

use crate::access_times::AccessTimes;
use crate::command::Answer;
use crate::effect::Effect;
use crate::hooks::Hooks;
use crate::partition::{FetchedKeys, Pending};
use crate::registry::{Change, Registry};

/// What the decision needs and nobody has read yet, or what was read is damaged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ReadError {
    NotLoaded(Vec<Lookup>),
    Damaged(String),
}

/// Something to read before a decision can be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Lookup {
    /// The value of a key.
    Key(Bytes),
    /// At most so many pairs from one key to before another.
    Range(Bytes, Bytes, usize),
}

impl Lookup {
    /// How many keys it is, at most.
    pub(crate) fn weight(&self) -> usize {
        match self {
            Lookup::Key(_) => 1,
            Lookup::Range(_, _, limit) => *limit,
        }
    }
}

/// Pairs of a range, in order.
pub(crate) struct RangePage {
    pub(crate) pairs: Vec<(Bytes, Bytes)>,
    /// Whether these are all.
    pub(crate) complete: bool,
    /// The last key that was looked at, if they are not all; it may have been removed since.
    pub(crate) last: Option<Bytes>,
}

/// One attempt at a decision.
pub(crate) struct Txn<'a> {
    given: Given<'a>,
    /// Everything to change, in order; a later change of a key replaces an earlier one.
    pub(crate) writes: Vec<(Bytes, Option<Bytes>)>,
    pub(crate) appends: Vec<(BlobId, u64, Bytes)>,
    pub(crate) effects: Vec<Effect>,
    /// Whether anything was read that is not durable yet: then the answer waits for it.
    pub(crate) saw_pending: bool,
    /// Numbers of incarnations that were given out.
    pub(crate) took_ids: u64,
    pub(crate) changes: Vec<Change>,
    /// The trace that this is a part of.
    pub(crate) trace: Option<Trace>,
    draws: u64,
    indexed: Indexed,
    /// Tallies as this decision leaves them.
    pub(crate) counts_of_hooks: BTreeMap<HookId, DeliveryCounts>,
}

/// Where the last change of each key is, as far as somebody asked.
#[derive(Default)]
struct Indexed {
    last: HashMap<Bytes, usize, foldhash::fast::RandomState>,
    len: usize,
}

/// Up to this many changes are looked through one by one.
const SCANNED_WRITES: usize = 32;

/// What a decision is made from.
pub(crate) struct Given<'a> {
    pub(crate) now: Millis,
    pub(crate) next_id: u64,
    pub(crate) pending: &'a Pending,
    pub(crate) recent: &'a Reader,
    pub(crate) fetched: &'a FetchedKeys,
    pub(crate) access_times: &'a AccessTimes,
    pub(crate) registry: &'a Registry,
    pub(crate) timings: &'a Timings,
    /// How many consumers are told at once.
    pub(crate) fan_out: usize,
    /// Where this decision's random numbers begin.
    pub(crate) random: u64,
}

impl<'a> Txn<'a> {
    pub(crate) fn new(given: Given<'a>) -> Txn<'a> {
        Txn {
            given,
            writes: Vec::new(),
            appends: Vec::new(),
            effects: Vec::new(),
            saw_pending: false,
            took_ids: 0,
            changes: Vec::new(),
            trace: None,
            draws: 0,
            indexed: Indexed::default(),
            counts_of_hooks: BTreeMap::new(),
        }
    }

    pub(crate) fn registry(&self) -> &'a Registry {
        self.given.registry
    }

    pub(crate) fn hooks(&self) -> &'a Hooks {
        &self.given.registry.hooks
    }

    /// What memory knows of subscriptions and hooks may not be durable yet: the answer waits for it.
    pub(crate) fn rests_on_registry(&mut self) {
        self.saw_pending = true;
    }

    pub(crate) fn timings(&self) -> &'a Timings {
        self.given.timings
    }

    /// How many consumers are told at once.
    pub(crate) fn fan_out(&self) -> usize {
        self.given.fan_out
    }

    /// A random number.
    pub(crate) fn draw(&mut self) -> u64 {
        self.draws += 1;
        crate::random::mix(self.given.random.wrapping_add(self.draws))
    }

    pub(crate) fn now(&self) -> Millis {
        self.given.now
    }

    /// The value of a key: this decision's own, then what is being synced, then what is durable.
    pub(crate) fn get(&mut self, key: &Bytes) -> Result<Option<Bytes>, ReadError> {
        if let Some(value) = self.written(key) {
            return Ok(value.clone());
        }
        if let Some(value) = self.given.pending.get(key) {
            self.saw_pending = true;
            return Ok(value.clone());
        }
        if let Some(value) = self.given.recent.get_recent(key) {
            return Ok(value);
        }
        // What the caller read is true unless the key may have changed since and the change has
        // already left memory.
        let (fetched, recent) = (self.given.fetched, self.given.recent);
        if fetched.seq >= recent.dropped()
            && let Some(value) = fetched.get(key)
        {
            return Ok(value.clone());
        }
        Err(ReadError::NotLoaded(vec![Lookup::Key(key.clone())]))
    }

    /// What this decision wrote to a key, if it did.
    fn written(&mut self, key: &Bytes) -> Option<&Option<Bytes>> {
        // Most decisions write a few keys; for one that writes hundreds, a walk over all of them
        // for every look would take longer than everything else.
        if self.writes.len() <= SCANNED_WRITES {
            return self.writes.iter().rev().find(|(it, _)| it == key).map(|(_, value)| value);
        }
        let fresh = self.writes.iter().enumerate().skip(self.indexed.len);
        for (index, (written, _)) in fresh {
            self.indexed.last.insert(written.clone(), index);
        }
        self.indexed.len = self.writes.len();
        let index = self.indexed.last.get(key)?;
        self.writes.get(*index).map(|(_, value)| value)
    }

    /// Makes sure that all these keys can be read, or asks for those that cannot at once.
    pub(crate) fn want(&mut self, keys: &[Bytes]) -> Result<(), ReadError> {
        let mut wanted = Vec::new();
        for key in keys {
            match self.get(key) {
                Ok(_) => {}
                Err(ReadError::NotLoaded(more)) => wanted.extend(more),
                Err(damaged) => return Err(damaged),
            }
        }
        if wanted.is_empty() { Ok(()) } else { Err(ReadError::NotLoaded(wanted)) }
    }

    /// At least the first pairs from `from` to before `to`, as this decision sees them.
    pub(crate) fn range(
        &mut self,
        from: &Bytes,
        to: &Bytes,
        limit: usize,
    ) -> Result<RangePage, ReadError> {
        let (fetched, recent) = (self.given.fetched, self.given.recent);
        let fresh = fetched.seq >= recent.dropped();
        let range = fetched.range(from, to, limit).filter(|_| fresh);
        let Some(range) = range else {
            return Err(ReadError::NotLoaded(vec![Lookup::Range(from.clone(), to.clone(), limit)]));
        };
        let complete = range.len() < limit;
        // Nothing is known of what comes after the last pair that was read.
        let last = if complete { None } else { range.last().map(|(key, _)| key.clone()) };
        let mut found: BTreeMap<Bytes, Option<Bytes>> =
            range.iter().map(|(key, value)| (key.clone(), Some(value.clone()))).collect();
        found.extend(recent.range_recent(from, to));
        let within = |key: &Bytes| from <= key && key < to;
        for (key, value) in self.given.pending.iter().filter(|(key, _)| within(key)) {
            self.saw_pending = true;
            found.insert(key.clone(), value.clone());
        }
        for (key, value) in self.writes.iter().filter(|(key, _)| within(key)) {
            found.insert(key.clone(), value.clone());
        }
        let known = found.into_iter().filter(|(key, _)| last.as_ref().is_none_or(|it| key <= it));
        let pairs = known.filter_map(|(key, value)| Some((key, value?))).collect();
        Ok(RangePage { pairs, complete, last })
    }

    /// The first key from `from` to before `to`, read in slices of this size.
    pub(crate) fn first(
        &mut self,
        mut from: Bytes,
        to: &Bytes,
        slice: usize,
    ) -> Result<Option<Bytes>, ReadError> {
        loop {
            let found = self.range(&from, to, slice)?;
            if let Some((key, _)) = found.pairs.into_iter().next() {
                return Ok(Some(key));
            }
            // All that was read is gone meanwhile, and there may be more.
            match found.last {
                Some(last) => from = above(&last),
                None => return Ok(None),
            }
        }
    }

    /// The stream at a path, soft-deleted ones included. One whose time has come is ended here.
    pub(crate) fn live_head(
        &mut self,
        tenant: &Tenant,
        path: &StreamPath,
    ) -> Result<Option<Head>, ReadError> {
        let Some(value) = self.get(&keys::stream(tenant, path))? else {
            return Ok(None);
        };
        let head = record::decode_head(&value)
            .map_err(|error| ReadError::Damaged(format!("{path}: {error}")))?;
        if head.soft_deleted || self.now() < self.expires_at(&head) {
            return Ok(Some(head));
        }
        match delete(&head) {
            Err(_) => Ok(Some(head)),
            Ok(deletion) => {
                self.end(tenant, path, &head, deletion.clone());
                Ok(match deletion {
                    Deletion::Soft(head) => Some(*head),
                    Deletion::Hard => None,
                })
            }
        }
    }

    pub(crate) fn expires_at(&self, head: &Head) -> Millis {
        self.given.access_times.expires_at(head)
    }

    pub(crate) fn producer(
        &mut self,
        id: StreamId,
        producer: &str,
    ) -> Result<Option<ProducerState>, ReadError> {
        let Some(value) = self.get(&keys::producer(id, producer))? else {
            return Ok(None);
        };
        let state = record::decode_producer(&value);
        state.map(Some).map_err(|error| ReadError::Damaged(error.to_string()))
    }

    pub(crate) fn is_set(&mut self, key: &Bytes) -> Result<bool, ReadError> {
        Ok(self.get(key)?.is_some())
    }

    /// The number of the next incarnation of anything.
    pub(crate) fn next_id(&self) -> u64 {
        self.given.next_id + self.took_ids
    }

    /// Takes that number.
    pub(crate) fn take_id(&mut self) {
        self.took_ids += 1;
    }

    /// Writes what was only counted so far: one decision may count a hundred times.
    pub(crate) fn finish(&mut self) {
        if self.took_ids > 0 {
            let next = record::encode_u64(self.next_id());
            self.writes.push((keys::meta(Meta::NextStreamId), Some(next)));
        }
        for (hook, counts) in std::mem::take(&mut self.counts_of_hooks) {
            self.writes.push((keys::counts(hook), Some(record::encode_delivery_counts(&counts))));
        }
    }

    pub(crate) fn set(&mut self, key: Bytes, value: Bytes) {
        self.writes.push((key, Some(value)));
    }

    pub(crate) fn set_head(&mut self, tenant: &Tenant, path: &StreamPath, head: &Head) {
        self.writes.push((keys::stream(tenant, path), Some(record::encode_head(head))));
    }

    pub(crate) fn set_producer(&mut self, id: StreamId, producer: &str, state: ProducerState) {
        let value = record::encode_producer(state);
        self.writes.push((keys::producer(id, producer), Some(value)));
    }

    pub(crate) fn set_due(&mut self, at: Millis, due: &Due) {
        self.writes.push((keys::due(at, due), Some(Bytes::new())));
        self.effects.push(Effect::SetTimer(at));
    }

    pub(crate) fn remove(&mut self, key: &Bytes) {
        self.writes.push((key.clone(), None));
    }

    pub(crate) fn append(&mut self, id: StreamId, at: Offset, data: &Bytes) {
        if !data.is_empty() {
            self.appends.push((BlobId(id.0), at.position(), data.clone()));
        }
    }

    /// Bytes of a stream before a position are not kept any more.
    pub(crate) fn trim(&mut self, id: StreamId, kept_from: Offset) {
        self.set(store_keys::trim(BlobId(id.0)), record::encode_u64(kept_from.position()));
    }

    pub(crate) fn effect(&mut self, effect: Effect) {
        self.effects.push(effect);
    }

    /// Ends a stream: what must follow is in the due index from the same batch on.
    pub(crate) fn end(
        &mut self,
        tenant: &Tenant,
        path: &StreamPath,
        head: &Head,
        deletion: Deletion,
    ) {
        self.effects.push(Effect::ReleaseReaders(head.id));
        match deletion {
            Deletion::Soft(kept) => {
                self.set_head(tenant, path, &kept);
                self.forget_consumers(tenant, path, head);
            }
            Deletion::Hard => {
                self.remove(&keys::stream(tenant, path));
                self.set_due(self.now(), &Due::Purge(head.id));
                self.forget_consumers(tenant, path, head);
                if let Some(fork) = &head.fork {
                    let key = keys::due_release(self.now(), tenant, &fork.source, head.id);
                    self.writes.push((key, Some(Bytes::new())));
                }
            }
        }
    }

    /// What the consumers of an ended stream left is kept until no token of theirs is valid any
    /// more: a stream that takes its place goes on counting their epochs.
    fn forget_consumers(&mut self, tenant: &Tenant, path: &StreamPath, head: &Head) {
        let told = self.registry().is_matched(tenant, path);
        if (told || head.followed) && !head.soft_deleted {
            // Neither a token nor an answer that is under way may meet a record that begins anew.
            let Timings { token_ttl_ms, webhook_timeout_ms, .. } = *self.timings();
            let at = self.now() + token_ttl_ms.max(webhook_timeout_ms);
            self.set_due(at, &Due::Forget(tenant.clone(), path.clone(), head.id));
        }
    }

    /// Keeps something of the server's own, unless somebody else was quicker.
    pub(crate) fn install(
        &mut self,
        name: Meta,
        value: &Bytes,
        expected: Option<&Bytes>,
    ) -> Result<Answer, ReadError> {
        let key = keys::meta(name);
        if self.get(&key)?.as_ref() == expected {
            self.set(key, value.clone());
        }
        Ok(Answer::Done)
    }

    /// Writes something of no consequence, so that the whole way of a write is walked.
    pub(crate) fn probe(&mut self) {
        let value = record::encode_u64(self.now().0);
        self.writes.push((keys::meta(Meta::Probe), Some(value)));
    }
}
