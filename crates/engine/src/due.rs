//! The due index at work: what has come due is done, in slices, and then the next is waited for.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use reveille_core::Millis;
use reveille_store::keys::{self, Due};
use reveille_store::state::Reader;
use reveille_store::table::TableError;

use crate::command::Command;
use crate::committer::Shared;
use crate::doors::Clock;
use crate::engine;
use crate::failure::{Failure, Unavailable};
use crate::limits::{DUE_SLICE, PURGE_SLICE};

/// However quiet it is, the index is looked at this often.
pub const LOOK_EVERY_MS: u64 = 60_000;
/// After a failure, and while the server is read-only, the work is tried again this much later.
pub const PAUSE_MS: u64 = 1_000;

/// Works until the partition stops.
pub(crate) async fn run(shared: Arc<Shared>, clock: Arc<dyn Clock>) {
    // Entries before this are done: looking past their remains would grow slow.
    let mut since = Millis(0);
    loop {
        if shared.lock().stopping {
            return;
        }
        let now = clock.now();
        since = since.min(newly_due(&shared));
        let next = match look(&shared.state.reader(), since, now) {
            Ok(found) => work(&shared, clock.as_ref(), found, now).await,
            Err(error) => Err(crate::reading::damaged(error)),
        };
        let wake_at = match next {
            Err(Failure::Unavailable(Unavailable::Stopping)) => return,
            Err(error) => {
                tracing::warn!(%error, "an obligation could not be fulfilled; trying again");
                now + PAUSE_MS
            }
            Ok(None) => continue,
            Ok(Some(next)) => {
                since = now;
                next.min(now + LOOK_EVERY_MS)
            }
        };
        tokio::select! {
            biased;
            () = shared.due.notified() => {}
            () = clock.sleep_until(wake_at) => {}
        }
    }
}

/// The earliest entry that became durable since the last look. It may be older than that look: the
/// batch took its time, or a stream was created whose end had passed.
pub fn newly_due(shared: &Shared) -> Millis {
    Millis(shared.due_from.swap(u64::MAX, Ordering::AcqRel))
}

/// The next entries of the index.
pub fn look(
    reader: &Reader,
    since: Millis,
    now: Millis,
) -> Result<Vec<(Bytes, Bytes)>, TableError> {
    let from = keys::due_from(since);
    let (_, due) = keys::due_until(now);
    let found = reader.range(&from, &due, DUE_SLICE)?;
    if !found.is_empty() {
        return Ok(found);
    }
    reader.range(&from, &keys::due_end(), 1)
}

/// Fulfils what is due. Returns when the next is, or `None` if there may be more at once.
async fn work(
    shared: &Arc<Shared>,
    clock: &dyn Clock,
    found: Vec<(Bytes, Bytes)>,
    now: Millis,
) -> Result<Option<Millis>, Failure> {
    let mut worked = false;
    for (key, _) in found {
        let Some((at, due)) = keys::parse_due(&key) else {
            return Err(Failure::Damaged("an entry of the due index cannot be read".into()));
        };
        if at > now {
            return Ok(if worked { None } else { Some(at) });
        }
        worked = true;
        let remains = remains(&shared.state.reader(), &due).map_err(crate::reading::damaged)?;
        let command = Command::Obligation { key, due, found: remains };
        engine::run(shared, clock, &command).await?;
    }
    Ok(if worked { None } else { Some(Millis::NEVER) })
}

/// Keys that a purge still has to remove.
pub fn remains(reader: &Reader, due: &Due) -> Result<Vec<Bytes>, TableError> {
    let Due::Purge(id) = due else {
        return Ok(Vec::new());
    };
    let (from, to) = keys::chunks(*id);
    let mut found = reader.keys(&from, &to, PURGE_SLICE)?;
    if found.len() < PURGE_SLICE {
        let (from, to) = keys::producers(*id);
        found.extend(reader.keys(&from, &to, PURGE_SLICE - found.len())?);
    }
    Ok(found)
}
