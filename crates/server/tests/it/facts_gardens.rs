//! Gardens and capability tokens: made, given and taken away.

use serde_json::{Value, json};

use crate::harness::facts::{Facts, text};
use crate::harness::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_garden_is_made_shown_listed_and_deleted() {
    let facts = Facts::start().await;
    let alice = facts.party("alice", &["company"]).await;
    let bob = facts.party("bob", &["company"]).await;
    let body = json!({ "slug": "atlas", "name": "Project Atlas", "scope": "company" });
    let garden = facts.post(&alice, "/v1/gardens", &body).await.expect(201).json();
    let expected = json!({
        "slug": "atlas", "name": "Project Atlas", "scope": "company", "created_by": "user:alice",
        "created_at": START_MS, "members": 1, "role": "admin",
    });
    assert_eq!(garden, expected);
    assert_eq!(facts.post(&bob, "/v1/gardens", &body).await.expect(409).code(), "garden_exists");
    assert_eq!(facts.get(&alice, "/v1/gardens/atlas").await.expect(200).json(), expected);
    assert_eq!(facts.get(&bob, "/v1/gardens/atlas").await.expect(403).code(), "garden_forbidden");
    let listed = facts.get(&alice, "/v1/gardens").await.expect(200).json();
    assert_eq!(listed["gardens"], json!([expected]));
    assert_eq!(facts.get(&bob, "/v1/gardens").await.expect(200).json()["gardens"], json!([]));
    let refused = facts.delete(&bob, "/v1/gardens/atlas").await.expect(403);
    assert_eq!(refused.code(), "garden_forbidden");
    facts.delete(&alice, "/v1/gardens/atlas").await.expect(204);
    for answer in [
        facts.get(&alice, "/v1/gardens/atlas").await,
        facts.delete(&alice, "/v1/gardens/atlas").await,
        facts.get(&alice, "/v1/gardens/atlas/members").await,
        facts.get(&alice, "/v1/gardens/A%20b").await,
    ] {
        assert_eq!(answer.expect(404).code(), "garden_not_found");
    }
    facts.post(&bob, "/v1/gardens", &body).await.expect(201);
    facts.server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn members_come_and_go_and_the_last_admin_stays() {
    let facts = Facts::start().await;
    let alice = facts.party("alice", &["company"]).await;
    let bob = facts.party("stigmem://co/user/bob", &["company"]).await;
    let body = json!({ "slug": "atlas", "name": "Atlas", "scope": "company" });
    facts.post(&alice, "/v1/gardens", &body).await.expect(201);
    let members = "/v1/gardens/atlas/members";
    let add = json!({ "entity_uri": "User:stigmem://co/user/BOB", "role": "writer" });
    let added = facts.post(&alice, members, &add).await.expect(201).json();
    let expected =
        json!({ "entity_uri": bob.entity, "role": "writer", "added_at": START_MS, "former": [] });
    assert_eq!(added, expected);
    assert_eq!(facts.post(&alice, members, &add).await.expect(409).code(), "member_exists");
    let refused = facts.post(&bob, members, &json!({ "entity_uri": "x", "role": "reader" })).await;
    assert_eq!(
        refused.expect(403).code(),
        "garden_forbidden",
        "a writer says not who belongs to it"
    );
    let listed = facts.get(&bob, members).await.expect(200).json();
    let names: Vec<&Value> =
        listed["members"].as_array().unwrap().iter().map(|it| &it["entity_uri"]).collect();
    assert_eq!(names, [&json!("user:alice"), &json!(bob.entity)]);
    let me = format!("{members}/user%3Aalice");
    assert_eq!(facts.delete(&alice, &me).await.expect(403).code(), "last_admin");
    let him = format!("{members}/{}", bob.entity.replace('/', "%2F"));
    facts.delete(&alice, &him).await.expect(204);
    assert_eq!(facts.delete(&alice, &him).await.expect(404).code(), "member_not_found");
    let again = json!({ "entity_uri": bob.entity, "role": "reader" });
    let again = facts.post(&alice, members, &again).await.expect(201).json();
    let span = json!({ "role": "writer", "added_at": START_MS, "removed_at": START_MS });
    assert_eq!(again["former"], json!([span]));
    let admin = json!({ "role": "admin" }).to_string();
    let put = async |target: &str| {
        facts.server.ask_as(&alice.key, "PUT", target, &[], admin.as_bytes()).await
    };
    assert_eq!(put(&him).await.expect(200).json()["role"], "admin");
    let nobody = put(&format!("{members}/nobody")).await.expect(404);
    assert_eq!(nobody.code(), "member_not_found");
    facts.delete(&bob, &me).await.expect(204);
    // Whoever runs the tenant says who belongs to a garden, and is no member for that.
    facts.get(&facts.admin, "/v1/facts?garden_id=atlas").await.expect(403);
    let back = json!({ "entity_uri": "user:alice", "role": "reader" });
    facts.post(&facts.admin, members, &back).await.expect(201);
    for wrong in [
        json!({}),
        json!({ "entity_uri": "x" }),
        json!({ "entity_uri": "x", "role": "owner" }),
        json!({ "entity_uri": "", "role": "reader" }),
        json!({ "entity_uri": "x", "role": "reader", "since": 1 }),
    ] {
        let answer = facts.post(&bob, members, &wrong).await.expect(422);
        assert_eq!(answer.code(), "invalid_member", "{wrong}");
    }
    facts.server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn gardens_that_cannot_be_are_refused_with_a_sentence() {
    let facts = Facts::start().await;
    for wrong in [
        json!({}),
        json!({ "slug": "" }),
        json!({ "slug": "-a" }),
        json!({ "slug": "Atlas" }),
        json!({ "slug": "x".repeat(64) }),
        json!({ "slug": 1 }),
        json!({ "slug": "a", "name": "" }),
        json!({ "slug": "a", "name": "x".repeat(257) }),
        json!({ "slug": "a", "scope": "global" }),
        json!({ "slug": "a", "colour": "red" }),
    ] {
        let answer = facts.post(&facts.admin, "/v1/gardens", &wrong).await.expect(422);
        assert_eq!(answer.code(), "invalid_garden", "{wrong}");
    }
    let (method, target) = ("PATCH", "/v1/gardens/atlas");
    let answer = facts.server.ask_as(&facts.admin.key, method, target, &[], b"").await.expect(405);
    assert_eq!(answer.code(), "method_not_allowed");
    assert_eq!(answer.need("allow"), "GET, HEAD, DELETE, OPTIONS");
    facts.server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_are_issued_seen_and_revoked() {
    let facts = Facts::start().await;
    let alice = facts.party("alice", &["company"]).await;
    let issued = facts.issue(&alice, json!({ "object": "company", "ttl_seconds": 60 })).await;
    let (id, token) = (text(&issued["token_id"]), text(&issued["token"]));
    let shown = json!({
        "token_id": id, "subject": "user:alice", "verb": "subscribe", "object": "scope:company",
        "issued_at": START_MS, "expires_at": START_MS + 60_000, "revoked_at": null,
        "revoke_reason": null, "status": "active",
    });
    let mut expected = shown.clone();
    expected["token"] = json!(token);
    assert_eq!(issued, expected);
    const TOKENS: &str = "/v1/federation/capability-tokens";
    let list = facts.get(&facts.admin, TOKENS).await.expect(200);
    assert_eq!(list.json()["tokens"], json!([shown]));
    assert!(!list.text().contains(&token), "a token is shown once");
    assert_eq!(facts.get(&alice, TOKENS).await.expect(403).code(), "admin_required");
    let body = json!({ "subject": "user:alice", "verb": "subscribe", "object": "*" });
    let refused = facts.post(&alice, TOKENS, &body).await.expect(403);
    assert_eq!(refused.code(), "admin_required");
    let revoke = format!("{TOKENS}/{id}/revoke");
    assert_eq!(facts.post(&alice, &revoke, &json!({})).await.expect(403).code(), "admin_required");
    facts.clock.advance(5);
    let reason = json!({ "reason": "left" });
    let revoked = facts.post(&facts.admin, &revoke, &reason).await.expect(200).json();
    let expected = json!({ "token_id": id, "revoked_at": START_MS + 5, "status": "revoked" });
    assert_eq!(revoked, expected);
    let again = facts.post(&facts.admin, &revoke, &reason).await.expect(409);
    assert_eq!(again.code(), "token_already_revoked");
    for unknown in ["x", "00000000-0000-8003-8000-0000000fffff"] {
        let answer =
            facts.post(&facts.admin, &format!("{TOKENS}/{unknown}/revoke"), &json!({})).await;
        assert_eq!(answer.expect(404).code(), "token_not_found");
    }
    let seen = facts.get(&facts.admin, TOKENS).await.expect(200).json()["tokens"][0].clone();
    assert_eq!((&seen["status"], &seen["revoke_reason"]), (&json!("revoked"), &json!("left")));
    facts.server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_that_cannot_be_are_refused_with_a_sentence() {
    let facts = Facts::start().await;
    let good = json!({ "subject": "user:a", "verb": "subscribe", "object": "scope:company" });
    for (name, value) in [
        ("subject", json!(null)),
        ("subject", json!("")),
        ("verb", json!("fly")),
        ("verb", json!(null)),
        ("object", json!("scope:nowhere")),
        ("object", json!(null)),
        ("ttl_seconds", json!(0)),
        ("ttl_seconds", json!(90 * 86_400 + 1)),
        ("ttl_seconds", json!(-1)),
        ("ttl_seconds", json!("1h")),
        ("color", json!("red")),
    ] {
        let mut body = good.clone();
        body[name] = value;
        let answer =
            facts.post(&facts.admin, "/v1/federation/capability-tokens", &body).await.expect(422);
        assert_eq!(answer.code(), "invalid_token_request", "{body}");
    }
    let mut longest = good;
    longest["ttl_seconds"] = json!(90 * 86_400);
    facts.post(&facts.admin, "/v1/federation/capability-tokens", &longest).await.expect(201);
    facts.server.stop().await;
}

/// What was made is there after a crash: gardens, who belongs to them, and which tokens hold.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_answered_is_there_after_a_crash() {
    let facts = Facts::start().await;
    let alice = facts.party("alice", &["company"]).await;
    let (kept, revoked) = (
        facts.issue(&alice, json!({})).await,
        facts.issue(&alice, json!({ "object": "entity:x" })).await,
    );
    facts.revoke_token(&text(&revoked["token_id"])).await;
    facts.garden("atlas").await;
    facts.join("atlas", &alice, "writer").await;
    let facts = facts.crash().await;
    let listed = facts.get(&alice, "/v1/gardens").await.expect(200).json();
    assert_eq!(listed["gardens"][0]["role"], "writer");
    let wish = facts.wish("scope:company", json!({})).to_string();
    let ask = async |token: &Value| {
        let headers = [("stigmem-capability", token.as_str().unwrap())];
        facts
            .server
            .ask_as(&alice.key, "POST", "/v1/subscriptions", &headers, wish.as_bytes())
            .await
    };
    assert_eq!(ask(&revoked["token"]).await.expect(403).code(), "token_revoked");
    ask(&kept["token"]).await.expect(201);
    facts.server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn strangers_are_told_apart_in_the_words_of_this_face() {
    let facts = Facts::start().await;
    for target in ["/v1/facts", "/v1/gardens", "/v1/subscriptions", "/v1/cards?entity=x"] {
        let answer = facts.server.get(target).await.expect(401);
        assert_eq!(answer.code(), "unauthenticated", "{target}");
        let answer = facts.server.get_as("rv_nobody", target).await.expect(401);
        assert_eq!(answer.code(), "unauthenticated", "{target}");
    }
    let operator =
        crate::harness::facts::make_party(&facts.server, "acme", "user:op", &["operator"], &["*"])
            .await;
    for target in ["/v1/facts", "/v1/subscriptions"] {
        let answer = facts.get(&operator, target).await.expect(403);
        assert_eq!(answer.code(), "forbidden", "{target}");
    }
    facts.server.stop().await;
}
