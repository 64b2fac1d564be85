//! A line: one HTTP/1.1 connection, on which one request after another goes out.
//!
//! Whoever uses the line drives the connection; there is no task beside. So a request costs no
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
use hyper::client::conn::http1::{self, Connection, SendRequest};
use hyper_util::rt::TokioIo;

use crate::courier::SendError;
use crate::stream::{Heard, Stream};

/// The longest body of an answer that is read; what follows is cut off.
pub(crate) const BODY_BYTES_MAX: usize = 64 * 1024;

/// The longest head of an answer. It also bounds what is buffered for one connection. That a head
/// has at most 100 headers is hyper's default; to set the same number would cost an allocation
/// per answer, so a test holds it.
const HEAD_BYTES_MAX: usize = 64 * 1024;

/// An open connection.
pub(crate) struct Line {
    sender: SendRequest<Full<Bytes>>,
    /// `None` once it has ended: hyper's connections must not be polled after that.
    connection: Option<Connection<TokioIo<Stream>, Full<Bytes>>>,
    heard: Heard,
    reused: bool,
}

/// An answer, its body read.
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) truncated: bool,
}

/// Why there is no answer.
pub(crate) struct Failure {
    pub(crate) error: SendError,
    /// The line had waited in the pool and ended without a word: it was most likely closed while
    /// it waited, and the request has not been seen by anybody.
    pub(crate) stale: bool,
}

impl Line {
    pub(crate) async fn open(stream: Stream) -> Result<Line, SendError> {
        let heard = stream.heard();
        let handshake = http1::Builder::new()
            .max_buf_size(HEAD_BYTES_MAX)
            .max_header_size(HEAD_BYTES_MAX)
            .handshake(TokioIo::new(stream))
            .await;
        let (sender, connection) = handshake.map_err(|_| SendError::Broken)?;
        Ok(Line { sender, connection: Some(connection), heard, reused: false })
    }

    /// Whether the line can be used again, as far as it is known without waiting.
    pub(crate) fn is_open(&mut self) -> bool {
        // The waker is that of nobody: whoever uses the line next polls it with a real one.
        self.drive(&mut Context::from_waker(Waker::noop()));
        self.connection.is_some() && self.sender.is_ready()
    }

    pub(crate) fn mark_reused(&mut self) {
        self.reused = true;
    }

    /// Sends a request and reads its answer. After a failure, and after an answer that was cut,
    /// the line must be dropped.
    pub(crate) async fn exchange(
        &mut self,
        request: Request<Full<Bytes>>,
    ) -> Result<Reply, Failure> {
        self.heard.clear();
        match self.head(request).await {
            Ok(response) => self.read(response).await.map_err(Failure::of),
            Err(error) => {
                let stale = self.reused && !self.heard.anything();
                Err(Failure { error: classify(&error), stale })
            }
        }
    }

    /// Sends a request and waits for the head of its answer.
    async fn head(
        &mut self,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, hyper::Error> {
        let mut answering = pin!(self.sender.send_request(request));
        let connection = &mut self.connection;
        poll_fn(|cx| {
            drive(connection, cx);
            answering.as_mut().poll(cx)
        })
        .await
    }

    async fn read(&mut self, response: Response<Incoming>) -> Result<Reply, SendError> {
        let (head, mut incoming) = response.into_parts();
        let (mut body, mut truncated) = (BytesMut::new(), false);
        while !truncated && !incoming.is_end_stream() {
            let Some(piece) = self.piece(&mut incoming).await else { break };
            let piece = piece.map_err(|error| classify(&error))?;
            truncated = !add(&mut body, &piece);
        }
        let (status, headers) = (head.status.as_u16(), head.headers);
        Ok(Reply { status, headers, body: body.freeze(), truncated })
    }

    /// The next piece of a body; trailers are an empty one.
    async fn piece(&mut self, body: &mut Incoming) -> Option<Result<Bytes, hyper::Error>> {
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
        drive(&mut self.connection, cx);
    }
}

/// Lets the connection do what it can. Why it ended is told to whoever waits for an answer.
fn drive(connection: &mut Option<Connection<TokioIo<Stream>, Full<Bytes>>>, cx: &mut Context<'_>) {
    if let Some(open) = connection
        && Pin::new(open).poll(cx).is_ready()
    {
        *connection = None;
    }
}

impl Failure {
    /// A failure that says something about the endpoint.
    pub(crate) fn of(error: SendError) -> Failure {
        Failure { error, stale: false }
    }
}

/// Adds a piece of a body, and says whether it had room.
///
/// Copied, because a piece is a slice of the connection's buffer, which an answer that is kept for
/// a while would keep from being used again.
fn add(body: &mut BytesMut, piece: &[u8]) -> bool {
    let room = BODY_BYTES_MAX - body.len();
    body.extend_from_slice(piece.get(..room).unwrap_or(piece));
    piece.len() <= room
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
