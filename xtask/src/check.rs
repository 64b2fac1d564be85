//! What cargo itself checks: formatting, lints, and the tests of the workspace.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use anyhow::Context as _;
use harness::Tally;
use harness::command::{call, command_line};
use harness::workspace::cargo;

pub(crate) fn format() -> anyhow::Result<()> {
    call(&mut cargo(&["fmt", "--all", "--check"]))
}

pub(crate) fn lint() -> anyhow::Result<()> {
    let lint = ["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"];
    call(&mut cargo(&lint))
}

pub(crate) fn cargo_test() -> anyhow::Result<Tally> {
    let mut command = cargo(&["test", "--workspace", "--no-fail-fast"]);
    println!("$ {}", command_line(&command));
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
    let output = child.stdout.take().context("the output is piped")?;
    let mut total = Tally::default();
    for line in BufReader::new(output).lines() {
        let line = line?;
        println!("{line}");
        total.add(result_line(&line).unwrap_or_default());
    }
    let status = child.wait()?;
    if !status.success() && total.failed == 0 {
        // Something did not compile, or a test took its whole process down.
        total.failed = 1;
    }
    Ok(total)
}

/// `test result: ok. 12 passed; 0 failed; 0 ignored; …`
fn result_line(line: &str) -> Option<Tally> {
    let (_verdict, counts) = line.strip_prefix("test result: ")?.split_once(". ")?;
    let count = |what: &str| {
        let mut counts = counts.split("; ");
        counts.find_map(|count| count.strip_suffix(what)?.trim().parse().ok())
    };
    Some(Tally { passed: count("passed")?, failed: count("failed")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn result_lines_are_counted() {
        let check = |line: &str, expected: Option<(u64, u64)>| {
            let expected = expected.map(|(passed, failed)| Tally { passed, failed });
            assert_eq!(result_line(line), expected, "{line}");
        };
        let rest = "0 ignored; 0 measured; 3 filtered out; finished in 0.01s";
        check(&format!("test result: ok. 12 passed; 0 failed; {rest}"), Some((12, 0)));
        check(&format!("test result: FAILED. 1 passed; 2 failed; {rest}"), Some((1, 2)));
        check("test passed ... ok", None);
        check("running 3 tests", None);
    }
}
