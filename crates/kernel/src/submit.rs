//! Bringing a command to its partition: reading what its decision needs, waiting for room.

use std::collections::HashSet;
use std::sync::Arc;

use reveille_core::Millis;
use reveille_store::state::Reader;
use tokio::sync::oneshot;

use crate::command::{Command, Outcome};
use crate::domains::Domains;
use crate::doors::Clock;
use crate::error::{Damaged, Error, Unavailable};
use crate::limits::{FETCH_ROUNDS_MAX, ROOM_WAIT};
use crate::partition::Submission;
use crate::pending::{FetchedKeys, Lookup};
use crate::shared::Shared;
use crate::task;

/// Brings a command to its decision, fetching what it needs, and waits for its outcome.
pub async fn submit<D: Domains, C: Command<D> + ?Sized>(
    shared: &Arc<Shared<D>>,
    clock: &dyn Clock,
    command: &C,
) -> Outcome<C::Answer, C::Rejection> {
    let mut lookups: Vec<Lookup> = Vec::new();
    let mut known: HashSet<Lookup, foldhash::fast::RandomState> = HashSet::default();
    let mut fetched = FetchedKeys::default();
    let (mut deadline, mut rounds) = (None, 0);
    while rounds < FETCH_ROUNDS_MAX {
        let (reply, answer) = oneshot::channel();
        // Room that is made after a refusal and before anybody waits for it is noticed as well.
        let room = shared.room.notified();
        let now = clock.now();
        if let Some(rejection) = command.too_late(now) {
            return Err(Error::Rejected(rejection));
        }
        let (submission, wakes) = {
            let mut partition = shared.lock();
            let submission = partition.submit(command, &fetched, now, reply);
            (submission, partition.wakes_committer())
        };
        match submission {
            Submission::Decided => {
                if wakes {
                    shared.work.notify_one();
                }
                return answer.await.unwrap_or(Err(Unavailable::Stopping.into()));
            }
            Submission::Missing(more, _) => {
                rounds += 1;
                lookups.extend(more.into_iter().filter(|it| known.insert(it.clone())));
                (fetched, lookups) = fetch(shared.state.reader(), lookups).await?;
            }
            Submission::NoRoom(_) => {
                let wait = u64::try_from(ROOM_WAIT.as_millis()).unwrap_or(u64::MAX);
                let until = *deadline.get_or_insert(clock.now() + wait);
                if clock.now() >= until {
                    return Err(Unavailable::Busy.into());
                }
                // It may be that nobody commits anything: the table makes room too.
                let soon = clock.now() + 20;
                tokio::select! {
                    biased;
                    () = room => {}
                    () = clock.sleep_until(soon.min(until)) => {}
                }
            }
        }
    }
    Err(Unavailable::Busy.into())
}

/// The same before anything else can be submitted: nobody else waits for this thread.
pub fn submit_blocking<D: Domains, C: Command<D> + ?Sized>(
    shared: &Arc<Shared<D>>,
    now: Millis,
    command: &C,
) -> Outcome<C::Answer, C::Rejection> {
    let mut lookups = Vec::new();
    for _ in 0..FETCH_ROUNDS_MAX {
        let (reply, answer) = oneshot::channel();
        let fetched = FetchedKeys::read(&shared.state.reader(), &lookups).map_err(Damaged::from)?;
        // The lock is given back before anything is waited for.
        let submission = shared.lock().submit(command, &fetched, now, reply);
        match submission {
            Submission::Missing(more, _) => lookups.extend(more),
            Submission::NoRoom(_) => return Err(Unavailable::Busy.into()),
            Submission::Decided => {
                shared.work.notify_one();
                // A runtime's own threads must not wait like this; a thread of ours may.
                let waiting = std::thread::spawn(move || answer.blocking_recv());
                let outcome = waiting.join().ok().and_then(Result::ok);
                return outcome.unwrap_or(Err(Unavailable::Stopping.into()));
            }
        }
    }
    Err(Unavailable::Busy.into())
}

/// Keys that are read where everybody else waits for their turn; more of them are read elsewhere.
const READ_HERE_MAX: usize = 16;

/// Reads what a decision asked for.
async fn fetch(
    reader: Reader,
    lookups: Vec<Lookup>,
) -> Result<(FetchedKeys, Vec<Lookup>), Damaged> {
    let few = lookups.iter().map(Lookup::weight).sum::<usize>() <= READ_HERE_MAX;
    let read = move || (FetchedKeys::read(&reader, &lookups), lookups);
    let (fetched, lookups) = if few { read() } else { task::blocking(read).await };
    Ok((fetched?, lookups))
}
