//! Triggers as documents and deliveries know them.

use std::sync::Arc;

use reveille_core::Tenant;
use reveille_core::delivery::AttemptRecord;
use reveille_core::delivery::hook::{Hook, HookId};
use reveille_core::delivery::id::EventNo;
use reveille_core::document::transaction::Op;
use reveille_kernel::error::Damaged;
use reveille_kernel::txn::ReadError;
use reveille_schema::record::{DeliveryRecord, EventRecord};
use reveille_store::state::Reader;

use super::index::TriggerIndex;
use super::{fan_out, look, matching, notes, outcome};
use crate::app::{App, Shared, Txn};
use crate::deliveries::face::{EventMatch, PreparedMatch};
use crate::deliveries::spread::{MatchNote, MatchingHooks, SpreadEvent};
use crate::documents::hooks::{ChangeHooks, WriteLook, WriteMatch};

/// The hooks for changes.
#[derive(Debug, Clone, Copy)]
pub struct TriggerHooks;

impl ChangeHooks for TriggerHooks {
    fn register(&self, app: App) -> App {
        app.with_index::<TriggerIndex>()
    }

    fn is_interested(&self, shared: &Shared, tenant: &Tenant, ops: &[Op]) -> bool {
        look::is_interested(shared, tenant, ops)
    }

    fn look(
        &self,
        shared: &Shared,
        write: &WriteLook<'_>,
    ) -> Result<Option<PreparedMatch>, Damaged> {
        let found = look::look(shared, write)?;
        Ok(found.map(|look| -> PreparedMatch { Arc::new(look) }))
    }

    fn matching(&self, txn: &mut Txn<'_>, write: &WriteMatch<'_>) -> Option<Vec<MatchingHooks>> {
        matching::matching(txn, write)
    }

    fn prepare(
        &self,
        shared: &Shared,
        tenant: &Tenant,
        no: EventNo,
    ) -> Result<Option<PreparedMatch>, Damaged> {
        fan_out::prepare(shared, tenant, no)
    }

    fn next_matching(
        &self,
        txn: &mut Txn<'_>,
        tenant: &Tenant,
        event: SpreadEvent<'_>,
        after: HookId,
    ) -> Result<MatchingHooks, ReadError> {
        Ok(fan_out::next_matching(txn, tenant, event, after))
    }

    fn noted(&self, txn: &mut Txn<'_>, notes: &[(HookId, MatchNote)]) -> Result<(), ReadError> {
        notes::keep(txn, notes)
    }

    fn explain_match(
        &self,
        reader: &Reader,
        hook: &Hook,
        no: EventNo,
        event: &EventRecord,
    ) -> Result<EventMatch, Damaged> {
        fan_out::explain(reader, hook, no, event)
    }

    fn attempted(
        &self,
        txn: &mut Txn<'_>,
        hook: &Hook,
        delivery: &DeliveryRecord,
        attempt: &AttemptRecord,
    ) -> Result<(), ReadError> {
        outcome::attempted(txn, hook, delivery, attempt)
    }
}
