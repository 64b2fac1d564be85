//! The `reveille` program: reads the command line and hands over.

mod cli;

mod config;
mod descriptors;
mod logs;
mod otlp;
mod serve;

mod client;
mod verify;

mod clock;
mod failure;

use std::process::ExitCode;

use clap::Parser as _;

#[cfg(feature = "mimalloc")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    match cli::Cli::parse().command.run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failure::report(&error),
    }
}
