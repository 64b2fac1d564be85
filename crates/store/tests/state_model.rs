//! The state against a plain map: whatever is published, set aside and applied in whatever order,
//! readers see the newest of everything, and whoever holds an old view sees nothing older than it.

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
use reveille_store::table::MemoryTable;

type Map = BTreeMap<Bytes, Bytes>;

const KEYS: u8 = 12;
const STREAMS: u64 = 3;

#[derive(Debug, Clone)]
enum Step {
    /// Changes of keys, and appends to streams, in one batch.
    Publish(Vec<(u8, Option<u8>)>, Vec<(u64, Vec<u8>)>),
    /// A stream is trimmed: so much of what it has, in hundredths, is not kept.
    Trim(u64, usize),
    /// The newest batches are put together.
    Settle,
    /// A part is set aside; it is applied later, perhaps.
    Freeze,
    Apply,
    /// A reader takes its view, and reads from it now and at every later step.
    Hold,
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
        2 => Just(Step::Settle),
        2 => Just(Step::Freeze),
        3 => Just(Step::Apply),
        1 => Just(Step::Hold),
        1 => Just(Step::Crash),
        1 => Just(Step::Checkpoint),
    ]
}

fn key(number: u8) -> Bytes {
    Bytes::copy_from_slice(&[2, number])
}

/// What a reader held on to, and what was true then.
struct Held {
    reader: Reader,
    since: usize,
    streams: Vec<Vec<u8>>,
}

struct World {
    table: MemoryTable,
    state: State,
    /// Every batch as the log has it.
    log: Vec<Bytes>,
    /// The map after every batch, the empty one first.
    history: Vec<Map>,
    streams: Vec<Vec<u8>>,
    /// Where the appends of every stream begin.
    starts: Vec<Vec<u64>>,
    /// From where on the bytes of every stream are kept.
    kept_from: Vec<usize>,
    applied: u64,
    checkpoint: u64,
    held: Vec<Held>,
}

impl World {
    fn new() -> World {
        let table = MemoryTable::default();
        let count = usize::try_from(STREAMS).unwrap();
        World {
            state: State::new(Arc::new(table.clone()), 0),
            table,
            log: Vec::new(),
            history: vec![Map::new()],
            streams: vec![Vec::new(); count],
            starts: vec![Vec::new(); count],
            kept_from: vec![0; count],
            applied: 0,
            checkpoint: 0,
            held: Vec::new(),
        }
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Publish(changes, appends) => self.publish(changes, appends),
            Step::Trim(id, part) => self.trim(id, part),
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
            }),
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
        for (id, data) in appends {
            let index = usize::try_from(id).unwrap();
            let start = u64::try_from(self.streams[index].len()).unwrap();
            self.starts[index].push(start);
            self.streams[index].extend_from_slice(&data);
            batch.append(BlobId(id), start, data.into());
        }
        if !batch.is_empty() {
            self.commit(batch, map);
        }
    }

    fn trim(&mut self, id: u64, part: usize) {
        let index = usize::try_from(id).unwrap();
        let kept_from = self.streams[index].len() * part / 100;
        self.kept_from[index] = self.kept_from[index].max(kept_from);
        let position = u64::try_from(self.kept_from[index]).unwrap();
        if position == 0 {
            return;
        }
        let mut batch = Batch::default();
        batch.set(
            keys::trim(BlobId(id)),
            Some(bytes::Bytes::copy_from_slice(&position.to_be_bytes())),
        );
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
        self.state = State::new(Arc::new(self.table.clone()), self.checkpoint);
        let after = usize::try_from(self.checkpoint).unwrap();
        for (index, payload) in self.log.iter().enumerate().skip(after) {
            let run = reveille_store::batch::decode(payload).unwrap();
            self.state.publish(u64::try_from(index + 1).unwrap(), Arc::new(run), payload.len());
        }
    }

    fn check(&self) {
        let now = self.history.last().unwrap();
        let reader = self.state.reader();
        assert_eq!(reader.seq(), u64::try_from(self.log.len()).unwrap());
        for number in 0..KEYS {
            assert_eq!(reader.get(&key(number)).unwrap().as_ref(), now.get(&key(number)));
        }
        for (from, to) in [(0, KEYS), (3, 7), (5, 5), (9, 2)] {
            for limit in [0, 1, 3, usize::MAX] {
                let (from, to) = (key(from), key(to));
                let inside = now.iter().filter(|(key, _)| **key >= from && **key < to);
                let expected: Vec<_> =
                    inside.map(|(key, value)| (key.clone(), value.clone())).take(limit).collect();
                let found = reader.range(&from, &to, limit).unwrap();
                assert_eq!(found, expected);
                let found = reader.keys(&from, &to, limit).unwrap();
                let expected: Vec<Bytes> = expected.into_iter().map(|(key, _)| key).collect();
                assert_eq!(found, expected);
            }
        }
        for (index, bytes) in self.streams.iter().enumerate() {
            let kept_from = self.kept_from[index];
            assert_eq!(read(&reader, index, kept_from), bytes[kept_from..], "stream {index}");
            let id = BlobId(u64::try_from(index).unwrap());
            let starts = self.starts[index].iter();
            for start in starts.filter(|start| **start >= u64::try_from(kept_from).unwrap()) {
                let chunk = reader.chunk_at(id, *start).unwrap().unwrap();
                assert!(chunk.is_boundary(*start), "an append begins at {start}");
            }
        }
        for held in &self.held {
            self.check_held(held);
        }
    }

    /// An old view knows every key as it was then or later; bytes never change.
    fn check_held(&self, held: &Held) {
        for number in 0..KEYS {
            let found = held.reader.get(&key(number)).unwrap();
            let known = self.history[held.since..].iter();
            let known: Vec<_> = known.map(|map| map.get(&key(number))).collect();
            assert!(known.contains(&found.as_ref()), "{number}: {found:?} is not in {known:?}");
        }
        for (index, bytes) in held.streams.iter().enumerate() {
            let kept_from = self.kept_from[index].min(bytes.len());
            let found = read(&held.reader, index, kept_from);
            assert!(found.starts_with(&bytes[kept_from..]), "stream {index}");
        }
        self.check_brought_up(held);
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
}

/// A stream from a position on, as far as a reader finds it.
fn read(reader: &Reader, stream: usize, from: usize) -> Vec<u8> {
    let id = BlobId(u64::try_from(stream).unwrap());
    let mut bytes = Vec::new();
    loop {
        let at = u64::try_from(from + bytes.len()).unwrap();
        let Some(chunk) = reader.chunk_at(id, at).unwrap() else {
            return bytes;
        };
        bytes.extend_from_slice(&chunk.slice(at, u64::MAX));
    }
}

/// Chunks are never missed by their own key either.
fn check_chunk_keys(world: &World) {
    let reader = world.state.reader();
    for (index, bytes) in world.streams.iter().enumerate() {
        let (from, to) = keys::chunks(BlobId(u64::try_from(index).unwrap()));
        let found = reader.keys(&from, &to, usize::MAX).unwrap();
        assert!(found.is_empty() == bytes.is_empty() || world.kept_from[index] > 0);
    }
}

/// The table has nothing of what is not kept.
fn check_trimmed(world: &mut World) {
    while world.applied < u64::try_from(world.log.len()).unwrap() {
        world.apply();
    }
    for (key, value) in world.table.pairs() {
        if let Some((id, start)) = keys::parse_chunk(&key) {
            let end = Chunk::decode(start, &value).unwrap().end();
            let kept_from = world.kept_from[usize::try_from(id.0).unwrap()];
            assert!(end > u64::try_from(kept_from).unwrap(), "{id:?} from {start} to {end}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn readers_see_the_newest_of_everything(steps in prop::collection::vec(step(), 1..60)) {
        let mut world = World::new();
        for step in steps {
            world.take(step);
            world.check();
        }
        check_chunk_keys(&world);
        check_trimmed(&mut world);
    }
}
