//! Readers beside the committer and whoever applies, on real threads over the table on disk: each
//! sees one state, however long it looks.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "this is a test")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use reveille_store::batch::Batch;
use reveille_store::keys::BlobId;
use reveille_store::state::{Reader, State};
use reveille_store::table::LsmTable;

const BATCHES: u64 = 3_000;
const KEYS: u8 = 20;
const STREAM: BlobId = BlobId(7);
const APPEND_BYTES: u64 = 40;

fn key(number: u8) -> Bytes {
    Bytes::copy_from_slice(&[2, number])
}

/// Whether batch `seq` leaves the key there.
fn is_there(number: u8, seq: u64) -> bool {
    !(u64::from(number) + seq).is_multiple_of(3)
}

/// Every batch changes every key, and makes the stream longer.
fn publish(state: &State, seq: u64) {
    let mut batch = Batch::default();
    for number in 0..KEYS {
        let value = Bytes::copy_from_slice(&seq.to_be_bytes());
        batch.set(key(number), is_there(number, seq).then_some(value));
    }
    batch.append(STREAM, (seq - 1) * APPEND_BYTES, vec![1; 40].into());
    let (payload, run) = batch.encode();
    state.publish(seq, Arc::new(run), payload.len());
}

fn check(reader: &Reader) {
    let seq = reader.seq();
    let expected: Vec<Bytes> =
        (0..KEYS).filter(|number| seq > 0 && is_there(*number, seq)).map(key).collect();
    let value = Bytes::copy_from_slice(&seq.to_be_bytes());
    for number in 0..KEYS {
        let there = expected.contains(&key(number));
        assert_eq!(reader.get(&key(number)).unwrap(), there.then(|| value.clone()), "at {seq}");
    }
    assert_eq!(reader.keys(&key(0), &key(KEYS), 99).unwrap(), expected);
    let pairs = reader.range(&key(0), &key(KEYS), 99).unwrap();
    assert!(pairs.iter().all(|(_, found)| *found == value) && pairs.len() == expected.len());
    let end = seq * APPEND_BYTES;
    assert!(reader.chunk_at(STREAM, end).unwrap().is_none(), "nothing is newer than {seq}");
    if let Some(last) = end.checked_sub(1) {
        let chunk = reader.chunk_at(STREAM, last).unwrap().unwrap();
        assert_eq!(chunk.end(), end, "at {seq}");
    }
}

#[test]
fn a_reader_sees_one_state_while_others_commit_and_apply() {
    let directory = tempfile::tempdir().unwrap();
    let state = State::new(Arc::new(LsmTable::open(directory.path()).unwrap()), 0);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for seq in 1..=BATCHES {
                publish(&state, seq);
                std::thread::yield_now();
            }
            done.store(true, Ordering::Release);
        });
        scope.spawn(|| {
            while !done.load(Ordering::Acquire) {
                if let Some(frozen) = state.freeze() {
                    state.apply(&frozen).unwrap();
                }
                state.sweep();
            }
        });
        for _ in 0..2 {
            scope.spawn(|| {
                let mut old = state.reader();
                for round in 0u64.. {
                    let reader = state.reader();
                    check(&reader);
                    check(&old);
                    if done.load(Ordering::Acquire) {
                        break;
                    }
                    if round.is_multiple_of(5) {
                        old = reader;
                    }
                }
            });
        }
    });
    check(&state.reader());
}
