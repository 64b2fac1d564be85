//! Subscriptions that are changed in place: where they go, when, how often, and with which secret.

use reveille_core::consumer::Phase;
use reveille_core::signature;
use serde_json::{Value, json};

use crate::harness::keys::{ADMIN, guarded_by_keys};
use crate::harness::*;

async fn patch(wakes: &Wakes, name: &str, body: Value) -> Answer {
    let target = format!("/**?subscription={name}");
    wakes.server.ask("PATCH", &target, &[JSON], body.to_string().as_bytes()).await
}

async fn show(wakes: &Wakes, name: &str) -> Value {
    wakes.server.get(&format!("/**?subscription={name}")).await.expect(200).json()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_that_moved_is_called_with_what_was_pending_and_progress_stays() {
    let mut wakes = Wakes::start().await;
    let mut moved = Sink::start().await;
    wakes.subscribe("s", "/a/*").await;
    let tail = wakes.create("/a/1", "[1]").await;
    let call = wakes.woken().await;
    wakes.finish(&call, &tail).await.expect(200);
    call.ok();
    wakes.append("/a/1", "[2]").await;
    let failed = wakes.woken().await;
    let wake = failed.wake();
    failed.answer(500, "");
    wakes.paused("s", "/a/1").await;
    let before = wakes.record("s", "/a/1").unwrap().consumer;
    let answer = patch(&wakes, "s", json!({ "webhook": moved.url() })).await.expect(200).json();
    let expected = json!({ "subscription_id": "s", "pattern": "/a/*", "webhook": moved.url() });
    assert_eq!(answer, expected);
    assert_eq!(show(&wakes, "s").await, expected);
    // The retry that was pending need not wait for its time: it is made at once, elsewhere.
    let retry = moved.next().await;
    assert_eq!(retry.wake(), wake);
    assert_eq!(wakes.record("s", "/a/1").unwrap().consumer.links, before.links);
    let tail = wakes.append("/a/1", "[3]").await;
    wakes.finish(&retry, &tail).await.expect(200);
    retry.ok();
    // Streams that are seen for the first time go there as well.
    wakes.create("/a/2", "[1]").await;
    let call = moved.next().await;
    assert_eq!(call.primary(), "/a/2");
    call.done();
    wakes.idle("s", "/a/2").await;
    wakes.quiet("the endpoint moved").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_named_changes_null_clears_and_the_rest_stays() {
    let wakes = Wakes::start().await;
    let url = wakes.sink.url();
    let options = json!({ "description": "first", "min_interval": "5s", "max_delay": "1m",
                          "wake_if": "bytes > 1", "sync_done": "snapshot",
                          "retry": { "initial": "1s", "max": "1m", "giveUpAfter": "1d" } });
    wakes.subscribe_with("s", "/a/*", options).await;
    let full = json!({ "subscription_id": "s", "pattern": "/a/*", "webhook": url,
                       "description": "first", "min_interval": "5000ms", "max_delay": "60000ms",
                       "wake_if": "bytes > 1", "sync_done": "snapshot",
                       "retry": { "initial": "1000ms", "max": "60000ms",
                                  "giveUpAfter": "86400000ms" } });
    assert_eq!(show(&wakes, "s").await, full);
    for nothing in [json!({}), json!({ "webhook": url }), json!({ "paused": false })] {
        assert_eq!(patch(&wakes, "s", nothing).await.expect(200).json(), full);
    }
    let change = json!({ "description": "second", "max_delay": "2m", "retry": { "max": "2m" } });
    let changed = patch(&wakes, "s", change).await.expect(200).json();
    let mut expected = full.clone();
    expected["description"] = json!("second");
    expected["max_delay"] = json!("120000ms");
    expected["retry"] = json!({ "max": "120000ms" });
    assert_eq!(changed, expected);
    let clear = json!({ "description": null, "min_interval": null, "max_delay": null,
                        "wake_if": null, "sync_done": null, "retry": null });
    let cleared = patch(&wakes, "s", clear).await.expect(200).json();
    let plain = json!({ "subscription_id": "s", "pattern": "/a/*", "webhook": url });
    assert_eq!(cleared, plain);
    assert_eq!(show(&wakes, "s").await, plain);
    // What it is now is what is asked for alike.
    let now = json!({ "webhook": url });
    wakes.put_subscription("s", "/a/*", &now).await.expect(200);
    let other = json!({ "webhook": url, "retry": { "max": "2m" } });
    let conflict = wakes.put_subscription("s", "/a/*", &other).await.expect(409);
    assert_eq!(conflict.code(), "SUBSCRIPTION_ALREADY_EXISTS");
    assert!(conflict.text().contains("PATCH /{pattern}?subscription=ID"), "{conflict}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_change_is_refused_and_changes_nothing() {
    let wakes = Wakes::start().await;
    wakes.subscribe("s", "/a/*").await;
    let before = show(&wakes, "s").await;
    let bad = "INVALID_REQUEST";
    let cases = [
        (json!({ "pattern": "/b/*" }), bad, "`pattern` cannot change"),
        (json!({ "start": "beginning" }), bad, "`start` cannot change"),
        (json!({ "webook": "x" }), bad, "did you mean `webhook`?"),
        (json!({ "webhook": null }), bad, "`webhook` is missing"),
        (json!({ "webhook": "no url" }), "WEBHOOK_URL_REJECTED", "cannot be called"),
        (json!({ "webhook": "https://10.0.0.1/x" }), "WEBHOOK_URL_REJECTED", "cannot be called"),
        (json!({ "wake_if": "bytes > 1" }), bad, "needs a `max_delay`"),
        (json!({ "wake_if": "bytes >", "max_delay": "1s" }), bad, "`wake_if`"),
        (json!({ "sync_done": "head" }), bad, "`sync_done`"),
        (json!({ "paused": "yes" }), bad, "`paused` must be true or false"),
        (json!({ "paused": null }), bad, "`paused` must be true or false"),
        (json!({ "description": "x".repeat(5_000) }), bad, "description"),
        (json!({ "retry": 5 }), bad, "`retry` must be an object"),
        (json!({ "retry": { "inital": "1s" } }), bad, "did you mean `initial`?"),
        (json!({ "retry": { "initial": "soon" } }), bad, "`initial` must be a time"),
        (json!({ "retry": { "initial": "9ms" } }), bad, "10ms to 1h"),
        (json!({ "retry": { "initial": "2h" } }), bad, "10ms to 1h"),
        (json!({ "retry": { "initial": "1m", "max": "1s" } }), bad, "`retry.max`"),
        (json!({ "retry": { "giveUpAfter": "59s" } }), bad, "1m to 365d"),
        (json!({ "rotate_secret": true }), bad, "`rotate_secret` must be an object"),
        (json!({ "rotate_secret": { "overlap": "31d" } }), bad, "30d at most"),
        (json!({ "rotate_secret": { "overlop": "1d" } }), bad, "did you mean `overlap`?"),
    ];
    for (body, code, said) in cases {
        // What is right beside it changes nothing either.
        let mut body = body;
        if body.get("description").is_none() {
            body["description"] = json!("changed");
        }
        let answer = patch(&wakes, "s", body.clone()).await.expect(400);
        assert_eq!(answer.code(), code, "{body}");
        assert!(answer.text().contains(said), "{body} {answer}");
    }
    assert_eq!(show(&wakes, "s").await, before);
    let missing = patch(&wakes, "other", json!({ "description": "x" })).await.expect(404);
    assert_eq!(missing.code(), "SUBSCRIPTION_NOT_FOUND");
    wakes.server.ask("PATCH", "/a?subscription=s&x=1", &[JSON], b"{}").await.expect(400);
    wakes.server.ask("PATCH", "/a?subscriptions", &[JSON], b"{}").await.expect(405);
    wakes.server.ask("PATCH", "/a?subscription=s", &[JSON], b"[]").await.expect(400);
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_waits_by_an_old_rule_is_told_by_the_new_one() {
    let mut wakes = Wakes::start().await;
    wakes.subscribe_with("s", "/a/*", json!({ "max_delay": "1h" })).await;
    wakes.create("/a/1", "[1]").await;
    wakes.quiet("it may wait for an hour").await;
    patch(&wakes, "s", json!({ "max_delay": "2s" })).await.expect(200);
    let is = |at: u64| move |phase: &Phase| matches!(phase, Phase::Idle { wake_at: Some(it) } if it.0 < at);
    let soon = wakes.now() + 2_001;
    wakes.until("s", "/a/1", |it| is(soon)(&it.phase)).await;
    wakes.quiet("it may wait for two seconds").await;
    wakes.clock.advance(2_000);
    let call = wakes.woken().await;
    assert_eq!((call.primary(), call.epoch()), ("/a/1".to_owned(), 1));
    call.done();
    wakes.idle("s", "/a/1").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn retries_are_made_as_a_subscription_asks_for() {
    let mut wakes = Wakes::start().await;
    let retry = json!({ "initial": "1s", "max": "4s", "giveUpAfter": "1m" });
    wakes.subscribe_with("s", "/a/*", json!({ "retry": retry })).await;
    wakes.create("/a/1", "[1]").await;
    let mut pauses = Vec::new();
    let began = wakes.now();
    loop {
        wakes.woken().await.answer(503, "");
        let over = |phase: &Phase| {
            !matches!(
                phase,
                Phase::Waking { stage: reveille_core::consumer::Stage::Sent { .. }, .. }
            )
        };
        let phase = wakes.until("s", "/a/1", |it| over(&it.phase)).await.phase;
        if let Phase::Gone(_) = phase {
            break;
        }
        let (_, until) = wakes.paused("s", "/a/1").await;
        pauses.push(until - wakes.now());
        wakes.advance_to(until);
    }
    for (number, expected) in [1_000, 2_000, 4_000, 4_000, 4_000].into_iter().enumerate() {
        let pause = pauses[number];
        assert!((expected * 9 / 10..=expected).contains(&pause), "{number}: {pauses:?}");
    }
    let failed_for = wakes.now() - began;
    assert!((60_000..64_001).contains(&failed_for), "given up after {failed_for} ms");
    // The server's own three days are for those who chose nothing.
    wakes.subscribe_with("slow", "/b/*", json!({ "retry": { "giveUpAfter": "90d" } })).await;
    wakes.create("/b/1", "[1]").await;
    wakes.woken().await.answer(503, "");
    let (_, until) = wakes.paused("slow", "/b/1").await;
    assert!((200..=1_200).contains(&(until - wakes.now())), "the usual pauses");
    wakes.clock.advance(4 * 86_400_000);
    wakes.woken().await.answer(503, "");
    wakes.paused("slow", "/b/1").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_secrets_sign_while_one_takes_over_from_the_other() {
    let wakes = Wakes::start().await;
    let first = wakes.subscribe("s", "/a/*").await;
    let rotate = json!({ "rotate_secret": { "overlap": "1h" } });
    let answer = patch(&wakes, "s", rotate).await.expect(200).json();
    let second = answer["webhook_secret"].as_str().unwrap().to_owned();
    assert!(second.starts_with("whsec_") && second != first);
    let until = wakes.now() + 3_600_000;
    let shown = show(&wakes, "s").await;
    assert_eq!(shown.get("webhook_secret"), None, "it is shown once");
    assert_eq!(shown["previous_secret_until"], until);
    let mut wakes = wakes.restart().await;
    let check = |call: &Call, now: u64, secrets: &[&str]| {
        let expected = signature::hmac_header_of(secrets.iter().copied(), now / 1_000, &call.body);
        assert_eq!(call.get("webhook-signature"), expected);
    };
    wakes.create("/a/1", "[1]").await;
    let call = wakes.woken().await;
    // The one that they had comes first: some read one alone.
    check(&call, wakes.now(), &[&first, &second]);
    call.done();
    wakes.idle("s", "/a/1").await;
    wakes.clock.advance(3_600_000);
    wakes.append("/a/1", "[2]").await;
    let call = wakes.woken().await;
    check(&call, wakes.now(), &[&second]);
    call.done();
    wakes.idle("s", "/a/1").await;
    // Without an overlap the new one is alone at once; without a wish it is a day.
    let at_once = json!({ "rotate_secret": { "overlap": "0s" } });
    let third = patch(&wakes, "s", at_once).await.expect(200).json();
    assert_eq!(third.get("previous_secret_until"), None);
    wakes.append("/a/1", "[3]").await;
    let call = wakes.woken().await;
    check(&call, wakes.now(), &[third["webhook_secret"].as_str().unwrap()]);
    call.done();
    let fourth = patch(&wakes, "s", json!({ "rotate_secret": {} })).await.expect(200).json();
    assert_eq!(fourth["previous_secret_until"], wakes.now() + 86_400_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn operators_pause_and_resume_and_change_nothing_else() {
    let server = guarded_by_keys().start().await;
    let key = async |roles: &[&str], permissions: &[&str]| {
        let body = json!({ "tenant": "acme", "roles": roles, "permissions": permissions });
        let made = server.post_key(ADMIN, &body).await.expect(201).json();
        made["key"].as_str().unwrap().to_owned()
    };
    let user = key(&["user"], &[]).await;
    let writer = key(&["user"], &["write"]).await;
    let reader = key(&["user"], &["read"]).await;
    let operator = key(&["operator"], &[]).await;
    let admin = key(&["admin"], &[]).await;
    let hook = r#"{"webhook":"http://127.0.0.1:9/hook"}"#;
    server.ask_as(&user, "PUT", "/a/*?subscription=s", &[], hook.as_bytes()).await.expect(201);
    let own = "/_system/*?subscription=own";
    server.ask_as(&admin, "PUT", own, &[], hook.as_bytes()).await.expect(201);
    let cases = [
        (&user, "/a/*?subscription=s", r#"{"description":"x"}"#, 200),
        (&user, "/a/*?subscription=s", r#"{"paused":true}"#, 200),
        (&operator, "/a/*?subscription=s", r#"{"paused":false}"#, 200),
        (&operator, "/a/*?subscription=s", r#"{"paused":true,"description":"y"}"#, 403),
        (&operator, "/a/*?subscription=s", r#"{"rotate_secret":{}}"#, 403),
        (&operator, "/a/*?subscription=none", r#"{"paused":true}"#, 404),
        (&writer, "/a/*?subscription=s", r#"{"description":"y"}"#, 403),
        (&reader, "/a/*?subscription=s", r#"{"paused":true}"#, 403),
        // Who may not read what is told does not choose who is told of it.
        (&user, own, r#"{"webhook":"http://127.0.0.1:10/mine"}"#, 403),
        (&user, own, r#"{"rotate_secret":{}}"#, 403),
        (&admin, own, r#"{"description":"y"}"#, 200),
    ];
    for (number, (key, target, body, status)) in cases.into_iter().enumerate() {
        let answer = server.ask_as(key, "PATCH", target, &[], body.as_bytes()).await;
        assert_eq!(answer.status(), status, "{number}: {answer}");
    }
    let refused = server
        .ask_as(&operator, "PATCH", "/a/*?subscription=s", &[], br#"{"description":"y"}"#)
        .await;
    assert!(refused.text().contains("with `paused` alone"), "{refused}");
    server.stop().await;
}
