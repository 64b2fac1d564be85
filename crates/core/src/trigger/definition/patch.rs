//! A change of a definition: JSON merge patch (RFC 7396). A field that is null goes back to what it
//! is by default.

use serde_json::{Map, Value};

use super::parse::Reading;
use super::read::error;
use super::{Definition, DefinitionError, DefinitionLimits, Problem};

/// A definition that was changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Patched {
    /// The version that the writer has seen, if the patch says so.
    pub version: Option<u64>,
    pub definition: Definition,
}

impl Definition {
    /// The same, changed by a patch. What it does not name stays.
    pub fn patched(
        &self,
        patch: &Value,
        limits: &DefinitionLimits,
    ) -> Result<Patched, DefinitionError> {
        let Value::Object(patch) = patch else {
            let kind = Problem::Kind("changed by an object, with fields and their new values");
            return Err(error("", kind));
        };
        let mut merged = Value::Object(self.to_json());
        merge(&mut merged, patch);
        for fixed in ["triggerId", "tenant"] {
            if patch.contains_key(fixed) {
                let why = "never changes: leave it out, or make another trigger";
                return Err(error(fixed, Problem::Refused(why)));
            }
        }
        let reading = Reading { former: &self.headers, limits, is_stored: false };
        let (version, definition) = reading.read(&merged)?;
        Ok(Patched { version, definition })
    }
}

/// It recurses as deep as the patch, which was read from JSON of limited depth.
fn merge(target: &mut Value, patch: &Map<String, Value>) {
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Value::Object(fields) = target else { return };
    for (name, value) in patch {
        match value {
            Value::Null => {
                fields.remove(name);
            }
            Value::Object(inner) => merge(fields.entry(name).or_insert(Value::Null), inner),
            value => {
                fields.insert(name.clone(), value.clone());
            }
        }
    }
}
