//! A transaction: writes of documents, one after another, all of them or none.
//!
//! | write | of a document | of none, or of a tombstone |
//! |---|---|---|
//! | `create` | already exists | creates it |
//! | `set` | replaces its data | creates it, unless it has preconditions: they fail |
//! | `update`, `patch` | writes some fields | not found |
//! | `delete` | leaves a tombstone | not found |
//!
//! A document that is created over a tombstone continues its version, so that whoever waits for
//! a version is not deceived. A precondition on a document that does not exist fails. The public
//! API of single documents is a transaction of one write.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::body::BodyError;
use super::change::{Change, ChangeKind};
use super::field::Field;
use super::filter::{Filter, FilterOp};
use super::idempotency::WriteEnd;
use super::limits::{PRECONDITION_ELEMENTS_MAX, TRANSACTION_BYTES_MAX, TRANSACTION_OPS_MAX};
use super::patch::Patch;
use super::path::DocumentPath;
use super::snapshot::{Data, Document, DocumentView};
use crate::time::Millis;

/// One write.
#[derive(Debug, Clone, PartialEq)]
pub struct Op {
    pub path: DocumentPath,
    pub write: Write,
    /// What the document must be for it, all of them: as it is then, after the writes before.
    pub preconditions: Vec<Filter>,
}

/// What is written.
#[derive(Debug, Clone, PartialEq)]
pub enum Write {
    Create(Arc<Data>),
    Set(Arc<Data>),
    /// `update` is another name of it.
    Patch(Patch),
    Delete,
}

impl Write {
    /// Bytes of the data that it brings.
    pub fn bytes(&self) -> usize {
        match self {
            Write::Create(data) | Write::Set(data) => data.bytes(),
            Write::Patch(patch) => patch.bytes(),
            Write::Delete => 0,
        }
    }
}

/// What a transaction may be.
#[derive(Debug, Clone, Copy)]
pub struct TransactionLimits {
    pub ops_max: usize,
    /// Of documents before and after each write.
    pub bytes_max: usize,
}

/// What came of one write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpResult {
    pub version: u64,
    pub updated_at: Millis,
}

/// What a transaction does.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Applied {
    /// Of each write, in order.
    pub results: Vec<OpResult>,
    /// Of each write, in order: several of one document are several changes.
    pub changes: Vec<Change>,
    /// What is stored: each document as it is in the end, tombstones too.
    pub documents: BTreeMap<DocumentPath, Document>,
}

/// Why nothing is applied.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("write {op_index}: {reason}")]
pub struct Failure {
    /// Which write, from zero.
    pub op_index: usize,
    pub reason: OpError,
}

/// Why one write cannot be done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OpError {
    #[error("there is no document `{0}`")]
    NotFound(DocumentPath),
    #[error("there is a document `{0}` already")]
    AlreadyExists(DocumentPath),
    /// Versions are what is mostly compared, and a sentence about them helps most.
    #[error("version mismatch: the document has version {0}")]
    VersionMismatch(u64),
    #[error("precondition {index} does not hold: `{field} {op}` what was given")]
    PreconditionFailed {
        /// Which of the write's, from zero.
        index: usize,
        field: String,
        op: FilterOp,
    },
    #[error("there is no document `{0}`, so no precondition holds")]
    NothingToCompare(DocumentPath),
    #[error(transparent)]
    Body(#[from] BodyError),
    #[error("a transaction has at most {0} writes; use several")]
    TooManyOps(usize),
    #[error("a transaction changes at most {0} bytes of documents; use several")]
    TooManyBytes(usize),
    #[error(
        "the preconditions of a transaction look through at most {PRECONDITION_ELEMENTS_MAX} \
         elements of arrays; use several"
    )]
    TooManyElements,
    /// After more writes than there is time for.
    #[error("the document cannot be written any more")]
    VersionsUsedUp,
}

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ApplyError<E> {
    /// The transaction is refused.
    Failed(Failure),
    /// A document could not be read.
    Unread(E),
}

impl Default for TransactionLimits {
    fn default() -> TransactionLimits {
        TransactionLimits { ops_max: TRANSACTION_OPS_MAX, bytes_max: TRANSACTION_BYTES_MAX }
    }
}

/// Applies writes to documents as `read` finds them: each is read once, tombstones too.
pub fn apply<E>(
    ops: &[Op],
    now: Millis,
    limits: TransactionLimits,
    mut read: impl FnMut(&DocumentPath) -> Result<Option<Document>, E>,
) -> Result<Applied, ApplyError<E>> {
    let failed = |op_index, reason| ApplyError::Failed(Failure { op_index, reason });
    if ops.len() > limits.ops_max {
        return Err(failed(limits.ops_max, OpError::TooManyOps(limits.ops_max)));
    }
    let mut applied = Applied::default();
    let (mut bytes, mut elements) = (0, 0);
    for (ordinal, op) in ops.iter().enumerate() {
        let current = match applied.documents.get(&op.path) {
            Some(document) => Some(document.clone()),
            None => read(&op.path).map_err(ApplyError::Unread)?,
        };
        elements += current.as_ref().map_or(0, |document| op.elements(document));
        if elements > PRECONDITION_ELEMENTS_MAX {
            return Err(failed(ordinal, OpError::TooManyElements));
        }
        let (kind, document) =
            op.apply(current.as_ref(), now).map_err(|reason| failed(ordinal, reason))?;
        let before = current.filter(|it| !it.is_tombstone());
        bytes += before.as_ref().map_or(0, Document::bytes) + document.bytes();
        if bytes > limits.bytes_max {
            return Err(failed(ordinal, OpError::TooManyBytes(limits.bytes_max)));
        }
        let Document { version, updated_at, .. } = document;
        applied.results.push(OpResult { version, updated_at });
        let after = (!document.is_tombstone()).then(|| document.clone());
        let path = op.path.clone();
        applied.changes.push(Change { kind, path, before, after, ordinal });
        applied.documents.insert(op.path.clone(), document);
    }
    Ok(applied)
}

impl Op {
    /// The document as it becomes.
    fn apply(
        &self,
        current: Option<&Document>,
        now: Millis,
    ) -> Result<(ChangeKind, Document), OpError> {
        let live = current.and_then(|document| Some((document, document.data.as_deref()?)));
        let data = match (&self.write, live) {
            (Write::Create(_), Some(_)) => return Err(OpError::AlreadyExists(self.path.clone())),
            (Write::Patch(_) | Write::Delete, None) => {
                return Err(OpError::NotFound(self.path.clone()));
            }
            (Write::Create(data) | Write::Set(data), _) => {
                self.check(live.map(|(document, _)| document))?;
                Some(data.clone())
            }
            (Write::Patch(patch), Some((document, before))) => {
                self.check(Some(document))?;
                Some(Arc::new(patch.apply(before)?))
            }
            (Write::Delete, Some((document, _))) => {
                self.check(Some(document))?;
                None
            }
        };
        let kind = match (live, &data) {
            (None, _) => ChangeKind::Create,
            (Some(_), Some(_)) => ChangeKind::Update,
            (Some(_), None) => ChangeKind::Delete,
        };
        let last = current.map_or(0, |document| document.version);
        let updated_at = current.map_or(now, |document| document.updated_at.max(now));
        let document = Document {
            version: last.checked_add(1).ok_or(OpError::VersionsUsedUp)?,
            created_at: live.map_or(updated_at, |(document, _)| document.created_at),
            updated_at,
            data,
        };
        Ok((kind, document))
    }

    /// How many elements of arrays its preconditions look through.
    fn elements(&self, document: &Document) -> usize {
        let view = DocumentView::new(&self.path, document);
        self.preconditions.iter().map(|filter| filter.elements(&view)).sum()
    }

    fn check(&self, current: Option<&Document>) -> Result<(), OpError> {
        let Some(document) = current else {
            return match self.preconditions.is_empty() {
                true => Ok(()),
                false => Err(OpError::NothingToCompare(self.path.clone())),
            };
        };
        let view = DocumentView::new(&self.path, document);
        match self.preconditions.iter().position(|filter| !filter.matches(&view)) {
            None => Ok(()),
            Some(index) => Err(self.precondition_failed(index, document.version)),
        }
    }

    fn precondition_failed(&self, index: usize, version: u64) -> OpError {
        match self.preconditions.get(index) {
            Some(Filter { field, op, .. })
                if *field != Field::Version || *op != FilterOp::Equal =>
            {
                OpError::PreconditionFailed { index, field: field.to_string(), op: *op }
            }
            _ => OpError::VersionMismatch(version),
        }
    }
}

impl OpError {
    /// How a write ends because of it.
    pub fn end(&self) -> WriteEnd {
        match self {
            OpError::NotFound(_) => WriteEnd::NotFound,
            OpError::AlreadyExists(_)
            | OpError::VersionMismatch(_)
            | OpError::PreconditionFailed { .. }
            | OpError::NothingToCompare(_) => WriteEnd::PreconditionFailed,
            OpError::Body(_) => WriteEnd::Invalid,
            OpError::TooManyOps(_) | OpError::TooManyBytes(_) | OpError::TooManyElements => {
                WriteEnd::Exhausted
            }
            OpError::VersionsUsedUp => WriteEnd::Internal,
        }
    }
}

#[cfg(test)]
mod tests;
