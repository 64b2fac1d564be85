//! Patterns over stream paths: `*` stands for one segment, `**` for any number of them.
//!
//! | pattern           | matches                               | does not match            |
//! |-------------------|---------------------------------------|---------------------------|
//! | `/agents/*`       | `/agents/task-1`                      | `/agents`, `/agents/a/b`  |
//! | `/agents/**`      | `/agents`, `/agents/a`, `/agents/a/b` | `/other`, `/agents2`      |
//! | `/agents/*/inbox` | `/agents/worker-1/inbox`              | `/agents/worker-1/outbox` |
//! | `/**`             | whatever a client wrote               | `/_events/…`              |
//!
//! A segment is what stands between two slashes, and may be empty.

use std::fmt;
use std::str::Split;
use std::sync::Arc;

use crate::limits::{PATTERN_BYTES_MAX, PATTERN_DEEP_MAX, PATTERN_SEGMENTS_MAX};
use crate::path::StreamPath;
use crate::steps::Steps;
use crate::wildcard;

/// A pattern in its one normal form: `%2A` is `*`, and `**` never follows `**`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pattern(Arc<str>);

/// The text is not a pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// It does not begin with `/`, or is `/` alone.
    #[error("a pattern begins with `/` and names something after it")]
    Empty,
    /// It is longer than a pattern may be.
    #[error("a pattern is at most {PATTERN_BYTES_MAX} bytes long")]
    TooLong,
    /// It has a byte that no stream path has.
    #[error("a pattern is printable ASCII without spaces; percent-encode everything else")]
    BadByte,
    /// A `*` has other characters beside it.
    #[error("`*` and `**` stand for whole segments: write `/a/*` or `/a/**`, not `/a*` or `/***`")]
    PartialWildcard,
    /// It has more segments than a pattern may have.
    #[error("a pattern has at most {PATTERN_SEGMENTS_MAX} segments")]
    TooManySegments,
    /// It has more `**` than a pattern may have.
    #[error("a pattern has `**` at most {PATTERN_DEEP_MAX} times")]
    TooManyDeep,
}

impl Pattern {
    /// Reads a pattern and brings it into its normal form.
    pub fn parse(text: &str) -> Result<Pattern, PatternError> {
        // Only what was sent is measured, so that the work below is bounded; it gets no longer.
        if text.len() > PATTERN_BYTES_MAX {
            return Err(PatternError::TooLong);
        }
        if text.len() < 2 || !text.starts_with('/') {
            return Err(PatternError::Empty);
        }
        if !text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'?' && byte != b'#') {
            return Err(PatternError::BadByte);
        }
        let text = text.replace("%2A", "*").replace("%2a", "*");
        let mut normal = String::with_capacity(text.len());
        let (mut count, mut deep_count, mut after_deep) = (0, 0, false);
        for segment in places(&text) {
            if segment.contains('*') && segment != "*" && segment != "**" {
                return Err(PatternError::PartialWildcard);
            }
            let deep = segment == "**";
            if deep && after_deep {
                continue;
            }
            after_deep = deep;
            count += 1;
            deep_count += usize::from(deep);
            normal.push('/');
            normal.push_str(segment);
        }
        if count > PATTERN_SEGMENTS_MAX {
            return Err(PatternError::TooManySegments);
        }
        if deep_count > PATTERN_DEEP_MAX {
            return Err(PatternError::TooManyDeep);
        }
        Ok(Pattern(normal.into()))
    }

    /// The normal form.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether the stream at `path` is meant.
    ///
    /// The server's own streams are meant only by patterns that begin with their first segment,
    /// spelled out: whoever asks for everything asks for what clients wrote.
    pub fn matches(&self, path: &StreamPath) -> bool {
        self.matches_counted(path, &mut Steps::unlimited())
    }

    /// The same, and counts what that takes: at most each segment of the pattern with each of the
    /// path.
    pub fn matches_counted(&self, path: &StreamPath, steps: &mut Steps) -> bool {
        steps.count(1);
        if path.is_internal() && self.0.starts_with("/*") {
            return false;
        }
        wildcard::matches(
            places(&self.0),
            places(path.as_str()),
            |wanted| *wanted == "**",
            |wanted, found| {
                steps.count(1);
                *wanted == "*" || wanted == found
            },
        )
    }

    /// The longest text that every matching path begins with: where a scan over paths begins, and
    /// where it may end.
    pub fn literal_prefix(&self) -> &str {
        // A wildcard is a whole segment, so the first `*` comes right after a slash.
        let Some((before, _)) = self.0.split_once('*') else {
            return &self.0;
        };
        let without_slash = before.strip_suffix('/').unwrap_or(before);
        // A last `**` may stand for nothing, its slash included, if that leaves a path at all.
        let ends_there = self.0.len() == before.len() + "**".len() && self.0.ends_with("**");
        if ends_there && without_slash.len() >= 2 { without_slash } else { before }
    }

    /// Whether this is `/**`, which asks for every stream of clients.
    pub fn matches_everything(&self) -> bool {
        &*self.0 == "/**"
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The segments of a pattern or a path, which both begin with a slash.
pub(crate) fn places(text: &str) -> Split<'_, char> {
    text.strip_prefix('/').unwrap_or(text).split('/')
}

#[cfg(test)]
mod tests;
