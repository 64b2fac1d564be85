//! How the program ends when it could not do what it was asked for.

use std::io;
use std::process::ExitCode;

/// Not done: the machine, the server or the network is not as it should be.
const FAILED: u8 = 1;
/// Wrong usage: the command line, the environment or the configuration file alone are wrong.
const MISUSED: u8 = 2;

/// What was asked for can never be done; asking again does not help.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Usage(String);

/// An error that ends the program with the code of wrong usage.
pub(crate) fn usage(sentence: impl Into<String>) -> anyhow::Error {
    Usage(sentence.into()).into()
}

/// Says on standard error what is wrong, in one sentence.
pub(crate) fn report(error: &anyhow::Error) -> ExitCode {
    if is_closed_pipe(error) {
        // Whoever read our output has seen enough (`reveille read /a | head`).
        return ExitCode::SUCCESS;
    }
    eprintln!("error: {error:#}");
    if error.is::<Usage>() { ExitCode::from(MISUSED) } else { ExitCode::from(FAILED) }
}

fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}
