//! The one file of this world that calls the engine.

use std::collections::BTreeSet;
use std::sync::Arc;

use reveille_core::delivery::hook::{Hook, HookId};
use reveille_core::fact::garden::{GardenRole, GardenSlug};
use reveille_core::fact::name::ScopeId;
use reveille_core::fact::principal::Principal;
use reveille_core::fact::statement::{Confidence, Statement};
use reveille_core::fact::subscription::{Channel, EventFilter, Wanted};
use reveille_core::fact::target::{Object, Target};
use reveille_core::fact::token::Verb;
use reveille_core::fact::value::{FactValue, ValueKind};
use reveille_core::fact::{EntityUri, Scope};
use reveille_core::key::{Access, Key, KeyHash, Role};
use reveille_core::{Millis, Tenant};
use reveille_engine::auth::keys::ChangeKey;
use reveille_engine::deliveries::delivery::RecordDeliveryOutcomes;
use reveille_engine::deliveries::index::HookIndex;
use reveille_engine::deliveries::send::{self, DeliveryReadiness};
use reveille_engine::effect::{Attempt, AttemptKey, AttemptSource, DeliveryAttempt};
use reveille_engine::facts::AssertFact;
use reveille_engine::facts::face::FactFace;
use reveille_engine::facts::garden::{CreateGarden, DeleteGarden, GrantRole, RemoveMember};
use reveille_engine::facts::subscription::CreateSubscription;
use reveille_engine::facts::token::{IssueToken, RevokeToken};
use reveille_kernel::error::Error;

use super::Facts;
use super::action::{Action, Answer, Refusal};
use super::model::{SLUGS, TARGETS};
use crate::base::engine::{self, Engine, Outcome};
use crate::base::{CheckResult, WorldCall, violation};

/// Longer than any run takes.
const TTL_MS: u64 = 80 * 86_400_000;

pub(super) fn tenant() -> Tenant {
    Tenant::default_tenant()
}

fn slug(index: usize) -> GardenSlug {
    GardenSlug::parse(SLUGS[index]).expect("a slug")
}

fn person(index: usize) -> EntityUri {
    EntityUri::parse(&format!("user:p{index}")).expect("an entity")
}

fn key(index: usize, generation: usize) -> (KeyHash, Key) {
    let id = format!("key_{index}_{generation}");
    let access = Access {
        tenant: Some(tenant()),
        roles: BTreeSet::from([Role::User]),
        entity_uri: Some(person(index).to_shared()),
        permissions: BTreeSet::new(),
        scopes: BTreeSet::from(["*".into()]),
        description: None,
    };
    let hash = KeyHash::of(&id).expect("a short key");
    (hash, Key { id: id.into(), created_at: Millis(1), access })
}

/// Whoever runs the tenant.
fn admin() -> Principal {
    Principal::of_key("ada", &Access::admin(Some(tenant())))
}

pub(super) fn call(action: &Action) -> WorldCall<Facts> {
    let (tenant, by) = (tenant(), admin());
    match action.clone() {
        Action::Open { slug: at } => {
            let (slug, name, scope) = (slug(at), SLUGS[at].into(), Scope::Team);
            engine::call(CreateGarden { tenant, by, slug, name, scope }, translate)
        }
        Action::Close { slug: at } => {
            engine::call(DeleteGarden { tenant, by, slug: slug(at) }, translate)
        }
        Action::Join { person: who, slug: at } => {
            let (slug, member, role) = (slug(at), person(who), GardenRole::Reader);
            let command = GrantRole { tenant, by, slug, member, role, is_new: true };
            engine::call(command, translate)
        }
        Action::Leave { person: who, slug: at } => {
            let command = RemoveMember { tenant, by, slug: slug(at), member: person(who) };
            engine::call(command, translate)
        }
        Action::Issue { person: who } => {
            let (subject, verb, object) = (person(who), Verb::Subscribe, Object::Any);
            let command = IssueToken { tenant, by, subject, verb, object, ttl_ms: TTL_MS };
            engine::call(command, translate)
        }
        Action::RevokeToken { no, .. } => {
            engine::call(RevokeToken { tenant, by, no, reason: None }, translate)
        }
        Action::MakeKey { person: who, key: generation } => {
            let (hash, key) = key(who, generation);
            engine::call(ChangeKey { hash, key: Some(Arc::new(key)) }, translate)
        }
        Action::RevokeKey { person: who, key: generation } => {
            let (hash, _) = key(who, generation);
            engine::call(ChangeKey { hash, key: None }, translate)
        }
        Action::Say { entity, relation, slug: at, mark } => {
            let said = statement(entity, relation, at, mark.as_deref());
            engine::call(AssertFact::new(tenant, by, said), translate)
        }
        Action::Subscribe { person: who, key: generation, target, name, wakes } => {
            let (hash, key) = key(who, generation);
            let command = CreateSubscription {
                tenant,
                by: Principal::of_key(&key.id, &key.access),
                key: (Some(key.id.clone()), Some(hash)),
                wanted: wanted(who, target, wakes),
                token: None,
                name: name.into(),
            };
            engine::call(command, translate)
        }
        Action::RecordOutcome(outcome) => {
            engine::call(RecordDeliveryOutcomes(vec![outcome]), translate)
        }
        Action::Drop(command) => engine::call(command, translate),
        Action::Append(command) => engine::call(*command, |outcome: Outcome<_, _>| {
            let is_made = outcome.as_ref().is_ok_and(Option::is_some);
            translate(outcome).map(|_| Answer::Appended(is_made))
        }),
        Action::Timer(timer) => engine::call(timer.command, translate),
    }
}

fn statement(entity: usize, relation: usize, at: Option<usize>, mark: Option<&str>) -> Statement {
    let value = mark.unwrap_or_default();
    let json = format!("\"{value}\"").into();
    Statement {
        entity: EntityUri::parse(&format!("e{entity}")).expect("an entity"),
        relation: format!("r{relation}").into(),
        value: FactValue::from_stored(ValueKind::String, json),
        source: "sim".into(),
        confidence: if mark.is_some() { Confidence::CERTAIN } else { Confidence::NONE },
        scope: Scope::Team,
        garden: at.map(slug),
        valid_until: None,
    }
}

/// Everybody of a person's subscriptions is told in one way: so no two of one target are alike.
fn wanted(who: usize, target: usize, wakes: bool) -> Wanted {
    let target = Target::parse(TARGETS[target]).expect("a target");
    let scope = match &target {
        Target::Scope(scope) => scope.clone(),
        Target::Entity(_) => ScopeId::Global,
    };
    let to: Arc<str> = format!("https://p{who}.example").into();
    let channel = if wakes { Channel::Wake(to) } else { Channel::Webhook(to) };
    let kinds = ["fact_assert", "fact_retract", "contradiction_detected", "card_refreshed"];
    let filter = EventFilter::parse(kinds).expect("a filter");
    Wanted { target, channel, filter, scope, idempotency_key: None }
}

fn translate<A, R: std::fmt::Debug>(outcome: Outcome<A, R>) -> Result<Answer, Refusal> {
    outcome.map(|_| Answer::Done).map_err(|error| match error {
        Error::Rejected(_) => Refusal::Rejected,
        Error::Unavailable(_) => Refusal::Unavailable,
        Error::Damaged(what) => Refusal::Other(what.to_string()),
    })
}

/// The next attempt whose turn it is.
pub(super) fn next_attempt(engine: &Engine, now: Millis) -> Option<DeliveryAttempt> {
    match engine.shared().outbox.next(now) {
        Some(Attempt::Delivery(attempt)) => Some(attempt),
        Some(Attempt::Wake(_)) | None => None,
    }
}

pub(super) fn end_attempt(engine: &Engine, attempt: DeliveryAttempt) {
    engine.shared().outbox.ended(&Attempt::Delivery(attempt));
}

pub(super) fn hook(engine: &Engine, id: HookId) -> Option<Arc<Hook>> {
    engine.shared().lock().index.of::<HookIndex>().get(id).cloned()
}

/// What is to be done about an attempt, in one look at what is durable.
pub(super) fn readiness(
    engine: &Engine,
    hook: &Arc<Hook>,
    attempt: &DeliveryAttempt,
    now: Millis,
) -> CheckResult<DeliveryReadiness> {
    let readiness = send::readiness(&engine.reader(), &FactFace::default(), hook, attempt, now);
    readiness.map_err(|error| violation(format!("a look failed: {error}")))
}

/// Whether an attempt is under way, or waits for its turn.
pub(super) fn has_delivery(engine: &Engine, id: reveille_core::delivery::id::DeliveryId) -> bool {
    engine.shared().outbox.knows(&AttemptKey::Delivery(id))
}

/// A hook with room in memory has more of its deliveries there.
pub(super) fn refill(engine: &Engine) -> bool {
    let Some((AttemptSource::Hook(hook), from)) = engine.shared().outbox.next_refill() else {
        return false;
    };
    send::refill(engine.shared(), hook, from);
    true
}

/// What is left in the outbox, if anything is.
pub(super) fn outbox_remains(engine: &Engine) -> Option<String> {
    let traffic = engine.shared().outbox.traffic();
    let open = traffic.queued + traffic.quick + traffic.slow;
    (open > 0).then(|| format!("{traffic:?}"))
}
