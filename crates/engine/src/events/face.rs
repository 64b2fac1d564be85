//! Typed events as a source of deliveries.

use reveille_core::Tenant;
use reveille_core::delivery::hook::{Hook, HookSpec};
use reveille_core::delivery::id::EventNo;
use reveille_kernel::error::Damaged;
use reveille_kernel::txn::ReadError;
use reveille_store::state::Reader;

use super::{ingest, read};
use crate::app::Txn;
use crate::deliveries::face::DeliveryFace;
use crate::effect::EventPayload;

/// The face of typed events.
pub struct EventFace;

impl DeliveryFace for EventFace {
    fn owns(&self, spec: &HookSpec) -> bool {
        matches!(spec, HookSpec::Events(_))
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

    fn first_pending(
        &self,
        txn: &mut Txn<'_>,
        tenant: &Tenant,
    ) -> Result<Option<EventNo>, ReadError> {
        ingest::next_fan_out(txn, tenant, EventNo(0))
    }
}
