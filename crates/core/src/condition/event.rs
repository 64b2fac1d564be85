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
//! | `changed` | the paths of the fields that differ, and of those that they are inside of |
//! | `origin` | the trigger that wrote it, as `trigger` and `depth`; null if a client did |

mod reads;

use std::rc::Rc;

use serde_json::{Map, Value as Json};

use super::{
    ConditionError, Evaluation, EvaluationError, Expression, Failure, Value, Variable, Vocabulary,
    parse,
};
use crate::limits::EVENT_CONDITION_STEPS_MAX;
use crate::steps::Steps;

const FIELDS: [&str; 10] = [
    "type",
    "timestamp",
    "document",
    "before",
    "path",
    "collection",
    "id",
    "tenant",
    "origin",
    "changed",
];
const VARIABLES: [Variable<'static>; 1] = [Variable { name: "event", fields: &FIELDS }];
const VOCABULARY: Vocabulary<'static> = Vocabulary { variables: &VARIABLES, has_documents: false };

/// A condition over changes of documents.
#[derive(Debug)]
pub struct EventCondition {
    expression: Expression,
    reads_time: bool,
    reads_changed: bool,
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
    /// Need not be there for a condition that does not read it.
    pub changed: &'a [String],
}

/// Neither true nor false: whoever evaluates has done all that they may.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutOfSteps;

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
        let expression = parse(text, VOCABULARY)?;
        let reads_time = reads::reads_time(&expression);
        let reads_changed = reads::reads_changed(&expression);
        Ok(EventCondition { expression, reads_time, reads_changed })
    }

    /// Whether it may come to something else at another moment of the commit. It says so of more
    /// conditions than it is true of.
    pub fn reads_time(&self) -> bool {
        self.reads_time
    }

    /// Whether it looks at what has changed.
    pub fn reads_changed(&self) -> bool {
        self.reads_changed
    }

    /// Whether it holds. What comes to nothing is no match; the error says why.
    pub fn holds(&self, change: &ChangeView<'_>) -> Result<bool, EvaluationError> {
        self.evaluate(change, EVENT_CONDITION_STEPS_MAX).0
    }

    /// The same, as part of more that is done: its steps are counted there, too.
    pub fn holds_within(
        &self,
        change: &ChangeView<'_>,
        steps: &mut Steps,
    ) -> Result<Result<bool, EvaluationError>, OutOfSteps> {
        let left = steps.left();
        let (holds, used) = self.evaluate(change, EVENT_CONDITION_STEPS_MAX.min(left));
        steps.count(used);
        match holds {
            Err(EvaluationError::TooManySteps) if left < EVENT_CONDITION_STEPS_MAX => {
                Err(OutOfSteps)
            }
            holds => Ok(holds),
        }
    }

    /// And how many steps it took.
    fn evaluate(
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
        let [kind, timestamp, document, before, path, collection, id, tenant, from, changed] =
            FIELDS;
        let paths = self.changed.iter().map(|path| Value::Text(path)).collect();
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
            (changed, Value::BuiltList(Rc::new(paths))),
        ])
    }
}

#[cfg(test)]
mod tests;
