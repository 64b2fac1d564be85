//! Deaths of the server; the next life must find what the last one had made durable.

use reveille_core::Millis;
use reveille_engine::committer::Fatal;
use reveille_store::disk::Disk;

use super::errand::Owner;
use super::snapshot::Snapshot;
use super::worker::Worker;
use super::world::Wakes;
use crate::crash::Death;
use crate::world::{Checked, violated};

#[derive(Debug, Clone, Copy)]
enum Fault {
    Power,
    Kill,
    /// A disk operation is interrupted, and nothing works after it.
    Interrupt,
    FailSync,
    FillWrite,
}

impl Wakes {
    /// Breaks something.
    pub(crate) fn fault(&mut self) -> Checked {
        let fill = if self.mode.fills { 6 } else { 0 };
        let fault = self.random.weighted(&[
            (3, Fault::Power),
            (3, Fault::Kill),
            (6, Fault::Interrupt),
            (2, Fault::FailSync),
            (fill, Fault::FillWrite),
        ]);
        self.note(&format!("fault: {fault:?}"));
        match fault {
            Fault::Power => return self.die(Death::Power),
            Fault::Kill => return self.die(Death::Kill),
            Fault::Interrupt => {
                self.faulty = true;
                self.disk.fail_after(self.random.between(1, 16));
            }
            Fault::FailSync => {
                self.faulty = true;
                self.disk.fail_next_sync();
            }
            Fault::FillWrite => {
                self.full_once = true;
                self.disk.fill_next_write();
            }
        }
        Ok(())
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
        self.life = None;
        // A disk that was interrupted works again only after the machine was off.
        if death == Death::Power || self.disk.free_bytes().is_err() {
            self.lose_power();
        }
        self.table.restart();
        self.tally.crashes += 1;
        self.recover()
    }

    fn lose_power(&mut self) {
        self.note("power is lost");
        self.disk.crash();
        self.table.crash();
        self.faulty = false;
        self.full_once = false;
    }

    fn recover(&mut self) -> Checked {
        self.time_between_lives();
        let life = loop {
            if !self.honest && self.random.one_in(6) {
                self.faulty = true;
                self.disk.fail_after(self.random.between(1, 8));
            }
            match self.begin_life() {
                Ok(life) => break life,
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
        let doubtful = self.doubtful.take();
        match doubtful {
            Some(opened) if seq == self.durable_seq + 1 => {
                self.tally.kept += 1;
                self.durable_seq = seq;
                self.absorb(opened)?;
            }
            Some(_) => self.tally.lost += 1,
            None => {}
        }
        if seq != self.durable_seq {
            let durable = self.durable_seq;
            return Err(violated(format!("batches up to {durable} were durable, {seq} are there")));
        }
        self.same_as_before()?;
        self.begin_again();
        self.audit()?;
        self.audit_content()
    }

    /// A crash changes nothing.
    fn same_as_before(&self) -> Checked {
        let found = Snapshot::read(&self.life().shared.state.reader())?;
        if found.raw == self.seen.raw {
            return Ok(());
        }
        let lost: Vec<_> =
            self.seen.raw.iter().filter(|(k, v)| found.raw.get(*k) != Some(v)).collect();
        let new: Vec<_> =
            found.raw.iter().filter(|(k, v)| self.seen.raw.get(*k) != Some(v)).collect();
        Err(violated(format!("after the crash {lost:?} are gone, {new:?} are there")))
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

    /// What the dead server knew is forgotten; those who were woken ask again.
    fn begin_again(&mut self) {
        self.taken = None;
        self.open_batch = 1;
        self.open_weight = 0;
        self.opened_at = None;
        self.worker = Worker::default();
        self.posts.clear();
        self.agents_lose_touch();
        for errand in std::mem::take(&mut self.errands) {
            if matches!(errand.owner, Owner::Agent(_)) && self.random.percent(70) {
                self.send_with(Owner::Nobody, errand.command, errand.tokens);
            }
        }
    }
}
