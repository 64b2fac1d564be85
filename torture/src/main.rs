//! `torture`: kills, damages and attacks real servers; `cargo xtask crash`, `deliveries`,
//! `documents`, `facts`, `triggers` and `adversary` do the same.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use harness::{command, workspace};
use torture::{adversary, crash, deliveries, documents, facts, triggers};

/// Kills, damages and attacks real servers
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
    /// kill -9 while documents are written
    Documents(documents::Options),
    /// kill -9 while facts are said and access is taken away
    Facts(facts::Options),
    /// kill -9 while documents are written, triggers deliver, and operators change them
    Triggers(triggers::Options),
    /// Attacks on a server that serves a quiet tenant meanwhile
    Adversary(adversary::Options),
}

fn main() -> ExitCode {
    command::exit_code(run(Cli::parse().command))
}

fn run(command: Command) -> anyhow::Result<()> {
    workspace::build_server()?;
    let tally = match command {
        Command::Crash(options) => crash::run(&options)?,
        Command::Deliveries(options) => deliveries::run(&options)?,
        Command::Documents(options) => documents::run(&options)?,
        Command::Facts(options) => facts::run(&options)?,
        Command::Triggers(options) => triggers::run(&options)?,
        Command::Adversary(options) => adversary::run(&options)?,
    };
    tally.report()
}
