//! What signs: secrets, their rotation, and signatures of sensitive changes.

use reveille_core::key::KeyHash;
use reveille_core::trigger::signature::verify;
use reveille_server::Auth;
use serde_json::{Value, json};

use crate::harness::*;

const SECRETS: &str = "/admin/v1/tenants/default/secrets";

#[tokio::test(flavor = "multi_thread")]
async fn sec_3_both_secrets_sign_during_the_overlap_and_the_new_one_alone_after_it() {
    let mut triggers = Triggers::start().await;
    triggers.enabled("t", json!({})).await;
    let rotated = triggers
        .post(&format!("{SECRETS}/default/rotate"), &json!({ "overlap": "1h" }))
        .await
        .expect(200)
        .json();
    let new = rotated["secret"].as_str().unwrap().to_owned();
    assert_eq!(rotated["previous"]["prefix"], SECRET[..10]);
    let mut signed = async |path: &str, secrets: &[&str]| {
        triggers.server.put_doc(path, json!({})).await;
        let call = triggers.sink.next().await;
        let (time, tags) = signatures(&call);
        let expected: Vec<String> =
            secrets.iter().map(|secret| tag(secret, &time, &call.body)).collect();
        assert_eq!(tags, expected, "{path}");
        call.ok();
    };
    signed("orders/o1", &[&new, SECRET]).await;
    triggers.clock.advance(3_599_999);
    signed("orders/o2", &[&new, SECRET]).await;
    triggers.clock.advance(1);
    signed("orders/o3", &[&new]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sec_3_the_one_before_can_be_revoked_early() {
    let triggers = Triggers::start().await;
    triggers.enabled("t", json!({})).await;
    let own = "whsec_somebody_elses_secret_1";
    let body = json!({ "secret": own });
    triggers.post(&format!("{SECRETS}/default/rotate"), &body).await.expect(200);
    let revoke = format!("{SECRETS}/default/revoke-previous");
    let shown = triggers.post(&revoke, &json!({})).await.expect(200).json();
    assert_eq!(shown["previous"], Value::Null);
    assert!(shown.get("secret").is_none());
    let mut triggers = triggers.restart().await;
    triggers.server.put_doc("orders/o1", json!({})).await;
    let call = triggers.called().await;
    let (time, tags) = signatures(&call);
    assert_eq!(tags, [tag(own, &time, &call.body)]);
    call.ok();
}

#[tokio::test(flavor = "multi_thread")]
async fn sec_4_a_secret_is_shown_once_and_listed_by_its_beginning() {
    let triggers = Triggers::start().await;
    let target = format!("{SECRETS}/hooks");
    let made = triggers.post(&target, &json!({})).await.expect(201).json();
    let secret = made["secret"].as_str().unwrap().to_owned();
    assert!(secret.starts_with("whsec_") && secret.len() == 70, "{secret}");
    assert_eq!(triggers.post(&target, &json!({})).await.expect(409).code(), "SECRET_EXISTS");
    let shown = triggers.server.get(&target).await.expect(200);
    assert_eq!(shown.json()["prefix"], secret[..10]);
    let listed = triggers.server.get(SECRETS).await.expect(200);
    let names = listed.json()["secrets"].as_array().unwrap().clone();
    let names: Vec<_> = names.iter().map(|it| it["secretsRef"].clone()).collect();
    assert_eq!(names, ["default", "hooks"]);
    for answer in [shown.text(), listed.text()] {
        assert!(!answer.contains(&secret) && !answer.contains(SECRET), "{answer}");
    }
    for (path, body, status) in [
        ("hooks2", json!({ "secret": "short" }), 400),
        ("hooks2", json!({ "secret": "with spaces in it, which is bad" }), 400),
        ("hooks2", json!({ "value": "x" }), 400),
        ("a%20b", json!({}), 400),
        ("hooks/rotate", json!({ "overlap": "31d" }), 400),
        ("none/rotate", json!({}), 404),
        ("none/revoke-previous", json!({}), 404),
    ] {
        let answer = triggers.post(&format!("{SECRETS}/{path}"), &body).await;
        assert_eq!(answer.status(), status, "{path} {body}: {answer}");
    }
    triggers.server.get(&format!("{SECRETS}/none")).await.expect(404);
    triggers.server.ask("DELETE", &target, &[], b"").await.expect(204);
    triggers.server.get(&target).await.expect(404);
}

#[tokio::test(flavor = "multi_thread")]
async fn del_5_nothing_is_sent_unsigned() {
    let mut triggers = Triggers::start().await;
    triggers.create("t", json!({ "secretsRef": "none" })).await;
    let force = json!({ "force": true, "reason": "a test" });
    let refused = triggers.act("t", "enable", &force).await.expect(409);
    assert_eq!(refused.code(), "SECRET_NOT_FOUND");
    triggers.post(&format!("{SECRETS}/none"), &json!({})).await.expect(201);
    triggers.enable("t").await;
    let used = triggers.server.ask("DELETE", &format!("{SECRETS}/none"), &[], b"").await;
    assert_eq!(used.expect(409).code(), "SECRET_IN_USE");
    triggers.only("orders/o1").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn del_5_without_its_secret_it_is_tried_to_the_end_and_says_what_it_lacked() {
    let mut triggers = Triggers::start().await;
    triggers.post(&format!("{SECRETS}/one"), &json!({})).await.expect(201);
    triggers.enabled("t", json!({ "secretsRef": "one" })).await;
    triggers.server.put_doc("orders/o1", json!({})).await;
    triggers.called().await.answer(500, "");
    triggers.until("t", |it| it["attempts"] == 1).await;
    // What was begun keeps its version, and that its secret.
    triggers.patch("t", &json!({ "secretsRef": "default" })).await.expect(200);
    let deleted = triggers.server.ask("DELETE", &format!("{SECRETS}/one"), &[], b"").await;
    deleted.expect(204);
    for attempt in 1..10 {
        let longest = (1_000 << (attempt - 1)).min(300_000);
        triggers.to_next_attempt("t", attempt, longest).await;
    }
    let letter = triggers.letters(1).await.remove(0);
    assert_eq!(letter["reason"], "SECRET_UNAVAILABLE", "and no POISON: {letter}");
    assert_eq!(
        (&letter["attempts"], &letter["lastError"]["errorKind"]),
        (&json!(10), &json!("secret"))
    );
    triggers.only("orders/o2").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sec_8_the_secret_of_the_version_that_most_documents_follow_is_in_use() {
    let triggers = Triggers::start().await;
    triggers.post(&format!("{SECRETS}/one"), &json!({})).await.expect(201);
    triggers.enabled("t", json!({ "secretsRef": "one" })).await;
    let share = json!({ "secretsRef": "default", "rollout": { "percent": 10 } });
    triggers.patch("t", &share).await.expect(200);
    let used = triggers.server.ask("DELETE", &format!("{SECRETS}/one"), &[], b"").await;
    assert_eq!(used.expect(409).code(), "SECRET_IN_USE");
}

/// Scenario 8: what is sent verifies for 300 s around its `t`, and not for longer.
#[tokio::test(flavor = "multi_thread")]
async fn sec_5_a_delivery_verifies_within_300_s_of_its_time_and_is_refused_with_a_code_after() {
    let mut triggers = Triggers::start().await;
    triggers.enabled("t", json!({})).await;
    triggers.server.put_doc("orders/o1", json!({})).await;
    let call = triggers.called().await;
    let header = call.get("x-syntrix-signature").to_owned();
    let sent_s = triggers.now() / 1_000;
    for (now_s, expected) in [
        (sent_s - 301, Err("SIGNATURE_TIMESTAMP_OUT_OF_RANGE")),
        (sent_s - 300, Ok(())),
        (sent_s + 300, Ok(())),
        (sent_s + 301, Err("SIGNATURE_TIMESTAMP_OUT_OF_RANGE")),
    ] {
        let verified = verify([SECRET], Some(&header), &call.body, now_s);
        assert_eq!(verified.map_err(|error| error.code()), expected, "{now_s}");
    }
    call.ok();
}

/// A server with keys, where time stands still, and the key of an operator of a tenant.
async fn with_keys() -> (Triggers, String) {
    let clock = HandClock::new();
    let sink = Sink::start().await;
    let auth =
        Auth::Keys { admin_key: KeyHash::of(crate::harness::keys::ADMIN), metrics_open: false };
    let setup = Setup { auth, ..Setup::on(&clock) };
    let triggers = Triggers::on(clock, sink, setup).await;
    let (_, operator) = triggers.server.make_key("acme", &["operator"]).await;
    (triggers, operator)
}

fn sign(key: &str, now_ms: u64, body: &str) -> String {
    let time = (now_ms / 1_000).to_string();
    format!("t={time},v1={}", tag(key, &time, body.as_bytes()))
}

#[tokio::test(flavor = "multi_thread")]
async fn aud_3_a_change_of_where_and_how_it_sends_takes_a_signature_with_the_callers_own_key() {
    let (triggers, operator) = with_keys().await;
    let ask = async |method: &str, path: &str, body: &str, signature: Option<&str>| {
        let mut headers = vec![JSON];
        headers.extend(signature.map(|it| ("x-syntrix-admin-signature", it)));
        let target = format!("/admin/v1{path}");
        triggers.server.ask_as(&operator, method, &target, &headers, body.as_bytes()).await
    };
    ask("POST", "/tenants/~/secrets/default", "{}", None).await.expect(201);
    let made = triggers.definition(json!({ "triggerId": "t" })).to_string();
    ask("POST", "/triggers", &made, None).await.expect(201);
    ask("PATCH", "/triggers/~/t", r#"{"timeout":"1s"}"#, None).await.expect(200);
    let url = json!({ "url": format!("{}/other", triggers.sink.url()) }).to_string();
    let now = triggers.now();
    let good = sign(&operator, now, &url);
    let mut last = String::new();
    for (signature, code) in [
        (None, "SIGNATURE_REQUIRED"),
        (Some("nonsense".to_owned()), "SIGNATURE_MALFORMED"),
        (Some(sign("another key", now, &url)), "SIGNATURE_MISMATCH"),
        (Some(sign(&operator, now, "{}")), "SIGNATURE_MISMATCH"),
        (Some(sign(&operator, now - 301_000, &url)), "SIGNATURE_TIMESTAMP_OUT_OF_RANGE"),
        (Some(sign(&operator, now + 301_000, &url)), "SIGNATURE_TIMESTAMP_OUT_OF_RANGE"),
    ] {
        let refused = ask("PATCH", "/triggers/~/t", &url, signature.as_deref()).await.expect(403);
        assert_eq!(refused.code(), code);
        last = refused.code();
    }
    assert!(!last.is_empty());
    let patched = ask("PATCH", "/triggers/~/t", &url, Some(&good)).await.expect(200).json();
    assert_eq!(patched["version"], 3);
    // Scenario 8: 300 s are not too much, in either direction.
    for (value, at) in [("b", now - 300_000), ("c", now + 300_000)] {
        let headers = json!({ "headers": { "A": value } }).to_string();
        let edge = sign(&operator, at, &headers);
        ask("PATCH", "/triggers/~/t", &headers, Some(&edge)).await.expect(200);
    }
    let plain = ask("PATCH", "/triggers/~/t", r#"{"timeout":"2s"}"#, Some("nonsense")).await;
    assert_eq!(plain.expect(403).code(), "SIGNATURE_MALFORMED", "one that is there is right");
    let rollback = r#"{"version":1,"reason":"back"}"#;
    let refused = ask("POST", "/triggers/~/t/rollback", rollback, None).await.expect(403);
    assert_eq!(refused.code(), "SIGNATURE_REQUIRED", "the address would be another one");
    for (method, path) in [
        ("POST", "/tenants/~/secrets/default/rotate"),
        ("POST", "/tenants/~/secrets/default/revoke-previous"),
        ("DELETE", "/tenants/~/secrets/default"),
    ] {
        assert_eq!(ask(method, path, "", None).await.expect(403).code(), "SIGNATURE_REQUIRED");
    }
    let empty = sign(&operator, now, "");
    ask("POST", "/tenants/~/secrets/default/rotate", "", Some(&empty)).await.expect(200);
    let mut file = json!({ "triggers": { "t": triggers.definition(json!({})) } });
    let apply = file.to_string();
    let refused = ask("POST", "/triggers/apply", &apply, None).await.expect(403);
    assert_eq!(refused.code(), "SIGNATURE_REQUIRED");
    ask("POST", "/triggers/apply", &apply, Some(&sign(&operator, now, &apply))).await.expect(200);
    file["triggers"]["t"]["timeout"] = json!("3s");
    ask("POST", "/triggers/apply", &file.to_string(), None).await.expect(200);
    let elsewhere = json!({ "url": "https://example.com/" });
    let event = json!({ "path": "orders/o1", "document": {} });
    let test = json!({ "event": event, "send": true, "definition": elsewhere }).to_string();
    let refused = ask("POST", "/triggers/~/t/test", &test, None).await.expect(403);
    assert_eq!(refused.code(), "SIGNATURE_REQUIRED");
}

/// Deleting a trigger and making it anew once was a change of where it sends that nobody had to sign.
#[tokio::test(flavor = "multi_thread")]
async fn aud_3_a_trigger_that_nobody_signed_sends_nothing_before_somebody_does() {
    let (triggers, operator) = with_keys().await;
    let ask = async |method: &str, path: &str, body: &Value, is_signed: bool| {
        let body = body.to_string();
        let signature = sign(&operator, triggers.now(), &body);
        let mut headers = vec![JSON];
        headers.extend(is_signed.then_some(("x-syntrix-admin-signature", signature.as_str())));
        let target = format!("/admin/v1{path}");
        triggers.server.ask_as(&operator, method, &target, &headers, body.as_bytes()).await
    };
    let enable = json!({ "force": true, "reason": "a test" });
    let event = json!({ "path": "orders/o1", "document": {} });
    let send = json!({ "event": event, "send": true });
    ask("POST", "/tenants/~/secrets/default", &json!({}), false).await.expect(201);
    let made = triggers.definition(json!({ "triggerId": "t" }));
    let made = ask("POST", "/triggers", &made, false).await.expect(201).json();
    assert_eq!(made["isSigned"], false);
    for (path, body) in [("enable", &enable), ("test", &send)] {
        let refused = ask("POST", &format!("/triggers/~/t/{path}"), body, false).await.expect(403);
        assert_eq!(refused.code(), "SIGNATURE_REQUIRED", "{path}");
    }
    // Whoever only looks needs to sign nothing.
    ask("POST", "/triggers/~/t/test", &json!({ "event": event }), false).await.expect(200);
    ask("POST", "/triggers/~/t/dry-run", &json!({}), false).await.expect(200);
    let enabled = ask("POST", "/triggers/~/t/enable", &enable, true).await.expect(200).json();
    assert_eq!((&enabled["state"], &enabled["isSigned"]), (&json!("enabled"), &json!(true)));
    ask("POST", "/triggers/~/t/disable", &json!({}), false).await.expect(200);
    ask("POST", "/triggers/~/t/enable", &enable, false).await.expect(200);
    let rows = "/admin/v1/audit?triggerId=t&action=trigger.enabled";
    let rows = triggers.server.ask_as(&operator, "GET", rows, &[], b"").await.expect(200).json();
    let signed = |at: usize| rows["audit"][at]["signatureKeyId"].clone();
    assert_eq!((signed(0), &signed(1)), (Value::Null, &rows["audit"][1]["actor"]));
    assert!(signed(1).is_string(), "AUD-1: {rows}");

    let target = "/admin/v1/triggers/~/t";
    triggers.server.ask_as(&operator, "DELETE", target, &[], b"").await.expect(204);
    let elsewhere = json!({ "t": triggers.definition(json!({ "url": "https://example.com/" })) });
    let file = json!({ "triggers": elsewhere });
    ask("POST", "/triggers/apply", &file, false).await.expect(200);
    let refused = ask("POST", "/triggers/~/t/enable", &enable, false).await.expect(403);
    assert_eq!(refused.code(), "SIGNATURE_REQUIRED", "it was made anew");
    triggers.server.ask_as(&operator, "DELETE", target, &[], b"").await.expect(204);
    ask("POST", "/triggers/apply", &file, true).await.expect(200);
    ask("POST", "/triggers/~/t/enable", &enable, false).await.expect(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn sec_8_nobody_reaches_the_triggers_and_secrets_of_another_tenant() {
    let (triggers, operator) = with_keys().await;
    let (_, user) = triggers.server.make_key("acme", &["user"]).await;
    let (_, other) = triggers.server.make_key("beta", &["operator"]).await;
    let ask = async |key: &str, method: &str, path: &str, body: &str| {
        let target = format!("/admin/v1{path}");
        triggers.server.ask_as(key, method, &target, &[JSON], body.as_bytes()).await
    };
    ask(&operator, "POST", "/tenants/acme/secrets/default", "{}").await.expect(201);
    let made = triggers.definition(json!({ "triggerId": "t" })).to_string();
    ask(&operator, "POST", "/triggers", &made).await.expect(201);
    for key in [&user, &other] {
        ask(key, "GET", "/triggers/acme/t", "").await.expect(403);
        ask(key, "GET", "/tenants/acme/secrets", "").await.expect(403);
        ask(key, "POST", "/triggers/acme/t/enable", "{}").await.expect(403);
    }
    ask(&other, "GET", "/triggers/~/t", "").await.expect(404);
    let foreign = triggers.definition(json!({ "tenant": "acme" })).to_string();
    ask(&other, "POST", "/triggers", &foreign).await.expect(403);
    let all = ask(crate::harness::keys::ADMIN, "GET", "/triggers?tenant=acme", "")
        .await
        .expect(200)
        .json();
    assert_eq!(all["triggers"].as_array().unwrap().len(), 1);
    let position = "/checkpoints/trigger_evaluator";
    let own = ask(&other, "GET", position, "").await.expect(200).json();
    assert_eq!(own["checkpoints"][0]["tenant"], "beta");
    ask(&other, "GET", &format!("{position}?tenant=acme"), "").await.expect(403);
    let all = ask(crate::harness::keys::ADMIN, "GET", position, "").await.expect(200).json();
    assert_eq!(all["checkpoints"][0]["tenant"], "acme");
}
