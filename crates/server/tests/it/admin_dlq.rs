//! Dead letters of a tenant: found, looked at, made again with a preview and a reason, discarded.

use serde_json::{Value, json};

use crate::harness::keys::{ADMIN, guarded_by_keys};
use crate::harness::*;

/// A hook whose every event of these dies at the first attempt.
async fn dead(events: &mut Deliveries, worker: &str, count: usize) -> String {
    let more = json!({ "workerId": worker, "maxRetries": 1 });
    let kind = format!("{worker}.made");
    let hook = events.subscribe_with(&kind, more).await;
    for number in 0..count {
        events.ingest(json!({ "type": kind, "data": { "number": number } })).await;
        events.called().await.answer(500, "no such thing");
    }
    eventually("they are dead", async || {
        let letters = letters(events, &format!("?hook={hook}")).await;
        (letters.len() == count).then_some(())
    })
    .await;
    hook
}

async fn letters(events: &Deliveries, query: &str) -> Vec<Value> {
    let answer = events.server.get(&format!("/admin/v1/dlq{query}")).await.expect(200);
    answer.json()["deadLetters"].as_array().unwrap().clone()
}

async fn post(events: &Deliveries, path: &str, body: Value) -> Answer {
    events.server.ask("POST", path, &[], body.to_string().as_bytes()).await
}

async fn preview(events: &Deliveries, body: Value) -> Value {
    let mut body = body;
    body["dryRun"] = json!(true);
    post(events, "/admin/v1/dlq/replay", body).await.expect(200).json()
}

async fn replay_of(events: &Deliveries, preview: &Value) -> Answer {
    let body = json!({ "previewId": preview["previewId"], "reason": "the worker is mended" });
    post(events, "/admin/v1/dlq/replay", body).await
}

/// A replay that has ended.
async fn ended(events: &Deliveries, begun: &Value) -> Value {
    let target = format!("/admin/v1/replays/{}", begun["replayId"].as_str().unwrap());
    eventually("the replay to end", async || {
        let it = events.server.get(&target).await.expect(200).json();
        (it["state"] == "done").then_some(it)
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_letters_of_all_hooks_are_found_newest_first_with_their_last_error() {
    let mut events = Deliveries::start().await;
    let one = dead(&mut events, "one", 2).await;
    events.clock.advance(1_000);
    let two = dead(&mut events, "two", 1).await;
    let all = letters(&events, "").await;
    let hooks: Vec<&str> = all.iter().map(|it| it["hookId"].as_str().unwrap()).collect();
    assert_eq!(hooks, [&*two, &*one, &*one]);
    let newest = &all[0];
    assert_eq!(newest["reason"], "EXHAUSTED");
    assert_eq!((&newest["state"], &newest["face"]), (&json!("dead"), &json!("events")));
    assert_eq!(newest["lastError"]["status"], 500);
    assert_eq!(newest["lastError"]["errorKind"], "http");
    assert_eq!(newest["lastError"]["body"], "no such thing");
    let hash = newest["lastError"]["headersHash"].as_str().unwrap();
    assert!(hash.starts_with("sha256:"), "{hash}");
    assert_eq!(letters(&events, &format!("?hook={one}")).await, all[1..]);
    let died = newest["deadAt"].as_u64().unwrap();
    assert_eq!(letters(&events, &format!("?from={died}")).await, all[..1]);
    assert_eq!(letters(&events, &format!("?to={died}")).await, all[1..]);
    assert_eq!(letters(&events, "?reason=EXHAUSTED").await, all);
    assert_eq!(letters(&events, "?reason=POISON").await.len(), 0);
    let page = events.server.get("/admin/v1/dlq?limit=2").await.expect(200).json();
    assert_eq!(page["deadLetters"], json!(all[..2]));
    let rest = letters(&events, &format!("?after={}", page["next"].as_str().unwrap())).await;
    assert_eq!(rest, all[2..]);
    let rest = letters(&events, &format!("?cursor={}", page["next"].as_str().unwrap())).await;
    assert_eq!(rest, all[2..]);
    let id = newest["dlqId"].as_str().unwrap();
    let shown = events.server.get(&format!("/admin/v1/dlq/{id}")).await.expect(200).json();
    assert!(shown["payload"].to_string().contains(r#"{"number":0}"#), "{shown}");
    assert_eq!(shown["bytes"], json!(shown["payload"].to_string().len()));
    assert_eq!(shown["replays"], json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_asked_wrongly_is_said() {
    let mut events = Deliveries::start().await;
    dead(&mut events, "one", 1).await;
    for (target, status, said) in [
        ("?state=x", 400, "dead, replayed or discarded"),
        ("?after=x&cursor=x", 400, "give one of them"),
        ("?reason=x", 400, "EXHAUSTED, FATAL_STATUS"),
        ("?hok=x", 400, "did you mean `hook`"),
        ("?after=x", 400, "`next` of a page"),
        ("?hook=x", 404, "no subscription"),
        ("/x", 404, "no dead letter"),
        ("/replays/rpl_0", 404, "no replay"),
        ("/replays/rpl_0000000000000001", 404, "no replay"),
    ] {
        let answer = events.server.get(&format!("/admin/v1/dlq{target}")).await.expect(status);
        assert!(answer.text().contains(said), "{target}: {answer}");
    }
    for (body, status, said) in [
        (json!({}), 400, "`previewId` is missing"),
        (json!({ "dryRun": true, "hok": "x" }), 400, "did you mean `hook`"),
        (json!({ "dryRun": true, "from": "then" }), 400, "2026-01-31T12:00:00Z"),
        (json!({ "dryRun": true, "ids": ["x"] }), 400, "dlqId"),
        (json!({ "dryRun": true, "ids": vec!["x"; 101] }), 400, "100 are the most"),
        (json!({ "previewId": "prv_x" }), 400, "`reason` must say why"),
        (json!({ "previewId": "prv_x", "reason": " " }), 400, "`reason` must say why"),
        (json!({ "previewId": "prv_x", "reason": "so", "hook": "y" }), 400, "the preview's"),
        (json!({ "previewId": "prv_x", "reason": "so" }), 409, "make another"),
    ] {
        let answer = post(&events, "/admin/v1/dlq/replay", body.clone()).await.expect(status);
        assert!(answer.text().contains(said), "{body}: {answer}");
    }
    events.server.get("/admin/v1/dlq/replay").await.expect(405);
    events.server.delete("/admin/v1/dlq").await.expect(405);
    events.quiet("nothing replays by itself").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replay_is_previewed_executed_and_followed_to_its_end() {
    let mut events = Deliveries::start().await;
    let hook = dead(&mut events, "one", 3).await;
    let shown = preview(&events, json!({ "hook": hook })).await;
    assert_eq!((&shown["count"], &shown["byHook"]), (&json!(3), &json!({ hook.clone(): 3 })));
    assert!(shown["bytes"].as_u64().unwrap() > 3 * 20, "{shown}");
    assert_eq!(shown["paused"], json!([]));
    assert_eq!(shown["truncated"], false);
    let begun = replay_of(&events, &shown).await.expect(202).json();
    assert_eq!((&begun["total"], &begun["operator"]), (&json!(3), &json!("local")));
    for status in [200, 500, 200] {
        let call = events.called().await;
        assert_eq!(call.get("x-events-replay"), begun["replayId"].as_str().unwrap());
        call.answer(status, "");
    }
    let done = ended(&events, &begun).await;
    assert_eq!((&done["succeeded"], &done["failed"]), (&json!(2), &json!(1)));
    assert_eq!((&done["pending"], &done["skipped"]), (&json!(0), &json!(0)));
    let same = format!("/admin/v1/dlq/replays/{}", begun["replayId"].as_str().unwrap());
    assert_eq!(events.server.get(&same).await.expect(200).json(), done);
    // One has died again, and is a dead letter like any other: it was not made again by itself.
    assert_eq!(letters(&events, "").await.len(), 1);
    events.quiet("a replay makes each of them once").await;
    let replayed = letters(&events, "?state=replayed").await;
    assert_eq!(replayed.len(), 3);
    let id = replayed[0]["dlqId"].as_str().unwrap();
    let entry = events.server.get(&format!("/admin/v1/dlq/{id}")).await.expect(200).json();
    assert_eq!(entry["state"], "replayed");
    assert_eq!(entry["replays"][0]["replayId"], begun["replayId"]);
    assert_eq!(entry["replays"][0]["reason"], "the worker is mended");
    assert_eq!(entry["replays"][0]["operator"], "local");
    let audit = events.server.get("/admin/v1/audit?action=replay.executed").await.expect(200);
    let row = audit.json()["audit"][0].clone();
    assert_eq!(
        (&row["subject"], &row["reason"]),
        (&begun["replayId"], &json!("the worker is mended"))
    );
    assert_eq!(row["diff"], json!({ "deadLetters": 3 }));
    let metrics = events.server.get("/metrics").await.expect(200).text();
    let count = |name: &str, label: &str| metric_of(&metrics, name, &[label]);
    assert_eq!(count("reveille_dead_letters_total", "reason=\"EXHAUSTED\""), 4);
    assert_eq!(count("reveille_dead_letters_total", "reason=\"POISON\""), 0);
    for (result, expected) in [("succeeded", 2), ("failed", 1), ("dropped", 0), ("skipped", 0)] {
        let label = format!("result=\"{result}\"");
        assert_eq!(count("reveille_replays_total", &label), expected, "{result}");
    }
    // A preview is used once.
    assert_eq!(replay_of(&events, &shown).await.expect(409).code(), "PREVIEW_STALE");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_preview_that_is_not_true_any_more_is_not_executed() {
    let mut events = Deliveries::start().await;
    let hook = dead(&mut events, "one", 2).await;
    let old = preview(&events, json!({})).await;
    events.clock.advance(600_001);
    assert_eq!(replay_of(&events, &old).await.expect(409).code(), "PREVIEW_STALE");
    let changed = preview(&events, json!({ "hook": hook })).await;
    let letter = events.dead_letters(&hook).await[0]["id"].as_str().unwrap().to_owned();
    let one = format!("/subscriptions/{hook}/dead-letters/{letter}/retry");
    post(&events, &one, json!({})).await.expect(200);
    events.called().await.ok();
    assert_eq!(replay_of(&events, &changed).await.expect(409).code(), "PREVIEW_STALE");
    let inactive = preview(&events, json!({})).await;
    assert_eq!(inactive["count"], 1);
    post(&events, "/subscriptions/unsubscribe", json!({ "subscriptionId": hook }))
        .await
        .expect(200);
    let refused = replay_of(&events, &inactive).await.expect(409);
    assert_eq!(refused.code(), "HOOK_INACTIVE");
    assert!(refused.text().contains(&hook), "{refused}");
    events.quiet("nothing was replayed").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replay_of_many_goes_on_after_a_crash_and_makes_each_of_them_once() {
    const COUNT: usize = 150;
    let mut events = Deliveries::start().await;
    let hook = dead(&mut events, "one", COUNT).await;
    let shown = preview(&events, json!({ "deadReason": "EXHAUSTED" })).await;
    assert_eq!(shown["count"], COUNT);
    let begun = replay_of(&events, &shown).await.expect(202).json();
    let mut events = events.crash().await;
    let target = format!("/admin/v1/replays/{}", begun["replayId"].as_str().unwrap());
    let done = eventually("the replay to end", async || {
        // An attempt that was under way when the server crashed comes twice.
        while let Some(call) = events.sink.come() {
            call.ok();
        }
        let it = events.server.get(&target).await.expect(200).json();
        (it["state"] == "done").then_some(it)
    })
    .await;
    let made = events.server.get(&format!("/admin/v1/deliveries?hook={hook}")).await.expect(200);
    assert_eq!(made.json()["deliveries"].as_array().map(Vec::len), Some(2 * COUNT));
    assert_eq!((&done["succeeded"], &done["total"]), (&json!(COUNT), &json!(COUNT)));
    assert_eq!(letters(&events, "").await.len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_letter_is_discarded_with_a_reason() {
    let mut events = Deliveries::start().await;
    let hook = dead(&mut events, "one", 2).await;
    let id = letters(&events, "").await[0]["dlqId"].as_str().unwrap().to_owned();
    let target = format!("/admin/v1/dlq/{id}/discard");
    post(&events, &target, json!({})).await.expect(400);
    post(&events, &target, json!({ "reason": "a test order" })).await.expect(200);
    assert_eq!(post(&events, &target, json!({ "reason": "again" })).await.status(), 404);
    assert_eq!(letters(&events, "").await.len(), 1);
    assert_eq!(events.dead_letters(&hook).await.len(), 1);
    let discarded = letters(&events, "?state=discarded").await;
    assert_eq!((&discarded[0]["dlqId"], &discarded[0]["state"]), (&json!(id), &json!("discarded")));
    assert_eq!(preview(&events, json!({})).await["count"], 1);
    let audit = events.server.get("/admin/v1/audit?action=dead_letter.discarded").await.expect(200);
    let rows = audit.json()["audit"].clone();
    assert_eq!((&rows[0]["subject"], &rows[0]["reason"]), (&json!(id), &json!("a test order")));
    assert_eq!(rows.as_array().map(Vec::len), Some(1));
    let retry = format!("/subscriptions/{hook}/dead-letters/{id}/retry");
    post(&events, &retry, json!({})).await.expect(404);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_subscriptions_own_dead_letters_are_retried_without_a_preview() {
    let mut events = Deliveries::start().await;
    let hook = dead(&mut events, "one", 2).await;
    let other = dead(&mut events, "two", 1).await;
    let target = format!("/subscriptions/{hook}/dead-letters/retry");
    let dry = post(&events, &target, json!({ "dryRun": true })).await.expect(200).json();
    assert_eq!((&dry["count"], &dry["ok"]), (&json!(2), &json!(true)));
    events.quiet("that was a look").await;
    assert!(
        post(&events, &target, json!({ "form": 1 })).await.expect(400).text().contains("`from`")
    );
    let begun = post(&events, &target, json!({})).await.expect(202).json();
    assert_eq!(begun["count"], 2);
    for _ in 0..2 {
        events.called().await.ok();
    }
    let done = ended(&events, &begun).await;
    assert_eq!(done["succeeded"], 2);
    assert_eq!(
        (events.dead_letters(&hook).await.len(), events.dead_letters(&other).await.len()),
        (0, 1)
    );
}

/// What a hook leaves goes with it, also from the list of its tenant.
#[tokio::test(flavor = "multi_thread")]
async fn dead_letters_of_events_go_with_their_subscription() {
    let mut events = Deliveries::start().await;
    let hook = dead(&mut events, "one", 2).await;
    let kept = dead(&mut events, "two", 1).await;
    let gone = events.server.delete(&format!("/subscriptions/{hook}")).await.expect(200).json();
    assert_eq!(gone["deleted"]["deadLetters"], 2);
    eventually("the others alone to be left", async || {
        let left = letters(&events, "").await;
        (left.len() == 1 && left[0]["hookId"] == kept.as_str()).then_some(())
    })
    .await;
    assert_eq!(preview(&events, json!({})).await["count"], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn operators_act_in_their_tenant_and_users_do_not() {
    let server = guarded_by_keys().start().await;
    let (_, operator) = server.make_key("acme", &["operator"]).await;
    let (_, user) = server.make_key("acme", &["user"]).await;
    let dry = json!({ "dryRun": true }).to_string();
    for (key, query, status) in [
        (operator.as_str(), "", 200),
        (&operator, "?tenant=acme", 200),
        (&operator, "?tenant=beta", 403),
        (&user, "", 403),
        (ADMIN, "?tenant=acme", 200),
    ] {
        let target = format!("/admin/v1/dlq{query}");
        assert_eq!(server.get_as(key, &target).await.status(), status, "{target}");
        let target = format!("/admin/v1/dlq/replay{query}");
        let answer = server.ask_as(key, "POST", &target, &[], dry.as_bytes()).await;
        assert_eq!(answer.status(), status, "{target}");
    }
    let other = json!({ "dryRun": true, "tenant": "beta" }).to_string();
    let target = "/admin/v1/dlq/replay";
    server.ask_as(&operator, "POST", target, &[], other.as_bytes()).await.expect(403);
    server.ask_as(ADMIN, "POST", target, &[], other.as_bytes()).await.expect(200);
}
