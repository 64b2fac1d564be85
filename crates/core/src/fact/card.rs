//! Cards: what is known of an entity in a scope, in a few lines, for everybody who reads the scope.
//!
//! What is said in gardens is in no card.

use super::hlc::Hlc;
use super::limits::CARD_SUMMARY_BYTES_MAX;
use super::name::{EntityUri, Scope};
use super::statement::Fact;
use crate::time::Millis;

/// A card as it is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Card {
    pub entity: EntityUri,
    pub scope: Scope,
    pub summary: String,
    /// How many facts hold.
    pub fact_count: u64,
    pub refreshed_at: Millis,
    pub hlc: Hlc,
}

/// Collects a card's lines.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Summary {
    text: String,
    lines: u64,
}

/// So much is kept for the line that says how many were left out.
const REST_BYTES: usize = 40;

impl Summary {
    /// One more fact that holds; false if there is no room for it, and so for none after it.
    pub fn add(&mut self, fact: &Fact) -> bool {
        let (relation, value) = (&fact.said.relation, fact.said.value.to_text());
        let len = relation.len() + value.len() + 3;
        if self.text.len() + len > CARD_SUMMARY_BYTES_MAX - REST_BYTES {
            return false;
        }
        self.lines += 1;
        self.text.push_str(relation);
        self.text.push_str(": ");
        self.text.push_str(&value.replace(['\n', '\r'], " "));
        self.text.push('\n');
        true
    }

    /// What is said of so many facts in all.
    pub fn finish(self, facts: u64) -> String {
        let Summary { mut text, lines } = self;
        if lines < facts {
            text.push_str(&format!("and {} more", facts - lines));
        }
        text.trim_end().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::statement::tests::{fact, statement};
    use super::super::statement::{Fact, Statement};
    use super::super::value::{FactValue, ValueKind};
    use super::*;

    fn said(relation: &str, text: &str) -> Fact {
        let value = FactValue::new(ValueKind::Text, &json!(text)).unwrap();
        Fact { said: Statement { relation: relation.into(), value, ..statement() }, ..fact() }
    }

    #[test]
    fn a_card_has_a_line_for_each_fact() {
        let mut summary = Summary::default();
        assert!(summary.add(&said("works_at", "acme")));
        assert!(summary.add(&said("notes", "two\nlines")));
        assert_eq!(summary.finish(2), "works_at: acme\nnotes: two lines");
        assert_eq!(Summary::default().finish(0), "");
    }

    #[test]
    fn a_card_has_an_end_however_much_is_known() {
        let mut summary = Summary::default();
        let fact = said("notes", &"x".repeat(100));
        let lines = (0..10_000).take_while(|_| summary.add(&fact)).count();
        let text = summary.finish(10_000);
        assert!(text.len() <= CARD_SUMMARY_BYTES_MAX, "{}", text.len());
        assert!(text.ends_with(&format!("and {} more", 10_000 - lines)), "{text}");
    }
}
