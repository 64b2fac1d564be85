//! What must be true of every durable state.

use std::collections::BTreeMap;

use reveille_core::consumer::{Dialect, Phase, Stage};
use reveille_core::stream::StreamId;
use reveille_core::subscription::Subscription;
use reveille_core::{Millis, Offset, ReadFrom, StreamPath};
use reveille_engine::effect::ConsumerLoad;
use reveille_engine::wakes::gauges::{SubscriptionGauges, SubscriptionLoad, load_of};
use reveille_schema::keys::ConsumerKey;
use reveille_schema::record::ConsumerRecord;
use reveille_schema::wakes::WakeTimer;

use super::Wakes;
use super::snapshot::Snapshot;
use crate::base::{CheckResult, violation};

impl Wakes {
    /// Looks at what is durable now.
    pub(super) fn audit_state(&self) -> CheckResult {
        let seen = &self.seen;
        for (key, record) in &seen.consumers {
            if seen.is_current(key, record) {
                has_its_timer(seen, key, record)?;
                is_found(seen, key, record)?;
                rests_rightly(seen, key, record)?;
            }
        }
        who_rests_is_marked(seen)?;
        no_stray_timers(seen)?;
        fan_outs_go_on(seen)?;
        for ((id, path), (stream, tail)) in &self.history.must {
            let subscription = &seen.subscriptions[id];
            knows(seen, subscription, path, *stream, *tail)?;
        }
        for subscription in seen.subscriptions.values() {
            beginnings_are_told(seen, subscription)?;
            marks_are_complete(seen, subscription)?;
            marks_are_in_one_place(seen, subscription)?;
        }
        Ok(())
    }

    /// The gauges of every subscription are what the records of its consumers say.
    pub(super) fn audit_gauges(&self) -> CheckResult {
        let gauges = self.base.engine().shared().domains.part::<SubscriptionGauges>();
        for id in self.seen.subscriptions.keys() {
            let mine = self.seen.consumers.iter().filter(|(key, _)| key.subscription == *id);
            let loads: Vec<ConsumerLoad> = mine.map(|(_, record)| load_of(record)).collect();
            let count = |is: fn(&ConsumerLoad) -> bool| loads.iter().filter(|it| is(it)).count();
            let first = |since: fn(&ConsumerLoad) -> Option<Millis>| {
                loads.iter().filter_map(since).min().map(|at| Millis(at.0 / 1_000 * 1_000))
            };
            let wanted = SubscriptionLoad {
                pending: count(|it| it.pending_since.is_some()) as u64,
                pending_since: first(|it| it.pending_since),
                failing: count(|it| it.failing_since.is_some()) as u64,
                failing_since: first(|it| it.failing_since),
                given_up: count(|it| it.is_given_up) as u64,
            };
            let found = gauges.of(*id);
            if found != wanted {
                return Err(violation(format!("{id:?} is shown as {found:?}, not {wanted:?}")));
            }
        }
        Ok(())
    }

    /// Every append that anybody was told of is there, once; and none is there twice.
    pub(super) fn audit_content(&self) -> CheckResult {
        let failed = |error| violation(format!("a stream cannot be read: {error}"));
        for (path, head) in &self.seen.streams {
            let content = self.base.engine().read_stream(&self.tenant, head).map_err(failed)?;
            if path.as_str().starts_with("/wake") {
                continue;
            }
            let text = String::from_utf8_lossy(&content);
            let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
            for token in text.split_terminator(';') {
                *counts.entry(token).or_default() += 1;
            }
            if let Some((token, count)) = counts.iter().find(|(_, count)| **count != 1) {
                return Err(violation(format!("{path} has {token} {count} times")));
            }
            for token in self.acknowledged.get(&head.id).into_iter().flatten() {
                if !counts.contains_key(token.as_str()) {
                    return Err(violation(format!("{path} has lost {token}")));
                }
            }
        }
        Ok(())
    }
}

/// Whoever waits for a time has an entry in the due index, and not after that time.
fn has_its_timer(seen: &Snapshot, key: &ConsumerKey, record: &ConsumerRecord) -> CheckResult {
    let deadline = record.consumer.deadline();
    let entry = record.timer_at.filter(|at| {
        let timer = WakeTimer::Consumer(key.clone());
        seen.wake_timers().any(|(when, what)| when == *at && *what == timer)
    });
    if entry != record.timer_at {
        return Err(violation(format!("{key:?} believes in a timer that is not there")));
    }
    match (deadline, entry) {
        (Some(deadline), Some(at)) if at <= deadline => Ok(()),
        (None, _) => Ok(()),
        _ => Err(violation(format!("{key:?} waits for {deadline:?} with a timer at {entry:?}"))),
    }
}

/// StreamGrowth of what a consumer follows finds it.
fn is_found(seen: &Snapshot, key: &ConsumerKey, record: &ConsumerRecord) -> CheckResult {
    for link in &record.consumer.links {
        let head = seen.streams.get(&link.path);
        let ended = link.stream.is_some() && head.map(|it| it.id) != link.stream;
        if Some(&link.path) == key.path.as_ref() || ended {
            continue;
        }
        if !seen.followers.contains(&(link.path.clone(), key.clone())) {
            return Err(violation(format!("{key:?} follows {link:?}, and nobody knows")));
        }
        if head.is_some_and(|head| !head.followed) {
            return Err(violation(format!("{} does not know that {key:?} follows it", link.path)));
        }
    }
    Ok(())
}

/// Nobody rests while there is work.
fn rests_rightly(seen: &Snapshot, key: &ConsumerKey, record: &ConsumerRecord) -> CheckResult {
    if record.consumer.phase != (Phase::Idle { wake_at: None }) {
        return Ok(());
    }
    // Whoever was put off says so, and is told once its subscription goes on.
    if record.consumer.pending_since.is_some() && seen.will_be_reviewed(key) {
        return Ok(());
    }
    if key.path.is_none() && seen.has_backlog(key.subscription) {
        return Err(violation(format!("L1: {key:?} rests and has a backlog")));
    }
    for link in &record.consumer.links {
        // A stream that was awaited and begins empty tells nobody; wakes are announced silently.
        let tail = seen.tail(link).filter(|tail| *tail > Offset::ZERO);
        let primary = Some(&link.path) == key.path.as_ref();
        let awaits = primary && seen.awaits(key.subscription, &link.path)
            || seen.will_be_told(key, &link.path);
        if tail > link.acked && !link.path.as_str().starts_with("/wake") && !awaits {
            return Err(violation(format!("L1: {key:?} rests; {link:?} is at {tail:?}")));
        }
    }
    Ok(())
}

/// Whoever has work and no timer has a key that says so, and nobody else has.
fn who_rests_is_marked(seen: &Snapshot) -> CheckResult {
    let is_resting = |record: &ConsumerRecord| {
        record.timer_at.is_none() && load_of(record) != ConsumerLoad::default()
    };
    let resting = seen.consumers.iter().filter(|(_, record)| is_resting(record));
    if !resting.map(|(key, _)| key).eq(&seen.resting) {
        return Err(violation(format!("those who rest are not {:?}", seen.resting)));
    }
    Ok(())
}

fn no_stray_timers(seen: &Snapshot) -> CheckResult {
    for (at, timer) in seen.wake_timers() {
        let WakeTimer::Consumer(key) = timer else { continue };
        if let Some(record) = seen.consumers.get(key)
            && seen.is_current(key, record)
            && record.timer_at != Some(at)
        {
            let known = record.timer_at;
            return Err(violation(format!("{key:?} has a timer at {at:?} and knows of {known:?}")));
        }
    }
    Ok(())
}

/// A fan-out, its stream and its entry in the due index know of each other.
fn fan_outs_go_on(seen: &Snapshot) -> CheckResult {
    for (id, fan_out) in &seen.fan_outs {
        let walks = seen.wake_timers().filter(|(_, timer)| match timer {
            WakeTimer::FanOutToSubscriptions(_, _, of) => of == id,
            _ => false,
        });
        let entries = walks.count();
        if entries != 1 {
            return Err(violation(format!("{id:?} has {entries} walks for {fan_out:?}")));
        }
        if fan_out.walk.after >= fan_out.walk.through {
            return Err(violation(format!("the walk of {id:?} has nobody to tell: {fan_out:?}")));
        }
    }
    for (path, head) in &seen.streams {
        if head.has_fan_out != seen.fan_outs.contains_key(&head.id) {
            return Err(violation(format!("{path} is wrong about its fan-out: {head:?}")));
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
) -> CheckResult {
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
    Err(violation(format!("L1: {name} does not know that {path} ({stream:?}) grew to {tail:?}")))
}

/// A subscription that begins before now knows every stream that was there, or will be told of it.
fn beginnings_are_told(seen: &Snapshot, subscription: &Subscription) -> CheckResult {
    let id = subscription.id;
    let walks = |timer: &WakeTimer| matches!(timer, WakeTimer::Backfill(_, of) if *of == id);
    if subscription.spec.start == ReadFrom::Now || seen.wake_timers().any(|(_, it)| walks(it)) {
        return Ok(());
    }
    for (path, head) in &seen.streams {
        let pattern = subscription.spec.pattern.as_ref();
        let is_older = !subscription.is_older_than(head.id) && !head.soft_deleted;
        let begins = subscription.start_in(head, Some(head.tail));
        let has_more = head.tail > Offset::ZERO && begins < Some(head.tail);
        let key = ConsumerKey { subscription: id, path: Some(path.clone()) };
        let known = seen.consumers.get(&key).is_some_and(|it| it.primary == Some(head.id));
        // A short one may have become longer since, and is told of that; wakes are announced
        // silently.
        let is_told = known || seen.awaits(id, path) || path.as_str().starts_with("/wake");
        if is_older && has_more && pattern.is_some_and(|it| it.matches(path)) && !is_told {
            return Err(violation(format!("L1: {id:?} was never told of {path}: {head:?}")));
        }
    }
    Ok(())
}

/// In the lease dialect every stream with work is marked, and somebody cares.
fn marks_are_complete(seen: &Snapshot, subscription: &Subscription) -> CheckResult {
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
            return Err(violation(format!("L1: {path} of {id:?} has work and no mark: {link:?}")));
        }
    }
    let key = ConsumerKey { subscription: subscription.id, path: None };
    if seen.has_backlog(subscription.id) && !seen.consumers.contains_key(&key) {
        return Err(violation(format!("L1: {key:?} has work and does not exist")));
    }
    Ok(())
}

/// Marks are with their consumer, in order and few; or they are keys.
fn marks_are_in_one_place(seen: &Snapshot, subscription: &Subscription) -> CheckResult {
    let key = ConsumerKey { subscription: subscription.id, path: None };
    let Some(few) = seen.consumers.get(&key).and_then(|it| it.marked.as_ref()) else {
        return Ok(());
    };
    let by_key = seen.marks.iter().filter(|(id, _)| *id == subscription.id).count();
    if by_key > 0 || few.len() > 4 || !few.is_sorted_by(|left, right| left < right) {
        let what = format!("{key:?} has marks {few:?} and {by_key} by key");
        return Err(violation(what));
    }
    Ok(())
}

/// Whether work waits to be claimed.
pub(super) fn waits_to_be_claimed(record: &ConsumerRecord) -> bool {
    matches!(record.consumer.phase, Phase::Waking { stage: Stage::Sent { .. }, .. })
}
