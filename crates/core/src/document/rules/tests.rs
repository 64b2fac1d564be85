//! Who may do what, which pattern decides, and what is refused.

use std::cell::RefCell;
use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::{Map, Value as Json, json};

use super::*;
use crate::condition::{ConditionError, EvaluationError};
use crate::document::path::DocumentPath;
use crate::key::{Access, Key, Permission, Role};
use crate::limits::{RULE_READS_MAX, RULE_SEGMENTS_MAX, RULES_BYTES_MAX, RULES_MAX};
use crate::steps::Steps;
use crate::tenant::Tenant;
use crate::time::Millis;

const NOW: Millis = Millis(1_700_000_000_000);

/// Documents that remember who asked for what.
#[derive(Default)]
struct Shelf {
    documents: BTreeMap<String, Map<String, Json>>,
    broken: Option<&'static str>,
    asked: RefCell<Vec<String>>,
}

impl Shelf {
    fn with(documents: &[(&str, Json)]) -> Shelf {
        let documents = documents.iter().map(|(path, json)| ((*path).to_owned(), object(json)));
        Shelf { documents: documents.collect(), ..Shelf::default() }
    }
}

impl Documents for Shelf {
    type Error = &'static str;

    fn get(&self, path: &DocumentPath) -> Result<Option<Map<String, Json>>, &'static str> {
        self.asked.borrow_mut().push(path.to_string());
        match self.broken {
            Some(error) => Err(error),
            None => Ok(self.documents.get(&path.to_string()).cloned()),
        }
    }
}

fn object(json: &Json) -> Map<String, Json> {
    json.as_object().expect("an object").clone()
}

fn auth(uri: Option<&str>, role: Role) -> RuleAuth {
    RuleAuth::of(&Key {
        id: "k1".into(),
        created_at: Millis(0),
        access: Access {
            tenant: Some(Tenant::parse("acme").expect("a tenant")),
            roles: [role].into(),
            entity_uri: uri.map(Into::into),
            permissions: [Permission::Read].into(),
            scopes: ["org:a".into()].into(),
            description: None,
        },
    })
}

fn rules(body: &Json) -> RuleSet {
    RuleSet::parse(&body.to_string()).unwrap_or_else(|error| panic!("{error}"))
}

fn refused(body: &Json) -> String {
    RuleSet::parse(&body.to_string()).expect_err("no rules").to_string()
}

/// Whether a condition allows to read `users/alice`.
fn reads(condition: &str, shelf: &Shelf) -> Result<RuleDecision, &'static str> {
    let rules = rules(&json!({"match": {"users/{id}": {"allow": {"read": condition}}}}));
    let (auth, document) = (auth(Some("alice"), Role::User), object(&json!({"age": 20})));
    let mut check = RuleCheck::new(&rules, &auth, NOW, shelf);
    check.decide(&request(Action::Get, "users/alice", Some(&document), None))
}

fn request<'a>(
    action: Action,
    path: &'a str,
    resource: Option<&'a Map<String, Json>>,
    resulting: Option<&'a Map<String, Json>>,
) -> RuleRequest<'a> {
    RuleRequest { action, path, resource, resulting }
}

fn failed(error: EvaluationError) -> Result<RuleDecision, &'static str> {
    let (pattern, action) = ("users/{id}".to_owned(), "get");
    Ok(RuleDecision::Denied(Denial::Failed { pattern, action, error }))
}

#[test]
fn rooms_are_for_their_members() {
    let rules = rules(&json!({"match": {
        "/rooms/{room}": {
            "allow": {"read": "request.auth.userId in resource.data.members"},
            "match": {"messages/{id}": {"allow": {
                "get, list": "request.auth.userId in get('/rooms/' + room).data.members",
                "create": "request.resource.data.author == request.auth.userId && resource == null",
                "update": "request.resource.data.author == resource.data.author && \
                           request.time - resource.data.createdAt < 60000"}}}}}}));
    let members = object(&json!({"members": ["alice"]}));
    let shelf = Shelf::with(&[("rooms/1", json!({"members": ["alice"]}))]);
    let written = object(&json!({"author": "alice", "createdAt": NOW.0 - 1_000}));
    let other = object(&json!({"author": "bob", "createdAt": 0}));
    let is_allowed = |who: &str, request: RuleRequest<'_>| {
        let auth = auth(Some(who), Role::User);
        let decision = RuleCheck::new(&rules, &auth, NOW, &shelf).decide(&request);
        decision == Ok(RuleDecision::Allowed)
    };
    let message = "rooms/1/messages/a";
    let room = |action| request(action, "rooms/1", Some(&members), Some(&members));
    assert!(is_allowed("alice", room(Action::Get)) && is_allowed("alice", room(Action::List)));
    assert!(!is_allowed("bob", room(Action::Get)) && !is_allowed("alice", room(Action::Update)));
    assert!(is_allowed("alice", request(Action::Get, message, Some(&written), None)));
    assert!(!is_allowed("bob", request(Action::Get, message, Some(&written), None)));
    assert!(!is_allowed("alice", request(Action::Get, "rooms/2/messages/a", Some(&written), None)));
    assert!(is_allowed("alice", request(Action::Create, message, None, Some(&written))));
    assert!(!is_allowed("alice", request(Action::Create, message, None, Some(&other))));
    assert!(is_allowed("bob", request(Action::Update, message, Some(&written), Some(&written))));
    assert!(!is_allowed("bob", request(Action::Update, message, Some(&written), Some(&other))));
    assert!(!is_allowed("bob", request(Action::Update, message, Some(&other), Some(&other))));
    // Nothing is inherited, and what no rule is for is denied.
    assert!(!is_allowed("alice", request(Action::Delete, message, Some(&written), None)));
    assert!(!is_allowed("alice", request(Action::Get, "users/alice", Some(&written), None)));
}

#[test]
fn admins_pass_and_nobody_else() {
    let rules = rules(&json!({"match": {}}));
    let decide = |role| {
        let auth = auth(None, role);
        let shelf = Shelf::default();
        RuleCheck::new(&rules, &auth, NOW, &shelf).decide(&request(Action::Get, "a/b", None, None))
    };
    assert_eq!(decide(Role::Admin), Ok(RuleDecision::Allowed));
    assert_eq!(decide(Role::Operator), Ok(RuleDecision::Denied(Denial::NoRule)));
    assert_eq!(decide(Role::User), Ok(RuleDecision::Denied(Denial::NoRule)));
}

#[test]
fn rules_see_who_asks() {
    let holds = |condition: &str, auth: &RuleAuth| {
        let rules = rules(&json!({"match": {"{all=**}": {"allow": {"get": condition}}}}));
        let shelf = Shelf::default();
        let request = request(Action::Get, "a/b/c/d", None, None);
        RuleCheck::new(&rules, auth, NOW, &shelf).decide(&request) == Ok(RuleDecision::Allowed)
    };
    let alice = auth(Some("agent:alice"), Role::User);
    for condition in [
        "request.auth.userId == 'agent:alice' && request.auth.username == 'agent:alice'",
        "'user' in request.auth.roles && request.auth.claims.permissions == ['read']",
        "'org:a' in request.auth.claims.scopes",
        "request.time == 1700000000000",
        "all == 'a/b/c/d' && resource == null && request.resource == null",
    ] {
        assert!(holds(condition, &alice), "{condition}");
    }
    let unnamed = auth(None, Role::Operator);
    assert!(holds("request.auth.userId == 'key:k1' && request.auth.username == null", &unnamed));
    assert!(holds("'operator' in request.auth.roles", &unnamed));
}

#[test]
fn what_comes_to_nothing_is_denied() {
    let shelf = Shelf::default();
    let missing = EvaluationError::NoSuchKey("x".into());
    assert_eq!(reads("resource.data.x == 1", &shelf), failed(missing));
    assert_eq!(reads("resource.data.age", &shelf), failed(EvaluationError::NotBool("an integer")));
    assert_eq!(
        reads("resource.data.age == 20 && resource.id == id", &shelf),
        Ok(RuleDecision::Allowed)
    );
    let denied =
        RuleDecision::Denied(Denial::False { pattern: "users/{id}".into(), action: "get" });
    assert_eq!(reads("resource.data.age > 20", &shelf), Ok(denied));
}

#[test]
fn other_documents_are_read_once_and_a_few_only() {
    let shelf = Shelf::with(&[("users/bob", json!({"age": 30}))]);
    let allowed = Ok(RuleDecision::Allowed);
    let text = "get('users/bob').data.age == 30 && get('/users/bob').id == 'bob' && \
                exists('users/bob') && !exists('users/eve') && get('users/eve') == null";
    assert_eq!(reads(text, &shelf), allowed);
    assert_eq!(*shelf.asked.borrow(), ["users/bob", "users/eve"]);
    let many = |count: usize| {
        let paths = (0..count).map(|n| format!("'users/{n}'")).collect::<Vec<_>>().join(", ");
        reads(&format!("[{paths}].all(p, !exists(p))"), &Shelf::default())
    };
    assert_eq!(many(RULE_READS_MAX), allowed);
    assert_eq!(many(RULE_READS_MAX + 1), failed(EvaluationError::TooManyReads(RULE_READS_MAX)));
    for path in ["users", "users/", "users//a", "users/..", "users/a b", "", "sys/a"] {
        let error = EvaluationError::NoDocumentPath(path.to_owned());
        assert_eq!(reads(&format!("exists('{path}')"), &shelf), failed(error));
    }
    let broken = Shelf { broken: Some("no disk"), ..Shelf::default() };
    // Nobody knows what it would have said, even where the other side would decide.
    assert_eq!(reads("exists('users/bob') || true", &broken), Err("no disk"));
    assert_eq!(reads("true || exists('users/bob')", &broken), allowed);
}

#[test]
fn a_page_shares_what_is_read_and_ends_with_what_is_denied() {
    let rules = rules(&json!({"match": {"users/{id}": {"allow": {
        "list": "get('teams/a').data.members.exists(m, m == id) || exists('admins/' + id)"}}}}));
    let shelf = Shelf::with(&[("teams/a", json!({"members": ["alice"]}))]);
    let auth = auth(Some("alice"), Role::User);
    let mut check = RuleCheck::new(&rules, &auth, NOW, &shelf);
    let document = object(&json!({}));
    let page = [("users/alice", &document), ("users/bob", &document), ("users/eve", &document)];
    let denied = Denial::False { pattern: "users/{id}".into(), action: "list" };
    assert_eq!(check.decide_page(page), Ok(RuleDecision::Denied(denied)));
    // The page ends with the first that is denied.
    assert_eq!(*shelf.asked.borrow(), ["teams/a", "admins/bob"]);
    let mut check = RuleCheck::new(&rules, &auth, NOW, &shelf);
    assert_eq!(check.decide_page([page[0]]), Ok(RuleDecision::Allowed));
    assert_eq!(check.decide_page([]), Ok(RuleDecision::Allowed));
}

#[test]
fn a_page_has_the_steps_of_one_request() {
    let rules = rules(&json!({"match": {"users/{id}": {"allow": {
        "list": "!resource.data.text.contains('y')"}}}}));
    let (shelf, auth) = (Shelf::default(), auth(None, Role::User));
    let document = object(&json!({"text": "x".repeat(1_000_000)}));
    let mut check = RuleCheck::new(&rules, &auth, NOW, &shelf);
    let page = |len| std::iter::repeat_n(("users/alice", &document), len);
    assert_eq!(check.decide_page(page(20)), Ok(RuleDecision::Allowed));
    let (pattern, action) = ("users/{id}".to_owned(), "list");
    let error = EvaluationError::TooManySteps;
    let denied = Ok(RuleDecision::Denied(Denial::Failed { pattern, action, error }));
    assert_eq!(check.decide_page(page(20)), denied);
    // And nothing is looked for afterwards.
    assert_eq!(check.decide_page(page(1)), Ok(RuleDecision::Denied(Denial::TooManySteps)));
}

#[test]
fn what_is_no_rule_is_refused_by_pattern_and_action() {
    let rule = |pattern: &str, allow: Json| json!({"match": {pattern: {"allow": allow}}});
    let always = || json!({"read": "true"});
    for (body, said) in [
        (json!([]), "the whole is no object"),
        (json!({}), "`match` is missing"),
        (json!({"match": {}, "service": "x"}), "a field `service`"),
        (json!({"match": []}), "`match` of the whole is no object"),
        (json!({"match": {"a/b": {}}}), "`a/b` has no `allow` and no `match`"),
        (json!({"match": {"a/b": "true"}}), "`a/b` is no object"),
        (json!({"match": {"a/b": {"allow": {}, "deny": {}}}}), "`a/b` has a field `deny`"),
        (rule("a/b", json!({"read": true})), "the condition of `read` of `a/b` is no string"),
        (rule("a/b", json!({"peek": "true"})), "`a/b` allows `peek`, which is no action"),
        (rule("a/b", json!({"": "true"})), "`a/b` allows ``, which is no action"),
        (rule("a/b", json!({"read, get": "true"})), "`a/b` allows `get` twice"),
        (rule("a/b", json!({"write": "true", "delete": "true"})), "`a/b` allows `delete` twice"),
        (rule("a/b", json!({"read": "1 +"})), "`read` of `a/b`: the condition cannot be read"),
        (
            rule("a/b", json!({"get": "foo"})),
            "`get` of `a/b`: the condition knows `request` and `resource`, but not `foo`",
        ),
        (rule("a/{x}", json!({"get": "x.y == 1"})), "`x` has no `y`: there is nothing inside"),
        (rule("a/{x}", json!({"get": "x"})), "always a variable that is no boolean"),
        (rule("a/b", json!({"get": "resource.data"})), "always a field that is no boolean"),
        (rule("a/b", json!({"get": "get('a/b')"})), "always a document"),
        (rule("a", always()), "`a` is no pattern: it names a collection"),
        (rule("a/{b}/c", always()), "`a/{b}/c` is no pattern: it names a collection"),
        (rule("", always()), "an empty segment"),
        (rule("a//b", always()), "an empty segment"),
        (rule("a/b/", always()), "an empty segment"),
        (rule("a/..", always()), "`..` is no segment"),
        (rule("a/{b", always()), "`{b` is no segment"),
        (rule("a/x{b}", always()), "`x{b}` is no segment"),
        (rule("a/{1b}", always()), "`{1b}` is no segment"),
        (rule("a/{b=*}", always()), "`{b=*}` is no segment"),
        (rule("a/*", always()), "`*` is no segment"),
        (rule("{a}/{a}", always()), "the variable `a` twice"),
        (rule("a/{request}", always()), "`request` is the name of something else"),
        (rule("a/{in}", always()), "`in` is the name of something else"),
        (rule("{a=**}/b", always()), "nothing can follow"),
        (json!({"match": {"{a=**}": {"match": {"b/c": {"allow": {}}}}}}), "nothing can follow"),
        (
            json!({"match": {"a/{b}": {"match": {"c/{b}": {"allow": {}}}}}}),
            "the variable `b` twice",
        ),
        (
            json!({"match": {"a/{b}": {"allow": {}}, "/a/{c}": {"allow": {}}}}),
            "match the same paths",
        ),
    ] {
        let error = refused(&body);
        assert!(error.contains(said), "{body}: {error}");
    }
    // JSON that says something twice does not say it once.
    let twice = r#"{"match": {"a/b": {"allow": {"read": "true"}}, "a/b": {"allow": {}}}}"#;
    assert!(matches!(RuleSet::parse(twice), Err(RulesError::RepeatedPattern { .. })));
    let twice = r#"{"match": {"a/b": {"allow": {"read": "false", "read": "true"}}}}"#;
    assert!(matches!(RuleSet::parse(twice), Err(RulesError::RepeatedAction { .. })));
    let twice = r#"{"match": {"a/b": {"allow": {"read": "false"}, "allow": {}}}}"#;
    assert!(matches!(RuleSet::parse(twice), Err(RulesError::Shape(_))));
    assert!(matches!(RuleSet::parse("{"), Err(RulesError::Json(_))));
    let deep = "{\"a\":".repeat(100_000);
    assert!(matches!(RuleSet::parse(&deep[..200_000]), Err(RulesError::Json(_))));
}

#[test]
fn rules_are_not_endless() {
    let text = format!("{{\"match\": {{}}}}{}", " ".repeat(RULES_BYTES_MAX));
    assert!(matches!(RuleSet::parse(&text), Err(RulesError::TooLong)));
    let many = |count: usize| {
        let blocks = (0..count).map(|n| (format!("a/{n}"), json!({"allow": {}})));
        RuleSet::parse(&json!({"match": Json::Object(blocks.collect())}).to_string())
    };
    assert!(many(RULES_MAX).is_ok());
    assert!(matches!(many(RULES_MAX + 1), Err(RulesError::TooManyPatterns)));
    let long = |segments: usize| {
        let pattern = vec!["a"; segments].join("/");
        RuleSet::parse(&json!({"match": {pattern: {"allow": {}}}}).to_string()).map(drop)
    };
    assert_eq!(long(RULE_SEGMENTS_MAX), Ok(()));
    let error = long(RULE_SEGMENTS_MAX + 2).expect_err("too many segments");
    assert!(matches!(error, RulesError::Pattern { error: PatternError::TooManySegments, .. }));
    let condition = format!("'{}' == ''", "a".repeat(1_100));
    let error =
        RuleSet::parse(&json!({"match": {"a/b": {"allow": {"read": condition}}}}).to_string());
    let error = error.expect_err("a long condition");
    assert!(matches!(error, RulesError::Condition { error: ConditionError::TooLong, .. }));
}

#[test]
fn rules_are_kept_as_they_were_written() {
    fn is_shared<T: Send + Sync + Clone>(_: &T) {}
    let text = "{ \"match\" : {\"a/{b}\": {\"allow\": {\"read\": \"b == 'x'\"}}} }";
    let rules = RuleSet::parse(text).expect("rules");
    is_shared(&rules);
    assert_eq!(rules.source(), text);
}

/// Which pattern wins, said otherwise than in the tree: of all that match, the least of these.
fn rank(pattern: &str) -> (Vec<u8>, bool) {
    let segments = pattern.split('/').map(|segment| u8::from(segment.starts_with('{')));
    // Longer before shorter: whatever is there is less than nothing.
    let padded = segments.chain(std::iter::repeat(2)).take(10).collect();
    (padded, pattern.ends_with("=**}"))
}

fn is_match(pattern: &[&str], path: &[&str]) -> bool {
    match (pattern, path) {
        ([], []) => true,
        ([last], [_, ..]) if last.ends_with("=**}") => true,
        ([first, pattern @ ..], [segment, path @ ..]) => {
            (first == segment || first.starts_with('{')) && is_match(pattern, path)
        }
        _ => false,
    }
}

fn pattern() -> impl Strategy<Value = String> {
    let segment = prop::sample::select(vec!["a", "b", "c", "{}", "{}"]);
    (prop::collection::vec(segment, 1..7), any::<bool>()).prop_map(|(segments, is_open)| {
        let last = segments.len() - 1;
        let names = segments.iter().enumerate().map(|(place, segment)| match *segment {
            "{}" if place == last && is_open => format!("{{v{place}=**}}"),
            "{}" => format!("{{v{place}}}"),
            name => name.to_owned(),
        });
        names.collect::<Vec<_>>().join("/")
    })
}

proptest! {
    #[test]
    fn the_best_pattern_decides(
        patterns in prop::collection::btree_set(pattern(), 1..20),
        paths in prop::collection::vec(prop::collection::vec("[abcd]", 1..8), 20),
    ) {
        let mut tree = Patterns::default();
        let patterns: Vec<RulePattern> =
            patterns.iter().map(|it| RulePattern::default().with(it).expect("a pattern")).collect();
        for (number, pattern) in patterns.iter().enumerate() {
            prop_assert_eq!(tree.insert(pattern, number), None);
            prop_assert_eq!(tree.insert(pattern, 99), Some(number));
        }
        for segments in paths {
            let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
            let matching = patterns.iter().filter(|pattern| {
                is_match(&pattern.text.split('/').collect::<Vec<_>>(), &segments)
            });
            let best = matching.min_by_key(|pattern| rank(&pattern.text));
            let path = segments.join("/");
            let found = tree.find(&path, &mut Steps::unlimited());
            let found = found.and_then(|number| patterns.get(number));
            prop_assert_eq!(found.map(|it| &it.text), best.map(|it| &it.text), "{}", path);
            // What the variables stand for makes the path again.
            if let Some(found) = found {
                let mut captures = found.captures(&path).into_iter();
                let again = found.text.split('/').map(|segment| {
                    if segment.starts_with('{') { captures.next().expect("one each") } else { segment }
                });
                prop_assert_eq!(again.collect::<Vec<_>>().join("/"), path);
            }
        }
    }

    #[test]
    fn no_rules_panic(
        pattern in "[ab{}=*/.]{0,12}", action in "(read|get|,| |x){0,4}", condition in "\\PC{0,40}",
    ) {
        let _ = RuleSet::parse(&condition);
        let body = json!({"match": {pattern: {"allow": {action: condition}}}});
        let _ = RuleSet::parse(&body.to_string());
    }
}
