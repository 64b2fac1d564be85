//! What files are called, how they begin, and what must not stand in them.

use std::path::Path;

use crate::source::Source;

/// Module names that say nothing.
const VAGUE: [&str; 8] = ["utils", "util", "helpers", "manager", "common", "types", "misc", "mod"];

pub(crate) fn check(sources: &[Source]) -> Vec<String> {
    // Put together here so that this file does not find itself.
    let banned = [["#[ign", "ore"].concat(), ["TO", "DO"].concat(), ["FIX", "ME"].concat()];
    let mut violations = Vec::new();
    for Source { path, text } in sources {
        if !text.starts_with("//! ") {
            violations.push(format!("{path} does not begin with what it is"));
        }
        let stem = Path::new(path).file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
        if VAGUE.contains(&stem) {
            violations.push(format!("{path}: the name says nothing"));
        }
        let found = banned.iter().filter(|word| text.contains(word.as_str()));
        violations.extend(found.map(|word| format!("{path} has {word}")));
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_one(path: &str, text: &str, expected: &[&str]) {
        assert_eq!(check(&[Source::new(path, text)]), expected, "{path} {text}");
    }

    #[test]
    fn a_file_says_what_it_is() {
        check_one("a/log.rs", "//! The log.\n", &[]);
        check_one("a/log.rs", "use std::fmt;\n", &["a/log.rs does not begin with what it is"]);
        check_one("a/utils.rs", "//! Things.\n", &["a/utils.rs: the name says nothing"]);
        check_one("a/mod.rs", "//! Things.\n", &["a/mod.rs: the name says nothing"]);
    }

    #[test]
    fn nothing_is_ignored_or_left_for_later() {
        for word in [["#[ign", "ore"].concat(), ["TO", "DO"].concat(), ["FIX", "ME"].concat()] {
            check_one("a.rs", &format!("//! A.\n{word}\n"), &[&format!("a.rs has {word}")]);
        }
    }
}
