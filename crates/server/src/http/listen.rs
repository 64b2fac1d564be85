//! Sockets: accepting, limits against slow and hostile clients, and going down in order.

use std::future::Future;
use std::sync::Arc;

use http::Request;
use hyper::body::Incoming;
use reveille_engine::doors::Clock;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};

use super::clock;
use super::connection::Connections;
use super::reply::Reply;

/// Open connections; further ones wait to be accepted.
const CONNECTIONS_MAX: usize = 16_384;
/// Requests that were begun have this long to finish when the server goes down.
const DRAIN_MS: u64 = 10_000;
/// A pause after the machine refused a socket.
const ACCEPT_PAUSE_MS: u64 = 50;
/// Well below every time-out of a request.
const PULSE_MS: u64 = 250;

/// What answers the requests of all connections.
pub(crate) trait Service: Clone + Send + Sync + 'static {
    fn answer(&self, request: Request<Incoming>) -> impl Future<Output = Reply> + Send;
}

/// Serves until `shutdown` ends, sets `stopping`, and finishes the requests that were begun.
pub(crate) async fn serve(
    listener: TcpListener,
    clock: Arc<dyn Clock>,
    service: impl Service,
    reader_timeout_ms: u64,
    stopping: watch::Sender<bool>,
    shutdown: impl Future<Output = ()> + Send,
) -> std::io::Result<()> {
    let pulse = tokio::spawn(pulse(clock.clone()));
    let (drain, draining) = watch::channel(false);
    let connections = Connections { service, clock: clock.clone(), reader_timeout_ms, draining };
    let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    tokio::pin!(shutdown);
    loop {
        let accepted = async {
            let permit = room.clone().acquire_owned().await;
            (listener.accept().await, permit)
        };
        let (accepted, permit) = tokio::select! {
            biased;
            () = &mut shutdown => break,
            accepted = accepted => accepted,
        };
        let socket = match accepted {
            Ok((socket, _)) => socket,
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                clock.sleep_until(clock.now() + ACCEPT_PAUSE_MS).await;
                continue;
            }
        };
        let connection = connections.clone().serve(socket);
        tokio::spawn(async move {
            // A client that goes away in the middle of a request is no event of ours.
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection ended early");
            }
            drop(permit);
        });
    }
    drop((listener, connections));
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

/// Keeps the runtime's next timer near. A timer that is set for earlier than the next one wakes
/// the thread that waits for sockets; without this every request, whose time-outs are seconds
/// away, would cost two system calls and a switch of threads for that.
async fn pulse(clock: Arc<dyn Clock>) {
    loop {
        clock.sleep_until(clock.now() + PULSE_MS).await;
    }
}
