//! What is measured of reveille's engine alone, which runs in a process of its own with its load and
//! its endpoint: one of the examples of its crate.

use std::process::{Command, Stdio};

use anyhow::{Context as _, ensure};
use harness::{command, workspace};
use serde_json::Value;

use crate::environment::Environment;
use crate::server::DataDir;

/// Builds and runs an example. Its arguments are seconds, rounds and a directory, its report is JSON.
pub(crate) fn run(environment: &Environment, example: &str) -> anyhow::Result<Value> {
    let build = ["build", "--release", "--package", "reveille-engine", "--example", example];
    command::call_quietly(&mut workspace::cargo(&build))?;
    let (seconds, rounds) = if environment.quick { ("2", "1") } else { ("10", "5") };
    eprintln!("{example:12}  {rounds} rounds of {seconds} s");
    let data = DataDir::new(&environment.target, example)?;
    let mut command = Command::new(environment.target.join("release/examples").join(example));
    command.args([seconds, rounds]).arg(data.path()).stdin(Stdio::null()).stderr(Stdio::inherit());
    let output = command.output().with_context(|| format!("cannot start the example {example}"))?;
    ensure!(output.status.success(), "the example {example} ended with {}", output.status);
    serde_json::from_slice(&output.stdout).context("its report is not JSON")
}
