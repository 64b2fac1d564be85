//! The published Durable Streams suite, the official client and the examples, through vitest.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail};
use harness::command::call;
use harness::{Server, Tally, workspace};
use serde_json::Value;

use crate::setup;

/// Tests of the suite at its pinned version: all of them must run.
const SUITE_TESTS: usize = 338;

/// `rounds` times in a row, on one data directory; a test passes if it passes every time.
pub(crate) fn suite(rounds: u64) -> anyhow::Result<Tally> {
    setup::npm_packages()?;
    let scratch = workspace::scratch("conformance")?;
    let mut total = Tally { passed: u64::MAX, failed: 0 };
    for round in 1..=rounds.max(1) {
        println!("conformance suite, round {round} of {rounds}");
        let server = match std::env::var("REVEILLE_TEST_URL") {
            Ok(url) => Err(url),
            Err(_) => Ok(Server::start(&scratch.join("data"), &scratch.join("server.log"), &[])?),
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

/// The agents and triggers under `examples`, across kills.
pub(crate) fn examples() -> anyhow::Result<Tally> {
    across_kills("examples")
}

/// Signed deliveries, verified with the published library of Standard Webhooks.
pub(crate) fn webhooks() -> anyhow::Result<Tally> {
    setup::npm_packages()?;
    let mut node = Command::new("node");
    node.arg("verify.mjs").env("REVEILLE_BIN", workspace::reveille()?);
    call(node.current_dir(setup::webhooks_project())).map(Tally::one)
}

fn across_kills(name: &str) -> anyhow::Result<Tally> {
    setup::npm_packages()?;
    let scratch = workspace::scratch(name)?;
    let program = workspace::reveille()?;
    let file = format!("{name}.test.ts");
    let report = vitest(&scratch, &file, ("REVEILLE_BIN", program.as_ref()))?;
    let outcomes = TestOutcomes::read(&report)?;
    if outcomes.passed + outcomes.failed.len() == 0 || !outcomes.skipped.is_empty() {
        bail!("{} tests of {name} ran, {} were skipped", outcomes.passed, outcomes.skipped.len());
    }
    Ok(outcomes.tally())
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
    if !status.success() && TestOutcomes::read(&report)?.failed.is_empty() {
        bail!("{shown}: {status}, although no test failed");
    }
    Ok(report)
}

fn judge_suite(report: &Value) -> anyhow::Result<Tally> {
    let outcomes = TestOutcomes::read(report)?;
    for (group, title) in &outcomes.failed {
        println!("failed: {group} > {title}");
    }
    if let Some((group, title)) = outcomes.skipped.first() {
        bail!("skipped: {group} > {title}");
    }
    let ran = outcomes.passed + outcomes.failed.len();
    if ran != SUITE_TESTS {
        bail!("the suite ran {ran} tests instead of {SUITE_TESTS}");
    }
    Ok(outcomes.tally())
}

/// Tests are named by their outermost group and their title.
#[derive(Debug, Default, PartialEq)]
struct TestOutcomes {
    passed: usize,
    failed: Vec<(String, String)>,
    skipped: Vec<(String, String)>,
}

impl TestOutcomes {
    /// Anything that is not plainly passed or skipped counts as failed.
    fn read(report: &Value) -> anyhow::Result<TestOutcomes> {
        let files = report.get("testResults").and_then(Value::as_array);
        let mut outcomes = TestOutcomes::default();
        for file in files.context("the report has no testResults")? {
            let tests = file.get("assertionResults").and_then(Value::as_array);
            for test in tests.context("the report has no assertionResults")? {
                let text = |value: Option<&Value>| {
                    value.and_then(Value::as_str).unwrap_or_default().to_owned()
                };
                let name = (text(test.pointer("/ancestorTitles/0")), text(test.get("title")));
                match test.get("status").and_then(Value::as_str) {
                    Some("passed") => outcomes.passed += 1,
                    Some("skipped" | "pending" | "todo") => outcomes.skipped.push(name),
                    _ => outcomes.failed.push(name),
                }
            }
        }
        Ok(outcomes)
    }

    fn tally(&self) -> Tally {
        Tally { passed: self.passed as u64, failed: self.failed.len() as u64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A report with so many tests passed, failed and skipped.
    fn report(counts: [usize; 3]) -> Value {
        let kinds = ["passed", "failed", "skipped"];
        let tests = kinds.iter().zip(counts).flat_map(|(status, count)| {
            let test = serde_json::json!(
                { "status": status, "ancestorTitles": ["Read Operations"], "title": "t" }
            );
            std::iter::repeat_n(test, count)
        });
        serde_json::json!({ "testResults": [{ "assertionResults": tests.collect::<Vec<_>>() }] })
    }

    #[test]
    fn a_suite_must_run_every_test_and_skip_none() {
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
        check([338, 0, 0], Ok((338, 0)));
        check([332, 6, 0], Ok((332, 6)));
        check([337, 0, 1], Err("skipped: Read Operations"));
        check([337, 0, 0], Err("ran 337"));
        check([339, 0, 0], Err("ran 339"));
        check([0, 0, 0], Err("ran 0"));
    }
}
