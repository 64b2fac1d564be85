//! Who waits behind whom.

use std::collections::{HashMap, VecDeque};

use reveille_core::Tenant;
use reveille_core::delivery::hook::HookId;
use reveille_core::delivery::id::DeliveryNo;

use super::window::Window;
use super::{Attempt, AttemptKey, Group, OutboundGauges, PushResult, Source};
use crate::effect::DeliveryAttempt;
use crate::limits::{
    OUTBOX_MAX, REPORTING_MAX, WAITING_PER_HOOK, WAITING_PER_HOOK_ALWAYS, WAITING_WORDS_BYTES,
};

type Map<K, V> = HashMap<K, V, foldhash::fast::RandomState>;

/// Everything that waits or is on its way.
pub(super) struct Queues {
    /// How many may be on their way, quick ones and slow ones each.
    concurrency: usize,
    /// How many deliveries of one hook may wait.
    waiting_per_hook: usize,
    sources: Map<Source, Waiting>,
    groups: Map<Group, Turns>,
    /// Groups with something that may be sent, each once.
    turns: VecDeque<Group>,
    known: Map<AttemptKey, Vec<Known>>,
    /// Hooks that may have more in memory.
    refills: VecDeque<HookId>,
    payload_bytes: usize,
    /// Wakes and deliveries that wait: neither takes the other's room.
    wakes: usize,
    deliveries: usize,
    quick: usize,
    slow: usize,
    /// Attempts whose outcome is being written down.
    reporting: usize,
    dropped: u64,
}

/// Attempts of one source.
struct Waiting {
    attempts: VecDeque<Attempt>,
    under_way: usize,
    /// How many may be under way.
    window: Window,
    /// Whether its group has it among its turns.
    in_turn: bool,
    /// The first delivery that found no room.
    left_out: Option<DeliveryNo>,
}

/// Sources of one group with something that may be sent, each once.
#[derive(Default)]
struct Turns {
    sources: VecDeque<Source>,
    /// Attempts under way that were sent a moment ago, and that have been open for a while.
    quick: usize,
    slow: usize,
    in_turn: bool,
}

struct Known {
    number: (u64, u32),
    sent: bool,
    /// It was answered, and that is being written down.
    answered: bool,
}

fn payload_len(job: &DeliveryAttempt) -> usize {
    job.fresh.as_ref().map_or(0, |fresh| fresh.payload.len())
}

impl Queues {
    pub(super) fn new(concurrency: usize) -> Queues {
        Queues {
            concurrency,
            waiting_per_hook: WAITING_PER_HOOK,
            sources: Map::default(),
            groups: Map::default(),
            turns: VecDeque::new(),
            known: Map::default(),
            refills: VecDeque::new(),
            payload_bytes: 0,
            wakes: 0,
            deliveries: 0,
            quick: 0,
            slow: 0,
            reporting: 0,
            dropped: 0,
        }
    }

    pub(super) fn set_concurrency(&mut self, concurrency: usize) {
        self.concurrency = concurrency.max(1);
    }

    pub(super) fn set_waiting_per_hook(&mut self, most: usize) {
        self.waiting_per_hook = most.max(1);
    }

    pub(super) fn push(&mut self, mut attempt: Attempt) -> PushResult {
        let (about, number) = (attempt.about(), attempt.number());
        if self.known.get(&about).is_some_and(|all| all.iter().any(|it| it.number == number)) {
            return PushResult::Known;
        }
        let (source, group) = (attempt.source(), attempt.group());
        let full = self.deliveries >= OUTBOX_MAX;
        let overfull = self.deliveries >= 4 * OUTBOX_MAX;
        let waiting = self.sources.entry(source).or_insert_with(|| Waiting {
            attempts: VecDeque::new(),
            under_way: 0,
            window: match source {
                Source::Subscription(_) => Window::wide(),
                Source::Hook(_) => Window::new(),
            },
            in_turn: false,
            left_out: None,
        });
        // However many others wait, a hook has a few places of its own.
        let few = waiting.attempts.len() < WAITING_PER_HOOK_ALWAYS && !overfull;
        let has_fan_out = (full && !few) || waiting.attempts.len() >= self.waiting_per_hook;
        match &mut attempt {
            Attempt::Wake(_) if self.wakes >= OUTBOX_MAX => {
                self.dropped += 1;
                self.forget(source, &group);
                return PushResult::LeftOut;
            }
            // Once one was left out, those after it wait with it: it comes first.
            Attempt::Delivery(job) if has_fan_out || waiting.left_out.is_some() => {
                let first = waiting.left_out.map_or(job.id.no, |no| no.min(job.id.no));
                waiting.left_out = Some(first);
                self.note_refill(source);
                return PushResult::LeftOut;
            }
            Attempt::Delivery(job) => {
                let bytes = payload_len(job);
                if self.payload_bytes + bytes > WAITING_WORDS_BYTES {
                    job.fresh = None;
                } else {
                    self.payload_bytes += bytes;
                }
            }
            Attempt::Wake(_) => {}
        }
        *match attempt {
            Attempt::Wake(_) => &mut self.wakes,
            Attempt::Delivery(_) => &mut self.deliveries,
        } += 1;
        waiting.attempts.push_back(attempt);
        self.known.entry(about).or_default().push(Known { number, sent: false, answered: false });
        self.offer(source, &group);
        PushResult::Waits
    }

    /// Whose turn it is, if an attempt may be made now.
    pub(super) fn turn(&self) -> Option<&Group> {
        let full = self.quick >= self.concurrency || self.reporting >= REPORTING_MAX;
        self.turns.front().filter(|_| !full)
    }

    /// Leaves out whoever has the turn; it is to be taken back.
    pub(super) fn hold(&mut self) -> Option<Group> {
        self.turns.pop_front()
    }

    /// Those who were left out have their turns before everybody else.
    pub(super) fn take_back(&mut self, held: Vec<Group>) {
        for group in held.into_iter().rev() {
            self.turns.push_front(group);
        }
    }

    /// The next attempts, at most so many. Tenants that may not deliver now keep their turns.
    pub(super) fn next_few(
        &mut self,
        most: usize,
        may: &mut dyn FnMut(&Tenant) -> bool,
    ) -> Vec<Attempt> {
        let (mut attempts, mut held) = (Vec::new(), Vec::new());
        while attempts.len() < most {
            match self.turn() {
                Some(Group::Tenant(tenant)) if !may(tenant) => held.extend(self.hold()),
                Some(_) => attempts.extend(self.next()),
                None => break,
            }
        }
        self.take_back(held);
        attempts
    }

    /// Whether there is something else to do: an attempt that may be made, or a hook to fill up.
    pub(super) fn has_more(&self) -> bool {
        self.turn().is_some() || !self.refills.is_empty()
    }

    pub(super) fn next(&mut self) -> Option<Attempt> {
        self.turn()?;
        let group = self.turns.pop_front()?;
        let turns = self.groups.get_mut(&group)?;
        turns.in_turn = false;
        let source = turns.sources.pop_front()?;
        let waiting = self.sources.get_mut(&source)?;
        waiting.in_turn = false;
        let attempt = waiting.attempts.pop_front()?;
        waiting.under_way += 1;
        turns.quick += 1;
        self.quick += 1;
        match &attempt {
            Attempt::Wake(_) => self.wakes -= 1,
            Attempt::Delivery(job) => {
                self.deliveries -= 1;
                self.payload_bytes -= payload_len(job);
            }
        }
        let number = attempt.number();
        let known = self.known.get_mut(&attempt.about());
        if let Some(known) = known.and_then(|all| all.iter_mut().find(|it| it.number == number)) {
            known.sent = true;
        }
        self.offer(source, &group);
        self.note_refill(source);
        Some(attempt)
    }

    /// A source with something that may be sent gets a turn within its group, and the group one
    /// among all.
    fn offer(&mut self, source: Source, group: &Group) {
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

    /// A hook with room in memory and more in the state is to be filled up.
    fn note_refill(&mut self, source: Source) {
        let Source::Hook(hook) = source else { return };
        let Some(waiting) = self.sources.get(&source) else { return };
        let room =
            waiting.attempts.len() <= self.waiting_per_hook / 2 && self.deliveries < OUTBOX_MAX;
        if waiting.left_out.is_some() && room && !self.refills.contains(&hook) {
            self.refills.push_back(hook);
        }
    }

    pub(super) fn next_refill(&mut self) -> Option<(HookId, DeliveryNo)> {
        let hook = self.refills.pop_front()?;
        let waiting = self.sources.get_mut(&Source::Hook(hook))?;
        Some((hook, waiting.left_out.take()?))
    }

    pub(super) fn slows(&mut self, attempt: &Attempt) -> bool {
        let share = (self.concurrency / 2).max(1);
        let Some(turns) = self.groups.get_mut(&attempt.group()) else {
            return false;
        };
        let room = self.slow < self.concurrency && turns.slow < share;
        if room {
            self.quick -= 1;
            self.slow += 1;
            turns.quick -= 1;
            turns.slow += 1;
        }
        self.offer(attempt.source(), &attempt.group());
        room
    }

    /// An answer came, or none will: the next attempt may be made, although what came of this one
    /// is still to be written down.
    pub(super) fn answered(&mut self, attempt: &Attempt, was_slow: bool, took_ms: Option<u64>) {
        let number = attempt.number();
        let known = self.known.get_mut(&attempt.about());
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
    fn free(&mut self, attempt: &Attempt, was_slow: bool, took_ms: Option<u64>) {
        let (source, group) = (attempt.source(), attempt.group());
        if was_slow {
            self.slow -= 1;
        } else {
            self.quick -= 1;
        }
        if let Some(waiting) = self.sources.get_mut(&source) {
            waiting.under_way -= 1;
            match (took_ms, source) {
                (_, Source::Subscription(_)) => {}
                (Some(took_ms), _) => waiting.window.answered(took_ms),
                (None, _) if was_slow => waiting.window.unanswered(),
                (None, _) => {}
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

    pub(super) fn ended(&mut self, attempt: &Attempt, was_slow: bool) {
        let (about, number) = (attempt.about(), attempt.number());
        let (source, group) = (attempt.source(), attempt.group());
        let mut answered = false;
        if let Some(known) = self.known.get_mut(&about) {
            answered = known.iter().any(|it| it.number == number && it.answered);
            known.retain(|it| it.number != number);
            if known.is_empty() {
                self.known.remove(&about);
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
    fn forget(&mut self, source: Source, group: &Group) {
        let idle = |it: &Waiting| {
            it.attempts.is_empty() && it.under_way == 0 && it.left_out.is_none() && !it.in_turn
        };
        if self.sources.get(&source).is_some_and(idle) {
            self.sources.remove(&source);
        }
        let idle = |it: &Turns| it.sources.is_empty() && it.quick + it.slow == 0 && !it.in_turn;
        if self.groups.get(group).is_some_and(idle) {
            self.groups.remove(group);
        }
    }

    pub(super) fn sent(&self, about: &AttemptKey) -> Vec<(u64, u32)> {
        let known = self.known.get(about).into_iter().flatten();
        known.filter(|it| it.sent).map(|it| it.number).collect()
    }

    pub(super) fn knows(&self, about: &AttemptKey) -> bool {
        self.known.contains_key(about)
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        let idle = self.sources.is_empty() && self.groups.is_empty() && self.turns.is_empty();
        idle && self.known.is_empty() && self.refills.is_empty()
    }

    pub(super) fn traffic(&self) -> OutboundGauges {
        let Queues { wakes, deliveries, quick, slow, dropped, .. } = *self;
        OutboundGauges { queued: wakes + deliveries, quick, slow, dropped }
    }
}
