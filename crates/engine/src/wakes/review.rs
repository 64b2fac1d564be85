//! Consumers of a subscription that goes on after a pause, or is told elsewhere or at other times: they
//! look again whether they are to be told, slice by slice.
//!
//! Whoever was put off while the subscription was paused has a record that says so, made no later
//! than the batch that ends the pause; so a walk over the records finds all of them, and whoever
//! comes to be behind its cursor was never put off.

use bytes::Bytes;
use reveille_core::consumer::{Consumer, Input, Phase, Stage};
use reveille_core::key_range::above;
use reveille_core::subscription::SubscriptionId;
use reveille_kernel::txn::ReadError;
use reveille_schema::{keys, record};

use super::activity::ConsumerTxn;
use super::consumer::{self, LoadedConsumer};
use super::index::SubscriptionIndex;
use crate::app::Txn;

/// Consumers that are read at once: each may have a large record.
const CONSUMERS_AT_ONCE: usize = 16;

/// Takes the walk a slice further: the entry's value is the key of the last consumer whose turn has
/// been.
pub(crate) fn walk(txn: &mut Txn<'_>, entry: &Bytes, id: SubscriptionId) -> Result<(), ReadError> {
    // Whoever pauses the subscription takes the entry out.
    let Some(cursor) = txn.get(entry)? else {
        return Ok(());
    };
    let subscription = SubscriptionIndex::of_txn(txn).get(id);
    if subscription.is_none_or(|it| it.paused_at.is_some()) {
        txn.remove(entry);
        return Ok(());
    }
    let (first, end) = keys::consumers(id);
    let from = if cursor.is_empty() { first } else { above(&cursor) };
    let limit = txn.domains().settings.fan_out.min(CONSUMERS_AT_ONCE);
    let found = txn.range(&from, &end, limit)?;
    let done = txn.gather_slice(&found.pairs, |txn, (key, value)| review(txn, key, value))?;
    let reached = match found.pairs.get(done) {
        Some(_) => done.checked_sub(1).and_then(|last| found.pairs.get(last)).map(|it| &it.0),
        None => found.last.as_ref(),
    };
    match reached {
        Some(last) => txn.set(entry.clone(), last.clone()),
        None => txn.remove(entry),
    }
    Ok(())
}

/// One consumer looks again.
fn review(txn: &mut Txn<'_>, key: &Bytes, value: &Bytes) -> Result<(), ReadError> {
    // What cannot be read is nobody's who could be told.
    let known = keys::parse_consumer(key).zip(record::decode_consumer(value).ok());
    let Some((key, _)) = known.filter(|(_, record)| is_waiting(&record.consumer)) else {
        return Ok(());
    };
    let Some(present) = consumer::present(txn, &key)? else {
        return Ok(());
    };
    let LoadedConsumer { subscription, mut record, tails } = present;
    let before = record.clone();
    let input = Input::Reviewed;
    let consumer = &record.consumer;
    record.consumer = consumer::step(txn, &subscription, &key, consumer, &tails, false, &input)
        .expect("a review is never refused");
    if record != before {
        txn.keep(&key, Some(&before), record);
    }
    Ok(())
}

/// Whether it was put off, collects events, or is to be tried again.
fn is_waiting(consumer: &Consumer) -> bool {
    match consumer.phase {
        Phase::Idle { .. } => consumer.pending_since.is_some(),
        Phase::Waking { stage: Stage::Paused { .. }, .. } => true,
        Phase::Waking { .. } | Phase::Live { .. } | Phase::Gone(_) => false,
    }
}
