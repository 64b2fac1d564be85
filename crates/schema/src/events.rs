//! Events that were taken in, and which hooks still get them.
//!
//! | timer of domain `04` | subject |
//! |---|---|
//! | `01` fan out to hooks | event number `u64`, tenant |
//! | `02` backfill | hook `u64`, tenant |

#[cfg(test)]
mod tests;
mod timer;

pub use timer::EventTimer;
