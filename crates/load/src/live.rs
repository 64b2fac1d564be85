//! Live readers: one that is told by server-sent events, one that polls.

use serde::Deserialize;

use crate::clock;
use crate::connection::{BUFFER_SMALL, Connection, Failure, Link};
use crate::sse::Events;
use crate::target::Streams;
use crate::wire::Body;

/// A subscription to stream zero by server-sent events.
pub(crate) struct Sse {
    streams: Streams,
    offset: String,
    open: Option<Open>,
}

struct Open {
    connection: Connection,
    body: Body,
    events: Events,
}

/// The part of a control event that a reader needs to go on after a break.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Control {
    stream_next_offset: String,
}

impl Sse {
    pub(crate) fn new(streams: Streams) -> Sse {
        Sse { streams, offset: "now".to_owned(), open: None }
    }

    /// Connects and waits for the first control event: the server knows this reader.
    /// A reader that is connected already stays as it is.
    pub(crate) async fn connect(&mut self) -> Result<(), Refused> {
        if self.open.is_some() {
            return Ok(());
        }
        let mut connection = Connection::open(self.streams.address, BUFFER_SMALL).await?;
        let mut request = Vec::new();
        self.streams.get(0, &format!("?offset={}&live=sse", self.offset), &mut request);
        connection.send(&request).await?;
        let (answer, framing) = connection.opening().await?;
        if answer.status != 200 {
            return Err(Refused::Status(answer.status));
        }
        let body = Body::new(framing);
        let open = self.open.insert(Open { connection, body, events: Events::default() });
        loop {
            let event = open.event().await?;
            if event.kind == b"control" {
                self.offset = next_offset(&event.data)?;
                return Ok(());
            }
        }
    }

    /// Waits for the message that holds `mark`.
    pub(crate) async fn wait_for(&mut self, mark: &[u8]) -> Result<(), Refused> {
        loop {
            let Some(open) = self.open.as_mut() else {
                // A server may end the answer now and then; a reader goes on where it was.
                self.connect().await?;
                continue;
            };
            let event = match open.event().await {
                Ok(event) => event,
                Err(Failure::Closed) => {
                    self.open = None;
                    continue;
                }
                Err(failure) => return Err(failure.into()),
            };
            if event.kind == b"control" {
                self.offset = next_offset(&event.data)?;
            } else if holds(&event.data, mark) {
                return Ok(());
            }
        }
    }

    /// Waits until the server says something; an error means that the reader is no longer up.
    pub(crate) async fn receive(&mut self) -> Result<Vec<u8>, Failure> {
        let open = self.open.as_mut().ok_or(Failure::Closed)?;
        Ok(open.event().await?.data)
    }
}

impl Open {
    async fn event(&mut self) -> Result<crate::sse::Event, Failure> {
        loop {
            if let Some(event) = self.events.next() {
                return Ok(event);
            }
            let events = &mut self.events;
            let more =
                self.connection.some_body(&mut self.body, |piece| events.push(piece)).await?;
            if !more {
                return Err(Failure::Closed);
            }
        }
    }
}

fn next_offset(control: &[u8]) -> Result<String, Failure> {
    let control: Control = serde_json::from_slice(control).map_err(|_| Failure::Malformed)?;
    Ok(control.stream_next_offset)
}

/// A reader of stream zero that asks again whenever it was answered.
pub(crate) struct LongPoll {
    streams: Streams,
    link: Link,
    /// Unknown until the tail was asked for.
    offset: Option<String>,
    cursor: Option<String>,
    asked: bool,
}

impl LongPoll {
    pub(crate) fn new(streams: Streams) -> LongPoll {
        let link = Link::new(streams.address, BUFFER_SMALL);
        LongPoll { streams, link, offset: None, cursor: None, asked: false }
    }

    /// Sends the question whose answer is the next message.
    pub(crate) async fn ask(&mut self) -> Result<(), Refused> {
        if self.asked {
            return Ok(());
        }
        let offset = match &self.offset {
            Some(offset) => offset.clone(),
            None => self.tail().await?,
        };
        let mut query = format!("?offset={offset}&live=long-poll");
        if let Some(cursor) = &self.cursor {
            query += &format!("&cursor={cursor}");
        }
        let mut request = Vec::new();
        self.streams.get(0, &query, &mut request);
        self.link.send(&request).await?;
        self.offset = Some(offset);
        self.asked = true;
        Ok(())
    }

    /// Where the stream ends now. A poll from `now` would begin wherever the stream ends when the
    /// poll arrives, and a message that overtook it would never come.
    async fn tail(&mut self) -> Result<String, Refused> {
        let mut request = Vec::new();
        self.streams.get(0, "?offset=now", &mut request);
        let answer = self.link.fetch(&request, |_| {}).await?;
        if answer.status != 200 {
            return Err(Refused::Status(answer.status));
        }
        Ok(answer.next_offset.ok_or(Failure::Malformed)?)
    }

    /// Waits for the message that holds `mark`, asking again after every answer without it.
    pub(crate) async fn wait_for(&mut self, mark: &[u8]) -> Result<(), Refused> {
        loop {
            self.ask().await?;
            let mut body = Vec::new();
            self.asked = false;
            let answer = self.link.receive(|piece| body.extend_from_slice(piece)).await?;
            if !matches!(answer.status, 200 | 204) {
                return Err(Refused::Status(answer.status));
            }
            self.offset = Some(answer.next_offset.ok_or(Failure::Malformed)?);
            self.cursor = answer.cursor;
            if holds(&body, mark) {
                return Ok(());
            }
        }
    }
}

/// Why a live reader did not get its message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    Status(u16),
    Failure(Failure),
}

impl From<Failure> for Refused {
    fn from(failure: Failure) -> Refused {
        Refused::Failure(failure)
    }
}

pub(crate) fn holds(bytes: &[u8], mark: &[u8]) -> bool {
    bytes.windows(mark.len()).any(|part| part == mark)
}

/// The moment at which a future is done, beside what it gave.
pub(crate) async fn timed<T>(future: impl Future<Output = T>) -> (T, std::time::Instant) {
    let value = future.await;
    (value, clock::now())
}
