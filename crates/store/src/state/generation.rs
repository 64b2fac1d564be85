//! One generation of the table: its content between two applies, for whoever reads it.
//!
//! A view of the overlay and a generation belong together: what the overlay does not have is in
//! that generation, and in no other. So readers of an old view must not read a table that has been
//! brought up since.
//!
//! ```text
//!   current   nobody writes to the table: readers read it as it is
//!   pinned    an apply has begun: readers read the snapshot that was taken before it
//! ```
//!
//! A snapshot is taken once per apply and not once per reader, and nobody holds one while nothing
//! is being applied. It lives for as long as a view that is older than the apply.

use std::sync::{Arc, OnceLock};

use crate::table::{Table, TableError, TableReader};

pub(super) struct TableGeneration {
    table: Arc<dyn Table>,
    /// Set before the table is written to, and never changed.
    pinned: OnceLock<Arc<dyn TableReader>>,
}

impl TableGeneration {
    /// What the table holds now, and until the next apply.
    pub(super) fn new(table: Arc<dyn Table>) -> TableGeneration {
        TableGeneration { table, pinned: OnceLock::new() }
    }

    /// Keeps what the table holds now for the readers of this generation. Whoever applies calls it
    /// before the first write; an apply that failed and is tried again finds it done.
    pub(super) fn pin(&self) -> Result<(), TableError> {
        if self.pinned.get().is_none() {
            let snapshot = self.table.snapshot()?;
            // There is one who applies, so that nobody was faster.
            let _ = self.pinned.set(snapshot);
        }
        Ok(())
    }

    /// Reads this generation. `read` may run twice: if an apply began meanwhile, what it found
    /// first may be too new. It must take all it needs of the table in one call, an iterator
    /// included: that one sees nothing of what is written after it was made.
    pub(super) fn read<T>(&self, read: impl Fn(&dyn TableReader) -> T) -> T {
        if let Some(pinned) = self.pinned.get() {
            return read(pinned.as_ref());
        }
        let found = read(self.table.as_ref());
        match self.pinned.get() {
            // Whoever sees a write also sees that the generation was pinned before it.
            None => found,
            Some(pinned) => read(pinned.as_ref()),
        }
    }
}
