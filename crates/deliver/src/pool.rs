//! The pool: lines that wait for the next request to the same origin, and how many may be in use.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::courier::SendError;
use crate::destination::Origin;
use crate::line::Line;
use crate::resolve::Now;

#[cfg(test)]
mod tests;

/// How many lines wait per origin, and altogether.
const IDLE_PER_ORIGIN_MAX: usize = 1_024;
const IDLE_MAX: usize = 4_096;

/// How many requests are under way per origin, and altogether; the next ones wait. Together with
/// the lines that wait this bounds the number of sockets.
const BUSY_PER_ORIGIN_MAX: usize = 8_192;
const BUSY_MAX: usize = 16_384;

/// How long a line waits. Servers commonly close after 60 s, load balancers and functions earlier.
const IDLE_MS: u64 = 15_000;

/// How often the whole pool is looked through for lines that waited too long.
const SWEEP_MS: u64 = 1_000;

const _: () = assert!(IDLE_PER_ORIGIN_MAX <= IDLE_MAX && BUSY_PER_ORIGIN_MAX <= BUSY_MAX);
const _: () = assert!(SWEEP_MS < IDLE_MS);

/// Lines by origin.
pub(crate) struct Pool {
    waiting: Mutex<Waiting>,
    busy: Arc<Semaphore>,
    now: Now,
}

#[derive(Default)]
struct Waiting {
    /// An origin is here while a line of it waits or a request to it is under way.
    origins: HashMap<Origin, Lines>,
    /// The number of lines in all of them.
    idle: usize,
    swept_ms: u64,
}

struct Lines {
    /// The one that was used last is at the back and is taken first, so that a burst's lines are
    /// left to expire.
    idle: VecDeque<Idle>,
    busy: Arc<Semaphore>,
}

struct Idle {
    line: Line,
    since_ms: u64,
}

/// Leave to have one request under way.
pub(crate) struct Turn {
    _of_origin: OwnedSemaphorePermit,
    _of_all: OwnedSemaphorePermit,
}

impl Pool {
    pub(crate) fn new(now: Now) -> Pool {
        Pool { waiting: Mutex::default(), busy: Arc::new(Semaphore::new(BUSY_MAX)), now }
    }

    /// Waits until another request may be under way. First for its origin: requests that queue for
    /// a slow endpoint must not use up what there is for all.
    pub(crate) async fn turn(&self, origin: &Origin) -> Result<Turn, SendError> {
        let of_origin = self.lock().lines(origin).busy.clone();
        let of_origin = of_origin.acquire_owned().await.map_err(|_| SendError::NoConnection)?;
        let of_all = self.busy.clone().acquire_owned().await;
        let of_all = of_all.map_err(|_| SendError::NoConnection)?;
        Ok(Turn { _of_origin: of_origin, _of_all: of_all })
    }

    /// A line that waits for this origin and is open, as far as is known.
    pub(crate) fn take(&self, origin: &Origin) -> Option<Line> {
        let now_ms = (self.now)();
        loop {
            let mut closed = Vec::new();
            let mut waiting = self.lock();
            waiting.sweep_if_due(now_ms, &mut closed);
            let idle = waiting.pop(origin);
            // Sockets are closed after the lock is let go.
            drop(waiting);
            let Idle { mut line, since_ms } = idle?;
            if !is_expired(since_ms, now_ms) && line.is_open() {
                line.mark_reused();
                return Some(line);
            }
        }
    }

    /// Keeps a line for the next request, or closes it if there are enough.
    pub(crate) fn put(&self, origin: &Origin, mut line: Line) {
        if !line.is_open() {
            return;
        }
        let now_ms = (self.now)();
        let mut closed = Vec::new();
        let mut waiting = self.lock();
        waiting.sweep_if_due(now_ms, &mut closed);
        if waiting.idle < IDLE_MAX {
            let lines = waiting.lines(origin);
            if lines.idle.len() < IDLE_PER_ORIGIN_MAX {
                lines.idle.push_back(Idle { line, since_ms: now_ms });
                waiting.idle += 1;
            }
        }
        drop(waiting);
    }

    /// Closes what waited too long.
    pub(crate) fn sweep(&self) {
        let mut closed = Vec::new();
        let mut waiting = self.lock();
        waiting.sweep((self.now)(), &mut closed);
        drop(waiting);
    }

    pub(crate) fn idle(&self) -> usize {
        self.lock().idle
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiting {
    fn lines(&mut self, origin: &Origin) -> &mut Lines {
        if !self.origins.contains_key(origin) {
            let busy = Arc::new(Semaphore::new(BUSY_PER_ORIGIN_MAX));
            self.origins.insert(origin.clone(), Lines { idle: VecDeque::new(), busy });
        }
        self.origins.get_mut(origin).expect("it was just inserted")
    }

    fn pop(&mut self, origin: &Origin) -> Option<Idle> {
        let idle = self.origins.get_mut(origin)?.idle.pop_back()?;
        self.idle -= 1;
        Some(idle)
    }

    fn sweep_if_due(&mut self, now_ms: u64, closed: &mut Vec<Idle>) {
        if now_ms >= self.swept_ms.saturating_add(SWEEP_MS) {
            self.sweep(now_ms, closed);
        }
    }

    fn sweep(&mut self, now_ms: u64, closed: &mut Vec<Idle>) {
        self.swept_ms = now_ms;
        self.origins.retain(|_, lines| {
            while lines.idle.front().is_some_and(|idle| is_expired(idle.since_ms, now_ms)) {
                closed.extend(lines.idle.pop_front());
            }
            // Everybody who has or waits for a turn holds the semaphore too.
            !lines.idle.is_empty() || Arc::strong_count(&lines.busy) > 1
        });
        self.idle -= closed.len();
    }
}

fn is_expired(since_ms: u64, now_ms: u64) -> bool {
    now_ms.saturating_sub(since_ms) >= IDLE_MS
}
