//! Which documents a token is for: prefixes of paths, compared segment by segment.

use std::fmt;
use std::sync::Arc;

use crate::document::path::{PathError, Place};

/// A place, and everything below it, as `/rooms/room-1/`. `/` is everything.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct AllowedPath(Arc<str>);

/// The text is no allowed path.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AllowedPathError {
    #[error("`{0}` is empty; `/` is every document")]
    Empty(String),
    #[error("`{text}`: {error}")]
    Path { text: String, error: PathError },
}

impl AllowedPath {
    /// Reads one, with a slash at either end or without.
    pub fn parse(text: &str) -> Result<AllowedPath, AllowedPathError> {
        if text == "/" {
            return Ok(AllowedPath(text.into()));
        }
        let inner = text.strip_prefix('/').unwrap_or(text);
        let inner = inner.strip_suffix('/').unwrap_or(inner);
        if inner.is_empty() {
            return Err(AllowedPathError::Empty(shown(text)));
        }
        match Place::parse(inner) {
            Ok(_) => Ok(AllowedPath(format!("/{inner}/").into())),
            Err(error) => Err(AllowedPathError::Path { text: shown(text), error }),
        }
    }

    /// Whether a document or collection is this place, or is below it. The path has no slash at
    /// either end.
    pub fn admits(&self, path: &str) -> bool {
        let Some(inner) = self.0.strip_prefix('/').and_then(|it| it.strip_suffix('/')) else {
            return &*self.0 == "/";
        };
        let rest = path.strip_prefix(inner);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }

    /// Whether it is every document there is.
    pub fn is_everything(&self) -> bool {
        &*self.0 == "/"
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for AllowedPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// As much of it as an error repeats.
fn shown(text: &str) -> String {
    text.get(..text.floor_char_boundary(64)).unwrap_or_default().to_owned()
}
