//! Reminders on the delivery engine: setting them, who is told, and whether still.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use bytes::Bytes;
use reveille_core::delivery::DropReason;
use reveille_core::delivery::hook::{FaceId, Hook, HookId};
use reveille_core::delivery::id::EventNo;
use reveille_core::trace::Trace;
use reveille_core::{Millis, Tenant};
use reveille_engine::app::{App, IndexPart, Shared, Txn};
use reveille_engine::deliveries::DeliveryRejection;
use reveille_engine::deliveries::face::{DeliveryFace, EventMatch, FaceTimer, Gate};
use reveille_engine::deliveries::hook::{NewHook, change, create, from_now_on, named};
use reveille_engine::deliveries::index::HookIndex;
use reveille_engine::deliveries::source::put_event;
use reveille_engine::deliveries::spread::{MatchingHook, MatchingHooks, SpreadEvent, spread};
use reveille_engine::effect::EventPayload;
use reveille_engine::records::KeyReader;
use reveille_kernel::command::{Command, Decision};
use reveille_kernel::error::{Damaged, Never};
use reveille_kernel::timers::DueTimer;
use reveille_kernel::txn::ReadError;
use reveille_schema::record::{EventPlace, EventRecord};
use reveille_schema::{keys, record};
use reveille_store::state::Reader;

use super::rules::{FACE, ReminderSpec};
use super::schema::{
    FORMER_TOPICS, Occurrence, decode_spec, encode_spec, former_topics_key, mute_key,
    occurrence_key, parse_former_topics, parse_timer, reminder_key, revoked_key, timer,
};

/// The face of reminders.
pub(super) struct ReminderFace;

impl DeliveryFace for ReminderFace {
    fn id(&self) -> FaceId {
        FACE
    }

    fn register(&self, app: App) -> App {
        app.with_index::<ReminderIndex>()
    }

    fn next_matching(
        &self,
        txn: &mut Txn<'_>,
        tenant: &Tenant,
        event: SpreadEvent<'_>,
        after: HookId,
    ) -> Result<MatchingHooks, ReadError> {
        let topic = event.record.kind.parse().map_err(|_| Damaged::new("no topic"))?;
        txn.rests_on_index();
        let limit = txn.domains().settings.fan_out;
        let index = txn.index().of::<ReminderIndex>();
        let accepts = |hook: &Hook| hook.was_active_at(event.no);
        let place = Place { tenant, topic, at: event.no };
        Ok(index.matching(HookIndex::of_txn(txn), place, after, limit, accepts))
    }

    fn explain_match(
        &self,
        reader: &Reader,
        hook: &Hook,
        no: EventNo,
        event: &EventRecord,
    ) -> Result<EventMatch, Damaged> {
        let topic: u8 = event.kind.parse().map_err(|_| Damaged::new("no topic"))?;
        // What it wanted before it was changed for the first time after the event.
        let (from, to) =
            [EventNo(no.0 + 1), EventNo(u64::MAX)].map(|at| former_topics_key(hook.id, at)).into();
        let former = reader.range(&from, &to, 1)?;
        let topics = match former.first().and_then(|(_, value)| value.first()) {
            Some(topics) => *topics,
            None => decode_spec(&hook.spec)?.topics,
        };
        if topics & (1 << topic) != 0 {
            return Ok(EventMatch::Matches);
        }
        Ok(EventMatch::Differs(format!("topic {topic} is none of {topics:#010b}")))
    }

    /// The text alone, of all that is kept of an occurrence.
    fn payload(
        &self,
        reader: &Reader,
        _: &Hook,
        event: &EventRecord,
    ) -> Result<Option<Bytes>, Damaged> {
        let EventPlace::Key { key, .. } = &event.place else { return Ok(None) };
        let occurrence = reader.get(key)?.map(|value| Occurrence::decode(&value)).transpose()?;
        Ok(occurrence.map(|it| Bytes::copy_from_slice(it.text.as_bytes())))
    }

    fn has_gate(&self) -> bool {
        true
    }

    fn gate(
        &self,
        look: &mut dyn KeyReader,
        hook: &Arc<Hook>,
        event: &EventRecord,
        _: Millis,
    ) -> Result<Gate, ReadError> {
        if look.value_of(&revoked_key(&hook.tenant, &hook.name))?.is_some() {
            return Ok(Gate::Cancelled(DropReason::Cancelled));
        }
        let subject = event.subject.as_deref().unwrap_or_default();
        let muted = look.value_of(&mute_key(&hook.tenant, subject))?;
        Ok(if muted.is_some() { Gate::Closed(DropReason::NotOwed) } else { Gate::Open })
    }

    fn timer(&self, _: &Shared, entry: DueTimer) -> Result<FaceTimer, Damaged> {
        let unknown = || Damaged::new("a timer of reminders cannot be read");
        let (tenant, name) = parse_timer(entry.name()).ok_or_else(unknown)?;
        Ok(Arc::new(Remind { entry, tenant, name }))
    }
}

/// What is asked of the matcher.
struct Place<'a> {
    tenant: &'a Tenant,
    topic: u8,
    /// Where the event came.
    at: EventNo,
}

/// The matcher: hooks by topic, also by those that they had.
#[derive(Default)]
struct ReminderIndex {
    hooks: BTreeMap<Tenant, BTreeMap<HookId, u8>>,
    by_key: HashMap<Bytes, (Tenant, HookId)>,
    /// Versions of hooks, and what they wanted, of events before a number.
    former: BTreeMap<(HookId, EventNo), (u64, u8)>,
}

impl ReminderIndex {
    /// The version that a hook had and what it wanted, if that is not as it is.
    fn former(&self, hook: HookId, at: EventNo) -> Option<(u64, u8)> {
        let later = (hook, EventNo(at.0 + 1))..=(hook, EventNo(u64::MAX));
        self.former.range(later).next().map(|(_, former)| *former)
    }

    fn matching(
        &self,
        known: &HookIndex,
        place: Place<'_>,
        after: HookId,
        limit: usize,
        accepts: impl Fn(&Hook) -> bool,
    ) -> MatchingHooks {
        let mut list = MatchingHooks { complete: true, ..MatchingHooks::after(after) };
        let mine = self.hooks.get(place.tenant).into_iter();
        for (id, topics) in mine.flat_map(|hooks| hooks.range(HookId(after.0 + 1)..)) {
            if list.hooks.len() == limit {
                list.complete = false;
                break;
            }
            list.through = *id;
            let Some(hook) = known.get(*id).filter(|hook| accepts(hook)) else { continue };
            let now = (hook.version, *topics);
            let (version, topics) = self.former(*id, place.at).unwrap_or(now);
            if topics & (1 << place.topic) != 0 {
                list.hooks.push(MatchingHook { hook: hook.clone(), version, dead: None });
            }
        }
        list
    }

    fn follow_former(&mut self, key: &Bytes, value: Option<&Bytes>) -> Result<(), Damaged> {
        let place = parse_former_topics(key).ok_or_else(|| Damaged::new("no former topics"))?;
        match value.and_then(|value| value.split_last_chunk()) {
            Some((topics, version)) => {
                let topics = topics.first().copied().unwrap_or(0);
                self.former.insert(place, (u64::from_be_bytes(*version), topics))
            }
            None => self.former.remove(&place),
        };
        Ok(())
    }
}

impl IndexPart for ReminderIndex {
    fn ranges(&self) -> Vec<(Bytes, Bytes)> {
        let former = (Bytes::from(vec![FORMER_TOPICS]), Bytes::from(vec![FORMER_TOPICS + 1]));
        vec![keys::hooks(), former]
    }

    fn follow(&mut self, key: &Bytes, value: Option<&Bytes>) -> Result<(), Damaged> {
        if key.first() == Some(&FORMER_TOPICS) {
            return self.follow_former(key, value);
        }
        if let Some((tenant, id)) = self.by_key.remove(key)
            && let Some(hooks) = self.hooks.get_mut(&tenant)
        {
            hooks.remove(&id);
        }
        let hook = value.map(|value| record::decode_hook(value)).transpose();
        let hook = hook.map_err(Damaged::new)?.filter(|hook| hook.face == FACE);
        if let Some(hook) = hook {
            let spec = decode_spec(&hook.spec)?;
            self.hooks.entry(hook.tenant.clone()).or_default().insert(hook.id, spec.topics);
            self.by_key.insert(key.clone(), (hook.tenant, hook.id));
        }
        Ok(())
    }
}

/// Makes a hook for reminders.
#[derive(Debug, Clone)]
pub(crate) struct CreateReminderHook {
    pub(crate) tenant: Tenant,
    pub(crate) name: Arc<str>,
    pub(crate) spec: ReminderSpec,
}

impl Command<App> for CreateReminderHook {
    type Answer = Arc<Hook>;
    type Rejection = DeliveryRejection;

    fn decide(&self, txn: &mut Txn<'_>) -> Decision<Arc<Hook>, DeliveryRejection> {
        let CreateReminderHook { tenant, name, spec } = self;
        let new = NewHook {
            face: FACE,
            tenant: tenant.clone(),
            name: name.clone(),
            policy: spec.policy(),
            spec: encode_spec(*spec),
            backfill: None,
            created_by: None,
        };
        Ok(create(txn, new))
    }

    fn needs_room(&self) -> bool {
        true
    }
}

/// Changes what a hook is for.
#[derive(Debug, Clone)]
pub(crate) struct ChangeReminderHook {
    pub(crate) tenant: Tenant,
    pub(crate) name: Arc<str>,
    pub(crate) spec: ReminderSpec,
}

impl Command<App> for ChangeReminderHook {
    type Answer = Arc<Hook>;
    type Rejection = DeliveryRejection;

    fn decide(&self, txn: &mut Txn<'_>) -> Decision<Arc<Hook>, DeliveryRejection> {
        let ChangeReminderHook { tenant, name, spec } = self;
        let Some(hook) = named(txn, FACE, tenant, name) else {
            return Ok(Err(DeliveryRejection::NotFound));
        };
        // Reminders that came before are still for whom they were for then.
        let before = decode_spec(&hook.spec)?.topics;
        let next = from_now_on(txn);
        let former = [&[before][..], &hook.version.to_be_bytes()].concat();
        txn.set(former_topics_key(hook.id, next), former.into());
        Ok(Ok(change(txn, hook, spec.policy(), encode_spec(*spec))))
    }
}

/// Has a hook told nothing any more: its gate ends it.
#[derive(Debug, Clone)]
pub(crate) struct RevokeHook {
    pub(crate) tenant: Tenant,
    pub(crate) name: Arc<str>,
}

impl Command<App> for RevokeHook {
    type Answer = ();
    type Rejection = Never;

    fn decide(&self, txn: &mut Txn<'_>) -> Decision<(), Never> {
        txn.set(revoked_key(&self.tenant, &self.name), Bytes::new());
        Ok(Ok(()))
    }
}

/// Sets a reminder, unless there is one of its name.
#[derive(Debug, Clone)]
pub(crate) struct SetReminder {
    pub(crate) tenant: Tenant,
    pub(crate) reminder: Occurrence,
}

impl Command<App> for SetReminder {
    type Answer = ();
    type Rejection = Never;

    fn decide(&self, txn: &mut Txn<'_>) -> Decision<(), Never> {
        let SetReminder { tenant, reminder } = self;
        let key = reminder_key(tenant, &reminder.name);
        if !txn.is_set(&key)? {
            txn.set(key, reminder.encode());
            txn.set_timer(reminder.at, &timer(tenant, &reminder.name));
        }
        Ok(Ok(()))
    }

    fn needs_room(&self) -> bool {
        true
    }
}

/// Has nobody told of a subject any more, or everybody again.
#[derive(Debug, Clone)]
pub(crate) struct MuteSubject {
    pub(crate) tenant: Tenant,
    pub(crate) subject: Arc<str>,
    pub(crate) is_muted: bool,
}

impl Command<App> for MuteSubject {
    type Answer = ();
    type Rejection = Never;

    fn decide(&self, txn: &mut Txn<'_>) -> Decision<(), Never> {
        let key = mute_key(&self.tenant, &self.subject);
        if self.is_muted {
            txn.set(key, Bytes::new());
        } else {
            txn.remove(&key);
        }
        Ok(Ok(()))
    }
}

/// A reminder's time has come.
#[derive(Debug, Clone)]
struct Remind {
    entry: DueTimer,
    tenant: Tenant,
    name: Arc<str>,
}

impl Command<App> for Remind {
    type Answer = ();
    type Rejection = Never;

    fn decide(&self, txn: &mut Txn<'_>) -> Decision<(), Never> {
        let Remind { entry, tenant, name } = self;
        let key = reminder_key(tenant, name);
        let Some(value) = txn.get(&key)? else {
            txn.remove(&entry.key);
            return Ok(Ok(()));
        };
        let at = txn.now();
        let occurrence = Occurrence { at, ..Occurrence::decode(&value)? };
        txn.remove(&entry.key);
        txn.remove(&key);
        let no = EventNo(txn.take_id());
        let (key, content) = (occurrence_key(tenant, no), occurrence.encode());
        let len = u64::try_from(content.len()).unwrap_or(u64::MAX);
        txn.set(key.clone(), content);
        let record = EventRecord {
            id: occurrence.name.clone(),
            kind: occurrence.topic.to_string().into(),
            subject: Some(occurrence.subject),
            at,
            place: EventPlace::Key { key, len },
            trace: txn.trace.map(Trace::to_bytes),
        };
        put_event(txn, FACE, tenant, no, &record);
        let text = Bytes::copy_from_slice(occurrence.text.as_bytes());
        let payload = EventPayload { id: occurrence.name, at, payload: text, trace: txn.trace };
        let event = SpreadEvent { no, record: &record, payload: Some(&payload), prepared: None };
        txn.rests_on_index();
        let place = Place { tenant, topic: occurrence.topic, at: no };
        let limit = txn.domains().settings.fan_out;
        let index = txn.index().of::<ReminderIndex>();
        let known = HookIndex::of_txn(txn);
        let matches = index.matching(known, place, HookId(0), limit, |hook| hook.is_active());
        spread(txn, FACE, tenant, event, &matches)?;
        Ok(Ok(()))
    }

    fn weight(&self) -> usize {
        16 << 10
    }

    fn not_before(&self) -> Millis {
        self.entry.at()
    }
}
