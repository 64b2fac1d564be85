//! What can be wrong with what is asked of triggers and their secrets.

use std::sync::Arc;

use reveille_core::trigger::{SecretRef, TriggerId};
use reveille_kernel::error::Error;

/// Why something was not done with a trigger or a secret.
pub type TriggerError = Error<TriggerRejection>;

/// Why something cannot be done with a trigger or a secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TriggerRejection {
    #[error("there is no trigger `{id}`")]
    NotFound { id: Arc<str> },
    #[error("there is a trigger `{id}` already; change it, or choose another id")]
    Exists { id: TriggerId },
    #[error(
        "this tenant has {max} triggers, and there may be no more (--max-triggers); delete one first"
    )]
    TooManyTriggers { max: usize },
    /// It counts among all hooks of its tenant.
    #[error(
        "this tenant has {max} hooks of all kinds, and there may be no more (--max-hooks); delete \
         one first"
    )]
    TooManyHooks { max: usize },
    #[error(
        "the trigger `{id}` has version {current} by now; look at it again, and send that as \
         If-Match, or as its `version` in a file"
    )]
    VersionMismatch { id: Arc<str>, current: u64 },
    /// Somebody has seen a version of it.
    #[error(
        "there is no trigger `{id}` any more; leave `version` out if it is to be made once more"
    )]
    Gone { id: Arc<str> },
    #[error("version {version} of the trigger is not kept; `versions` lists those that are")]
    NoVersion { version: u64 },
    #[error("version {version} is the one in force")]
    SameVersion { version: u64 },
    /// Changes from before are still being told, and so many versions are kept for them.
    #[error(
        "the trigger was changed often while older changes are still being handed out; try again in \
         a moment"
    )]
    Busy,
    #[error(
        "the tenant has no secret `{name}` to sign with; create it first \
         (POST /admin/v1/tenants/{{tenant}}/secrets/{name})"
    )]
    NoSecret { name: Arc<str> },
    #[error("there is a secret `{name}` already; rotate it")]
    SecretExists { name: SecretRef },
    #[error("the trigger `{id}` signs with `{name}`; change or delete it first")]
    SecretInUse { name: SecretRef, id: Arc<str> },
    #[error("this tenant has {max} secrets, and there may be no more; delete one first")]
    TooManySecrets { max: usize },
    #[error("nothing of this trigger runs dry; POST …/dry-run begins that")]
    NoDryRun,
    /// What was to be done with a trigger that is not in that state.
    #[error("the trigger is {state}, and that cannot be done with it then")]
    WrongState { state: &'static str },
}

impl From<TriggerRejection> for TriggerError {
    fn from(rejection: TriggerRejection) -> TriggerError {
        Error::Rejected(rejection)
    }
}
