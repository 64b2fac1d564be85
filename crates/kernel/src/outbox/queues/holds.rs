//! Sources that a limit holds back, and those that it lets go.

use reveille_core::{Millis, Tenant};

use super::super::limiter::{Hold, SourceLimits};
use super::{Attempt, Line, Queues};
use crate::limits::{WAITING_PER_LIMITED_SOURCE, WAITING_PER_SOURCE};

/// Sources whose time has come that get their turns at once.
const DUE_MAX: usize = 256;

impl<A: Attempt> Queues<A> {
    /// The limits of a source from now on, whatever waits or is under way.
    pub(in crate::outbox) fn set_limits(&mut self, source: A::Source, limits: SourceLimits) {
        let was_per_tenant = self.limiter.limits(source).per_tenant;
        self.limiter.set(source, limits);
        let Some(waiting) = self.sources.get(&source) else { return };
        let (tenant, under_way) = (waiting.tenant.clone(), waiting.under_way);
        let turns = self.tenants.entry(tenant.clone()).or_default();
        match (was_per_tenant, limits.per_tenant) {
            (false, true) => turns.limited += under_way,
            (true, false) => turns.limited -= under_way,
            _ => {}
        }
        self.let_go(source);
        self.offer(source, &tenant);
        self.release(&tenant);
        self.note_refill(source, &tenant);
        self.forget(source, &tenant);
    }

    /// It is this late now: whoever waited for that has a turn.
    pub(in crate::outbox) fn pass(&mut self, now: Millis) {
        self.limiter.pass(now);
        for _ in 0..DUE_MAX {
            let Some(source) = self.limiter.due() else { return };
            self.let_go(source);
            let tenant = self.sources.get(&source).map(|it| it.tenant.clone());
            if let Some(tenant) = tenant {
                self.offer(source, &tenant);
            }
        }
    }

    /// When somebody's time comes, for whoever then looks.
    pub(in crate::outbox) fn next_look(&mut self) -> Option<Millis> {
        self.limiter.next_look()
    }

    /// How many attempts of a source may wait in memory.
    pub(super) fn waiting_max(&self, source: A::Source) -> usize {
        let is_limited = self.limiter.limits(source) != SourceLimits::default();
        let most = if is_limited { WAITING_PER_LIMITED_SOURCE } else { WAITING_PER_SOURCE };
        most.min(self.waiting_per_source)
    }

    /// A source that is in no line waits for a limit.
    pub(super) fn hold_back(&mut self, source: A::Source, hold: Hold) {
        let Some(waiting) = self.sources.get_mut(&source) else { return };
        waiting.line = Line::Held(hold);
        self.limiter.hold_back(source, hold, waiting.attempts.len());
        if hold == Hold::Tenant
            && let Some(turns) = self.tenants.get_mut(&waiting.tenant)
        {
            turns.held.push_back(source);
        }
    }

    /// A source that is held back is in no line any more.
    pub(super) fn let_go(&mut self, source: A::Source) {
        let Some(waiting) = self.sources.get_mut(&source) else { return };
        let Line::Held(hold) = waiting.line else { return };
        waiting.line = Line::None;
        self.limiter.let_go(hold, waiting.attempts.len());
        if hold == Hold::Tenant
            && let Some(turns) = self.tenants.get_mut(&waiting.tenant)
            && let Some(at) = turns.held.iter().position(|it| *it == source)
        {
            turns.held.remove(at);
        }
    }

    /// While a tenant may have another attempt of those of which it has only so many, a source that
    /// waits for that has a turn: one too many waits again.
    pub(super) fn release(&mut self, tenant: &Tenant) {
        while let Some(turns) = self.tenants.get(tenant)
            && self.limiter.has_room_for_tenant(turns.limited)
            && let Some(source) = turns.held.front().copied()
        {
            self.let_go(source);
            self.offer(source, tenant);
            if self.sources.get(&source).is_some_and(|it| it.line == Line::Turns) {
                return;
            }
        }
    }

    pub(in crate::outbox) fn set_per_tenant_max(&mut self, most: usize) {
        self.limiter.set_per_tenant_max(most);
    }
}
