//! What subscribers are sent: an event in its envelope, or a note for an agent to wake up by.

use serde::Serialize;
use serde_json::{Value, json};

use super::hlc::Hlc;
use super::name::{EntityUri, Id, Scope};
use super::statement::{FactNo, Text};
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

/// An event as JSON: with its payload, and for a subscription or for nobody in particular.
#[derive(Serialize)]
struct EventJson<'a, P> {
    #[serde(skip_serializing_if = "Option::is_none")]
    subscription_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    event_id: Option<&'a str>,
    event_type: &'a str,
    entity: Option<&'a str>,
    scope: Option<&'a str>,
    fact_id: Option<Text<Id>>,
    hlc: Option<Text<Hlc>>,
    payload: P,
    #[serde(skip_serializing_if = "Option::is_none")]
    idempotency_key: Option<&'a str>,
}

impl FactEvent {
    /// The envelope in which a subscription gets it. Everything in it is the same each time.
    pub fn envelope(
        &self,
        subscription_id: &str,
        (hook, event): (HookId, EventNo),
        payload: impl Serialize,
    ) -> String {
        let id = event_id(hook, event);
        self.to_json(Some((subscription_id, &id)), payload)
    }

    /// The event without anything of a subscription, for everybody who may read its scope.
    pub fn copy(&self, payload: impl Serialize) -> String {
        self.to_json(None, payload)
    }

    fn to_json(&self, of: Option<(&str, &str)>, payload: impl Serialize) -> String {
        let (subscription_id, event_id) = of.unzip();
        let event = EventJson {
            subscription_id,
            event_id,
            event_type: self.kind.as_str(),
            entity: self.subject.as_ref().map(|(entity, _)| entity.as_str()),
            scope: self.subject.as_ref().map(|(_, scope)| scope.as_str()),
            fact_id: self.fact.map(|no| Text(Id::Fact(no.0))),
            hlc: self.hlc.map(Text),
            payload,
            idempotency_key: event_id,
        };
        serde_json::to_string(&event).expect("an event can be written")
    }
}

/// The event that a subscription was cancelled, which says nothing but that.
pub fn cancelled(subscription_id: &str, place: (HookId, EventNo)) -> String {
    let event = FactEvent { kind: FactEventKind::Cancelled, subject: None, fact: None, hlc: None };
    event.envelope(subscription_id, place, json!({}))
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

    fn read(json: &str) -> Value {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn s_14_s_15_the_envelope_has_exactly_these_fields() {
        let event = FactEvent {
            kind: FactEventKind::Assert,
            subject: Some((EntityUri::parse("user:alice").unwrap(), Scope::Company)),
            fact: Some(FactNo(0x100)),
            hlc: Some(fact().hlc),
        };
        let payload = serde_json::to_value(fact()).unwrap();
        let envelope = read(&event.envelope("s", (HookId(1), EventNo(2)), fact()));
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
        let mut copy = expected;
        for field in ["subscription_id", "event_id", "idempotency_key"] {
            copy.as_object_mut().unwrap().remove(field);
        }
        assert_eq!(read(&event.copy(fact())), copy);
    }

    #[test]
    fn s_16_a_card_is_no_fact() {
        let event = FactEvent {
            kind: FactEventKind::Card,
            subject: Some((EntityUri::parse("user:alice").unwrap(), Scope::Company)),
            fact: None,
            hlc: Some(Hlc::default()),
        };
        let envelope = read(&event.envelope("s", (HookId(1), EventNo(2)), card_payload("x", 3)));
        assert_eq!(envelope["fact_id"], Value::Null);
        assert_eq!(envelope["payload"], json!({"summary": "x", "fact_count": 3}));
    }

    #[test]
    fn a_cancellation_says_nothing_of_content() {
        let envelope = read(&cancelled("s", (HookId(1), EventNo(2))));
        assert_eq!(envelope["payload"], json!({}));
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
