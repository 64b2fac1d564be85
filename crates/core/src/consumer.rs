//! The life of one consumer, as a pure function of what it is and what happens.
//!
//! ```text
//!            pending work: epoch + 1, new wake id, told
//!     IDLE ────────────────────────────────────────────▶ WAKING ──┐ no sign of life, or a failure:
//!      ▲ ▲                                                 │  ▲    │ another attempt after a pause
//!      │ │                                   2xx, callback │  └────┘
//!      │ │     done, or no sign of life                    ▼
//!      │ └──────────────────────────────────────────────  LIVE
//!      │                      with pending work it is woken again at once
//!      └── `{"done": true}` as the answer to the webhook
//! ```
//!
//! While a subscription is paused nobody is told: whoever has work rests with it until a review.
//! Those who were told before may finish.
//!
//! Both dialects are values of [`Policy`]. Nothing here reads a clock or draws a random number;
//! the caller stores the state that [`Consumer::step`] returns, and acts on the effects only after
//! that state is durable.

mod answered;
mod callback;
mod done;
mod lease;
mod operate;
mod policy;
#[cfg(test)]
mod tests;
mod timer;

use std::fmt;
use std::sync::Arc;

pub use callback::{Ack, Callback, ClaimedWake, LinkPlaces};
pub use done::FRUITLESS_FREE;
pub use policy::{Dialect, Policy, Schedule, SyncDone, WakeBy};

use crate::offset::{Offset, ReadFrom};
use crate::path::StreamPath;
use crate::stream::StreamId;
use crate::time::Millis;

/// The name of one wake: told to the consumer, and claimed by it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WakeId(pub [u8; 12]);

impl fmt::Display for WakeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = self.0.iter().fold(0u128, |number, byte| (number << 8) | u128::from(*byte));
        write!(f, "w_{number:024x}")
    }
}

impl fmt::Debug for WakeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A stream that a consumer follows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    pub path: StreamPath,
    /// Which incarnation; `None` while there is no stream at the path yet.
    pub stream: Option<StreamId>,
    /// Everything before this is processed; `None`, written `-1`, means nothing is, not even the
    /// beginning of an empty stream.
    pub acked: Option<Offset>,
}

/// Where a consumer stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Phase {
    /// Nobody works.
    Idle {
        /// Set when there is work that is still being collected: it is told then.
        wake_at: Option<Millis>,
    },
    /// Somebody is being told.
    Waking {
        /// Which attempt this is, from 1.
        attempt: u32,
        /// Whether it is on its way, or waits for its time.
        stage: Stage,
    },
    /// Somebody works, or is taken to until then.
    Live {
        /// The end of the lease.
        until: Millis,
    },
    /// It is no more; what is left says so to those who ask.
    Gone(RemovalReason),
}

/// An attempt to tell a consumer of its work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// It was made; without a sign of life by then, something else must happen.
    Sent {
        /// `Millis::NEVER` when nobody is called and work just waits to be claimed.
        until: Millis,
    },
    /// The last one failed; the next is made then.
    Paused { until: Millis },
}

/// Why a consumer is no more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RemovalReason {
    /// It follows no stream any more.
    Unsubscribed,
    /// Its endpoint failed for too long.
    Failed,
}

/// Everything known of a consumer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Consumer {
    /// Counts wakes; whoever speaks for an earlier one is fenced off.
    pub epoch: u64,
    /// The wake of this epoch; kept while idle, so that a repeated last callback is recognised.
    pub wake_id: Option<WakeId>,
    /// Where it stands.
    pub phase: Phase,
    /// What it follows, in the order in which it came to.
    pub links: Vec<Link>,
    /// When its endpoint began to fail, if it still does.
    pub failing_since: Option<Millis>,
    /// When work appeared that nobody was told of yet.
    pub pending_since: Option<Millis>,
    /// When it was last woken.
    pub woken_at: Option<Millis>,
    /// Who has the lease, in dialects where it is claimed by name.
    pub holder: Option<Arc<str>>,
    /// Events that did not need a wake of their own.
    pub wakes_saved: u64,
    /// How often in a row it said that it was done, acknowledging nothing while there was work.
    pub fruitless_dones: u32,
    /// When it was given up, if it was.
    pub given_up: Option<GivenUp>,
}

/// The end of a consumer whose endpoint failed for too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GivenUp {
    pub at: Millis,
    /// Until then it can go on where it stood.
    pub until: Millis,
}

/// What the outside contributes to a step.
pub struct Given<'a> {
    pub now: Millis,
    /// A name for a wake that begins in this step.
    pub fresh_wake_id: WakeId,
    pub random: u64,
    /// The consumer's rules.
    pub policy: &'a Policy,
    /// The tail of a link's stream; `None` if there is no such stream.
    pub tail: &'a dyn Fn(&Link) -> Option<Offset>,
    /// Whether more is pending than the links show.
    pub more_pending: bool,
    /// Whether so much work is worth a wake already.
    pub worth_waking: &'a dyn Fn(&Backlog) -> bool,
}

/// The work that waits for a consumer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Backlog {
    /// Bytes that are not acknowledged.
    pub bytes: u64,
    /// Streams with such bytes.
    pub streams: u64,
    /// Since when, in milliseconds.
    pub waited_ms: u64,
}

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// A stream that it follows has grown, or began.
    Appended,
    /// An attempt was answered, or failed.
    Answered {
        /// The wake it belongs to.
        epoch: u64,
        attempt: u32,
        /// How it ended.
        answer: Answer,
    },
    /// The consumer reports.
    Callback(Callback),
    /// A worker asks for the work.
    Claim { worker: Arc<str> },
    /// A worker gives the work back.
    Release {
        /// The wake it speaks for.
        epoch: u64,
        wake_id: WakeId,
    },
    /// It is to be told now, by somebody who looks after it.
    Wake {
        /// Also if somebody is at work: a new wake takes the work from them.
        force: bool,
    },
    /// It is to go on from another place, in one stream or in all.
    Seek { stream: Option<StreamPath>, to: ReadFrom },
    /// It was given up, and is to go on where it stood.
    Revive,
    /// A time has come, perhaps.
    Timer {
        /// Whether the attempt that the state speaks of is really on its way: after a restart, or
        /// when too many wait, it is not.
        in_flight: bool,
    },
    /// Its subscription is paused no longer, or was changed: whoever waits looks again.
    Reviewed,
}

/// What an attempt said of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AnnouncedOffset {
    pub path: StreamPath,
    /// Which incarnation: of one that took its place nothing was said.
    pub stream: Option<StreamId>,
    /// Where it ended.
    pub tail: Offset,
}

/// How an attempt ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// Somebody is at work.
    Accepted,
    /// Everything is done already. Holds what the attempt had announced.
    Done(Vec<AnnouncedOffset>),
    /// Nobody was reached, or refused.
    Failed,
}

/// What is to be done once the new state is durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// Tell the consumer: call its endpoint, or put an event where workers look.
    Tell { epoch: u64, attempt: u32 },
}

/// Why a step is refused. Nothing has changed then.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Rejected {
    /// It speaks for another wake.
    #[error("epoch {given} is not the current one, {current}; stop processing")]
    StaleEpoch {
        /// The epoch it gave.
        given: u64,
        /// The epoch that counts.
        current: u64,
    },
    /// It names a wake that is not the current one.
    #[error("the wake id is not that of the current wake; stop processing")]
    AlreadyClaimed,
    /// A generation, a wake id or a token does not belong to the current wake.
    #[error("another wake or worker has taken over; stop processing")]
    Fenced,
    /// An offset cannot be acknowledged.
    #[error(
        "{path}: this offset cannot be acknowledged; send a Stream-Next-Offset that was read from this stream"
    )]
    InvalidOffset {
        /// The stream it was given for.
        path: Arc<str>,
    },
    /// Somebody else has acknowledged what it worked on.
    #[error("{path}: another handler has come further since this work began; drop the work")]
    Overtaken { path: Arc<str> },
    /// Somebody else has the lease.
    #[error("{holder} has claimed this work; try again when its lease has ended")]
    Held {
        holder: Arc<str>,
        /// Under which generation.
        generation: u64,
    },
    /// There is nothing to do.
    #[error("there is no pending work to claim")]
    NoPendingWork,
    /// It follows too many streams.
    #[error("a consumer follows at most {max} streams")]
    TooManyLinks { max: usize },
    /// What it follows takes too much room.
    #[error(
        "the paths that a consumer follows have at most {max} bytes together; follow fewer streams, or such with shorter paths"
    )]
    LinksTooLong { max: usize },
    /// It is no more.
    #[error("this consumer no longer exists")]
    Gone,
    /// It may not be disturbed.
    #[error(
        "a handler is at work for wake {epoch}; wait until it is done, or send {{\"force\": true}}, \
         which fences it off"
    )]
    AtWork { epoch: u64 },
    /// There is nothing that it could be told.
    #[error("nothing is pending: everything that it follows is acknowledged up to its tail")]
    NothingPending,
    #[error("this consumer was given up because its endpoint failed for too long; revive it first")]
    GivenUp,
    /// Nobody is told for now.
    #[error("the subscription is paused, and nobody is woken meanwhile; resume it first")]
    SubscriptionPaused,
    #[error("this consumer was not given up; there is nothing to revive")]
    NotGivenUp,
    #[error("the consumer does not follow {path}; its `streams` are those that it does")]
    NotFollowed { path: Arc<str> },
    /// There is no such place in the stream.
    #[error(
        "{path}: the offset is not in the stream, which ends at {}; send `-1`, `now` or a \
         Stream-Next-Offset that was read from it", TailText(*tail)
    )]
    OutOfRange { path: Arc<str>, tail: Option<Offset> },
}

/// Where a stream ends, for people.
struct TailText(Option<Offset>);

impl fmt::Display for TailText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some(tail) => tail.fmt(f),
            None => f.write_str("-1, since it does not exist"),
        }
    }
}

/// What a step comes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transition {
    /// The consumer as it becomes.
    pub consumer: Consumer,
    /// What follows from it.
    pub effects: Vec<Effect>,
}

impl Consumer {
    /// A consumer that nobody has told anything yet.
    pub fn new(epoch: u64, links: Vec<Link>) -> Consumer {
        Consumer {
            epoch,
            wake_id: None,
            phase: Phase::Idle { wake_at: None },
            links,
            failing_since: None,
            pending_since: None,
            woken_at: None,
            holder: None,
            wakes_saved: 0,
            fruitless_dones: 0,
            given_up: None,
        }
    }

    /// What becomes of the consumer. A refusal leaves it as it was.
    pub fn step(&self, given: &Given<'_>, input: &Input) -> Result<Transition, Rejected> {
        let mut step = Transition { consumer: self.clone(), effects: Vec::new() };
        match input {
            Input::Appended => step.appended(given),
            Input::Answered { epoch, attempt, answer } => {
                step.answered(given, *epoch, *attempt, answer);
            }
            Input::Callback(callback) => step.callback(given, callback)?,
            Input::Claim { worker } => step.claim(given, worker)?,
            Input::Release { epoch, wake_id } => step.release(given, *epoch, *wake_id)?,
            Input::Wake { force } => step.wake_now(given, *force)?,
            Input::Seek { stream, to } => step.seek(given, stream.as_ref(), *to)?,
            Input::Revive => step.revive(given)?,
            Input::Timer { in_flight } => step.timer(given, *in_flight),
            Input::Reviewed => step.reviewed(given),
        }
        let next = &step.consumer;
        assert!(self.epoch <= next.epoch, "S1: epochs only grow");
        if matches!(input, Input::Seek { .. }) {
            return Ok(step);
        }
        // Links keep their order, and new ones come last: one walk over both is enough.
        let mut earlier = self.links.iter();
        for link in &next.links {
            let before = earlier.by_ref().find(|before| before.path == link.path);
            let same = before.filter(|before| before.stream == link.stream);
            assert!(same.is_none_or(|it| it.acked <= link.acked), "S4: acks only grow");
        }
        Ok(step)
    }

    /// Whether any stream has more than was acknowledged.
    pub fn is_pending(&self, given: &Given<'_>) -> bool {
        given.more_pending || self.links.iter().any(|link| (given.tail)(link) > link.acked)
    }

    /// When something must happen by itself.
    pub fn deadline(&self) -> Option<Millis> {
        let at = match self.phase {
            Phase::Idle { wake_at } => wake_at?,
            Phase::Waking { stage: Stage::Sent { until } | Stage::Paused { until }, .. } => until,
            Phase::Live { until } => until,
            Phase::Gone(_) => self.given_up?.until,
        };
        (at != Millis::NEVER).then_some(at)
    }

    fn backlog(&self, given: &Given<'_>) -> Backlog {
        let mut backlog = Backlog::default();
        for link in &self.links {
            let (tail, acked) = ((given.tail)(link), link.acked);
            if tail > acked {
                backlog.streams += 1;
                let position = |at: Option<Offset>| at.map_or(0, |at| at.position());
                backlog.bytes += position(tail) - position(acked);
            }
        }
        backlog.waited_ms = self.pending_since.map_or(0, |since| given.now.since(since));
        backlog
    }
}

impl Transition {
    fn appended(&mut self, given: &Given<'_>) {
        if matches!(self.consumer.phase, Phase::Gone(_)) {
            return;
        }
        let was_held_back = self.is_held_back();
        self.consumer.fruitless_dones = 0;
        if let Phase::Idle { wake_at } = self.consumer.phase
            && self.consumer.is_pending(given)
        {
            // This event is told together with those that wait already.
            self.consumer.wakes_saved += u64::from(wake_at.is_some() && !was_held_back);
            self.wake_or_collect(given);
        }
    }

    /// Looks whether an idle consumer has work: then it is told, else there is nothing to collect.
    fn look(&mut self, given: &Given<'_>) {
        if self.consumer.is_pending(given) {
            self.wake_or_collect(given);
        } else {
            self.consumer.phase = Phase::Idle { wake_at: None };
            self.consumer.pending_since = None;
        }
    }

    /// Ends the work. What is pending is told, at once or when enough of it has come together.
    fn rest(&mut self, given: &Given<'_>) {
        self.consumer.phase = Phase::Idle { wake_at: None };
        self.consumer.holder = None;
        self.consumer.pending_since = None;
        if self.consumer.is_pending(given) {
            self.wake_or_collect(given);
        }
    }

    /// Whoever has work, or is to be tried again, need not wait for the rules of before.
    fn reviewed(&mut self, given: &Given<'_>) {
        match self.consumer.phase {
            Phase::Idle { .. } => self.look(given),
            Phase::Waking { attempt, stage: Stage::Paused { .. } }
                if given.policy.dialect == Dialect::Webhooks && !given.policy.is_paused =>
            {
                self.tell(given, attempt.saturating_add(1));
            }
            Phase::Waking { .. } | Phase::Live { .. } | Phase::Gone(_) => {}
        }
    }

    /// A wake that was not heard of ends, because nobody is called for now: that is nobody's
    /// failure, and the work waits for a review.
    fn put_off(&mut self, given: &Given<'_>) {
        self.consumer.failing_since = None;
        self.rest(given);
    }

    fn wake_or_collect(&mut self, given: &Given<'_>) {
        let since = *self.consumer.pending_since.get_or_insert(given.now);
        if given.policy.is_paused {
            self.consumer.phase = Phase::Idle { wake_at: None };
            return;
        }
        let at = self.wake_time(given, since);
        if at <= given.now {
            self.wake(given);
        } else {
            self.consumer.phase = Phase::Idle { wake_at: Some(at) };
        }
    }

    /// When work that is pending since `since` is to be told.
    fn wake_time(&self, given: &Given<'_>, since: Millis) -> Millis {
        let policy = given.policy;
        let last = self.consumer.woken_at;
        // A clock that was set back does not make anybody wait.
        let spaced = last.map_or(Millis(0), |last| last.min(given.now) + policy.min_interval_ms);
        let Some(max_delay) = policy.max_delay_ms else {
            return spaced;
        };
        let latest = since + max_delay;
        let backlog = self.consumer.backlog(given);
        let worth = |waited_ms| (given.worth_waking)(&Backlog { waited_ms, ..backlog });
        if worth(backlog.waited_ms) {
            return spaced.min(latest);
        }
        if !worth(max_delay) {
            return latest;
        }
        // Waiting alone will make it worth while: somewhere between these two.
        let (mut not_yet, mut then) = (backlog.waited_ms, max_delay);
        while then.saturating_sub(not_yet) > 1 {
            let middle = not_yet + (then - not_yet) / 2;
            if worth(middle) {
                then = middle;
            } else {
                not_yet = middle;
            }
        }
        spaced.max(since + then).min(latest)
    }

    fn wake(&mut self, given: &Given<'_>) {
        let consumer = &mut self.consumer;
        consumer.epoch += 1;
        consumer.wake_id = Some(given.fresh_wake_id);
        consumer.woken_at = Some(given.now);
        consumer.pending_since = None;
        consumer.holder = None;
        self.tell(given, 1);
    }

    /// Makes an attempt.
    fn tell(&mut self, given: &Given<'_>, attempt: u32) {
        let policy = given.policy;
        let until = match (policy.dialect, policy.wake_by) {
            (_, WakeBy::Pull) => Millis::NEVER,
            (Dialect::Webhooks, WakeBy::Webhook) => given.now + policy.waking_timeout_ms,
            (Dialect::Leases, WakeBy::Webhook) => given.now + policy.lease_ms,
        };
        self.consumer.phase = Phase::Waking { attempt, stage: Stage::Sent { until } };
        self.effects.push(Effect::Tell { epoch: self.consumer.epoch, attempt });
    }
}
