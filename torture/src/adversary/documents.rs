//! Attacks with documents: as large, as many, as hot and as costly to find as they may be.

use std::io::Write as _;
use std::net::TcpStream;

use anyhow::ensure;
use harness::http::Connection;
use serde_json::{Value, json};

use super::Target;
use super::clients::check;
use super::sockets::{connect, is_open};

/// As many writes as one transaction may have.
const OPS: usize = 500;
/// As many documents of a collection as a query looks at without an index.
const SCANNED: usize = 10_000;
const INDEXES: usize = 10;
/// As many as one tenant may have and still be let in to write.
const LIVE_QUERIES: usize = 40;

impl Target {
    /// Writes so many documents of a collection.
    fn fill(&self, collection: &str, count: usize) -> anyhow::Result<()> {
        let mut connection = Connection::open(self.server)?;
        for first in (0..count).step_by(OPS) {
            let ops = (first..count.min(first + OPS)).map(|number| {
                json!({ "type": "set", "path": format!("{collection}/{number}"), "data": {
                    "n": number, "text": format!("{number:0200}"), "list": [number, number % 7],
                    "deep": { "a": { "b": number % 13 } },
                }})
            });
            let body = transaction(&format!("fill-{collection}-{first}"), ops.collect());
            let answer = self.send_on(&mut connection, "POST", "/api/v1/batch", body.as_bytes())?;
            ensure!(answer.status == 200, "filling: {} {}", answer.status, answer.text());
        }
        Ok(())
    }
}

fn transaction(key: &str, ops: Vec<Value>) -> String {
    json!({ "idempotencyKey": key, "ops": ops }).to_string()
}

fn batch(body: String) -> (&'static str, String, String) {
    ("POST", "/api/v1/batch".to_owned(), body)
}

fn query(body: &Value) -> (&'static str, String, String) {
    ("POST", "/api/v1/query".to_owned(), body.to_string())
}

/// Documents at their limits and beyond: bytes, values, depth, and all of them in one transaction.
pub(super) fn large_documents(target: &Target) -> anyhow::Result<String> {
    // Bodies are made once: whoever attacks must not need the processors for it.
    let doc = |inner: &str| format!("{{\"doc\":{{\"it\":{inner}}}}}");
    let text = format!("\"{}\"", "x".repeat(900_000));
    let deep = doc(&format!("{}{}", "[".repeat(4_000_000), "]".repeat(4_000_000)));
    let objects = doc(&format!("[{}{{}}]", "{},".repeat(2_500_000)));
    let values = doc(&format!("[{}1]", "1,".repeat(9_900)));
    let too_large = doc(&format!("\"{}\"", "x".repeat(2_000_000)));
    let (text, deep, objects) = (&text, &deep, &objects);
    let (done, refused) = target.together(move |client, turn| {
        let path = format!("/api/v1/large/{client}-{}", turn % 40);
        let large = |count: usize| {
            let op = |at| format!("{{\"type\":\"set\",\"path\":\"large/{client}-{at}\",\"data\":{{\"t\":{text}}}}}");
            let ops: Vec<String> = (0..count).map(op).collect();
            batch(format!("{{\"idempotencyKey\":\"l-{client}-{turn}\",\"ops\":[{}]}}", ops.join(",")))
        };
        match turn % 8 {
            0 => ("PUT", path, deep.clone()),
            1 => ("PUT", path, objects.clone()),
            2 => ("PUT", path, too_large.clone()),
            // More than a transaction may change, then as much as it may.
            3 => large(8),
            4 | 5 => large(2),
            6 => ("PUT", path, values.clone()),
            _ => ("GET", path, String::new()),
        }
    })?;
    ensure!(done > 0 && refused > 0, "{done} done, {refused} refused");
    Ok(format!("{done} requests about documents of 900 kB and {refused} that are too much"))
}

/// One document that everybody writes, five hundred times in a transaction.
pub(super) fn hot_document(target: &Target) -> anyhow::Result<String> {
    target.expect(
        "PUT",
        "/api/v1/hot/one",
        &json!({ "doc": { "n": 0, "text": "y".repeat(1_500) } }),
    )?;
    let (done, refused) = target.together(|client, turn| {
        let key = format!("h-{client}-{turn}");
        match turn % 3 {
            0 => {
                let op = |n| json!({ "type": "patch", "path": "hot/one", "data": { "n": n } });
                batch(transaction(&key, (0..OPS).map(op).collect()))
            }
            1 => {
                // The last of many writes fails: all of them were for nothing.
                let op = |n| json!({ "type": "patch", "path": "hot/one", "data": { "n": n } });
                let guarded = json!({ "type": "delete", "path": "hot/one", "ifMatchVersion": 0 });
                batch(transaction(&key, (1..OPS).map(op).chain([guarded]).collect()))
            }
            _ => {
                ("PATCH", "/api/v1/hot/one".to_owned(), json!({ "doc": { "n": turn } }).to_string())
            }
        }
    })?;
    ensure!(done > 0 && refused > 0, "{done} done, {refused} refused");
    Ok(format!("{done} writes of one document, {refused} that fail at their end"))
}

/// Queries that look at all of a collection, sort it, page through it, and cursors of nothing.
pub(super) fn document_queries(target: &Target) -> anyhow::Result<String> {
    target.fill("scanned", SCANNED)?;
    let list: Vec<usize> = (0..100).collect();
    let (done, refused) = target.together(move |client, turn| {
        let filter = |field: &str, op: &str, value: Value| json!({ "field": field, "op": op, "value": value });
        match (client + turn) % 6 {
            0 => query(&json!({ "collection": "scanned", "filters": [filter("n", "==", json!(-1))] })),
            1 => {
                let filters: Vec<Value> =
                    (0..32).map(|n| filter("deep.a.b", "not-in", json!([n + 100]))).collect();
                let order = json!([{ "field": "text", "direction": "desc" }, { "field": "deep.a.b" }]);
                query(&json!({ "collection": "scanned", "filters": filters, "orderBy": order, "limit": 1_000 }))
            }
            2 => query(&json!({ "collection": "scanned", "filters": [filter("n", "in", json!(list))],
                                "orderBy": [{ "field": "list" }], "explain": true })),
            3 => {
                let cursor = "A".repeat(1 + (turn * 997) % 8_192);
                query(&json!({ "collection": "scanned", "startAfter": cursor }))
            }
            4 => query(&json!({ "collection": "scanned", "showDeleted": true, "limit": 1_000 })),
            _ => query(&json!({ "collection": "scanned", "limit": 1,
                                "filters": [filter("list", "contains", json!({ "no": "such" }))] })),
        }
    })?;
    ensure!(done > 0 && refused > 0, "{done} done, {refused} refused");
    Ok(format!("{done} scans of {SCANNED} documents, {refused} with cursors of nothing"))
}

/// A collection of its own for every document, with as long a name as there may be, each for as
/// many indexes as a collection can have.
pub(super) fn many_collections(target: &Target) -> anyhow::Result<String> {
    let indexes: Vec<Value> = (0..INDEXES)
        .map(|n| json!({ "collection": "many/*/things", "fields": [{ "path": format!("data.f{n}") }] }))
        .collect();
    target.expect("PUT", "/admin/v1/tenants/loud/indexes", &json!({ "indexes": indexes }))?;
    let long = "v".repeat(480);
    let data: Value = (0..INDEXES).map(|n| (format!("f{n}"), json!(long))).collect();
    let (done, refused) = target.together(move |client, turn| {
        let op = |at: usize| {
            let path = format!("many/{client}-{turn}-{at}/things/{}", "i".repeat(60));
            json!({ "type": "create", "path": path, "data": data })
        };
        let key = format!("{client}-{turn}-{}", "k".repeat(240));
        batch(transaction(&key, (0..100).map(op).collect()))
    })?;
    ensure!(done > 0, "{done} done, {refused} refused");
    Ok(format!("{} collections with {INDEXES} indexes each, {refused} refused", done * 100))
}

/// Live queries that nobody reads, of a collection whose documents are written all the while.
pub(super) fn live_queries(target: &Target) -> anyhow::Result<String> {
    target.fill("live", 2_000)?;
    let request = format!(
        "GET /api/v1/live?live=sse HTTP/1.1\r\nhost: {}\r\nauthorization: {}\r\n\r\n",
        target.server, target.authorization
    );
    let text = "z".repeat(50_000);
    let mut readers: Vec<TcpStream> = Vec::new();
    let (mut opened, mut written) = (0, 0);
    while !target.is_over() {
        readers.retain(is_open);
        while readers.len() < LIVE_QUERIES {
            let Some(mut stream) = connect(target.server) else { break };
            let _ = stream.write_all(request.as_bytes());
            readers.push(stream);
            opened += 1;
        }
        let op = |number| json!({ "type": "set", "path": format!("live/{number}"), "data": { "t": text } });
        let body = transaction(&format!("live-{written}"), (0..20).map(op).collect());
        if let Ok(answer) = target.send("POST", "/api/v1/batch", body.as_bytes()) {
            check("live", &answer)?;
            written += usize::from(answer.status == 200);
        }
    }
    ensure!(written > 0, "nothing was written");
    Ok(format!("{opened} live queries that nobody reads, {written} transactions of a megabyte"))
}

/// Indexes that are declared and removed before they are built, over all that there is.
pub(super) fn index_churn(target: &Target) -> anyhow::Result<String> {
    target.fill("churned", SCANNED)?;
    let (done, refused) = target.together(|client, turn| {
        if client > 1 {
            let doc = json!({ "doc": { "n": turn, "text": format!("{turn:0200}") } });
            return ("PUT", format!("/api/v1/churned/{client}-{}", turn % 500), doc.to_string());
        }
        let count = if turn % 2 == 0 { INDEXES } else { turn % 3 };
        let indexes: Vec<Value> = (0..count)
            .map(|n| {
                let field = ["n", "text", "list", "deep.a.b"].get((turn + n) % 4).copied().unwrap_or("n");
                let other = format!("data.other{}", n + turn % 5);
                json!({ "collection": "churned", "fields": [{ "path": format!("data.{field}") }, { "path": other }] })
            })
            .collect();
        let target = "/admin/v1/tenants/loud/indexes".to_owned();
        ("PUT", target, json!({ "indexes": indexes }).to_string())
    })?;
    ensure!(done > 0, "{done} done, {refused} refused");
    Ok(format!("{done} changes of indexes and of their documents, {refused} refused"))
}

/// Rules that look at other documents and at long lists, asked for every write and every document
/// of a page, while they change.
pub(super) fn costly_rules(target: &Target) -> anyhow::Result<String> {
    let list: Vec<usize> = (0..1_000).collect();
    for number in 0..5 {
        let doc = json!({ "doc": { "open": true, "list": list } });
        target.expect("PUT", &format!("/api/v1/looked/{number}"), &doc)?;
    }
    target.fill("ruled", 2_000)?;
    let looks = (0..5).map(|n| {
        format!("get('looked/{n}').data.open && get('looked/{n}').data.list.all(x, x < 1000000)")
    });
    let costly = looks.collect::<Vec<_>>().join(" && ");
    let rules = move |turn: usize| {
        // Many patterns beside the one that counts, and another text each time.
        let mut patterns: serde_json::Map<String, Value> = (0..300)
            .map(|n| {
                (format!("never/{{a}}/c{n}/{{b}}"), json!({ "allow": { "read, write": "true" } }))
            })
            .collect();
        patterns.insert(
            format!("ruled{}/{{it}}", turn % 3),
            json!({ "allow": { "read, write": "true" } }),
        );
        patterns.insert("ruled/{it}".to_owned(), json!({ "allow": { "read, write": costly } }));
        json!({ "match": patterns }).to_string()
    };
    target.expect("PUT", "/admin/v1/tenants/loud/rules", &serde_json::from_str(&rules(0))?)?;
    let (done, refused) = target.together(move |client, turn| {
        let key = format!("r-{client}-{turn}");
        match (client, turn % 3) {
            (0, _) => ("PUT", "/admin/v1/tenants/loud/rules".to_owned(), rules(turn)),
            (_, 0) => query(&json!({ "collection": "ruled", "limit": 1_000 })),
            (_, 1) => {
                let op = |n| json!({ "type": "patch", "path": format!("ruled/{n}"), "data": { "n": n } });
                batch(transaction(&key, (0..OPS).map(op).collect()))
            }
            _ => ("GET", format!("/api/v1/ruled/{}", turn % 2_000), String::new()),
        }
    })?;
    ensure!(done + refused > 0, "nothing was answered");
    Ok(format!("{done} requests that rules look at for long, {refused} refused"))
}
