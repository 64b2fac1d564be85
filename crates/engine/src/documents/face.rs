//! Changes of documents as a source of deliveries.

use std::sync::Arc;

use reveille_core::Tenant;
use reveille_core::delivery::hook::{FaceId, Hook, HookId};
use reveille_core::delivery::id::EventNo;
use reveille_core::document::change::FACE;
use reveille_kernel::error::Damaged;
use reveille_kernel::timers::DueTimer;
use reveille_kernel::txn::ReadError;
use reveille_schema::keys;
use reveille_schema::record::{EventPlace, EventRecord};
use reveille_store::state::Reader;

use super::index::DocumentIndex;
use super::live::LiveQueries;
use super::outcome::WritesInFlight;
use super::rules::DocumentRules;
use super::timers::FireDocumentTimer;
use crate::app::{App, Shared, Txn};
use crate::deliveries::face::{DeliveryFace, EventMatch, FaceTimer};
use crate::deliveries::spread::{MatchingHooks, SpreadEvent};
use crate::engine::Engine;
use crate::streams::txn::StreamTxn;

/// The face of changes.
pub struct DocumentFace;

impl DeliveryFace for DocumentFace {
    fn id(&self) -> FaceId {
        FACE
    }

    fn register(&self, app: App) -> App {
        app.with_index::<DocumentIndex>()
            .with(DocumentRules::default())
            // After the rules: whoever it wakes finds them.
            .with(LiveQueries::default())
            .with(WritesInFlight::default())
    }

    /// There are no hooks for changes.
    fn next_matching(
        &self,
        _: &mut Txn<'_>,
        _: &Tenant,
        _: SpreadEvent<'_>,
        after: HookId,
    ) -> Result<MatchingHooks, ReadError> {
        Ok(MatchingHooks { hooks: Vec::new(), through: after, complete: true })
    }

    fn explain_match(
        &self,
        _: &Reader,
        _: &Hook,
        _: EventNo,
        _: &EventRecord,
    ) -> Result<EventMatch, Damaged> {
        Ok(EventMatch::Differs("no hook is for changes of documents".into()))
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
