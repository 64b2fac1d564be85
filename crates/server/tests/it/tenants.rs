//! Every route of every face, walked by those who have no business there.
//!
//! A new route is a new line of [`ROUTES`]; a test holds the table against the server's own.

use serde_json::{Value, json};

use crate::harness::*;

const TEXT: (&str, &str) = ("content-type", "text/plain");
/// What only acme's streams hold.
const SECRET: &str = "acme-secret";

/// What a route asks of those who use it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Asks {
    Nothing,
    Token,
    /// The token of a trigger: a key is known, and not enough.
    Execution,
    Key,
}

use Asks::{Execution, Key, Nothing, Token};

const DS: &str = "/v1/stream/__ds/subscriptions";
const WEBHOOK: &str = r#"{"webhook":"http://127.0.0.1:9/hook"}"#;
const PULL: &str = r#"{"type":"pull-wake","pattern":"jobs/*","wake_stream":"wakes"}"#;
const WAKE: &str = r#"{"epoch":1,"generation":1,"wake_id":"w_x","done":true}"#;
const OWN_KEY: &str = r#"{"tenant":"beta","roles":["user"]}"#;
const HOOK: &str = r#"{"workerId":"w","pattern":"nothing","rpcMethod":"m"}"#;
const HOOK_ID: &str = r#"{"subscriptionId":"{HOOK}"}"#;
const OTHERS_KEY: &str = r#"{"tenant":"acme","roles":["user"]}"#;

/// Method, target, body, what it asks for, and what somebody gets who may do everything in a
/// tenant of its own that was empty before. `{DS}`, `{ID}` and `{HOOK}` stand for the place of lease
/// subscriptions, the id of one of acme's keys and that of its subscription to events; `{FACT}`,
/// `{TOKEN}` and `{FACTS}` for the ids of a fact, a capability token and a subscription to facts.
type Route = (&'static str, &'static str, &'static str, Asks, u16);

const BATCH: &str = r#"{"ops":[{"type":"set","path":"shared/d","data":{}}],"idempotencyKey":"k"}"#;

const ACMES_TRIGGER: &str =
    r#"{"tenant":"acme","collection":"a","events":["create"],"url":"http://127.0.0.1:9/"}"#;

const FACT: &str = r#"{"entity":"user:b","relation":"is","value":{"type":"string","v":"b"},"source":"b","scope":"company"}"#;
const MEMBER: &str = r#"{"entity_uri":"user:b","role":"reader"}"#;
const WISH: &str =
    r#"{"target":"scope:garden:atlas","on_change":"webhook","webhook_url":"http://127.0.0.1:9/"}"#;

const ROUTES: &[Route] = &[
    ("GET", "/health", "", Nothing, 200),
    ("GET", "/healthz", "", Nothing, 200),
    ("GET", "/readyz", "", Nothing, 200),
    ("OPTIONS", "/shared/s", "", Nothing, 204),
    ("GET", "/v1/stream/__ds/jwks.json", "", Nothing, 200),
    ("GET", "/metrics", "", Key, 200),
    // Streams.
    ("GET", "/shared/s", "", Key, 404),
    ("PUT", "/shared/s", "beta", Key, 201),
    ("POST", "/shared/s", "more", Key, 204),
    ("GET", "/shared/s", "", Key, 200),
    ("HEAD", "/shared/s", "", Key, 200),
    ("GET", "/shared/s?offset=-1&live=long-poll", "", Key, 200),
    ("GET", "/shared/only", "", Key, 404),
    ("GET", "/shared/only?offset=-1&live=sse", "", Key, 404),
    ("GET", "/shared/only?offset=-1&live=long-poll", "", Key, 404),
    ("POST", "/shared/only", "x", Key, 404),
    ("DELETE", "/shared/only", "", Key, 404),
    ("GET", "/_events/acme", "", Key, 404),
    // Subscriptions on patterns.
    ("GET", "/**?subscription=w", "", Key, 404),
    ("PUT", "/shared/*?subscription=w", WEBHOOK, Key, 201),
    ("GET", "/**?subscription=w", "", Key, 200),
    ("GET", "/**?subscriptions", "", Key, 200),
    ("POST", "/callback/w:%2Fshared%2Fs", WAKE, Token, 401),
    // Lease subscriptions.
    ("GET", "{DS}/p", "", Key, 404),
    ("POST", "{DS}/p/claim", r#"{"worker":"b"}"#, Key, 404),
    ("POST", "{DS}/p/streams", r#"{"streams":["x"]}"#, Key, 404),
    ("PUT", "{DS}/p", PULL, Key, 201),
    ("GET", "{DS}/p", "", Key, 200),
    ("HEAD", "{DS}/p", "", Key, 200),
    ("POST", "{DS}/p/streams", r#"{"streams":["x"]}"#, Key, 204),
    ("DELETE", "{DS}/p/streams/x", "", Key, 204),
    ("POST", "{DS}/p/claim", r#"{"worker":"b"}"#, Key, 409),
    ("POST", "{DS}/p/callback", WAKE, Token, 401),
    ("POST", "{DS}/p/ack", WAKE, Token, 401),
    ("POST", "{DS}/p/release", WAKE, Token, 401),
    // Events.
    ("POST", "/ingest", r#"{"type":"a"}"#, Key, 200),
    ("POST", "/ingest/x", "", Key, 404),
    ("POST", "/e", "[]", Key, 200),
    ("POST", "/e/x", "", Key, 404),
    ("GET", "/subscriptions/{HOOK}", "", Key, 404),
    ("HEAD", "/subscriptions/{HOOK}", "", Key, 404),
    ("PUT", "/subscriptions/{HOOK}", r#"{"maxRetries":1}"#, Key, 404),
    ("DELETE", "/subscriptions/{HOOK}", "", Key, 404),
    ("POST", "/subscriptions/unsubscribe", HOOK_ID, Key, 404),
    ("POST", "/subscriptions/reactivate", HOOK_ID, Key, 404),
    ("POST", "/subscriptions/pause", HOOK_ID, Key, 404),
    ("POST", "/subscriptions/resume", HOOK_ID, Key, 404),
    ("POST", "/subscriptions/{HOOK}/rotate-secret", "", Key, 404),
    ("GET", "/subscriptions/status/{HOOK}", "", Key, 200),
    ("GET", "/subscriptions/{HOOK}/deliveries", "", Key, 404),
    ("GET", "/subscriptions/{HOOK}/dead-letters", "", Key, 200),
    ("POST", "/subscriptions/{HOOK}/dead-letters/{HOOK}/retry", "", Key, 404),
    ("GET", "/subscriptions/{HOOK}/explain?eventType=a", "", Key, 404),
    ("GET", "/subscriptions/deliveries/{HOOK}/logs", "", Key, 200),
    ("GET", "/subscriptions/list", "", Key, 200),
    ("GET", "/subscriptions/match?eventType=nothing", "", Key, 200),
    ("POST", "/subscriptions/subscribe", HOOK, Key, 200),
    ("POST", "/subscriptions/subscribe", HOOK, Key, 409),
    ("GET", "/subscriptions/nothing", "", Key, 404),
    // Documents.
    ("GET", "/api/v1/shared/d", "", Key, 404),
    ("POST", "/api/v1/query", r#"{"collection":"shared"}"#, Key, 200),
    ("PATCH", "/api/v1/shared/d", r#"{"doc":{"a":1}}"#, Key, 404),
    ("PUT", "/api/v1/shared/d", r#"{"doc":{"a":"beta"}}"#, Key, 200),
    ("POST", "/api/v1/batch", BATCH, Key, 200),
    ("GET", "/api/v1/shared/d", "", Key, 200),
    ("DELETE", "/api/v1/shared/d", "", Key, 204),
    ("GET", "/api/v1/trigger/jwks.json", "", Nothing, 200),
    ("POST", "/api/v1/trigger/get", r#"{"paths":["shared/d"]}"#, Execution, 403),
    ("POST", "/api/v1/trigger/query", r#"{"collection":"shared"}"#, Execution, 403),
    ("POST", "/api/v1/trigger/write", BATCH, Execution, 403),
    ("POST", "/admin/v1/tokens/trigger", r#"{"tenant":"acme","triggerId":"t"}"#, Key, 403),
    ("POST", "/admin/v1/tokens/system", r#"{"tenant":"acme"}"#, Key, 403),
    ("POST", "/admin/v1/tokens/system", r#"{"tenant":"beta"}"#, Key, 200),
    ("GET", "/_changes/acme", "", Key, 404),
    ("GET", "/admin/v1/tenants/acme/indexes", "", Key, 403),
    ("PUT", "/admin/v1/tenants/acme/indexes", r#"{"indexes":[]}"#, Key, 403),
    ("GET", "/admin/v1/tenants/acme/rules", "", Key, 403),
    ("PUT", "/admin/v1/tenants/acme/rules", r#"{"match":{}}"#, Key, 403),
    // Triggers and their secrets.
    ("GET", "/admin/v1/triggers", "", Key, 200),
    ("POST", "/admin/v1/triggers", ACMES_TRIGGER, Key, 403),
    ("POST", "/admin/v1/triggers/apply", r#"{"tenant":"acme","triggers":{}}"#, Key, 403),
    ("GET", "/admin/v1/triggers/acme/t", "", Key, 403),
    ("GET", "/admin/v1/triggers/~/t", "", Key, 404),
    ("PATCH", "/admin/v1/triggers/acme/t", "{}", Key, 403),
    ("DELETE", "/admin/v1/triggers/acme/t", "", Key, 403),
    ("GET", "/admin/v1/triggers/acme/t/versions", "", Key, 403),
    ("GET", "/admin/v1/triggers/acme/t/status", "", Key, 403),
    ("POST", "/admin/v1/triggers/acme/t/enable", "{}", Key, 403),
    ("POST", "/admin/v1/triggers/acme/t/disable", r#"{"reason":"x"}"#, Key, 403),
    ("POST", "/admin/v1/triggers/acme/t/test", r#"{"path":"shared/d"}"#, Key, 403),
    ("GET", "/admin/v1/tenants/acme/secrets", "", Key, 403),
    ("POST", "/admin/v1/tenants/acme/secrets/b", "{}", Key, 403),
    ("GET", "/admin/v1/tenants/acme/secrets/default", "", Key, 403),
    ("POST", "/admin/v1/tenants/acme/secrets/default/rotate", "{}", Key, 403),
    ("POST", "/admin/v1/tenants/acme/secrets/default/revoke-previous", "{}", Key, 403),
    ("GET", "/admin/v1/checkpoints/trigger_evaluator", "", Key, 200),
    // Facts.
    ("GET", "/v1/facts", "", Key, 200),
    ("GET", "/v1/facts/{FACT}", "", Key, 404),
    ("GET", "/v1/facts?garden_id=atlas", "", Key, 404),
    ("POST", "/v1/facts", FACT, Key, 201),
    ("GET", "/v1/cards?entity=user:alice&scope=company", "", Key, 404),
    ("POST", "/v1/cards/refresh", r#"{"entity":"user:b","scope":"company"}"#, Key, 200),
    ("GET", "/v1/gardens", "", Key, 200),
    ("GET", "/v1/gardens/atlas", "", Key, 404),
    ("DELETE", "/v1/gardens/atlas", "", Key, 404),
    ("GET", "/v1/gardens/atlas/members", "", Key, 404),
    ("POST", "/v1/gardens/atlas/members", MEMBER, Key, 404),
    ("PUT", "/v1/gardens/atlas/members/user:b", r#"{"role":"reader"}"#, Key, 404),
    ("DELETE", "/v1/gardens/atlas/members/user:alice", "", Key, 404),
    ("GET", "/v1/federation/capability-tokens", "", Key, 200),
    ("POST", "/v1/federation/capability-tokens/{TOKEN}/revoke", "{}", Key, 404),
    ("GET", "/v1/subscriptions", "", Key, 200),
    ("POST", "/v1/subscriptions", WISH, Key, 403),
    ("GET", "/v1/subscriptions/{FACTS}", "", Key, 404),
    ("GET", "/v1/subscriptions/{FACTS}/events", "", Key, 404),
    ("GET", "/v1/subscriptions/{FACTS}/explain", "", Key, 404),
    ("DELETE", "/v1/subscriptions/{FACTS}", "", Key, 404),
    // Inspection and keys.
    ("GET", "/admin/v1/streams", "", Key, 200),
    ("GET", "/admin/v1/consumers", "", Key, 200),
    ("GET", "/admin/v1/consumers/w:%2Fshared%2Fs", "", Key, 200),
    ("GET", "/admin/v1/consumers/w:%2Fshared%2Fonly", "", Key, 404),
    ("GET", "/admin/v1/timers", "", Key, 403),
    ("POST", "/admin/v1/timers/0-0/retry", "", Key, 403),
    ("GET", "/admin/v1/audit", "", Key, 200),
    ("GET", "/admin/v1/dlq", "", Key, 200),
    ("GET", "/admin/v1/dlq?hook={HOOK}", "", Key, 404),
    ("GET", "/admin/v1/dlq/{HOOK}", "", Key, 404),
    ("POST", "/admin/v1/dlq/{HOOK}/discard", r#"{"reason":"x"}"#, Key, 404),
    ("POST", "/admin/v1/dlq/replay", r#"{"dryRun":true}"#, Key, 200),
    ("GET", "/admin/v1/dlq/replays/rpl_0000000000000001", "", Key, 404),
    ("POST", "/admin/v1/dlq/discard", r#"{"dryRun":true}"#, Key, 200),
    ("GET", "/admin/v1/dlq/discards/dsc_0000000000000001", "", Key, 404),
    ("GET", "/admin/v1/replays/rpl_0000000000000001", "", Key, 404),
    ("POST", "/subscriptions/{HOOK}/dead-letters/retry", "{}", Key, 404),
    ("GET", "/admin/v1/audit/verify", "", Key, 200),
    ("GET", "/admin/v1/deliveries", "", Key, 200),
    ("GET", "/admin/v1/deliveries?hook={HOOK}", "", Key, 404),
    ("GET", "/admin/v1/deliveries/explain?hook={HOOK}&event=e", "", Key, 404),
    ("GET", "/admin/v1/deliveries/{HOOK}", "", Key, 404),
    ("GET", "/admin/v1/keys", "", Key, 200),
    ("POST", "/admin/v1/keys", OWN_KEY, Key, 201),
    ("POST", "/admin/v1/keys", OTHERS_KEY, Key, 403),
    ("DELETE", "/admin/v1/keys/{ID}", "", Key, 404),
    ("GET", "/admin/v1/timers", "", Key, 403),
    ("POST", "/admin/v1/timers/{ID}/retry", "", Key, 403),
    ("POST", "/admin/v1/signing-keys/rotate", "", Key, 403),
    // What was made goes again.
    ("DELETE", "{DS}/p", "", Key, 204),
    ("DELETE", "/shared/*?subscription=w", "", Key, 204),
    ("DELETE", "/shared/s", "", Key, 204),
];

/// What a tenant's admin sees of it.
const LOOKS: &[&str] = &[
    "/shared/s",
    "/shared/only",
    "/v1/stream/jobs/1",
    "/v1/stream/wakes",
    "/**?subscriptions",
    "/v1/stream/__ds/subscriptions/p",
    "/v1/stream/__ds/jwks.json",
    "/subscriptions/list",
    "/admin/v1/streams",
    "/admin/v1/consumers",
    "/admin/v1/deliveries",
    "/admin/v1/triggers",
    "/admin/v1/tenants/~/secrets",
    "/v1/facts",
    "/v1/gardens/atlas/members",
    "/v1/federation/capability-tokens",
    "/v1/subscriptions/{FACTS}",
    "/admin/v1/keys",
];

/// A tenant with something of everything, at the same paths as every other.
struct Tenant {
    key: String,
    id: String,
    /// Its subscription to events.
    hook: String,
    /// What it has said, in a garden, and who is told of it.
    fact: String,
    token: String,
    facts: String,
    /// What came with its wake.
    notification: Value,
    /// What came with its claim.
    lease: Value,
}

async fn furnish(server: &TestServer, sink: &mut Sink, name: &str) -> Tenant {
    let (id, key) = server.make_key(name, &["admin", "operator", "user"]).await;
    let ask = async |method: &str, target: &str, headers: Headers<'_>, body: &str, status| {
        server.ask_as(&key, method, target, headers, body.as_bytes()).await.expect(status)
    };
    let secret = format!("{name}-secret");
    ask("PUT", "/shared/s", &[TEXT], "", 201).await;
    ask("PUT", "/shared/only", &[TEXT], &secret, 201).await;
    let webhook = json!({ "webhook": sink.url() }).to_string();
    ask("PUT", "/shared/*?subscription=w", &[], &webhook, 201).await;
    ask("POST", "/shared/s", &[TEXT], &secret, 204).await;
    let call = sink.next().await;
    let notification = call.json();
    // The wake is claimed, so that nothing is under way when somebody looks.
    let claim = json!({ "epoch": call.epoch(), "wake_id": call.wake_id() }).to_string();
    let (consumer, token) = (call.consumer(), call.token());
    call.ok();
    let target = format!("/callback/{consumer}");
    server.ask_as(&token, "POST", &target, &[], claim.as_bytes()).await.expect(200);
    ask("PUT", &format!("{DS}/p"), &[], PULL, 201).await;
    ask("PUT", "/v1/stream/jobs/1", &[JSON], "[1]", 201).await;
    let lease = ask("POST", &format!("{DS}/p/claim"), &[], r#"{"worker":"a"}"#, 200).await.json();
    ask("POST", "/ingest", &[], r#"{"type":"a"}"#, 200).await;
    let hook = ask("POST", "/subscriptions/subscribe", &[], HOOK, 200).await.json();
    let hook = hook["subscriptionId"].as_str().unwrap().to_owned();
    let secret = json!({ "secret": format!("whsec_{name}-secret-of-its-own") }).to_string();
    ask("POST", "/admin/v1/tenants/~/secrets/default", &[], &secret, 201).await;
    let trigger = json!({ "triggerId": "t", "collection": "shared", "events": ["create"],
                          "url": format!("{}/{name}-secret", sink.url()) });
    ask("POST", "/admin/v1/triggers", &[], &trigger.to_string(), 201).await;
    let (fact, token, facts) = furnish_facts(server, sink, (name, &key)).await;
    Tenant { key, id, hook, fact, token, facts, notification, lease }
}

/// A garden with a fact in it, and somebody else who subscribes by a token: their ids.
async fn furnish_facts(
    server: &TestServer,
    sink: &Sink,
    (name, key): (&str, &str),
) -> (String, String, String) {
    let post = async |key: &str, target: &str, headers: Headers<'_>, body: Value| {
        let body = body.to_string();
        server.ask_as(key, "POST", target, headers, body.as_bytes()).await.expect(201).json()
    };
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let garden = json!({ "slug": "atlas", "name": "atlas", "scope": "company" });
    post(key, "/v1/gardens", &[], garden).await;
    let said = json!({ "type": "string", "v": format!("{name}-secret") });
    let fact = json!({ "entity": "user:alice", "relation": "is", "value": said, "source": "a",
                       "scope": "company", "garden_id": "atlas" });
    let fact = post(key, "/v1/facts", &[], fact).await;
    let alice = facts::make_party(server, name, "user:alice", &["user"], &["*"]).await;
    let tokens = "/v1/federation/capability-tokens";
    let wish = json!({ "subject": alice.entity, "verb": "subscribe", "object": "*" });
    let token = post(key, tokens, &[], wish).await;
    let wish = json!({ "target": "entity:user:alice", "on_change": "webhook",
                       "webhook_url": sink.url() });
    let shown = text(&token["token"]);
    let headers = [("stigmem-capability", shown.as_str())];
    let facts = post(&alice.key, "/v1/subscriptions", &headers, wish).await;
    (text(&fact["id"]), text(&token["token_id"]), text(&facts["id"]))
}

impl Tenant {
    /// All that there is.
    async fn looks(&self, server: &TestServer) -> Vec<(u16, String)> {
        let mut seen = Vec::new();
        for target in LOOKS {
            let answer = server.get_as(&self.key, &filled(target, self)).await;
            assert!(answer.status() == 200 || *target == "/v1/stream/wakes", "{target} {answer}");
            seen.push((answer.status(), answer.text()));
        }
        seen
    }
}

fn filled(text: &str, acme: &Tenant) -> String {
    let text = text.replace("{DS}", DS).replace("{ID}", &acme.id).replace("{HOOK}", &acme.hook);
    let text = text.replace("{FACT}", &acme.fact).replace("{TOKEN}", &acme.token);
    text.replace("{FACTS}", &acme.facts)
}

/// Walks every route; returns what each answered.
async fn walk(server: &TestServer, acme: &Tenant, headers: Headers<'_>) -> Vec<Answer> {
    let mut answers = Vec::new();
    for route in ROUTES {
        let headers = [headers, &[TEXT]].concat();
        let (target, body) = (filled(route.1, acme), filled(route.2, acme));
        answers.push(server.ask(route.0, &target, &headers, body.as_bytes()).await);
    }
    answers
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_gets_anywhere_without_a_good_key() {
    let clock = HandClock::new();
    let server = Setup { auth: keys::keys(), ..Setup::on(&clock) }.start().await;
    let mut sink = Sink::start().await;
    let acme = furnish(&server, &mut sink, "acme").await;
    let before = acme.looks(&server).await;
    let wrong = format!("Bearer {}x", acme.key);
    let other = format!("Bearer {}", server.make_key("beta", &["admin", "user"]).await.1);
    let lists: [(Headers<'_>, u16, &str); 4] = [
        (&[], 401, "AUTH_REQUIRED"),
        (&[("authorization", "Basic eDp5")], 401, "INVALID_AUTH_FORMAT"),
        (&[("authorization", &wrong)], 401, "INVALID_API_KEY"),
        (&[("authorization", &other), ("x-tenant-namespace", "acme")], 403, "FORBIDDEN"),
    ];
    for (headers, status, code) in lists {
        for (route, answer) in ROUTES.iter().zip(walk(&server, &acme, headers).await) {
            let (status, code) = match route.3 {
                Nothing => (route.4, ""),
                Token => (401, "TOKEN_INVALID"),
                Execution if status == 403 => (403, "PERMISSION_DENIED"),
                Execution => (401, "UNAUTHENTICATED"),
                Key => (status, in_words_of(route.1, status, code)),
            };
            assert_eq!(answer.status(), status, "{} {} {answer}", route.0, route.1);
            if !code.is_empty() && route.0 != "HEAD" {
                assert_eq!(answer.code(), code, "{} {} {answer}", route.0, route.1);
            }
            assert!(!answer.text().contains(SECRET), "{} {}", route.0, route.1);
        }
    }
    assert_eq!(acme.looks(&server).await, before);
    server.stop().await;
}

/// Documents and facts have codes of their own, and transactions theirs.
fn in_words_of<'a>(path: &str, status: u16, code: &'a str) -> &'a str {
    const FACTS: [&str; 5] =
        ["/v1/facts", "/v1/cards", "/v1/gardens", "/v1/federation", "/v1/subscriptions"];
    let is_of_facts = FACTS.iter().any(|prefix| path.starts_with(prefix));
    match (path, status) {
        (_, 401) if is_of_facts => "unauthenticated",
        (_, 403) if is_of_facts => "forbidden",
        ("/api/v1/batch", 401) => "UNAUTHENTICATED",
        ("/api/v1/batch", 403) => "PERMISSION_DENIED",
        (path, 401) if path.starts_with("/api/v1/") => "UNAUTHORIZED",
        _ => code,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn somebody_elses_key_sees_and_changes_nothing() {
    let clock = HandClock::new();
    let server = Setup { auth: keys::keys(), ..Setup::on(&clock) }.start().await;
    let mut sink = Sink::start().await;
    let acme = furnish(&server, &mut sink, "acme").await;
    let before = acme.looks(&server).await;
    let (_, key) = server.make_key("beta", &["admin", "operator", "user"]).await;
    let bearer = format!("Bearer {key}");
    let answers = walk(&server, &acme, &[("authorization", &bearer)]).await;
    for (route, answer) in ROUTES.iter().zip(answers) {
        assert_eq!(answer.status(), route.4, "{} {} {answer}", route.0, route.1);
        let text = answer.text();
        // That acme's wish is refused is all that is said of it.
        for word in [SECRET, &acme.id, &sink.url()] {
            assert!(!text.contains(word), "{} {} {text}", route.0, route.1);
        }
    }
    let fork = [("authorization", bearer.as_str()), ("stream-forked-from", "/shared/only")];
    let answer = server.ask("PUT", "/shared/fork", &fork, b"").await.expect(404);
    assert_eq!(answer.code(), "FORK_SOURCE_NOT_FOUND");
    assert_eq!(acme.looks(&server).await, before);
    assert!(sink.come().is_none(), "acme's webhook was called for beta");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_act_in_their_own_tenant_although_the_paths_are_equal() {
    let clock = HandClock::new();
    let server = Setup { auth: keys::keys(), ..Setup::on(&clock) }.start().await;
    let mut sink = Sink::start().await;
    let acme = furnish(&server, &mut sink, "acme").await;
    let gamma = furnish(&server, &mut sink, "gamma").await;
    assert_eq!(
        acme.notification["callback"], gamma.notification["callback"],
        "the paths are equal"
    );
    let text = |value: &Value, name: &str| value[name].as_str().unwrap().to_owned();
    let post = async |target: &str, token: &str, body: Value| {
        server.ask_as(token, "POST", target, &[], body.to_string().as_bytes()).await
    };
    let callback = "/callback/w:%2Fshared%2Fs";
    let (ack, release) = (format!("{DS}/p/ack"), format!("{DS}/p/release"));
    let report = |lease: &Value, done: bool| json!({ "wake_id": lease["wake_id"], "generation": lease["generation"], "done": done });
    let untouched = gamma.looks(&server).await;

    // Another tenant's wake, with a token that is good, is not heard by either.
    let before = acme.looks(&server).await;
    let mixed = json!({ "epoch": 1, "wake_id": gamma.notification["wake_id"], "done": true });
    let answer = post(callback, &text(&acme.notification, "token"), mixed).await;
    assert!(answer.status() == 409, "{answer}");
    let answer = post(&ack, &text(&acme.lease, "token"), report(&gamma.lease, true)).await;
    assert!(answer.status() == 409, "{answer}");
    assert_eq!(acme.looks(&server).await, before);
    assert_eq!(gamma.looks(&server).await, untouched);

    // And its own moves nobody else.
    let tail = server.ask_as(&acme.key, "HEAD", "/shared/s", &[], b"").await.expect(200);
    let acks = json!([{ "path": "/shared/s", "offset": tail.next_offset() }]);
    let done = json!({ "epoch": 1, "acks": acks, "done": true });
    post(callback, &text(&acme.notification, "token"), done).await.expect(200);
    post(&ack, &text(&acme.lease, "token"), report(&acme.lease, false)).await.expect(200);
    post(&release, &text(&acme.lease, "token"), report(&acme.lease, false)).await.expect(204);
    assert_ne!(acme.looks(&server).await, before, "acme has moved");
    assert_eq!(gamma.looks(&server).await, untouched);
    server.stop().await;
}

/// Every route that the server knows and somebody answers is walked above.
#[test]
fn the_walk_goes_everywhere() {
    let table = include_str!("../../src/http/route.rs");
    let lines = table.lines().filter_map(|line| line.trim().strip_prefix("(\""));
    let routes = lines.filter(|line| line.contains("Face::") && !line.contains("Face::Nobody"));
    let routes: Vec<&str> = routes.filter_map(|line| line.split('"').next()).collect();
    assert!(routes.len() > 12, "the server's table is found: {routes:?}");
    let paths: Vec<String> = ROUTES.iter().map(|route| route.1.replace("{DS}", DS)).collect();
    for route in routes {
        let walked = paths.iter().any(|path| {
            let path = path.split('?').next().unwrap();
            match route.split_once('*') {
                None => path == route,
                Some((before, after)) => {
                    path.starts_with(before) && path.ends_with(after.rsplit('*').next().unwrap())
                }
            }
        });
        assert!(walked, "{route} is not walked");
    }
}
