//! The paths that code names, in `use` lines and elsewhere.

use crate::source::{Token, after_group};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Path {
    pub(crate) segments: Vec<String>,
    /// The name it has from here on: of an import the last segment, or what follows `as`.
    pub(crate) name: String,
    /// The inline modules that it is written in, from the outermost.
    pub(crate) scope: Vec<String>,
    pub(crate) is_import: bool,
    pub(crate) line: usize,
}

pub(crate) fn paths(tokens: &[Token<'_>]) -> Vec<Path> {
    let mut paths = Vec::new();
    let mut depth = 0_usize;
    let mut scopes: Vec<(String, usize)> = Vec::new();
    let mut rest = tokens;
    while let Some((first, after)) = rest.split_first() {
        let second = after.first().map_or("", |token| token.text);
        let found = paths.len();
        rest = match first.text {
            // `use<'a>` names what is captured.
            "use" if second != "<" => import(after, first.line, &[], &mut paths),
            // The place that something is visible in is not used.
            "pub" if second == "(" => after_group(after),
            "{" | "}" => {
                depth = if first.text == "{" { depth + 1 } else { depth.saturating_sub(1) };
                scopes.retain(|(_, opened_at)| *opened_at <= depth);
                after
            }
            "mod" if after.get(1).is_some_and(|token| token.text == "{") => {
                scopes.push((second.to_owned(), depth + 1));
                after.get(1..).unwrap_or_default()
            }
            _ if is_name(first.text) && second == "::" => inline(rest, &mut paths),
            _ => after,
        };
        let scope: Vec<String> = scopes.iter().map(|(name, _)| name.clone()).collect();
        paths.iter_mut().skip(found).for_each(|path| path.scope.clone_from(&scope));
    }
    paths
}

fn is_name(text: &str) -> bool {
    text.starts_with(|first: char| first.is_alphabetic() || first == '_')
}

/// A path outside of imports, `a::b::C`.
fn inline<'t, 'a>(mut rest: &'t [Token<'a>], paths: &mut Vec<Path>) -> &'t [Token<'a>] {
    let mut segments = Vec::new();
    let line = rest.first().map_or(0, |token| token.line);
    while let Some((first, after)) = rest.split_first() {
        segments.push(first.text.to_owned());
        rest = match after {
            [colons, next, ..] if colons.text == "::" && is_name(next.text) => {
                after.get(1..).unwrap_or_default()
            }
            _ => {
                rest = after;
                break;
            }
        };
    }
    let name = segments.last().cloned().unwrap_or_default();
    paths.push(Path { segments, name, scope: Vec::new(), is_import: false, line });
    rest
}

/// The tree after `use`, or one branch of it: up to and with `;`, up to `,` or `}`.
fn import<'t, 'a>(
    mut rest: &'t [Token<'a>],
    line: usize,
    prefix: &[String],
    paths: &mut Vec<Path>,
) -> &'t [Token<'a>] {
    let mut segments = prefix.to_vec();
    let mut alias = None;
    while let Some((first, after)) = rest.split_first() {
        match first.text {
            ";" | "," | "}" => break,
            "{" => return import_group(after, line, &segments, paths),
            "as" => {
                alias = after.first().map(|token| token.text.to_owned());
                rest = after.get(1..).unwrap_or_default();
                continue;
            }
            "::" => {}
            // `a::{self}` is `a`.
            "self" if !prefix.is_empty() => {}
            name => segments.push(name.to_owned()),
        }
        rest = after;
    }
    let name = alias.or_else(|| segments.last().cloned()).unwrap_or_default();
    paths.push(Path { segments, name, scope: Vec::new(), is_import: true, line });
    rest
}

/// The branches between braces, and the closing one.
fn import_group<'t, 'a>(
    mut rest: &'t [Token<'a>],
    line: usize,
    prefix: &[String],
    paths: &mut Vec<Path>,
) -> &'t [Token<'a>] {
    while let Some((first, after)) = rest.split_first() {
        rest = match first.text {
            "}" => return after,
            "," => after,
            _ => import(rest, line, prefix, paths),
        };
    }
    rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::{code, tokens};

    fn check(text: &str, expected: &[&str]) {
        let code = code(text);
        let found = paths(&tokens(&code));
        let found: Vec<String> = found.iter().map(|path| path.segments.join("::")).collect();
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn imports_are_taken_apart() {
        check("use a::b;", &["a::b"]);
        check(
            "pub(in crate::x) use crate::{a, b::{self, C as D}, e::*};",
            &["crate::a", "crate::b", "crate::b::C", "crate::e::*"],
        );
        check("use ::a::b; use {c, d::e,};", &["a::b", "c", "d::e"]);
        check("use a; fn f() { a::g() }", &["a", "a::g"]);
    }

    #[test]
    fn paths_in_code_are_found() {
        check("fn f(x: &crate::a::B<super::c::D>) {}", &["crate::a::B", "super::c::D"]);
        check("a::b::<C>(x) + $crate::d!()", &["a::b", "crate::d"]);
        check("fn f() -> impl Fn() + use<'a> { x }", &[]);
        check("let x: a = b.c;", &[]);
    }

    #[test]
    fn names_and_scopes_are_known() {
        let code = code("mod x { mod y { use a as b; } use c; } use d;");
        let found = paths(&tokens(&code));
        let found: Vec<(String, &str)> =
            found.iter().map(|path| (path.scope.join("::"), path.name.as_str())).collect();
        let expected = [("x::y", "b"), ("x", "c"), ("", "d")];
        assert_eq!(found, expected.map(|(scope, name)| (scope.to_owned(), name)));
    }
}
