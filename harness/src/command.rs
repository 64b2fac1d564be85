//! Programs that are run to their end.

use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context as _, bail};

/// Prints the command, then runs it with its output on ours and nothing on its input.
pub fn call(command: &mut Command) -> anyhow::Result<()> {
    println!("$ {}", command_line(command));
    call_quietly(command)
}

/// The same without a word: for those whose standard output is a report.
pub fn call_quietly(command: &mut Command) -> anyhow::Result<()> {
    let line = command_line(command);
    let status = command.stdin(Stdio::null()).status();
    let status = status.with_context(|| format!("{line}: cannot be started"))?;
    if !status.success() {
        bail!("{line}: {status}");
    }
    Ok(())
}

/// The command as one would type it: the program's name without its directory.
pub fn command_line(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let name = program.file_name().unwrap_or(program.as_os_str());
    let words = std::iter::once(name).chain(command.get_args());
    let words: Vec<_> = words.map(|word| word.to_string_lossy()).collect();
    words.join(" ")
}

/// How a tool itself ends: the error, if there is one, as one line on standard error.
pub fn exit_code(result: anyhow::Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
