//! Events of applications: their types, who asked for them, and what is handed over.
//!
//! An event's type is words with dots between them, `webhook.github.push`. Subscriptions name the
//! types that they want by patterns, and a worker is called with the event in an envelope.

pub mod envelope;
pub mod explain;
pub mod hook;
pub mod ingest;
pub mod matcher;
pub mod pattern;
pub mod shard;
pub mod ulid;
pub mod worker;

use std::fmt;
use std::str::Split;
use std::sync::Arc;

use crate::limits::EVENT_TYPE_CHARS_MAX;

pub use envelope::{Event, RawEvent};
pub use ingest::Ingest;
pub use matcher::EventMatcher;
pub use pattern::EventPattern;
pub use shard::Shard;
pub use ulid::Ulid;

/// The type of an event: one or more segments with dots between them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventType(Arc<str>);

/// The text is not the type of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum EventTypeError {
    /// There is nothing.
    #[error("an event type is not empty")]
    Empty,
    /// It is longer than a type may be.
    #[error("an event type is at most {EVENT_TYPE_CHARS_MAX} characters long")]
    TooLong,
    /// It has a character that no type has.
    #[error("an event type has only letters of ASCII, digits, `.`, `_` and `-`")]
    BadCharacter,
    /// It begins or ends with a dot, or has two in a row.
    #[error("an event type has something before and after each `.`")]
    EmptySegment,
}

impl EventType {
    /// Reads a type.
    pub fn parse(text: &str) -> Result<EventType, EventTypeError> {
        if text.is_empty() {
            return Err(EventTypeError::Empty);
        }
        if text.chars().count() > EVENT_TYPE_CHARS_MAX {
            return Err(EventTypeError::TooLong);
        }
        if !text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte)) {
            return Err(EventTypeError::BadCharacter);
        }
        if text.split('.').any(str::is_empty) {
            return Err(EventTypeError::EmptySegment);
        }
        Ok(EventType(text.into()))
    }

    /// The type as it was given.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The same, for whoever keeps it.
    pub fn to_shared(&self) -> Arc<str> {
        self.0.clone()
    }

    /// What stands between the dots.
    pub(crate) fn segments(&self) -> Split<'_, char> {
        self.0.split('.')
    }
}

impl fmt::Display for EventType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_words_with_dots_between_them() {
        let long = "a".repeat(256);
        let deep = ["a"; 128].join(".");
        for text in ["a", "webhook.github.push", "custom.my-event", "A_b.0.-", &long, &deep] {
            assert_eq!(EventType::parse(text).unwrap().as_str(), text);
        }
        let check = |text: &str, error| assert_eq!(EventType::parse(text), Err(error), "{text}");
        check("", EventTypeError::Empty);
        check(&"a".repeat(257), EventTypeError::TooLong);
        check(&"\u{e9}".repeat(200), EventTypeError::BadCharacter);
        check("a b", EventTypeError::BadCharacter);
        check("a*b", EventTypeError::BadCharacter);
        check("a/b", EventTypeError::BadCharacter);
        check("a\n", EventTypeError::BadCharacter);
        check(".a", EventTypeError::EmptySegment);
        check("a.", EventTypeError::EmptySegment);
        check("a..b", EventTypeError::EmptySegment);
        check(".", EventTypeError::EmptySegment);
    }
}
