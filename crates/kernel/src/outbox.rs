//! The outbox: attempts that are to be made, in whose turn it is.
//!
//! ```text
//! turns ─▶ a tenant ─▶ turns ─▶ a source ─▶ its attempts
//! ```
//!
//! Nothing here must survive a crash: every attempt also has a timer, and one that is not made is
//! noticed there. A source with more attempts than may wait in memory goes on with those in the
//! state when there is room again.

mod limiter;
mod places;
mod queues;
mod window;

use std::fmt::Debug;
use std::hash::Hash;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use reveille_core::{Millis, Tenant};
use tokio::sync::Notify;

pub use limiter::{HeldBack, SourceLimits};
pub use places::PlacePool;
use queues::Queues;

/// An outbound call that is to be made.
pub trait Attempt: Clone + Debug + PartialEq + Send + Sync + 'static {
    /// What it is about: there are not two alike under way.
    type Key: Clone + Eq + Hash + Send;
    /// Whose attempts are limited together.
    type Source: Copy + Eq + Hash + Send;
    /// Where a source goes on that has more attempts than fit into memory, in their order.
    type Cursor: Copy + Ord + Send;

    fn key(&self) -> Self::Key;
    fn source(&self) -> Self::Source;
    /// Whose it is: tenants take turns, and share the places.
    fn tenant(&self) -> &Tenant;

    /// Which of those about the same thing it is.
    fn number(&self) -> (u64, u32);

    /// Where to go on if there is no room for it; `None` if only its timer can bring it back.
    fn cursor(&self) -> Option<Self::Cursor>;

    /// Whether it is a command of this partition: it takes no place from those that call. All of
    /// one source are alike in this.
    fn is_command(&self) -> bool {
        false
    }

    /// Bytes that it keeps in memory and could do without.
    fn payload_bytes(&self) -> usize;

    /// Lets go of them.
    fn drop_payload(&mut self);
}

/// What became of an attempt that was brought to the outbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PushResult {
    /// It waits for its turn.
    Waits,
    /// It was there already.
    Known,
    /// There is no room for it.
    LeftOut,
}

/// Attempts that wait or are on their way.
pub struct Outbox<A: Attempt> {
    queues: Mutex<Queues<A>>,
    /// There may be something to send.
    pub(crate) ready: Arc<Notify>,
    /// Attempts may have been passed over: they are to be looked for in the state.
    must_recover: AtomicBool,
}

/// What is going on, for those who watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OutboundGauges {
    /// Attempts that wait for their turn.
    pub queued: usize,
    /// Attempts that were sent a moment ago.
    pub quick: usize,
    /// Attempts that have been open for a while.
    pub slow: usize,
    /// Attempts for which there was no room; the due index brings them back.
    pub dropped: u64,
    /// Of those that wait, the ones that wait for a limit.
    pub held: HeldBack,
}

impl<A: Attempt> Default for Outbox<A> {
    fn default() -> Outbox<A> {
        Outbox {
            queues: Mutex::new(Queues::new(4_096)),
            ready: Arc::new(Notify::new()),
            must_recover: AtomicBool::new(false),
        }
    }
}

impl<A: Attempt> Outbox<A> {
    /// Sets how many attempts may be under way, with nobody else to share with.
    pub fn set_concurrency(&self, concurrency: usize) {
        self.join(&PlacePool::new(concurrency, 1));
    }

    /// Shares how many attempts may be under way with the outboxes of other partitions.
    pub fn join(&self, pool: &Arc<PlacePool>) {
        pool.tell(self.ready.clone());
        self.lock().join(pool);
    }

    /// Sets how many attempts of one source may wait in memory; see
    /// [`WAITING_PER_SOURCE`](crate::limits::WAITING_PER_SOURCE).
    pub fn set_waiting_per_source(&self, most: usize) {
        self.lock().set_waiting_per_source(most);
    }

    /// Sets how many attempts of a tenant may be under way, of sources that share this limit.
    pub fn set_per_tenant_max(&self, most: usize) {
        self.lock().set_per_tenant_max(most);
    }

    /// Sets the limits of a source; they hold at once.
    pub fn set_limits(&self, source: A::Source, limits: SourceLimits) {
        self.lock().set_limits(source, limits);
        self.ready.notify_one();
    }

    /// Adds attempts, except those that are there already.
    pub fn push_all(&self, attempts: Vec<A>) {
        if attempts.is_empty() {
            return;
        }
        {
            let mut queues = self.lock();
            for attempt in attempts {
                queues.push(attempt);
            }
        }
        self.ready.notify_one();
    }

    /// Adds an attempt, unless it is there already.
    pub fn push(&self, attempt: A) {
        self.try_push(attempt);
    }

    /// The same; says what became of it.
    pub fn try_push(&self, attempt: A) -> PushResult {
        let pushed = self.lock().push(attempt);
        if pushed == PushResult::Waits {
            self.ready.notify_one();
        }
        pushed
    }

    /// The next attempt to make, if one may be made now.
    pub fn next(&self, now: Millis) -> Option<A> {
        self.next_few(1, now, |_| true).pop()
    }

    /// The next attempts to make, at most so many. Tenants that may not deliver now keep their
    /// turns.
    pub fn next_few(
        &self,
        most: usize,
        now: Millis,
        mut may: impl FnMut(&Tenant) -> bool,
    ) -> Vec<A> {
        let mut queues = self.lock();
        queues.pass(now);
        queues.next_few(most, &mut may)
    }

    /// When a source may go on that waits for its time: whoever sends looks again then.
    pub fn next_look(&self) -> Option<Millis> {
        self.lock().next_look()
    }

    /// What was decided is undone. Attempts of a source that seemed to have ended were passed over,
    /// and would otherwise wait until their leases end.
    pub(crate) fn recover_later(&self) {
        self.must_recover.store(true, Ordering::Release);
        self.ready.notify_one();
    }

    /// Whether attempts are to be looked for in the state; asked by whoever then does.
    pub fn takes_recovery(&self) -> bool {
        self.must_recover.swap(false, Ordering::AcqRel)
    }

    /// A source that may have more in memory, and where to go on.
    pub fn next_refill(&self) -> Option<(A::Source, A::Cursor)> {
        self.lock().next_refill()
    }

    /// An attempt has been open for a while: it makes room for quick ones. Says whether it may go on;
    /// if its tenant holds all the slow places that it may have, it is to be put back.
    pub fn slows(&self, attempt: &A) -> bool {
        let goes_on = self.lock().slows(attempt);
        if goes_on {
            self.ready.notify_one();
        }
        goes_on
    }

    /// An attempt that was begun is not made now and waits again, under the same number. One that was
    /// too slow for the places that there were has a slow one from the beginning the next time.
    pub fn put_back(&self, attempt: A, is_slow: bool) {
        self.lock().put_back(attempt, is_slow);
        self.ready.notify_one();
    }

    /// An answer came, after so long if it was a good one, or none will: the next attempt may be
    /// made, although what came of this one is still to be written down. Returns it, for whoever
    /// made this one to go on with.
    pub fn answered(
        &self,
        attempt: &A,
        took_ms: Option<u64>,
        now: Millis,
        mut may: impl FnMut(&Tenant) -> bool,
    ) -> Option<A> {
        let (next, more) = {
            let mut queues = self.lock();
            queues.answered(attempt, took_ms);
            queues.pass(now);
            (queues.next_few(1, &mut may).pop(), queues.has_more())
        };
        if more {
            self.ready.notify_one();
        }
        next
    }

    /// An attempt has ended, and what came of it is written down.
    pub fn ended(&self, attempt: &A) {
        self.all_ended(std::slice::from_ref(attempt));
    }

    /// The same for several attempts whose answers had come.
    pub fn all_ended(&self, attempts: &[A]) {
        let mut queues = self.lock();
        for attempt in attempts {
            queues.ended(attempt);
        }
        drop(queues);
        self.ready.notify_one();
    }

    /// The numbers of attempts about something that are really on their way.
    pub fn sent(&self, key: &A::Key) -> Vec<(u64, u32)> {
        self.lock().sent(key)
    }

    /// Whether an attempt about something waits for its turn or is on its way.
    pub fn knows(&self, key: &A::Key) -> bool {
        self.lock().knows(key)
    }

    /// Whether an attempt is here, or was left out for want of room and is read again when there is
    /// some: nobody has to bring it.
    pub fn keeps(&self, key: &A::Key, source: A::Source, at: A::Cursor) -> bool {
        let (keeps, more) = {
            let mut queues = self.lock();
            (queues.keeps(key, source, at), queues.has_more())
        };
        if more {
            self.ready.notify_one();
        }
        keeps
    }

    /// What is going on.
    pub fn traffic(&self) -> OutboundGauges {
        self.lock().traffic()
    }

    fn lock(&self) -> MutexGuard<'_, Queues<A>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
