//! Attacks with facts: what contradicts itself, who is told, and what is looked for in vain.

use anyhow::{Context as _, ensure};
use harness::http::Connection;
use serde_json::{Value, json};

use super::Target;
use super::endpoint::HANG;

/// Subscriptions to one scope.
const SUBSCRIPTIONS: usize = 1_000;
/// Facts that a query may walk over in vain.
const WALKED: usize = 2_000;

fn fact(entity: &str, relation: &str, value: &Value, scope: &str) -> Value {
    json!({
        "entity": entity, "relation": relation, "value": { "type": "text", "v": value },
        "source": "agent:loud", "scope": scope,
    })
}

fn say(fact: &Value) -> (&'static str, String, String) {
    ("POST", "/v1/facts".to_owned(), fact.to_string())
}

/// As many values of one relation as anybody says, each of which contradicts all others, and as
/// large as they may be.
pub(super) fn contradictions(target: &Target) -> anyhow::Result<String> {
    let (relation, large) = ("r".repeat(250), "v".repeat(60_000));
    let (done, refused) = target.together(move |client, turn| {
        let value = json!(format!("{client}-{turn}-{}", if turn % 4 == 0 { &large } else { "" }));
        match turn % 8 {
            7 => {
                let target = "/v1/cards/refresh".to_owned();
                ("POST", target, json!({ "entity": "user:hot", "scope": "company" }).to_string())
            }
            6 => say(&fact("user:hot", &relation, &json!("x".repeat(70_000)), "company")),
            _ => say(&fact("user:hot", &relation, &value, "company")),
        }
    })?;
    ensure!(done > 0 && refused > 0, "{done} done, {refused} refused");
    Ok(format!("{done} values of one relation and cards of it, {refused} that are too large"))
}

/// Subscriptions that all are for every fact, to an endpoint that hangs, whose token is revoked and
/// issued again all the while.
pub(super) fn fact_subscriptions(target: &Target) -> anyhow::Result<String> {
    let mut connection = Connection::open(target.server)?;
    let issue = || -> anyhow::Result<String> {
        let wanted = json!({
            "subject": "agent:loud", "verb": "subscribe", "object": "*", "ttl_seconds": 3_600,
        });
        let issued = target.administer("/v1/federation/capability-tokens", &wanted)?;
        let issued: Value = serde_json::from_slice(&issued.body)?;
        let id = issued.get("token_id").and_then(Value::as_str);
        Ok(id.context("a token without an id")?.to_owned())
    };
    let subscribe = |connection: &mut Connection, number: usize| {
        let body = json!({
            "target": "scope:company", "on_change": "webhook", "idempotency_key": number.to_string(),
            "webhook_url": format!("http://{}{HANG}", target.endpoint),
        });
        target.send_on(connection, "POST", "/v1/subscriptions", body.to_string().as_bytes())
    };
    let (mut token, mut made, mut said, mut revoked) = (issue()?, 0, 0, 0);
    for number in 0..SUBSCRIPTIONS {
        let answer = subscribe(&mut connection, number)?;
        ensure!(answer.status == 201, "subscribing: {} {}", answer.status, answer.text());
        made += 1;
    }
    let prepared = target.prepared();
    while !prepared.is_over() {
        let fact = fact("user:hot", "note", &json!(said.to_string()), "company").to_string();
        let answer = target.send_on(&mut connection, "POST", "/v1/facts", fact.as_bytes())?;
        ensure!(matches!(answer.status, 201 | 503), "{} {}", answer.status, answer.text());
        said += usize::from(answer.status == 201);
        if said % 50 == 49 {
            let path = format!("/v1/federation/capability-tokens/{token}/revoke");
            target.administer(&path, &json!({ "reason": "again" }))?;
            token = issue()?;
            revoked += 1;
            for number in 0..20 {
                let number = SUBSCRIPTIONS + revoked * 20 + number;
                made += usize::from(subscribe(&mut connection, number)?.status == 201);
            }
        }
    }
    ensure!(said > 0, "nothing was said");
    Ok(format!("{said} facts for {made} subscriptions that hang, {revoked} revocations"))
}

/// Facts that are looked for among many others, and in gardens of which there are many.
pub(super) fn fact_queries(target: &Target) -> anyhow::Result<String> {
    let mut connection = Connection::open(target.server)?;
    for number in 0..WALKED {
        let fact = fact("user:walked", &format!("relation-{number}"), &json!("x"), "team");
        let body = fact.to_string();
        let answer = target.send_on(&mut connection, "POST", "/v1/facts", body.as_bytes())?;
        ensure!(answer.status == 201, "{} {}", answer.status, answer.text());
    }
    let (done, refused) = target.prepared().together(|client, turn| match turn % 5 {
        // They are walked to the end, and none of them is it.
        0 => ("GET", "/v1/facts?entity=user:walked&scope=public".to_owned(), String::new()),
        1 => ("GET", "/v1/facts?relation=no-such&limit=500".to_owned(), String::new()),
        2 => {
            let garden =
                json!({ "slug": format!("g{client}-{turn}"), "name": "g", "scope": "team" });
            ("POST", "/v1/gardens".to_owned(), garden.to_string())
        }
        3 => ("GET", format!("/v1/facts?cursor={}", "A".repeat(1 + turn % 2_000)), String::new()),
        _ => ("GET", "/v1/facts?entity=user:walked&live=true&limit=500".to_owned(), String::new()),
    })?;
    ensure!(done > 0 && refused > 0, "{done} done, {refused} refused");
    Ok(format!("{done} walks over {WALKED} facts and gardens, {refused} refused"))
}
