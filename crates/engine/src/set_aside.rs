//! Obligations that could not be fulfilled: what they were, and trying them again.

use bytes::Bytes;
use reveille_core::Millis;
use reveille_core::key_range::above;
use reveille_kernel::error::{Damaged, Error, Never};
use reveille_kernel::keys;
use reveille_kernel::set_aside::RetryTimer;
use reveille_schema::deliveries::DeliveryTimer;
use reveille_schema::events::EventTimer;
use reveille_schema::streams::StreamTimer;
use reveille_schema::wakes::WakeTimer;

use crate::engine::Engine;
use crate::limits::LIST_PAGE_MAX;
use crate::records::{Scan, TakeEntry};

/// Which of all timers that were set aside: a partition, and the key that the timer had there.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct TimerId {
    pub partition: usize,
    pub key: Bytes,
}

/// A timer that was set aside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetAsideTimer {
    pub id: TimerId,
    /// When it was due.
    pub due_at: Millis,
    /// Who would have known what it asks for.
    pub domain: Option<&'static str>,
    /// What it was about, as its domain writes it.
    pub name: Bytes,
}

impl Engine {
    /// Timers that were set aside, partition by partition, after one of them. Returns the last one
    /// that was taken if there may be more.
    pub fn set_aside_timers(
        &self,
        after: Option<TimerId>,
        limit: usize,
        take: TakeEntry<'_, SetAsideTimer>,
    ) -> Result<Option<TimerId>, Damaged> {
        let mut left = limit.min(LIST_PAGE_MAX);
        let first = after.as_ref().map_or(0, |after| after.partition);
        let mut last = after;
        for (partition, shared) in self.partitions().iter().enumerate().skip(first) {
            let (mut from, to) = keys::all_set_aside();
            if let Some(after) = last.as_ref().filter(|after| after.partition == partition) {
                from = above(&keys::set_aside(&after.key));
            }
            let reader = shared.state.reader();
            for pair in Scan::new(&reader, from, to) {
                let (key, _) = pair?;
                let Some(key) = keys::parse_set_aside(&key).map(Bytes::copy_from_slice) else {
                    continue;
                };
                let id = TimerId { partition, key };
                if left == 0 || !take(&describe(&id)) {
                    return Ok(last);
                }
                left -= 1;
                last = Some(id);
            }
        }
        Ok(None)
    }

    /// Puts a timer back among those that are due. Says whether there was one.
    pub async fn retry_timer(&self, id: &TimerId) -> Result<bool, Error<Never>> {
        let Some(shared) = self.partitions().get(id.partition) else { return Ok(false) };
        let command = RetryTimer { key: id.key.clone() };
        let was_there = self.submit_to(shared, &command).await?;
        if was_there {
            command.report(&shared.counters);
        }
        Ok(was_there)
    }
}

fn describe(id: &TimerId) -> SetAsideTimer {
    let (due_at, name) = keys::parse_timer(&id.key).unwrap_or((Millis(0), &id.key));
    let domain = match name.first() {
        Some(&StreamTimer::DOMAIN) => Some("streams"),
        Some(&WakeTimer::DOMAIN) => Some("wakes"),
        Some(&DeliveryTimer::DOMAIN) => Some("deliveries"),
        Some(&EventTimer::DOMAIN) => Some("events"),
        _ => None,
    };
    SetAsideTimer { id: id.clone(), due_at, domain, name: id.key.slice_ref(name) }
}
