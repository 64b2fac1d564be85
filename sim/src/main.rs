//! `reveille-sim`: runs seeds and tells the first that breaks a promise.

#![allow(
    clippy::disallowed_methods,
    reason = "seeds per minute need a clock, and nothing else here has one"
)]

use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use reveille_sim::{Options, Tally, run};

const USAGE: &str = "usage: reveille-sim [--seeds N] [--first S] [--seed S] [--trace] [--lag] [--unsynced] [--wakes | --deliveries]";

/// For whoever panics in the middle of a seed.
static SEED: AtomicU64 = AtomicU64::new(0);

struct Arguments {
    first: u64,
    seeds: u64,
    options: Options,
}

fn main() -> ExitCode {
    let Some(arguments) = parse(std::env::args().skip(1)) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let tell = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        tell(info);
        eprintln!("seed {} panicked", SEED.load(Ordering::Relaxed));
        std::process::exit(1);
    }));
    let began = Instant::now();
    let mut total = Tally::default();
    for seed in arguments.first..arguments.first + arguments.seeds {
        SEED.store(seed, Ordering::Relaxed);
        match run(seed, arguments.options) {
            Ok(report) => total.add(&report.tally),
            Err(failure) => {
                let lag = if arguments.options.lag { " --lag" } else { "" };
                let world = match arguments.options {
                    Options { wakes: true, .. } => " --wakes",
                    Options { deliveries: true, .. } => " --deliveries",
                    _ => "",
                };
                let unsynced = if arguments.options.unsynced { " --unsynced" } else { "" };
                println!("seed {seed} failed at step {}: {}", failure.step, failure.what);
                println!("again with: reveille-sim --seed {seed} --trace{lag}{unsynced}{world}");
                return ExitCode::FAILURE;
            }
        }
    }
    let minutes = began.elapsed().as_secs_f64() / 60.0;
    let rate = arguments.seeds as f64 / minutes;
    println!("{} seeds passed, {rate:.0} seeds per minute", arguments.seeds);
    println!("{total:?}");
    ExitCode::SUCCESS
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
            "--wakes" => parsed.options.wakes = true,
            "--deliveries" => parsed.options.deliveries = true,
            "--unsynced" => parsed.options.unsynced = true,
            _ => return None,
        }
    }
    Some(parsed)
}
