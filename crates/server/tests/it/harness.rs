//! What the tests stand on: a clock, a server, a client.

#![allow(clippy::disallowed_methods, reason = "a test that hangs must fail, on the real clock")]

pub(crate) mod alone;
pub(crate) mod client;
pub(crate) mod clock;
pub(crate) mod deliveries;
pub(crate) mod documents;
pub(crate) mod ds;
pub(crate) mod endpoint;
pub(crate) mod events;
pub(crate) mod facts;
pub(crate) mod keys;
pub(crate) mod live;
pub(crate) mod logs;
pub(crate) mod responder;
pub(crate) mod server;
pub(crate) mod sink;
pub(crate) mod trigger_world;
pub(crate) mod triggers;
pub(crate) mod wakes;

use std::future::Future;
use std::time::Duration;

pub(crate) use alone::{Memory, alone};
pub(crate) use client::{Answer, Connection, Head, Headers, Piece, head_of, request};
pub(crate) use clock::{HandClock, START_MS};
pub(crate) use deliveries::{Deliveries, event_kinds};
pub(crate) use documents::ids_of;
pub(crate) use endpoint::Endpoint;
pub(crate) use events::Events;
pub(crate) use live::Picture;
pub(crate) use responder::Responder;
pub(crate) use server::{LONG_POLL_MS, READER_MS, Setup, TestServer, metric_of, partition_dirs};
pub(crate) use sink::{Call, Sink};
pub(crate) use trigger_world::{SECRET, TRIGGERS, Triggers, signatures, tag};
pub(crate) use wakes::{JSON, Wakes, ZERO};

/// Nothing in these tests takes this long, unless it would take forever.
const PATIENCE: Duration = Duration::from_secs(20);
/// Between two looks at something that comes by itself.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// The future's output; a test that would hang fails instead.
pub(crate) async fn guarded<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(PATIENCE, future).await {
        Ok(value) => value,
        Err(_) => panic!("waited in vain for {what}"),
    }
}

/// Looks until something that comes by itself is there.
pub(crate) async fn eventually<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    for _ in 0..500 {
        if let Some(found) = look().await {
            return found;
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
    panic!("looked in vain for {what}");
}

/// Looks for a second and a half: long enough for everything that runs by itself to have run.
pub(crate) async fn stays(what: &str, mut look: impl AsyncFnMut() -> bool) {
    for _ in 0..75 {
        assert!(look().await, "no longer {what}");
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}
