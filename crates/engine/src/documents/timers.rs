//! What timers of documents ask for.

use bytes::Bytes;
use reveille_core::Millis;
use reveille_kernel::command::{Command, Decision};
use reveille_kernel::error::{Damaged, Never};
use reveille_kernel::timers::DueTimer;
use reveille_schema::documents::DocumentTimer;

use super::build::{self, BuildLook};
use super::purge;
use crate::app::{App, Shared, Txn};

/// A timer of documents is due.
#[derive(Debug, Clone)]
pub struct FireDocumentTimer {
    timer: DocumentTimer,
    entry: DueTimer,
    /// Documents to index, for an index that is built.
    look: Option<BuildLook>,
    /// Keys to remove, for an index that is removed.
    found: Vec<Bytes>,
}

impl FireDocumentTimer {
    pub fn new(shared: &Shared, entry: DueTimer) -> Result<FireDocumentTimer, Damaged> {
        let damaged = || Damaged::new("a timer of documents cannot be read");
        let timer = DocumentTimer::decode(entry.name()).ok_or_else(damaged)?;
        let (reader, mut look, mut found) = (shared.state.reader(), None, Vec::new());
        match &timer {
            DocumentTimer::BuildIndex(tenant, no) => {
                look = BuildLook::make(&reader, tenant, *no)?;
            }
            DocumentTimer::RemoveIndex(tenant, no) => {
                found = build::remains(&reader, tenant, *no)?;
            }
            DocumentTimer::PurgeTombstone(..) => {}
        }
        Ok(FireDocumentTimer { timer, entry, look, found })
    }
}

impl Command<App> for FireDocumentTimer {
    type Answer = ();
    type Rejection = Never;

    fn decide(&self, txn: &mut Txn<'_>) -> Decision<(), Never> {
        // What is not done stays for another slice.
        let is_done = match (&self.timer, &self.look) {
            (DocumentTimer::BuildIndex(tenant, no), Some(look)) => {
                build::build(txn, tenant, *no, look)?
            }
            (DocumentTimer::BuildIndex(..), None) => true,
            (DocumentTimer::RemoveIndex(tenant, no), _) => {
                build::remove(txn, tenant, *no, &self.found)
            }
            (DocumentTimer::PurgeTombstone(tenant, path), _) => {
                txn.remove(&self.entry.key);
                purge::purge(txn, tenant, path)?;
                false
            }
        };
        if is_done {
            txn.remove(&self.entry.key);
        }
        Ok(Ok(()))
    }

    fn weight(&self) -> usize {
        let slice = usize::from(self.look.is_some()) * (64 << 10);
        slice + self.found.len() * 64
    }

    fn not_before(&self) -> Millis {
        self.entry.at()
    }
}
