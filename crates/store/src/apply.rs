//! Bringing the table up: a frozen run becomes table changes, its appends become larger chunks.
//!
//! A stream's consecutive appends of one run become one value. A chunk that is no longer than
//! what follows it is merged with it, so that every byte is rewritten at most a logarithmic number
//! of times and a read finds few large values. Applying a run again changes nothing: bytes that
//! the table has already are left out.

use std::collections::BTreeMap;

use bytes::{Bytes, BytesMut};

use crate::chunk::Chunk;
use crate::keys::{self, BlobId};
use crate::run::{Entry, Run};
use crate::table::{Change, Table, TableError, read_chunk};

/// A chunk has at most this many bytes.
const CHUNK_BYTES: u64 = 256 << 10;
/// A chunk of this many bytes is full: cut between appends, chunks are a little shorter than they
/// might be, and are left alone from then on.
const CHUNK_FULL_BYTES: u64 = CHUNK_BYTES / 2;
/// Chunks this small are merged whatever follows.
const CHUNK_SMALL_BYTES: u64 = 1 << 10;

/// Writes everything in the run to the table.
pub(crate) fn apply(table: &dyn Table, run: &Run) -> Result<(), TableError> {
    table.apply(&mut TableChanges { table, rest: run.entries(), of_stream: BTreeMap::new() })
}

/// What a run changes in the table, in order; what becomes of a stream's chunks is seen when it is
/// their turn.
struct TableChanges<'a> {
    table: &'a dyn Table,
    rest: &'a [Entry],
    /// The changes of the stream whose turn it is.
    of_stream: BTreeMap<Bytes, Option<NewChunk>>,
}

/// A chunk that is to be written. It is put together when it is its turn: a long stream is never
/// in memory twice.
enum NewChunk {
    /// Whole appends, with so many bytes in all.
    Appends(Vec<Bytes>, u64),
    /// A part of one that is longer than a chunk.
    Part { bytes: Bytes, is_first: bool, is_last: bool },
}

impl NewChunk {
    fn encode(&self) -> Bytes {
        match self {
            NewChunk::Appends(appends, len) => {
                let capacity = 4 + 4 * appends.len() + usize::try_from(*len).unwrap_or(0);
                let mut value = BytesMut::with_capacity(capacity);
                Chunk::encode(&mut value, appends.iter());
                value.freeze()
            }
            NewChunk::Part { bytes, is_first, is_last } => {
                Chunk::encode_part(bytes, *is_first, *is_last)
            }
        }
    }
}

impl Iterator for TableChanges<'_> {
    type Item = Result<Change, TableError>;

    fn next(&mut self) -> Option<Result<Change, TableError>> {
        loop {
            if let Some((key, chunk)) = self.of_stream.pop_first() {
                return Some(Ok((key, chunk.map(|chunk| chunk.encode()))));
            }
            let (entry, after) = self.rest.split_first()?;
            let Some((id, _)) = keys::parse_chunk(&entry.key) else {
                self.rest = after;
                return Some(Ok((entry.key.clone(), entry.value.clone())));
            };
            let of_stream = chunks_of(id, self.rest);
            self.rest = self.rest.get(of_stream.len()..).unwrap_or_default();
            if let Err(error) = self.change_chunks(id, of_stream) {
                self.rest = &[];
                return Some(Err(error));
            }
        }
    }
}

/// The entries at the beginning that are chunks of this stream.
fn chunks_of(id: BlobId, entries: &[Entry]) -> &[Entry] {
    let (_, end) = keys::chunks(id);
    let count = entries.partition_point(|entry| entry.key < end);
    entries.get(..count).unwrap_or_default()
}

impl TableChanges<'_> {
    /// Brings the chunks of one stream up.
    ///
    /// They are removed when the stream has ended, and then all of them go; or when it is trimmed,
    /// and then all go that end before some position. Which keys they have depends on how they were
    /// merged, and that is not the same when the log is replayed: removing just the keys that were
    /// there at the time would leave others behind.
    fn change_chunks(&mut self, id: BlobId, entries: &[Entry]) -> Result<(), TableError> {
        let mut new = Vec::with_capacity(entries.len());
        let mut kept_from = None;
        for entry in entries {
            let Some(value) = &entry.value else {
                return self.remove_chunks(id);
            };
            if keys::is_trim(&entry.key) {
                let position = value.as_ref().try_into().map(u64::from_be_bytes);
                let damaged = |_| TableError::Corrupt("a trim mark is not eight bytes".into());
                kept_from = Some(position.map_err(damaged)?);
            } else {
                new.push(read_chunk(&entry.key, value)?);
            }
        }
        new.retain(|chunk| kept_from.is_none_or(|kept_from| chunk.end() > kept_from));
        for adjacent in new.chunk_by(|chunk, next| chunk.end() == next.start()) {
            self.put_chunks(id, adjacent)?;
        }
        kept_from.map_or(Ok(()), |kept_from| self.trim_chunks(id, kept_from))
    }

    /// Removes the chunks that the table has of what is not kept.
    fn trim_chunks(&mut self, id: BlobId, kept_from: u64) -> Result<(), TableError> {
        let (first, to) = (keys::chunk(id, 0), keys::chunk(id, kept_from));
        let mut gone = self.table.keys(&first, &to).collect::<Result<Vec<_>, _>>()?;
        // Each ends where the next begins; only of the last one that is not known without a look.
        if let Some(last) = gone.pop()
            && let Some(value) = self.table.get(&last)?
            && read_chunk(&last, &value)?.end() <= kept_from
        {
            gone.push(last);
        }
        for key in gone {
            // What was merged with others has its change already.
            self.of_stream.entry(key).or_insert(None);
        }
        Ok(())
    }

    fn remove_chunks(&mut self, id: BlobId) -> Result<(), TableError> {
        let (from, to) = keys::chunks(id);
        for key in self.table.keys(&from, &to) {
            self.of_stream.insert(key?, None);
        }
        Ok(())
    }

    /// Writes new chunks of a stream, merged with the end of what the table has.
    fn put_chunks(&mut self, id: BlobId, new: &[Chunk]) -> Result<(), TableError> {
        let Some(first) = new.first() else {
            return Ok(());
        };
        // What the table has of a stream is always its beginning: its last chunk says how much.
        let known = first.start() > 0 || self.table.get(&keys::chunk(id, 0))?.is_some();
        let mut before = if known { self.last_chunk(id, u64::MAX)? } else { None };
        let mut pile = Vec::with_capacity(new.len() + 1);
        let held = before.as_ref().map_or(0, Chunk::end);
        pile.extend(new.iter().filter_map(|chunk| unseen_part(chunk, held)));
        let mut total: u64 = pile.iter().map(Chunk::len).sum();
        if total == 0 {
            return Ok(());
        }
        let mut removed = Vec::new();
        while let Some(chunk) = before.take() {
            let adjacent = pile.first().is_some_and(|next| next.start() == chunk.end());
            let small = chunk.len() <= total.max(CHUNK_SMALL_BYTES);
            let worth = small && chunk.len() < CHUNK_FULL_BYTES;
            if !adjacent || !worth || chunk.continues() {
                break;
            }
            total += chunk.len();
            removed.push(keys::chunk(id, chunk.start()));
            before = match chunk.start().checked_sub(1) {
                Some(below) => self.last_chunk(id, below)?,
                None => None,
            };
            pile.insert(0, chunk);
        }
        self.of_stream.extend(removed.into_iter().map(|key| (key, None)));
        let written = cut(&pile).into_iter();
        self.of_stream.extend(written.map(|(start, chunk)| (keys::chunk(id, start), Some(chunk))));
        Ok(())
    }

    /// The last chunk in the table that begins at `position` or before.
    fn last_chunk(&self, id: BlobId, position: u64) -> Result<Option<Chunk>, TableError> {
        let (first, last) = (keys::chunk(id, 0), keys::chunk(id, position));
        let found = self.table.floor(&first, &last)?;
        found.map(|(key, value)| read_chunk(&key, &value)).transpose()
    }
}

/// The part of a chunk from `held` on: what the table has is not written again.
fn unseen_part(chunk: &Chunk, held: u64) -> Option<Chunk> {
    if chunk.start() >= held {
        Some(chunk.clone())
    } else {
        chunk.split_from(held).filter(|part| !part.is_empty())
    }
}

/// Cuts adjacent chunks anew into values of the full size: at boundaries between appends, and
/// through appends that are longer than that.
fn cut(pile: &[Chunk]) -> Vec<(u64, NewChunk)> {
    let mut written = Vec::new();
    let mut piece: Vec<Bytes> = Vec::new();
    let mut start = pile.first().map_or(0, Chunk::start);
    let mut len = 0;
    for append in pile.iter().flat_map(Chunk::appends) {
        let append_len = u64::try_from(append.len()).unwrap_or(u64::MAX);
        if !piece.is_empty() && len + append_len > CHUNK_BYTES {
            written.push((start, NewChunk::Appends(std::mem::take(&mut piece), len)));
            start += len;
            len = 0;
        }
        if append_len > CHUNK_BYTES {
            cut_append(&mut written, start, &append);
            start += append_len;
        } else {
            piece.push(append);
            len += append_len;
        }
    }
    if !piece.is_empty() {
        written.push((start, NewChunk::Appends(piece, len)));
    }
    written
}

/// One long append as several values.
fn cut_append(written: &mut Vec<(u64, NewChunk)>, start: u64, append: &Bytes) {
    let size = usize::try_from(CHUNK_BYTES).unwrap_or(usize::MAX);
    let (mut rest, mut at, mut is_first) = (append.clone(), start, true);
    while !rest.is_empty() {
        let bytes = rest.split_to(rest.len().min(size));
        let len = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        written.push((at, NewChunk::Part { bytes, is_first, is_last: rest.is_empty() }));
        (at, is_first) = (at + len, false);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::batch::Batch;
    use crate::table::MemoryTable;

    const ID: BlobId = BlobId(1);

    fn run_of(start: u64, appends: &[Vec<u8>]) -> Run {
        let mut batch = Batch::default();
        let mut at = start;
        for append in appends {
            batch.append(ID, at, Bytes::copy_from_slice(append));
            at += u64::try_from(append.len()).unwrap();
        }
        batch.encode().1
    }

    fn stored(table: &MemoryTable) -> (Vec<u8>, Vec<u64>) {
        let (mut bytes, mut boundaries) = (Vec::new(), vec![0]);
        for (key, value) in table.pairs() {
            let chunk = read_chunk(&key, &value).unwrap();
            assert_eq!(chunk.start(), u64::try_from(bytes.len()).unwrap(), "chunks are adjacent");
            bytes.extend_from_slice(&chunk.slice(0, u64::MAX));
            boundaries
                .extend((chunk.start() + 1..=chunk.end()).filter(|at| chunk.is_boundary(*at)));
        }
        (bytes, boundaries)
    }

    proptest! {
        /// However appends are grouped into runs, and however often a run is applied again after a
        /// crash, the table holds the same bytes with the same boundaries.
        #[test]
        fn grouping_and_repeating_change_nothing(
            appends in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..700), 1..40),
            cuts in prop::collection::vec(0usize..40, 0..6),
            again in prop::collection::vec(0usize..40, 0..6),
        ) {
            let ends: Vec<u64> = appends.iter().scan(0, |at, append| {
                *at += u64::try_from(append.len()).unwrap();
                Some(*at)
            }).collect();
            let start_of = |index: usize| if index == 0 { 0 } else { ends[index - 1] };
            let table = MemoryTable::default();
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut % appends.len()).collect();
            cuts.extend([0, appends.len()]);
            cuts.sort_unstable();
            for pair in cuts.windows(2) {
                apply(&table, &run_of(start_of(pair[0]), &appends[pair[0]..pair[1]])).unwrap();
                for from in &again {
                    let from = from % appends.len();
                    if from < pair[1] {
                        apply(&table, &run_of(start_of(from), &appends[from..pair[1]])).unwrap();
                    }
                }
            }
            let (bytes, boundaries) = stored(&table);
            prop_assert_eq!(bytes, appends.concat());
            let mut expected = vec![0];
            expected.extend(&ends);
            prop_assert_eq!(boundaries, expected);
        }
    }

    #[test]
    fn a_removal_takes_chunks_along_that_were_merged_otherwise() {
        let append = |start| run_of(start, &[vec![7u8; 2_000]]);
        let mut batch = Batch::default();
        batch.set(keys::chunk(ID, 0), None);
        let purge = batch.encode().1;
        // Two runs leave one chunk or two, depending on their order and size.
        let table = MemoryTable::default();
        apply(&table, &append(0)).unwrap();
        let other = (keys::chunk(ID, 2_000), Some(Bytes::from_static(&[0; 4])));
        table.apply(&mut std::iter::once(Ok(other))).unwrap();
        apply(&table, &purge).unwrap();
        assert_eq!(table.pairs(), vec![]);
        // And what a replay brings in the same run as the removal is not written at all.
        apply(&table, &append(0)).unwrap();
        apply(&table, &Run::merge(&append(2_000), &purge)).unwrap();
        assert_eq!(table.pairs(), vec![]);
    }

    #[test]
    fn a_chunk_that_cannot_be_read_is_an_error() {
        let entry = |key, value: &'static [u8]| Entry { key, value: Some(value.into()) };
        let after = Bytes::from_static(&[9, 9]);
        let run = Run::from_sorted(vec![entry(keys::chunk(ID, 0), &[7]), entry(after, &[1])]);
        let applied = apply(&MemoryTable::default(), &run);
        assert!(matches!(applied, Err(TableError::Corrupt(_))), "{applied:?}");
    }

    #[test]
    fn a_long_append_is_cut_and_its_boundaries_stay() {
        let table = MemoryTable::default();
        let long = vec![9u8; 700_000];
        let appends = [vec![1u8; 10], long, vec![2u8; 20]];
        apply(&table, &run_of(0, &appends)).unwrap();
        apply(&table, &run_of(10, &appends[1..])).unwrap();
        apply(&table, &run_of(700_030, &[vec![3u8; 5]])).unwrap();
        let largest = table.pairs().iter().map(|(_, value)| value.len()).max();
        assert!(largest < Some(300_000), "{largest:?}");
        let (bytes, boundaries) = stored(&table);
        assert_eq!(bytes.len(), 700_035);
        assert_eq!(boundaries, [0, 10, 700_010, 700_030, 700_035]);
    }

    #[test]
    fn full_chunks_are_not_written_again() {
        let table = MemoryTable::default();
        let appends = |count: usize| vec![vec![7u8; 999]; count];
        apply(&table, &run_of(0, &appends(4_000))).unwrap();
        let more = run_of(4_000 * 999, &appends(1_000));
        let rest = more.entries();
        let changes = TableChanges { table: &table, rest, of_stream: BTreeMap::new() };
        // A million bytes are four chunks, and one that was not full.
        let count = changes.count();
        assert!(count <= 5, "{count} changes");
        apply(&table, &more).unwrap();
        let short = table.pairs().iter().filter(|(_, value)| value.len() < 200_000).count();
        assert!(short <= 1, "{short} are short");
    }

    #[test]
    fn many_small_appends_become_few_chunks() {
        let table = MemoryTable::default();
        let append = vec![7u8; 100];
        for index in 0..20_000u64 {
            apply(&table, &run_of(index * 100, std::slice::from_ref(&append))).unwrap();
        }
        assert!(table.pairs().len() < 30, "{} chunks", table.pairs().len());
        assert_eq!(stored(&table).0.len(), 2_000_000);
    }
}
