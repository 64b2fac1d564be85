//! What must be true of every durable state.

use std::collections::BTreeMap;

use reveille_core::consumer::{Dialect, Phase, Stage};
use reveille_core::stream::StreamId;
use reveille_core::subscription::Subscription;
use reveille_core::{Offset, StreamPath};
use reveille_engine::reading::Reading;
use reveille_schema::keys::{ConsumerKey, Due};
use reveille_schema::record::ConsumerRecord;

use super::snapshot::Snapshot;
use super::world::Wakes;
use crate::server::Server;
use crate::world::{Checked, violated};

impl Wakes {
    /// Looks at what is durable now.
    pub(crate) fn audit(&self) -> Checked {
        let seen = &self.seen;
        for (key, record) in &seen.consumers {
            if seen.is_current(key, record) {
                has_its_timer(seen, key, record)?;
                is_found(seen, key, record)?;
                rests_rightly(seen, key, record)?;
            }
        }
        no_stray_timers(seen)?;
        crowds_are_walked(seen)?;
        for ((id, path), (stream, tail)) in &self.history.must {
            let subscription = &seen.subscriptions[id];
            knows(seen, subscription, path, *stream, *tail)?;
        }
        for subscription in seen.subscriptions.values() {
            marks_are_complete(seen, subscription)?;
            marks_are_in_one_place(seen, subscription)?;
        }
        Ok(())
    }

    /// Every append that anybody was told of is there, once; and none is there twice.
    pub(crate) fn audit_content(&self) -> Checked {
        let failed = |error| violated(format!("a stream cannot be read: {error}"));
        for (path, head) in &self.seen.streams {
            let state = &self.life().shared.state;
            let mut reading = Reading::open(state, &self.tenant, head, Offset::ZERO, head.tail)
                .map_err(failed)?;
            let mut content = Vec::new();
            while let Some(piece) = reading.next_blocking().map_err(failed)? {
                content.extend_from_slice(&piece);
            }
            if path.as_str().starts_with("/wake") {
                continue;
            }
            let text = String::from_utf8_lossy(&content);
            let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
            for token in text.split_terminator(';') {
                *counts.entry(token).or_default() += 1;
            }
            if let Some((token, count)) = counts.iter().find(|(_, count)| **count != 1) {
                return Err(violated(format!("{path} has {token} {count} times")));
            }
            let told = self.ledger.get(&head.id).into_iter().flatten();
            for token in told {
                if !counts.contains_key(token.as_str()) {
                    return Err(violated(format!("{path} has lost {token}")));
                }
            }
        }
        Ok(())
    }
}

/// Whoever waits for a time has an entry in the due index, and not after that time.
fn has_its_timer(seen: &Snapshot, key: &ConsumerKey, record: &ConsumerRecord) -> Checked {
    let deadline = record.consumer.deadline();
    let entry = record.timer_at.filter(|at| {
        let due = Due::Consumer(key.clone());
        seen.due.iter().any(|(when, what)| when == at && *what == due)
    });
    if entry != record.timer_at {
        return Err(violated(format!("{key:?} believes in a timer that is not there")));
    }
    match (deadline, entry) {
        (Some(deadline), Some(at)) if at <= deadline => Ok(()),
        (None, _) => Ok(()),
        _ => Err(violated(format!("{key:?} waits for {deadline:?} with a timer at {entry:?}"))),
    }
}

/// StreamGrowth of what a consumer follows finds it.
fn is_found(seen: &Snapshot, key: &ConsumerKey, record: &ConsumerRecord) -> Checked {
    for link in &record.consumer.links {
        let head = seen.streams.get(&link.path);
        let ended = link.stream.is_some() && head.map(|it| it.id) != link.stream;
        if Some(&link.path) == key.path.as_ref() || ended {
            continue;
        }
        if !seen.followers.contains(&(link.path.clone(), key.clone())) {
            return Err(violated(format!("{key:?} follows {link:?}, and nobody knows")));
        }
        if head.is_some_and(|head| !head.followed) {
            return Err(violated(format!("{} does not know that {key:?} follows it", link.path)));
        }
    }
    Ok(())
}

/// Nobody rests while there is work.
fn rests_rightly(seen: &Snapshot, key: &ConsumerKey, record: &ConsumerRecord) -> Checked {
    if record.consumer.phase != (Phase::Idle { wake_at: None }) {
        return Ok(());
    }
    if key.path.is_none() && seen.has_backlog(key.subscription) {
        return Err(violated(format!("L1: {key:?} rests and has a backlog")));
    }
    for link in &record.consumer.links {
        // A stream that was awaited and begins empty tells nobody; wakes are announced silently.
        let tail = seen.tail(link).filter(|tail| *tail > Offset::ZERO);
        let primary = Some(&link.path) == key.path.as_ref();
        let awaits = primary && seen.awaits(key.subscription, &link.path)
            || seen.will_be_told(key, &link.path);
        if tail > link.acked && !link.path.as_str().starts_with("/wake") && !awaits {
            return Err(violated(format!("L1: {key:?} rests; {link:?} is at {tail:?}")));
        }
    }
    Ok(())
}

fn no_stray_timers(seen: &Snapshot) -> Checked {
    for (at, due) in &seen.due {
        let Due::Consumer(key) = due else { continue };
        if let Some(record) = seen.consumers.get(key)
            && seen.is_current(key, record)
            && record.timer_at != Some(*at)
        {
            let known = record.timer_at;
            return Err(violated(format!("{key:?} has a timer at {at:?} and knows of {known:?}")));
        }
    }
    Ok(())
}

/// A crowd, its stream and its entry in the due index know of each other.
fn crowds_are_walked(seen: &Snapshot) -> Checked {
    for (id, fan_out) in &seen.crowds {
        let mine = |due: &Due| matches!(due, Due::FanOutToSubscriptions(_, _, of) if of == id);
        let entries = seen.due.iter().filter(|(_, due)| mine(due)).count();
        if entries != 1 {
            return Err(violated(format!("{id:?} has {entries} walks for {fan_out:?}")));
        }
        if fan_out.walk.after >= fan_out.walk.through {
            return Err(violated(format!("the walk of {id:?} has nobody to tell: {fan_out:?}")));
        }
    }
    for (path, head) in &seen.streams {
        if head.has_fan_out != seen.crowds.contains_key(&head.id) {
            return Err(violated(format!("{path} is wrong about its crowd: {head:?}")));
        }
    }
    Ok(())
}

/// A subscription that witnessed growth has somebody who was, is or will be told.
fn knows(
    seen: &Snapshot,
    subscription: &Subscription,
    path: &StreamPath,
    stream: StreamId,
    tail: Offset,
) -> Checked {
    let known = match subscription.spec.dialect {
        Dialect::Webhooks => {
            let key = ConsumerKey { subscription: subscription.id, path: Some(path.clone()) };
            seen.consumers.get(&key).is_some_and(|it| it.primary == Some(stream))
        }
        Dialect::Leases => {
            let key = (subscription.id, path.clone());
            let link = seen.links.get(&key).filter(|it| it.stream == Some(stream));
            link.is_some_and(|it| it.acked >= Some(tail) || seen.backlog.contains(&key))
        }
    };
    if known || seen.awaits(subscription.id, path) {
        return Ok(());
    }
    let name = &subscription.spec.name;
    Err(violated(format!("L1: {name} does not know that {path} ({stream:?}) grew to {tail:?}")))
}

/// In the lease dialect every stream with work is marked, and somebody cares.
fn marks_are_complete(seen: &Snapshot, subscription: &Subscription) -> Checked {
    if subscription.spec.dialect != Dialect::Leases {
        return Ok(());
    }
    for ((id, path), link) in &seen.links {
        let head = seen.streams.get(path).filter(|head| link.stream == Some(head.id));
        let pending = head.is_some_and(|head| Some(head.tail) > link.acked)
            && !path.as_str().starts_with("/wake");
        let key = ConsumerKey { subscription: *id, path: None };
        let marked = seen.backlog.contains(&(*id, path.clone()))
            || seen.awaits(*id, path)
            || seen.will_be_told(&key, path);
        if *id == subscription.id && pending && !marked {
            return Err(violated(format!("L1: {path} of {id:?} has work and no mark: {link:?}")));
        }
    }
    let key = ConsumerKey { subscription: subscription.id, path: None };
    if seen.has_backlog(subscription.id) && !seen.consumers.contains_key(&key) {
        return Err(violated(format!("L1: {key:?} has work and does not exist")));
    }
    Ok(())
}

/// Marks are with their consumer, in order and few; or they are keys.
fn marks_are_in_one_place(seen: &Snapshot, subscription: &Subscription) -> Checked {
    let key = ConsumerKey { subscription: subscription.id, path: None };
    let Some(few) = seen.consumers.get(&key).and_then(|it| it.marked.as_ref()) else {
        return Ok(());
    };
    let by_key = seen.marks.iter().filter(|(id, _)| *id == subscription.id).count();
    if by_key > 0 || few.len() > 4 || !few.is_sorted_by(|left, right| left < right) {
        let what = format!("{key:?} has marks {few:?} and {by_key} by key");
        return Err(violated(what));
    }
    Ok(())
}

/// Whether work waits to be claimed.
pub(crate) fn waits_to_be_claimed(record: &ConsumerRecord) -> bool {
    matches!(record.consumer.phase, Phase::Waking { stage: Stage::Sent { .. }, .. })
}
