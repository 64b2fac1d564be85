//! What decisions see beside the durable state: what callers read for them, and what is not durable
//! yet.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use bytes::Bytes;
use reveille_store::run::Run;
use reveille_store::state::Reader;
use reveille_store::table::{Pair, TableError};

use crate::limits::{SLICE_READ_BYTES, SLICE_READ_KEYS};

/// Something to read before a decision can be made.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Lookup {
    /// The value of a key.
    Key(Bytes),
    /// The values of keys, in this order, until they are more than so many bytes together.
    Keys(Vec<Bytes>, usize),
    /// At most so many pairs from one key to before another.
    Range(Bytes, Bytes, usize),
}

impl Lookup {
    /// How many keys it is, at most.
    pub(crate) fn weight(&self) -> usize {
        match self {
            Lookup::Key(_) => 1,
            Lookup::Keys(keys, _) => keys.len(),
            Lookup::Range(_, _, limit) => *limit,
        }
    }
}

/// Values that were read from the table on the caller's side.
#[derive(Debug, Default)]
pub struct FetchedKeys {
    /// They were true when this batch was the newest.
    pub seq: u64,
    values: HashMap<Bytes, Option<Bytes>, foldhash::fast::RandomState>,
    ranges: Vec<FetchedRange>,
    /// All that was read.
    bytes: usize,
    keys: usize,
    /// Whether some keys were left out, because those before them were so large.
    is_cut: bool,
}

#[derive(Debug)]
struct FetchedRange {
    from: Bytes,
    to: Bytes,
    limit: usize,
    pairs: Vec<Pair>,
}

impl FetchedKeys {
    /// Reads what a decision asked for.
    pub fn read(reader: &Reader, wanted: &[Lookup]) -> Result<FetchedKeys, TableError> {
        let mut fetched = FetchedKeys { seq: reader.seq(), ..FetchedKeys::default() };
        for wanted in wanted {
            match wanted {
                Lookup::Key(key) => drop(fetched.read_key(reader, key)?),
                Lookup::Keys(keys, bytes_max) => {
                    let mut bytes = 0;
                    for key in keys {
                        if bytes > *bytes_max {
                            fetched.is_cut = true;
                            break;
                        }
                        bytes += fetched.read_key(reader, key)?;
                    }
                }
                Lookup::Range(from, to, limit) => {
                    let pairs = reader.range(from, to, *limit)?;
                    fetched.keys += pairs.len();
                    let bytes = pairs.iter().map(|(key, value)| key.len() + value.len());
                    fetched.bytes += bytes.sum::<usize>();
                    let (from, to, limit) = (from.clone(), to.clone(), *limit);
                    fetched.ranges.push(FetchedRange { from, to, limit, pairs });
                }
            }
        }
        Ok(fetched)
    }

    /// Reads a key, unless it has been read. Says how many bytes that was.
    fn read_key(&mut self, reader: &Reader, key: &Bytes) -> Result<usize, TableError> {
        if self.values.contains_key(key) {
            return Ok(0);
        }
        let value = reader.get(key)?;
        let bytes = key.len() + value.as_ref().map_or(0, Bytes::len);
        self.keys += 1;
        self.bytes += bytes;
        self.values.insert(key.clone(), value);
        Ok(bytes)
    }

    /// Bytes of all that was read.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether some of the keys that were asked for together were left out.
    pub(crate) fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// Whether it is so much that a decision should leave what it can to another.
    pub(crate) fn is_much(&self) -> bool {
        self.bytes >= SLICE_READ_BYTES || self.keys >= SLICE_READ_KEYS
    }

    pub(crate) fn get(&self, key: &Bytes) -> Option<&Option<Bytes>> {
        self.values.get(key)
    }

    pub(crate) fn range(&self, from: &Bytes, to: &Bytes, limit: usize) -> Option<&[Pair]> {
        let same = |it: &&FetchedRange| it.from == *from && it.to == *to && it.limit == limit;
        self.ranges.iter().find(same).map(|it| it.pairs.as_slice())
    }
}

/// Changes that are decided but not durable yet, newest first known.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    values: HashMap<Bytes, (u64, Option<Bytes>), foldhash::fast::RandomState>,
}

impl Pending {
    pub(crate) fn get(&self, key: &Bytes) -> Option<&Option<Bytes>> {
        self.values.get(key).map(|(_, value)| value)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Bytes, &Option<Bytes>)> {
        self.values.iter().map(|(key, (_, value))| (key, value))
    }

    pub(crate) fn set(&mut self, batch: u64, key: Bytes, value: Option<Bytes>) {
        self.values.insert(key, (batch, value));
    }

    /// Forgets a batch that readers see now.
    pub(crate) fn settle(&mut self, batch: u64, run: &Run) {
        for entry in run.entries() {
            if let Entry::Occupied(known) = self.values.entry(entry.key.clone())
                && known.get().0 <= batch
            {
                known.remove();
            }
        }
    }
}
