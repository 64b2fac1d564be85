//! Who may have names looked for: a number for the process, which tenants share.
//!
//! A tenant may have another lookup under way while it has fewer than are free, so that whoever
//! comes next finds room however slow the names of others are; those who wait take turns by tenant.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

/// With fewer than this that wait nobody is looked for who has gone away.
const FORGET_MIN: usize = 64;

/// The lookups that may be under way.
pub(super) struct LookupPlaces {
    state: Mutex<PlacesState>,
}

struct PlacesState {
    free: usize,
    tenants: HashMap<Arc<str>, TenantLookups>,
    /// Tenants of whom somebody waits, each once.
    turns: VecDeque<Arc<str>>,
}

#[derive(Default)]
struct TenantLookups {
    under_way: usize,
    /// How many wait is bounded by the attempts that may be under way.
    waiting: VecDeque<oneshot::Sender<LookupPlace>>,
    in_turn: bool,
}

/// Leave to look for one name, given back when it is dropped.
pub(super) struct LookupPlace {
    places: Arc<LookupPlaces>,
    /// Whose it is, until it is given back.
    tenant: Option<Arc<str>>,
}

impl LookupPlaces {
    pub(super) fn new(most: usize) -> Arc<LookupPlaces> {
        let state = PlacesState { free: most, tenants: HashMap::new(), turns: VecDeque::new() };
        Arc::new(LookupPlaces { state: Mutex::new(state) })
    }

    /// Waits for a place.
    pub(super) async fn take(self: &Arc<LookupPlaces>, tenant: &Arc<str>) -> LookupPlace {
        let (sender, receiver) = oneshot::channel();
        self.lock().wait(tenant, sender);
        self.grant();
        match receiver.await {
            Ok(place) => place,
            // Whoever waits is not forgotten: its sender is kept until it has been used.
            Err(_) => std::future::pending().await,
        }
    }

    /// Gives places to those whose turn it is. Nobody is told under the lock: whoever has gone away
    /// meanwhile gives its place back.
    fn grant(self: &Arc<LookupPlaces>) {
        loop {
            let Some((tenant, sender)) = self.lock().next() else { return };
            let place = LookupPlace { places: self.clone(), tenant: Some(tenant) };
            if let Err(mut unwanted) = sender.send(place) {
                // Not by dropping it: that would give places away, as we do here.
                unwanted.give_back();
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, PlacesState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PlacesState {
    fn wait(&mut self, tenant: &Arc<str>, sender: oneshot::Sender<LookupPlace>) {
        let lookups = self.tenants.entry(tenant.clone()).or_default();
        // Those who have gone away are looked for when there are twice as many as the last time.
        if lookups.waiting.len() >= FORGET_MIN && lookups.waiting.len().is_power_of_two() {
            lookups.waiting.retain(|it| !it.is_closed());
        }
        lookups.waiting.push_back(sender);
        if !lookups.in_turn {
            lookups.in_turn = true;
            self.turns.push_back(tenant.clone());
        }
    }

    /// Who may look now. Its place is taken.
    fn next(&mut self) -> Option<(Arc<str>, oneshot::Sender<LookupPlace>)> {
        for _ in 0..self.turns.len() {
            let tenant = self.turns.pop_front()?;
            let lookups = self.tenants.get_mut(&tenant)?;
            if lookups.under_way >= self.free {
                self.turns.push_back(tenant);
                continue;
            }
            let sender = lookups.waiting.pop_front();
            lookups.in_turn = !lookups.waiting.is_empty();
            if lookups.in_turn {
                self.turns.push_back(tenant.clone());
            }
            match sender {
                Some(sender) => {
                    lookups.under_way += 1;
                    self.free -= 1;
                    return Some((tenant, sender));
                }
                None => self.forget(&tenant),
            }
        }
        None
    }

    fn give(&mut self, tenant: &Arc<str>) {
        self.free += 1;
        if let Some(lookups) = self.tenants.get_mut(tenant) {
            lookups.under_way -= 1;
        }
        self.forget(tenant);
    }

    /// Whoever has nothing under way and does not wait takes no room.
    fn forget(&mut self, tenant: &Arc<str>) {
        if self.tenants.get(tenant).is_some_and(|it| it.under_way == 0 && !it.in_turn) {
            self.tenants.remove(tenant);
        }
    }
}

impl LookupPlace {
    /// Says whether there was something to be given back.
    fn give_back(&mut self) -> bool {
        let tenant = self.tenant.take();
        tenant.inspect(|tenant| self.places.lock().give(tenant)).is_some()
    }
}

impl Drop for LookupPlace {
    fn drop(&mut self) {
        if self.give_back() {
            self.places.grant();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As many places as a tenant gets without waiting.
    async fn take_all(places: &Arc<LookupPlaces>, tenant: &str) -> Vec<LookupPlace> {
        let tenant = tenant.into();
        let mut taken = Vec::new();
        loop {
            tokio::select! {
                biased;
                place = places.take(&tenant) => taken.push(place),
                () = std::future::ready(()) => return taken,
            }
        }
    }

    #[tokio::test]
    async fn however_many_names_one_tenant_looks_for_another_finds_a_place() {
        let places = LookupPlaces::new(32);
        let loud = take_all(&places, "loud").await;
        assert_eq!(loud.len(), 16);
        let quiet = take_all(&places, "quiet").await;
        assert_eq!(quiet.len(), 8);
        drop((loud, quiet));
        assert!(places.lock().tenants.is_empty() && places.lock().turns.is_empty());
        assert_eq!(places.lock().free, 32);
    }

    #[tokio::test]
    async fn those_who_wait_are_told_and_those_who_have_gone_are_passed_over() {
        let places = LookupPlaces::new(2);
        let first = places.take(&"a".into()).await;
        let tenant = "a".into();
        let mut gone = Box::pin(places.take(&tenant));
        let mut waits = Box::pin(places.take(&tenant));
        for waiting in [&mut gone, &mut waits] {
            tokio::select! {
                biased;
                _ = waiting => panic!("there is no room for it"),
                () = std::future::ready(()) => {}
            }
        }
        drop(gone);
        drop(first);
        let second = waits.await;
        assert_eq!(places.lock().free, 1);
        drop(second);
        assert!(places.lock().tenants.is_empty());
    }
}
