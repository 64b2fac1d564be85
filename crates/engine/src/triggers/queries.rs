//! What the faces may ask about triggers.

use std::sync::Arc;

use reveille_core::Tenant;
use reveille_core::delivery::hook::{Hook, OpenDeliveries};
use reveille_core::document::change::FACE;
use reveille_core::steps::Steps;
use reveille_core::trigger::deployment::{Deployment, State};
use reveille_core::trigger::dry_run::DryRun;
use reveille_core::trigger::matching::{ChangeFields, NoMatch};
use reveille_core::trigger::{Definition, TriggerId};
use reveille_deliver::courier::{Answer, EarlyAnswer, Request, SendError};
use reveille_deliver::destination::Destination;
use reveille_kernel::error::{Damaged, Error};
use reveille_kernel::outbound::{EncodedRequest, SendFailure};
use reveille_schema::triggers::TriggerRecord;
use reveille_schema::{Record, keys, record};
use reveille_store::state::Reader;

use super::apply::{AppliedTrigger, ApplyTriggers, TriggerDraft};
use super::change::{ChangeTrigger, DeleteTrigger, TriggerChange};
use super::error::{TriggerError, TriggerRejection};
use super::fan_out::read_message;
use super::index::{TriggerIndex, read_definition};
use super::notes;
use crate::encoder::{SecretSource, SecretUnavailable};
use crate::engine::Engine;
use crate::keyring::Keyring;
use crate::limits::{INDEX_SLICE, TRIGGER_LOOK_STEPS, TRIGGER_VERSIONS_MAX};
use crate::records::{ReadRecord, damaged};
use crate::secrets::{SecretOpener, TenantSecrets};

/// A trigger, as it became durable last, or a version of it.
#[derive(Debug, Clone)]
pub struct Trigger {
    pub hook: Arc<Hook>,
    pub definition: Arc<Definition>,
    pub deployment: Deployment,
    /// Why it is in its state, if somebody said so.
    pub reason: Option<Arc<str>>,
    /// What runs dry beside it.
    pub candidate: Option<Arc<Definition>>,
    /// Whether somebody has signed where and how it sends (AUD-3).
    pub is_signed: bool,
}

/// Some of many triggers.
#[derive(Debug, Clone, Copy, Default)]
pub struct TriggerFilter<'a> {
    /// Those of which a pattern is this, or that are for this collection.
    pub collection: Option<&'a str>,
    /// The word of a state.
    pub state: Option<&'a str>,
}

/// What an endpoint has answered to a request that was no delivery.
#[derive(Debug, Clone)]
pub struct EndpointAnswer {
    pub status: u16,
    /// The beginning of it.
    pub body: bytes::Bytes,
    pub took_ms: u64,
}

impl Trigger {
    /// What a hook for changes is.
    pub fn of(hook: Arc<Hook>) -> Result<Trigger, Damaged> {
        let record = TriggerRecord::decode(&hook.spec).map_err(damaged)?;
        let stable = record.stable.as_ref().map(|stable| stable.version);
        let candidate = record.candidate.as_ref();
        Ok(Trigger {
            definition: read_definition(&record.definition)?,
            deployment: Deployment { state: record.state, version: hook.version, stable },
            reason: record.reason.clone(),
            candidate: candidate.map(|it| read_definition(&it.definition)).transpose()?,
            is_signed: !record.is_unsigned,
            hook,
        })
    }

    pub fn id(&self) -> &Arc<str> {
        &self.hook.name
    }

    /// Whether a change that comes now would be delivered, and by which version.
    pub fn matches(&self, change: &ChangeFields) -> Result<(), NoMatch> {
        self.definition.matches_within(change, &mut Steps::new(TRIGGER_LOOK_STEPS))
    }
}

impl TriggerFilter<'_> {
    fn accepts(&self, trigger: &Trigger) -> bool {
        let is_for = |collection: &str| trigger.definition.collection.as_str() == collection;
        self.collection.is_none_or(is_for)
            && self.state.is_none_or(|state| trigger.deployment.state.as_str() == state)
    }
}

impl Engine {
    /// Makes a trigger, disabled.
    pub async fn create_trigger(
        &self,
        tenant: &Tenant,
        id: &TriggerId,
        definition: Definition,
        created_by: Option<Arc<str>>,
        reason: Option<Arc<str>>,
    ) -> Result<Trigger, TriggerError> {
        let definition = Arc::new(definition);
        let change = TriggerChange::Create { id: id.clone(), definition, created_by };
        self.change_trigger(tenant, id.as_str(), None, change, reason).await
    }

    /// Changes a trigger, if it has the version that was seen.
    pub async fn change_trigger(
        &self,
        tenant: &Tenant,
        id: &str,
        expected: Option<u64>,
        change: TriggerChange,
        reason: Option<Arc<str>>,
    ) -> Result<Trigger, TriggerError> {
        let entry = self.audit_entry("", Some(tenant), id);
        let (of, id) = (tenant.clone(), id.into());
        let command = ChangeTrigger { tenant: of, id, expected, change, reason, entry };
        let hook = self.submit(tenant, &command).await?;
        let trigger = Trigger::of(hook)?;
        self.log_change(&trigger);
        Ok(trigger)
    }

    /// One line of whatever is done with a trigger (OBS-2).
    fn log_change(&self, trigger: &Trigger) {
        tracing::info!(
            request_id = self.actor().request_id.as_deref(),
            actor = &*self.actor().name,
            tenant = trigger.hook.tenant.as_str(),
            trigger_id = &**trigger.id(),
            version = trigger.deployment.version,
            state = trigger.deployment.state.as_str(),
            "a trigger was changed"
        );
    }

    /// Has triggers of a tenant be like this, all of them or none: those that are not there are
    /// made, disabled.
    pub async fn apply_triggers(
        &self,
        tenant: &Tenant,
        triggers: Vec<TriggerDraft>,
        created_by: Option<Arc<str>>,
        reason: Option<Arc<str>>,
    ) -> Result<Vec<(Trigger, AppliedTrigger)>, TriggerError> {
        let mut entry = self.audit_entry("", Some(tenant), "");
        entry.reason = reason;
        let command = ApplyTriggers { tenant: tenant.clone(), triggers, created_by, entry };
        let applied = self.submit(tenant, &command).await?;
        let view = |(hook, result)| {
            let trigger = Trigger::of(hook)?;
            if result != AppliedTrigger::Unchanged {
                self.log_change(&trigger);
            }
            Ok((trigger, result))
        };
        applied.into_iter().map(view).collect::<Result<_, Damaged>>().map_err(Error::from)
    }

    /// Ends a trigger.
    pub async fn delete_trigger(
        &self,
        tenant: &Tenant,
        id: &str,
        expected: Option<u64>,
        open: OpenDeliveries,
        reason: Option<Arc<str>>,
    ) -> Result<(), TriggerError> {
        let mut entry = self.audit_entry("", Some(tenant), id);
        entry.reason = reason;
        let (of, name) = (tenant.clone(), id.into());
        let command = DeleteTrigger { tenant: of, id: name, expected, open, entry };
        self.submit(tenant, &command).await?;
        tracing::info!(
            request_id = self.actor().request_id.as_deref(),
            actor = &*self.actor().name,
            tenant = tenant.as_str(),
            trigger_id = id,
            "a trigger was deleted"
        );
        Ok(())
    }

    /// A trigger of a tenant, as it became durable last.
    pub fn trigger(&self, tenant: &Tenant, id: &str) -> Result<Option<Trigger>, Damaged> {
        let reader = self.partition(tenant).state.reader();
        let hook = (&reader).read(&keys::hook(FACE, tenant, id), record::decode_hook)?;
        hook.map(|hook| Trigger::of(Arc::new(hook))).transpose()
    }

    /// The same; it is an error if there is none.
    pub fn require_trigger(&self, tenant: &Tenant, id: &str) -> Result<Trigger, TriggerError> {
        let found = self.trigger(tenant, id)?;
        found.ok_or_else(|| TriggerRejection::NotFound { id: id.into() }.into())
    }

    /// The triggers of a tenant that a filter accepts, in the order of their ids, after one.
    pub async fn triggers(
        &self,
        tenant: &Tenant,
        filter: TriggerFilter<'_>,
        after: Option<&str>,
        take: crate::records::TakeEntry<'_, Trigger>,
    ) -> Result<(), Damaged> {
        let reader = self.partition(tenant).state.reader();
        let (first, to) = keys::hooks_of(FACE, tenant);
        let after = after.map(|id| reveille_core::key_range::above(&keys::hook(FACE, tenant, id)));
        let mut from = after.unwrap_or(first);
        loop {
            let found = reader.range_within(&from, &to, INDEX_SLICE, crate::limits::SCAN_BYTES)?;
            let Some((last, _)) = found.last() else { return Ok(()) };
            from = reveille_core::key_range::above(last);
            for (_, value) in &found {
                let hook = record::decode_hook(value).map_err(damaged)?;
                let trigger = Trigger::of(Arc::new(hook))?;
                if filter.accepts(&trigger) && !take(&trigger) {
                    return Ok(());
                }
            }
            // Definitions take time to read; others have waited meanwhile.
            tokio::task::yield_now().await;
        }
    }

    /// The tenants of this installation that have triggers.
    pub fn tenants_with_triggers(&self) -> Vec<Tenant> {
        let of = |shared: &Arc<crate::app::Shared>| -> Vec<Tenant> {
            shared.lock().index.of::<TriggerIndex>().tenants().cloned().collect()
        };
        let mut tenants: Vec<Tenant> = self.partitions().iter().flat_map(of).collect();
        tenants.sort();
        tenants
    }

    /// The versions of a trigger that are kept, the newest first, the one in force among them.
    pub fn trigger_versions(&self, trigger: &Trigger) -> Result<Vec<Trigger>, Damaged> {
        let reader = self.partition(&trigger.hook.tenant).state.reader();
        let (from, to) = keys::hook_versions(trigger.hook.id);
        let found = reader.range(&from, &to, TRIGGER_VERSIONS_MAX + 1)?;
        let version = |(_, value): &(bytes::Bytes, bytes::Bytes)| {
            Trigger::of(Arc::new(record::decode_hook(value).map_err(damaged)?))
        };
        let former = found.iter().rev().map(version);
        std::iter::once(Ok(trigger.clone())).chain(former).collect()
    }

    /// One version of a trigger.
    pub fn trigger_version(
        &self,
        trigger: &Trigger,
        version: u64,
    ) -> Result<Option<Trigger>, Damaged> {
        if version == trigger.hook.version {
            return Ok(Some(trigger.clone()));
        }
        let reader = self.partition(&trigger.hook.tenant).state.reader();
        let key = keys::hook_version(trigger.hook.id, version);
        let hook = (&reader).read(&key, record::decode_hook)?;
        hook.map(|hook| Trigger::of(Arc::new(hook))).transpose()
    }

    /// What the dry run of a trigger, or beside it, has counted.
    pub fn trigger_dry_run(&self, trigger: &Trigger) -> Result<DryRun, Damaged> {
        let reader = self.partition(&trigger.hook.tenant).state.reader();
        notes::dry_run(&reader, trigger.hook.id)
    }

    /// The secrets that sign now under a name, opened, the newest first.
    pub fn signing_secrets(
        &self,
        tenant: &Tenant,
        name: &str,
    ) -> Result<Vec<String>, SecretUnavailable> {
        let stored = self.partition(tenant).domains.part::<TenantSecrets>().clone();
        let keyring = self.extension::<Arc<Keyring>>().clone();
        SecretOpener { stored, keyring }.signing(tenant, name, self.clock().now())
    }

    /// The last change of a document that is kept, as it stands in the log of its tenant: its
    /// message, and what conditions see of it.
    pub fn stored_change(
        &self,
        tenant: &Tenant,
        seq: u64,
    ) -> Result<Option<(bytes::Bytes, ChangeFields)>, Damaged> {
        let reader = self.partition(tenant).state.reader();
        let Some(message) = change_message(&reader, tenant, seq)? else { return Ok(None) };
        let (_, fields) = read_message(&message)?;
        Ok(Some((message, fields)))
    }

    /// Calls an endpoint once, outside of any delivery: to try it, or to see whether it is well.
    /// The address is checked as for every delivery.
    pub async fn call_endpoint(
        &self,
        tenant: &Tenant,
        url: &str,
        request: EncodedRequest,
        timeout_ms: u64,
    ) -> Result<EndpointAnswer, SendFailure> {
        let destination = Destination::parse(url, self.rules());
        let destination =
            destination.map_err(|error| SendFailure::new("destination", error.to_string()))?;
        let EncodedRequest { headers, body } = request;
        let (of, early) = (tenant.to_shared(), EarlyAnswer::default());
        let request = Request { tenant: of, destination, headers, body, early: early.clone() };
        let (clock, began) = (self.clock().clone(), self.clock().now());
        let response = self.courier().post(request);
        let answer: Result<Answer, SendError> = tokio::select! {
            biased;
            answer = response => answer,
            () = clock.sleep_until(began + timeout_ms) => early.take().ok_or(SendError::TimedOut),
        };
        let Answer { status, body, .. } = answer.map_err(SendFailure::from)?;
        Ok(EndpointAnswer { status, body, took_ms: clock.now().since(began) })
    }
}

/// The message of a change.
pub(super) fn change_message(
    mut reader: &Reader,
    tenant: &Tenant,
    seq: u64,
) -> Result<Option<bytes::Bytes>, Damaged> {
    let no = reader.read(&keys::change_place(tenant, seq), record::decode_u64)?;
    let Some(no) = no.map(reveille_core::delivery::id::EventNo) else { return Ok(None) };
    let event = crate::deliveries::source::event(reader, FACE, tenant, no)?;
    event.map_or(Ok(None), |event| crate::deliveries::source::content(reader, &event))
}

/// Every state that a filter can name.
pub const STATES: [State; 4] =
    [State::Disabled, State::Enabled, State::DryRun, State::RolledBack { is_active: true }];
