//! What an operator writes down: one version of a trigger.
//!
//! ```text
//! read.rs    fields of JSON, by their names and their kinds
//! parse.rs   from JSON to a definition
//! patch.rs   a change of one (RFC 7396)
//! print.rs   from a definition to JSON: for people, and for the state
//! ```

mod parse;
mod patch;
mod print;
mod read;

use std::fmt;
use std::sync::{Arc, OnceLock};

pub use parse::{Draft, FileDraft};
pub use patch::Patched;
pub use print::StoredDefinitionError;

use super::duration::DurationError;
use super::glob::{CollectionGlob, GlobError, PathFilter};
use super::grant::{TemplateError, TokenGrant};
use super::limits::DEFINITION_BYTES_MAX;
use super::name::{SecretRef, SecretRefError, TriggerIdError};
use super::rollout::Rollout;
use super::transform::{Mask, MaskError};
use crate::condition::{ConditionError, EventCondition};
use crate::delivery::ErrorKind;
use crate::delivery::policy::{
    Action, Backoff, BadCodes, DeliveryLimits, Jitter, Letters, Order, Policy, Rule, StatusSet,
    Versions, When,
};
use crate::document::change::ChangeKind;
use crate::rate::Rate;
use crate::tenant::TenantError;

/// One version of a trigger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Definition {
    pub collection: CollectionGlob,
    pub events: EventKinds,
    /// `None`: always.
    pub condition: Option<Condition>,
    pub url: Arc<str>,
    pub headers: CustomHeaders,
    /// `None`: the default secret of the tenant.
    pub secrets_ref: Option<SecretRef>,
    /// How many attempts there are at once.
    pub concurrency: u32,
    /// How many there are in a second; 0: as many as come.
    pub rate_limit: u32,
    /// Whether the payload has the document before the change.
    pub include_before: bool,
    pub retry: RetryPolicy,
    /// One of them must match the path; none: every path does.
    pub filters: Vec<PathFilter>,
    pub timeout_ms: u64,
    pub token: TokenGrant,
    pub rollout: Rollout,
    pub payload_detail: PayloadDetail,
    /// `None`: the documents are sent as they are.
    pub transform: Option<Mask>,
    /// What the owner calls this version.
    pub label: Option<Arc<str>>,
}

/// Kinds of changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EventKinds {
    pub create: bool,
    pub update: bool,
    pub delete: bool,
}

/// A condition, compiled once for its version: when that is made, or when it is first asked after a
/// start. That takes up to a millisecond.
#[derive(Debug, Clone)]
pub struct Condition {
    text: Arc<str>,
    compiled: Arc<OnceLock<Result<EventCondition, ConditionError>>>,
}

/// Headers of the owner's own, in the order of their names, each there once.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct CustomHeaders(pub(super) Vec<(Arc<str>, Arc<str>)>);

/// When and how often a delivery is tried again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetryPolicy {
    /// All attempts, the first counted.
    pub max_attempts: u32,
    pub initial_backoff_ms: u64,
    pub max_backoff_ms: u64,
    /// What a status means, the first that fits.
    pub status_rules: Vec<StatusRule>,
}

/// What some statuses mean.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatusRule {
    /// As they were written, each with what it means.
    pub codes: Vec<(Arc<str>, When)>,
    pub action: Action,
}

/// How much of a delivery is told to the one who gets it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PayloadDetail {
    /// The change.
    #[default]
    Standard,
    /// And how the trigger delivers it.
    Task,
}

/// What the server allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DefinitionLimits {
    /// The longest time that a trigger may give an attempt.
    pub max_timeout_ms: u64,
}

/// What was written is no definition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DefinitionError {
    /// Which field, with the names that it is inside of: `retryPolicy.maxAttempts`.
    pub field: String,
    pub problem: Problem,
}

/// What is wrong with a field.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// The sentence names the nearest name that there is.
    #[error("{0}")]
    UnknownField(String),
    #[error("is missing: {0}")]
    Missing(&'static str),
    #[error("must be {0}")]
    Kind(&'static str),
    #[error("must be a whole number from {min} to {max}")]
    Range { min: u64, max: u64 },
    #[error("must be from {min} to {max}")]
    DurationRange { min: String, max: String },
    #[error("must have at most {0} entries")]
    TooMany(usize),
    #[error("must be at most {0} bytes long")]
    TooLong(usize),
    #[error("must be one of {known}, and is `{found}`")]
    Choice { known: &'static str, found: String },
    #[error("has `{0}` twice")]
    Repeated(String),
    /// It must not be there, and the sentence says what to do.
    #[error("{0}")]
    Refused(&'static str),
    #[error(transparent)]
    Duration(#[from] DurationError),
    #[error(transparent)]
    Condition(#[from] ConditionError),
    #[error(transparent)]
    Glob(#[from] GlobError),
    #[error("{error}: `{text}`")]
    Template { text: String, error: TemplateError },
    #[error(transparent)]
    Mask(#[from] MaskError),
    #[error("has `{code}`: {error}")]
    Codes { code: String, error: BadCodes },
    #[error("{0}")]
    TriggerId(#[from] TriggerIdError),
    #[error("{0}")]
    SecretRef(#[from] SecretRefError),
    #[error("{0}")]
    Tenant(#[from] TenantError),
    #[error("has `{0}`, which is no name of a header")]
    HeaderName(String),
    #[error("has `{0}`, which the server sets itself: leave it out")]
    HeaderReserved(String),
    #[error("`{0}` has a value with other characters than those of ASCII that are printed")]
    HeaderValue(String),
    #[error(
        "`{0}` has the value that stands for one that is not shown, and there is none to keep: write the value"
    )]
    HeaderRedacted(String),
    #[error("must have at most {0} bytes of names and values")]
    HeadersTooLarge(usize),
    #[error("is at most {DEFINITION_BYTES_MAX} bytes long, as JSON without spaces")]
    DefinitionTooLarge,
}

/// Stands for the value of a header, which may be a credential.
pub const REDACTED: &str = "redacted";

pub(super) const DEFAULT_CONCURRENCY: u32 = 8;
pub(super) const DEFAULT_TIMEOUT_MS: u64 = 5_000;

impl Default for RetryPolicy {
    fn default() -> RetryPolicy {
        RetryPolicy {
            max_attempts: 10,
            initial_backoff_ms: 1_000,
            max_backoff_ms: 300_000,
            status_rules: Vec::new(),
        }
    }
}

impl Definition {
    /// The rules that its deliveries follow.
    pub fn policy(&self) -> Policy {
        let RetryPolicy { max_attempts, initial_backoff_ms, max_backoff_ms, status_rules } =
            &self.retry;
        let backoff = Backoff {
            base_ms: *initial_backoff_ms,
            cap_ms: *max_backoff_ms,
            jitter: Jitter::Shortened,
        };
        let rules = status_rules.iter().flat_map(|rule| {
            rule.codes.iter().map(|(_, when)| Rule { when: *when, action: rule.action })
        });
        // What leads elsewhere is not followed, and would lead there the next time (PAY-5); an
        // address that is blocked stays blocked.
        let redirects = Rule { when: When::Status { first: 300, last: 399 }, action: Action::Dead };
        let blocked = Rule { when: When::Kind(ErrorKind::Blocked), action: Action::Dead };
        let unreadable = Rule { when: When::Unreadable, action: Action::Dead };
        Policy {
            rules: rules.chain([redirects, blocked, unreadable]).collect(),
            refused: StatusSet::Final4xx,
            retry_after: true,
            order: Order::Lanes,
            versions: Versions::Matched,
            limits: DeliveryLimits {
                concurrency: Some(self.concurrency),
                rate: (self.rate_limit > 0).then(|| Rate::even(self.rate_limit)),
                per_tenant: true,
            },
            letters: Letters::OutliveHook,
            ..Policy::new(self.timeout_ms, *max_attempts, backoff)
        }
    }

    /// Whether all that evaluates it is compiled.
    pub fn is_compiled(&self) -> bool {
        self.condition.as_ref().is_none_or(Condition::is_compiled)
    }

    /// Whether its condition may come to something else at another moment of the commit.
    pub fn reads_time(&self) -> bool {
        let condition = self.condition.as_ref();
        condition.is_some_and(|it| it.compiled().is_ok_and(EventCondition::reads_time))
    }

    /// The fields that differ, and that nobody changes without a signature (AUD-3).
    pub fn sensitive_changes(&self, next: &Definition) -> Vec<&'static str> {
        let changes = [
            ("url", self.url != next.url),
            ("secretsRef", self.secrets_ref != next.secrets_ref),
            ("headers", self.headers != next.headers),
        ];
        changes.into_iter().filter(|(_, differs)| *differs).map(|(name, _)| name).collect()
    }
}

impl EventKinds {
    pub fn contains(self, kind: ChangeKind) -> bool {
        match kind {
            ChangeKind::Create => self.create,
            ChangeKind::Update => self.update,
            ChangeKind::Delete => self.delete,
        }
    }

    pub fn iter(self) -> impl Iterator<Item = ChangeKind> {
        let kinds = [ChangeKind::Create, ChangeKind::Update, ChangeKind::Delete];
        kinds.into_iter().filter(move |kind| self.contains(*kind))
    }

    /// Adds a kind; `false` if it was there.
    pub(super) fn insert(&mut self, kind: ChangeKind) -> bool {
        let place = match kind {
            ChangeKind::Create => &mut self.create,
            ChangeKind::Update => &mut self.update,
            ChangeKind::Delete => &mut self.delete,
        };
        !std::mem::replace(place, true)
    }
}

impl Condition {
    pub fn parse(text: &str) -> Result<Condition, ConditionError> {
        let condition = Condition::stored(text);
        condition.compiled().map_err(Clone::clone)?;
        Ok(condition)
    }

    /// One that was read before it was stored.
    pub(super) fn stored(text: &str) -> Condition {
        Condition { text: text.into(), compiled: Arc::default() }
    }

    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether it can be evaluated at once.
    pub fn is_compiled(&self) -> bool {
        self.compiled.get().is_some()
    }

    /// Compiles it, if nobody has. It fails only for one that was stored, and that this version of
    /// the server no longer understands.
    pub fn compiled(&self) -> Result<&EventCondition, &ConditionError> {
        self.compiled.get_or_init(|| EventCondition::parse(&self.text)).as_ref()
    }
}

impl PartialEq for Condition {
    fn eq(&self, other: &Condition) -> bool {
        self.text == other.text
    }
}

impl Eq for Condition {}

impl CustomHeaders {
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (&**name, &**value))
    }

    /// Bytes of names and values.
    pub fn bytes(&self) -> usize {
        self.iter().map(|(name, value)| name.len() + value.len()).sum()
    }

    fn get(&self, name: &str) -> Option<&Arc<str>> {
        let mut headers = self.0.iter();
        headers.find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }
}

/// Names alone: values may be credentials.
impl fmt::Debug for CustomHeaders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter().map(|(name, _)| name)).finish()
    }
}

impl PayloadDetail {
    pub fn as_str(self) -> &'static str {
        match self {
            PayloadDetail::Standard => "standard",
            PayloadDetail::Task => "task",
        }
    }
}

impl fmt::Display for DefinitionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.field.as_str() {
            "" if matches!(self.problem, Problem::UnknownField(_)) => write!(f, "{}", self.problem),
            "" => write!(f, "the trigger {}", self.problem),
            field if matches!(self.problem, Problem::UnknownField(_)) => {
                write!(f, "`{field}`: {}", self.problem)
            }
            field => write!(f, "`{field}` {}", self.problem),
        }
    }
}

impl std::error::Error for DefinitionError {}

#[cfg(test)]
mod tests;
