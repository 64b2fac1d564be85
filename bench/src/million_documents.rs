//! A million documents, on reveille alone: how long, how much, and how soon it is back after
//! `kill -9`.

use std::time::Duration;

use anyhow::ensure;
use harness::Server;
use serde_json::{Value, json};

use crate::environment::Environment;
use crate::million::megabytes;
use crate::server::{self, DataDir};
use crate::setup::RunSettings;
use crate::subject::Subject;

const LIMIT: Duration = Duration::from_secs(1200);

pub(crate) fn run(environment: &Environment, subject: &Subject) -> anyhow::Result<Value> {
    let count: u64 = if environment.quick { 50_000 } else { 1_000_000 };
    eprintln!("million-documents  {count} documents on {}", subject.name);
    let data = DataDir::new(&environment.target, "million-documents")?;
    let server = server::start(&environment.target, subject, &data, &RunSettings::default())?;
    let rss_empty = server::rss_bytes(&server);
    let arguments = format!("documents --mode fill --count {count} --seconds 900 --run million");
    let arguments: Vec<String> = arguments.split(' ').map(str::to_owned).collect();
    let fill = environment.generator.run(&arguments, &server, LIMIT)?;
    let written = fill.get("operations").and_then(Value::as_u64);
    ensure!(
        written == Some(count),
        "wrote {written:?} of {count} documents; errors: {:?}",
        fill.get("errors")
    );
    let rss = server::rss_bytes(&server);
    let disk = data.bytes();
    // SIGKILL.
    drop(server);

    let server = server::start(&environment.target, subject, &data, &RunSettings::default())?;
    let ready = server::wait_until_ready(&server)?;
    let rss_restarted = server::rss_bytes(&server);
    for number in [0, count / 2, count - 1] {
        check(&server, number)?;
    }
    Ok(json!({
        "documents": count,
        "write_seconds": fill.get("seconds"),
        "writes_per_second": fill.get("per_second"),
        "write_p99_us": fill.pointer("/latency_us/p99"),
        "write_errors": fill.get("errors"),
        "rss_empty_mb": rss_empty.map(megabytes),
        "rss_mb": rss.map(megabytes),
        "rss_peak_mb": fill.pointer("/used/server_rss_peak_bytes").and_then(Value::as_u64).map(megabytes),
        "disk_mb": megabytes(disk),
        "ready_seconds": ready.as_secs_f64(),
        "rss_restarted_mb": rss_restarted.map(megabytes),
        "reads_checked": 3,
    }))
}

/// The document is there, as it was written.
fn check(server: &Server, number: u64) -> anyhow::Result<()> {
    let answer = server.connect()?.get(&format!("/api/v1/bench-million/{number}"))?;
    let (status, body) = (answer.status, answer.text());
    ensure!(status == 200, "document {number} was answered with {status} after the restart");
    let document: Value = serde_json::from_str(&body)?;
    ensure!(
        document.get("n") == Some(&number.into()) && document.get("version") == Some(&1.into()),
        "document {number} is {body} after the restart"
    );
    Ok(())
}
