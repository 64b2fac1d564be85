//! What a consumer may report, and when it is heard.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{Consumer, Dialect, Given, Link, Phase, Rejected, RemovalReason, Transition, WakeId};
use crate::limits::{CONSUMER_LINKS_BYTES_MAX, CONSUMER_LINKS_MAX};
use crate::offset::Offset;
use crate::path::StreamPath;
use crate::stream::StreamId;

/// A consumer's report: applied whole or not at all.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Callback {
    /// The wake it speaks for.
    pub epoch: u64,
    /// The wake it claims.
    pub wake_id: Option<ClaimedWake>,
    /// How far it has come.
    pub acks: Vec<Ack>,
    /// Streams to follow from now on: where, and what is there.
    pub subscribe: Vec<(StreamPath, Option<StreamId>)>,
    /// Streams to follow no longer.
    pub unsubscribe: Vec<StreamPath>,
    /// Whether it has finished.
    pub done: bool,
}

/// The wake id of a callback: one that is no wake id at all matches none.
pub type ClaimedWake = Result<WakeId, ()>;

/// How far a stream is processed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ack {
    /// The stream, as the consumer wrote it.
    pub path: Arc<str>,
    /// The place; none for something that is no offset. `Some(None)` is `-1`.
    pub offset: Option<Option<Offset>>,
    /// Where the work on it began, if that was said: somebody else may have been there since.
    pub from: Option<Option<Offset>>,
}

impl Transition {
    pub(super) fn callback(
        &mut self,
        given: &Given<'_>,
        callback: &Callback,
    ) -> Result<(), Rejected> {
        self.consumer.admit(given, callback)?;
        let acked = self.consumer.acknowledge(given, &callback.acks)?;
        if acked {
            self.consumer.fruitless_dones = 0;
        }
        self.consumer.follow_all(given, &callback.subscribe)?;
        if !callback.unsubscribe.is_empty() {
            let ended: BTreeSet<&StreamPath> = callback.unsubscribe.iter().collect();
            self.consumer.links.retain(|link| !ended.contains(&link.path));
        }
        // One that has come to more before may still report.
        if !callback.subscribe.is_empty() {
            self.consumer.check_size()?;
        }
        if given.policy.dialect == Dialect::Webhooks && self.consumer.links.is_empty() {
            self.consumer.phase = Phase::Gone(RemovalReason::Unsubscribed);
            return Ok(());
        }
        match self.consumer.phase {
            Phase::Waking { .. } | Phase::Live { .. } => {
                self.consumer.failing_since = None;
                if callback.done {
                    self.done(given, acked);
                } else {
                    let until = given.now + given.policy.lease_ms;
                    self.consumer.phase = Phase::Live { until };
                }
            }
            // The end of a wake, repeated, or a consumer that was taken for dead: what it says is
            // heard, and if anything is pending somebody is told.
            // Saying it again, and nothing else, does not end a pause.
            Phase::Idle { .. } if self.is_held_back() => {}
            Phase::Idle { .. } => self.look(given),
            Phase::Gone(_) => {}
        }
        Ok(())
    }
}

impl Consumer {
    /// Whether whoever reports may speak for this consumer.
    fn admit(&self, given: &Given<'_>, callback: &Callback) -> Result<(), Rejected> {
        if matches!(self.phase, Phase::Gone(_)) {
            return Err(Rejected::Gone);
        }
        let current = self.epoch;
        let same_wake =
            |claimed: &ClaimedWake| claimed.is_ok_and(|claimed| Some(claimed) == self.wake_id);
        match given.policy.dialect {
            // Who was never woken has nothing to report.
            Dialect::Webhooks if callback.epoch != current || self.wake_id.is_none() => {
                Err(Rejected::StaleEpoch { given: callback.epoch, current })
            }
            Dialect::Webhooks if !callback.wake_id.as_ref().is_none_or(same_wake) => {
                Err(Rejected::AlreadyClaimed)
            }
            Dialect::Webhooks => Ok(()),
            Dialect::Leases => {
                let at_work = matches!(self.phase, Phase::Waking { .. } | Phase::Live { .. });
                let same = callback.wake_id.as_ref().is_some_and(same_wake);
                if at_work && same && callback.epoch == current {
                    Ok(())
                } else {
                    Err(Rejected::Fenced)
                }
            }
        }
    }

    /// Says whether anything was acknowledged that was not before.
    fn acknowledge(&mut self, given: &Given<'_>, acks: &[Ack]) -> Result<bool, Rejected> {
        let mut moved = false;
        let strict = given.policy.dialect == Dialect::Leases;
        let places = LinkPlaces::new(&self.links, acks.len());
        for ack in acks {
            let refused = || Rejected::InvalidOffset { path: ack.path.clone() };
            let place = places.find(&self.links, &ack.path);
            let Some(link) = place.and_then(|place| self.links.get_mut(place)) else {
                if strict {
                    return Err(refused());
                }
                continue;
            };
            let to = ack.offset.ok_or_else(refused)?;
            let backwards = to.is_none() || to < link.acked;
            if to > (given.tail)(link) || (strict && backwards) {
                return Err(refused());
            }
            // One that brings nothing new is a repetition, and holds.
            if to > link.acked && ack.from.is_some_and(|from| from != link.acked) {
                return Err(Rejected::Overtaken { path: ack.path.clone() });
            }
            moved |= to > link.acked;
            link.acked = link.acked.max(to);
        }
        Ok(moved)
    }

    fn check_size(&self) -> Result<(), Rejected> {
        let max = CONSUMER_LINKS_BYTES_MAX;
        let bytes = self.links.iter().map(|link| link.path.as_str().len()).sum::<usize>();
        if bytes > max { Err(Rejected::LinksTooLong { max }) } else { Ok(()) }
    }

    /// Follows streams from their tails on.
    fn follow_all(
        &mut self,
        given: &Given<'_>,
        streams: &[(StreamPath, Option<StreamId>)],
    ) -> Result<(), Rejected> {
        if streams.is_empty() {
            return Ok(());
        }
        let mut known: BTreeSet<StreamPath> =
            self.links.iter().map(|link| link.path.clone()).collect();
        for (path, stream) in streams {
            if !known.insert(path.clone()) {
                continue;
            }
            if self.links.len() >= CONSUMER_LINKS_MAX {
                return Err(Rejected::TooManyLinks { max: CONSUMER_LINKS_MAX });
            }
            let mut link = Link { path: path.clone(), stream: *stream, acked: None };
            link.acked = (given.tail)(&link);
            self.links.push(link);
        }
        Ok(())
    }
}

/// Up to this many are looked for one by one.
const FEW: usize = 4;

/// Where the links of a consumer are, by their paths: as many may be asked for as there are.
pub struct LinkPlaces(Option<BTreeMap<StreamPath, usize>>);

impl LinkPlaces {
    /// For so many questions.
    pub fn new(links: &[Link], questions: usize) -> LinkPlaces {
        let paths = links.iter().map(|link| link.path.clone());
        LinkPlaces((questions > FEW).then(|| paths.zip(0..).collect()))
    }

    /// The place of a link among those that this was made for.
    pub fn find(&self, links: &[Link], path: &str) -> Option<usize> {
        match &self.0 {
            Some(places) => places.get(path).copied(),
            None => links.iter().position(|link| link.path.as_str() == path),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_found_alike_however_many_are_asked_for() {
        let path = |number: usize| StreamPath::parse(&format!("/{number}")).unwrap();
        let link = |number| Link { path: path(number), stream: None, acked: None };
        let links: Vec<Link> = (0..100).map(link).collect();
        for questions in [0, FEW, FEW + 1, 1_000] {
            let places = LinkPlaces::new(&links, questions);
            assert_eq!(places.0.is_some(), questions > FEW);
            for number in 0..101 {
                let expected = (number < 100).then_some(number);
                assert_eq!(places.find(&links, path(number).as_str()), expected);
            }
        }
    }
}
