//! Replays: the same events under the same names, for as long as the window is, and only through the
//! gate.

use reveille_core::fact::access::CancelReason;
use reveille_core::fact::subscription::event_id;

use super::*;
use crate::facts::replay::{Replay, ReplayPage, ReplayRun};

impl World {
    fn run(&self, hook: &Arc<Hook>, after: Option<String>, limit: usize) -> ReplayRun {
        ReplayRun {
            reader: self.bench.reader(),
            hook: hook.clone(),
            after,
            limit,
            window_s: 3_600,
            now: self.bench.now,
        }
    }

    fn replay(&self, hook: &Arc<Hook>, after: Option<String>, limit: usize) -> ReplayPage {
        match self.run(hook, after, limit).read().unwrap() {
            Replay::Page(page) => page,
            Replay::Revoked(why) => panic!("{why:?}"),
        }
    }
}

fn values(page: &ReplayPage) -> Vec<String> {
    let value = |bytes: &Bytes| {
        let event: Value = serde_json::from_slice(bytes).unwrap();
        event["payload"]["value"]["v"].as_str().unwrap_or_default().to_owned()
    };
    page.events.iter().map(value).collect()
}

fn subscribed() -> (World, Person, Person, Arc<Hook>) {
    let (mut world, admin, bob) = team();
    world.token(&admin, &bob, "*");
    let hook = world.subscribe(&bob, "scope:team").hook;
    (world, admin, bob, hook)
}

#[test]
fn s_15_what_is_replayed_is_what_was_delivered_byte_for_byte() {
    let (mut world, admin, _, hook) = subscribed();
    world.assert(&admin, said("a", "r", "1", None));
    world.assert(&admin, said("a", "s", "2", None));
    let sent = world.deliver_all();
    let replayed = world.replay(&hook, None, 100);
    let read: Vec<Value> =
        replayed.events.iter().map(|it| serde_json::from_slice(it).unwrap()).collect();
    assert!(read.iter().eq(sent.iter().map(|(_, event)| event)));
    assert!(read.iter().all(|it| it["idempotency_key"] == it["event_id"]));
    assert!(!replayed.has_more);
}

#[test]
fn s_21_pages_follow_each_other_and_what_is_beyond_the_window_is_gone() {
    let (mut world, admin, _, hook) = subscribed();
    for number in 0..30 {
        world.assert(&admin, said("a", &format!("r{number}"), &number.to_string(), None));
        world.bench.now = Millis(world.bench.now.0 + 200_000);
    }
    // The window is an hour: the first twelve are from before.
    let (mut after, mut seen, mut pages) = (None, Vec::new(), 0);
    loop {
        let page = world.replay(&hook, after, 7);
        seen.extend(values(&page));
        pages += 1;
        after = page.next_after;
        if !page.has_more {
            break;
        }
    }
    let expected: Vec<String> = (12..30).map(|it: u32| it.to_string()).collect();
    assert_eq!((seen, pages), (expected, 3));
    let none = world.replay(&hook, after, 7);
    assert!(none.events.is_empty() && !none.has_more);
    let first = event_id(hook.id, world.events()[0]);
    for bad in
        [first, event_id(hook.id, EventNo(1)), event_id(HookId(1), world.events()[20]), "x".into()]
    {
        let gone = world.run(&hook, Some(bad.clone()), 7).read();
        assert!(matches!(gone, Err(Error::Rejected(FactRejection::EventNotFound))), "{bad}");
    }
}

#[test]
fn b_4_vi_after_a_revocation_a_replay_shows_nothing_and_cancels() {
    for in_garden in [false, true] {
        let (mut world, admin, bob, hook) = subscribed();
        world.grant(&admin, &bob, "atlas", GardenRole::Reader);
        world.assert(&admin, said("a", "r", "outside", None));
        world.assert(&admin, said("a", "r", "inside", Some("atlas")));
        world.deliver_all();
        assert_eq!(values(&world.replay(&hook, None, 100)), ["outside", "inside"]);
        let why = if in_garden {
            world.remove(&admin, &bob, "atlas");
            CancelReason::MembershipEnded
        } else {
            world.revoke_key(&bob);
            CancelReason::KeyRevoked
        };
        let replayed = world.run(&hook, None, 100).read().unwrap();
        assert_eq!(replayed, Replay::Revoked(why));
    }
}

/// Thousands of facts of a garden are between two of hers: no page says what any of them is called.
#[test]
fn pages_of_what_may_not_be_shown_come_further_and_name_none_of_it() {
    let (mut world, admin, _, hook) = subscribed();
    let mut hidden = BTreeSet::new();
    let many = 2 * crate::facts::limits::REPLAY_LOOKS_MAX;
    world.assert(&admin, said("first", "r", "first", None));
    for number in 0..many {
        let fact = world.assert(&admin, said(&format!("e{number}"), "r", "v", Some("atlas")));
        hidden.insert(event_id(hook.id, EventNo(fact.no.0)));
    }
    world.assert(&admin, said("last", "r", "last", None));
    let (mut after, mut seen) = (None, Vec::new());
    for _ in 0..10 {
        let page = world.replay(&hook, after, 7);
        seen.extend(values(&page));
        assert!(!page.next_after.as_ref().is_some_and(|it| hidden.contains(it)), "{page:?}");
        after = page.next_after;
        if !page.has_more {
            break;
        }
    }
    assert_eq!(seen, ["first", "last"]);
    assert_eq!(after, Some(event_id(hook.id, *world.events().last().unwrap())));
    // When the window has come past such a place, something may be missing behind it.
    let page = world.replay(&hook, None, 7);
    world.bench.now = Millis(world.bench.now.0 + 3_600_001);
    world.assert(&admin, said("later", "r", "later", None));
    let gone = world.run(&hook, page.next_after, 7).read();
    assert!(matches!(gone, Err(Error::Rejected(FactRejection::EventNotFound))));
}

#[test]
fn what_may_not_be_shown_is_left_out_and_the_page_goes_on_behind_it() {
    let (mut world, admin, _, hook) = subscribed();
    for number in 0..6 {
        let garden = (number % 2 == 1).then_some("atlas");
        world.assert(&admin, said(&format!("e{number}"), "r", &number.to_string(), garden));
    }
    world.deliver_all();
    let first = world.replay(&hook, None, 2);
    assert_eq!((values(&first), first.has_more), (vec!["0".to_owned(), "2".to_owned()], true));
    let rest = world.replay(&hook, first.next_after, 2);
    assert_eq!(values(&rest), ["4"]);
}
