//! What order costs, on reveille's engine alone: deliveries to one hook over a thousand lanes, beside
//! the same in no order and beside a lane that is stuck.
//!
//! The engine runs in a process of its own, with a face of its own that has lanes or has none.

use std::process::{Command, Stdio};

use anyhow::{Context as _, ensure};
use harness::{command, workspace};
use serde_json::Value;

use crate::environment::Environment;
use crate::server::DataDir;

pub(crate) fn run(environment: &Environment) -> anyhow::Result<Value> {
    let example = ["build", "--release", "--package", "reveille-engine", "--example", "lanes"];
    command::call_quietly(&mut workspace::cargo(&example))?;
    let (seconds, rounds) = if environment.quick { ("2", "1") } else { ("10", "5") };
    eprintln!("lanes         {rounds} rounds of {seconds} s");
    let data = DataDir::new(&environment.target, "lanes")?;
    let program = environment.target.join("release/examples/lanes");
    let mut command = Command::new(program);
    command.args([seconds, rounds]).arg(data.path()).stdin(Stdio::null()).stderr(Stdio::inherit());
    let output = command.output().context("cannot start the engine with lanes")?;
    ensure!(output.status.success(), "the engine with lanes ended with {}", output.status);
    serde_json::from_slice(&output.stdout).context("its report is not JSON")
}
