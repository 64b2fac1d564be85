//! Who is told, who is only told nothing, and whose subscription is cancelled: the table b.4.

use reveille_core::audit::AuditRow;
use reveille_core::fact::access::CancelReason;
use reveille_core::fact::token::CapabilityError;
use reveille_schema::Record;
use reveille_schema::audit::{Chain, split_row_value};
use reveille_schema::facts::CancelledRecord;

use super::*;

impl World {
    /// Why a subscription was cancelled; `None` if it was not.
    pub(super) fn cancelled(&self, hook: &Hook) -> Option<CancelReason> {
        let value = self.bench.reader().get(&keys::cancelled(&self.tenant, &hook.name)).unwrap();
        let record = CancelledRecord::decode(&value?).unwrap();
        assert!(self.hook(hook.id).is_none(), "a cancelled subscription has no hook");
        assert_eq!(record.hook, hook.id);
        Some(record.cancelled.why)
    }

    fn audit_rows(&self) -> Vec<AuditRow> {
        let chain: Chain = Some(self.tenant.clone());
        let (from, to) = keys::audit_rows(&chain, 0, u64::MAX);
        let reader = self.bench.reader();
        let row = |pair: Result<(Bytes, Bytes), _>| {
            let (_, value) = pair.unwrap();
            AuditRow::decode(split_row_value(&value).unwrap().1).unwrap()
        };
        Scan::new(&reader, from, to).map(row).collect()
    }
}

/// Bob subscribes to the team's scope, as a member of the garden or not.
fn subscribed(member: bool) -> (World, Person, Person, TokenNo, Arc<Hook>) {
    let (mut world, admin, bob) = team();
    if member {
        assert!(world.grant(&admin, &bob, "atlas", GardenRole::Reader));
    }
    let token = world.token(&admin, &bob, "scope:team");
    let hook = world.subscribe(&bob, "scope:team").hook;
    (world, admin, bob, token, hook)
}

#[test]
fn b_4_i_a_revoked_token_ends_the_subscription_and_nothing_is_sent() {
    let (mut world, admin, _, token, hook) = subscribed(false);
    world.assert(&admin, said("a", "r", "1", None));
    assert_eq!(world.deliver_all().len(), 1);
    world.revoke_token(&admin, token);
    world.assert(&admin, said("a", "r", "2", None));
    assert!(world.deliver_all().is_empty());
    assert_eq!(world.cancelled(&hook), Some(CancelReason::TokenRevoked));
    let rows = world.audit_rows();
    let row = rows.last().unwrap();
    assert_eq!((&*row.entry.subject, row.entry.diff.as_deref()), (&*hook.name, None));
    assert_eq!(row.entry.reason.as_deref(), Some(CancelReason::TokenRevoked.sentence()));
}

#[test]
fn b_4_ii_whoever_leaves_the_garden_is_told_nothing_and_cancelled() {
    let (mut world, admin, bob, _, hook) = subscribed(true);
    world.assert(&admin, said("a", "r", "1", Some("atlas")));
    assert_eq!(world.deliver_all().len(), 1);
    world.remove(&admin, &bob, "atlas");
    world.assert(&admin, said("a", "r", "2", Some("atlas")));
    assert!(world.deliver_all().is_empty());
    assert_eq!(world.cancelled(&hook), Some(CancelReason::MembershipEnded));
}

#[test]
fn b_4_iii_who_never_belonged_is_only_told_nothing() {
    let (mut world, admin, _, _, hook) = subscribed(false);
    world.assert(&admin, said("a", "r", "inside", Some("atlas")));
    assert!(world.deliver_all().is_empty());
    world.assert(&admin, said("a", "r", "outside", None));
    let sent = world.deliver_all();
    assert_eq!(sent.len(), 1);
    assert_eq!(sent[0].1["payload"]["value"]["v"], "outside");
    assert_eq!(world.cancelled(&hook), None);
}

#[test]
fn b_4_iv_what_is_revoked_between_attempts_is_not_tried_again() {
    for revoke in ["token", "key", "membership", "garden"] {
        let (mut world, admin, bob, token, hook) = subscribed(true);
        world.assert(&admin, said("a", "r", "1", Some("atlas")));
        let attempt = world.due.pop().unwrap();
        assert!(world.deliver(attempt, false).is_some(), "an endpoint answers 503");
        let why = match revoke {
            "token" => {
                world.revoke_token(&admin, token);
                CancelReason::TokenRevoked
            }
            "key" => {
                world.revoke_key(&bob);
                CancelReason::KeyRevoked
            }
            "membership" => {
                world.remove(&admin, &bob, "atlas");
                CancelReason::MembershipEnded
            }
            _ => {
                world.delete_garden(&admin, "atlas");
                CancelReason::MembershipEnded
            }
        };
        world.bench.now = Millis(world.bench.now.0 + 1_000);
        world.fire_all();
        assert_eq!(world.due.len(), 1, "{revoke}");
        assert!(world.deliver_all().is_empty(), "{revoke}");
        assert_eq!(world.cancelled(&hook), Some(why), "{revoke}");
    }
}

#[test]
fn b_4_v_the_token_decides_before_everything_else() {
    let (mut world, admin, bob, token, hook) = subscribed(true);
    world.assert(&admin, said("a", "r", "1", Some("atlas")));
    world.revoke_key(&bob);
    world.remove(&admin, &bob, "atlas");
    world.revoke_token(&admin, token);
    assert!(world.deliver_all().is_empty());
    assert_eq!(world.cancelled(&hook), Some(CancelReason::TokenRevoked));
}

#[test]
fn b_4_vii_whoever_comes_back_is_still_cancelled_and_may_subscribe_anew() {
    let (mut world, admin, bob, _, hook) = subscribed(true);
    world.remove(&admin, &bob, "atlas");
    world.assert(&admin, said("a", "r", "1", Some("atlas")));
    world.deliver_all();
    world.grant(&admin, &bob, "atlas", GardenRole::Reader);
    assert_eq!(world.cancelled(&hook), Some(CancelReason::MembershipEnded));
    let again = world.subscribe(&bob, "scope:team");
    assert!(again.is_new && again.hook.id > hook.id);
    world.assert(&admin, said("a", "s", "2", Some("atlas")));
    assert_eq!(world.deliver_all().len(), 1);
}

#[test]
fn an_expired_token_is_as_good_as_a_revoked_one() {
    let (mut world, admin, _, _, hook) = subscribed(false);
    world.assert(&admin, said("a", "r", "1", None));
    world.bench.now = Millis(world.bench.now.0 + 86_400_000);
    assert!(world.deliver_all().is_empty());
    assert_eq!(world.cancelled(&hook), Some(CancelReason::TokenExpired));
}

#[test]
fn a_look_from_before_a_revocation_may_still_leave_and_every_later_one_refuses() {
    let (mut world, admin, bob, _, _) = subscribed(true);
    world.assert(&admin, said("a", "r", "1", Some("atlas")));
    let attempt = world.due[0].clone();
    assert!(matches!(world.look(&attempt), Some(DeliveryReadiness::Send(_))));
    let before = world.bench.reader();
    world.remove(&admin, &bob, "atlas");
    let hook = world.hook(attempt.id.hook).unwrap();
    let now = world.bench.now;
    let then = readiness(&before, &FactFace::default(), &hook, &attempt, now).unwrap();
    assert!(matches!(then, DeliveryReadiness::Send(_)), "that look is of a place before");
    let dropped = world.look(&attempt);
    assert!(matches!(dropped, Some(DeliveryReadiness::Dropped { ends_hook: true, .. })));
}

#[test]
fn deliveries_and_events_hold_nothing_of_what_was_said() {
    let (mut world, admin, _, _, _) = subscribed(true);
    let command = AssertFact::new(
        world.tenant.clone(),
        admin.principal.clone(),
        said("a", "r", "a very secret thing", Some("atlas")),
    );
    let decided = world.bench.when(&command);
    let holds = |value: &[u8]| value.windows(6).any(|it| it == b"secret");
    for (key, value) in &decided.writes {
        let is_fact = keys::parse_fact(key).is_some();
        assert_eq!(value.as_deref().is_some_and(holds), is_fact, "{key:?}");
    }
    for effect in &decided.effects {
        assert!(!format!("{effect:?}").contains("secret"), "{effect:?}");
    }
}

#[test]
fn a_check_that_cannot_run_is_a_refusal() {
    let (mut world, admin, bob, _, hook) = subscribed(true);
    let fact = world.assert(&admin, said("a", "r", "1", Some("atlas")));
    let attempt = world.due[0].clone();
    let key = keys::membership(&world.tenant, fact.garden.unwrap(), &bob.principal.entity);
    let good = world.bench.reader().get(&key).unwrap().unwrap();
    world.bench.given(vec![(key.clone(), Bytes::from_static(b"\xa1\x00"))]);
    let reader = world.bench.reader();
    assert!(readiness(&reader, &FactFace::default(), &hook, &attempt, world.bench.now).is_err());
    world.bench.given(vec![(key, good)]);
    assert!(matches!(world.look(&attempt), Some(DeliveryReadiness::Send(_))));
}

#[test]
fn two_endings_in_one_decision_are_one() {
    let (mut world, admin, _, _, hook) = subscribed(false);
    world.assert(&admin, said("a", "r", "1", None));
    world.assert(&admin, said("b", "r", "1", None));
    let gone = |attempt: &DeliveryAttempt| {
        let verdict = hook.policy.judge(Outcome::Answered { status: 410, retry_after_s: None });
        let record = AttemptRecord::new(attempt.attempt, world.bench.now, 1);
        DeliveryOutcome { id: attempt.id, attempt: record, verdict }
    };
    let outcomes = world.due.iter().map(gone).collect();
    let before = world.audit_rows().len();
    world.bench.when(&RecordDeliveryOutcomes(outcomes)).answer();
    assert_eq!(world.audit_rows().len(), before + 1);
    // An endpoint that wants nothing more leaves nothing to be seen.
    assert!(world.hook(hook.id).is_none() && world.cancelled(&hook).is_none());
}

#[test]
fn s_10_without_a_capability_for_just_this_target_nobody_subscribes() {
    let (mut world, admin, bob) = team();
    let insufficient = FactRejection::Capability(CapabilityError::Insufficient);
    let command = world.subscription(&bob, wanted("scope:team"));
    assert_eq!(rejected(world.bench.when(&command)), insufficient);
    world.token(&admin, &bob, "scope:public");
    world.token(&admin, &bob, "entity:a");
    assert_eq!(rejected(world.bench.when(&command)), insufficient);
    let ada = world.token(&admin, &admin, "*");
    let shown = CreateSubscription { token: Some(ada), ..command.clone() };
    let invalid = FactRejection::Capability(CapabilityError::Invalid);
    assert_eq!(rejected(world.bench.when(&shown)), invalid, "somebody else's");
    let token = world.token(&admin, &bob, "*");
    world.revoke_token(&admin, token);
    assert_eq!(rejected(world.bench.when(&command)), insufficient);
    let shown = CreateSubscription { token: Some(token), ..command.clone() };
    let revoked = FactRejection::Capability(CapabilityError::Revoked);
    assert_eq!(rejected(world.bench.when(&shown)), revoked);
    world.token(&admin, &bob, "scope:team");
    assert!(world.bench.when(&command).answer().is_new);
}

#[test]
fn s_11_one_subscribes_to_what_one_may_read() {
    let (mut world, admin, bob) = team();
    world.token(&admin, &bob, "*");
    for (to, is_allowed) in [
        ("scope:team", true),
        ("scope:company", false),
        ("scope:global", false),
        ("scope:garden:atlas", false),
        ("scope:garden:nowhere", false),
        ("entity:a", false),
    ] {
        let command = world.subscription(&bob, wanted(to));
        let outcome = world.bench.when(&command).outcome;
        let denied = matches!(outcome, Err(Error::Rejected(FactRejection::InsufficientScope)));
        assert_eq!((outcome.is_ok(), denied), (is_allowed, !is_allowed), "{to}");
    }
    world.grant(&admin, &bob, "atlas", GardenRole::Reader);
    assert!(world.subscribe(&bob, "scope:garden:atlas").is_new);
    let about = Wanted { scope: ScopeId::One(Scope::Team), ..wanted("entity:a") };
    let command = world.subscription(&bob, about);
    assert!(world.bench.when(&command).answer().is_new);
}

#[test]
fn s_12_what_is_asked_for_twice_is_one_by_its_key_or_by_all_of_it() {
    let (mut world, admin, bob) = team();
    world.token(&admin, &bob, "*");
    let carol = world.person("carol", &["team", "public"], Role::User);
    world.token(&admin, &carol, "*");
    let first = world.subscribe(&bob, "scope:team");
    let again = world.subscribe(&bob, "scope:team");
    assert_eq!((again.is_new, again.hook.id), (false, first.hook.id));
    assert!(world.subscribe(&carol, "scope:team").is_new, "somebody else's is another");
    let with_key = |to| Wanted { idempotency_key: Some("k".into()), ..wanted(to) };
    let command = world.subscription(&carol, with_key("scope:team"));
    let keyed = world.bench.when(&command).answer();
    assert!(keyed.is_new, "a new key makes a new one");
    let command = world.subscription(&carol, with_key("scope:public"));
    let same = world.bench.when(&command).answer();
    assert_eq!((same.is_new, same.hook.id), (false, keyed.hook.id), "the key alone decides");
    world.unsubscribe(&bob, &first.hook.name).unwrap();
    let gone = world.unsubscribe(&bob, &first.hook.name);
    assert_eq!(gone, Err(FactRejection::SubscriptionNotFound));
    assert!(world.subscribe(&bob, "scope:team").is_new);
}

#[test]
fn s_12_twice_at_the_same_time_is_one_before_either_is_durable() {
    let (mut world, admin, bob) = team();
    world.token(&admin, &bob, "*");
    let one = world.subscription(&bob, wanted("scope:team"));
    let two = world.subscription(&bob, wanted("scope:team"));
    let mut early = world.bench.submit(&one);
    assert!(early.try_recv().is_err(), "it is decided, and not durable");
    let late = world.bench.when(&two).answer();
    let early = early.try_recv().unwrap().unwrap();
    assert_eq!((early.is_new, late.is_new), (true, false));
    assert_eq!(early.hook.id, late.hook.id);
}

/// A garden of the same slug is another garden, also when nothing is left of the first.
#[test]
fn a_subscription_to_a_garden_that_is_gone_is_not_found_again_but_made_anew() {
    let (mut world, admin, bob) = team();
    let issue = IssueToken {
        tenant: world.tenant.clone(),
        by: admin.principal.clone(),
        subject: bob.principal.entity.clone(),
        verb: Verb::Subscribe,
        object: Object::Any,
        ttl_ms: 2 * crate::facts::limits::CLOSED_GARDEN_MS,
    };
    world.bench.when(&issue).answer();
    world.grant(&admin, &bob, "atlas", GardenRole::Reader);
    let first = world.subscribe(&bob, "scope:garden:atlas");
    world.delete_garden(&admin, "atlas");
    world.bench.now = Millis(world.bench.now.0 + crate::facts::limits::CLOSED_GARDEN_MS);
    world.fire_all();
    world.garden(&admin, "atlas");
    world.grant(&admin, &bob, "atlas", GardenRole::Reader);
    let second = world.subscribe(&bob, "scope:garden:atlas");
    assert!(second.is_new);
    assert_eq!(world.cancelled(&first.hook), Some(CancelReason::MembershipEnded));
    world.assert(&admin, said("a", "r", "v", Some("atlas")));
    assert_eq!(world.deliver_all().len(), 1);
}

#[test]
fn one_that_nobody_may_have_any_more_is_not_found_again_but_made_anew() {
    let (mut world, admin, bob) = team();
    let token = world.token(&admin, &bob, "*");
    let first = world.subscribe(&bob, "scope:team");
    world.revoke_token(&admin, token);
    world.token(&admin, &bob, "*");
    let second = world.subscribe(&bob, "scope:team");
    assert!(second.is_new);
    assert_eq!(world.cancelled(&first.hook), Some(CancelReason::TokenRevoked));
    world.bench.reopen();
    let third = world.subscribe(&bob, "scope:team");
    assert_eq!((third.is_new, third.hook.id), (false, second.hook.id));
}
