//! How much a tenant may have, and how whoever has it learns that.

use reveille_engine::quota::Quotas;
use serde_json::json;

use crate::harness::keys::guarded_by_keys;
use crate::harness::*;

const WEBHOOK: &str = r#"{"webhook":"http://127.0.0.1:9/hook"}"#;

async fn subscribe(server: &TestServer, name: &str) -> Answer {
    let target = format!("/{name}/*?subscription={name}");
    server.ask("PUT", &target, &[], WEBHOOK.as_bytes()).await
}

async fn hook(server: &TestServer, pattern: &str) -> Answer {
    let body = json!({ "workerId": "w", "pattern": pattern, "rpcMethod": "m" });
    server.post("/subscriptions/subscribe", &body).await
}

fn refused(answer: &Answer, setting: &str) {
    assert_eq!((answer.status(), answer.code().as_str()), (403, "QUOTA_EXCEEDED"), "{answer}");
    assert!(answer.text().contains(setting), "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_has_as_many_subscriptions_as_it_may_have() {
    let directory = tempfile::tempdir().unwrap();
    let quotas = Quotas { subscriptions: 3, hooks: 2, ..Quotas::default() };
    let server = Setup { quotas, ..Setup::default() }.start_in(directory.path()).await;
    for name in ["one", "two"] {
        subscribe(&server, name).await.expect(201);
    }
    server.ds_pull("three", "jobs/*", "wakes").await;
    refused(&subscribe(&server, "four").await, "--max-subscriptions");
    let pull = json!({ "type": "pull-wake", "pattern": "x/*", "wake_stream": "wakes" });
    refused(&server.ds_put("four", &pull).await, "--max-subscriptions");
    // Whoever asks again for what is there gets it.
    subscribe(&server, "one").await.expect(200);
    for pattern in ["a.*", "b.*"] {
        hook(&server, pattern).await.expect(200);
    }
    let answer = hook(&server, "c.*").await.expect(403);
    let said = answer.json();
    assert_eq!((&said["ok"], &said["code"]), (&json!(false), &json!("QUOTA_EXCEEDED")));
    assert!(said["error"].as_str().unwrap().contains("--max-hooks"), "{answer}");
    assert_eq!(server.metric("reveille_subscriptions_largest_tenant").await, 3);
    assert_eq!(server.metric("reveille_hooks_largest_tenant").await, 2);
    server.delete("/two/*?subscription=two").await.expect(204);
    subscribe(&server, "four").await.expect(201);
    server.stop().await;
    // With smaller quotas what exists stays, and works.
    let quotas = Quotas { subscriptions: 1, hooks: 0, ..Quotas::default() };
    let server = Setup { quotas, ..Setup::default() }.start_in(directory.path()).await;
    assert_eq!(server.metric("reveille_subscriptions").await, 3);
    assert_eq!(server.metric("reveille_hooks").await, 2);
    subscribe(&server, "one").await.expect(200);
    refused(&subscribe(&server, "five").await, "--max-subscriptions");
    hook(&server, "c.*").await.expect(403);
}

#[tokio::test(flavor = "multi_thread")]
async fn tenants_do_not_share_a_quota() {
    let quotas = Quotas { subscriptions: 1, hooks: 1, ..Quotas::default() };
    let server = Setup { quotas, ..guarded_by_keys() }.start().await;
    for tenant in ["acme", "beta"] {
        let (_, key) = server.make_key(tenant, &["user"]).await;
        let target = "/a/*?subscription=s";
        server.ask_as(&key, "PUT", target, &[], WEBHOOK.as_bytes()).await.expect(201);
        let more = "/a/*?subscription=t";
        let answer = server.ask_as(&key, "PUT", more, &[], WEBHOOK.as_bytes()).await;
        refused(&answer, "--max-subscriptions");
    }
}
