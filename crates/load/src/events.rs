//! The events of a run and the hooks that get them: the requests to the events face of a server.

use std::cell::RefCell;
use std::fmt;
use std::net::SocketAddr;

use anyhow::ensure;
use clap::Args;
use serde::Serialize;
use serde_json::json;

use crate::crew::{self, Requests, Turn};
use crate::message::Messages;
use crate::target::{Target, write_head};

/// More events than this no server takes at once.
const BATCH_MAX: u64 = 1000;
/// Connections over which hooks are made.
const CONNECTIONS: usize = 16;
/// Longer than any run needs, so that whoever hangs is not tried again within it.
const TIMEOUT_MS: u64 = 30_000;

/// Where the workers are, and as whom events are sent.
#[derive(Debug, Clone, Args)]
pub struct Workers {
    /// Where this process answers as the workers; the server must be told the same address
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:4438")]
    pub sink: SocketAddr,
    /// An admin key of the server, when it runs with --auth keys
    #[arg(long)]
    pub key: Option<String>,
}

/// One tenant's events of one run, all of one type.
#[derive(Debug, Clone)]
pub(crate) struct Events {
    pub(crate) address: SocketAddr,
    host: String,
    /// Lines of every request's head: who asks, for which tenant.
    headers: String,
    /// The type of the events and the pattern of the hooks.
    kind: String,
}

/// What is known of deliveries beside the operations of a report.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Delivered {
    /// Deliveries that the endpoint answered in the measured time.
    pub deliveries: u64,
    /// Events that were taken in during it.
    pub events: u64,
    /// Events per second.
    pub events_per_second: f64,
    /// Deliveries that the endpoint took and never answered, over the whole run.
    pub hanging: u64,
    /// For `delivery --flood`: events per second of the tenant that floods.
    pub flood_events_per_second: Option<f64>,
    /// For `delivery --flood`: deliveries to its own live hook, over the whole run.
    pub flood_deliveries: Option<u64>,
}

/// The worker of a hook: its id, and the name of the server's binding that leads to it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Worker {
    pub(crate) id: &'static str,
    pub(crate) binding: Option<&'static str>,
}

impl Events {
    /// The events of a tenant; without a key there is only one.
    pub(crate) async fn of(
        target: &Target,
        workers: &Workers,
        tenant: &str,
    ) -> anyhow::Result<Events> {
        let (host, address) = target.look_up().await?;
        let run = target.run_name();
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        ensure!(
            !run.is_empty() && run.bytes().all(plain),
            "--run must be usable in the type of an event: {run:?} is not"
        );
        let headers = match &workers.key {
            None => String::new(),
            Some(key) => {
                ensure!(
                    key.bytes().all(|byte| byte.is_ascii_graphic()),
                    "--key must be usable in a header"
                );
                format!("authorization: Bearer {key}\r\nx-tenant-namespace: {tenant}\r\n")
            }
        };
        Ok(Events { address, host, headers, kind: format!("bench.{run}") })
    }

    /// Events of so many bytes each.
    pub(crate) fn messages(&self, bytes: usize) -> anyhow::Result<Messages> {
        Messages::events(&self.kind, bytes)
    }

    /// Makes `count` hooks for every event of the run; their methods are `m0`, `m1`, ….
    pub(crate) async fn hook(&self, worker: Worker, count: u64) -> anyhow::Result<()> {
        let events = self.clone();
        let write = Box::new(move |number, request: &mut Vec<u8>| {
            let body = events.subscription(worker, number).to_string();
            events.post("/subscriptions/subscribe", body.as_bytes(), request);
        });
        let requests = Requests { limit: Some(count), expect: 200, bytes: 0, write, turn: None };
        crew::prepare(self.address, CONNECTIONS, requests).await
    }

    fn subscription(&self, worker: Worker, number: u64) -> serde_json::Value {
        json!({
            "workerId": worker.id,
            "workerBinding": worker.binding,
            "pattern": self.kind,
            "rpcMethod": format!("m{number}"),
            "timeoutMs": TIMEOUT_MS,
        })
    }

    /// Batches of events without end.
    pub(crate) fn batches(
        &self,
        messages: Messages,
        batch: u64,
        turn: Option<Turn>,
    ) -> anyhow::Result<Requests> {
        ensure!((1..=BATCH_MAX).contains(&batch), "--batch must be from 1 to {BATCH_MAX}");
        let (events, bytes) = (self.clone(), messages.bytes() * batch);
        let body = RefCell::new(Vec::new());
        let write = Box::new(move |number: u64, request: &mut Vec<u8>| {
            let mut body = body.borrow_mut();
            events.ingest(&messages, number * batch, batch, &mut body, request);
        });
        Ok(Requests { limit: None, expect: 200, bytes, write, turn })
    }

    /// Writes one batch of `count` events from number `first` on.
    pub(crate) fn ingest(
        &self,
        messages: &Messages,
        first: u64,
        count: u64,
        body: &mut Vec<u8>,
        request: &mut Vec<u8>,
    ) {
        body.clear();
        body.extend_from_slice(b"{\"events\":");
        messages.write_array(first, count, body);
        body.push(b'}');
        self.post("/ingest", body, request);
    }

    fn post(&self, path: &str, body: &[u8], request: &mut Vec<u8>) {
        write_head("POST", path, &self.host, &self.headers, body.len(), request);
        request.extend_from_slice(body);
    }
}

impl fmt::Display for Delivered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.events > 0 {
            let rate = self.events_per_second;
            writeln!(f, "  events      {rate:.1}/s   ({} in all)", self.events)?;
        }
        if self.hanging > 0 {
            writeln!(f, "  hanging     {} deliveries taken and never answered", self.hanging)?;
        }
        if let (Some(rate), Some(deliveries)) =
            (self.flood_events_per_second, self.flood_deliveries)
        {
            writeln!(f, "  flood       {rate:.1} events/s   {deliveries} deliveries")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(headers: &str) -> Events {
        let kind = "bench.r".to_owned();
        let address = ([127, 0, 0, 1], 4437).into();
        Events { address, host: "h:1".to_owned(), headers: headers.to_owned(), kind }
    }

    #[test]
    fn a_batch_is_an_object_with_its_events() {
        let events = events("x-tenant-namespace: calm\r\n");
        let (mut body, mut request) = (Vec::new(), Vec::new());
        let messages = events.messages(100).unwrap();
        events.ingest(&messages, 5, 2, &mut body, &mut request);
        let head = format!(
            "POST /ingest HTTP/1.1\r\nhost: h:1\r\nx-tenant-namespace: calm\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        assert_eq!(request, [head.as_bytes(), &body].concat());
        let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(
            (&body["events"][1]["n"], &body["events"][1]["type"]),
            (&6.into(), &"bench.r".into())
        );
    }

    #[test]
    fn hooks_differ_by_their_method() {
        let worker = Worker { id: "live", binding: None };
        let asked = events("").subscription(worker, 7);
        let expected = json!({
            "workerId": "live",
            "workerBinding": null,
            "pattern": "bench.r",
            "rpcMethod": "m7",
            "timeoutMs": 30_000,
        });
        assert_eq!(asked, expected);
    }
}
