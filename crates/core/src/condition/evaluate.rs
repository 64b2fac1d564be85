//! What an expression comes to, and what finding out may cost.
//!
//! A step is a node that is evaluated, an element or a key that is looked at, or [`TEXT_STEP_BYTES`]
//! of text that are compared, searched or copied. Nothing here loops or allocates without counting
//! first, so the limit on steps bounds time and memory alike.

use std::rc::Rc;

use serde_json::{Map, Value as Json};

use super::expression::{Expression, Function, Quantifier};
use super::value::Value;
use super::{EvaluationError, excerpt};
use crate::limits::EXPRESSION_LIST_MAX;
use crate::steps::Steps;

mod arithmetic;
mod operators;

/// Bytes of text that are compared or copied within a step.
pub(super) const TEXT_STEP_BYTES: usize = 32;

/// Why there is no value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Failure {
    /// `&&`, `||`, `all` and `exists` go on without it where the rest decides.
    Error(EvaluationError),
    /// More was done than may be: nothing goes on.
    OutOfSteps,
    /// A document could not be read, and nobody knows whether it would have decided.
    Unreadable,
}

impl From<EvaluationError> for Failure {
    fn from(error: EvaluationError) -> Failure {
        Failure::Error(error)
    }
}

/// Where `get(path)` and `exists(path)` look.
pub(crate) trait LookUpDocument<'a> {
    /// The document, which outlives the evaluation, and its id.
    fn look_up(&self, path: &str) -> Result<Option<Document<'a>>, Failure>;
}

/// A document that was looked up.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Document<'a> {
    pub(crate) id: &'a str,
    pub(crate) fields: &'a Map<String, Json>,
}

impl<'a> Document<'a> {
    /// As rules see it.
    pub(crate) fn as_value(&self) -> Value<'a> {
        Value::of_fields([("data", Value::Map(self.fields)), ("id", Value::Text(self.id))])
    }
}

/// An evaluation, or several that share their steps.
pub(crate) struct Evaluation<'e, 'a> {
    variables: &'e [Value<'a>],
    documents: Option<&'e dyn LookUpDocument<'a>>,
    /// What the quantifier that is at work looks at; they are never inside of each other.
    element: Value<'a>,
    pub(crate) steps: Steps,
}

impl<'e, 'a> Evaluation<'e, 'a> {
    /// `variables` are those of the vocabulary that the expression was read with, in its order.
    pub(crate) fn new(variables: &'e [Value<'a>], steps: Steps) -> Evaluation<'e, 'a> {
        Evaluation { variables, documents: None, element: Value::Null, steps }
    }

    /// With documents that can be asked for.
    pub(crate) fn with(self, documents: &'e dyn LookUpDocument<'a>) -> Evaluation<'e, 'a> {
        Evaluation { documents: Some(documents), ..self }
    }

    /// Whether the condition holds.
    pub(crate) fn holds(&mut self, expression: &'a Expression) -> Result<bool, Failure> {
        match self.evaluate(expression)? {
            Value::Bool(value) => Ok(value),
            other => Err(EvaluationError::NotBool(other.kind()).into()),
        }
    }

    fn count(&mut self, steps: usize) -> Result<(), Failure> {
        if self.steps.count(steps) { Ok(()) } else { Err(Failure::OutOfSteps) }
    }

    fn count_text(&mut self, bytes: usize) -> Result<(), Failure> {
        self.count(bytes / TEXT_STEP_BYTES)
    }

    /// It recurses as deep as the expression is.
    fn evaluate(&mut self, expression: &'a Expression) -> Result<Value<'a>, Failure> {
        self.count(1)?;
        match expression {
            Expression::Null => Ok(Value::Null),
            Expression::Bool(value) => Ok(Value::Bool(*value)),
            Expression::Int(value) => Ok(Value::Int(*value)),
            Expression::UInt(value) => Ok(Value::UInt(*value)),
            Expression::Float(value) => Ok(Value::Float(*value)),
            Expression::Text(text) => Ok(Value::Text(text)),
            Expression::List(elements) => self.list(elements),
            Expression::Map(entries) => self.map(entries),
            Expression::Variable(place) => {
                Ok(self.variables.get(*place).cloned().unwrap_or(Value::Null))
            }
            Expression::Element => Ok(self.element.clone()),
            Expression::Field(of, field) => self.field(of, field),
            Expression::HasField(of, field) => {
                let of = self.evaluate(of)?;
                Ok(Value::Bool(self.look_up(&of, field, ".")?.is_some()))
            }
            Expression::Index(of, index) => self.index(of, index),
            Expression::Not(of) => Ok(Value::Bool(!self.truth(of, "!")?)),
            Expression::Negate(of) => Ok(arithmetic::negate(&self.evaluate(of)?)?),
            Expression::And(left, right) => self.decide(left, right, "&&", false),
            Expression::Or(left, right) => self.decide(left, right, "||", true),
            Expression::If(parts) => {
                let [of, then, otherwise] = &**parts;
                if self.truth(of, "?")? { self.evaluate(then) } else { self.evaluate(otherwise) }
            }
            Expression::Binary(operator, left, right) => {
                let left = self.evaluate(left)?;
                let right = self.evaluate(right)?;
                self.binary(*operator, &left, &right)
            }
            Expression::Call(function, arguments) => self.call(*function, arguments),
            Expression::Quantifier(quantifier, list, body) => {
                self.quantify(*quantifier, list, body).map(Value::Bool)
            }
        }
    }

    fn truth(&mut self, of: &'a Expression, operation: &'static str) -> Result<bool, Failure> {
        match self.evaluate(of)? {
            Value::Bool(value) => Ok(value),
            other => Err(EvaluationError::WrongKind { operation, kind: other.kind() }.into()),
        }
    }

    /// `&&` and `||`: a side that decides by itself makes up for an error of the other.
    fn decide(
        &mut self,
        left: &'a Expression,
        right: &'a Expression,
        operation: &'static str,
        deciding: bool,
    ) -> Result<Value<'a>, Failure> {
        let left = match self.truth(left, operation) {
            Ok(value) if value == deciding => return Ok(Value::Bool(deciding)),
            Err(stop @ (Failure::OutOfSteps | Failure::Unreadable)) => return Err(stop),
            other => other,
        };
        let right = self.truth(right, operation)?;
        if right == deciding { Ok(Value::Bool(deciding)) } else { left.map(Value::Bool) }
    }

    fn quantify(
        &mut self,
        quantifier: Quantifier,
        list: &'a Expression,
        body: &'a Expression,
    ) -> Result<bool, Failure> {
        let name = quantifier.name();
        let elements = self.elements(list, name)?;
        let (mut holding, mut error) = (0, None);
        for element in elements {
            self.element = element;
            match (self.truth(body, name), quantifier) {
                (Ok(false), Quantifier::All) => return Ok(false),
                (Ok(true), Quantifier::Exists) => return Ok(true),
                (Ok(holds), _) => holding += usize::from(holds),
                (Err(Failure::Error(first)), Quantifier::All | Quantifier::Exists) => {
                    error.get_or_insert(first);
                }
                (Err(failure), _) => return Err(failure),
            }
        }
        match error {
            Some(error) => Err(error.into()),
            None => Ok(quantifier == Quantifier::All
                || (quantifier == Quantifier::ExistsOne && holding == 1)),
        }
    }

    /// What a quantifier looks at: elements of a list, keys of a map.
    fn elements(
        &mut self,
        list: &'a Expression,
        name: &'static str,
    ) -> Result<Vec<Value<'a>>, Failure> {
        let of = self.evaluate(list)?;
        let wrong = EvaluationError::WrongKind { operation: name, kind: of.kind() };
        let len = of.as_list().map(|list| list.len()).or(of.map_len()).ok_or(wrong)?;
        if len > EXPRESSION_LIST_MAX {
            return Err(EvaluationError::ListTooLong(name).into());
        }
        self.count(len)?;
        Ok(match &of {
            Value::Map(fields) => fields.keys().map(|key| Value::Text(key)).collect(),
            Value::BuiltMap(entries) => entries.iter().map(|(key, _)| key.clone()).collect(),
            Value::List(elements) => elements.iter().map(Value::of).collect(),
            Value::BuiltList(elements) => elements.to_vec(),
            _ => Vec::new(),
        })
    }

    fn list(&mut self, elements: &'a [Expression]) -> Result<Value<'a>, Failure> {
        let elements = elements.iter().map(|element| self.evaluate(element));
        Ok(Value::BuiltList(Rc::new(elements.collect::<Result<_, _>>()?)))
    }

    fn map(&mut self, entries: &'a [(Expression, Expression)]) -> Result<Value<'a>, Failure> {
        let mut built: Vec<(Value<'a>, Value<'a>)> = Vec::with_capacity(entries.len());
        for (key, value) in entries {
            let key = self.evaluate(key)?;
            if !matches!(key, Value::Bool(_) | Value::Int(_) | Value::UInt(_))
                && key.as_text().is_none()
            {
                let operation = "{}";
                return Err(EvaluationError::WrongKind { operation, kind: key.kind() }.into());
            }
            for (other, _) in &built {
                if self.is_equal(other, &key, 0)? {
                    return Err(EvaluationError::RepeatedKey.into());
                }
            }
            built.push((key, self.evaluate(value)?));
        }
        Ok(Value::BuiltMap(Rc::new(built)))
    }

    fn field(&mut self, of: &'a Expression, field: &str) -> Result<Value<'a>, Failure> {
        let of = self.evaluate(of)?;
        let value = self.look_up(&of, field, ".")?;
        value.ok_or_else(|| EvaluationError::NoSuchKey(excerpt(field)).into())
    }

    /// The value of a key that is a string, if the map has it.
    fn look_up(
        &mut self,
        of: &Value<'a>,
        key: &str,
        operation: &'static str,
    ) -> Result<Option<Value<'a>>, Failure> {
        self.count_text(key.len())?;
        match of {
            Value::Map(fields) => Ok(fields.get(key).map(Value::of)),
            Value::BuiltMap(entries) => {
                self.count(entries.len())?;
                let mut entries = entries.iter();
                let entry = entries.find(|(name, _)| name.as_text() == Some(key));
                Ok(entry.map(|(_, value)| value.clone()))
            }
            other => Err(EvaluationError::WrongKind { operation, kind: other.kind() }.into()),
        }
    }

    fn index(&mut self, of: &'a Expression, index: &'a Expression) -> Result<Value<'a>, Failure> {
        let of = self.evaluate(of)?;
        let index = self.evaluate(index)?;
        if let Some(list) = of.as_list() {
            let place = arithmetic::place(&index);
            let place = place.ok_or_else(|| wrong_kinds("[]", &of, &index))?;
            let element = usize::try_from(place).ok().and_then(|place| list.get(place));
            let missing = || EvaluationError::NoSuchElement(place.to_string()).into();
            return element.ok_or_else(missing);
        }
        match (self.entry(&of, &index)?, index.as_text()) {
            (Some(value), _) => Ok(value),
            (None, Some(key)) => Err(EvaluationError::NoSuchKey(excerpt(key)).into()),
            (None, None) => Err(EvaluationError::NoSuchKey(index.kind().to_owned()).into()),
        }
    }

    /// The value of a key of any kind, if the map has it.
    fn entry(&mut self, of: &Value<'a>, key: &Value<'a>) -> Result<Option<Value<'a>>, Failure> {
        if let Some(key) = key.as_text() {
            return self.look_up(of, key, "[]");
        }
        let is_key =
            matches!(key, Value::Bool(_) | Value::Int(_) | Value::UInt(_) | Value::Float(_));
        match of {
            Value::BuiltMap(entries) if is_key => {
                for (name, value) in entries.iter() {
                    if self.is_equal(name, key, 0)? {
                        return Ok(Some(value.clone()));
                    }
                }
                Ok(None)
            }
            Value::Map(_) if is_key => Ok(None),
            _ => Err(wrong_kinds("[]", of, key).into()),
        }
    }

    fn call(
        &mut self,
        function: Function,
        arguments: &'a [Expression],
    ) -> Result<Value<'a>, Failure> {
        let operation = function.name();
        match (function, arguments) {
            (Function::Size, [of]) => {
                let of = self.evaluate(of)?;
                self.size(&of)
            }
            (Function::Get | Function::Exists, [path]) => {
                let path = self.evaluate(path)?;
                let wrong = || EvaluationError::WrongKind { operation, kind: path.kind() };
                let path = path.as_text().ok_or_else(wrong)?;
                self.document(function, path)
            }
            (_, [text, part]) => {
                let text = self.evaluate(text)?;
                let part = self.evaluate(part)?;
                let (Some(text), Some(part)) = (text.as_text(), part.as_text()) else {
                    return Err(wrong_kinds(operation, &text, &part).into());
                };
                let searched = if function == Function::Contains { text.len() } else { 0 };
                self.count_text(searched + part.len())?;
                Ok(Value::Bool(match function {
                    Function::Contains => text.contains(part),
                    Function::StartsWith => text.starts_with(part),
                    _ => text.ends_with(part),
                }))
            }
            _ => Err(EvaluationError::WrongKind { operation, kind: "nothing" }.into()),
        }
    }

    fn size(&mut self, of: &Value<'a>) -> Result<Value<'a>, Failure> {
        let len = match (of.as_text(), of.as_list()) {
            (Some(text), _) => {
                self.count_text(text.len())?;
                Some(text.chars().count())
            }
            (None, Some(list)) => Some(list.len()),
            (None, None) => of.map_len(),
        };
        let len = len.and_then(|len| i64::try_from(len).ok()).map(Value::Int);
        let wrong = || EvaluationError::WrongKind { operation: "size", kind: of.kind() };
        len.ok_or_else(|| wrong().into())
    }

    fn document(&mut self, function: Function, path: &str) -> Result<Value<'a>, Failure> {
        self.count_text(path.len())?;
        let document = match self.documents {
            Some(documents) => documents.look_up(path)?,
            None => None,
        };
        Ok(match (function, document) {
            (Function::Exists, document) => Value::Bool(document.is_some()),
            (_, Some(document)) => document.as_value(),
            (_, None) => Value::Null,
        })
    }
}

fn wrong_kinds(operation: &'static str, left: &Value<'_>, right: &Value<'_>) -> EvaluationError {
    EvaluationError::WrongKinds { operation, left: left.kind(), right: right.kind() }
}
