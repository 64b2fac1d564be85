//! What can be asked about documents and triggers, and what it may come to.

use std::sync::Arc;

use reveille_core::audit::{Actor, AuditEntry};
use reveille_core::delivery::hook::OpenDeliveries;
use reveille_core::delivery::id::DeliveryId;
use reveille_core::document::origin::Origin;
use reveille_core::document::path::DocumentPath;
use reveille_core::document::snapshot::Data;
use reveille_core::document::transaction::{Op, Write};
use reveille_core::trigger::SecretRef;
use reveille_core::trigger::secret::{SecretVersion, shown_prefix};
use reveille_core::{Millis, Tenant};
use reveille_engine::deliveries::delivery::{
    DeliveryOutcome, HoldDelivery, RecordDeliveryOutcomes,
};
use reveille_engine::deliveries::face::PreparedMatch;
use reveille_engine::documents::DocumentRejection;
use reveille_engine::documents::write::{WriteDocuments, WriteReceipt};
use reveille_engine::triggers::change::{ChangeTrigger, DeleteTrigger, TriggerChange};
use reveille_engine::triggers::secrets::{ChangeSecret, SecretChange};
use reveille_kernel::error::Error;

use super::Triggers;
use crate::base::WorldCall;
use crate::base::engine::{self, Timer};

#[derive(Debug, Clone)]
pub(super) enum Action {
    MakeSecret(Tenant),
    Write {
        tenant: Tenant,
        path: DocumentPath,
        value: u64,
        /// What was found out about it, perhaps a while ago.
        prepared: Option<PreparedMatch>,
    },
    Change {
        tenant: Tenant,
        id: &'static str,
        change: TriggerChange,
    },
    Delete {
        tenant: Tenant,
        id: &'static str,
    },
    RecordOutcome(DeliveryOutcome),
    Hold {
        id: DeliveryId,
        attempt: u32,
    },
    Timer(Box<Timer>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Told {
    Done,
    Written,
}

/// Why something was not done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Refusal {
    Unavailable,
    /// There is no such trigger, or it cannot be done with it as it is.
    Rejected(String),
    /// Nothing that is ever expected.
    Other(String),
}

type Outcome = Result<Told, Refusal>;

/// The write of a number into a document.
pub(super) fn op(path: &DocumentPath, value: u64) -> Op {
    let data = Data::from_json(format!("{{\"v\":{value}}}").as_bytes()).expect("an object");
    Op { path: path.clone(), write: Write::Set(Arc::new(data)), preconditions: Vec::new() }
}

fn entry(tenant: &Tenant, subject: &str) -> AuditEntry {
    AuditEntry::new(Actor::server(), "", Some(tenant.clone()), subject)
}

impl Action {
    /// The command that it is.
    pub(super) fn call(&self) -> WorldCall<Triggers> {
        match self.clone() {
            Action::MakeSecret(tenant) => {
                let name = SecretRef::parse("default").expect("a name");
                let version = SecretVersion {
                    sealed: "1.sealed".into(),
                    prefix: shown_prefix("whsec_x"),
                    created_at: Millis(0),
                };
                let (entry, change) = (entry(&tenant, "default"), SecretChange::Create { version });
                engine::call(ChangeSecret { tenant, name, change, entry }, governed)
            }
            Action::Write { tenant, path, value, prepared } => {
                let write = WriteDocuments {
                    tenant,
                    ops: [op(&path, value)].into(),
                    origin: Origin::CLIENT,
                    tag: None,
                    verdict: None,
                    audit: None,
                    prepared,
                    may_retry: false,
                    decide_by: Millis::NEVER,
                };
                engine::call(write, written)
            }
            Action::Change { tenant, id, change } => {
                let (entry, id) = (entry(&tenant, id), id.into());
                let (expected, reason) = (None, None);
                let command = ChangeTrigger { tenant, id, expected, change, reason, entry };
                engine::call(command, governed)
            }
            Action::Delete { tenant, id } => {
                let (entry, id, open) = (entry(&tenant, id), id.into(), OpenDeliveries::Drop);
                let command = DeleteTrigger { tenant, id, expected: None, open, entry };
                engine::call(command, governed)
            }
            Action::RecordOutcome(outcome) => {
                engine::call(RecordDeliveryOutcomes(vec![outcome]), governed)
            }
            Action::Hold { id, attempt } => engine::call(HoldDelivery { id, attempt }, governed),
            Action::Timer(timer) => engine::call(timer.command, governed),
        }
    }
}

fn refusal<R: std::fmt::Display>(error: &Error<R>) -> Refusal {
    match error {
        Error::Unavailable(_) => Refusal::Unavailable,
        Error::Rejected(rejection) => Refusal::Rejected(rejection.to_string()),
        Error::Damaged(what) => Refusal::Other(what.to_string()),
    }
}

fn governed<A, R: std::fmt::Display>(outcome: engine::Outcome<A, R>) -> Outcome {
    outcome.map(|_| Told::Done).map_err(|error| refusal(&error))
}

fn written(
    outcome: engine::Outcome<Result<WriteReceipt, DocumentRejection>, DocumentRejection>,
) -> Outcome {
    match outcome {
        Ok(Ok(_)) => Ok(Told::Written),
        Ok(Err(failed)) => Err(Refusal::Other(failed.to_string())),
        Err(Error::Unavailable(_)) => Err(Refusal::Unavailable),
        Err(error) => Err(Refusal::Other(error.to_string())),
    }
}
