//! Telling everybody whose pattern matches a stream: the first of them in the batch of the append,
//! the others slice by slice. [`reveille_core::fan_out`] says why nobody is forgotten.

use std::sync::Arc;

use bytes::Bytes;
use reveille_core::consumer::Dialect;
use reveille_core::fan_out::{FanOutCursor, IdRange, Watermark};
use reveille_core::stream::{Head, StreamId};
use reveille_core::subscription::{Subscription, SubscriptionId, Target};
use reveille_core::{Offset, StreamPath, Tenant};
use reveille_kernel::txn::ReadError;
use reveille_schema::keys::{self, ConsumerKey};
use reveille_schema::record;
use reveille_schema::wakes::WakeTimer;

use super::activity::ConsumerTxn;
use super::index::{Matching, SubscriptionIndex};
use super::{consumer, lease};
use crate::app::Txn;
use crate::matching::{spend, steps_left};
use crate::records::ReadRecord;
use crate::streams::observer::Growth;
use crate::streams::txn::StreamTxn;

/// All subscriptions that come after a number.
pub(crate) fn all_after(after: u64) -> IdRange {
    IdRange { after: SubscriptionId(after), through: SubscriptionId(u64::MAX) }
}

fn cursor(txn: &mut Txn<'_>, id: StreamId) -> Result<Option<FanOutCursor>, ReadError> {
    txn.read(&keys::subscription_fan_out(id), record::decode_fan_out_cursor)
}

fn set_cursor(txn: &mut Txn<'_>, id: StreamId, cursor: &FanOutCursor) {
    txn.set(keys::subscription_fan_out(id), record::encode_fan_out_cursor(cursor));
}

fn set_timer(txn: &mut Txn<'_>, tenant: &Tenant, path: &StreamPath, id: StreamId) {
    let timer = WakeTimer::FanOutToSubscriptions(tenant.clone(), path.clone(), id);
    txn.set_wake_timer(txn.now(), &timer);
}

/// A stream has grown or begun: those whose pattern matches it are told, or will be.
pub(crate) fn grown(txn: &mut Txn<'_>, growth: &Growth<'_>) -> Result<(), ReadError> {
    let Growth { tenant, path, head, before, author } = *growth;
    let mut steps = steps_left(txn);
    let limit = txn.domains().settings.fan_out.min(txn.items_left());
    let index = SubscriptionIndex::of_txn(txn);
    let matching = index.matching(tenant, path, all_after(0), limit, &mut steps);
    spend(txn, tenant, steps.used());
    let Some(youngest) = matching.youngest() else {
        return Ok(());
    };
    let known = if head.has_fan_out { cursor(txn, head.id)? } else { None };
    let since =
        |id| known.as_ref().and_then(|it| it.first_missed(id)).map_or(before, |it| it.before);
    let told = tell(txn, &matching.found, path, head, since, author)?;
    if told.is_all(&matching) {
        return Ok(());
    }
    let (mark, through) = (Watermark { youngest, before }, told.through(&matching));
    match known {
        Some(known) => {
            let mut fan_out = known.clone();
            fan_out.grown(mark, through);
            if fan_out != known {
                set_cursor(txn, head.id, &fan_out);
            }
        }
        None => {
            set_cursor(txn, head.id, &FanOutCursor::new(mark, through));
            set_timer(txn, tenant, path, head.id);
            txn.set_head(tenant, path, &Head { has_fan_out: true, ..head.clone() });
        }
    }
    Ok(())
}

/// Tells the next slice, and leaves an entry for the rest.
pub(crate) fn walk(
    txn: &mut Txn<'_>,
    entry: &Bytes,
    tenant: &Tenant,
    path: &StreamPath,
    id: StreamId,
) -> Result<(), ReadError> {
    // Whoever fulfils an entry that was fulfilled before would leave two.
    if !txn.is_set(entry)? {
        return Ok(());
    }
    txn.remove(entry);
    let Some(fan_out) = cursor(txn, id)? else {
        return Ok(());
    };
    let head = txn.live_head(tenant, path)?.filter(|head| head.id == id && !head.soft_deleted);
    let Some(head) = head else {
        txn.remove(&keys::subscription_fan_out(id));
        return Ok(());
    };
    let matching = next_matching(txn, tenant, path, fan_out.walk);
    let since = |id| fan_out.first_missed(id).map_or(Some(head.tail), |it| it.before);
    let told = tell(txn, &matching.found, path, &head, since, None)?;
    match fan_out.told(told.through(&matching)) {
        Some(left) => {
            set_cursor(txn, id, &left);
            set_timer(txn, tenant, path, id);
        }
        None => {
            txn.remove(&keys::subscription_fan_out(id));
            txn.set_head(tenant, path, &Head { has_fan_out: false, ..head });
        }
    }
    Ok(())
}

/// The next of the subscriptions in a range whose pattern matches a stream.
pub(crate) fn next_matching(
    txn: &mut Txn<'_>,
    tenant: &Tenant,
    path: &StreamPath,
    range: IdRange,
) -> Matching {
    let mut steps = steps_left(txn);
    let limit = txn.domains().settings.fan_out;
    let index = SubscriptionIndex::of_txn(txn);
    let matching = index.next_matching(tenant, path, range, limit, &mut steps);
    spend(txn, tenant, steps.used());
    matching
}

/// How far telling came.
struct Told {
    count: usize,
    /// The last that was told, or a number below all of them.
    last: SubscriptionId,
}

impl Told {
    fn is_all(&self, matching: &Matching) -> bool {
        self.count == matching.found.len() && matching.rest.is_none()
    }

    /// Nobody who matches and is not younger than this is left out.
    fn through(&self, matching: &Matching) -> SubscriptionId {
        if self.count == matching.found.len() { matching.through } else { self.last }
    }
}

/// Tells the first of some subscriptions that a stream has grown, as many as one decision may. Those
/// that were never told of it are told of everything since the position that `since` gives for them.
fn tell(
    txn: &mut Txn<'_>,
    subscriptions: &[Arc<Subscription>],
    path: &StreamPath,
    head: &Head,
    since: impl Fn(SubscriptionId) -> Option<Offset>,
    author: Option<&ConsumerKey>,
) -> Result<Told, ReadError> {
    let count = txn.gather_slice(subscriptions, |txn, subscription| {
        let key = consumer::key_of(subscription, path);
        if Some(&key) == author {
            return Ok(());
        }
        let before = since(subscription.id);
        match subscription.spec.dialect {
            Dialect::Webhooks => {
                consumer::primary_grown(txn, subscription, &key, path, head, before)
            }
            Dialect::Leases => lease::grown(txn, subscription, path, head, before),
        }
    })?;
    let last = count.checked_sub(1).and_then(|last| subscriptions.get(last));
    Ok(Told { count, last: last.map_or(SubscriptionId(0), |last| last.id) })
}

/// Asks for what subscriptions have of a stream, all at once.
pub(crate) fn want(
    txn: &mut Txn<'_>,
    subscriptions: &[Arc<Subscription>],
    path: &StreamPath,
) -> Result<(), ReadError> {
    let mut wanted = Vec::with_capacity(subscriptions.len());
    for subscription in subscriptions {
        wanted.push(keys::consumer(&consumer::key_of(subscription, path)));
        if subscription.spec.dialect == Dialect::Leases {
            wanted.push(keys::link(subscription.id, path));
        }
        if let Target::Pull(wake_stream) = &subscription.spec.target {
            wanted.push(keys::stream(&subscription.tenant, wake_stream));
        }
    }
    txn.want(&wanted)
}

/// How far a subscription has come that has no record of a stream although the stream has grown
/// since, because its turn in the crowd has not come; `None` if it has missed nothing.
pub(crate) fn missed(
    txn: &mut Txn<'_>,
    subscription: &Subscription,
    path: &StreamPath,
    head: &Head,
) -> Result<Option<Option<Offset>>, ReadError> {
    let matches = subscription.spec.pattern.as_ref().is_some_and(|it| it.matches(path));
    if !head.has_fan_out || !matches || lease::is_wake_stream(subscription, path) {
        return Ok(None);
    }
    let mark = cursor(txn, head.id)?.and_then(|fan_out| fan_out.first_missed(subscription.id));
    let older = subscription.is_older_than(head.id);
    Ok(mark.map(|mark| mark.before.filter(|_| !older)))
}
