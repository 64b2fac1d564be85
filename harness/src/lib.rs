//! What the tools of this repository share: where things are, how a server process is started and
//! watched, one HTTP client, and how results are counted.

// Tools start real processes, wait for them, and measure real time.
#![allow(clippy::disallowed_methods)]

pub mod command;
pub mod workspace;

pub mod http;
pub mod server;
pub mod tally;

pub use server::{Server, Startup};
pub use tally::Tally;
