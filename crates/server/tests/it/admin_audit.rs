//! Who changed what: the audit log.

use serde_json::{Value, json};

use crate::harness::keys::{ADMIN, guarded_by_keys};
use crate::harness::*;

async fn rows_as(server: &TestServer, key: &str, query: &str) -> Vec<Value> {
    let answer = server.get_as(key, &format!("/admin/v1/audit{query}")).await.expect(200);
    answer.json()["audit"].as_array().unwrap().clone()
}

fn texts<'a>(rows: &'a [Value], name: &str) -> Vec<&'a str> {
    rows.iter().map(|row| row[name].as_str().unwrap_or_default()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_that_are_made_and_revoked_are_written_down_without_their_text() {
    let server = guarded_by_keys().start().await;
    let (operator, key) = server.make_key("acme", &["operator"]).await;
    let (user, _) = server.make_key("acme", &["user"]).await;
    let named = [("x-request-id", "req-7")];
    let target = format!("/admin/v1/keys/{user}");
    server.ask_as(ADMIN, "DELETE", &target, &named, b"").await.expect(204);
    server.ask_as(ADMIN, "DELETE", &target, &[], b"").await.expect(404);
    let rows = rows_as(&server, &key, "").await;
    assert_eq!(texts(&rows, "action"), ["key.revoked", "key.created", "key.created"]);
    assert_eq!(texts(&rows, "subject"), [&*user, &*user, &*operator]);
    assert_eq!(texts(&rows, "tenant"), ["acme"; 3]);
    assert_eq!(texts(&rows, "actor"), ["admin-key"; 3]);
    assert_eq!(rows[0]["requestId"], "req-7");
    assert_eq!(rows[0]["ip"], "127.0.0.1");
    assert_eq!(rows[0]["diff"], json!({ "roles": [["user"], null] }));
    assert_eq!(rows[1]["diff"], json!({ "roles": [null, ["user"]] }));
    assert!(!json!(rows).to_string().contains(&key), "a key is shown once");
}

#[tokio::test(flavor = "multi_thread")]
async fn everybody_sees_their_own_tenant_and_a_key_of_all_tenants_everything() {
    let clock = HandClock::new();
    let setup = Setup { clock: std::sync::Arc::new(clock.clone()), ..guarded_by_keys() };
    let server = setup.start().await;
    let (_, acme) = server.make_key("acme", &["operator"]).await;
    clock.advance(1);
    let (_, beta) = server.make_key("beta", &["operator"]).await;
    let (_, user) = server.make_key("beta", &["user"]).await;
    clock.advance(1);
    server.ask_as(ADMIN, "POST", "/admin/v1/signing-keys/rotate", &[], b"").await.expect(200);
    assert_eq!(rows_as(&server, &acme, "").await.len(), 1);
    assert_eq!(rows_as(&server, &beta, "?tenant=beta").await.len(), 2);
    let refused = server.get_as(&beta, "/admin/v1/audit?tenant=acme").await;
    assert_eq!(refused.expect(403).code(), "FORBIDDEN");
    server.get_as(&user, "/admin/v1/audit").await.expect(403);
    server.get_as(&user, "/admin/v1/audit/verify").await.expect(403);
    let all = rows_as(&server, ADMIN, "").await;
    let tenants = texts(&all, "tenant");
    assert_eq!(tenants, ["", "beta", "beta", "acme"], "newest first, whosever they are");
    assert_eq!(all[0]["action"], "signing_key.rotated");
    assert_eq!(rows_as(&server, ADMIN, "?tenant=acme").await.len(), 1);
    let inside = [("x-tenant-namespace", "acme")];
    let inside = server.ask_as(ADMIN, "GET", "/admin/v1/audit", &inside, b"").await.expect(200);
    assert_eq!(inside.json()["audit"].as_array().unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_filters_and_times_find_the_rows_that_are_asked_for() {
    let clock = HandClock::new();
    let setup = Setup { clock: std::sync::Arc::new(clock.clone()), ..guarded_by_keys() };
    let server = setup.start().await;
    for tenant in ["acme", "beta", "acme", "acme", "beta"] {
        server.make_key(tenant, &["user"]).await;
        clock.advance(1_000);
    }
    let all = rows_as(&server, ADMIN, "").await;
    assert_eq!(all.len(), 5);
    let (mut paged, mut after) = (Vec::new(), String::new());
    loop {
        let target = format!("/admin/v1/audit?limit=2{after}");
        let page = server.get_as(ADMIN, &target).await.expect(200).json();
        paged.extend(page["audit"].as_array().unwrap().clone());
        let Some(next) = page["next"].as_str() else { break };
        let name = if paged.len() == 2 { "after" } else { "cursor" };
        after = format!("&{name}={next}");
    }
    assert_eq!(paged, all);
    let at = |row: usize| all[row]["at"].as_u64().unwrap();
    let between = rows_as(&server, ADMIN, &format!("?from={}&to={}", at(3), at(1))).await;
    assert_eq!(between, all[2..=3]);
    let none = rows_as(&server, ADMIN, "?action=key.revoked").await;
    assert_eq!(none.len(), 0);
    let date = rows_as(&server, ADMIN, "?from=1970-01-01T00:00:00Z&action=key.created").await;
    assert_eq!(date, all);
    // ADM-13: by who did it, and what it was done to.
    let subject = all[3]["subject"].as_str().unwrap();
    assert_eq!(rows_as(&server, ADMIN, &format!("?subject={subject}")).await, all[3..=3]);
    assert_eq!(rows_as(&server, ADMIN, "?actor=admin-key").await, all);
    assert_eq!(rows_as(&server, ADMIN, "?actor=key_other").await.len(), 0);
    let of_a_trigger = format!("?triggerId={subject}");
    assert_eq!(rows_as(&server, ADMIN, &of_a_trigger).await.len(), 0, "a key is no trigger");
    for (query, said) in [
        ("?subject=a&triggerId=a", "leave one out"),
        ("?from=then", "2026-01-31T12:00:00Z"),
        ("?after=x", "`next` of a page"),
        ("?tenat=acme", "did you mean `tenant`"),
        ("?tenant=No", "`tenant`"),
        ("/verify?limit=1", "known are `tenant`"),
    ] {
        let refused = server.get_as(ADMIN, &format!("/admin/v1/audit{query}")).await.expect(400);
        assert!(refused.text().contains(said), "{refused}");
    }
    server.ask_as(ADMIN, "POST", "/admin/v1/audit", &[], b"").await.expect(405);
    server.ask_as(ADMIN, "DELETE", "/admin/v1/audit", &[], b"").await.expect(405);
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_of_subscriptions_are_written_down_under_who_made_them() {
    let events = Deliveries::start().await;
    let id = events.subscribe("order.*").await;
    let server = &events.server;
    let body = json!({ "subscriptionId": id }).to_string();
    for _ in 0..2 {
        // The second time nothing changes.
        server.ask("POST", "/subscriptions/unsubscribe", &[], body.as_bytes()).await.expect(200);
    }
    server.ask("POST", "/subscriptions/reactivate", &[], body.as_bytes()).await.expect(200);
    let one = format!("/subscriptions/{id}");
    server.ask("PUT", &one, &[], b"{\"maxRetries\":2}").await.expect(200);
    server.delete(&one).await.expect(200);
    server.delete("/a/*?subscription=none").await.expect(204);
    let rows = server.get("/admin/v1/audit").await.expect(200).json()["audit"].clone();
    let rows = rows.as_array().unwrap();
    let actions =
        ["hook.deleted", "hook.updated", "hook.activated", "hook.deactivated", "hook.created"];
    assert_eq!(texts(rows, "action"), actions);
    assert_eq!(texts(rows, "subject"), [&*id; 5]);
    assert_eq!(texts(rows, "actor"), ["local"; 5]);
    let versions = |row: &Value| (row["fromVersion"].as_u64(), row["toVersion"].as_u64());
    let found: Vec<_> = rows.iter().map(versions).collect();
    let (one, two) = (Some(1), Some(2));
    assert_eq!(found, [(two, None), (one, two), (one, one), (one, one), (None, one)]);
    assert_eq!(rows[1]["diff"]["maxRetries"][1], 2);
    assert_eq!(rows[1]["diff"].as_object().map(|it| it.len()), Some(1), "{}", rows[1]);
    assert_eq!(rows[2]["diff"], json!({ "active": [false, true] }));
    assert_eq!(rows[3]["diff"], json!({ "active": [true, false] }));
    let (made, gone) = (&rows[4]["diff"], &rows[0]["diff"]);
    assert_eq!(made["pattern"], json!([null, "order.*"]));
    assert_eq!(gone["pattern"], json!(["order.*", null]));
    assert_eq!((&made["workerId"], &gone["maxRetries"]), (&json!([null, "w"]), &json!([2, null])));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_change_of_a_hook_has_changed_is_written_down_without_its_secrets() {
    let events = Deliveries::start().await;
    let made = events.server.subscribed("order.*", json!({ "secret": true })).await;
    let id = made["subscriptionId"].as_str().unwrap().to_owned();
    let mut secrets = vec![made["secret"].as_str().unwrap().to_owned()];
    let body = json!({ "subscriptionId": id });
    for verb in ["pause", "pause", "resume"] {
        events.post(&format!("/subscriptions/{verb}"), &body).await.expect(200);
    }
    let rotate = format!("/subscriptions/{id}/rotate-secret");
    let rotated = events.post(&rotate, &json!({})).await.expect(200).json();
    secrets.push(rotated["secret"].as_str().unwrap().to_owned());
    let change = json!({ "pattern": "paid.*", "retry": { "max": "1m" }, "secret": false });
    let one = format!("/subscriptions/{id}");
    let change = change.to_string();
    events.server.ask("PUT", &one, &[JSON], change.as_bytes()).await.expect(200);
    let answer = events.server.get("/admin/v1/audit").await.expect(200);
    let rows = answer.json()["audit"].as_array().unwrap().clone();
    let actions =
        ["hook.updated", "hook.secret_rotated", "hook.resumed", "hook.paused", "hook.created"];
    assert_eq!(texts(&rows, "action"), actions);
    let updated = &rows[0]["diff"];
    assert_eq!(updated["pattern"], json!(["order.*", "paid.*"]));
    assert_eq!(updated["secret"], json!(["redacted", null]));
    assert_eq!(updated["retry"][0]["max"], 300_000);
    assert_eq!(updated["retry"][1]["max"], 60_000);
    assert_eq!(rows[1]["diff"], json!({ "secret": ["redacted", "redacted"] }));
    assert_eq!((&rows[1]["fromVersion"], &rows[1]["toVersion"]), (&json!(1), &json!(2)));
    assert_eq!(rows[2]["diff"], json!({ "paused": [true, false] }));
    assert_eq!(rows[3]["diff"], json!({ "paused": [false, true] }));
    assert_eq!(rows[4]["diff"]["secret"], json!([null, "redacted"]));
    for secret in secrets {
        assert!(!answer.text().contains(&secret), "a secret is shown once");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_operators_do_to_consumers_is_written_down() {
    let mut wakes = Wakes::start().await;
    wakes.create("/a/1", "[1]").await;
    let second = wakes.append("/a/1", "[2]").await;
    wakes.subscribe("s", "/a/*").await;
    let order = async |wakes: &Wakes, verb: &str, body: Value| {
        let target = format!("/admin/v1/consumers/s:%2Fa%2F1/{verb}");
        wakes.server.ask("POST", &target, &[JSON], body.to_string().as_bytes()).await
    };
    order(&wakes, "revive", json!({ "reason": "no need" })).await.expect(409);
    let seek = json!({ "offset": "-1", "reason": "the table was lost" });
    order(&wakes, "seek", seek).await.expect(200);
    wakes.woken().await.answer(500, "");
    wakes.paused("s", "/a/1").await;
    order(&wakes, "wake", json!({})).await.expect(200);
    wakes.woken().await.ok();
    order(&wakes, "seek", json!({ "offset": "now" })).await.expect(200);
    let rows = wakes.server.get("/admin/v1/audit").await.expect(200).json()["audit"].clone();
    let rows = rows.as_array().unwrap();
    let actions = ["consumer.sought", "consumer.woken", "consumer.sought"];
    assert_eq!(texts(rows, "action"), actions);
    assert_eq!(texts(rows, "subject"), ["s:%2Fa%2F1"; 3]);
    assert_eq!(texts(rows, "actor"), ["local"; 3]);
    assert_eq!(rows[2]["reason"], "the table was lost");
    assert_eq!(rows[2]["diff"]["/a/1"], json!([second, "-1"]));
    assert_eq!((&rows[1]["reason"], &rows[1]["diff"]["/a/1"]), (&Value::Null, &Value::Null));
    assert_eq!(rows[0]["diff"]["/a/1"], json!(["-1", second]));
    assert!(rows[0]["diff"]["epoch"].is_array(), "{}", rows[0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_subscription_to_streams_that_is_changed_says_what_of_it() {
    let wakes = Wakes::start().await;
    let secret = wakes.subscribe("sub", "/a/*").await;
    let url = format!("{}?key=hidden", wakes.sink.url());
    let change = json!({ "webhook": url, "max_delay": "1s", "paused": true, "rotate_secret": {} });
    let (target, change) = ("/a/*?subscription=sub", change.to_string());
    wakes.server.ask("PATCH", target, &[JSON], change.as_bytes()).await.expect(200);
    wakes.server.delete("/a/*?subscription=sub").await.expect(204);
    let answer = wakes.server.get("/admin/v1/audit").await.expect(200);
    let rows = answer.json()["audit"].as_array().unwrap().clone();
    assert_eq!(texts(&rows, "action"), ["subscription.deleted", "subscription.updated"]);
    let diff = &rows[1]["diff"];
    assert_eq!(
        (&diff["max_delay_ms"], &diff["paused"]),
        (&json!([null, 1_000]), &json!([false, true]))
    );
    assert_eq!(diff["webhook"][1], format!("{}?…", wakes.sink.url()));
    assert_eq!(diff["secret"], json!(["redacted", "redacted"]));
    assert_eq!(rows[0]["diff"]["pattern"], json!(["/a/*", null]));
    assert!(!answer.text().contains("hidden") && !answer.text().contains(&secret), "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_subscription_to_streams_that_ends_is_written_down() {
    let wakes = Wakes::start().await;
    wakes.subscribe("sub", "/a/*").await;
    wakes.server.delete("/a/*?subscription=sub").await.expect(204);
    wakes.server.delete("/a/*?subscription=sub").await.expect(204);
    let rows = wakes.server.get("/admin/v1/audit").await.expect(200).json()["audit"].clone();
    let rows = rows.as_array().unwrap();
    assert_eq!(texts(rows, "action"), ["subscription.deleted"]);
    assert_eq!(texts(rows, "subject"), ["sub"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_is_whole_after_a_restart_and_says_its_hash() {
    let directory = tempfile::tempdir().unwrap();
    let mut hash = String::new();
    for round in 1..=3_u64 {
        let server = guarded_by_keys().start_in(directory.path()).await;
        server.make_key("acme", &["operator"]).await;
        server.make_key("beta", &["operator"]).await;
        let checked = server.get_as(ADMIN, "/admin/v1/audit/verify").await.expect(200).json();
        assert_eq!((&checked["ok"], &checked["rows"]), (&json!(true), &json!(2 * round)));
        let of_acme = server.get_as(ADMIN, "/admin/v1/audit/verify?tenant=acme").await.expect(200);
        let of_acme = of_acme.json()["chains"].clone();
        assert_eq!(of_acme.as_array().map(Vec::len), Some(1));
        let rows = rows_as(&server, ADMIN, "?tenant=acme").await;
        assert_eq!(of_acme[0]["hash"], rows[0]["hash"], "the head is the newest row's");
        assert!(round == 1 || rows[1]["hash"] == hash.as_str(), "what was written stays");
        hash = of_acme[0]["hash"].as_str().unwrap().to_owned();
        server.stop().await;
    }
}
