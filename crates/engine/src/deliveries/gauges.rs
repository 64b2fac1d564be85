//! Hooks that have something open or given up, in memory, for those who look after them.
//!
//! A fold over what deliveries have come to: whoever looks takes the hooks that are worst off, and
//! pays for no others, however many there are.

use std::collections::{BTreeSet, HashMap};
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
use crate::records::damaged;

/// All hooks that have something open or given up.
#[derive(Default)]
pub struct HookGauges(Mutex<Loads>);

#[derive(Default)]
struct Loads {
    by_hook: HashMap<HookId, HookLoad>,
    by_rank: BTreeSet<Rank>,
    total: LoadSum,
}

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

/// The hooks that are worst off, and all others together.
#[derive(Debug, Clone, Default)]
pub struct WorstHooks {
    pub hooks: Vec<(HookId, HookLoad)>,
    pub others: LoadSum,
}

/// Those that fail are worse off than those that are busy.
type Rank = (bool, u64, HookId);

fn rank(id: HookId, load: &HookLoad) -> Rank {
    (load.failing_since.is_some(), load.open + load.dead_letters, id)
}

impl Part for HookGauges {
    fn ranges(&self) -> Vec<(Bytes, Bytes)> {
        vec![keys::all_counts()]
    }

    fn follow(&self, key: &Bytes, value: Option<&Bytes>) -> Result<(), Damaged> {
        let Some(id) = keys::parse_counts(key) else { return Ok(()) };
        let counts = value.map(|value| record::decode_delivery_counts(value)).transpose();
        let counts = counts.map_err(damaged)?.unwrap_or_default();
        self.lock().set(id, &counts);
        Ok(())
    }
}

impl HookGauges {
    fn lock(&self) -> MutexGuard<'_, Loads> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The hooks that are worst off, at most so many, and the rest.
    pub fn worst(&self, limit: usize) -> WorstHooks {
        let loads = self.lock();
        let worst = loads.by_rank.iter().rev().take(limit);
        let of = |(_, _, id): &Rank| Some((*id, *loads.by_hook.get(id)?));
        let hooks: Vec<(HookId, HookLoad)> = worst.filter_map(of).collect();
        let mut others = loads.total;
        for (_, load) in &hooks {
            others.remove(load);
        }
        WorstHooks { hooks, others }
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
            if let Some(load) = self.lock().by_hook.get_mut(id) {
                load.first = next;
            }
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

impl Loads {
    fn set(&mut self, id: HookId, counts: &DeliveryCounts) {
        let before = self.by_hook.get(&id).copied();
        let after = HookLoad {
            open: counts.pending + counts.failed,
            dead_letters: counts.dead_letters,
            failing_since: counts.failing_since,
            first: before.map_or(EventNo(0), |before| before.first),
        };
        if before == Some(after) {
            return;
        }
        if let Some(before) = before {
            self.by_rank.remove(&rank(id, &before));
            self.total.remove(&before);
        }
        let is_idle = after.open == 0 && after.dead_letters == 0 && after.failing_since.is_none();
        if is_idle {
            self.by_hook.remove(&id);
            return;
        }
        self.by_rank.insert(rank(id, &after));
        self.total.add(&after);
        self.by_hook.insert(id, after);
    }
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

    fn remove(&mut self, load: &HookLoad) {
        self.hooks = self.hooks.saturating_sub(1);
        self.open = self.open.saturating_sub(load.open);
        self.dead_letters = self.dead_letters.saturating_sub(load.dead_letters);
        self.failing = self.failing.saturating_sub(u64::from(load.failing_since.is_some()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn follow(gauges: &HookGauges, hook: u64, counts: Option<DeliveryCounts>) {
        let value = counts.map(|counts| record::encode_delivery_counts(&counts));
        gauges.follow(&keys::counts(HookId(hook)), value.as_ref()).unwrap();
    }

    fn ids(worst: &WorstHooks) -> Vec<u64> {
        worst.hooks.iter().map(|(id, _)| id.0).collect()
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
        assert_eq!((ids(&worst), worst.hooks[0].1.open), (vec![1], 2_000));
        follow(&gauges, 1, None);
        assert!(gauges.worst(9).hooks.is_empty());
        assert_eq!(gauges.worst(0).others, LoadSum::default());
    }
}
