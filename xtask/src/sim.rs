//! The simulator: a program of its own, so that a seed can be run again under any debugger.

use std::ffi::{OsStr, OsString};
use std::process::Command;

use clap::Args;
use harness::command::call;
use harness::workspace::{self, cargo};

/// The simulator parses its options itself; only `--release` is for us.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub(crate) struct Options {
    /// [--seeds N] [--first S] [--seed S]
    /// [--wakes | --deliveries | --reminders | --documents | --triggers | --facts | --partitions]
    /// [--lag]
    /// [--unsynced | --failover] [--trace] [--release]
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "OPTIONS")]
    pub(crate) args: Vec<OsString>,
}

impl Options {
    /// Whether the release build is asked for, and the options of the simulator.
    pub(crate) fn split(&self) -> (bool, Vec<&OsStr>) {
        let args = self.args.iter().map(OsString::as_os_str);
        let (release, args): (Vec<_>, Vec<_>) = args.partition(|arg| *arg == "--release");
        (!release.is_empty(), args)
    }
}

pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let (release, args) = options.split();
    if !release {
        call(&mut cargo(&["build", "--workspace", "--bin", "reveille-sim"]))?;
        return run_built(&args);
    }
    let mut command = cargo(&["run", "--release", "--package", "reveille-sim", "--"]);
    call(command.args(args))
}

pub(crate) fn run_built<S: AsRef<OsStr>>(args: &[S]) -> anyhow::Result<()> {
    call(Command::new(workspace::build_directory()?.join("reveille-sim")).args(args))
}
