//! Documents, as tests write and read them.

use serde_json::{Value, json};

use super::client::Answer;
use super::server::TestServer;
use super::wakes::JSON;

impl TestServer {
    /// A request about documents, at this path below `/api/v1/`.
    pub(crate) async fn doc(&self, method: &str, path: &str, body: &Value) -> Answer {
        let body = body.to_string();
        self.ask(method, &format!("/api/v1/{path}"), &[JSON], body.as_bytes()).await
    }

    /// Writes a document, whatever was there.
    pub(crate) async fn put_doc(&self, path: &str, document: Value) -> Value {
        self.doc("PUT", path, &json!({ "doc": document })).await.expect(200).json()
    }

    pub(crate) async fn get_doc(&self, path: &str) -> Answer {
        self.get(&format!("/api/v1/{path}")).await
    }

    pub(crate) async fn query(&self, query: &Value) -> Answer {
        self.doc("POST", "query", query).await
    }

    /// The ids of all documents that a query is for, page by page, and how many pages that were.
    pub(crate) async fn query_all(&self, query: &Value) -> (Vec<String>, usize) {
        let (mut ids, mut pages, mut query) = (Vec::new(), 0, query.clone());
        loop {
            let page = self.query(&query).await.expect(200).json();
            pages += 1;
            ids.extend(ids_of(&page));
            let Some(next) = page["nextCursor"].as_str() else { return (ids, pages) };
            query["startAfter"] = next.into();
        }
    }

    /// A transaction under this key.
    pub(crate) async fn batch(&self, key: &str, ops: &Value) -> Answer {
        let body = json!({ "ops": ops }).to_string();
        let headers = [JSON, ("idempotency-key", key)];
        self.ask("POST", "/api/v1/batch", &headers, body.as_bytes()).await
    }

    /// The operators' request about a tenant's rules or indexes.
    pub(crate) async fn tenant(&self, method: &str, path: &str, body: &Value) -> Answer {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let target = format!("/admin/v1/tenants/{path}");
        self.ask(method, &target, &[JSON], body.as_bytes()).await
    }
}

/// The ids of the documents of a page.
pub(crate) fn ids_of(page: &Value) -> Vec<String> {
    let documents = page["documents"].as_array().unwrap_or_else(|| panic!("no page: {page}"));
    documents.iter().map(|document| document["id"].as_str().unwrap().to_owned()).collect()
}
