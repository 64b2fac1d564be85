//! The cleaner: forgets deliveries that ended long ago, and whatever else is of no use any more.
//! Nobody waits for it, and nothing but room depends on it.

use std::sync::Arc;

use reveille_core::Millis;
use reveille_store::keys;
use tokio::sync::Notify;

use crate::command::Command;
use crate::decide::run;
use crate::engine::{Engine, WeakEngine};
use crate::failure::{Failure, Unavailable};
use crate::limits::CLEAN_UP_SLICE;
use crate::reading;

/// From one round to the next.
const EVERY_MS: u64 = 70_000;
/// Deliveries are looked through once in so many rounds.
const ROUNDS: u64 = 50;

/// Works until the engine stops, or nobody has it any more.
pub(crate) async fn work(engine: WeakEngine, stop: Arc<Notify>, retain_ms: u64) {
    let mut round = 0;
    loop {
        let Some(engine) = engine.upgrade() else { return };
        let clock = engine.clock().clone();
        let done = match sweep(&engine, clock.now()).await {
            Ok(()) if round % ROUNDS == 0 => {
                let cutoff = Millis(clock.now().0.saturating_sub(retain_ms));
                engine.clean_up(None, cutoff).await.map(log)
            }
            done => done,
        };
        match done {
            Ok(()) => round += 1,
            Err(Failure::Unavailable(Unavailable::Stopping)) => return,
            Err(error) => tracing::warn!(%error, "cleaning up failed; trying again"),
        }
        drop(engine);
        tokio::select! {
            biased;
            () = stop.notified() => return,
            () = clock.sleep_until(clock.now() + EVERY_MS) => {}
        }
    }
}

fn log(forgotten: u64) {
    if forgotten > 0 {
        tracing::info!(forgotten, "deliveries that ended long ago were forgotten");
    }
}

/// Removes keys whose time has passed, in slices.
async fn sweep(engine: &Engine, now: Millis) -> Result<(), Failure> {
    for shared in engine.partitions() {
        loop {
            let (from, to) = keys::later_until(now);
            let found = shared.state.reader().keys(&from, &to, CLEAN_UP_SLICE);
            let found = found.map_err(reading::damaged)?;
            let full = found.len() == CLEAN_UP_SLICE;
            if found.is_empty() {
                break;
            }
            run(shared, engine.clock().as_ref(), &Command::Sweep { found }).await?;
            if !full {
                break;
            }
        }
    }
    Ok(())
}
