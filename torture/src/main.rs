//! `torture`: kills and damages real servers; `cargo xtask crash` and `deliveries` do the same.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use harness::{command, workspace};
use torture::{crash, deliveries};

/// Kills and damages real servers
#[derive(Debug, Parser)]
#[command(name = "torture")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// kill -9 under load, then flipped bits
    Crash(crash::Options),
    /// kill -9 while events are taken in and delivered
    Deliveries(deliveries::Options),
}

fn main() -> ExitCode {
    command::exit_code(run(Cli::parse().command))
}

fn run(command: Command) -> anyhow::Result<()> {
    workspace::build_server()?;
    let tally = match command {
        Command::Crash(options) => crash::run(&options)?,
        Command::Deliveries(options) => deliveries::run(&options)?,
    };
    tally.report()
}
