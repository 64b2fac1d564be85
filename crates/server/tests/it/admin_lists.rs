//! Lists of operators: by tenant, by state, by time.

use serde_json::Value;

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
    let events = Deliveries::start().await;
    let server = &events.server;
    server.create("/a", TEXT).await;
    let headers = [("x-tenant-namespace", "acme"), ("content-type", TEXT)];
    server.ask("PUT", "/ours", &headers, b"").await.expect(201);
    let mine = names(server, "/admin/v1/streams", "streams", "path").await;
    assert_eq!(mine, ["/a"]);
    let theirs = names(server, "/admin/v1/streams?tenant=acme", "streams", "path").await;
    assert_eq!(theirs, ["/ours"]);
    let id = events.subscribe("a").await;
    let event = events.ingest(serde_json::json!({ "type": "b" })).await;
    let explain = format!("/admin/v1/deliveries/explain?hook={id}&event={event}");
    server.get(&format!("{explain}&tenant=default")).await.expect(200);
    server.get(&format!("{explain}&tenant=acme")).await.expect(404);
    for list in ["consumers", "deliveries"] {
        let answer = server.get(&format!("/admin/v1/{list}?tenant=acme")).await.expect(200).json();
        assert_eq!(answer[list], Value::Array(Vec::new()), "{list}");
    }
}
