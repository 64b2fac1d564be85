//! The world of one run: the engine, the model beside it, and everything that can happen next.

use std::collections::BTreeMap;

use bytes::Bytes;
use reveille_core::{Millis, StreamPath, Tenant};
use reveille_engine::Unavailable;
use reveille_engine::command::{Answer, Command};
use reveille_engine::committer::Fatal;
use reveille_engine::partition::{OpenBatch, Outcome};
use reveille_store::disk::SimDisk;

use crate::errand::{Errand, Owner, Stage, describe};
use crate::life::Life;
use crate::mode::Mode;
use crate::model::{Model, Volatile};
use crate::random::Random;
use crate::readers::{SlowRead, Watcher};
use crate::table::SimTable;
use crate::trace::Trace;
use crate::worker::Worker;

/// A promise that was not kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Violation(pub(crate) String);

pub(crate) type Checked<T = ()> = Result<T, Violation>;

pub(crate) fn violated(what: String) -> Violation {
    Violation(what)
}

pub(crate) struct World {
    pub(crate) mode: Mode,
    pub(crate) random: Random,
    pub(crate) trace: Trace,
    pub(crate) now: Millis,
    /// The latest that a clock has shown; it may have been set back since.
    pub(crate) latest: Millis,
    pub(crate) tenant: Tenant,
    pub(crate) paths: Vec<StreamPath>,

    pub(crate) disk: SimDisk,
    pub(crate) table: SimTable,
    pub(crate) life: Option<Life>,
    /// The server knows this and forgets it in a crash.
    pub(crate) memory: Volatile,

    /// After everything that was decided.
    pub(crate) decided: Model,
    /// After everything that is surely durable, and the log's number for it.
    pub(crate) durable: Model,
    pub(crate) durable_seq: u64,
    /// The worlds that a loss of power may fall back to, if commits are not synced.
    pub(crate) history: BTreeMap<u64, Model>,
    pub(crate) power_lost: bool,
    /// The batch that is being committed, and the world after it.
    pub(crate) taken: Option<(OpenBatch, Model, u64)>,
    /// The world after a batch whose commit failed: only recovery can tell whether it is.
    pub(crate) doubtful: Option<Model>,
    pub(crate) open_batch: u64,
    pub(crate) open_weight: u64,

    pub(crate) errands: Vec<Errand>,
    pub(crate) worker: Worker,
    pub(crate) reads: Vec<SlowRead>,
    pub(crate) watchers: Vec<Watcher>,
    /// By incarnation: what producers were told is there, once and for all.
    pub(crate) ledger: BTreeMap<u64, Vec<Bytes>>,
    pub(crate) token: u64,

    /// Something was broken on purpose: the server may die of it.
    pub(crate) faulty: bool,
    /// The disk is full on purpose, or will seem so once: the server may refuse to write.
    pub(crate) full: bool,
    pub(crate) full_once: bool,
    pub(crate) tally: Tally,
}

/// What a run has covered.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Steps taken.
    pub steps: u64,
    /// Batches committed.
    pub batches: u64,
    /// Commands that were answered.
    pub answers: u64,
    /// Crashes, kills and restarts.
    pub crashes: u64,
    /// Crashes that lost the batch that was being committed, and crashes that kept it.
    pub lost: u64,
    /// See `lost`.
    pub kept: u64,
    /// Batches that found the disk full.
    pub refused: u64,
    /// Keys that had to be fetched.
    pub fetches: u64,
    /// Keys that had to be fetched again because they had become stale.
    pub stale: u64,
    /// Obligations fulfilled.
    pub obligations: u64,
    /// Streams that were read to the end, or hooks that found room in memory again.
    pub reads: u64,
    /// Consumers that were told of a wake, or attempts to deliver.
    pub wakes: u64,
}

impl Tally {
    /// Adds what another run has covered.
    pub fn add(&mut self, other: &Tally) {
        self.steps += other.steps;
        self.batches += other.batches;
        self.answers += other.answers;
        self.crashes += other.crashes;
        self.lost += other.lost;
        self.kept += other.kept;
        self.refused += other.refused;
        self.fetches += other.fetches;
        self.stale += other.stale;
        self.obligations += other.obligations;
        self.reads += other.reads;
        self.wakes += other.wakes;
    }
}

impl World {
    pub(crate) fn life(&self) -> &Life {
        self.life.as_ref().expect("the server runs")
    }

    pub(crate) fn life_mut(&mut self) -> &mut Life {
        self.life.as_mut().expect("the server runs")
    }

    pub(crate) fn set_clock(&mut self, now: Millis) {
        self.now = now;
        self.latest = self.latest.max(now);
    }

    pub(crate) fn note(&mut self, what: &str) {
        self.trace.note(what);
    }

    /// Takes the open batch, if there is one and none is on its way.
    pub(crate) fn take(&mut self) {
        if self.taken.is_some() {
            return;
        }
        let taken = self.life_mut().committer.take();
        if let Some(taken) = taken {
            self.note(&format!("take batch {}", self.open_batch));
            self.taken = Some((taken, self.decided.clone(), self.open_batch));
            self.open_batch += 1;
            self.open_weight = 0;
        }
    }

    /// Commits the batch that was taken, and checks everything that must follow.
    pub(crate) fn commit(&mut self) -> Checked<Result<(), Fatal>> {
        let Some((taken, after, number)) = self.taken.take() else {
            return Ok(Ok(()));
        };
        let empty = taken.batch.is_empty();
        let life = self.life_mut();
        let result = life.committer.commit(taken);
        let seq = life.shared.state.reader().seq();
        if let Err(fatal) = result {
            self.note(&format!("commit {number}: {fatal}"));
            self.nothing_got_out(number)?;
            self.doubtful = Some(after);
            return Ok(Err(fatal));
        }
        let refused = !empty && seq == self.durable_seq;
        self.note(&format!("commit {number}: seq {seq} refused={refused}"));
        if refused {
            self.refuse(number)?;
        } else {
            if seq != self.durable_seq + u64::from(!empty) {
                return Err(violated(format!("the log jumps to {seq}")));
            }
            self.durable_seq = seq;
            self.durable = after;
            if !self.mode.sync {
                self.history.insert(seq, self.durable.clone());
            }
            self.tally.batches += 1;
            self.collect_answers(number)?;
        }
        self.hear_all()?;
        Ok(self.life_mut().committer.trim())
    }

    /// The log had no room: the batch and whatever was decided on top of it never happened.
    fn refuse(&mut self, number: u64) -> Checked {
        if !self.full && !self.full_once {
            return Err(violated("a batch was refused although there is room".into()));
        }
        self.tally.refused += 1;
        self.decided = self.durable.clone();
        for errand in &mut self.errands {
            if let Stage::Waiting { expected, .. } = &mut errand.stage {
                *expected = Err(Unavailable::DiskFull.into());
            }
        }
        self.open_weight = 0;
        self.open_batch = number + 2;
        self.collect_answers(u64::MAX)
    }

    /// After a batch is durable everybody who waited for it has been answered, and nobody else.
    fn collect_answers(&mut self, through: u64) -> Checked {
        for mut errand in std::mem::take(&mut self.errands) {
            let Stage::Waiting { answer, expected, batch, id } = &mut errand.stage else {
                self.errands.push(errand);
                continue;
            };
            let told = answer.try_recv();
            if *batch > through {
                if told.is_ok() {
                    let what = describe(&errand.request);
                    return Err(violated(format!("{what} was answered before it was durable")));
                }
                self.errands.push(errand);
                continue;
            }
            if told.as_ref() != Ok(expected) {
                let what = describe(&errand.request);
                return Err(violated(format!("{what} was told {told:?}, not {expected:?}")));
            }
            let (told, id) = (expected.clone(), *id);
            self.acknowledge(&errand, &told, id);
            self.finish(&mut errand, &told);
            if errand.owner == Owner::Client && told == Err(Unavailable::DiskFull.into()) {
                self.errands.push(errand.again());
            }
        }
        Ok(())
    }

    /// A commit has failed: nobody may have been answered, and nobody may see anything of it.
    fn nothing_got_out(&mut self, number: u64) -> Checked {
        for errand in &mut self.errands {
            if let Stage::Waiting { answer, batch, .. } = &mut errand.stage
                && answer.try_recv().is_ok()
            {
                let what = describe(&errand.request);
                return Err(violated(format!(
                    "{what} of batch {batch} was answered although batch {number} is not durable"
                )));
            }
        }
        self.audit_readers()
    }

    /// A producer that was told of its append relies on it.
    pub(crate) fn acknowledge(&mut self, errand: &Errand, told: &Outcome, id: Option<u64>) {
        if let (Ok(Answer::Appended(receipt)), Some(id)) = (told, id)
            && let Command::Append { request, .. } = &errand.request.command
            && request.producer.is_some()
            && !receipt.duplicate
            && let Some(stream) = self.durable.by_id(id)
            && let Some(piece) = errand.request.payload.stored(&stream.kind)
            && !piece.is_empty()
        {
            self.ledger.entry(id).or_default().push(piece.data);
        }
    }

    /// An errand has its outcome.
    pub(crate) fn finish(&mut self, errand: &mut Errand, told: &Outcome) {
        self.tally.answers += 1;
        self.note(&format!("told {:?}: {told:?}", errand.owner));
        if errand.owner == Owner::Worker {
            self.worker.told(told.is_ok(), self.now);
            self.tally.obligations += u64::from(told.is_ok());
        }
    }
}
