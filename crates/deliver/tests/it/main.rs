//! The client against real sockets of this machine.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

mod guard;
mod limits;
mod names;
mod plain;
mod reuse;
mod sink;
mod tls;
