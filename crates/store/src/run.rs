//! A run: changes sorted by key, never changed once made. The overlay is a short list of them.

use std::cmp::Ordering;
use std::hash::BuildHasher as _;
use std::sync::{Arc, OnceLock};

use bytes::{Bytes, BytesMut};

use crate::background::YieldCounter;

/// Entries that are looked at before others have their turn.
const TURN_ENTRIES: u32 = 1_024;

/// A value of so many bytes is not copied when runs are put together: the batch that holds it is
/// at most a few times as long.
const KEPT_VALUE_BYTES: usize = 4 << 20;

/// A key's newest change: a value, or its removal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub key: Bytes,
    /// `None` removes the key.
    pub value: Option<Bytes>,
}

/// Changes sorted by key, each key once.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Run {
    entries: Vec<Entry>,
    index: KeyIndex,
}

/// Where a run has its keys. Most looks at a run are for a key that is in another, and a search
/// would compare keys that differ only in their last bytes.
///
/// A hash table of a power of two of slots, at most half of them used: an empty one is zero, any
/// other has a few bits of the key's hash above the entry's index plus one.
#[derive(Debug, Default, PartialEq, Eq)]
struct KeyIndex {
    slots: Vec<u32>,
}

/// Bits of a slot that are the entry's index plus one.
const INDEX_BITS: u32 = 24;
const INDEX_MASK: u32 = (1 << INDEX_BITS) - 1;

/// A key, with a number that is the same for the same key within this process.
#[derive(Debug, Clone, Copy)]
pub struct HashedKey<'a> {
    key: &'a [u8],
    hash: u64,
}

impl<'a> HashedKey<'a> {
    /// A key that is to be looked for in several runs.
    pub fn new(key: &'a [u8]) -> HashedKey<'a> {
        static SEED: OnceLock<foldhash::fast::RandomState> = OnceLock::new();
        let hash = SEED.get_or_init(foldhash::fast::RandomState::default).hash_one(key);
        HashedKey { key, hash }
    }
}

impl KeyIndex {
    fn of(entries: &[Entry]) -> KeyIndex {
        if entries.is_empty() {
            return KeyIndex::default();
        }
        let mut index = KeyIndex { slots: vec![0; (entries.len() * 2).next_power_of_two()] };
        let mut turns = YieldCounter::of(TURN_ENTRIES);
        for (number, entry) in (1u32..).zip(entries) {
            turns.count();
            assert!(number <= INDEX_MASK, "a run is bounded in bytes");
            let hash = HashedKey::new(&entry.key).hash;
            let mut at = index.first(hash);
            while let Some(slot) = index.slots.get_mut(at) {
                if *slot == 0 {
                    *slot = mark(hash) | number;
                    break;
                }
                at = index.after(at);
            }
        }
        index
    }

    /// The indices of entries that may have a key with this hash.
    fn candidates(&self, hash: u64) -> impl Iterator<Item = usize> {
        let mut at = self.first(hash);
        let slots = std::iter::from_fn(move || {
            let slot = self.slots.get(at).copied().filter(|slot| *slot != 0)?;
            at = self.after(at);
            Some(slot)
        });
        let marked = slots.filter(move |slot| slot & !INDEX_MASK == mark(hash));
        marked.filter_map(|slot| usize::try_from((slot & INDEX_MASK) - 1).ok())
    }

    fn first(&self, hash: u64) -> usize {
        usize::try_from(hash).unwrap_or(usize::MAX) & self.slots.len().wrapping_sub(1)
    }

    fn after(&self, at: usize) -> usize {
        (at + 1) & self.slots.len().wrapping_sub(1)
    }
}

/// The part of a hash that a slot has; it is not the part that says which slot.
fn mark(hash: u64) -> u32 {
    let upper = u32::try_from(hash >> 32).unwrap_or(0);
    upper & !INDEX_MASK
}

impl Run {
    /// A run of entries that are sorted and distinct.
    pub fn from_sorted(entries: Vec<Entry>) -> Run {
        debug_assert!(entries.is_sorted_by(|left, right| left.key < right.key));
        let index = KeyIndex::of(&entries);
        Run { entries, index }
    }

    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// What this run says of a key: nothing, its removal, or its value.
    pub fn get(&self, wanted: HashedKey<'_>) -> Option<Option<Bytes>> {
        let candidates = self.index.candidates(wanted.hash);
        let mut entries = candidates.filter_map(|at| self.entries.get(at));
        entries.find(|entry| entry.key == wanted.key).map(|entry| entry.value.clone())
    }

    /// The entries from `from` to before `to`.
    pub fn range(&self, from: &[u8], to: &[u8]) -> &[Entry] {
        let begin = self.entries.partition_point(|entry| entry.key.as_ref() < from);
        let end = self.entries.partition_point(|entry| entry.key.as_ref() < to);
        self.entries.get(begin..end).unwrap_or_default()
    }

    /// The last entry from `from` up to and including `last`.
    pub fn floor(&self, from: &[u8], last: &[u8]) -> Option<&Entry> {
        let end = self.entries.partition_point(|entry| entry.key.as_ref() <= last);
        let entry = self.entries.get(end.checked_sub(1)?)?;
        (entry.key.as_ref() >= from).then_some(entry)
    }

    /// Both runs as one; where both have a key, the newer one's entry stays.
    pub fn merge(older: &Run, newer: &Run) -> Run {
        let mut entries = Vec::with_capacity(older.entries.len() + newer.entries.len());
        let (mut old, mut new) = (older.entries.iter().peekable(), newer.entries.iter().peekable());
        loop {
            let order = match (old.peek(), new.peek()) {
                (Some(left), Some(right)) => left.key.cmp(&right.key),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (None, None) => break,
            };
            match order {
                Ordering::Less => entries.extend(old.next().cloned()),
                Ordering::Greater => entries.extend(new.next().cloned()),
                Ordering::Equal => {
                    old.next();
                    entries.extend(new.next().cloned());
                }
            }
        }
        Run::from_sorted(entries)
    }

    /// Many runs, oldest first, as one.
    pub fn merge_all(runs: &[Arc<Run>]) -> Arc<Run> {
        match runs {
            [only] => only.clone(),
            [older, newer] => Arc::new(Run::merge(older, newer)),
            _ => Arc::new(Run::from_sorted(newest_of(runs).into_iter().cloned().collect())),
        }
    }

    /// The same, with all bytes in one piece that holds nothing else; very long values stay where
    /// they are.
    pub fn pack_all(runs: &[Arc<Run>]) -> Arc<Run> {
        let entries = newest_of(runs);
        let bytes = |entry: &&Entry| entry.key.len() + copied(entry).map_or(0, Bytes::len);
        let mut all = BytesMut::with_capacity(entries.iter().map(bytes).sum());
        let mut turns = YieldCounter::of(TURN_ENTRIES);
        for entry in &entries {
            turns.count();
            all.extend_from_slice(&entry.key);
            all.extend_from_slice(copied(entry).map_or(&[], |value| value));
        }
        let mut all = all.freeze();
        let pack = |entry: &Entry| Entry {
            key: all.split_to(entry.key.len()),
            value: match copied(entry) {
                Some(value) => Some(all.split_to(value.len())),
                None => entry.value.clone(),
            },
        };
        Arc::new(Run::from_sorted(entries.into_iter().map(pack).collect()))
    }
}

/// The value of an entry, unless it is so long that what holds it holds little else.
fn copied(entry: &Entry) -> Option<&Bytes> {
    entry.value.as_ref().filter(|value| value.len() < KEPT_VALUE_BYTES)
}

/// The entries of many runs, oldest first, by key; of each key the newest.
fn newest_of(runs: &[Arc<Run>]) -> Vec<&Entry> {
    let mut entries: Vec<&Entry> = runs.iter().flat_map(|run| run.entries()).collect();
    // Finds the runs in it and merges them; of one key the newest comes last.
    let mut turns = YieldCounter::of(TURN_ENTRIES);
    entries.sort_by(|left, right| {
        turns.count();
        left.key.cmp(&right.key)
    });
    // The first of its kind stays.
    entries.reverse();
    entries.dedup_by(|older, kept| older.key == kept.key);
    entries.reverse();
    entries
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn run(map: &BTreeMap<u8, Option<u8>>) -> Arc<Run> {
        let one = |byte: u8| Bytes::copy_from_slice(&[byte]);
        let entries = map.iter().map(|(k, v)| Entry { key: one(*k), value: v.map(one) });
        Arc::new(Run::from_sorted(entries.collect()))
    }

    #[test]
    fn very_long_values_are_not_copied() {
        let entry = |key: &'static str, len| Entry {
            key: Bytes::from_static(key.as_bytes()),
            value: Some(Bytes::from(vec![7; len])),
        };
        let entries = vec![entry("a", 3), entry("b", KEPT_VALUE_BYTES), entry("c", 5)];
        let before = Arc::new(Run::from_sorted(entries));
        let packed = Run::pack_all(std::slice::from_ref(&before));
        assert_eq!(packed, before);
        let places = |run: &Run| {
            let values = run.entries().iter().filter_map(|it| it.value.as_ref());
            values.map(|value| value.as_ptr()).collect::<Vec<_>>()
        };
        let is_same: Vec<bool> =
            places(&packed).iter().zip(places(&before)).map(|(now, then)| *now == then).collect();
        assert_eq!(is_same, [false, true, false]);
    }

    proptest! {
        #[test]
        fn merged_runs_say_what_the_newest_says(
            maps in prop::collection::vec(
                prop::collection::btree_map(0u8..40, prop::option::of(any::<u8>()), 0..20), 0..6)
        ) {
            let mut model = BTreeMap::new();
            for map in &maps {
                model.extend(map.clone());
            }
            let runs: Vec<_> = maps.iter().map(run).collect();
            let merged = Run::merge_all(&runs);
            prop_assert_eq!(&merged, &run(&model));
            prop_assert_eq!(&Run::pack_all(&runs), &merged);
            for key in 0..40u8 {
                let expected = model.get(&key).map(|v| v.map(|v| Bytes::copy_from_slice(&[v])));
                prop_assert_eq!(merged.get(HashedKey::new(&[key])), expected);
                let floor = model.range(5..=key.max(5)).next_back().map(|(k, _)| *k);
                prop_assert_eq!(merged.floor(&[5], &[key.max(5)]).map(|e| e.key[0]), floor);
            }
            let middle: Vec<u8> = model.range(10..30).map(|(k, _)| *k).collect();
            let got: Vec<u8> = merged.range(&[10], &[30]).iter().map(|e| e.key[0]).collect();
            prop_assert_eq!(got, middle);
        }
    }
}
