//! The end of a run: everything heals, everything owed has its end, and what triggers leave is
//! cleared up.

use reveille_engine::triggers::change::TriggerChange;
use reveille_kernel::keys::parse_timer;

use super::Triggers;
use super::action::Action;
use super::workload::IDS;
use crate::base::engine::timer_keys;
use crate::base::{CheckResult, crash, finale, violation};

/// More often than any trigger has to be enabled.
const ROUNDS_MAX: u32 = 10;
/// More waits than anything takes.
const WAITS_MAX: u32 = 2_000;
/// What must be gone with the last trigger: hooks, held, lanes, waiting, fan-outs, former versions
/// and notes of hooks.
const GONE: [u8; 7] = [0x0d, 0x13, 0x14, 0x15, 0x16, 0x1d, 0x27];

impl Triggers {
    pub(super) fn finish_everything(&mut self) -> CheckResult {
        finale::heal(self)?;
        self.base.set_clock(self.base.latest + 1);
        finale::settle(self)?;
        // What failed a while ago may still have a version rolled back: it is enabled again.
        for _ in 0..ROUNDS_MAX {
            self.for_all(|world, at, id| {
                let tenant = world.tenants[at].clone();
                world.change(&tenant, id, TriggerChange::Enable);
            });
            self.until_no_timer()?;
            if self.all_has_an_end().is_ok() {
                break;
            }
        }
        self.all_has_an_end()?;
        self.for_all(|world, at, id| {
            let tenant = world.tenants[at].clone();
            world.ask(Action::Delete { tenant, id });
        });
        self.until_no_timer()?;
        self.nothing_left()?;
        crash::crash_cleanly(self)?;
        finale::settle(self)?;
        self.nothing_left()
    }

    fn for_all(&mut self, mut each: impl FnMut(&mut Triggers, usize, &'static str)) {
        for at in 0..self.tenants.len() {
            for id in IDS {
                each(self, at, id);
            }
        }
    }

    /// Time passes until nothing is to be done any more.
    fn until_no_timer(&mut self) -> CheckResult {
        for _ in 0..WAITS_MAX {
            finale::settle(self)?;
            let timers = self.pairs(timer_keys())?;
            let Some((at, _)) = timers.first().and_then(|(key, _)| parse_timer(key)) else {
                return Ok(());
            };
            finale::pass_time_until(self, at);
        }
        Err(violation("there is always something to be done"))
    }

    /// Whatever a trigger is owed was delivered, or is a dead letter.
    fn all_has_an_end(&self) -> CheckResult {
        for tenant in &self.tenants {
            let hooks = self.hooks(tenant)?;
            let changes = self.durable.tenants.get(tenant).map_or(&[][..], |it| &it.changes);
            for (seq, change) in (1..).zip(changes) {
                for hook in change.owed.keys().filter_map(|id| hooks.get(id)) {
                    let delivery = self.delivery_of(hook, seq)?;
                    if delivery.is_none_or(|it| it.delivery.ended_at().is_none()) {
                        let name = &hook.name;
                        return Err(violation(format!("change {seq} has no end for {name}")));
                    }
                }
            }
        }
        Ok(())
    }

    /// All triggers were deleted: documents, changes and dead letters remain, and the audit log.
    fn nothing_left(&self) -> CheckResult {
        for tag in GONE {
            let range = (vec![tag].into(), vec![tag + 1].into());
            if let Some(left) = self.pairs(range)?.first() {
                return Err(violation(format!("left over is {left:?}")));
            }
        }
        Ok(())
    }
}
