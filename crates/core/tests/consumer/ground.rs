//! The ground that a consumer stands on in these tests: what its steps are given, and who steps.

use reveille_core::consumer::{
    AnnouncedOffset, Consumer, Given, Input, Link, Policy, Rejected, Transition, WakeId,
};
use reveille_core::{Millis, Offset, StreamPath};

/// Whatever claims to be the consumer's law: the real one, or one that is broken on purpose.
pub(crate) type Machine = fn(&Consumer, &Given<'_>, &Input) -> Result<Transition, Rejected>;

/// Streams with their tails; `None` for one that does not exist.
pub(crate) type Tails = [(StreamPath, Option<Offset>)];

/// Everything that a step is given.
#[derive(Clone, Copy)]
pub(crate) struct Ground<'a> {
    pub(crate) machine: Machine,
    pub(crate) policy: &'a Policy,
    pub(crate) tails: &'a Tails,
    pub(crate) now: Millis,
    pub(crate) fresh: WakeId,
    pub(crate) random: u64,
    pub(crate) more_pending: bool,
    /// So many bytes are worth a wake.
    pub(crate) worth_bytes: u64,
}

impl Ground<'_> {
    pub(crate) fn ask<R>(&self, question: impl FnOnce(&Given<'_>) -> R) -> R {
        let tail = |link: &Link| self.tail(&link.path);
        let worth_waking =
            |backlog: &reveille_core::consumer::Backlog| backlog.bytes >= self.worth_bytes;
        question(&Given {
            now: self.now,
            fresh_wake_id: self.fresh,
            random: self.random,
            policy: self.policy,
            tail: &tail,
            more_pending: self.more_pending,
            worth_waking: &worth_waking,
        })
    }

    pub(crate) fn step(&self, consumer: &Consumer, input: &Input) -> Result<Transition, Rejected> {
        self.ask(|given| (self.machine)(consumer, given, input))
    }

    pub(crate) fn is_pending(&self, consumer: &Consumer) -> bool {
        self.ask(|given| consumer.is_pending(given))
    }

    pub(crate) fn tail(&self, path: &StreamPath) -> Option<Offset> {
        self.tails.iter().find(|(known, _)| known == path).and_then(|(_, tail)| *tail)
    }

    /// What an attempt that is made now announces.
    pub(crate) fn announced(&self, consumer: &Consumer) -> Vec<AnnouncedOffset> {
        let announced = |link: &Link| {
            let (path, stream) = (link.path.clone(), link.stream);
            Some(AnnouncedOffset { tail: self.tail(&path)?, path, stream })
        };
        consumer.links.iter().filter_map(announced).collect()
    }
}
