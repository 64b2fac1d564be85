//! Payloads and headers: what receivers get.

use serde_json::json;

use super::*;
use crate::trigger::definition::{DefinitionLimits, Draft};

const MESSAGE: &str = r#"{"seq":99102,"lsn":"1697041234:42","tenant":"acme","type":"update",
    "path":"orders/abc123","collection":"orders","id":"abc123",
    "before":{"id":"abc123","collection":"orders","version":1,"status":"pending","n":1.0},
    "after":{"id":"abc123","collection":"orders","version":2,"status":"shipped","n":1.50},
    "ts":1697041234}"#;

fn definition(fields: Value) -> Definition {
    let mut body = json!({
        "collection": "orders", "events": ["update"], "url": "https://example.com/",
        "headers": {"X-Team": "blue"}, "secretsRef": "hooks",
    });
    for (name, value) in fields.as_object().unwrap() {
        body[name] = value.clone();
    }
    let limits = DefinitionLimits { max_timeout_ms: 30_000 };
    Draft::parse(&body, &limits).unwrap().definition
}

fn encode(fields: Value, message: &str, replay: Option<Replay<'_>>) -> Result<Value, PayloadError> {
    let definition = definition(fields);
    let change = ChangeMessage::parse(message.as_bytes()).unwrap();
    let payload = Payload {
        trigger: &TriggerId::parse("trg_123").unwrap(),
        version: 3,
        definition: &definition,
        change: &change,
        token: Some("tet"),
        replay,
        is_test: false,
    };
    payload.encode().map(|bytes| serde_json::from_slice(&bytes).unwrap())
}

fn standard() -> Value {
    json!({
        "triggerId": "trg_123", "tenant": "acme", "event": "update", "collection": "orders",
        "id": "abc123", "docKey": "abc123", "path": "orders/abc123", "lsn": "1697041234:42",
        "seq": 99102,
        "before": {"id": "abc123", "collection": "orders", "version": 1, "status": "pending", "n": 1.0},
        "after": {"id": "abc123", "collection": "orders", "version": 2, "status": "shipped", "n": 1.5},
        "ts": 1697041234, "triggerVersion": 3, "systemToken": "tet", "preIssuedToken": "tet",
    })
}

#[test]
fn pay_1_the_payload_is_that_of_the_seed_and_a_token() {
    assert_eq!(encode(json!({}), MESSAGE, None), Ok(standard()));
}

#[test]
fn pay_1_a_create_has_no_before_and_a_delete_no_after() {
    let message = MESSAGE.replace("\"update\"", "\"create\"");
    let mut message: Value = serde_json::from_str(&message).unwrap();
    message["before"] = Value::Null;
    let made = encode(json!({"events": ["create"]}), &message.to_string(), None).unwrap();
    assert!(made.get("before").is_none() && made.get("after").is_some());
    let message = MESSAGE.replace("\"update\"", "\"delete\"");
    let mut message: Value = serde_json::from_str(&message).unwrap();
    message["after"] = Value::Null;
    let gone = encode(json!({"events": ["delete"]}), &message.to_string(), None).unwrap();
    assert_eq!(gone.get("before"), standard().get("before"));
    assert!(gone.get("after").is_none());
}

#[test]
fn c_8_without_include_before_there_is_none() {
    let mut expected = standard();
    expected.as_object_mut().unwrap().remove("before");
    assert_eq!(encode(json!({"includeBefore": false}), MESSAGE, None), Ok(expected));
}

#[test]
fn c_2_the_detail_of_a_task_is_added_where_it_is_asked_for() {
    let mut expected = standard();
    expected["url"] = json!("https://example.com/");
    expected["headers"] = json!({"X-Team": "blue"});
    expected["secretsRef"] = json!("hooks");
    expected["retryPolicy"] = json!({
        "maxAttempts": 10, "initialBackoff": "1s", "maxBackoff": "300s", "statusRules": [],
    });
    expected["timeout"] = json!("5s");
    assert_eq!(encode(json!({"payloadDetail": "task"}), MESSAGE, None), Ok(expected));
}

#[test]
fn a_mask_is_for_both_documents() {
    let mask = json!({"transform": {"include": ["status"], "rename": {"status": "state"}}});
    let mut expected = standard();
    expected["before"] = json!({"state": "pending"});
    expected["after"] = json!({"state": "shipped"});
    assert_eq!(encode(mask, MESSAGE, None), Ok(expected));
}

#[test]
fn dlq_4_a_replay_says_that_it_is_one() {
    let replay =
        Replay { replay_id: "rpl_1", reason: Some("fixed"), at: Some("2026-01-01"), count: 2 };
    let mut expected = standard();
    expected["replay"] =
        json!({"replayId": "rpl_1", "reason": "fixed", "at": "2026-01-01", "count": 2});
    assert_eq!(encode(json!({}), MESSAGE, Some(replay)), Ok(expected));
}

#[test]
fn pay_2_the_idempotency_key_is_tenant_trigger_and_seq() {
    let tenant = Tenant::parse("acme").unwrap();
    let key = idempotency_key(&tenant, &TriggerId::parse("trg_1").unwrap(), 7);
    assert_eq!(key, "acme:trg_1:7");
}

#[test]
fn lim_1_a_body_is_at_most_256_kib() {
    let message = |text: usize| MESSAGE.replace("shipped", &"x".repeat(text));
    let definition = json!({"includeBefore": false});
    let rest = encode(definition.clone(), &message(0), None).map(|it| it.to_string().len());
    let bytes = |text| match encode(definition.clone(), &message(text), None) {
        Ok(_) => 0,
        Err(PayloadError::TooLarge(bytes)) => bytes,
        Err(other) => panic!("{other}"),
    };
    assert!(rest.is_ok());
    let over = (0..).map(|it| 262_144 - 600 + it).find(|text| bytes(*text) > 0).unwrap();
    assert_eq!(bytes(over), 262_145);
}

fn attempt() -> Attempt<'static> {
    Attempt {
        idempotency_key: "acme:trg_123:7",
        delivery_id: "dlv_1",
        number: 2,
        timestamp_s: 1_697_041_234,
        replay_id: Some("rpl_1"),
    }
}

#[test]
fn pay_3_the_headers_are_these() {
    let definition = definition(json!({"headers": {"Authorization": "Bearer own"}}));
    let headers = headers(&definition, &attempt(), &["new", "old"], b"{}").unwrap();
    let expected_signature = signature::header(["new", "old"], 1_697_041_234, b"{}");
    let headers: Vec<(&str, &str)> =
        headers.iter().map(|(name, value)| (&**name, &**value)).collect();
    let expected = [
        ("Content-Type", "application/json"),
        ("User-Agent", "Syntrix-Trigger-Service/1.0"),
        ("X-Syntrix-Signature", expected_signature.as_str()),
        ("X-Syntrix-Idempotency-Key", "acme:trg_123:7"),
        ("X-Syntrix-Delivery-Id", "dlv_1"),
        ("X-Syntrix-Attempt", "2"),
        ("X-Syntrix-Timestamp", "1697041234"),
        ("X-Syntrix-Replay", "rpl_1"),
        // PAY-4: the only one that there ever is.
        ("Authorization", "Bearer own"),
    ];
    assert_eq!(headers, expected);
}

#[test]
fn lim_2_headers_are_at_most_16_kib() {
    let own = |len: usize| definition(json!({"headers": {"A": "x".repeat(len)}}));
    let bytes = |len: usize| match headers(&own(len), &attempt(), &["s"], b"") {
        Ok(headers) => headers.iter().map(|(name, value)| name.len() + value.len()).sum(),
        Err(PayloadError::HeadersTooLarge(bytes)) => bytes,
        Err(other) => panic!("{other}"),
    };
    let rest = bytes(0);
    assert_eq!(bytes(16_384 - rest), 16_384);
    assert!(headers(&own(16_384 - rest), &attempt(), &["s"], b"").is_ok());
    let error = headers(&own(16_385 - rest), &attempt(), &["s"], b"").unwrap_err();
    assert_eq!(error, PayloadError::HeadersTooLarge(16_385));
}
