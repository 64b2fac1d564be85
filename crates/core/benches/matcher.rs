//! The matcher at a million patterns: `cargo bench -p reveille-core --bench matcher`.

#![allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

use std::time::Instant;

use reveille_core::StreamPath;
use reveille_core::matcher::Matcher;
use reveille_core::pattern::Pattern;

const PATTERNS: u64 = 1_000_000;
const PATHS: u64 = 100_000;
/// Patterns that match much, beside the million that match little.
const BROAD: &[&str] =
    &["/**", "/tenants/**", "/**/inbox", "/tenants/*/agents/**", "/*/*/*/*/inbox"];

fn pattern(index: u64) -> Pattern {
    let group = index / 10;
    let text = match index % 10 {
        0..=3 => format!("/tenants/t{group}/agents/*"),
        4..=6 => format!("/tenants/t{index}/**"),
        7 => format!("/tenants/t{group}/agents/*/inbox"),
        8 => format!("/agents/agent-{index}/**"),
        _ => format!("/orders/*/{index}"),
    };
    Pattern::parse(&text).expect("it is a pattern")
}

fn path(index: u64) -> StreamPath {
    // Far apart, so that one path does not warm the caches for the next.
    let other = index * 7919 % PATTERNS;
    let text = match index % 4 {
        0 => format!("/tenants/t{}/agents/task-{index}", other / 10),
        1 => format!("/tenants/t{}/agents/w{index}/inbox", other / 10),
        2 => format!("/agents/agent-{other}/a/b/c"),
        _ => format!("/nothing/here/{index}"),
    };
    StreamPath::parse(&text).expect("it is a path")
}

/// Resident memory; zero where there is no `/proc`.
fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok());
    pages.unwrap_or(0) * 4096
}

fn main() {
    let patterns: Vec<Pattern> = (0..PATTERNS).map(pattern).collect();
    let paths: Vec<StreamPath> = (0..PATHS).map(path).collect();
    let before = resident_bytes();

    let started = Instant::now();
    let mut matcher = Matcher::default();
    for (value, pattern) in (0..).zip(&patterns) {
        matcher.insert(pattern, value);
    }
    for (value, text) in (PATTERNS..).zip(BROAD) {
        matcher.insert(&Pattern::parse(text).expect("it is a pattern"), value);
    }
    println!("build      {:.2} s for {} patterns", started.elapsed().as_secs_f64(), matcher.len());
    let bytes = resident_bytes().saturating_sub(before);
    println!("memory     {} MB, {} bytes per pattern", bytes / 1_000_000, bytes / PATTERNS);

    let mut out = Vec::new();
    for _ in 0..3 {
        let (started, mut hits) = (Instant::now(), 0);
        for path in &paths {
            out.clear();
            matcher.matches(path, &mut out);
            hits += out.len();
        }
        let micros = started.elapsed().as_secs_f64() * 1e6 / paths.len() as f64;
        println!("match      {micros:.2} µs, {:.2} hits", hits as f64 / paths.len() as f64);
    }

    let started = Instant::now();
    for (value, pattern) in (0..).zip(&patterns) {
        assert!(matcher.remove(pattern, value), "it is there");
    }
    println!("remove     {:.2} s, {} are left", started.elapsed().as_secs_f64(), matcher.len());
}
