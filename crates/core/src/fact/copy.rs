//! The copy of an event for everybody who may read its scope.

use serde_json::{Value, json};

use super::envelope::FactEvent;
use super::statement::FactNo;

impl FactEvent {
    /// The event without anything of a subscription.
    pub fn copy(&self, payload: Value) -> Value {
        json!({
            "event_type": self.kind.as_str(),
            "entity": self.subject.as_ref().map(|(entity, _)| entity.as_str()),
            "scope": self.subject.as_ref().map(|(_, scope)| scope.as_str()),
            "fact_id": self.fact.map(FactNo::id),
            "hlc": self.hlc.map(|hlc| hlc.to_string()),
            "payload": payload,
        })
    }
}
