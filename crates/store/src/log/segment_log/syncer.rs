//! Syncs a log whose commits are not synced, for whoever must know that it holds something.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use crate::disk::DiskFile;

/// Syncs the log from outside; clones are the same.
#[derive(Clone)]
pub struct Syncer {
    active: Arc<Mutex<Arc<dyn DiskFile>>>,
}

impl Syncer {
    pub(super) fn new(active: Arc<dyn DiskFile>) -> Syncer {
        Syncer { active: Arc::new(Mutex::new(active)) }
    }

    /// The log goes on in this file; it has synced the one before.
    pub(super) fn follow(&self, active: Arc<dyn DiskFile>) {
        *self.active.lock().unwrap_or_else(PoisonError::into_inner) = active;
    }

    /// Makes every record that was committed before this call durable.
    pub fn sync(&self) -> io::Result<()> {
        let active = self.active.lock().unwrap_or_else(PoisonError::into_inner).clone();
        active.sync()
    }
}
