//! The result of every check: nothing, or the promise that was not kept.

/// A promise that was not kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Violation(pub(crate) String);

pub(crate) type CheckResult<T = ()> = Result<T, Violation>;

pub(crate) fn violation(what: impl Into<String>) -> Violation {
    Violation(what.into())
}
