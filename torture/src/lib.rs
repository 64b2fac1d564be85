//! Real server processes, killed under load, started on damaged files and attacked: what they
//! promised must still hold.

// Processes are started, waited for and killed in real time, and their files are damaged.
#![allow(clippy::disallowed_methods)]

pub mod adversary;
pub mod crash;
pub mod deliveries;
pub mod documents;
pub mod facts;
pub mod triggers;

mod flips;
mod inspect;
mod load;

mod model;

mod exchange;
mod message;
mod requests;

mod tenants;

mod random;
mod scratch;
