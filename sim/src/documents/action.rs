//! What can be asked about documents, and what it may come to.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use reveille_core::document::body::ReservedFields;
use reveille_core::document::change::FACE;
use reveille_core::document::filter::Filter;
use reveille_core::document::idempotency::{BodyHash, IdempotencyKey, WriteEnd};
use reveille_core::document::index::IndexDefinition;
use reveille_core::document::origin::Origin;
use reveille_core::document::patch::Patch;
use reveille_core::document::path::DocumentPath;
use reveille_core::document::snapshot::Data;
use reveille_core::document::transaction::{Op, Write};
use reveille_core::{Millis, Tenant};
use reveille_engine::deliveries::retention::SweepKeys;
use reveille_engine::deliveries::trim::{TrimEvents, TrimPlan};
use reveille_engine::documents::DocumentRejection;
use reveille_engine::documents::declare::SetDocumentIndexes;
use reveille_engine::documents::outcome::WriteTag;
use reveille_engine::documents::rules::RuleVerdict;
use reveille_engine::documents::write::{WriteDocuments, WriteReceipt};
use reveille_kernel::error::Error;

use super::Documents;
use crate::base::WorldCall;
use crate::base::engine::{self, Timer};

#[derive(Debug, Clone)]
pub(super) enum Action {
    Write(Transaction),
    Declare {
        tenant: Tenant,
        definitions: Vec<IndexDefinition>,
    },
    Trim {
        tenant: Tenant,
        plan: TrimPlan,
    },
    /// Of what is of no use any more.
    Sweep(Vec<Bytes>),
    Timer(Box<Timer>),
}

#[derive(Debug, Clone)]
pub(super) struct Transaction {
    pub(super) tenant: Tenant,
    pub(super) ops: Vec<PlainOp>,
    /// A key, and which body was sent.
    pub(super) tag: Option<(u8, u8)>,
    /// The triggers that led to it.
    pub(super) origin: &'static [&'static str],
    pub(super) verdict: Option<RuleVerdict>,
}

#[derive(Debug, Clone)]
pub(super) struct PlainOp {
    pub(super) path: &'static str,
    pub(super) kind: OpKind,
    pub(super) value: u64,
    /// How much text a whole document has.
    pub(super) text: usize,
    /// A version that the document must have.
    pub(super) version: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OpKind {
    Create,
    Set,
    Patch,
    Delete,
}

/// What became of an action.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Told {
    Done,
    /// The versions of its documents after each write.
    Written(Vec<u64>),
    Failed(WriteEnd),
    Denied(usize),
    Repeated(WriteEnd),
}

/// Why something was not done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Refusal {
    Unavailable,
    OtherBody,
    Conflict,
    /// Nothing that is ever expected.
    Other(String),
}

pub(super) type Outcome = Result<Told, Refusal>;

impl PlainOp {
    /// The data of a whole document.
    pub(super) fn fields(&self) -> BTreeMap<&'static str, String> {
        let text = format!("\"{}\"", "t".repeat(self.text));
        BTreeMap::from([("t", text), ("x", self.value.to_string())])
    }

    pub(super) fn path(&self) -> DocumentPath {
        DocumentPath::parse(self.path).expect("a path")
    }

    fn op(&self) -> Op {
        let path = self.path();
        let data = |json: String| Arc::new(Data::from_json(json.as_bytes()).expect("an object"));
        let whole = || data(object(&self.fields()));
        let write = match self.kind {
            OpKind::Create => Write::Create(whole()),
            OpKind::Set => Write::Set(whole()),
            OpKind::Patch => {
                let fields = data(format!("{{\"y\":{}}}", self.value)).fields().clone();
                let patch = Patch::parse(fields, path.id(), ReservedFields::Refuse);
                Write::Patch(patch.expect("a patch"))
            }
            OpKind::Delete => Write::Delete,
        };
        let preconditions = self.version.map(Filter::version_is).into_iter().collect();
        Op { path, write, preconditions }
    }
}

/// Fields as JSON.
pub(super) fn object(fields: &BTreeMap<&'static str, String>) -> String {
    let fields: Vec<_> = fields.iter().map(|(name, value)| format!("\"{name}\":{value}")).collect();
    format!("{{{}}}", fields.join(","))
}

/// The tag of a key and a body.
pub(super) fn write_tag(key: u8, body: u8) -> WriteTag {
    let key = IdempotencyKey::parse(&format!("k{key}")).expect("a key");
    WriteTag { scope: "id".into(), key, body: BodyHash::of(&[body]) }
}

impl Action {
    /// The command that it is.
    pub(super) fn call(&self) -> WorldCall<Documents> {
        match self.clone() {
            Action::Write(Transaction { tenant, ops, tag, origin, verdict }) => {
                let ops = ops.iter().map(PlainOp::op).collect();
                let tag = tag.map(|(key, body)| write_tag(key, body));
                let decide_by = Millis::NEVER;
                let origin = Origin::of_chain(origin.iter().copied()).expect("an origin");
                let write = WriteDocuments {
                    tenant,
                    ops,
                    origin,
                    tag,
                    verdict,
                    audit: None,
                    prepared: None,
                    may_retry: false,
                    decide_by,
                };
                engine::call(write, written)
            }
            Action::Declare { tenant, definitions } => {
                let command = SetDocumentIndexes::new(tenant, definitions);
                engine::call(command.expect("a few that differ"), done)
            }
            Action::Trim { tenant, plan } => {
                engine::call(TrimEvents { face: FACE, tenant, plan }, done)
            }
            Action::Sweep(found) => engine::call(SweepKeys { found }, done),
            Action::Timer(timer) => engine::call(timer.command, done),
        }
    }
}

fn refusal<R: std::fmt::Display>(error: &Error<R>) -> Refusal {
    match error {
        Error::Unavailable(_) => Refusal::Unavailable,
        other => Refusal::Other(other.to_string()),
    }
}

fn done<A, R: std::fmt::Display>(outcome: engine::Outcome<A, R>) -> Outcome {
    outcome.map(|_| Told::Done).map_err(|error| refusal(&error))
}

fn written(
    outcome: engine::Outcome<Result<WriteReceipt, DocumentRejection>, DocumentRejection>,
) -> Outcome {
    match outcome {
        Ok(Ok(WriteReceipt { repeated: Some(record), .. })) => Ok(Told::Repeated(record.end)),
        Ok(Ok(receipt)) => {
            Ok(Told::Written(receipt.results.iter().map(|result| result.version).collect()))
        }
        Ok(Err(DocumentRejection::Failed(failure))) => Ok(Told::Failed(failure.reason.end())),
        Ok(Err(DocumentRejection::RuleDenied { op_index: Some(at) })) => Ok(Told::Denied(at)),
        Ok(Err(other)) => Err(Refusal::Other(other.to_string())),
        Err(Error::Rejected(DocumentRejection::OtherBody)) => Err(Refusal::OtherBody),
        Err(Error::Rejected(DocumentRejection::Conflict)) => Err(Refusal::Conflict),
        Err(error) => Err(refusal(&error)),
    }
}
