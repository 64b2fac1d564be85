//! What a change has changed, field by field: `{"field":[from,to]}`, without any secret.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::limits::{AUDIT_DIFF_BYTES_MAX, EXPRESSION_BYTES_MAX};

/// Stands for a secret that there is.
const REDACTED: &str = "redacted";

/// Texts are cut here, so that a diff of several has room. Conditions are whole: of two that were cut
/// nobody sees what differs.
const TEXT_BYTES_MAX: usize = EXPRESSION_BYTES_MAX;

/// The fields that a change has changed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Diff(Map<String, Value>);

impl Diff {
    /// A field that was one thing and is another; nothing if it is the same.
    #[must_use]
    pub fn field(mut self, name: &str, from: impl Into<Value>, to: impl Into<Value>) -> Diff {
        let (from, to) = (from.into(), to.into());
        if from != to {
            self.0.insert(name.to_owned(), json!([short(from), short(to)]));
        }
        self
    }

    /// A field of which nobody is told more than whether it is there and was changed.
    #[must_use]
    pub fn secret<T: PartialEq>(mut self, name: &str, from: Option<T>, to: Option<T>) -> Diff {
        if from != to {
            let shown = |it: Option<T>| it.map(|_| REDACTED);
            self.0.insert(name.to_owned(), json!([shown(from), shown(to)]));
        }
        self
    }

    /// An address, of which what follows its path, and what stands before its host, may be secret.
    #[must_use]
    pub fn address(mut self, name: &str, from: Option<&str>, to: Option<&str>) -> Diff {
        if from != to {
            let shown = |it: Option<&str>| it.map(|it| short(redacted_address(it).into()));
            self.0.insert(name.to_owned(), json!([shown(from), shown(to)]));
        }
        self
    }

    /// As a row has it; `None` if nothing has changed. Of what would be too long there are as many
    /// fields as have room, and how many there are beside them.
    pub fn text(mut self) -> Option<Arc<str>> {
        let mut left_out = 0_u64;
        while !self.0.is_empty() {
            let text = Value::Object(self.0.clone()).to_string();
            if text.len() <= AUDIT_DIFF_BYTES_MAX {
                return Some(text.into());
            }
            self.0.remove(LEFT_OUT);
            let last = self.0.keys().next_back().cloned()?;
            self.0.remove(&last);
            left_out += 1;
            self.0.insert(LEFT_OUT.to_owned(), left_out.into());
        }
        None
    }
}

const LEFT_OUT: &str = "…";

fn short(value: Value) -> Value {
    match value {
        Value::String(text) if text.len() > TEXT_BYTES_MAX => {
            let cut = text.get(..text.floor_char_boundary(TEXT_BYTES_MAX)).unwrap_or_default();
            format!("{cut}…").into()
        }
        value => value,
    }
}

fn redacted_address(address: &str) -> String {
    let end = address.find(['?', '#']).unwrap_or(address.len());
    let (shown, rest) = address.split_at_checked(end).unwrap_or((address, ""));
    let (scheme, place) = shown.split_once("://").unwrap_or(("", shown));
    let (host, path) = match place.find('/') {
        Some(at) => place.split_at_checked(at).unwrap_or((place, "")),
        None => (place, ""),
    };
    let (who, host) = match host.rsplit_once('@') {
        Some((_, host)) => ("…@", host),
        None => ("", host),
    };
    let scheme = if scheme.is_empty() { String::new() } else { format!("{scheme}://") };
    let rest = if rest.is_empty() { "" } else { "?…" };
    format!("{scheme}{who}{host}{path}{rest}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_the_same_is_not_there_and_no_secret_ever_is() {
        let diff = Diff::default()
            .field("same", 1, 1)
            .field("attempts", 3, Value::Null)
            .secret("secret", Some("old"), Some("new"))
            .secret("none", None, Some("first"))
            .secret("kept", Some("old"), Some("old"));
        let text = diff.text().unwrap();
        let expected =
            r#"{"attempts":[3,null],"none":[null,"redacted"],"secret":["redacted","redacted"]}"#;
        assert_eq!(&*text, expected);
        assert_eq!(Diff::default().field("same", "a", "a").text(), None);
    }

    #[test]
    fn of_an_address_its_place_is_shown() {
        for (address, shown) in [
            ("https://a.test/in", "https://a.test/in"),
            ("https://me:pw@a.test:9/in?key=1#x", "https://…@a.test:9/in?…"),
            ("https://a.test?key=1@2", "https://a.test?…"),
            ("a@b", "…@b"),
        ] {
            assert_eq!(redacted_address(address), shown);
        }
        let (from, to) = (Some("https://a.test/?key=1"), Some("https://a.test/?key=2"));
        let text = Diff::default().address("webhook", from, to).text().unwrap();
        assert_eq!(&*text, r#"{"webhook":["https://a.test/?…","https://a.test/?…"]}"#);
    }

    #[test]
    fn whatever_changes_a_row_has_room_for_it() {
        let long = "é".repeat(100_000);
        let mut diff = Diff::default();
        for number in 0..100 {
            diff = diff.field(&format!("f{number:02}"), Value::Null, long.clone());
        }
        let text = diff.text().unwrap();
        assert!(text.len() <= AUDIT_DIFF_BYTES_MAX, "{}", text.len());
        let parsed: Value = serde_json::from_str(&text).unwrap();
        let fields = parsed.as_object().unwrap();
        assert_eq!(parsed["…"].as_u64().unwrap(), 101 - fields.len() as u64);
        assert!(fields.len() > 3 && parsed["f00"][1].as_str().unwrap().ends_with('…'));
    }
}
