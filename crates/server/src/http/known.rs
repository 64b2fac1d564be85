//! Names that somebody wrote, and those that they could have meant.
//!
//! A field that nobody reads is a wish that nobody fulfils: whoever misspells one is told at once,
//! with the name that comes nearest. Where a protocol says that unknown names are ignored, nobody
//! asks here.

use reveille_core::known::describe_unknown;
use serde_json::{Map, Value};

use super::fields::FieldError;

/// Refuses an object that has a field of another name.
pub(crate) fn check_fields(object: &Map<String, Value>, known: &[&str]) -> Result<(), FieldError> {
    match object.keys().find(|name| !known.contains(&name.as_str())) {
        None => Ok(()),
        Some(name) => Err(FieldError(describe("field", name, known))),
    }
}

/// The same for one that stands inside another, whose name is said as well.
pub(crate) fn check_fields_of(
    parent: &str,
    object: &Map<String, Value>,
    known: &[&str],
) -> Result<(), FieldError> {
    check_fields(object, known).map_err(|FieldError(why)| FieldError(format!("`{parent}`: {why}")))
}

/// The sentence about a name that is not known: `what` is "field" or "parameter".
pub(crate) fn describe(what: &str, name: &str, known: &[&str]) -> String {
    describe_unknown(what, name, known)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: [&str; 5] = ["webhook", "sync_done", "wake_if", "description", "min_interval"];

    #[test]
    fn a_field_that_nobody_knows_is_refused_with_a_sentence() {
        let object = |text: &str| serde_json::from_str::<Map<String, Value>>(text).unwrap();
        let check = |text: &str| check_fields(&object(text), &KNOWN).map_err(|error| error.0);
        assert_eq!(check(r#"{"webhook": 1, "wake_if": null}"#), Ok(()));
        let said = "unknown field `webook`; did you mean `webhook`?";
        assert_eq!(check(r#"{"webook": 1}"#), Err(said.to_owned()));
        let said = check(r#"{"colour": 1}"#).unwrap_err();
        assert!(
            said.starts_with("unknown field `colour`; known are `webhook`, `sync_done`"),
            "{said}"
        );
        let said = check_fields_of("retry", &object(r#"{"inital": 1}"#), &["initial", "max"]);
        assert_eq!(
            said.map_err(|error| error.0),
            Err("`retry`: unknown field `inital`; did you mean `initial`?".to_owned())
        );
        let long = check(&format!("{{\"{}\": 1}}", "é\\n".repeat(1_000))).unwrap_err();
        assert!(long.len() < 400 && !long.contains('\n'), "{long}");
    }
}
