//! `reveille-sim`: runs seeds and tells the first that breaks a promise.

#![allow(
    clippy::disallowed_methods,
    reason = "seeds per minute need a clock, and nothing else here has one"
)]

use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use reveille_sim::{Branches, Coverage, Options, SEEDS_FOR_ALL_BRANCHES, WORLDS, run, world};

/// For whoever panics in the middle of a seed.
static SEED: AtomicU64 = AtomicU64::new(0);

struct Arguments {
    first: u64,
    seeds: u64,
    options: Options,
}

fn main() -> ExitCode {
    let Some(arguments) = parse(std::env::args().skip(1)) else {
        eprintln!("{}", usage());
        return ExitCode::from(2);
    };
    let report_panic = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        report_panic(info);
        eprintln!("seed {} panicked", SEED.load(Ordering::Relaxed));
        std::process::exit(1);
    }));
    let began = Instant::now();
    let (mut total, mut branches) = (Coverage::default(), Branches::default());
    for seed in arguments.first..arguments.first + arguments.seeds {
        SEED.store(seed, Ordering::Relaxed);
        match run(seed, arguments.options) {
            Ok(report) => {
                total.add(&report.coverage);
                branches.add(&report.branches);
            }
            Err(failure) => {
                let Options { world, lag, unsynced, failover, .. } = arguments.options;
                let lag = if lag { " --lag" } else { "" };
                let unsynced = if unsynced { " --unsynced" } else { "" };
                let failover = if failover { " --failover" } else { "" };
                println!("seed {seed} failed at step {}: {}", failure.step, failure.what);
                println!(
                    "again with: reveille-sim --seed {seed} --trace{lag}{unsynced}{failover} --{}",
                    world.name
                );
                return ExitCode::FAILURE;
            }
        }
    }
    let minutes = began.elapsed().as_secs_f64() / 60.0;
    let rate = arguments.seeds as f64 / minutes;
    println!("{} seeds passed, {rate:.0} seeds per minute", arguments.seeds);
    println!("{total:?}");
    print!("{branches}");
    let never = branches.never_taken();
    if arguments.seeds >= SEEDS_FOR_ALL_BRANCHES && !never.is_empty() {
        println!("never taken: {}", never.join(", "));
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

fn usage() -> String {
    let worlds: Vec<String> = WORLDS.iter().map(|world| format!("--{}", world.name)).collect();
    let worlds = worlds.join(" | ");
    format!(
        "usage: reveille-sim [--seeds N] [--first S] [--seed S] [--trace] [--lag] [--unsynced | --failover] \
         [{worlds}]"
    )
}

fn parse(arguments: impl Iterator<Item = String>) -> Option<Arguments> {
    let mut parsed = Arguments { first: 0, seeds: 1_000, options: Options::default() };
    let mut arguments = arguments;
    while let Some(argument) = arguments.next() {
        let mut number = || arguments.next()?.parse().ok();
        match argument.as_str() {
            "--seeds" => parsed.seeds = number()?,
            "--first" => parsed.first = number()?,
            "--seed" => (parsed.first, parsed.seeds) = (number()?, 1),
            "--trace" => parsed.options.trace = true,
            "--lag" => parsed.options.lag = true,
            "--failover" => parsed.options.failover = true,
            "--unsynced" => parsed.options.unsynced = true,
            other => parsed.options.world = world(other.strip_prefix("--")?)?,
        }
    }
    // A log that is shared is always synced.
    let Options { unsynced, failover, .. } = parsed.options;
    (!unsynced || !failover).then_some(parsed)
}
