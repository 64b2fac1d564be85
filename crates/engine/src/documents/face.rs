//! Changes of documents as a source of deliveries.

use std::sync::Arc;

use reveille_core::Tenant;
use reveille_core::delivery::hook::{FaceId, Hook, HookId};
use reveille_core::delivery::id::EventNo;
use reveille_core::delivery::{AttemptRecord, Poison, Policy};
use reveille_core::document::change::FACE;
use reveille_kernel::error::Damaged;
use reveille_kernel::timers::DueTimer;
use reveille_kernel::txn::ReadError;
use reveille_schema::keys;
use reveille_schema::record::{self, DeliveryRecord, EventPlace, EventRecord};
use reveille_store::state::Reader;

use super::hooks::{ChangeHooks, RegisteredHooks};
use super::index::DocumentIndex;
use super::live::LiveQueries;
use super::outcome::WritesInFlight;
use super::rules::DocumentRules;
use super::timers::FireDocumentTimer;
use crate::app::{App, Settings, Shared, Txn};
use crate::deliveries::face::{DeliveryFace, EventMatch, FaceTimer, PreparedMatch};
use crate::deliveries::spread::{MatchNote, MatchingHooks, SpreadEvent};
use crate::engine::Engine;
use crate::records::ReadRecord;
use crate::streams::txn::StreamTxn;

/// The face of changes, and whoever has hooks for them.
pub struct DocumentFace(Arc<dyn ChangeHooks>);

impl DocumentFace {
    pub fn with_hooks(hooks: impl ChangeHooks) -> DocumentFace {
        DocumentFace(Arc::new(hooks))
    }
}

impl DeliveryFace for DocumentFace {
    fn id(&self) -> FaceId {
        FACE
    }

    fn register(&self, app: App) -> App {
        let app = app
            .with_index::<DocumentIndex>()
            .with(DocumentRules::default())
            // After the rules: whoever it wakes finds them.
            .with(LiveQueries::default())
            .with(WritesInFlight::default())
            .with(RegisteredHooks(self.0.clone()));
        self.0.register(app)
    }

    fn poison(&self, _policy: &Policy, settings: &Settings) -> Option<Poison> {
        settings.poison
    }

    fn next_matching(
        &self,
        txn: &mut Txn<'_>,
        tenant: &Tenant,
        event: SpreadEvent<'_>,
        after: HookId,
    ) -> Result<MatchingHooks, ReadError> {
        self.0.next_matching(txn, tenant, event, after)
    }

    fn prepare(
        &self,
        shared: &Shared,
        tenant: &Tenant,
        no: EventNo,
    ) -> Result<Option<PreparedMatch>, Damaged> {
        self.0.prepare(shared, tenant, no)
    }

    fn noted(&self, txn: &mut Txn<'_>, notes: &[(HookId, MatchNote)]) -> Result<(), ReadError> {
        self.0.noted(txn, notes)
    }

    fn explain_match(
        &self,
        reader: &Reader,
        hook: &Hook,
        no: EventNo,
        event: &EventRecord,
    ) -> Result<EventMatch, Damaged> {
        self.0.explain_match(reader, hook, no, event)
    }

    fn event_named(
        &self,
        mut reader: &Reader,
        tenant: &Tenant,
        name: &str,
    ) -> Result<Option<EventNo>, Damaged> {
        let Ok(seq) = name.parse() else { return Ok(None) };
        let no = reader.read(&keys::change_place(tenant, seq), record::decode_u64)?;
        Ok(no.map(EventNo))
    }

    fn attempted(
        &self,
        txn: &mut Txn<'_>,
        hook: &Hook,
        delivery: &DeliveryRecord,
        attempt: &AttemptRecord,
    ) -> Result<(), ReadError> {
        self.0.attempted(txn, hook, delivery, attempt)
    }

    fn forget(
        &self,
        txn: &mut Txn<'_>,
        tenant: &Tenant,
        events: &[(EventNo, EventRecord)],
    ) -> Result<bool, ReadError> {
        let path = Engine::change_stream(tenant);
        let Some(mut head) = txn.live_head(tenant, &path)?.filter(|head| head.forks == 0) else {
            return Ok(false);
        };
        for (_, event) in events {
            let seq = event.id.parse();
            let seq = seq.map_err(|_| Damaged(format!("a change has the id {:?}", event.id)))?;
            txn.remove(&keys::change_place(tenant, seq));
            if let EventPlace::Stream { stream, from, len } = event.place
                && stream == head.id
            {
                // A comma follows each.
                head.first = head.first.max(from.plus(len + 1));
            }
        }
        if !events.is_empty() {
            txn.trim_bytes(head.id, head.first);
            txn.set_head(tenant, &path, &head);
        }
        Ok(true)
    }

    fn timer(&self, shared: &Shared, timer: DueTimer) -> Result<FaceTimer, Damaged> {
        Ok(Arc::new(FireDocumentTimer::new(shared, timer)?))
    }
}
