//! A small world: two consumers, two streams, one crash, and a network that repeats itself.
//!
//! ```text
//!     /own ────▶ first          /own does not exist yet and nothing of it is processed;
//!     /shared ─▶ first          /shared exists, is empty, and is processed up to there.
//!     /shared ─▶ second
//! ```
//!
//! Time is abstract: it stands still, except that a deadline may come at any time. After every
//! step all moments in the state are set back to where they began, so that the world is finite.

use reveille_core::consumer::{
    Ack, AnnouncedOffset, Answer, Callback, Consumer, GivenUp, Input, Link, Phase, Policy,
    Rejected, RemovalReason, Stage, SyncDone, Transition, WakeBy, WakeId,
};
use reveille_core::stream::StreamId;
use reveille_core::{Millis, Offset, StreamPath};

use crate::ground::{Ground, Machine, Tails};
use crate::laws::{Verdict, check, ensure, tells};

const NOW: Millis = Millis(1_000_000);
const LATER: Millis = Millis(1_001_000);
pub(crate) const APPENDS_MAX: u64 = 2;

/// The world ends here: steps beyond are judged, but not gone on from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    pub(crate) epochs: u64,
    pub(crate) attempts: u32,
    /// Attempts that the network still knows of, for each consumer; older ones are lost.
    pub(crate) in_flight: usize,
    /// How often each consumer's subscription is paused.
    pub(crate) pauses: u8,
}

/// The rules of a world.
pub(crate) struct Rules {
    pub(crate) machine: Machine,
    pub(crate) policy: Policy,
    pub(crate) bounds: Bounds,
}

/// An attempt that was made, and may be answered any number of times.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Attempt {
    epoch: u64,
    attempt: u32,
    announced: Vec<AnnouncedOffset>,
}

/// A consumer with what surrounds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) consumer: Consumer,
    pub(crate) in_flight: Vec<Attempt>,
    /// Whether a stream has grown and the consumer has yet to hear of it.
    pub(crate) owed: bool,
    /// How often its subscription was paused, whether it is, and whether the consumer has yet to
    /// hear that it is no longer.
    pauses: u8,
    pub(crate) is_paused: bool,
    pub(crate) unreviewed: bool,
}

/// What may reach a consumer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reach {
    Hear,
    Accepted(usize),
    Done(usize),
    Failed(usize),
    /// A worker of this wake, or of an earlier one, reports.
    Report {
        epoch: u64,
        report: Report,
    },
    /// A worker of the other consumer reports here.
    Stranger,
    Claim,
    /// A worker of this wake, or of an earlier one, gives the work back.
    Release {
        epoch: u64,
    },
    Due,
    /// A timer fires before its time.
    Early,
    Pause,
    Resume,
    Review,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Report {
    /// Somebody is at work.
    Alive,
    /// The first stream with anything new is processed.
    One,
    /// Everything is processed, and the work is done.
    All,
    /// The work is done, it says, whatever is left of it.
    Over,
    /// It will follow nothing any more.
    Leave,
}

const REPORTS: [Report; 5] = [Report::Alive, Report::One, Report::All, Report::Over, Report::Leave];

fn wake_id(consumer: usize, epoch: u64) -> WakeId {
    let mut id = [u8::try_from(consumer).unwrap(); 12];
    id[..8].copy_from_slice(&epoch.to_be_bytes());
    WakeId(id)
}

/// The streams with nothing appended yet.
pub(crate) fn streams() -> [(StreamPath, Option<Offset>); 2] {
    let path = |text| StreamPath::parse(text).unwrap();
    [(path("/own"), None), (path("/shared"), Some(Offset::ZERO))]
}

/// The consumers as they begin.
pub(crate) fn places() -> [Place; 2] {
    let [(own, _), (shared, acked)] = streams();
    let own = Link { path: own, stream: None, acked: None };
    let shared = Link { path: shared, stream: Some(StreamId(1)), acked };
    let place = |links| Place {
        consumer: Consumer::new(0, links),
        in_flight: Vec::new(),
        owed: false,
        pauses: 0,
        is_paused: false,
        unreviewed: false,
    };
    [place(vec![own, shared.clone()]), place(vec![shared])]
}

/// Where a consumer stands, for `settle` to go on from.
pub(crate) fn ground<'a>(rules: &'a Rules, tails: &'a Tails) -> Ground<'a> {
    Ground {
        machine: rules.machine,
        policy: &rules.policy,
        tails,
        now: NOW,
        fresh: WakeId([0; 12]),
        random: 0,
        more_pending: false,
        worth_bytes: 2,
    }
}

impl Place {
    /// The same, after a stream has grown.
    pub(crate) fn grown(&self, stream: &StreamPath) -> Place {
        let follows = self.consumer.links.iter().any(|link| link.path == *stream);
        Place { owed: self.owed || follows, ..self.clone() }
    }

    /// The same, after a crash: what is stored survives, what is on its way does not.
    pub(crate) fn crashed(&self) -> Place {
        Place { in_flight: Vec::new(), ..self.clone() }
    }

    /// Everything that may reach the consumer next.
    pub(crate) fn reaches(&self, rules: &Rules) -> Vec<Reach> {
        let mut reaches = Vec::new();
        let mut push = |reach| reaches.push(reach);
        if self.owed {
            push(Reach::Hear);
        }
        for which in 0..self.in_flight.len() {
            match rules.policy.wake_by {
                WakeBy::Webhook => {
                    push(Reach::Accepted(which));
                    push(Reach::Done(which));
                    push(Reach::Failed(which));
                }
                WakeBy::Pull => {}
            }
        }
        for epoch in 1..=self.consumer.epoch {
            REPORTS.iter().for_each(|report| push(Reach::Report { epoch, report: *report }));
        }
        push(Reach::Stranger);
        if rules.policy.wake_by == WakeBy::Pull {
            push(Reach::Claim);
            (1..=self.consumer.epoch).for_each(|epoch| push(Reach::Release { epoch }));
        }
        if self.consumer.deadline().is_some() {
            push(Reach::Due);
            push(Reach::Early);
        }
        if self.is_paused {
            push(Reach::Resume);
        } else if self.pauses < rules.bounds.pauses {
            push(Reach::Pause);
        }
        if self.unreviewed {
            push(Reach::Review);
        }
        reaches
    }

    /// What the place becomes; nothing if it stays as it is, or would leave the bounds.
    pub(crate) fn reach(
        &self,
        rules: &Rules,
        at: usize,
        tails: &Tails,
        reach: Reach,
    ) -> Result<Option<Place>, String> {
        if matches!(reach, Reach::Pause | Reach::Resume) {
            return Ok(Some(self.paused(reach == Reach::Pause)));
        }
        let policy = Policy { is_paused: self.is_paused, ..rules.policy.clone() };
        let mut ground = Ground { policy: &policy, ..ground(rules, tails) };
        ground.fresh = wake_id(at, self.consumer.epoch + 1);
        if reach == Reach::Due {
            ground.now = self.consumer.deadline().unwrap();
        }
        let input = self.input(&ground, at, reach);
        let outcome = ground.step(&self.consumer, &input);
        check(&ground, &self.consumer, &input, &outcome)?;
        zombies_are_not_heard(&self.consumer, &input, &outcome)?;
        let Ok(step) = outcome else { return Ok(None) };
        let mut next = self.clone();
        next.owed &= !matches!(input, Input::Appended | Input::Callback(_) | Input::Reviewed);
        next.unreviewed &= input != Input::Reviewed;
        next.adopt(&ground, at, step)?;
        let resting = next.consumer.phase == Phase::Idle { wake_at: None };
        let is_owed = next.owed || next.unreviewed || next.is_paused;
        let forgotten = resting && !is_owed && ground.is_pending(&next.consumer);
        ensure(!forgotten, "L1: work is pending, heard of, and not told")?;
        next.forget(rules.bounds);
        Ok((next != *self && next.is_within(rules.bounds)).then_some(next))
    }

    /// What it has yet to hear of, sooner or later.
    pub(crate) fn owed_input(&self) -> Option<Input> {
        match self.owed {
            _ if self.unreviewed || self.is_paused => Some(Input::Reviewed),
            true => Some(Input::Appended),
            false => None,
        }
    }

    fn paused(&self, is_paused: bool) -> Place {
        let pauses = self.pauses + u8::from(is_paused);
        // A pause ends the review of an earlier one.
        Place { pauses, is_paused, unreviewed: !is_paused, ..self.clone() }
    }

    fn adopt(&mut self, ground: &Ground<'_>, at: usize, step: Transition) -> Verdict {
        let named = step.consumer.wake_id;
        let epoch = step.consumer.epoch;
        let expected = (epoch > 0).then(|| wake_id(at, epoch));
        ensure(named == expected, "S2: the name of a wake is that of its epoch")?;
        for (epoch, attempt) in tells(&step) {
            // Where nobody asks what was announced, it is not remembered.
            let announced = match ground.policy.sync_done {
                SyncDone::Tail => Vec::new(),
                SyncDone::Snapshot => ground.announced(&step.consumer),
            };
            let made = Attempt { epoch, attempt, announced };
            // Made again after a crash, it announces what there is now.
            self.in_flight.retain(|old| (old.epoch, old.attempt) != (epoch, attempt));
            self.in_flight.push(made);
        }
        self.consumer = standing_still(step.consumer);
        Ok(())
    }

    fn forget(&mut self, bounds: Bounds) {
        let lost = self.in_flight.len().saturating_sub(bounds.in_flight);
        self.in_flight.drain(..lost);
    }

    fn is_within(&self, bounds: Bounds) -> bool {
        let attempt = match self.consumer.phase {
            Phase::Waking { attempt, .. } => attempt,
            Phase::Idle { .. } | Phase::Live { .. } | Phase::Gone(_) => 0,
        };
        self.consumer.epoch <= bounds.epochs && attempt <= bounds.attempts
    }

    fn input(&self, ground: &Ground<'_>, at: usize, reach: Reach) -> Input {
        let consumer = &self.consumer;
        let answered = |which: usize, answer: fn(&Attempt) -> Answer| {
            let made = &self.in_flight[which];
            Input::Answered { epoch: made.epoch, attempt: made.attempt, answer: answer(made) }
        };
        match reach {
            Reach::Hear => Input::Appended,
            Reach::Accepted(which) => answered(which, |_| Answer::Accepted),
            Reach::Done(which) => answered(which, |made| Answer::Done(made.announced.clone())),
            Reach::Failed(which) => answered(which, |_| Answer::Failed),
            Reach::Report { epoch, report } => {
                let callback = said(ground, consumer, report);
                let wake_id = Some(Ok(wake_id(at, epoch)));
                Input::Callback(Callback { epoch, wake_id, ..callback })
            }
            Reach::Stranger => {
                let epoch = consumer.epoch;
                let wake_id = Some(Ok(wake_id(1 - at, epoch)));
                let callback = said(ground, consumer, Report::All);
                Input::Callback(Callback { epoch, wake_id, ..callback })
            }
            Reach::Claim => Input::Claim { worker: "worker".into() },
            Reach::Release { epoch } => Input::Release { epoch, wake_id: wake_id(at, epoch) },
            Reach::Due => Input::Timer { in_flight: self.is_on_its_way() },
            Reach::Early => Input::Timer { in_flight: false },
            Reach::Review | Reach::Pause | Reach::Resume => Input::Reviewed,
        }
    }

    /// Whether the attempt that the state speaks of was not lost in a crash.
    fn is_on_its_way(&self) -> bool {
        let Phase::Waking { attempt, .. } = self.consumer.phase else { return false };
        let current = (self.consumer.epoch, attempt);
        self.in_flight.iter().any(|made| (made.epoch, made.attempt) == current)
    }
}

fn said(ground: &Ground<'_>, consumer: &Consumer, report: Report) -> Callback {
    let tail = |link: &Link| ground.tail(&link.path);
    let next = |link: &Link| match link.acked {
        // One event at a time.
        Some(acked) if report == Report::One => Some(acked.plus(1)).min(tail(link)),
        _ => tail(link),
    };
    let new = consumer.links.iter().filter(|link| tail(link) > link.acked);
    let limit = match report {
        Report::One => 1,
        Report::All => usize::MAX,
        Report::Alive | Report::Over | Report::Leave => 0,
    };
    let ack =
        |link: &Link| Ack { path: link.path.as_str().into(), offset: Some(next(link)), from: None };
    let leave = consumer.links.iter().filter(|_| report == Report::Leave);
    Callback {
        acks: new.take(limit).map(ack).collect(),
        done: matches!(report, Report::All | Report::Over),
        unsubscribe: leave.map(|link| link.path.clone()).collect(),
        ..Callback::default()
    }
}

/// Whoever speaks for an earlier wake changes nothing, in either dialect.
fn zombies_are_not_heard(
    consumer: &Consumer,
    input: &Input,
    outcome: &Result<Transition, Rejected>,
) -> Verdict {
    let Input::Callback(callback) = input else { return Ok(()) };
    let zombie = callback.epoch != consumer.epoch;
    ensure(!zombie || outcome.is_err(), "S6: a zombie is not heard")
}

/// Sets all moments back to where they began.
fn standing_still(mut consumer: Consumer) -> Consumer {
    consumer.phase = match consumer.phase {
        Phase::Idle { wake_at } => Phase::Idle { wake_at: wake_at.map(|_| LATER) },
        Phase::Waking { attempt, stage: Stage::Sent { until: Millis::NEVER } } => {
            Phase::Waking { attempt, stage: Stage::Sent { until: Millis::NEVER } }
        }
        Phase::Waking { attempt, stage: Stage::Sent { .. } } => {
            Phase::Waking { attempt, stage: Stage::Sent { until: LATER } }
        }
        Phase::Waking { attempt, stage: Stage::Paused { .. } } => {
            Phase::Waking { attempt, stage: Stage::Paused { until: LATER } }
        }
        Phase::Live { .. } => Phase::Live { until: LATER },
        gone @ Phase::Gone(_) => gone,
    };
    consumer.failing_since = consumer.failing_since.map(|_| NOW);
    consumer.pending_since = consumer.pending_since.map(|_| NOW);
    consumer.woken_at = consumer.woken_at.map(|_| NOW);
    consumer.given_up = consumer.given_up.map(|_| GivenUp { at: NOW, until: LATER });
    consumer.wakes_saved = 0;
    // There are fewer wakes than anybody is held back after.
    consumer.fruitless_dones = 0;
    consumer
}

fn small(number: impl TryInto<u8>) -> u8 {
    number.try_into().ok().expect("small worlds have small numbers")
}

impl Place {
    /// It in few bytes. Moments are left out: they always stand where they began.
    pub(crate) fn key(&self) -> Vec<u8> {
        let consumer = &self.consumer;
        let (phase, attempt) = match consumer.phase {
            Phase::Idle { wake_at } => (u8::from(wake_at.is_some()), 0),
            Phase::Waking { attempt, stage: Stage::Sent { .. } } => (2, small(attempt)),
            Phase::Waking { attempt, stage: Stage::Paused { .. } } => (3, small(attempt)),
            Phase::Live { .. } => (4, 0),
            Phase::Gone(RemovalReason::Unsubscribed) => (5, 0),
            Phase::Gone(RemovalReason::Failed) => (6, 0),
        };
        let flags = [
            self.owed,
            consumer.failing_since.is_some(),
            consumer.pending_since.is_some(),
            consumer.woken_at.is_some(),
            consumer.holder.is_some(),
            self.is_paused,
            self.unreviewed,
        ];
        let mut key = vec![phase, attempt, small(consumer.epoch), self.pauses];
        key.extend(flags.map(u8::from));
        let acked = |link: &Link| link.acked.map_or(0xff, |acked| small(acked.position()));
        key.extend(consumer.links.iter().map(acked));
        for made in &self.in_flight {
            // The lengths of the parts differ; nothing else is that large.
            key.extend([0xfe, small(made.epoch), small(made.attempt)]);
            key.extend(made.announced.iter().map(|it| small(it.tail.position())));
        }
        key
    }
}
