//! What the faces may ask about events, hooks and deliveries.

use std::sync::Arc;

use bytes::{BufMut, BytesMut};
use reveille_core::audit::{AuditEntry, action};
use reveille_core::delivery::hook::{DeliveryCounts, Hook, OpenDeliveries};
use reveille_core::delivery::id::{DeliveryId, EventNo};
use reveille_core::event::hook::{EventHookSpec, FACE, HookUpdate};
use reveille_core::event::{Event, Ulid};
use reveille_core::secret::SealedSecret;
use reveille_core::trace::Trace;
use reveille_core::{StreamPath, Tenant};
use reveille_kernel::command::{Command, Traced};
use reveille_kernel::error::Damaged;
use reveille_kernel::fairness;
use reveille_schema::keys;
use reveille_schema::record::{self, EventRecord};
use reveille_store::state::Reader;

use super::audit;
use super::hook::{CreateHook, EventHook, RotateHookSecret, StartFrom, UpdateHook};
use super::ingest::{IngestEvents, IngestReceipt, NewEvent};
use super::txn::named_places;
use crate::app::App;
use crate::audit::Audited;
use crate::deliveries::delivery::RetryDelivery;
use crate::deliveries::hook::{DeleteHook, SetHookActive, SetHookPaused};
use crate::deliveries::index::HookIndex;
use crate::deliveries::source;
use crate::deliveries::{DeliveryError, DeliveryRejection};
use crate::engine::Engine;
use crate::metrics::DeliveryMetrics;
use crate::records::ReadRecord;
use crate::streams::StreamError;

impl Engine {
    /// The stream that has the words of a tenant's events.
    pub fn event_stream(tenant: &Tenant) -> StreamPath {
        let path = StreamPath::parse(&format!("/_events/{tenant}"));
        path.expect("a tenant's name can be a part of a path")
    }

    /// A name for something new, made of the time and chance.
    pub fn fresh_ulid(&self) -> Ulid {
        let mut drawn = [0; 10];
        self.entropy().fill(&mut drawn);
        Ulid::new(self.clock().now(), drawn)
    }

    /// The first of many such names, for those that come together.
    pub fn first_ulid(&self) -> Ulid {
        let mut drawn = [0; 8];
        self.entropy().fill(&mut drawn);
        Ulid::first_of_many(self.clock().now(), drawn)
    }

    /// Takes events in, all or none; those without a name of their own have that which follows the
    /// first by as much as they do. Says how many, and whether a batch of this name was taken in
    /// before: then nothing is. Deliveries of them belong to the trace.
    pub async fn ingest(
        &self,
        tenant: &Tenant,
        events: Vec<Event>,
        first_id: Ulid,
        batch: Option<Arc<str>>,
        trace: Option<Trace>,
    ) -> Result<(u64, bool), StreamError> {
        let work = u64::try_from(events.len()).unwrap_or(u64::MAX);
        self.fairness().request(tenant, work * fairness::TAKEN_IN);
        let _shared = self.partition(tenant);
        let len = events.iter().map(|event| event.envelope.len() + 1).sum();
        let mut payload = BytesMut::with_capacity(len);
        let mut new = Vec::with_capacity(events.len());
        for Event { id, named, kind, envelope } in events {
            payload.put_slice(&envelope);
            payload.put_u8(b',');
            new.push(NewEvent { id, named, kind, len: envelope.len() });
        }
        let (stream, payload) = (Engine::event_stream(tenant), payload.freeze());
        let (of, events) = (tenant.clone(), new);
        let command = IngestEvents { tenant: of, stream, events, first_id, payload, batch };
        let IngestReceipt { received, repeated } =
            self.submit(tenant, &Traced { trace, command }).await?;
        if !repeated {
            self.partition(tenant).domains.part::<DeliveryMetrics>().ingested(received);
        }
        Ok((received, repeated))
    }

    /// Makes a hook.
    pub async fn hook(
        &self,
        tenant: &Tenant,
        spec: EventHookSpec,
        start: StartFrom,
        created_by: Option<Arc<str>>,
    ) -> Result<Arc<Hook>, DeliveryError> {
        let name = self.fresh_ulid().to_string().into();
        let command = CreateHook { tenant: tenant.clone(), name, spec, start, created_by };
        let entry = self.audit_entry(action::HOOK_CREATED, Some(tenant), &command.name);
        let hook = self.submit_hook_change(tenant, command, entry).await?;
        tracing::info!(hook = &*hook.name, tenant = tenant.as_str(), "a hook was made");
        Ok(hook)
    }

    /// Changes some of a hook's settings.
    pub async fn edit_hook(
        &self,
        tenant: &Tenant,
        name: &str,
        update: HookUpdate,
    ) -> Result<EventHook, DeliveryError> {
        let command = UpdateHook { tenant: tenant.clone(), name: name.into(), update };
        let entry = self.audit_entry(action::HOOK_UPDATED, Some(tenant), name);
        let hook = EventHook::of(self.submit_hook_change(tenant, command, entry).await?)?;
        hook.ok_or_else(|| DeliveryRejection::NotFound.into())
    }

    /// Has deliveries of a hook signed with another secret, and with the one before it for a while.
    pub async fn rotate_hook_secret(
        &self,
        tenant: &Tenant,
        name: &str,
        secret: SealedSecret,
        overlap_ms: u64,
    ) -> Result<EventHook, DeliveryError> {
        let entry = self.audit_entry(action::HOOK_SECRET_ROTATED, Some(tenant), name);
        let (of, name) = (tenant.clone(), name.into());
        let command = RotateHookSecret { tenant: of, name, secret, overlap_ms };
        let hook = EventHook::of(self.submit_hook_change(tenant, command, entry).await?)?;
        hook.ok_or_else(|| DeliveryRejection::NotFound.into())
    }

    /// Makes a hook active, or not.
    pub async fn activate_hook(
        &self,
        tenant: &Tenant,
        name: &str,
        active: bool,
    ) -> Result<Arc<Hook>, DeliveryError> {
        let action = if active { action::HOOK_ACTIVATED } else { action::HOOK_DEACTIVATED };
        let entry = self.audit_entry(action, Some(tenant), name);
        let (tenant_of_hook, name) = (tenant.clone(), name.into());
        let command = SetHookActive { face: FACE, tenant: tenant_of_hook, name, active };
        self.submit_hook_change(tenant, command, entry).await
    }

    /// Has a hook wait, or go on.
    pub async fn pause_hook(
        &self,
        tenant: &Tenant,
        name: &str,
        paused: bool,
    ) -> Result<Arc<Hook>, DeliveryError> {
        let action = if paused { action::HOOK_PAUSED } else { action::HOOK_RESUMED };
        let entry = self.audit_entry(action, Some(tenant), name);
        let (tenant_of_hook, name) = (tenant.clone(), name.into());
        let command = SetHookPaused { face: FACE, tenant: tenant_of_hook, name, paused };
        let hook = self.submit_hook_change(tenant, command, entry).await?;
        tracing::info!(hook = &*hook.name, tenant = tenant.as_str(), paused, "a hook was changed");
        Ok(hook)
    }

    /// Ends a hook, with everything that belongs to it. Returns what it had come to.
    pub async fn unhook(
        &self,
        tenant: &Tenant,
        name: &str,
    ) -> Result<DeliveryCounts, DeliveryError> {
        let command = {
            let (tenant, name) = (tenant.clone(), name.into());
            DeleteHook { face: FACE, tenant, name, open: OpenDeliveries::Drop }
        };
        let entry = self.audit_entry(action::HOOK_DELETED, Some(tenant), name);
        let describe = audit::describe_end::<DeliveryCounts>;
        let counts = self.submit(tenant, &Audited { command, entry, describe }).await?;
        tracing::info!(hook = name, tenant = tenant.as_str(), "a hook was ended");
        Ok(counts)
    }

    /// Brings a change of a hook to its partition, and writes down what it has changed.
    async fn submit_hook_change<C>(
        &self,
        tenant: &Tenant,
        command: C,
        entry: AuditEntry,
    ) -> Result<Arc<Hook>, DeliveryError>
    where
        C: Command<App, Answer = Arc<Hook>, Rejection = DeliveryRejection>,
    {
        let describe = audit::describe_change;
        self.submit(tenant, &Audited { command, entry, describe }).await
    }

    /// The hook of this name, as it became durable last, among those of a tenant or of all.
    pub fn find_hook(
        &self,
        tenant: Option<&Tenant>,
        name: &str,
    ) -> Result<Option<EventHook>, Damaged> {
        for shared in self.partitions() {
            let known = shared.lock().index.of::<HookIndex>().named(FACE, name).cloned();
            let known = known.filter(|hook| tenant.is_none_or(|tenant| hook.tenant == *tenant));
            if let Some(known) = known {
                // What is decided but not durable yet is not shown.
                let reader = shared.state.reader();
                let key = keys::hook(FACE, &known.tenant, name);
                let hook = (&reader).read(&key, record::decode_hook)?;
                return hook.map_or(Ok(None), |hook| EventHook::of(Arc::new(hook)));
            }
        }
        Ok(None)
    }

    /// What the deliveries of a hook have come to.
    pub fn counts(&self, hook: &Hook) -> Result<DeliveryCounts, Damaged> {
        let reader = self.partition(&hook.tenant).state.reader();
        let counts = (&reader).read(&keys::counts(hook.id), record::decode_delivery_counts)?;
        Ok(counts.unwrap_or_default())
    }

    /// Makes a dead delivery again, under a name of its own.
    pub async fn retry_dead_letter(
        &self,
        tenant: &Tenant,
        id: DeliveryId,
    ) -> Result<DeliveryId, DeliveryError> {
        self.submit(tenant, &RetryDelivery { face: FACE, tenant: tenant.clone(), id }).await
    }

    /// The newest event of a tenant that has this id, with its number.
    pub fn find_event(
        &self,
        tenant: &Tenant,
        id: &str,
    ) -> Result<Option<(EventNo, EventRecord)>, Damaged> {
        find_event(&self.partition(tenant).state.reader(), tenant, id)
    }
}

/// The newest event of a tenant that has this id, with its number.
pub(super) fn find_event(
    reader: &Reader,
    tenant: &Tenant,
    id: &str,
) -> Result<Option<(EventNo, EventRecord)>, Damaged> {
    let mut look = reader;
    for (key, place) in named_places(tenant, id) {
        let Some(first) = look.read(&key, record::decode_u64)? else { continue };
        let no = EventNo(first.saturating_add(place));
        let event = source::event(reader, FACE, tenant, no)?;
        if let Some(event) = event.filter(|event| *event.id == *id) {
            return Ok(Some((no, event)));
        }
    }
    Ok(None)
}

/// A delivery that may be addressed, if the name is one.
pub fn delivery_named(name: &str) -> Result<DeliveryId, DeliveryRejection> {
    let number = Ulid::parse(name).map_err(|_| DeliveryRejection::NotFound)?;
    Ok(DeliveryId::from_u128(number.to_u128()))
}

/// The name that the world knows a delivery by.
pub fn delivery_name(id: DeliveryId) -> String {
    Ulid::from_u128(id.to_u128()).to_string()
}
