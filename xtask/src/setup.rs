//! Fetches what cargo does not: the npm packages of the tests and of an example.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail};
use harness::command::call;
use harness::workspace;

/// What vitest, which runs the suite, asks for.
const NODE_MIN: (u32, u32) = (20, 19);

const SUITE: &str = "tests/conformance";
/// Everything that has a lockfile.
const PROJECTS: [&str; 3] = [SUITE, WEBHOOKS, "examples/agent-node"];
const WEBHOOKS: &str = "tests/webhooks";

pub(crate) fn npm_project() -> PathBuf {
    workspace::root().join(SUITE)
}

/// Where deliveries are verified with a library that others wrote.
pub(crate) fn webhooks_project() -> PathBuf {
    workspace::root().join(WEBHOOKS)
}

/// Installs the packages that are missing or whose lockfile has changed since.
pub(crate) fn npm_packages() -> anyhow::Result<()> {
    for name in PROJECTS {
        let project = workspace::root().join(name);
        let wanted = std::fs::read(project.join("package-lock.json"))?;
        // A copy of the lockfile that was installed: npm's own is not byte for byte the same.
        let installed = project.join("node_modules/.installed-lock.json");
        if std::fs::read(&installed).is_ok_and(|bytes| bytes == wanted) {
            println!("npm packages: {name} is up to date");
            continue;
        }
        require_node()?;
        println!("npm packages: installing into {name}/node_modules");
        let mut npm = Command::new("npm");
        npm.args(["ci", "--no-audit", "--no-fund"]).current_dir(&project);
        call(&mut npm).context("check the network and npm's registry settings, then repeat")?;
        std::fs::write(&installed, wanted)?;
    }
    Ok(())
}

fn require_node() -> anyhow::Result<()> {
    let (major, minor) = NODE_MIN;
    let advice = format!(
        "install node {major}.{minor} or newer with npm (https://nodejs.org), \
         then run `cargo xtask setup`"
    );
    for program in ["node", "npm"] {
        let asked = Command::new(program).arg("--version").stdin(Stdio::null()).output();
        let Ok(output) = asked else {
            bail!("{program} is not installed: {advice}");
        };
        let version = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        if program == "node" && parse(&version).is_none_or(|found| found < NODE_MIN) {
            bail!("node is {version:?}: {advice}");
        }
    }
    Ok(())
}

/// `v20.19.1` is (20, 19).
fn parse(version: &str) -> Option<(u32, u32)> {
    let mut numbers = version.strip_prefix('v')?.split('.');
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_versions_are_compared_as_numbers() {
        assert_eq!(parse("v20.19.1"), Some((20, 19)));
        assert_eq!(parse("nonsense"), None);
        assert!(parse("v9.9.9").is_some_and(|version| version < NODE_MIN));
        assert!(parse("v22.3.0").is_some_and(|version| version > NODE_MIN));
    }
}
