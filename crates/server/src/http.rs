//! What every face stands on: sockets, routes, callers, bodies, answers and refusals.

pub(crate) mod auth;
pub(crate) mod clock;
pub(crate) mod error;
mod first_bytes;
pub(crate) mod inbound;
pub(crate) mod listen;
pub(crate) mod query;
pub(crate) mod reply;
mod route;
pub(crate) mod trace;
