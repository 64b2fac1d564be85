//! What subscribers are sent: an event in its envelope, or a note for an agent to wake up by.

use serde_json::{Value, json};

use super::hlc::Hlc;
use super::name::{EntityUri, Scope};
use super::statement::{Fact, FactNo};
use super::subscription::{FactEventKind, event_id};
use crate::delivery::hook::HookId;
use crate::delivery::id::EventNo;

/// An event, and nothing of its content but what it is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FactEvent {
    pub kind: FactEventKind,
    /// `None` for the event that a subscription was cancelled.
    pub subject: Option<(EntityUri, Scope)>,
    /// The fact that was asserted, retracted, or found to contradict others.
    pub fact: Option<FactNo>,
    pub hlc: Option<Hlc>,
}

impl FactEvent {
    /// The envelope in which a subscription gets it. Everything in it is the same each time.
    pub fn envelope(
        &self,
        subscription_id: &str,
        (hook, event): (HookId, EventNo),
        payload: Value,
    ) -> Value {
        let id = event_id(hook, event);
        json!({
            "subscription_id": subscription_id,
            "event_id": id,
            "event_type": self.kind.as_str(),
            "entity": self.subject.as_ref().map(|(entity, _)| entity.as_str()),
            "scope": self.subject.as_ref().map(|(_, scope)| scope.as_str()),
            "fact_id": self.fact.map(FactNo::id),
            "hlc": self.hlc.map(|hlc| hlc.to_string()),
            "payload": payload,
            "idempotency_key": id,
        })
    }
}

/// What is said of a fact that was asserted or retracted: the record.
pub fn fact_payload(fact: &Fact) -> Value {
    fact.to_json()
}

/// What is said of a contradiction: the relation, and the facts, the new one first.
pub fn contradiction_payload(relation: &str, new: FactNo, existing: &[FactNo]) -> Value {
    let ids: Vec<String> = [&new].into_iter().chain(existing).map(|fact| fact.id()).collect();
    json!({"relation": relation, "fact_ids": ids})
}

/// What is said of a card.
pub fn card_payload(summary: &str, fact_count: u64) -> Value {
    json!({"summary": summary, "fact_count": fact_count})
}

/// What an agent is woken with: what to ask for, and nothing that only some may read.
pub fn wake_message(subscription_id: &str, hook: HookId, event: EventNo) -> Value {
    json!({"subscription_id": subscription_id, "event_id": event_id(hook, event)})
}

#[cfg(test)]
mod tests {
    use super::super::statement::tests::fact;
    use super::*;

    #[test]
    fn s_14_s_15_the_envelope_has_exactly_these_fields() {
        let event = FactEvent {
            kind: FactEventKind::Assert,
            subject: Some((EntityUri::parse("user:alice").unwrap(), Scope::Company)),
            fact: Some(FactNo(0x100)),
            hlc: Some(fact().hlc),
        };
        let payload = fact_payload(&fact());
        let envelope = event.envelope("s", (HookId(1), EventNo(2)), payload.clone());
        let id = "00000000-0000-8011-8000-000000000002";
        let expected = json!({
            "subscription_id": "s",
            "event_id": id,
            "event_type": "fact_assert",
            "entity": "user:alice",
            "scope": "company",
            "fact_id": "00000000-0000-8002-8000-000000000100",
            "hlc": "1746230400000.007",
            "payload": payload,
            "idempotency_key": id,
        });
        assert_eq!(envelope, expected);
    }

    #[test]
    fn s_16_a_card_is_no_fact() {
        let event = FactEvent {
            kind: FactEventKind::Card,
            subject: Some((EntityUri::parse("user:alice").unwrap(), Scope::Company)),
            fact: None,
            hlc: Some(Hlc::default()),
        };
        let envelope = event.envelope("s", (HookId(1), EventNo(2)), card_payload("x", 3));
        assert_eq!(envelope["fact_id"], Value::Null);
        assert_eq!(envelope["payload"], json!({"summary": "x", "fact_count": 3}));
    }

    #[test]
    fn a_cancellation_says_nothing_of_content() {
        let event =
            FactEvent { kind: FactEventKind::Cancelled, subject: None, fact: None, hlc: None };
        let envelope = event.envelope("s", (HookId(1), EventNo(2)), json!({}));
        for field in ["entity", "scope", "fact_id", "hlc"] {
            assert_eq!(envelope[field], Value::Null, "{field}");
        }
        assert_eq!(envelope["event_type"], "subscription_cancelled_access_revoked");
    }

    #[test]
    fn contradictions_name_the_new_fact_first() {
        let payload = contradiction_payload("works_at", FactNo(3), &[FactNo(1), FactNo(2)]);
        let ids = [3, 1, 2].map(|no| FactNo(no).id());
        assert_eq!(payload, json!({"relation": "works_at", "fact_ids": ids}));
    }

    #[test]
    fn an_agent_is_woken_with_two_names() {
        let note = wake_message("s", HookId(1), EventNo(2));
        let id = "00000000-0000-8011-8000-000000000002";
        assert_eq!(note, json!({"subscription_id": "s", "event_id": id}));
    }
}
