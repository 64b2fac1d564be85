//! Gates: asked before each attempt, and before anything is read of what is to be delivered.

use std::cell::RefCell;
use std::sync::Mutex;

use reveille_core::audit::{Actor, AuditEntry, AuditRow, action};
use reveille_core::delivery::DropReason;
use reveille_core::delivery::hook::FaceId;
use reveille_kernel::error::Damaged;
use reveille_kernel::txn::ReadError;
use reveille_schema::Record as _;
use reveille_schema::audit::split_row_value;
use reveille_schema::record::EventRecord;
use reveille_store::state::Reader;

use super::*;
use crate::app::Txn;
use crate::deliveries::delivery::DropDelivery;
use crate::deliveries::face::{DeliveryFace, EventMatch, Gate};
use crate::deliveries::send::{DeliveryReadiness, readiness};
use crate::deliveries::spread::{MatchingHooks, SpreadEvent};
use crate::effect::EventPayload;
use crate::records::KeyReader;

/// A face that notes what it is asked for.
struct NotingFace {
    gate: Option<Gate>,
    asked: Mutex<RefCell<Vec<&'static str>>>,
}

impl NotingFace {
    fn new(gate: Option<Gate>) -> NotingFace {
        NotingFace { gate, asked: Mutex::default() }
    }

    fn note(&self, what: &'static str) {
        self.asked.lock().unwrap().borrow_mut().push(what);
    }

    fn asked(&self) -> Vec<&'static str> {
        self.asked.lock().unwrap().borrow().clone()
    }
}

impl DeliveryFace for NotingFace {
    fn id(&self) -> FaceId {
        FACE
    }

    fn next_matching(
        &self,
        _: &mut Txn<'_>,
        _: &Tenant,
        _: SpreadEvent<'_>,
        _: HookId,
    ) -> Result<MatchingHooks, ReadError> {
        unreachable!("nobody is left to be told")
    }

    fn explain_match(
        &self,
        _: &Reader,
        _: &Hook,
        _: EventNo,
        _: &EventRecord,
    ) -> Result<EventMatch, Damaged> {
        unreachable!("nobody asks why")
    }

    fn payload(&self, _: &Reader, _: &Hook, _: &EventRecord) -> Result<Option<Bytes>, Damaged> {
        self.note("payload");
        Ok(Some(Bytes::from_static(b"as it is stored")))
    }

    fn has_gate(&self) -> bool {
        self.gate.is_some()
    }

    fn gate(
        &self,
        _: &mut dyn KeyReader,
        _: &Arc<Hook>,
        _: &EventRecord,
        _: Millis,
    ) -> Result<Gate, ReadError> {
        self.note("gate");
        Ok(self.gate.unwrap_or(Gate::Open))
    }
}

/// What the first event of a world says.
fn words(text: &'static str) -> EventPayload {
    let payload = Bytes::from_static(text.as_bytes());
    EventPayload { id: "e0".into(), at: Millis(1_000), payload, trace: None }
}

/// What is to be done about the first attempt of a delivery whose event is at hand, or is not.
fn ready(world: &mut World, face: &NotingFace, at_hand: bool) -> DeliveryReadiness {
    let id = world.ingest(1)[0];
    let event = at_hand.then(|| words("at hand"));
    let (tenant, transport) = (world.hook.tenant.clone(), Transport::Http);
    let attempt = DeliveryAttempt { id, attempt: 1, tenant, transport, event };
    readiness(&world.bench.reader(), face, &world.hook, &attempt, world.bench.now).unwrap()
}

#[test]
fn without_a_gate_what_is_at_hand_is_sent() {
    let mut world = World::new(3);
    let face = NotingFace::new(None);
    assert_eq!(ready(&mut world, &face, true), DeliveryReadiness::Send(words("at hand")));
    assert!(face.asked().is_empty());
}

#[test]
fn behind_a_gate_nothing_comes_from_memory() {
    for at_hand in [true, false] {
        let mut world = World::new(3);
        let face = NotingFace::new(Some(Gate::Open));
        let sent = DeliveryReadiness::Send(words("as it is stored"));
        assert_eq!(ready(&mut world, &face, at_hand), sent);
        assert_eq!(face.asked(), ["gate", "payload"]);
    }
}

#[test]
fn a_closed_gate_is_asked_before_anything_is_read() {
    for (gate, why, ends_hook) in [
        (Gate::Closed(DropReason::NotOwed), DropReason::NotOwed, false),
        (Gate::Cancelled(DropReason::Cancelled), DropReason::Cancelled, true),
    ] {
        for at_hand in [true, false] {
            let mut world = World::new(3);
            let face = NotingFace::new(Some(gate));
            let dropped = DeliveryReadiness::Dropped { why, ends_hook };
            assert_eq!(ready(&mut world, &face, at_hand), dropped);
            assert_eq!(face.asked(), ["gate"]);
        }
    }
}

#[test]
fn a_gate_that_cancels_ends_the_hook_and_one_that_closes_does_not() {
    for ends_hook in [false, true] {
        let mut world = World::new(3);
        let (id, why) = (world.ingest(1)[0], DropReason::Cancelled);
        let late = DropDelivery { id, attempt: 2, why, ends_hook };
        nothing_is_done(&world.bench.when(&late));
        let decided = world.bench.when(&DropDelivery { attempt: 1, ..late });
        let at = world.bench.now;
        assert_eq!(written(&decided, id).delivery.phase, Phase::Dropped { at, why });
        let hook = decided.written(&keys::hook(FACE, &world.hook.tenant, &world.hook.name));
        assert_eq!(hook.is_some_and(Option::is_none), ends_hook);
        assert_eq!(endings(&world), if ends_hook { 1 } else { 0 });
    }
}

/// Nobody asked for it: so it is written down, and once, however many outcomes say it.
#[test]
fn a_hook_that_its_endpoint_ends_has_one_row_in_the_audit_log() {
    let mut world = World::new(3);
    let ids = world.ingest(2);
    let outcomes = ids.into_iter().flat_map(|id| world.outcome(id, 1, Verdict::Ends).0);
    let outcomes = RecordDeliveryOutcomes(outcomes.collect());
    world.bench.when(&outcomes).answer();
    assert_eq!(endings(&world), 1);
}

/// Rows about a hook that the server has ended.
fn endings(world: &World) -> usize {
    let chain = Some(world.bench.tenant.clone());
    let (from, to) = keys::audit_rows(&chain, 0, u64::MAX);
    let found = world.bench.reader().range(&from, &to, usize::MAX).unwrap();
    let rows = found.iter().map(|(_, value)| {
        let row = split_row_value(value).map(|(_, row)| AuditRow::decode(row).unwrap());
        row.unwrap().entry
    });
    let ended = |it: &AuditEntry| *it.action == *action::HOOK_DELETED && it.reason.is_some();
    rows.filter(|it| ended(it) && it.actor == Actor::server()).count()
}
