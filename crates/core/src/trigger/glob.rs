//! Patterns over paths of documents, as Go's `path.Match` has them, segment by segment.
//!
//! | in a pattern | stands for |
//! |---|---|
//! | `*` | any characters within a segment, or none |
//! | `?` | one character |
//! | `[abc]`, `[a-z]`, `[^a-z]` | one character of a class, or one that is not |
//! | `\x` | `x` |
//!
//! A class never stands for a `/`, which in Go a negated one does. `**` is refused: it would not be
//! what it looks like.

use std::fmt;
use std::sync::Arc;

use super::limits::{COLLECTION_PATTERN_BYTES_MAX, PATH_FILTER_BYTES_MAX};
use crate::document::path::{CollectionPath, DocumentPath, PathError};

/// A pattern over collections or, with an even number of segments, over the documents in them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CollectionGlob(Glob);

/// A pattern over paths of documents that begins with a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathFilter(Glob);

/// The text is no pattern.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GlobError {
    #[error("must be at most {0} bytes long")]
    TooLong(usize),
    #[error("must be a collection like `orders`, or a pattern like `chats/*/members`")]
    Empty,
    #[error("must have something before and after each `/`")]
    EmptySegment,
    #[error("must not have `**`, which is unbounded: write one `*` for each segment")]
    Unbounded,
    #[error("is no pattern: {0}")]
    Malformed(&'static str),
    #[error("can match nothing: {0}")]
    MatchesNothing(PathError),
    #[error("must begin with the name of a collection, without `*`, `?` or `[`")]
    OpenBeginning,
    #[error("must be for documents: add a segment like `/*`")]
    Collection,
}

#[derive(Clone, PartialEq, Eq)]
struct Glob {
    text: Arc<str>,
    segments: Arc<[Segment]>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Segment {
    Name(Box<str>),
    Pattern(Box<[Token]>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    Char(char),
    One,
    Star,
    Class { is_negated: bool, ranges: Box<[(char, char)]> },
}

impl CollectionGlob {
    pub fn parse(text: &str) -> Result<CollectionGlob, GlobError> {
        let glob = Glob::parse(text, COLLECTION_PATTERN_BYTES_MAX)?;
        Ok(CollectionGlob(glob))
    }

    pub fn as_str(&self) -> &str {
        &self.0.text
    }

    /// Whether it matches the documents' paths and not those of their collections.
    pub fn is_of_documents(&self) -> bool {
        self.depth().is_multiple_of(2)
    }

    /// How many segments it has.
    pub fn depth(&self) -> usize {
        self.0.segments.len()
    }

    /// Its first segment, if that is a name: changes of other collections need not be held against
    /// it.
    pub fn first_name(&self) -> Option<&str> {
        self.0.segments.first()?.name()
    }

    /// The one collection that it is for, if there is no more than one.
    pub fn literal(&self) -> Option<&str> {
        let is_literal = self.0.segments.iter().all(|segment| segment.name().is_some());
        (is_literal && !self.is_of_documents()).then_some(&*self.0.text)
    }

    pub fn matches(&self, path: &DocumentPath) -> bool {
        if self.is_of_documents() {
            self.0.matches(path.collection().segments().chain([path.id().as_str()]))
        } else {
            self.0.matches(path.collection().segments())
        }
    }

    /// What its segments that are no names stand for in a path that it matches, in their order.
    pub fn captures<'p>(&self, path: &'p DocumentPath) -> Vec<&'p str> {
        let found = path.collection().segments().chain([path.id().as_str()]);
        let pairs = self.0.segments.iter().zip(found);
        pairs.filter(|(segment, _)| segment.name().is_none()).map(|(_, found)| found).collect()
    }

    /// How many segments are no names.
    pub fn capture_count(&self) -> usize {
        self.0.segments.iter().filter(|segment| segment.name().is_none()).count()
    }
}

impl PathFilter {
    pub fn parse(text: &str) -> Result<PathFilter, GlobError> {
        let glob = Glob::parse(text, PATH_FILTER_BYTES_MAX)?;
        if glob.segments.first().is_none_or(|segment| segment.name().is_none()) {
            return Err(GlobError::OpenBeginning);
        }
        if !glob.segments.len().is_multiple_of(2) {
            return Err(GlobError::Collection);
        }
        Ok(PathFilter(glob))
    }

    pub fn as_str(&self) -> &str {
        &self.0.text
    }

    pub fn matches(&self, path: &DocumentPath) -> bool {
        self.0.matches(path.collection().segments().chain([path.id().as_str()]))
    }
}

impl Glob {
    fn parse(text: &str, bytes_max: usize) -> Result<Glob, GlobError> {
        if text.len() > bytes_max {
            return Err(GlobError::TooLong(bytes_max));
        }
        if text.is_empty() {
            return Err(GlobError::Empty);
        }
        if text.contains("**") {
            return Err(GlobError::Unbounded);
        }
        let segments: Vec<Segment> =
            text.split('/').map(Segment::parse).collect::<Result<_, _>>()?;
        for (segment, place) in segments.iter().zip(0..) {
            segment.check(place == 0).map_err(GlobError::MatchesNothing)?;
        }
        Ok(Glob { text: text.into(), segments: segments.into() })
    }

    fn matches<'p>(&self, path: impl Iterator<Item = &'p str>) -> bool {
        let mut segments = self.segments.iter();
        for found in path {
            if !segments.next().is_some_and(|segment| segment.matches(found)) {
                return false;
            }
        }
        segments.next().is_none()
    }
}

impl Segment {
    fn parse(text: &str) -> Result<Segment, GlobError> {
        if text.is_empty() {
            return Err(GlobError::EmptySegment);
        }
        let tokens = tokens(text)?;
        let name: Option<String> = tokens.iter().map(Token::as_char).collect();
        Ok(match name {
            Some(name) => Segment::Name(name.into()),
            None => Segment::Pattern(tokens.into()),
        })
    }

    /// Whether there can be a segment of a path that it stands for.
    fn check(&self, is_first: bool) -> Result<(), PathError> {
        match self {
            Segment::Name(name) if is_first => CollectionPath::parse(name).map(drop),
            Segment::Name(name) => DocumentPath::parse(&format!("a/{name}")).map(drop),
            Segment::Pattern(tokens) => {
                let chars: String = tokens.iter().filter_map(Token::as_char).collect();
                DocumentPath::parse(&format!("a/a{chars}")).map(drop)
            }
        }
    }

    fn name(&self) -> Option<&str> {
        match self {
            Segment::Name(name) => Some(name),
            Segment::Pattern(_) => None,
        }
    }

    fn matches(&self, text: &str) -> bool {
        match self {
            Segment::Name(name) => **name == *text,
            Segment::Pattern(tokens) => is_match(tokens, text),
        }
    }
}

impl Token {
    fn as_char(&self) -> Option<char> {
        match self {
            Token::Char(c) => Some(*c),
            Token::One | Token::Star | Token::Class { .. } => None,
        }
    }

    fn fits(&self, found: char) -> bool {
        match self {
            Token::Char(c) => *c == found,
            Token::One => true,
            Token::Star => false,
            Token::Class { is_negated, ranges } => {
                let is_in = ranges.iter().any(|(low, high)| (*low..=*high).contains(&found));
                is_in != *is_negated
            }
        }
    }
}

/// After what does not fit, only the latest `*` is made longer: an earlier one need not be.
fn is_match(tokens: &[Token], text: &str) -> bool {
    let (mut token, mut rest) = (0, text);
    let mut latest: Option<(usize, &str)> = None;
    loop {
        match tokens.get(token) {
            Some(Token::Star) => {
                latest = Some((token + 1, rest));
                token += 1;
                continue;
            }
            Some(other) => {
                let mut chars = rest.chars();
                if chars.next().is_some_and(|found| other.fits(found)) {
                    (token, rest) = (token + 1, chars.as_str());
                    continue;
                }
            }
            None if rest.is_empty() => return true,
            None => {}
        }
        let Some((after, from)) = latest else { return false };
        let mut chars = from.chars();
        if chars.next().is_none() {
            return false;
        }
        latest = Some((after, chars.as_str()));
        (token, rest) = (after, chars.as_str());
    }
}

fn tokens(text: &str) -> Result<Vec<Token>, GlobError> {
    let mut chars = text.chars();
    let mut tokens = Vec::new();
    while let Some(c) = chars.next() {
        tokens.push(match c {
            '*' => Token::Star,
            '?' => Token::One,
            '[' => class(&mut chars)?,
            '\\' => Token::Char(chars.next().ok_or(GlobError::Malformed("`\\` ends it"))?),
            c => Token::Char(c),
        });
    }
    Ok(tokens)
}

/// What follows a `[`, up to its `]`.
fn class(chars: &mut std::str::Chars<'_>) -> Result<Token, GlobError> {
    const OPEN: GlobError = GlobError::Malformed("a `[` has no `]`");
    let is_negated = chars.as_str().starts_with('^');
    if is_negated {
        chars.next();
    }
    let mut ranges = Vec::new();
    loop {
        if chars.as_str().starts_with(']') {
            chars.next();
            break;
        }
        let low = class_char(chars)?;
        let high = if chars.as_str().starts_with('-') {
            chars.next();
            class_char(chars)?
        } else {
            low
        };
        if low > high {
            return Err(GlobError::Malformed("a range of `[…]` goes backwards"));
        }
        ranges.push((low, high));
        if chars.as_str().is_empty() {
            return Err(OPEN);
        }
    }
    if ranges.is_empty() {
        return Err(GlobError::Malformed("`[]` has nothing inside"));
    }
    Ok(Token::Class { is_negated, ranges: ranges.into() })
}

fn class_char(chars: &mut std::str::Chars<'_>) -> Result<char, GlobError> {
    match chars.next() {
        None => Err(GlobError::Malformed("a `[` has no `]`")),
        Some('-' | ']') => Err(GlobError::Malformed("within `[…]`, write `\\-` and `\\]`")),
        Some('\\') => chars.next().ok_or(GlobError::Malformed("`\\` ends it")),
        Some(c) => Ok(c),
    }
}

impl fmt::Debug for Glob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`", self.text)
    }
}

#[cfg(test)]
mod tests;
