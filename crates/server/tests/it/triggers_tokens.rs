//! The token of a delivery: what its holder may do, and for how long.

use serde_json::{Value, json};

use crate::harness::triggers::codes_of;
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
async fn a_delivery_has_a_token_for_what_its_definition_says_and_no_more() {
    let mut triggers = Triggers::start().await;
    let more = json!({ "collection": "rooms/*/messages", "token": {
        "scopes": ["trigger.read", "trigger.write"], "maxOps": 1,
        "allowPaths": ["/rooms/{1}/replies/", "/log/{id}-{tenant}/"],
    } });
    let refused = triggers.post(TRIGGERS, &triggers.definition(more.clone())).await;
    refused.expect(400);
    let more = json!({ "collection": "rooms/*/messages", "token": {
        "scopes": ["trigger.read", "trigger.write"], "maxOps": 1,
        "allowPaths": ["/rooms/{1}/replies/", "/log/{id}/"],
    } });
    triggers.enabled("t", more).await;
    triggers.server.put_doc("rooms/r1/messages/m9", json!({ "text": "hi" })).await;
    let body = triggers.delivered().await;
    let token = body["systemToken"].as_str().unwrap();
    let server = &triggers.server;
    let set = |path: &str| json!([{ "type": "set", "path": path, "data": {} }]);
    for (at, (path, status)) in [
        ("rooms/r1/replies/a", 200),
        ("log/m9", 200),
        ("rooms/r1/messages/m9", 403),
        ("rooms/r12/replies/a", 403),
        ("log/m99", 403),
        ("rooms/r1", 403),
    ]
    .into_iter()
    .enumerate()
    {
        let answer = server.call_write(token, &format!("k{at}"), &set(path)).await;
        assert_eq!(answer.status(), status, "{path} {answer}");
    }
    let two = json!({ "paths": ["log/m9", "log/m9"] });
    let refused = server.call(token, "get", &two).await.expect(429).json();
    assert_eq!(codes_of(&refused).0, "RESOURCE_EXHAUSTED");
    // TET-1: for five minutes.
    triggers.clock.advance(300_000);
    server.call(token, "get", &json!({ "paths": ["log/m9"] })).await.expect(401);
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

/// Whoever deletes a trigger has nobody act in its name any more; a pause lets calls come to their end.
#[tokio::test(flavor = "multi_thread")]
async fn tet_1_tokens_end_with_their_trigger_and_not_with_a_pause() {
    let mut triggers = Triggers::start().await;
    triggers.enabled("t", json!({})).await;
    triggers.server.put_doc("orders/o1", json!({})).await;
    let body = triggers.delivered().await;
    triggers.act("t", "disable", &json!({ "reason": "a pause" })).await.expect(200);
    write_back(&triggers, &body, "a", "/orders/o2").await.expect(200);
    triggers.server.ask("DELETE", &format!("{TRIGGERS}/default/t"), &[], b"").await.expect(204);
    let refused = write_back(&triggers, &body, "b", "/orders/o3").await.expect(401);
    assert!(refused.text().contains("was deleted"), "{refused}");
    // Another one that has its name now is not the one that was called.
    triggers.enabled("t", json!({})).await;
    write_back(&triggers, &body, "b", "/orders/o3").await.expect(401);
    let token = body["systemToken"].as_str().unwrap();
    triggers.server.call(token, "get", &json!({ "paths": ["/orders/o1"] })).await.expect(401);
    triggers.server.get("/api/v1/orders/o3").await.expect(404);
}
