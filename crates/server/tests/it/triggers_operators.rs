//! Triggers for operators: made, changed, tried, enabled, rolled back and deleted.

use serde_json::{Value, json};

use crate::harness::*;

#[tokio::test(flavor = "multi_thread")]
async fn adm_1_a_trigger_is_made_disabled_and_shown_without_the_values_of_headers() {
    let mut triggers = Triggers::start().await;
    let more = json!({ "headers": { "Authorization": "Bearer abc" }, "version": "1.0" });
    let made = triggers.create("t", more).await;
    for (name, value) in [
        ("triggerId", json!("t")),
        ("tenant", json!("default")),
        ("version", json!(1)),
        ("label", json!("1.0")),
        ("state", json!("disabled")),
        ("headers", json!({ "Authorization": "redacted" })),
        ("timeout", json!("5s")),
        ("includeBefore", json!(true)),
    ] {
        assert_eq!(made[name], value, "{name}");
    }
    let shown = triggers.get("t").await.expect(200);
    assert_eq!(shown.need("etag"), "\"1\"");
    assert_eq!(shown.json(), made);
    triggers.server.put_doc("orders/o1", json!({})).await;
    triggers.enable("t").await;
    triggers.only("orders/o2").await;
    let unnamed = triggers.post(TRIGGERS, &triggers.definition(json!({}))).await.expect(201);
    let id = unnamed.json()["triggerId"].as_str().unwrap().to_owned();
    assert!(id.starts_with("trg_") && id.len() == 24, "{id}");
    let twice = triggers.definition(json!({ "triggerId": "t" }));
    assert_eq!(triggers.post(TRIGGERS, &twice).await.expect(409).code(), "TRIGGER_EXISTS");
}

#[tokio::test(flavor = "multi_thread")]
async fn def_4_what_is_wrong_is_refused_when_it_is_made_by_the_name_of_its_field() {
    let triggers = Triggers::start().await;
    for (more, field, sentence) in [
        (json!({ "colection": "x" }), "", "did you mean `collection`?"),
        (json!({ "collection": "users/**" }), "collection", "must not have `**`"),
        (json!({ "events": ["insert"] }), "events", "must be one of"),
        (json!({ "condition": "now() > 1" }), "condition", "no function `now`"),
        (json!({ "condition": "event.document.name.matches('^A')" }), "condition", "`matches`"),
        (json!({ "timeout": 5 }), "timeout", "must be a string with a unit"),
        (json!({ "timeout": "31s" }), "timeout", "must be from 10ms to 30s"),
        (json!({ "url": "http://example.com/" }), "url", "https"),
        (json!({ "url": "https://10.0.0.1/" }), "url", "`url`"),
        (json!({ "url": "https://169.254.169.254/" }), "url", "`url`"),
        (json!({ "headers": { "Host": "x" } }), "headers", "sets itself"),
        (json!({ "tenant": "*" }), "tenant", "reveille trigger apply -f FILE --tenant a,b,c"),
        (json!({ "rollout": { "tenants": ["a"] } }), "rollout.tenants", "--tenant a,b,c"),
        (json!({ "ordering": "strict" }), "ordering", "must be one of `standard`"),
        (json!({ "target": { "type": "function" } }), "target.type", "`webhook`"),
        (json!({ "transform": { "template": "x" } }), "transform", "unknown field"),
    ] {
        let answer = triggers.post(TRIGGERS, &triggers.definition(more.clone())).await.expect(400);
        assert_eq!(answer.code(), "INVALID_ARGUMENT", "{more}");
        let error = answer.json()["error"].clone();
        let message = error["message"].as_str().unwrap();
        assert!(message.contains(sentence), "{more}: {message}");
        assert_eq!(error["field"].as_str().unwrap_or_default(), field, "{more}");
    }
    for body in ["", "[]", "{", "null", "{\"collection\":1}"] {
        triggers.server.ask("POST", TRIGGERS, &[JSON], body.as_bytes()).await.expect(400);
    }
    for (method, path, status) in [
        ("PUT", "/default/t", 405),
        ("POST", "/default/t/status", 405),
        ("GET", "/default/t/enable", 405),
        ("GET", "/default/t/nothing", 404),
        ("GET", "/default", 404),
        ("GET", "/Not%20a%20name/t", 400),
        ("GET", "/default/t", 404),
        ("POST", "/default/t/enable", 404),
        ("GET", "?state=paused", 400),
        ("GET", "?limit=0", 400),
        ("GET", "?stat=x", 400),
    ] {
        let target = format!("{TRIGGERS}{path}");
        let answer = triggers.server.ask(method, &target, &[JSON], b"{}").await;
        assert_eq!(answer.status(), status, "{method} {path}: {answer}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn adm_2_a_change_is_a_new_version_for_whoever_has_seen_the_last_one() {
    let mut triggers = Triggers::start().await;
    triggers.enabled("t", json!({})).await;
    let target = format!("{TRIGGERS}/default/t");
    let patch = async |version: &str, body: Value| {
        let headers = [JSON, ("if-match", version)];
        triggers.server.ask("PATCH", &target, &headers, body.to_string().as_bytes()).await
    };
    let changed = patch("1", json!({ "condition": "event.id == 'o2'" })).await.expect(200);
    assert_eq!((&changed.json()["version"], changed.need("etag")), (&json!(2), "\"2\""));
    let stale = patch("1", json!({ "timeout": "1s" })).await.expect(412);
    assert_eq!(stale.code(), "PRECONDITION_FAILED");
    assert_eq!(stale.json()["error"]["version"], 2);
    patch("x", json!({})).await.expect(400);
    let same = triggers.patch("t", &json!({ "condition": "event.id == 'o2'" })).await.expect(200);
    assert_eq!(same.json()["version"], 2, "what changes nothing is no version");
    let said = triggers.patch("t", &json!({ "version": 1, "timeout": "1s" })).await.expect(412);
    assert_eq!(said.json()["error"]["version"], 2);
    triggers.patch("t", &json!({ "triggerId": "x" })).await.expect(400);
    triggers.patch("t", &json!({ "timeout": "1h" })).await.expect(400);
    triggers.server.put_doc("orders/o1", json!({})).await;
    let body = triggers.only("orders/o2").await;
    assert_eq!(body["triggerVersion"], 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn adm_3_triggers_are_listed_page_by_page_and_deleted() {
    let mut triggers = Triggers::start().await;
    for id in ["a", "b", "c", "d"] {
        let collection = if id == "d" { "users" } else { "orders" };
        triggers.create(id, json!({ "collection": collection })).await;
    }
    triggers.enable("b").await;
    let list = async |query: &str| {
        let page = triggers.server.get(&format!("{TRIGGERS}{query}")).await.expect(200).json();
        let ids = page["triggers"].as_array().unwrap().iter();
        let ids: Vec<String> = ids.map(|it| it["triggerId"].as_str().unwrap().to_owned()).collect();
        (ids, page["next"].as_str().map(str::to_owned))
    };
    assert_eq!(list("").await.0, ["a", "b", "c", "d"]);
    assert_eq!(list("?state=enabled").await.0, ["b"]);
    assert_eq!(list("?collection=users").await.0, ["d"]);
    let (first, next) = list("?limit=3").await;
    assert_eq!((first.len(), next.as_deref()), (3, Some("c")));
    assert_eq!(list("?limit=3&after=c").await, (vec!["d".to_owned()], None));
    triggers.server.put_doc("orders/o1", json!({})).await;
    triggers.called().await.answer(500, "");
    triggers.until("b", |it| it["retrying"] == 1).await;
    let delete = async |path: &str| {
        triggers.server.ask("DELETE", &format!("{TRIGGERS}/default/{path}"), &[], b"").await
    };
    assert_eq!(delete("b?pending=keep").await.expect(400).code(), "INVALID_QUERY");
    delete("b?reason=over").await.expect(204);
    delete("b").await.expect(404);
    triggers.get("b").await.expect(404);
    let letters = triggers.letters(1).await;
    assert_eq!(letters[0]["reason"], "TRIGGER_DELETED", "nothing is lost without a word");
    triggers.enable("a").await;
    triggers.only("orders/o2").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn adm_4_versions_are_kept_and_one_of_them_can_come_back() {
    let mut triggers = Triggers::start().await;
    triggers.enabled("t", json!({ "label": "first" })).await;
    triggers.patch("t", &json!({ "condition": "false", "label": "second" })).await.expect(200);
    let versions = triggers.get("t/versions").await.expect(200).json();
    let versions = versions["versions"].as_array().unwrap().clone();
    let labels = versions.iter().map(|it| (it["version"].clone(), it["label"].clone()));
    let labels: Vec<_> = labels.collect();
    assert_eq!(labels, [(json!(2), json!("second")), (json!(1), json!("first"))]);
    assert_eq!(triggers.get("t/versions/1").await.expect(200).json()["condition"], "");
    assert_eq!(triggers.get("t/versions/7").await.expect(404).code(), "VERSION_NOT_FOUND");
    triggers.get("t/versions/x").await.expect(400);
    let rollback = async |body: Value| triggers.act("t", "rollback", &body).await;
    rollback(json!({})).await.expect(400);
    assert_eq!(rollback(json!({ "version": 9 })).await.expect(404).code(), "VERSION_NOT_FOUND");
    assert_eq!(rollback(json!({ "version": 2 })).await.expect(409).code(), "SAME_VERSION");
    let back =
        rollback(json!({ "version": 1, "reason": "it was better" })).await.expect(200).json();
    assert_eq!((&back["version"], &back["label"]), (&json!(3), &json!("first")));
    triggers.server.put_doc("orders/o1", json!({})).await;
    assert_eq!(triggers.delivered().await["triggerVersion"], 3);
    let audit = triggers.server.get("/admin/v1/audit?triggerId=t").await.expect(200).json();
    let newest = &audit["audit"][0];
    assert_eq!(newest["action"], "trigger.rolled_back", "{newest}");
    assert_eq!(newest["reason"], "it was better");
    assert_eq!((&newest["fromVersion"], &newest["toVersion"]), (&json!(2), &json!(3)));
}

#[tokio::test(flavor = "multi_thread")]
async fn adm_6_the_status_says_how_a_trigger_fares() {
    let mut triggers = Triggers::start().await;
    triggers.create("t", json!({})).await;
    let status = triggers.status("t").await;
    assert_eq!((&status["state"], &status["health"]), (&json!("disabled"), &json!("unknown")));
    triggers.enable("t").await;
    triggers.server.put_doc("orders/o1", json!({})).await;
    triggers.called().await.answer(500, "broken");
    let status = triggers.until("t", |it| it["retrying"] == 1).await;
    assert_eq!((&status["health"], &status["dlq"]), (&json!("failing"), &json!(0)));
    assert!(status["lastError"].as_str().unwrap().contains("500"), "{status}");
    assert_eq!(status["lag"], json!({ "seq": 0, "seconds": 0 }));
    assert_eq!(status["rollout"]["state"], "complete");
    triggers.clock.advance(1_000);
    triggers.delivered().await;
    let status = triggers.until("t", |it| it["delivered"] == 1).await;
    assert_eq!((&status["health"], &status["pending"]), (&json!("healthy"), &json!(0)));
    assert!(!status["lastSuccessAt"].is_null(), "{status}");
    let metrics = triggers.get("t/metrics").await.expect(200).json();
    for (name, value) in [("success", 1), ("fail", 0), ("attempts", 2), ("retries", 1), ("dlq", 0)]
    {
        assert_eq!(metrics[name], value, "{name}: {metrics}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn adm_10_a_trigger_is_tried_with_a_change_that_nobody_has_made() {
    let mut triggers = Triggers::start().await;
    let more = json!({
        "condition": "event.document.total > 100", "headers": { "X-Key": "hidden" },
        "events": ["update"],
    });
    triggers.create("t", more).await;
    let test = async |body: Value| triggers.act("t", "test", &body).await;
    let small = json!({ "path": "orders/o1", "before": {}, "document": { "total": 1 } });
    let answer = test(json!({ "event": small })).await.expect(200).json();
    assert_eq!((&answer["matched"], &answer["sent"]), (&json!(false), &json!(false)));
    assert_eq!(answer["reason"], "the condition is false");
    let broken = json!({ "path": "orders/o1", "before": {}, "document": {} });
    let answer = test(json!({ "event": broken })).await.expect(200).json();
    assert!(answer["evalError"].as_str().unwrap().contains("no `total`"), "{answer}");
    let made = json!({ "path": "orders/o1", "document": { "total": 200 } });
    let answer = test(json!({ "event": made })).await.expect(200).json();
    assert!(answer["reason"].as_str().unwrap().contains("`create`"), "{answer}");
    triggers.server.put_doc("orders/o1", json!({ "total": 500 })).await;
    let answer = test(json!({ "path": "orders/o1" })).await.expect(200).json();
    assert_eq!(answer["matched"], true, "{answer}");
    let request = &answer["request"];
    assert_eq!(request["url"], format!("{}/hook", triggers.sink.url()));
    assert_eq!(request["headers"]["x-key"], "redacted");
    assert_eq!(request["body"]["systemToken"], "redacted");
    assert_eq!(request["body"]["test"], true);
    let draft = json!({ "condition": "false" });
    let answer = test(json!({ "path": "orders/o1", "definition": draft })).await.expect(200).json();
    assert_eq!(answer["matched"], false);
    let answer = test(json!({ "seq": 1 })).await.expect(200).json();
    assert!(answer["reason"].as_str().unwrap().contains("`create`"), "a change that is kept");
    let target = format!("{TRIGGERS}/default/t/test");
    let body = json!({ "path": "orders/o1", "send": true });
    let server = &triggers.server;
    let sent = async { server.post(&target, &body).await.expect(200).json() };
    let (sent, ()) = tokio::join!(sent, async {
        let call = triggers.sink.next().await;
        let (time, tags) = signatures(&call);
        assert_eq!(tags, [tag(SECRET, &time, &call.body)]);
        assert_eq!((call.get("x-key"), &call.json()["test"]), ("hidden", &json!(true)));
        call.answer(202, "fine");
    });
    assert_eq!((&sent["sent"], &sent["status"]), (&json!(true), &json!(202)));
    assert_eq!(sent["response"], "fine");
    for (body, status) in [
        (json!({}), 400),
        (json!({ "path": "orders/o1", "seq": 1 }), 400),
        (json!({ "path": "orders" }), 400),
        (json!({ "path": "orders/none" }), 404),
        (json!({ "seq": 99 }), 404),
        (json!({ "event": 1 }), 400),
        (json!({ "event": {} }), 400),
        (json!({ "event": { "path": "orders/o1" } }), 400),
        (json!({ "event": { "path": "orders/o1", "document": 1 } }), 400),
        (json!({ "event": { "path": "orders/o1", "document": {}, "type": "delete" } }), 400),
        (json!({ "path": "orders/o1", "definition": { "url": "http://10.0.0.1/" } }), 400),
        (json!({ "path": "orders/o1", "definition": [] }), 400),
        (json!({ "path": "orders/o1", "snd": true }), 400),
    ] {
        let answer = triggers.act("t", "test", &body).await;
        assert_eq!(answer.status(), status, "{body}: {answer}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn adm_12_an_endpoint_shows_that_it_is_well_before_its_trigger_is_enabled() {
    let mut triggers = Triggers::start().await;
    triggers.create("t", json!({})).await;
    let target = format!("{TRIGGERS}/default/t/enable");
    let server = &triggers.server;
    let enable = async || server.post(&target, &json!({})).await;
    let (refused, ()) = tokio::join!(enable(), async {
        let call = triggers.sink.next().await;
        assert_eq!(
            (&call.json()["event"], &call.json()["triggerId"]),
            (&json!("ping"), &json!("t"))
        );
        let (time, tags) = signatures(&call);
        assert_eq!(tags, [tag(SECRET, &time, &call.body)], "it is signed");
        call.answer(503, "not yet");
    });
    let refused = refused.expect(409);
    assert_eq!(refused.code(), "HEALTH_CHECK_FAILED");
    assert_eq!(refused.json()["error"]["status"], 503);
    assert_eq!(triggers.status("t").await["state"], "disabled");
    let unreasoned = server.post(&target, &json!({ "force": true })).await.expect(400);
    assert!(unreasoned.text().contains("`reason` must say why"), "{unreasoned}");
    let (enabled, ()) = tokio::join!(enable(), async {
        triggers.sink.next().await.ok();
    });
    assert_eq!(enabled.expect(200).json()["state"], "enabled");
    // Nobody is asked twice.
    assert_eq!(enable().await.expect(200).json()["state"], "enabled");
    let check = format!("{TRIGGERS}/default/t/health-check");
    let nothing = json!({});
    let (checked, ()) = tokio::join!(server.post(&check, &nothing), async {
        triggers.sink.next().await.ok();
    });
    assert_eq!(checked.expect(200).json()["ok"], true);
}

#[tokio::test(flavor = "multi_thread")]
async fn def_3_a_file_is_applied_whole_or_not_at_all() {
    let triggers = Triggers::start().await;
    let apply = async |body: Value| triggers.post(&format!("{TRIGGERS}/apply"), &body).await;
    let file = |condition: &str| {
        json!({
            "retryPolicy": { "maxAttempts": 2 },
            "triggers": {
                "a": triggers.definition(json!({ "condition": condition })),
                "b": triggers.definition(json!({})),
            },
        })
    };
    let results = |answer: Answer| {
        let body = answer.expect(200).json();
        let results = body["triggers"].as_array().unwrap().iter();
        results
            .map(|it| {
                let text = |name: &str| it[name].as_str().unwrap().to_owned();
                (text("triggerId"), it["version"].as_u64().unwrap(), text("result"))
            })
            .collect::<Vec<_>>()
    };
    let row = |id: &str, version, result: &str| (id.to_owned(), version, result.to_owned());
    let mut bad = file("true");
    bad["triggers"]["c"] = json!({});
    let refused = apply(bad).await.expect(400);
    assert_eq!(refused.json()["error"]["field"], "triggers.c.collection");
    triggers.get("a").await.expect(404);
    let mut dry = file("true");
    dry["dryRun"] = json!(true);
    assert_eq!(results(apply(dry).await), [row("a", 1, "created"), row("b", 1, "created")]);
    triggers.get("a").await.expect(404);
    assert_eq!(
        results(apply(file("true")).await),
        [row("a", 1, "created"), row("b", 1, "created")]
    );
    assert_eq!(triggers.get("b").await.json()["retryPolicy"]["maxAttempts"], 2);
    let mut again = file("false");
    again["reason"] = json!("less of it");
    assert_eq!(results(apply(again).await), [row("a", 2, "updated"), row("b", 1, "unchanged")]);
    for (id, version, sentence) in [
        ("a", 1, "`a` has version 2 by now"),
        ("a", 0, "`a` has version 2 by now"),
        ("new", 3, "no trigger `new` any more"),
    ] {
        let mut stale = file("true");
        stale["triggers"][id] = triggers.definition(json!({ "version": version }));
        let refused = apply(stale).await.expect(412);
        assert_eq!(refused.code(), "PRECONDITION_FAILED");
        assert!(refused.text().contains(sentence), "{refused}");
    }
    triggers.get("new").await.expect(404);
    let mut seen = file("true");
    seen["dryRun"] = json!(true);
    seen["triggers"]["new"] = triggers.definition(json!({ "version": 0 }));
    let planned = apply(seen).await.expect(200).json();
    let of = |at: usize| planned["triggers"][at]["seen"].clone();
    assert_eq!([of(0), of(1), of(2)], [json!(2), json!(1), json!(0)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn chk_1_the_checkpoint_shows_how_far_triggers_have_come() {
    let mut triggers = Triggers::start().await;
    triggers.enabled("t", json!({})).await;
    for number in 1..=3 {
        triggers.server.put_doc("orders/o1", json!({ "n": number })).await;
        triggers.delivered().await;
    }
    let target = "/admin/v1/checkpoints/trigger_evaluator";
    let shown = triggers.server.get(target).await.expect(200).json();
    let expected = json!([{
        "tenant": "default", "token": "3", "head": 3, "lag": 0, "waitingSince": null,
    }]);
    assert_eq!(shown["checkpoints"], expected);
    triggers.server.ask("PUT", target, &[], b"{}").await.expect(405);
    triggers.server.get_doc("sys/checkpoints").await.expect(400);
}
