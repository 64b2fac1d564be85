//! Tenants over four partitions: each lives in one, its key says which, and nothing has the same
//! name in two of them.

use std::collections::{BTreeMap, BTreeSet};

use reveille_core::event::worker::WorkerTemplate;
use reveille_core::key;
use serde_json::{Value, json};

use crate::harness::keys::{ADMIN, guarded_by_keys};
use crate::harness::*;

const TENANTS: usize = 12;

struct Partitions {
    server: TestServer,
    sink: Sink,
    /// Each tenant with a key of it.
    keys: BTreeMap<String, String>,
}

impl Partitions {
    async fn start() -> Partitions {
        let sink = Sink::start().await;
        let template = format!("http://127.0.0.1:{}/{{workerId}}/{{rpcMethod}}", sink.port());
        let mut setup = guarded_by_keys();
        setup.workers.template = WorkerTemplate::parse(&template).unwrap();
        let server = setup.start().await;
        let mut keys = BTreeMap::new();
        for number in 0..TENANTS {
            let tenant = format!("t{number}");
            let (_, key) = server.make_key(&tenant, &["user"]).await;
            keys.insert(tenant, key);
        }
        Partitions { server, sink, keys }
    }

    async fn ask(&self, tenant: &str, method: &str, target: &str, body: &Value) -> Answer {
        let body = body.to_string();
        let key = &self.keys[tenant];
        self.server.ask_as(key, method, target, &[JSON], body.as_bytes()).await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_of_many_tenants_live_in_all_partitions_and_say_in_which() {
    let partitions = Partitions::start().await;
    let numbers: BTreeSet<u8> =
        partitions.keys.values().map(|text| key::partition(text).unwrap()).collect();
    assert_eq!(numbers, BTreeSet::from([0, 1, 2, 3]));
    let listed = partitions.server.get_as(ADMIN, "/admin/v1/keys").await.expect(200).json();
    assert_eq!(listed["keys"].as_array().unwrap().len(), TENANTS);
    // A key that names another partition is another key.
    let text = partitions.keys["t0"].clone();
    let other = key::text(key::partition(&text).unwrap() ^ 1, &[7; 32]);
    assert_eq!(partitions.server.get_as(&other, "/a").await.status(), 401);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_of_any_partition_is_of_no_use_once_it_is_revoked() {
    let partitions = Partitions::start().await;
    let listed = partitions.server.get_as(ADMIN, "/admin/v1/keys").await.expect(200).json();
    for known in listed["keys"].as_array().unwrap() {
        let (id, tenant) = (known["id"].as_str().unwrap(), known["tenant"].as_str().unwrap());
        assert_eq!(partitions.ask(tenant, "GET", "/a", &Value::Null).await.status(), 404);
        partitions.server.revoke(ADMIN, id).await.expect(204);
        assert_eq!(partitions.ask(tenant, "GET", "/a", &Value::Null).await.status(), 401);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn deliveries_of_all_tenants_come_and_no_two_share_an_id() {
    let mut partitions = Partitions::start().await;
    let hook = json!({ "workerId": "w", "pattern": "**", "rpcMethod": "m" });
    let event = json!({ "type": "order.created", "data": {} });
    for tenant in partitions.keys.keys() {
        partitions.ask(tenant, "POST", "/subscriptions/subscribe", &hook).await.expect(200);
        partitions.ask(tenant, "POST", "/ingest", &event).await.expect(200);
    }
    for _ in 0..TENANTS {
        partitions.sink.next().await;
    }
    let mut ids = BTreeSet::new();
    for tenant in partitions.keys.keys() {
        let headers = [("x-tenant-namespace", tenant.as_str())];
        let found =
            partitions.server.ask_as(ADMIN, "GET", "/admin/v1/deliveries", &headers, b"").await;
        let found = found.expect(200).json();
        for delivery in found["deliveries"].as_array().unwrap() {
            assert!(ids.insert(delivery["id"].as_str().unwrap().to_owned()), "{delivery}");
        }
    }
    assert_eq!(ids.len(), TENANTS);
}

/// Partitions divide the memory of the process; what one has written is brought into its table
/// before its part is full.
#[tokio::test(flavor = "multi_thread")]
async fn a_partition_takes_more_than_its_part_of_the_memory() {
    let server = Setup { partitions: Some(4), ..Setup::large() }.start().await;
    server.create("/large", "application/octet-stream").await;
    for _ in 0..40 {
        eventually("an append", async || {
            let answer = server.append("/large", "application/octet-stream", &[7; 1_000_000]).await;
            (answer.status() != 503).then(|| answer.expect(204))
        })
        .await;
    }
    server.stop().await;
}
