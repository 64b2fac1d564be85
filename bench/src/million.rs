//! A million of something, on reveille alone: how long, how much, and how soon it is back after
//! `kill -9`.

use std::time::Duration;

use anyhow::ensure;
use harness::Server;
use serde_json::{Value, json};

use crate::environment::Environment;
use crate::server::{self, DataDir};
use crate::setup::RunSettings;
use crate::subject::Subject;

const LIMIT: Duration = Duration::from_secs(1500);

/// Of what there is a million.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Million {
    /// Streams with one message each.
    Streams,
    /// Consumers that were woken once.
    Consumers,
    Documents,
}

impl Million {
    fn name(self) -> &'static str {
        match self {
            Million::Streams => "streams",
            Million::Consumers => "consumers",
            Million::Documents => "documents",
        }
    }

    /// What the generator is asked for.
    fn work(self) -> &'static str {
        match self {
            Million::Streams => "create --seconds 900",
            Million::Consumers => "consumers --seconds 1200",
            Million::Documents => "documents --mode fill --seconds 900",
        }
    }

    /// Where its report says how many were made.
    fn made(self) -> &'static str {
        match self {
            Million::Streams | Million::Documents => "/operations",
            Million::Consumers => "/woken/consumers",
        }
    }

    pub(crate) fn measure(
        self,
        environment: &Environment,
        subject: &Subject,
    ) -> anyhow::Result<Value> {
        let name = self.name();
        let count: u64 = if environment.quick { 50_000 } else { 1_000_000 };
        eprintln!("million       {count} {name} on {}", subject.name);
        let data = DataDir::new(&environment.target, &format!("million-{name}"))?;
        let server = server::start(&environment.target, subject, &data, &RunSettings::default())?;
        let rss_empty = server::rss_bytes(&server);
        let arguments = format!("{} --count {count} --run million", self.work());
        let arguments: Vec<String> = arguments.split(' ').map(str::to_owned).collect();
        let report = environment.generator.run(&arguments, &server, LIMIT)?;
        let made = report.pointer(self.made()).and_then(Value::as_u64);
        let errors = report.get("errors");
        ensure!(made == Some(count), "made {made:?} of {count} {name}; errors: {errors:?}");
        let (rss, disk) = (server::rss_bytes(&server), data.bytes());
        // SIGKILL.
        drop(server);

        let server = server::start(&environment.target, subject, &data, &RunSettings::default())?;
        let ready = server::wait_until_ready(&server)?;
        let rss_restarted = server::rss_bytes(&server);
        let checked = [0, count / 2, count - 1];
        for number in checked {
            self.check(&server, number)?;
        }
        let rss_peak = report.pointer("/used/server_rss_peak_bytes").and_then(Value::as_u64);
        let mut result = json!({
            "seconds": report.get("seconds"),
            "per_second": report.get("per_second"),
            "p99_us": report.pointer("/latency_us/p99"),
            "errors": errors,
            "rss_empty_mb": rss_empty.map(megabytes),
            "rss_mb": rss.map(megabytes),
            "rss_peak_mb": rss_peak.map(megabytes),
            "disk_mb": megabytes(disk),
            "ready_seconds": ready.as_secs_f64(),
            "rss_restarted_mb": rss_restarted.map(megabytes),
            "reads_checked": checked.len(),
        });
        if let Some(result) = result.as_object_mut() {
            result.insert(name.to_owned(), count.into());
        }
        Ok(result)
    }

    /// One of them is there, as it was written.
    fn check(self, server: &Server, number: u64) -> anyhow::Result<()> {
        let path = match self {
            Million::Streams => format!("/v1/stream/bench/million/{number}"),
            Million::Consumers => format!("/v1/stream/bench/million/live/{number}"),
            Million::Documents => format!("/api/v1/bench-million/{number}"),
        };
        let answer = server.connect()?.get(&path)?;
        let (status, body) = (answer.status, answer.text());
        ensure!(status == 200, "{path} was answered with {status} after the restart");
        let is_whole = match self {
            Million::Streams | Million::Consumers => body.contains(&format!("{{\"n\":{number},")),
            Million::Documents => {
                let document: Value = serde_json::from_str(&body)?;
                document.get("n") == Some(&number.into())
                    && document.get("version") == Some(&1.into())
            }
        };
        ensure!(is_whole, "{path} is {body:?} after the restart");
        Ok(())
    }
}

fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}
