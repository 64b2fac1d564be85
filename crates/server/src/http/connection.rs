//! One connection: its version of HTTP, its requests, its end.
//!
//! ```text
//! first bytes ─┬─ HTTP/2 ── requests, each a task of its own ────────────────► end
//!              └─ HTTP/1 ── requests ──► head of an answer that stays open ──► end
//!                              ▲             │ the socket is taken back
//!                              └── pieces ◄──┘ nothing is held but the answer's own state
//! ```
//!
//! A connection that waits for requests holds buffers for them. An event stream needs none: once
//! its head is sent the socket is taken from them, so that an idle reader costs little.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::{Buf, Bytes};
use http::{HeaderMap, Request, Response, Version, header};
use http_body::Body as _;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use reveille_engine::doors::Clock;
use reveille_kernel::limits::REPLY_PIECE_BYTES;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::sync::watch;

use super::connections::{BusyConnection, Connection};
use super::listen::Service;
use super::outbound_body::{HandOver, OutboundBody};
use super::reply::{BodyError, Chunks};
use super::stream_timeout::{StreamExecutor, StreamProgress};
use super::write_timeout::{SocketState, WriteTimeout};

/// A client has this long to send its headers.
const HEADERS_WITHIN: Duration = Duration::from_secs(15);
/// All headers together.
const HEADERS_BYTES_MAX: usize = 64 << 10;
/// Requests at once on one HTTP/2 connection.
const STREAMS_PER_CONNECTION: u32 = 256;
/// What a client may send on one HTTP/2 request, and on all of a connection, before it is read:
/// until then it is counted nowhere.
const STREAM_WINDOW_BYTES: u32 = 128 << 10;
const CONNECTION_WINDOW_BYTES: u32 = 512 << 10;

/// Serves connections; each has a clone.
#[derive(Clone)]
pub(crate) struct ConnectionServer<S> {
    pub(crate) service: S,
    pub(crate) clock: Arc<dyn Clock>,
    /// A client that takes nothing of what there is for it for so long is let go.
    pub(crate) reader_timeout_ms: u64,
    /// True once the server goes down: what was begun is finished.
    pub(crate) draining: watch::Receiver<bool>,
}

/// Why a connection ended early.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectionError {
    #[error(transparent)]
    Socket(#[from] io::Error),
    #[error(transparent)]
    Http(#[from] hyper::Error),
    #[error(transparent)]
    Body(#[from] BodyError),
    #[error("an answer was complete, and the client did not take it")]
    NotTaken,
}

/// An answer that stays open, and the socket that it goes to.
struct LiveAnswer {
    socket: WriteTimeout,
    chunks: Chunks,
    /// Whether the connection ends with it.
    is_last: bool,
    /// Until it has ended, the connection makes room for nobody.
    _busy: BusyConnection,
}

impl<S: Service> ConnectionServer<S> {
    /// Answers the requests of one connection until it ends.
    pub(crate) async fn serve(
        mut self,
        socket: TcpStream,
        place: Arc<Connection>,
    ) -> Result<(), ConnectionError> {
        // Answers are small and awaited: they must not wait for more bytes to fill a packet.
        let _ = socket.set_nodelay(true);
        let mut socket = WriteTimeout::new(socket, &self.clock, self.reader_timeout_ms);
        let is_http2 = tokio::select! {
            biased;
            is_http2 = socket.is_http2() => is_http2?,
            _ = self.draining.wait_for(|draining| *draining) => return Ok(()),
        };
        // Boxed, each of them: what one needs is gone when the next begins.
        if is_http2 {
            return Box::pin(self.serve_http2(socket, place)).await;
        }
        while let Some(mut live) = Box::pin(self.serve_http1(socket, &place)).await? {
            let goes_on = Box::pin(live.send()).await?;
            if !goes_on || *self.draining.borrow() {
                break;
            }
            socket = live.socket;
        }
        Ok(())
    }

    /// Answers requests until the connection ends, or has an answer that stays open.
    async fn serve_http1(
        &mut self,
        socket: WriteTimeout,
        place: &Arc<Connection>,
    ) -> Result<Option<LiveAnswer>, ConnectionError> {
        let hand_over = Arc::new(HandOver::default());
        let state = socket.state();
        let service = {
            let (service, state) = (self.service.clone(), state.clone());
            let hand_over = hand_over.clone();
            let place = place.clone();
            service_fn(move |request| {
                let (state, hand_over) = (state.clone(), hand_over.clone());
                answer_http1(service.clone(), place.begin(), state, hand_over, request)
            })
        };
        let mut connection = http1_builder().serve_connection(TokioIo::new(socket), service);
        let mut draining = pin!(self.draining.wait_for(|draining| *draining));
        let mut is_draining = false;
        let live = poll_fn(|context| {
            if !is_draining && draining.as_mut().poll(context).is_ready() {
                is_draining = true;
                Pin::new(&mut connection).graceful_shutdown();
            }
            match Pin::new(&mut connection).poll(context) {
                Poll::Ready(ended) => Poll::Ready(ended.map(|()| None)),
                // The head must be out: whatever is not is lost with the connection's buffers.
                Poll::Pending if state.is_flushed() => {
                    hand_over.take().map_or(Poll::Pending, |live| Poll::Ready(Ok(Some(live))))
                }
                Poll::Pending => Poll::Pending,
            }
        });
        let Some((chunks, busy)) = live.await? else { return Ok(None) };
        let parts = connection.into_parts();
        let mut socket = parts.io.into_inner();
        socket.read_again(&parts.read_buf);
        Ok(Some(LiveAnswer { socket, chunks, is_last: hand_over.is_last(), _busy: busy }))
    }

    async fn serve_http2(
        &mut self,
        socket: WriteTimeout,
        place: Arc<Connection>,
    ) -> Result<(), ConnectionError> {
        let executor = StreamExecutor::new(&self.clock, self.reader_timeout_ms);
        let hang_up = executor.hang_up();
        let service = self.service.clone();
        let service =
            service_fn(move |request| answer_http2(service.clone(), place.begin(), request));
        let connection = http2_builder(executor).serve_connection(TokioIo::new(socket), service);
        let mut connection = pin!(connection);
        let mut is_draining = false;
        loop {
            tokio::select! {
                biased;
                ended = &mut connection => return Ok(ended?),
                () = hang_up.notified() => return Err(ConnectionError::NotTaken),
                _ = self.draining.wait_for(|draining| *draining), if !is_draining => {
                    is_draining = true;
                    connection.as_mut().graceful_shutdown();
                }
            }
        }
    }
}

fn http1_builder() -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(HEADERS_WITHIN)
        .max_buf_size(HEADERS_BYTES_MAX);
    builder
}

fn http2_builder(executor: StreamExecutor) -> http2::Builder<StreamExecutor> {
    let mut builder = http2::Builder::new(executor);
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_PER_CONNECTION)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_send_buf_size(REPLY_PIECE_BYTES)
        .max_header_list_size(64 << 10)
        .keep_alive_interval(Some(Duration::from_secs(20)))
        .keep_alive_timeout(Duration::from_secs(20));
    builder
}

type Answer = Result<Response<OutboundBody>, Infallible>;

async fn answer_http1(
    service: impl Service,
    busy: BusyConnection,
    state: Arc<SocketState>,
    hand_over: Arc<HandOver>,
    request: Request<Incoming>,
) -> Answer {
    // A body that nobody has read would be taken for the next request, and only with chunks does
    // a client know an answer's end from the connection's.
    let may_hand_over = request.version() == Version::HTTP_11 && request.body().is_end_stream();
    let is_last = asks_to_close(request.headers());
    let reply = service.answer(request, &busy).await;
    state.set_room(reply.body().room());
    hand_over.set_last(is_last);
    let hand_over = may_hand_over.then_some(hand_over);
    Ok(reply.map(|body| OutboundBody::http1(body, busy, hand_over)))
}

fn asks_to_close(headers: &HeaderMap) -> bool {
    let values = headers.get_all(header::CONNECTION).iter().filter_map(|it| it.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|it| it.trim().eq_ignore_ascii_case("close"))
}

async fn answer_http2(
    service: impl Service,
    busy: BusyConnection,
    request: Request<Incoming>,
) -> Answer {
    let reply = service.answer(request, &busy).await;
    let progress = StreamProgress::current();
    if let (Some(progress), Some(room)) = (&progress, reply.body().room()) {
        progress.set_room(room);
    }
    Ok(reply.map(|body| OutboundBody::http2(body, busy, progress)))
}

impl LiveAnswer {
    /// Sends the answer until it ends; whether the connection may go on.
    async fn send(&mut self) -> Result<bool, ConnectionError> {
        loop {
            let next = tokio::select! {
                biased;
                next = poll_fn(|context| self.chunks.poll_next(context)) => next,
                () = self.socket.hung_up() => return Ok(false),
            };
            match next {
                Some(Ok(bytes)) if bytes.is_empty() => {}
                Some(Ok(bytes)) => self.send_chunk(bytes).await?,
                // Cut off, so that nobody takes the part for the whole.
                Some(Err(error)) => return Err(error.into()),
                None => {
                    self.socket.write_all(b"0\r\n\r\n").await?;
                    return Ok(!self.is_last);
                }
            }
        }
    }

    async fn send_chunk(&mut self, bytes: Bytes) -> io::Result<()> {
        let head = format!("{:x}\r\n", bytes.len());
        let mut chunk = head.as_bytes().chain(bytes).chain(&b"\r\n"[..]);
        self.socket.write_all_buf(&mut chunk).await
    }
}
