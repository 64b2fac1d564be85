//! A run: changes sorted by key, never changed once made. The overlay is a short list of them.

use std::cmp::Ordering;
use std::hash::BuildHasher as _;
use std::sync::{Arc, OnceLock};

use bytes::{Bytes, BytesMut};

/// A key's newest change: a value, or its removal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The key.
    pub key: Bytes,
    /// Its value; `None` removes it.
    pub value: Option<Bytes>,
}

/// Changes sorted by key, each key once.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Run {
    entries: Vec<Entry>,
    hints: Hints,
}

/// Which keys are certainly not in a run: most looks at a run are for one that is in another, and
/// a search compares keys that differ only in their last bytes.
///
/// One bit for each of the keys' hashes, in a power of two of words.
#[derive(Debug, Default, PartialEq, Eq)]
struct Hints {
    words: Vec<u64>,
}

/// Bits of a run's hints for each of its keys, at least.
const HINT_BITS: usize = 32;

/// A key, with a number that is the same for the same key within this process.
#[derive(Debug, Clone, Copy)]
pub struct Hashed<'a> {
    key: &'a [u8],
    hash: u64,
}

impl<'a> Hashed<'a> {
    /// A key that is to be looked for in several runs.
    pub fn new(key: &'a [u8]) -> Hashed<'a> {
        static SEED: OnceLock<foldhash::fast::RandomState> = OnceLock::new();
        let hash = SEED.get_or_init(foldhash::fast::RandomState::default).hash_one(key);
        Hashed { key, hash }
    }
}

impl Hints {
    fn of(entries: &[Entry]) -> Hints {
        if entries.is_empty() {
            return Hints::default();
        }
        let words = (entries.len() * HINT_BITS).div_ceil(64).next_power_of_two();
        let mut hints = Hints { words: vec![0; words] };
        for entry in entries {
            let (word, bit) = hints.place(Hashed::new(&entry.key).hash);
            if let Some(word) = hints.words.get_mut(word) {
                *word |= bit;
            }
        }
        hints
    }

    fn place(&self, hash: u64) -> (usize, u64) {
        let mask = u64::try_from(self.words.len()).unwrap_or(1).wrapping_sub(1);
        (usize::try_from((hash >> 6) & mask).unwrap_or(0), 1 << (hash & 63))
    }

    /// Whether a key may be there.
    fn allow(&self, hash: u64) -> bool {
        let (word, bit) = self.place(hash);
        self.words.get(word).is_some_and(|word| word & bit != 0)
    }
}

impl Run {
    /// A run of entries that are sorted and distinct.
    pub fn from_sorted(entries: Vec<Entry>) -> Run {
        debug_assert!(entries.is_sorted_by(|left, right| left.key < right.key));
        let hints = Hints::of(&entries);
        Run { entries, hints }
    }

    /// The entries in order.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// What this run says of a key: nothing, its removal, or its value.
    pub fn get(&self, wanted: Hashed<'_>) -> Option<Option<Bytes>> {
        if !self.hints.allow(wanted.hash) {
            return None;
        }
        let at = self.entries.binary_search_by(|entry| entry.key.as_ref().cmp(wanted.key)).ok()?;
        self.entries.get(at).map(|entry| entry.value.clone())
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

    /// The same, with all bytes in one piece that holds nothing else.
    pub fn pack_all(runs: &[Arc<Run>]) -> Arc<Run> {
        let entries = newest_of(runs);
        let bytes = |entry: &&Entry| entry.key.len() + entry.value.as_ref().map_or(0, Bytes::len);
        let mut all = BytesMut::with_capacity(entries.iter().map(bytes).sum());
        for Entry { key, value } in &entries {
            all.extend_from_slice(key);
            all.extend_from_slice(value.as_deref().unwrap_or_default());
        }
        let mut all = all.freeze();
        let pack = |Entry { key, value }: &Entry| Entry {
            key: all.split_to(key.len()),
            value: value.as_ref().map(|value| all.split_to(value.len())),
        };
        Arc::new(Run::from_sorted(entries.into_iter().map(pack).collect()))
    }
}

/// The entries of many runs, oldest first, by key; of each key the newest.
fn newest_of(runs: &[Arc<Run>]) -> Vec<&Entry> {
    let mut entries: Vec<&Entry> = runs.iter().flat_map(|run| run.entries()).collect();
    // Finds the runs in it and merges them; of one key the newest comes last.
    entries.sort_by(|left, right| left.key.cmp(&right.key));
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
                prop_assert_eq!(merged.get(Hashed::new(&[key])), expected);
                let floor = model.range(5..=key.max(5)).next_back().map(|(k, _)| *k);
                prop_assert_eq!(merged.floor(&[5], &[key.max(5)]).map(|e| e.key[0]), floor);
            }
            let middle: Vec<u8> = model.range(10..30).map(|(k, _)| *k).collect();
            let got: Vec<u8> = merged.range(&[10], &[30]).iter().map(|e| e.key[0]).collect();
            prop_assert_eq!(got, middle);
        }
    }
}
