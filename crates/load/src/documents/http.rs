//! Documents of reveille, over HTTP.

use std::io::Write as _;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{bail, ensure};
use serde_json::{Value, json};

use super::DocumentRequests;
use super::body::{Bodies, GROUP_SIZE};
use crate::clock;
use crate::connection::{BUFFER_LARGE, Client};
use crate::target::write_head;

const ASK_AGAIN_AFTER: Duration = Duration::from_millis(10);
const INDEXES: &str = "/admin/v1/tenants/default/indexes";

pub(super) struct HttpDocuments {
    pub(super) address: SocketAddr,
    pub(super) host: String,
    pub(super) collection: String,
}

impl HttpDocuments {
    /// Declares the indexes and waits until they are used.
    pub(super) async fn declare(&self, fields: u32, queries: bool) -> anyhow::Result<()> {
        let by = |path: &str| json!({ "path": path, "direction": "asc" });
        let index = |fields: Vec<Value>| json!({ "collection": self.collection, "fields": fields });
        let mut indexes: Vec<Value> =
            (0..fields).map(|field| index(vec![by(&format!("data.f{field}"))])).collect();
        if queries {
            indexes.push(index(vec![by("data.group"), by("data.n")]));
        }
        if indexes.is_empty() {
            return Ok(());
        }
        self.ask("PUT", INDEXES, Some(&json!({ "indexes": indexes }))).await?;
        loop {
            let shown = self.ask("GET", INDEXES, None).await?;
            let shown = shown.get("indexes").and_then(Value::as_array).cloned().unwrap_or_default();
            if shown.iter().all(|index| index.get("state") == Some(&json!("ready"))) {
                return Ok(());
            }
            clock::sleep(ASK_AGAIN_AFTER).await;
        }
    }

    /// A query finds a whole group, and by the index.
    pub(super) async fn check(&self, bodies: &Bodies) -> anyhow::Result<()> {
        let query = self.query_body(bodies.group_of(0), true);
        let query: Value = serde_json::from_slice(&query)?;
        let found = self.ask("POST", "/api/v1/query", Some(&query)).await?;
        let plan = found.pointer("/explain/plan/kind");
        ensure!(plan == Some(&json!("index")), "the plan of a query is {plan:?}");
        let count = found.get("documents").and_then(Value::as_array).map_or(0, Vec::len);
        ensure!(u64::try_from(count)? == GROUP_SIZE, "a query found {count} documents");
        Ok(())
    }

    async fn ask(&self, method: &str, path: &str, body: Option<&Value>) -> anyhow::Result<Value> {
        let mut client = Client::new(self.address, BUFFER_LARGE);
        let body = body.map(Value::to_string).unwrap_or_default();
        let (mut request, mut answer) = (Vec::new(), Vec::new());
        write_head(method, path, &self.host, "", body.len(), &mut request);
        request.extend_from_slice(body.as_bytes());
        let fetched = client.fetch(&request, |bytes| answer.extend_from_slice(bytes)).await;
        match fetched {
            Ok(response) if response.status == 200 => Ok(serde_json::from_slice(&answer)?),
            Ok(response) => {
                let text = String::from_utf8_lossy(&answer);
                bail!("{method} {path}: {} {text}", response.status)
            }
            Err(failure) => bail!("{method} {path}: {}", failure.label()),
        }
    }

    fn query_body(&self, group: u64, explain: bool) -> Vec<u8> {
        let mut body = Vec::new();
        write!(
            body,
            "{{\"collection\":\"{}\",\"filters\":[{{\"field\":\"group\",\"op\":\"==\",\
             \"value\":{group}}}],\"orderBy\":[{{\"field\":\"n\"}}],\"limit\":{GROUP_SIZE},\
             \"explain\":{explain}}}",
            self.collection
        )
        .expect("a vector takes every byte");
        body
    }
}

impl DocumentRequests for HttpDocuments {
    fn write(&self, _number: u64, document: u64, body: &[u8], request: &mut Vec<u8>) {
        let path = format_args!("/api/v1/{}/{document}", self.collection);
        let (before, after) = (b"{\"doc\":", b"}");
        let len = before.len() + body.len() + after.len();
        write_head("PUT", path, &self.host, "", len, request);
        for part in [before.as_slice(), body, after] {
            request.extend_from_slice(part);
        }
    }

    fn transact(&self, number: u64, document: u64, body: &[u8], request: &mut Vec<u8>) {
        let before = format!(
            "{{\"ops\":[{{\"type\":\"set\",\"path\":\"{}/{document}\",\"data\":",
            self.collection
        );
        let after = b"}]}";
        let key = format!("idempotency-key: {}-{number}\r\n", self.collection);
        let len = before.len() + body.len() + after.len();
        write_head("POST", "/api/v1/batch", &self.host, &key, len, request);
        for part in [before.as_bytes(), body, after] {
            request.extend_from_slice(part);
        }
    }

    fn read(&self, document: u64, request: &mut Vec<u8>) {
        request.clear();
        let (collection, host) = (&self.collection, &self.host);
        write!(request, "GET /api/v1/{collection}/{document} HTTP/1.1\r\nhost: {host}\r\n\r\n")
            .expect("a vector takes every byte");
    }

    fn query(&self, group: u64, request: &mut Vec<u8>) {
        let body = self.query_body(group, false);
        write_head("POST", "/api/v1/query", &self.host, "", body.len(), request);
        request.extend_from_slice(&body);
    }
}
