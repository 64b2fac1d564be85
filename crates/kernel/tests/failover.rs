//! Two lives share one log: the writer is deposed, loses answers, and is followed by the other.
//!
//! Whatever happens: an acknowledged write is never lost, no batch of a deposed writer is accepted,
//! and memory that followed the log is what a fresh load gives.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where")]

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use reveille_core::{Millis, Tenant};
use reveille_kernel::command::{Command, Decision, Outcome};
use reveille_kernel::committer::{Committer, EffectHandler};
use reveille_kernel::domains::{Domains, Index};
use reveille_kernel::error::{Damaged, Error, Never, Unavailable};
use reveille_kernel::follower::Follower;
use reveille_kernel::outbox::Attempt;
use reveille_kernel::partition::{Settings, Submission};
use reveille_kernel::pending::FetchedKeys;
use reveille_kernel::shared::Shared;
use reveille_kernel::txn::Txn;
use reveille_store::log::SharedLog;
use reveille_store::state::State;
use reveille_store::table::MemoryTable;
use tokio::sync::oneshot;

const TAG: u8 = 0x40;
const OVERLAY_BYTES: usize = 1 << 12;

/// A domain that keeps numbers under names, and knows all of them by heart.
struct Numbers;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct NumberIndex(BTreeMap<Bytes, Bytes>);

impl Index for NumberIndex {
    fn ranges(&self) -> Vec<(Bytes, Bytes)> {
        vec![(Bytes::from_static(&[TAG]), Bytes::from_static(&[TAG + 1]))]
    }

    fn follows(&self, tag: u8) -> bool {
        tag == TAG
    }

    fn follow(&mut self, key: &Bytes, value: Option<&Bytes>) -> Result<(), Damaged> {
        match value {
            Some(value) => self.0.insert(key.clone(), value.clone()),
            None => self.0.remove(key),
        };
        Ok(())
    }
}

impl Domains for Numbers {
    type Index = NumberIndex;
    type Effect = ();
    type Scratch = ();
    type Attempt = NoAttempt;

    fn new_index(&self) -> NumberIndex {
        NumberIndex::default()
    }

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

impl EffectHandler for Numbers {
    fn perform(_: &Shared<Numbers>, _: Vec<()>) {}
}

/// Nobody is called.
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

/// Sets a number, or takes it away; answers with an id of its own.
struct SetNumber {
    name: u8,
    value: Option<u64>,
}

fn key(name: u8) -> Bytes {
    Bytes::copy_from_slice(&[TAG, name])
}

impl Command<Numbers> for SetNumber {
    type Answer = u64;
    type Rejection = Never;

    fn decide(&self, txn: &mut Txn<'_, Numbers>) -> Decision<u64, Never> {
        match self.value {
            Some(value) => txn.set(key(self.name), Bytes::copy_from_slice(&value.to_be_bytes())),
            None => txn.remove(&key(self.name)),
        }
        Ok(Ok(txn.take_id()))
    }
}

/// One life.
enum Life {
    Leads { shared: Arc<Shared<Numbers>>, committer: Box<Committer<Numbers>> },
    Follows { shared: Arc<Shared<Numbers>>, follower: Box<Follower<Numbers>> },
}

fn follow(log: &SharedLog) -> Life {
    let state = Arc::new(State::new(Arc::new(MemoryTable::default()), 0));
    let shared = Shared::new(state, Arc::new(Numbers), Settings::default());
    let shared = Arc::new(shared.unwrap_or_else(|error| panic!("{error}")));
    let follower = Follower::new(shared.clone(), Box::new(log.feed(0)), OVERLAY_BYTES);
    Life::Follows { shared, follower: Box::new(follower) }
}

fn lead(life: Life, log: &SharedLog, number: u64) -> Life {
    let Life::Follows { shared, follower } = life else { panic!("it follows") };
    let committer = follower.lead(Box::new(log.writer()), number).unwrap();
    let committer = committer.unwrap_or_else(|_| panic!("all of the log can be read"));
    Life::Leads { shared, committer: Box::new(committer) }
}

impl Life {
    fn shared(&self) -> &Arc<Shared<Numbers>> {
        match self {
            Life::Leads { shared, .. } | Life::Follows { shared, .. } => shared,
        }
    }

    fn submit(&self, command: &SetNumber, now: u64) -> oneshot::Receiver<Outcome<u64, Never>> {
        let (reply, outcome) = oneshot::channel();
        let mut partition = self.shared().lock();
        let submission = partition.submit(command, &FetchedKeys::default(), Millis(now), reply);
        assert!(matches!(submission, Submission::Decided));
        outcome
    }

    fn commit(&mut self) {
        if let Life::Leads { committer, .. } = self
            && let Some(batch) = committer.take()
        {
            committer.commit(batch).unwrap();
        }
    }

    /// Memory is what a fresh load of the same state gives.
    fn check_index(&self) {
        let partition = self.shared().lock();
        let fresh =
            Shared::new(self.shared().state.clone(), Arc::new(Numbers), Settings::default());
        let fresh = fresh.unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(partition.index, fresh.lock().index);
        assert!(partition.time() >= fresh.lock().time());
    }
}

/// The generator of the standard's examples: enough to draw an order from.
struct Draws(u64);

impl Draws {
    fn below(&mut self, sides: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

type Waiting = (u8, Option<u64>, oneshot::Receiver<Outcome<u64, Never>>);

/// What was acknowledged is kept in order; an answer that never came may stand for either.
struct World {
    log: SharedLog,
    writer: Life,
    other: Life,
    waiting: Vec<Waiting>,
    acknowledged: BTreeMap<u8, Option<u64>>,
    ids: Vec<u64>,
    writers: u64,
    now: u64,
}

impl World {
    fn new() -> World {
        let log = SharedLog::default();
        let writer = lead(follow(&log), &log, 1);
        let other = follow(&log);
        World {
            log,
            writer,
            other,
            waiting: Vec::new(),
            acknowledged: BTreeMap::new(),
            ids: Vec::new(),
            writers: 1,
            now: 1_000,
        }
    }

    fn collect(&mut self) {
        for (name, value, mut outcome) in std::mem::take(&mut self.waiting) {
            match outcome.try_recv() {
                Ok(Ok(id)) => {
                    assert!(self.ids.iter().all(|known| *known < id), "an id was given out twice");
                    self.ids.push(id);
                    self.acknowledged.insert(name, value);
                }
                Ok(Err(Error::Unavailable(Unavailable::NotLeader))) => {}
                Ok(Err(error)) => panic!("{error}"),
                Err(_) => self.waiting.push((name, value, outcome)),
            }
        }
    }

    /// The other life takes over; what the old writer had decided and not committed is refused.
    fn take_over(&mut self) {
        self.writers += 1;
        let other = std::mem::replace(&mut self.other, follow(&self.log));
        let new = lead(other, &self.log, self.writers);
        let mut old = std::mem::replace(&mut self.writer, new);
        old.commit();
        self.collect();
        assert!(self.waiting.is_empty(), "everybody is told");
        let late = old.submit(&SetNumber { name: 0, value: Some(u64::MAX) }, self.now);
        old.commit();
        self.waiting.push((0, Some(u64::MAX), late));
        self.collect();
        assert!(self.waiting.is_empty(), "a deposed writer says so");
    }

    fn check(&mut self) {
        self.writer.commit();
        self.collect();
        for (name, value) in &self.acknowledged {
            let stored = self.writer.shared().state.reader().get(&key(*name)).unwrap();
            let stored = stored.map(|bytes| u64::from_be_bytes(bytes.as_ref().try_into().unwrap()));
            assert_eq!(stored, *value, "what was acknowledged is there");
        }
        self.writer.check_index();
        if let Life::Follows { follower, .. } = &mut self.other {
            follower.catch_up().unwrap();
        }
        self.other.check_index();
        let (mine, others) = (self.writer.shared().lock(), self.other.shared().lock());
        assert_eq!(mine.index, others.index, "both sides know the same");
    }
}

#[test]
fn nothing_acknowledged_is_lost_and_nothing_deposed_is_accepted() {
    for seed in 0..200 {
        let (mut world, mut draws) = (World::new(), Draws(seed));
        for number in 0..120 {
            match draws.below(10) {
                0..=4 => {
                    let name = u8::try_from(draws.below(8)).unwrap();
                    let value = (draws.below(5) > 0).then_some(number);
                    // The clocks of two machines are not the same.
                    world.now = 1_000 + number * 10 - draws.below(300);
                    let outcome = world.writer.submit(&SetNumber { name, value }, world.now);
                    world.waiting.push((name, value, outcome));
                }
                5 | 6 => world.writer.commit(),
                7 => world.log.lose_next_answer(),
                8 => {
                    if let Life::Follows { follower, .. } = &mut world.other {
                        follower.catch_up().unwrap();
                    }
                }
                _ => world.take_over(),
            }
            world.collect();
        }
        world.check();
    }
}

#[test]
fn a_batch_that_is_too_large_is_refused_and_the_next_one_is_not() {
    let mut world = World::new();
    world.log.set_batch_bytes_max(8);
    let mut refused = world.writer.submit(&SetNumber { name: 1, value: Some(1) }, 1);
    world.writer.commit();
    assert_eq!(refused.try_recv(), Ok(Err(Error::Unavailable(Unavailable::TooLarge))));
    let outbox = &world.writer.shared().outbox;
    assert!(outbox.takes_recovery(), "attempts that were passed over are looked for");
    assert!(!outbox.takes_recovery(), "once");
    world.log.set_batch_bytes_max(1 << 20);
    let mut accepted = world.writer.submit(&SetNumber { name: 1, value: Some(2) }, 1);
    world.writer.commit();
    assert!(matches!(accepted.try_recv(), Ok(Ok(_))));
    world.check();
}
