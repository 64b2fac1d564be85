//! The program as its users meet it: real processes, real sockets, real files.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "tests"
)]

mod clients;
mod dead_letters;
mod documents;
mod help;
mod keys;
mod operations;
mod scripted;
mod serve;
mod subscriptions;
mod tls;
mod traces;
mod triggers;

mod endpoint;
mod facts;
mod process;
