//! The house rules that a compiler does not check: edges between crates and between modules, the
//! domains, sizes of files and functions, words, the table of limits. Each rule is a function over
//! sources, tested by planting what it must find; here it is run on the workspace.

mod domains;
mod edges;
mod limits;
mod modules;
mod sizes;
mod wording;

mod known;

mod paths;
mod source;

use std::fs;
use std::path::{Path, PathBuf};

use source::Source;

/// Packages that do I/O, wait, or draw randomness: none may be below `core`.
const IO_PACKAGES: &[&str] =
    &["tokio", "hyper", "getrandom", "rand", "rustix", "libc", "fjall", "mio", "socket2"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask is in the workspace").to_owned()
}

/// All files of the workspace with this extension.
fn files(extension: &str) -> Vec<Source> {
    let root = root();
    let mut found = Vec::new();
    collect(&root, &root, extension, &mut found);
    found.sort_by(|a, b| a.path.cmp(&b.path));
    found
}

fn collect(root: &Path, directory: &Path, extension: &str, found: &mut Vec<Source>) {
    let skipped = ["target", "node_modules", ".git", "reveille-data"];
    for entry in fs::read_dir(directory).expect("the workspace can be read") {
        let path = entry.expect("the workspace can be read").path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if path.is_dir() && !skipped.contains(&name) {
            collect(root, &path, extension, found);
        } else if path.extension().is_some_and(|known| known == extension) {
            let relative = path.strip_prefix(root).expect("it lies in the workspace");
            let text = fs::read_to_string(&path).expect("a file can be read");
            found.push(Source::new(relative.display().to_string(), text));
        }
    }
}

fn sources() -> Vec<Source> {
    let found = files("rs");
    assert!(found.len() > 50, "the sources are found");
    found
}

fn manifests() -> Vec<Source> {
    let mut found = files("toml");
    found.retain(|source| source.path.ends_with("Cargo.toml"));
    assert!(found.len() > 9, "the manifests are found");
    found
}

fn assert_none(violations: &[String]) {
    assert!(violations.is_empty(), "\n{}\n", violations.join("\n"));
}

#[test]
fn crates_know_only_those_below_them() {
    assert_none(&edges::check(&manifests(), edges::EDGES));
}

#[test]
fn modules_form_no_cycles() {
    let manifests = manifests();
    let crates: Vec<&str> =
        manifests.iter().filter_map(|it| it.path.strip_suffix("/Cargo.toml")).collect();
    assert_none(&modules::check(&crates, &sources(), known::CYCLES));
}

#[test]
fn the_kernel_knows_no_domain() {
    assert_none(&domains::check_kernel(&sources()));
}

#[test]
fn no_domain_reaches_sideways() {
    assert_none(&domains::check_engine(&sources(), known::SIDEWAYS));
}

#[test]
fn files_and_functions_stay_small() {
    let sources = sources();
    let mut violations = sizes::check_files(&sources, known::LONG_FILES);
    violations.extend(sizes::check_functions(&sources, known::LONG_FUNCTIONS));
    assert_none(&violations);
}

#[test]
fn files_say_what_they_are_and_leave_nothing_for_later() {
    assert_none(&wording::check(&sources()));
}

#[test]
fn every_limit_is_documented_as_it_is() {
    let mut documents = files("md");
    documents.retain(|it| it.path == "docs/limits.md");
    let help = root().join("crates/reveille/tests/golden/reveille-serve.txt");
    let help = fs::read_to_string(help).expect("the golden help can be read");
    assert_none(&limits::check(&sources(), &documents, &help));
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
