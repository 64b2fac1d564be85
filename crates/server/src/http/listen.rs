//! Sockets: accepting, limits against slow and hostile clients, and going down in order.

use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use http::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulShutdown;
use reveille_engine::doors::Clock;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use super::clock;
use super::connections::{AnswerBody, BusyConnection, Connection, Connections};
use super::first_bytes::PrefaceTimeout;
use super::reply::Reply;

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
/// Requests that were begun have this long to finish when the server goes down.
const DRAIN_MS: u64 = 10_000;
/// A pause after the machine refused a socket.
const ACCEPT_PAUSE_MS: u64 = 50;
/// Well below every time-out of a request.
const PULSE_MS: u64 = 250;

/// What answers the requests of all connections.
pub(crate) trait Service: Clone + Send + Sync + 'static {
    fn answer(
        &self,
        request: Request<Incoming>,
        connection: &BusyConnection,
    ) -> impl Future<Output = Reply> + Send;
}

/// Serves until `shutdown` ends, sets `stopping`, and finishes the requests that were begun.
pub(crate) async fn serve(
    listener: TcpListener,
    connections_max: usize,
    clock: Arc<dyn Clock>,
    service: impl Service,
    stopping: watch::Sender<bool>,
    shutdown: impl Future<Output = ()> + Send,
) -> std::io::Result<()> {
    let pulse = tokio::spawn(pulse(clock.clone()));
    let builder = connection_builder();
    let graceful = GracefulShutdown::new();
    let connections = Connections::new(connections_max);
    tokio::pin!(shutdown);
    loop {
        let (socket, connection) = tokio::select! {
            biased;
            () = &mut shutdown => break,
            accepted = accept(&listener, &connections, &*clock) => accepted,
        };
        let serving =
            graceful.watch(connect(&builder, socket, &*clock, service.clone(), &connection));
        tokio::spawn(async move {
            tokio::select! {
                biased;
                // A client that goes away in the middle of a request is no event of ours.
                ended = serving => if let Err(error) = ended {
                    tracing::debug!(%error, "a connection ended early");
                },
                () = connection.closed() => tracing::debug!("an idle connection made room"),
            }
        });
    }
    drop(listener);
    let _ = stopping.send(true);
    let drained = clock::within(clock.as_ref(), DRAIN_MS, graceful.shutdown()).await;
    if drained.is_none() {
        tracing::warn!("some requests did not finish in time");
    }
    pulse.abort();
    Ok(())
}

/// The next connection that there is a place for. What the machine lacks others will give back:
/// running out of descriptors or memory is a state to wait in.
async fn accept(
    listener: &TcpListener,
    connections: &Connections,
    clock: &dyn Clock,
) -> (TcpStream, Arc<Connection>) {
    let mut is_told = false;
    loop {
        match listener.accept().await {
            Ok((socket, _)) => return (socket, connections.enter().await),
            Err(error) => {
                if !std::mem::replace(&mut is_told, true) {
                    tracing::warn!(%error, "connections cannot be accepted; waiting");
                }
                connections.make_room();
                clock.sleep_until(clock.now() + ACCEPT_PAUSE_MS).await;
            }
        }
    }
}

/// Keeps the runtime's next timer near. A timer that is set for earlier than the next one wakes
/// the thread that waits for sockets; without this every request, whose time-outs are seconds
/// away, would cost two system calls and a switch of threads for that.
async fn pulse(clock: Arc<dyn Clock>) {
    loop {
        clock.sleep_until(clock.now() + PULSE_MS).await;
    }
}

fn connection_builder() -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADERS_WITHIN)
        .max_buf_size(HEADERS_BYTES_MAX);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_PER_CONNECTION)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_header_list_size(64 << 10)
        .keep_alive_interval(Some(Duration::from_secs(20)))
        .keep_alive_timeout(Duration::from_secs(20));
    builder
}

fn connect(
    builder: &auto::Builder<TokioExecutor>,
    socket: TcpStream,
    clock: &dyn Clock,
    service: impl Service,
    connection: &Arc<Connection>,
) -> impl hyper_util::server::graceful::GracefulConnection<
    Error = Box<dyn std::error::Error + Send + Sync>,
> + Send
+ 'static {
    // Answers are small and awaited: they must not wait for more bytes to fill a packet.
    let _ = socket.set_nodelay(true);
    let connection = connection.clone();
    let service = service_fn(move |request| {
        let (service, busy) = (service.clone(), connection.begin());
        async move {
            let reply = service.answer(request, &busy).await;
            Ok::<_, Infallible>(reply.map(|body| AnswerBody::new(body, busy)))
        }
    });
    let socket = PrefaceTimeout::new(socket, clock);
    builder.serve_connection(TokioIo::new(socket), service).into_owned()
}
