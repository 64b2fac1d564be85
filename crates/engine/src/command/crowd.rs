//! Telling everybody whose pattern matches a stream: the first of them in the batch of the append,
//! the others slice by slice. [`reveille_core::crowd`] says why nobody is forgotten.

use std::sync::Arc;

use bytes::Bytes;
use reveille_core::consumer::Dialect;
use reveille_core::crowd::{Crowd, Mark, Stretch};
use reveille_core::stream::{Head, StreamId};
use reveille_core::subscription::{Subscription, SubscriptionId, Target};
use reveille_core::{Offset, StreamPath, Tenant};
use reveille_store::keys::{self, ConsumerKey, Due};
use reveille_store::record;

use super::{consumer, lease};
use crate::txn::{Missing, Txn};

/// All subscriptions that come after a number.
pub(super) fn all_after(after: u64) -> Stretch {
    Stretch { after: SubscriptionId(after), through: SubscriptionId(u64::MAX) }
}

impl Txn<'_> {
    fn crowd(&mut self, id: StreamId) -> Result<Option<Crowd>, Missing> {
        let Some(value) = self.get(&keys::crowd(id))? else {
            return Ok(None);
        };
        let read = record::decode_crowd(&value);
        read.map(Some).map_err(|error| Missing::Damaged(error.to_string()))
    }

    fn set_crowd(&mut self, id: StreamId, crowd: &Crowd) {
        self.set(keys::crowd(id), record::encode_crowd(crowd));
    }
}

/// A stream has grown or begun: those whose pattern matches it are told, or will be.
pub(super) fn grown(
    txn: &mut Txn<'_>,
    tenant: &Tenant,
    path: &StreamPath,
    head: &Head,
    before: Option<Offset>,
    but: Option<&ConsumerKey>,
) -> Result<(), Missing> {
    let matching = txn.registry().matching(tenant, path, all_after(0), txn.fan_out());
    let Some(last) = matching.found.last() else {
        return Ok(());
    };
    let mut crowd = if head.crowded { txn.crowd(head.id)? } else { None };
    if let Some(youngest) = matching.rest {
        let mark = Mark { youngest, before };
        match &mut crowd {
            Some(crowd) => {
                let known = crowd.clone();
                crowd.grown(mark, last.id);
                if *crowd != known {
                    txn.set_crowd(head.id, crowd);
                }
            }
            None => {
                let begun = crowd.insert(Crowd::new(mark, last.id));
                txn.set_crowd(head.id, begun);
                txn.set_due(txn.now(), &Due::Crowd(tenant.clone(), path.clone(), head.id));
                txn.set_head(tenant, path, &Head { crowded: true, ..head.clone() });
            }
        }
    }
    let since =
        |id| crowd.as_ref().and_then(|it| it.first_missed(id)).map_or(before, |it| it.before);
    tell(txn, &matching.found, path, head, since, but)
}

/// Tells the next slice, and leaves an entry for the rest.
pub(super) fn walk(
    txn: &mut Txn<'_>,
    entry: &Bytes,
    tenant: &Tenant,
    path: &StreamPath,
    id: StreamId,
) -> Result<(), Missing> {
    // Whoever fulfils an entry that was fulfilled before would leave two.
    if !txn.is_set(entry)? {
        return Ok(());
    }
    txn.remove(entry);
    let Some(crowd) = txn.crowd(id)? else {
        return Ok(());
    };
    let head = txn.live_head(tenant, path)?.filter(|head| head.id == id && !head.soft_deleted);
    let Some(head) = head else {
        txn.remove(&keys::crowd(id));
        return Ok(());
    };
    let matching = txn.registry().matching(tenant, path, crowd.walk, txn.fan_out());
    let last = matching.found.last().filter(|_| matching.rest.is_some());
    let through = last.map_or(crowd.walk.through, |last| last.id);
    match crowd.clone().told(through) {
        Some(left) => {
            txn.set_crowd(id, &left);
            txn.set_due(txn.now(), &Due::Crowd(tenant.clone(), path.clone(), id));
        }
        None => {
            txn.remove(&keys::crowd(id));
            txn.set_head(tenant, path, &Head { crowded: false, ..head.clone() });
        }
    }
    let since = |id| crowd.first_missed(id).map_or(Some(head.tail), |it| it.before);
    tell(txn, &matching.found, path, &head, since, None)
}

/// Tells subscriptions that a stream has grown. Those that were never told of it are told of
/// everything since the position that `since` gives for them.
fn tell(
    txn: &mut Txn<'_>,
    subscriptions: &[Arc<Subscription>],
    path: &StreamPath,
    head: &Head,
    since: impl Fn(SubscriptionId) -> Option<Offset>,
    but: Option<&ConsumerKey>,
) -> Result<(), Missing> {
    let mut wanted = Vec::new();
    for subscription in subscriptions {
        let key = consumer::key_of(subscription, path);
        if Some(&key) == but {
            continue;
        }
        let before = since(subscription.id);
        let told = match subscription.asked.dialect {
            Dialect::Webhooks => {
                consumer::primary_grown(txn, subscription, &key, path, head, before)
            }
            Dialect::Leases => lease::grown(txn, subscription, path, head, before),
        };
        match told {
            Ok(()) => {}
            // Whatever the others lack is asked for along with it.
            Err(Missing::Wanted(more)) => wanted.extend(more),
            Err(damaged) => return Err(damaged),
        }
    }
    if wanted.is_empty() { Ok(()) } else { Err(Missing::Wanted(wanted)) }
}

/// Asks for what subscriptions have of a stream, all at once.
pub(super) fn want(
    txn: &mut Txn<'_>,
    subscriptions: &[Arc<Subscription>],
    path: &StreamPath,
) -> Result<(), Missing> {
    let mut wanted = Vec::with_capacity(subscriptions.len());
    for subscription in subscriptions {
        wanted.push(keys::consumer(&consumer::key_of(subscription, path)));
        if subscription.asked.dialect == Dialect::Leases {
            wanted.push(keys::link(subscription.id, path));
        }
        if let Target::Pull(wake_stream) = &subscription.asked.target {
            wanted.push(keys::stream(&subscription.tenant, wake_stream));
        }
    }
    txn.want(&wanted)
}

/// How far a subscription has come that has no record of a stream although the stream has grown
/// since, because its turn in the crowd has not come; `None` if it has missed nothing.
pub(super) fn missed(
    txn: &mut Txn<'_>,
    subscription: &Subscription,
    path: &StreamPath,
    head: &Head,
) -> Result<Option<Option<Offset>>, Missing> {
    let matches = subscription.asked.pattern.as_ref().is_some_and(|it| it.matches(path));
    if !head.crowded || !matches || lease::is_wake_stream(subscription, path) {
        return Ok(None);
    }
    let mark = txn.crowd(head.id)?.and_then(|crowd| crowd.first_missed(subscription.id));
    let older = subscription.is_older_than(head.id);
    Ok(mark.map(|mark| mark.before.filter(|_| !older)))
}
