//! Everything durable about reminders, hooks and deliveries, and what became of deliveries.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use reveille_core::delivery::hook::{DeliveryCounts, EndedHook, Hook, HookId};
use reveille_core::delivery::id::{DeliveryId, DeliveryNo, EventNo};
use reveille_core::delivery::lane::Lane;
use reveille_core::delivery::replay::ReplayRecord;
use reveille_core::{Millis, Tenant};
use reveille_kernel::keys::parse_timer;
use reveille_schema::Record;
use reveille_schema::deliveries::DeliveryTimer;
use reveille_schema::keys;
use reveille_schema::record::{self, DeliveryRecord, EventRecord};
use reveille_schema::streams::StreamTimer;
use reveille_store::state::Reader;

use super::face::{self, Occurrence};
use crate::base::raw_state::{self, unreadable};
use crate::base::{CheckResult, violation};

#[derive(Debug, Default)]
pub(super) struct Snapshot {
    raw: BTreeMap<Bytes, Bytes>,
    /// Names of reminders whose time has not come.
    pub(super) set: BTreeSet<Arc<str>>,
    pub(super) came: BTreeMap<EventNo, Occurrence>,
    pub(super) events: BTreeMap<EventNo, EventRecord>,
    /// Events that not everybody was told of, and the last hook that was.
    pub(super) fan_outs: BTreeMap<EventNo, u64>,
    pub(super) hooks: BTreeMap<HookId, Hook>,
    /// Hooks as they were.
    pub(super) formers: BTreeMap<(HookId, u64), Hook>,
    /// Hooks that their dead letters have outlived.
    pub(super) ended: BTreeMap<HookId, EndedHook>,
    pub(super) deliveries: BTreeMap<DeliveryId, DeliveryRecord>,
    pub(super) counts: BTreeMap<HookId, DeliveryCounts>,
    pub(super) dead_letters: BTreeSet<DeliveryId>,
    /// Whose each dead letter is, when it died and what has become of it, as its tenant's list says.
    pub(super) letters: BTreeMap<DeliveryId, (Tenant, Millis, u8)>,
    pub(super) replays: BTreeMap<u64, ReplayRecord>,
    pub(super) held: BTreeSet<DeliveryId>,
    pub(super) lanes: BTreeMap<(HookId, u64), Lane>,
    pub(super) waiting: BTreeSet<(HookId, u64, DeliveryNo)>,
    /// When each delivery is looked at, alone or with others.
    pub(super) looks: BTreeSet<(Millis, DeliveryId)>,
    /// Timers of reminders, and of hooks that were ended.
    pub(super) reminds: BTreeSet<(Tenant, Arc<str>)>,
    pub(super) unhooks: BTreeSet<HookId>,
    /// Replays that somebody goes on with.
    pub(super) replaying: BTreeSet<u64>,
    /// Events whose hooks are being told.
    pub(super) going_on: BTreeSet<EventNo>,
    pub(super) first_timer: Option<Millis>,
}

/// Timers, hooks, events and deliveries, and what this face has itself.
const TAGS: [(u8, u8); 5] = [
    (0x05, 0x06),
    (0x0d, 0x0f),
    (0x10, 0x17),
    (0x1b, 0x1f),
    (face::REMINDER, face::FORMER_TOPICS + 1),
];

impl Snapshot {
    pub(super) fn read(reader: &Reader) -> CheckResult<Snapshot> {
        let raw = raw_state::read(reader, &TAGS)?;
        let mut snapshot = Snapshot::default();
        for (key, value) in &raw {
            let wrong = || violation(format!("a key or a value: {key:?} {value:?}"));
            snapshot.add(key, value)?.ok_or_else(wrong)?;
        }
        snapshot.raw = raw.into_iter().collect();
        Ok(snapshot)
    }

    fn add(&mut self, key: &Bytes, value: &Bytes) -> CheckResult<Option<()>> {
        let number = |at: usize| key.get(at..at + 8)?.try_into().ok().map(u64::from_be_bytes);
        let hook = HookId(number(1).unwrap_or(0));
        match key.first() {
            Some(0x05) => return self.add_timer(key, value),
            Some(0x0d) => {
                let hook = record::decode_hook(value).map_err(unreadable)?;
                self.hooks.insert(hook.id, hook);
            }
            Some(0x10) => {
                let Some(id) = keys::parse_delivery(key) else { return Ok(None) };
                let record = record::decode_delivery(value).map_err(unreadable)?;
                self.deliveries.insert(id, record);
            }
            Some(0x11) => {
                let counts = record::decode_delivery_counts(value).map_err(unreadable)?;
                self.counts.insert(hook, counts);
            }
            Some(0x12) => self.dead_letters.extend(keys::parse_dead_letter(key)),
            Some(0x13) => self.held.extend(keys::parse_held(key)),
            Some(0x14) => {
                let lane = record::decode_lane(value).map_err(unreadable)?;
                self.lanes.extend(number(9).map(|number| ((hook, number), lane)));
            }
            Some(0x15) => {
                let (lane, no) = (number(9), keys::parse_waiting(key));
                self.waiting.extend(lane.zip(no).map(|(lane, no)| (hook, lane, no)));
            }
            Some(0x0e) => {
                let event = record::decode_event(value).map_err(unreadable)?;
                self.events.extend(keys::parse_event(key).map(|no| (no, event)));
            }
            Some(0x16) => {
                let told = record::decode_u64(value).map_err(unreadable)?;
                self.fan_outs.extend(keys::parse_event(key).map(|no| (no, told)));
            }
            Some(0x1c) => {
                let replay = ReplayRecord::decode(value).map_err(unreadable)?;
                self.replays.insert(replay.id, replay);
            }
            Some(0x1d) => {
                let former = record::decode_hook(value).map_err(unreadable)?;
                self.formers.extend(number(9).map(|version| ((hook, version), former)));
            }
            Some(0x1b) => {
                let Some(it) = keys::TenantDeadLetter::parse(key) else { return Ok(None) };
                let Some(state) = value.first() else { return Ok(None) };
                self.letters.insert(it.id, (it.tenant, it.died_at, *state));
            }
            Some(0x1e) => {
                let ended = EndedHook::decode(value).map_err(unreadable)?;
                self.ended.insert(ended.hook.id, ended);
            }
            Some(&face::REMINDER) => {
                self.set.insert(Occurrence::decode(value).map_err(unreadable)?.name);
            }
            Some(&face::OCCURRENCE) => {
                let Some(no) = face::parse_number(key) else { return Ok(None) };
                self.came.insert(no, Occurrence::decode(value).map_err(unreadable)?);
            }
            _ => {}
        }
        Ok(Some(()))
    }

    fn add_timer(&mut self, key: &Bytes, value: &Bytes) -> CheckResult<Option<()>> {
        let Some((at, name)) = parse_timer(key) else { return Ok(None) };
        self.first_timer.get_or_insert(at);
        if let Some(timer) = face::parse_timer(name) {
            self.reminds.insert(timer);
            return Ok(Some(()));
        }
        match DeliveryTimer::decode(name) {
            Some(DeliveryTimer::Delivery(id)) => drop(self.looks.insert((at, id))),
            Some(DeliveryTimer::DeliveryGroup(_)) => {
                let ids = record::decode_delivery_group(value).map_err(unreadable)?;
                self.looks.extend(ids.into_iter().map(|id| (at, id)));
            }
            Some(DeliveryTimer::Unhook(_, id)) => drop(self.unhooks.insert(id)),
            Some(DeliveryTimer::FanOut(_, _, no)) => drop(self.going_on.insert(no)),
            Some(DeliveryTimer::Replay(_, id)) => drop(self.replaying.insert(id)),
            Some(DeliveryTimer::Resume(..)) => {}
            // What is left of streams that were deleted is removed in slices.
            None if name.first() == Some(&StreamTimer::DOMAIN) => {}
            None => return Ok(None),
        }
        Ok(Some(()))
    }

    /// A crash changes nothing.
    pub(super) fn check_same(&self, reader: &Reader) -> CheckResult {
        let found = raw_state::read(reader, &TAGS)?;
        raw_state::compare(&self.raw, &found.into_iter().collect())
    }

    /// The deliveries of a hook.
    pub(super) fn of(&self, hook: HookId) -> impl Iterator<Item = (&DeliveryId, &DeliveryRecord)> {
        let first = DeliveryId { hook, no: DeliveryNo { event: EventNo(0), round: 0 } };
        self.deliveries.range(first..).take_while(move |(id, _)| id.hook == hook)
    }

    /// What is left beside what has come and who is muted.
    pub(super) fn remains(&self) -> Option<&Bytes> {
        const STAYING: [u8; 5] =
            [0x0e, face::OCCURRENCE, face::MUTE, face::REVOKED, face::FORMER_TOPICS];
        let stays = |key: &Bytes| key.first().is_some_and(|tag| STAYING.contains(tag));
        self.raw.keys().find(|key| !stays(key))
    }
}
