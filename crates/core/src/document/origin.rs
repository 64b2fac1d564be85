//! Whose doing a write is: a client's, or that of triggers that made each other go off.
//!
//! A trigger's token says which triggers led to it, and its writes say so after it. So a trigger
//! that answers its own writes is noticed, through however many others it goes.

use std::sync::Arc;

use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::Value;

use super::limits::{ORIGIN_DEPTH_MAX, ORIGIN_TRIGGER_BYTES_MAX};

/// The triggers that led to a write, the first one first. None for a client's own.
#[derive(Debug, Clone, PartialEq, Eq, Default, Hash)]
pub struct Origin(Option<Arc<[Arc<str>]>>);

/// The names are no origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum OriginError {
    #[error("a change has at most {ORIGIN_DEPTH_MAX} triggers behind it")]
    TooDeep,
    #[error("the id of a trigger is 1 to {ORIGIN_TRIGGER_BYTES_MAX} bytes long")]
    BadTrigger,
}

impl Origin {
    /// Of what a client writes.
    pub const CLIENT: Origin = Origin(None);

    /// Of what the last of these triggers writes.
    pub fn of_chain<T: Into<Arc<str>>>(
        chain: impl IntoIterator<Item = T>,
    ) -> Result<Origin, OriginError> {
        let mut triggers = Vec::new();
        for trigger in chain {
            if triggers.len() >= ORIGIN_DEPTH_MAX {
                return Err(OriginError::TooDeep);
            }
            let trigger = trigger.into();
            if !(1..=ORIGIN_TRIGGER_BYTES_MAX).contains(&trigger.len()) {
                return Err(OriginError::BadTrigger);
            }
            triggers.push(trigger);
        }
        Ok(Origin((!triggers.is_empty()).then(|| triggers.into())))
    }

    /// Of what a trigger writes that goes off at a change of this origin. Fails where the loop
    /// guard has to stop it.
    pub fn followed_by(&self, trigger: &str) -> Result<Origin, OriginError> {
        Origin::of_chain(self.chain().iter().cloned().chain([Arc::from(trigger)]))
    }

    /// How many triggers made each other go off; zero for a client's own.
    pub fn depth(&self) -> usize {
        self.chain().len()
    }

    /// Whether no trigger may go off at such a change any more.
    pub fn is_exhausted(&self) -> bool {
        self.depth() >= ORIGIN_DEPTH_MAX
    }

    /// The trigger whose execution wrote it.
    pub fn trigger(&self) -> Option<&str> {
        self.chain().last().map(|trigger| &**trigger)
    }

    pub fn chain(&self) -> &[Arc<str>] {
        self.0.as_deref().unwrap_or_default()
    }

    pub fn is_client(&self) -> bool {
        self.0.is_none()
    }

    /// Out of the `origin` of a change in the log of its tenant; nothing there is a client.
    pub fn of_json(origin: Option<&Value>) -> Result<Origin, OriginError> {
        let Some(origin) = origin.filter(|origin| !origin.is_null()) else {
            return Ok(Origin::CLIENT);
        };
        let chain = origin.get("chain").and_then(Value::as_array);
        let names: Option<Vec<&str>> = match chain {
            Some(chain) if !chain.is_empty() => chain.iter().map(Value::as_str).collect(),
            _ => None,
        };
        Origin::of_chain(names.ok_or(OriginError::BadTrigger)?)
    }
}

/// `{"trigger":"b","depth":2,"chain":["a","b"]}`, or null.
impl Serialize for Origin {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Some(trigger) = self.trigger() else { return serializer.serialize_unit() };
        let mut map = serializer.serialize_map(Some(3))?;
        map.serialize_entry("trigger", trigger)?;
        map.serialize_entry("depth", &self.depth())?;
        let chain: Vec<&str> = self.chain().iter().map(|trigger| &**trigger).collect();
        map.serialize_entry("chain", &chain)?;
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn it_is_written_and_read_again() {
        assert_eq!(serde_json::to_value(Origin::CLIENT).unwrap(), Value::Null);
        let origin = Origin::CLIENT.followed_by("a").unwrap().followed_by("b").unwrap();
        let written = json!({"trigger": "b", "depth": 2, "chain": ["a", "b"]});
        assert_eq!(serde_json::to_value(&origin).unwrap(), written);
        assert_eq!(Origin::of_json(Some(&written)), Ok(origin));
        assert_eq!(Origin::of_json(Some(&Value::Null)), Ok(Origin::CLIENT));
        assert_eq!(Origin::of_json(None), Ok(Origin::CLIENT));
        for bad in [json!({}), json!([]), json!("a"), json!({"chain": []}), json!({"chain": [1]})] {
            assert_eq!(Origin::of_json(Some(&bad)), Err(OriginError::BadTrigger), "{bad}");
        }
    }

    #[test]
    fn the_loop_guard_stops_at_eight() {
        let mut origin = Origin::CLIENT;
        for depth in 0..8 {
            assert_eq!((origin.depth(), origin.is_exhausted()), (depth, false));
            origin = origin.followed_by("trg").unwrap();
        }
        assert!(origin.is_exhausted());
        assert_eq!(origin.followed_by("trg"), Err(OriginError::TooDeep));
        assert_eq!(Origin::CLIENT.followed_by(""), Err(OriginError::BadTrigger));
        let long = "x".repeat(ORIGIN_TRIGGER_BYTES_MAX + 1);
        assert_eq!(Origin::CLIENT.followed_by(&long), Err(OriginError::BadTrigger));
    }
}
