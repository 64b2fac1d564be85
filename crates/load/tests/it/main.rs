//! The generator against servers that misbehave: what it reports, and that it ends.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

mod deliveries;
mod scripted;
mod server;
