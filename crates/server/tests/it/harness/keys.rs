//! A server that asks for keys, and those who have some.

use reveille_core::key::KeyHash;
use reveille_server::Auth;
use serde_json::{Value, json};

use super::client::{Answer, Headers};
use super::server::{Setup, TestServer};

/// The key that the server is started with.
pub(crate) const ADMIN: &str = "the-admin-of-the-tests";

/// Asks for keys.
pub(crate) fn keys() -> Auth {
    Auth::Keys { admin_key: KeyHash::of(ADMIN), metrics_open: false }
}

/// A server that asks for keys.
pub(crate) fn guarded_by_keys() -> Setup {
    Setup { auth: keys(), ..Setup::default() }
}

impl TestServer {
    /// A request with a key.
    pub(crate) async fn ask_as(
        &self,
        key: &str,
        method: &str,
        target: &str,
        headers: Headers<'_>,
        body: &[u8],
    ) -> Answer {
        let bearer = format!("Bearer {key}");
        let headers = [&[("authorization", bearer.as_str())], headers].concat();
        self.ask(method, target, &headers, body).await
    }

    pub(crate) async fn get_as(&self, key: &str, target: &str) -> Answer {
        self.ask_as(key, "GET", target, &[], b"").await
    }

    /// Asks for a key.
    pub(crate) async fn post_key(&self, by: &str, body: &Value) -> Answer {
        self.ask_as(by, "POST", "/admin/v1/keys", &[], body.to_string().as_bytes()).await
    }

    /// Makes a key; returns its id and its text.
    pub(crate) async fn make_key(&self, tenant: &str, roles: &[&str]) -> (String, String) {
        let body = json!({ "tenant": tenant, "roles": roles });
        let made = self.post_key(ADMIN, &body).await.expect(201).json();
        let text = |name: &str| made[name].as_str().unwrap().to_owned();
        (text("id"), text("key"))
    }

    pub(crate) async fn revoke(&self, by: &str, id: &str) -> Answer {
        self.ask_as(by, "DELETE", &format!("/admin/v1/keys/{id}"), &[], b"").await
    }
}
