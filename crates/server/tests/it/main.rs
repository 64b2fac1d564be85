//! The server over a real store and real sockets: what is documented, and what clients do wrong.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

mod harness;

mod admin_consumers;
mod answers;
mod bodies;
mod connections;
mod ds_create;
mod ds_links;
mod ds_pull;
mod ds_signing;
mod ds_wakes;
mod errors;
mod events_bodies;
mod events_cleanup;
mod events_explain;
mod events_flow;
mod events_ingest;
mod events_patterns;
mod events_restarts;
mod events_retries;
mod events_signing;
mod events_stream;
mod events_subscriptions;
mod events_tenants;
mod expiry;
mod forks;
mod full_disk;
mod health;
mod http2;
mod json;
mod long_poll;
mod memory;
mod metrics;
mod opening;
mod parameters;
mod producers;
mod reading;
mod shutdown;
mod slow_headers;
mod sse;
mod targets;
mod traces;
mod wake_answers;
mod wake_appends;
mod wake_bodies;
mod wake_callbacks;
mod wake_crowds;
mod wake_economy;
mod wake_endings;
mod wake_guard;
mod wake_notices;
mod wake_progress;
mod wake_restarts;
mod wake_subscriptions;
