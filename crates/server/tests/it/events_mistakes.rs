//! What is misspelt, or cannot be had, is said: in events, and by those who operate.

use serde_json::{Value, json};

use crate::harness::*;

/// The sentence of a refusal in the shape of the events face.
fn sentence(answer: Answer, code: &str) -> String {
    let body = answer.expect(400).json();
    assert_eq!((&body["ok"], &body["code"]), (&json!(false), &json!(code)), "{body}");
    body["error"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_field_that_is_not_known_is_named_with_the_one_that_comes_nearest() {
    let events = Deliveries::start().await;
    let id = events.subscribe("a").await;
    let one = format!("/subscriptions/{id}");
    let good = json!({ "workerId": "w", "pattern": "b", "rpcMethod": "m" });
    let of_id = json!({ "subscriptionId": id });
    for (method, target, body, wrong, near) in [
        ("POST", "/subscriptions/subscribe", &good, "max_retries", "maxRetries"),
        ("POST", "/subscriptions/subscribe", &good, "workerID2", "workerId"),
        ("POST", "/subscriptions/unsubscribe", &of_id, "shards", "shard"),
        ("POST", "/subscriptions/reactivate", &of_id, "subscriptionID", "subscriptionId"),
        ("PUT", &one, &json!({}), "timeoutms", "timeoutMs"),
        ("POST", "/ingest", &json!({ "events": [] }), "batch_id", "batchId"),
        ("POST", "/e", &json!({ "events": [] }), "batchID", "batchId"),
    ] {
        let mut body = body.clone();
        body[wrong] = json!(1);
        let body = body.to_string();
        let answer = events.server.ask(method, target, &[JSON], body.as_bytes()).await;
        let code = if target.len() < 8 { "INVALID_BATCH" } else { "INVALID_FIELD" };
        let wanted = format!("unknown field `{wrong}`; did you mean `{near}`?");
        assert_eq!(sentence(answer, code), wanted, "{target}");
    }
    // What is like nothing is told what there is.
    let body = json!({ "maxRetries": 1, "color": "red" }).to_string();
    let answer = events.server.ask("PUT", &one, &[JSON], body.as_bytes()).await;
    let text = sentence(answer, "INVALID_FIELD");
    assert!(text.starts_with("unknown field `color`; known are `maxRetries`"), "{text}");
    // Nothing of it was done.
    let shown = events.server.get("/subscriptions/list").await.expect(200).json();
    let shown = shown["subscriptions"].as_array().unwrap().clone();
    assert_eq!((shown.len(), &shown[0]["maxRetries"]), (1, &json!(5)));
    // An event itself has whatever fields it has.
    events.ingest(json!({ "type": "x", "batch_id": 1, "anything": {} })).await;
    let batch = json!({ "events": [{ "type": "x", "batch_id": 1, "evnts": [] }] });
    events.post("/ingest", &batch).await.expect(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_parameter_that_is_not_known_is_named_with_the_one_that_comes_nearest() {
    let events = Deliveries::start().await;
    let id = events.subscribe("a").await;
    for (target, wrong, near) in [
        ("/subscriptions/list".to_owned(), "worker_id", Some("workerId")),
        ("/subscriptions/list".to_owned(), "limt", Some("limit")),
        ("/subscriptions/match".to_owned(), "eventTyp", Some("eventType")),
        (format!("/subscriptions/{id}/deliveries"), "aftr", Some("after")),
        (format!("/subscriptions/{id}/dead-letters"), "limits", Some("limit")),
        (format!("/subscriptions/{id}/explain"), "event_id", Some("eventId")),
        (format!("/subscriptions/{id}"), "limit", None),
        (format!("/subscriptions/status/{id}"), "verbose", None),
    ] {
        let answer = events.server.get(&format!("{target}?{wrong}=1")).await;
        let text = sentence(answer, "INVALID_QUERY");
        let wanted = match near {
            Some(near) => format!("unknown parameter `{wrong}`; did you mean `{near}`?"),
            None => format!("unknown parameter `{wrong}`; none is taken here"),
        };
        assert_eq!(text, wanted, "{target}");
    }
    let answer = events.post("/ingest?dryRun=true", &json!({ "type": "a" })).await;
    assert!(sentence(answer, "INVALID_QUERY").contains("`dryRun`"));
    assert_eq!(events.deliveries(&id).await, Vec::<Value>::new(), "nothing was taken in");
}

#[tokio::test(flavor = "multi_thread")]
async fn operators_are_told_of_names_that_are_not_known() {
    let server = Setup::default().start().await;
    for (target, wrong, near) in [
        ("/admin/v1/deliveries", "status", "state"),
        ("/admin/v1/deliveries", "hooks", "hook"),
        ("/admin/v1/streams", "prefx", "prefix"),
        ("/admin/v1/keys", "afetr", "after"),
    ] {
        let answer = server.get(&format!("{target}?{wrong}=1")).await.expect(400);
        assert_eq!(answer.code(), "INVALID_QUERY");
        let wanted = format!("unknown parameter `{wrong}`; did you mean `{near}`?");
        assert_eq!(answer.json()["error"]["message"], wanted);
    }
    let key = json!({ "tenant": "acme", "roles": ["user"], "permisions": ["read"] });
    let answer = server.post("/admin/v1/keys", &key).await.expect(400);
    let wanted = "unknown field `permisions`; did you mean `permissions`?";
    assert_eq!(answer.json()["error"]["message"], wanted);
    let answer = server.post("/admin/v1/signing-keys/rotate", &json!({ "overlp": "1h" })).await;
    let wanted = "unknown field `overlp`; did you mean `overlap`?";
    assert_eq!(answer.expect(400).json()["error"]["message"], wanted);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_field_that_cannot_be_changed_is_refused_with_what_to_do_instead() {
    let events = Deliveries::start().await;
    let id = events.subscribe("a").await;
    let target = format!("/subscriptions/{id}");
    for (name, value, instead) in [
        ("active", json!(false), "/subscriptions/unsubscribe"),
        ("deliver", json!("all"), "where a new subscription begins"),
        ("id", json!("01A"), "given once"),
        ("createdAt", json!(1), "when the subscription was made"),
        ("shard", json!("default"), "follows from the pattern"),
    ] {
        let body = json!({ name: value, "maxRetries": 1 }).to_string();
        let answer = events.server.ask("PUT", &target, &[JSON], body.as_bytes()).await;
        let text = sentence(answer, "INVALID_FIELD");
        let begins = format!("Invalid field: {name} cannot be changed here: ");
        assert!(text.starts_with(&begins) && text.contains(instead), "{text}");
    }
    let shown = events.server.get(&target).await.expect(200).json();
    assert_eq!(shown["subscription"]["maxRetries"], 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn e28_a_binding_that_is_not_there_is_taken_with_a_warning() {
    let mut events = Deliveries::start().await;
    let answer = events.server.subscribed("a", json!({ "workerBinding": "BILLING" })).await;
    let warnings = answer["warnings"].as_array().unwrap();
    assert_eq!(warnings.len(), 1);
    let text = warnings[0].as_str().unwrap();
    assert!(text.contains("no binding `BILLING`") && text.contains("worker `w`"), "{text}");
    assert!(text.contains("/w/handle") && text.contains("--binding BILLING=URL"), "{text}");
    // It is called by HTTP.
    events.ingest(json!({ "type": "a" })).await;
    let call = events.called().await;
    assert!(call.line.starts_with("POST /w/handle"), "{}", call.line);
    call.ok();
    let known = json!({ "workerId": "c", "workerBinding": "CANARY" });
    assert!(events.server.subscribed("a", known).await.get("warnings").is_none());
    assert!(events.server.subscribed("b", json!({})).await.get("warnings").is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_have_the_newest_first_and_an_attempt_log_the_oldest() {
    let mut events = Deliveries::start().await;
    let first = events.subscribe_with("a", json!({ "workerId": "first", "maxRetries": 2 })).await;
    events.clock.advance(1);
    let second = events.subscribe_with("a", json!({ "workerId": "second" })).await;
    let mut ids = Vec::new();
    for _ in 0..3 {
        events.clock.advance(1);
        ids.push(events.ingest(json!({ "type": "a" })).await);
        for _ in 0..2 {
            events.called().await.ok();
        }
    }
    events.until_status(&first, "delivered").await;
    events.until_status(&second, "delivered").await;
    let newest_first: Vec<&str> = ids.iter().rev().map(String::as_str).collect();
    let names = |answer: &Value, list: &str, name: &str| -> Vec<String> {
        let items = answer[list].as_array().unwrap().iter();
        items.map(|it| it[name].as_str().unwrap().to_owned()).collect()
    };
    // Page by page, too.
    let target = format!("/subscriptions/{first}/deliveries?limit=2");
    let page = events.server.get(&target).await.expect(200).json();
    assert_eq!(names(&page, "deliveries", "eventId"), newest_first[..2]);
    let next = page["next"].as_str().unwrap();
    let page = events.server.get(&format!("{target}&after={next}")).await.expect(200).json();
    assert_eq!(names(&page, "deliveries", "eventId"), newest_first[2..]);
    assert_eq!(page.get("next"), None);
    let (mut after, mut found) = (String::new(), Vec::new());
    loop {
        let target = format!("/admin/v1/deliveries?limit=2{after}");
        let page = events.server.get(&target).await.expect(200).json();
        let hooks = names(&page, "deliveries", "hook");
        found.extend(hooks.into_iter().zip(names(&page, "deliveries", "event_id")));
        let Some(next) = page["next"].as_str() else { break };
        after = format!("&after={next}");
    }
    let wanted: Vec<(String, String)> = [&second, &first]
        .into_iter()
        .flat_map(|hook| newest_first.iter().map(|id| (hook.clone(), (*id).to_owned())))
        .collect();
    assert_eq!(found, wanted);
    // Attempts are told in the order in which they were made.
    events.ingest(json!({ "type": "a" })).await;
    let mut calls = [events.called().await, events.called().await];
    calls.sort_by_key(|call| call.line.clone());
    let [to_first, to_second] = calls;
    to_second.ok();
    to_first.answer(500, "");
    let waits = |it: &Value| it["attempts"] == 1 && !it["nextAttemptAt"].is_null();
    let delivery = events.until(&first, waits).await;
    events.advance_to(delivery["nextAttemptAt"].as_u64().unwrap());
    events.called().await.ok();
    let delivery = events.until(&first, |it| it["attempts"] == 2).await;
    let logs = events.logs(&delivery).await;
    let numbers: Vec<u64> = logs.iter().map(|it| it["attemptNumber"].as_u64().unwrap()).collect();
    assert_eq!(numbers, [1, 2]);
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_are_listed_with_the_newest_first() {
    let clock = HandClock::new();
    let server = Setup::on(&clock).start().await;
    let mut ids = Vec::new();
    for _ in 0..3 {
        let body = json!({ "tenant": "default", "roles": ["user"] });
        let made = server.post("/admin/v1/keys", &body).await.expect(201).json();
        ids.insert(0, made["id"].as_str().unwrap().to_owned());
        clock.advance(1);
    }
    let (mut after, mut found) = (String::new(), Vec::new());
    loop {
        let page = server.get(&format!("/admin/v1/keys?limit=1{after}")).await.expect(200).json();
        found.push(page["keys"][0]["id"].as_str().unwrap().to_owned());
        let Some(next) = page["next"].as_str() else { break };
        after = format!("&after={next}");
    }
    assert_eq!(found, ids);
    server.get("/admin/v1/keys?after=x").await.expect(400);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn deliveries_are_found_by_state_and_time() {
    let mut events = Deliveries::start().await;
    let id = events.subscribe_with("*", json!({ "maxRetries": 1 })).await;
    let other = events.subscribe_with("nothing", json!({})).await;
    let begin = events.now();
    for (kind, status) in [("good", 200), ("bad", 500), ("worse", 500)] {
        events.ingest(json!({ "type": kind })).await;
        events.called().await.answer(status, "");
        let wanted = if status == 200 { "delivered" } else { "dead" };
        events.until(&id, |it| it["eventType"] == kind && it["status"] == wanted).await;
        events.clock.advance(1_000);
    }
    let find = async |query: &str| -> Vec<String> {
        let answer = events.server.get(&format!("/admin/v1/deliveries?{query}")).await;
        let answer = answer.expect(200).json();
        let all = answer["deliveries"].as_array().unwrap().clone();
        all.iter().map(|it| it["event_type"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(find("").await, ["worse", "bad", "good"]);
    assert_eq!(find("state=dead").await, ["worse", "bad"]);
    assert_eq!(find(&format!("state=delivered&hook={id}")).await, ["good"]);
    assert_eq!(find(&format!("state=dead&hook={other}")).await, [""; 0]);
    assert_eq!(find("state=pending").await, [""; 0]);
    assert_eq!(find(&format!("from={}", begin + 1_000)).await, ["worse", "bad"]);
    assert_eq!(find(&format!("from={}&to={}", begin + 1, begin + 2_000)).await, ["bad"]);
    assert_eq!(find("to=2025-06-01T00:00:01Z").await, ["good"]);
    for wrong in ["state=broken", "from=yesterday", "to=", "state="] {
        let answer = events.server.get(&format!("/admin/v1/deliveries?{wrong}")).await.expect(400);
        assert_eq!(answer.code(), "INVALID_QUERY", "{wrong}");
    }
}
