//! TimerGroups: deliveries that begin together share one entry of the due index.
//!
//! Most first attempts are answered long before their leases end. An entry for each of them would
//! be written and removed for nothing; one for all of them stays until it is due, and only then is
//! it looked at which attempts were lost. From its second lease on a delivery has its own entry.

use std::collections::BTreeMap;

use bytes::Bytes;
use reveille_core::Millis;
use reveille_core::delivery::Input;
use reveille_core::delivery::id::DeliveryId;
use reveille_kernel::txn::ReadError;
use reveille_schema::deliveries::DeliveryTimer;
use reveille_schema::{keys, record};

use super::delivery::{self, DeliveryTxn};
use super::index::HookIndex;
use crate::app::Txn;

/// Fewer deliveries than this have an entry each: it goes when they end.
const GROUP_MIN: usize = 4;

/// A delivery that had no end when its group was looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenDelivery {
    pub id: DeliveryId,
    /// Whether an attempt is under way or waits for its turn.
    pub in_flight: bool,
}

/// The groups of the deliveries that a decision begins, by when their leases end.
pub struct TimerGroups {
    by_end: Option<BTreeMap<Millis, Vec<DeliveryId>>>,
}

impl TimerGroups {
    /// For at most so many deliveries.
    pub fn of(deliveries: usize) -> TimerGroups {
        TimerGroups { by_end: (deliveries >= GROUP_MIN).then(BTreeMap::new) }
    }

    /// Adds a delivery whose lease ends at a time. Says whether it is in a group now.
    pub(crate) fn add(&mut self, end: Millis, id: DeliveryId) -> bool {
        let Some(by_end) = &mut self.by_end else {
            return false;
        };
        by_end.entry(end).or_default().push(id);
        true
    }

    /// Writes the entries.
    pub fn keep(self, txn: &mut Txn<'_>) {
        for (end, ids) in self.by_end.unwrap_or_default() {
            set_group(txn, end, &ids);
        }
    }
}

fn set_group(txn: &mut Txn<'_>, at: Millis, ids: &[DeliveryId]) {
    if let Some(first) = ids.first() {
        let timer = DeliveryTimer::DeliveryGroup(*first).encode();
        txn.set_timer_with(at, &timer, record::encode_delivery_group(ids));
    }
}

/// The leases of a group have ended: attempts that nobody makes are made again, and those that are
/// still under way have more time.
pub(crate) fn fire(
    txn: &mut Txn<'_>,
    entry: &Bytes,
    at: Millis,
    open: &[OpenDelivery],
) -> Result<(), ReadError> {
    // An entry that came early stays as it is.
    if txn.now() < at {
        return Ok(());
    }
    let hooks = open.iter().map(|it| it.id.hook).collect();
    txn.counts_and(&hooks, open.iter().map(|it| keys::delivery(it.id)))?;
    let done = txn.gather_slice(open, |txn, OpenDelivery { id, in_flight }| {
        if let Some(hook) = HookIndex::of_txn(txn).get(id.hook)
            && txn.delivery(*id)?.is_some_and(|it| it.timer_at.is_none())
        {
            delivery::advance(txn, hook, *id, Input::Timer { in_flight: *in_flight })?;
        }
        Ok(())
    })?;
    txn.remove(entry);
    // Those that were too much for one decision are a group of their own, which is due as well.
    let left: Vec<DeliveryId> = open.iter().skip(done).map(|it| it.id).collect();
    set_group(txn, at, &left);
    Ok(())
}
