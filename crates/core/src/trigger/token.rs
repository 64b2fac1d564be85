//! Tokens that let the code behind a trigger read and write documents: JSON Web Tokens, signed by
//! the server and stored nowhere.
//!
//! | kind | `aud` | who | may |
//! |---|---|---|---|
//! | execution | `syntrix-trigger` | whom a trigger has called, for a few minutes | what its scopes and paths say |
//! | system | `syntrix-system` | an in-house worker with the role `system` | everything of its tenant |
//!
//! Both go through the tenant's rules and limits. What decides, in this order: signature and
//! expiry ([`TokenVerifier`]), then tenant, scope and paths ([`TokenAccess`]), then how often.

mod access;
mod jwt;
mod path;

use std::sync::Arc;

use crate::document::origin::Origin;
use crate::tenant::Tenant;

pub use super::grant::Scopes;
pub use access::{AccessDenied, TokenAccess};
pub use jwt::{TokenError, TokenTooLong, TokenVerifier, TriggerKey};
pub use path::{AllowedPath, AllowedPathError};

/// Whom tokens of executions are for.
pub const TRIGGER_AUDIENCE: &str = "syntrix-trigger";
/// How long the token of a delivery is good for, in seconds.
pub const TOKEN_TTL_S: u64 = 300;
/// Whom system tokens are for.
pub const SYSTEM_AUDIENCE: &str = "syntrix-system";
/// Who holds a system token.
pub const SYSTEM_SUBJECT: &str = "system:trigger-worker";
/// What lets a system token in.
pub const SYSTEM_ROLE: &str = "system";
/// The roles of a system token.
pub const SYSTEM_ROLES: [&str; 2] = [SYSTEM_ROLE, "service:trigger-worker"];

/// What may be done with documents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scope {
    Read,
    Write,
}

/// What an execution's token says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TriggerClaims {
    pub tenant: Tenant,
    /// The id of the trigger.
    pub trigger: Arc<str>,
    pub scopes: Scopes,
    pub allow_paths: Vec<AllowedPath>,
    /// Most ops or paths of one call, where it is not what the server says.
    pub max_ops: Option<u64>,
    /// Longest body of one call, where it is not what the server says.
    pub max_payload_kb: Option<u64>,
    /// Whether the tenant's rules are not asked.
    pub bypass_rules: bool,
    /// The triggers that led to the execution, its own the last one: what it writes says so.
    pub origin: Origin,
    /// The delivery that the token went out with; `None` for one that an operator asked for.
    pub delivery: Option<Arc<str>>,
    pub issue: Issue,
}

/// What a system token says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SystemClaims {
    pub tenant: Tenant,
    pub roles: Vec<Arc<str>>,
    pub issue: Issue,
}

/// When a token was made, until when it is good, and which one it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Issue {
    /// Tells it from every other one.
    pub id: Arc<str>,
    /// Seconds since 1970.
    pub issued_at_s: u64,
    pub expires_at_s: u64,
}

/// What a token says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TokenClaims {
    Trigger(TriggerClaims),
    System(SystemClaims),
}

impl Scope {
    pub fn as_str(self) -> &'static str {
        match self {
            Scope::Read => Scopes::READ,
            Scope::Write => Scopes::WRITE,
        }
    }
}

impl Scopes {
    pub fn contains(self, scope: Scope) -> bool {
        match scope {
            Scope::Read => self.read,
            Scope::Write => self.write,
        }
    }
}

impl TokenClaims {
    pub fn tenant(&self) -> &Tenant {
        match self {
            TokenClaims::Trigger(claims) => &claims.tenant,
            TokenClaims::System(claims) => &claims.tenant,
        }
    }

    pub fn issue(&self) -> &Issue {
        match self {
            TokenClaims::Trigger(claims) => &claims.issue,
            TokenClaims::System(claims) => &claims.issue,
        }
    }
}

#[cfg(test)]
mod tests;
