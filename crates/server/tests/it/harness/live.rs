//! A client that follows the documents of a collection, and keeps a picture of them.

use std::collections::BTreeMap;

use serde_json::Value;

use super::client::{Connection, Head, Headers, Piece, request};
use super::guarded;
use super::server::TestServer;

/// An event of a live query.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LiveEvent {
    pub(crate) kind: String,
    /// None if the event does not say; empty takes away the one that there was.
    pub(crate) id: Option<String>,
    pub(crate) data: Value,
}

/// Somebody who follows. What cannot be true panics: a gap, a repetition, a step back.
pub(crate) struct Picture {
    pub(crate) head: Head,
    connection: Connection,
    bytes: Vec<u8>,
    /// What a browser would send when it comes back.
    pub(crate) last_id: String,
    pub(crate) documents: BTreeMap<String, Value>,
    pub(crate) is_ready: bool,
    pub(crate) resets: usize,
}

impl Picture {
    /// Begins to follow, as an admin of a server without keys.
    pub(crate) async fn open(server: &TestServer, target: &str) -> Picture {
        Picture::open_with(server, target, &[]).await
    }

    pub(crate) async fn open_as(server: &TestServer, key: &str, target: &str) -> Picture {
        let bearer = format!("Bearer {key}");
        Picture::open_with(server, target, &[("authorization", &bearer)]).await
    }

    async fn open_with(server: &TestServer, target: &str, headers: Headers<'_>) -> Picture {
        let (head, connection) = connect(server, target, headers).await;
        Picture {
            head,
            connection,
            bytes: Vec::new(),
            last_id: String::new(),
            documents: BTreeMap::new(),
            is_ready: false,
            resets: 0,
        }
    }

    /// Comes back after the connection was lost, with what was half sent forgotten.
    pub(crate) async fn come_back(&mut self, server: &TestServer, target: &str, key: Option<&str>) {
        let bearer = key.map(|key| format!("Bearer {key}"));
        let mut headers = Vec::new();
        headers.extend(bearer.as_deref().map(|bearer| ("authorization", bearer)));
        if self.last_id.is_empty() {
            self.documents.clear();
        } else {
            headers.push(("last-event-id", self.last_id.as_str()));
        }
        let (head, connection) = connect(server, target, &headers).await;
        (self.head, self.connection) = (head, connection);
        self.bytes.clear();
        self.is_ready = false;
    }

    /// The next event; `None` if the stream has ended, in order or not.
    pub(crate) async fn try_next(&mut self) -> Option<LiveEvent> {
        loop {
            if let Some(end) = self.bytes.windows(2).position(|pair| pair == b"\n\n") {
                let rest = self.bytes.split_off(end + 2);
                let text = String::from_utf8(std::mem::replace(&mut self.bytes, rest)).unwrap();
                let event = parse(&text);
                self.apply(&event);
                return Some(event);
            }
            match guarded("an event", self.connection.piece()).await {
                Piece::Bytes(bytes) => self.bytes.extend(bytes),
                Piece::End | Piece::Cut => return None,
            }
        }
    }

    pub(crate) async fn next(&mut self) -> LiveEvent {
        self.try_next().await.expect("an event")
    }

    /// Reads until everything is there.
    pub(crate) async fn ready(&mut self) -> &BTreeMap<String, Value> {
        while !self.is_ready {
            self.next().await;
        }
        &self.documents
    }

    /// Reads until this change, or a later one, was told of.
    pub(crate) async fn until(&mut self, seq: u64) {
        while !self.is_ready || self.seq() < seq {
            self.next().await;
        }
    }

    /// The last change that it has.
    pub(crate) fn seq(&self) -> u64 {
        let seq = self.last_id.split('/').next().unwrap_or_default();
        if seq.is_empty() { 0 } else { seq.parse().unwrap() }
    }

    /// Its documents' ids and what a field of them is.
    pub(crate) fn field(&self, name: &str) -> Vec<(&str, &Value)> {
        self.documents.iter().map(|(id, document)| (id.as_str(), &document[name])).collect()
    }

    fn apply(&mut self, event: &LiveEvent) {
        let before = self.seq();
        if let Some(id) = &event.id {
            self.last_id.clone_from(id);
        }
        let id = |document: &Value| document["id"].as_str().expect("an id").to_owned();
        match event.kind.as_str() {
            "document" => {
                assert!(!self.is_ready, "a document after all were there: {event:?}");
                let id = id(&event.data);
                assert!(event.id.as_deref().unwrap().ends_with(&format!("/{id}")), "{event:?}");
                let again = self.documents.insert(id, event.data.clone());
                assert_eq!(again, None, "it was there: {event:?}");
            }
            "ready" => {
                assert!(!self.is_ready);
                assert_eq!(event.data["seq"].to_string(), self.last_id);
                self.is_ready = true;
            }
            "change" => {
                assert_eq!(event.data["seq"], self.seq(), "{event:?}");
                assert!(self.seq() > before, "change {before} came before {event:?}");
                let document = &event.data["document"];
                let old = self.documents.insert(id(document), document.clone());
                let version = |document: &Value| document["version"].as_u64().unwrap();
                if let Some(old) = old {
                    assert!(version(document) > version(&old), "{old} before {event:?}");
                    assert_eq!(event.data["type"], "update");
                }
            }
            "removed" => {
                assert!(self.seq() > before, "change {before} came before {event:?}");
                assert_eq!(event.data.as_object().unwrap().len(), 1, "its id alone: {event:?}");
                self.documents.remove(&id(&event.data)).expect("it was there");
            }
            "reset" => {
                assert_eq!(self.last_id, "");
                self.documents.clear();
                self.is_ready = false;
                self.resets += 1;
            }
            "" => assert!(self.seq() >= before, "{event:?}"),
            other => panic!("there is no event {other}"),
        }
    }
}

async fn connect(server: &TestServer, target: &str, headers: Headers<'_>) -> (Head, Connection) {
    let target = format!("/api/v1/{target}");
    let mut connection = server.connect().await;
    connection.send(&request("GET", &target, headers, b"")).await;
    let head = connection.head("GET").await.unwrap();
    assert_eq!(head.status, 200, "{head:?}");
    assert_eq!(head.get("content-type"), Some("text/event-stream"));
    (head, connection)
}

fn parse(text: &str) -> LiveEvent {
    let mut event = LiveEvent { kind: String::new(), id: None, data: Value::Null };
    for line in text.trim_end_matches('\n').split('\n').filter(|line| *line != ":") {
        let (name, value) = line.split_once(':').expect("a field");
        let value = value.strip_prefix(' ').unwrap_or(value);
        match name {
            "event" => value.clone_into(&mut event.kind),
            "id" => event.id = Some(value.to_owned()),
            "data" => event.data = serde_json::from_str(value).expect("JSON, in one line"),
            other => panic!("there is no field {other}: {text:?}"),
        }
    }
    event
}
