//! Conditions of triggers: which changes of documents are worth a delivery.
//!
//! They know one variable, `event`:
//!
//! | field | is |
//! |---|---|
//! | `type` | `create`, `update` or `delete` |
//! | `timestamp` | when it was committed, in seconds since 1970 |
//! | `document`, `before` | the document after and before; null where there is none |
//! | `path`, `collection`, `id`, `tenant` | where it is |
//! | `origin` | the trigger that wrote it, as `trigger` and `depth`; null if a client did |

use serde_json::{Map, Value as Json};

use super::{
    ConditionError, Evaluation, EvaluationError, Expression, Failure, Value, Variable, Vocabulary,
    parse,
};
use crate::limits::EVENT_CONDITION_STEPS_MAX;
use crate::steps::Steps;

const FIELDS: [&str; 9] =
    ["type", "timestamp", "document", "before", "path", "collection", "id", "tenant", "origin"];
const VARIABLES: [Variable<'static>; 1] = [Variable { name: "event", fields: &FIELDS }];
const VOCABULARY: Vocabulary<'static> = Vocabulary { variables: &VARIABLES, has_documents: false };

/// A condition over changes of documents.
#[derive(Debug)]
pub struct EventCondition {
    expression: Expression,
}

/// A change, as a condition sees it.
#[derive(Debug, Clone, Copy)]
pub struct ChangeView<'a> {
    pub kind: &'a str,
    /// Seconds since 1970.
    pub timestamp: i64,
    /// As everybody sees the document: its own fields, and over them those of the system.
    pub document: Option<&'a Map<String, Json>>,
    pub before: Option<&'a Map<String, Json>>,
    pub path: &'a str,
    pub collection: &'a str,
    pub id: &'a str,
    pub tenant: &'a str,
    pub origin: Option<OriginView<'a>>,
}

/// The trigger whose execution made a change.
#[derive(Debug, Clone, Copy)]
pub struct OriginView<'a> {
    pub trigger: &'a str,
    /// How many triggers made each other go off before this change.
    pub depth: u32,
}

impl EventCondition {
    /// Reads a condition.
    pub fn parse(text: &str) -> Result<EventCondition, ConditionError> {
        parse(text, VOCABULARY).map(|expression| EventCondition { expression })
    }

    /// Whether it holds. What comes to nothing is no match; the error says why.
    pub fn holds(&self, change: &ChangeView<'_>) -> Result<bool, EvaluationError> {
        self.holds_within(change, EVENT_CONDITION_STEPS_MAX).0
    }

    /// And how many steps it took.
    fn holds_within(
        &self,
        change: &ChangeView<'_>,
        steps: usize,
    ) -> (Result<bool, EvaluationError>, usize) {
        let variables = [change.as_value()];
        let mut evaluation = Evaluation::new(&variables, Steps::new(steps));
        let holds = evaluation.holds(&self.expression).map_err(|failure| match failure {
            Failure::Error(error) => error,
            Failure::OutOfSteps | Failure::Unreadable => EvaluationError::TooManySteps,
        });
        (holds, evaluation.steps.used())
    }
}

impl<'a> ChangeView<'a> {
    fn as_value(&self) -> Value<'a> {
        let origin = self.origin.map_or(Value::Null, |origin| {
            let depth = Value::Int(i64::from(origin.depth));
            Value::of_fields([("trigger", Value::Text(origin.trigger)), ("depth", depth)])
        });
        let [kind, timestamp, document, before, path, collection, id, tenant, from] = FIELDS;
        Value::of_fields([
            (kind, Value::Text(self.kind)),
            (timestamp, Value::Int(self.timestamp)),
            (document, Value::of_document(self.document)),
            (before, Value::of_document(self.before)),
            (path, Value::Text(self.path)),
            (collection, Value::Text(self.collection)),
            (id, Value::Text(self.id)),
            (tenant, Value::Text(self.tenant)),
            (from, origin),
        ])
    }
}

#[cfg(test)]
mod tests;
