//! The house rules that a compiler does not check: edges between crates, sizes of files, words.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Lines of a source file; tests in a file of their own are not counted.
const LINES_MAX: usize = 1_000;

/// Who may know whom. No edge goes the other way.
const EDGES: &[(&str, &[&str])] = &[
    ("reveille-core", &[]),
    ("reveille-store", &["reveille-core"]),
    ("reveille-deliver", &["reveille-core"]),
    ("reveille-engine", &["reveille-core", "reveille-deliver", "reveille-store"]),
    ("reveille-server", &["reveille-core", "reveille-engine"]),
    ("reveille-load", &[]),
    (
        "reveille",
        &[
            "reveille-core",
            "reveille-deliver",
            "reveille-engine",
            "reveille-load",
            "reveille-server",
            "reveille-store",
        ],
    ),
    ("reveille-sim", &["reveille-core", "reveille-deliver", "reveille-engine", "reveille-store"]),
    ("harness", &[]),
    ("torture", &["harness"]),
    ("bench", &["harness"]),
    ("xtask", &["bench", "harness", "torture"]),
];

/// Packages that do I/O, wait, or draw randomness: none may be below `core`.
const IO_PACKAGES: &[&str] =
    &["tokio", "hyper", "getrandom", "rand", "rustix", "libc", "fjall", "mio", "socket2"];

/// Module names that say nothing.
const VAGUE: &[&str] = &["utils", "util", "helpers", "manager", "common", "types", "misc", "mod"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask is in the workspace").to_owned()
}

fn files(directory: &Path, extension: &str, found: &mut Vec<PathBuf>) {
    let skipped = ["target", "node_modules", ".git", "reveille-data"];
    for entry in fs::read_dir(directory).expect("the workspace can be read") {
        let path = entry.expect("the workspace can be read").path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if path.is_dir() && !skipped.contains(&name) {
            files(&path, extension, found);
        } else if path.extension().is_some_and(|known| known == extension) {
            found.push(path);
        }
    }
}

fn sources() -> Vec<PathBuf> {
    let mut found = Vec::new();
    files(&root(), "rs", &mut found);
    assert!(found.len() > 50, "the sources are found");
    found
}

/// The workspace's own packages that each of them depends on, tests left out.
fn edges() -> BTreeMap<String, Vec<String>> {
    let mut manifests = Vec::new();
    files(&root(), "toml", &mut manifests);
    let mut edges = BTreeMap::new();
    for path in manifests.iter().filter(|path| path.ends_with("Cargo.toml")) {
        let text = fs::read_to_string(path).expect("a manifest can be read");
        let (mut package, mut section, mut known) = (None, String::new(), Vec::new());
        for line in text.lines() {
            if line.starts_with('[') {
                section = line.to_owned();
            } else if let Some(name) =
                line.strip_prefix("name = ").filter(|_| section == "[package]")
            {
                package = Some(name.trim_matches('"').to_owned());
            } else if section == "[dependencies]" {
                let name = line.split(['.', ' ', '=']).next().unwrap_or_default();
                if EDGES.iter().any(|(package, _)| *package == name) {
                    known.push(name.to_owned());
                }
            }
        }
        if let Some(package) = package {
            edges.insert(package, known);
        }
    }
    edges
}

#[test]
fn crates_know_only_those_below_them() {
    let found = edges();
    for (package, known) in &found {
        let allowed = EDGES.iter().find(|(name, _)| name == package);
        let (_, allowed) = allowed.unwrap_or_else(|| panic!("{package} has no place in EDGES"));
        for other in known {
            assert!(allowed.contains(&other.as_str()), "{package} must not depend on {other}");
        }
    }
    assert_eq!(found.len(), EDGES.len(), "EDGES names a package that is gone");
}

#[test]
fn nothing_below_core_does_io() {
    let output = std::process::Command::new(env!("CARGO"))
        .args(["tree", "-p", "reveille-core", "-e", "normal", "--prefix", "none", "--offline"])
        // The parser of CEL has a lock, and that knows how a thread waits; it does nothing else.
        .args(["--prune", "parking_lot_core"])
        .current_dir(root())
        .output()
        .expect("cargo runs");
    let tree = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && tree.contains("bytes"), "cargo tree works");
    for line in tree.lines() {
        let package = line.split(' ').next().unwrap_or_default();
        assert!(!IO_PACKAGES.contains(&package), "core reaches {package}");
    }
}

#[test]
fn files_stay_small_and_say_what_they_are() {
    for path in sources() {
        let text = fs::read_to_string(&path).expect("a source can be read");
        let name = path.strip_prefix(root()).unwrap_or(&path).display().to_string();
        let is_test_file = name.ends_with("/tests.rs") || name.contains("/tests/");
        let lines = text.lines().count();
        assert!(is_test_file || lines <= LINES_MAX, "{name} has {lines} lines: split it");
        assert!(text.starts_with("//! "), "{name} does not begin with what it is");
        let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
        assert!(!VAGUE.contains(&stem), "{name}: the name says nothing");
    }
}

#[test]
fn no_test_is_ignored_and_no_work_is_left_without_an_issue() {
    // Put together here so that this file does not find itself.
    let banned = [["#[ign", "ore"].concat(), ["TO", "DO"].concat(), ["FIX", "ME"].concat()];
    for path in sources() {
        let text = fs::read_to_string(&path).expect("a source can be read");
        for word in &banned {
            assert!(!text.contains(word.as_str()), "{} has {word}", path.display());
        }
    }
}
