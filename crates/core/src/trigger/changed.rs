//! Which fields a change has changed, as paths with dots between their names.
//!
//! A field that has changed is there with all that it is inside of: `address` and `address.city`. Of
//! more than may be there, those that are least deep are.

use serde_json::{Map, Value};

use super::limits::CHANGED_PATHS_MAX;
use crate::document::value::ValueRef;

type Json = Map<String, Value>;

/// The fields of two documents that differ, in the order of how deep they are and of their names.
pub(super) fn changed_paths(before: Option<&Json>, after: Option<&Json>) -> Vec<String> {
    let empty = Json::new();
    let mut found = Found { levels: Vec::new() };
    found.compare(before.unwrap_or(&empty), after.unwrap_or(&empty), "", 0);
    let mut paths: Vec<String> = Vec::new();
    for mut level in found.levels {
        level.sort_unstable();
        let room = CHANGED_PATHS_MAX - paths.len();
        paths.extend(level.into_iter().take(room));
    }
    paths
}

struct Found {
    /// By how many objects they are inside of.
    levels: Vec<Vec<String>>,
}

impl Found {
    /// Whether anything differs. It recurses as deep as documents are.
    fn compare(&mut self, before: &Json, after: &Json, place: &str, depth: usize) -> bool {
        let names = before.keys().chain(after.keys().filter(|name| !before.contains_key(*name)));
        let mut differs = false;
        for name in names {
            let path = if place.is_empty() { name.clone() } else { format!("{place}.{name}") };
            let changed = match (before.get(name), after.get(name)) {
                (Some(Value::Object(before)), Some(Value::Object(after))) => {
                    self.compare(before, after, &path, depth + 1)
                }
                (Some(before), Some(after)) => {
                    ValueRef::from(before).cmp(&ValueRef::from(after)).is_ne()
                }
                (Some(Value::Object(lost)), None) => {
                    self.compare(lost, &Json::new(), &path, depth + 1);
                    true
                }
                (None, Some(Value::Object(new))) => {
                    self.compare(&Json::new(), new, &path, depth + 1);
                    true
                }
                _ => true,
            };
            if changed {
                differs = true;
                self.add(path, depth);
            }
        }
        differs
    }

    fn add(&mut self, path: String, depth: usize) {
        while self.levels.len() <= depth {
            self.levels.push(Vec::new());
        }
        let level = self.levels.get_mut(depth);
        if let Some(level) = level.filter(|level| level.len() < CHANGED_PATHS_MAX) {
            level.push(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(before: Value, after: Value, expected: &[&str]) {
        let found = changed_paths(before.as_object(), after.as_object());
        assert_eq!(found, expected, "{before} to {after}");
    }

    #[test]
    fn a_field_is_there_with_what_it_is_inside_of() {
        check(json!({"a": 1}), json!({"a": 1.0}), &[]);
        check(json!({"a": 1, "b": 2}), json!({"b": 3, "c": null}), &["a", "b", "c"]);
        check(
            json!({"x": {"y": {"z": 1}, "k": 1}, "t": [1]}),
            json!({"x": {"y": {"z": 2}, "k": 1}, "t": [1, 2]}),
            &["t", "x", "x.y", "x.y.z"],
        );
        check(json!(null), json!({"x": {"y": 1}}), &["x", "x.y"]);
        check(json!({"x": {}}), json!(null), &["x"]);
        check(json!({"x": {"y": 1}}), json!({"x": 1}), &["x"]);
    }

    #[test]
    fn of_too_many_the_least_deep_are_there() {
        let deep: Json = (0..2_000).map(|number| (format!("d{number}"), json!(1))).collect();
        let before = json!({});
        let after = json!({"inner": deep, "z": 1});
        let found = changed_paths(before.as_object(), after.as_object());
        assert_eq!(found.len(), CHANGED_PATHS_MAX);
        assert_eq!(found.get(..2), Some(&["inner".to_owned(), "z".to_owned()][..]));
    }
}
