//! Decisions about facts.

mod access;
mod histories;
mod pages;
mod replays;

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use reveille_core::delivery::hook::{Hook, HookId};
use reveille_core::delivery::id::{DeliveryNo, EventNo};
use reveille_core::delivery::policy::Outcome;
use reveille_core::delivery::{AttemptRecord, ErrorKind};
use reveille_core::fact::garden::{Garden, GardenRole, GardenSlug};
use reveille_core::fact::name::ScopeId;
use reveille_core::fact::principal::Principal;
use reveille_core::fact::statement::{Confidence, Statement};
use reveille_core::fact::subscription::{Channel, EventFilter, Wanted};
use reveille_core::fact::target::{Object, Target};
use reveille_core::fact::token::{TokenNo, Verb};
use reveille_core::fact::value::{FactValue, ValueKind};
use reveille_core::fact::{EntityUri, FACE, Fact, Scope};
use reveille_core::key::{Access, Key, KeyHash, Role};
use reveille_core::{Millis, Tenant};
use reveille_kernel::error::Error;
use reveille_schema::{keys, record};
use serde_json::{Value, json};

use super::assert::AssertFact;
use super::error::FactRejection;
use super::face::FactFace;
use super::garden::{CreateGarden, DeleteGarden, GrantRole, RemoveMember};
use super::subscription::{CreateSubscription, DeleteSubscription, Subscribed};
use super::token::{IssueToken, RevokeToken};
use crate::app::{App, Settings};
use crate::auth::keys::ChangeKey;
use crate::deliveries::delivery::{DeliveryOutcome, DropDelivery, RecordDeliveryOutcomes};
use crate::deliveries::index::HookIndex;
use crate::deliveries::send::{DeliveryReadiness, readiness};
use crate::effect::{DeliveryAttempt, Effect};
use crate::records::Scan;
use crate::testing::{Bench, Decided};

/// Somebody with a key.
#[derive(Debug, Clone)]
pub(super) struct Person {
    pub(super) principal: Principal,
    pub(super) key: Arc<Key>,
    pub(super) hash: KeyHash,
}

pub(super) struct World {
    pub(super) bench: Bench,
    pub(super) tenant: Tenant,
    /// Attempts that are to be made.
    pub(super) due: Vec<DeliveryAttempt>,
    names: usize,
}

pub(super) fn entity(name: &str) -> EntityUri {
    EntityUri::parse(name).unwrap()
}

pub(super) fn slug(name: &str) -> GardenSlug {
    GardenSlug::parse(name).unwrap()
}

pub(super) fn target(text: &str) -> Target {
    Target::parse(text).unwrap()
}

pub(super) fn said(about: &str, relation: &str, value: &str, garden: Option<&str>) -> Statement {
    Statement {
        entity: entity(about),
        relation: relation.into(),
        value: FactValue::new(ValueKind::String, &json!(value)).unwrap(),
        source: "test".into(),
        confidence: Confidence::CERTAIN,
        scope: Scope::Team,
        garden: garden.map(slug),
        valid_until: None,
    }
}

pub(super) fn retracted(statement: Statement) -> Statement {
    Statement { confidence: Confidence::NONE, ..statement }
}

pub(super) fn wanted(to: &str) -> Wanted {
    let target = target(to);
    let scope = match &target {
        Target::Scope(scope) => scope.clone(),
        Target::Entity(_) => ScopeId::Global,
    };
    let kinds = ["fact_assert", "fact_retract", "contradiction_detected", "card_refreshed"];
    Wanted {
        target,
        channel: Channel::Webhook("https://example.com/hook".into()),
        filter: EventFilter::parse(kinds).unwrap(),
        scope,
        idempotency_key: None,
    }
}

fn rejected<A, R: std::fmt::Debug>(decided: Decided<A, R>) -> R {
    match decided.outcome {
        Err(Error::Rejected(rejection)) => rejection,
        Err(error) => panic!("{error:?}"),
        Ok(_) => panic!("it was done"),
    }
}

impl World {
    pub(super) fn new() -> World {
        World::with(Settings::default())
    }

    pub(super) fn with(settings: Settings) -> World {
        let bench = Bench::with(settings);
        World { tenant: bench.tenant.clone(), bench, due: Vec::new(), names: 0 }
    }

    /// Somebody who reads these scopes; an admin reads all.
    pub(super) fn person(&mut self, name: &str, scopes: &[&str], role: Role) -> Person {
        let access = Access {
            tenant: Some(self.tenant.clone()),
            roles: BTreeSet::from([role]),
            entity_uri: Some(format!("user:{name}").into()),
            permissions: BTreeSet::new(),
            scopes: scopes.iter().map(|scope| (*scope).into()).collect(),
            description: None,
        };
        let key = Arc::new(Key { id: format!("key_{name}").into(), created_at: Millis(1), access });
        let hash = KeyHash::of(name).unwrap();
        self.bench.when(&ChangeKey { hash, key: Some(key.clone()) }).answer();
        Person { principal: Principal::of_key(&key.id, &key.access), key, hash }
    }

    pub(super) fn revoke_key(&mut self, person: &Person) {
        self.bench.when(&ChangeKey { hash: person.hash, key: None }).answer();
    }

    pub(super) fn garden(&mut self, by: &Person, name: &str) -> Garden {
        let (tenant, by) = (self.tenant.clone(), by.principal.clone());
        let (slug, scope) = (slug(name), Scope::Team);
        self.bench.when(&CreateGarden { tenant, by, slug, name: name.into(), scope }).answer()
    }

    pub(super) fn delete_garden(&mut self, by: &Person, name: &str) {
        let (tenant, by) = (self.tenant.clone(), by.principal.clone());
        self.bench.when(&DeleteGarden { tenant, by, slug: slug(name) }).answer();
    }

    pub(super) fn grant(&mut self, by: &Person, to: &Person, name: &str, role: GardenRole) -> bool {
        let (tenant, by) = (self.tenant.clone(), by.principal.clone());
        let member = to.principal.entity.clone();
        let grant = GrantRole { tenant, by, slug: slug(name), member, role, is_new: true };
        self.bench.when(&grant).outcome.is_ok()
    }

    pub(super) fn remove(&mut self, by: &Person, who: &Person, name: &str) -> bool {
        let (tenant, by) = (self.tenant.clone(), by.principal.clone());
        let member = who.principal.entity.clone();
        self.bench.when(&RemoveMember { tenant, by, slug: slug(name), member }).outcome.is_ok()
    }

    pub(super) fn token(&mut self, by: &Person, to: &Person, object: &str) -> TokenNo {
        let (tenant, by, subject) =
            (self.tenant.clone(), by.principal.clone(), to.principal.entity.clone());
        let (verb, object) = (Verb::Subscribe, Object::parse(object).unwrap());
        let issue = IssueToken { tenant, by, subject, verb, object, ttl_ms: 86_400_000 };
        self.bench.when(&issue).answer().no
    }

    pub(super) fn revoke_token(&mut self, by: &Person, no: TokenNo) {
        let (tenant, by) = (self.tenant.clone(), by.principal.clone());
        self.bench.when(&RevokeToken { tenant, by, no, reason: None }).answer();
    }

    pub(super) fn subscription(&mut self, by: &Person, wanted: Wanted) -> CreateSubscription {
        self.names += 1;
        CreateSubscription {
            tenant: self.tenant.clone(),
            by: by.principal.clone(),
            key: (Some(by.key.id.clone()), Some(by.hash)),
            wanted,
            token: None,
            name: format!("subscription-{}", self.names).into(),
        }
    }

    pub(super) fn subscribe(&mut self, by: &Person, to: &str) -> Subscribed {
        let command = self.subscription(by, wanted(to));
        self.bench.when(&command).answer()
    }

    pub(super) fn unsubscribe(&mut self, by: &Person, name: &str) -> Result<(), FactRejection> {
        let (tenant, by) = (self.tenant.clone(), by.principal.entity.clone());
        let decided = self.bench.when(&DeleteSubscription { tenant, by, name: name.into() });
        match decided.outcome {
            Ok(()) => Ok(()),
            Err(Error::Rejected(rejection)) => Err(rejection),
            Err(error) => panic!("{error:?}"),
        }
    }

    pub(super) fn assert(&mut self, by: &Person, said: Statement) -> Fact {
        *self.try_assert(by, said).unwrap_or_else(|rejection| panic!("{rejection}"))
    }

    pub(super) fn try_assert(
        &mut self,
        by: &Person,
        said: Statement,
    ) -> Result<Box<Fact>, FactRejection> {
        let command = AssertFact::new(self.tenant.clone(), by.principal.clone(), said);
        let decided = self.bench.when(&command);
        self.collect(decided)
    }

    /// Takes what is to be sent.
    pub(super) fn collect<A, R: std::fmt::Debug>(
        &mut self,
        decided: Decided<A, R>,
    ) -> Result<A, R> {
        for effect in decided.effects {
            if let Effect::SendDelivery(attempt) = effect {
                self.due.push(attempt);
            }
        }
        match decided.outcome {
            Ok(answer) => Ok(answer),
            Err(Error::Rejected(rejection)) => Err(rejection),
            Err(error) => panic!("{error:?}"),
        }
    }

    /// Whatever is due happens, until nothing is.
    pub(super) fn fire_all(&mut self) {
        for _ in 0..10_000 {
            let due = self.bench.timers().into_iter().find(|it| it.at() <= self.bench.now);
            let Some(timer) = due else { return };
            let decided = self.bench.fire(timer);
            let Ok(()) = self.collect(decided);
        }
        panic!("there is always something to be done");
    }

    pub(super) fn hook(&self, id: HookId) -> Option<Arc<Hook>> {
        self.bench.shared.lock().index.of::<HookIndex>().get(id).cloned()
    }

    /// What is to be done about an attempt, as it is now.
    pub(super) fn look(&self, attempt: &DeliveryAttempt) -> Option<DeliveryReadiness> {
        let hook = self.hook(attempt.id.hook)?;
        let reader = self.bench.reader();
        Some(readiness(&reader, &FactFace::default(), &hook, attempt, self.bench.now).unwrap())
    }

    /// Makes an attempt that an endpoint accepts, or not. Returns what was sent.
    pub(super) fn deliver(&mut self, attempt: DeliveryAttempt, accepts: bool) -> Option<Value> {
        match self.look(&attempt)? {
            DeliveryReadiness::Send(event) => {
                self.answered(&attempt, accepts);
                Some(serde_json::from_slice(&event.payload).unwrap())
            }
            DeliveryReadiness::Dropped { why, ends_hook } => {
                let (id, attempt) = (attempt.id, attempt.attempt);
                self.bench.when(&DropDelivery { id, attempt, why, ends_hook }).answer();
                None
            }
            DeliveryReadiness::Held | DeliveryReadiness::Nothing => None,
        }
    }

    /// An attempt was answered.
    pub(super) fn answered(&mut self, attempt: &DeliveryAttempt, accepts: bool) {
        let Some(hook) = self.hook(attempt.id.hook) else { return };
        let (status, error) = if accepts { (200, None) } else { (503, Some("no".into())) };
        let record = AttemptRecord {
            status: Some(status),
            error,
            kind: (!accepts).then_some(ErrorKind::Http),
            ..AttemptRecord::new(attempt.attempt, self.bench.now, 1)
        };
        let verdict = hook.policy.judge(Outcome::Answered { status, retry_after_s: None });
        let outcome = DeliveryOutcome { id: attempt.id, attempt: record, verdict };
        let decided = self.bench.when(&RecordDeliveryOutcomes(vec![outcome]));
        let Ok(_) = self.collect(decided);
    }

    /// Makes every attempt that is due. Returns what was sent to whom.
    pub(super) fn deliver_all(&mut self) -> Vec<(HookId, Value)> {
        let mut sent = Vec::new();
        while !self.due.is_empty() {
            for attempt in std::mem::take(&mut self.due) {
                let hook = attempt.id.hook;
                sent.extend(self.deliver(attempt, true).map(|event| (hook, event)));
            }
        }
        sent
    }

    /// The messages of the stream for those who read the scope.
    pub(super) fn copies(&self) -> Vec<Value> {
        let reader = self.bench.reader();
        let stream = keys::stream(&self.tenant, &crate::engine::Engine::fact_stream(Scope::Team));
        let Some(head) = reader.get(&stream).unwrap() else { return Vec::new() };
        let head = record::decode_head(&head).unwrap();
        let place = record::EventPlace::Stream {
            stream: head.id,
            from: head.first,
            len: head.tail.position() - head.first.position(),
        };
        let event = record::EventRecord {
            id: "all".into(),
            kind: "all".into(),
            subject: None,
            at: Millis(0),
            place,
            trace: None,
        };
        let bytes = crate::deliveries::source::content(&reader, &event).unwrap().unwrap();
        let text = String::from_utf8(bytes.to_vec()).unwrap();
        serde_json::from_str(&format!("[{}]", text.trim_end_matches(','))).unwrap()
    }

    /// The numbers of all events.
    pub(super) fn events(&self) -> Vec<EventNo> {
        let reader = self.bench.reader();
        let (from, to) = keys::events(FACE, &self.tenant, EventNo(0));
        let parse = |pair: Result<(Bytes, Bytes), _>| keys::parse_event(&pair.unwrap().0).unwrap();
        Scan::new(&reader, from, to).map(parse).collect()
    }
}

/// A team of an admin, somebody who reads the team's scope, and a garden of the admin's.
pub(super) fn team() -> (World, Person, Person) {
    let mut world = World::new();
    let admin = world.person("ada", &[], Role::Admin);
    let bob = world.person("bob", &["team"], Role::User);
    world.garden(&admin, "atlas");
    (world, admin, bob)
}

#[test]
fn a_fact_its_contradiction_its_copies_and_its_deliveries_are_one_batch() {
    let (mut world, admin, bob) = team();
    world.token(&admin, &bob, "scope:team");
    let hook = world.subscribe(&bob, "scope:team").hook;
    let first = world.assert(&admin, said("a", "likes", "tea", None));
    assert!(!first.contradicted);
    let command = AssertFact::new(
        world.tenant.clone(),
        admin.principal.clone(),
        said("a", "likes", "coffee", None),
    );
    let decided = world.bench.when(&command);
    let no = match &decided.outcome {
        Ok(fact) => fact.no,
        Err(error) => panic!("{error:?}"),
    };
    let numbers = world.events();
    let contradiction = *numbers.last().unwrap();
    assert_eq!((numbers.len(), numbers[1].0), (3, no.0));
    for event in [EventNo(no.0), contradiction] {
        let id = DeliveryNo { event, round: 0 };
        let delivery = reveille_core::delivery::id::DeliveryId { hook: hook.id, no: id };
        for key in [keys::event(FACE, &world.tenant, event), keys::delivery(delivery)] {
            assert!(matches!(decided.written(&key), Some(Some(_))), "{event:?}");
        }
    }
    let fact = world.collect(decided).unwrap();
    assert!(fact.contradicted && fact.hlc > first.hlc);
    let sent: Vec<_> = world.deliver_all().into_iter().map(|(_, event)| event).collect();
    let kinds: Vec<_> = sent.iter().map(|it| it["event_type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["fact_assert", "fact_assert", "contradiction_detected"]);
    let ids = json!([fact.no.id(), first.no.id()]);
    assert_eq!(sent[2]["payload"], json!({"relation": "likes", "fact_ids": ids}));
    let copies = world.copies();
    let told = |event: &Value| {
        ["event_type", "fact_id", "hlc", "payload"].map(|field| event[field].clone())
    };
    assert!(copies.iter().map(told).eq(sent.iter().map(told)));
    let hlcs: Vec<_> = sent.iter().map(|it| it["hlc"].as_str().unwrap()).collect();
    assert!(hlcs.is_sorted_by(|one, next| one < next), "{hlcs:?}");
}

#[test]
fn what_is_said_in_a_garden_has_no_copy_and_contradicts_nothing_outside() {
    let (mut world, admin, _) = team();
    world.assert(&admin, said("a", "likes", "tea", None));
    let inside = world.assert(&admin, said("a", "likes", "coffee", Some("atlas")));
    assert!(!inside.contradicted);
    assert_eq!(world.copies().len(), 1);
    let again = world.assert(&admin, said("a", "likes", "water", Some("atlas")));
    assert!(again.contradicted);
    assert_eq!(world.copies().len(), 1);
    world.assert(&admin, retracted(said("a", "likes", "", Some("atlas"))));
    let after = world.assert(&admin, said("a", "likes", "wine", Some("atlas")));
    assert!(!after.contradicted, "what was taken back contradicts nothing");
    assert!(world.assert(&admin, said("a", "likes", "wine", None)).contradicted);
}

#[test]
fn logical_time_grows_over_restarts_and_clocks_that_are_set_back() {
    let (mut world, admin, _) = team();
    let mut last = world.assert(&admin, said("a", "r", "0", None)).hlc;
    for round in 0..20 {
        if round % 5 == 0 {
            world.bench.reopen();
        }
        let offset = if round % 2 == 0 { 100_000 } else { 0 };
        world.bench.now = Millis(1_000 + offset + round);
        let next = world.assert(&admin, said("a", "r", &round.to_string(), None)).hlc;
        assert!(next > last, "{next} after {last}");
        last = next;
    }
}

#[test]
fn an_event_for_more_than_fit_is_told_to_all_in_slices_in_their_order() {
    let mut world = World::with(Settings { fan_out: 3, ..Settings::default() });
    let admin = world.person("ada", &[], Role::Admin);
    let mut hooks = Vec::new();
    for number in 0..10 {
        let person = world.person(&format!("p{number}"), &["*"], Role::User);
        world.token(&admin, &person, "*");
        let to = ["scope:team", "scope:global", "entity:a"][number % 3];
        hooks.push(world.subscribe(&person, to).hook.id);
    }
    world.assert(&admin, said("a", "r", "v", None));
    assert_eq!(world.due.len(), 3);
    // Whoever comes while it is told is not told.
    let late = world.person("late", &["*"], Role::User);
    world.token(&admin, &late, "*");
    world.subscribe(&late, "scope:team");
    world.fire_all();
    let told: Vec<HookId> = world.due.iter().map(|it| it.id.hook).collect();
    assert_eq!(told, hooks);
    assert_eq!(world.deliver_all().len(), 10);
}

#[test]
fn what_nobody_may_have_too_much_of_is_refused_where_it_is_made() {
    let (mut world, admin, bob) = team();
    assert!(!world.grant(&bob, &bob, "atlas", GardenRole::Reader), "by one of its admins alone");
    let command = CreateGarden {
        tenant: world.tenant.clone(),
        by: bob.principal.clone(),
        slug: slug("atlas"),
        name: "again".into(),
        scope: Scope::Team,
    };
    assert_eq!(rejected(world.bench.when(&command)), FactRejection::GardenExists("atlas".into()));
    let remove = RemoveMember {
        tenant: world.tenant.clone(),
        by: admin.principal.clone(),
        slug: slug("atlas"),
        member: admin.principal.entity.clone(),
    };
    assert_eq!(rejected(world.bench.when(&remove)), FactRejection::LastAdmin);
    for (number, is_done) in (0..super::limits::GARDENS_OF_MEMBER_MAX).map(|it| (it, it < 255)) {
        let command = CreateGarden { slug: slug(&format!("g{number}")), ..command.clone() };
        let by = admin.principal.clone();
        let made = world.bench.when(&CreateGarden { by, ..command }).outcome;
        assert_eq!(made.is_ok(), is_done, "{number}");
    }
    // A garden that was deleted is in nobody's way.
    world.delete_garden(&admin, "g7");
    world.garden(&admin, "g7");
}

#[test]
fn a_deleted_garden_leaves_nothing_some_time_after() {
    let (mut world, admin, bob) = team();
    world.grant(&admin, &bob, "atlas", GardenRole::Writer);
    for number in 0..600 {
        world.assert(&bob, said(&format!("e{number}"), "r", "v", Some("atlas")));
    }
    world.assert(&admin, said("outside", "r", "v", None));
    world.delete_garden(&admin, "atlas");
    let denied = world.try_assert(&admin, said("e", "r", "v", Some("atlas")));
    assert_eq!(denied.unwrap_err(), FactRejection::GardenNotFound("atlas".into()));
    world.bench.now = Millis(world.bench.now.0 + super::limits::CLOSED_GARDEN_MS);
    world.fire_all();
    let reader = world.bench.reader();
    let count = |(from, to)| Scan::new(&reader, from, to).count();
    let left = [keys::all_facts(), keys::all_slots(), keys::all_gardens(), keys::all_memberships()];
    assert_eq!(left.map(count), [1, 1, 0, 0]);
    let (from, to) = keys::gardens_of(&world.tenant, &bob.principal.entity);
    assert_eq!(count((from, to)), 0);
    let index = App::new_index_of(&world.bench);
    assert_eq!(index, (0, 0));
}

impl App {
    /// How many gardens memory knows of.
    fn new_index_of(bench: &Bench) -> (usize, usize) {
        let core = bench.shared.lock();
        core.index.of::<super::index::GardenIndex>().counts(&bench.tenant)
    }
}
