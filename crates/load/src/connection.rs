//! One keep-alive connection: a request out and its answer in, or the reverse; nothing pipelined.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::clock;
use crate::wire::{self, Body, Framing, Head, ParseError};

/// Room for the answer to an append many times over.
pub(crate) const BUFFER_SMALL: usize = 8 * 1024;
/// Large enough that a catch-up read costs few system calls.
pub(crate) const BUFFER_LARGE: usize = 256 * 1024;
/// A server that is not there is asked again at this pace.
const RECONNECT_AFTER: Duration = Duration::from_millis(10);

/// Why a request has no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failure {
    Connect(io::ErrorKind),
    Transport(io::ErrorKind),
    Closed,
    Malformed,
    TimedOut,
}

impl Failure {
    /// The name under which the report counts it.
    pub(crate) fn label(self) -> String {
        match self {
            Failure::Connect(kind) => format!("connect: {kind}"),
            Failure::Transport(kind) => format!("transport: {kind}"),
            Failure::Closed => "connection closed".to_owned(),
            Failure::Malformed => "malformed answer".to_owned(),
            Failure::TimedOut => "timed out".to_owned(),
        }
    }
}

impl From<ParseError> for Failure {
    fn from(_: ParseError) -> Failure {
        Failure::Malformed
    }
}

/// Why an exchange did not come to what it should.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExchangeError {
    /// It was answered with another status.
    Status(u16),
    Failure(Failure),
}

impl From<Failure> for ExchangeError {
    fn from(failure: Failure) -> ExchangeError {
        ExchangeError::Failure(failure)
    }
}

pub(crate) struct Connection {
    stream: TcpStream,
    buffer: Box<[u8]>,
    /// The arrived bytes that nobody has used yet are `buffer[start..end]`.
    start: usize,
    end: usize,
    is_reusable: bool,
}

/// The head of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) is_up_to_date: bool,
    pub(crate) next_offset: Option<String>,
    pub(crate) cursor: Option<String>,
}

impl Connection {
    pub(crate) async fn open(address: SocketAddr, buffer: usize) -> Result<Connection, Failure> {
        let stream = TcpStream::connect(address).await.map_err(|e| Failure::Connect(e.kind()))?;
        Connection::from_stream(stream, buffer)
    }

    /// Takes a connection that was opened, by us or to us.
    pub(crate) fn from_stream(stream: TcpStream, buffer: usize) -> Result<Connection, Failure> {
        stream.set_nodelay(true).map_err(|e| Failure::Connect(e.kind()))?;
        let buffer = vec![0; buffer].into_boxed_slice();
        Ok(Connection { stream, buffer, start: 0, end: 0, is_reusable: true })
    }

    /// The next request of somebody who calls us: the path, with the body given to `sink`.
    pub(crate) async fn request(&mut self, sink: impl FnMut(&[u8])) -> Result<String, Failure> {
        loop {
            let unread = self.unread();
            if let Some((head, path)) = wire::parse_request(unread)? {
                let path = String::from_utf8_lossy(unread.get(path).unwrap_or_default());
                let path = path.into_owned();
                self.start += head.head_bytes;
                self.body(head.framing, sink).await?;
                return Ok(path);
            }
            self.fill_buffer().await?;
        }
    }

    /// Waits until whoever calls us hangs up.
    pub(crate) async fn wait_for_close(&mut self) {
        loop {
            (self.start, self.end) = (0, 0);
            if self.fill_buffer().await.is_err() {
                return;
            }
        }
    }

    pub(crate) async fn send(&mut self, request: &[u8]) -> Result<(), Failure> {
        self.stream.write_all(request).await.map_err(|e| Failure::Transport(e.kind()))
    }

    /// The status alone: the path of an append, where nothing is copied.
    pub(crate) async fn status(&mut self) -> Result<u16, Failure> {
        let head = self.head().await?;
        self.start += head.head_bytes;
        self.body(head.framing, |_| {}).await?;
        Ok(head.status)
    }

    /// The answer, its body given to `sink` piece by piece.
    pub(crate) async fn response(&mut self, sink: impl FnMut(&[u8])) -> Result<Response, Failure> {
        let (response, framing) = self.response_head().await?;
        self.body(framing, sink).await?;
        Ok(response)
    }

    /// The head of an answer whose body the caller reads with [`Connection::next_body_chunk`].
    pub(crate) async fn response_head(&mut self) -> Result<(Response, Framing), Failure> {
        let head = self.head().await?;
        let text = |range: Option<std::ops::Range<usize>>| {
            range
                .and_then(|range| self.unread().get(range))
                .map(|bytes| String::from_utf8_lossy(bytes).into_owned())
        };
        let response = Response {
            status: head.status,
            is_up_to_date: head.is_up_to_date,
            next_offset: text(head.next_offset),
            cursor: text(head.cursor),
        };
        self.start += head.head_bytes;
        Ok((response, head.framing))
    }

    /// Waits until there is more of the body; `false` when it has ended.
    pub(crate) async fn next_body_chunk(
        &mut self,
        body: &mut Body,
        mut sink: impl FnMut(&[u8]),
    ) -> Result<bool, Failure> {
        loop {
            let step = body.decode(self.unread())?;
            sink(step.data);
            let (used, has_data, is_end) = (step.used, !step.data.is_empty(), step.is_end);
            self.start += used;
            if is_end {
                return Ok(false);
            }
            if has_data {
                return Ok(true);
            }
            if used == 0 {
                self.fill_buffer().await?;
            }
        }
    }

    async fn body(&mut self, framing: Framing, mut sink: impl FnMut(&[u8])) -> Result<(), Failure> {
        let mut body = Body::new(framing);
        loop {
            match self.next_body_chunk(&mut body, &mut sink).await {
                Ok(true) => {}
                Ok(false) => return Ok(()),
                Err(Failure::Closed) if framing == Framing::UntilClose => return Ok(()),
                Err(failure) => return Err(failure),
            }
        }
    }

    async fn head(&mut self) -> Result<Head, Failure> {
        loop {
            if let Some(head) = wire::parse_head(self.unread())? {
                self.is_reusable &= head.is_keep_alive && head.framing != Framing::UntilClose;
                return Ok(head);
            }
            self.fill_buffer().await?;
        }
    }

    fn unread(&self) -> &[u8] {
        self.buffer.get(self.start..self.end).unwrap_or_default()
    }

    async fn fill_buffer(&mut self) -> Result<(), Failure> {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.end == self.buffer.len() {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        let room = self.buffer.get_mut(self.end..).unwrap_or_default();
        if room.is_empty() {
            // A head larger than the buffer.
            return Err(Failure::Malformed);
        }
        match self.stream.read(room).await {
            Ok(0) => Err(Failure::Closed),
            Ok(count) => {
                self.end += count;
                Ok(())
            }
            Err(error) => Err(Failure::Transport(error.kind())),
        }
    }
}

/// A connection that is opened when it is needed and opened again after it broke.
pub(crate) struct Client {
    address: SocketAddr,
    buffer: usize,
    connection: Option<Connection>,
}

impl Client {
    pub(crate) fn new(address: SocketAddr, buffer: usize) -> Client {
        Client { address, buffer, connection: None }
    }

    /// Sends a request and waits for its status.
    pub(crate) async fn exchange(&mut self, request: &[u8]) -> Result<u16, Failure> {
        let mut connection = self.take().await?;
        connection.send(request).await?;
        let status = connection.status().await?;
        self.keep(connection);
        Ok(status)
    }

    /// Sends a request and waits for its whole answer.
    pub(crate) async fn fetch(
        &mut self,
        request: &[u8],
        sink: impl FnMut(&[u8]),
    ) -> Result<Response, Failure> {
        self.send(request).await?;
        self.receive(sink).await
    }

    /// Sends a request whose answer will be waited for later.
    pub(crate) async fn send(&mut self, request: &[u8]) -> Result<(), Failure> {
        let mut connection = self.take().await?;
        connection.send(request).await?;
        self.connection = Some(connection);
        Ok(())
    }

    pub(crate) async fn receive(&mut self, sink: impl FnMut(&[u8])) -> Result<Response, Failure> {
        let mut connection = self.connection.take().ok_or(Failure::Closed)?;
        let response = connection.response(sink).await?;
        self.keep(connection);
        Ok(response)
    }

    /// The connection is out of the client while in use: whatever fails drops it.
    async fn take(&mut self) -> Result<Connection, Failure> {
        if let Some(connection) = self.connection.take() {
            return Ok(connection);
        }
        let opened = Connection::open(self.address, self.buffer).await;
        if opened.is_err() {
            clock::sleep(RECONNECT_AFTER).await;
        }
        opened
    }

    fn keep(&mut self, connection: Connection) {
        self.connection = connection.is_reusable.then_some(connection);
    }
}
