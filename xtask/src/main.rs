//! `cargo xtask`: the index of this repository's commands. Needs nothing installed but cargo,
//! and node for what `setup` fetches.

// These commands start real processes, wait for them, measure them and damage their files.
#![allow(clippy::disallowed_methods)]

mod check;
mod conformance;
mod crash;
mod sim;

mod bench;

mod args;
mod server;
mod setup;
mod steps;
mod workspace;

use std::process::ExitCode;

use anyhow::bail;

use steps::{Steps, Tally};

const INDEX: &str = "\
The commands of this repository.

Usage: cargo xtask COMMAND [OPTIONS]

  test                                 everything CI runs: all of the below but bench
  check                                formatting and lints
  conformance [--rounds N]             the published Durable Streams suite
  client                               the official TypeScript client across kill -9
  examples                             the agents under examples/, woken across kill -9
  webhooks                             deliveries, verified with a published library
  crash [--rounds N] [--flips N] [--seed S]
                                       kill -9 under load, then flipped bits
  deliveries [--rounds N] [--seed S]   kill -9 while events are taken in and delivered
  sim [--seeds N] [--seed S] [--wakes | --deliveries] [--lag] [--unsynced] [--trace]
      [--release]
                                       the simulator: many seeds, or one again; of streams, of
                                       subscriptions and their consumers, or of deliveries
  bench …                              reveille beside its peers; `bench --help` says how
  setup                                fetch what cargo does not: npm packages
  help                                 this text

REVEILLE_BIN runs another binary than target/debug/reveille; REVEILLE_TEST_URL runs the
conformance suite against a server that is already up.

Example: cargo xtask crash --rounds 20 --seed 7
";

/// The rounds, seeds and samples of `cargo xtask test`.
const SUITE_ROUNDS: u64 = 3;
const SIM: [&[&str]; 5] = [
    &["--seeds", "1000"],
    &["--seeds", "1000", "--lag"],
    &["--seeds", "300", "--unsynced"],
    &["--seeds", "1000", "--wakes"],
    &["--seeds", "1000", "--deliveries"],
];
const CRASH_ROUNDS: u64 = 200;
const DELIVERY_ROUNDS: u64 = 100;
const FLIPS: u64 = 60;

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let command = args.next().unwrap_or_else(|| "help".to_owned());
    match run(&command, args.collect()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: &str, args: Vec<String>) -> anyhow::Result<()> {
    match command {
        "test" => {
            args::none(args)?;
            test()
        }
        "check" => {
            args::none(args)?;
            check::format()?;
            check::lint()
        }
        "conformance" => {
            let [rounds] = args::numbers(args, ["--rounds"])?;
            workspace::build_server()?;
            passed(conformance::suite(rounds.unwrap_or(1))?)
        }
        "client" => {
            args::none(args)?;
            workspace::build_server()?;
            passed(conformance::client()?)
        }
        "examples" => {
            args::none(args)?;
            workspace::build_server()?;
            passed(conformance::examples()?)
        }
        "webhooks" => {
            args::none(args)?;
            workspace::build_server()?;
            passed(conformance::webhooks()?)
        }
        "crash" => {
            let [rounds, flips, seed] = args::numbers(args, ["--rounds", "--flips", "--seed"])?;
            workspace::build_server()?;
            let rounds = rounds.unwrap_or(CRASH_ROUNDS);
            passed(crash::run(rounds, flips.unwrap_or(FLIPS), seed)?)
        }
        "deliveries" => {
            let [rounds, seed] = args::numbers(args, ["--rounds", "--seed"])?;
            workspace::build_server()?;
            passed(crash::deliveries::run(rounds.unwrap_or(DELIVERY_ROUNDS), seed)?)
        }
        "sim" => sim::run(args),
        "bench" => bench::run(args),
        "setup" => {
            args::none(args)?;
            setup::npm_packages()
        }
        "help" | "--help" | "-h" => {
            print!("{INDEX}");
            Ok(())
        }
        unknown => bail!("there is no command {unknown:?}; `cargo xtask help` lists them"),
    }
}

/// Everything that must hold before a change is merged. A failure does not hide the next one,
/// except that nothing is run that could not be built.
fn test() -> anyhow::Result<()> {
    let mut steps = Steps::default();
    steps.run("format", || check::format().map(Tally::one));
    steps.run("lint", || check::lint().map(Tally::one));
    if steps.run("build", || workspace::build_all().map(Tally::none)) {
        steps.run("cargo test", check::cargo_test);
        for args in SIM {
            steps.run("simulator", || sim::run_built(args).map(Tally::one));
        }
        steps.run("conformance", || conformance::suite(SUITE_ROUNDS));
        steps.run("client", conformance::client);
        steps.run("examples", conformance::examples);
        steps.run("webhooks", conformance::webhooks);
        steps.run("crash", || crash::run(CRASH_ROUNDS, FLIPS, None));
        steps.run("deliveries", || crash::deliveries::run(DELIVERY_ROUNDS, None));
    }
    steps.finish()
}

fn passed(tally: Tally) -> anyhow::Result<()> {
    println!("{tally}");
    if tally.failed > 0 {
        bail!("{} failed", tally.failed);
    }
    Ok(())
}
