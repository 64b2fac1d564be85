//! What a deleted garden has left goes some time after, when nobody can be owed anything of it:
//! first its facts, then who belonged to it, and last the garden.

use bytes::Bytes;
use reveille_core::fact::garden::GardenNo;
use reveille_core::{Millis, Tenant};
use reveille_kernel::command::{Command, Decision};
use reveille_kernel::error::{Damaged, Never};
use reveille_kernel::timers::DueTimer;
use reveille_schema::facts::FactTimer;
use reveille_schema::keys;
use reveille_store::state::Reader;

use crate::app::{App, Shared, Txn};
use crate::limits::PURGE_SLICE;

/// A timer of facts is due.
#[derive(Debug, Clone)]
pub(super) struct FireFactTimer {
    timer: FactTimer,
    entry: DueTimer,
    /// Keys to remove. Nobody writes what is in a garden that was deleted.
    found: Vec<Bytes>,
}

impl FireFactTimer {
    pub(super) fn new(shared: &Shared, entry: DueTimer) -> Result<FireFactTimer, Damaged> {
        let damaged = || Damaged::new("a timer of facts cannot be read");
        let timer = FactTimer::decode(entry.name()).ok_or_else(damaged)?;
        let FactTimer::PurgeGarden(tenant, garden) = &timer;
        let found = remains(&shared.state.reader(), tenant, *garden)?;
        Ok(FireFactTimer { timer, entry, found })
    }
}

impl Command<App> for FireFactTimer {
    type Answer = ();
    type Rejection = Never;

    fn decide(&self, txn: &mut Txn<'_>) -> Decision<(), Never> {
        let FactTimer::PurgeGarden(tenant, garden) = &self.timer;
        for key in &self.found {
            txn.remove(key);
        }
        if self.found.is_empty() {
            txn.remove(&keys::garden(tenant, *garden));
            txn.remove(&self.entry.key);
        }
        Ok(Ok(()))
    }

    fn weight(&self) -> usize {
        self.found.len() * 96
    }

    fn not_before(&self) -> Millis {
        self.entry.at()
    }
}

/// The next keys of what a garden has left.
fn remains(reader: &Reader, tenant: &Tenant, garden: GardenNo) -> Result<Vec<Bytes>, Damaged> {
    let mut found = Vec::new();
    let (from, to) = keys::facts_of(tenant, Some(garden), None, None);
    for entry in reader.keys(&from, &to, PURGE_SLICE / 2)? {
        let parsed = keys::parse_fact_of(&entry);
        let (_, _, no) = parsed.ok_or_else(|| Damaged::new("an entry of a fact is damaged"))?;
        found.extend([keys::fact(tenant, no), entry]);
    }
    let (from, to) = keys::slots(tenant, Some(garden), None);
    let room = PURGE_SLICE.saturating_sub(found.len());
    if room > 0 {
        found.extend(reader.keys(&from, &to, room)?);
    }
    let (from, to) = keys::memberships(tenant, garden);
    let room = PURGE_SLICE.saturating_sub(found.len()) / 2;
    if room > 0 {
        for key in reader.keys(&from, &to, room)? {
            let parsed = keys::parse_membership(&key);
            let (_, _, member) = parsed.ok_or_else(|| Damaged::new("a membership is damaged"))?;
            found.extend([keys::garden_of(tenant, &member, garden), key]);
        }
    }
    Ok(found)
}
