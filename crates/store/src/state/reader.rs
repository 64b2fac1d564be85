//! A reader: one consistent look at the overlay and the table under it.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;

use super::View;
use crate::chunk::Chunk;
use crate::keys::{self, BlobId};
use crate::run::Entry;
use crate::table::{Pair, TableError, read_chunk};

/// A consistent look at everything durable: what was there when it was taken, and nothing else,
/// whatever is published, applied and removed while it lives.
///
/// To take one is to copy a pointer. While it lives, what it could read takes memory and, once an
/// apply has begun, room on the disk: it is for one decision or one answer, not for a connection.
#[derive(Clone)]
pub struct Reader {
    pub(super) view: Arc<View>,
}

impl Reader {
    /// The newest batch that this reader sees in full.
    pub fn seq(&self) -> u64 {
        self.view.seq
    }

    /// Changes up to this batch are in the table alone: what was read from the table earlier than
    /// that may be stale.
    pub fn dropped(&self) -> u64 {
        self.view.dropped
    }

    /// What memory says of a key, without touching the table.
    pub fn get_recent(&self, key: &[u8]) -> Option<Option<Bytes>> {
        self.view.get(key)
    }

    pub fn get(&self, key: &[u8]) -> Result<Option<Bytes>, TableError> {
        match self.view.get(key) {
            Some(known) => Ok(known),
            None => self.view.table.read(|table| table.get(key)),
        }
    }

    /// At most `limit` pairs from `from` to before `to`, in order.
    pub fn range(&self, from: &[u8], to: &[u8], limit: usize) -> Result<Vec<Pair>, TableError> {
        self.range_within(from, to, limit, usize::MAX)
    }

    /// The same, up to the pair with which they have so many bytes together: whoever does not know
    /// how large values are holds one too many at most.
    pub fn range_within(
        &self,
        from: &[u8],
        to: &[u8],
        limit: usize,
        bytes: usize,
    ) -> Result<Vec<Pair>, TableError> {
        let table = self.view.table.read(|table| table.range(from, to));
        self.merged(from, to, limit, bytes, table)
    }

    /// The same from the last to the first.
    pub fn range_back_within(
        &self,
        from: &[u8],
        to: &[u8],
        limit: usize,
        bytes: usize,
    ) -> Result<Vec<Pair>, TableError> {
        let mut table = self.view.table.read(|table| table.range_back(from, to));
        let newest_first = self.view.newest_first();
        let mut overlay: Vec<&[Entry]> = newest_first.map(|run| run.range(from, to)).collect();
        let mut from_table = table.next().transpose()?;
        let (mut found, mut found_bytes) = (Vec::new(), 0);
        while found.len() < limit && found_bytes < bytes {
            let largest = overlay.iter().filter_map(|run| run.last()).map(|entry| &entry.key);
            let Some(key) = largest.chain(from_table.as_ref().map(|(key, _)| key)).max().cloned()
            else {
                break;
            };
            let mut value = None;
            for run in &mut overlay {
                if let Some((entry, rest)) = run.split_last()
                    && entry.key == key
                {
                    value = value.or(Some(entry.value.clone()));
                    *run = rest;
                }
            }
            if let Some((_, stored)) = from_table.take_if(|(stored, _)| *stored == key) {
                value = value.or(Some(Some(stored)));
                from_table = table.next().transpose()?;
            }
            if let Some(Some(value)) = value {
                found_bytes += key.len() + value.len();
                found.push((key, value));
            }
        }
        Ok(found)
    }

    /// What memory says of the keys from `from` to before `to`, removals included.
    pub fn range_recent(&self, from: &[u8], to: &[u8]) -> BTreeMap<Bytes, Option<Bytes>> {
        let mut found = BTreeMap::new();
        for run in self.view.oldest_first() {
            let entries = run.range(from, to).iter();
            found.extend(entries.map(|entry| (entry.key.clone(), entry.value.clone())));
        }
        found
    }

    /// At most `limit` keys from `from` to before `to`, in order; their values are not read.
    pub fn keys(&self, from: &[u8], to: &[u8], limit: usize) -> Result<Vec<Bytes>, TableError> {
        let table = self.view.table.read(|table| table.keys(from, to));
        let table = table.map(|key| key.map(|key| (key, Bytes::new())));
        let pairs = self.merged(from, to, limit, usize::MAX, Box::new(table))?;
        Ok(pairs.into_iter().map(|(key, _)| key).collect())
    }

    fn merged(
        &self,
        from: &[u8],
        to: &[u8],
        limit: usize,
        bytes: usize,
        mut table: Box<dyn Iterator<Item = Result<Pair, TableError>>>,
    ) -> Result<Vec<Pair>, TableError> {
        let newest_first = self.view.newest_first();
        let mut overlay: Vec<&[Entry]> = newest_first.map(|run| run.range(from, to)).collect();
        let mut from_table = table.next().transpose()?;
        let mut found = Vec::new();
        let mut found_bytes = 0;
        while found.len() < limit && found_bytes < bytes {
            let smallest = overlay.iter().filter_map(|run| run.first()).map(|entry| &entry.key);
            let Some(key) = smallest.chain(from_table.as_ref().map(|(key, _)| key)).min().cloned()
            else {
                break;
            };
            let mut value = None;
            for run in &mut overlay {
                if let Some((entry, rest)) = run.split_first()
                    && entry.key == key
                {
                    value = value.or(Some(entry.value.clone()));
                    *run = rest;
                }
            }
            if let Some((_, stored)) = from_table.take_if(|(stored, _)| *stored == key) {
                value = value.or(Some(Some(stored)));
                from_table = table.next().transpose()?;
            }
            if let Some(Some(value)) = value {
                found_bytes += key.len() + value.len();
                found.push((key, value));
            }
        }
        Ok(found)
    }

    /// The chunk of a stream that holds a position.
    pub fn chunk_at(&self, id: BlobId, position: u64) -> Result<Option<Chunk>, TableError> {
        match self.recent_chunk_at(id, position)? {
            Some(chunk) => Ok(Some(chunk)),
            None => {
                let (first, last) = (keys::chunk(id, 0), keys::chunk(id, position));
                let found = self.view.table.read(|table| table.floor(&first, &last))?;
                let chunk = found.map(|(key, value)| read_chunk(&key, &value)).transpose()?;
                Ok(chunk.filter(|chunk| chunk.end() > position))
            }
        }
    }

    /// The same, from memory alone.
    pub fn recent_chunk_at(&self, id: BlobId, position: u64) -> Result<Option<Chunk>, TableError> {
        let (first, last) = (keys::chunk(id, 0), keys::chunk(id, position));
        for run in self.view.newest_first() {
            let Some(entry) = run.floor(&first, &last) else {
                continue;
            };
            let Some(value) = &entry.value else { continue };
            let chunk = read_chunk(&entry.key, value)?;
            if chunk.end() > position {
                return Ok(Some(chunk));
            }
        }
        Ok(None)
    }
}
