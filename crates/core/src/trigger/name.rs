//! What triggers and their secrets are called.

use std::fmt;
use std::sync::Arc;

use super::limits::{SECRET_REF_BYTES_MAX, TRIGGER_ID_BYTES_MAX};

/// The id of a trigger, within its tenant.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TriggerId(Arc<str>);

/// The name of a secret, within its tenant.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SecretRef(Arc<str>);

/// The text is no id of a trigger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the id of a trigger is 1 to {TRIGGER_ID_BYTES_MAX} letters, digits, `-` or `_`")]
pub struct TriggerIdError;

/// The text is no name of a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the name of a secret is 1 to {SECRET_REF_BYTES_MAX} letters, digits, `-` or `_`")]
pub struct SecretRefError;

impl TriggerId {
    pub fn parse(text: &str) -> Result<TriggerId, TriggerIdError> {
        if is_name(text, TRIGGER_ID_BYTES_MAX) {
            Ok(TriggerId(text.into()))
        } else {
            Err(TriggerIdError)
        }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The same, for whoever keeps it.
    pub fn to_shared(&self) -> Arc<str> {
        self.0.clone()
    }
}

impl SecretRef {
    pub fn parse(text: &str) -> Result<SecretRef, SecretRefError> {
        if is_name(text, SECRET_REF_BYTES_MAX) {
            Ok(SecretRef(text.into()))
        } else {
            Err(SecretRefError)
        }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

fn is_name(text: &str, bytes_max: usize) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    (1..=bytes_max).contains(&text.len()) && text.bytes().all(is_allowed)
}

impl fmt::Display for TriggerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for SecretRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_plain_words() {
        for good in ["a", "trg_123", "On-Order", &"x".repeat(64)] {
            assert_eq!(TriggerId::parse(good).unwrap().as_str(), good);
            assert_eq!(SecretRef::parse(good).unwrap().as_str(), good);
        }
        for bad in ["", "a b", "a/b", "a.b", "\u{e9}", "a\n", &"x".repeat(65)] {
            assert_eq!(TriggerId::parse(bad), Err(TriggerIdError), "{bad}");
            assert_eq!(SecretRef::parse(bad), Err(SecretRefError), "{bad}");
        }
    }
}
