//! What is done to many deliveries at once is done in slices, and asks for what it lacks at once.

use reveille_core::delivery::{Order, Policy};
use reveille_kernel::command::{Command, Decision};
use reveille_kernel::timers::DueTimer;
use reveille_schema::deliveries::DeliveryTimer;

use super::*;
use crate::app::{App, Txn};
use crate::deliveries::delivery::{self, NewDelivery};
use crate::deliveries::timer_group::TimerGroups;

/// Begins two deliveries in each of so many lanes.
struct BeginInLanes {
    hook: Arc<Hook>,
    lanes: u64,
}

impl Command<App> for BeginInLanes {
    type Answer = ();
    type Rejection = Never;

    fn decide(&self, txn: &mut Txn<'_>) -> Decision<(), Never> {
        for lane in 0..2 * self.lanes {
            let no = DeliveryNo { event: EventNo(lane), round: 0 };
            let lane = lane % self.lanes;
            let new = NewDelivery {
                no,
                version: self.hook.version,
                event_at: Millis(1),
                lane,
                event: None,
                dead: None,
            };
            delivery::begin(txn, &mut TimerGroups::of(1), &self.hook, new)?;
        }
        Ok(Ok(()))
    }
}

impl World {
    fn timers(&self, is: impl Fn(&DeliveryTimer) -> bool) -> Vec<DueTimer> {
        let mut found = self.bench.timers();
        found.retain(|it| DeliveryTimer::decode(it.name()).is_some_and(|timer| is(&timer)));
        found
    }

    /// What came of the first attempt of each of these.
    fn outcomes(&self, ids: &[DeliveryId], verdict: Verdict) -> RecordDeliveryOutcomes {
        let outcomes = ids.iter().flat_map(|id| self.outcome(*id, 1, verdict).0);
        RecordDeliveryOutcomes(outcomes.collect())
    }
}

/// Lanes that move on read who is next, each in another place. One after the other they asked more
/// often than a decision may, and were tried for ever.
#[test]
fn the_lanes_of_many_outcomes_ask_for_what_they_lack_at_once() {
    const LANES: u64 = 64;
    let mut world = World::new(3);
    let policy = Policy { order: Order::Lanes, ..world.hook.policy.clone() };
    let hook = Arc::new(Hook { policy, ..Hook::clone(&world.hook) });
    let stored = (keys::hook(hook.face, &hook.tenant, &hook.name), record::encode_hook(&hook));
    world.bench.given(vec![stored]);
    world.bench.when(&BeginInLanes { hook: hook.clone(), lanes: LANES }).answer();
    let id =
        |event| DeliveryId { hook: hook.id, no: DeliveryNo { event: EventNo(event), round: 0 } };
    let first: Vec<DeliveryId> = (0..LANES).map(id).collect();
    let decided = world.bench.when(&world.outcomes(&first, Verdict::Delivered));
    assert!(world.bench.rounds <= 4, "{} rounds", world.bench.rounds);
    let next: Vec<DeliveryId> = sent(&decided.effects).iter().map(|it| it.id).collect();
    assert_eq!(next, (LANES..2 * LANES).map(id).collect::<Vec<_>>());
    assert_eq!(decided.answer(), first.len());
}

#[test]
fn outcomes_that_are_too_much_for_one_decision_are_left_to_the_next() {
    let mut world = World::new(3);
    let mut ids = world.ingest(3);
    world.bench.set_slice_bytes(1);
    while !ids.is_empty() {
        let done = world.bench.when(&world.outcomes(&ids, Verdict::Delivered)).answer();
        assert_eq!(done, 1);
        let ended = ids.remove(0);
        assert!(matches!(world.stored(ended).delivery.phase, Phase::Delivered { .. }));
    }
}

#[test]
fn the_rest_of_a_group_of_timers_is_a_group() {
    let mut world = World::new(3);
    let ids = world.ingest(6);
    let is_group = |timer: &DeliveryTimer| matches!(timer, DeliveryTimer::DeliveryGroup(_));
    world.bench.set_slice_bytes(1);
    let mut made_again = Vec::new();
    for left in (0..ids.len()).rev() {
        let mut groups = world.timers(is_group);
        let group = groups.pop().expect("somebody's lease has ended");
        assert!(groups.is_empty(), "{groups:?}");
        world.bench.now = world.bench.now.max(group.at());
        let decided = world.bench.fire(group.clone());
        // Whoever looks at the index is told that there is more.
        let due_again = decided.timer_at.is_some_and(|at| at <= group.at());
        assert_eq!(due_again, left > 0);
        made_again.extend(sent(&decided.effects).iter().map(|it| it.id));
    }
    assert_eq!(made_again, ids);
    assert!(world.timers(is_group).is_empty());
}

#[test]
fn what_was_held_is_made_in_slices() {
    let mut world = World::new(3);
    let ids = world.ingest(3);
    world.pause(false);
    for id in &ids {
        world.bench.when(&HoldDelivery { id: *id, attempt: 1 }).answer();
    }
    world.pause(true);
    world.bench.set_slice_bytes(1);
    let is_resume = |timer: &DeliveryTimer| matches!(timer, DeliveryTimer::Resume(..));
    for id in &ids {
        let resume = world.timers(is_resume).pop().expect("there is more");
        let decided = world.bench.fire(resume);
        let made: Vec<DeliveryId> = sent(&decided.effects).iter().map(|it| it.id).collect();
        assert_eq!(made, [*id]);
    }
    while let Some(resume) = world.timers(is_resume).pop() {
        assert!(sent(&world.bench.fire(resume).effects).is_empty());
    }
}

#[test]
fn events_that_are_too_much_for_one_decision_are_delivered_in_slices() {
    let mut world = World::new(3);
    world.bench.set_slice_bytes(1);
    assert_eq!(world.ingest(3), Vec::new(), "the events themselves are enough");
    let mut begun = 0;
    let is_fan_out = |timer: &DeliveryTimer| matches!(timer, DeliveryTimer::FanOut(..));
    for _ in 0..10 {
        let Some(timer) = world.timers(is_fan_out).pop() else { break };
        begun += sent(&world.bench.fire(timer).effects).len();
    }
    assert_eq!(begun, 3);
}
