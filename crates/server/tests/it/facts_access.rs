//! Access at the moment of each delivery: the decision table, one test a line.

use serde_json::{Value, json};

use crate::harness::facts::{CANCELLED, Facts, make_party, text};
use crate::harness::keys::ADMIN;

/// A garden fact.
fn secret(more: Value) -> Value {
    let mut fact = json!({ "garden_id": "atlas", "relation": "secret" });
    for (name, value) in more.as_object().unwrap() {
        fact[name] = value.clone();
    }
    fact
}

#[tokio::test(flavor = "multi_thread")]
async fn b_4_i_s_22_s_25_a_revoked_token_cancels_in_silence() {
    let mut facts = Facts::start().await;
    let alice = facts.party("alice", &["*"]).await;
    let token = facts.grant(&alice, "scope:company").await;
    let id = facts.subscribe(&alice, "scope:company").await;
    facts.say(json!({})).await;
    facts.called().await.ok();
    facts.revoke_token(&token).await;
    facts.say(json!({})).await;
    facts.ends(&alice, &id, "token_revoked").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b_4_ii_s_23_s_25_whoever_is_removed_from_a_garden_is_told_nothing_more() {
    let mut facts = Facts::start().await;
    let alice = facts.subscriber("alice", &["*"]).await;
    facts.garden("atlas").await;
    facts.join("atlas", &alice, "reader").await;
    let id = facts.subscribe(&alice, "scope:garden:atlas").await;
    facts.say(secret(json!({}))).await;
    let call = facts.called().await;
    assert_eq!(call.json()["payload"]["garden_id"], "atlas");
    call.ok();
    facts.leave("atlas", &alice).await;
    facts.say(secret(json!({}))).await;
    facts.ends(&alice, &id, "acl_revoked").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b_4_iii_whoever_was_never_a_member_misses_the_gardens_facts_alone() {
    let mut facts = Facts::start().await;
    let alice = facts.subscriber("alice", &["*"]).await;
    facts.garden("atlas").await;
    let id = facts.subscribe(&alice, "scope:global").await;
    facts.say(secret(json!({}))).await;
    facts.say(json!({ "relation": "plain" })).await;
    let call = facts.called().await;
    assert_eq!(call.json()["payload"]["relation"], "plain");
    call.ok();
    facts.quiet("the other fact is in a garden").await;
    assert_eq!(facts.shown(&alice, &id).await["cancelled_at"], Value::Null);
    // Who was a member before the subscription and is none since, is none to it.
    facts.join("atlas", &alice, "reader").await;
    facts.say(secret(json!({ "relation": "shared" }))).await;
    let call = facts.called().await;
    assert_eq!(call.json()["payload"]["relation"], "shared");
    call.ok();
    facts.server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b_4_iii_a_membership_that_ended_before_the_subscription_is_none() {
    let mut facts = Facts::start().await;
    let alice = facts.subscriber("alice", &["*"]).await;
    facts.garden("atlas").await;
    facts.join("atlas", &alice, "reader").await;
    facts.leave("atlas", &alice).await;
    let id = facts.subscribe(&alice, "scope:global").await;
    facts.say(secret(json!({}))).await;
    facts.quiet("she is no member").await;
    assert_eq!(facts.shown(&alice, &id).await["cancelled_at"], Value::Null);
    facts.server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b_4_iv_a_token_that_is_revoked_between_attempts_stops_the_next_one() {
    let mut facts = Facts::start().await;
    let alice = facts.party("alice", &["*"]).await;
    let token = facts.grant(&alice, "scope:company").await;
    let id = facts.subscribe(&alice, "scope:company").await;
    facts.say(json!({})).await;
    let call = facts.called().await;
    let event = call.json();
    call.answer(503, "later");
    facts.until_failed(&event, 1).await;
    facts.revoke_token(&token).await;
    facts.clock.advance(1_000);
    facts.ends(&alice, &id, "token_revoked").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b_4_iv_membership_and_key_are_looked_at_again_between_attempts() {
    let mut facts = Facts::start().await;
    facts.garden("atlas").await;
    for (name, by) in [("alice", "leave"), ("bob", "key")] {
        let who = facts.subscriber(name, &["*"]).await;
        facts.join("atlas", &who, "reader").await;
        let id = facts.subscribe(&who, "scope:garden:atlas").await;
        facts.say(secret(json!({}))).await;
        let call = facts.called().await;
        let event = call.json();
        call.answer(503, "later");
        facts.until_failed(&event, 1).await;
        if by == "leave" {
            facts.leave("atlas", &who).await;
        } else {
            facts.server.revoke(ADMIN, &who.key_id).await.expect(204);
        }
        facts.clock.advance(1_000);
        // Her key may be gone: the admin looks.
        let admin = facts.admin.clone();
        facts.ended(&admin, &id, "acl_revoked").await;
    }
    facts.server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b_4_v_the_token_is_looked_at_first() {
    let facts = Facts::start().await;
    let alice = facts.party("alice", &["*"]).await;
    let token = facts.grant(&alice, "*").await;
    facts.garden("atlas").await;
    facts.join("atlas", &alice, "reader").await;
    let id = facts.subscribe(&alice, "scope:garden:atlas").await;
    facts.leave("atlas", &alice).await;
    facts.revoke_token(&token).await;
    facts.say(secret(json!({}))).await;
    facts.ends(&alice, &id, "token_revoked").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b_4_vi_s_24_a_replay_shows_nothing_that_may_not_be_shown() {
    let mut facts = Facts::start().await;
    let alice = facts.party("alice", &["*"]).await;
    let token = facts.grant(&alice, "scope:company").await;
    let id = facts.subscribe(&alice, "scope:company").await;
    facts.say(json!({})).await;
    facts.called().await.ok();
    assert_eq!(facts.replay(&alice, &id).await.len(), 1);
    facts.revoke_token(&token).await;
    let target = format!("/v1/subscriptions/{id}/events");
    let answer = facts.get(&alice, &target).await.expect(200);
    assert_eq!(answer.json()["events"][0]["event_type"], CANCELLED, "neither content nor ids");
    assert!(!answer.text().contains("acme"), "{answer}");
    facts.ends(&alice, &id, "token_revoked").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b_4_vi_s_26_a_replay_after_leaving_a_garden_shows_none_of_its_facts() {
    let mut facts = Facts::start().await;
    let alice = facts.subscriber("alice", &["*"]).await;
    facts.garden("atlas").await;
    facts.join("atlas", &alice, "reader").await;
    let id = facts.subscribe(&alice, "scope:global").await;
    for fact in [json!({ "relation": "plain" }), secret(json!({}))] {
        facts.say(fact).await;
        facts.called().await.ok();
    }
    assert_eq!(facts.replay(&alice, &id).await.len(), 2);
    facts.leave("atlas", &alice).await;
    let answer = facts.get(&alice, &format!("/v1/subscriptions/{id}/events")).await.expect(200);
    assert!(!answer.text().contains("secret"), "{answer}");
    facts.ends(&alice, &id, "acl_revoked").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b_4_vii_what_was_cancelled_stays_so_and_is_asked_for_anew() {
    let mut facts = Facts::start().await;
    let alice = facts.subscriber("alice", &["*"]).await;
    facts.garden("atlas").await;
    facts.join("atlas", &alice, "reader").await;
    let id = facts.subscribe(&alice, "scope:garden:atlas").await;
    facts.leave("atlas", &alice).await;
    facts.say(secret(json!({}))).await;
    facts.cancelled(&alice, &id).await;
    facts.join("atlas", &alice, "reader").await;
    facts.say(secret(json!({}))).await;
    facts.quiet("it is cancelled").await;
    assert_eq!(facts.shown(&alice, &id).await["cancelled_by"], "acl_revoked");
    let again = facts.subscribe(&alice, "scope:garden:atlas").await;
    assert_ne!(again, id);
    facts.say(secret(json!({}))).await;
    let call = facts.called().await;
    assert_eq!(call.json()["subscription_id"], again);
    call.ok();
    facts.server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b_4_viii_another_tenant_knows_nothing_of_it() {
    let mut facts = Facts::start().await;
    let alice = facts.subscriber("alice", &["*"]).await;
    facts.garden("atlas").await;
    let id = facts.subscribe(&alice, "scope:company").await;
    let fact = facts.say(json!({})).await;
    facts.called().await.ok();
    let other = make_party(&facts.server, "beta", "user:admin", &["admin"], &["*"]).await;
    for target in [
        format!("/v1/subscriptions/{id}"),
        format!("/v1/subscriptions/{id}/events"),
        format!("/v1/facts/{}", text(&fact["id"])),
        "/v1/gardens/atlas".to_owned(),
        "/v1/gardens/atlas/members".to_owned(),
        "/v1/cards?entity=user:alice&scope=company".to_owned(),
    ] {
        facts.get(&other, &target).await.expect(404);
    }
    let found = facts.get(&other, "/v1/facts").await.expect(200).json();
    assert_eq!(found["facts"], json!([]));
    // The tenants' tokens are good for one of them, whoever has the same name.
    let token = text(&facts.issue(&alice, json!({})).await["token"]);
    let twin = make_party(&facts.server, "beta", "user:alice", &["user"], &["*"]).await;
    let wish = facts.wish("scope:company", json!({})).to_string();
    let headers = [("stigmem-capability", token.as_str())];
    let answer = facts
        .server
        .ask_as(&twin.key, "POST", "/v1/subscriptions", &headers, wish.as_bytes())
        .await
        .expect(403);
    assert_eq!(answer.code(), "token_invalid");
    facts.server.stop().await;
}

/// One attempt may be under way; another waits for its turn, claimed, while access ends.
#[tokio::test(flavor = "multi_thread")]
async fn s_22_s_24_a_token_that_is_revoked_between_claim_and_send_stops_the_send() {
    let mut facts = Facts::with(|setup| setup.outbound_concurrency = 1).await;
    let alice = facts.party("alice", &["*"]).await;
    let token = facts.grant(&alice, "scope:company").await;
    let bob = facts.subscriber("bob", &["*"]).await;
    facts.subscribe(&bob, "entity:blocker").await;
    let id = facts.subscribe(&alice, "scope:company").await;
    facts.say(json!({ "entity": "blocker", "scope": "team" })).await;
    let blocking = facts.called().await;
    assert_eq!(blocking.json()["entity"], "blocker");
    facts.say(json!({})).await;
    facts.revoke_token(&token).await;
    blocking.ok();
    facts.ends(&alice, &id, "token_revoked").await;
}

/// The same for a garden's fact and a member who leaves.
#[tokio::test(flavor = "multi_thread")]
async fn s_23_s_24_a_member_who_leaves_between_claim_and_send_is_not_told() {
    let mut facts = Facts::with(|setup| setup.outbound_concurrency = 1).await;
    let alice = facts.subscriber("alice", &["*"]).await;
    let bob = facts.subscriber("bob", &["*"]).await;
    facts.garden("atlas").await;
    facts.join("atlas", &alice, "reader").await;
    facts.subscribe(&bob, "entity:blocker").await;
    let id = facts.subscribe(&alice, "scope:garden:atlas").await;
    facts.say(json!({ "entity": "blocker" })).await;
    let blocking = facts.called().await;
    facts.say(secret(json!({}))).await;
    facts.leave("atlas", &alice).await;
    blocking.ok();
    facts.ends(&alice, &id, "acl_revoked").await;
}

/// A replay in pages: what was readable on the first is not on the second.
#[tokio::test(flavor = "multi_thread")]
async fn s_21_s_24_access_that_ends_during_a_replay_ends_the_replay() {
    let mut facts = Facts::start().await;
    let alice = facts.subscriber("alice", &["*"]).await;
    facts.garden("atlas").await;
    facts.join("atlas", &alice, "reader").await;
    let id = facts.subscribe(&alice, "scope:garden:atlas").await;
    for _ in 0..3 {
        facts.say(secret(json!({}))).await;
        facts.called().await.ok();
    }
    let target = format!("/v1/subscriptions/{id}/events?limit=1");
    let page = facts.get(&alice, &target).await.expect(200).json();
    assert_eq!((page["events"].as_array().unwrap().len(), &page["has_more"]), (1, &json!(true)));
    let after = text(&page["next_after"]);
    facts.leave("atlas", &alice).await;
    let rest = facts.get(&alice, &format!("{target}&after={after}")).await.expect(200).json();
    assert_eq!((&rest["events"][0]["fact_id"], &rest["has_more"]), (&Value::Null, &json!(false)));
    facts.ends(&alice, &id, "acl_revoked").await;
}

/// Whoever asks why is told by which check, before and after.
#[tokio::test(flavor = "multi_thread")]
async fn explain_says_which_check_decided() {
    let facts = Facts::start().await;
    let alice = facts.party("alice", &["*"]).await;
    let token = facts.grant(&alice, "*").await;
    facts.garden("atlas").await;
    facts.join("atlas", &alice, "reader").await;
    let id = facts.subscribe(&alice, "scope:garden:atlas").await;
    let explain = async |id: &str| {
        let target = format!("/v1/subscriptions/{id}/explain");
        let answer = facts.get(&alice, &target).await.expect(200).json();
        (answer["outcome"].clone(), answer["decided_by"].clone(), text(&answer["explanation"]))
    };
    let (outcome, check, _) = explain(&id).await;
    assert_eq!((outcome, check), (json!("deliver"), Value::Null));
    facts.leave("atlas", &alice).await;
    let (outcome, check, sentence) = explain(&id).await;
    assert_eq!((outcome, check), (json!("cancel"), json!("garden")));
    assert!(sentence.contains("does not belong to the garden"), "{sentence}");
    facts.revoke_token(&token).await;
    let (outcome, check, sentence) = explain(&id).await;
    assert_eq!((outcome, check), (json!("cancel"), json!("token")));
    assert!(sentence.contains("token was revoked"), "{sentence}");
    facts.say(secret(json!({}))).await;
    facts.cancelled(&alice, &id).await;
    let (outcome, check, _) = explain(&id).await;
    assert_eq!((outcome, check), (json!("cancel"), json!("token")));
    // Operators are told the same, of any event of it.
    let event = text(&facts.say(json!({})).await["id"]);
    let target = format!("/admin/v1/deliveries/explain?hook={id}&event={event}");
    let told = facts.get(&facts.admin, &target).await.expect(200).json();
    let gate = json!({ "step": "gate", "ok": false,
                       "detail": "token: the subscriber's capability token was revoked" });
    assert_eq!(told["steps"][1], gate, "{told}");
    let bob = facts.party("bob", &["*"]).await;
    facts.get(&bob, &format!("/v1/subscriptions/{id}/explain")).await.expect(404);
    facts.server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s_22_a_token_that_has_expired_is_as_good_as_revoked() {
    let mut facts = Facts::start().await;
    let alice = facts.party("alice", &["*"]).await;
    facts.issue(&alice, json!({ "object": "scope:company", "ttl_seconds": 60 })).await;
    let id = facts.subscribe(&alice, "scope:company").await;
    facts.say(json!({})).await;
    facts.called().await.ok();
    facts.clock.advance(60_000);
    facts.say(json!({})).await;
    facts.ends(&alice, &id, "token_expired").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s_23_a_garden_that_is_deleted_has_no_members() {
    let mut facts = Facts::start().await;
    let alice = facts.subscriber("alice", &["*"]).await;
    facts.garden("atlas").await;
    facts.join("atlas", &alice, "reader").await;
    let id = facts.subscribe(&alice, "scope:global").await;
    facts.say(secret(json!({}))).await;
    let call = facts.called().await;
    let event = call.json();
    call.answer(500, "later");
    facts.until_failed(&event, 1).await;
    facts.delete(&facts.admin, "/v1/gardens/atlas").await.expect(204);
    // Another of the same name, of which she is a member, is another.
    facts.garden("atlas").await;
    facts.join("atlas", &alice, "reader").await;
    facts.clock.advance(1_000);
    facts.ends(&alice, &id, "acl_revoked").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s_25_a_cancellation_is_in_the_audit_log_under_its_own_name() {
    let facts = Facts::start().await;
    let alice = facts.party("alice", &["*"]).await;
    let token = facts.grant(&alice, "scope:company").await;
    let id = facts.subscribe(&alice, "scope:company").await;
    facts.revoke_token(&token).await;
    facts.say(json!({})).await;
    facts.cancelled(&alice, &id).await;
    let target = format!("/admin/v1/audit?action={CANCELLED}");
    let rows = facts.get(&facts.admin, &target).await.expect(200).json()["audit"].clone();
    assert_eq!(rows.as_array().unwrap().len(), 1, "{rows}");
    assert_eq!((&rows[0]["subject"], &rows[0]["actor"]), (&json!(id), &json!("server")));
    assert_eq!(rows[0]["reason"], "the subscriber's capability token was revoked");
    // A replay finds it out as well, and so does whoever asks for the same once more.
    facts.grant(&alice, "scope:company").await;
    let second = facts.subscribe(&alice, "scope:company").await;
    facts.server.revoke(ADMIN, &alice.key_id).await.expect(204);
    let alice = facts.party("alice", &["*"]).await;
    let token = facts.grant(&alice, "*").await;
    let third = facts.subscribe(&alice, "scope:company").await;
    facts.revoke_token(&token).await;
    assert_eq!(facts.replay(&alice, &third).await[0]["event_type"], CANCELLED);
    let rows = facts.get(&facts.admin, &target).await.expect(200).json()["audit"].clone();
    let subjects: Vec<&Value> = rows.as_array().unwrap().iter().map(|it| &it["subject"]).collect();
    assert_eq!(subjects, [&json!(third), &json!(second), &json!(id)]);
    let ended = facts.get(&facts.admin, "/admin/v1/audit?action=hook.deleted").await.expect(200);
    assert_eq!(ended.json()["audit"], json!([]), "one row is enough");
    facts.ends(&alice, &third, "token_revoked").await;
}

/// The list and the answer to a duplicate say nothing of facts; the stream of a scope has those that
/// are in no garden, for those who may read the scope.
#[tokio::test(flavor = "multi_thread")]
async fn s_26_the_copy_of_a_scope_has_no_gardens_facts_and_is_for_its_readers() {
    let facts = Facts::start().await;
    let alice = facts.party("alice", &["company"]).await;
    let bob = facts.party("bob", &["team"]).await;
    let plain = facts.say(json!({ "relation": "plain" })).await;
    facts.garden("atlas").await;
    facts.say(secret(json!({}))).await;
    let read = facts.get(&alice, "/_facts/company?offset=-1").await.expect(200);
    assert!(!read.text().contains("secret"), "{read}");
    let messages = read.json();
    assert_eq!(messages.as_array().unwrap().len(), 1, "{messages}");
    assert!(read.text().contains(plain["id"].as_str().unwrap()), "{read}");
    for who in [&bob, &facts.party("nobody", &[]).await] {
        assert_eq!(
            facts.get(who, "/_facts/company?offset=-1").await.expect(403).code(),
            "FORBIDDEN"
        );
    }
    let everything = facts.party("everything", &["*"]).await;
    facts.get(&everything, "/_facts/company?offset=-1").await.expect(200);
    let write = facts.server.ask_as(&facts.admin.key, "POST", "/_facts/company", &[], b"{}").await;
    assert_eq!(write.expect(403).code(), "RESERVED_STREAM");
    facts.server.stop().await;
}
