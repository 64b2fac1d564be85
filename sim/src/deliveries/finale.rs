//! The end of a run: everything heals, everything owed is delivered, and nothing is left.

use reveille_core::delivery::Phase;
use reveille_core::delivery::id::{DeliveryId, DeliveryNo};
use reveille_engine::command::Command;
use reveille_engine::command::hook::HookChange;
use reveille_schema::keys::{self, Due};
use reveille_schema::record::DeliveryRecord;

use super::errand::Owner;
use super::world::Deliveries;
use crate::crash::Death;
use crate::server::Server;
use crate::world::{Checked, violated};

/// Longer than the name of a batch is remembered.
const LONG_MS: u64 = 25 * 3_600_000;
/// More turns than any work takes.
const TURNS_MAX: u32 = 20_000;
/// More waits than deliveries need to come to their end.
const WAITS_MAX: u32 = 2_000;

impl Deliveries {
    pub(crate) fn finale(&mut self) -> Checked {
        self.note("finale");
        self.base.honest = true;
        if self.base.faulty || self.base.full_once {
            self.die(Death::Power)?;
        }
        self.life().checkpointer.watch_disk();
        self.set_clock(self.base.latest + 1);
        self.work_off()?;
        for hook in self.seen.hooks.values().cloned().collect::<Vec<_>>() {
            let change = HookChange::Activate(true);
            let (tenant, name) = (hook.tenant, hook.name);
            self.send(Owner::Client, Command::ChangeHook { tenant, name, change });
        }
        self.until_all_is_delivered()?;
        self.nothing_under_way()?;
        for hook in self.seen.hooks.values().cloned().collect::<Vec<_>>() {
            let (tenant, name, change) = (hook.tenant, hook.name, HookChange::End);
            self.send(Owner::Client, Command::ChangeHook { tenant, name, change });
        }
        self.work_off()?;
        self.sweep()?;
        self.nothing_left()?;
        self.die(Death::Power)?;
        self.work_off()?;
        self.nothing_left()
    }

    /// One turn of everything that can go on without time passing.
    fn turn(&mut self) -> Checked<bool> {
        self.base.trace.step += 1;
        self.work()?;
        let mut moved = false;
        while self.post()? || self.refill() || self.answer()? {
            moved = true;
        }
        for index in (0..self.errands.len()).rev() {
            if !self.errands[index].is_waiting() {
                moved = true;
                self.go_on(index)?;
            }
        }
        self.take();
        moved |= self.base.taken.is_some();
        let result = self.commit()?;
        self.survive(result)?;
        if self.base.random.one_in(8) {
            let result = self.life_mut().checkpointer.apply();
            self.survive(result)?;
        }
        let asleep = self.base.worker.sleeps_until().is_some_and(|at| at > self.base.now);
        Ok(moved || !asleep || !self.errands.is_empty())
    }

    /// Nobody comes any more: what was begun is finished, what is due is done.
    fn work_off(&mut self) -> Checked {
        for _ in 0..TURNS_MAX {
            if !self.turn()? {
                return self.audit();
            }
        }
        Err(violated("the work has no end"))
    }

    /// Time passes, endpoints behave, and every delivery comes to its end.
    fn until_all_is_delivered(&mut self) -> Checked {
        for _ in 0..WAITS_MAX {
            self.work_off()?;
            self.nothing_waits()?;
            let next = self.seen.due.first().and_then(|key| keys::parse_due(key));
            match next {
                None => return self.all_is_delivered(),
                // What is due already waits for a worker that pauses after a failure.
                Some((at, _)) if at <= self.base.now => {
                    let resumes = self.base.worker.sleeps_until().unwrap_or(self.base.now);
                    self.set_clock(resumes.max(self.base.now + 1));
                }
                Some((at, _)) => self.set_clock(at),
            }
        }
        Err(violated("there is always something left to be delivered"))
    }

    /// Whatever may be tried now has been.
    fn nothing_waits(&self) -> Checked {
        let leased = |it: &DeliveryRecord| matches!(it.delivery.phase, Phase::Leased { .. });
        let mut open = self.seen.deliveries.iter().filter(|(id, _)| !self.delayed.contains(id));
        match open.find(|(_, it)| leased(it)) {
            Some((id, it)) => Err(violated(format!("nobody tries {id:?}: {it:?}"))),
            None => Ok(()),
        }
    }

    /// Every hook was sent everything that it is owed, and nothing is open.
    fn all_is_delivered(&mut self) -> Checked {
        let mut open = self.seen.deliveries.iter();
        if let Some((id, it)) = open.find(|(_, it)| it.delivery.ended_at().is_none()) {
            return Err(violated(format!("{id:?} has no end: {it:?}")));
        }
        let events: Vec<_> = self.seen.all_events().map(|(no, _)| *no).collect();
        for (name, known) in &self.durable.hooks {
            let hook = self.seen.named(name).expect("audited").id;
            for place in &known.owed {
                let no = DeliveryNo { event: events[*place], round: 0 };
                let id = DeliveryId { hook, no };
                if !self.posted.contains(&id) || !self.history.ended.contains(&id) {
                    let said = &self.durable.events[*place];
                    return Err(violated(format!("{name} was never sent {said:?}")));
                }
            }
        }
        Ok(())
    }

    /// Nothing waits, and nothing is on its way.
    fn nothing_under_way(&self) -> Checked {
        let traffic = self.life().shared.outbox.traffic();
        if traffic.queued + traffic.quick + traffic.slow > 0 || !self.posts.is_empty() {
            return Err(violated(format!("left in the outbox: {traffic:?}")));
        }
        Ok(())
    }

    /// The names of batches are forgotten.
    fn sweep(&mut self) -> Checked {
        self.set_clock(self.base.latest + LONG_MS);
        let (from, to) = keys::later_until(self.base.now);
        let found = self.life().shared.state.reader().keys(&from, &to, usize::MAX);
        let found = found.map_err(|error| violated(error.to_string()))?;
        for found in found.chunks(16) {
            self.send(Owner::Client, Command::Sweep { found: found.to_vec() });
        }
        self.work_off()
    }

    /// All hooks were ended: only events remain.
    fn nothing_left(&mut self) -> Checked {
        let is_event = |key: &[u8]| matches!(key.first(), Some(0x0e | 0x0f));
        let left: Vec<_> = self.seen.raw.keys().filter(|key| !is_event(key)).collect();
        if left.is_empty() && !self.seen.has_due(|due| matches!(due, Due::Delivery(_))) {
            return Ok(());
        }
        Err(violated(format!("left over are {left:?}")))
    }
}
