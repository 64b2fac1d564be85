//! Events and keys: each tenant has its own, and an admin of all reaches all.

use reveille_core::event::worker::WorkerTemplate;
use reveille_core::key::KeyHash;
use reveille_server::Auth;
use serde_json::{Value, json};

use crate::harness::*;

const ADMIN: &str = "the-admin-key-of-all-tenants";

/// A server that asks for keys, and keys.
struct Tenants {
    server: TestServer,
    sink: Sink,
    acme: String,
    beta: String,
}

impl Tenants {
    async fn start() -> Tenants {
        Tenants::start_on(Setup::default()).await
    }

    async fn start_on(setup: Setup) -> Tenants {
        let sink = Sink::start().await;
        let template = format!("http://127.0.0.1:{}/{{workerId}}/{{rpcMethod}}", sink.port());
        let mut setup = Setup {
            auth: Auth::Keys { admin_key: KeyHash::of(ADMIN), metrics_open: false },
            ..setup
        };
        setup.workers.template = WorkerTemplate::parse(&template).unwrap();
        let server = setup.start().await;
        let acme = key(&server, "acme", json!(["user"])).await;
        let beta = key(&server, "beta", json!(["user"])).await;
        Tenants { server, sink, acme, beta }
    }

    async fn post(&self, key: &str, target: &str, body: &Value) -> Answer {
        self.ask(key, "POST", target, body).await
    }

    async fn ask(&self, key: &str, method: &str, target: &str, body: &Value) -> Answer {
        let bearer = format!("Bearer {key}");
        let headers = [("authorization", bearer.as_str()), JSON];
        self.server.ask(method, target, &headers, body.to_string().as_bytes()).await
    }

    async fn get(&self, key: &str, target: &str) -> Answer {
        let bearer = format!("Bearer {key}");
        self.server.ask("GET", target, &[("authorization", bearer.as_str())], b"").await
    }

    async fn subscribe(&self, key: &str, worker: &str, pattern: &str) -> Value {
        let body = json!({ "workerId": worker, "pattern": pattern, "rpcMethod": "m" });
        self.post(key, "/subscriptions/subscribe", &body).await.expect(200).json()
    }
}

async fn key(server: &TestServer, tenant: &str, roles: Value) -> String {
    let bearer = format!("Bearer {ADMIN}");
    let body = json!({ "tenant": tenant, "roles": roles }).to_string();
    let headers = [("authorization", bearer.as_str()), JSON];
    let made = server.ask("POST", "/admin/v1/keys", &headers, body.as_bytes()).await.expect(201);
    made.json()["key"].as_str().unwrap().to_owned()
}

fn id(made: &Value) -> &str {
    made["subscriptionId"].as_str().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn e11_e14_shards_of_a_tenant_have_its_name_in_front() {
    let tenants = Tenants::start().await;
    let made = tenants.subscribe(&tenants.acme, "w", "webhook.stripe.*").await;
    assert_eq!(
        made,
        json!({ "ok": true, "subscriptionId": id(&made), "shard": "acme:webhook",
                "namespace": "acme" })
    );
    let made = tenants.subscribe(&tenants.acme, "w", "custom.*").await;
    assert_eq!(made["shard"], "acme:default");
    let shown = tenants.get(&tenants.acme, &format!("/subscriptions/{}", id(&made))).await;
    let shown = shown.expect(200).json();
    assert_eq!(shown["subscription"]["shard"], "acme:default");
    assert_eq!(shown["subscription"]["namespace"], "acme");
    let made = tenants.subscribe(ADMIN, "w", "webhook.stripe.*").await;
    assert_eq!((&made["shard"], &made["namespace"]), (&json!("webhook"), &Value::Null));
    for (shard, count) in [("webhook", 1), ("acme:webhook", 1), ("default", 1), ("beta:webhook", 0)]
    {
        let target = format!("/subscriptions/list?shard={shard}");
        let list = tenants.get(&tenants.acme, &target).await.expect(200).json();
        assert_eq!(list["subscriptions"].as_array().unwrap().len(), count, "{shard}");
        let label = if shard.contains(':') { shard.to_owned() } else { format!("acme:{shard}") };
        assert_eq!((&list["shard"], &list["namespace"]), (&json!(label), &json!("acme")));
    }
    // A hint may have the name in front, its own.
    let mine = tenants.subscribe(&tenants.acme, "hint", "webhook.*").await;
    for (hint, status) in [
        ("webhook", 200),
        ("acme:webhook", 200),
        ("beta:webhook", 404),
        ("acme:default", 404),
        ("acme:acme:webhook", 404),
        ("beta:webhook:0", 404),
    ] {
        let body = json!({ "subscriptionId": id(&mine), "shard": hint });
        tenants.post(&tenants.acme, "/subscriptions/unsubscribe", &body).await.expect(status);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn e16_without_a_good_key_nothing_is_answered() {
    let tenants = Tenants::start().await;
    let operator = key(&tenants.server, "acme", json!(["operator"])).await;
    let routes = [
        ("POST", "/ingest"),
        ("POST", "/e"),
        ("POST", "/subscriptions/subscribe"),
        ("POST", "/subscriptions/unsubscribe"),
        ("POST", "/subscriptions/reactivate"),
        ("GET", "/subscriptions/list"),
        ("GET", "/subscriptions/match?eventType=a"),
        ("GET", "/subscriptions/status/01A"),
        ("GET", "/subscriptions/01A"),
        ("PUT", "/subscriptions/01A"),
        ("DELETE", "/subscriptions/01A"),
        ("GET", "/subscriptions/01A/deliveries"),
        ("GET", "/subscriptions/01A/dead-letters"),
        ("POST", "/subscriptions/01A/dead-letters/01B/retry"),
        ("GET", "/subscriptions/deliveries/01A/logs"),
        ("GET", "/subscriptions/01A/explain"),
        ("GET", "/subscriptions/nope"),
    ];
    let bearer = format!("Bearer {operator}");
    let wrong: [(Headers<'_>, u16, &str); 5] = [
        (&[], 401, "AUTH_REQUIRED"),
        (&[("authorization", "Basic eDp5")], 401, "INVALID_AUTH_FORMAT"),
        (&[("authorization", "Bearer rv_unknown")], 401, "INVALID_API_KEY"),
        (&[("authorization", "Bearer ns_acme_a_b")], 401, "INVALID_API_KEY"),
        (&[("authorization", &bearer)], 403, "FORBIDDEN"),
    ];
    for (method, target) in routes {
        // Operators look, and retry what was given up.
        let is_for_operators = method == "GET" || target.ends_with("/retry");
        for (headers, status, code) in wrong {
            if status == 403 && is_for_operators {
                continue;
            }
            let answer = tenants.server.ask(method, target, headers, b"").await.expect(status);
            assert_eq!(answer.get("www-authenticate").is_some(), status == 401);
            let answer = answer.json();
            assert_eq!((&answer["ok"], &answer["code"]), (&json!(false), &json!(code)), "{target}");
            assert!(answer["error"].is_string());
        }
    }
    // A key names its tenant itself; the header may only agree.
    let bearer = format!("Bearer {}", tenants.acme);
    for (namespace, status) in [("acme", 200), ("beta", 403), ("A B", 400)] {
        let headers = [("authorization", bearer.as_str()), ("x-tenant-namespace", namespace)];
        let answer = tenants.server.ask("GET", "/subscriptions/list", &headers, b"").await;
        let answer = answer.expect(status).json();
        assert_eq!(answer.get("ok"), (status != 200).then_some(&json!(false)), "{answer}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn e38_a_tenant_sees_and_changes_only_its_own_subscriptions() {
    let mut tenants = Tenants::start().await;
    let theirs = tenants.subscribe(&tenants.acme, "w", "a").await;
    // The same worker, pattern and method in another tenant is another subscription.
    let own = tenants.subscribe(&tenants.beta, "w", "a").await;
    let acme = tenants.acme.clone();
    let event = tenants.post(&acme, "/ingest", &json!({ "type": "a" })).await.expect(200).json();
    let call = tenants.sink.next().await;
    let delivery = call.get("x-events-delivery-id").to_owned();
    call.answer(500, "");
    let logs = format!("/subscriptions/deliveries/{delivery}/logs");
    let logged = async || {
        let answer = tenants.get(&acme, &logs).await.expect(200).json();
        (!answer["logs"].as_array().unwrap().is_empty()).then_some(())
    };
    eventually("the attempt to be logged", logged).await;
    let target = format!("/subscriptions/{}", id(&theirs));
    let beta = &tenants.beta;
    let list = tenants.get(beta, "/subscriptions/list").await.expect(200).json();
    assert_eq!(list["subscriptions"].as_array().unwrap().len(), 1);
    assert_eq!(list["subscriptions"][0]["id"], id(&own));
    assert_eq!(list["namespace"], "beta");
    tenants.get(beta, &target).await.expect(404);
    tenants.ask(beta, "PUT", &target, &json!({ "maxRetries": 1 })).await.expect(404);
    tenants.ask(beta, "DELETE", &target, &json!({})).await.expect(404);
    for shard in [json!(null), json!("acme:default"), json!("acme:default:0")] {
        let body = json!({ "subscriptionId": id(&theirs), "shard": shard });
        tenants.post(beta, "/subscriptions/unsubscribe", &body).await.expect(404);
        tenants.post(beta, "/subscriptions/reactivate", &body).await.expect(404);
    }
    let status = format!("/subscriptions/status/{}", id(&theirs));
    assert_eq!(tenants.get(beta, &status).await.expect(200).json()["subscription"], Value::Null);
    assert_eq!(tenants.get(beta, &logs).await.expect(200).json()["logs"], json!([]));
    tenants.get(beta, &format!("{target}/deliveries")).await.expect(404);
    let explain = format!("{target}/explain?eventId={}", event["eventIds"][0].as_str().unwrap());
    tenants.get(beta, &explain).await.expect(404);
    tenants.get(&acme, &explain).await.expect(200);
    let letters = tenants.get(beta, &format!("{target}/dead-letters")).await.expect(200).json();
    assert_eq!(letters["deadLetters"], json!([]));
    let retry = format!("{target}/dead-letters/{delivery}/retry");
    tenants.post(beta, &retry, &json!({})).await.expect(404);
    // Nor is an event of theirs one to begin with, and nothing of theirs has changed.
    let body = json!({ "workerId": "x", "pattern": "a", "rpcMethod": "m",
                       "deliver": { "from": event["eventIds"][0] } });
    tenants.post(beta, "/subscriptions/subscribe", &body).await.expect(404);
    let shown = tenants.get(&acme, &target).await.expect(200).json();
    assert_eq!(
        (&shown["subscription"]["active"], &shown["subscription"]["maxRetries"]),
        (&json!(true), &json!(5))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn e39_an_admin_of_all_tenants_reaches_all_subscriptions() {
    let tenants = Tenants::start().await;
    let acme = tenants.subscribe(&tenants.acme, "w", "a").await;
    let beta = tenants.subscribe(&tenants.beta, "w", "a").await;
    let own = tenants.subscribe(ADMIN, "w", "a").await;
    let list = tenants.get(ADMIN, "/subscriptions/list").await.expect(200).json();
    let spaces: Vec<&Value> =
        list["subscriptions"].as_array().unwrap().iter().map(|it| &it["namespace"]).collect();
    assert_eq!(spaces.len(), 3);
    for space in [json!("acme"), json!("beta"), Value::Null] {
        assert!(spaces.contains(&&space), "{space}");
    }
    for made in [&acme, &beta, &own] {
        let target = format!("/subscriptions/{}", id(made));
        let shown = tenants.get(ADMIN, &target).await.expect(200).json();
        assert_eq!(shown["subscription"]["shard"], made["shard"]);
        let answer = tenants.ask(ADMIN, "PUT", &target, &json!({ "maxRetries": 2 })).await;
        assert_eq!(answer.expect(200).json()["subscription"]["namespace"], made["namespace"]);
        let body = json!({ "subscriptionId": id(made) });
        tenants.post(ADMIN, "/subscriptions/unsubscribe", &body).await.expect(200);
    }
    // Inside one tenant it is one of them.
    let bearer = format!("Bearer {ADMIN}");
    let headers = [("authorization", bearer.as_str()), ("x-tenant-namespace", "acme")];
    let list = tenants.server.ask("GET", "/subscriptions/list", &headers, b"").await.expect(200);
    assert_eq!(list.json()["subscriptions"].as_array().unwrap().len(), 1);
    assert_eq!(list.json()["namespace"], "acme");
    let target = format!("/subscriptions/{}", id(&beta));
    tenants.server.ask("GET", &target, &headers, b"").await.expect(404);
    tenants.server.ask("DELETE", &target, &[("authorization", &bearer)], b"").await.expect(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn e40_events_of_a_tenant_reach_only_its_own_subscriptions() {
    let mut tenants = Tenants::start().await;
    let (acme, beta) = (tenants.acme.clone(), tenants.beta.clone());
    for (key, worker) in [(acme.as_str(), "acme"), (&beta, "beta"), (ADMIN, "admin")] {
        tenants.subscribe(key, worker, "**").await;
    }
    let sent = json!({ "type": "a", "_namespace": "forged" });
    for (key, namespace) in
        [(acme.as_str(), json!("acme")), (&beta, json!("beta")), (ADMIN, Value::Null)]
    {
        let answer = tenants.post(key, "/ingest", &sent).await.expect(200).json();
        assert_eq!(answer["namespace"], namespace);
        let call = tenants.sink.next().await;
        let worker = namespace.as_str().unwrap_or("admin");
        assert_eq!(call.line, format!("POST /{worker}/m HTTP/1.1"));
        let inside = call.json()["payload"].get("_namespace").cloned();
        assert_eq!(inside, (!namespace.is_null()).then_some(namespace));
        call.ok();
        assert!(tenants.sink.come().is_none());
    }
    // An admin of all tenants who names one acts there, and its batches are not another's.
    let bearer = format!("Bearer {ADMIN}");
    let headers = [("authorization", bearer.as_str()), ("x-tenant-namespace", "acme")];
    let batch = json!({ "events": [{ "type": "b" }], "batchId": "1" });
    let answer = tenants.server.ask("POST", "/e", &headers, batch.to_string().as_bytes()).await;
    assert_eq!(answer.expect(200).json()["namespace"], "acme");
    assert_eq!(tenants.sink.next().await.line, "POST /acme/m HTTP/1.1");
    let answer = tenants.post(&acme, "/ingest", &batch).await.expect(200).json();
    assert_eq!(answer["deduplicated"], true);
    let answer = tenants.post(&beta, "/ingest", &batch).await.expect(200).json();
    assert_eq!(answer.get("deduplicated"), None);
    // Each has its own stream of events.
    for (key, own, other) in [(&acme, "acme", "beta"), (&beta, "beta", "acme")] {
        let kept = tenants.get(key, &format!("/_events/{own}?offset=-1")).await.expect(200).json();
        assert_eq!(kept.as_array().unwrap().len(), 2);
        tenants.get(key, &format!("/_events/{other}?offset=-1")).await.expect(404);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_that_uses_much_waits_while_others_are_active_and_they_do_not() {
    let clock = HandClock::new();
    let tenants = Tenants::start_on(Setup::on(&clock)).await;
    let (acme, beta) = (tenants.acme.as_str(), tenants.beta.as_str());
    let one = json!({ "type": "a" });
    // An event is made to cost half a millisecond, the most that it can: one of the two processors
    // has to work for two hundred milliseconds for these.
    let many = json!({ "events": vec![&one; 400] });
    tenants.post(acme, "/ingest", &many).await.expect(200);
    clock.use_processors(1_000_000_000);
    clock.advance(100);
    // Alone it may use everything.
    for _ in 0..3 {
        tenants.post(acme, "/ingest", &many).await.expect(200);
    }
    clock.advance(50);
    tenants.post(beta, "/ingest", &one).await.expect(200);
    tenants.post(acme, "/ingest", &many).await.expect(200);
    // Now it owes almost two hundred milliseconds.
    let waiting = tenants.post(acme, "/ingest", &one);
    tokio::pin!(waiting);
    clock.advance(10);
    tokio::select! {
        biased;
        answer = &mut waiting => panic!("answered at once: {answer:?}"),
        answer = tenants.post(beta, "/ingest", &one) => drop(answer.expect(200)),
    }
    clock.advance(100);
    tenants.post(beta, "/ingest", &one).await.expect(200);
    tokio::select! {
        biased;
        answer = &mut waiting => panic!("answered too early: {answer:?}"),
        () = stays("it waits", async || true) => {}
    }
    clock.advance(1_000);
    waiting.await.expect(200);
}
