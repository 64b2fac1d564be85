//! Patterns over paths of documents, and which of them is the best for one.

use std::collections::BTreeMap;

use crate::limits::RULE_SEGMENTS_MAX;
use crate::steps::Steps;

/// Words that CEL keeps for itself, and those that rules have for something else.
const RESERVED: [&str; 23] = [
    "request",
    "resource",
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "namespace",
    "package",
    "return",
    "var",
    "void",
    "while",
];

/// Why something is no pattern.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    #[error("it has an empty segment: write `rooms/{{id}}`, without `/` at the end")]
    EmptySegment,
    #[error("it has more than {RULE_SEGMENTS_MAX} segments")]
    TooManySegments,
    #[error(
        "`{0}` is no segment: that is letters, digits, `_`, `-` and `.`, or `{{var}}`, or `{{var=**}}`"
    )]
    Segment(String),
    #[error("`{0}` is the name of something else: call the variable otherwise")]
    Reserved(String),
    #[error("it has the variable `{0}` twice")]
    RepeatedVariable(String),
    #[error("nothing can follow `{{var=**}}`, which is all that is left")]
    AfterRest,
    #[error(
        "it names a collection, and rules are for the documents in it: add a segment like `/{{id}}`"
    )]
    Collection,
}

/// A pattern.
#[derive(Debug, Clone, Default)]
pub(super) struct RulePattern {
    pub(super) text: String,
    segments: Vec<Segment>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Segment {
    Name(String),
    /// `{var}`
    One(String),
    /// `{var=**}`
    Rest(String),
}

impl RulePattern {
    /// This pattern, with another one inside of it.
    pub(super) fn with(&self, inner: &str) -> Result<RulePattern, PatternError> {
        let mut pattern = self.clone();
        for text in inner.strip_prefix('/').unwrap_or(inner).split('/') {
            if pattern.segments.len() >= RULE_SEGMENTS_MAX {
                return Err(PatternError::TooManySegments);
            }
            if matches!(pattern.segments.last(), Some(Segment::Rest(_))) {
                return Err(PatternError::AfterRest);
            }
            let segment = Segment::parse(text)?;
            if let Some(variable) = segment.variable()
                && pattern.variables().any(|other| other == variable)
            {
                return Err(PatternError::RepeatedVariable(variable.to_owned()));
            }
            pattern.segments.push(segment);
        }
        let inner = inner.strip_prefix('/').unwrap_or(inner);
        if !pattern.text.is_empty() {
            pattern.text.push('/');
        }
        pattern.text.push_str(inner);
        Ok(pattern)
    }

    /// Refuses a pattern that is for no document.
    pub(super) fn check_names_documents(&self) -> Result<(), PatternError> {
        let is_open = matches!(self.segments.last(), Some(Segment::Rest(_)));
        if is_open || self.segments.len().is_multiple_of(2) {
            return Ok(());
        }
        Err(PatternError::Collection)
    }

    /// Its variables, in their order.
    pub(super) fn variables(&self) -> impl Iterator<Item = &str> {
        self.segments.iter().filter_map(Segment::variable)
    }

    /// What they stand for in a path that it matches, in the same order.
    pub(super) fn captures<'p>(&self, path: &'p str) -> Vec<&'p str> {
        let mut captures = Vec::new();
        let mut rest = path;
        for segment in &self.segments {
            let (first, others) = rest.split_once('/').unwrap_or((rest, ""));
            match segment {
                Segment::Name(_) => {}
                Segment::One(_) => captures.push(first),
                Segment::Rest(_) => captures.push(rest),
            }
            rest = others;
        }
        captures
    }
}

impl Segment {
    fn parse(text: &str) -> Result<Segment, PatternError> {
        let wrong = || PatternError::Segment(crate::condition::excerpt(text));
        if text.is_empty() {
            return Err(PatternError::EmptySegment);
        }
        if let Some(inside) = text.strip_prefix('{').and_then(|text| text.strip_suffix('}')) {
            let (name, is_rest) = match inside.strip_suffix("=**") {
                Some(name) => (name, true),
                None => (inside, false),
            };
            let is_word = |name: &str| name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
            if !is_word(name) || name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) {
                return Err(wrong());
            }
            if RESERVED.contains(&name) {
                return Err(PatternError::Reserved(name.to_owned()));
            }
            let name = name.to_owned();
            return Ok(if is_rest { Segment::Rest(name) } else { Segment::One(name) });
        }
        let is_allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.');
        if text == "." || text == ".." || !text.bytes().all(is_allowed) {
            return Err(wrong());
        }
        Ok(Segment::Name(text.to_owned()))
    }

    fn variable(&self) -> Option<&str> {
        match self {
            Segment::Name(_) => None,
            Segment::One(variable) | Segment::Rest(variable) => Some(variable),
        }
    }
}

/// The patterns of a tenant's rules, each with its number. A node is a prefix of some of them.
#[derive(Debug, Default)]
pub(super) struct Patterns {
    names: BTreeMap<String, Patterns>,
    one: Option<Box<Patterns>>,
    /// The pattern that goes on with `{var=**}`.
    rest: Option<usize>,
    /// The pattern that ends here.
    end: Option<usize>,
}

impl Patterns {
    /// Adds a pattern. One that matches just the same is left, and handed back.
    pub(super) fn insert(&mut self, pattern: &RulePattern, number: usize) -> Option<usize> {
        let mut node = self;
        for segment in &pattern.segments {
            node = match segment {
                Segment::Name(name) => node.names.entry(name.clone()).or_default(),
                Segment::One(_) => &mut **node.one.get_or_insert_default(),
                Segment::Rest(_) => return take_place(&mut node.rest, number),
            };
        }
        take_place(&mut node.end, number)
    }

    /// The best pattern for a path. Each node that is looked at is a step; too many find nothing.
    pub(super) fn find(&self, path: &str, steps: &mut Steps) -> Option<usize> {
        self.find_rest(Some(path), steps).filter(|_| !steps.is_exceeded())
    }

    /// It recurses as deep as patterns are long. The best is tried first.
    fn find_rest(&self, path: Option<&str>, steps: &mut Steps) -> Option<usize> {
        if !steps.count(1) {
            return None;
        }
        let Some(path) = path else { return self.end };
        let (first, others) = match path.split_once('/') {
            Some((first, others)) => (first, Some(others)),
            None => (path, None),
        };
        let named = self.names.get(first).and_then(|node| node.find_rest(others, steps));
        let one = || self.one.as_ref().and_then(|node| node.find_rest(others, steps));
        named.or_else(one).or(self.rest)
    }
}

fn take_place(place: &mut Option<usize>, number: usize) -> Option<usize> {
    if place.is_none() {
        *place = Some(number);
        return None;
    }
    *place
}
