//! What triggers may take of time, room and patience, and that nobody else pays for it.

use serde_json::{Value, json};

use crate::harness::*;

#[tokio::test(flavor = "multi_thread")]
async fn arc_1_each_write_of_a_transaction_is_a_change_in_the_order_of_the_writes() {
    let mut triggers = Triggers::start().await;
    triggers.enabled("t", json!({ "collection": "*" })).await;
    let token = triggers.server.token_for(&["/a/", "/b/"]).await;
    let set = |path: &str, n: u64| json!({ "type": "set", "path": path, "data": { "n": n } });
    let ops =
        json!([set("a/x", 1), set("b/y", 2), set("a/x", 3), { "type": "delete", "path": "b/y" }]);
    triggers.server.call_write(&token, "once", &ops).await.expect(200);
    let mut came = Vec::new();
    for _ in 0..4 {
        let body = triggers.delivered().await;
        came.push((body["seq"].as_u64().unwrap(), body["path"].clone(), body["event"].clone()));
    }
    let of = |path: &str| -> Vec<_> { came.iter().filter(|it| it.1 == path).cloned().collect() };
    let change = |seq: u64, path: &str, kind: &str| (seq, json!(path), json!(kind));
    assert_eq!(of("a/x"), [change(1, "a/x", "create"), change(3, "a/x", "update")]);
    assert_eq!(of("b/y"), [change(2, "b/y", "create"), change(4, "b/y", "delete")]);
}

/// ARC-2, ARC-3: a write waits for no call.
#[tokio::test(flavor = "multi_thread")]
async fn arc_3_writes_are_answered_while_every_call_hangs() {
    let mut triggers = Triggers::start().await;
    triggers.enabled("t", json!({ "concurrency": 2 })).await;
    triggers.server.put_doc("orders/o0", json!({})).await;
    let hanging = triggers.called().await;
    for number in 1..=50 {
        triggers.server.put_doc(&format!("orders/o{number}"), json!({})).await;
    }
    // ARC-4: nothing of it is lost on the way.
    let metrics = triggers.get("t/metrics").await.expect(200).json();
    assert_eq!((&metrics["matched"], &metrics["success"]), (&json!(51), &json!(0)));
    assert_eq!(metrics["pending"], 51);
    hanging.ok();
    for _ in 0..50 {
        triggers.delivered().await;
    }
    triggers.until("t", |it| it["delivered"] == 51 && it["pending"] == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lim_3_an_attempt_has_5_s_unless_its_trigger_says_otherwise() {
    for (more, time_ms) in [(json!({}), 5_000), (json!({ "timeout": "300ms" }), 300)] {
        let mut triggers = Triggers::start().await;
        triggers.enabled("t", more).await;
        triggers.enabled("zz-last", json!({ "collection": "last" })).await;
        triggers.server.put_doc("orders/o1", json!({})).await;
        let hanging = triggers.called().await;
        triggers.clock.advance(time_ms - 1);
        triggers.only("last/one").await;
        assert_eq!(triggers.status("t").await["attempts"], 0, "it has {time_ms} ms");
        triggers.clock.advance(1);
        let status = triggers.until("t", |it| it["attempts"] == 1).await;
        assert_eq!(status["retrying"], 1, "DEL-2: tried again: {status}");
        drop(hanging);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn lim_5_a_tenant_has_64_calls_on_their_way_whatever_its_triggers_allow() {
    let mut triggers = Triggers::start().await;
    let ids: Vec<String> = (0..17).map(|number| format!("t{number}")).collect();
    for id in &ids {
        triggers.enabled(id, json!({ "concurrency": 64 })).await;
    }
    for number in 0..4 {
        triggers.server.put_doc(&format!("orders/o{number}"), json!({})).await;
    }
    let mut under_way = Vec::new();
    for _ in 0..64 {
        under_way.push(triggers.called().await);
    }
    let held = async || {
        let text = triggers.server.get("/metrics").await.expect(200).text();
        (metric_of(&text, "reveille_outbox_held", &["state=\"tenant\""]) > 0).then_some(())
    };
    eventually("the others to be held back", held).await;
    assert!(triggers.sink.come().is_none());
    under_way.into_iter().for_each(|call| call.ok());
    for _ in 0..4 {
        triggers.delivered().await;
    }
    for id in &ids {
        let status = triggers.until(id, |it| it["delivered"] == 4).await;
        assert_eq!(status["attempts"], 4, "DEL-4: waiting is no attempt");
    }
}

/// LIM-6, SEC-6, POI-2, DEL-7: of answers as much is read and kept as is of use.
#[tokio::test(flavor = "multi_thread")]
async fn lim_6_a_long_answer_counts_by_its_status_and_is_cut() {
    let mut triggers = Triggers::start().await;
    triggers.enabled("t", json!({})).await;
    triggers.server.put_doc("orders/o1", json!({})).await;
    triggers.called().await.answer(200, &"y".repeat(1 << 20));
    triggers.until("t", |it| it["delivered"] == 1).await;
    triggers.server.put_doc("orders/o2", json!({})).await;
    triggers.called().await.answer_with(400, &[("x-why", "so")], &"n".repeat(2_049));
    let letter = triggers.letters(1).await.remove(0);
    let error = &letter["lastError"];
    assert_eq!((&error["status"], &error["errorKind"]), (&json!(400), &json!("http")));
    assert_eq!((&error["attempts"], &error["bodyTruncated"]), (&json!(1), &json!(true)));
    assert_eq!(error["body"].as_str().unwrap().len(), 2_048);
    assert!(error["headersHash"].as_str().unwrap().starts_with("sha256:"));
    triggers.server.put_doc("orders/o3", json!({})).await;
    triggers.called().await.answer(400, &"n".repeat(2_048));
    let whole = triggers.letters(2).await.into_iter().find(|it| it["dlqId"] != letter["dlqId"]);
    assert_eq!(whole.unwrap()["lastError"]["bodyTruncated"], false);
    let target = format!("/admin/v1/deliveries/{}", letter["dlqId"].as_str().unwrap());
    let shown = triggers.server.get(&target).await.expect(200).json();
    let attempt = &shown["attempts"][0];
    assert_eq!((&attempt["number"], &attempt["status"]), (&json!(1), &json!(400)));
    assert_eq!(
        (&attempt["error"], &attempt["response_truncated"]),
        (&json!("answered 400"), &json!(true))
    );
}

/// DEL-6: what is on its way when the server stops comes again under its key.
#[tokio::test(flavor = "multi_thread")]
async fn del_6_what_a_stop_cuts_off_is_delivered_after_the_start() {
    let mut triggers = Triggers::start().await;
    triggers.enabled("t", json!({})).await;
    triggers.server.put_doc("orders/o1", json!({ "n": 1 })).await;
    triggers.server.put_doc("orders/o1", json!({ "n": 2 })).await;
    let hanging = triggers.called().await;
    let key = hanging.get("x-syntrix-idempotency-key").to_owned();
    let mut triggers = triggers.crash().await;
    drop(hanging);
    let again = triggers.called().await;
    assert_eq!(again.get("x-syntrix-idempotency-key"), key);
    again.ok();
    assert_eq!(triggers.delivered().await["after"]["n"], 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn dlq_3_nothing_is_made_again_by_itself() {
    let mut triggers = Triggers::start().await;
    triggers.enabled("t", json!({})).await;
    triggers.server.put_doc("orders/o1", json!({})).await;
    triggers.called().await.answer(400, "");
    triggers.letters(1).await;
    triggers.clock.advance(3_600_000);
    let mut triggers = triggers.restart().await;
    triggers.only("orders/o2").await;
    assert_eq!(triggers.dead_letters("").await.len(), 1);
}

/// SEC-1: https to public addresses alone, unless a server allows its own machine.
#[tokio::test(flavor = "multi_thread")]
async fn sec_1_where_a_trigger_may_send() {
    let triggers = Triggers::with(|setup| setup.rules.allow_http_loopback = false).await;
    for url in [
        "http://example.com/",
        "http://127.0.0.1:1/",
        "https://127.0.0.1/",
        "https://10.0.0.1/",
        "https://[::1]/",
        "https://169.254.169.254/latest",
        "ftp://example.com/",
    ] {
        let refused = triggers.post(TRIGGERS, &triggers.definition(json!({ "url": url }))).await;
        assert_eq!(refused.status(), 400, "{url}: {refused}");
        assert!(refused.text().contains("url"), "{url}: {refused}");
    }
    let good = json!({ "triggerId": "t", "url": "https://example.com/hook" });
    let made = triggers.post(TRIGGERS, &triggers.definition(good)).await.expect(201).json();
    assert_eq!(made["state"], Value::from("disabled"), "ADM-1");
}
