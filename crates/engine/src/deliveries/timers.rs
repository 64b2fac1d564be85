//! What timers of deliveries and hooks ask for.

use bytes::Bytes;
use reveille_core::delivery::Phase;
use reveille_core::delivery::hook::{FaceId, HookId};
use reveille_core::delivery::id::EventNo;
use reveille_core::{Millis, Tenant};
use reveille_kernel::command::{Command, Decision};
use reveille_kernel::error::{Damaged, Never};
use reveille_kernel::timers::{DueTimer, TimerTraits};
use reveille_schema::deliveries::DeliveryTimer;
use reveille_schema::keys::{self, TenantDeadLetter};
use reveille_schema::record;
use reveille_store::state::Reader;

use super::face::DeliveryFaces;
use super::replay::ReplayLook;
use super::timer_group::{self, OpenDelivery};
use super::{delivery, hook, replay, send, source, spread};
use crate::app::{App, Shared, Txn};
use crate::effect::{AttemptKey, Effect, EventPayload};
use crate::limits::{PURGE_SLICE, SCAN_BYTES};

/// A timer of a delivery or a hook is due.
#[derive(Debug, Clone)]
pub struct FireDeliveryTimer {
    timer: DeliveryTimer,
    entry: DueTimer,
    /// Deliveries that had no end.
    open: Vec<OpenDelivery>,
    /// Keys to remove, for a hook that has ended.
    found: Vec<Bytes>,
    /// Dead letters to make again, for a replay.
    look: ReplayLook,
    /// What is delivered, for a fan-out: read once for all the deliveries of a slice.
    payload: Option<EventPayload>,
}

impl FireDeliveryTimer {
    /// How many keys it removes, for one that clears up in slices.
    pub(crate) fn removals(&self) -> usize {
        self.found.len()
    }

    pub fn new(shared: &Shared, entry: DueTimer) -> Result<FireDeliveryTimer, Damaged> {
        let reader = &shared.state.reader();
        let damaged = || Damaged::new("a timer of a delivery cannot be read");
        let timer = DeliveryTimer::decode(entry.name()).ok_or_else(damaged)?;
        let (mut open, mut found) = (Vec::new(), Vec::new());
        let (mut look, mut payload) = (ReplayLook::default(), None);
        match &timer {
            DeliveryTimer::Delivery(id) => open.push(OpenDelivery { id: *id, in_flight: false }),
            DeliveryTimer::DeliveryGroup(_) => open = send::open_of_group(reader, &entry.key)?,
            DeliveryTimer::Unhook(tenant, id) => found = remains(reader, tenant, *id)?,
            DeliveryTimer::Replay(tenant, id) => look = ReplayLook::begin(reader, tenant, *id)?,
            DeliveryTimer::FanOut(face, tenant, no) => {
                let faces = shared.domains.part::<DeliveryFaces>();
                let at_hand = !faces.get(*face)?.has_gate();
                payload = at_hand.then(|| fan_out_payload(reader, *face, tenant, *no)).flatten();
            }
            DeliveryTimer::Resume(..) => {}
        }
        for it in &mut open {
            it.in_flight = shared.outbox.knows(&AttemptKey::Delivery(it.id));
        }
        Ok(FireDeliveryTimer { timer, entry, open, found, look, payload })
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
                spread::fan_out(txn, *face, tenant, *no, self.payload.as_ref())?;
            }
            DeliveryTimer::Unhook(..) => {
                for found in &self.found {
                    txn.remove(found);
                }
                // The entry stays until a look finds nothing more.
                if self.found.is_empty() {
                    txn.remove(key);
                }
            }
        }
        Ok(Ok(()))
    }

    fn weight(&self) -> usize {
        let payload = usize::from(self.payload.is_some()) * 32;
        self.open.len() * 512 + self.found.len() * 32 + self.look.weight() + payload
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

/// The first keys that an ended hook has left.
fn remains(reader: &Reader, tenant: &Tenant, id: HookId) -> Result<Vec<Bytes>, Damaged> {
    let mut found = Vec::new();
    // A delivery that is dead stands among the dead letters of its tenant, too.
    let (from, to) = keys::deliveries(id);
    for (key, value) in reader.range_within(&from, &to, PURGE_SLICE / 2, SCAN_BYTES)? {
        if let (Some(id), Ok(it)) = (keys::parse_delivery(&key), record::decode_delivery(&value))
            && let Phase::Dead { at: died_at, .. } = it.delivery.phase
        {
            found.push(TenantDeadLetter { tenant: tenant.clone(), died_at, id }.key());
        }
        found.push(key);
    }
    let ranges = [
        keys::dead_letters(id),
        keys::all_held(id),
        keys::lanes(id),
        keys::all_waiting(id),
        keys::hook_versions(id),
    ];
    for (from, to) in ranges {
        if found.len() < PURGE_SLICE {
            found.extend(reader.keys(&from, &to, PURGE_SLICE - found.len())?);
        }
    }
    let counts = keys::counts(id);
    if reader.get(&counts)?.is_some() {
        found.push(counts);
    }
    Ok(found)
}
