//! One HTTP/1.1 connection, on which one request after another goes out.
//!
//! Whoever uses the connection drives it; there is no task beside. So a request costs no
//! hand-over between tasks, and dropping the user drops the socket.

use std::error::Error as _;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Request, Response};
use http_body::Body as _;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;

use crate::courier::SendError;
use crate::timer;
use crate::transport::{BEFORE_HEAD_BYTES_MAX, ReceivedBytes, Transport};

/// The longest body of an answer that is read; what follows is cut off.
pub(crate) const BODY_BYTES_MAX: usize = 64 * 1024;

/// The longest head of an answer. It also bounds what is buffered for one connection. That a head
/// has at most 100 headers is hyper's default; to set the same number would cost an allocation
/// per answer, so a test holds it.
const HEAD_BYTES_MAX: usize = 64 * 1024;

/// How long the body of an answer may take; what comes later is cut off. The answer has come by
/// then: its status says what became of the request.
const BODY_MS_MAX: u64 = 3_000;

const _: () = assert!(2 * HEAD_BYTES_MAX <= BEFORE_HEAD_BYTES_MAX);

/// An open connection.
pub(crate) struct Connection {
    sender: SendRequest<Full<Bytes>>,
    /// `None` once it has ended: hyper's connections must not be polled after that.
    driver: Option<http1::Connection<TokioIo<Transport>, Full<Bytes>>>,
    received: ReceivedBytes,
    is_reused: bool,
}

/// An answer, its body read.
pub(crate) struct EndpointResponse {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) is_truncated: bool,
}

/// Why there is no answer.
pub(crate) struct ExchangeError {
    pub(crate) error: SendError,
    /// The connection had waited in the pool and ended without a word: it was most likely closed
    /// while it waited, and the request has not been seen by anybody.
    pub(crate) is_stale: bool,
}

impl Connection {
    pub(crate) async fn open(transport: Transport) -> Result<Connection, SendError> {
        let received = transport.received_bytes();
        let handshake = http1::Builder::new()
            .max_buf_size(HEAD_BYTES_MAX)
            .max_header_size(HEAD_BYTES_MAX)
            .handshake(TokioIo::new(transport))
            .await;
        let (sender, driver) = handshake.map_err(|_| SendError::Broken)?;
        Ok(Connection { sender, driver: Some(driver), received, is_reused: false })
    }

    /// Whether the connection can be used again, as far as it is known without waiting.
    pub(crate) fn is_open(&mut self) -> bool {
        // The waker is that of nobody: whoever uses the connection next polls it with a real one.
        self.drive(&mut Context::from_waker(Waker::noop()));
        self.driver.is_some() && self.sender.is_ready()
    }

    pub(crate) fn mark_reused(&mut self) {
        self.is_reused = true;
    }

    /// Sends a request and reads its answer. After a failure, and after an answer that was cut,
    /// the connection must be dropped.
    pub(crate) async fn exchange(
        &mut self,
        request: Request<Full<Bytes>>,
        when_head_comes: impl FnOnce(u16, &HeaderMap),
    ) -> Result<EndpointResponse, ExchangeError> {
        self.received.clear();
        match self.send(request).await {
            Ok(response) => {
                self.received.end_head();
                when_head_comes(response.status().as_u16(), response.headers());
                self.read(response).await.map_err(ExchangeError::from)
            }
            Err(error) => {
                let is_stale = self.is_reused && !self.received.is_any();
                Err(ExchangeError { error: classify(&error), is_stale })
            }
        }
    }

    /// Sends a request and waits for the head of its answer.
    async fn send(
        &mut self,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, hyper::Error> {
        let mut answering = pin!(self.sender.send_request(request));
        let driver = &mut self.driver;
        poll_fn(|cx| {
            drive(driver, cx);
            answering.as_mut().poll(cx)
        })
        .await
    }

    async fn read(&mut self, response: Response<Incoming>) -> Result<EndpointResponse, SendError> {
        let (head, incoming) = response.into_parts();
        let mut body = BytesMut::new();
        let is_truncated = match incoming.is_end_stream() {
            true => false,
            false => {
                let reading = self.read_body(incoming, &mut body);
                timer::within_ms(BODY_MS_MAX, reading).await.unwrap_or(Ok(true))?
            }
        };
        let (status, headers) = (head.status.as_u16(), head.headers);
        Ok(EndpointResponse { status, headers, body: body.freeze(), is_truncated })
    }

    /// Reads a body, and says whether it was cut.
    async fn read_body(
        &mut self,
        mut incoming: Incoming,
        body: &mut BytesMut,
    ) -> Result<bool, SendError> {
        let mut is_truncated = false;
        while !is_truncated && !incoming.is_end_stream() {
            let Some(chunk) = self.next_chunk(&mut incoming).await else { break };
            let chunk = chunk.map_err(|error| classify(&error))?;
            is_truncated = !append(body, &chunk);
        }
        Ok(is_truncated)
    }

    /// The next chunk of a body; trailers are an empty one.
    async fn next_chunk(&mut self, body: &mut Incoming) -> Option<Result<Bytes, hyper::Error>> {
        let mut body = Pin::new(body);
        let frame = poll_fn(|cx| {
            // A body must ask before the connection reads for it.
            if let Poll::Ready(frame) = body.as_mut().poll_frame(cx) {
                return Poll::Ready(frame);
            }
            self.drive(cx);
            body.as_mut().poll_frame(cx)
        });
        let frame = frame.await?;
        Some(frame.map(|frame| frame.into_data().unwrap_or_default()))
    }

    fn drive(&mut self, cx: &mut Context<'_>) {
        drive(&mut self.driver, cx);
    }
}

/// Lets the connection do what it can. Why it ended is told to whoever waits for an answer.
fn drive(
    driver: &mut Option<http1::Connection<TokioIo<Transport>, Full<Bytes>>>,
    cx: &mut Context<'_>,
) {
    if let Some(open) = driver
        && Pin::new(open).poll(cx).is_ready()
    {
        *driver = None;
    }
}

/// A failure that says something about the endpoint.
impl From<SendError> for ExchangeError {
    fn from(error: SendError) -> ExchangeError {
        ExchangeError { error, is_stale: false }
    }
}

/// Appends a chunk to a body, and says whether it had room.
///
/// Copied, because a chunk is a slice of the connection's buffer, which an answer that is kept for
/// a while would keep from being used again.
fn append(body: &mut BytesMut, chunk: &[u8]) -> bool {
    let room = BODY_BYTES_MAX - body.len();
    body.extend_from_slice(chunk.get(..room).unwrap_or(chunk));
    chunk.len() <= room
}

/// What hyper's errors mean to us. By their kinds and sources, never by their messages.
fn classify(error: &hyper::Error) -> SendError {
    if error.is_parse() {
        return SendError::BadAnswer;
    }
    let Some(source) = error.source().and_then(|source| source.downcast_ref::<io::Error>()) else {
        return SendError::Broken;
    };
    // TLS 1.3: a server that wants a certificate of ours says so after the handshake.
    let inner = source.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    if let Some(rustls::Error::AlertReceived(_)) = inner {
        return SendError::TlsHandshake;
    }
    match source.kind() {
        // A body whose chunks are malformed.
        io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput => SendError::BadAnswer,
        _ => SendError::Broken,
    }
}
