//! What the state holds: every key, every record, every timer, and how they are written.
//!
//! Nothing here reads or writes a file, and nothing here decides anything.
//!
//! A timer is its domain's number, a kind of that domain, and a subject. The kernel puts a time
//! before it and never looks inside. Numbers of domains and kinds are never reused.
//!
//! | domain | timers |
//! |---|---|
//! | `01` | [`streams::StreamTimer`] |
//! | `02` | [`wakes::WakeTimer`] |
//! | `03` | [`deliveries::DeliveryTimer`] |
//! | `04` | [`events::EventTimer`] |

pub mod auth;
pub mod deliveries;
pub mod events;
pub mod streams;
pub mod wakes;

pub mod keys;
pub mod record;

#[cfg(test)]
mod golden;
mod parts;
