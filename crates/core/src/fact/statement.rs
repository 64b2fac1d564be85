//! One fact: what was said, by whom, about whom, and how sure they were.

use std::fmt::Display;
use std::sync::Arc;

use serde::ser::{Serialize, SerializeStruct as _, Serializer};

use super::garden::{GardenNo, GardenSlug};
use super::hlc::Hlc;
use super::name::{EntityUri, Id, NameError, Scope, check_relation, check_source};
use super::value::FactValue;
use crate::time::Millis;

/// A fact, from the same numbers as events, streams and subscriptions have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FactNo(pub u64);

/// How sure somebody is, in millionths: 0 takes back what was said, 1,000,000 is certain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Confidence(u32);

/// What somebody says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Statement {
    pub entity: EntityUri,
    pub relation: Arc<str>,
    pub value: FactValue,
    /// Who says so.
    pub source: Arc<str>,
    pub confidence: Confidence,
    pub scope: Scope,
    /// Where it is said, if not for everybody in the scope.
    pub garden: Option<GardenSlug>,
    /// Until when it holds.
    pub valid_until: Option<Millis>,
}

/// A fact as it is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fact {
    pub no: FactNo,
    pub said: Statement,
    /// The incarnation of the garden, for who may read it.
    pub garden: Option<GardenNo>,
    pub at: Millis,
    pub hlc: Hlc,
    /// Whether it contradicted others when it was said.
    pub contradicted: bool,
}

/// It is no confidence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("`confidence` is a number from 0 to 1; 0 retracts")]
pub struct ConfidenceError;

impl Confidence {
    pub const NONE: Confidence = Confidence(0);
    pub const CERTAIN: Confidence = Confidence(1_000_000);

    /// Reads a confidence from 0 to 1. Whoever is sure at all is sure by a millionth at least.
    pub fn new(confidence: f64) -> Result<Confidence, ConfidenceError> {
        if !(0.0..=1.0).contains(&confidence) {
            return Err(ConfidenceError);
        }
        let millionths = (confidence * 1e6).round();
        let least = u32::from(confidence > 0.0);
        Ok(Confidence((millionths as u32).max(least)))
    }

    /// One that was stored.
    pub fn from_millionths(millionths: u32) -> Confidence {
        Confidence(millionths.min(Confidence::CERTAIN.0))
    }

    pub fn millionths(self) -> u32 {
        self.0
    }

    /// From 0 to 1.
    pub fn to_f64(self) -> f64 {
        f64::from(self.0) / 1e6
    }
}

impl Statement {
    /// Checks what a type cannot.
    pub fn check(&self) -> Result<(), NameError> {
        check_relation(&self.relation)?;
        check_source(&self.source)
    }

    /// Whether it takes back what was said before of the same relation, scope and garden.
    pub fn is_retraction(&self) -> bool {
        self.confidence == Confidence::NONE
    }
}

impl FactNo {
    /// The name that the world knows it by.
    pub fn id(self) -> String {
        Id::Fact(self.0).to_string()
    }

    /// The fact of this name.
    pub fn parse(text: &str) -> Option<FactNo> {
        match Id::parse(text)? {
            Id::Fact(number) => Some(FactNo(number)),
            Id::Event(..) | Id::Token(_) => None,
        }
    }
}

/// The record, as whoever may read it gets it. It is written without being taken apart: a fact is
/// written in the step that decides it.
impl Serialize for Fact {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Fact { no, said, at, hlc, contradicted, .. } = self;
        let mut fields = serializer.serialize_struct("Fact", 12)?;
        fields.serialize_field("id", &Text(Id::Fact(no.0)))?;
        fields.serialize_field("entity", said.entity.as_str())?;
        fields.serialize_field("relation", &*said.relation)?;
        fields.serialize_field("value", &said.value)?;
        fields.serialize_field("source", &*said.source)?;
        fields.serialize_field("timestamp", &at.to_rfc3339())?;
        fields.serialize_field("hlc", &Text(hlc))?;
        fields.serialize_field("confidence", &said.confidence.to_f64())?;
        fields.serialize_field("scope", said.scope.as_str())?;
        fields.serialize_field("garden_id", &said.garden.as_ref().map(GardenSlug::as_str))?;
        fields.serialize_field("valid_until", &said.valid_until.map(Millis::to_rfc3339))?;
        fields.serialize_field("contradicted", contradicted)?;
        fields.end()
    }
}

/// Something by its text.
pub(super) struct Text<T>(pub(super) T);

impl<T: Display> Serialize for Text<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use serde_json::json;

    use super::super::value::ValueKind;
    use super::*;

    /// Somebody says that Alice works at acme.
    pub(crate) fn statement() -> Statement {
        Statement {
            entity: EntityUri::parse("user:alice").unwrap(),
            relation: "works_at".into(),
            value: FactValue::new(ValueKind::String, &json!("acme")).unwrap(),
            source: "agent:scribe".into(),
            confidence: Confidence::CERTAIN,
            scope: Scope::Company,
            garden: None,
            valid_until: None,
        }
    }

    pub(crate) fn fact() -> Fact {
        Fact {
            no: FactNo(0x100),
            said: statement(),
            garden: None,
            at: Millis(1_746_230_400_000),
            hlc: Hlc { ms: 1_746_230_400_000, counter: 7 },
            contradicted: false,
        }
    }

    #[test]
    fn confidence_is_from_0_to_1_and_0_retracts() {
        for (given, millionths) in [(0.0, 0), (1.0, 1_000_000), (0.5, 500_000), (1e-9, 1)] {
            let confidence = Confidence::new(given).unwrap();
            assert_eq!(confidence.millionths(), millionths, "{given}");
            assert_eq!(Confidence::from_millionths(millionths), confidence);
        }
        for bad in [-0.1, 1.1, f64::NAN, f64::INFINITY] {
            assert_eq!(Confidence::new(bad), Err(ConfidenceError), "{bad}");
        }
        assert!(Statement { confidence: Confidence::NONE, ..statement() }.is_retraction());
        assert!(!statement().is_retraction());
        assert_eq!(Confidence::from_millionths(u32::MAX), Confidence::CERTAIN);
    }

    #[test]
    fn a_fact_is_shown_with_everything_that_was_said() {
        let expected = json!({
            "id": "00000000-0000-8002-8000-000000000100",
            "entity": "user:alice",
            "relation": "works_at",
            "value": {"type": "string", "v": "acme"},
            "source": "agent:scribe",
            "timestamp": "2025-05-03T00:00:00.000Z",
            "hlc": "1746230400000.007",
            "confidence": 1.0,
            "scope": "company",
            "garden_id": null,
            "valid_until": null,
            "contradicted": false,
        });
        assert_eq!(serde_json::to_value(fact()).unwrap(), expected);
        let numbers = ["1", "-0.0", "1e300", "18446744073709551615", "0.1"];
        for text in numbers {
            let value = FactValue::from_stored(ValueKind::Number, text.into());
            let said = Statement { value, ..statement() };
            let written = serde_json::to_string(&Fact { said, ..fact() }).unwrap();
            let expected = format!("\"value\":{{\"type\":\"number\",\"v\":{text}}}");
            assert!(written.contains(&expected), "{written}");
        }
        assert_eq!(FactNo::parse(&FactNo(0x100).id()), Some(FactNo(0x100)));
        assert_eq!(FactNo::parse(&Id::Token(0x100).to_string()), None);
    }
}
