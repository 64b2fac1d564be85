//! How deep a text would make the parser recurse, found out without parsing it.
//!
//! The parser recurses with every bracket and, over `a.b.c` or `1 + 2 + 3`, with every link of the
//! chain; where its stack ends, the process ends. So brackets and links are counted first, in one
//! pass and never too few. For that it must be certain what is inside of quotes: whatever the
//! parser's lexer could read otherwise than this one is refused. What the stack holds was measured
//! with the parser optimised, as it is in every profile of this workspace.

use super::ConditionError;
use crate::limits::{EXPRESSION_CHAIN_MAX, EXPRESSION_NESTING_MAX};

/// Refuses a text over which the parser could use up its stack.
pub(super) fn check(source: &str) -> Result<(), ConditionError> {
    let mut scan = Scan { rest: source, outer: Vec::new(), level: Level::new(Bracket::None) };
    while scan.step()? {}
    if !scan.outer.is_empty() {
        return Err(syntax("a bracket is not closed"));
    }
    scan.level.end_item();
    is_short(scan.level.deepest_item)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bracket {
    None,
    Round,
    Square,
    Curly,
}

/// What is known of everything since a bracket was opened.
///
/// An item ends with a comma, a segment with `&&`, `||`, `?` or `:`. Segments of an item are side
/// by side for the parser, but for `?`: what follows it is inside of what came before.
struct Level {
    bracket: Bracket,
    links: usize,
    /// The deepest bracket of this segment.
    inside: usize,
    deepest_segment: usize,
    questions: usize,
    deepest_item: usize,
}

impl Level {
    fn new(bracket: Bracket) -> Level {
        let nothing = (0, 0, 0, 0, 0);
        let (links, inside, deepest_segment, questions, deepest_item) = nothing;
        Level { bracket, links, inside, deepest_segment, questions, deepest_item }
    }

    fn end_segment(&mut self) {
        self.deepest_segment = self.deepest_segment.max(self.links + self.inside);
        (self.links, self.inside) = (0, 0);
    }

    fn end_item(&mut self) {
        self.end_segment();
        self.deepest_item = self.deepest_item.max(self.questions + self.deepest_segment);
        (self.questions, self.deepest_segment) = (0, 0);
    }
}

struct Scan<'a> {
    rest: &'a str,
    outer: Vec<Level>,
    level: Level,
}

impl<'a> Scan<'a> {
    /// Takes one token. Says whether there was one.
    fn step(&mut self) -> Result<bool, ConditionError> {
        let Some(first) = self.rest.chars().next() else { return Ok(false) };
        match first {
            ' ' | '\t' | '\r' | '\n' | '\u{c}' => self.take(1),
            '\'' | '"' => self.quoted(first, false)?,
            'a'..='z' | 'A'..='Z' | '_' | '0'..='9' => self.word()?,
            '(' => self.open(Bracket::Round)?,
            '[' => self.open(Bracket::Square)?,
            '{' => self.open(Bracket::Curly)?,
            ')' => self.close(Bracket::Round)?,
            ']' => self.close(Bracket::Square)?,
            '}' => self.close(Bracket::Curly)?,
            _ => self.sign(first)?,
        }
        Ok(true)
    }

    fn take(&mut self, bytes: usize) {
        self.rest = self.rest.get(bytes..).unwrap_or_default();
    }

    fn sign(&mut self, first: char) -> Result<(), ConditionError> {
        const PAIRS: [&str; 6] = ["==", "!=", "<=", ">=", "&&", "||"];
        if self.rest.starts_with("//") {
            let end = self.rest.find('\n').unwrap_or(self.rest.len());
            self.take(end);
            return Ok(());
        }
        let pair = PAIRS.into_iter().find(|pair| self.rest.starts_with(pair));
        match (pair, first) {
            (Some("&&" | "||"), _) | (None, ':') => self.level.end_segment(),
            (Some(_), _) | (None, '<' | '>' | '+' | '-' | '*' | '/' | '%' | '.') => {
                self.level.links += 1;
            }
            // Any number of these is one step for the parser.
            (None, '!') => {}
            (None, '?') => {
                self.level.end_segment();
                self.level.questions += 1;
            }
            (None, ',') if self.level.bracket != Bracket::None => self.level.end_item(),
            (None, _) => return Err(syntax(&format!("`{first}` has no meaning there"))),
        }
        self.take(pair.map_or(1, str::len));
        Ok(())
    }

    /// A name, a number, or the beginning of a string that is taken as it is written.
    fn word(&mut self) -> Result<(), ConditionError> {
        let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let end = self.rest.find(|c| !is_part(c)).unwrap_or(self.rest.len());
        let word = self.rest.get(..end).unwrap_or_default();
        self.take(end);
        // `1in` is a number and an operator.
        if word == "in" || (word.ends_with("in") && word.starts_with(|c: char| c.is_ascii_digit()))
        {
            self.level.links += 1;
        }
        match self.rest.chars().next() {
            Some(quote @ ('\'' | '"')) if word == "r" || word == "R" => self.quoted(quote, true),
            Some('\'' | '"') if word != "in" => {
                Err(syntax(&format!("`{}` stands before a quote", super::excerpt(word))))
            }
            _ => Ok(()),
        }
    }

    fn quoted(&mut self, quote: char, is_raw: bool) -> Result<(), ConditionError> {
        let mut characters = self.rest.char_indices().skip(1);
        let is_triple = self.rest.chars().take(3).filter(|c| *c == quote).count() == 3;
        if is_triple {
            return Err(syntax("strings are between one `'` or `\"` and the next"));
        }
        while let Some((at, character)) = characters.next() {
            match character {
                '\n' | '\r' => break,
                '\\' if !is_raw => escape(&mut characters)?,
                _ if character == quote => {
                    self.take(at + 1);
                    return Ok(());
                }
                _ => {}
            }
        }
        Err(syntax("a string does not end on its line"))
    }

    fn open(&mut self, bracket: Bracket) -> Result<(), ConditionError> {
        if self.outer.len() >= EXPRESSION_NESTING_MAX {
            return Err(ConditionError::TooManyBrackets);
        }
        self.outer.push(std::mem::replace(&mut self.level, Level::new(bracket)));
        self.take(1);
        Ok(())
    }

    fn close(&mut self, bracket: Bracket) -> Result<(), ConditionError> {
        self.level.end_item();
        let depth = self.level.deepest_item + 1;
        is_short(depth)?;
        if self.level.bracket != bracket {
            return Err(syntax("a bracket is closed that is not open"));
        }
        let outer = self.outer.pop().ok_or_else(|| syntax("a bracket is not open"))?;
        self.level = outer;
        self.level.inside = self.level.inside.max(depth);
        // What is in brackets can be a link of a chain, as in `a[0][0]`.
        self.level.links += 1;
        self.take(1);
        Ok(())
    }
}

/// What follows a backslash.
fn escape(rest: &mut impl Iterator<Item = (usize, char)>) -> Result<(), ConditionError> {
    let mut next = || rest.next().map(|(_, character)| character);
    let (count, radix) = match next() {
        Some('a' | 'b' | 'f' | 'n' | 'r' | 't' | 'v' | '"' | '\'' | '\\' | '?' | '`') => (0, 16),
        Some('x' | 'X') => (2, 16),
        Some('u') => (4, 16),
        Some('U') => (8, 16),
        Some('0'..='3') => (2, 8),
        _ => return Err(syntax("a backslash stands before something that it is not for")),
    };
    if (0..count).all(|_| next().is_some_and(|it| it.is_digit(radix))) {
        return Ok(());
    }
    Err(syntax("a backslash stands before too few digits"))
}

fn is_short(depth: usize) -> Result<(), ConditionError> {
    if depth > EXPRESSION_CHAIN_MAX { Err(ConditionError::TooLongChain) } else { Ok(()) }
}

fn syntax(why: &str) -> ConditionError {
    ConditionError::Syntax(why.to_owned())
}
