//! How long files and functions are.

use crate::source::{Source, Token, after_group, code, tokens, without_tests};

/// Lines of a source file; tests in a file of their own are not counted.
pub(crate) const FILE_LINES_MAX: usize = 700;
/// Lines of a function from `fn` to its last brace; tests have tables and are not counted.
pub(crate) const FUNCTION_LINES_MAX: usize = 70;

/// What is too long: its name, and how many lines it has or may have.
pub(crate) type Table = [(&'static str, usize)];

/// The files that are too long and not in the table, or longer than that allows, and the entries
/// that are not needed any more.
pub(crate) fn check_files(sources: &[Source], table: &Table) -> Vec<String> {
    let sources = sources.iter().filter(|source| !source.is_test());
    let lengths: Vec<(String, usize)> =
        sources.map(|source| (source.path.clone(), source.text.lines().count())).collect();
    check(&lengths, FILE_LINES_MAX, table)
}

/// The same of functions, by `path::name`; of two that have one name the longer counts.
pub(crate) fn check_functions(sources: &[Source], table: &Table) -> Vec<String> {
    let mut lengths: Vec<(String, usize)> = Vec::new();
    for source in sources.iter().filter(|source| !source.is_test()) {
        for (name, lines) in functions(&source.text) {
            let name = format!("{}::{name}", source.path);
            match lengths.iter_mut().find(|(it, _)| *it == name) {
                Some((_, longest)) => *longest = lines.max(*longest),
                None => lengths.push((name, lines)),
            }
        }
    }
    check(&lengths, FUNCTION_LINES_MAX, table)
}

fn check(lengths: &[(String, usize)], limit: usize, table: &Table) -> Vec<String> {
    let mut violations = Vec::new();
    for (name, lines) in lengths {
        let known = table.iter().find(|(it, _)| it == name).map(|(_, ceiling)| *ceiling);
        if *lines > known.unwrap_or(limit).max(limit) {
            violations.push(format!("{name} has {lines} lines: split it"));
        }
    }
    for (name, ceiling) in table {
        let lines = lengths.iter().find(|(it, _)| it == name).map(|(_, lines)| *lines);
        match lines {
            None => violations.push(format!("{name} is gone: remove its {ceiling}")),
            Some(lines) if lines <= limit => {
                violations.push(format!("{name} has {lines} lines: remove its {ceiling}"));
            }
            Some(_) => {}
        }
    }
    violations
}

/// The functions outside of tests, and their lines.
fn functions(text: &str) -> Vec<(String, usize)> {
    let code = code(text);
    let tokens = without_tests(&tokens(&code));
    let mut functions = Vec::new();
    let mut rest = tokens.as_slice();
    while let Some((first, after)) = rest.split_first() {
        // `fn(u8) -> u8` is a type.
        if let Some(name) = after.first().filter(|it| first.text == "fn" && it.text != "(")
            && let Some(last) = last_line(after)
        {
            functions.push((name.text.to_owned(), last - first.line + 1));
        }
        rest = after;
    }
    functions
}

/// Where the body ends, if there is one.
fn last_line(mut rest: &[Token<'_>]) -> Option<usize> {
    while let Some((first, after)) = rest.split_first() {
        rest = match first.text {
            ";" => return None,
            "(" | "[" => after_group(rest),
            "{" => {
                let body = rest.len() - after_group(rest).len();
                return rest.get(body.checked_sub(1)?).map(|closing| closing.line);
            }
            _ => after,
        };
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn function(lines: usize) -> String {
        format!("fn f(x: [u8; 2]) -> u8 {{\n{}}}\n", "    g();\n".repeat(lines - 2))
    }

    #[test]
    fn a_function_at_the_limit_passes_and_one_line_more_is_found() {
        let check = |text: String| check_functions(&[Source::new("a.rs", text)], &[]);
        assert_eq!(check(function(70)), [""; 0]);
        assert_eq!(check(function(71)), ["a.rs::f has 71 lines: split it"]);
        let inside = format!("impl X {{\n{}\n{}}}\n", function(10), function(80));
        assert_eq!(check(inside), ["a.rs::f has 80 lines: split it"]);
        let nested = format!("fn outer() {{\n{}}}\n", function(69));
        assert_eq!(check(nested), ["a.rs::outer has 71 lines: split it"]);
    }

    #[test]
    fn what_only_looks_like_a_function_has_no_length() {
        let long = "\n".repeat(100);
        for text in [
            format!("struct S {{ f: fn(u8),{long} }}"),
            format!("trait T {{ fn f(&self); {long} }}"),
            format!("const T: [u8; 1] = [{long}];"),
            format!("// fn f() {{{long}"),
            format!("#[cfg(test)]\nmod tests {{ {} }}", function(80)),
        ] {
            assert_eq!(
                check_functions(&[Source::new("a.rs", text.clone())], &[]),
                [""; 0],
                "{text}"
            );
        }
        assert_eq!(check_functions(&[Source::new("a/tests.rs", function(80))], &[]), [""; 0]);
    }

    #[test]
    fn a_long_file_is_found_unless_it_is_tests() {
        let check =
            |path: &str, lines| check_files(&[Source::new(path, "//! x\n".repeat(lines))], &[]);
        assert_eq!(check("a.rs", 700), [""; 0]);
        assert_eq!(check("a.rs", 701), ["a.rs has 701 lines: split it"]);
        assert_eq!(check("a/tests.rs", 701), [""; 0]);
        assert_eq!(check("a/tests/it.rs", 701), [""; 0]);
    }

    #[test]
    fn what_is_known_may_only_get_shorter() {
        let check =
            |lines, table: &Table| check_files(&[Source::new("a.rs", "\n".repeat(lines))], table);
        assert_eq!(check(900, &[("a.rs", 900)]), [""; 0]);
        assert_eq!(check(899, &[("a.rs", 900)]), [""; 0]);
        assert_eq!(check(901, &[("a.rs", 900)]), ["a.rs has 901 lines: split it"]);
        assert_eq!(check(700, &[("a.rs", 900)]), ["a.rs has 700 lines: remove its 900"]);
        assert_eq!(check(10, &[("b.rs", 900)]), ["b.rs is gone: remove its 900"]);
    }
}
