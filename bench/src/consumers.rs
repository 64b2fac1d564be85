//! A million consumers that were woken once, on reveille alone: how long, how much, and how soon
//! it is back after `kill -9`.

use std::time::Duration;

use anyhow::ensure;
use serde_json::{Value, json};

use crate::environment::Environment;
use crate::million::{check, megabytes};
use crate::server::{self, DataDir};
use crate::setup::RunSettings;
use crate::subject::Subject;

const LIMIT: Duration = Duration::from_secs(1500);

pub(crate) fn run(environment: &Environment, subject: &Subject) -> anyhow::Result<Value> {
    let count: u64 = if environment.quick { 50_000 } else { 1_000_000 };
    eprintln!("consumers     {} consumers on {}", count, subject.name);
    let data = DataDir::new(&environment.target, "consumers")?;
    let server = server::start(&environment.target, subject, &data, &RunSettings::default())?;
    let rss_empty = server::rss_bytes(&server);
    let arguments = format!("consumers --count {count} --seconds 1200 --run million");
    let arguments: Vec<String> = arguments.split(' ').map(str::to_owned).collect();
    let report = environment.generator.run(&arguments, &server, LIMIT)?;
    let woken = report.pointer("/woken/consumers").and_then(Value::as_u64);
    ensure!(
        woken == Some(count),
        "woke {woken:?} of {count} consumers; errors: {:?}",
        report.get("errors")
    );
    let rss = server::rss_bytes(&server);
    let disk = data.bytes();
    // SIGKILL.
    drop(server);

    let server = server::start(&environment.target, subject, &data, &RunSettings::default())?;
    let ready = server::wait_until_ready(&server)?;
    let rss_restarted = server::rss_bytes(&server);
    for number in [0, count / 2, count - 1] {
        check(&server, "million/live", number)?;
    }
    Ok(json!({
        "consumers": count,
        "seconds": report.get("seconds"),
        "woken_per_second": report.get("per_second"),
        "wakes": report.pointer("/woken/wakes"),
        "create_p99_us": report.pointer("/latency_us/p99"),
        "errors": report.get("errors"),
        "rss_empty_mb": rss_empty.map(megabytes),
        "rss_mb": rss.map(megabytes),
        "rss_peak_mb": report.pointer("/used/server_rss_peak_bytes").and_then(Value::as_u64).map(megabytes),
        "disk_mb": megabytes(disk),
        "ready_seconds": ready.as_secs_f64(),
        "rss_restarted_mb": rss_restarted.map(megabytes),
        "reads_checked": 3,
    }))
}
