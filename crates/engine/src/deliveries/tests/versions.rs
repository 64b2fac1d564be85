//! Versions of hooks: what their owners change, and what deliveries that began before follow.

use reveille_core::delivery::Policy;
use reveille_core::delivery::hook::FaceId;
use reveille_core::delivery::policy::Versions;
use reveille_kernel::command::{Command, Decision};

use super::*;
use crate::app::{App, Txn};
use crate::deliveries::hook::{NewHook, change, create};

/// Changes a hook's rules.
struct ChangePolicy {
    id: HookId,
    policy: Policy,
}

impl Command<App> for ChangePolicy {
    type Answer = Arc<Hook>;
    type Rejection = Never;

    fn decide(&self, txn: &mut Txn<'_>) -> Decision<Arc<Hook>, Never> {
        let hook = HookIndex::of_txn(txn).get(self.id).expect("it is there");
        Ok(Ok(change(txn, hook, self.policy.clone(), hook.spec.clone())))
    }
}

/// Makes a hook of a face.
struct CreateOf(FaceId);

impl Command<App> for CreateOf {
    type Answer = Arc<Hook>;
    type Rejection = DeliveryRejection;

    fn decide(&self, txn: &mut Txn<'_>) -> Decision<Arc<Hook>, DeliveryRejection> {
        let made = HookIndex::of_txn(txn).named(FACE, "h").expect("it is there");
        let Hook { tenant, name, policy, spec, .. } = Hook::clone(made);
        let (face, backfill, created_by) = (self.0, None, None);
        Ok(create(txn, NewHook { face, tenant, name, policy, spec, backfill, created_by }))
    }
}

/// A world whose hook's deliveries follow that version of it, tried so often.
fn world_of(versions: Versions, attempts: u32) -> World {
    let mut world = World::new(attempts);
    let policy = Policy { versions, ..world.hook.policy.clone() };
    let hook = Arc::new(Hook { policy, ..Hook::clone(&world.hook) });
    let key = keys::hook(hook.face, &hook.tenant, &hook.name);
    world.bench.given(vec![(key, record::encode_hook(&hook))]);
    World { hook, ..world }
}

fn change_attempts(world: &mut World, attempts: u32) -> Arc<Hook> {
    let policy = Policy { attempts, ..world.hook.policy.clone() };
    world.hook = change_policy(world, policy);
    world.hook.clone()
}

pub(super) fn change_policy(world: &mut World, policy: Policy) -> Arc<Hook> {
    world.bench.when(&ChangePolicy { id: world.hook.id, policy }).answer()
}

fn followed_attempts(world: &World, id: DeliveryId) -> u32 {
    let tenant = world.hook.tenant.clone();
    let transport = Transport::Http;
    let attempt = DeliveryAttempt { id, attempt: 1, tenant, transport, event: None };
    let hook = send::followed(&world.bench.reader(), world.hook.clone(), &attempt).unwrap();
    hook.policy.attempts
}

#[test]
fn a_delivery_follows_the_version_that_matched_where_the_policy_says_so() {
    for (versions, is_dead) in [(Versions::Matched, true), (Versions::Current, false)] {
        let mut world = world_of(versions, 1);
        let old = world.ingest(1)[0];
        let changed = change_attempts(&mut world, 5);
        assert_eq!(changed.version, 2);
        let new = world.ingest(1)[0];
        let stored = [old, new].map(|id| world.stored(id).hook_version);
        assert_eq!(stored, [1, 2]);
        let expected = if is_dead { [1, 5] } else { [5, 5] };
        assert_eq!([old, new].map(|id| followed_attempts(&world, id)), expected);
        let decided = world.bench.when(&world.outcome(old, 1, Verdict::Failed));
        let phase = written(&decided, old).delivery.phase;
        assert_eq!(matches!(phase, Phase::Dead { .. }), is_dead, "{versions:?}");
        let former = world.bench.reader().get(&keys::hook_version(world.hook.id, 1)).unwrap();
        assert_eq!(former.is_some(), is_dead, "nothing is kept that nobody follows");
    }
}

#[test]
fn a_dead_letter_that_is_made_again_follows_the_hook_as_it_is() {
    let mut world = world_of(Versions::Matched, 1);
    let dead = world.dead_letter();
    change_attempts(&mut world, 5);
    let tenant = world.hook.tenant.clone();
    let again = world.bench.when(&RetryDelivery { face: FACE, tenant, id: dead }).answer();
    assert_eq!(world.stored(again).hook_version, 2);
    assert_eq!(followed_attempts(&world, again), 5);
}

#[test]
fn so_many_former_versions_are_kept_and_none_when_the_hook_has_ended() {
    let mut world = world_of(Versions::Matched, 1);
    let old = world.ingest(1)[0];
    for attempts in 2..=100 {
        change_attempts(&mut world, attempts);
    }
    assert_eq!(world.hook.version, 100);
    let (from, to) = keys::hook_versions(world.hook.id);
    let kept = world.bench.reader().keys(&from, &to, usize::MAX).unwrap();
    assert_eq!(kept.len(), 64);
    // Nobody knows the version any more that it began with.
    assert_eq!(followed_attempts(&world, old), 100);
    let (tenant, name) = (world.hook.tenant.clone(), world.hook.name.clone());
    world.bench.when(&DeleteHook { face: FACE, tenant, name, open: OpenDeliveries::Drop }).answer();
    for _ in 0..3 {
        for timer in world.bench.timers() {
            world.bench.now = world.bench.now.max(timer.at());
            world.bench.fire(timer);
        }
    }
    assert!(world.bench.reader().keys(&from, &to, usize::MAX).unwrap().is_empty());
}

#[test]
fn names_of_two_faces_never_meet() {
    let mut world = World::new(1);
    let other = FaceId(0x77);
    let made = world.bench.when(&CreateOf(other)).answer();
    assert_ne!(made.id, world.hook.id);
    let again = world.bench.when(&CreateOf(other));
    assert_eq!(again.outcome.err(), Some(Error::Rejected(DeliveryRejection::Exists)));
    let (tenant, name) = (made.tenant.clone(), made.name.clone());
    world
        .bench
        .when(&DeleteHook { face: other, tenant, name, open: OpenDeliveries::Drop })
        .answer();
    let key = keys::hook(FACE, &world.hook.tenant, &world.hook.name);
    assert!(world.bench.reader().get(&key).unwrap().is_some(), "the other one stays");
}
