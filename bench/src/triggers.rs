//! What triggers cost, on reveille's engine alone: writes of documents beside none, ten and a thousand
//! conditions, with those conditions in a bare loop; how soon a change is delivered, and how soon
//! beside a hot document.

use std::process::{Command, Stdio};

use anyhow::{Context as _, ensure};
use harness::{command, workspace};
use serde_json::Value;

use crate::environment::Environment;
use crate::server::DataDir;

pub(crate) fn run(environment: &Environment) -> anyhow::Result<Value> {
    let example = ["build", "--release", "--package", "reveille-engine", "--example", "triggers"];
    command::call_quietly(&mut workspace::cargo(&example))?;
    let (seconds, rounds) = if environment.quick { ("2", "1") } else { ("10", "5") };
    eprintln!("triggers      {rounds} rounds of {seconds} s");
    let data = DataDir::new(&environment.target, "triggers")?;
    let program = environment.target.join("release/examples/triggers");
    let mut command = Command::new(program);
    command.args([seconds, rounds]).arg(data.path()).stdin(Stdio::null()).stderr(Stdio::inherit());
    let output = command.output().context("cannot start the engine with triggers")?;
    ensure!(output.status.success(), "the engine with triggers ended with {}", output.status);
    serde_json::from_slice(&output.stdout).context("its report is not JSON")
}
