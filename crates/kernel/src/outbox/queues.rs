//! Who waits behind whom.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use reveille_core::Tenant;

use super::places::{PlacePool, Places};
use super::window::Window;
use super::{Attempt, OutboundGauges, PushResult};
use crate::limits::{
    OUTBOX_MAX, OUTCOMES_WAITING_MAX, WAITING_PAYLOAD_BYTES, WAITING_PER_SOURCE,
    WAITING_PER_SOURCE_ALWAYS,
};

type Map<K, V> = HashMap<K, V, foldhash::fast::RandomState>;

/// Everything that waits or is on its way.
pub(super) struct Queues<A: Attempt> {
    /// How many may be on their way in the whole process, quick ones and slow ones each.
    concurrency: usize,
    quick: Places,
    slow: Places,
    /// How many attempts of one source may wait.
    waiting_per_source: usize,
    sources: Map<A::Source, SourceQueue<A>>,
    groups: Map<A::Group, GroupQueue<A>>,
    /// Groups with something that may be sent, each once.
    turns: VecDeque<A::Group>,
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
    attempts: VecDeque<A>,
    under_way: usize,
    /// How many may be under way.
    window: Window,
    /// Whether its group has it among its turns.
    in_turn: bool,
    /// The first attempt that found no room.
    left_out: Option<A::Cursor>,
    /// Whether its attempts can be read again.
    refills: bool,
}

/// Sources of one group with something that may be sent, each once.
struct GroupQueue<A: Attempt> {
    sources: VecDeque<A::Source>,
    /// Attempts under way that were sent a moment ago, and that have been open for a while.
    quick: usize,
    slow: usize,
    in_turn: bool,
}

struct KnownAttempt {
    number: (u64, u32),
    sent: bool,
    /// It was answered, and that is being written down.
    answered: bool,
}

impl<A: Attempt> Default for GroupQueue<A> {
    fn default() -> GroupQueue<A> {
        GroupQueue { sources: VecDeque::new(), quick: 0, slow: 0, in_turn: false }
    }
}

impl<A: Attempt> Queues<A> {
    pub(super) fn new(concurrency: usize) -> Queues<A> {
        Queues {
            concurrency,
            quick: Places::alone(concurrency),
            slow: Places::alone(concurrency),
            waiting_per_source: WAITING_PER_SOURCE,
            sources: Map::default(),
            groups: Map::default(),
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
        self.concurrency = pool.concurrency();
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
        let (source, group) = (attempt.source(), attempt.group());
        let full = self.refillable >= OUTBOX_MAX;
        let overfull = self.refillable >= 4 * OUTBOX_MAX;
        let waiting = self.sources.entry(source).or_insert_with(|| SourceQueue {
            attempts: VecDeque::new(),
            under_way: 0,
            window: if cursor.is_some() { Window::new() } else { Window::wide() },
            in_turn: false,
            left_out: None,
            refills: cursor.is_some(),
        });
        // However many others wait, a source has a few places of its own.
        let few = waiting.attempts.len() < WAITING_PER_SOURCE_ALWAYS && !overfull;
        let crowded = (full && !few) || waiting.attempts.len() >= self.waiting_per_source;
        match cursor {
            None if self.timed >= OUTBOX_MAX => {
                self.dropped += 1;
                self.forget(source, &group);
                return PushResult::LeftOut;
            }
            None => self.timed += 1,
            // Once one was left out, those after it wait with it: it comes first.
            Some(cursor) if crowded || waiting.left_out.is_some() => {
                waiting.left_out = waiting.left_out.into_iter().chain([cursor]).min();
                self.note_refill(source);
                return PushResult::LeftOut;
            }
            Some(_) => self.refillable += 1,
        }
        if self.payload_bytes + attempt.payload_bytes() > WAITING_PAYLOAD_BYTES {
            attempt.drop_payload();
        }
        self.payload_bytes += attempt.payload_bytes();
        waiting.attempts.push_back(attempt);
        let known = KnownAttempt { number, sent: false, answered: false };
        self.known.entry(key).or_default().push(known);
        self.offer(source, &group);
        PushResult::Waits
    }

    /// Whose turn it is, if an attempt may be made now.
    pub(super) fn turn(&self) -> Option<&A::Group> {
        let full = !self.quick.is_free() || self.reporting >= OUTCOMES_WAITING_MAX;
        self.turns.front().filter(|_| !full)
    }

    /// Leaves out whoever has the turn; it is to be taken back.
    pub(super) fn hold(&mut self) -> Option<A::Group> {
        self.turns.pop_front()
    }

    /// Those who were left out have their turns before everybody else.
    pub(super) fn take_back(&mut self, held: Vec<A::Group>) {
        for group in held.into_iter().rev() {
            self.turns.push_front(group);
        }
    }

    /// The next attempts, at most so many. Tenants that may not deliver now keep their turns.
    pub(super) fn next_few(&mut self, most: usize, may: &mut dyn FnMut(&Tenant) -> bool) -> Vec<A> {
        let (mut attempts, mut held) = (Vec::new(), Vec::new());
        while attempts.len() < most {
            let Some(group) = self.turn() else { break };
            if A::tenant_of(group).is_some_and(|tenant| !may(tenant)) {
                held.extend(self.hold());
                continue;
            }
            // Others may have taken the last place meanwhile.
            let Some(attempt) = self.next() else { break };
            attempts.push(attempt);
        }
        self.take_back(held);
        attempts
    }

    /// Whether there is something else to do: an attempt that may be made, or a source to fill up.
    pub(super) fn has_more(&self) -> bool {
        self.turn().is_some() || !self.refills.is_empty()
    }

    pub(super) fn next(&mut self) -> Option<A> {
        self.turn()?;
        if !self.quick.take() {
            return None;
        }
        let next = self.take_turn();
        if next.is_none() {
            self.quick.give();
        }
        next
    }

    fn take_turn(&mut self) -> Option<A> {
        let group = self.turns.pop_front()?;
        let turns = self.groups.get_mut(&group)?;
        turns.in_turn = false;
        let source = turns.sources.pop_front()?;
        let waiting = self.sources.get_mut(&source)?;
        waiting.in_turn = false;
        let attempt = waiting.attempts.pop_front()?;
        waiting.under_way += 1;
        turns.quick += 1;
        if waiting.refills {
            self.refillable -= 1;
        } else {
            self.timed -= 1;
        }
        self.payload_bytes -= attempt.payload_bytes();
        let number = attempt.number();
        let known = self.known.get_mut(&attempt.key());
        if let Some(known) = known.and_then(|all| all.iter_mut().find(|it| it.number == number)) {
            known.sent = true;
        }
        self.offer(source, &group);
        self.note_refill(source);
        Some(attempt)
    }

    /// A source with something that may be sent gets a turn within its group, and the group one
    /// among all.
    fn offer(&mut self, source: A::Source, group: &A::Group) {
        let Some(waiting) = self.sources.get_mut(&source) else {
            return;
        };
        let turns = self.groups.entry(group.clone()).or_default();
        let may_send = !waiting.attempts.is_empty() && waiting.under_way < waiting.window.size();
        if may_send && !waiting.in_turn {
            waiting.in_turn = true;
            turns.sources.push_back(source);
        }
        // No tenant has more than half of what may be under way.
        let share = (self.concurrency / 2).max(1);
        if !turns.sources.is_empty() && turns.quick < share && !turns.in_turn {
            turns.in_turn = true;
            self.turns.push_back(group.clone());
        }
    }

    /// A source with room in memory and more in the state is to be filled up.
    fn note_refill(&mut self, source: A::Source) {
        let Some(waiting) = self.sources.get(&source) else { return };
        let room =
            waiting.attempts.len() <= self.waiting_per_source / 2 && self.refillable < OUTBOX_MAX;
        if waiting.left_out.is_some() && room && !self.refills.contains(&source) {
            self.refills.push_back(source);
        }
    }

    pub(super) fn next_refill(&mut self) -> Option<(A::Source, A::Cursor)> {
        let source = self.refills.pop_front()?;
        let waiting = self.sources.get_mut(&source)?;
        Some((source, waiting.left_out.take()?))
    }

    pub(super) fn slows(&mut self, attempt: &A) -> bool {
        let share = (self.concurrency / 2).max(1);
        let Some(turns) = self.groups.get_mut(&attempt.group()) else {
            return false;
        };
        let room = turns.slow < share && self.slow.take();
        if room {
            self.quick.give();
            turns.quick -= 1;
            turns.slow += 1;
        }
        self.offer(attempt.source(), &attempt.group());
        room
    }

    /// An answer came, or none will: the next attempt may be made, although what came of this one
    /// is still to be written down.
    pub(super) fn answered(&mut self, attempt: &A, was_slow: bool, took_ms: Option<u64>) {
        let number = attempt.number();
        let known = self.known.get_mut(&attempt.key());
        let Some(known) = known.and_then(|all| all.iter_mut().find(|it| it.number == number))
        else {
            return;
        };
        if std::mem::replace(&mut known.answered, true) {
            return;
        }
        self.reporting += 1;
        self.free(attempt, was_slow, took_ms);
    }

    /// An attempt takes up no place any more.
    fn free(&mut self, attempt: &A, was_slow: bool, took_ms: Option<u64>) {
        let (source, group) = (attempt.source(), attempt.group());
        if was_slow {
            self.slow.give();
        } else {
            self.quick.give();
        }
        if let Some(waiting) = self.sources.get_mut(&source) {
            waiting.under_way -= 1;
            match took_ms {
                _ if !waiting.refills => {}
                Some(took_ms) => waiting.window.answered(took_ms),
                None if was_slow => waiting.window.unanswered(),
                None => {}
            }
        }
        if let Some(turns) = self.groups.get_mut(&group) {
            if was_slow {
                turns.slow -= 1;
            } else {
                turns.quick -= 1;
            }
        }
        self.offer(source, &group);
        self.note_refill(source);
    }

    pub(super) fn ended(&mut self, attempt: &A, was_slow: bool) {
        let (key, number) = (attempt.key(), attempt.number());
        let (source, group) = (attempt.source(), attempt.group());
        let mut answered = false;
        if let Some(known) = self.known.get_mut(&key) {
            answered = known.iter().any(|it| it.number == number && it.answered);
            known.retain(|it| it.number != number);
            if known.is_empty() {
                self.known.remove(&key);
            }
        }
        if answered {
            self.reporting -= 1;
        } else {
            self.free(attempt, was_slow, None);
        }
        self.forget(source, &group);
    }

    /// Whoever has nothing to send and nothing under way takes no room.
    fn forget(&mut self, source: A::Source, group: &A::Group) {
        let idle = |it: &SourceQueue<A>| {
            it.attempts.is_empty() && it.under_way == 0 && it.left_out.is_none() && !it.in_turn
        };
        if self.sources.get(&source).is_some_and(idle) {
            self.sources.remove(&source);
        }
        let idle =
            |it: &GroupQueue<A>| it.sources.is_empty() && it.quick + it.slow == 0 && !it.in_turn;
        if self.groups.get(group).is_some_and(idle) {
            self.groups.remove(group);
        }
    }

    pub(super) fn sent(&self, key: &A::Key) -> Vec<(u64, u32)> {
        let known = self.known.get(key).into_iter().flatten();
        known.filter(|it| it.sent).map(|it| it.number).collect()
    }

    pub(super) fn knows(&self, key: &A::Key) -> bool {
        self.known.contains_key(key)
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        let idle = self.sources.is_empty() && self.groups.is_empty() && self.turns.is_empty();
        idle && self.known.is_empty() && self.refills.is_empty()
    }

    pub(super) fn traffic(&self) -> OutboundGauges {
        let (quick, slow) = (self.quick.used(), self.slow.used());
        OutboundGauges { queued: self.timed + self.refillable, quick, slow, dropped: self.dropped }
    }
}
