//! Sockets: accepting, limits against slow and hostile clients, and going down in order.

use std::future::Future;
use std::sync::Arc;

use http::Request;
use hyper::body::Incoming;
use reveille_engine::doors::Clock;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use super::clock;
use super::connection::ConnectionServer;
use super::connections::{BusyConnection, Connection, Connections};
use super::reply::Reply;

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

/// What connections may take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Settings {
    pub(crate) connections_max: usize,
    /// A client that takes nothing of what there is for it for so long is let go.
    pub(crate) reader_timeout_ms: u64,
}

/// Serves until `shutdown` ends, sets `stopping`, and finishes the requests that were begun.
pub(crate) async fn serve(
    listener: TcpListener,
    settings: Settings,
    clock: Arc<dyn Clock>,
    service: impl Service,
    stopping: watch::Sender<bool>,
    shutdown: impl Future<Output = ()> + Send,
) -> std::io::Result<()> {
    let Settings { connections_max, reader_timeout_ms } = settings;
    let pulse = tokio::spawn(pulse(clock.clone()));
    let (drain, draining) = watch::channel(false);
    let server = ConnectionServer { service, clock: clock.clone(), reader_timeout_ms, draining };
    let connections = Connections::new(connections_max);
    tokio::pin!(shutdown);
    loop {
        let (socket, connection) = tokio::select! {
            biased;
            () = &mut shutdown => break,
            accepted = accept(&listener, &connections, &*clock) => accepted,
        };
        let serving = server.clone().serve(socket, connection.clone());
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
    drop((listener, server));
    let _ = stopping.send(true);
    let _ = drain.send(true);
    // Every connection holds the other end.
    let drained = clock::within(clock.as_ref(), DRAIN_MS, drain.closed()).await;
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
            Ok((socket, peer)) => {
                let connection = connections.enter().await;
                connection.is_from(peer.ip());
                return (socket, connection);
            }
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
