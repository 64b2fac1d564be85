//! A client that reads an event stream.

use super::client::{Connection, Head, Piece, request};
use super::server::TestServer;

/// An event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) kind: String,
    /// Its lines, joined as a browser would.
    pub(crate) data: String,
}

/// A connection on which events come.
pub(crate) struct Events {
    pub(crate) head: Head,
    connection: Connection,
    text: String,
}

/// Where a control event says that the reader is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Control {
    pub(crate) next_offset: String,
    pub(crate) cursor: Option<String>,
    pub(crate) up_to_date: bool,
    pub(crate) closed: bool,
}

impl Events {
    /// Asks for the events of a stream.
    pub(crate) async fn open(server: &TestServer, target: &str) -> Events {
        let mut connection = server.connect().await;
        connection.send(&request("GET", target, &[], b"")).await;
        let head = connection.head("GET").await.unwrap();
        assert_eq!(head.status, 200, "{head:?}");
        assert_eq!(head.get("content-type"), Some("text/event-stream"));
        Events { head, connection, text: String::new() }
    }

    /// The next event; `None` if the stream ended in order.
    pub(crate) async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(end) = self.text.find("\n\n") {
                let rest = self.text.split_off(end + 2);
                let event = std::mem::replace(&mut self.text, rest);
                return Some(parse(&event));
            }
            match self.connection.piece().await {
                Piece::Bytes(bytes) => self.text.push_str(&String::from_utf8(bytes).unwrap()),
                Piece::End => {
                    assert_eq!(self.text, "", "half an event");
                    return None;
                }
                Piece::Cut => panic!("the event stream was cut off"),
            }
        }
    }

    /// The next event, which must be a control event.
    pub(crate) async fn control(&mut self) -> Control {
        let event = self.next().await.expect("a control event");
        assert_eq!(event.kind, "control", "{event:?}");
        let json: serde_json::Value = serde_json::from_str(&event.data).unwrap();
        let text = |name: &str| json[name].as_str().map(str::to_owned);
        Control {
            next_offset: text("streamNextOffset").expect("where to go on"),
            cursor: text("streamCursor"),
            up_to_date: json["upToDate"] == true,
            closed: json["streamClosed"] == true,
        }
    }

    /// The next two events, which must be data and its control.
    pub(crate) async fn data(&mut self) -> (String, Control) {
        let event = self.next().await.expect("a data event");
        assert_eq!(event.kind, "data", "{event:?}");
        (event.data, self.control().await)
    }
}

/// Reads an event as the specification of event streams says, and only in the form that ours has.
fn parse(text: &str) -> Event {
    let mut lines = text.trim_end_matches('\n').split('\n');
    let kind = lines.next().unwrap().strip_prefix("event: ").unwrap().to_owned();
    let data: Vec<&str> = lines.map(|line| line.strip_prefix("data:").unwrap()).collect();
    assert!(!data.iter().any(|line| line.contains('\r')), "a line end within a line: {text:?}");
    Event { kind, data: data.join("\n") }
}
