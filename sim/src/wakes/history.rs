//! What must be true from one durable state to the next, however the server died in between.

use std::collections::{BTreeMap, BTreeSet};

use reveille_core::consumer::WakeId;
use reveille_core::stream::StreamId;
use reveille_core::subscription::SubscriptionId;
use reveille_core::{Millis, Offset, StreamPath};
use reveille_schema::keys::ConsumerKey;
use reveille_schema::record::ConsumerRecord;

use super::snapshot::Snapshot;
use crate::base::{CheckResult, violation};

#[derive(Debug, Default)]
pub(super) struct History {
    lives: BTreeMap<ConsumerKey, ConsumerHistory>,
    wakes: BTreeMap<WakeId, (ConsumerKey, u64)>,
    /// When streams ended, at the earliest.
    ended: BTreeMap<StreamId, Millis>,
    /// Subscriptions that were there and are not.
    pub(super) deleted: BTreeSet<SubscriptionId>,
    /// What subscriptions must have learned: streams, and how far they had grown.
    pub(super) must: BTreeMap<(SubscriptionId, StreamPath), (StreamId, Offset)>,
    /// Generations that workers were told they have.
    pub(super) claimed: BTreeSet<(SubscriptionId, u64)>,
}

#[derive(Debug, Default)]
struct ConsumerHistory {
    epoch: u64,
    notified: u64,
    wakes: BTreeMap<u64, WakeId>,
}

impl History {
    /// The durable state has changed, by a batch whose first decision was made at `opened`.
    pub(super) fn advance(
        &mut self,
        before: &Snapshot,
        after: &Snapshot,
        opened: Millis,
        now: Millis,
        token_ttl_ms: u64,
    ) -> CheckResult {
        for (path, head) in &before.streams {
            if after.streams.get(path).is_none_or(|it| it.id != head.id) {
                self.ended.insert(head.id, opened);
            }
        }
        let gone = before.subscriptions.keys().filter(|id| !after.subscriptions.contains_key(id));
        self.deleted.extend(gone);
        if let Some(id) = after.subscriptions.keys().find(|id| self.deleted.contains(id)) {
            return Err(violation(format!("{id:?} was deleted and is back")));
        }
        for (key, record) in &after.consumers {
            let earlier = before.consumers.get(key).and_then(|it| it.primary);
            let ended = earlier.and_then(|id| self.ended.get(&id));
            if earlier != record.primary && ended.is_some_and(|at| *at + token_ttl_ms <= now) {
                // It was forgotten and begun anew in one batch.
                self.lives.remove(key);
            }
            self.see(key, record)?;
            let head = key.path.as_ref().and_then(|path| after.streams.get(path));
            if let Some(primary) = record.primary
                && head.is_none_or(|head| head.id != primary)
            {
                // It may have begun and ended in one batch.
                self.ended.entry(primary).or_insert(opened);
            }
            if let Some(earlier) = before.consumers.get(key) {
                acks_only_grow(key, earlier, record)?;
            }
        }
        for (key, record) in &before.consumers {
            if !after.consumers.contains_key(key) {
                self.forgotten(after, key, record, now, token_ttl_ms)?;
            }
        }
        for (key, link) in &after.links {
            if let Some(earlier) = before.links.get(key)
                && earlier.stream == link.stream
                && earlier.acked > link.acked
            {
                return Err(violation(format!("S4: {key:?} fell from {earlier:?} to {link:?}")));
            }
        }
        self.learn(before, after);
        Ok(())
    }

    /// S1 and S2: epochs only grow, and each has one wake id.
    fn see(&mut self, key: &ConsumerKey, record: &ConsumerRecord) -> CheckResult {
        let seen = self.lives.entry(key.clone()).or_default();
        let epoch = record.consumer.epoch;
        if epoch < seen.epoch {
            let known = seen.epoch;
            return Err(violation(format!("S1: {key:?} fell back from {known} to {epoch}")));
        }
        seen.epoch = epoch;
        let Some(wake_id) = record.consumer.wake_id else {
            return Ok(());
        };
        let known = *seen.wakes.entry(epoch).or_insert(wake_id);
        let owner = self.wakes.entry(wake_id).or_insert_with(|| (key.clone(), epoch));
        if known != wake_id || *owner != (key.clone(), epoch) {
            return Err(violation(format!(
                "S2: {key:?} has {wake_id} in epoch {epoch}; it had {known}, and {owner:?} has that"
            )));
        }
        Ok(())
    }

    /// A consumer is noticed: nobody is told of an earlier wake, or of a wake by another name.
    pub(super) fn notified(
        &mut self,
        key: &ConsumerKey,
        epoch: u64,
        wake_id: Option<WakeId>,
    ) -> CheckResult {
        if self.deleted.contains(&key.subscription) {
            return Err(violation(format!(
                "S7: {key:?} is told after its subscription was deleted"
            )));
        }
        let seen = self.lives.entry(key.clone()).or_default();
        if epoch < seen.notified {
            let notified = seen.notified;
            return Err(violation(format!("S1: {key:?} is told of {epoch} after {notified}")));
        }
        seen.notified = epoch;
        if wake_id.is_none() || seen.wakes.get(&epoch) != wake_id.as_ref() {
            let known = seen.wakes.get(&epoch);
            return Err(violation(format!(
                "S2: {key:?} is told of {wake_id:?} in epoch {epoch}, which is {known:?}"
            )));
        }
        Ok(())
    }

    /// A consumer's record may go with its subscription, or when no token of its stream is valid.
    fn forgotten(
        &mut self,
        after: &Snapshot,
        key: &ConsumerKey,
        record: &ConsumerRecord,
        now: Millis,
        token_ttl_ms: u64,
    ) -> CheckResult {
        if !after.subscriptions.contains_key(&key.subscription) {
            return Ok(());
        }
        let ended = record.primary.and_then(|id| self.ended.get(&id).copied());
        match ended {
            Some(ended) if ended + token_ttl_ms <= now => {
                self.lives.remove(key);
                Ok(())
            }
            _ => Err(violation(format!(
                "{key:?} was forgotten at {now:?}; its stream ended at {ended:?}: {record:?}"
            ))),
        }
    }

    /// StreamGrowth that a subscription witnessed from before to after is its business.
    fn learn(&mut self, before: &Snapshot, after: &Snapshot) {
        self.must.retain(|(id, path), (stream, _)| {
            let alive = after.streams.get(path).is_some_and(|head| head.id == *stream);
            alive && after.subscriptions.contains_key(id)
        });
        for (path, head) in &after.streams {
            let known = before.streams.get(path).filter(|it| it.id == head.id);
            let grown = known.map_or(Offset::ZERO, |it| it.tail) < head.tail;
            if !grown || path.as_str().starts_with("/wake") {
                continue;
            }
            for (id, subscription) in &after.subscriptions {
                let pattern = subscription.spec.pattern.as_ref();
                if before.subscriptions.contains_key(id)
                    && pattern.is_some_and(|pattern| pattern.matches(path))
                {
                    self.must.insert((*id, path.clone()), (head.id, head.tail));
                }
            }
        }
    }
}

/// S4, as far as records of the same incarnation show it.
fn acks_only_grow(
    key: &ConsumerKey,
    earlier: &ConsumerRecord,
    later: &ConsumerRecord,
) -> CheckResult {
    if earlier.primary != later.primary {
        return Ok(());
    }
    for link in &later.consumer.links {
        let known = earlier.consumer.links.iter().find(|it| it.path == link.path);
        if let Some(known) = known.filter(|it| it.stream == link.stream)
            && known.acked > link.acked
        {
            return Err(violation(format!("S4: {key:?} fell from {known:?} to {link:?}")));
        }
    }
    Ok(())
}
