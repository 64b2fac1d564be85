//! Deliveries of triggers: what is sent, in which order, how often, and what ends as a dead letter.

use serde_json::{Value, json};

use crate::harness::*;

#[tokio::test(flavor = "multi_thread")]
async fn pay_1_to_4_a_change_is_sent_with_its_documents_a_token_and_a_signature() {
    let mut triggers = Triggers::start().await;
    triggers.enabled("t", json!({ "headers": { "X-Team": "blue" } })).await;
    triggers.server.put_doc("orders/o1", json!({ "status": "open" })).await;
    let call = triggers.called().await;
    assert!(call.line.starts_with("POST /webhook/hook "), "{}", call.line);
    let second = (START_MS / 1_000).to_string();
    let body = call.json();
    let document = json!({
        "id": "o1", "collection": "orders", "version": 1, "createdAt": START_MS,
        "updatedAt": START_MS, "status": "open",
    });
    let mut expected = json!({
        "triggerId": "t", "tenant": "default", "event": "create", "collection": "orders",
        "id": "o1", "docKey": "o1", "path": "orders/o1", "lsn": format!("{second}:0"), "seq": 1,
        "after": document, "ts": START_MS / 1_000, "triggerVersion": 1,
    });
    let token = body["systemToken"].as_str().unwrap().to_owned();
    assert_eq!(token.split('.').count(), 3, "C-3: a token that is signed");
    for name in ["systemToken", "preIssuedToken"] {
        expected[name] = token.clone().into();
    }
    assert_eq!(body, expected);
    for (name, value) in [
        ("content-type", "application/json"),
        ("user-agent", "Syntrix-Trigger-Service/1.0"),
        ("x-syntrix-idempotency-key", "default:t:1"),
        ("x-syntrix-attempt", "1"),
        ("x-syntrix-timestamp", second.as_str()),
        ("x-team", "blue"),
    ] {
        assert_eq!(call.get(name), value, "{name}");
    }
    let has = |name: &str| call.headers.iter().any(|(known, _)| known.eq_ignore_ascii_case(name));
    assert!(!has("authorization"), "PAY-4");
    assert_eq!(signatures(&call), (second.clone(), vec![tag(SECRET, &second, &call.body)]));
    call.ok();
    triggers.server.doc("PATCH", "orders/o1", &json!({ "doc": { "status": "paid" } })).await;
    let update = triggers.delivered().await;
    assert_eq!((&update["event"], &update["seq"]), (&json!("update"), &json!(2)));
    assert_eq!(update["before"], document);
    assert_eq!(
        (&update["after"]["status"], &update["after"]["version"]),
        (&json!("paid"), &json!(2))
    );
    triggers.server.doc("DELETE", "orders/o1", &json!({})).await.expect(204);
    let delete = triggers.delivered().await;
    assert_eq!((&delete["event"], &delete["before"]["status"]), (&json!("delete"), &json!("paid")));
    assert!(delete.get("after").is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn mat_1_only_what_meets_every_check_is_delivered() {
    let mut triggers = Triggers::start().await;
    let condition = "event.type == 'create' || 'status' in event.changed";
    let more = json!({
        "collection": "shops/*/orders", "events": ["create", "update"],
        "filters": ["shops/*/orders/o-*"], "condition": condition,
    });
    triggers.enabled("t", more).await;
    for other in ["shops/s1", "orders/o-1", "shops/s1/orders/x-1", "shops/s1/orders/o-1/lines/o-1"]
    {
        triggers.server.put_doc(other, json!({})).await;
    }
    triggers.server.put_doc("shops/s1/orders/o-1", json!({ "status": "open" })).await;
    assert_eq!(triggers.delivered().await["path"], "shops/s1/orders/o-1");
    triggers.server.put_doc("shops/s1/orders/o-1", json!({ "status": "open", "n": 1 })).await;
    triggers.server.doc("DELETE", "shops/s1/orders/o-1", &json!({})).await.expect(204);
    triggers.only("shops/s2/orders/o-2").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn mat_4_a_condition_that_comes_to_nothing_is_no_match_and_is_counted() {
    let mut triggers = Triggers::start().await;
    triggers.enabled("t", json!({ "condition": "event.document.data.age > 18" })).await;
    triggers.server.put_doc("orders/o1", json!({ "age": 20 })).await;
    let status = triggers.until("t", |it| !it["evalErrors"].is_null()).await;
    assert_eq!(status["evalErrors"]["count"], 1);
    let last = status["evalErrors"]["last"].as_str().unwrap();
    assert!(last.contains("there is no `data`"), "{last}");
    triggers.server.put_doc("orders/o2", json!({ "data": { "age": 20 } })).await;
    assert_eq!(triggers.delivered().await["id"], "o2");
}

#[tokio::test(flavor = "multi_thread")]
async fn mat_5_each_trigger_gets_a_delivery_of_its_own() {
    let mut triggers = Triggers::start().await;
    triggers.enabled("a", json!({})).await;
    triggers.enabled("b", json!({})).await;
    triggers.server.put_doc("orders/o1", json!({})).await;
    let mut called = [
        triggers.delivered().await["triggerId"].clone(),
        triggers.delivered().await["triggerId"].clone(),
    ];
    called.sort_by_key(Value::to_string);
    assert_eq!(called, ["a", "b"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn arc_9_a_failing_head_blocks_its_own_lane_and_no_other() {
    let mut triggers = Triggers::start().await;
    triggers.enabled("t", json!({ "retryPolicy": { "initialBackoff": "100ms" } })).await;
    triggers.server.put_doc("orders/o1", json!({ "n": 1 })).await;
    triggers.called().await.answer(500, "");
    triggers.server.put_doc("orders/o1", json!({ "n": 2 })).await;
    triggers.server.put_doc("orders/o1", json!({ "n": 3 })).await;
    triggers.server.put_doc("orders/o2", json!({ "n": 1 })).await;
    assert_eq!(triggers.delivered().await["id"], "o2", "another document does not wait");
    triggers.to_next_attempt("t", 2, 100).await;
    let call = triggers.called().await;
    assert_eq!((call.json()["after"]["n"].clone(), call.get("x-syntrix-attempt")), (json!(1), "2"));
    call.answer(500, "");
    triggers.to_next_attempt("t", 3, 200).await;
    let mut order = Vec::new();
    for _ in 0..3 {
        order.push(triggers.delivered().await["after"]["n"].clone());
    }
    assert_eq!(order, [1, 2, 3], "the order holds through retries");
}

#[tokio::test(flavor = "multi_thread")]
async fn arc_9_one_trigger_that_fails_does_not_block_another_on_the_same_document() {
    let mut triggers = Triggers::start().await;
    triggers.enabled("a", json!({})).await;
    let other = Sink::polite().await;
    triggers.enabled("b", json!({ "url": format!("{}/b", other.url()) })).await;
    let mut other = other;
    for number in 1..=3 {
        triggers.server.put_doc("orders/o1", json!({ "n": number })).await;
    }
    triggers.called().await.answer(500, "");
    for number in 1..=3 {
        assert_eq!(other.next().await.json()["after"]["n"], number);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn del_3_an_endpoint_that_asks_for_patience_gets_it() {
    let mut triggers = Triggers::start().await;
    triggers.enabled("t", json!({})).await;
    triggers.server.put_doc("orders/o1", json!({})).await;
    let call = triggers.called().await;
    let key = call.get("x-syntrix-idempotency-key").to_owned();
    call.answer_with(429, &[("retry-after", "7")], "");
    triggers.until("t", |it| it["retrying"] == 1).await;
    triggers.clock.advance(6_999);
    triggers.only("orders/o2").await;
    triggers.clock.advance(1);
    let call = triggers.called().await;
    assert_eq!(call.get("x-syntrix-attempt"), "2");
    assert_eq!(call.get("x-syntrix-idempotency-key"), key, "PAY-2");
    let (time, tags) = signatures(&call);
    assert_eq!(time, ((START_MS + 7_000) / 1_000).to_string(), "SEC-2: signed anew");
    assert_eq!(tags, [tag(SECRET, &time, &call.body)]);
    call.ok();
    triggers.until("t", |it| it["delivered"] == 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn del_2_status_rules_say_what_an_answer_means() {
    let mut triggers = Triggers::start().await;
    let rules = json!([
        { "codes": ["404"], "action": "drop" },
        { "codes": ["409"], "action": "retry" },
    ]);
    let more = json!({ "retryPolicy": { "statusRules": rules, "initialBackoff": "10ms" } });
    triggers.enabled("t", more).await;
    triggers.server.put_doc("orders/o1", json!({})).await;
    triggers.called().await.answer(404, "");
    triggers.until("t", |it| it["dropped"] == 1).await;
    triggers.server.put_doc("orders/o1", json!({})).await;
    triggers.called().await.answer(409, "");
    triggers.to_next_attempt("t", 2, 10).await;
    triggers.called().await.answer(400, "no");
    let letters = triggers.letters(1).await;
    assert_eq!(letters[0]["reason"], "FATAL_STATUS");
    assert_eq!(letters[0]["attempts"], 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn pay_5_a_redirect_is_not_followed() {
    let mut triggers = Triggers::start().await;
    triggers.enabled("t", json!({})).await;
    triggers.server.put_doc("orders/o1", json!({})).await;
    let elsewhere = format!("{}/other", triggers.sink.url());
    triggers.called().await.answer_with(302, &[("location", &elsewhere)], "");
    assert_eq!(triggers.letters(1).await[0]["reason"], "REDIRECT_REFUSED");
    triggers.only("orders/o2").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lim_4_after_the_last_attempt_it_is_a_dead_letter_that_says_what_happened() {
    let mut triggers = Triggers::start().await;
    let policy = json!({ "maxAttempts": 3, "initialBackoff": "1s", "maxBackoff": "1s" });
    triggers.enabled("t", json!({ "retryPolicy": policy })).await;
    triggers.server.put_doc("orders/o1", json!({ "n": 1 })).await;
    for (attempt, status) in [(1, 500), (2, 502), (3, 503)] {
        let call = triggers.called().await;
        assert_eq!(call.get("x-syntrix-attempt"), attempt.to_string());
        call.answer(status, "broken");
        if attempt < 3 {
            triggers.to_next_attempt("t", attempt, 1_000).await;
        }
    }
    let letter = triggers.letters(1).await.remove(0);
    let id = letter["dlqId"].as_str().unwrap();
    assert_eq!((&letter["reason"], &letter["face"]), (&json!("EXHAUSTED"), &json!("triggers")));
    assert_eq!((&letter["triggerId"], &letter["triggerVersion"]), (&json!("t"), &json!(1)));
    let shown = triggers.server.get(&format!("/admin/v1/dlq/{id}")).await.expect(200).json();
    for (name, value) in [
        ("event", json!("create")),
        ("collection", json!("orders")),
        ("docKey", json!("o1")),
        ("seq", json!(1)),
        ("idempotencyKey", json!("default:t:1")),
        ("attempts", json!(3)),
    ] {
        assert_eq!(shown[name], value, "DLQ-2: {name}");
    }
    assert_eq!(shown["lastError"]["status"], 503);
    assert_eq!(shown["lastError"]["body"], "broken");
    assert!(!shown.to_string().contains("systemToken"), "no token is kept: {shown}");
    assert_eq!(triggers.dead_letters("?triggerId=t").await.len(), 1);
    let unknown = triggers.server.get("/admin/v1/dlq?triggerId=other").await.expect(404);
    assert_eq!(unknown.code(), "TRIGGER_NOT_FOUND");
    assert!(unknown.text().contains("no trigger \\\"other\\\""), "{unknown}");
    triggers.server.get("/admin/v1/dlq?triggerId=t&hook=u").await.expect(400);
}

#[tokio::test(flavor = "multi_thread")]
async fn poi_1_three_quick_failures_of_one_kind_are_enough() {
    let mut triggers = Triggers::start().await;
    let policy = json!({ "initialBackoff": "1s", "maxBackoff": "1s" });
    triggers.enabled("t", json!({ "retryPolicy": policy })).await;
    triggers.server.put_doc("orders/o1", json!({})).await;
    for attempt in 1..=3 {
        triggers.called().await.answer(500, "");
        if attempt < 3 {
            triggers.to_next_attempt("t", attempt, 1_000).await;
        }
    }
    let letter = triggers.letters(1).await.remove(0);
    assert_eq!((&letter["reason"], &letter["attempts"]), (&json!("POISON"), &json!(3)));
    let advice = letter["advice"].as_str().unwrap();
    assert!(advice.contains("nobody listens") && advice.contains("--poison 0"), "{advice}");
    triggers.only("orders/o2").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn poi_1_a_server_that_has_it_off_has_it_off_for_triggers_from_before() {
    let mut triggers = Triggers::start().await;
    let policy = json!({ "initialBackoff": "1s", "maxBackoff": "1s" });
    triggers.enabled("t", json!({ "retryPolicy": policy })).await;
    triggers.setup.poison = None;
    let mut triggers = triggers.restart().await;
    triggers.server.put_doc("orders/o1", json!({})).await;
    for attempt in 1..=4 {
        triggers.called().await.answer(500, "");
        triggers.to_next_attempt("t", attempt, 1_000).await;
    }
    assert_eq!(triggers.called().await.get("x-syntrix-attempt"), "5");
}

#[tokio::test(flavor = "multi_thread")]
async fn lim_1_what_is_too_large_is_not_sent() {
    let mut triggers = Triggers::start().await;
    triggers.enabled("t", json!({})).await;
    triggers.server.put_doc("orders/o1", json!({ "text": "x".repeat(262_144) })).await;
    let letter = triggers.letters(1).await.remove(0);
    assert_eq!(letter["reason"], "PAYLOAD_TOO_LARGE");
    triggers.only("orders/o2").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mask_says_which_fields_are_sent() {
    let mut triggers = Triggers::start().await;
    let mask = json!({ "include": ["status", "who.name"], "rename": { "who.name": "name" } });
    triggers.enabled("t", json!({ "transform": mask })).await;
    let document = json!({ "status": "open", "who": { "name": "Ada", "mail": "a@b" }, "x": 1 });
    triggers.server.put_doc("orders/o1", document).await;
    let after = triggers.delivered().await["after"].clone();
    assert_eq!(after, json!({ "status": "open", "who": {}, "name": "Ada" }));
}

#[tokio::test(flavor = "multi_thread")]
async fn arc_8_what_was_matched_is_delivered_after_a_crash_in_its_order() {
    let triggers = Triggers::start().await;
    triggers.enabled("t", json!({})).await;
    for number in 1..=3 {
        triggers.server.put_doc("orders/o1", json!({ "n": number })).await;
    }
    let mut triggers = triggers.crash().await;
    let mut order = Vec::new();
    while order.last() != Some(&json!(3)) {
        let number = triggers.delivered().await["after"]["n"].clone();
        // What was sent before the crash may come again, and nothing before it.
        if order.last() != Some(&number) {
            order.push(number);
        }
    }
    assert!(order == [1, 2, 3] || order == [2, 3], "{order:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn arc_6_a_hot_document_does_not_keep_another_waiting() {
    let mut triggers = Triggers::start().await;
    triggers.enabled("t", json!({ "concurrency": 2 })).await;
    for number in 0..300 {
        triggers.server.put_doc("orders/hot", json!({ "n": number })).await;
    }
    triggers.server.put_doc("orders/cold", json!({})).await;
    // The first of the hot one is on its way; the cold one is not behind the other 299.
    let mut seen = Vec::new();
    for _ in 0..4 {
        let call = triggers.called().await;
        seen.push(call.json()["id"].as_str().unwrap().to_owned());
        call.ok();
    }
    assert!(seen.contains(&"cold".to_owned()), "{seen:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn rol_4_what_is_queued_waits_while_the_trigger_is_disabled() {
    let mut triggers = Triggers::start().await;
    triggers.enabled("t", json!({})).await;
    triggers.server.put_doc("orders/o1", json!({ "n": 1 })).await;
    triggers.called().await.answer(500, "");
    triggers.until("t", |it| it["retrying"] == 1).await;
    triggers.act("t", "disable", &json!({ "reason": "a pause" })).await.expect(200);
    triggers.server.put_doc("orders/o1", json!({ "n": 2 })).await;
    triggers.clock.advance(10_000);
    assert_eq!(triggers.status("t").await["state"], "disabled");
    triggers.enable("t").await;
    assert_eq!(triggers.delivered().await["after"]["n"], 1, "nothing is lost");
    triggers.server.put_doc("orders/o1", json!({ "n": 3 })).await;
    assert_eq!(triggers.delivered().await["after"]["n"], 3, "what came meanwhile did not match");
}

#[tokio::test(flavor = "multi_thread")]
async fn lim_7_no_more_attempts_are_on_their_way_than_the_trigger_allows() {
    let mut triggers = Triggers::start().await;
    triggers.enabled("t", json!({ "concurrency": 2 })).await;
    triggers.enabled("zz-last", json!({ "collection": "last" })).await;
    for number in 0..4 {
        triggers.server.put_doc(&format!("orders/o{number}"), json!({})).await;
    }
    let held = [triggers.called().await, triggers.called().await];
    // Whoever may be called is called, and the third is not.
    triggers.only("last/one").await;
    for call in held {
        call.ok();
    }
    for _ in 0..2 {
        assert_eq!(triggers.delivered().await["triggerId"], "t");
    }
    triggers.until("t", |it| it["delivered"] == 4 && it["attempts"] == 4).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lim_7_no_more_attempts_begin_in_a_second_than_the_trigger_allows() {
    let mut triggers = Triggers::start().await;
    triggers.enabled("t", json!({ "rateLimit": 1 })).await;
    triggers.enabled("zz-last", json!({ "collection": "last" })).await;
    for number in 0..3 {
        triggers.server.put_doc(&format!("orders/o{number}"), json!({})).await;
    }
    triggers.delivered().await;
    for round in 0..2 {
        triggers.only(&format!("last/r{round}")).await;
        triggers.clock.advance(1_000);
        assert_eq!(triggers.delivered().await["triggerId"], "t");
    }
    // What waits for its turn uses up no attempt (DEL-4).
    triggers.until("t", |it| it["delivered"] == 3 && it["attempts"] == 3).await;
}
