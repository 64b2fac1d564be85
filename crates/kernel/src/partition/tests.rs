//! What decisions write is counted: no batch is larger than the log takes, and whatever can be left
//! to another decision is left in time.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where")]

use reveille_core::Tenant;
use reveille_store::table::MemoryTable;

use super::*;
use crate::command::Decision;
use crate::error::Never;
use crate::limits::{SLICE_ITEMS, SLICE_READ_KEYS};
use crate::outbox::Attempt;
use crate::set_aside::{RetryTimer, SetTimerAside};

/// A domain that knows nothing.
struct Nothing;

impl Index for () {
    fn ranges(&self) -> Vec<(Bytes, Bytes)> {
        Vec::new()
    }

    fn follows(&self, _: u8) -> bool {
        false
    }

    fn follow(&mut self, _: &Bytes, _: Option<&Bytes>) -> Result<(), Damaged> {
        Ok(())
    }
}

impl Domains for Nothing {
    type Index = ();
    type Effect = ();
    type Scratch = ();
    type Attempt = NoAttempt;

    fn new_index(&self) {}

    fn ranges(&self) -> Vec<(Bytes, Bytes)> {
        Vec::new()
    }

    fn follows(&self, _: u8) -> bool {
        false
    }

    fn follow(&self, _: &Bytes, _: Option<&Bytes>) -> Result<(), Damaged> {
        Ok(())
    }

    fn sweep(&self) {}
}

#[derive(Debug, Clone, PartialEq)]
enum NoAttempt {}

impl Attempt for NoAttempt {
    type Key = ();
    type Source = ();
    type Cursor = ();

    fn key(&self) {}
    fn source(&self) {}
    fn tenant(&self) -> &Tenant {
        match *self {}
    }
    fn number(&self) -> (u64, u32) {
        match *self {}
    }
    fn cursor(&self) -> Option<()> {
        None
    }
    fn payload_bytes(&self) -> usize {
        0
    }
    fn drop_payload(&mut self) {}
}

type NothingTxn<'a> = Txn<'a, Nothing>;

type Deed = dyn Fn(&mut NothingTxn<'_>) -> Result<(), ReadError> + Send + Sync;

/// Does something, and answers what that was counted as.
struct Perform(Box<Deed>);

impl Command<Nothing> for Perform {
    type Answer = usize;
    type Rejection = Never;

    fn decide(&self, txn: &mut NothingTxn<'_>) -> Decision<usize, Never> {
        (self.0)(txn)?;
        Ok(Ok(txn.bytes()))
    }
}

fn perform(
    what: impl Fn(&mut NothingTxn<'_>) -> Result<(), ReadError> + Send + Sync + 'static,
) -> Perform {
    Perform(Box::new(what))
}

fn partition() -> Partition<Nothing> {
    let state = Arc::new(State::new(Arc::new(MemoryTable::default()), 0));
    Partition::open(state, Arc::new(Nothing), Settings::default()).unwrap()
}

fn key(number: usize) -> Bytes {
    format!("\x40{number:08}").into()
}

fn bytes(count: usize) -> Bytes {
    vec![b'x'; count].into()
}

/// Sets a key to so many bytes.
fn set(number: usize, count: usize) -> Perform {
    perform(move |txn| {
        txn.set(key(number), bytes(count));
        Ok(())
    })
}

type Answer = oneshot::Receiver<Outcome<usize, Never>>;

fn submit(
    partition: &mut Partition<Nothing>,
    command: &Perform,
    fetched: &FetchedKeys,
) -> (Submission<usize, Never>, Answer) {
    let (reply, answer) = oneshot::channel();
    (partition.submit(command, fetched, Millis(1), reply), answer)
}

/// What the batch of all that was decided takes in the log.
fn encoded(partition: &mut Partition<Nothing>) -> usize {
    let mut taken = partition.take().expect("something was decided");
    taken.answer();
    taken.batch.encode().0.len()
}

#[test]
fn a_key_that_is_written_again_counts_once() {
    let mut partition = partition();
    let often = perform(|txn| {
        for round in 0..100 {
            for number in 0..50 {
                txn.set(key(number), bytes(1_000 - round));
            }
            txn.remove(&key(7));
        }
        assert_eq!(txn.get(&key(7)), Ok(None));
        assert_eq!(txn.get(&key(8)), Ok(Some(bytes(901))));
        Ok(())
    });
    let (_, mut answer) = submit(&mut partition, &often, &FetchedKeys::default());
    let payload = encoded(&mut partition);
    let counted = answer.try_recv().unwrap().unwrap();
    assert!(counted < 50 * 1_000, "{counted}");
    assert!(counted <= payload && payload <= counted + BATCH_BYTES_BESIDE, "{counted} {payload}");
}

#[test]
fn a_command_that_is_too_large_alone_is_refused_and_nobody_else_is() {
    let mut partition = partition();
    partition.set_log_batch_bytes(2_000);
    let (_, mut before) = submit(&mut partition, &set(1, 100), &FetchedKeys::default());
    let (_, mut large) = submit(&mut partition, &set(2, 2_000), &FetchedKeys::default());
    assert_eq!(large.try_recv(), Ok(Err(Unavailable::TooLarge.into())));
    let (_, mut after) = submit(&mut partition, &set(3, 100), &FetchedKeys::default());
    assert!(encoded(&mut partition) < 400);
    assert!(before.try_recv().unwrap().is_ok() && after.try_recv().unwrap().is_ok());
}

#[test]
fn what_writes_much_leaves_room_for_what_writes_little() {
    let mut partition = partition();
    partition.overlay_limits.large = 100_000;
    let mut try_to = |command: &Perform| {
        let (submitted, _) = submit(&mut partition, command, &FetchedKeys::default());
        matches!(submitted, Submission::Decided)
    };
    let large = LARGE_COMMAND_BYTES * 2;
    assert!(try_to(&set(1, large)));
    // What it writes is known only when it was decided.
    assert!(!try_to(&set(2, large)));
    assert!(try_to(&set(3, LARGE_COMMAND_BYTES / 2)));
    assert!(!try_to(&set(2, large)));
    assert!(try_to(&set(4, 10)));
}

#[test]
fn a_batch_is_closed_before_the_log_would_refuse_it() {
    const LOG_BYTES: usize = 4_000;
    let mut partition = partition();
    partition.set_log_batch_bytes(LOG_BYTES);
    let (mut batches, mut largest) = (0, 0);
    for number in 0..500 {
        // Nobody guesses what these write: all of them weigh the same.
        let command = set(number, number * 37 % 3_500);
        let fetched = FetchedKeys::default();
        if let (Submission::NoRoom(_), _) = submit(&mut partition, &command, &fetched) {
            largest = largest.max(encoded(&mut partition));
            batches += 1;
            let (again, _) = submit(&mut partition, &command, &fetched);
            assert!(matches!(again, Submission::Decided), "an empty batch takes it");
        }
    }
    assert!(largest <= LOG_BYTES && largest > LOG_BYTES / 2, "{largest}");
    assert!(batches > 100, "{batches}");
}

#[test]
fn a_slice_ends_when_it_has_written_enough_and_does_one_thing_at_least() {
    let mut partition = partition();
    for (slice_bytes, expected) in [(10_000, 10), (1, 1), (usize::MAX, 50)] {
        partition.slice_bytes = slice_bytes;
        let slice = perform(move |txn| {
            // What somebody sent does not count.
            txn.append(BlobId(1), 0, &bytes(100_000));
            let done = txn.gather_slice(0..50, |txn, number| {
                txn.set(key(number), bytes(1_000));
                Ok(())
            })?;
            assert_eq!(done, expected);
            assert_eq!(txn.items_left(), if expected < 50 { 0 } else { SLICE_ITEMS - 50 });
            Ok(())
        });
        let (submitted, _) = submit(&mut partition, &slice, &FetchedKeys::default());
        assert!(matches!(submitted, Submission::Decided));
        partition.take();
    }
}

#[test]
fn a_slice_asks_for_so_many_keys_and_leaves_the_rest() {
    let mut partition = partition();
    let slice = perform(|txn| {
        let done = txn.gather_slice(0..64, |txn, item: usize| {
            let keys: Vec<Bytes> = (item * 1_000..(item + 1) * 1_000).map(key).collect();
            txn.want(&keys)?;
            txn.set(key(item), bytes(1));
            Ok(())
        })?;
        assert!((1..64).contains(&done), "{done}");
        Ok(())
    });
    let mut lookups: Vec<Lookup> = Vec::new();
    for round in 0.. {
        let fetched = FetchedKeys::read(&partition.state.reader(), &lookups).unwrap();
        match submit(&mut partition, &slice, &fetched).0 {
            Submission::Missing(more, _) => lookups.extend(more),
            Submission::Decided => break,
            Submission::NoRoom(_) => panic!("there is room"),
        }
        assert!(round < 3, "it asks without end");
    }
    assert!(lookups.len() <= SLICE_READ_KEYS + 1_000, "{}", lookups.len());
}

#[test]
fn a_timer_that_is_set_aside_is_kept_with_what_it_had_and_can_be_put_back() {
    let mut partition = partition();
    let timer = keys::timer(Millis(5), b"\x09some");
    let aside = keys::set_aside(&timer);
    let given = timer.clone();
    let command = perform(move |txn| {
        txn.set(given.clone(), bytes(3));
        Ok(())
    });
    submit(&mut partition, &command, &FetchedKeys::default());
    let expect = |partition: &mut _, expected: [Option<Bytes>; 2]| {
        for (key, expected) in [aside.clone(), timer.clone()].into_iter().zip(expected) {
            let look = perform(move |txn| {
                assert_eq!(txn.get(&key)?, expected);
                Ok(())
            });
            let (looked, _) = submit(partition, &look, &FetchedKeys::default());
            assert!(matches!(looked, Submission::Decided));
        }
    };
    let (reply, _answer) = oneshot::channel();
    let command = SetTimerAside { key: timer.clone() };
    partition.submit(&command, &FetchedKeys::default(), Millis(1), reply);
    expect(&mut partition, [Some(bytes(3)), None]);
    let (reply, _answer) = oneshot::channel();
    let command = RetryTimer { key: timer.clone() };
    partition.submit(&command, &FetchedKeys::default(), Millis(1), reply);
    expect(&mut partition, [None, Some(bytes(3))]);
}

/// Reads a key, and must be decided before a time.
struct ReadBefore(Millis);

impl Command<Nothing> for ReadBefore {
    type Answer = Option<Bytes>;
    type Rejection = &'static str;

    fn decide(&self, txn: &mut NothingTxn<'_>) -> Decision<Option<Bytes>, &'static str> {
        txn.get(&key(1)).map(Ok)
    }

    fn too_late(&self, now: Millis) -> Option<&'static str> {
        (now >= self.0).then_some("too late")
    }
}

/// Every look at it takes so long.
struct SlowClock(std::sync::atomic::AtomicU64);

impl crate::doors::Clock for SlowClock {
    fn now(&self) -> Millis {
        Millis(self.0.fetch_add(10, std::sync::atomic::Ordering::Relaxed))
    }

    fn sleep_until(&self, _: Millis) -> crate::doors::Sleep {
        Box::pin(std::future::ready(()))
    }
}

#[tokio::test]
async fn what_is_not_decided_in_time_is_rejected() {
    let state = Arc::new(State::new(Arc::new(MemoryTable::default()), 0));
    let shared = crate::shared::Shared::new(state, Arc::new(Nothing), Settings::default());
    let shared = Arc::new(shared.unwrap());
    // Looked at once before it asks for the key, and once after.
    for (before, outcome) in [(0, Err("too late")), (10, Err("too late")), (11, Ok(None))] {
        let clock = SlowClock(0.into());
        let found = crate::submit::submit(&shared, &clock, &ReadBefore(Millis(before))).await;
        assert_eq!(found, outcome.map_err(Error::Rejected), "before {before}");
    }
}
