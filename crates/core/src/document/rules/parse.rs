//! From the text of rules to rules: all of it is good, or it is refused by pattern and action.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::patterns::{PatternError, Patterns, RulePattern};
use super::{Action, Rule, Rules};
use crate::condition::{ConditionError, Expression, Variable, Vocabulary, excerpt, parse as read};
use crate::limits::{RULES_BYTES_MAX, RULES_MAX};

/// In the order in which `check.rs` gives their values; those of the pattern follow.
const VARIABLES: [Variable<'static>; 2] = [
    Variable { name: "request", fields: &["auth", "time", "resource"] },
    Variable { name: "resource", fields: &["data", "id"] },
];

/// The text is no rules.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RulesError {
    #[error("rules are at most {RULES_BYTES_MAX} bytes long")]
    TooLong,
    #[error("rules are JSON, and this is not: {0}")]
    Json(String),
    #[error("rules are `{{\"match\": {{pattern: {{\"allow\": {{actions: condition}}}}}}}}`: {0}")]
    Shape(String),
    #[error("`{pattern}` is no pattern: {error}")]
    Pattern { pattern: String, error: PatternError },
    #[error("`{pattern}` and `{other}` match the same paths: make them one")]
    RepeatedPattern { pattern: String, other: String },
    #[error("rules have at most {RULES_MAX} patterns that allow something")]
    TooManyPatterns,
    #[error(
        "`{pattern}` allows `{action}`, which is no action: these are `read` (`get`, `list`) and \
         `write` (`create`, `update`, `delete`)"
    )]
    UnknownAction { pattern: String, action: String },
    #[error("`{pattern}` allows `{action}` twice: say when in one condition")]
    RepeatedAction { pattern: String, action: &'static str },
    #[error("`{action}` of `{pattern}`: {error}")]
    Condition { pattern: String, action: String, error: ConditionError },
}

/// JSON as far as rules have it. Fields keep their order, and those that come twice are there twice.
enum Body {
    Text(String),
    Object(Vec<(String, Body)>),
    Other,
}

type Entries = Vec<(String, Body)>;

pub(super) fn parse(text: &str) -> Result<Rules, RulesError> {
    if text.len() > RULES_BYTES_MAX {
        return Err(RulesError::TooLong);
    }
    let body: Body =
        serde_json::from_str(text).map_err(|error| RulesError::Json(error.to_string()))?;
    let Body::Object(fields) = body else {
        return Err(RulesError::Shape("the whole is no object".to_owned()));
    };
    let mut reader = Reader { patterns: Patterns::default(), rules: Vec::new() };
    let [matches] = named(fields, ["match"], "the whole")?;
    let Some(matches) = matches else {
        return Err(RulesError::Shape("`match` is missing".to_owned()));
    };
    reader.blocks(&RulePattern::default(), matches)?;
    let Reader { patterns, rules } = reader;
    Ok(Rules { source: text.into(), patterns, rules })
}

struct Reader {
    patterns: Patterns,
    rules: Vec<Rule>,
}

impl Reader {
    /// It recurses as deep as patterns are long: each level adds a segment.
    fn blocks(&mut self, outer: &RulePattern, blocks: Entries) -> Result<(), RulesError> {
        for (inner, block) in blocks {
            let pattern = outer.with(&inner).map_err(|error| {
                let text = [outer.text.as_str(), inner.trim_start_matches('/')].join("/");
                let pattern = excerpt(text.trim_start_matches('/'));
                RulesError::Pattern { pattern, error }
            })?;
            let name = excerpt(&pattern.text);
            let Body::Object(fields) = block else {
                return Err(RulesError::Shape(format!("`{name}` is no object")));
            };
            let place = format!("`{name}`");
            let [allow, matches] = named(fields, ["allow", "match"], &place)?;
            if allow.is_none() && matches.is_none() {
                return Err(RulesError::Shape(format!("{place} has no `allow` and no `match`")));
            }
            if let Some(allow) = allow {
                self.rule(pattern.clone(), allow)?;
            }
            if let Some(matches) = matches {
                self.blocks(&pattern, matches)?;
            }
        }
        Ok(())
    }

    fn rule(&mut self, pattern: RulePattern, allow: Entries) -> Result<(), RulesError> {
        let name = excerpt(&pattern.text);
        let number = self.rules.len();
        if number >= RULES_MAX {
            return Err(RulesError::TooManyPatterns);
        }
        pattern
            .check_names_documents()
            .map_err(|error| RulesError::Pattern { pattern: name.clone(), error })?;
        if let Some(other) = self.patterns.insert(&pattern, number) {
            let other = self.rules.get(other).map(|rule| excerpt(&rule.pattern.text));
            let other = other.unwrap_or_default();
            return Err(RulesError::RepeatedPattern { pattern: name, other });
        }
        let strings = pattern.variables().map(|name| Variable { name, fields: &[] });
        let variables: Vec<Variable<'_>> = VARIABLES.into_iter().chain(strings).collect();
        let vocabulary = Vocabulary { variables: &variables, has_documents: true };
        let mut conditions: Vec<(Vec<Action>, Expression)> = Vec::new();
        for (text, condition) in allow {
            let actions = actions(&name, &text)?;
            let mut before = conditions.iter().flat_map(|(actions, _)| actions);
            if let Some(action) = before.find(|action| actions.contains(action)) {
                let action = action.as_str();
                return Err(RulesError::RepeatedAction { pattern: name, action });
            }
            let Body::Text(condition) = condition else {
                let action = excerpt(&text);
                let why = format!("the condition of `{action}` of `{name}` is no string");
                return Err(RulesError::Shape(why));
            };
            let condition = read(&condition, vocabulary).map_err(|error| {
                RulesError::Condition { pattern: name.clone(), action: excerpt(&text), error }
            })?;
            conditions.push((actions, condition));
        }
        drop(variables);
        self.rules.push(Rule { pattern, conditions });
        Ok(())
    }
}

/// The actions that a field of `allow` is for.
fn actions(pattern: &str, text: &str) -> Result<Vec<Action>, RulesError> {
    let mut actions = Vec::new();
    for name in text.split(',').map(str::trim) {
        let (pattern, named) = (pattern.to_owned(), Action::named(name));
        if named.is_empty() {
            return Err(RulesError::UnknownAction { pattern, action: excerpt(name) });
        }
        if let Some(action) = named.iter().find(|action| actions.contains(*action)) {
            return Err(RulesError::RepeatedAction { pattern, action: action.as_str() });
        }
        actions.extend(named);
    }
    Ok(actions)
}

/// The fields of these names, which are objects if they are there, and no others.
fn named<const N: usize>(
    fields: Entries,
    names: [&str; N],
    place: &str,
) -> Result<[Option<Entries>; N], RulesError> {
    let mut found: [Option<Entries>; N] = [const { None }; N];
    for (name, body) in fields {
        let known = names.iter().zip(&mut found).find(|(known, _)| **known == name);
        let name = excerpt(&name);
        let why = match (known, body) {
            (None, _) => format!("{place} has a field `{name}`, which means nothing"),
            (Some((_, Some(_))), _) => format!("{place} has `{name}` twice"),
            (Some((_, empty)), Body::Object(entries)) => {
                *empty = Some(entries);
                continue;
            }
            (Some(_), _) => format!("`{name}` of {place} is no object"),
        };
        return Err(RulesError::Shape(why));
    }
    Ok(found)
}

impl<'de> Deserialize<'de> for Body {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Body, D::Error> {
        deserializer.deserialize_any(BodyVisitor)
    }
}

struct BodyVisitor;

impl<'de> Visitor<'de> for BodyVisitor {
    type Value = Body;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object or a string")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Body, E> {
        Ok(Body::Text(text.to_owned()))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Body, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = map.next_entry()? {
            entries.push(entry);
        }
        Ok(Body::Object(entries))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Body, A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Body::Other)
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<Body, E> {
        Ok(Body::Other)
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<Body, E> {
        Ok(Body::Other)
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<Body, E> {
        Ok(Body::Other)
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<Body, E> {
        Ok(Body::Other)
    }

    fn visit_unit<E: Error>(self) -> Result<Body, E> {
        Ok(Body::Other)
    }
}
