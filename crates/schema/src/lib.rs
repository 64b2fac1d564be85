//! What the state holds: every key, every record, every timer, and how they are written.
//!
//! Nothing here reads or writes a file, and nothing here decides anything.

pub mod keys;
pub mod record;
