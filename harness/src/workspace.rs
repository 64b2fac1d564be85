//! Where things are, and how they are built: once, with one profile, for every command.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;

use crate::command;

pub fn root() -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.parent().unwrap_or(manifest).to_owned()
}

/// The directory this very program was built into: `target/debug`.
pub fn build_directory() -> anyhow::Result<PathBuf> {
    let program = std::env::current_exe()?;
    Ok(program.parent().context("a program lies in a directory")?.to_owned())
}

/// `target`, or where cargo was told to build instead.
pub fn target() -> anyhow::Result<PathBuf> {
    let built = build_directory()?;
    Ok(built.parent().context("target/debug lies in target")?.to_owned())
}

/// An empty directory for a command to work in, `target/xtask/NAME`.
pub fn scratch(name: &str) -> anyhow::Result<PathBuf> {
    let scratch = target()?.join("xtask").join(name);
    if scratch.exists() {
        std::fs::remove_dir_all(&scratch)?;
    }
    std::fs::create_dir_all(&scratch)?;
    Ok(scratch)
}

/// The binary under test.
pub fn reveille() -> anyhow::Result<PathBuf> {
    match std::env::var_os("REVEILLE_BIN") {
        Some(path) => Ok(path.into()),
        None => Ok(build_directory()?.join("reveille")),
    }
}

/// The cargo that runs us, so that a toolchain chosen on the command line stays chosen.
pub fn cargo(args: &[&str]) -> Command {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(args).current_dir(root());
    command
}

/// Everything `cargo test` and the other commands run. Named together so that they share one set
/// of features: built apart, dependencies would be compiled twice.
pub fn build_all() -> anyhow::Result<()> {
    command::call(&mut cargo(&["build", "--workspace", "--lib", "--bins", "--tests"]))
}

pub fn build_server() -> anyhow::Result<()> {
    if std::env::var_os("REVEILLE_BIN").is_some() {
        return Ok(());
    }
    command::call(&mut cargo(&["build", "--workspace", "--bin", "reveille"]))
}
