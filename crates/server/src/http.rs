//! What every face stands on: sockets, routes, callers, bodies, replies and refusals.
//!
//! What two faces share is here as well, so that none of them knows another: [`fields`] of JSON
//! bodies, the words of [`subscription`]s to streams, those of a [`delivery`], of its
//! [`explanation`] and of an [`index`].

pub(crate) mod auth;
pub(crate) mod call_rates;
mod connection;
pub(crate) mod connections;
mod first_bytes;
pub(crate) mod listen;
pub(crate) mod moment;
pub(crate) mod origin;
mod outbound_body;
pub(crate) mod route;
mod stream_timeout;
mod write_timeout;

pub(crate) mod error;
pub(crate) mod fields;
pub(crate) mod inbound;
pub(crate) mod known;
pub(crate) mod object;
pub(crate) mod page;
pub(crate) mod query;
pub(crate) mod reply;

pub(crate) mod delivery;
pub(crate) mod explanation;
pub(crate) mod index;
pub(crate) mod subscription;

pub(crate) mod clock;
pub(crate) mod trace;
