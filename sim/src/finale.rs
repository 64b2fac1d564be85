//! The end of a run: everything is healed, finished and taken down, and nothing may be left.

use reveille_core::stream::Expiry;
use reveille_engine::command::Command;
use reveille_schema::keys;

use crate::crash::Death;
use crate::errand::{Errand, Owner};
use crate::request::Request;
use crate::world::{Checked, World, violated};

/// Longer than any lifetime that clients ask for.
const LONG_MS: u64 = 3 * 3_600_000;
/// More turns than any work takes.
const TURNS_MAX: u32 = 20_000;

impl World {
    pub(crate) fn finale(&mut self) -> Checked {
        self.note("finale");
        self.free_disk();
        if self.faulty || self.full_once {
            self.die_cleanly()?;
        }
        self.work_off()?;
        self.audit()?;
        self.set_clock(self.latest + LONG_MS);
        self.work_off()?;
        self.all_expired()?;
        for path in self.paths.clone() {
            let command = Command::Delete { tenant: self.tenant.clone(), path };
            self.errands.push(Errand::new(Owner::Client, Request::plain(command)));
        }
        self.work_off()?;
        self.set_clock(self.latest + LONG_MS);
        self.work_off()?;
        self.nothing_left()?;
        self.die_cleanly()?;
        self.work_off()?;
        self.nothing_left()
    }

    /// Loses power and comes back without further trouble.
    fn die_cleanly(&mut self) -> Checked {
        self.die(Death::Power)?;
        while self.faulty {
            self.die(Death::Power)?;
        }
        Ok(())
    }

    /// Nobody comes any more: what was begun is finished, what is due is done.
    fn work_off(&mut self) -> Checked {
        for _ in 0..TURNS_MAX {
            self.trace.step += 1;
            self.life().checkpointer.watch_disk();
            let asleep = self.worker.sleeps_until().is_some_and(|at| at > self.now);
            self.work()?;
            for index in (0..self.errands.len()).rev() {
                if !self.errands[index].is_waiting() {
                    self.go_on(index)?;
                }
            }
            self.take();
            let result = self.commit()?;
            self.survive(result)?;
            if self.random.one_in(8) {
                let result = self.life_mut().checkpointer.apply();
                self.survive(result)?;
            }
            let idle = self.life().shared.lock().is_idle();
            let still = self.worker.sleeps_until().is_some_and(|at| at > self.now);
            if asleep && still && idle && self.errands.is_empty() {
                return self.audit();
            }
        }
        Err(violated("the work has no end".into()))
    }

    fn all_expired(&self) -> Checked {
        for (path, stream) in &self.durable.streams {
            if stream.expiry != Expiry::Never && !stream.soft {
                return Err(violated(format!("{path} should have expired")));
            }
        }
        Ok(())
    }

    /// Everything was deleted: only counters remain.
    fn nothing_left(&mut self) -> Checked {
        // More than once, if a part was set aside already or the table had stopped.
        while self.life().shared.state.overlay_bytes().total() != 0 {
            let applied = self.life_mut().checkpointer.apply();
            self.survive(applied)?;
        }
        self.audit()?;
        if !self.durable.streams.is_empty() {
            let left: Vec<&String> = self.durable.streams.keys().collect();
            return Err(violated(format!("{left:?} were deleted and are there")));
        }
        let from = keys::stream_prefix(&self.tenant, "");
        let reader = self.life().shared.state.reader();
        let left = reader.keys(&from, &keys::due_end(), usize::MAX);
        let left = left.map_err(|error| violated(error.to_string()))?;
        if left.is_empty() { Ok(()) } else { Err(violated(format!("left over are {left:?}"))) }
    }
}
