//! Where things are, and how they are built: once, with one profile, for every command.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;

use crate::steps;

pub(crate) fn root() -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.parent().unwrap_or(manifest).to_owned()
}

/// The directory this very program was built into: `target/debug`.
pub(crate) fn built() -> anyhow::Result<PathBuf> {
    let program = std::env::current_exe()?;
    Ok(program.parent().context("a program lies in a directory")?.to_owned())
}

/// An empty directory for a command to work in, `target/xtask/NAME`.
pub(crate) fn scratch(name: &str) -> anyhow::Result<PathBuf> {
    let target = built()?;
    let target = target.parent().context("target/debug lies in target")?;
    let scratch = target.join("xtask").join(name);
    if scratch.exists() {
        std::fs::remove_dir_all(&scratch)?;
    }
    std::fs::create_dir_all(&scratch)?;
    Ok(scratch)
}

/// The binary under test.
pub(crate) fn reveille() -> anyhow::Result<PathBuf> {
    match std::env::var_os("REVEILLE_BIN") {
        Some(path) => Ok(path.into()),
        None => Ok(built()?.join("reveille")),
    }
}

pub(crate) fn cargo(args: &[&str]) -> Command {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(args).current_dir(root());
    command
}

/// Everything `cargo test` and the other commands run. Named together so that they share one set
/// of features: built apart, dependencies would be compiled twice.
pub(crate) fn build_all() -> anyhow::Result<()> {
    steps::call(&mut cargo(&["build", "--workspace", "--lib", "--bins", "--tests"]))
}

pub(crate) fn build_server() -> anyhow::Result<()> {
    if std::env::var_os("REVEILLE_BIN").is_some() {
        return Ok(());
    }
    steps::call(&mut cargo(&["build", "--workspace", "--bin", "reveille"]))
}
