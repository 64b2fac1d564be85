//! Hooks that have something open or given up, in memory, for those who look after them.
//!
//! A fold over what deliveries have come to: whoever looks takes the hooks that are worst off, and
//! pays for no others, however many there are.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use reveille_core::Millis;
use reveille_core::delivery::hook::{DeliveryCounts, HookId};
use reveille_core::delivery::id::{DeliveryId, DeliveryNo, EventNo};
use reveille_core::key_range::above;
use reveille_kernel::error::Damaged;
use reveille_schema::{keys, record};
use reveille_store::state::Reader;

use crate::app::Part;
use crate::limits::{GAUGE_LOOKS_MAX, SCAN_SLICE};
use crate::ranking::{Load, Ranking, Worst};
use crate::records::damaged;

/// All hooks that have something open or given up.
#[derive(Default)]
pub struct HookGauges(Mutex<Loads>);

type Loads = Ranking<HookId, HookLoad>;

/// How many deliveries of a hook are open or given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HookLoad {
    /// Not delivered yet, now.
    pub open: u64,
    /// Dead letters that nobody has had made again.
    pub dead_letters: u64,
    /// Since when no attempt was accepted, if the last one was not.
    pub failing_since: Option<Millis>,
    /// No delivery of an event before this one is open, as far as is known.
    first: EventNo,
}

/// The same of several hooks together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LoadSum {
    pub hooks: u64,
    pub open: u64,
    pub dead_letters: u64,
    pub failing: u64,
}

impl Load for HookLoad {
    type Sum = LoadSum;

    fn is_idle(&self) -> bool {
        self.open == 0 && self.dead_letters == 0 && self.failing_since.is_none()
    }

    fn rank(&self) -> (bool, u64) {
        (self.failing_since.is_some(), self.open + self.dead_letters)
    }

    fn add_to(&self, sum: &mut LoadSum) {
        sum.hooks += 1;
        sum.open += self.open;
        sum.dead_letters += self.dead_letters;
        sum.failing += u64::from(self.failing_since.is_some());
    }

    fn take_from(&self, sum: &mut LoadSum) {
        sum.hooks = sum.hooks.saturating_sub(1);
        sum.open = sum.open.saturating_sub(self.open);
        sum.dead_letters = sum.dead_letters.saturating_sub(self.dead_letters);
        sum.failing = sum.failing.saturating_sub(u64::from(self.failing_since.is_some()));
    }
}

impl Part for HookGauges {
    fn ranges(&self) -> Vec<(Bytes, Bytes)> {
        vec![keys::all_counts()]
    }

    fn follow(&self, key: &Bytes, value: Option<&Bytes>) -> Result<(), Damaged> {
        let Some(id) = keys::parse_counts(key) else { return Ok(()) };
        let counts = value.map(|value| record::decode_delivery_counts(value)).transpose();
        let counts = counts.map_err(damaged)?.unwrap_or_default();
        let mut loads = self.lock();
        let first = loads.get(id).map_or(EventNo(0), |load| load.first);
        let open = counts.pending + counts.failed;
        let DeliveryCounts { dead_letters, failing_since, .. } = counts;
        loads.set(id, HookLoad { open, dead_letters, failing_since, first });
        Ok(())
    }
}

impl HookGauges {
    fn lock(&self) -> MutexGuard<'_, Loads> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The hooks that are worst off, at most so many, and the rest.
    pub fn worst(&self, limit: usize) -> Worst<HookId, HookLoad> {
        self.lock().worst(limit)
    }

    /// When the oldest open delivery of each of these hooks began, as far as it is found: how much
    /// is looked at is limited, and the next look goes on from there.
    pub fn oldest(
        &self,
        reader: &Reader,
        hooks: &[(HookId, HookLoad)],
    ) -> Result<HashMap<HookId, Millis>, Damaged> {
        let (mut found, mut left) = (HashMap::new(), GAUGE_LOOKS_MAX);
        for (id, load) in hooks.iter().filter(|(_, load)| load.open > 0) {
            let (oldest, next) = first_open(reader, *id, load.first, &mut left)?;
            found.extend(oldest.map(|oldest| (*id, oldest)));
            self.lock().note(*id, |load| load.first = next);
            if left == 0 {
                break;
            }
        }
        Ok(found)
    }
}

/// When the first open delivery began from an event on, and the event to begin with the next time.
fn first_open(
    reader: &Reader,
    hook: HookId,
    first: EventNo,
    left: &mut usize,
) -> Result<(Option<Millis>, EventNo), Damaged> {
    let mut from = keys::delivery(DeliveryId { hook, no: DeliveryNo { event: first, round: 0 } });
    let (mut next, to) = (first, keys::deliveries(hook).1);
    while *left > 0 {
        let pairs = reader.range(&from, &to, SCAN_SLICE.min(*left))?;
        let Some((last, _)) = pairs.last() else {
            // There is one all the same: of an event that was asked for again, or came late.
            return Ok((None, EventNo(0)));
        };
        from = above(last);
        *left -= pairs.len();
        for (key, value) in &pairs {
            let record = record::decode_delivery(value).map_err(damaged)?;
            next = keys::parse_delivery(key).map_or(next, |id| id.no.event);
            if record.delivery.ended_at().is_none() {
                return Ok((Some(record.created_at), next));
            }
        }
    }
    Ok((None, next))
}

impl LoadSum {
    /// One more.
    pub fn add(&mut self, load: &HookLoad) {
        self.hooks += 1;
        self.open += load.open;
        self.dead_letters += load.dead_letters;
        self.failing += u64::from(load.failing_since.is_some());
    }

    /// Both together.
    pub fn merge(&mut self, other: &LoadSum) {
        self.hooks += other.hooks;
        self.open += other.open;
        self.dead_letters += other.dead_letters;
        self.failing += other.failing;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn follow(gauges: &HookGauges, hook: u64, counts: Option<DeliveryCounts>) {
        let value = counts.map(|counts| record::encode_delivery_counts(&counts));
        gauges.follow(&keys::counts(HookId(hook)), value.as_ref()).unwrap();
    }

    fn ids(worst: &Worst<HookId, HookLoad>) -> Vec<u64> {
        worst.first.iter().map(|(id, _)| id.0).collect()
    }

    #[test]
    fn those_who_are_worst_off_come_first_and_the_rest_is_a_sum() {
        let gauges = HookGauges::default();
        let counts = |failed, dead_letters, failing| DeliveryCounts {
            failed,
            dead_letters,
            failing_since: Some(Millis(7)).filter(|_| failing),
            ..DeliveryCounts::default()
        };
        follow(&gauges, 1, Some(counts(1_000, 0, false)));
        follow(&gauges, 2, Some(counts(1, 1, true)));
        follow(&gauges, 3, Some(counts(0, 5, true)));
        follow(&gauges, 4, Some(DeliveryCounts { delivered: 9, ..DeliveryCounts::default() }));
        let worst = gauges.worst(2);
        assert_eq!(ids(&worst), [3, 2]);
        let others = LoadSum { hooks: 1, open: 1_000, dead_letters: 0, failing: 0 };
        assert_eq!(worst.others, others);
        assert_eq!(ids(&gauges.worst(9)), [3, 2, 1], "one that has nothing open is not there");
        assert_eq!(gauges.worst(9).others, LoadSum::default());
        // What changes is followed, and what goes is gone.
        follow(&gauges, 3, Some(counts(0, 0, false)));
        follow(&gauges, 2, None);
        follow(&gauges, 1, Some(counts(2_000, 0, true)));
        let worst = gauges.worst(9);
        assert_eq!((ids(&worst), worst.first[0].1.open), (vec![1], 2_000));
        follow(&gauges, 1, None);
        assert!(gauges.worst(9).first.is_empty());
        assert_eq!(gauges.worst(0).others, LoadSum::default());
    }
}
