//! The due index at work: what has come due is done, in slices, and then the next is waited for.

mod ahead;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use reveille_core::consumer::{Phase, Stage};
use reveille_core::delivery::hook::HookId;
use reveille_core::key_range::above;
use reveille_core::stream::StreamId;
use reveille_core::subscription::SubscriptionId;
use reveille_core::{Millis, Tenant};
use reveille_schema::keys::{self, Due};
use reveille_schema::record;
use reveille_store::keys::{self as store_keys, BlobId};
use reveille_store::state::Reader;
use reveille_store::table::TableError;
use tokio::task::JoinSet;

use crate::activity::ConsumerActivity;
use crate::command::Command;
use crate::command::consumer::belongings;
use crate::committer::Shared;
use crate::doors::Clock;
use crate::effect::WakeAttempt;
use crate::failure::{Failure, Unavailable};
use crate::limits::{DUE_SLICE, OVERLAY_PRESSED_BYTES, PURGE_SLICE};
use crate::outbound::deliveries;
use crate::outbox::Attempt;
use crate::partition::Outcome;
use crate::{decide, outbound, task};
pub use ahead::TimerLookahead;

/// However quiet it is, the index is looked at this often.
const LOOK_EVERY_MS: u64 = 60_000;
/// After a failure, and while the server is read-only, the work is tried again this much later.
pub const PAUSE_MS: u64 = 1_000;
/// While the table lags behind, what can wait is looked at again this much later.
const PRESSED_PAUSE_MS: u64 = 20;
/// How much further is looked when what can wait is in the way.
const FURTHER_SLICES: usize = 8;
/// Slices of events for many hooks that are worked off at once.
const SPREADING_MAX: usize = 4;

/// Obligations that are fulfilled at once: enough to fill a batch, and few enough that nobody waits
/// long behind them.
const AT_ONCE_MAX: usize = 32;

/// Works until the partition stops.
pub(crate) async fn run(shared: Arc<Shared>, clock: Arc<dyn Clock>) {
    // Entries before this are done: looking past their remains would grow slow.
    let mut since = Millis(0);
    let mut ahead = TimerLookahead::default();
    // Where to go on after what could not be done: it must not keep others from their turn.
    let mut past: Option<Bytes> = None;
    loop {
        if shared.lock().stopping {
            return;
        }
        let now = clock.now();
        let newly = newly_due(&shared);
        ahead.note(newly);
        since = since.min(newly);
        let reader = shared.state.reader();
        let failed = past.is_some();
        let from = past.take().unwrap_or_else(|| keys::due_from(since));
        let mut more = None;
        let worked = match look_further(&mut ahead, &reader, &from, now) {
            Ok(found) => {
                more = found.last().filter(|_| found.len() >= DUE_SLICE).map(|it| above(it));
                work(&shared, &clock, found, now).await
            }
            Err(error) => Err(crate::reading::damaged(error)),
        };
        let wake_at = match worked {
            Err(Failure::Unavailable(Unavailable::Stopping)) => return,
            Err(error) => {
                tracing::warn!(%error, "an obligation could not be fulfilled; trying again");
                ahead.forget();
                past = more.filter(|_| error != Failure::Unavailable(Unavailable::DiskFull));
                now + PAUSE_MS
            }
            Ok(_) if failed => {
                past = more;
                now + PAUSE_MS
            }
            Ok(Worked::More { since: done }) => {
                since = done;
                continue;
            }
            Ok(Worked::Until { next, left }) => {
                since = left.unwrap_or(now);
                // An index that cannot be read is complained about when it is looked at.
                let then = ahead.next(&reader, now).unwrap_or(now + PAUSE_MS);
                if left.is_some() {
                    ahead.forget();
                }
                next.min(then)
            }
        };
        if past.is_some() {
            continue;
        }
        let newly = sleep(&shared, clock.as_ref(), wake_at).await;
        ahead.note(newly);
        since = since.min(newly);
    }
}

/// Sleeps until a time, or until something is due sooner. Returns the earliest entry that became
/// durable meanwhile. Only what is due is looked for in the index: between two looks thousands of
/// entries come and go, and a look has to step over what is left of each.
async fn sleep(shared: &Shared, clock: &dyn Clock, mut wake_at: Millis) -> Millis {
    let mut since = Millis::NEVER;
    loop {
        shared.due_next.store(wake_at.0, Ordering::SeqCst);
        let newly = newly_due(shared);
        since = since.min(newly);
        wake_at = wake_at.min(newly);
        if wake_at <= clock.now() || shared.lock().stopping {
            break;
        }
        tokio::select! {
            biased;
            () = shared.due.notified() => {}
            () = clock.sleep_until(wake_at) => {}
        }
    }
    shared.due_next.store(u64::MAX, Ordering::SeqCst);
    since
}

/// Takes up what was left when the server last stopped: attempts that were on their way are made
/// again, and consumers that are busy are counted. Nothing may be decided before. Attempts whose
/// time has run out meanwhile are left to their timers: to have been under way again for a moment
/// would make that the endpoint's failure.
pub fn recover(shared: &Shared, now: Millis) {
    let reader = shared.state.reader();
    walk(&reader, |at, due, _| {
        let Due::Consumer(consumer) = due else { return };
        let Ok(Some(record)) = outbound::record(&reader, &consumer) else { return };
        if record.timer_at == Some(at) {
            shared.metrics.telling.found(ConsumerActivity::of(&record));
        }
        if let Phase::Waking { attempt, stage: Stage::Sent { until } } = record.consumer.phase
            && now < until
        {
            let epoch = record.consumer.epoch;
            shared.outbox.push(Attempt::Wake(WakeAttempt { consumer, epoch, attempt }));
        }
    });
}

/// Goes through the whole index, in slices: each entry with its value.
pub(crate) fn walk(reader: &Reader, mut each: impl FnMut(Millis, Due, &Bytes)) {
    let (mut from, to) = (keys::due_from(Millis(0)), keys::due_end());
    loop {
        let found = match reader.range(&from, &to, DUE_SLICE) {
            Ok(found) => found,
            Err(error) => {
                tracing::error!(%error, "the due index cannot be read");
                return;
            }
        };
        for (key, value) in &found {
            if let Some((at, due)) = keys::parse_due(key) {
                each(at, due, value);
            }
        }
        match found.last() {
            Some((last, _)) if found.len() == DUE_SLICE => from = above(last),
            _ => return,
        }
    }
}

/// The earliest entry that became durable since the last look. It may be older than that look: the
/// batch took its time, or a stream was created whose end had passed.
pub fn newly_due(shared: &Shared) -> Millis {
    Millis(shared.due_from.swap(u64::MAX, Ordering::SeqCst))
}

/// Whether an entry is gone when it is done.
fn is_timer(key: &Bytes) -> bool {
    let due = keys::parse_due(key).map(|(_, due)| due);
    matches!(due, Some(Due::Consumer(_) | Due::Delivery(_) | Due::DeliveryGroup(_)))
}

/// The same, past those that can wait: they must not hide others.
fn look_further(
    ahead: &mut TimerLookahead,
    reader: &Reader,
    from: &Bytes,
    now: Millis,
) -> Result<Vec<Bytes>, TableError> {
    let mut found = ahead.look(reader, from, now)?;
    let (_, due) = keys::due_until(now);
    for _ in 0..FURTHER_SLICES {
        let patient = found
            .iter()
            .filter(|key| keys::parse_due(key).is_some_and(|(at, due)| at <= now && spreads(&due)));
        let Some(last) = found.last() else { break };
        if found.len() < DUE_SLICE || patient.count() * 2 < found.len() {
            break;
        }
        let more = reader.keys(&above(last), &due, DUE_SLICE)?;
        if more.is_empty() {
            break;
        }
        found.extend(more);
    }
    Ok(found)
}

/// When all that a look at the index has found is done, there is nothing left before this. Timers
/// are gone then; what is done in slices may be there again.
pub fn done_until(found: &[Bytes], now: Millis) -> Millis {
    let at = |key: &Bytes| keys::parse_due(key).map(|(at, _)| at);
    let may_stay = found.iter().find(|key| !is_timer(key));
    let last = found.last().filter(|_| found.len() >= DUE_SLICE);
    may_stay.into_iter().chain(last).filter_map(at).chain([now]).min().unwrap_or(now)
}

/// Whether it is one of many slices of something large, which can wait a little.
fn spreads(due: &Due) -> bool {
    matches!(due, Due::FanOutToHooks(..) | Due::Backfill(..))
}

/// What came of working.
enum Worked {
    /// There may be more to do now, but nothing before this.
    More { since: Millis },
    /// Nothing until then; something was left undone since another time.
    Until { next: Millis, left: Option<Millis> },
}

/// Fulfils what is due, many at once: one batch may hold all of them.
async fn work(
    shared: &Arc<Shared>,
    clock: &Arc<dyn Clock>,
    found: Vec<Bytes>,
    now: Millis,
) -> Result<Worked, Failure> {
    let (mut next, mut left) = (Millis::NEVER, None);
    let done = done_until(&found, now);
    let mut spreading = 0;
    let mut failed = None;
    let mut working = JoinSet::new();
    for key in found {
        let Some((at, due)) = keys::parse_due(&key) else {
            failed = Some(Failure::Damaged("an entry of the due index cannot be read".into()));
            continue;
        };
        if spreads(&due) {
            // One of these may be as much work as everything that clients ask for meanwhile: a few
            // at a time, and none while the table lags behind.
            if spreading == SPREADING_MAX || is_pressed(shared) {
                (next, left) = (now + PRESSED_PAUSE_MS, left.or(Some(at)));
                continue;
            }
            spreading += 1;
        }
        // One that cannot be read must not keep the others from their turn.
        let command = match prepared(shared, key, due).await {
            Ok(command) => command,
            Err(failure) => {
                failed = Some(failure);
                continue;
            }
        };
        if working.len() >= AT_ONCE_MAX {
            failed = failed.or(joined(&mut working).await);
        }
        let (shared, clock) = (shared.clone(), clock.clone());
        working.spawn(async move { decide::run(&shared, clock.as_ref(), &command).await });
    }
    if working.is_empty() && failed.is_none() {
        return Ok(Worked::Until { next, left });
    }
    while !working.is_empty() {
        failed = failed.or(joined(&mut working).await);
    }
    let since = left.map_or(done, |left: Millis| left.min(done));
    failed.map_or(Ok(Worked::More { since }), Err)
}

/// Waits for one of those that are being fulfilled. Says why it was not.
async fn joined(working: &mut JoinSet<Outcome>) -> Option<Failure> {
    working.join_next().await.and_then(Result::ok).and_then(Result::err)
}

/// Whether the table lags so far behind that whatever can wait should.
fn is_pressed(shared: &Shared) -> bool {
    shared.state.overlay_bytes().total() > OVERLAY_PRESSED_BYTES
}

/// The same as [`command`]; where much is to be read, nobody waits behind that.
async fn prepared(shared: &Arc<Shared>, key: Bytes, due: Due) -> Result<Command, Failure> {
    match due {
        Due::Consumer(_) | Due::Delivery(_) => command(shared, key, due),
        _ => {
            let shared = shared.clone();
            task::blocking(move || command(&shared, key, due)).await
        }
    }
}

/// The command that an entry of the index asks for.
pub fn command(shared: &Shared, key: Bytes, due: Due) -> Result<Command, Failure> {
    if let Due::Consumer(consumer) = due {
        let in_flight = shared.outbox.in_flight(&consumer);
        return Ok(Command::Timer { key, consumer, in_flight });
    }
    if let Due::Delivery(id) = due {
        let in_flight = shared.outbox.has_delivery(id);
        return Ok(Command::DeliveryTimer { key, id, in_flight });
    }
    if let Due::DeliveryGroup(_) = due {
        let mut open = deliveries::open_of_group(&shared.state.reader(), &key)?;
        for it in &mut open {
            it.in_flight = shared.outbox.has_delivery(it.id);
        }
        return Ok(Command::LotTimer { key, open });
    }
    let found = remains(&shared.state.reader(), &due).map_err(crate::reading::damaged)?;
    Ok(Command::Obligation { key, due, found })
}

/// What a decision about an entry needs and does not look up itself: mostly keys that a clean-up
/// still has to remove.
pub fn remains(reader: &Reader, due: &Due) -> Result<Vec<Bytes>, TableError> {
    match due {
        Due::Purge(id) => of_stream(reader, *id),
        Due::Unsubscribe(tenant, id) => of_subscription(reader, tenant, *id),
        Due::Unhook(_, id) => of_hook(reader, *id),
        // Not a key, but what the event says: read once for all the deliveries of a slice.
        Due::FanOutToHooks(tenant, event) => Ok(deliveries::said(reader, tenant, *event)),
        _ => Ok(Vec::new()),
    }
}

fn of_stream(reader: &Reader, id: StreamId) -> Result<Vec<Bytes>, TableError> {
    let (from, to) = store_keys::chunks(BlobId(id.0));
    let mut found = reader.keys(&from, &to, PURGE_SLICE)?;
    if found.len() < PURGE_SLICE {
        let (from, to) = keys::producers(id);
        found.extend(reader.keys(&from, &to, PURGE_SLICE - found.len())?);
    }
    Ok(found)
}

fn of_hook(reader: &Reader, id: HookId) -> Result<Vec<Bytes>, TableError> {
    let mut found = Vec::new();
    let ranges = [
        keys::deliveries(id),
        keys::dead_letters(id),
        keys::all_held(id),
        keys::lanes(id),
        keys::all_waiting(id),
    ];
    for (from, to) in ranges {
        if found.len() < PURGE_SLICE {
            found.extend(reader.keys(&from, &to, PURGE_SLICE - found.len())?);
        }
    }
    let counts = keys::counts(id);
    if reader.get(&counts)?.is_some() {
        found.push(counts);
    }
    Ok(found)
}

/// Consumers go with what belongs to them; links take along who follows by them.
fn of_subscription(
    reader: &Reader,
    tenant: &Tenant,
    id: SubscriptionId,
) -> Result<Vec<Bytes>, TableError> {
    let mut found = Vec::new();
    let (from, to) = keys::consumers(id);
    for (key, value) in reader.range(&from, &to, PURGE_SLICE)? {
        let known = keys::parse_consumer(&key);
        match (known, record::decode_consumer(&value)) {
            (Some(consumer), Ok(record)) => {
                found.extend(belongings(tenant, &consumer, &record));
            }
            _ => found.push(key),
        }
    }
    if found.len() < PURGE_SLICE {
        let consumer = keys::ConsumerKey { subscription: id, path: None };
        let (from, to) = keys::links(id);
        for key in reader.keys(&from, &to, PURGE_SLICE)? {
            if let Some(path) = keys::parse_linked(&key) {
                found.push(keys::follower(tenant, &path, &consumer));
            }
            found.push(key);
        }
        let (from, to) = keys::backlogs(id);
        found.extend(reader.keys(&from, &to, PURGE_SLICE)?);
    }
    Ok(found)
}
