//! What timers of events ask for.

use bytes::Bytes;
use reveille_core::Millis;
use reveille_kernel::command::{Command, Decision};
use reveille_kernel::error::{Damaged, Never};
use reveille_kernel::timers::DueTimer;
use reveille_schema::events::EventTimer;
use reveille_store::state::Reader;

use super::{hook, ingest, read};
use crate::app::{App, Txn};

/// A timer of events is due.
#[derive(Debug, Clone)]
pub struct FireEventTimer {
    timer: EventTimer,
    entry: DueTimer,
    /// What the event says: read once for all the deliveries of a slice.
    payload: Option<Bytes>,
}

impl FireEventTimer {
    pub fn new(reader: &Reader, entry: DueTimer) -> Result<FireEventTimer, Damaged> {
        let damaged = || Damaged::new("a timer of events cannot be read");
        let timer = EventTimer::decode(entry.name()).ok_or_else(damaged)?;
        let payload = match &timer {
            // One that cannot be read now is read when its deliveries are sent, and reported then.
            EventTimer::FanOutToHooks(tenant, no) => {
                let event = read::event(reader, tenant, *no).ok().flatten();
                event.and_then(|event| read::payload(reader, &event).ok())
            }
            EventTimer::Backfill(..) => None,
        };
        Ok(FireEventTimer { timer, entry, payload })
    }
}

impl Command<App> for FireEventTimer {
    type Answer = ();
    type Rejection = Never;

    fn decide(&self, txn: &mut Txn<'_>) -> Decision<(), Never> {
        // It is removed first: it may be written anew, for the same time.
        txn.remove(&self.entry.key);
        match &self.timer {
            EventTimer::FanOutToHooks(tenant, event) => {
                ingest::fan_out(txn, tenant, *event, self.payload.as_ref())?;
            }
            EventTimer::Backfill(tenant, id) => hook::backfill(txn, tenant, *id)?,
        }
        Ok(Ok(()))
    }

    fn weight(&self) -> usize {
        usize::from(self.payload.is_some()) * 32
    }

    fn not_before(&self) -> Millis {
        self.entry.at()
    }
}
