//! `cargo xtask`: the index of this repository's commands. Needs nothing installed but cargo,
//! and node for what `setup` fetches.

// Steps are timed, and the report of an earlier round is removed.
#![allow(clippy::disallowed_methods)]

mod check;
mod conformance;
mod sim;

mod setup;
mod steps;

use std::process::ExitCode;

use clap::{CommandFactory as _, Parser, Subcommand};
use harness::{Tally, command, workspace};
use torture::{adversary, crash, deliveries, documents, facts, triggers};

use steps::Steps;

/// The commands of this repository
#[derive(Debug, Parser)]
#[command(name = "xtask", bin_name = "cargo xtask", flatten_help = true)]
#[command(after_help = "\
REVEILLE_BIN runs another binary than target/debug/reveille; REVEILLE_TEST_URL runs the
conformance suite against a server that is already up.

Example: cargo xtask crash --rounds 20 --partitions 4 --seed 7")]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Everything CI runs: all of the below but bench
    Test,
    /// Formatting and lints
    Check,
    /// The published Durable Streams suite
    #[command(args_override_self = true)]
    Conformance {
        /// How often in a row, on one data directory
        #[arg(long, value_name = "N", default_value_t = 1)]
        rounds: u64,
    },
    /// The official TypeScript client across kill -9
    Client,
    /// The agents and triggers under examples/, across kill -9
    Examples,
    /// Deliveries, verified with a published library
    Webhooks,
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
    /// Attacks on a server that serves a quiet tenant meanwhile; with how long that one waits
    Adversary(adversary::Options),
    /// The simulator: many seeds, or one again; of streams, of subscriptions and their consumers,
    /// of deliveries, of documents, of facts, or of two partitions
    #[command(disable_help_flag = true)]
    Sim(sim::Options),
    /// reveille beside its peers; writes target/bench/report.{md,json,svg}
    Bench(bench::Options),
    /// Fetch what cargo does not: npm packages
    Setup,
}

/// The rounds and seeds of `cargo xtask test`.
const SUITE_ROUNDS: u64 = 3;
const SIM: [&[&str]; 18] = [
    &["--seeds", "1000"],
    &["--seeds", "1000", "--lag"],
    &["--seeds", "300", "--unsynced"],
    &["--seeds", "1000", "--wakes"],
    &["--seeds", "1000", "--deliveries"],
    &["--seeds", "500", "--reminders"],
    &["--seeds", "500", "--documents"],
    &["--seeds", "100", "--unsynced", "--documents"],
    &["--seeds", "500", "--triggers"],
    &["--seeds", "1000", "--facts"],
    &["--seeds", "150", "--partitions"],
    &["--seeds", "100", "--failover"],
    &["--seeds", "100", "--failover", "--wakes"],
    &["--seeds", "100", "--failover", "--deliveries"],
    &["--seeds", "100", "--failover", "--reminders"],
    &["--seeds", "100", "--failover", "--documents"],
    &["--seeds", "100", "--failover", "--triggers"],
    &["--seeds", "100", "--failover", "--facts"],
];

/// Shorter than with one partition: what differs is who writes where, not how.
const CRASH_PARTITIONED: crash::Options =
    crash::Options { rounds: 40, flips: 20, seed: None, partitions: 4 };
const DELIVERIES_PARTITIONED: deliveries::Options =
    deliveries::Options { rounds: 20, seed: None, partitions: 4 };
const DOCUMENTS_PARTITIONED: documents::Options =
    documents::Options { rounds: 15, seed: None, partitions: 4 };
const TRIGGERS_PARTITIONED: triggers::Options =
    triggers::Options { rounds: 12, seed: None, partitions: 4 };

/// Survival, loss, memory and descriptors; how long somebody waits is a busy machine's matter.
const ADVERSARY: adversary::Options =
    adversary::Options { attack: None, seconds: 5, no_latency: true };

fn main() -> ExitCode {
    command::exit_code(match Cli::parse().command {
        Some(command) => run(command),
        None => Cli::command().print_help().map_err(Into::into),
    })
}

fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Test => test(),
        Command::Check => check::format().and_then(|()| check::lint()),
        Command::Conformance { rounds } => with_server(|| conformance::suite(rounds)),
        Command::Client => with_server(conformance::client),
        Command::Examples => with_server(conformance::examples),
        Command::Webhooks => with_server(conformance::webhooks),
        Command::Crash(options) => with_server(|| crash::run(&options)),
        Command::Deliveries(options) => with_server(|| deliveries::run(&options)),
        Command::Documents(options) => with_server(|| documents::run(&options)),
        Command::Facts(options) => with_server(|| facts::run(&options)),
        Command::Triggers(options) => with_server(|| triggers::run(&options)),
        Command::Adversary(options) => with_server(|| adversary::run(&options)),
        Command::Sim(options) => sim::run(&options),
        Command::Bench(options) => bench::run(&options),
        Command::Setup => setup::npm_packages(),
    }
}

fn with_server(step: impl FnOnce() -> anyhow::Result<Tally>) -> anyhow::Result<()> {
    workspace::build_server()?;
    step()?.report()
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
        steps.run("crash", || crash::run(&crash::Options::default()));
        steps.run("crash, 4 partitions", || crash::run(&CRASH_PARTITIONED));
        steps.run("deliveries", || deliveries::run(&deliveries::Options::default()));
        steps.run("deliveries, 4 partitions", || deliveries::run(&DELIVERIES_PARTITIONED));
        steps.run("documents", || documents::run(&documents::Options::default()));
        steps.run("documents, 4 partitions", || documents::run(&DOCUMENTS_PARTITIONED));
        steps.run("facts", || facts::run(&facts::Options::default()));
        steps.run("triggers", || triggers::run(&triggers::Options::default()));
        steps.run("triggers, 4 partitions", || triggers::run(&TRIGGERS_PARTITIONED));
        steps.run("adversary", || adversary::run(&ADVERSARY));
    }
    steps.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Option<Command>, clap::Error> {
        let words = std::iter::once("xtask").chain(line.split_ascii_whitespace());
        Cli::try_parse_from(words).map(|cli| cli.command)
    }

    #[test]
    fn the_index_is_consistent() {
        Cli::command().debug_assert();
        assert!(parse("").unwrap().is_none());
    }

    #[test]
    fn a_command_without_options_does_what_the_suite_does() {
        let Some(Command::Crash(options)) = parse("crash").unwrap() else { panic!("crash") };
        assert_eq!((options.rounds, options.flips, options.seed), (200, 60, None));
        assert_eq!(options.partitions, 1);
        assert_eq!(options, crash::Options::default());
        let Some(Command::Deliveries(options)) = parse("deliveries").unwrap() else {
            panic!("deliveries")
        };
        assert_eq!((options.rounds, options.seed, options.partitions), (100, None, 1));
        assert_eq!(options, deliveries::Options::default());
        let Some(Command::Documents(options)) = parse("documents").unwrap() else {
            panic!("documents")
        };
        assert_eq!((options.rounds, options.seed, options.partitions), (60, None, 1));
        assert_eq!(options, documents::Options::default());
        let Some(Command::Triggers(options)) = parse("triggers").unwrap() else {
            panic!("triggers")
        };
        assert_eq!((options.rounds, options.seed, options.partitions), (40, None, 1));
        assert_eq!(options, triggers::Options::default());
        let Some(Command::Conformance { rounds: 1 }) = parse("conformance").unwrap() else {
            panic!("conformance")
        };
    }

    #[test]
    fn options_are_understood_and_the_last_one_counts() {
        let line = "crash --seed 7 --rounds 2 --seed 8 --flips 0 --partitions 4";
        let Some(Command::Crash(options)) = parse(line).unwrap() else { panic!("{line}") };
        assert_eq!((options.rounds, options.flips, options.seed), (2, 0, Some(8)));
        assert_eq!(options.partitions, 4);
        let line = "deliveries --partitions 4";
        let Some(Command::Deliveries(options)) = parse(line).unwrap() else { panic!("{line}") };
        assert_eq!(options.partitions, 4);
        for wrong in [
            "crash --seed",
            "crash --seed x",
            "crash --partitions 0",
            "deliveries --partitions 5",
            "documents --rounds x",
            "test --fast",
            "nothing",
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_simulator_gets_its_options_as_they_are() {
        let line = "sim --seed 7 --trace --release --lag --help";
        let Some(Command::Sim(options)) = parse(line).unwrap() else { panic!("{line}") };
        assert_eq!(
            options,
            sim::Options { args: line.split(' ').skip(1).map(Into::into).collect() }
        );
        let (release, args) = options.split();
        assert!(release);
        assert_eq!(args, ["--seed", "7", "--trace", "--lag", "--help"]);
    }
}
