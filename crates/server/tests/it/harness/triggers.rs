//! Tokens of triggers, and calls with them.

use serde_json::{Value, json};

use super::client::Answer;
use super::server::TestServer;
use super::wakes::JSON;

impl TestServer {
    /// A token as an admin asks for it, on a server without keys.
    pub(crate) async fn trigger_token(&self, body: &Value) -> String {
        let target = "/admin/v1/tokens/trigger";
        let made = self.ask("POST", target, &[JSON], body.to_string().as_bytes()).await;
        made.expect(200).json()["token"].as_str().unwrap().to_owned()
    }

    /// A token of the trigger `trg` with both scopes for these paths.
    pub(crate) async fn token_for(&self, paths: &[&str]) -> String {
        let scopes = ["trigger.read", "trigger.write"];
        let body = json!({ "triggerId": "trg", "scopes": scopes, "allowPaths": paths });
        self.trigger_token(&body).await
    }

    /// A call with a token: `get`, `query` or `write`.
    pub(crate) async fn call(&self, token: &str, what: &str, body: &Value) -> Answer {
        self.call_with(token, what, &[], body).await
    }

    /// The same with more headers.
    pub(crate) async fn call_with(
        &self,
        token: &str,
        what: &str,
        headers: &[(&str, &str)],
        body: &Value,
    ) -> Answer {
        let target = format!("/api/v1/trigger/{what}");
        let headers = [&[JSON], headers].concat();
        self.ask_as(token, "POST", &target, &headers, body.to_string().as_bytes()).await
    }

    /// A transaction with a token under this key.
    pub(crate) async fn call_write(&self, token: &str, key: &str, ops: &Value) -> Answer {
        let body = json!({ "ops": ops });
        self.call_with(token, "write", &[("idempotency-key", key)], &body).await
    }
}

/// What a refusal says: its code, and those of its details.
pub(crate) fn codes_of(refused: &Value) -> (String, Vec<String>) {
    let error = &refused["error"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let details = error["details"].as_array().cloned().unwrap_or_default();
    (text(&error["code"]), details.iter().map(|detail| text(&detail["code"])).collect())
}
