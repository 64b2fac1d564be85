//! How the program ends when it could not do what it was asked for.

use std::io;
use std::process::ExitCode;

/// Not done: the machine, the server or the network is not as it should be.
const EXIT_FAILURE: u8 = 1;
/// Wrong usage: the command line, the environment or the configuration file alone are wrong.
const EXIT_USAGE: u8 = 2;

/// What was asked for can never be done; asking again does not help.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct UsageError(String);

/// An error that ends the program with the code of wrong usage.
pub(crate) fn usage_error(sentence: impl Into<String>) -> anyhow::Error {
    UsageError(sentence.into()).into()
}

/// Says on standard error what is wrong, in one sentence.
pub(crate) fn report(error: &anyhow::Error) -> ExitCode {
    if is_closed_pipe(error) {
        // Whoever read our output has seen enough (`reveille read /a | head`).
        return ExitCode::SUCCESS;
    }
    eprintln!("error: {error:#}");
    if error.is::<UsageError>() { ExitCode::from(EXIT_USAGE) } else { ExitCode::from(EXIT_FAILURE) }
}

fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}
