//! What timers of deliveries and hooks ask for.

use reveille_core::delivery::hook::FaceId;
use reveille_core::delivery::id::EventNo;
use reveille_core::{Millis, Tenant};
use reveille_kernel::command::{Command, Decision};
use reveille_kernel::error::{Damaged, Never};
use reveille_kernel::timers::{DueTimer, TimerTraits};
use reveille_schema::deliveries::DeliveryTimer;
use reveille_store::state::Reader;

use super::ended::HookRemains;
use super::face::{DeliveryFaces, PreparedMatch};
use super::replay::ReplayLook;
use super::timer_group::{self, OpenDelivery};
use super::{delivery, ended, hook, replay, send, source, spread};
use crate::app::{App, Shared, Txn};
use crate::effect::{AttemptKey, AttemptSource, Effect, EventPayload};

/// A timer of a delivery or a hook is due.
#[derive(Debug, Clone)]
pub struct FireDeliveryTimer {
    timer: DeliveryTimer,
    entry: DueTimer,
    /// Deliveries that had no end.
    open: Vec<OpenDelivery>,
    /// What there is to clear up, for a hook that has ended.
    remains: Option<Box<HookRemains>>,
    /// Dead letters to make again, for a replay.
    look: ReplayLook,
    /// What is delivered, for a fan-out: read once for all the deliveries of a slice.
    payload: Option<EventPayload>,
    /// What its face has found out, for a fan-out.
    prepared: Option<PreparedMatch>,
}

impl FireDeliveryTimer {
    /// How many keys it removes, for one that clears up in slices.
    pub(crate) fn removals(&self) -> usize {
        self.remains.as_ref().map_or(0, |remains| remains.removals())
    }

    pub fn new(shared: &Shared, entry: DueTimer) -> Result<FireDeliveryTimer, Damaged> {
        let reader = &shared.state.reader();
        let damaged = || Damaged::new("a timer of a delivery cannot be read");
        let timer = DeliveryTimer::decode(entry.name()).ok_or_else(damaged)?;
        let (mut open, mut remains) = (Vec::new(), None);
        let (mut look, mut payload, mut prepared) = (ReplayLook::default(), None, None);
        match &timer {
            DeliveryTimer::Delivery(id) => open.push(OpenDelivery { id: *id, in_flight: false }),
            DeliveryTimer::DeliveryGroup(_) => open = send::open_of_group(reader, &entry.key)?,
            DeliveryTimer::Unhook(tenant, id) => {
                remains = Some(Box::new(HookRemains::look(reader, tenant, *id)?))
            }
            DeliveryTimer::Replay(tenant, id) => look = ReplayLook::begin(reader, tenant, *id)?,
            DeliveryTimer::FanOut(face, tenant, no) => {
                let of = shared.domains.part::<DeliveryFaces>().get(*face)?;
                let at_hand = !of.has_gate();
                payload = at_hand.then(|| fan_out_payload(reader, *face, tenant, *no)).flatten();
                prepared = of.prepare(shared, tenant, *no)?;
            }
            DeliveryTimer::Resume(..) => {}
        }
        for it in &mut open {
            let OpenDelivery { id, .. } = *it;
            let (key, source) = (AttemptKey::Delivery(id), AttemptSource::Hook(id.hook));
            it.in_flight = shared.outbox.keeps(&key, source, id.no);
        }
        Ok(FireDeliveryTimer { timer, entry, open, remains, look, payload, prepared })
    }

    /// What is known of a timer of this domain.
    pub fn traits(name: &[u8]) -> TimerTraits {
        let (fires_once, is_patient, reads) = match DeliveryTimer::decode(name) {
            Some(DeliveryTimer::Delivery(_)) => (true, false, false),
            Some(DeliveryTimer::DeliveryGroup(_)) => (true, false, true),
            // It may be a slice of something large.
            Some(DeliveryTimer::FanOut(..)) => (false, true, true),
            _ => (false, false, true),
        };
        TimerTraits { fires_once, is_patient, reads }
    }
}

impl Command<App> for FireDeliveryTimer {
    type Answer = ();
    type Rejection = Never;

    fn decide(&self, txn: &mut Txn<'_>) -> Decision<(), Never> {
        let (key, at) = (&self.entry.key, self.entry.at());
        match &self.timer {
            DeliveryTimer::Delivery(id) => {
                let in_flight = self.open.iter().any(|it| it.in_flight);
                delivery::fire(txn, key, at, *id, in_flight)?;
            }
            DeliveryTimer::DeliveryGroup(_) => timer_group::fire(txn, key, at, &self.open)?,
            DeliveryTimer::Resume(tenant, id) => {
                txn.remove(key);
                hook::resume(txn, tenant, *id)?;
            }
            DeliveryTimer::Replay(tenant, id) => {
                replay::fire(txn, key, tenant, *id, &self.look)?;
            }
            DeliveryTimer::FanOut(face, tenant, no) => {
                // It is removed first: it may be written anew, for the same time.
                txn.remove(key);
                let (payload, prepared) = (self.payload.as_ref(), self.prepared.as_ref());
                spread::fan_out(txn, *face, tenant, *no, payload, prepared)?;
            }
            DeliveryTimer::Unhook(tenant, id) => {
                if let Some(remains) = &self.remains {
                    ended::clear(txn, key, tenant, *id, remains)?;
                }
            }
        }
        Ok(Ok(()))
    }

    fn weight(&self) -> usize {
        let payload = usize::from(self.payload.is_some()) * 32;
        self.open.len() * 512
            + self.remains.as_ref().map_or(0, |remains| remains.weight())
            + self.look.weight()
            + payload
    }

    /// What was put off for seconds may come a moment later still.
    fn is_urgent(&self, _: &[Effect]) -> bool {
        use DeliveryTimer::{FanOut, Replay, Resume, Unhook};
        matches!(self.timer, Resume(..) | Unhook(..) | Replay(..) | FanOut(..))
    }

    fn not_before(&self) -> Millis {
        self.entry.at()
    }
}

/// What is delivered of an event that is fanned out. One that cannot be read now is read when its
/// deliveries are sent, and reported then.
fn fan_out_payload(
    reader: &Reader,
    face: FaceId,
    tenant: &Tenant,
    no: EventNo,
) -> Option<EventPayload> {
    let event = source::event(reader, face, tenant, no).ok().flatten()?;
    let payload = source::content(reader, &event).ok().flatten()?;
    Some(EventPayload::of(event, payload))
}
