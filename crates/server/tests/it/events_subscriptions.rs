//! Subscriptions to events: made, shown, listed, changed and ended.

use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::harness::*;

/// A subscription as it is shown.
async fn shown(events: &Deliveries, id: &str) -> Value {
    let answer = events.server.get(&format!("/subscriptions/{id}")).await.expect(200);
    answer.json()["subscription"].clone()
}

/// The ids in a list.
async fn listed(events: &Deliveries, query: &str) -> Vec<String> {
    let answer = events.server.get(&format!("/subscriptions/list{query}")).await.expect(200);
    let answer = answer.json();
    let items = answer["subscriptions"].as_array().unwrap().iter();
    items.map(|it| it["id"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn e13_e14_e20_what_is_left_out_has_a_default() {
    let events = Deliveries::start().await;
    let made = events.server.subscribed("webhook.github.*", json!({})).await;
    let id = made["subscriptionId"].as_str().unwrap();
    assert_eq!(
        made,
        json!({ "ok": true, "subscriptionId": id, "shard": "webhook", "namespace": null })
    );
    let plain = id.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit());
    assert!(id.len() == 26 && plain, "a ULID: {id}");
    assert_eq!(
        shown(&events, id).await,
        json!({
            "id": id, "workerId": "w", "workerBinding": null, "pattern": "webhook.github.*",
            "patternPrefix": "webhook.github", "rpcMethod": "handle", "maxRetries": 5,
            "timeoutMs": 30_000, "signed": false, "active": true, "paused": false,
            "retry": { "initial": 1_000, "max": 300_000, "giveUpAfter": null },
            "concurrency": null, "rateLimit": null,
            "createdAt": START_MS,
            "created_by": null, "updatedAt": START_MS, "shard": "webhook", "namespace": null,
        })
    );
    let more = json!({ "workerId": "v", "workerBinding": "B", "maxRetries": 0, "timeoutMs": 1 });
    let id = events.subscribe_with("**", more).await;
    let all = shown(&events, &id).await;
    assert_eq!(all["workerBinding"], "B");
    assert_eq!((&all["maxRetries"], &all["timeoutMs"]), (&json!(0), &json!(1)));
    assert_eq!((&all["patternPrefix"], &all["shard"]), (&json!(""), &json!("default")));
    let answer = events.server.get("/subscriptions/01ARZ3NDEKTSV4RRFFQ69G5FAV").await.expect(404);
    assert_eq!(answer.json()["error"], "Subscription not found");
    assert_eq!(
        (&answer.json()["ok"], &answer.json()["code"]),
        (&json!(false), &json!("NOT_FOUND"))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn two_subscriptions_of_one_worker_pattern_and_method_are_one_too_many() {
    let events = Deliveries::start().await;
    let id = events.subscribe("a.*").await;
    let body = json!({ "workerId": "w", "pattern": "a.*", "rpcMethod": "handle", "maxRetries": 9 });
    let text = "Subscription already exists for this worker/pattern/method combination";
    let wanted = json!({ "ok": false, "error": text, "code": "DUPLICATE_ENTRY" });
    let twice = events.post("/subscriptions/subscribe", &body).await.expect(409);
    assert_eq!(twice.json(), wanted);
    // Also while it is not active, but not when it has ended.
    events.post("/subscriptions/unsubscribe", &json!({ "subscriptionId": id })).await.expect(200);
    events.post("/subscriptions/subscribe", &body).await.expect(409);
    events.subscribe_with("a.*", json!({ "workerId": "x" })).await;
    events.subscribe_with("a.**", json!({})).await;
    let other = events.subscribe_with("a.*", json!({ "rpcMethod": "other" })).await;
    // Becoming one by a change of name is refused, too.
    let target = format!("/subscriptions/{other}");
    let body = json!({ "rpcMethod": "handle" }).to_string();
    let renamed = events.server.ask("PUT", &target, &[JSON], body.as_bytes()).await.expect(409);
    assert_eq!(renamed.json(), wanted);
    assert_eq!(shown(&events, &other).await["rpcMethod"], "other");
    events.server.delete(&format!("/subscriptions/{id}")).await.expect(200);
    events.server.ask("PUT", &target, &[JSON], body.as_bytes()).await.expect(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_that_ask_at_once_for_the_same_one_gets_it() {
    let events = Deliveries::start().await;
    let body = json!({ "workerId": "w", "pattern": "a", "rpcMethod": "m" });
    let mut asking = JoinSet::new();
    for _ in 0..16 {
        let (address, body) = (events.server.address, body.to_string());
        asking.spawn(async move {
            let mut connection = Connection::open(address).await;
            connection.ask("POST", "/subscriptions/subscribe", &[JSON], body.as_bytes()).await
        });
    }
    let mut made = 0;
    for answer in asking.join_all().await {
        made += u32::from(answer.status() == 200);
        assert!([200, 409].contains(&answer.status()), "{answer}");
    }
    assert_eq!((made, listed(&events, "").await.len()), (1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn e17_e18_nothing_matches_while_a_subscription_is_not_active() {
    let mut events = Deliveries::start().await;
    let id = events.subscribe("webhook.*").await;
    for shard in [json!(null), json!("webhook")] {
        let body = json!({ "subscriptionId": id, "shard": shard });
        let off = events.post("/subscriptions/unsubscribe", &body).await.expect(200).json();
        assert_eq!((&off["ok"], &off["active"]), (&json!(true), &json!(false)));
        assert_eq!(shown(&events, &id).await["active"], false);
        events.ingest(json!({ "type": "webhook.missed" })).await;
        let on = events.post("/subscriptions/reactivate", &body).await.expect(200).json();
        assert_eq!((&on["ok"], &on["active"]), (&json!(true), &json!(true)));
        events.ingest(json!({ "type": "webhook.seen" })).await;
        let call = events.called().await;
        assert_eq!(call.json()["type"], "webhook.seen");
        call.ok();
    }
    // Doing it twice is doing it once.
    let body = json!({ "subscriptionId": id });
    events.post("/subscriptions/reactivate", &body).await.expect(200);
    for shard in ["default", "acme:webhook", "beta:webhook:0", ":webhook", ""] {
        let body = json!({ "subscriptionId": id, "shard": shard });
        for target in ["/subscriptions/unsubscribe", "/subscriptions/reactivate"] {
            let answer = events.post(target, &body).await.expect(404);
            assert_eq!(answer.json()["error"], "Subscription not found");
        }
    }
    assert_eq!(shown(&events, &id).await["active"], true);
    let body = json!({ "subscriptionId": "01ARZ3NDEKTSV4RRFFQ69G5FAV" });
    events.post("/subscriptions/unsubscribe", &body).await.expect(404);
    events.quiet("what came while it was not active is not delivered").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn e19_filters_combine_and_pages_are_cut_once() {
    let events = Deliveries::start().await;
    let mut ids = Vec::new();
    for (worker, pattern) in [
        ("a", "webhook.github.*"),
        ("b", "webhook.github.*"),
        ("a", "webhook.stripe.*"),
        ("a", "web_hook.x"),
        ("a", "**"),
    ] {
        ids.push(events.subscribe_with(pattern, json!({ "workerId": worker })).await);
        events.clock.advance(1);
    }
    events
        .post("/subscriptions/unsubscribe", &json!({ "subscriptionId": ids[0] }))
        .await
        .expect(200);
    let check = async |query: &str, wanted: &[usize]| {
        let wanted: Vec<&str> = wanted.iter().map(|index| ids[*index].as_str()).collect();
        assert_eq!(listed(&events, query).await, wanted, "{query}");
    };
    // Newest first.
    check("", &[4, 3, 2, 1, 0]).await;
    check("?active=true", &[4, 3, 2, 1]).await;
    check("?active=false", &[0]).await;
    check("?workerId=a", &[4, 3, 2, 0]).await;
    check("?workerId=A", &[]).await;
    check("?patternPrefix=webhook.github", &[1, 0]).await;
    check("?patternPrefix=webhook.git", &[1, 0]).await;
    check("?patternPrefix=web_", &[3]).await;
    check("?patternPrefix=%25", &[]).await;
    check("?shard=webhook", &[2, 1, 0]).await;
    check("?shard=default&workerId=a", &[4, 3]).await;
    check("?shard=acme:webhook", &[]).await;
    check("?shard=webhook&active=true&workerId=a&patternPrefix=webhook", &[2]).await;
    check("?limit=2", &[4, 3]).await;
    check("?limit=2&offset=2", &[2, 1]).await;
    check("?offset=4", &[0]).await;
    check("?offset=5", &[]).await;
    check("?shard=webhook&limit=1&offset=1", &[1]).await;
    for wrong in [
        "active=1",
        "active=",
        "limit=0",
        "limit=-1",
        "limit=x",
        "limit=1.5",
        "limit=1001",
        "limit=",
        "offset=-1",
        "offset=x",
        "offset=",
        "limit=1&limit=2",
    ] {
        let answer = events.server.get(&format!("/subscriptions/list?{wrong}")).await.expect(400);
        assert_eq!(answer.json()["code"], "INVALID_QUERY", "{wrong}");
    }
    let answer = events.server.get("/subscriptions/list").await.json();
    assert_eq!(answer["namespace"], Value::Null);
    assert!(answer.get("shard").is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn e21_some_settings_can_be_changed_and_no_others() {
    let events = Deliveries::start().await;
    let id = events.subscribe("a.*").await;
    let target = format!("/subscriptions/{id}");
    let before = shown(&events, &id).await;
    events.clock.advance(7);
    let body = json!({ "maxRetries": 7, "timeoutMs": 1_500, "rpcMethod": "other" });
    let answer = events.server.ask("PUT", &target, &[JSON], body.to_string().as_bytes()).await;
    let answer = answer.expect(200).json();
    let mut wanted = before.clone();
    wanted["maxRetries"] = json!(7);
    wanted["timeoutMs"] = json!(1_500);
    wanted["rpcMethod"] = json!("other");
    wanted["updatedAt"] = json!(START_MS + 7);
    assert_eq!(answer, json!({ "ok": true, "subscription": wanted }));
    assert_eq!(shown(&events, &id).await, wanted);
    let one = json!({ "maxRetries": 100.0 }).to_string();
    let answer = events.server.ask("PUT", &target, &[JSON], one.as_bytes()).await.expect(200);
    assert_eq!(answer.json()["subscription"]["maxRetries"], 100);
    assert_eq!(answer.json()["subscription"]["rpcMethod"], "other");
    let unknown = "/subscriptions/01ARZ3NDEKTSV4RRFFQ69G5FAV";
    let answer = events.server.ask("PUT", unknown, &[JSON], one.as_bytes()).await.expect(404);
    assert_eq!(answer.json()["error"], "Subscription not found");
}

#[tokio::test(flavor = "multi_thread")]
async fn e22_what_is_deleted_is_gone_with_everything_that_belongs_to_it() {
    let mut events = Deliveries::start().await;
    let id = events.subscribe_with("a", json!({ "maxRetries": 1 })).await;
    for status in [200, 500, 500] {
        events.ingest(json!({ "type": "a" })).await;
        events.called().await.answer(status, "");
    }
    let all = async || (events.status(&id).await["stats"]["totalAttempts"] == 3).then_some(());
    eventually("three attempts", all).await;
    events.ingest(json!({ "type": "a" })).await;
    let hanging = events.called().await;
    let letter = events.dead_letters(&id).await.remove(0);
    let target = format!("/subscriptions/{id}");
    let answer = events.server.delete(&target).await.expect(200).json();
    let deleted = json!({ "deliveries": 4, "logs": 3, "deadLetters": 2 });
    assert_eq!(answer, json!({ "ok": true, "deleted": deleted }));
    events.server.delete(&target).await.expect(404);
    events.server.get(&target).await.expect(404);
    assert_eq!(events.dead_letters(&id).await, Vec::<Value>::new());
    assert_eq!(events.status(&id).await["subscription"], Value::Null);
    let retry = format!("{target}/dead-letters/{}/retry", letter["id"].as_str().unwrap());
    events.post(&retry, &json!({})).await.expect(404);
    hanging.answer(500, "");
    events.clock.advance(10_000);
    events.ingest(json!({ "type": "a" })).await;
    events.quiet("nobody is left to be called").await;
    assert_eq!(events.logs(&json!({ "id": letter["deliveryId"] })).await, Vec::<Value>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn e23_statistics_are_there_also_for_nobody() {
    let mut events = Deliveries::start().await;
    let nothing = json!({
        "pendingDeliveries": 0, "failedDeliveries": 0, "deadLetters": 0, "successRate": 0.0,
        "totalDelivered": 0, "totalAttempts": 0, "waiting": 0,
    });
    for id in ["01ARZ3NDEKTSV4RRFFQ69G5FAV", "01HQXYZ123456789ABCDEF", "no-such"] {
        let answer = events.status(id).await;
        assert_eq!(answer, json!({ "subscription": null, "stats": nothing }));
    }
    let id = events.subscribe("a").await;
    assert_eq!(events.status(&id).await["stats"], nothing);
    events.ingest(json!({ "type": "a" })).await;
    for attempt in 1..=2 {
        events.called().await.answer(500, "");
        events.to_next_attempt(&id, attempt).await;
    }
    events.called().await.ok();
    events.until_status(&id, "delivered").await;
    let stats = events.status(&id).await["stats"].clone();
    assert_eq!((&stats["totalDelivered"], &stats["totalAttempts"]), (&json!(1), &json!(3)));
    let rate = stats["successRate"].as_f64().unwrap();
    assert!((rate - 1.0 / 3.0).abs() < 1e-12, "{rate}");
    assert_eq!((&stats["failedDeliveries"], &stats["deadLetters"]), (&json!(0), &json!(0)));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_there_is_said_in_the_words_of_this_face() {
    let events = Deliveries::start().await;
    for path in [
        "/subscriptions",
        "/subscriptions/",
        "/subscriptions/nope",
        "/subscriptions/list/x",
        "/subscriptions/01A/x",
        "/subscriptions/status",
        "/subscriptions/deliveries/x",
        "/subscriptions/01A/dead-letters/01B",
    ] {
        let answer = events.server.get(path).await.expect(404).json();
        assert_eq!(
            answer,
            json!({ "ok": false, "error": "Unknown subscription endpoint",
                    "code": "UNKNOWN_ENDPOINT", "path": path })
        );
    }
    for (method, path, allow) in [
        ("GET", "/ingest", "POST, OPTIONS"),
        ("PUT", "/e", "POST, OPTIONS"),
        ("GET", "/subscriptions/subscribe", "POST, OPTIONS"),
        ("POST", "/subscriptions/list", "GET, HEAD, OPTIONS"),
        ("POST", "/subscriptions/01A", "GET, HEAD, PUT, DELETE, OPTIONS"),
        ("GET", "/subscriptions/01A/dead-letters/01B/retry", "POST, OPTIONS"),
        ("DELETE", "/subscriptions/deliveries/01A/logs", "GET, HEAD, OPTIONS"),
        ("PATCH", "/subscriptions/01A/explain", "GET, HEAD, OPTIONS"),
    ] {
        let answer = events.server.ask(method, path, &[], b"").await.expect(405);
        assert_eq!(answer.need("allow"), allow, "{method} {path}");
        let body = answer.json();
        assert_eq!((&body["ok"], &body["code"]), (&json!(false), &json!("METHOD_NOT_ALLOWED")));
        assert!(body["error"].is_string());
    }
    events.server.head("/subscriptions/list").await.expect(200);
    let answer = events.server.get("/ingest/x").await.expect(404).json();
    assert_eq!((&answer["ok"], &answer["code"]), (&json!(false), &json!("RESERVED_PATH")));
}
