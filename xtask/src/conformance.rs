//! The published Durable Streams suite, the official client and the examples, through vitest.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail};
use serde_json::Value;

use crate::server::Server;
use crate::setup;
use crate::steps::Tally;
use crate::workspace;

/// Tests of the suite at its pinned version that must run, and those we ask it to leave out.
const SUITE_TESTS: usize = 332;
const SUBSCRIPTION_TESTS: usize = 6;
const SUBSCRIPTIONS: &str = "Reserved subscription APIs";

/// `rounds` times in a row, on one data directory; a test passes if it passes every time.
pub(crate) fn suite(rounds: u64) -> anyhow::Result<Tally> {
    setup::npm_packages()?;
    let scratch = workspace::scratch("conformance")?;
    let mut total = Tally { passed: u64::MAX, failed: 0 };
    for round in 1..=rounds.max(1) {
        println!("conformance suite, round {round} of {rounds}");
        let server = match std::env::var("REVEILLE_TEST_URL") {
            Ok(url) => Err(url),
            Err(_) => Ok(Server::start(&scratch.join("data"), &scratch.join("server.log"))?),
        };
        let url = server.as_ref().map_or_else(String::clone, Server::url);
        let report = vitest(&scratch, "suite.test.ts", ("REVEILLE_TEST_URL", url.as_ref()))?;
        let tally = judge_suite(&report)?;
        total.passed = total.passed.min(tally.passed);
        total.failed = total.failed.max(tally.failed);
    }
    Ok(total)
}

/// Appends and tails across kills; the test starts and kills the server itself.
pub(crate) fn client() -> anyhow::Result<Tally> {
    across_kills("client")
}

/// The agents under `examples`, woken across kills.
pub(crate) fn examples() -> anyhow::Result<Tally> {
    across_kills("examples")
}

fn across_kills(name: &str) -> anyhow::Result<Tally> {
    setup::npm_packages()?;
    let scratch = workspace::scratch(name)?;
    let program = workspace::reveille()?;
    let file = format!("{name}.test.ts");
    let report = vitest(&scratch, &file, ("REVEILLE_BIN", program.as_ref()))?;
    let outcome = Outcome::read(&report)?;
    if outcome.passed + outcome.failed.len() == 0 || !outcome.skipped.is_empty() {
        bail!("{} tests of {name} ran, {} were skipped", outcome.passed, outcome.skipped.len());
    }
    Ok(outcome.tally())
}

fn vitest(scratch: &Path, file: &str, env: (&str, &std::ffi::OsStr)) -> anyhow::Result<Value> {
    let report = scratch.join("report.json");
    // A report of an earlier round must not be taken for this one's.
    let _ = std::fs::remove_file(&report);
    let mut command = Command::new("node");
    command
        .args(["node_modules/vitest/vitest.mjs", "run", file])
        .args(["--reporter=default", "--reporter=json"])
        .arg(format!("--outputFile.json={}", report.display()))
        .env(env.0, env.1)
        .current_dir(setup::npm_project())
        .stdin(Stdio::null());
    let shown = format!("{}={} node vitest run {file}", env.0, env.1.to_string_lossy());
    println!("$ {shown}");
    // The verdict is in the report: vitest's exit code does not tell skipped from passed.
    let status = command.status().context("node cannot be started: see `cargo xtask setup`")?;
    let text = std::fs::read(&report);
    let text = text.with_context(|| format!("{shown}: {status}, and wrote no report"))?;
    let report: Value = serde_json::from_slice(&text).context("vitest's report is not JSON")?;
    if !status.success() && Outcome::read(&report)?.failed.is_empty() {
        bail!("{shown}: {status}, although no test failed");
    }
    Ok(report)
}

fn judge_suite(report: &Value) -> anyhow::Result<Tally> {
    let outcome = Outcome::read(report)?;
    for (group, title) in &outcome.failed {
        println!("failed: {group} > {title}");
    }
    let left_out = outcome.skipped.iter().filter(|(group, _)| group == SUBSCRIPTIONS).count();
    if let Some((group, title)) = outcome.skipped.iter().find(|(group, _)| group != SUBSCRIPTIONS) {
        bail!("skipped: {group} > {title}");
    }
    let ran = outcome.passed + outcome.failed.len();
    if (ran, left_out) != (SUITE_TESTS, SUBSCRIPTION_TESTS) {
        bail!(
            "the suite ran {ran} tests and left out {left_out}, \
             instead of {SUITE_TESTS} and {SUBSCRIPTION_TESTS}"
        );
    }
    Ok(outcome.tally())
}

/// Tests are named by their outermost group and their title.
#[derive(Debug, Default, PartialEq)]
struct Outcome {
    passed: usize,
    failed: Vec<(String, String)>,
    skipped: Vec<(String, String)>,
}

impl Outcome {
    /// Anything that is not plainly passed or skipped counts as failed.
    fn read(report: &Value) -> anyhow::Result<Outcome> {
        let files = report.get("testResults").and_then(Value::as_array);
        let mut outcome = Outcome::default();
        for file in files.context("the report has no testResults")? {
            let tests = file.get("assertionResults").and_then(Value::as_array);
            for test in tests.context("the report has no assertionResults")? {
                let text = |value: Option<&Value>| {
                    value.and_then(Value::as_str).unwrap_or_default().to_owned()
                };
                let name = (text(test.pointer("/ancestorTitles/0")), text(test.get("title")));
                match test.get("status").and_then(Value::as_str) {
                    Some("passed") => outcome.passed += 1,
                    Some("skipped" | "pending" | "todo") => outcome.skipped.push(name),
                    _ => outcome.failed.push(name),
                }
            }
        }
        Ok(outcome)
    }

    fn tally(&self) -> Tally {
        Tally { passed: self.passed as u64, failed: self.failed.len() as u64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A report with so many tests passed, failed, skipped as subscriptions, skipped otherwise.
    fn report(counts: [usize; 4]) -> Value {
        let kinds = [
            ("passed", "Read Operations"),
            ("failed", "Read Operations"),
            ("skipped", SUBSCRIPTIONS),
            ("skipped", "Read Operations"),
        ];
        let tests = kinds.iter().zip(counts).flat_map(|((status, group), count)| {
            let test = serde_json::json!(
                { "status": status, "ancestorTitles": [group], "title": "t" }
            );
            std::iter::repeat_n(test, count)
        });
        serde_json::json!({ "testResults": [{ "assertionResults": tests.collect::<Vec<_>>() }] })
    }

    #[test]
    fn a_suite_must_run_every_test_and_skip_only_subscriptions() {
        let check = |counts, expected: Result<(u64, u64), &str>| {
            let judged = judge_suite(&report(counts)).map(|tally| (tally.passed, tally.failed));
            match (judged, expected) {
                (Ok(judged), Ok(expected)) => assert_eq!(judged, expected),
                (Err(error), Err(expected)) => {
                    assert!(error.to_string().contains(expected), "{error}");
                }
                (judged, expected) => panic!("{judged:?} instead of {expected:?}"),
            }
        };
        check([332, 0, 6, 0], Ok((332, 0)));
        check([326, 6, 6, 0], Ok((326, 6)));
        check([331, 0, 6, 1], Err("skipped: Read Operations"));
        check([331, 0, 6, 0], Err("ran 331"));
        check([338, 0, 0, 0], Err("ran 338"));
        check([0, 0, 0, 0], Err("ran 0"));
    }
}
