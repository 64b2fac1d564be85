//! Every field of every body about documents, wrong in every way: each is refused with its code, and
//! nothing but what is right is done.

use serde_json::{Value, json};

use crate::harness::*;

/// A body, and which values are right where.
struct Body {
    method: &'static str,
    target: &'static str,
    body: Value,
    /// Pointers to fields, and what may stand there: `*` is for whatever is not nested too deep,
    /// `-` for nothing at all.
    right: &'static [(&'static str, &'static [&'static str])],
}

/// Texts of values that somebody may put anywhere.
const VALUES: [&str; 17] = [
    "null",
    "true",
    "-1",
    "0",
    "7",
    "1.5",
    "1e300",
    "18446744073709551616",
    "\"\"",
    "\"x\"",
    "\"LONG\"",
    "\"\\u0000\"",
    "[]",
    "[1]",
    "{}",
    "{\"x\":1}",
    "\"DEEP\"",
];

fn value_of(text: &str) -> Value {
    match text {
        "\"LONG\"" => "x".repeat(2_000).into(),
        "\"DEEP\"" => (0..40).fold(json!(1), |inner, _| json!([inner])),
        text => serde_json::from_str(text).unwrap(),
    }
}

fn bodies() -> Vec<Body> {
    let filter = json!({ "field": "n", "op": "!=", "value": 99 });
    vec![
        Body {
            method: "POST",
            target: "rooms",
            body: json!({ "id": "r2", "n": 1, "at": { "city": "x" } }),
            right: &[
                ("", &["{}", "{\"x\":1}"]),
                ("/id", &["-", "-1", "0", "7", "\"x\""]),
                ("/n", &["*", "-"]),
                ("/at", &["*", "-"]),
                ("/at/city", &["*", "-"]),
            ],
        },
        Body {
            method: "PUT",
            target: "rooms/r1",
            body: json!({ "doc": { "n": 1, "id": "r1" }, "ifMatch": [filter] }),
            right: &[
                ("/doc", &["{}", "{\"x\":1}"]),
                ("/doc/n", &["*", "-"]),
                ("/doc/id", &["-"]),
                ("/ifMatch", &["-", "null", "[]"]),
                ("/ifMatch/0", &["-"]),
                ("/ifMatch/0/field", &["\"x\"", "\"\\u0000\""]),
                ("/ifMatch/0/value", &["*"]),
            ],
        },
        Body {
            method: "PATCH",
            target: "rooms/r1",
            body: json!({ "doc": { "n": 1, "at.city": "x" }, "ifMatch": [filter] }),
            right: &[
                ("/doc", &["{\"x\":1}"]),
                ("/doc/n", &["*", "-"]),
                ("/doc/at.city", &["*", "-"]),
                ("/ifMatch", &["-", "null", "[]"]),
                ("/ifMatch/0", &["-"]),
                ("/ifMatch/0/field", &["\"x\"", "\"\\u0000\""]),
                ("/ifMatch/0/value", &["*"]),
            ],
        },
        Body {
            method: "DELETE",
            target: "rooms/none",
            body: json!({ "ifMatch": [filter] }),
            right: &[
                ("", &["{}"]),
                ("/ifMatch", &["-", "null", "[]"]),
                ("/ifMatch/0", &["-"]),
                ("/ifMatch/0/field", &["\"x\"", "\"\\u0000\""]),
                ("/ifMatch/0/value", &["*"]),
            ],
        },
        Body {
            method: "POST",
            target: "query",
            body: json!({
                "collection": "rooms", "filters": [filter],
                "orderBy": [{ "field": "n", "direction": "desc" }],
                "limit": 5, "startAfter": null, "showDeleted": false, "explain": false,
            }),
            right: &[
                ("/collection", &["\"x\""]),
                ("/filters", &["-", "null", "[]"]),
                ("/filters/0", &["-"]),
                ("/filters/0/field", &["\"x\"", "\"\\u0000\""]),
                ("/filters/0/value", &["*"]),
                ("/orderBy", &["-", "null", "[]"]),
                ("/orderBy/0", &["-"]),
                ("/orderBy/0/field", &["\"x\"", "\"\\u0000\""]),
                ("/orderBy/0/direction", &["-", "null"]),
                ("/limit", &["-", "null", "0", "7"]),
                ("/startAfter", &["-", "null"]),
                ("/showDeleted", &["-", "null", "true"]),
                ("/explain", &["-", "null", "true"]),
            ],
        },
        Body {
            method: "POST",
            target: "batch",
            body: json!({ "idempotencyKey": "NEW", "ops": [{
                "type": "update", "path": "rooms/r1", "data": { "n": 1 },
                "precondition": [filter], "ifMatchVersion": 1, "ifUnmodifiedSince": 5,
            }] }),
            right: &[
                ("/idempotencyKey", &["\"x\""]),
                ("/ops/0/data", &["{\"x\":1}"]),
                ("/ops/0/data/n", &["*"]),
                ("/ops/0/precondition", &["-", "null", "[]"]),
                ("/ops/0/precondition/0", &["-"]),
                ("/ops/0/precondition/0/field", &["\"x\"", "\"\\u0000\""]),
                ("/ops/0/precondition/0/value", &["*"]),
                ("/ops/0/ifMatchVersion", &["-", "null", "0", "7"]),
                ("/ops/0/ifUnmodifiedSince", &["-", "null", "0", "7"]),
            ],
        },
        Body {
            method: "PUT",
            target: "/admin/v1/tenants/default/indexes",
            body: json!({ "indexes": [{
                "collection": "rooms", "fields": [{ "path": "data.n", "direction": "asc" }],
            }] }),
            right: &[
                ("/indexes", &["[]"]),
                ("/indexes/0", &["-"]),
                ("/indexes/0/collection", &["\"x\""]),
                ("/indexes/0/fields/0/path", &["\"x\"", "\"\\u0000\""]),
                ("/indexes/0/fields/0/direction", &["-", "null"]),
            ],
        },
        Body {
            method: "PUT",
            target: "/admin/v1/tenants/default/rules",
            body: json!({ "match": { "rooms/{r}": { "allow": { "read": "true" } } } }),
            right: &[
                ("/match", &["{}"]),
                ("/match/rooms~1{r}/allow", &["{}"]),
                ("/match/rooms~1{r}", &["-"]),
                ("/match/rooms~1{r}/allow/read", &["-"]),
            ],
        },
    ]
}

/// All places in a value, as pointers.
fn pointers(value: &Value, at: &str, out: &mut Vec<String>) {
    out.push(at.to_owned());
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let name = name.replace('~', "~0").replace('/', "~1");
                pointers(value, &format!("{at}/{name}"), out);
            }
        }
        Value::Array(elements) => {
            for (number, value) in elements.iter().enumerate() {
                pointers(value, &format!("{at}/{number}"), out);
            }
        }
        _ => {}
    }
}

/// The body without what a pointer is for.
fn without(body: &Value, pointer: &str) -> Option<Value> {
    let (parent, name) = pointer.rsplit_once('/')?;
    let mut body = body.clone();
    match body.pointer_mut(parent)? {
        Value::Object(fields) => drop(fields.remove(&name.replace("~1", "/"))),
        Value::Array(elements) => drop(elements.remove(name.parse().ok()?)),
        _ => return None,
    }
    Some(body)
}

impl Body {
    fn is_right(&self, pointer: &str, value: &str) -> bool {
        let known = self.right.iter().find(|(at, _)| *at == pointer);
        let right = known.map_or(&[][..], |(_, right)| right);
        right.contains(&value) || (right.contains(&"*") && !matches!(value, "-" | "\"DEEP\""))
    }

    async fn send(&self, server: &TestServer, body: &str) -> Answer {
        let target = match self.target.starts_with('/') {
            true => self.target.to_owned(),
            false => format!("/api/v1/{}", self.target),
        };
        server.ask(self.method, &target, &[JSON], body.as_bytes()).await
    }

    /// What is not as it should be.
    fn check(&self, answer: &Answer, is_right: bool, what: &str) -> Option<String> {
        let what = format!("{} {} {what}: {answer}", self.method, self.target);
        if is_right {
            // There may be none, another one, or one that is otherwise.
            let is_done = matches!(answer.status(), 200 | 201 | 204 | 404 | 409 | 412);
            return (!is_done).then_some(what);
        }
        if answer.status() != 400 {
            return Some(what);
        }
        let body = answer.json();
        let error = if body["error"].is_object() { &body["error"] } else { &body };
        let code = match self.target {
            "batch" => "INVALID_ARGUMENT",
            target if target.starts_with('/') => "INVALID_REQUEST",
            _ => "BAD_REQUEST",
        };
        let is_said = error["message"].as_str().is_some_and(|said| said.len() > 10);
        (error["code"] != code || !is_said).then_some(what)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_field_is_looked_at_before_anything_is_done() {
    let server = Setup::default().start().await;
    server.put_doc("rooms/r1", json!({ "n": 1 })).await;
    let mut wrongs = Vec::new();
    let mut number = 0;
    let mut fresh = |body: &Value| {
        number += 1;
        body.to_string().replace("NEW", &format!("key-{number}"))
    };
    for body in bodies() {
        let answer = body.send(&server, &fresh(&body.body)).await;
        wrongs.extend(body.check(&answer, true, "as it is"));
        let mut all = Vec::new();
        pointers(&body.body, "", &mut all);
        for pointer in &all {
            for text in VALUES {
                let mut wrong = body.body.clone();
                *wrong.pointer_mut(pointer).unwrap() = value_of(text);
                let answer = body.send(&server, &fresh(&wrong)).await;
                wrongs.extend(body.check(
                    &answer,
                    body.is_right(pointer, text),
                    &format!("{pointer} {text}"),
                ));
            }
            if let Some(rest) = without(&body.body, pointer) {
                let answer = body.send(&server, &fresh(&rest)).await;
                let is_right = body.is_right(pointer, "-");
                wrongs.extend(body.check(&answer, is_right, &format!("without {pointer}")));
            }
            // One more field than is known, where fields are known.
            let mut more = body.body.clone();
            if let Some(Value::Object(fields)) = more.pointer_mut(pointer)
                && !matches!(
                    (body.target, pointer.as_str()),
                    ("rooms", _) | (_, "/doc" | "/ops/0/data" | "/match")
                )
            {
                fields.insert("surprise".to_owned(), json!(1));
                let answer = body.send(&server, &fresh(&more)).await;
                wrongs.extend(body.check(&answer, false, &format!("{pointer} with one more")));
            }
        }
        for text in ["", " ", "{", "{}{}", "nul", "\u{feff}{}", "{\"a\":1,}", "\"", "[[", "'a'"] {
            let answer = body.send(&server, text).await;
            let is_right = text.trim().is_empty() && body.method == "DELETE" && text.is_empty();
            wrongs.extend(body.check(&answer, is_right, text));
        }
        for deep in [200, 10_000] {
            let text = format!("{{\"doc\":{}{}}}", "[".repeat(deep), "]".repeat(deep));
            wrongs.extend(body.check(&body.send(&server, &text).await, false, "deep"));
        }
    }
    assert!(wrongs.is_empty(), "{}", wrongs.join("\n"));
    assert_eq!(server.get_doc("rooms/r1").await.expect(200).json()["id"], "r1");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_too_much_is_refused_by_every_way_in() {
    let server = Setup::large().start().await;
    // {"n":"…"} is eight bytes longer than its text.
    let mebibyte = "x".repeat((1 << 20) - 8);
    let larger = format!("{mebibyte}x");
    let doc = |text: &str| json!({ "n": text });
    let op = |kind: &str, text: &str| json!([{ "type": kind, "path": "rooms/b", "data": { "n": text } }]);
    // A body with one document has no room for what stands around a document of the full size.
    let refused = server.doc("PUT", "rooms/a", &json!({ "doc": doc(&mebibyte) })).await.expect(413);
    assert_eq!(refused.code(), "REQUEST_TOO_LARGE");
    server.doc("POST", "rooms", &doc(&larger)).await.expect(413);
    for kind in ["create", "set"] {
        let refused = server.batch("k", &op(kind, &larger)).await;
        assert!(matches!(refused.status(), 400 | 429), "{refused}");
        server.get_doc("rooms/b").await.expect(404);
    }
    server.batch("whole", &op("create", &mebibyte)).await.expect(200);
    // What a patch makes of it counts.
    let grown = server.doc("PATCH", "rooms/b", &json!({ "doc": { "m": 1 } })).await.expect(413);
    assert!(grown.text().contains("at most 1048576"), "{grown}");
    let patch = json!([{ "type": "patch", "path": "rooms/b", "data": { "m": 1 } }]);
    let grown = server.batch("grown", &patch).await;
    assert!(matches!(grown.status(), 400 | 429), "{grown}");
    assert_eq!(server.get_doc("rooms/b").await.expect(200).json()["version"], 1);
    for count in [501, 10_000] {
        let ops: Vec<_> = (0..count)
            .map(|n| json!({ "type": "set", "path": format!("rooms/m{n}"), "data": {} }))
            .collect();
        let refused = server.batch("many", &json!(ops)).await;
        let refused_code = refused.json()["error"]["code"].clone();
        assert_eq!((refused.status(), refused_code), (429, json!("RESOURCE_EXHAUSTED")), "{count}");
    }
    let large =
        vec![json!({ "type": "set", "path": "rooms/b", "data": { "n": "y".repeat(900_000) } }); 4];
    let refused = server.batch("large", &json!(large)).await.expect(429);
    assert!(refused.text().contains("RESOURCE_EXHAUSTED"), "{refused}");
    let found = server.query(&json!({ "collection": "rooms" })).await.expect(200).json();
    assert_eq!(ids_of(&found), ["b"]);
    server.stop().await;
}
