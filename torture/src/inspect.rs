//! After a restart: does every stream keep what was promised?

use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::exchange::{self, ExchangeError};
use crate::model::{CloseState, ProducerAppend, Stream, Violation};
use harness::http::Connection;

const CONNECTIONS: usize = 4;

/// Inspects all of them, over several connections.
pub(crate) fn inspect_all(address: SocketAddr, streams: Vec<&mut Stream>) -> Result<(), Violation> {
    let streams: Vec<Mutex<&mut Stream>> = streams.into_iter().map(Mutex::new).collect();
    let next = AtomicUsize::new(0);
    let inspect_some = || -> Result<(), ExchangeError> {
        let mut connection = Connection::open(address)?;
        while let Some(stream) = streams.get(next.fetch_add(1, Ordering::Relaxed)) {
            // Each is taken once, so the lock is always free.
            if let Ok(mut stream) = stream.lock() {
                inspect(&mut connection, &mut stream)?;
            }
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..CONNECTIONS).map(|_| scope.spawn(inspect_some)).collect();
        let results = threads.into_iter().map(|thread| match thread.join() {
            Ok(result) => result.map_err(ExchangeError::into_violation),
            Err(_) => Err("the inspection itself failed".to_owned()),
        });
        results.collect()
    })
}

fn inspect(connection: &mut Connection, stream: &mut Stream) -> Result<(), ExchangeError> {
    let observed = exchange::read_stream(connection, &stream.path, "-1")?;
    stream.settle(observed)?;
    if retry(connection, stream)? {
        let observed = exchange::read_stream(connection, &stream.path, "-1")?;
        stream.settle(observed)?;
    }
    Ok(())
}

/// Every producer repeats the append it got no answer for. The server must know whether it has
/// it: if the append is there, it is a repetition, if not, it is appended now.
fn retry(connection: &mut Connection, stream: &mut Stream) -> Result<bool, ExchangeError> {
    let due: Vec<(usize, ProducerAppend)> = stream
        .producers
        .iter_mut()
        .filter_map(|(index, producer)| Some((*index, producer.unanswered.take()?)))
        .collect();
    for (index, produced) in &due {
        let id = produced.append.id;
        let is_there = stream.log.settled.contains(&id);
        let was_closed = stream.close_state != CloseState::Open;
        let answer =
            exchange::send_produced(connection, &stream.path, stream.kind, *index, produced)?;
        match answer.status {
            204 if is_there => {
                exchange::accept_produced(stream, *index, produced.clone(), &answer)?;
            }
            200 if !is_there && !was_closed => {
                stream.log.requested(id);
                let offset = exchange::next_offset(&stream.path, &answer)?;
                stream.log.acknowledged(id, offset);
                exchange::accept_produced(stream, *index, produced.clone(), &answer)?;
            }
            // The closing request itself is a repetition; any other comes too late.
            409 if was_closed && exchange::is_closed(&answer) && !(is_there && produced.close) => {}
            _ => {
                let state = if is_there { "is there" } else { "is not there" };
                let what = format!("retry of append {id:x}, which {state}, to");
                return Err(exchange::unexpected(&what, &stream.path, &answer));
            }
        }
    }
    Ok(!due.is_empty())
}
