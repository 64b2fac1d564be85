//! Reminders on the delivery engine: setting them, who is told, and whether still.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use bytes::Bytes;
use reveille_core::delivery::DropReason;
use reveille_core::delivery::hook::{FaceId, Hook, HookId};
use reveille_core::delivery::id::{DeliveryNo, EventNo};
use reveille_core::{Millis, Tenant};
use reveille_engine::app::{App, IndexPart, Shared, Txn};
use reveille_engine::deliveries::DeliveryRejection;
use reveille_engine::deliveries::delivery::{DeliveryTxn, NewDelivery, begin};
use reveille_engine::deliveries::face::{DeliveryFace, FaceTimer, Gate};
use reveille_engine::deliveries::hook::{NewHook, change, create, named};
use reveille_engine::deliveries::index::HookIndex;
use reveille_engine::deliveries::timer_group::TimerGroups;
use reveille_engine::effect::EventPayload;
use reveille_kernel::command::{Command, Decision};
use reveille_kernel::error::{Damaged, Never};
use reveille_kernel::timers::DueTimer;
use reveille_kernel::txn::ReadError;
use reveille_schema::{keys, record};
use reveille_store::state::Reader;

use super::rules::{FACE, ReminderSpec, lane_of};
use super::schema::{
    Occurrence, decode_spec, encode_spec, mute_key, occurrence_key, parse_timer, reminder_key,
    revoked_key, timer,
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

    fn payload(
        &self,
        reader: &Reader,
        hook: &Hook,
        event: EventNo,
    ) -> Result<Option<EventPayload>, Damaged> {
        Ok(occurrence(reader, hook, event)?.map(|it| payload(&it)))
    }

    fn has_gate(&self) -> bool {
        true
    }

    fn gate(&self, reader: &Reader, hook: &Hook, event: EventNo) -> Result<Gate, Damaged> {
        if reader.get(&revoked_key(&hook.tenant, &hook.name))?.is_some() {
            return Ok(Gate::Cancelled(DropReason::Cancelled));
        }
        let Some(occurrence) = occurrence(reader, hook, event)? else {
            return Ok(Gate::Closed(DropReason::NotOwed));
        };
        let muted = reader.get(&mute_key(&hook.tenant, &occurrence.subject))?;
        Ok(if muted.is_some() { Gate::Closed(DropReason::NotOwed) } else { Gate::Open })
    }

    /// Everybody is told in the step in which a reminder becomes due.
    fn first_pending(&self, _: &mut Txn<'_>, _: &Tenant) -> Result<Option<EventNo>, ReadError> {
        Ok(None)
    }

    fn timer(&self, _: &Shared, entry: DueTimer) -> Result<FaceTimer, Damaged> {
        let unknown = || Damaged::new("a timer of reminders cannot be read");
        let (tenant, name) = parse_timer(entry.name()).ok_or_else(unknown)?;
        Ok(Arc::new(Remind { entry, tenant, name }))
    }
}

fn occurrence(reader: &Reader, hook: &Hook, event: EventNo) -> Result<Option<Occurrence>, Damaged> {
    let value = reader.get(&occurrence_key(&hook.tenant, event))?;
    value.map(|value| Occurrence::decode(&value)).transpose()
}

fn payload(occurrence: &Occurrence) -> EventPayload {
    let Occurrence { name, text, at, .. } = occurrence;
    let payload = Bytes::copy_from_slice(text.as_bytes());
    EventPayload { id: name.clone(), at: *at, payload }
}

/// The matcher: hooks by topic.
#[derive(Default)]
struct ReminderIndex {
    by_topic: BTreeMap<(Tenant, u8), BTreeSet<HookId>>,
    by_key: HashMap<Bytes, (Tenant, HookId)>,
}

impl IndexPart for ReminderIndex {
    fn ranges(&self) -> Vec<(Bytes, Bytes)> {
        vec![keys::hooks()]
    }

    fn follow(&mut self, key: &Bytes, value: Option<&Bytes>) -> Result<(), Damaged> {
        if let Some((tenant, id)) = self.by_key.remove(key) {
            for topic in 0..8 {
                if let Some(hooks) = self.by_topic.get_mut(&(tenant.clone(), topic)) {
                    hooks.remove(&id);
                }
            }
        }
        let hook = value.map(|value| record::decode_hook(value)).transpose();
        let hook = hook.map_err(Damaged::new)?.filter(|hook| hook.face == FACE);
        if let Some(hook) = hook {
            let spec = decode_spec(&hook.spec)?;
            for topic in (0..8).filter(|topic| spec.wants(*topic)) {
                self.by_topic.entry((hook.tenant.clone(), topic)).or_default().insert(hook.id);
            }
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
        txn.rests_on_index();
        let index = txn.index().of::<ReminderIndex>();
        let ids = index.by_topic.get(&(tenant.clone(), occurrence.topic));
        let known = HookIndex::of_txn(txn);
        let hooks = ids.into_iter().flatten().filter_map(|id| known.get(*id));
        let hooks: Vec<_> = hooks.filter(|hook| hook.is_active()).collect();
        let lane = lane_of(&occurrence.subject);
        let lanes = hooks.iter().map(|hook| keys::lane(hook.id, lane));
        txn.counts_and(&hooks.iter().map(|hook| hook.id).collect(), lanes)?;
        txn.remove(&entry.key);
        txn.remove(&key);
        let event = EventNo(txn.take_id());
        txn.set(occurrence_key(tenant, event), occurrence.encode());
        let (payload, mut groups) = (payload(&occurrence), TimerGroups::of(hooks.len()));
        for hook in hooks {
            let no = DeliveryNo { event, round: 0 };
            let new = NewDelivery { no, event_at: at, lane, event: Some(&payload) };
            begin(txn, &mut groups, hook, new)?;
        }
        groups.keep(txn);
        Ok(Ok(()))
    }

    fn weight(&self) -> usize {
        16 << 10
    }

    fn not_before(&self) -> Millis {
        self.entry.at()
    }
}
