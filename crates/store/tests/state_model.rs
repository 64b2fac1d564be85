//! The state against a plain map: whatever is published, set aside and applied in whatever order,
//! a new reader sees the newest of everything, and one that was taken earlier sees what was there
//! then: nothing older, nothing newer, however the table has changed under it.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "this is a test")]

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use proptest::prelude::*;
use reveille_store::batch::Batch;
use reveille_store::chunk::Chunk;
use reveille_store::keys;
use reveille_store::keys::BlobId;
use reveille_store::state::{Reader, State};
use reveille_store::table::{LsmTable, MemoryTable, Pair, Table};

type Map = BTreeMap<Bytes, Bytes>;

const KEYS: u8 = 12;
const STREAMS: u64 = 3;

#[derive(Debug, Clone)]
enum Step {
    /// Changes of keys, and appends to streams, in one batch.
    Publish(Vec<(u8, Option<u8>)>, Vec<(u64, Vec<u8>)>),
    /// A stream is trimmed: so much of what it has, in hundredths, is not kept.
    Trim(u64, usize),
    /// A stream has ended: its chunks are removed, and its number is not used again.
    Purge(u64),
    /// The newest batches are put together.
    Settle,
    /// A part is set aside; it is applied later, perhaps.
    Freeze,
    Apply,
    /// A reader takes its view, and reads from it at every later step.
    Hold,
    /// The oldest of them is done.
    Release,
    /// Only the table and the log are left, which is replayed from the checkpoint on.
    Crash,
    Checkpoint,
}

fn step() -> impl Strategy<Value = Step> {
    let changes = prop::collection::vec((0..KEYS, any::<Option<u8>>()), 0..5);
    let append = (0..STREAMS, prop::collection::vec(any::<u8>(), 1..900));
    let appends = prop::collection::vec(append, 0..3);
    prop_oneof![
        6 => (changes, appends).prop_map(|(changes, appends)| Step::Publish(changes, appends)),
        1 => (0..STREAMS, 0..=100usize).prop_map(|(id, part)| Step::Trim(id, part)),
        1 => (0..STREAMS).prop_map(Step::Purge),
        2 => Just(Step::Settle),
        2 => Just(Step::Freeze),
        3 => Just(Step::Apply),
        2 => Just(Step::Hold),
        1 => Just(Step::Release),
        1 => Just(Step::Crash),
        1 => Just(Step::Checkpoint),
    ]
}

fn key(number: u8) -> Bytes {
    Bytes::copy_from_slice(&[2, number])
}

/// A reader that was taken earlier, and what was true then.
struct Held {
    reader: Reader,
    since: usize,
    streams: Vec<Stream>,
    /// What another reader, taken at the same moment, found at once.
    found: ChunkContent,
}

/// What a reader finds of the chunks of every stream.
#[derive(Debug, PartialEq, Eq)]
struct ChunkContent {
    keys: Vec<Vec<Bytes>>,
    pairs: Vec<Vec<Pair>>,
    /// At the beginning and the end of every append, and before both.
    chunks: Vec<Vec<Option<Chunk>>>,
}

#[derive(Debug, Clone)]
struct Stream {
    /// Another one when it has ended.
    id: BlobId,
    bytes: Vec<u8>,
    /// Where its appends begin.
    starts: Vec<u64>,
    /// From where on its bytes are kept.
    kept_from: usize,
}

struct World {
    table: Arc<dyn Table>,
    state: State,
    /// Every batch as the log has it.
    log: Vec<Bytes>,
    /// The map after every batch, the empty one first.
    history: Vec<Map>,
    streams: Vec<Stream>,
    next_stream: u64,
    /// What the log has a removal of.
    ended: Vec<BlobId>,
    applied: u64,
    checkpoint: u64,
    held: Vec<Held>,
}

impl World {
    fn new(table: Arc<dyn Table>) -> World {
        let stream = |id| Stream { id: BlobId(id), bytes: vec![], starts: vec![], kept_from: 0 };
        World {
            state: State::new(table.clone(), 0),
            table,
            log: Vec::new(),
            history: vec![Map::new()],
            streams: (0..STREAMS).map(stream).collect(),
            next_stream: STREAMS,
            ended: Vec::new(),
            applied: 0,
            checkpoint: 0,
            held: Vec::new(),
        }
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Publish(changes, appends) => self.publish(changes, appends),
            Step::Trim(stream, part) => self.trim(index(stream), part),
            Step::Purge(stream) => self.purge(index(stream)),
            Step::Settle => {
                self.state.settle();
                self.state.sweep();
            }
            Step::Freeze => drop(self.state.freeze()),
            Step::Apply => self.apply(),
            Step::Hold => self.held.push(Held {
                reader: self.state.reader(),
                since: self.history.len() - 1,
                streams: self.streams.clone(),
                found: find(&self.state.reader(), &self.streams),
            }),
            Step::Release if self.held.is_empty() => {}
            Step::Release => drop(self.held.remove(0)),
            Step::Checkpoint => self.checkpoint = self.applied,
            Step::Crash => self.crash(),
        }
    }

    fn apply(&mut self) {
        if let Some(frozen) = self.state.freeze() {
            self.state.apply(&frozen).unwrap();
            self.applied = frozen.through;
        }
    }

    fn publish(&mut self, changes: Vec<(u8, Option<u8>)>, appends: Vec<(u64, Vec<u8>)>) {
        let mut map = self.history.last().unwrap().clone();
        let mut batch = Batch::default();
        for (number, value) in changes {
            let value = value.map(|value| Bytes::copy_from_slice(&[value; 3]));
            match &value {
                Some(value) => map.insert(key(number), value.clone()),
                None => map.remove(&key(number)),
            };
            batch.set(key(number), value);
        }
        for (stream, data) in appends {
            let stream = &mut self.streams[index(stream)];
            let start = u64::try_from(stream.bytes.len()).unwrap();
            stream.starts.push(start);
            stream.bytes.extend_from_slice(&data);
            batch.append(stream.id, start, data.into());
        }
        if !batch.is_empty() {
            self.commit(batch, map);
        }
    }

    fn trim(&mut self, index: usize, part: usize) {
        let stream = &mut self.streams[index];
        stream.kept_from = stream.kept_from.max(stream.bytes.len() * part / 100);
        let position = u64::try_from(stream.kept_from).unwrap();
        if position == 0 {
            return;
        }
        let mut batch = Batch::default();
        let position = Bytes::copy_from_slice(&position.to_be_bytes());
        batch.set(keys::trim(stream.id), Some(position));
        self.commit(batch, self.history.last().unwrap().clone());
    }

    fn purge(&mut self, index: usize) {
        let stream = &mut self.streams[index];
        let (from, to) = keys::chunks(stream.id);
        let mut batch = Batch::default();
        for key in self.state.reader().keys(&from, &to, usize::MAX).unwrap() {
            batch.set(key, None);
        }
        if batch.is_empty() {
            return;
        }
        self.ended.push(stream.id);
        let id = BlobId(self.next_stream);
        *stream = Stream { id, bytes: vec![], starts: vec![], kept_from: 0 };
        self.next_stream += 1;
        self.commit(batch, self.history.last().unwrap().clone());
    }

    fn commit(&mut self, batch: Batch, map: Map) {
        let (payload, run) = batch.encode();
        self.log.push(payload.clone());
        self.history.push(map);
        let seq = u64::try_from(self.log.len()).unwrap();
        self.state.publish(seq, Arc::new(run), payload.len());
    }

    fn crash(&mut self) {
        self.held.clear();
        self.applied = self.checkpoint;
        self.state = State::new(self.table.clone(), self.checkpoint);
        let after = usize::try_from(self.checkpoint).unwrap();
        for (index, payload) in self.log.iter().enumerate().skip(after) {
            let run = reveille_store::batch::decode(payload).unwrap();
            self.state.publish(u64::try_from(index + 1).unwrap(), Arc::new(run), payload.len());
        }
    }

    fn check(&self) {
        let reader = self.state.reader();
        assert_eq!(reader.seq(), u64::try_from(self.log.len()).unwrap());
        check_keys(&reader, self.history.last().unwrap());
        check_streams(&reader, &self.streams);
        for held in &self.held {
            check_keys(&held.reader, &self.history[held.since]);
            check_streams(&held.reader, &held.streams);
            assert_eq!(find(&held.reader, &held.streams), held.found);
            self.check_brought_up(held);
        }
    }

    /// What was true in an old view, and what memory says now, are together what is true now; but
    /// for views that are too old.
    fn check_brought_up(&self, held: &Held) {
        let reader = self.state.reader();
        if held.reader.seq() < reader.dropped() {
            return;
        }
        let mut map = self.history[held.since].clone();
        for (key, value) in reader.range_recent(&key(0), &key(KEYS)) {
            assert_eq!(reader.get_recent(&key), Some(value.clone()));
            match value {
                Some(value) => map.insert(key, value),
                None => map.remove(&key),
            };
        }
        assert_eq!(&map, self.history.last().unwrap());
    }

    /// The table has everything, and nothing of what is not kept.
    fn check_table(&mut self) {
        while self.applied < u64::try_from(self.log.len()).unwrap() {
            self.apply();
        }
        self.check();
        for stream in 0..self.next_stream {
            let id = BlobId(stream);
            let (from, to) = keys::chunks(id);
            let known = self.streams.iter().find(|stream| stream.id == id);
            for pair in self.table.range(&from, &to) {
                let (key, value) = pair.unwrap();
                let (_, start) = keys::parse_chunk(&key).unwrap();
                let end = Chunk::decode(start, &value).unwrap().end();
                assert!(!self.ended.contains(&id), "{id:?} has ended");
                let kept_from = u64::try_from(known.unwrap().kept_from).unwrap();
                assert!(end > kept_from, "{id:?} from {start} to {end}");
            }
        }
    }
}

fn index(stream: u64) -> usize {
    usize::try_from(stream).unwrap()
}

fn check_keys(reader: &Reader, expected: &Map) {
    for number in 0..KEYS {
        assert_eq!(reader.get(&key(number)).unwrap().as_ref(), expected.get(&key(number)));
    }
    for (from, to) in [(0, KEYS), (3, 7), (5, 5), (9, 2)] {
        for limit in [0, 1, 3, usize::MAX] {
            let (from, to) = (key(from), key(to));
            let inside = expected.iter().filter(|(key, _)| **key >= from && **key < to);
            let inside = inside.map(|(key, value)| (key.clone(), value.clone()));
            let back: Vec<_> = inside.clone().rev().take(limit).collect();
            assert_eq!(reader.range_back_within(&from, &to, limit, usize::MAX).unwrap(), back);
            let expected: Vec<_> = inside.take(limit).collect();
            assert_eq!(reader.range(&from, &to, limit).unwrap(), expected);
            let found = reader.keys(&from, &to, limit).unwrap();
            let expected: Vec<Bytes> = expected.into_iter().map(|(key, _)| key).collect();
            assert_eq!(found, expected);
        }
    }
}

/// Exactly the bytes that are kept, and where its appends begin.
fn check_streams(reader: &Reader, streams: &[Stream]) {
    for Stream { id, bytes, starts, kept_from } in streams {
        assert_eq!(read(reader, *id, *kept_from), bytes[*kept_from..], "{id:?}");
        for start in starts.iter().filter(|start| **start >= u64::try_from(*kept_from).unwrap()) {
            let chunk = reader.chunk_at(*id, *start).unwrap().unwrap();
            assert!(chunk.is_boundary(*start), "an append begins at {start}");
        }
        let (from, to) = keys::chunks(*id);
        let found = reader.keys(&from, &to, usize::MAX).unwrap();
        assert!(found.is_empty() == bytes.is_empty() || *kept_from > 0);
    }
}

/// A stream from a position on, as far as a reader finds it.
fn read(reader: &Reader, id: BlobId, from: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    loop {
        let at = u64::try_from(from + bytes.len()).unwrap();
        let Some(chunk) = reader.chunk_at(id, at).unwrap() else {
            return bytes;
        };
        bytes.extend_from_slice(&chunk.slice(at, u64::MAX));
    }
}

fn find(reader: &Reader, streams: &[Stream]) -> ChunkContent {
    let keys = |stream: &Stream| {
        let (from, to) = keys::chunks(stream.id);
        reader.keys(&from, &to, usize::MAX).unwrap()
    };
    let pairs = |stream: &Stream| {
        let (from, to) = keys::chunks(stream.id);
        reader.range(&from, &to, usize::MAX).unwrap()
    };
    let chunks = |stream: &Stream| {
        let ends = stream.starts.iter().flat_map(|start| [start.saturating_sub(1), *start]);
        ends.map(|at| reader.chunk_at(stream.id, at).unwrap()).collect()
    };
    ChunkContent {
        keys: streams.iter().map(keys).collect(),
        pairs: streams.iter().map(pairs).collect(),
        chunks: streams.iter().map(chunks).collect(),
    }
}

fn run(table: Arc<dyn Table>, steps: Vec<Step>) {
    let mut world = World::new(table);
    for step in steps {
        world.take(step);
        world.check();
    }
    world.check_table();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn a_reader_sees_what_was_there_when_it_was_taken(
        steps in prop::collection::vec(step(), 1..60)
    ) {
        run(Arc::new(MemoryTable::default()), steps);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn and_so_it_does_over_the_table_on_disk(steps in prop::collection::vec(step(), 30..90)) {
        let directory = tempfile::tempdir().unwrap();
        run(Arc::new(LsmTable::open(directory.path()).unwrap()), steps);
    }
}
