//! Live readers: one that is told by server-sent events, one that polls.

use serde::Deserialize;

use crate::clock;
use crate::connection::{BUFFER_SMALL, Client, Connection, ExchangeError, Failure};
use crate::sse::EventParser;
use crate::target::Streams;
use crate::wire::Body;

/// A subscription to stream zero by server-sent events.
pub(crate) struct SseReader {
    streams: Streams,
    offset: String,
    connection: Option<SseConnection>,
}

struct SseConnection {
    connection: Connection,
    body: Body,
    events: EventParser,
}

/// The part of a control event that a reader needs to go on after a break.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Control {
    stream_next_offset: String,
}

impl SseReader {
    pub(crate) fn new(streams: Streams) -> SseReader {
        SseReader { streams, offset: "now".to_owned(), connection: None }
    }

    /// Connects and waits for the first control event: the server knows this reader.
    /// A reader that is connected already stays as it is.
    pub(crate) async fn connect(&mut self) -> Result<(), ExchangeError> {
        if self.connection.is_some() {
            return Ok(());
        }
        let mut connection = Connection::open(self.streams.address, BUFFER_SMALL).await?;
        let mut request = Vec::new();
        self.streams.get(0, &format!("?offset={}&live=sse", self.offset), &mut request);
        connection.send(&request).await?;
        let (answer, framing) = connection.response_head().await?;
        if answer.status != 200 {
            return Err(ExchangeError::Status(answer.status));
        }
        let body = Body::new(framing);
        let connection = self.connection.insert(SseConnection {
            connection,
            body,
            events: EventParser::default(),
        });
        loop {
            let event = connection.next_event().await?;
            if event.kind == b"control" {
                self.offset = next_offset(&event.data)?;
                return Ok(());
            }
        }
    }

    /// Waits for the message that holds `marker`.
    pub(crate) async fn wait_for(&mut self, marker: &[u8]) -> Result<(), ExchangeError> {
        loop {
            let Some(connection) = self.connection.as_mut() else {
                // A server may end the answer now and then; a reader goes on where it was.
                self.connect().await?;
                continue;
            };
            let event = match connection.next_event().await {
                Ok(event) => event,
                Err(Failure::Closed) => {
                    self.connection = None;
                    continue;
                }
                Err(failure) => return Err(failure.into()),
            };
            if event.kind == b"control" {
                self.offset = next_offset(&event.data)?;
            } else if contains(&event.data, marker) {
                return Ok(());
            }
        }
    }

    /// Waits until the server says something; an error means that the reader is no longer up.
    pub(crate) async fn receive(&mut self) -> Result<Vec<u8>, Failure> {
        let connection = self.connection.as_mut().ok_or(Failure::Closed)?;
        Ok(connection.next_event().await?.data)
    }
}

impl SseConnection {
    async fn next_event(&mut self) -> Result<crate::sse::Event, Failure> {
        loop {
            if let Some(event) = self.events.next() {
                return Ok(event);
            }
            let events = &mut self.events;
            let more =
                self.connection.next_body_chunk(&mut self.body, |chunk| events.push(chunk)).await?;
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
pub(crate) struct LongPollReader {
    streams: Streams,
    client: Client,
    /// Unknown until the tail was asked for.
    offset: Option<String>,
    cursor: Option<String>,
    is_polling: bool,
}

impl LongPollReader {
    pub(crate) fn new(streams: Streams) -> LongPollReader {
        let client = Client::new(streams.address, BUFFER_SMALL);
        LongPollReader { streams, client, offset: None, cursor: None, is_polling: false }
    }

    /// Sends the request whose answer is the next message.
    pub(crate) async fn poll(&mut self) -> Result<(), ExchangeError> {
        if self.is_polling {
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
        self.client.send(&request).await?;
        self.offset = Some(offset);
        self.is_polling = true;
        Ok(())
    }

    /// Where the stream ends now. A poll from `now` would begin wherever the stream ends when the
    /// poll arrives, and a message that overtook it would never come.
    async fn tail(&mut self) -> Result<String, ExchangeError> {
        let mut request = Vec::new();
        self.streams.get(0, "?offset=now", &mut request);
        let answer = self.client.fetch(&request, |_| {}).await?;
        if answer.status != 200 {
            return Err(ExchangeError::Status(answer.status));
        }
        Ok(answer.next_offset.ok_or(Failure::Malformed)?)
    }

    /// Waits for the message that holds `marker`, asking again after every answer without it.
    pub(crate) async fn wait_for(&mut self, marker: &[u8]) -> Result<(), ExchangeError> {
        loop {
            self.poll().await?;
            let mut body = Vec::new();
            self.is_polling = false;
            let answer = self.client.receive(|chunk| body.extend_from_slice(chunk)).await?;
            if !matches!(answer.status, 200 | 204) {
                return Err(ExchangeError::Status(answer.status));
            }
            self.offset = Some(answer.next_offset.ok_or(Failure::Malformed)?);
            self.cursor = answer.cursor;
            if contains(&body, marker) {
                return Ok(());
            }
        }
    }
}

pub(crate) fn contains(bytes: &[u8], marker: &[u8]) -> bool {
    bytes.windows(marker.len()).any(|part| part == marker)
}

/// The moment at which a future is done, beside what it gave.
pub(crate) async fn timed<T>(future: impl Future<Output = T>) -> (T, std::time::Instant) {
    let value = future.await;
    (value, clock::now())
}
