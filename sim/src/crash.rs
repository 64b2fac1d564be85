//! Deaths of the server and what it finds when it comes back.

use reveille_core::Millis;
use reveille_engine::committer::Fatal;
use reveille_engine::partition::Settings;
use reveille_store::disk::Disk;
use reveille_store::log::RecoveryReport;

use crate::errand::Owner;
use crate::life::Life;
use crate::model::Volatile;
use crate::worker::Worker;
use crate::world::{Checked, World, violated};

/// How a life ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Death {
    /// The machine loses power.
    Power,
    /// The process ends; what it wrote stays in the memory of the operating system.
    Kill,
}

#[derive(Debug, Clone, Copy)]
enum Fault {
    Power,
    Kill,
    Restart,
    /// A disk operation is interrupted, and nothing works after it.
    Interrupt,
    FailSync,
    FillDisk,
    FreeDisk,
    FillWrite,
    /// Only the table finds no room.
    FillTable,
}

impl World {
    /// Breaks something.
    pub(crate) fn fault(&mut self) -> Checked {
        let fill = if self.mode.fills { 10 } else { 0 };
        // Without syncs nobody writes again what a failed sync has dropped.
        let fail_sync = if self.mode.sync { 2 } else { 0 };
        let fault = self.random.weighted(&[
            (3, Fault::Power),
            (3, Fault::Kill),
            (1, Fault::Restart),
            (6, Fault::Interrupt),
            (fail_sync, Fault::FailSync),
            (fill, Fault::FillDisk),
            (fill, Fault::FreeDisk),
            (fill / 3, Fault::FillWrite),
            (fill / 2, Fault::FillTable),
        ]);
        self.note(&format!("fault: {fault:?}"));
        match fault {
            Fault::Power => return self.die(Death::Power),
            Fault::Kill => return self.die(Death::Kill),
            Fault::Restart => return self.restart(),
            Fault::Interrupt => {
                self.faulty = true;
                self.disk.fail_after(self.random.between(1, 16));
            }
            Fault::FailSync => {
                self.faulty = true;
                self.disk.fail_next_sync();
            }
            Fault::FillDisk => {
                self.full = true;
                self.disk.set_free(self.random.below(self.mode.segment_bytes * 2));
                self.table.set_full(self.random.one_in(2));
            }
            Fault::FreeDisk => self.free_disk(),
            Fault::FillTable => self.table.set_full(true),
            Fault::FillWrite => {
                self.full_once = true;
                self.disk.fill_next_write();
            }
        }
        Ok(())
    }

    pub(crate) fn free_disk(&mut self) {
        self.full = false;
        self.disk.set_free(1 << 40);
        self.table.set_full(false);
    }

    /// The server must stop. That is right only if something was broken.
    pub(crate) fn survive(&mut self, result: Result<(), Fatal>) -> Checked {
        let Err(fatal) = result else { return Ok(()) };
        if !self.faulty {
            return Err(violated(format!("the server stops without a cause: {fatal}")));
        }
        let death = if self.random.one_in(2) { Death::Power } else { Death::Kill };
        self.die(death)
    }

    /// Ends this life and begins the next.
    pub(crate) fn die(&mut self, death: Death) -> Checked {
        if self.random.one_in(2) {
            self.audit_readers()?;
        }
        self.life = None;
        // A disk that was interrupted works again only after the machine was off.
        if death == Death::Power || self.disk.free_bytes().is_err() {
            self.lose_power();
        }
        self.table.restart();
        self.tally.crashes += 1;
        self.recover()
    }

    /// Stops as one does on purpose: everything is finished first.
    fn restart(&mut self) -> Checked {
        self.life().shared.lock().stopping = true;
        for _ in 0..2 {
            self.take();
            let result = self.commit()?;
            if result.is_err() {
                return self.survive(result);
            }
        }
        let life = self.life_mut();
        let stopped = life
            .committer
            .seal()
            .and_then(|()| life.checkpointer.apply())
            .and_then(|()| life.checkpointer.checkpoint());
        if stopped.is_err() {
            return self.survive(stopped);
        }
        self.life = None;
        self.table.restart();
        self.tally.crashes += 1;
        self.recover()
    }

    fn lose_power(&mut self) {
        self.note("power is lost");
        self.power_lost = true;
        self.disk.crash();
        self.table.restart();
        self.faulty = false;
        self.full_once = false;
    }

    /// Opens the store again, perhaps in several attempts, and compares it with what must be there.
    fn recover(&mut self) -> Checked {
        self.time_between_lives();
        let life = loop {
            if self.random.one_in(6) {
                self.faulty = true;
                self.disk.fail_after(self.random.between(1, 8));
            }
            let salt = self.random.next();
            match self.begin_life(salt) {
                Ok((life, recovered)) => {
                    self.note(&format!("recovered {recovered:?}"));
                    break life;
                }
                Err(error) if self.faulty => {
                    self.note(&format!("recovery failed: {error}"));
                    self.lose_power();
                }
                Err(error) if self.full_once => {
                    self.note(&format!("recovery found the disk full: {error}"));
                    self.full_once = false;
                }
                Err(error) => return Err(violated(format!("the store cannot be opened: {error}"))),
            }
        };
        let seq = life.shared.state.reader().seq();
        self.life = Some(life);
        let power_lost = std::mem::take(&mut self.power_lost);
        match self.doubtful.take() {
            Some(after) if seq == self.durable_seq + 1 => {
                self.tally.kept += 1;
                self.history.insert(seq, after.clone());
                self.durable = after;
                self.durable_seq = seq;
            }
            Some(_) => self.tally.lost += 1,
            None => {}
        }
        if power_lost && !self.mode.sync {
            self.fall_back(seq);
        }
        if seq != self.durable_seq {
            let durable = self.durable_seq;
            return Err(violated(format!("batches up to {durable} were durable, {seq} are there")));
        }
        self.begin_again();
        self.audit()
    }

    fn begin_life(&self, salt: u64) -> Result<(Life, RecoveryReport), String> {
        Life::begin(&self.disk, &self.table, &self.mode, self.now, salt, Settings::default())
    }

    /// Without syncs the newest batches may be gone, but only the newest.
    fn fall_back(&mut self, seq: u64) {
        self.history.split_off(&(seq + 1));
        if let Some(before) = self.history.get(&seq) {
            self.durable = before.clone();
            self.durable_seq = seq;
            self.ledger.clear();
        }
    }

    /// Clocks may be set while the server is down.
    fn time_between_lives(&mut self) {
        let past = self.random.below(40_000);
        let now = match self.random.below(8) {
            0 => Millis(self.now.0.saturating_sub(past)),
            1 | 2 => self.now + past,
            _ => self.now + 1,
        };
        self.set_clock(now);
    }

    /// What the dead server knew is forgotten; its clients ask again.
    fn begin_again(&mut self) {
        self.memory = Volatile {
            started: self.now,
            next_id: self.durable.next_id.max(1),
            ..Volatile::default()
        };
        self.decided = self.durable.clone();
        self.taken = None;
        self.open_batch = 1;
        self.open_weight = 0;
        self.worker = Worker::default();
        self.reads.clear();
        self.watchers.clear();
        for errand in std::mem::take(&mut self.errands) {
            if errand.owner == Owner::Client && self.random.percent(80) {
                self.errands.push(errand.again());
            }
        }
    }
}
