//! Hooks for changes of documents, as a write knows them: who they are, and what they wish, is
//! another domain's business.
//!
//! What takes long to find out about a write is found out before it is decided, away from the lock,
//! as the rules are asked; the decision looks whether it is still so.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

use reveille_core::Millis;
use reveille_core::Tenant;
use reveille_core::delivery::AttemptRecord;
use reveille_core::delivery::hook::{Hook, HookId};
use reveille_core::delivery::id::EventNo;
use reveille_core::document::change::ChangeEvent;
use reveille_core::document::origin::Origin;
use reveille_core::document::path::DocumentPath;
use reveille_core::document::snapshot::Document;
use reveille_core::document::transaction::{Op, TransactionLimits};
use reveille_kernel::error::Damaged;
use reveille_kernel::txn::ReadError;
use reveille_schema::record::{DeliveryRecord, EventRecord};
use reveille_store::state::Reader;

use crate::app::{App, Part, Shared, Txn};
use crate::deliveries::face::{EventMatch, PreparedMatch};
use crate::deliveries::spread::{MatchNote, MatchingHooks, SpreadEvent};

/// Whoever has hooks for changes.
pub trait ChangeHooks: Debug + Send + Sync + 'static {
    /// Registers what it keeps in memory.
    fn register(&self, app: App) -> App {
        app
    }

    /// Whether anything takes long to find out about these writes.
    fn is_interested(&self, shared: &Shared, tenant: &Tenant, ops: &[Op]) -> bool;

    /// Finds it out; `None` if that is not done within a turn.
    fn look(
        &self,
        shared: &Shared,
        write: &WriteLook<'_>,
    ) -> Result<Option<PreparedMatch>, Damaged>;

    /// The hooks that changes are for, change by change; those that it does not come to now are
    /// left to slices. `None` if that would be many and the write may come again, with another look.
    fn matching(&self, txn: &mut Txn<'_>, write: &WriteMatch<'_>) -> Option<Vec<MatchingHooks>>;

    /// See [`DeliveryFace::prepare`](crate::deliveries::face::DeliveryFace::prepare).
    fn prepare(
        &self,
        shared: &Shared,
        tenant: &Tenant,
        no: EventNo,
    ) -> Result<Option<PreparedMatch>, Damaged>;

    /// See [`DeliveryFace::next_matching`](crate::deliveries::face::DeliveryFace::next_matching).
    fn next_matching(
        &self,
        txn: &mut Txn<'_>,
        tenant: &Tenant,
        event: SpreadEvent<'_>,
        after: HookId,
    ) -> Result<MatchingHooks, ReadError>;

    /// See [`DeliveryFace::noted`](crate::deliveries::face::DeliveryFace::noted).
    fn noted(&self, txn: &mut Txn<'_>, notes: &[(HookId, MatchNote)]) -> Result<(), ReadError>;

    /// See [`DeliveryFace::explain_match`](crate::deliveries::face::DeliveryFace::explain_match).
    fn explain_match(
        &self,
        reader: &Reader,
        hook: &Hook,
        no: EventNo,
        event: &EventRecord,
    ) -> Result<EventMatch, Damaged>;

    /// See [`DeliveryFace::attempted`](crate::deliveries::face::DeliveryFace::attempted).
    fn attempted(
        &self,
        txn: &mut Txn<'_>,
        hook: &Hook,
        delivery: &DeliveryRecord,
        attempt: &AttemptRecord,
    ) -> Result<(), ReadError>;
}

/// Writes that are to be decided.
pub struct WriteLook<'a> {
    pub tenant: &'a Tenant,
    pub ops: &'a [Op],
    pub origin: &'a Origin,
    pub limits: TransactionLimits,
    pub now: Millis,
    pub reader: &'a Reader,
    /// Whether others wait for their turn meanwhile.
    pub in_turn: bool,
}

/// Writes as they are decided.
pub struct WriteMatch<'a> {
    pub tenant: &'a Tenant,
    /// One for each op, in order.
    pub events: &'a [ChangeEvent],
    /// The documents as they were before, tombstones too.
    pub stored: &'a BTreeMap<DocumentPath, Option<Document>>,
    pub prepared: Option<&'a PreparedMatch>,
    /// Whether the write may come again, with another look.
    pub may_retry: bool,
}

/// Whoever has hooks for changes, for those who write.
pub(super) struct RegisteredHooks(pub(super) Arc<dyn ChangeHooks>);

impl Part for RegisteredHooks {}
