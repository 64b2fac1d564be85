//! What worlds with subscriptions or hooks have in common: a server that commits, works off its due
//! index, dies and comes back.

mod crash;
mod worker;

use reveille_core::Millis;
use reveille_engine::command::Command;
use reveille_engine::committer::Fatal;
use reveille_engine::partition::OpenBatch;
use reveille_store::disk::SimDisk;

use crate::Options;
use crate::life::Life;
use crate::mode::Mode;
use crate::random::Random;
use crate::table::SimTable;
use crate::trace::Trace;
use crate::world::{Checked, Tally, violated};
pub(crate) use worker::Worker;

/// A day in 2026.
pub(crate) const BEGIN: Millis = Millis(1_790_000_000_000);

/// The server of a world, and what surrounds it.
pub(crate) struct Base {
    pub(crate) mode: Mode,
    pub(crate) random: Random,
    pub(crate) trace: Trace,
    pub(crate) now: Millis,
    pub(crate) latest: Millis,
    pub(crate) disk: SimDisk,
    pub(crate) table: SimTable,
    pub(crate) life: Option<Life>,
    pub(crate) durable_seq: u64,
    /// The batch that is being committed.
    pub(crate) taken: Option<(OpenBatch, Opened)>,
    /// The batch whose commit failed: only recovery can tell whether it is.
    pub(crate) doubtful: Option<Opened>,
    pub(crate) open_batch: u64,
    pub(crate) open_weight: u64,
    pub(crate) opened_at: Option<Millis>,
    pub(crate) worker: Worker,
    /// Everybody behaves from now on.
    pub(crate) honest: bool,
    pub(crate) faulty: bool,
    pub(crate) full_once: bool,
    pub(crate) tally: Tally,
}

/// A batch, and when it was begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Opened {
    pub(crate) number: u64,
    pub(crate) at: Millis,
}

impl Base {
    /// A disk and a table with nothing on them; the server is not running.
    pub(crate) fn new(mut random: Random, mode: Mode, trace: Trace) -> Base {
        let disk = SimDisk::new(random.next());
        let table = SimTable::new(random.next());
        Base {
            mode,
            random,
            trace,
            now: BEGIN,
            latest: BEGIN,
            disk,
            table,
            life: None,
            durable_seq: 0,
            taken: None,
            doubtful: None,
            open_batch: 1,
            open_weight: 0,
            opened_at: None,
            worker: Worker::default(),
            honest: false,
            faulty: false,
            full_once: false,
            tally: Tally::default(),
        }
    }

    /// Whether so much more fits into the open batch.
    pub(crate) fn has_room(&self, weight: u64) -> bool {
        self.open_weight == 0 || self.open_weight + weight <= self.mode.batch_weight_max()
    }

    /// Something was decided that waits for the open batch.
    pub(crate) fn decided(&mut self, weight: u64) {
        self.open_weight += weight;
        self.opened_at.get_or_insert(self.now);
    }

    fn new_batches(&mut self, next: u64) {
        self.open_batch = next;
        self.open_weight = 0;
        self.opened_at = None;
    }
}

/// A world around a server.
pub(crate) trait Server {
    fn base(&self) -> &Base;
    fn base_mut(&mut self) -> &mut Base;
    /// Opens the store as it is on the disk, and tells again what was on its way.
    fn begin_life(&mut self) -> Result<Life, String>;
    /// A batch has become durable: what is there must be right, and follow from what was before.
    fn absorb(&mut self, opened: Opened) -> Checked;
    /// What was decided and is not durable never happened.
    fn undone(&mut self);
    /// Everybody who waited for a batch up to this has been answered, and nobody else.
    fn collect_answers(&mut self, through: u64) -> Checked;
    /// A commit has failed: nobody may have been answered.
    fn nothing_got_out(&mut self) -> Checked;
    /// After a crash everything is as it was.
    fn same_as_before(&self) -> Checked;
    /// What the dead server knew is forgotten.
    fn begin_again(&mut self) -> Checked;
    /// An obligation is to be fulfilled.
    fn oblige(&mut self, command: Command);
    /// The same by accident once more: that must change nothing.
    fn oblige_again(&mut self, command: Command);

    fn life(&self) -> &Life {
        self.base().life.as_ref().expect("the server runs")
    }

    fn life_mut(&mut self) -> &mut Life {
        self.base_mut().life.as_mut().expect("the server runs")
    }

    fn set_clock(&mut self, now: Millis) {
        let base = self.base_mut();
        base.now = now;
        base.latest = base.latest.max(now);
    }

    fn note(&mut self, what: &str) {
        self.base_mut().trace.note(what);
    }

    /// Takes the open batch, if there is one and none is on its way.
    fn take(&mut self) {
        if self.base().taken.is_some() {
            return;
        }
        let taken = self.life_mut().committer.take();
        if let Some(taken) = taken {
            let number = self.base().open_batch;
            self.note(&format!("take batch {number}"));
            let base = self.base_mut();
            let at = base.opened_at.unwrap_or(base.now);
            base.taken = Some((taken, Opened { number, at }));
            base.new_batches(number + 1);
        }
    }

    /// Commits the batch that was taken, looks at what became of it, and hears its answers.
    fn commit(&mut self) -> Checked<Result<(), Fatal>> {
        let Some((taken, opened)) = self.base_mut().taken.take() else {
            return Ok(Ok(()));
        };
        let number = opened.number;
        let empty = taken.batch.is_empty();
        let life = self.life_mut();
        let result = life.committer.commit(taken);
        let seq = life.shared.state.reader().seq();
        if let Err(fatal) = result {
            self.note(&format!("commit {number}: {fatal}"));
            self.nothing_got_out()?;
            self.base_mut().doubtful = Some(opened);
            return Ok(Err(fatal));
        }
        let refused = !empty && seq == self.base().durable_seq;
        self.note(&format!("commit {number}: seq {seq} refused={refused}"));
        let base = self.base_mut();
        if refused {
            if !std::mem::take(&mut base.full_once) {
                return Err(violated("a batch was refused although there is room".into()));
            }
            base.tally.refused += 1;
            base.new_batches(number + 2);
            self.undone();
            self.collect_answers(u64::MAX)?;
        } else {
            if !empty {
                base.durable_seq = seq;
                base.tally.batches += 1;
                self.absorb(opened)?;
            }
            self.collect_answers(number)?;
        }
        Ok(self.life_mut().committer.trim())
    }

    /// The committer has nothing to do.
    fn seal(&mut self) -> Checked {
        if self.base().taken.is_some() || !self.life().shared.lock().is_idle() {
            return Ok(());
        }
        let result = self.life_mut().committer.seal();
        self.survive(result)
    }

    fn pass_time(&mut self) {
        let random = &mut self.base_mut().random;
        let millis = match random.below(20) {
            0..8 => random.below(200),
            8..16 => random.below(6_000),
            16..19 => random.below(60_000),
            _ => random.below(7_200_000),
        };
        self.set_clock(self.base().now + millis);
        self.note(&format!("{millis} ms pass"));
    }

    /// Breaks something.
    fn fault(&mut self) -> Checked {
        crash::fault(self)
    }

    /// The server must stop. That is right only if something was broken.
    fn survive(&mut self, result: Result<(), Fatal>) -> Checked {
        crash::survive(self, result)
    }

    /// Ends this life and begins the next.
    fn die(&mut self, death: crate::crash::Death) -> Checked {
        crash::die(self, death)
    }

    /// One look at the due index, and whatever it asks for.
    fn work(&mut self) -> Checked {
        worker::work(self)
    }
}

/// The character of a run: small batches, and segments that take the largest of them.
pub(crate) fn mode(random: &mut Random, options: Options) -> Mode {
    let lag = random.one_in(4) || options.lag;
    Mode {
        segment_bytes: *random.pick(&[64, 128, 256]) << 10,
        sync: true,
        replay_bytes: *random.pick(&[1, 2_000, 20_000, 1 << 20]),
        keeping: if lag { 1 } else { *random.pick(&[8, 20, 60]) },
        faults: *random.pick(&[1, 2, 6]),
        fills: random.one_in(4),
        min_free: 0,
        commits: *random.pick(&[40, 120, 300]),
        time: *random.pick(&[4, 20, 50]),
        deletes: *random.pick(&[1, 3, 8]),
        clients: random.index(8) + 2,
        paths: 6,
        filler: 0,
        steps: random.between(1_000, 6_000),
    }
}
