//! The server over a real store and real sockets: what is documented, and what clients do wrong.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

mod harness;

mod bodies;
mod connections;
mod errors;
mod full_disk;
mod json;
mod long_poll;
mod memory;
mod parameters;
mod sse;
mod targets;
