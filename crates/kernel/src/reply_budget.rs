//! How many bytes of answers may be in memory at once, tenant by tenant.
//!
//! Whatever waits for a client to take it is counted here: pieces of streams, pages, what live
//! readers share. A tenant may hold as much as is free besides: one alone has half of everything,
//! the next one half of the rest, so that whoever comes with little always finds room. Who does
//! not find any waits for its turn among its own tenant's; nobody else waits for that.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use reveille_core::Tenant;
use tokio::sync::oneshot;

use crate::doors::Clock;
use crate::error::Unavailable;
use crate::limits::{REPLIES_BYTES, ROOM_WAIT};

/// Waiters that have gone away are looked for after so many more have come.
const SWEEP_EVERY: usize = 1_024;

/// The bytes that answers may take.
pub struct ReplyBudget {
    limit: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    held: usize,
    /// Those that hold something or wait for it.
    shares: HashMap<Tenant, Share>,
    /// Those that wait.
    waiting: HashSet<Tenant>,
}

#[derive(Default)]
struct Share {
    held: usize,
    waiting: VecDeque<Waiter>,
}

struct Waiter {
    bytes: usize,
    grant: oneshot::Sender<ReplyPermit>,
}

/// A tenant's place in the budget.
#[derive(Clone)]
pub struct ReplyRoom {
    budget: Arc<ReplyBudget>,
    tenant: Tenant,
}

/// The right to hold so many bytes of answers in memory, given back when dropped.
pub struct ReplyPermit {
    room: ReplyRoom,
    bytes: usize,
}

impl Default for ReplyBudget {
    fn default() -> ReplyBudget {
        ReplyBudget::new(REPLIES_BYTES)
    }
}

impl ReplyBudget {
    pub fn new(limit: usize) -> ReplyBudget {
        ReplyBudget { limit, state: Mutex::default() }
    }

    /// The bytes that are held now.
    pub fn held(&self) -> usize {
        self.lock().held
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn has_room(&self, limit: usize, share_held: usize, bytes: usize) -> bool {
        share_held + bytes <= limit.saturating_sub(self.held)
    }

    fn count(&mut self, tenant: &Tenant, bytes: usize) {
        self.held += bytes;
        match self.shares.get_mut(tenant) {
            Some(share) => share.held += bytes,
            None => {
                let share = Share { held: bytes, ..Share::default() };
                self.shares.insert(tenant.clone(), share);
            }
        }
    }

    fn uncount(&mut self, tenant: &Tenant, bytes: usize) {
        self.held -= bytes.min(self.held);
        if let Some(share) = self.shares.get_mut(tenant) {
            share.held -= bytes.min(share.held);
        }
        self.forget_if_idle(tenant);
    }

    fn forget_if_idle(&mut self, tenant: &Tenant) {
        let Some(share) = self.shares.get(tenant).filter(|share| share.waiting.is_empty()) else {
            return;
        };
        if share.held == 0 {
            self.shares.remove(tenant);
        }
        self.waiting.remove(tenant);
    }

    /// The first of a tenant's waiters that is still there, if there is room for it now.
    fn next_waiter(&mut self, limit: usize, tenant: &Tenant) -> Option<Waiter> {
        let held = self.held;
        let share = self.shares.get_mut(tenant)?;
        while share.waiting.front().is_some_and(|first| first.grant.is_closed()) {
            share.waiting.pop_front();
        }
        let bytes = share.waiting.front()?.bytes;
        let free = limit.saturating_sub(held);
        (share.held + bytes <= free).then(|| share.waiting.pop_front()).flatten()
    }
}

impl ReplyRoom {
    pub fn new(budget: &Arc<ReplyBudget>, tenant: &Tenant) -> ReplyRoom {
        ReplyRoom { budget: budget.clone(), tenant: tenant.clone() }
    }

    /// Waits until so much may be held. Whoever waits here must hold nothing of the budget that
    /// only its own progress gives back.
    pub async fn acquire(&self, bytes: usize) -> ReplyPermit {
        // What is larger than the budget lets one have takes as much as one can have.
        let bytes = bytes.min(self.budget.limit / 2);
        let granted = {
            let mut state = self.budget.lock();
            if let Some(permit) = self.take(&mut state, bytes) {
                return permit;
            }
            let (grant, granted) = oneshot::channel();
            let waiting = &mut state.shares.entry(self.tenant.clone()).or_default().waiting;
            if waiting.len() % SWEEP_EVERY == SWEEP_EVERY - 1 {
                waiting.retain(|waiter| !waiter.grant.is_closed());
            }
            waiting.push_back(Waiter { bytes, grant });
            state.waiting.insert(self.tenant.clone());
            granted
        };
        // The sender is dropped with the budget alone, which this holds.
        granted.await.unwrap_or_else(|_| self.count(bytes))
    }

    /// The same for those who answer with a refusal rather than wait for long.
    pub async fn admit(&self, bytes: usize, clock: &dyn Clock) -> Result<ReplyPermit, Unavailable> {
        if let Some(permit) = self.try_acquire(bytes.min(self.budget.limit / 2)) {
            return Ok(permit);
        }
        let wait = u64::try_from(ROOM_WAIT.as_millis()).unwrap_or(u64::MAX);
        tokio::select! {
            biased;
            permit = self.acquire(bytes) => Ok(permit),
            () = clock.sleep_until(clock.now() + wait) => Err(Unavailable::Busy),
        }
    }

    /// The right to hold so much, if there is room now.
    pub fn try_acquire(&self, bytes: usize) -> Option<ReplyPermit> {
        self.take(&mut self.budget.lock(), bytes)
    }

    /// The right to hold so much, if that leaves most of what is free: for what is good to have.
    pub fn try_acquire_spare(&self, bytes: usize) -> Option<ReplyPermit> {
        let mut state = self.budget.lock();
        let held = state.shares.get(&self.tenant).map_or(0, |share| share.held);
        let is_spare = state.has_room(self.budget.limit, held * 4, bytes * 4);
        is_spare.then(|| self.take(&mut state, bytes)).flatten()
    }

    /// Whether somebody of this tenant waits for room.
    pub fn is_short(&self) -> bool {
        self.budget.lock().waiting.contains(&self.tenant)
    }

    /// Counts what is in memory already, whether there is room or not: others wait for it then.
    pub fn count(&self, bytes: usize) -> ReplyPermit {
        self.budget.lock().count(&self.tenant, bytes);
        ReplyPermit { room: self.clone(), bytes }
    }

    /// Counts these bytes for as long as anybody holds a part of them.
    pub fn hold(&self, bytes: Bytes) -> Bytes {
        self.count(bytes.len()).attach(bytes)
    }

    fn take(&self, state: &mut State, bytes: usize) -> Option<ReplyPermit> {
        let share = state.shares.get(&self.tenant);
        // Nobody overtakes those who wait.
        if share.is_some_and(|share| !share.waiting.is_empty()) {
            return None;
        }
        let held = share.map_or(0, |share| share.held);
        if !state.has_room(self.budget.limit, held, bytes) {
            return None;
        }
        state.count(&self.tenant, bytes);
        Some(ReplyPermit { room: self.clone(), bytes })
    }

    /// Gives bytes back, and to those who wait for some.
    fn release(&self, bytes: usize) {
        let mut granted = Vec::new();
        {
            let mut state = self.budget.lock();
            state.uncount(&self.tenant, bytes);
            let waiting: Vec<Tenant> = state.waiting.iter().cloned().collect();
            for tenant in waiting {
                while let Some(waiter) = state.next_waiter(self.budget.limit, &tenant) {
                    state.count(&tenant, waiter.bytes);
                    let room = ReplyRoom { budget: self.budget.clone(), tenant: tenant.clone() };
                    granted.push((waiter.grant, ReplyPermit { room, bytes: waiter.bytes }));
                }
                state.forget_if_idle(&tenant);
            }
        }
        for (grant, permit) in granted {
            // Whoever has gone away meanwhile gives it back.
            let _ = grant.send(permit);
        }
    }
}

impl ReplyPermit {
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Gives back what is not needed.
    pub fn shrink_to(&mut self, bytes: usize) {
        if bytes < self.bytes {
            self.room.release(self.bytes - bytes);
            self.bytes = bytes;
        }
    }

    /// Takes another one in.
    pub fn join(&mut self, mut other: ReplyPermit) {
        self.bytes += std::mem::take(&mut other.bytes);
    }

    /// A part of it as a permit of its own.
    pub fn split(&mut self, bytes: usize) -> ReplyPermit {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        ReplyPermit { room: self.room.clone(), bytes }
    }

    /// Has these bytes carry the permit: it is given back when nobody holds a part of them.
    pub fn attach(self, bytes: Bytes) -> Bytes {
        Bytes::from_owner(Held { bytes, _permit: self })
    }
}

impl Drop for ReplyPermit {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.room.release(self.bytes);
        }
    }
}

impl fmt::Debug for ReplyPermit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReplyPermit").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

impl fmt::Debug for ReplyRoom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReplyRoom").field("tenant", &self.tenant).finish_non_exhaustive()
    }
}

struct Held {
    bytes: Bytes,
    _permit: ReplyPermit,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    fn room(budget: &Arc<ReplyBudget>, tenant: &str) -> ReplyRoom {
        ReplyRoom::new(budget, &Tenant::parse(tenant).unwrap())
    }

    fn poll<F: Future>(future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
        future.poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn whoever_holds_much_leaves_room_for_others() {
        let budget = Arc::new(ReplyBudget::new(100));
        let (loud, quiet) = (room(&budget, "loud"), room(&budget, "quiet"));
        let held: Vec<_> = std::iter::from_fn(|| loud.try_acquire(10)).collect();
        assert_eq!(held.len(), 5);
        assert!(quiet.try_acquire(20).is_some());
        assert!(quiet.try_acquire_spare(20).is_none());
        assert!(quiet.try_acquire_spare(10).is_some());
        drop(held);
        assert_eq!(budget.held(), 0);
        assert!(budget.lock().shares.is_empty());
    }

    #[test]
    fn those_who_wait_are_served_in_order_and_by_their_own_tenant() {
        let budget = Arc::new(ReplyBudget::new(100));
        let (loud, quiet) = (room(&budget, "loud"), room(&budget, "quiet"));
        let first = loud.try_acquire(50).unwrap();
        let (mut second, mut third) = (pin!(loud.acquire(30)), pin!(loud.acquire(5)));
        assert!(poll(second.as_mut()).is_pending());
        assert!(poll(third.as_mut()).is_pending());
        assert!(loud.try_acquire(1).is_none(), "nobody overtakes");
        assert!(loud.is_short() && !quiet.is_short());
        drop(quiet.try_acquire(10).unwrap());
        assert!(poll(third.as_mut()).is_pending());
        drop(first);
        let Poll::Ready(second) = poll(second.as_mut()) else { panic!("no room") };
        assert!(poll(third.as_mut()).is_ready());
        assert!(!loud.is_short());
        drop(second);
    }

    #[test]
    fn whoever_went_away_keeps_nobody_waiting() {
        let budget = Arc::new(ReplyBudget::new(100));
        let room = room(&budget, "loud");
        let first = room.try_acquire(50).unwrap();
        {
            let mut gone = pin!(room.acquire(40));
            assert!(poll(gone.as_mut()).is_pending());
        }
        let mut next = pin!(room.acquire(50));
        assert!(poll(next.as_mut()).is_pending());
        drop(first);
        let Poll::Ready(permit) = poll(next.as_mut()) else { panic!("no room") };
        assert_eq!((permit.bytes(), budget.held()), (50, 50));
    }

    #[test]
    fn bytes_are_counted_until_the_last_part_is_gone() {
        let budget = Arc::new(ReplyBudget::new(100));
        let room = room(&budget, "loud");
        let mut permit = room.try_acquire(40).unwrap();
        permit.shrink_to(30);
        let bytes = permit.split(10).attach(Bytes::from_static(b"0123456789"));
        drop(permit);
        let part = bytes.slice(3..5);
        drop(bytes);
        assert_eq!((budget.held(), &*part), (10, &b"34"[..]));
        drop(part);
        assert_eq!(budget.held(), 0);
        drop(room.hold(Bytes::from_static(b"over")));
        assert_eq!(budget.held(), 0);
    }
}
