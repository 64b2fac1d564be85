//! A version for some of the documents, and what becomes of it when it misses its objective.

use super::*;

fn on_trial(percent: u8) -> Value {
    json!({
        "label": "new",
        "rollout": {
            "percent": percent,
            "slo": {"maxErrorRate": 0.05, "maxP95LatencyMs": 2000, "window": "5m", "minSamples": 20},
        },
    })
}

/// The versions that documents follow, one after another.
fn versions(world: &mut World, documents: usize) -> Vec<u64> {
    let before = world.told().len();
    for number in 0..documents {
        world.write(vec![set(&format!("orders/d{number}"), json!({}))]);
    }
    world.told().split_off(before).into_iter().map(|(_, version)| version).collect()
}

#[test]
fn rol_2_a_share_of_the_documents_follows_the_new_version_and_the_rest_the_stable_one() {
    let mut world = World::new();
    world.enabled("a", json!({}));
    world.update("a", on_trial(10)).unwrap();
    let first = versions(&mut world, 100);
    let new = first.iter().filter(|version| **version == 2).count();
    assert!(first.len() == 100 && (3..=20).contains(&new), "{new} of {}", first.len());
    assert_eq!(versions(&mut world, 100), first, "a document stays on its side");
    // A larger share is another version; who was covered stays so.
    world.update("a", on_trial(50)).unwrap();
    let second = versions(&mut world, 100);
    assert!(first.iter().zip(&second).all(|(one, next)| *one == 1 || *next == 3));
    world.update("a", json!({"label": "new"})).unwrap();
    assert!(versions(&mut world, 20).iter().all(|version| *version == 4));
    assert_eq!(world.trigger("a").deployment.stable, None, "it is for all now");
}

#[test]
fn rol_2_without_a_version_before_the_rest_gets_nothing() {
    let mut world = World::new();
    world.enabled("a", on_trial(10));
    let told = versions(&mut world, 100);
    assert!((3..=20).contains(&told.len()), "{}", told.len());
}

#[test]
fn rol_3_a_breach_goes_back_to_the_version_before_with_a_row_by_the_server() {
    let mut world = World::new();
    world.enabled("a", json!({"label": "old"}));
    world.update("a", on_trial(50)).unwrap();
    let of_new = versions(&mut world, 100).into_iter().filter(|version| *version == 2).count();
    assert!(of_new >= 20);
    // A server that starts anew has forgotten nothing of the window.
    world.answer_all(Verdict::Delivered, 10);
    world.bench.reopen();
    assert_eq!(world.state("a"), State::Enabled);
    let rows = world.rows().len();
    versions(&mut world, 100);
    assert_eq!(world.answer_all(Verdict::Failed, 10), 100);
    let trigger = world.trigger("a");
    assert_eq!(trigger.deployment.state, State::RolledBack { is_active: true });
    assert_eq!((trigger.hook.version, trigger.definition.label.as_deref()), (3, Some("old")));
    let row = world.rows().split_off(rows);
    assert_eq!(row.len(), 1, "it is rolled back once");
    assert_eq!((&*row[0].action, &*row[0].actor.name), ("trigger.rolled_back", "system:rollout"));
    assert!(row[0].reason.as_deref().unwrap().contains("attempts failed"));
    // No change matches the version that was rolled back any more, and what it has begun keeps it.
    let after = versions(&mut world, 100);
    assert!(after.iter().all(|version| *version == 3), "{after:?}");
    let begun = world.deliveries();
    assert!(
        begun.iter().any(|(.., version, it)| *version == 2 && it.delivery.ended_at().is_none())
    );
    // What an operator puts in force next was not rolled back.
    world.update("a", on_trial(50)).unwrap();
    let trigger = world.trigger("a");
    assert_eq!((trigger.deployment.state, trigger.reason), (State::Enabled, None));
}

#[test]
fn rol_3_slow_answers_are_a_breach_and_too_few_are_none() {
    let mut world = World::new();
    world.enabled("a", json!({}));
    world.update("a", on_trial(100)).unwrap();
    versions(&mut world, 19);
    world.answer_all(Verdict::Delivered, 2_001);
    assert_eq!(world.state("a"), State::Enabled, "19 say nothing");
    versions(&mut world, 1);
    world.answer_all(Verdict::Delivered, 2_001);
    assert_eq!(world.state("a"), State::RolledBack { is_active: true });
}

#[test]
fn rol_3_without_a_version_before_nothing_matches_until_somebody_enables_it() {
    let mut world = World::new();
    world.enabled("a", on_trial(100));
    versions(&mut world, 30);
    world.answer_all(Verdict::Failed, 1);
    assert_eq!(world.state("a"), State::RolledBack { is_active: false });
    assert_eq!(world.trigger("a").hook.version, 1);
    assert!(versions(&mut world, 10).is_empty());
    // What it had begun waits, and is judged anew once somebody enables it.
    world.change("a", TriggerChange::Enable).unwrap();
    assert_eq!(versions(&mut world, 1).len(), 1);
    world.answer_all(Verdict::Failed, 1);
    assert_eq!(world.state("a"), State::Enabled);
}
