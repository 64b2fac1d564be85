//! A batch: the changes that become durable together, and their form in the log.
//!
//! A record's payload is a list of changes sorted by key:
//!
//! | bytes | what |
//! |---|---|
//! | 4 | number of changes, little-endian |
//! | per change: 1 | `00` the key is removed, `01` it gets the value |
//! | 2 | length of the key, little-endian |
//! | 4 | length of the value, little-endian |
//! | … | key, then value |
//!
//! The decoded form only points into the payload: what the overlay holds is the log record itself.

use std::collections::HashMap;

use bytes::{BufMut, Bytes, BytesMut};

use crate::chunk::Chunk;
use crate::keys::{self, BlobId};
use crate::run::{Entry, Run};

const REMOVE: u8 = 0;
const PUT: u8 = 1;
/// Tag, key length and value length.
const CHANGE_HEADER: usize = 7;
/// The number of appends in a chunk, and the length of each of them.
const CHUNK_COUNT: usize = 4;

/// What a change adds to a batch, in bytes.
pub fn change_bytes(key: &[u8], value: Option<&Bytes>) -> usize {
    CHANGE_HEADER + key.len() + value.map_or(0, Bytes::len)
}

/// What an append adds to a batch at most, in bytes: one that joins an earlier one adds less.
pub fn append_bytes(data: &[u8]) -> usize {
    CHANGE_HEADER + keys::CHUNK_KEY_BYTES + 2 * CHUNK_COUNT + data.len()
}

/// Changes that are being collected; a later change of a key replaces an earlier one.
///
/// They are collected under the partition's lock and put in order by whoever writes them.
#[derive(Debug, Default)]
pub struct Batch {
    /// In the order in which they came.
    changes: Vec<(Bytes, BatchChange)>,
    /// The change that further appends of a stream join, and where the stream ends.
    open_chunks: HashMap<BlobId, (usize, u64), foldhash::fast::RandomState>,
    bytes: usize,
}

#[derive(Debug)]
enum BatchChange {
    Remove,
    Put(Bytes),
    Appends(Vec<Bytes>),
}

/// The payload is not a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a record that is not a batch of changes")]
pub struct BatchError;

impl Batch {
    /// Gives a key a value, or removes it.
    pub fn set(&mut self, key: Bytes, value: Option<Bytes>) {
        self.bytes += change_bytes(&key, value.as_ref());
        self.changes.push((key, value.map_or(BatchChange::Remove, BatchChange::Put)));
    }

    /// Appends to a stream whose tail is at `start`.
    pub fn append(&mut self, id: BlobId, start: u64, data: Bytes) {
        let end = start + u64::try_from(data.len()).unwrap_or(u64::MAX);
        self.bytes += CHUNK_COUNT + data.len();
        if let Some((index, tail)) = self.open_chunks.get_mut(&id) {
            assert_eq!(*tail, start, "appends of one stream follow each other");
            *tail = end;
            match self.changes.get_mut(*index) {
                Some((_, BatchChange::Appends(pieces))) => return pieces.push(data),
                Some((_, BatchChange::Put(_) | BatchChange::Remove)) | None => {
                    unreachable!("an open chunk is in the batch")
                }
            }
        }
        let key = keys::chunk(id, start);
        self.bytes += change_bytes(&key, None) + CHUNK_COUNT;
        self.open_chunks.insert(id, (self.changes.len(), end));
        self.changes.push((key, BatchChange::Appends(vec![data])));
    }

    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// How many changes were collected, those that later ones replace among them.
    pub fn len(&self) -> usize {
        self.changes.len()
    }

    /// An upper bound of the encoded size.
    pub fn bytes(&self) -> usize {
        self.bytes + 4
    }

    /// Writes the record's payload, and the changes as readers will find them.
    pub fn encode(self) -> (Bytes, Run) {
        let mut out = BytesMut::with_capacity(self.bytes());
        let changes = in_order(self.changes);
        let mut places = Vec::with_capacity(changes.len());
        out.put_u32_le(u32::try_from(changes.len()).expect("a batch is bounded in bytes"));
        for (key, change) in &changes {
            let header = out.len();
            out.put_u8(if matches!(change, BatchChange::Remove) { REMOVE } else { PUT });
            out.put_u16_le(u16::try_from(key.len()).expect("keys are short"));
            out.put_u32_le(0);
            out.put_slice(key);
            let value = out.len();
            match change {
                BatchChange::Remove => {}
                BatchChange::Put(bytes) => out.put_slice(bytes),
                BatchChange::Appends(pieces) => Chunk::encode(&mut out, pieces.iter()),
            }
            let len = u32::try_from(out.len() - value).expect("a batch is bounded in bytes");
            if let Some(place) = out.get_mut(header + 3..header + 7) {
                place.copy_from_slice(&len.to_le_bytes());
            }
            places.push((header, value, out.len(), matches!(change, BatchChange::Remove)));
        }
        let payload = out.freeze();
        let entry = |(header, value, end, removed): (usize, usize, usize, bool)| Entry {
            key: payload.slice(header + CHANGE_HEADER..value),
            value: (!removed).then(|| payload.slice(value..end)),
        };
        let run = Run::from_sorted(places.into_iter().map(entry).collect());
        (payload, run)
    }
}

/// The changes by key, of each key the last.
fn in_order(mut changes: Vec<(Bytes, BatchChange)>) -> Vec<(Bytes, BatchChange)> {
    changes.sort_by(|(left, _), (right, _)| left.cmp(right));
    // The first of its kind stays, so that the last is to come first.
    changes.reverse();
    changes.dedup_by(|(later, _), (kept, _)| later == kept);
    changes.reverse();
    changes
}

/// Reads a record's payload.
pub fn decode(payload: &Bytes) -> Result<Run, BatchError> {
    let count = payload.first_chunk::<4>().ok_or(BatchError)?;
    let count = usize::try_from(u32::from_le_bytes(*count)).map_err(|_| BatchError)?;
    let mut entries = Vec::with_capacity(count.min(payload.len() / CHANGE_HEADER));
    let mut at = 4;
    for _ in 0..count {
        let header = payload.get(at..).and_then(<[u8]>::first_chunk::<CHANGE_HEADER>);
        let [tag, k0, k1, v0, v1, v2, v3] = *header.ok_or(BatchError)?;
        let key_len = usize::from(u16::from_le_bytes([k0, k1]));
        let value_len = u32::from_le_bytes([v0, v1, v2, v3]);
        let value_len = usize::try_from(value_len).map_err(|_| BatchError)?;
        let key_at = at + CHANGE_HEADER;
        let value_at = key_at + key_len;
        at = value_at
            .checked_add(value_len)
            .filter(|end| *end <= payload.len())
            .ok_or(BatchError)?;
        let value = match tag {
            PUT => Some(payload.slice(value_at..at)),
            REMOVE => None,
            _ => return Err(BatchError),
        };
        entries.push(Entry { key: payload.slice(key_at..value_at), value });
    }
    let sorted = entries.is_sorted_by(|left, right| left.key < right.key);
    if at != payload.len() || !sorted {
        return Err(BatchError);
    }
    Ok(Run::from_sorted(entries))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::HashedKey;

    #[test]
    fn a_batch_reads_back_with_appends_joined() {
        let mut batch = Batch::default();
        batch.set(Bytes::from_static(b"\x02b"), Some(Bytes::from_static(b"old")));
        batch.set(Bytes::from_static(b"\x02b"), Some(Bytes::from_static(b"new")));
        batch.set(Bytes::from_static(b"\x02a"), None);
        batch.append(BlobId(1), 5, Bytes::from_static(b"xy"));
        batch.append(BlobId(1), 7, Bytes::from_static(b"z"));
        let bound = batch.bytes();
        let (payload, run) = batch.encode();
        assert!(payload.len() <= bound);
        let read = decode(&payload).unwrap();
        assert_eq!(read.entries(), run.entries());
        assert_eq!(run.get(HashedKey::new(b"\x02b")), Some(Some(Bytes::from_static(b"new"))));
        assert_eq!(run.get(HashedKey::new(b"\x02a")), Some(None));
        let value = run.get(HashedKey::new(&keys::chunk(BlobId(1), 5))).flatten().unwrap();
        let chunk = Chunk::decode(5, &value).unwrap();
        assert_eq!(chunk.slice(0, 99), "xyz");
        assert!(chunk.is_boundary(7) && !chunk.is_boundary(6));
    }

    #[test]
    fn what_changes_add_is_known_before_they_are_made() {
        let (key, value) = (Bytes::from_static(b"\x02key"), Some(Bytes::from_static(b"value")));
        let data = Bytes::from_static(b"some data");
        let mut batch = Batch::default();
        let empty = batch.bytes();
        batch.set(key.clone(), value.clone());
        batch.set(key.clone(), None);
        let changes = change_bytes(&key, value.as_ref()) + change_bytes(&key, None);
        assert_eq!(batch.bytes(), empty + changes);
        batch.append(BlobId(1), 0, data.clone());
        assert_eq!(batch.bytes(), empty + changes + append_bytes(&data));
        batch.append(BlobId(1), 9, data.clone());
        let bound = empty + changes + 2 * append_bytes(&data);
        assert!(batch.bytes() <= bound);
        assert!(batch.encode().0.len() <= bound);
    }

    #[test]
    fn a_cut_or_bent_payload_is_refused() {
        let mut batch = Batch::default();
        batch.set(Bytes::from_static(b"\x02b"), Some(Bytes::from_static(b"value")));
        batch.set(Bytes::from_static(b"\x02c"), None);
        let (payload, _) = batch.encode();
        for cut in 0..payload.len() {
            assert_eq!(decode(&payload.slice(..cut)), Err(BatchError), "cut at {cut}");
        }
        let mut bent = payload.to_vec();
        bent[4] = 9;
        assert_eq!(decode(&bent.into()), Err(BatchError));
    }
}
