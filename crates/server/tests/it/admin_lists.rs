//! Lists of operators: by tenant, by state, by time.

use serde_json::Value;

use crate::harness::keys::{ADMIN, guarded_by_keys};
use crate::harness::*;

const TEXT: &str = "text/plain";

async fn names(server: &TestServer, target: &str, list: &str, name: &str) -> Vec<String> {
    let answer = server.get(target).await.expect(200).json();
    let all = answer[list].as_array().unwrap().iter();
    all.map(|it| it[name].as_str().unwrap().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_are_found_by_state_and_by_when_they_were_made() {
    let clock = HandClock::new();
    let server = Setup::on(&clock).start().await;
    for path in ["/a", "/b"] {
        server.create(path, TEXT).await;
        clock.advance(1_000);
    }
    let closing = [("content-type", TEXT), ("stream-closed", "true")];
    server.ask("PUT", "/c", &closing, b"").await.expect(201);
    let streams = async |query: String| {
        names(&server, &format!("/admin/v1/streams{query}"), "streams", "path").await
    };
    assert_eq!(streams(String::new()).await, ["/a", "/b", "/c"]);
    assert_eq!(streams("?state=open".into()).await, ["/a", "/b"]);
    assert_eq!(streams("?state=closed".into()).await, ["/c"]);
    let listed = server.get("/admin/v1/streams").await.expect(200).json();
    let made = listed["streams"][1]["created_at"].as_u64().unwrap();
    assert_eq!(streams(format!("?from={made}")).await, ["/b", "/c"]);
    assert_eq!(streams(format!("?to={made}")).await, ["/a"]);
    assert_eq!(streams(format!("?from={made}&to={}&state=open", made + 1)).await, ["/b"]);
    for wrong in ["state=half", "from=yesterday", "to=x", "tenant=No"] {
        let answer = server.get(&format!("/admin/v1/streams?{wrong}")).await.expect(400);
        assert_eq!(answer.code(), "INVALID_QUERY", "{wrong}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_sees_all_tenants_names_one() {
    let server = guarded_by_keys().start().await;
    let (_, acme) = server.make_key("acme", &["user"]).await;
    let (_, beta) = server.make_key("beta", &["operator"]).await;
    let text = ("content-type", TEXT);
    server.ask_as(&acme, "PUT", "/ours", &[text], b"").await.expect(201);
    let ask = async |key: &str, list: &str, tenant: &str| {
        server.get_as(key, &format!("/admin/v1/{list}?tenant={tenant}")).await
    };
    let of_acme = ask(ADMIN, "streams", "acme").await.expect(200).json();
    assert_eq!(of_acme["streams"][0]["path"], "/ours", "{of_acme}");
    for list in ["streams", "consumers", "deliveries"] {
        let answer = ask(ADMIN, list, "beta").await.expect(200).json();
        assert_eq!(answer[list], Value::Array(Vec::new()), "{list}");
        ask(&beta, list, "beta").await.expect(200);
        assert_eq!(ask(&beta, list, "acme").await.expect(403).code(), "FORBIDDEN", "{list}");
    }
    let keys = ask(ADMIN, "keys", "acme").await.expect(200).json();
    let keys = keys["keys"].as_array().unwrap();
    assert_eq!((keys.len(), &keys[0]["tenant"]), (1, &"acme".into()));
}
