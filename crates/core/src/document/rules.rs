//! Rules: which documents the users of a tenant may read and write.
//!
//! ```json
//! {"match": {
//!   "rooms/{room}": {
//!     "allow": {"read": "request.auth.userId in resource.data.members"},
//!     "match": {"messages/{id}": {"allow": {
//!       "get, list": "request.auth.userId in get('rooms/' + room).data.members",
//!       "create": "request.resource.data.author == request.auth.userId"}}}}}}
//! ```
//!
//! A pattern is for paths of documents: a segment of it is a name, `{var}` for any one segment, or
//! at its end `{var=**}` for all that are left, one at least. The best pattern alone decides:
//! nothing is inherited from another, and an action that it does not name is denied. Segment by
//! segment a name is better than a variable, then the longer pattern is, and `{var}` is better than
//! `{var=**}`. So two patterns are never equally good: those that differ in the names of their
//! variables alone are refused.
//!
//! | name | is |
//! |---|---|
//! | `request.auth` | `userId`, `username`, `roles`, and `claims` with `permissions` and `scopes` |
//! | `request.time` | now, in milliseconds since 1970, as `createdAt` and `updatedAt` are |
//! | `request.resource` | with `data`, the document as it would become; null unless it is written |
//! | `resource` | the document as it is, with `data` and `id`; null if there is none |
//! | variables of the pattern | what they stand for in the path, as strings |
//! | `get(path)` | the document there, with `data` and `id`; null if there is none |
//! | `exists(path)` | whether there is one |
//!
//! What comes to nothing is denied.

mod auth;
mod check;
mod parse;
mod patterns;

use std::sync::Arc;

pub use auth::RuleAuth;
pub use check::{Denial, Documents, RuleCheck, RuleDecision, RuleRequest};
pub use parse::RulesError;
pub use patterns::PatternError;

use crate::condition::Expression;
use patterns::{Patterns, RulePattern};

/// What is done with a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Action {
    Get,
    List,
    Create,
    Update,
    Delete,
}

impl Action {
    pub const ALL: [Action; 5] =
        [Action::Get, Action::List, Action::Create, Action::Update, Action::Delete];

    pub fn as_str(self) -> &'static str {
        match self {
            Action::Get => "get",
            Action::List => "list",
            Action::Create => "create",
            Action::Update => "update",
            Action::Delete => "delete",
        }
    }

    /// What a name in `allow` stands for: an action, or `read` or `write` for several.
    fn named(name: &str) -> Vec<Action> {
        match name {
            "read" => vec![Action::Get, Action::List],
            "write" => vec![Action::Create, Action::Update, Action::Delete],
            _ => Action::ALL.into_iter().filter(|action| action.as_str() == name).collect(),
        }
    }
}

/// The rules of a tenant, ready to be asked. To clone them costs nothing.
#[derive(Debug, Clone)]
pub struct RuleSet(Arc<Rules>);

#[derive(Debug)]
struct Rules {
    source: Box<str>,
    /// Which of them is for a path.
    patterns: Patterns,
    rules: Vec<Rule>,
}

/// What a pattern allows.
#[derive(Debug)]
struct Rule {
    pattern: RulePattern,
    conditions: Vec<(Vec<Action>, Expression)>,
}

impl RuleSet {
    /// Reads rules. A thousand conditions take a second or so.
    pub fn parse(text: &str) -> Result<RuleSet, RulesError> {
        parse::parse(text).map(|rules| RuleSet(Arc::new(rules)))
    }

    /// Whether some of them ask for other documents than the one that they are about: then what may be
    /// seen can change although nothing of it does.
    pub fn read_documents(&self) -> bool {
        let conditions = self.0.rules.iter().flat_map(|rule| &rule.conditions);
        conditions.into_iter().any(|(_, condition)| condition.reads_documents())
    }

    /// The text that they were read from.
    pub fn source(&self) -> &str {
        &self.0.source
    }
}

#[cfg(test)]
mod tests;
