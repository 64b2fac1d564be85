//! Patterns over event types: `*` stands for one segment, `**` for any number of them.
//!
//! | pattern           | matches                                    | does not match             |
//! |-------------------|--------------------------------------------|----------------------------|
//! | `webhook.*`       | `webhook.github`                           | `webhook`, `webhook.a.b`   |
//! | `webhook.**`      | `webhook`, `webhook.a`, `webhook.a.b`      | `webhooks.a`               |
//! | `webhook.**.push` | `webhook.push`, `webhook.github.v1.push`   | `webhook.github.pull`      |
//! | `webhook.git*`    | `webhook.git`, `webhook.github`            | `webhook.github.push`      |
//!
//! Beside other characters, `*` and `**` both stand for any characters of that one segment, or
//! none. Upper and lower case differ.

use std::fmt;
use std::str::Split;
use std::sync::Arc;

use super::EventType;
use crate::limits::{EVENT_PATTERN_CHARS_MAX, EVENT_PATTERN_SEGMENTS_MAX};
use crate::steps::Steps;
use crate::trie::CHARACTERS_PER_STEP;
use crate::wildcard;

/// A pattern over event types, as it was given.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventPattern(Arc<str>);

/// The text is not a pattern over event types.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum EventPatternError {
    /// There is nothing.
    #[error("it is empty; write `**` for every event")]
    Empty,
    /// It is longer than a pattern may be.
    #[error("it is longer than {EVENT_PATTERN_CHARS_MAX} characters")]
    TooLong,
    /// It has a character that no pattern has.
    #[error("it may have only letters of ASCII, digits, `.`, `*`, `_` and `-`")]
    BadCharacter,
    /// There are three stars in a row, or more.
    #[error("it has more than two `*` in a row")]
    TooManyStars,
    /// It begins with a dot.
    #[error("it begins with `.`")]
    LeadingDot,
    /// It ends with a dot.
    #[error("it ends with `.`")]
    TrailingDot,
    /// Two dots have nothing between them.
    #[error("it has `..`; each segment has at least one character")]
    DoubleDot,
    /// It has more segments than a pattern may have.
    #[error("it has more than {EVENT_PATTERN_SEGMENTS_MAX} segments")]
    TooManySegments,
}

impl EventPattern {
    /// Reads a pattern.
    pub fn parse(text: &str) -> Result<EventPattern, EventPatternError> {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b".*_-".contains(&byte);
        if text.is_empty() {
            Err(EventPatternError::Empty)
        } else if text.chars().count() > EVENT_PATTERN_CHARS_MAX {
            Err(EventPatternError::TooLong)
        } else if !text.bytes().all(allowed) {
            Err(EventPatternError::BadCharacter)
        } else if text.contains("***") {
            Err(EventPatternError::TooManyStars)
        } else if text.starts_with('.') {
            Err(EventPatternError::LeadingDot)
        } else if text.ends_with('.') {
            Err(EventPatternError::TrailingDot)
        } else if text.contains("..") {
            Err(EventPatternError::DoubleDot)
        } else if text.split('.').count() > EVENT_PATTERN_SEGMENTS_MAX {
            Err(EventPatternError::TooManySegments)
        } else {
            Ok(EventPattern(text.into()))
        }
    }

    /// The pattern as it was given.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether events of this type are meant.
    pub fn matches(&self, kind: &EventType) -> bool {
        self.matches_counted(kind, &mut Steps::unlimited())
    }

    /// The same, and counts what that takes: at most each character of the pattern with each of the
    /// type.
    pub fn matches_counted(&self, kind: &EventType, steps: &mut Steps) -> bool {
        steps.count(1);
        self.matches_by(kind, |wanted, found| {
            let (fits, compared) = compare(wanted, found);
            steps.count(1 + compared / CHARACTERS_PER_STEP);
            fits
        })
    }

    /// The segments before the first that holds a `*`; empty if that is the first of all.
    pub fn literal_prefix(&self) -> &str {
        let Some((before, _)) = self.0.split_once('*') else {
            return &self.0;
        };
        before.rsplit_once('.').map_or("", |(whole, _)| whole)
    }

    /// What stands between the dots.
    pub(crate) fn segments(&self) -> Split<'_, char> {
        self.0.split('.')
    }

    /// Asks `fits` of a segment of the pattern, never `**`, and one of the type.
    fn matches_by(&self, kind: &EventType, mut fits: impl FnMut(&str, &str) -> bool) -> bool {
        wildcard::matches(
            self.segments(),
            kind.segments(),
            |wanted| *wanted == "**",
            |wanted, found| fits(wanted, found),
        )
    }
}

impl fmt::Display for EventPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Whether a segment of a pattern, but for `**`, means this segment of a type.
pub(super) fn segment_matches(wanted: &str, found: &str) -> bool {
    compare(wanted, found).0
}

/// The same, and how many characters were compared.
fn compare(wanted: &str, found: &str) -> (bool, usize) {
    match wanted {
        "*" => (true, 0),
        glob if glob.contains('*') => wildcard::glob_matches(glob, found),
        literal => (literal == found, 0),
    }
}

#[cfg(test)]
mod tests;
