//! `facts`: how many facts are said per second, each durable with whom it is for.

use std::cell::RefCell;
use std::io::Write as _;

use anyhow::{Context as _, ensure};
use clap::Args;

use crate::clock;
use crate::message::MessageWriter;
use crate::pool::{ConnectionPool, RequestPlan};
use crate::report::Report;
use crate::target::{Target, write_head};

/// Durable facts per second.
#[derive(Debug, Clone, Args)]
pub struct Facts {
    #[command(flatten)]
    pub target: Target,
    /// Connections, each with one fact in flight
    #[arg(long, default_value_t = 64)]
    pub connections: usize,
    /// Entities that the facts are about, in turn; each has one value, which is said again
    #[arg(long, default_value_t = 100_000)]
    pub entities: u64,
    /// Measured time
    #[arg(long, default_value_t = 5.0)]
    pub seconds: f64,
    /// Time before it that is not measured
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0)]
    pub warmup: f64,
    /// Bytes of each request's body
    #[arg(long, value_name = "BYTES", default_value_t = 200)]
    pub body: usize,
}

pub(crate) async fn run(work: &Facts) -> anyhow::Result<Report> {
    let warmup = clock::parse_seconds("--warmup", work.warmup)?;
    let measured_time = clock::parse_seconds("--seconds", work.seconds)?;
    ensure!(work.connections > 0, "--connections must be at least 1");
    ensure!(work.entities > 0, "--entities must be at least 1");
    let (host, address) = work.target.look_up().await?;
    let bodies = Bodies::new(work.target.run_name(), work.entities, work.body)?;
    let pool = ConnectionPool::start(address, work.connections, bodies.requests(host));
    let measured = pool.measure(warmup, measured_time, work.target.pid).await;
    let Facts { connections, entities, body, .. } = work;
    let settings = format!("{body} B over {connections} connections about {entities} entities");
    Ok(measured.report("facts", settings))
}

/// What is said, each in a body of one exact size.
struct Bodies {
    run: String,
    entities: u64,
    bytes: usize,
    messages: MessageWriter,
}

impl Bodies {
    fn new(run: String, entities: u64, bytes: usize) -> anyhow::Result<Bodies> {
        let bodies = Bodies { run, entities, bytes, messages: MessageWriter::new(bytes)? };
        let around = bodies.around(entities);
        let most = around.0.len() + around.1.len();
        bytes.checked_sub(most).with_context(|| format!("--body must be at least {most}"))?;
        Ok(bodies)
    }

    /// What stands before and after the value.
    fn around(&self, entity: u64) -> (String, &'static str) {
        let run = &self.run;
        let before = format!(
            "{{\"entity\":\"{run}:{entity}\",\"relation\":\"note\",\
             \"value\":{{\"type\":\"string\",\"v\":\""
        );
        (before, "\"},\"source\":\"agent:bench\",\"scope\":\"team\"}")
    }

    fn write(&self, number: u64, out: &mut Vec<u8>) {
        let entity = number % self.entities;
        let (before, after) = self.around(entity);
        let text = self.bytes.saturating_sub(before.len() + after.len());
        out.write_all(before.as_bytes()).expect("a vector takes every byte");
        self.messages.write_text(entity, text, out);
        out.extend_from_slice(after.as_bytes());
    }

    fn requests(self, host: String) -> RequestPlan {
        let bytes = self.messages.bytes();
        let body = RefCell::new(Vec::new());
        let write = Box::new(move |number: u64, request: &mut Vec<u8>| {
            let mut body = body.borrow_mut();
            body.clear();
            self.write(number, &mut body);
            write_head("POST", "/v1/facts", &host, "", body.len(), request);
            request.extend_from_slice(&body);
        });
        RequestPlan { limit: None, expect: 201, bytes, write, ahead_limit: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_body_has_its_size_and_an_entity_one_value() {
        let bodies = Bodies::new("run".to_owned(), 1_000, 200).unwrap();
        let body = |number| {
            let mut out = Vec::new();
            bodies.write(number, &mut out);
            assert_eq!(out.len(), 200, "{number}");
            serde_json::from_slice::<serde_json::Value>(&out).unwrap()
        };
        assert_eq!(body(7), body(1_007));
        assert_eq!(body(7)["entity"], "run:7");
        assert_ne!(body(7)["value"]["v"], body(8)["value"]["v"]);
        assert!(Bodies::new("run".to_owned(), 1_000, 60).is_err());
    }
}
