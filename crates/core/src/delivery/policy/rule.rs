//! Rules: which outcome of an attempt means what.

use super::super::outcome::{DeadReason, ErrorKind};

/// What came of an attempt, as far as it decides what becomes of the delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It was answered.
    Answered {
        status: u16,
        /// In how many seconds the endpoint asks to be tried again.
        retry_after_s: Option<u64>,
    },
    /// It was appended.
    Appended,
    /// Nothing came back, or nothing was appended.
    Failed(ErrorKind),
    /// Nothing was sent: its face has refused to put it into words.
    Refused(Refusal),
    /// Nothing was sent: what is to be delivered cannot be read.
    Unreadable,
}

/// Why a face does not put a delivery into words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// The body is larger than the face sends.
    PayloadTooLarge,
    /// The headers are.
    HeadersTooLarge,
    /// What signs it is not to be had; nothing is sent unsigned.
    SecretMissing,
    /// What is to be delivered cannot be read.
    Unreadable,
}

/// If an outcome is like this, then that becomes of the delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rule {
    pub when: When,
    pub action: Action,
}

/// Which outcomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// Answers with a status from the first to the last.
    Status { first: u16, last: u16 },
    /// Failures of this kind, answered or not.
    Kind(ErrorKind),
    /// What is to be delivered cannot be read.
    Unreadable,
}

/// What becomes of a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// It is tried again, as long as there are attempts left.
    Retry,
    /// It is a dead letter.
    Dead,
    /// It is forgotten about, and counted.
    Drop,
    /// It is dropped, and its hook ends.
    End,
}

/// What is written is no status and no range of them.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a status is a number from 300 to 599, \"4xx\", or two of them with a dash: \"500-503\"")]
pub struct BadCodes;

impl Outcome {
    /// What kind of failure it is, if it is one of which that is known.
    pub fn kind(self) -> Option<ErrorKind> {
        match self {
            Outcome::Answered { status: 200..=299, .. }
            | Outcome::Appended
            | Outcome::Refused(Refusal::Unreadable)
            | Outcome::Unreadable => None,
            Outcome::Answered { status: 300..=399, .. } => Some(ErrorKind::Redirect),
            Outcome::Answered { .. } => Some(ErrorKind::Http),
            Outcome::Failed(kind) => Some(kind),
            Outcome::Refused(Refusal::SecretMissing) => Some(ErrorKind::Secret),
            Outcome::Refused(_) => Some(ErrorKind::Size),
        }
    }

    /// Why a delivery is dead that is not tried again after this.
    pub(super) fn dead_reason(self) -> DeadReason {
        match self {
            Outcome::Refused(Refusal::PayloadTooLarge) => DeadReason::PayloadTooLarge,
            Outcome::Refused(Refusal::HeadersTooLarge) => DeadReason::HeadersTooLarge,
            Outcome::Refused(Refusal::SecretMissing) | Outcome::Failed(ErrorKind::Secret) => {
                DeadReason::SecretMissing
            }
            Outcome::Failed(ErrorKind::Blocked) => DeadReason::Blocked,
            Outcome::Failed(ErrorKind::Redirect) => DeadReason::Redirect,
            Outcome::Failed(ErrorKind::Size) => DeadReason::PayloadTooLarge,
            Outcome::Answered { status: 300..=399, .. } => DeadReason::Redirect,
            Outcome::Answered { .. }
            | Outcome::Failed(ErrorKind::StreamClosed | ErrorKind::StreamMismatch) => {
                DeadReason::Refused
            }
            Outcome::Refused(Refusal::Unreadable) | Outcome::Unreadable => DeadReason::Corrupt,
            // It was given up at once, as it would be after its last attempt.
            Outcome::Failed(_) | Outcome::Appended => DeadReason::Exhausted,
        }
    }
}

impl When {
    pub(super) fn fits(self, outcome: Outcome) -> bool {
        match (self, outcome) {
            (When::Status { first, last }, Outcome::Answered { status, .. }) => {
                (first..=last).contains(&status)
            }
            (When::Kind(kind), _) => outcome.kind() == Some(kind),
            (When::Unreadable, Outcome::Unreadable | Outcome::Refused(Refusal::Unreadable)) => true,
            (When::Status { .. } | When::Unreadable, _) => false,
        }
    }

    /// Statuses as they are written: `"404"`, `"4xx"`, `"500-503"`. Success is no failure to have
    /// a rule for.
    pub fn codes(text: &str) -> Result<When, BadCodes> {
        let status = |text: &str| match text.parse::<u16>() {
            Ok(status @ 300..=599) if text.len() == 3 => Ok(status),
            _ => Err(BadCodes),
        };
        let (first, last) = match (text.strip_suffix("xx"), text.split_once('-')) {
            (Some(digit), _) => {
                let first = status(&format!("{digit}00"))?;
                (first, first + 99)
            }
            (None, Some((first, last))) => (status(first)?, status(last)?),
            (None, None) => (status(text)?, status(text)?),
        };
        if first > last {
            return Err(BadCodes);
        }
        Ok(When::Status { first, last })
    }
}
