//! Deliveries that fail: the pauses, the logs, the dead letters, and trying those again.

use serde_json::{Value, json};

use crate::harness::*;

#[tokio::test(flavor = "multi_thread")]
async fn e03_e32_e35_five_attempts_with_growing_pauses_and_then_no_more() {
    let mut events = Deliveries::start().await;
    let id = events.subscribe("a").await;
    let event = events.ingest(json!({ "type": "a", "n": 1 })).await;
    for attempt in 1..=5 {
        let call = events.called().await;
        assert_eq!(call.get("x-events-attempt"), attempt.to_string());
        assert_eq!(call.json()["id"], event);
        call.answer(500, "no");
        if attempt < 5 {
            let pause = events.to_next_attempt(&id, attempt).await;
            let base = 1_000 << (attempt - 1);
            assert!((base..=base + 1_000).contains(&pause), "after {attempt}: {pause}");
        }
    }
    let dead = events.until_status(&id, "dead").await;
    let logs = events.logs(&dead).await;
    let numbers: Vec<u64> = logs.iter().map(|it| it["attemptNumber"].as_u64().unwrap()).collect();
    assert_eq!(numbers, [1, 2, 3, 4, 5]);
    let stats = events.status(&id).await["stats"].clone();
    assert_eq!(
        stats,
        json!({ "pendingDeliveries": 0, "failedDeliveries": 0, "deadLetters": 1,
                "successRate": 0.0, "totalDelivered": 0, "totalAttempts": 5, "waiting": 0 })
    );
    events.clock.advance(1_000_000);
    events.quiet("it is dead").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn e32_the_pause_has_a_limit_and_the_scale_shortens_it() {
    let mut events = Deliveries::with(|setup| setup.timings.retry_scale_milli = 10).await;
    let id = events.subscribe_with("a", json!({ "maxRetries": 12 })).await;
    events.ingest(json!({ "type": "a" })).await;
    for attempt in 1..=11_usize {
        events.called().await.answer(500, "");
        let pause = events.to_next_attempt(&id, attempt).await;
        let base = (1_000_u64 << (attempt - 1)).min(300_000) / 100;
        assert!((base..=base + 10).contains(&pause), "after {attempt}: {pause}");
    }
    events.called().await.answer(500, "");
    events.until_status(&id, "dead").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn e33_however_many_are_due_all_are_tried() {
    let mut events = Deliveries::start().await;
    let id = events.subscribe_with("a", json!({ "maxRetries": 2 })).await;
    let batch: Vec<Value> = (0..250).map(|n| json!({ "type": "a", "n": n })).collect();
    events.post("/ingest", &json!({ "events": batch })).await.expect(200);
    for round in 1..=2_u64 {
        let mut seen = Vec::new();
        for _ in 0..250 {
            let call = events.called().await;
            assert_eq!(call.get("x-events-attempt"), round.to_string());
            seen.push(call.json()["payload"]["n"].as_u64().unwrap());
            call.answer(500, "");
        }
        seen.sort_unstable();
        assert_eq!(seen, (0..250).collect::<Vec<_>>());
        let all = async || {
            let stats = events.status(&id).await["stats"].clone();
            (stats["totalAttempts"] == 250 * round).then_some(())
        };
        eventually("all to be answered", all).await;
        events.clock.advance(2_000);
    }
    assert_eq!(events.status(&id).await["stats"]["deadLetters"], 250);
    let target = format!("/subscriptions/{id}/dead-letters");
    let page = events.server.get(&target).await.expect(200).json();
    assert_eq!(page["deadLetters"].as_array().unwrap().len(), 100, "unless asked for more");
    let page = events.server.get(&format!("{target}?limit=1000")).await.expect(200).json();
    assert_eq!(page["deadLetters"].as_array().unwrap().len(), 250);
}

#[tokio::test(flavor = "multi_thread")]
async fn e34_one_attempt_is_made_where_none_or_one_is_wanted() {
    let mut events = Deliveries::start().await;
    for (worker, retries) in [("none", 0), ("one", 1)] {
        let more = json!({ "workerId": worker, "maxRetries": retries });
        let id = events.subscribe_with(worker, more).await;
        let sent = json!({ "type": worker, "ts": "2026-01-15T10:30:00Z", "n": 1.50 });
        let event = events.ingest(sent.clone()).await;
        events.called().await.answer(418, "teapot");
        let dead = events.until_status(&id, "dead").await;
        let letter = events.dead_letters(&id).await.remove(0);
        let payload: Value =
            serde_json::from_str(letter["eventPayload"].as_str().unwrap()).unwrap();
        assert_eq!(payload, sent);
        assert_eq!(
            letter,
            json!({
                "id": letter["id"], "deliveryId": dead["id"], "subscriptionId": id,
                "eventId": event, "eventPayload": letter["eventPayload"],
                "reason": "max_retries_exceeded", "lastError": "answered 418",
                "createdAt": START_MS,
            })
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn e25_dead_letters_are_shown_newest_first_and_for_nobody_there_are_none() {
    let mut events = Deliveries::start().await;
    let id = events.subscribe_with("a", json!({ "maxRetries": 1 })).await;
    let mut ids = Vec::new();
    for _ in 0..3 {
        let event = events.ingest(json!({ "type": "a" })).await;
        events.called().await.answer(500, "");
        events.until(&id, |it| it["eventId"] == event && it["status"] == "dead").await;
        ids.insert(0, event);
        events.clock.advance(5);
    }
    let found: Vec<Value> =
        events.dead_letters(&id).await.iter().map(|it| it["eventId"].clone()).collect();
    assert_eq!(found, ids.iter().map(|id| json!(id)).collect::<Vec<_>>());
    let target = format!("/subscriptions/{id}/dead-letters?limit=1");
    let page = events.server.get(&target).await.expect(200).json();
    assert_eq!(page["deadLetters"][0]["eventId"], ids[0]);
    assert_eq!(page["deadLetters"].as_array().unwrap().len(), 1);
    for wrong in ["0", "1001", "x", "-1", ""] {
        let target = format!("/subscriptions/{id}/dead-letters?limit={wrong}");
        events.server.get(&target).await.expect(400);
    }
    for nobody in ["01ARZ3NDEKTSV4RRFFQ69G5FAV", "nobody"] {
        assert_eq!(events.dead_letters(nobody).await, Vec::<Value>::new());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn e26_a_dead_letter_that_is_retried_is_really_sent_under_its_old_event_id() {
    let mut events = Deliveries::start().await;
    let id = events.subscribe_with("a", json!({ "maxRetries": 1 })).await;
    let other = events.subscribe_with("b", json!({})).await;
    let event = events.ingest(json!({ "type": "a", "n": 1 })).await;
    let first = events.called().await;
    let old = first.get("x-events-delivery-id").to_owned();
    let body = first.json();
    first.answer(500, "");
    events.until_status(&id, "dead").await;
    let letter = events.dead_letters(&id).await.remove(0)["id"].as_str().unwrap().to_owned();
    // It must be a letter of this very subscription.
    for target in [
        format!("/subscriptions/{other}/dead-letters/{letter}/retry"),
        format!("/subscriptions/{id}/dead-letters/01ARZ3NDEKTSV4RRFFQ69G5FAV/retry"),
        format!("/subscriptions/{id}/dead-letters/x/retry"),
        format!("/subscriptions/01ARZ3NDEKTSV4RRFFQ69G5FAV/dead-letters/{letter}/retry"),
    ] {
        assert_eq!(events.post(&target, &json!({})).await.expect(404).json()["ok"], false);
    }
    assert_eq!(events.dead_letters(&id).await.len(), 1);
    let target = format!("/subscriptions/{id}/dead-letters/{letter}/retry");
    let answer = events.server.ask("POST", &target, &[], b"").await.expect(200).json();
    let new = answer["deliveryId"].as_str().unwrap().to_owned();
    assert_eq!(answer, json!({ "ok": true, "deliveryId": new }));
    assert_ne!(new, old);
    let again = events.called().await;
    assert_eq!(again.get("x-events-delivery-id"), new);
    assert_eq!(again.get("x-events-attempt"), "1");
    assert_eq!((again.json(), &again.json()["id"]), (body, &json!(event)));
    again.ok();
    events.until(&id, |it| it["id"] == new && it["status"] == "delivered").await;
    assert_eq!(events.dead_letters(&id).await, Vec::<Value>::new());
    // Twice is once too often.
    let twice = events.post(&target, &json!({})).await.expect(404).json();
    assert_eq!(twice["code"], "DEAD_LETTER_NOT_FOUND");
    let stats = events.status(&id).await["stats"].clone();
    assert_eq!((&stats["totalAttempts"], &stats["totalDelivered"]), (&json!(2), &json!(1)));
    assert_eq!(stats["deadLetters"], 0);
    events.quiet("it was retried once").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn e27_every_attempt_is_logged_oldest_first_and_unknown_deliveries_have_no_log() {
    let mut events = Deliveries::start().await;
    let id = events.subscribe("a").await;
    events.ingest(json!({ "type": "a" })).await;
    let call = events.called().await;
    events.clock.advance(12);
    call.answer(500, "broken");
    events.to_next_attempt(&id, 1).await;
    let at = events.now();
    events.called().await.answer(200, &"x".repeat(5_000));
    let delivery = events.until_status(&id, "delivered").await;
    let logs = events.logs(&delivery).await;
    let name = delivery["id"].as_str().unwrap();
    assert_eq!(
        logs,
        [
            json!({ "id": format!("{name}-1"), "deliveryId": name, "subscriptionId": id,
                    "attemptNumber": 1, "status": "failed", "durationMs": 12,
                    "errorMessage": "answered 500", "createdAt": START_MS + 12 }),
            json!({ "id": format!("{name}-2"), "deliveryId": name, "subscriptionId": id,
                    "attemptNumber": 2, "status": "success", "durationMs": 0,
                    "workerResponse": "x".repeat(4_096), "createdAt": at }),
        ]
    );
    for unknown in ["01ARZ3NDEKTSV4RRFFQ69G5FAV", "nobody"] {
        assert_eq!(events.logs(&json!({ "id": unknown })).await, Vec::<Value>::new());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_that_change_hold_for_deliveries_that_are_under_way() {
    let mut events = Deliveries::start().await;
    let id = events.subscribe("a").await;
    events.ingest(json!({ "type": "a" })).await;
    for attempt in 1..=2 {
        events.called().await.answer(500, "");
        if attempt == 1 {
            events.to_next_attempt(&id, attempt).await;
        }
    }
    events.until(&id, |it| it["attempts"] == 2).await;
    let body = json!({ "maxRetries": 2, "rpcMethod": "other" }).to_string();
    let target = format!("/subscriptions/{id}");
    events.server.ask("PUT", &target, &[JSON], body.as_bytes()).await.expect(200);
    // The third attempt waits already: it is made, at the new place, and is the last.
    events.to_next_attempt(&id, 2).await;
    let call = events.called().await;
    assert_eq!(call.line, "POST /w/other HTTP/1.1");
    call.answer(500, "");
    assert_eq!(events.until_status(&id, "dead").await["attempts"], 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn retries_are_held_while_a_subscription_is_not_active_and_go_on_afterwards() {
    let mut events = Deliveries::start().await;
    let id = events.subscribe("a").await;
    let event = events.ingest(json!({ "type": "a" })).await;
    events.called().await.answer(500, "");
    events.until_status(&id, "failed").await;
    let body = json!({ "subscriptionId": id });
    events.post("/subscriptions/unsubscribe", &body).await.expect(200);
    events.clock.advance(100_000);
    events.quiet("it is held").await;
    let held = events.until(&id, |it| it["nextAttemptAt"].is_null()).await;
    assert_eq!(held["status"], "failed");
    let mut events = events.restart().await;
    events.clock.advance(100_000);
    assert!(events.sink.come().is_none(), "still held");
    events.post("/subscriptions/reactivate", &body).await.expect(200);
    let call = events.called().await;
    assert_eq!((call.get("x-events-attempt"), &call.json()["id"]), ("2", &json!(event)));
    call.ok();
    events.until_status(&id, "delivered").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn statistics_always_add_up() {
    let mut events = Deliveries::start().await;
    let id = events.subscribe_with("a", json!({ "maxRetries": 2 })).await;
    let mut begun = 0;
    for round in 0..12_u64 {
        events.ingest(json!({ "type": "a" })).await;
        begun += 1;
        events.clock.advance(700);
        while let Some(call) = events.sink.come() {
            let delivery = call.get("x-events-delivery-id").to_owned();
            let attempt: u64 = call.get("x-events-attempt").parse().unwrap();
            call.answer(if (round + attempt).is_multiple_of(3) { 200 } else { 500 }, "");
            let ended = |it: &Value| it["attempts"].as_u64().unwrap() >= attempt;
            let look = async || {
                let all = events.deliveries(&id).await;
                all.into_iter().find(|it| it["id"] == delivery).filter(|it| ended(it))
            };
            eventually("an attempt to be counted", look).await;
        }
        let stats = events.status(&id).await["stats"].clone();
        let number = |name: &str| stats[name].as_u64().unwrap();
        let all = events.deliveries(&id).await;
        let count = |status: &str| all.iter().filter(|it| it["status"] == status).count() as u64;
        let attempts: u64 = all.iter().map(|it| it["attempts"].as_u64().unwrap()).sum();
        assert_eq!(number("deadLetters"), count("dead"));
        assert_eq!(number("totalDelivered"), count("delivered"));
        assert_eq!(number("totalAttempts"), attempts);
        let open = number("pendingDeliveries") + number("failedDeliveries");
        assert_eq!(open + number("deadLetters") + number("totalDelivered"), begun);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_subscription_has_a_schedule_of_its_own() {
    let mut events = Deliveries::start().await;
    let retry = json!({ "initial": "100ms", "max": 400, "giveUpAfter": "1s" });
    let id = events.subscribe_with("a", json!({ "maxRetries": 100, "retry": retry })).await;
    let shown = events.status(&id).await["subscription"]["retry"].clone();
    assert_eq!(shown, json!({ "initial": 100, "max": 400, "giveUpAfter": 1_000 }));
    events.ingest(json!({ "type": "a" })).await;
    let begin = events.now();
    let mut attempt = 0;
    loop {
        events.called().await.answer(500, "");
        attempt += 1;
        let ended = |it: &Value| it["attempts"] == attempt && it["status"] != "pending";
        let delivery = events.until(&id, ended).await;
        let Some(next) = delivery["nextAttemptAt"].as_u64() else { break };
        let pause = next - events.now();
        let grown = 100_u64 << (attempt - 1).min(2);
        // The last one is cut short by the time that there is.
        assert!(next == begin + 1_000 || (grown..=grown + 100).contains(&pause), "{pause}");
        events.advance_to(next);
    }
    assert_eq!(events.now(), begin + 1_000, "it is given up when its time is over");
    let letters = events.dead_letters(&id).await;
    assert_eq!((letters.len(), &letters[0]["reason"]), (1, &json!("max_retries_exceeded")));
    // What is changed counts from then on; what is left out of it is as usual.
    let target = format!("/subscriptions/{id}");
    let put = async |body: Value| {
        events.server.ask("PUT", &target, &[JSON], body.to_string().as_bytes()).await
    };
    let shown = put(json!({ "retry": { "initial": "10ms" } })).await.expect(200).json();
    let expected = json!({ "initial": 10, "max": 300_000, "giveUpAfter": null });
    assert_eq!(shown["subscription"]["retry"], expected);
    let shown = put(json!({ "maxRetries": 1 })).await.expect(200).json();
    assert_eq!(shown["subscription"]["retry"], expected);
    let shown = put(json!({ "retry": null })).await.expect(200).json();
    assert_eq!(shown["subscription"]["retry"]["initial"], 1_000);
    for (wrong, said) in [
        (json!({ "initial": "9ms" }), "retry.initial"),
        (json!({ "initial": "2h" }), "retry.initial"),
        (json!({ "max": "25h" }), "retry.max"),
        (json!({ "initial": "1m", "max": "1s" }), "retry.max"),
        (json!({ "giveUpAfter": 0 }), "retry.giveUpAfter"),
        (json!({ "giveUpAfter": "soon" }), "giveUpAfter"),
        (json!({ "inital": "1s" }), "did you mean `initial`"),
        (json!("1s"), "retry"),
    ] {
        let answer = put(json!({ "retry": wrong })).await.expect(400);
        assert!(answer.text().contains(said), "{wrong}: {answer}");
        let body = json!({ "workerId": "w", "pattern": "z", "rpcMethod": "m", "retry": wrong });
        events.post("/subscriptions/subscribe", &body).await.expect(400);
    }
}
