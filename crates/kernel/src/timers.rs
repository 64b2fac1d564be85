//! The due index at work: what has come due is done, in slices, and then the next is waited for.

mod lookahead;

use std::sync::Arc;

use bytes::Bytes;
use reveille_core::Millis;
use reveille_core::key_range::above;
use reveille_store::state::Reader;
use reveille_store::table::TableError;
use tokio::task::JoinSet;

use crate::command::Command;
use crate::domains::{Domains, Pages};
use crate::doors::Clock;
use crate::error::{Damaged, Error, Never, Unavailable};
use crate::limits::TIMER_SLICE;
use crate::set_aside::{FailingTimers, SetTimerAside};
use crate::shared::Shared;
use crate::submit::submit;
use crate::{keys, task};
pub use lookahead::TimerLookahead;

/// What timers ask for.
pub trait TimerHandler: Domains {
    /// What a timer asks for.
    type Command: Command<Self, Answer = (), Rejection = Never> + 'static;

    /// What is known of a timer by its name alone.
    fn timer_traits(timer: &[u8]) -> TimerTraits;

    /// What a timer that is due asks for. It may read, and is called where that hurts nobody if
    /// [`TimerTraits::reads`].
    fn timer_command(shared: &Shared<Self>, timer: DueTimer) -> Result<Self::Command, Damaged>;
}

/// A timer that is due.
#[derive(Debug, Clone)]
pub struct DueTimer {
    /// Its key, which is gone when it is done.
    pub key: Bytes,
}

impl DueTimer {
    /// When it was due, and what its domain calls it.
    pub fn parts(&self) -> (Millis, &[u8]) {
        keys::parse_timer(&self.key).unwrap_or((Millis(0), &[]))
    }

    /// When it was due.
    pub fn at(&self) -> Millis {
        self.parts().0
    }

    /// What its domain calls it.
    pub fn name(&self) -> &[u8] {
        self.parts().1
    }
}

/// What is known of a timer by its name alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimerTraits {
    /// When it was worked off once it is gone; others may stay for their next slice.
    pub fires_once: bool,
    /// It is one of many slices of something large, which can wait a little.
    pub is_patient: bool,
    /// What it asks for must be looked up.
    pub reads: bool,
}

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
pub async fn run<D: TimerHandler>(shared: Arc<Shared<D>>, clock: Arc<dyn Clock>) {
    // Entries before this are done: looking past their remains would grow slow.
    let mut since = Millis(0);
    let mut ahead = TimerLookahead::new(fires_once::<D>);
    // Where to go on after what could not be done: it must not keep others from their turn.
    let mut past: Option<Bytes> = None;
    let mut failing = FailingTimers::default();
    loop {
        if shared.lock().stopping {
            return;
        }
        let now = clock.now();
        let newly = shared.timers.newest();
        ahead.note(newly);
        since = since.min(newly);
        let reader = shared.state.reader();
        let failed = past.is_some();
        let from = past.take().unwrap_or_else(|| keys::timers_from(since));
        let mut more = None;
        let worked = match look_further::<D>(&mut ahead, &reader, &from, now) {
            Ok(found) => {
                more = found.last().filter(|_| found.len() >= TIMER_SLICE).map(|it| above(it));
                work(&shared, &clock, &mut failing, found, now).await
            }
            Err(error) => Err(Damaged::from(error).into()),
        };
        let wake_at = match worked {
            Err(Error::Unavailable(Unavailable::Stopping)) => return,
            Err(error) => {
                tracing::warn!(%error, "an obligation could not be fulfilled; trying again");
                ahead.forget();
                past = more.filter(|_| error != Error::Unavailable(Unavailable::DiskFull));
                now + PAUSE_MS
            }
            Ok(_) if failed => {
                past = more;
                now + PAUSE_MS
            }
            Ok(WorkResult::More { since: done }) => {
                since = done;
                continue;
            }
            Ok(WorkResult::Until { next, left }) => {
                since = left.unwrap_or(now);
                // An index that cannot be read is complained about when it is looked at.
                let then = ahead.next(&reader, now).unwrap_or(now + PAUSE_MS);
                if left.is_some() {
                    ahead.forget();
                }
                next.min(then)
            }
        };
        // Whoever sleeps keeps nobody's view of the past.
        drop(reader);
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
async fn sleep<D: Domains>(shared: &Shared<D>, clock: &dyn Clock, mut wake_at: Millis) -> Millis {
    let mut since = Millis::NEVER;
    loop {
        shared.timers.looks_again_at(wake_at);
        let newly = shared.timers.newest();
        since = since.min(newly);
        wake_at = wake_at.min(newly);
        if wake_at <= clock.now() || shared.lock().stopping {
            break;
        }
        tokio::select! {
            biased;
            () = shared.timers.ring.notified() => {}
            () = clock.sleep_until(wake_at) => {}
        }
    }
    shared.timers.looks_again_at(Millis::NEVER);
    since
}

/// Goes through the whole index, in slices: each timer with its value.
pub fn walk(reader: &Reader, mut each: impl FnMut(Millis, &[u8], &Bytes)) -> Result<(), Damaged> {
    let mut pages = Pages::new(keys::timers_from(Millis(0)), keys::timers_end(), TIMER_SLICE);
    while let Some(found) = pages.next(reader)? {
        for (key, value) in &found {
            if let Some((at, timer)) = keys::parse_timer(key) {
                each(at, timer, value);
            }
        }
    }
    Ok(())
}

fn traits<D: TimerHandler>(key: &[u8]) -> Option<TimerTraits> {
    keys::parse_timer(key).map(|(_, timer)| D::timer_traits(timer))
}

/// Whether an entry is gone when it is done.
pub fn fires_once<D: TimerHandler>(key: &[u8]) -> bool {
    traits::<D>(key).is_some_and(|traits| traits.fires_once)
}

/// Whether it is one of many slices of something large, which can wait a little.
fn is_patient<D: TimerHandler>(key: &[u8]) -> bool {
    traits::<D>(key).is_some_and(|traits| traits.is_patient)
}

/// The same, past those that can wait: they must not hide others.
fn look_further<D: TimerHandler>(
    ahead: &mut TimerLookahead,
    reader: &Reader,
    from: &Bytes,
    now: Millis,
) -> Result<Vec<Bytes>, TableError> {
    let mut found = ahead.look(reader, from, now)?;
    let due = keys::timers_after(now);
    for _ in 0..FURTHER_SLICES {
        let is_due = |key: &Bytes| keys::parse_timer(key).is_some_and(|(at, _)| at <= now);
        let patient = found.iter().filter(|key| is_due(key) && is_patient::<D>(key));
        let Some(last) = found.last() else { break };
        if found.len() < TIMER_SLICE || patient.count() * 2 < found.len() {
            break;
        }
        let more = reader.keys(&above(last), &due, TIMER_SLICE)?;
        if more.is_empty() {
            break;
        }
        found.extend(more);
    }
    Ok(found)
}

/// When all that a look at the index has found is done, there is nothing left before this. Timers
/// are gone then; what is done in slices may be there again.
pub fn done_until(found: &[Bytes], now: Millis, fires_once: fn(&[u8]) -> bool) -> Millis {
    let at = |key: &Bytes| keys::parse_timer(key).map(|(at, _)| at);
    let may_stay = found.iter().find(|key| !fires_once(key));
    let last = found.last().filter(|_| found.len() >= TIMER_SLICE);
    may_stay.into_iter().chain(last).filter_map(at).chain([now]).min().unwrap_or(now)
}

/// What came of working.
enum WorkResult {
    /// There may be more to do now, but nothing before this.
    More { since: Millis },
    /// Nothing until then; something was left undone since another time.
    Until { next: Millis, left: Option<Millis> },
}

/// Fulfils what is due, many at once: one batch may hold all of them.
async fn work<D: TimerHandler>(
    shared: &Arc<Shared<D>>,
    clock: &Arc<dyn Clock>,
    failing: &mut FailingTimers,
    found: Vec<Bytes>,
    now: Millis,
) -> Result<WorkResult, Error<Never>> {
    let (mut next, mut left) = (Millis::NEVER, None);
    let done = done_until(&found, now, fires_once::<D>);
    let mut spreading = 0;
    let mut working = Working { shared, clock, failing, tasks: JoinSet::new(), failed: None };
    let mut is_idle = true;
    for key in found {
        if is_patient::<D>(&key) {
            // One of these may be as much work as everything that clients ask for meanwhile: a few
            // at a time, and none while the table lags behind.
            if spreading == SPREADING_MAX || is_pressed(shared) {
                let at = keys::parse_timer(&key).map_or(now, |(at, _)| at);
                (next, left) = (now + PRESSED_PAUSE_MS, left.or(Some(at)));
                continue;
            }
            spreading += 1;
        }
        is_idle = false;
        working.begin(key).await;
    }
    if is_idle {
        return Ok(WorkResult::Until { next, left });
    }
    while !working.tasks.is_empty() {
        working.join().await;
    }
    let since = left.map_or(done, |left: Millis| left.min(done));
    working.failed.map_or(Ok(WorkResult::More { since }), Err)
}

/// Timers that are being fulfilled.
struct Working<'a, D: TimerHandler> {
    shared: &'a Arc<Shared<D>>,
    clock: &'a Arc<dyn Clock>,
    failing: &'a mut FailingTimers,
    tasks: JoinSet<(Bytes, Result<(), Error<Never>>)>,
    /// Why one of them was not fulfilled, and is to be tried again.
    failed: Option<Error<Never>>,
}

impl<D: TimerHandler> Working<'_, D> {
    /// One that cannot be read must not keep the others from their turn.
    async fn begin(&mut self, key: Bytes) {
        let unreadable = || Damaged::new("an entry of the due index cannot be read");
        let timer = keys::parse_timer(&key).map(|_| DueTimer { key: key.clone() });
        let command = match timer.ok_or_else(unreadable) {
            Ok(timer) => command_for(self.shared, timer).await,
            Err(unreadable) => Err(unreadable),
        };
        let command = match command {
            Ok(command) => command,
            Err(damaged) => return self.ended(key, Err(damaged.into())).await,
        };
        if self.tasks.len() >= AT_ONCE_MAX {
            self.join().await;
        }
        let (shared, clock) = (self.shared.clone(), self.clock.clone());
        self.tasks.spawn(async move {
            let outcome = submit(&shared, clock.as_ref(), &command).await;
            (key, outcome)
        });
    }

    /// Waits for one of them.
    async fn join(&mut self) {
        if let Some(Ok((key, outcome))) = self.tasks.join_next().await {
            self.ended(key, outcome).await;
        }
    }

    /// One that can never be fulfilled is set aside; others are tried again.
    async fn ended(&mut self, key: Bytes, outcome: Result<(), Error<Never>>) {
        let Err(error) = outcome else { return self.failing.forget(&key) };
        if !self.failing.is_hopeless(&key, &error, self.clock.now()) {
            self.failed.get_or_insert(error);
            return;
        }
        let command = SetTimerAside { key };
        match submit(self.shared, self.clock.as_ref(), &command).await {
            Ok(was_there) => {
                self.failing.forget(&command.key);
                if was_there {
                    command.report(&self.shared.counters, &error);
                }
            }
            Err(error) => {
                self.failed.get_or_insert(error);
            }
        }
    }
}

/// What a timer asks for; where much is to be read, nobody waits behind that.
async fn command_for<D: TimerHandler>(
    shared: &Arc<Shared<D>>,
    timer: DueTimer,
) -> Result<D::Command, Damaged> {
    if !D::timer_traits(timer.name()).reads {
        return D::timer_command(shared, timer);
    }
    let shared = shared.clone();
    task::blocking(move || D::timer_command(&shared, timer)).await
}

/// Whether the table lags so far behind that whatever can wait should.
fn is_pressed<D: Domains>(shared: &Shared<D>) -> bool {
    shared.state.overlay_bytes().total() > shared.overlay_limits.pressed
}
