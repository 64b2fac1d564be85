//! Triggers: hooks for changes of documents, with a condition, versions and an operator who governs
//! them.
//!
//! ```text
//! queries    what faces ask; status, backtest
//! change     a trigger is made, changed, enabled, disabled, rolled back or ended; apply, many
//! index      what memory knows of triggers, for decisions and for looks away from the lock
//! evaluate   one trigger is held against one change
//! look       a write is looked at before it is decided
//! matching   whom the changes of a write are for, in the write's own step
//! fan_out    and those that were left to slices
//! hooks      all of this as documents know it
//! outcome    what comes of attempts: health, objectives, rollback
//! notes      what is remembered beside: errors of conditions, dry runs
//! secrets    what signs, by name
//! ```

pub mod apply;
pub mod backtest;
pub mod change;
pub mod error;
pub mod hooks;
pub mod index;
pub mod queries;
pub mod secrets;
pub mod status;

mod describe;
mod evaluate;
mod fan_out;
mod look;
mod matching;
mod notes;
mod outcome;
#[cfg(test)]
mod tests;

pub use error::{TriggerError, TriggerRejection};
pub use index::definition_of;
