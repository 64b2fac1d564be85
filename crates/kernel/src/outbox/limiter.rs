//! What holds sources back beside what they have shown that they can take: limits that their owners
//! have set, and one that the sources of a tenant share.
//!
//! A source that is held back is in nobody's way: it has no turn until a time has come, one of its
//! own attempts has ended, or one of its tenant's has. What is held back waits as it is, and nothing
//! is counted for it. All of it is in memory alone: after a start every rate begins with its burst.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

use reveille_core::Millis;
use reveille_core::rate::{Rate, RateMeter};

/// Limits of one source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SourceLimits {
    /// Attempts under way at most; none is as good as one.
    pub concurrency: Option<usize>,
    /// How often attempts begin at most.
    pub rate: Option<Rate>,
    /// Whether its attempts count among those of which a tenant has only so many under way.
    pub per_tenant: bool,
}

/// Why a source has no turn although it has attempts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hold {
    /// Until a time has come; under this key.
    Rate(TimeKey),
    /// Until one of its own attempts has ended.
    Concurrency,
    /// Until one of its tenant's has.
    Tenant,
}

/// A time, and a number that no other source has there.
pub(super) type TimeKey = (Millis, u64);

/// Attempts in memory that wait for a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HeldBack {
    pub rate: usize,
    pub concurrency: usize,
    pub tenant: usize,
}

/// The limits of all sources that have any.
pub(super) struct Limiter<S> {
    limited: HashMap<S, Limited, foldhash::fast::RandomState>,
    /// Sources that wait for a time.
    by_time: BTreeMap<TimeKey, S>,
    number: u64,
    /// The latest time that anybody has told.
    now: Millis,
    /// When whoever sends will look again by itself.
    looks_again_at: Millis,
    /// How many attempts of sources that share this limit a tenant may have under way.
    per_tenant_max: usize,
    held: HeldBack,
}

struct Limited {
    limits: SourceLimits,
    meter: RateMeter,
}

impl<S: Copy + Eq + Hash> Limiter<S> {
    pub(super) fn new(per_tenant_max: usize) -> Limiter<S> {
        Limiter {
            limited: HashMap::default(),
            by_time: BTreeMap::new(),
            number: 0,
            now: Millis(0),
            looks_again_at: Millis::NEVER,
            per_tenant_max,
            held: HeldBack::default(),
        }
    }

    pub(super) fn set_per_tenant_max(&mut self, most: usize) {
        self.per_tenant_max = most.max(1);
    }

    /// The limits of a source from now on.
    pub(super) fn set(&mut self, source: S, limits: SourceLimits) {
        if limits == SourceLimits::default() {
            self.limited.remove(&source);
            return;
        }
        let new = || Limited { limits, meter: RateMeter::default() };
        let limited = self.limited.entry(source).or_insert_with(new);
        limited.limits = limits;
        if let Some(rate) = limits.rate {
            limited.meter.changed_to(rate);
        }
    }

    pub(super) fn limits(&self, source: S) -> SourceLimits {
        self.limited.get(&source).map_or_else(SourceLimits::default, |it| it.limits)
    }

    /// What holds a source back that has so many attempts under way, and its tenant so many of those
    /// that share a limit.
    pub(super) fn hold(&mut self, source: S, under_way: usize, of_tenant: usize) -> Option<Hold> {
        let Limited { limits, meter } = self.limited.get(&source)?;
        if limits.concurrency.is_some_and(|most| under_way >= most.max(1)) {
            return Some(Hold::Concurrency);
        }
        let next = limits.rate.map(|rate| meter.next_at(rate)).filter(|at| *at > self.now);
        if let Some(at) = next {
            self.number += 1;
            return Some(Hold::Rate((at, self.number)));
        }
        (limits.per_tenant && of_tenant >= self.per_tenant_max).then_some(Hold::Tenant)
    }

    /// A source that is not held back has an attempt made.
    pub(super) fn begin(&mut self, source: S) {
        let now = self.now;
        if let Some(Limited { limits: SourceLimits { rate: Some(rate), .. }, meter }) =
            self.limited.get_mut(&source)
        {
            // It was looked whether it may.
            let _ = meter.try_take(*rate, now);
        }
    }

    /// Nothing was sent.
    pub(super) fn give_back(&mut self, source: S) {
        if let Some(limited) = self.limited.get_mut(&source) {
            limited.meter.give_back();
        }
    }

    /// Whether a tenant with so many under way may have another one of those that share a limit.
    pub(super) fn has_room_for_tenant(&self, of_tenant: usize) -> bool {
        of_tenant < self.per_tenant_max
    }

    /// A source with so many attempts is held back.
    pub(super) fn hold_back(&mut self, source: S, hold: Hold, attempts: usize) {
        if let Hold::Rate(key) = hold {
            self.by_time.insert(key, source);
        }
        *self.held_by(hold) += attempts;
    }

    /// It is not any more.
    pub(super) fn let_go(&mut self, hold: Hold, attempts: usize) {
        if let Hold::Rate(key) = hold {
            self.by_time.remove(&key);
        }
        *self.held_by(hold) -= attempts;
    }

    /// A source that is held back has more attempts.
    pub(super) fn grew(&mut self, hold: Hold) {
        *self.held_by(hold) += 1;
    }

    fn held_by(&mut self, hold: Hold) -> &mut usize {
        match hold {
            Hold::Rate(_) => &mut self.held.rate,
            Hold::Concurrency => &mut self.held.concurrency,
            Hold::Tenant => &mut self.held.tenant,
        }
    }

    pub(super) fn held(&self) -> HeldBack {
        self.held
    }

    /// It is this late now; time does not go back.
    pub(super) fn pass(&mut self, now: Millis) {
        self.now = self.now.max(now);
    }

    /// A source whose time has come.
    pub(super) fn due(&self) -> Option<S> {
        self.by_time.first_key_value().filter(|((at, _), _)| *at <= self.now).map(|(_, it)| *it)
    }

    /// When the time of the next one has come, for whoever then looks.
    pub(super) fn next_look(&mut self) -> Option<Millis> {
        let next = self.by_time.first_key_value().map(|((at, _), _)| *at);
        self.looks_again_at = next.unwrap_or(Millis::NEVER);
        next
    }

    /// Whether somebody's time comes sooner than whoever sends knows.
    pub(super) fn is_sooner(&self) -> bool {
        self.by_time.first_key_value().is_some_and(|((at, _), _)| *at < self.looks_again_at)
    }

    #[cfg(test)]
    pub(super) fn is_idle(&self) -> bool {
        self.by_time.is_empty() && self.held == HeldBack::default()
    }
}
