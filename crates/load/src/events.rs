//! The events of a run and the hooks that get them: the requests to the events face of a server.

use std::cell::RefCell;
use std::net::SocketAddr;

use anyhow::ensure;
use clap::Args;
use serde_json::json;

use crate::message::MessageWriter;
use crate::pool::{self, AheadLimit, RequestPlan};
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

/// Where the events of one tenant and one run go; all of them are of one type.
#[derive(Debug, Clone)]
pub(crate) struct EventTarget {
    pub(crate) address: SocketAddr,
    host: String,
    /// Lines of every request's head: who asks, for which tenant.
    headers: String,
    /// The type of the events and the pattern of the hooks.
    kind: String,
}

/// The worker of a hook: its id, and the name of the server's binding that leads to it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Worker {
    pub(crate) id: &'static str,
    pub(crate) binding: Option<&'static str>,
}

impl EventTarget {
    /// The events of a tenant; without a key there is only one.
    pub(crate) async fn resolve(
        target: &Target,
        workers: &Workers,
        tenant: &str,
    ) -> anyhow::Result<EventTarget> {
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
        Ok(EventTarget { address, host, headers, kind: format!("bench.{run}") })
    }

    /// Events of so many bytes each.
    pub(crate) fn messages(&self, bytes: usize) -> anyhow::Result<MessageWriter> {
        MessageWriter::events(&self.kind, bytes)
    }

    /// Makes `count` hooks for every event of the run; their methods are `m0`, `m1`, ….
    pub(crate) async fn hook(&self, worker: Worker, count: u64) -> anyhow::Result<()> {
        let events = self.clone();
        let write = Box::new(move |number, request: &mut Vec<u8>| {
            let body = events.subscription(worker, number).to_string();
            events.post("/subscriptions/subscribe", body.as_bytes(), request);
        });
        let requests =
            RequestPlan { limit: Some(count), expect: 200, bytes: 0, write, ahead_limit: None };
        pool::prepare(self.address, CONNECTIONS, requests).await
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
        messages: MessageWriter,
        batch: u64,
        ahead_limit: Option<AheadLimit>,
    ) -> anyhow::Result<RequestPlan> {
        ensure!((1..=BATCH_MAX).contains(&batch), "--batch must be from 1 to {BATCH_MAX}");
        let (events, bytes) = (self.clone(), messages.bytes() * batch);
        let body = RefCell::new(Vec::new());
        let write = Box::new(move |number: u64, request: &mut Vec<u8>| {
            let mut body = body.borrow_mut();
            events.ingest(&messages, number * batch, batch, &mut body, request);
        });
        Ok(RequestPlan { limit: None, expect: 200, bytes, write, ahead_limit })
    }

    /// Writes one batch of `count` events from number `first` on.
    pub(crate) fn ingest(
        &self,
        messages: &MessageWriter,
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

#[cfg(test)]
mod tests {
    use super::*;

    fn events(headers: &str) -> EventTarget {
        let kind = "bench.r".to_owned();
        let address = ([127, 0, 0, 1], 4437).into();
        EventTarget { address, host: "h:1".to_owned(), headers: headers.to_owned(), kind }
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
