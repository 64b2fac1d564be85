//! The token of a delivery: what its holder may do, and how triggers that answer each other end.

use serde_json::{Value, json};

use crate::harness::*;

async fn write_back(triggers: &Triggers, body: &Value, key: &str, path: &str) -> Answer {
    let token = body["systemToken"].as_str().unwrap();
    let ops = json!([{ "type": "set", "path": path, "data": { "key": key } }]);
    triggers.server.call_write(token, key, &ops).await
}

#[tokio::test(flavor = "multi_thread")]
async fn tet_3_the_token_of_a_delivery_is_for_its_collection_unless_it_says_otherwise() {
    let mut triggers = Triggers::start().await;
    let more = json!({ "collection": "rooms/*/messages" });
    triggers.enabled("plain", more).await;
    let token = json!({ "allowPaths": ["/rooms/{1}/"], "scopes": ["trigger.read"], "maxOps": 1 });
    let more = json!({ "collection": "halls/*/messages", "token": token });
    triggers.enabled("own", more).await;
    triggers.server.put_doc("rooms/r1/messages/m1", json!({})).await;
    let body = triggers.delivered().await;
    write_back(&triggers, &body, "a", "/rooms/r1/messages/m2").await.expect(200);
    for (key, other) in
        [("b", "/rooms/r2/messages/m1"), ("c", "/rooms/r1"), ("d", "/rooms/r12/messages/m")]
    {
        let refused = write_back(&triggers, &body, key, other).await.expect(403);
        assert!(refused.text().contains("PATH_NOT_ALLOWED"), "TET-5: {other} {refused}");
    }
    assert_eq!(triggers.delivered().await["id"], "m2");
    triggers.server.put_doc("halls/h1/messages/m1", json!({})).await;
    let body = triggers.delivered().await;
    let refused = write_back(&triggers, &body, "e", "/rooms/h1/x").await.expect(403);
    assert!(refused.text().contains("INVALID_SCOPE"), "{refused}");
    let token = body["systemToken"].as_str().unwrap();
    let read = triggers.server.call(token, "get", &json!({ "paths": ["/rooms/h1"] })).await;
    assert_eq!(read.expect(200).json()["documents"][0]["missing"], true);
    let two = json!({ "paths": ["/rooms/h1", "/rooms/h1"] });
    triggers.server.call(token, "get", &two).await.expect(429);
    triggers.clock.advance(300_000);
    triggers.server.call(token, "get", &json!({ "paths": ["/rooms/h1"] })).await.expect(401);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trigger_that_writes_into_its_own_collection_stops_at_the_loop_guard() {
    let mut triggers = Triggers::start().await;
    triggers.enabled("loop", json!({})).await;
    triggers.server.put_doc("orders/o0", json!({})).await;
    for depth in 0..8 {
        let body = triggers.delivered().await;
        assert_eq!(body["path"], format!("orders/o{depth}"));
        let next = format!("/orders/o{}", depth + 1);
        write_back(&triggers, &body, &format!("k{depth}"), &next).await.expect(200);
    }
    let letter = triggers.letters(1).await.remove(0);
    assert_eq!((&letter["reason"], &letter["triggerId"]), (&json!("LOOP_GUARD"), &json!("loop")));
    triggers.only("orders/other").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_condition_can_leave_out_what_triggers_have_written() {
    let mut triggers = Triggers::start().await;
    triggers.enabled("own", json!({ "condition": "event.origin == null" })).await;
    let more = json!({ "condition": "event.origin != null && event.origin.trigger == 'own'" });
    triggers.enabled("others", more).await;
    triggers.server.put_doc("orders/o1", json!({})).await;
    let body = triggers.delivered().await;
    assert_eq!(body["triggerId"], "own");
    write_back(&triggers, &body, "k", "/orders/o2").await.expect(200);
    let body = triggers.delivered().await;
    assert_eq!((&body["triggerId"], &body["path"]), (&json!("others"), &json!("orders/o2")));
    triggers.server.put_doc("orders/o3", json!({})).await;
    assert_eq!(triggers.delivered().await["triggerId"], "own");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delivery_is_never_made_with_a_system_token() {
    let mut triggers = Triggers::start().await;
    triggers.enabled("t", json!({})).await;
    triggers.server.put_doc("orders/o1", json!({})).await;
    let body = triggers.delivered().await;
    let token = body["systemToken"].as_str().unwrap();
    let claims = token.split('.').nth(1).unwrap();
    let claims = base64::Engine::decode(&base64::engine::general_purpose::URL_SAFE_NO_PAD, claims);
    let claims: Value = serde_json::from_slice(&claims.unwrap()).unwrap();
    assert_eq!((&claims["sub"], &claims["tenant"]), (&json!("t"), &json!("default")), "C-3");
    assert!(claims.get("roles").is_none(), "{claims}");
    assert_eq!(claims["allow_paths"], json!(["/orders/"]));
    let life = claims["exp"].as_u64().unwrap() - claims["iat"].as_u64().unwrap();
    assert_eq!(life, 300, "TET-1");
}
