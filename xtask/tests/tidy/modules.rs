//! The top modules of a crate, the edges between them, and the cycles that these make.
//!
//! A top module is a file or folder right under `src`. The root (`lib.rs`, `main.rs`) is none: it
//! may know them all. What the root re-exports belongs to the module that it comes from.

use std::collections::{BTreeMap, BTreeSet};

use crate::paths::{Path, paths};
use crate::source::{Source, code, test_modules, tokens, without_tests};

/// From whom to whom, and where that is written first.
pub(crate) type Graph = BTreeMap<(String, String), String>;

/// Crates, each with the sets of modules that form a cycle.
pub(crate) type Table = [(&'static str, &'static [&'static [&'static str]])];

/// A file of a crate: the modules it lies in, and the paths that it names.
struct ModuleFile<'a> {
    source: &'a Source,
    module: Vec<String>,
    paths: Vec<Path>,
}

/// The cycles that are not in the table, and the entries of the table that are gone.
pub(crate) fn check(crates: &[&str], sources: &[Source], table: &Table) -> Vec<String> {
    let mut violations = Vec::new();
    for name in crates {
        let graph = graph(name, sources);
        let known: Vec<Vec<&str>> = entries(table, name).map(<[&str]>::to_vec).collect();
        for cycle in cycles(&graph) {
            let cycle: Vec<&str> = cycle.iter().map(String::as_str).collect();
            if !known.contains(&cycle) {
                let edges = edges_within(&graph, &cycle).join("\n    ");
                violations.push(format!("{name}: {cycle:?} form a cycle:\n    {edges}"));
            }
        }
    }
    for (name, known) in table {
        let found = cycles(&graph(name, sources));
        let is_gone = |cycle: &&&[&str]| !found.iter().any(|it| it == **cycle);
        let gone = known.iter().filter(is_gone);
        violations.extend(gone.map(|it| format!("{name}: {it:?} is no cycle any more: remove it")));
    }
    violations
}

fn entries<'a>(table: &'a Table, name: &str) -> impl Iterator<Item = &'a [&'a str]> {
    let own = table.iter().filter(move |(it, _)| *it == name);
    own.flat_map(|(_, cycles)| cycles.iter().copied())
}

fn edges_within(graph: &Graph, cycle: &[&str]) -> Vec<String> {
    let is_in = |module: &String| cycle.contains(&module.as_str());
    let edges = graph.iter().filter(|((from, to), _)| is_in(from) && is_in(to));
    edges.map(|((from, to), place)| format!("{from} → {to}  {place}")).collect()
}

/// The top modules of a crate, given by its folder.
pub(crate) fn top_modules(name: &str, sources: &[Source]) -> BTreeSet<String> {
    let files = files(name, sources);
    files.iter().filter_map(|file| file.module.first().cloned()).collect()
}

/// Who names whom among the top modules of a crate.
pub(crate) fn graph(name: &str, sources: &[Source]) -> Graph {
    let files = files(name, sources);
    let modules: BTreeSet<&str> =
        files.iter().filter_map(|file| file.module.first().map(String::as_str)).collect();
    let exports = exports(&files, &modules);
    let mut graph = Graph::new();
    for file in &files {
        let Some(from) = file.module.first() else { continue };
        for path in &file.paths {
            let absolute = absolute(&file.module, path);
            let Some(first) = absolute.first().map(String::as_str) else { continue };
            let to = modules.get(first).copied().or_else(|| exports.get(first).map(String::as_str));
            if let Some(to) = to.filter(|to| to != from) {
                let place = || format!("{}:{}", file.source.path, path.line);
                graph.entry((from.clone(), to.to_owned())).or_insert_with(place);
            }
        }
    }
    graph
}

/// The files of a crate that are built without tests.
fn files<'a>(name: &str, sources: &'a [Source]) -> Vec<ModuleFile<'a>> {
    let mut files = Vec::new();
    let mut for_tests = Vec::new();
    for source in sources.iter().filter(|source| !source.is_test()) {
        let relative = source.path.strip_prefix(name).and_then(|rest| rest.strip_prefix("/src/"));
        let Some(stem) = relative.and_then(|relative| relative.strip_suffix(".rs")) else {
            continue;
        };
        let module: Vec<String> = match stem {
            "lib" | "main" => Vec::new(),
            _ if stem.starts_with("bin/") => continue,
            _ => stem.split('/').map(str::to_owned).collect(),
        };
        let code = code(&source.text);
        let tokens = tokens(&code);
        let declared = test_modules(&tokens).into_iter();
        for_tests.extend(declared.map(|it| [module.as_slice(), &[it]].concat()));
        files.push(ModuleFile { source, module, paths: paths(&without_tests(&tokens)) });
    }
    files.retain(|file| !for_tests.iter().any(|module| file.module.starts_with(module)));
    files
}

/// The names that the root gives to what lies in its modules.
fn exports(files: &[ModuleFile<'_>], modules: &BTreeSet<&str>) -> BTreeMap<String, String> {
    let roots = files.iter().filter(|file| file.module.is_empty());
    let imports = roots.flat_map(|file| &file.paths).filter(|path| path.is_import);
    let exports = imports.filter_map(|path| {
        let absolute = match path.segments.first()?.as_str() {
            "crate" | "self" => path.segments.get(1..)?,
            _ => &path.segments,
        };
        let module = absolute.first().filter(|module| modules.contains(module.as_str()))?;
        Some((path.name.clone(), module.clone()))
    });
    exports.collect()
}

/// The path from the root of the crate; empty if it leads elsewhere.
fn absolute(module: &[String], path: &Path) -> Vec<String> {
    let mut here: Vec<String> = [module, &path.scope].concat();
    let mut rest = path.segments.as_slice();
    match rest.first().map(String::as_str) {
        Some("crate") => return rest.get(1..).unwrap_or_default().to_vec(),
        Some("super") => {}
        _ => return Vec::new(),
    }
    while let Some((_, after)) = rest.split_first().filter(|(first, _)| *first == "super") {
        here.pop();
        rest = after;
    }
    here.extend_from_slice(rest);
    here
}

/// The largest sets of modules that all reach each other.
pub(crate) fn cycles(graph: &Graph) -> BTreeSet<Vec<String>> {
    let modules: BTreeSet<&String> = graph.keys().flat_map(|(from, to)| [from, to]).collect();
    let reached: BTreeMap<&String, BTreeSet<&String>> =
        modules.iter().map(|module| (*module, reachable(graph, module))).collect();
    let reaches = |from: &String, to: &String| reached.get(from).is_some_and(|it| it.contains(to));
    let cycle_of = |module: &&String| -> Vec<String> {
        let both_ways = modules.iter().filter(|it| reaches(module, it) && reaches(it, module));
        both_ways.map(|it| (*it).clone()).collect()
    };
    modules.iter().map(cycle_of).filter(|cycle| cycle.len() > 1).collect()
}

fn reachable<'a>(graph: &'a Graph, start: &'a String) -> BTreeSet<&'a String> {
    let mut reached = BTreeSet::new();
    let mut pending = vec![start];
    while let Some(module) = pending.pop() {
        let next = graph.keys().filter(|(from, _)| from == module).map(|(_, to)| to);
        pending.extend(next.filter(|to| reached.insert(*to)));
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sources(files: &[(&str, &str)]) -> Vec<Source> {
        files.iter().map(|(path, text)| Source::new(format!("c/src/{path}"), *text)).collect()
    }

    fn check_cycles(files: &[(&str, &str)], expected: &[&[&str]]) {
        let found = cycles(&graph("c", &sources(files)));
        let found: Vec<Vec<String>> = found.into_iter().collect();
        assert_eq!(found, expected, "{files:?}");
    }

    #[test]
    fn modules_that_only_look_down_form_no_cycle() {
        check_cycles(
            &[
                ("lib.rs", "mod a; mod b; mod c; use a::A; use b::B;"),
                ("a.rs", "use crate::b::B; use crate::{c, c::D}; use std::fmt;"),
                ("a/x.rs", "use super::A; use super::super::b; use crate::a::y;"),
                ("a/y.rs", "use super::x::Y; use self::z;"),
                ("b.rs", "use crate::c; use other::a::A; fn f() { b::g() }"),
            ],
            &[],
        );
    }

    #[test]
    fn a_cycle_is_found_however_it_is_written() {
        for back in [
            "use crate::a;",
            "use crate::a::A as X;",
            "use crate::{c, a::{self, A}};",
            "pub(crate) use crate::a::*;",
            "use super::a::A;",
            "fn f() { crate::a::g(); }",
            "fn f(x: &super::a::A) {}",
            "mod inner { use super::super::a; }",
            "macro_rules! m { () => { $crate::a::A } }",
            // Through the root, which re-exports it.
            "use crate::A;",
            "fn f(x: crate::Alias) {}",
        ] {
            let root = "mod a; mod b; mod c; pub use a::A; pub use self::a::B as Alias;";
            let files = [("lib.rs", root), ("a.rs", "use crate::b;"), ("c.rs", ""), ("b.rs", back)];
            check_cycles(&files, &[&["a", "b"]]);
            let folder = [("lib.rs", root), ("a/x.rs", "use crate::b;"), ("b.rs", back)];
            check_cycles(&folder, &[&["a", "b"]]);
        }
        let long =
            [("a.rs", "use crate::b;"), ("b.rs", "use crate::c;"), ("c.rs", "use crate::a;")];
        check_cycles(&long, &[&["a", "b", "c"]]);
    }

    #[test]
    fn what_is_there_for_tests_forms_no_cycle() {
        for (path, text) in [
            ("b.rs", "#[cfg(test)]\nmod tests { use crate::a::A; }"),
            ("b.rs", "#[cfg(test)]\nuse crate::a::A;"),
            ("b.rs", "// use crate::a;\nconst X: &str = \"crate::a::A\";"),
            ("b/tests.rs", "use crate::a::A;"),
            ("b/walk.rs", "use crate::a::A;"),
            ("b.rs", "fn f() {} pub(in crate::a) struct B;"),
        ] {
            let walk = ("b.rs", "#[cfg(test)]\nmod walk;");
            check_cycles(&[("a.rs", "use crate::b;"), walk, (path, text)], &[]);
        }
    }

    #[test]
    fn the_table_knows_what_may_stay_and_says_what_is_gone() {
        let cycle = sources(&[("a.rs", "use crate::b;"), ("b.rs", "use crate::a;")]);
        let clean = sources(&[("a.rs", "use crate::b;"), ("b.rs", "")]);
        let known: &Table = &[("c", &[&["a", "b"]])];
        assert!(check(&["c"], &cycle, known).is_empty());
        assert!(check(&["c"], &clean, &[]).is_empty());
        let new = check(&["c"], &cycle, &[]);
        assert!(matches!(new.as_slice(), [it] if it.contains("a → b  c/src/a.rs:1")), "{new:?}");
        let gone = check(&["c"], &clean, known);
        assert!(matches!(gone.as_slice(), [it] if it.contains("no cycle any more")), "{gone:?}");
        // One module more is another cycle.
        let wider: &Table = &[("c", &[&["a", "b", "d"]])];
        assert_eq!(check(&["c"], &cycle, wider).len(), 2);
    }
}
