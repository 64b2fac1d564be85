//! Rules are asked before, and what they looked at is looked at again.

use std::task::Poll;

use reveille_core::document::rules::{RuleAuth, RuleSet};
use reveille_core::key::{Access, Key, Permission, Role};
use serde_json::json;

use super::*;
use crate::documents::rules::{
    DocumentRules, RuleLook, RuleVerdict, SetDocumentRules, TenantRules,
};

fn auth(name: &str) -> RuleAuth {
    RuleAuth::of(&Key {
        id: name.into(),
        created_at: Millis(0),
        access: Access {
            tenant: Some(Tenant::default_tenant()),
            roles: [Role::User].into(),
            entity_uri: Some(name.into()),
            permissions: [Permission::Read, Permission::Write].into(),
            scopes: Default::default(),
            description: None,
        },
    })
}

impl World {
    fn set_rules(&mut self, rules: Option<Value>) {
        let source = rules.map(|rules| rules.to_string().into());
        let tenant = self.tenant.clone();
        self.bench.when(&SetDocumentRules { tenant, source }).answer();
        // What became durable is known to everybody.
        self.bench.reopen();
    }

    fn rules(&self) -> TenantRules {
        let rules = self.bench.shared.domains.part::<DocumentRules>().of(&self.tenant);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(rules).unwrap().unwrap()
    }

    fn verdict_of(&self, name: &str, ops: &[Op]) -> RuleVerdict {
        let rules = self.rules();
        let (reader, auth) = (self.bench.reader(), auth(name));
        let look = RuleLook::new(&reader, &self.tenant, &auth, self.bench.now);
        look.of_writes(&rules, ops, DocumentSettings::default().transaction_limits()).unwrap()
    }

    fn write_checked(
        &mut self,
        ops: Vec<Op>,
        verdict: RuleVerdict,
        tag: Option<WriteTag>,
    ) -> Result<WriteReceipt, DocumentRejection> {
        let command = WriteDocuments { verdict: Some(verdict), ..self.command(ops, tag) };
        match self.bench.when(&command).outcome {
            Ok(answer) => answer,
            Err(Error::Rejected(rejection)) => Err(rejection),
            Err(error) => panic!("{error}"),
        }
    }
}

fn with_rules() -> World {
    let mut world = World::new();
    world.write(vec![set("rooms/r1", json!({"members": ["alice"]}))], None).unwrap();
    world.set_rules(Some(json!({"match": {
        "rooms/{room}": {
            "allow": {"read": "request.auth.userId in resource.data.members"},
            "match": {"messages/{id}": {"allow": {
                "create": "request.auth.userId in get('rooms/' + room).data.members && \
                           request.resource.data.author == request.auth.userId",
                "update, delete": "resource.data.author == request.auth.userId"}}}}}})));
    world
}

fn denied(op_index: usize) -> Result<WriteReceipt, DocumentRejection> {
    Err(DocumentRejection::RuleDenied { op_index: Some(op_index) })
}

#[test]
fn a_write_is_decided_by_what_the_rules_saw() {
    let mut world = with_rules();
    let ops = vec![create("rooms/r1/messages/m", json!({"author": "alice"}))];
    let verdict = world.verdict_of("alice", &ops);
    assert_eq!(verdict.denied, None);
    let seen: Vec<_> = verdict.versions.iter().map(|(path, it)| (path.to_string(), *it)).collect();
    let expected = [("rooms/r1".to_owned(), Some(1)), ("rooms/r1/messages/m".to_owned(), None)];
    assert_eq!(seen, expected);
    // Somebody leaves the room between the question and the write.
    world.write(vec![set("rooms/r1", json!({"members": []}))], None).unwrap();
    let conflict = Err(DocumentRejection::Conflict);
    assert_eq!(world.write_checked(ops.clone(), verdict, None), conflict);
    let verdict = world.verdict_of("alice", &ops);
    assert_eq!(verdict.denied, Some(0));
    assert_eq!(world.write_checked(ops, verdict, None), denied(0));
    assert_eq!(world.document("rooms/r1/messages/m"), None);
}

#[test]
fn other_rules_are_a_conflict_and_so_is_having_none_any_more() {
    let mut world = with_rules();
    let ops = vec![create("rooms/r1/messages/m", json!({"author": "alice"}))];
    let verdict = world.verdict_of("alice", &ops);
    world.set_rules(None);
    let conflict = || Err(DocumentRejection::Conflict);
    assert_eq!(world.write_checked(ops.clone(), verdict.clone(), None), conflict());
    // The same text again is another set of rules: nobody knows what was written between them.
    let none = RuleVerdict::default();
    world.write_checked(vec![set("a/b", json!({}))], none.clone(), None).unwrap();
    let mut again = with_rules();
    assert_eq!(again.write_checked(ops, none, None), conflict());
}

#[test]
fn the_write_that_is_denied_is_named_and_the_denial_is_remembered() {
    let mut world = with_rules();
    let ops = vec![
        create("rooms/r1/messages/m", json!({"author": "alice"})),
        patch("rooms/r1/messages/m", json!({"author": "bob"})),
        delete("rooms/r1/messages/m"),
    ];
    // The third sees what the second has made of it.
    let verdict = world.verdict_of("alice", &ops);
    assert_eq!(verdict.denied, Some(2));
    assert_eq!(world.write_checked(ops.clone(), verdict.clone(), tag("one", "a")), denied(2));
    let again = world.write_checked(ops, verdict, tag("one", "a")).unwrap().repeated.unwrap();
    assert_eq!(again.end, WriteEnd::RuleDenied);
}

#[test]
fn whoever_may_not_write_is_not_told_why_it_would_fail() {
    let mut world = with_rules();
    world.write(vec![create("rooms/r1/messages/m", json!({"author": "alice"}))], None).unwrap();
    let stale = |at: &str| Op { preconditions: vec![Filter::version_is(9)], ..delete(at) };
    for (name, denied) in [("bob", Some(0)), ("alice", None)] {
        let ops = [stale("rooms/r1/messages/m")];
        assert_eq!(world.verdict_of(name, &ops).denied, denied, "{name}");
    }
    // Nobody learns that there is no such document.
    assert_eq!(world.verdict_of("bob", &[delete("rooms/r1/messages/none")]).denied, Some(0));
    let exists = [create("rooms/r1/messages/m", json!({"author": "alice"}))];
    assert_eq!(world.verdict_of("bob", &exists).denied, Some(0));
    let verdict = world.verdict_of("alice", &exists);
    assert_eq!(verdict.denied, None);
    let failed = world.write_checked(exists.to_vec(), verdict, None);
    assert!(matches!(failed, Err(DocumentRejection::Failed(_))));
}

#[test]
fn a_document_is_shown_to_those_who_may_read_it() {
    let world = with_rules();
    let rules = world.rules().rules;
    let reader = world.bench.reader();
    let may = |name: &str, at: &str| {
        let (auth, document) = (auth(name), world.document(at));
        let look = RuleLook::new(&reader, &world.tenant, &auth, Millis(0));
        look.may_get(&rules, &path(at), document.as_ref()).unwrap()
    };
    assert!(may("alice", "rooms/r1"));
    assert!(!may("bob", "rooms/r1"));
    assert!(!may("alice", "rooms/none"), "that there is none is not for everybody");
    assert!(!may("alice", "other/x"), "what has no rule is nobody's");
}

#[tokio::test]
async fn rules_are_read_once_however_many_ask_and_whoever_goes_away() {
    let mut world = World::new();
    let pattern = |number: usize| (format!("r{number}/{{x}}"), json!({"allow": {"read": "true"}}));
    let patterns: serde_json::Map<_, _> = (0..100).map(pattern).collect();
    world.set_rules(Some(json!({ "match": patterns })));
    let rules = world.bench.shared.domains.part::<DocumentRules>();
    let ask = async || rules.of(&world.tenant).await.unwrap().unwrap().rules;
    // Whoever asks first is gone before there is an answer.
    let mut first = Box::pin(ask());
    let is_there = std::future::poll_fn(|context| Poll::Ready(first.as_mut().poll(context)));
    assert!(is_there.await.is_pending());
    drop(first);
    let (one, other) = tokio::join!(ask(), ask());
    let third = ask().await;
    let text = |rules: &RuleSet| rules.source().as_ptr();
    assert!(text(&one) == text(&other) && text(&other) == text(&third));
}
