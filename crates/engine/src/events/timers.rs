//! What timers of events ask for.

use reveille_core::Millis;
use reveille_kernel::command::{Command, Decision};
use reveille_kernel::error::{Damaged, Never};
use reveille_kernel::timers::DueTimer;
use reveille_schema::events::EventTimer;

use super::hook;
use crate::app::{App, Txn};

/// A timer of events is due.
#[derive(Debug, Clone)]
pub struct FireEventTimer {
    timer: EventTimer,
    entry: DueTimer,
}

impl FireEventTimer {
    pub fn new(entry: DueTimer) -> Result<FireEventTimer, Damaged> {
        let damaged = || Damaged::new("a timer of events cannot be read");
        let timer = EventTimer::decode(entry.name()).ok_or_else(damaged)?;
        Ok(FireEventTimer { timer, entry })
    }
}

impl Command<App> for FireEventTimer {
    type Answer = ();
    type Rejection = Never;

    fn decide(&self, txn: &mut Txn<'_>) -> Decision<(), Never> {
        // It is removed first: it may be written anew, for the same time.
        txn.remove(&self.entry.key);
        let EventTimer::Backfill(tenant, id) = &self.timer;
        hook::backfill(txn, tenant, *id)?;
        Ok(Ok(()))
    }

    fn not_before(&self) -> Millis {
        self.entry.at()
    }
}
