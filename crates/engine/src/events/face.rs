//! Typed events as a source of deliveries.

use std::sync::Arc;

use reveille_core::Tenant;
use reveille_core::delivery::hook::{FaceId, Hook};
use reveille_core::delivery::id::EventNo;
use reveille_core::event::hook::FACE;
use reveille_kernel::error::Damaged;
use reveille_kernel::timers::DueTimer;
use reveille_kernel::txn::ReadError;
use reveille_store::state::Reader;

use super::index::EventHookIndex;
use super::timers::FireEventTimer;
use super::{ingest, read};
use crate::app::{App, Shared, Txn};
use crate::deliveries::face::{DeliveryFace, FaceTimer};
use crate::effect::EventPayload;

/// The face of typed events.
pub struct EventFace;

impl DeliveryFace for EventFace {
    fn id(&self) -> FaceId {
        FACE
    }

    fn register(&self, app: App) -> App {
        app.with_index_of(EventHookIndex::new)
    }

    fn payload(
        &self,
        reader: &Reader,
        hook: &Hook,
        event: EventNo,
    ) -> Result<Option<EventPayload>, Damaged> {
        let Some(event) = read::event(reader, &hook.tenant, event)? else { return Ok(None) };
        let payload = read::payload(reader, &event)?;
        Ok(Some(EventPayload { id: event.id, at: event.at, payload }))
    }

    fn payload_len(&self, reader: &Reader, hook: &Hook, event: EventNo) -> Result<u64, Damaged> {
        Ok(read::event(reader, &hook.tenant, event)?.map_or(0, |event| event.len))
    }

    fn first_pending(
        &self,
        txn: &mut Txn<'_>,
        tenant: &Tenant,
    ) -> Result<Option<EventNo>, ReadError> {
        ingest::next_fan_out(txn, tenant, EventNo(0))
    }

    fn timer(&self, shared: &Shared, timer: DueTimer) -> Result<FaceTimer, Damaged> {
        Ok(Arc::new(FireEventTimer::new(&shared.state.reader(), timer)?))
    }
}
