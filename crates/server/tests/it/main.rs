//! The server over a real store and real sockets: what is documented, and what clients do wrong.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

mod harness;

mod bodies;
mod connections;
mod errors;
mod json;
mod parameters;
mod targets;
mod full_disk;
