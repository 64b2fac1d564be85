//! The simulator: a program of its own, so that a seed can be run again under any debugger.

use std::ffi::OsStr;
use std::process::Command;

use crate::steps;
use crate::workspace::{self, cargo};

pub(crate) fn run(mut args: Vec<String>) -> anyhow::Result<()> {
    let given = args.len();
    args.retain(|arg| arg != "--release");
    let release = args.len() < given;
    if !release {
        steps::call(&mut cargo(&["build", "--workspace", "--bin", "reveille-sim"]))?;
        return run_built(&args);
    }
    let mut command = cargo(&["run", "--release", "--package", "reveille-sim", "--"]);
    steps::call(command.args(args))
}

pub(crate) fn run_built<S: AsRef<OsStr>>(args: &[S]) -> anyhow::Result<()> {
    steps::call(Command::new(workspace::built()?.join("reveille-sim")).args(args))
}
