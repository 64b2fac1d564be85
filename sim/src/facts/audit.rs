//! What must be true of everything durable.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use reveille_core::delivery::Phase;
use reveille_core::delivery::hook::{Hook, HookId};
use reveille_core::delivery::id::{DeliveryId, EventNo};
use reveille_core::fact::FACE;
use reveille_schema::keys;
use reveille_schema::record::{self, DeliveryRecord};

use super::Facts;
use super::engine;
use crate::base::raw_state::{self, unreadable};
use crate::base::{CheckResult, violation};

/// Everything but subscriptions to streams.
const TAGS: [(u8, u8); 4] = [(0x02, 0x06), (0x0d, 0x1c), (0x1d, 0x1f), (0x30, 0x3b)];
const FACT: u8 = 0x30;
const CHUNK: u8 = 0x04;
/// What is in everything that is said in a garden, and in nothing else.
pub(super) const GARDEN_MARK: &str = "gmark";

impl Facts {
    /// The place of an event among all of them.
    pub(super) fn place_of(&self, no: EventNo) -> Option<usize> {
        self.events().position(|it| it == no)
    }

    fn events(&self) -> impl Iterator<Item = EventNo> + '_ {
        let (from, to) = keys::events(FACE, &engine::tenant(), EventNo(0));
        self.raw.range(from..to).filter_map(|(key, _)| keys::parse_event(key))
    }

    pub(super) fn deliveries(&self) -> CheckResult<BTreeMap<DeliveryId, DeliveryRecord>> {
        let all = self.raw.range(Bytes::from_static(&[0x10])..Bytes::from_static(&[0x11]));
        let read = |(key, value): (&Bytes, &Bytes)| {
            let id = keys::parse_delivery(key).ok_or_else(|| unreadable("a delivery"))?;
            Ok((id, record::decode_delivery(value).map_err(unreadable)?))
        };
        all.map(read).collect()
    }

    fn durable_hooks(&self) -> CheckResult<BTreeMap<HookId, Hook>> {
        let (from, to) = keys::hooks();
        let read = |(_, value): (&Bytes, &Bytes)| {
            let hook = record::decode_hook(value).map_err(unreadable)?;
            Ok((hook.id, hook))
        };
        self.raw.range(from..to).map(read).collect()
    }

    pub(super) fn audit_all(&mut self) -> CheckResult {
        self.raw = raw_state::read(&self.base.reader(), &TAGS)?.into_iter().collect();
        self.check_events()?;
        self.check_secrets()?;
        let hooks = self.durable_hooks()?;
        self.check_hooks(&hooks)?;
        self.hooks.extend(hooks.iter().map(|(id, hook)| (*id, hook.name.to_string())));
        self.check_deliveries(&hooks)
    }

    /// Every fact and every contradiction is an event, and nothing else is.
    fn check_events(&self) -> CheckResult {
        let (found, expected) = (self.events().count(), self.durable.events.len());
        if found == expected {
            return Ok(());
        }
        Err(violation(format!("there are {found} events and not {expected}")))
    }

    /// What was said in a garden is in facts, and nowhere else: not in a stream, a delivery or an
    /// event.
    fn check_secrets(&self) -> CheckResult {
        let mark = GARDEN_MARK.as_bytes();
        let holds = |value: &Bytes| value.windows(mark.len()).any(|it| it == mark);
        let leak = self.raw.iter().find(|(key, value)| key.first() != Some(&FACT) && holds(value));
        match leak {
            Some((key, value)) => Err(violation(format!("{key:?} holds {value:?}"))),
            None => Ok(()),
        }
    }

    /// Nobody is subscribed who did not ask or was not allowed, or twice; and whoever no longer is
    /// was cancelled for a reason, and knows it.
    fn check_hooks(&self, hooks: &BTreeMap<HookId, Hook>) -> CheckResult {
        let mut alike = BTreeSet::new();
        for hook in hooks.values() {
            let Some(asked) = self.durable.asked.get(&*hook.name) else {
                return Err(violation(format!("nobody asked for {}", hook.name)));
            };
            if !alike.insert((asked.person, asked.target, hook.policy.transport as u8)) {
                return Err(violation(format!("{} is there twice", hook.name)));
            }
        }
        for (id, name) in self.hooks.iter().filter(|(id, _)| !hooks.contains_key(*id)) {
            let asked = self.durable.asked.get(name);
            let has_reason = self.may_end.contains(id)
                || asked.is_some_and(|asked| self.durable.may_be_cancelled(asked));
            let record = keys::cancelled(&engine::tenant(), name);
            if !has_reason || (!self.base.is_healing && !self.raw.contains_key(&record)) {
                return Err(violation(format!("{name} has ended, and nobody knows why")));
            }
        }
        Ok(())
    }

    /// Nothing is delivered that was not asked for.
    fn check_deliveries(&self, hooks: &BTreeMap<HookId, Hook>) -> CheckResult {
        let places: BTreeMap<EventNo, usize> =
            self.events().enumerate().map(|(place, no)| (no, place)).collect();
        for (id, it) in self.deliveries()? {
            let Some(hook) = hooks.get(&id.hook) else { continue };
            let asked = &self.durable.asked[&*hook.name];
            let event = places.get(&id.no.event).and_then(|at| self.durable.events.get(*at));
            if !event.is_some_and(|event| self.durable.is_for(asked, event)) {
                return Err(violation(format!("{id:?} is for nobody: {it:?}")));
            }
        }
        Ok(())
    }

    /// A crash changes nothing. Pieces of streams may be put together otherwise.
    pub(super) fn check_same(&self) -> CheckResult {
        let is_kept = |key: &Bytes| key.first() != Some(&CHUNK);
        let found = raw_state::read(&self.base.reader(), &TAGS)?;
        let found = found.into_iter().filter(|(key, _)| is_kept(key)).collect();
        let mut before = self.raw.clone();
        before.retain(|key, _| is_kept(key));
        raw_state::compare(&before, &found)
    }

    /// After a start, whatever was being tried is to be tried again, if there is room for it.
    pub(super) fn check_all_recovered(&self) -> CheckResult {
        let has_room = self.settings.waiting_per_hook.is_none_or(|most| most > 1_000);
        let hooks = self.durable_hooks()?;
        for (id, it) in self.deliveries()? {
            let is_leased = matches!(it.delivery.phase, Phase::Leased { .. });
            let is_lost = !engine::has_delivery(self.base.engine(), id);
            if is_leased && has_room && hooks.contains_key(&id.hook) && is_lost {
                return Err(violation(format!("{id:?} is not taken up again")));
            }
        }
        Ok(())
    }
}
