//! Subscriptions that begin before now: streams that were there before them are told, slice by
//! slice, in the order of their paths.
//!
//! **Invariant:** a consumer without a record was told nothing since its subscription began. How far
//! it has come follows from where its stream ended then, which is its tail, or the place before the
//! first append that it has still to be told of; see [`Subscription::start_in`]. So whoever is told
//! first, the walk or an append, makes the same record, and the other finds it: nothing is lost,
//! and nothing is told of twice. Streams that are younger than the subscription begin by themselves.
//!
//! The walk's place is the value of its timer: the key of the last stream that was looked at. It
//! ends with its subscription.

use bytes::Bytes;
use reveille_core::key_range::{above, after_prefix};
use reveille_core::subscription::{Subscription, SubscriptionId};
use reveille_core::{Offset, StreamPath, Tenant};
use reveille_kernel::txn::ReadError;
use reveille_schema::keys;

use super::activity::ConsumerTxn;
use super::index::SubscriptionIndex;
use super::{consumer, fan_out};
use crate::app::Txn;
use crate::limits::BACKFILL_SLICE;
use crate::matching::{spend, steps_left};
use crate::streams::txn::StreamTxn;

/// Tells the next slice, and leaves the entry for the rest.
pub(crate) fn walk(
    txn: &mut Txn<'_>,
    entry: &Bytes,
    tenant: &Tenant,
    id: SubscriptionId,
) -> Result<(), ReadError> {
    let Some(place) = txn.get(entry)? else {
        return Ok(());
    };
    let known = SubscriptionIndex::of_txn(txn).get(id).cloned();
    let Some((known, pattern)) = known.and_then(|it| Some((it.clone(), it.spec.pattern.clone()?)))
    else {
        txn.remove(entry);
        return Ok(());
    };
    let first = keys::stream_prefix(tenant, pattern.literal_prefix());
    let end = after_prefix(&first);
    let from = if place.is_empty() { first } else { above(&place) };
    let page = txn.range(&from, &end, BACKFILL_SLICE)?;
    let mut steps = steps_left(txn);
    let (mut found, mut seen): (Vec<(&Bytes, StreamPath)>, usize) = (Vec::new(), 0);
    for (key, _) in &page.pairs {
        if steps.is_exceeded() {
            break;
        }
        seen += 1;
        if let Some((_, path)) = keys::parse_stream(key)
            && pattern.matches_counted(&path, &mut steps)
        {
            found.push((key, path));
        }
    }
    spend(txn, tenant, steps.used());
    let told = txn.gather_slice(&found, |txn, (_, path)| tell(txn, &known, path))?;
    let last_told = told.checked_sub(1).and_then(|last| found.get(last)).map(|(key, _)| *key);
    let last_seen = seen.checked_sub(1).and_then(|last| page.pairs.get(last)).map(|(key, _)| key);
    let place = if told < found.len() {
        last_told
    } else if seen < page.pairs.len() {
        last_seen
    } else {
        page.last.as_ref()
    };
    match place {
        Some(place) => txn.set(entry.clone(), place.clone()),
        None => txn.remove(entry),
    }
    Ok(())
}

/// Tells of a stream, unless that was done, or there is nothing to tell.
fn tell(
    txn: &mut Txn<'_>,
    subscription: &Subscription,
    path: &StreamPath,
) -> Result<(), ReadError> {
    let key = consumer::key_of(subscription, path);
    let (head, stored) = (txn.live_head(&subscription.tenant, path), txn.consumer(&key));
    if head.is_err() || stored.is_err() {
        // What is missing is asked for at once.
        txn.want(&[keys::stream(&subscription.tenant, path), keys::consumer(&key)])?;
    }
    let (head, stored) = (head?, stored?);
    let Some(head) = head.filter(|head| !head.soft_deleted) else {
        return Ok(());
    };
    let is_told = stored.is_some_and(|record| record.primary == Some(head.id));
    if is_told || subscription.is_older_than(head.id) {
        return Ok(());
    }
    let missed = fan_out::missed(txn, subscription, path, &head)?;
    let before = missed.unwrap_or(Some(head.tail));
    let acked = subscription.start_in(&head, before);
    if head.tail == Offset::ZERO || acked >= Some(head.tail) {
        return Ok(());
    }
    consumer::primary_grown(txn, subscription, &key, path, &head, before)
}
