//! Where everybody begins: with the first event after its subscription, or where that says; no
//! sooner and no later.

use std::collections::BTreeMap;

use reveille_core::stream::{Head, StreamId};
use reveille_core::subscription::SubscriptionId;
use reveille_core::{Offset, ReadFrom, StreamPath};

use super::snapshot::Snapshot;
use crate::base::{CheckResult, violation};

/// Where streams ended when subscriptions began.
#[derive(Debug, Default)]
pub(super) struct StartOffsets {
    /// Not before the first, not after the second.
    ends: BTreeMap<(SubscriptionId, StreamId), (Option<Offset>, Offset)>,
}

impl StartOffsets {
    /// The durable state has changed: whoever is told of a stream for the first time is told of
    /// everything that it witnessed, and of nothing else.
    pub(super) fn advance(&mut self, before: &Snapshot, after: &Snapshot) -> CheckResult {
        self.ends.retain(|(id, _), _| after.subscriptions.contains_key(id));
        let new = after.subscriptions.keys().filter(|id| !before.subscriptions.contains_key(id));
        for id in new {
            for (path, head) in &after.streams {
                let known = before.streams.get(path).filter(|it| it.id == head.id);
                let ends = (known.map(|it| it.tail), head.tail);
                self.ends.insert((*id, head.id), ends);
            }
        }
        for (key, record) in &after.consumers {
            let earlier = before.consumers.get(key).and_then(|it| it.primary);
            let Some((path, primary)) = key.path.as_ref().zip(record.primary) else { continue };
            let link = record.consumer.links.iter().find(|link| link.path == *path);
            if earlier != Some(primary)
                && let (Some(link), Some(head)) = (link, living(after, path, primary))
            {
                let start = start_of(after, key.subscription);
                self.check(key.subscription, start, path, head, link.acked)?;
            }
        }
        for ((id, path), link) in &after.links {
            let subscription = after.subscriptions.get(id);
            let pattern = subscription.and_then(|it| it.spec.pattern.as_ref());
            let known = before.links.contains_key(&(*id, path.clone()));
            // Others may have come to be by an ack.
            let told = link.explicit || after.backlog.contains(&(*id, path.clone()));
            if !known
                && told
                && pattern.is_some_and(|pattern| pattern.matches(path))
                && let Some(head) = link.stream.and_then(|of| living(after, path, of))
            {
                // Whoever waited for a stream by name waits for what is above zero.
                let acked = link.acked.filter(|it| *it > Offset::ZERO);
                let acked = if id.0 < head.id.0 { acked } else { link.acked };
                self.check(*id, ReadFrom::Now, path, head, acked)?;
            }
        }
        Ok(())
    }

    fn check(
        &self,
        id: SubscriptionId,
        start: ReadFrom,
        path: &StreamPath,
        head: &Head,
        acked: Option<Offset>,
    ) -> CheckResult {
        let right = match self.ends.get(&(id, head.id)) {
            // The stream is the younger one: all of it is news.
            _ if id.0 < head.id.0 => acked.is_none(),
            Some(_) if start == ReadFrom::Start => acked.is_none(),
            Some((earliest, latest)) => {
                let begins = |end: Offset| match start {
                    ReadFrom::At(offset) => offset.max(head.first).min(end),
                    ReadFrom::Start | ReadFrom::Now => end,
                };
                earliest.map(begins) <= acked && acked <= Some(begins(*latest))
            }
            None => return Ok(()),
        };
        if right || path.as_str().starts_with("/wake") {
            return Ok(());
        }
        let ends = self.ends.get(&(id, head.id));
        Err(violation(format!(
            "{id:?} begins with {acked:?} of {path} ({:?}), which was at {ends:?}",
            head.id
        )))
    }
}

/// Where a subscription begins in streams that are older.
fn start_of(seen: &Snapshot, id: SubscriptionId) -> ReadFrom {
    seen.subscriptions.get(&id).map_or(ReadFrom::Now, |it| it.spec.start)
}

fn living<'a>(seen: &'a Snapshot, path: &StreamPath, id: StreamId) -> Option<&'a Head> {
    seen.streams.get(path).filter(|head| head.id == id)
}
