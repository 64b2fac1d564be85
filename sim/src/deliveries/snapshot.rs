//! Everything durable about hooks, events and deliveries at one moment.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use reveille_core::delivery::hook::{DeliveryCounts, Hook, HookId};
use reveille_core::delivery::id::{DeliveryId, DeliveryNo, EventNo};
use reveille_core::delivery::lane::Lane;
use reveille_schema::keys;
use reveille_schema::record::{self, DeliveryRecord, EventRecord};
use reveille_store::state::Reader;

use crate::base::CheckResult;
use crate::base::engine::AnyTimer;
use crate::base::raw_state::{self, unreadable as failed};

/// The durable state, decoded.
#[derive(Debug, Default)]
pub(super) struct Snapshot {
    /// As it is stored: after a crash the same must be there.
    pub(super) raw: BTreeMap<Bytes, Bytes>,
    pub(super) hooks: BTreeMap<HookId, Hook>,
    pub(super) events: BTreeMap<EventNo, EventRecord>,
    /// Events that were there and were forgotten.
    pub(super) trimmed: BTreeMap<EventNo, EventRecord>,
    pub(super) deliveries: BTreeMap<DeliveryId, DeliveryRecord>,
    pub(super) counts: BTreeMap<HookId, DeliveryCounts>,
    pub(super) dead_letters: BTreeSet<DeliveryId>,
    /// As they stand among those of their tenant: whether nobody has done anything about them.
    pub(super) tenant_letters: BTreeMap<DeliveryId, bool>,
    pub(super) held: BTreeSet<DeliveryId>,
    pub(super) lanes: BTreeMap<HookId, Lane>,
    pub(super) waiting: BTreeSet<(HookId, DeliveryNo)>,
    /// By event, the last hook that has its delivery.
    pub(super) fan_outs: BTreeMap<EventNo, u64>,
    pub(super) timers: BTreeSet<Bytes>,
}

/// What became of a delivery.
pub(super) struct DeliveryChange {
    pub(super) id: DeliveryId,
    pub(super) before: Option<DeliveryRecord>,
    pub(super) after: Option<DeliveryRecord>,
}

/// Everything but streams, their bytes and subscriptions.
const TAGS: [(u8, u8); 3] = [(0x05, 0x06), (0x0d, 0x19), (0x1b, 0x1d)];

impl Snapshot {
    /// Goes on to what is there now; says what became of deliveries.
    pub(super) fn advance(&mut self, reader: &Reader) -> CheckResult<Vec<DeliveryChange>> {
        let now = raw_state::read(reader, &TAGS)?;
        let mut changes = Vec::new();
        let mut gone: Vec<Bytes> = Vec::new();
        {
            let mut found = now.iter().peekable();
            for key in self.raw.keys() {
                while found.next_if(|(it, _)| it < key).is_some() {}
                if found.peek().is_none_or(|(it, _)| it != key) {
                    gone.push(key.clone());
                }
            }
        }
        for key in gone {
            self.raw.remove(&key);
            self.change(&key, None, &mut changes)?;
        }
        for (key, value) in now {
            if self.raw.get(&key) != Some(&value) {
                self.change(&key, Some(&value), &mut changes)?;
                self.raw.insert(key, value);
            }
        }
        Ok(changes)
    }

    fn change(
        &mut self,
        key: &Bytes,
        value: Option<&Bytes>,
        changes: &mut Vec<DeliveryChange>,
    ) -> CheckResult {
        let wrong = || failed(format!("a key: {key:?}"));
        let number = key.get(1..9).and_then(<[u8]>::first_chunk::<8>);
        let hook = HookId(number.map_or(0, |id| u64::from_be_bytes(*id)));
        match key.first() {
            Some(0x05) => put(&mut self.timers, key.clone(), value.is_some()),
            Some(0x0d) => match value {
                Some(value) => {
                    let hook = record::decode_hook(value).map_err(failed)?;
                    self.hooks.insert(hook.id, hook);
                }
                None => {
                    self.hooks.retain(|_, it| keys::hook(it.face, &it.tenant, &it.name) != *key)
                }
            },
            Some(0x0e) => {
                let no = keys::parse_event(key).ok_or_else(wrong)?;
                let event = value.map(|value| record::decode_event(value)).transpose();
                if value.is_none() {
                    self.trimmed.extend(self.events.get(&no).map(|event| (no, event.clone())));
                }
                place(&mut self.events, no, event.map_err(failed)?);
            }
            Some(0x10) => {
                let id = keys::parse_delivery(key).ok_or_else(wrong)?;
                let after = value.map(|value| record::decode_delivery(value)).transpose();
                let after = after.map_err(failed)?;
                let before = self.deliveries.get(&id).cloned();
                place(&mut self.deliveries, id, after.clone());
                changes.push(DeliveryChange { id, before, after });
            }
            Some(0x11) => {
                let counts = value.map(|value| record::decode_delivery_counts(value)).transpose();
                place(&mut self.counts, hook, counts.map_err(failed)?);
            }
            Some(0x12) => {
                let id = keys::parse_dead_letter(key).ok_or_else(wrong)?;
                put(&mut self.dead_letters, id, value.is_some());
            }
            Some(0x1b) => {
                let letter = keys::TenantDeadLetter::parse(key).ok_or_else(wrong)?;
                let is_open = value.map(|value| value.first() == Some(&0));
                place(&mut self.tenant_letters, letter.id, is_open);
            }
            Some(0x13) => {
                let id = keys::parse_held(key).ok_or_else(wrong)?;
                put(&mut self.held, id, value.is_some());
            }
            Some(0x14) => {
                let lane = value.map(|value| record::decode_lane(value)).transpose();
                place(&mut self.lanes, hook, lane.map_err(failed)?);
            }
            Some(0x15) => {
                let no = keys::parse_waiting(key).ok_or_else(wrong)?;
                put(&mut self.waiting, (hook, no), value.is_some());
            }
            Some(0x16) => {
                let no = keys::parse_event(key).ok_or_else(wrong)?;
                let told = value.map(|value| record::decode_u64(value)).transpose();
                place(&mut self.fan_outs, no, told.map_err(failed)?);
            }
            _ => {}
        }
        Ok(())
    }

    /// A crash changes nothing.
    pub(super) fn check_same(&self, reader: &Reader) -> CheckResult {
        let found = raw_state::read(reader, &TAGS)?;
        raw_state::compare(&self.raw, &found.into_iter().collect())
    }

    /// The events that are there and those that were, in their order.
    pub(super) fn all_events(&self) -> impl Iterator<Item = (&EventNo, &EventRecord)> {
        let all: BTreeMap<_, _> = self.events.iter().chain(&self.trimmed).collect();
        all.into_iter()
    }

    /// Whether there is a timer of one kind.
    pub(super) fn has_timer(&self, is: impl Fn(&AnyTimer) -> bool) -> bool {
        self.timers.iter().filter_map(|key| AnyTimer::parse(key)).any(|(_, timer)| is(&timer))
    }

    /// The hook of a name.
    pub(super) fn named(&self, name: &str) -> Option<&Hook> {
        self.hooks.values().find(|hook| *hook.name == *name)
    }
}

fn put<T: Ord>(set: &mut BTreeSet<T>, item: T, there: bool) {
    if there {
        set.insert(item);
    } else {
        set.remove(&item);
    }
}

fn place<K: Ord, V>(map: &mut BTreeMap<K, V>, key: K, value: Option<V>) {
    match value {
        Some(value) => map.insert(key, value),
        None => map.remove(&key),
    };
}
