//! A million streams with one message each, on reveille alone: how long, how much, and how soon
//! it is back after `kill -9`.

use std::time::Duration;

use anyhow::ensure;
use harness::Server;
use serde_json::{Value, json};

use crate::environment::Environment;
use crate::server::{self, DataDir};
use crate::setup::RunSettings;
use crate::subject::Subject;

const LIMIT: Duration = Duration::from_secs(1200);

pub(crate) fn run(environment: &Environment, subject: &Subject) -> anyhow::Result<Value> {
    let count: u64 = if environment.quick { 50_000 } else { 1_000_000 };
    eprintln!("million       {} streams on {}", count, subject.name);
    let data = DataDir::new(&environment.target, "million")?;
    let server = server::start(&environment.target, subject, &data, &RunSettings::default())?;
    let rss_empty = server::rss_bytes(&server);
    let arguments = format!("create --count {count} --seconds 900 --run million");
    let arguments: Vec<String> = arguments.split(' ').map(str::to_owned).collect();
    let create = environment.generator.run(&arguments, &server, LIMIT)?;
    let created = create.get("operations").and_then(Value::as_u64);
    ensure!(
        created == Some(count),
        "created {created:?} of {count} streams; errors: {:?}",
        create.get("errors")
    );
    let rss = server::rss_bytes(&server);
    let disk = data.bytes();
    // SIGKILL.
    drop(server);

    let server = server::start(&environment.target, subject, &data, &RunSettings::default())?;
    let ready = server::wait_until_ready(&server)?;
    let rss_restarted = server::rss_bytes(&server);
    for number in [0, count / 2, count - 1] {
        check(&server, "million", number)?;
    }
    Ok(json!({
        "streams": count,
        "create_seconds": create.get("seconds"),
        "create_per_second": create.get("per_second"),
        "create_p99_us": create.pointer("/latency_us/p99"),
        "create_errors": create.get("errors"),
        "rss_empty_mb": rss_empty.map(megabytes),
        "rss_mb": rss.map(megabytes),
        "rss_peak_mb": create.pointer("/used/server_rss_peak_bytes").and_then(Value::as_u64).map(megabytes),
        "disk_mb": megabytes(disk),
        "ready_seconds": ready.as_secs_f64(),
        "rss_restarted_mb": rss_restarted.map(megabytes),
        "reads_checked": 3,
    }))
}

/// The stream is there and holds its message.
pub(crate) fn check(server: &Server, group: &str, number: u64) -> anyhow::Result<()> {
    let answer = server.connect()?.get(&format!("/v1/stream/bench/{group}/{number}"))?;
    let (status, body) = (answer.status, answer.text());
    ensure!(status == 200, "stream {number} was answered with {status} after the restart");
    let mark = format!("{{\"n\":{number},");
    ensure!(body.contains(&mark), "stream {number} holds {body:?} after the restart");
    Ok(())
}

pub(crate) fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}
