//! Whether docs/limits.md is true: every limit of the code stands there, with its value.
//!
//! A row is `| limit | default | setting or constant | what the one who meets it is told |`. A
//! setting is written `--max-body`, a constant `core/limits.rs::PATH_BYTES_MAX`: the path without
//! `crates/` and `src/`.

use crate::source::Source;

/// Settings of `reveille serve` whose value is one of these are limits.
const LIMIT_VALUES: [&str; 3] = ["<TIME>", "<SIZE>", "<N>"];

/// A row of a table of limits.
#[derive(Debug, PartialEq, Eq)]
struct Row {
    file: String,
    default: String,
    /// The settings and constants that it names.
    names: Vec<String>,
}

/// A constant of the code.
#[derive(Debug, PartialEq, Eq)]
struct Constant {
    /// Without `crates/` and `src/`.
    path: String,
    name: String,
    expression: String,
    is_public: bool,
}

/// What is missing in the documents or is otherwise in the code. `help` is that of `reveille serve`.
pub(crate) fn check(sources: &[Source], documents: &[Source], help: &str) -> Vec<String> {
    let rows: Vec<Row> = documents.iter().flat_map(rows).collect();
    let sources = sources.iter().filter(|source| !source.is_test());
    let constants: Vec<Constant> = sources.flat_map(constants).collect();
    let mut violations = check_constants(&rows, &constants);
    violations.extend(check_settings(&rows, help));
    violations
}

fn check_constants(rows: &[Row], constants: &[Constant]) -> Vec<String> {
    let mut violations = Vec::new();
    let is_documented = |constant: &Constant| {
        rows.iter().flat_map(|row| &row.names).any(|name| is_meant(name, constant))
    };
    for constant in constants {
        let is_limit = constant.is_public && constant.path.ends_with("/limits.rs");
        if is_limit && !is_documented(constant) {
            let Constant { path, name, .. } = constant;
            violations.push(format!("{path}::{name} does not stand in docs/limits.md"));
        }
    }
    for row in rows {
        for name in row.names.iter().filter(|name| name.contains("::")) {
            let Some(constant) = constants.iter().find(|it| is_meant(name, it)) else {
                violations.push(format!("{}: there is no {name}", row.file));
                continue;
            };
            let value = value(constants, constant);
            if value.is_none() || value != amount(&row.default) {
                let Row { file, default, .. } = row;
                let is = &constant.expression;
                violations.push(format!("{file}: {name} is {is}, and not {default}"));
            }
        }
    }
    violations
}

fn check_settings(rows: &[Row], help: &str) -> Vec<String> {
    let mut violations = Vec::new();
    for (name, default) in settings(help) {
        let mut documented = rows.iter().filter(|row| row.names.contains(&name)).peekable();
        if documented.peek().is_none() {
            violations.push(format!("{name} does not stand in docs/limits.md"));
        }
        for row in documented.filter(|row| !row.default.contains(&default)) {
            let Row { file, default: written, .. } = row;
            violations.push(format!("{file}: {name} is {default}, and not {written}"));
        }
    }
    violations
}

/// Whether `core/limits.rs::NAME` is this constant.
fn is_meant(name: &str, constant: &Constant) -> bool {
    let Some((path, name)) = name.rsplit_once("::") else { return false };
    shortened(path) == constant.path && name == constant.name
}

fn shortened(path: &str) -> String {
    path.strip_prefix("crates/").unwrap_or(path).replacen("/src/", "/", 1)
}

fn rows(document: &Source) -> Vec<Row> {
    let lines = document.text.lines().filter(|line| line.starts_with('|'));
    let row = |line: &str| {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [_, default, names, ..] = cells.as_slice() else { return None };
        // Every other piece between backticks is inside of a pair of them.
        let names = names.split('`').skip(1).step_by(2).map(str::to_owned).collect();
        let (file, default) = (document.path.clone(), default.replace('`', ""));
        Some(Row { file, default, names })
    };
    lines.filter_map(row).collect()
}

fn constants(source: &Source) -> Vec<Constant> {
    let path = shortened(&source.path);
    let constant = |line: &str| {
        let (before, rest) = line.trim_start().split_once("const ")?;
        let (name, rest) = rest.split_once(": ")?;
        let (_, expression) = rest.strip_suffix(';')?.split_once(" = ")?;
        let (path, name) = (path.clone(), name.to_owned());
        let is_public = before == "pub ";
        Some(Constant { path, name, expression: expression.to_owned(), is_public })
    };
    source.text.lines().filter_map(constant).collect()
}

/// The settings that are limits, and their defaults.
fn settings(help: &str) -> Vec<(String, String)> {
    let mut found: Vec<(String, String)> = Vec::new();
    let mut name = None;
    for line in help.lines().map(str::trim) {
        if let Some((flag, value)) = line.split_once(' ').filter(|_| line.starts_with("--")) {
            name = Some(flag.to_owned()).filter(|_| LIMIT_VALUES.contains(&value));
        }
        if let Some((_, rest)) = line.split_once("[default: ")
            && let Some((default, _)) = rest.split_once(']')
            && let Some(name) = name.take()
        {
            found.push((name, default.to_owned()));
        }
    }
    found
}

/// The number that a default begins with: bytes, milliseconds, or how many.
fn amount(text: &str) -> Option<u128> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != ',').unwrap_or(text.len());
    let (number, rest) = text.split_at(digits);
    let number: u128 = number.replace(',', "").parse().ok()?;
    let unit = rest.trim_start().split(|c: char| !c.is_alphabetic()).next()?;
    let factor = match unit {
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        "s" => 1_000,
        "min" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => 1,
    };
    Some(number * factor)
}

/// The value of a constant, times in milliseconds.
fn value(constants: &[Constant], constant: &Constant) -> Option<u128> {
    let factor = if constant.name.contains("SECONDS") { 1_000 } else { 1 };
    let named = |name: &str| {
        let same = |it: &&Constant| it.name == name && it.path == constant.path;
        constants.iter().find(same).and_then(|it| value(constants, it))
    };
    evaluate(&constant.expression, &named).map(|value| value * factor)
}

/// A number, a name, or two of them with a sign in between; or a duration.
fn evaluate(expression: &str, named: &dyn Fn(&str) -> Option<u128>) -> Option<u128> {
    let of = |text: &str| evaluate(text.trim(), named);
    for (duration, factor) in [("Duration::from_secs(", 1_000), ("Duration::from_millis(", 1)] {
        let inside = expression.strip_prefix(duration).and_then(|rest| rest.strip_suffix(')'));
        if let Some(inside) = inside {
            return of(inside).map(|value| value * factor);
        }
    }
    if let Some((left, right)) = expression.split_once(" << ") {
        return Some(of(left)? << of(right)?);
    }
    if let Some((left, right)) = expression.split_once(" * ") {
        return Some(of(left)? * of(right)?);
    }
    if let Some((left, right)) = expression.split_once(" / ") {
        return Some(of(left)? / of(right)?);
    }
    let number = expression.replace('_', "").parse().ok();
    number.or_else(|| named(expression))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: &str = "\
//! Limits.
pub const SIZE_MAX: usize = 12 << 20;
pub const WAIT: Duration = Duration::from_secs(2);
const HIDDEN: usize = SIZE_MAX / 2;
pub const TTL_SECONDS_MAX: u64 = 1_000;
";
    const HELP: &str = "
      --wait <TIME>
          How long [default: 30s]

          [env: REVEILLE_WAIT]

      --listen <ADDR>
          Where [default: 127.0.0.1:4437]
";

    fn check_rows(rows: &str) -> Vec<String> {
        let sources = [Source::new("crates/core/src/limits.rs", LIMITS)];
        let table =
            format!("| limit | default | setting or constant | told |\n|---|---|---|---|\n{rows}");
        check(&sources, &[Source::new("docs/limits.md", table)], HELP)
    }

    const TRUE: &str = "\
| size | 12 MiB | `core/limits.rs::SIZE_MAX` | 413 |
| half of it | 6 MiB | `crates/core/src/limits.rs::HIDDEN` | nothing |
| wait | 2 s | `core/limits.rs::WAIT` | 503 |
| age | 1,000 s | `core/limits.rs::TTL_SECONDS_MAX` | 400 |
| waiting | `30s` | `--wait` | 200 |
";

    #[test]
    fn what_stands_there_and_is_so_passes() {
        assert_eq!(check_rows(TRUE), [""; 0]);
    }

    #[test]
    fn what_is_missing_or_otherwise_or_gone_is_found() {
        let expect = |old: &str, new: &str, violation: &str| {
            assert_eq!(check_rows(&TRUE.replace(old, new)), [violation], "{new}");
        };
        expect(
            "12 MiB",
            "12 KiB",
            "docs/limits.md: core/limits.rs::SIZE_MAX is 12 << 20, and not 12 KiB",
        );
        expect(
            "| 2 s",
            "| 2 ms",
            "docs/limits.md: core/limits.rs::WAIT is Duration::from_secs(2), and not 2 ms",
        );
        expect("`30s`", "`31s`", "docs/limits.md: --wait is 30s, and not 31s");
        expect("`--wait`", "", "--wait does not stand in docs/limits.md");
        expect(
            "`core/limits.rs::WAIT`",
            "",
            "core/limits.rs::WAIT does not stand in docs/limits.md",
        );
        expect(
            "rs::HIDDEN",
            "rs::GONE",
            "docs/limits.md: there is no crates/core/src/limits.rs::GONE",
        );
    }
}
