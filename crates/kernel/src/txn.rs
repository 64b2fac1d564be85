//! What a decision reads and writes: kept apart until it is known to be whole.

use std::collections::{BTreeMap, HashMap};

use bytes::Bytes;
use reveille_core::Millis;
use reveille_core::key_range::above;
use reveille_core::trace::Trace;
use reveille_store::batch::{append_bytes, change_bytes};
use reveille_store::keys::{self as store_keys, BlobId};
use reveille_store::state::Reader;

use crate::domains::{Domains, Scratch};
use crate::error::Damaged;
use crate::keys;
use crate::limits::{SLICE_ITEMS, SLICE_READ_KEYS};
use crate::pending::{FetchedKeys, Lookup, Pending};
use crate::random;

/// Numbers are given out this far apart: the lowest bits are the partition's, so that no two
/// partitions of an installation ever give out the same.
pub const ID_STRIDE: u64 = 256;

/// What the decision needs and nobody has read yet, or what was read is damaged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReadError {
    NotLoaded(Vec<Lookup>),
    Damaged(Damaged),
}

impl From<Damaged> for ReadError {
    fn from(what: Damaged) -> ReadError {
        ReadError::Damaged(what)
    }
}

/// Pairs of a range, in order.
pub struct RangePage {
    pub pairs: Vec<(Bytes, Bytes)>,
    /// Whether these are all.
    pub complete: bool,
    /// The last key that was looked at, if they are not all; it may have been removed since.
    pub last: Option<Bytes>,
}

/// One attempt at a decision.
pub struct Txn<'a, D: Domains> {
    given: Given<'a, D>,
    /// Everything to change, each key once: a later change takes the place of an earlier one.
    pub(crate) writes: Vec<(Bytes, Option<Bytes>)>,
    pub(crate) appends: Vec<(BlobId, u64, Bytes)>,
    /// What these add to a batch, at most.
    write_bytes: usize,
    append_bytes: usize,
    /// Things that were done beside what was asked for.
    items: usize,
    pub(crate) effects: Vec<D::Effect>,
    /// The earliest timer that was set.
    pub(crate) timer_at: Option<Millis>,
    /// Whether anything was read that is not durable yet: then the answer waits for it.
    pub(crate) saw_pending: bool,
    /// How many numbers were given out.
    pub(crate) took_ids: u64,
    /// The trace that this is a part of.
    pub trace: Option<Trace>,
    draws: u64,
    indexed: Indexed,
    /// What the domains gather while this is decided.
    pub scratch: D::Scratch,
}

/// Where the change of each key is, as far as somebody asked.
#[derive(Default)]
struct Indexed {
    places: HashMap<Bytes, usize, foldhash::fast::RandomState>,
    len: usize,
}

/// Up to this many changes are looked through one by one.
const SCANNED_WRITES: usize = 32;

/// What a decision is made from.
pub(crate) struct Given<'a, D: Domains> {
    pub(crate) now: Millis,
    pub(crate) next_id: u64,
    pub(crate) pending: &'a Pending,
    pub(crate) recent: &'a Reader,
    pub(crate) fetched: &'a FetchedKeys,
    pub(crate) index: &'a D::Index,
    pub(crate) domains: &'a D,
    /// What it may write before it leaves the rest to another.
    pub(crate) slice_bytes: usize,
    /// Where this decision's random numbers begin.
    pub(crate) random: u64,
}

impl<'a, D: Domains> Txn<'a, D> {
    pub(crate) fn new(given: Given<'a, D>, trace: Option<Trace>) -> Txn<'a, D> {
        Txn {
            given,
            writes: Vec::new(),
            appends: Vec::new(),
            write_bytes: 0,
            append_bytes: 0,
            items: 0,
            effects: Vec::new(),
            timer_at: None,
            saw_pending: false,
            took_ids: 0,
            trace,
            draws: 0,
            indexed: Indexed::default(),
            scratch: D::Scratch::default(),
        }
    }

    /// What memory knows of the state. It may not be durable yet: an answer that rests on it, and
    /// on nothing that was read, must say so with [`Txn::rests_on_index`].
    pub fn index(&self) -> &'a D::Index {
        self.given.index
    }

    /// What the domains keep in memory beside the state.
    pub fn domains(&self) -> &'a D {
        self.given.domains
    }

    /// The answer waits until what memory knows is durable.
    pub fn rests_on_index(&mut self) {
        self.saw_pending = true;
    }

    /// A random number.
    pub fn draw(&mut self) -> u64 {
        self.draws += 1;
        random::mix(self.given.random.wrapping_add(self.draws))
    }

    pub fn now(&self) -> Millis {
        self.given.now
    }

    /// The value of a key: this decision's own, then what is being synced, then what is durable.
    pub fn get(&mut self, key: &Bytes) -> Result<Option<Bytes>, ReadError> {
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
        let place = self.place(key)?;
        self.writes.get(place).map(|(_, value)| value)
    }

    /// Where the change of a key is.
    fn place(&mut self, key: &Bytes) -> Option<usize> {
        // Most decisions write a few keys; for one that writes hundreds, a walk over all of them
        // for every look would take longer than everything else.
        if self.writes.len() <= SCANNED_WRITES {
            return self.writes.iter().position(|(it, _)| it == key);
        }
        let fresh = self.writes.iter().enumerate().skip(self.indexed.len);
        for (index, (written, _)) in fresh {
            self.indexed.places.insert(written.clone(), index);
        }
        self.indexed.len = self.writes.len();
        self.indexed.places.get(key).copied()
    }

    /// What this decision adds to a batch, in bytes: never less.
    pub fn bytes(&self) -> usize {
        self.write_bytes + self.append_bytes
    }

    /// What it may write of records before it leaves the rest to another.
    pub fn slice_bytes(&self) -> usize {
        self.given.slice_bytes
    }

    /// Whether this decision has done as much as one should: whatever can be left to another is.
    /// What was appended to blobs is what somebody sent, and does not count.
    pub fn is_full(&self) -> bool {
        self.write_bytes >= self.given.slice_bytes || self.given.fetched.is_much()
    }

    /// How many things may still be done beside what was asked for.
    pub fn items_left(&self) -> usize {
        if self.is_full() { 0 } else { SLICE_ITEMS.saturating_sub(self.items) }
    }

    /// Makes sure that all these keys can be read, or asks for those that cannot at once.
    pub fn want(&mut self, keys: &[Bytes]) -> Result<(), ReadError> {
        self.gather(keys, |txn, key| txn.get(key).map(drop)).map(drop)
    }

    /// The same for keys whose values may be large: they are read in this order until they are more
    /// than so many bytes. Whoever has a use for the others asks for them one by one.
    pub fn want_within(&mut self, keys: &[Bytes], bytes_max: usize) -> Result<(), ReadError> {
        let mut lacking = Vec::new();
        for key in keys {
            match self.get(key) {
                Ok(_) => {}
                Err(ReadError::NotLoaded(_)) => lacking.push(key.clone()),
                Err(damaged) => return Err(damaged),
            }
        }
        if lacking.is_empty() || self.given.fetched.is_cut() {
            return Ok(());
        }
        Err(ReadError::NotLoaded(vec![Lookup::Keys(lacking, bytes_max)]))
    }

    /// Does the same for each of several things; what any of them lacks is asked for at once,
    /// because a decision may ask only so often.
    pub fn gather<I, T>(
        &mut self,
        items: impl IntoIterator<Item = I>,
        mut each: impl FnMut(&mut Self, I) -> Result<T, ReadError>,
    ) -> Result<Vec<T>, ReadError> {
        let (mut found, mut lacking) = (Vec::new(), Vec::new());
        for item in items {
            match each(self, item) {
                Ok(value) => found.push(value),
                Err(ReadError::NotLoaded(more)) => lacking.extend(more),
                // What is wrong may be so only for want of what an earlier one lacks.
                Err(ReadError::Damaged(_)) if !lacking.is_empty() => break,
                Err(damaged) => return Err(damaged),
            }
        }
        if lacking.is_empty() { Ok(found) } else { Err(ReadError::NotLoaded(lacking)) }
    }

    /// Does the same for the first of several things, until this decision is full, and at least for
    /// one of them. Says for how many: the others are to be left to another decision.
    pub fn gather_slice<I>(
        &mut self,
        items: impl IntoIterator<Item = I>,
        mut each: impl FnMut(&mut Self, I) -> Result<(), ReadError>,
    ) -> Result<usize, ReadError> {
        let (mut done, mut lacking, mut lacking_keys) = (0, Vec::new(), 0);
        for item in items {
            // Whoever lacks something comes again with it: what was done so far is not kept.
            if (done > 0 && self.is_full()) || lacking_keys >= SLICE_READ_KEYS {
                break;
            }
            self.items += 1;
            match each(self, item) {
                Ok(()) => done += 1,
                Err(ReadError::NotLoaded(more)) => {
                    lacking_keys += more.iter().map(Lookup::weight).sum::<usize>();
                    lacking.extend(more);
                }
                // What is wrong may be so only for want of what an earlier one lacks.
                Err(ReadError::Damaged(_)) if !lacking.is_empty() => break,
                Err(damaged) => return Err(damaged),
            }
        }
        if lacking.is_empty() { Ok(done) } else { Err(ReadError::NotLoaded(lacking)) }
    }

    /// At least the first pairs from `from` to before `to`, as this decision sees them.
    pub fn range(
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
    pub fn first(
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

    pub fn is_set(&mut self, key: &Bytes) -> Result<bool, ReadError> {
        Ok(self.get(key)?.is_some())
    }

    /// A number that nothing has had yet, larger than all that were given out before.
    pub fn next_id(&self) -> u64 {
        self.given.next_id + self.took_ids * ID_STRIDE
    }

    /// Takes that number.
    pub fn take_id(&mut self) -> u64 {
        let id = self.next_id();
        self.took_ids += 1;
        id
    }

    /// Writes what was only counted so far: one decision may count a hundred times.
    pub(crate) fn finish(&mut self) {
        if self.took_ids > 0 {
            let next = keys::encode_u64(self.next_id());
            self.set(keys::next_id(), next);
        }
        for (key, value) in std::mem::take(&mut self.scratch).writes() {
            self.set(key, value);
        }
    }

    pub fn set(&mut self, key: Bytes, value: Bytes) {
        self.change(key, Some(value));
    }

    pub fn remove(&mut self, key: &Bytes) {
        self.change(key.clone(), None);
    }

    fn change(&mut self, key: Bytes, value: Option<Bytes>) {
        self.write_bytes += change_bytes(&key, value.as_ref());
        let place = self.place(&key);
        match place.and_then(|place| self.writes.get_mut(place)) {
            Some((_, before)) => {
                self.write_bytes -= change_bytes(&key, before.as_ref());
                *before = value;
            }
            None => self.writes.push((key, value)),
        }
    }

    /// Something is to happen at a time, whatever crashes before. Its domain knows it by its name.
    pub fn set_timer(&mut self, at: Millis, timer: &[u8]) {
        self.set_timer_with(at, timer, Bytes::new());
    }

    /// The same, with something for its domain to remember.
    pub fn set_timer_with(&mut self, at: Millis, timer: &[u8], value: Bytes) {
        self.set(keys::timer(at, timer), value);
        self.timer_at = self.timer_at.into_iter().chain([at]).min();
    }

    pub fn cancel_timer(&mut self, at: Millis, timer: &[u8]) {
        self.remove(&keys::timer(at, timer));
    }

    /// Adds to a blob, at its end.
    pub fn append(&mut self, blob: BlobId, at: u64, data: &Bytes) {
        if !data.is_empty() {
            self.append_bytes += append_bytes(data);
            self.appends.push((blob, at, data.clone()));
        }
    }

    /// Bytes of a blob before a position are not kept any more.
    pub fn trim(&mut self, blob: BlobId, kept_from: u64) {
        self.set(store_keys::trim(blob), keys::encode_u64(kept_from));
    }

    pub fn effect(&mut self, effect: D::Effect) {
        self.effects.push(effect);
    }

    /// Does something whose effects are not wanted; what it writes and reads counts.
    pub fn without_effects<T>(&mut self, work: impl FnOnce(&mut Self) -> T) -> T {
        let kept = std::mem::take(&mut self.effects);
        let result = work(self);
        self.effects = kept;
        result
    }
}
