//! What decisions read and write of events.

use bytes::Bytes;
use reveille_core::delivery::id::EventNo;
use reveille_core::event::Ulid;
use reveille_core::event::hook::FACE;
use reveille_core::{Millis, Tenant};
use reveille_kernel::txn::{ID_STRIDE, ReadError};
use reveille_schema::events::EventTimer;
use reveille_schema::keys;
use reveille_schema::record;

use crate::app::Txn;
use crate::deliveries::source::event_of;
use crate::records::ReadRecord;

/// Events, as a decision sees them.
pub(crate) trait EventTxn {
    /// The number of the newest event of this name.
    fn event_named(&mut self, tenant: &Tenant, id: &str) -> Result<Option<EventNo>, ReadError>;

    fn set_event_timer(&mut self, at: Millis, timer: &EventTimer);
}

impl EventTxn for Txn<'_> {
    fn event_named(&mut self, tenant: &Tenant, id: &str) -> Result<Option<EventNo>, ReadError> {
        for (key, place) in named_places(tenant, id) {
            let Some(first) = self.read(&key, record::decode_u64)? else { continue };
            let no = EventNo(first.saturating_add(place));
            if event_of(self, FACE, tenant, no)?.is_some_and(|event| *event.id == *id) {
                return Ok(Some(no));
            }
        }
        Ok(None)
    }

    fn set_event_timer(&mut self, at: Millis, timer: &EventTimer) {
        self.set_timer(at, &timer.encode());
    }
}

/// Where the number of the event of this name may be written, and what is to be added to it: the
/// name that a sender gave, then those that were given to many together.
pub(crate) fn named_places(tenant: &Tenant, id: &str) -> impl Iterator<Item = (Bytes, u64)> {
    let together = Ulid::parse(id).ok().map(|id| {
        let (first, place) = id.first_and_place();
        (keys::event_ids(tenant, first), u64::from(place) * ID_STRIDE)
    });
    std::iter::once((keys::event_id(tenant, id), 0)).chain(together)
}
