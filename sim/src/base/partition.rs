//! One partition: what it is stored on, its engine while it runs, its batches and its timers.

use reveille_core::Millis;

use super::engine::{Engine, OpenBatch};
use super::failover::Failover;
use super::storage::Storage;
use super::timers::Timers;

pub(crate) struct Partition {
    /// Partitions of one machine crash together.
    pub(crate) machine: usize,
    pub(crate) storage: Box<dyn Storage>,
    /// The other machine, if the log is shared with one.
    pub(crate) failover: Option<Failover>,
    /// `None` between a crash and the next start.
    pub(crate) engine: Option<Engine>,
    pub(crate) timers: Timers,

    /// The log's number of the newest batch that is surely durable.
    pub(crate) durable_seq: u64,
    /// The latest time that a decision had up to there.
    pub(crate) durable_time: Millis,
    /// The batch that is being committed.
    pub(crate) taken: Option<(OpenBatch, BatchInfo)>,
    /// The batch whose commit failed: only recovery can tell whether it is durable.
    pub(crate) doubtful: Option<BatchInfo>,
    pub(crate) open_batch: u64,
    open_weight: u64,
    opened_at: Option<Millis>,

    /// Something was broken on purpose: the server may die of it.
    pub(crate) is_faulty: bool,
    /// The disk is full on purpose, or will seem so once: the server may refuse to write.
    pub(crate) is_full: bool,
    pub(crate) is_full_once: bool,
    pub(crate) has_lost_power: bool,
}

/// A batch, counted from 1 in every life, and when its first command was decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BatchInfo {
    pub(crate) number: u64,
    pub(crate) opened_at: Millis,
    /// The latest time that a decision had when it was taken.
    pub(crate) time: Millis,
}

impl Partition {
    pub(crate) fn new(storage: Box<dyn Storage>, machine: usize) -> Partition {
        Partition {
            machine,
            storage,
            failover: None,
            engine: None,
            timers: Timers::default(),
            durable_seq: 0,
            durable_time: Millis(0),
            taken: None,
            doubtful: None,
            open_batch: 1,
            open_weight: 0,
            opened_at: None,
            is_faulty: false,
            is_full: false,
            is_full_once: false,
            has_lost_power: false,
        }
    }

    pub(crate) fn engine(&self) -> &Engine {
        self.engine.as_ref().expect("the server runs")
    }

    pub(crate) fn engine_mut(&mut self) -> &mut Engine {
        self.engine.as_mut().expect("the server runs")
    }

    /// Whether so much more fits into the open batch.
    pub(crate) fn has_room(&self, weight: u64, weight_max: u64) -> bool {
        self.open_weight == 0 || self.open_weight + weight <= weight_max
    }

    /// Something was decided at a time, and waits for the open batch.
    pub(crate) fn add_to_batch(&mut self, weight: u64, at: Millis) {
        self.open_weight += weight;
        self.opened_at.get_or_insert(at);
    }

    /// Takes the open batch, if there is one and none is on its way.
    pub(crate) fn take(&mut self, now: Millis) -> Option<BatchInfo> {
        if self.taken.is_some() {
            return None;
        }
        let taken = self.engine_mut().take()?;
        let opened_at = self.opened_at.unwrap_or(now);
        let time = self.engine().time();
        let info = BatchInfo { number: self.open_batch, opened_at, time };
        self.taken = Some((taken, info));
        self.open_batch(info.number + 1);
        Some(info)
    }

    pub(crate) fn open_batch(&mut self, number: u64) {
        self.open_batch = number;
        self.open_weight = 0;
        self.opened_at = None;
    }

    /// What the dead server knew is forgotten.
    pub(crate) fn forget(&mut self) {
        self.taken = None;
        self.open_batch(1);
        self.timers = Timers::default();
    }
}
