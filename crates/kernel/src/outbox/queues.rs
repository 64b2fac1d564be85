//! Who waits behind whom.
//!
//! ```text
//! waits ─▶ a quick place ─▶ answered
//!              │ open for a second
//!              ├─▶ a slow place, if its tenant may have one more ─▶ answered
//!              └─▶ waits: its source begins in slow places from now on, until it is quick again
//! ```
//!
//! So nobody holds a quick place for longer than a second, and a call is broken off once at most:
//! the next time it has its slow place from the beginning, and all the time that it may take.
//!
//! Attempts that are commands of this partition have places of their own: whatever endpoints do,
//! they wait for nobody who calls, and nobody for them.
//!
//! A source that a limit holds back (`limiter.rs`) is in no line until that lets it go.

mod holds;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use reveille_core::Tenant;

use super::limiter::{Hold, Limiter};
use super::places::{PlacePool, Places};
use super::window::Window;
use super::{Attempt, OutboundGauges, PushResult};
use crate::limits::{
    ATTEMPT_COMMANDS_MAX, OUTBOX_MAX, OUTCOMES_WAITING_MAX, PER_TENANT_MAX, SLOW_AFTER_MS,
    WAITING_PAYLOAD_BYTES, WAITING_PER_SOURCE, WAITING_PER_SOURCE_ALWAYS,
};

/// A tenant may have so many times as many attempts in memory as there is room left.
const SHARE_OF_FREE: usize = 4;
/// Tenants that are looked at to see whether somebody may send.
const LOOK_AHEAD: usize = 8;

type Map<K, V> = HashMap<K, V, foldhash::fast::RandomState>;

/// Everything that waits or is on its way.
pub(super) struct Queues<A: Attempt> {
    quick: Places,
    slow: Places,
    commands: Places,
    /// Sources of commands in the lines of their tenants.
    command_lines: usize,
    /// How many attempts of one source may wait.
    waiting_per_source: usize,
    limiter: Limiter<A::Source>,
    sources: Map<A::Source, SourceQueue<A>>,
    tenants: Map<Tenant, TenantQueue<A>>,
    /// Tenants with something to send, each once.
    turns: VecDeque<Tenant>,
    known: Map<A::Key, Vec<KnownAttempt>>,
    /// Sources that may have more in memory.
    refills: VecDeque<A::Source>,
    payload_bytes: usize,
    /// Attempts that wait and come back by their timers alone, and those that can be read again:
    /// neither takes the other's room.
    timed: usize,
    refillable: usize,
    /// Attempts whose outcome is being written down.
    reporting: usize,
    dropped: u64,
}

/// Attempts of one source.
struct SourceQueue<A: Attempt> {
    tenant: Tenant,
    attempts: VecDeque<A>,
    under_way: usize,
    /// How many may be under way.
    window: Window,
    line: Line,
    /// One of its calls was broken off because there was no slow place for it: until one is answered
    /// soon, the others begin there.
    is_slow: bool,
    /// The first attempt that found no room.
    left_out: Option<A::Cursor>,
    /// Whether its attempts can be read again.
    refills: bool,
    /// Whether they are commands.
    is_command: bool,
}

/// Where a source waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Line {
    /// It has nothing that may be sent.
    None,
    /// Its tenant has it among its turns.
    Turns,
    Held(Hold),
}

/// What one tenant has to send, and what it holds.
struct TenantQueue<A: Attempt> {
    /// Sources with something that may be sent, each once in one of the four.
    sources: VecDeque<A::Source>,
    slow_sources: VecDeque<A::Source>,
    command_sources: VecDeque<A::Source>,
    /// Sources that wait until fewer of those attempts are under way of which it has only so many,
    /// and how many are.
    held: VecDeque<A::Source>,
    limited: usize,
    /// Attempts under way that were sent a moment ago, and that have been open for a while.
    quick: usize,
    slow: usize,
    commands: usize,
    /// Attempts that wait and come back by their timers alone, and those that can be read again.
    timed: usize,
    refillable: usize,
    in_turn: bool,
}

struct KnownAttempt {
    number: (u64, u32),
    stage: Stage,
}

/// How far an attempt has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Waits,
    UnderWay(PlaceKind),
    /// It was answered, and that is being written down.
    Answered,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PlaceKind {
    Quick,
    Slow,
    Command,
}

impl<A: Attempt> Default for TenantQueue<A> {
    fn default() -> TenantQueue<A> {
        TenantQueue {
            sources: VecDeque::new(),
            slow_sources: VecDeque::new(),
            command_sources: VecDeque::new(),
            held: VecDeque::new(),
            limited: 0,
            quick: 0,
            slow: 0,
            commands: 0,
            timed: 0,
            refillable: 0,
            in_turn: false,
        }
    }
}

impl<A: Attempt> TenantQueue<A> {
    fn held(&mut self, kind: PlaceKind) -> &mut usize {
        match kind {
            PlaceKind::Quick => &mut self.quick,
            PlaceKind::Slow => &mut self.slow,
            PlaceKind::Command => &mut self.commands,
        }
    }

    fn is_waiting(&self) -> bool {
        let lines = [&self.sources, &self.slow_sources, &self.command_sources];
        lines.into_iter().any(|line| !line.is_empty())
    }
}

impl<A: Attempt> Queues<A> {
    pub(super) fn new(concurrency: usize) -> Queues<A> {
        Queues {
            quick: Places::alone(concurrency),
            slow: Places::alone(concurrency),
            commands: Places::alone(ATTEMPT_COMMANDS_MAX),
            command_lines: 0,
            waiting_per_source: WAITING_PER_SOURCE,
            limiter: Limiter::new(PER_TENANT_MAX),
            sources: Map::default(),
            tenants: Map::default(),
            turns: VecDeque::new(),
            known: Map::default(),
            refills: VecDeque::new(),
            payload_bytes: 0,
            timed: 0,
            refillable: 0,
            reporting: 0,
            dropped: 0,
        }
    }

    /// Nothing is under way yet.
    pub(super) fn join(&mut self, pool: &Arc<PlacePool>) {
        (self.quick, self.slow) = (pool.quick(), pool.slow());
    }

    pub(super) fn set_waiting_per_source(&mut self, most: usize) {
        self.waiting_per_source = most.max(1);
    }

    pub(super) fn push(&mut self, mut attempt: A) -> PushResult {
        let (key, number, cursor) = (attempt.key(), attempt.number(), attempt.cursor());
        if self.known.get(&key).is_some_and(|all| all.iter().any(|it| it.number == number)) {
            return PushResult::Known;
        }
        let (source, tenant) = (attempt.source(), attempt.tenant().clone());
        let (timed_full, full) = self.is_full_for(&tenant);
        let overfull = self.is_overfull();
        let waiting_max = self.waiting_max(source);
        let waiting = self.sources.entry(source).or_insert_with(|| SourceQueue {
            tenant: tenant.clone(),
            attempts: VecDeque::new(),
            under_way: 0,
            window: if cursor.is_some() { Window::new() } else { Window::wide() },
            line: Line::None,
            is_slow: false,
            left_out: None,
            refills: cursor.is_some(),
            is_command: attempt.is_command(),
        });
        // However many others wait, a source has a few places of its own.
        let few = waiting.attempts.len() < WAITING_PER_SOURCE_ALWAYS && !overfull;
        let crowded = (full && !few) || waiting.attempts.len() >= waiting_max;
        match cursor {
            None if timed_full => {
                self.dropped += 1;
                self.forget(source, &tenant);
                return PushResult::LeftOut;
            }
            None => {}
            // Once one was left out, those after it wait with it: it comes first.
            Some(cursor) if crowded || waiting.left_out.is_some() => {
                waiting.left_out = waiting.left_out.into_iter().chain([cursor]).min();
                self.note_refill(source, &tenant);
                return PushResult::LeftOut;
            }
            Some(_) => {}
        }
        if self.payload_bytes + attempt.payload_bytes() > WAITING_PAYLOAD_BYTES {
            attempt.drop_payload();
        }
        self.payload_bytes += attempt.payload_bytes();
        waiting.attempts.push_back(attempt);
        if let Line::Held(hold) = waiting.line {
            self.limiter.grew(hold);
        }
        *self.waiting_of(&tenant, cursor.is_some()) += 1;
        *self.waiting(cursor.is_some()) += 1;
        let known = KnownAttempt { number, stage: Stage::Waits };
        self.known.entry(key).or_default().push(known);
        self.offer(source, &tenant);
        PushResult::Waits
    }

    /// Whether a tenant has as many attempts in memory as it may have: of those that come back by
    /// their timers alone, and of those that can be read again. However many one has, there is room
    /// for those of another.
    fn is_full_for(&self, tenant: &Tenant) -> (bool, bool) {
        let held = self.tenants.get(tenant).map_or((0, 0), |it| (it.timed, it.refillable));
        let is_full = |held: usize, all: usize| {
            let free = OUTBOX_MAX.saturating_sub(all);
            held > 0 && held >= free.saturating_mul(SHARE_OF_FREE)
        };
        (is_full(held.0, self.timed), is_full(held.1, self.refillable))
    }

    /// Whether there is no room even for the few that every source may have.
    fn is_overfull(&self) -> bool {
        self.refillable >= 4 * OUTBOX_MAX
    }

    /// Attempts of one kind that wait, of all and of one tenant.
    fn waiting(&mut self, refills: bool) -> &mut usize {
        if refills { &mut self.refillable } else { &mut self.timed }
    }

    fn waiting_of(&mut self, tenant: &Tenant, refills: bool) -> &mut usize {
        let turns = self.tenants.entry(tenant.clone()).or_default();
        if refills { &mut turns.refillable } else { &mut turns.timed }
    }

    /// The next attempts, at most so many. Tenants that may not send now, or that hold what they may
    /// have, keep their turns.
    pub(super) fn next_few(&mut self, most: usize, may: &mut dyn FnMut(&Tenant) -> bool) -> Vec<A> {
        let (mut attempts, mut held) = (Vec::new(), Vec::new());
        while attempts.len() < most && self.has_place() {
            let Some(tenant) = self.turns.pop_front() else { break };
            match self.place_for(&tenant).filter(|_| may(&tenant)) {
                Some(kind) => attempts.extend(self.take_turn(tenant, kind)),
                None => held.push(tenant),
            }
        }
        held.into_iter().rev().for_each(|tenant| self.turns.push_front(tenant));
        attempts
    }

    /// Whether there is something else to do: an attempt that may be made, or a source to fill up.
    pub(super) fn has_more(&self) -> bool {
        let mut first = self.turns.iter().take(LOOK_AHEAD);
        let may_send = self.has_place() && first.any(|tenant| self.place_for(tenant).is_some());
        may_send || !self.refills.is_empty() || self.limiter.is_sooner()
    }

    /// Whether anybody may send anything.
    fn has_place(&self) -> bool {
        let may_command = self.command_lines > 0 && self.commands.free() > 0;
        let free = self.quick.free() > 0 || self.slow.free() > 0 || may_command;
        free && self.reporting < OUTCOMES_WAITING_MAX
    }

    /// The place that a tenant's next attempt would have, if it may have one.
    fn place_for(&self, tenant: &Tenant) -> Option<PlaceKind> {
        let turns = self.tenants.get(tenant)?;
        if !turns.command_sources.is_empty() && self.commands.has_room_for(turns.commands) {
            return Some(PlaceKind::Command);
        }
        if !turns.slow_sources.is_empty() && self.slow.has_room_for(turns.slow) {
            return Some(PlaceKind::Slow);
        }
        let may = !turns.sources.is_empty() && self.quick.has_room_for(turns.quick);
        may.then_some(PlaceKind::Quick)
    }

    fn places(&mut self, kind: PlaceKind) -> &mut Places {
        match kind {
            PlaceKind::Quick => &mut self.quick,
            PlaceKind::Slow => &mut self.slow,
            PlaceKind::Command => &mut self.commands,
        }
    }

    /// A tenant's next attempt, in a place of this kind.
    fn take_turn(&mut self, tenant: Tenant, kind: PlaceKind) -> Option<A> {
        self.tenants.get_mut(&tenant)?.in_turn = false;
        // Others may have taken the last place meanwhile.
        let source = match self.places(kind).take() {
            true => self.next_source(&tenant, kind),
            false => {
                self.take_turns(&tenant);
                return None;
            }
        };
        let attempt = source.and_then(|source| self.take_attempt(source, &tenant, kind));
        if attempt.is_none() {
            self.places(kind).give();
        }
        self.take_turns(&tenant);
        attempt
    }

    /// The source whose turn it is within its tenant. Those that have turned out to be slow since
    /// they got in line go to the other one, and those that are held back now to none.
    fn next_source(&mut self, tenant: &Tenant, kind: PlaceKind) -> Option<A::Source> {
        loop {
            let turns = self.tenants.get_mut(tenant)?;
            let source = match kind {
                PlaceKind::Quick => turns.sources.pop_front()?,
                PlaceKind::Slow => turns.slow_sources.pop_front()?,
                PlaceKind::Command => turns.command_sources.pop_front()?,
            };
            self.command_lines -= usize::from(kind == PlaceKind::Command);
            let waiting = self.sources.get_mut(&source)?;
            if kind == PlaceKind::Quick && waiting.is_slow {
                turns.slow_sources.push_back(source);
                continue;
            }
            waiting.line = Line::None;
            let Some(hold) = self.limiter.hold(source, waiting.under_way, turns.limited) else {
                return Some(source);
            };
            self.hold_back(source, hold);
            // The place that it was let go for is for the next one.
            if hold != Hold::Tenant {
                self.release(tenant);
            }
        }
    }

    fn take_attempt(&mut self, source: A::Source, tenant: &Tenant, kind: PlaceKind) -> Option<A> {
        let waiting = self.sources.get_mut(&source)?;
        let attempt = waiting.attempts.pop_front()?;
        waiting.under_way += 1;
        let refills = waiting.refills;
        self.limiter.begin(source);
        let is_limited = self.limiter.limits(source).per_tenant;
        *self.waiting(refills) -= 1;
        *self.waiting_of(tenant, refills) -= 1;
        let turns = self.tenants.entry(tenant.clone()).or_default();
        *turns.held(kind) += 1;
        turns.limited += usize::from(is_limited);
        self.payload_bytes -= attempt.payload_bytes();
        if let Some(stage) = self.stage(&attempt) {
            *stage = Stage::UnderWay(kind);
        }
        self.offer(source, tenant);
        self.note_refill(source, tenant);
        Some(attempt)
    }

    fn stage(&mut self, attempt: &A) -> Option<&mut Stage> {
        let number = attempt.number();
        let known = self.known.get_mut(&attempt.key())?;
        known.iter_mut().find(|it| it.number == number).map(|it| &mut it.stage)
    }

    /// A source with something that may be sent gets a turn within its tenant, and the tenant one
    /// among all.
    fn offer(&mut self, source: A::Source, tenant: &Tenant) {
        let Some(waiting) = self.sources.get_mut(&source) else {
            return;
        };
        let turns = self.tenants.entry(tenant.clone()).or_default();
        let may_send = !waiting.attempts.is_empty() && waiting.under_way < waiting.window.size();
        if may_send && waiting.line == Line::None {
            match self.limiter.hold(source, waiting.under_way, turns.limited) {
                Some(hold) => self.hold_back(source, hold),
                None => {
                    waiting.line = Line::Turns;
                    match (waiting.is_command, waiting.is_slow) {
                        (true, _) => {
                            turns.command_sources.push_back(source);
                            self.command_lines += 1;
                        }
                        (false, true) => turns.slow_sources.push_back(source),
                        (false, false) => turns.sources.push_back(source),
                    }
                }
            }
        }
        self.take_turns(tenant);
    }

    /// A tenant with something to send is in line.
    fn take_turns(&mut self, tenant: &Tenant) {
        let Some(turns) = self.tenants.get_mut(tenant) else { return };
        if turns.is_waiting() && !turns.in_turn {
            turns.in_turn = true;
            self.turns.push_back(tenant.clone());
        }
    }

    /// A source with room in memory and more in the state is to be filled up.
    fn note_refill(&mut self, source: A::Source, tenant: &Tenant) {
        let Some(waiting) = self.sources.get(&source) else { return };
        let waits = waiting.attempts.len();
        // However many others wait, it goes on with the few that it may always have.
        let few = waits <= WAITING_PER_SOURCE_ALWAYS / 2 && !self.is_overfull();
        let is_low = waits <= self.waiting_max(source) / 2;
        let room = waiting.left_out.is_some() && is_low && (few || !self.is_full_for(tenant).1);
        if room && !self.refills.contains(&source) {
            self.refills.push_back(source);
        }
    }

    pub(super) fn next_refill(&mut self) -> Option<(A::Source, A::Cursor)> {
        let source = self.refills.pop_front()?;
        let waiting = self.sources.get_mut(&source)?;
        Some((source, waiting.left_out.take()?))
    }

    /// Whether an attempt that has been open for a while may go on, in a slow place.
    pub(super) fn slows(&mut self, attempt: &A) -> bool {
        if self.stage(attempt).is_none_or(|it| *it != Stage::UnderWay(PlaceKind::Quick)) {
            return true;
        }
        let Some(turns) = self.tenants.get_mut(attempt.tenant()) else { return true };
        if !self.slow.has_room_for(turns.slow) || !self.slow.take() {
            return false;
        }
        turns.quick -= 1;
        turns.slow += 1;
        self.quick.give();
        if let Some(stage) = self.stage(attempt) {
            *stage = Stage::UnderWay(PlaceKind::Slow);
        }
        true
    }

    /// An attempt that was begun is not made now, and waits again, before others of its source.
    pub(super) fn put_back(&mut self, attempt: A, is_slow: bool) {
        let Some(stage) = self.stage(&attempt) else { return };
        let Stage::UnderWay(kind) = *stage else { return };
        *stage = Stage::Waits;
        let (source, tenant) = (attempt.source(), attempt.tenant().clone());
        self.leave(source, &tenant, kind);
        self.payload_bytes += attempt.payload_bytes();
        if let Some(waiting) = self.sources.get_mut(&source) {
            waiting.is_slow |= is_slow;
            waiting.attempts.push_front(attempt);
            if let Line::Held(hold) = waiting.line {
                self.limiter.grew(hold);
            }
            let refills = waiting.refills;
            *self.waiting(refills) += 1;
            *self.waiting_of(&tenant, refills) += 1;
        }
        self.offer(source, &tenant);
    }

    /// An answer came, or none will: the next attempt may be made, although what came of this one
    /// is still to be written down.
    pub(super) fn answered(&mut self, attempt: &A, took_ms: Option<u64>) {
        let Some(stage) = self.stage(attempt) else { return };
        let Stage::UnderWay(kind) = *stage else { return };
        *stage = Stage::Answered;
        self.reporting += 1;
        self.free(attempt, kind, took_ms);
    }

    /// An attempt takes up no place any more.
    fn free(&mut self, attempt: &A, kind: PlaceKind, took_ms: Option<u64>) {
        let (source, tenant) = (attempt.source(), attempt.tenant());
        self.leave(source, tenant, kind);
        let mut recovered = false;
        if let Some(waiting) = self.sources.get_mut(&source) {
            recovered = waiting.is_slow && took_ms.is_some_and(|took_ms| took_ms < SLOW_AFTER_MS);
            match took_ms {
                _ if !waiting.refills => {}
                Some(took_ms) => waiting.window.answered(took_ms),
                None if kind == PlaceKind::Slow => waiting.window.unanswered(),
                None => {}
            }
        }
        if recovered {
            self.hurry(source, tenant);
        }
        self.offer(source, tenant);
        self.note_refill(source, tenant);
    }

    /// A source is not slow any more: it leaves the line of those that are.
    fn hurry(&mut self, source: A::Source, tenant: &Tenant) {
        let Some(waiting) = self.sources.get_mut(&source) else { return };
        waiting.is_slow = false;
        if waiting.line == Line::Turns
            && let Some(turns) = self.tenants.get_mut(tenant)
            && let Some(at) = turns.slow_sources.iter().position(|it| *it == source)
        {
            turns.slow_sources.remove(at);
            waiting.line = Line::None;
        }
    }

    /// One attempt less is under way.
    fn leave(&mut self, source: A::Source, tenant: &Tenant, kind: PlaceKind) {
        self.places(kind).give();
        let is_limited = self.limiter.limits(source).per_tenant;
        if let Some(turns) = self.tenants.get_mut(tenant) {
            *turns.held(kind) -= 1;
            turns.limited -= usize::from(is_limited);
        }
        let Some(waiting) = self.sources.get_mut(&source) else { return };
        waiting.under_way -= 1;
        if waiting.line == Line::Held(Hold::Concurrency) {
            self.let_go(source);
        }
        if is_limited {
            self.release(tenant);
        }
    }

    pub(super) fn ended(&mut self, attempt: &A) {
        match self.stage(attempt).copied() {
            Some(Stage::UnderWay(kind)) => {
                self.limiter.give_back(attempt.source());
                self.free(attempt, kind, None);
            }
            Some(Stage::Answered) => self.reporting -= 1,
            // Nobody makes it.
            Some(Stage::Waits) | None => return,
        }
        let (key, number) = (attempt.key(), attempt.number());
        if let Some(known) = self.known.get_mut(&key) {
            known.retain(|it| it.number != number);
            if known.is_empty() {
                self.known.remove(&key);
            }
        }
        self.forget(attempt.source(), attempt.tenant());
    }

    /// Whoever has nothing to send and nothing under way takes no room.
    fn forget(&mut self, source: A::Source, tenant: &Tenant) {
        let idle = |it: &SourceQueue<A>| {
            it.attempts.is_empty()
                && it.under_way == 0
                && it.left_out.is_none()
                && it.line == Line::None
        };
        if self.sources.get(&source).is_some_and(idle) {
            self.sources.remove(&source);
        }
        let idle = |it: &TenantQueue<A>| {
            let under_way = it.quick + it.slow + it.commands;
            !it.is_waiting() && under_way + it.timed + it.refillable == 0 && !it.in_turn
        };
        if self.tenants.get(tenant).is_some_and(idle) {
            self.tenants.remove(tenant);
        }
    }

    pub(super) fn sent(&self, key: &A::Key) -> Vec<(u64, u32)> {
        let known = self.known.get(key).into_iter().flatten();
        known.filter(|it| it.stage != Stage::Waits).map(|it| it.number).collect()
    }

    /// Whether an attempt waits, is on its way, or was left out and is read again when its source has
    /// room: then the source is looked after.
    pub(super) fn keeps(&mut self, key: &A::Key, source: A::Source, at: A::Cursor) -> bool {
        if self.knows(key) {
            return true;
        }
        let Some(waiting) = self.sources.get(&source) else { return false };
        let (is_left_out, tenant) =
            (waiting.left_out.is_some_and(|first| first <= at), waiting.tenant.clone());
        if is_left_out {
            self.note_refill(source, &tenant);
        }
        is_left_out
    }

    pub(super) fn knows(&self, key: &A::Key) -> bool {
        self.known.contains_key(key)
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        let idle = self.sources.is_empty() && self.tenants.is_empty() && self.turns.is_empty();
        idle && self.known.is_empty() && self.refills.is_empty() && self.limiter.is_idle()
    }

    pub(super) fn traffic(&self) -> OutboundGauges {
        let (quick, slow) = (self.quick.used(), self.slow.used());
        let (queued, held) = (self.timed + self.refillable, self.limiter.held());
        OutboundGauges { queued, quick, slow, dropped: self.dropped, held }
    }
}
