//! Refusals of triggers, their secrets and what they are tried with.

use serde_json::{Value, json};

use super::JSON;
use crate::harness::*;

const SECRETS: &str = "/admin/v1/tenants/default/secrets";

pub(super) async fn refusals(seen: &mut Vec<Answer>) {
    let mut triggers = Triggers::with(|setup| setup.quotas.triggers = 2).await;
    triggers.create("t", json!({})).await;
    triggers.create("u", json!({ "secretsRef": "own" })).await;
    triggers.server.put_doc("orders/large", json!({ "text": "x".repeat(262_144) })).await;
    let definition = triggers.definition(json!({}));
    let twice = triggers.definition(json!({ "triggerId": "t" }));
    let bad = triggers.definition(json!({ "timeout": 5 }));
    let blocked = triggers.definition(json!({ "url": "https://10.0.0.1/" }));
    let forced = json!({ "force": true, "reason": "a test" });
    let trigger = |rest: &str| format!("{TRIGGERS}/default/{rest}");
    let requests: [(&str, String, Value, u16, &str); 15] = [
        ("POST", TRIGGERS.into(), definition, 403, "QUOTA_EXCEEDED"),
        ("POST", TRIGGERS.into(), twice, 409, "TRIGGER_EXISTS"),
        ("POST", TRIGGERS.into(), bad, 400, "INVALID_ARGUMENT"),
        ("POST", TRIGGERS.into(), blocked, 400, "INVALID_ARGUMENT"),
        ("GET", trigger("none"), json!({}), 404, "TRIGGER_NOT_FOUND"),
        ("PATCH", trigger("t"), json!({ "version": 7 }), 412, "PRECONDITION_FAILED"),
        ("POST", trigger("t/rollback"), json!({ "version": 7 }), 404, "VERSION_NOT_FOUND"),
        ("POST", trigger("t/rollback"), json!({ "version": 1 }), 409, "SAME_VERSION"),
        ("GET", trigger("t/dry-run"), json!({}), 404, "DRY_RUN_NOT_FOUND"),
        ("POST", trigger("u/enable"), forced, 409, "SECRET_NOT_FOUND"),
        ("POST", trigger("t/test"), json!({ "path": "orders/x" }), 404, "DOCUMENT_NOT_FOUND"),
        ("POST", trigger("t/test"), json!({ "seq": 99 }), 404, "CHANGE_NOT_FOUND"),
        ("POST", trigger("t/test"), json!({ "path": "orders/large" }), 409, "NOTHING_TO_SEND"),
        ("POST", format!("{SECRETS}/default"), json!({}), 409, "SECRET_EXISTS"),
        ("POST", format!("{SECRETS}/none/rotate"), json!({}), 404, "SECRET_NOT_FOUND"),
    ];
    for (method, target, body, status, code) in requests {
        let body = body.to_string();
        let answer = triggers.server.ask(method, &target, &[JSON], body.as_bytes()).await;
        assert_eq!((answer.status(), answer.code().as_str()), (status, code), "{target} {answer}");
        seen.push(answer);
    }
    let enable = trigger("t/enable");
    let nothing = json!({});
    let (refused, ()) = tokio::join!(triggers.server.post(&enable, &nothing), async {
        triggers.sink.next().await.answer(503, "");
    });
    seen.push(refused.expect(409));
    triggers.enable("t").await;
    let used = triggers.server.ask("DELETE", &format!("{SECRETS}/default"), &[], b"").await;
    seen.push(used.expect(409));
    triggers.server.stop().await;
}
