//! Which package of the workspace may depend on which: edges go one way.

use crate::source::Source;

pub(crate) type Table = [(&'static str, &'static [&'static str])];

/// Entries of packages that do not exist yet are no mistake; a package without an entry is.
pub(crate) const EDGES: &Table = &[
    ("reveille-core", &[]),
    ("reveille-schema", &["reveille-core"]),
    ("reveille-store", &["reveille-core"]),
    ("reveille-deliver", &["reveille-core"]),
    ("reveille-kernel", &["reveille-core", "reveille-store", "reveille-deliver"]),
    (
        "reveille-engine",
        &[
            "reveille-core",
            "reveille-schema",
            "reveille-store",
            "reveille-deliver",
            "reveille-kernel",
        ],
    ),
    ("reveille-server", &["reveille-core", "reveille-engine", "reveille-kernel"]),
    ("reveille-load", &[]),
    (
        "reveille",
        &[
            "reveille-core",
            "reveille-schema",
            "reveille-store",
            "reveille-deliver",
            "reveille-kernel",
            "reveille-engine",
            "reveille-server",
            "reveille-load",
        ],
    ),
    (
        "reveille-sim",
        &[
            "reveille-core",
            "reveille-schema",
            "reveille-store",
            "reveille-deliver",
            "reveille-kernel",
            "reveille-engine",
        ],
    ),
    ("harness", &[]),
    ("torture", &["harness"]),
    ("bench", &["harness"]),
    ("xtask", &["harness", "torture", "bench"]),
];

/// A package, and everything that its manifest depends on outside of tests.
struct Manifest {
    package: String,
    dependencies: Vec<String>,
}

/// The edges of the manifests that are not in the table.
pub(crate) fn check(manifests: &[Source], table: &Table) -> Vec<String> {
    let manifests: Vec<Manifest> = manifests.iter().filter_map(Manifest::read).collect();
    let is_ours = |name: &str| manifests.iter().any(|it| it.package == name);
    let mut violations = Vec::new();
    for Manifest { package, dependencies } in &manifests {
        let Some((_, allowed)) = table.iter().find(|(name, _)| name == package) else {
            violations.push(format!("{package} has no place in EDGES"));
            continue;
        };
        let forbidden = dependencies
            .iter()
            .filter(|it| is_ours(it.as_str()) && !allowed.contains(&it.as_str()));
        violations.extend(forbidden.map(|it| format!("{package} must not depend on {it}")));
    }
    violations
}

impl Manifest {
    /// `None` for a workspace without a package.
    fn read(source: &Source) -> Option<Manifest> {
        let (mut package, mut dependencies, mut section) = (None, Vec::new(), "");
        for line in source.text.lines().map(str::trim) {
            if let Some(header) = line.strip_prefix('[') {
                section = header.trim_end_matches(']');
                // `[dependencies.name]`
                if let Some((kind, name)) = section.rsplit_once('.') {
                    dependencies.extend(is_dependencies(kind).then(|| unquoted(name)));
                }
                continue;
            }
            let Some((key, value)) = line.split_once('=') else { continue };
            let key = key.trim();
            if section == "package" && key == "name" {
                package = Some(unquoted(value));
            } else if is_dependencies(section) {
                // The name here, or the package that is renamed to it.
                dependencies.push(unquoted(key.split('.').next().unwrap_or(key)));
                let renamed = value.split_once("package").and_then(|(_, it)| it.split('"').nth(1));
                dependencies.extend(renamed.map(str::to_owned));
            } else if key == "package" && section.contains("dependencies.") {
                dependencies.push(unquoted(value));
            }
        }
        Some(Manifest { package: package?, dependencies })
    }
}

/// What a package is built with, on every target or on some; tests may know more.
fn is_dependencies(section: &str) -> bool {
    let kind = section.rsplit('.').next().unwrap_or(section);
    matches!(kind, "dependencies" | "build-dependencies")
}

fn unquoted(text: &str) -> String {
    text.trim().trim_matches('"').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &Table = &[("low", &[]), ("high", &["low"]), ("future", &["high"])];

    fn check_manifests(low: &str, high: &str, expected: &[&str]) {
        let manifest = |name: &str, rest: &str| {
            let text = format!("[package]\nname = \"{name}\"\n\n{rest}");
            Source::new(format!("{name}/Cargo.toml"), text)
        };
        let root = Source::new("Cargo.toml", "[workspace]\nmembers = [\"low\", \"high\"]\n");
        let found = check(&[root, manifest("low", low), manifest("high", high)], TABLE);
        assert_eq!(found, expected, "{low} {high}");
    }

    #[test]
    fn an_edge_that_points_down_is_allowed() {
        let deps = "[dependencies]\nanyhow = \"1\"\nlow.workspace = true\n";
        check_manifests("", deps, &[]);
        check_manifests("[dev-dependencies]\nhigh.workspace = true\n", deps, &[]);
    }

    #[test]
    fn an_edge_that_points_up_is_found_however_it_is_written() {
        for planted in [
            "[dependencies]\nhigh.workspace = true\n",
            "[dependencies]\nhigh = { path = \"../high\" }\n",
            "[dependencies]\nother = { package = \"high\", path = \"../high\" }\n",
            "[dependencies.high]\npath = \"../high\"\n",
            "[dependencies.other]\npackage = \"high\"\n",
            "[build-dependencies]\nhigh.workspace = true\n",
            "[target.'cfg(unix)'.dependencies]\nhigh.workspace = true\n",
        ] {
            check_manifests(planted, "", &["low must not depend on high"]);
        }
    }

    #[test]
    fn a_package_without_a_place_is_found() {
        let stranger = Source::new("x/Cargo.toml", "[package]\nname = \"x\"\n");
        assert_eq!(check(&[stranger], TABLE), ["x has no place in EDGES"]);
    }
}
