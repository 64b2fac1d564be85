//! `bench`: measures reveille beside its peers; `cargo xtask bench` does the same.

use std::process::ExitCode;

use clap::Parser;
use harness::command;

/// Measures reveille beside its peers and writes target/bench/report.{md,json,svg}
#[derive(Debug, Parser)]
#[command(name = "bench")]
struct Cli {
    #[command(flatten)]
    options: bench::Options,
}

fn main() -> ExitCode {
    command::exit_code(bench::run(&Cli::parse().options))
}
