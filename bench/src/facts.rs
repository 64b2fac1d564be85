//! What the gate of facts costs, on reveille's engine alone: their deliveries beside those of events,
//! and facts written beside appends.

use std::process::{Command, Stdio};

use anyhow::{Context as _, ensure};
use harness::{command, workspace};
use serde_json::Value;

use crate::environment::Environment;
use crate::server::DataDir;

pub(crate) fn run(environment: &Environment) -> anyhow::Result<Value> {
    let example = ["build", "--release", "--package", "reveille-engine", "--example", "facts"];
    command::call_quietly(&mut workspace::cargo(&example))?;
    let (seconds, rounds) = if environment.quick { ("2", "1") } else { ("10", "5") };
    eprintln!("facts         {rounds} rounds of {seconds} s");
    let data = DataDir::new(&environment.target, "facts")?;
    let program = environment.target.join("release/examples/facts");
    let mut command = Command::new(program);
    command.args([seconds, rounds]).arg(data.path()).stdin(Stdio::null()).stderr(Stdio::inherit());
    let output = command.output().context("cannot start the engine with facts")?;
    ensure!(output.status.success(), "the engine with facts ended with {}", output.status);
    serde_json::from_slice(&output.stdout).context("its report is not JSON")
}
