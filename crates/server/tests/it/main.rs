//! The server over a real store and real sockets: what is documented, and what clients do wrong.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

mod harness;

mod answers;
mod bodies;
mod connections;
mod ds_create;
mod ds_links;
mod ds_pull;
mod ds_signing;
mod ds_wakes;
mod errors;
mod expiry;
mod forks;
mod full_disk;
mod health;
mod http2;
mod json;
mod long_poll;
mod memory;
mod opening;
mod parameters;
mod producers;
mod reading;
mod shutdown;
mod slow_headers;
mod sse;
mod targets;
