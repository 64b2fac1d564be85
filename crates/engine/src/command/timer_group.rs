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
use reveille_schema::keys::{self, Due};
use reveille_schema::record;

use super::{Answer, delivery};
use crate::effect::Effect;
use crate::txn::{ReadError, Txn};

/// Fewer deliveries than this have an entry each: it goes when they end.
const LOT_MIN: usize = 4;

/// A delivery that had no end when its lot was looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Open {
    pub id: DeliveryId,
    /// Whether an attempt is under way or waits for its turn.
    pub in_flight: bool,
}

/// The lots of the deliveries that a decision begins, by when their leases end.
pub(super) struct TimerGroups {
    by_end: Option<BTreeMap<Millis, Vec<DeliveryId>>>,
}

impl TimerGroups {
    /// For at most so many deliveries.
    pub(super) fn of(deliveries: usize) -> TimerGroups {
        TimerGroups { by_end: (deliveries >= LOT_MIN).then(BTreeMap::new) }
    }

    /// Adds a delivery whose lease ends at a time. Says whether it is in a lot now.
    pub(super) fn add(&mut self, end: Millis, id: DeliveryId) -> bool {
        let Some(by_end) = &mut self.by_end else {
            return false;
        };
        by_end.entry(end).or_default().push(id);
        true
    }

    /// Writes the entries.
    pub(super) fn keep(self, txn: &mut Txn<'_>) {
        for (end, ids) in self.by_end.unwrap_or_default() {
            if let Some(first) = ids.first() {
                txn.set(
                    keys::due(end, &Due::DeliveryGroup(*first)),
                    record::encode_delivery_group(&ids),
                );
                txn.effect(Effect::SetTimer(end));
            }
        }
    }
}

/// The leases of a lot have ended: attempts that nobody makes are made again, and those that are
/// still under way have more time.
pub(super) fn timer(txn: &mut Txn<'_>, entry: &Bytes, open: &[Open]) -> Result<Answer, ReadError> {
    // An entry that came early stays as it is.
    if keys::parse_due(entry).is_some_and(|(at, _)| txn.now() < at) {
        return Ok(Answer::Done);
    }
    let hooks = open.iter().map(|it| it.id.hook).collect();
    txn.tallies_and(&hooks, open.iter().map(|it| keys::delivery(it.id)))?;
    for Open { id, in_flight } in open {
        if let Some(hook) = txn.hooks().get(id.hook).cloned()
            && txn.record(*id)?.is_some_and(|it| it.timer_at.is_none())
        {
            delivery::advance(txn, &hook, *id, Input::Timer { in_flight: *in_flight })?;
        }
    }
    txn.remove(entry);
    Ok(Answer::Done)
}
