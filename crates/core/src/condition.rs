//! Conditions in CEL: what may be asked, how deep, and how much work an answer may be.
//!
//! ```text
//! text → scan.rs        how deep the parser would recurse, before it sees the text
//!      → parse.rs       the parser's tree becomes ours, if it asks only for what there is
//!      → expression.rs  what is kept: never deeper, larger or otherwise than was checked
//!      → evaluate.rs    an answer about borrowed JSON, every step of it counted
//! ```
//!
//! The parser is the `cel` crate's. Its evaluation can neither be stopped nor bounded, and copies
//! what it compares into its errors; ours counts, and a property test holds it against the other.

pub mod event;
pub mod wake;

mod evaluate;
mod expression;
mod parse;
mod scan;
mod value;

pub use event::EventCondition;
pub use wake::WakeCondition;

pub(crate) use evaluate::{Document, Evaluation, Failure, LookUpDocument};
pub(crate) use expression::Expression;
pub(crate) use parse::{Variable, Vocabulary, parse};
pub(crate) use value::Value;

use crate::limits::{
    EXPRESSION_BYTES_MAX, EXPRESSION_CHAIN_MAX, EXPRESSION_DEPTH_MAX, EXPRESSION_LIST_MAX,
    EXPRESSION_NESTING_MAX, EXPRESSION_NODES_MAX,
};

/// Longest name or key that is repeated in an error, in bytes.
const EXCERPT_BYTES_MAX: usize = 64;

/// The text is no condition.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConditionError {
    #[error("a condition is at most {EXPRESSION_BYTES_MAX} bytes long")]
    TooLong,
    #[error("the condition cannot be read: {0}")]
    Syntax(String),
    #[error("a condition has at most {EXPRESSION_NESTING_MAX} brackets inside of each other")]
    TooManyBrackets,
    /// More operators and dots in a row than the parser's stack is known to hold.
    #[error(
        "a condition has at most {EXPRESSION_CHAIN_MAX} operators and dots one after another; \
         `&&`, `||` and commas begin anew"
    )]
    TooLongChain,
    #[error("a condition is at most {EXPRESSION_DEPTH_MAX} operations deep")]
    TooDeep,
    #[error("a condition has at most {EXPRESSION_NODES_MAX} operations, names and values")]
    TooManyNodes,
    #[error("the condition knows {known}, but not `{name}`")]
    UnknownVariable { name: String, known: String },
    #[error("`{variable}` has no `{name}`: there is {known}")]
    UnknownField { variable: String, name: String, known: String },
    #[error("the condition knows {known}, but no function `{name}`")]
    UnknownFunction { name: String, known: String },
    #[error("`{name}` is written `{form}`")]
    Arguments { name: &'static str, form: &'static str },
    #[error("`{0}` may not be inside of another `all`, `exists` or `exists_one`")]
    NestedMacro(String),
    #[error("`{0}` is the name of something already: call the element otherwise")]
    NameTaken(String),
    #[error("a condition has no {0}")]
    Unsupported(&'static str),
    #[error("a condition must be true or false, and this is always {0}")]
    NotBool(&'static str),
}

/// The condition came to nothing: it is neither true nor false of this document.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EvaluationError {
    #[error("there is no `{0}`")]
    NoSuchKey(String),
    #[error("a list has no element {0}")]
    NoSuchElement(String),
    #[error("`{operation}` is not for {kind}")]
    WrongKind { operation: &'static str, kind: &'static str },
    #[error("`{operation}` is not for {left} and {right}")]
    WrongKinds { operation: &'static str, left: &'static str, right: &'static str },
    #[error("`{0}` leaves the range of its numbers")]
    Overflow(&'static str),
    #[error("division by zero")]
    DivisionByZero,
    #[error("the map has a key twice")]
    RepeatedKey,
    #[error("it came to {0}, and to neither true nor false")]
    NotBool(&'static str),
    #[error("`{0}` looks at lists of at most {EXPRESSION_LIST_MAX} elements")]
    ListTooLong(&'static str),
    #[error("`{0}` is no path of a document")]
    NoDocumentPath(String),
    #[error("more than {0} documents were asked for")]
    TooManyReads(usize),
    /// The limit on what one evaluation may cost.
    #[error("it takes more steps than it may: compare less, or smaller parts of the document")]
    TooManySteps,
}

/// As much of a text as is repeated in an error.
pub(crate) fn excerpt(text: &str) -> String {
    if text.len() <= EXCERPT_BYTES_MAX {
        return text.to_owned();
    }
    let end = text.floor_char_boundary(EXCERPT_BYTES_MAX);
    format!("{}…", text.get(..end).unwrap_or_default())
}

#[cfg(test)]
mod tests;
