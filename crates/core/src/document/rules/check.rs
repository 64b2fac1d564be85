//! Asking the rules: one check for one request, whatever the number of its documents.

use std::cell::{OnceCell, RefCell};

use serde_json::{Map, Value as Json};

use super::{Action, Rule, RuleAuth, RuleSet};
use crate::condition::{
    Document, Evaluation, EvaluationError, Failure, LookUpDocument, Value, excerpt,
};
use crate::document::path::DocumentPath;
use crate::limits::{RULE_READS_MAX, RULE_STEPS_MAX};
use crate::steps::Steps;
use crate::time::Millis;

/// Where rules read other documents of the tenant.
pub trait Documents {
    type Error;

    /// The document as everybody sees it, or nothing if there is none.
    ///
    /// An error ends the check without a decision, even if another part of the condition would
    /// have decided. So it can also say that the document must be fetched first.
    fn get(&self, path: &DocumentPath) -> Result<Option<Map<String, Json>>, Self::Error>;
}

/// What is to be done with one document.
#[derive(Debug, Clone, Copy)]
pub struct RuleRequest<'a> {
    pub action: Action,
    /// Without `/` at its beginning.
    pub path: &'a str,
    /// The document as it is, as everybody sees it.
    pub resource: Option<&'a Map<String, Json>>,
    /// As it would become: not what was sent, but what would be stored.
    pub resulting: Option<&'a Map<String, Json>>,
}

/// What the rules say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RuleDecision {
    Allowed,
    Denied(Denial),
}

/// Why not. For those who write the rules: it says what is in them.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Denial {
    #[error("no rule is for this path")]
    NoRule,
    /// The rules took so many steps for the documents before this one that none is looked for.
    #[error("the rules take more steps for one request than they may")]
    TooManySteps,
    #[error("`{pattern}` does not allow `{action}`")]
    NotAllowed { pattern: String, action: &'static str },
    #[error("`{action}` of `{pattern}` is false")]
    False { pattern: String, action: &'static str },
    #[error("`{action}` of `{pattern}` came to nothing: {error}")]
    Failed { pattern: String, action: &'static str, error: EvaluationError },
}

/// A document that was read, or was looked for.
struct Read {
    path: DocumentPath,
    document: Option<Map<String, Json>>,
}

/// One request's questions to the rules: all of its documents share what may be read and done.
pub struct RuleCheck<'c, D> {
    rules: &'c RuleSet,
    auth: &'c RuleAuth,
    now: Millis,
    documents: &'c D,
    reads: [OnceCell<Read>; RULE_READS_MAX],
    steps: Steps,
}

impl<'c, D: Documents> RuleCheck<'c, D> {
    pub fn new(
        rules: &'c RuleSet,
        auth: &'c RuleAuth,
        now: Millis,
        documents: &'c D,
    ) -> RuleCheck<'c, D> {
        let (reads, steps) = (Default::default(), Steps::new(RULE_STEPS_MAX));
        RuleCheck { rules, auth, now, documents, reads, steps }
    }

    /// Whether it may be done.
    pub fn decide(&mut self, request: &RuleRequest<'_>) -> Result<RuleDecision, D::Error> {
        if self.auth.is_admin {
            return Ok(RuleDecision::Allowed);
        }
        let rules = &*self.rules.0;
        let number = rules.patterns.find(request.path, &mut self.steps);
        let Some(rule) = number.and_then(|number| rules.rules.get(number)) else {
            let is_known = !self.steps.is_exceeded();
            let denial = if is_known { Denial::NoRule } else { Denial::TooManySteps };
            return Ok(RuleDecision::Denied(denial));
        };
        let (pattern, action) = (rule.pattern.text.clone(), request.action.as_str());
        let conditions = &rule.conditions;
        let condition = conditions.iter().find(|(actions, _)| actions.contains(&request.action));
        let Some((_, condition)) = condition else {
            return Ok(RuleDecision::Denied(Denial::NotAllowed { pattern, action }));
        };
        let variables = self.variables(rule, request);
        let error = RefCell::new(None);
        let reader = Reader { documents: self.documents, reads: &self.reads, error: &error };
        let mut evaluation = Evaluation::new(&variables, self.steps).with(&reader);
        let holds = evaluation.holds(condition);
        self.steps = evaluation.steps;
        let denial = match holds {
            Ok(true) => return Ok(RuleDecision::Allowed),
            Ok(false) => Denial::False { pattern, action },
            Err(Failure::Error(error)) => Denial::Failed { pattern, action, error },
            Err(Failure::OutOfSteps | Failure::Unreadable) => {
                if let Some(error) = error.take() {
                    return Err(error);
                }
                Denial::Failed { pattern, action, error: EvaluationError::TooManySteps }
            }
        };
        Ok(RuleDecision::Denied(denial))
    }

    /// Whether a page may be shown: only if each of its documents may, so an empty one always may.
    /// The first that may not says why.
    pub fn decide_page<'a>(
        &mut self,
        page: impl IntoIterator<Item = (&'a str, &'a Map<String, Json>)>,
    ) -> Result<RuleDecision, D::Error> {
        for (path, document) in page {
            let (action, resource) = (Action::List, Some(document));
            let request = RuleRequest { action, path, resource, resulting: None };
            let decision = self.decide(&request)?;
            if decision != RuleDecision::Allowed {
                return Ok(decision);
            }
        }
        Ok(RuleDecision::Allowed)
    }

    /// In the order of `parse.rs`.
    fn variables<'a>(&'a self, rule: &Rule, request: &RuleRequest<'a>) -> Vec<Value<'a>> {
        let now = Value::Int(i64::try_from(self.now.0).unwrap_or(i64::MAX));
        let resulting = request
            .resulting
            .map_or(Value::Null, |document| Value::of_fields([("data", Value::Map(document))]));
        let resource = request.resource.map_or(Value::Null, |document| {
            Document { id: id(request.path), fields: document }.as_value()
        });
        let request_value = Value::of_fields([
            ("auth", self.auth.as_value()),
            ("time", now),
            ("resource", resulting),
        ]);
        let captures = rule.pattern.captures(request.path).into_iter().map(Value::Text);
        [request_value, resource].into_iter().chain(captures).collect()
    }
}

/// What `get` and `exists` see: every document is read once.
struct Reader<'r, D: Documents> {
    documents: &'r D,
    reads: &'r [OnceCell<Read>; RULE_READS_MAX],
    error: &'r RefCell<Option<D::Error>>,
}

impl<'r, D: Documents> LookUpDocument<'r> for Reader<'r, D> {
    fn look_up(&self, path: &str) -> Result<Option<Document<'r>>, Failure> {
        let path = path.strip_prefix('/').unwrap_or(path);
        let wrong = |_| EvaluationError::NoDocumentPath(excerpt(path));
        let path = DocumentPath::parse(path).map_err(wrong)?;
        for place in self.reads {
            let read = match place.get() {
                Some(read) if read.path == path => read,
                Some(_) => continue,
                None => {
                    let document = self.documents.get(&path).map_err(|error| {
                        self.error.replace(Some(error));
                        Failure::Unreadable
                    })?;
                    place.get_or_init(|| Read { path: path.clone(), document })
                }
            };
            let id = read.path.id().as_str();
            return Ok(read.document.as_ref().map(|fields| Document { id, fields }));
        }
        Err(EvaluationError::TooManyReads(RULE_READS_MAX).into())
    }
}

fn id(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}
