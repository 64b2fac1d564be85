//! What the tests of the `__ds` face ask again and again.

use serde_json::{Value, json};

use super::client::Answer;
use super::server::TestServer;

const JSON: (&str, &str) = ("content-type", "application/json");

/// Where a subscription is.
pub(crate) fn at(id: &str) -> String {
    format!("/v1/stream/__ds/subscriptions/{id}")
}

impl TestServer {
    /// Asks for a subscription.
    pub(crate) async fn ds_put(&self, id: &str, body: &Value) -> Answer {
        self.ask("PUT", &at(id), &[JSON], body.to_string().as_bytes()).await
    }

    /// Makes a subscription that calls an endpoint.
    pub(crate) async fn ds_webhook(&self, id: &str, pattern: &str, url: &str) -> Value {
        let body = json!({
            "type": "webhook", "pattern": pattern, "webhook": { "url": url }, "lease_ttl_ms": 1000,
        });
        self.ds_put(id, &body).await.expect(201).json()
    }

    /// Makes a subscription whose work is claimed.
    pub(crate) async fn ds_pull(&self, id: &str, pattern: &str, wake_stream: &str) -> Value {
        let body = json!({
            "type": "pull-wake", "pattern": pattern, "wake_stream": wake_stream,
            "lease_ttl_ms": 1000,
        });
        self.ds_put(id, &body).await.expect(201).json()
    }

    pub(crate) async fn ds_get(&self, id: &str) -> Value {
        self.get(&at(id)).await.expect(200).json()
    }

    /// The streams of a subscription: path, link type, acknowledged offset.
    pub(crate) async fn ds_links(&self, id: &str) -> Vec<(String, String, String)> {
        let body = self.ds_get(id).await;
        let text = |stream: &Value, name: &str| stream[name].as_str().unwrap().to_owned();
        let streams = body["streams"].as_array().unwrap().iter();
        let link = |stream| {
            let (path, kind) = (text(stream, "path"), text(stream, "link_type"));
            (path, kind, text(stream, "acked_offset"))
        };
        streams.map(link).collect()
    }

    /// Posts to a part of a subscription.
    pub(crate) async fn ds_post(&self, target: &str, token: Option<&str>, body: &Value) -> Answer {
        let bearer = token.map(|token| format!("Bearer {token}"));
        let mut headers = vec![JSON];
        headers.extend(bearer.as_deref().map(|bearer| ("authorization", bearer)));
        self.ask("POST", &at(target), &headers, body.to_string().as_bytes()).await
    }

    /// Makes a JSON stream under the root of the protocol, with one event in it. Returns its tail.
    pub(crate) async fn ds_stream(&self, path: &str) -> String {
        let path = format!("/v1/stream/{path}");
        self.ask("PUT", &path, &[JSON], b"{}").await.expect(201).next_offset().to_owned()
    }

    /// Adds an event to a JSON stream. Returns its tail.
    pub(crate) async fn ds_append(&self, path: &str) -> String {
        let path = format!("/v1/stream/{path}");
        let answer = self.append(&path, "application/json", b"{}").await;
        assert!(answer.status() < 300, "{answer}");
        answer.next_offset().to_owned()
    }
}

/// A report on the wake in a notification or the answer to a claim.
pub(crate) fn report(wake: &Value, acks: &[(&str, &str)], done: bool) -> Value {
    let ack = |(stream, offset): &(&str, &str)| json!({ "stream": stream, "offset": offset });
    json!({
        "wake_id": wake["wake_id"],
        "generation": wake["generation"],
        "acks": acks.iter().map(ack).collect::<Vec<_>>(),
        "done": done,
    })
}

/// The token of a notification or the answer to a claim.
pub(crate) fn token(wake: &Value) -> &str {
    wake["callback_token"].as_str().or(wake["token"].as_str()).unwrap()
}
