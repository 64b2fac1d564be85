//! What must hold of every single step of a consumer, whatever happens to it.
//!
//! S5 and S8 are about tokens and signatures, and S7 about deletion: the machine knows of none of
//! them, except that what is gone stays gone.

use reveille_core::Millis;
use reveille_core::consumer::{
    AnnouncedOffset, Answer, Callback, Consumer, Dialect, Effect, FRUITLESS_FREE, Input, Link,
    Phase, Policy, Rejected, RemovalReason, Stage, SyncDone, Transition, WakeBy,
};
use reveille_core::offset::ReadFrom;

use crate::ground::Ground;

pub(crate) type Verdict = Result<(), String>;

pub(crate) fn ensure(holds: bool, law: &str) -> Verdict {
    if holds { Ok(()) } else { Err(law.to_owned()) }
}

/// Judges one step.
pub(crate) fn check(
    ground: &Ground<'_>,
    before: &Consumer,
    input: &Input,
    outcome: &Result<Transition, Rejected>,
) -> Verdict {
    match input {
        Input::Callback(callback) => fenced(ground, before, callback, outcome)?,
        Input::Claim { .. } | Input::Release { .. } => leased(ground, before, input, outcome)?,
        Input::Wake { .. } | Input::Seek { .. } | Input::Revive => {
            operated(ground, before, input, outcome)?;
        }
        Input::Appended | Input::Answered { .. } | Input::Timer { .. } | Input::Reviewed => {
            ensure(outcome.is_ok(), "what has happened cannot be refused")?;
        }
    }
    let Ok(step) = outcome else { return Ok(()) };
    let law = Law { ground, before, input, step, after: &step.consumer };
    law.gone_is_final()?;
    law.failure()?;
    law.s1_s2_wakes()?;
    law.s4_acks()?;
    law.the_past_is_nothing()?;
    law.time_is_waited_for()?;
    law.nothing_is_forgotten()?;
    law.economics()?;
    law.paused()?;
    law.done()?;
    law.patience()?;
    law.repeats()
}

pub(crate) fn tells(step: &Transition) -> Vec<(u64, u32)> {
    let told = |effect: &Effect| {
        let Effect::Tell { epoch, attempt } = effect;
        (*epoch, *attempt)
    };
    step.effects.iter().map(told).collect()
}

pub(crate) fn is_gone(consumer: &Consumer) -> bool {
    matches!(consumer.phase, Phase::Gone(_))
}

fn at_work(consumer: &Consumer) -> bool {
    matches!(consumer.phase, Phase::Waking { .. } | Phase::Live { .. })
}

fn is_held_back(consumer: &Consumer) -> bool {
    let waits = matches!(consumer.phase, Phase::Idle { wake_at: Some(_) });
    waits && consumer.fruitless_dones > FRUITLESS_FREE
}

fn is_thrifty(policy: &Policy) -> bool {
    policy.min_interval_ms > 0 || policy.max_delay_ms.is_some()
}

/// S3 and S6: who may speak, and what the others hear.
fn fenced(
    ground: &Ground<'_>,
    before: &Consumer,
    callback: &Callback,
    outcome: &Result<Transition, Rejected>,
) -> Verdict {
    let names_this_wake = |id| Ok(id) == before.wake_id.ok_or(());
    let verdict = match ground.policy.dialect {
        _ if is_gone(before) => Some(Rejected::Gone),
        Dialect::Webhooks if callback.epoch != before.epoch || before.wake_id.is_none() => {
            Some(Rejected::StaleEpoch { given: callback.epoch, current: before.epoch })
        }
        Dialect::Webhooks => {
            let foreign = callback.wake_id.is_some_and(|id| !id.is_ok_and(names_this_wake));
            foreign.then_some(Rejected::AlreadyClaimed)
        }
        Dialect::Leases => {
            let named = callback.wake_id.is_some_and(|id| id.is_ok_and(names_this_wake));
            let admitted = at_work(before) && named && callback.epoch == before.epoch;
            (!admitted).then_some(Rejected::Fenced)
        }
    };
    match (verdict, outcome) {
        (Some(expected), Err(found)) => {
            ensure(expected == *found, "S3, S6: a foreign voice is told exactly what it is")
        }
        (Some(_), Ok(_)) => ensure(false, "S3, S6: a foreign voice is not heard"),
        (None, Err(Rejected::InvalidOffset { .. }) | Ok(_)) => {
            let right = outcome.is_ok() == are_sound(ground, before, callback);
            ensure(right, "an ack is taken if it is sound, and only then")
        }
        (None, Err(_)) => ensure(false, "S3: whoever names this wake is heard"),
    }
}

/// Whether all acknowledgements are of places that were reached, and, in the strict dialect, of
/// streams that are followed and never backwards.
fn are_sound(ground: &Ground<'_>, before: &Consumer, callback: &Callback) -> bool {
    let strict = ground.policy.dialect == Dialect::Leases;
    let mut links = before.links.clone();
    callback.acks.iter().all(|ack| {
        let link = links.iter_mut().find(|link| link.path.as_str() == &*ack.path);
        let Some((link, to)) = link.zip(ack.offset) else {
            // Either of the two is missing: only what concerns nobody is passed over.
            return !strict && before.links.iter().all(|link| link.path.as_str() != &*ack.path);
        };
        let forwards = to.is_some() && to >= link.acked;
        link.acked = link.acked.max(to);
        to <= ground.tail(&link.path) && (forwards || !strict)
    })
}

/// Work has one holder, and is given back by nobody else.
fn leased(
    ground: &Ground<'_>,
    before: &Consumer,
    input: &Input,
    outcome: &Result<Transition, Rejected>,
) -> Verdict {
    let expected = match (input, &before.phase) {
        (Input::Release { epoch, wake_id }, Phase::Live { .. }) => {
            let same = *epoch == before.epoch && Some(*wake_id) == before.wake_id;
            if same { Ok(()) } else { Err(Rejected::Fenced) }
        }
        (Input::Release { .. }, _) => Err(Rejected::Fenced),
        (_, Phase::Gone(_)) => Err(Rejected::Gone),
        (_, Phase::Live { .. }) => {
            let holder = before.holder.clone().unwrap_or_else(|| "somebody".into());
            Err(Rejected::Held { holder, generation: before.epoch })
        }
        (_, Phase::Idle { .. }) if !ground.is_pending(before) => Err(Rejected::NoPendingWork),
        (_, Phase::Idle { .. } | Phase::Waking { .. }) => Ok(()),
    };
    let found = outcome.as_ref().map(|_| ()).map_err(Clone::clone);
    ensure(found == expected, "work has one holder, and is given back by nobody else")
}

/// What somebody who looks after consumers may do to one.
fn operated(
    ground: &Ground<'_>,
    before: &Consumer,
    input: &Input,
    outcome: &Result<Transition, Rejected>,
) -> Verdict {
    let given_up = before.phase == Phase::Gone(RemovalReason::Failed);
    let refused = match input {
        Input::Revive => (!given_up).then_some(Rejected::NotGivenUp),
        _ if given_up => Some(Rejected::GivenUp),
        _ if is_gone(before) => Some(Rejected::Gone),
        Input::Wake { .. } if ground.policy.is_paused => Some(Rejected::SubscriptionPaused),
        Input::Wake { force: false } if matches!(before.phase, Phase::Live { .. }) => {
            Some(Rejected::AtWork { epoch: before.epoch })
        }
        Input::Wake { .. } if !ground.is_pending(before) => Some(Rejected::NothingPending),
        _ => None,
    };
    let found = outcome.as_ref().err();
    if let Some(expected) = refused {
        return ensure(found == Some(&expected), "an operator is told why nothing is done");
    }
    let Ok(step) = outcome else {
        let wrong_place =
            matches!(found, Some(Rejected::NotFollowed { .. } | Rejected::OutOfRange { .. }));
        return ensure(wrong_place, "an operator is only refused for a reason");
    };
    let after = &step.consumer;
    let put_off = ground.policy.is_paused && after.pending_since.is_some();
    let told = put_off || matches!(after.phase, Phase::Waking { stage: Stage::Sent { .. }, .. });
    ensure(
        !ground.is_pending(after) || told,
        "whoever is operated on is told of its work at once",
    )?;
    if let Input::Seek { stream, to } = input {
        let fenced = before.wake_id.is_none() || after.epoch > before.epoch;
        ensure(fenced, "who works for the old place is fenced off")?;
        for link in &after.links {
            let old = before.links.iter().find(|old| old.path == link.path).map(|old| old.acked);
            let chosen = stream.as_ref().is_none_or(|stream| *stream == link.path);
            let place = match to {
                _ if !chosen => old,
                ReadFrom::Start => Some(None),
                ReadFrom::Now => Some(ground.tail(&link.path)),
                ReadFrom::At(offset) => Some(Some(*offset)),
            };
            ensure(Some(link.acked) == place, "it stands where it was sent, and nowhere else")?;
        }
    }
    Ok(())
}

struct Law<'a> {
    ground: &'a Ground<'a>,
    before: &'a Consumer,
    input: &'a Input,
    step: &'a Transition,
    after: &'a Consumer,
}

impl Law<'_> {
    fn changed_nothing(&self) -> bool {
        self.before == self.after && self.step.effects.is_empty()
    }

    /// Whoever was given up can be brought back, or begins anew when its time has come.
    fn gone_is_final(&self) -> Verdict {
        let (before, after) = (self.before, self.after);
        if !is_gone(before) || self.changed_nothing() {
            return Ok(());
        }
        let given_up = before.phase == Phase::Gone(RemovalReason::Failed);
        let revived = *self.input == Input::Revive;
        let forgotten = before.given_up.is_some_and(|it| it.until <= self.ground.now);
        ensure(given_up && (revived || forgotten), "what is gone stays gone")?;
        let acked = |it: &Consumer| -> Vec<_> { it.links.iter().map(|link| link.acked).collect() };
        let stands = !revived || acked(before) == acked(after);
        ensure(stands && after.given_up.is_none(), "who is revived goes on where it stood")
    }

    /// When an endpoint counts as failing, and when that is the end.
    fn failure(&self) -> Verdict {
        let (before, after, now) = (self.before, self.after, self.ground.now);
        let alive = match self.input {
            Input::Callback(_) => at_work(before),
            Input::Answered { epoch, answer: Answer::Accepted | Answer::Done(_), .. } => {
                at_work(before) && *epoch == before.epoch
            }
            _ => false,
        };
        let forgiven = after.failing_since.is_none() || is_gone(after);
        ensure(!alive || forgiven, "a sign of life ends the failure")?;
        if *self.input == (Input::Timer { in_flight: false }) {
            // Who has nothing left to be told of fails at nothing.
            let ended = after.failing_since.is_none() && after.deadline().is_none();
            let same = after.failing_since == before.failing_since || ended;
            let lives = same && !is_gone(after);
            ensure(lives || is_gone(before), "what was never sent is nobody's failure")?;
        }
        if is_gone(before) || !is_gone(after) {
            return Ok(());
        }
        let failed = after.failing_since.zip(self.ground.policy.give_up_after_ms);
        let given_up = failed.is_some_and(|(since, after)| now.since(since) >= after);
        let ended = match after.phase {
            Phase::Gone(RemovalReason::Failed) => given_up,
            _ => self.ground.policy.dialect == Dialect::Webhooks && after.links.is_empty(),
        };
        ensure(ended && self.step.effects.is_empty(), "nobody is gone without a reason")
    }

    fn s1_s2_wakes(&self) -> Verdict {
        let (before, after) = (self.before, self.after);
        let told = tells(self.step);
        ensure(told.len() <= 1, "a step tells once at most")?;
        if before.epoch == after.epoch {
            ensure(before.wake_id == after.wake_id, "S2: an epoch has one wake id")?;
            let Some((epoch, attempt)) = told.first() else { return Ok(()) };
            let Phase::Waking { attempt: last, stage } = before.phase else {
                return ensure(false, "S1: only a wake that is not heard of is told again");
            };
            let expected = match stage {
                Stage::Sent { .. } => last,
                Stage::Paused { .. } => last + 1,
            };
            return ensure((*epoch, *attempt) == (after.epoch, expected), "S1: a retry counts up");
        }
        ensure(after.epoch == before.epoch + 1, "S1: epochs rise one by one")?;
        if matches!(self.input, Input::Seek { .. }) && told.is_empty() {
            return ensure(
                after.wake_id.is_none(),
                "S2: an epoch that nobody was told has no name",
            );
        }
        ensure(told == [(after.epoch, 1)], "S1: a new wake is told, under its own epoch")?;
        ensure(after.wake_id == Some(self.ground.fresh), "S2: a new wake has a name of its own")?;
        ensure(after.woken_at == Some(self.ground.now), "a wake is remembered")?;
        let awake = at_work(before) && *self.input == Input::Appended;
        ensure(!awake, "an event wakes nobody who is awake")
    }

    fn s4_acks(&self) -> Verdict {
        for link in &self.after.links {
            let tail = self.ground.tail(&link.path);
            let Some(old) = self.before.links.iter().find(|old| old.path == link.path) else {
                ensure(link.acked == tail, "a stream is followed from its tail on")?;
                continue;
            };
            if matches!(self.input, Input::Seek { .. }) {
                continue;
            }
            ensure(old.acked <= link.acked, "S4: acks only grow")?;
            let moved = old.acked != link.acked && !is_gone(self.before);
            ensure(!moved || link.acked <= tail, "nothing is acknowledged before it is there")?;
            ensure(!moved || at_work(self.before) || self.is_callback(), "acks need a voice")?;
        }
        let Input::Answered { answer: Answer::Done(announced), .. } = self.input else {
            return Ok(());
        };
        let snapshot = self.ground.policy.sync_done == SyncDone::Snapshot;
        for link in self.after.links.iter().filter(|_| snapshot) {
            let old = self.before.links.iter().find(|old| old.path == link.path);
            let moved = old.is_none_or(|old| old.acked != link.acked);
            let same = |it: &AnnouncedOffset| it.path == link.path && it.stream == link.stream;
            let named = announced.iter().any(|it| same(it) && Some(it.tail) >= link.acked);
            ensure(!moved || named, "a snapshot acknowledges what was announced, and no more")?;
        }
        Ok(())
    }

    fn is_callback(&self) -> bool {
        matches!(self.input, Input::Callback(_))
    }

    /// Answers of other wakes and failures of other attempts are nothing; so is a timer that is
    /// early.
    fn the_past_is_nothing(&self) -> Verdict {
        let stale = match self.input {
            Input::Answered { epoch, .. } if *epoch != self.before.epoch => true,
            Input::Answered { attempt, answer: Answer::Failed, .. } => {
                let Phase::Waking { attempt: current, stage: Stage::Sent { .. } } =
                    self.before.phase
                else {
                    return ensure(self.changed_nothing(), "a late failure is nothing");
                };
                *attempt != current
            }
            Input::Answered { .. } => !at_work(self.before),
            Input::Timer { .. } => self.before.deadline().is_none_or(|at| self.ground.now < at),
            _ => false,
        };
        ensure(!stale || self.changed_nothing(), "what belongs to the past changes nothing")
    }

    /// Nothing hangs: whatever waits for time has a deadline, and what is due has happened.
    fn time_is_waited_for(&self) -> Verdict {
        let (after, now) = (self.after, self.ground.now);
        let waits = match after.phase {
            Phase::Idle { wake_at } => wake_at.is_some(),
            Phase::Waking { stage: Stage::Paused { .. }, .. } | Phase::Live { .. } => true,
            Phase::Waking { .. } => self.ground.policy.wake_by == WakeBy::Webhook,
            Phase::Gone(_) => after.given_up.is_some(),
        };
        ensure(after.deadline().is_some() == waits, "whoever waits for time has a deadline")?;
        let due = after.deadline().is_some_and(|at| at <= now);
        let timer = matches!(self.input, Input::Timer { .. });
        let polite = matches!(self.input, Input::Answered { answer: Answer::Accepted, .. });
        let paused = matches!(self.before.phase, Phase::Waking { stage: Stage::Paused { .. }, .. });
        if polite && !paused && self.ground.policy.dialect == Dialect::Leases {
            let same = after.deadline() == self.before.deadline();
            ensure(same, "a lease is not prolonged by being polite")?;
        }
        ensure(!(timer && due), "L1: after a timer nothing is due")?;
        let holds =
            after.holder.is_none() || is_gone(after) || matches!(after.phase, Phase::Live { .. });
        ensure(holds, "only work that is done has a holder")
    }

    /// Resting with work to do, and without a time to be told of it, is only possible for as long
    /// as nobody has looked: timers that are early and answers of the past do not look.
    fn nothing_is_forgotten(&self) -> Verdict {
        let resting = self.after.phase == Phase::Idle { wake_at: None };
        let looked = !matches!(self.input, Input::Timer { .. } | Input::Answered { .. });
        let forgotten = resting
            && !self.waits_for_a_review()
            && self.ground.is_pending(self.after)
            && (looked || !self.changed_nothing());
        ensure(!forgotten, "L1: pending work is told, now or at a set time")
    }

    fn economics(&self) -> Verdict {
        let (policy, now) = (self.ground.policy, self.ground.now);
        if let Phase::Idle { wake_at: Some(at) } = self.after.phase {
            let Some(since) = self.after.pending_since else {
                return ensure(false, "what is collected is known since when");
            };
            ensure(since <= now, "work does not come from the future")?;
            let spaced = |last: Millis| last + policy.min_interval_ms;
            let last = match policy.max_delay_ms {
                Some(max) => Some(since + max),
                None => self.after.woken_at.map(spaced),
            };
            let in_time = last.is_some_and(|last| at <= last);
            ensure(in_time || is_held_back(self.after), "collecting ends in time")?;
            ensure(
                at > now || self.changed_nothing() || self.is_callback(),
                "what is due is told",
            )?;
        }
        let woken = self.after.epoch > self.before.epoch;
        let asked = matches!(
            self.input,
            Input::Claim { .. } | Input::Wake { .. } | Input::Seek { .. } | Input::Revive
        );
        if woken && !asked && policy.max_delay_ms.is_none() {
            let earliest = self.before.woken_at.map(|last| last + policy.min_interval_ms);
            ensure(earliest.is_none_or(|earliest| earliest <= now), "wakes are spaced")?;
        }
        Ok(())
    }

    /// Whether it is known since when work waits because nobody may be told.
    fn waits_for_a_review(&self) -> bool {
        self.ground.policy.is_paused && self.after.pending_since.is_some()
    }

    fn paused(&self) -> Verdict {
        let claims = matches!(self.input, Input::Claim { .. });
        let seeks = matches!(self.input, Input::Seek { .. });
        let same = self.after.epoch == self.before.epoch || seeks;
        let quiet = self.step.effects.is_empty() && same;
        ensure(!self.ground.policy.is_paused || quiet || claims, "nobody is told while paused")?;
        let failing = self.after.failing_since > self.before.failing_since;
        ensure(!self.ground.policy.is_paused || !failing, "nobody fails while paused")
    }

    /// L2 and L3.
    fn done(&self) -> Verdict {
        let done = match self.input {
            Input::Callback(callback) => callback.done,
            Input::Answered { epoch, answer: Answer::Done(_), .. } => *epoch == self.before.epoch,
            Input::Release { .. } => true,
            _ => false,
        };
        if !done || !at_work(self.before) || is_gone(self.after) {
            return Ok(());
        }
        let rested = Phase::Idle { wake_at: None };
        if !self.ground.is_pending(self.after) {
            let quiet = self.step.effects.is_empty();
            return ensure(
                self.after.phase == rested && quiet,
                "L2: done and nothing left is rest",
            );
        }
        let told = tells(self.step) == [(self.before.epoch + 1, 1)];
        let waking = matches!(self.after.phase, Phase::Waking { attempt: 1, .. });
        let may_wait = is_thrifty(self.ground.policy) || is_held_back(self.after);
        let collected = may_wait
            && matches!(self.after.phase, Phase::Idle { wake_at: Some(at) } if at > self.ground.now);
        let put_off = self.after.phase == rested && self.waits_for_a_review();
        ensure(
            (told && waking) || collected || put_off,
            "L3: done with work left wakes again in that step",
        )
    }

    /// Only those are held back who say again and again that they are done, and have done nothing;
    /// an ack that moves and an event end that.
    fn patience(&self) -> Verdict {
        let (before, after) = (self.before, self.after);
        let acked = |after: &Link| {
            let old = before.links.iter().find(|old| old.path == after.path);
            old.is_some_and(|old| old.acked < after.acked)
        };
        let moved = after.links.iter().any(acked) && !is_gone(before);
        let heard = *self.input == Input::Appended && !is_gone(before);
        ensure(!(moved || heard) || after.fruitless_dones == 0, "an ack or an event ends it")?;
        let more = after.fruitless_dones > before.fruitless_dones;
        let done = matches!(
            self.input,
            Input::Callback(Callback { done: true, .. })
                | Input::Answered { answer: Answer::Done(_), .. }
        );
        let one_more = after.fruitless_dones == before.fruitless_dones + 1;
        ensure(!more || (done && one_more), "only a fruitless end is counted")?;
        let pause =
            Millis(self.ground.now.0 + 60_000 * self.ground.policy.retry_scale_milli / 1_000);
        let thrifty = is_thrifty(self.ground.policy);
        let at = after.deadline().filter(|_| is_held_back(after) && !thrifty);
        ensure(at.is_none_or(|at| at <= pause), "nobody is held back for longer than a minute")
    }

    /// S3: what a consumer says twice counts once.
    fn repeats(&self) -> Verdict {
        let Input::Callback(callback) = self.input else { return Ok(()) };
        let live = matches!(self.after.phase, Phase::Live { .. });
        let rested = self.after.phase == Phase::Idle { wake_at: None };
        let finished = rested && self.ground.policy.dialect == Dialect::Webhooks;
        if !(live || finished) || !callback.subscribe.is_empty() {
            return Ok(());
        }
        match self.ground.step(self.after, self.input) {
            Ok(again) => {
                let same = again.consumer == *self.after && again.effects.is_empty();
                ensure(same, "S3: a repeated callback changes nothing more")
            }
            Err(_) => ensure(descends(callback), "S3: a repeated callback is accepted again"),
        }
    }
}

/// Whether acknowledgements of one stream go down within one callback, which the strict dialect
/// takes once, and then no more.
fn descends(callback: &Callback) -> bool {
    let acks = &callback.acks;
    let later = |at: usize| acks.iter().skip(at + 1);
    acks.iter()
        .enumerate()
        .any(|(at, ack)| later(at).any(|next| next.path == ack.path && next.offset != ack.offset))
        || !callback.unsubscribe.is_empty()
}
