//! The end of a run: everything heals, is taken down, and nothing is left.

use reveille_core::delivery::id::EventNo;
use reveille_core::document::change::FACE;
use reveille_engine::documents::index::DocumentIndex;
use reveille_kernel::keys::parse_timer;
use reveille_schema::documents::{DocumentTimer, IndexState};
use reveille_schema::keys;

use super::Documents;
use super::action::{Action, OpKind, PlainOp, Transaction};
use super::audit::pairs;
use super::workload::PATHS;
use crate::base::engine::timer_keys;
use crate::base::raw_state::unreadable;
use crate::base::{CheckResult, crash, finale, violation};

/// More waits than anything takes.
const WAITS_MAX: u32 = 200;

impl Documents {
    pub(super) fn take_everything_down(&mut self) -> CheckResult {
        finale::heal(self)?;
        self.base.set_clock(self.base.latest + 1);
        self.until_no_timer(|timer| !matches!(timer, DocumentTimer::PurgeTombstone(..)))?;
        self.all_have_come_up()?;
        self.all_is_built()?;
        for tenant in self.tenants.clone() {
            for path in PATHS {
                let op = PlainOp { path, kind: OpKind::Delete, value: 0, text: 0, version: None };
                let (of, ops) = (tenant.clone(), vec![op]);
                let write = Transaction { tenant: of, ops, tag: None, origin: &[], verdict: None };
                self.ask(Action::Write(write));
            }
        }
        self.until_no_timer(|_| true)?;
        self.no_documents_left()?;
        for tenant in self.tenants.clone() {
            self.ask(Action::Declare { tenant, definitions: Vec::new() });
        }
        self.until_no_timer(|_| true)?;
        self.base.set_clock(self.base.now + self.ttls().idempotency_ttl_ms);
        for tenant in self.tenants.clone() {
            while self.trim(tenant.clone(), self.base.now)? {
                finale::settle(self)?;
            }
        }
        while self.sweep(self.base.now)? {
            finale::settle(self)?;
        }
        self.nothing_left()?;
        crash::crash_cleanly(self)?;
        finale::settle(self)?;
        // What is not synced may be there again.
        if self.base.mode.sync { self.nothing_left() } else { Ok(()) }
    }

    /// Every index that is wanted is ready.
    fn all_is_built(&self) -> CheckResult {
        let shared = self.base.engine().shared();
        let known = shared.lock();
        let known = known.index.of::<DocumentIndex>();
        for tenant in &self.tenants {
            if let Some((_, index)) =
                known.indexes(tenant).find(|(_, index)| index.state != IndexState::Ready)
            {
                return Err(violation(format!("{index:?} is never done")));
            }
        }
        Ok(())
    }

    /// Time passes until nobody waits who is meant.
    fn until_no_timer(&mut self, is_meant: fn(&DocumentTimer) -> bool) -> CheckResult {
        for _ in 0..WAITS_MAX {
            finale::settle(self)?;
            let timers = pairs(&self.base.reader(), timer_keys())?;
            let mut timers = timers.keys().filter_map(|key| {
                let (at, name) = parse_timer(key)?;
                DocumentTimer::decode(name).filter(is_meant).map(|_| at)
            });
            let Some(at) = timers.next() else { return Ok(()) };
            finale::pass_time_until(self, at);
        }
        Err(violation("there is always something to be done"))
    }

    fn no_documents_left(&self) -> CheckResult {
        let left = pairs(&self.base.reader(), keys::all_documents())?;
        if left.is_empty() { Ok(()) } else { Err(violation(format!("left over is {left:?}"))) }
    }

    /// But for how far the changes have come.
    fn nothing_left(&self) -> CheckResult {
        let reader = self.base.reader();
        let mut left = pairs(&reader, keys::all_documents())?;
        left.extend(pairs(&reader, keys::all_indexes())?);
        left.extend(pairs(&reader, keys::all_write_outcomes())?);
        for tenant in &self.tenants {
            left.extend(pairs(&reader, keys::change_places(tenant, 0))?);
            left.extend(pairs(&reader, keys::events(FACE, tenant, EventNo(0)))?);
        }
        let entries = reader.range(&[0x21], &[0x22], usize::MAX);
        left.extend(entries.map_err(unreadable)?);
        if left.is_empty() { Ok(()) } else { Err(violation(format!("left over is {left:?}"))) }
    }
}
