//! Bringing a command to its partition: reading what its decision needs, waiting for room.

use std::sync::Arc;

use reveille_core::Millis;
use reveille_store::state::Reader;
use tokio::sync::oneshot;

use crate::command::Command;
use crate::committer::Shared;
use crate::doors::Clock;
use crate::failure::{Failure, Unavailable};
use crate::limits::{FETCH_ROUNDS_MAX, ROOM_WAIT};
use crate::partition::{FetchedKeys, Lookup, Outcome, Submission};
use crate::{reading, task};

/// Brings a command to its decision, fetching what it needs, and waits for its outcome.
pub(crate) async fn run(shared: &Arc<Shared>, clock: &dyn Clock, command: &Command) -> Outcome {
    let mut wanted: Vec<Lookup> = Vec::new();
    let mut fetched = FetchedKeys::default();
    let mut deadline = None;
    for _ in 0..FETCH_ROUNDS_MAX {
        let (reply, answer) = oneshot::channel();
        let now = clock.now();
        let (submitted, wakes) = {
            let mut partition = shared.lock();
            let submitted = partition.submit(command, &fetched, now, reply);
            (submitted, partition.wakes_committer())
        };
        match submitted {
            Submission::Decided => {
                if wakes {
                    shared.work.notify_one();
                }
                return answer.await.unwrap_or(Err(Unavailable::Stopping.into()));
            }
            Submission::Missing(more, _) => {
                for it in more {
                    if !wanted.contains(&it) {
                        wanted.push(it);
                    }
                }
                (fetched, wanted) = fetch(shared.state.reader(), wanted).await?;
            }
            Submission::NoRoom(_) => {
                let wait = u64::try_from(ROOM_WAIT.as_millis()).unwrap_or(u64::MAX);
                let until = *deadline.get_or_insert(clock.now() + wait);
                wait_for_room(shared, clock, until).await?;
            }
        }
    }
    Err(Unavailable::Busy.into())
}

/// Keys that are read where everybody else waits for their turn; more of them are read elsewhere.
const READ_HERE_MAX: usize = 16;

/// Reads what a decision asked for.
async fn fetch(reader: Reader, wanted: Vec<Lookup>) -> Result<(FetchedKeys, Vec<Lookup>), Failure> {
    let few = wanted.iter().map(Lookup::weight).sum::<usize>() <= READ_HERE_MAX;
    let read = move || (FetchedKeys::read(&reader, &wanted), wanted);
    let (fetched, wanted) = if few { read() } else { task::blocking(read).await };
    Ok((fetched.map_err(reading::damaged)?, wanted))
}

/// Waits until something was committed or applied; gives up at the deadline.
async fn wait_for_room(
    shared: &Arc<Shared>,
    clock: &dyn Clock,
    until: Millis,
) -> Result<(), Unavailable> {
    if clock.now() >= until {
        return Err(Unavailable::Busy);
    }
    // Room made between the refusal and this wait is noticed a moment later.
    let soon = clock.now() + 20;
    tokio::select! {
        biased;
        () = shared.room.notified() => {}
        () = clock.sleep_until(soon.min(until)) => {}
    }
    Ok(())
}
