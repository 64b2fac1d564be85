//! The domains: the kernel knows none of them, and in the engine none reaches into another.

use std::collections::BTreeSet;

use crate::modules;
use crate::paths::paths;
use crate::source::{Source, code, tokens, without_tests};

pub(crate) const KERNEL: &str = "crates/kernel";
pub(crate) const ENGINE: &str = "crates/engine";
const CORE: &str = "crates/core";

const DOMAINS: [&str; 9] =
    ["streams", "wakes", "deliveries", "events", "documents", "triggers", "facts", "auth", "audit"];
/// Domains that every other may use.
const SHARED_DOMAINS: [&str; 3] = ["streams", "deliveries", "audit"];
/// Modules of `core` that belong to no domain. So does what its root re-exports.
const SHARED_WORDS: [&str; 6] = ["time", "tenant", "limits", "rate", "trace", "key_range"];

/// From which domain into which, each with a reason to be there for now.
pub(crate) type Table = [(&'static str, &'static str)];

/// Where the kernel names a domain of `core`, or has one itself.
pub(crate) fn check_kernel(sources: &[Source]) -> Vec<String> {
    let core = modules::top_modules(CORE, sources);
    let mut violations: Vec<String> = modules::top_modules(KERNEL, sources)
        .iter()
        .filter(|module| DOMAINS.contains(&module.as_str()))
        .map(|module| format!("{KERNEL}: {module} is a domain, the kernel knows none"))
        .collect();
    let own = format!("{KERNEL}/src/");
    for source in sources.iter().filter(|it| it.path.starts_with(&own) && !it.is_test()) {
        let code = code(&source.text);
        for path in paths(&without_tests(&tokens(&code))) {
            if path.segments.first().is_some_and(|first| first == "reveille_core")
                && !is_shared(path.segments.get(1), &core)
            {
                let (file, line, path) = (&source.path, path.line, path.segments.join("::"));
                violations.push(format!("{file}:{line}: {path} is no word for the kernel"));
            }
        }
    }
    violations
}

fn is_shared(word: Option<&String>, core: &BTreeSet<String>) -> bool {
    // The crate as a whole, by its name or by another, would hide what is used of it.
    word.is_some_and(|word| {
        SHARED_WORDS.contains(&word.as_str()) || (word != "*" && !core.contains(word))
    })
}

/// Where a domain of the engine reaches into another, and the entries of the table that are gone.
pub(crate) fn check_engine(sources: &[Source], table: &Table) -> Vec<String> {
    let is_sideways = |from: &str, to: &str| {
        DOMAINS.contains(&from) && DOMAINS.contains(&to) && !SHARED_DOMAINS.contains(&to)
    };
    let graph = modules::graph(ENGINE, sources);
    let new = graph.iter().filter(|((from, to), _)| {
        is_sideways(from, to) && !table.contains(&(from.as_str(), to.as_str()))
    });
    let new = new.map(|((from, to), place)| format!("{place}: {from} reaches into {to}"));
    let is_gone = |(from, to): &&(&str, &str)| {
        !is_sideways(from, to) || !graph.contains_key(&((*from).to_owned(), (*to).to_owned()))
    };
    let gone = table.iter().filter(is_gone);
    let gone =
        gone.map(|(from, to)| format!("{from} does not reach into {to} any more: remove it"));
    new.chain(gone).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kernel(path: &str, text: &str) -> Vec<String> {
        let mut sources = ["lib", "time", "wakes/claim", "stream"]
            .map(|it| Source::new(format!("{CORE}/src/{it}.rs"), ""))
            .to_vec();
        sources.push(Source::new(format!("{KERNEL}/src/{path}"), text));
        check_kernel(&sources)
    }

    #[test]
    fn the_kernel_may_use_the_shared_words() {
        for clean in [
            "use reveille_core::{Millis, time::Clock, limits::BATCH_MAX};",
            "fn f(x: reveille_core::Tenant, y: reveille_core::trace::Trace) {}",
            "// reveille_core::wakes\nuse reveille_store::wakes; use crate::stream;",
            "#[cfg(test)]\nmod tests { use reveille_core::wakes::Claim; }",
        ] {
            assert_eq!(kernel("timers.rs", clean), [""; 0], "{clean}");
        }
        assert_eq!(kernel("timers/tests.rs", "use reveille_core::wakes::Claim;"), [""; 0]);
    }

    #[test]
    fn a_domain_in_the_kernel_is_found() {
        for planted in [
            "use reveille_core::wakes::Claim;",
            "use reveille_core::{time::Millis, stream};",
            "fn f(x: &reveille_core::stream::Head) {}",
            "use reveille_core::*;",
            "use reveille_core as words;",
        ] {
            let found = kernel("timers.rs", planted);
            assert!(matches!(found.as_slice(), [it] if it.contains("timers.rs:1: ")), "{found:?}");
        }
        assert_eq!(kernel("wakes/index.rs", "").len(), 1);
    }

    fn engine(from: &str, text: &str, table: &Table) -> Vec<String> {
        let mut sources = ["lib", "streams", "wakes/claim", "events", "deliveries", "doors"]
            .map(|it| Source::new(format!("{ENGINE}/src/{it}.rs"), ""))
            .to_vec();
        sources.push(Source::new(format!("{ENGINE}/src/{from}/extra.rs"), text));
        check_engine(&sources, table)
    }

    #[test]
    fn a_domain_may_use_itself_and_what_all_may_use() {
        let clean = "use crate::{streams::Head, deliveries, doors::Clock, events::ingest};";
        assert_eq!(engine("events", clean, &[]), [""; 0]);
        assert_eq!(engine("doors", "use crate::wakes::claim;", &[]), [""; 0]);
    }

    #[test]
    fn a_domain_that_reaches_sideways_is_found() {
        for from in ["events", "streams", "deliveries"] {
            let found = engine(from, "fn f() { crate::wakes::claim::take() }", &[]);
            assert!(
                matches!(found.as_slice(), [it] if it.ends_with("reaches into wakes")),
                "{found:?}"
            );
        }
        let known: &Table = &[("events", "wakes")];
        assert_eq!(engine("events", "use crate::wakes;", known), [""; 0]);
        assert_eq!(engine("events", "", known).len(), 1);
    }
}
