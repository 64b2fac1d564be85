//! Whom a change is for: in the write's own step, and in slices, with the same answer.

use proptest::prelude::*;

use super::*;

#[test]
fn mat_1_a_change_is_for_those_whose_kind_place_filters_and_condition_fit() {
    let mut world = World::new();
    world.enabled("all", json!({}));
    world.enabled("paid", json!({"condition": "event.document.status == 'paid'"}));
    world.enabled("made", json!({"events": ["create"]}));
    world.enabled("other", json!({"collection": "rooms"}));
    world.enabled("wild", json!({"collection": "ord*"}));
    world.enabled("one", json!({"collection": "orders/o2"}));
    world.enabled("filtered", json!({"filters": ["orders/x*"]}));
    world.write(vec![set("orders/o1", json!({"status": "open"}))]);
    let names =
        |world: &World| -> Vec<String> { world.told().into_iter().map(|(name, _)| name).collect() };
    assert_eq!(names(&world), ["all", "made", "wild"]);
    world.write(vec![patch("orders/o1", json!({"status": "paid"}))]);
    assert_eq!(names(&world)[3..], ["all", "paid", "wild"]);
    world.write(vec![set("orders/o2", json!({})), set("orders/x1", json!({}))]);
    // The condition of `paid` came to nothing, twice: there is no status.
    assert_eq!(
        names(&world)[6..],
        ["all", "made", "one", "wild", "all", "filtered", "made", "wild"]
    );
}

#[test]
fn mat_4_a_condition_that_comes_to_nothing_is_no_match_and_is_counted() {
    let mut world = World::new();
    let hook = world.enabled("broken", json!({"condition": "event.document.a.b == 1"}));
    for by in [By::Look, By::Itself] {
        world.write_as(vec![set("orders/o1", json!({"a": {}}))], Origin::CLIENT, by).unwrap();
    }
    assert_eq!(world.told(), []);
    let key = keys::evaluation_errors(hook.id);
    let errors = world.bench.reader().get(&key).unwrap().unwrap();
    let errors = reveille_schema::triggers::EvaluationErrors::decode(&errors).unwrap();
    assert_eq!((errors.count, errors.version), (2, 1));
    assert!(errors.last.contains("there is no `b`"), "{}", errors.last);
}

#[test]
fn mat_5_each_match_is_a_delivery_of_its_own_and_lanes_are_of_trigger_and_document() {
    let mut world = World::new();
    world.enabled("a", json!({}));
    world.enabled("b", json!({}));
    for value in 0..3 {
        world.write(vec![set("orders/o1", json!({"v": value}))]);
    }
    world.write(vec![set("orders/o2", json!({}))]);
    let phases = |name: &str| -> Vec<bool> {
        let of = world.deliveries();
        let of = of.iter().filter(|(it, ..)| it == name);
        of.map(|(.., record)| matches!(record.delivery.phase, Phase::Leased { .. })).collect()
    };
    // The first of each lane is tried at once, another document's beside it (ARC-6, ARC-9).
    assert_eq!(phases("a"), [true, false, false, true]);
    assert_eq!(phases("b"), [true, false, false, true]);
}

#[test]
fn arc_9_a_lane_keeps_its_order_through_retries_and_across_versions() {
    let mut world = World::new();
    world.enabled("a", json!({}));
    world.write(vec![set("orders/o1", json!({"v": 1}))]);
    world.update("a", json!({"url": "https://hooks.example.com/other"})).unwrap();
    world.write(vec![set("orders/o1", json!({"v": 2}))]);
    assert_eq!(world.told(), [("a".into(), 1), ("a".into(), 2)]);
    assert_eq!(world.answer_all(Verdict::Failed, 10), 1);
    assert_eq!(world.answer_all(Verdict::Delivered, 10), 0, "the head waits, and all behind it");
    world.bench.now = Millis(world.bench.now.0 + 600_000);
    world.fire_all();
    assert_eq!(world.answer_all(Verdict::Delivered, 10), 1);
    assert_eq!(world.answer_all(Verdict::Delivered, 10), 1, "then it is the turn of the next");
}

/// What is left to slices is told by what was in force when the change came.
#[test]
fn mat_6_whoever_comes_later_is_told_by_the_version_of_then() {
    let mut world = World::with(Settings { match_steps: 0, ..Settings::default() });
    let open = json!({"condition": "event.document.status == 'open'"});
    world.enabled("a", open);
    world.enabled("b", json!({}));
    world.enabled("c", json!({}));
    let write = vec![set("orders/o1", json!({"status": "open"}))];
    world.write_as(write, Origin::CLIENT, By::Itself).unwrap();
    assert_eq!(world.told(), [], "there were no steps: all are left");
    world.update("a", json!({"condition": "event.document.status == 'paid'"})).unwrap();
    world.change("b", TriggerChange::Disable).unwrap();
    world.make("late", json!({})).unwrap();
    world.change("late", TriggerChange::Enable).unwrap();
    world.fire_all();
    assert_eq!(world.told(), [("a".into(), 1), ("b".into(), 1), ("c".into(), 1)]);
    // The next change is told by what is in force now.
    let write = vec![set("orders/o2", json!({"status": "paid"}))];
    world.write_as(write, Origin::CLIENT, By::Itself).unwrap();
    world.fire_all();
    assert_eq!(world.told()[3..], [("a".into(), 2), ("c".into(), 1), ("late".into(), 1)]);
    let record = world.bench.shared.lock();
    let record = record.index.of::<TriggerIndex>().of_tenant(&world.tenant).unwrap().clone();
    let former: usize = record.all().map(|entry| entry.record.former.len()).sum();
    assert_eq!(former, 1, "what was in force is known until the next change of the trigger");
}

#[test]
fn a_look_that_does_not_hold_is_not_believed() {
    let mut world = World::new();
    world.enabled("big", json!({"condition": "event.document.v > event.before.v"}));
    world.write(vec![set("orders/o1", json!({"v": 5}))]);
    let mut command = world.command(vec![patch("orders/o1", json!({"v": 7}))], Origin::CLIENT);
    command.prepared = world.look(&command);
    // Somebody else is first, and what was a rise is none any more.
    world.write(vec![patch("orders/o1", json!({"v": 9}))]);
    assert_eq!(world.told().len(), 1);
    world.bench.when(&command).answer().unwrap();
    assert_eq!(world.told().len(), 1);
    // A trigger that was changed since is another one.
    let mut command = world.command(vec![patch("orders/o1", json!({"v": 8}))], Origin::CLIENT);
    command.prepared = world.look(&command);
    world.update("big", json!({"condition": "event.document.v < event.before.v"})).unwrap();
    world.bench.when(&command).answer().unwrap();
    assert_eq!(world.told().len(), 1, "7 to 8 is no fall");
}

#[test]
fn a_write_without_steps_asks_for_another_look_before_it_leaves_anything() {
    let mut world = World::with(Settings { match_steps: 0, ..Settings::default() });
    world.enabled("a", json!({"condition": "event.document.v == 1"}));
    let mut command = world.command(vec![set("orders/o1", json!({"v": 1}))], Origin::CLIENT);
    command.may_retry = true;
    let refused = world.bench.when(&command).outcome;
    assert!(matches!(refused, Err(Error::Rejected(DocumentRejection::Stale))));
    command.prepared = world.look(&command);
    world.bench.when(&command).answer().unwrap();
    assert_eq!(world.told(), [("a".into(), 1)], "with a look it takes no steps");
}

/// The moment of a commit is known in the commit alone.
#[test]
fn what_depends_on_the_moment_is_found_out_in_it() {
    let mut world = World::new();
    world.enabled("late", json!({"condition": "event.timestamp >= 5"}));
    let mut command = world.command(vec![set("orders/o1", json!({}))], Origin::CLIENT);
    command.prepared = world.look(&command);
    assert!(command.prepared.is_some() && world.bench.now < Millis(5_000));
    world.bench.now = Millis(5_000);
    world.bench.when(&command).answer().unwrap();
    assert_eq!(world.told(), [("late".into(), 1)]);
}

#[test]
fn a_chain_of_triggers_stops_at_the_loop_guard_with_a_dead_letter() {
    let mut world = World::new();
    world.enabled("a", json!({}));
    let chain = |depth: usize| Origin::of_chain((0..depth).map(|it| format!("t{it}"))).unwrap();
    world.write_as(vec![set("orders/o1", json!({}))], chain(7), By::Look).unwrap();
    world.write_as(vec![set("orders/o2", json!({}))], chain(8), By::Look).unwrap();
    world.write_as(vec![set("orders/o1", json!({"v": 1}))], chain(8), By::Look).unwrap();
    let phases: Vec<_> = world.deliveries().iter().map(|(.., it)| it.delivery.phase).collect();
    assert!(matches!(phases[0], Phase::Leased { .. }));
    for phase in &phases[1..] {
        assert!(matches!(phase, Phase::Dead { why: DeadReason::LoopGuard, .. }), "{phase:?}");
    }
    // The lane of the first goes on as if the dead one had never been there.
    assert_eq!(world.answer_all(Verdict::Delivered, 1), 1);
    world.write(vec![set("orders/o1", json!({"v": 2}))]);
    assert_eq!(world.answer_all(Verdict::Delivered, 1), 1);
}

#[test]
fn nobodys_triggers_are_asked_about_anothers_changes() {
    let mut world = World::new();
    world.enabled("a", json!({}));
    world.tenant = Tenant::parse("other").unwrap();
    let command = world.command(vec![set("orders/o1", json!({}))], Origin::CLIENT);
    assert!(world.look(&command).is_none());
    world.bench.when(&command).answer().unwrap();
    assert_eq!(world.told(), []);
    world.tenant = Tenant::default_tenant();
    assert_eq!(world.told(), []);
}

/// Many triggers and several changes at once: 64 in the batch, the rest in slices, everybody once.
#[test]
fn more_triggers_than_one_batch_tells_are_all_told_once_and_in_order() {
    let mut world = World::new();
    for number in 0..150 {
        world.enabled(&format!("t{number:03}"), json!({}));
    }
    world.write(vec![set("orders/o1", json!({"v": 1})), set("orders/o1", json!({"v": 2}))]);
    assert_eq!(world.told().len(), 64);
    world.write(vec![set("orders/o1", json!({"v": 3}))]);
    assert_eq!(world.told().len(), 64, "the third change waits for the first two");
    world.fire_all();
    assert_eq!(world.told().len(), 450);
    let mut by_trigger: BTreeMap<String, Vec<EventNo>> = BTreeMap::new();
    for (name, no, ..) in world.deliveries() {
        by_trigger.entry(name).or_default().push(no);
    }
    assert!(by_trigger.values().all(|events| events.len() == 3 && events.is_sorted()));
}

#[derive(Debug, Clone)]
struct Case {
    triggers: Vec<usize>,
    writes: Vec<(u8, u8)>,
    changes: Vec<(usize, usize)>,
}

const CONDITIONS: [&str; 7] = [
    "event.document.v > 2",
    "event.before != null && event.before.v < event.document.v",
    "event.document.missing == 1",
    "event.type == 'create' || has(event.document.v) && event.document.v == 0",
    "event.changed.exists(it, it == 'v')",
    "event.document.updatedAt > 0",
    "true",
];

fn definition(which: usize) -> Value {
    let condition = CONDITIONS[which % CONDITIONS.len()];
    let percent = [100, 50, 10][which / CONDITIONS.len() % 3];
    let collection = ["orders", "ord*", "orders/*"][which % 3];
    json!({"condition": condition, "collection": collection, "rollout": {"percent": percent}})
}

/// What all triggers have of a run, by how its writes are decided.
fn run(case: &Case, settings: Settings, by: By) -> (Vec<(String, u64)>, Vec<Option<u64>>) {
    let mut world = World::with(settings);
    for (number, which) in case.triggers.iter().enumerate() {
        world.enabled(&format!("t{number:02}"), definition(*which));
    }
    for (at, (document, value)) in case.writes.iter().enumerate() {
        let to = format!("orders/o{}", document % 4);
        let op = if *value == 9 { None } else { Some(set(&to, json!({"v": value % 4}))) };
        let write = op.unwrap_or_else(|| delete(&to));
        let _ = world.write_as(vec![write], Origin::CLIENT, by);
        // Triggers are changed while some changes are still being told.
        for (_, which) in case.changes.iter().filter(|(when, _)| *when == at) {
            let id = format!("t{:02}", which % case.triggers.len().max(1));
            if world.bench.timers().len() < 40 {
                let _ = world.update(&id, definition(*which));
            }
        }
        world.bench.now = Millis(world.bench.now.0 + 1);
    }
    world.fire_all();
    let errors = (0..case.triggers.len()).map(|number| {
        let id = world.trigger(&format!("t{number:02}")).hook.id;
        let errors = world.bench.reader().get(&keys::evaluation_errors(id)).unwrap()?;
        Some(reveille_schema::triggers::EvaluationErrors::decode(&errors).unwrap().count)
    });
    (world.told(), errors.collect())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// However a write comes to its decision, the answer is one: with a look, without, or in slices
    /// of any size (MAT-6).
    #[test]
    fn slices_give_the_answer_that_the_write_itself_would_have_had(
        triggers in prop::collection::vec(0_usize..21, 1..6),
        writes in prop::collection::vec((0_u8..4, 0_u8..10), 1..8),
        changes in prop::collection::vec((0_usize..8, 0_usize..21), 0..4),
        fan_out in 1_usize..4,
    ) {
        let case = Case { triggers, writes, changes };
        let expected = run(&case, Settings::default(), By::Look);
        let itself = run(&case, Settings::default(), By::Itself);
        prop_assert_eq!(&itself, &expected);
        let slices = Settings { match_steps: 0, fan_out, ..Settings::default() };
        let in_slices = run(&case, slices, By::Itself);
        prop_assert_eq!(&in_slices, &expected);
        let narrow = Settings { fan_out, ..Settings::default() };
        prop_assert_eq!(&run(&case, narrow, By::Look), &expected);
    }
}
