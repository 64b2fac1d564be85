//! Dead letters that outlive their hook, and those that are made again as they were.

use reveille_core::delivery::Letters;
use reveille_core::delivery::hook::EndedHook;
use reveille_core::delivery::policy::Versions;
use reveille_core::delivery::replay::{LetterAction, ReplayRecord, ReplayResult, ReplaySelection};
use reveille_kernel::timers::TimerHandler;
use reveille_schema::Record;
use reveille_schema::deliveries::DeliveryTimer;

use super::*;
use crate::app::App;
use crate::deliveries::dead_letter::DiscardDeadLetter;
use crate::deliveries::ended::EndedHookIndex;
use crate::deliveries::replay::StartReplay;
use crate::deliveries::retention::ForgetDeliveries;
use crate::deliveries::trim::{TrimEvents, TrimPlan};
use crate::limits::{ENDED_HOOKS_MAX, REPLAY_SLICE};

/// A world whose hook has such a policy.
fn world_with(change: impl FnOnce(Policy) -> Policy) -> World {
    let mut world = World::new(1);
    let policy = change(world.hook.policy.clone());
    let hook = Arc::new(Hook { policy, ..Hook::clone(&world.hook) });
    let key = keys::hook(hook.face, &hook.tenant, &hook.name);
    world.bench.given(vec![(key, record::encode_hook(&hook))]);
    World { hook, ..world }
}

/// A world whose hook leaves its dead letters behind.
fn outlived() -> World {
    world_with(|policy| Policy { letters: Letters::OutliveHook, ..policy })
}

fn end(world: &mut World, open: OpenDeliveries) {
    let (tenant, name) = (world.bench.tenant.clone(), world.hook.name.clone());
    world.bench.when(&DeleteHook { face: FACE, tenant, name, open }).answer();
}

/// Fires what is due until nothing is, and returns how often something died meanwhile.
fn settle(world: &mut World) -> usize {
    let mut died = 0;
    while let Some(timer) = world.bench.timers().into_iter().find(|it| it.at() <= world.bench.now) {
        let decided = world.bench.fire(timer);
        let is_death = |it: &&Effect| matches!(it, Effect::CountDeadLetter(_));
        died += decided.effects.iter().filter(is_death).count();
        decided.answer();
    }
    died
}

fn kept(world: &World) -> Vec<(DeliveryId, DeliveryRecord)> {
    let (from, to) = keys::deliveries(world.hook.id);
    let pairs = world.bench.reader().range(&from, &to, usize::MAX).unwrap();
    let decode = |value: &Bytes| record::decode_delivery(value).unwrap();
    pairs.iter().map(|(key, value)| (keys::parse_delivery(key).unwrap(), decode(value))).collect()
}

fn ended(world: &World) -> Option<EndedHook> {
    let key = keys::ended_hook(&world.bench.tenant, world.hook.id);
    world.bench.reader().get(&key).unwrap().map(|value| EndedHook::decode(&value).unwrap())
}

/// Every key of the hook that is kept, by its tag.
fn tags(world: &World) -> Vec<u8> {
    let reader = world.bench.reader();
    let found = [0x0d..0x0e, 0x10..0x17, 0x1b..0x1c, 0x1d..0x1f]
        .into_iter()
        .flat_map(|tags| reader.keys(&[tags.start], &[tags.end], usize::MAX).unwrap());
    found.map(|key| key[0]).collect()
}

fn forget(world: &mut World, cutoff: Millis) -> u64 {
    let (hook, after) = (world.hook.id, Bytes::new());
    world.bench.when(&ForgetDeliveries { hook, cutoff, after }).answer().forgotten
}

#[test]
fn letters_outlive_their_hook_until_they_are_older_than_they_are_kept() {
    for (open, expected) in [(OpenDeliveries::Drop, 2), (OpenDeliveries::Bury, 5)] {
        let mut world = outlived();
        let (dead, other) = (world.dead_letter(), world.dead_letter());
        let delivered = world.ingest(1)[0];
        let good = world.outcome(delivered, 1, Verdict::Delivered);
        world.bench.when(&good).answer();
        let open_ones = world.ingest(3);
        end(&mut world, open);
        assert_eq!(settle(&mut world), expected - 2, "{open:?}");
        let letters = kept(&world);
        assert_eq!(letters.len(), expected);
        for (id, it) in &letters {
            let why = match it.delivery.phase {
                Phase::Dead { why, .. } => why,
                _ => panic!("{it:?}"),
            };
            assert_eq!(why == DeadReason::HookDeleted, open_ones.contains(id));
            assert_eq!(it.timer_at, None);
        }
        assert!(ended(&world).unwrap().is_cleared);
        let counts = world.bench.reader().get(&keys::counts(world.hook.id)).unwrap().unwrap();
        let counts = record::decode_delivery_counts(&counts).unwrap();
        let found = (counts.kept, counts.dead_letters, counts.pending + counts.failed);
        assert_eq!(found, (expected as u64, expected as u64, 0));
        assert!(counts.adds_up(), "{counts:?}");
        // They are not made again, and one of them is discarded.
        let tenant = world.bench.tenant.clone();
        let retried =
            world.bench.when(&RetryDelivery { face: FACE, tenant: tenant.clone(), id: dead });
        let gone = DeliveryRejection::HookGone { hook: world.hook.name.clone() };
        assert_eq!(retried.outcome, Err(Error::Rejected(gone)));
        let discard = DiscardDeadLetter { tenant, id: other };
        world.bench.when(&discard).answer();
        assert!(world.stored(other).discarded);
        assert_eq!(
            world.bench.when(&discard).outcome,
            Err(Error::Rejected(DeliveryRejection::NoDeadLetter))
        );
        // Nothing is older than this; then everything is.
        assert_eq!(forget(&mut world, Millis(1)), 0);
        assert_eq!(forget(&mut world, Millis::NEVER), expected as u64);
        assert_eq!((ended(&world), tags(&world)), (None, vec![]));
        assert_eq!(world.bench.timers().len(), 0, "and nobody waits for anything");
    }
}

#[test]
fn a_hook_that_leaves_no_letters_leaves_nothing() {
    for mut world in [outlived(), World::new(1)] {
        let ids = world.ingest(600);
        end(&mut world, OpenDeliveries::Drop);
        assert_eq!(ended(&world).is_some(), world.hook.policy.letters == Letters::OutliveHook);
        assert_eq!((settle(&mut world), ids.is_empty()), (0, false));
        assert_eq!((ended(&world), tags(&world)), (None, vec![]));
    }
}

/// What a slice has cleared up is not looked at again, and what is being cleared up is not forgotten
/// by others.
#[test]
fn letters_are_buried_in_slices_and_once() {
    let mut world = outlived();
    world.ingest(500);
    let begun = kept(&world).len();
    end(&mut world, OpenDeliveries::Bury);
    let unhook = |world: &World| {
        let name = DeliveryTimer::Unhook(world.bench.tenant.clone(), world.hook.id).encode();
        world.bench.timers().into_iter().find(|it| it.name() == &name[..])
    };
    let mut slices = 0;
    while let Some(timer) = unhook(&world) {
        world.bench.now = world.bench.now.max(timer.at());
        // Two looks at the same: the second comes too late.
        let late = App::timer_command(&world.bench.shared, timer.clone()).unwrap();
        world.bench.fire(timer).answer();
        world.bench.when(&late).answer();
        assert!(slices > 0 || forget(&mut world, Millis::NEVER) == 0, "it is being cleared up");
        slices += 1;
    }
    let letters = kept(&world);
    assert!(slices > 2 && letters.len() == begun, "{slices} slices, {} letters", letters.len());
    let counts = world.bench.reader().get(&keys::counts(world.hook.id)).unwrap().unwrap();
    let counts = record::decode_delivery_counts(&counts).unwrap();
    assert_eq!((counts.died, counts.dead_letters), (begun as u64, begun as u64));
    let mut after = Bytes::new();
    loop {
        let (hook, cutoff) = (world.hook.id, Millis::NEVER);
        let slice = world.bench.when(&ForgetDeliveries { hook, cutoff, after }).answer();
        let Some(next) = slice.next else { break };
        after = next;
    }
    settle(&mut world);
    assert_eq!((ended(&world), tags(&world)), (None, vec![]));
}

/// However often a tenant makes and ends hooks, the state stays bounded.
#[test]
fn so_many_ended_hooks_are_remembered_and_the_first_goes() {
    let mut world = outlived();
    let dead = world.dead_letter();
    end(&mut world, OpenDeliveries::Drop);
    settle(&mut world);
    let planted = (0..ENDED_HOOKS_MAX as u64 - 1).map(|number| {
        let id = HookId(1_000_000 + number);
        let hook = Hook { id, ..Hook::clone(&world.hook) };
        let (open, after) = (OpenDeliveries::Drop, Bytes::new());
        let ended_at = world.bench.now + 1 + number;
        let ended = EndedHook { hook, ended_at, open, after, is_cleared: true };
        (keys::ended_hook(&world.bench.tenant, id), ended.encode())
    });
    let planted = planted.collect();
    world.bench.given(planted);
    assert!(ended(&world).is_some() && kept(&world).len() == 1);
    let hook = Hook { id: HookId(900_000), ..Hook::clone(&world.hook) };
    let key = keys::hook(hook.face, &hook.tenant, &hook.name);
    world.bench.given(vec![(key, record::encode_hook(&hook))]);
    end(&mut world, OpenDeliveries::Drop);
    assert_eq!(ended(&world), None);
    settle(&mut world);
    assert_eq!((kept(&world).len(), tags(&world).contains(&0x1b)), (0, false), "{dead:?} is gone");
    let partition = world.bench.shared.lock();
    let known = partition.index.of::<EndedHookIndex>();
    let left = known.from(Some(&world.bench.tenant), HookId(0), usize::MAX);
    assert_eq!(left.len(), ENDED_HOOKS_MAX - 1, "the one without letters has gone, too");
    assert_eq!(known.named(&world.bench.tenant, "h").len(), left.len());
}

#[test]
fn events_of_letters_are_kept_when_their_hook_is_gone() {
    let mut world = outlived();
    let dead = world.dead_letter();
    world.ingest(1);
    end(&mut world, OpenDeliveries::Drop);
    settle(&mut world);
    let plan = |world: &World| {
        let tenant = world.bench.tenant.clone();
        TrimPlan::make(&world.bench.reader(), FACE, &tenant, Millis::NEVER).unwrap().unwrap()
    };
    let needed = plan(&world);
    assert_eq!((needed.until, needed.needed), (dead.no.event, true));
    let tenant = world.bench.tenant.clone();
    let event = keys::event(FACE, &tenant, dead.no.event);
    world.bench.when(&TrimEvents { face: FACE, tenant: tenant.clone(), plan: needed }).answer();
    assert!(world.bench.reader().get(&event).unwrap().is_some());
    // A plan that has not seen the hook does nothing.
    let blind = TrimPlan { until: EventNo(u64::MAX), seen: world.hook.id.0, ..needed };
    let trimmed = world.bench.when(&TrimEvents { face: FACE, tenant: tenant.clone(), plan: blind });
    assert_eq!(trimmed.answer().forgotten, 0);
    world.bench.when(&DiscardDeadLetter { tenant, id: dead }).answer();
    world.bench.now = world.bench.now + 1;
    assert!(plan(&world).until > dead.no.event, "nobody asks for it any more");
}

fn start(world: &mut World, original: bool) -> u64 {
    start_action(world, LetterAction::Replay, original)
}

fn start_action(world: &mut World, action: LetterAction, original: bool) -> u64 {
    let (from, to) = (Millis(0), world.bench.now + 1);
    let (hooks, ids) = (vec![], vec![]);
    let selection = ReplaySelection { action, hooks, why: None, from, to, ids, original };
    let (tenant, reason) = (world.bench.tenant.clone(), Some("it is mended".into()));
    let actor = "key_1".into();
    world.bench.when(&StartReplay { tenant, selection, total: 1, actor, reason }).answer().id
}

fn replay(world: &World, id: u64) -> ReplayRecord {
    let value = world.bench.reader().get(&keys::replay(&world.bench.tenant, id)).unwrap();
    ReplayRecord::decode(&value.unwrap()).unwrap()
}

/// The replay's timer fires. Returns what was counted.
fn fire_replay(world: &mut World) -> Vec<(ReplayResult, u64)> {
    let mut counted = Vec::new();
    for timer in world.bench.timers() {
        if let Some(DeliveryTimer::Replay(..)) = DeliveryTimer::decode(timer.name()) {
            let effects = world.bench.fire(timer).effects;
            counted.extend(effects.iter().filter_map(|it| match it {
                Effect::CountReplayed { result, count } => Some((*result, *count)),
                _ => None,
            }));
        }
    }
    counted
}

fn again(id: DeliveryId) -> DeliveryId {
    DeliveryId { no: DeliveryNo { round: id.no.round + 1, ..id.no }, ..id }
}

#[test]
fn a_delivery_knows_the_replay_that_has_made_it() {
    let mut world = World::new(1);
    let dead = world.dead_letter();
    let tenant = world.bench.tenant.clone();
    let mark = |world: &World, id| send::replay_mark(&world.bench.reader(), &tenant, id).unwrap();
    let id = start(&mut world, false);
    let begun_at = world.bench.now;
    fire_replay(&mut world);
    assert_eq!(mark(&world, dead), None);
    let found = mark(&world, again(dead)).unwrap();
    assert_eq!((found.id, found.reason.as_deref()), (id, Some("it is mended")));
    assert_eq!((found.at, found.count), (Some(begun_at), 1));
    // It dies again, and is made again by hand: nobody's replay.
    let outcome = world.outcome(again(dead), 1, Verdict::Dead(DeadReason::Refused));
    world.bench.when(&outcome).answer();
    assert!(replay(&world, id).ended_at.is_some());
    let retry = RetryDelivery { face: FACE, tenant: tenant.clone(), id: again(dead) };
    let third = world.bench.when(&retry).answer();
    assert_eq!((third.no.round, mark(&world, third)), (2, None));
    // The replay is forgotten before what it has made.
    let found = vec![keys::replay(&tenant, id)];
    world.bench.when(&crate::deliveries::retention::ForgetReplays { found }).answer();
    let left = mark(&world, again(dead)).unwrap();
    assert_eq!((left.id, left.reason, left.at, left.count), (id, None, None, 1));
}

/// The hook's deliveries end with it, also those that a replay has made: it comes to its end.
#[test]
fn a_replay_ends_when_the_hook_of_its_deliveries_does() {
    for (open, mut world, expected) in [
        (OpenDeliveries::Drop, World::new(1), (0, 1)),
        (OpenDeliveries::Drop, outlived(), (0, 1)),
        (OpenDeliveries::Bury, outlived(), (1, 0)),
    ] {
        world.dead_letter();
        let id = start(&mut world, false);
        fire_replay(&mut world);
        assert_eq!(replay(&world, id).pending(), 1);
        end(&mut world, open);
        settle(&mut world);
        let done = replay(&world, id);
        assert_eq!((done.failed, done.dropped), expected);
        assert!(done.ended_at.is_some(), "{done:?}");
    }
}

#[test]
fn letters_are_discarded_in_slices_also_those_of_a_hook_that_has_ended() {
    for ends in [false, true] {
        let mut world = outlived();
        let count = 2 * REPLAY_SLICE + 1;
        let letters: Vec<DeliveryId> = (0..count).map(|_| world.dead_letter()).collect();
        if ends {
            end(&mut world, OpenDeliveries::Drop);
            settle(&mut world);
        }
        let id = start_action(&mut world, LetterAction::Discard, false);
        // What dies later is not meant.
        world.bench.now = world.bench.now + 1;
        let later = (!ends).then(|| world.dead_letter());
        let mut slices = 0;
        while replay(&world, id).ended_at.is_none() {
            assert_eq!(fire_replay(&mut world), [], "nothing is made again");
            slices += 1;
        }
        let done = replay(&world, id);
        assert_eq!((slices > 2, done.succeeded, done.skipped), (true, count as u64, 0));
        for letter in letters {
            let kept = world.stored(letter);
            assert!(kept.discarded && kept.retried, "{kept:?}");
        }
        let counts = world.bench.reader().get(&keys::counts(world.hook.id)).unwrap().unwrap();
        let counts = record::decode_delivery_counts(&counts).unwrap();
        assert_eq!(counts.dead_letters, u64::from(later.is_some()));
        assert!(later.is_none_or(|later| !world.stored(later).discarded));
    }
}

#[test]
fn letters_of_a_hook_that_has_ended_are_skipped_and_said_so() {
    let mut world = outlived();
    let dead = world.dead_letter();
    let id = start(&mut world, false);
    end(&mut world, OpenDeliveries::Drop);
    assert_eq!(fire_replay(&mut world), [(ReplayResult::Skipped, 1)]);
    let done = replay(&world, id);
    assert_eq!((done.made, done.skipped, done.hook_gone), (0, 1, 1));
    assert!(done.ended_at.is_some() && !world.stored(dead).retried);
}

#[test]
fn a_replay_follows_the_version_that_a_letter_had_if_it_is_asked_to() {
    let matched = |policy| Policy { versions: Versions::Matched, ..policy };
    for (original, expected) in [(true, 1), (false, 2)] {
        let mut world = world_with(matched);
        let dead = world.dead_letter();
        change_hook(&mut world);
        let id = start(&mut world, original);
        fire_replay(&mut world);
        assert_eq!(world.stored(again(dead)).hook_version, expected);
        assert_eq!(replay(&world, id).made, 1);
    }
    // It is not kept any more: the letter stays as it is.
    for forget in [true, false] {
        let mut world = world_with(matched);
        let dead = world.dead_letter();
        for _ in 0..if forget { 65 } else { 1 } {
            change_hook(&mut world);
        }
        if !forget {
            let policy = Policy { versions: Versions::Current, ..world.hook.policy.clone() };
            let hook = Hook { policy, ..Hook::clone(&world.hook) };
            let key = keys::hook(hook.face, &hook.tenant, &hook.name);
            world.bench.given(vec![(key, record::encode_hook(&hook))]);
        }
        let id = start(&mut world, true);
        assert_eq!(fire_replay(&mut world), [(ReplayResult::Skipped, 1)]);
        let done = replay(&world, id);
        assert_eq!((done.skipped, done.version_gone, done.pending()), (1, 1, 0));
        assert!(!world.stored(dead).retried, "it can be made again as the hook is");
    }
}

fn change_hook(world: &mut World) {
    let policy = world.hook.policy.clone();
    world.hook = versions::change_policy(world, policy);
}
