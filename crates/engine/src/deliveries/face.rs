//! What deliveries ask of whoever their events come from.

use reveille_core::Tenant;
use reveille_core::delivery::hook::{Hook, HookSpec};
use reveille_core::delivery::id::EventNo;
use reveille_kernel::error::Damaged;
use reveille_kernel::txn::ReadError;
use reveille_store::state::Reader;

use crate::app::{Part, Txn};
use crate::effect::EventPayload;

/// A source of events, and what only it knows about them.
pub trait DeliveryFace: Send + Sync {
    /// Whether hooks that were asked for like this are for its events.
    fn owns(&self, spec: &HookSpec) -> bool;

    /// What is delivered of an event; `None` if there is no such event.
    fn payload(
        &self,
        reader: &Reader,
        hook: &Hook,
        event: EventNo,
    ) -> Result<Option<EventPayload>, Damaged>;

    /// The first event that not everybody has a delivery of yet who should.
    fn first_pending(
        &self,
        txn: &mut Txn<'_>,
        tenant: &Tenant,
    ) -> Result<Option<EventNo>, ReadError>;
}

/// All of them.
#[derive(Default)]
pub struct DeliveryFaces(pub Vec<Box<dyn DeliveryFace>>);

impl Part for DeliveryFaces {}

impl DeliveryFaces {
    /// The face that a hook belongs to.
    pub(crate) fn of(&self, hook: &Hook) -> Result<&dyn DeliveryFace, Damaged> {
        let face = self.0.iter().find(|face| face.owns(&hook.spec));
        let unknown = || Damaged::new(format!("nobody knows hooks like {}", hook.name));
        face.map(|face| &**face).ok_or_else(unknown)
    }
}
