//! The end of a run: everything heals, and the wakes and deliveries of every tenant come.

use std::sync::Arc;

use reveille_core::Offset;
use reveille_schema::{keys, record};

use super::{PARTITIONS, Partitions, engine};
use crate::base::engine::AnyTimer;
use crate::base::{CheckResult, crash, finale, raw_state, violation};

/// More waits than anything needs to be told or delivered.
const WAITS_MAX: u32 = 2_000;

impl Partitions {
    pub(super) fn bring_everything(&mut self) -> CheckResult {
        finale::heal(self)?;
        self.base.set_clock(self.base.latest + 1);
        self.until_nothing_is_due()?;
        self.everything_came()?;
        crash::crash_cleanly(self)?;
        self.until_nothing_is_due()?;
        self.audit_content()
    }

    fn until_nothing_is_due(&mut self) -> CheckResult {
        for _ in 0..WAITS_MAX {
            finale::settle(self)?;
            let due = |key: &bytes::Bytes| AnyTimer::parse(key).map(|(at, _)| at);
            let next = self.seen.iter().filter_map(|it| it.keys().filter_map(due).min()).min();
            match next {
                None => return Ok(()),
                Some(at) => finale::pass_time_until(self, at),
            }
        }
        Err(violation("there is always something left to be done"))
    }

    fn everything_came(&self) -> CheckResult {
        for (tenant, path) in &self.must_tell {
            let head = self.head(engine::partition_of(tenant), tenant, path)?;
            let tail = head.map_or(Offset::ZERO, |head| head.tail);
            let told = self.told.get(&(tenant.clone(), path.clone()));
            if told.is_none_or(|told| *told < tail) {
                let what = format!("{tenant} was told {told:?} of {path}, which ends at {tail:?}");
                return Err(violation(what));
            }
        }
        for ((tenant, event), hooks) in &self.must_deliver {
            let lacks =
                |hook: &&Arc<str>| !self.delivered.contains(&(Arc::clone(hook), event.clone()));
            if let Some(hook) = hooks.iter().find(lacks) {
                return Err(violation(format!("{hook} of {tenant} never got {event}")));
            }
        }
        self.nothing_is_open()
    }

    /// Every delivery of every partition has come to its end.
    fn nothing_is_open(&self) -> CheckResult {
        for at in 0..PARTITIONS {
            for (key, value) in self.seen[at].iter().filter(|(key, _)| key.first() == Some(&0x10)) {
                let it = record::decode_delivery(value).map_err(raw_state::unreadable)?;
                if it.delivery.ended_at().is_none() {
                    let id = keys::parse_delivery(key);
                    return Err(violation(format!("{id:?} of {at} has no end: {it:?}")));
                }
            }
        }
        Ok(())
    }
}
