//! Others who use the server meanwhile: endpoints that never answer, and a tenant that floods it.
//!
//! They live on a thread of their own, so that what they take is not taken from what is measured.

use std::net::SocketAddr;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Instant;
use std::{rc::Rc, thread};

use anyhow::{Context as _, anyhow};
use tokio::sync::{Semaphore, oneshot};

use crate::clock;
use crate::events::{EventTarget, Worker};
use crate::message::MessageWriter;
use crate::pool::ConnectionPool;
use crate::report::rate;
use crate::sink::{CallCounts, Sink};
use crate::tally::Errors;

/// Whoever takes everything and never answers.
pub(crate) const HANGING: Worker = Worker { id: "hanging", binding: Some("hanging") };
/// The live hook of the tenant that floods.
pub(crate) const FLOODED: Worker = Worker { id: "flooded", binding: Some("flooded") };

const FLOOD_CONNECTIONS: usize = 8;
const FLOOD_BATCH: u64 = 10;

/// The events of the tenant that floods.
#[derive(Debug, Clone)]
pub(crate) struct Flood {
    pub(crate) events: EventTarget,
    pub(crate) messages: MessageWriter,
}

pub(crate) struct Neighbors {
    counts: Arc<CallCounts>,
    began: Instant,
    stop: oneshot::Sender<()>,
    thread: JoinHandle<anyhow::Result<FloodTally>>,
}

/// What came of the flood.
#[derive(Debug, Default)]
pub(crate) struct FloodTally {
    requests: u64,
    pub(crate) errors: Errors,
}

/// The flood in figures.
#[derive(Debug)]
pub(crate) struct FloodFigures {
    pub(crate) events_per_second: f64,
    pub(crate) deliveries: u64,
    pub(crate) errors: Errors,
}

impl Neighbors {
    /// Opens their endpoint, and lets the flood go if there is one.
    pub(crate) fn start(address: SocketAddr, flood: Option<Flood>) -> anyhow::Result<Neighbors> {
        let (stop, stopped) = oneshot::channel();
        let (open, opened) = mpsc::sync_channel(1);
        let counts = Arc::new(CallCounts::default());
        let shared = Arc::clone(&counts);
        let thread = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            let tasks = tokio::task::LocalSet::new();
            runtime.block_on(tasks.run_until(run(address, shared, flood, open, stopped)))
        });
        // A thread that ended without a word has the reason.
        if opened.recv().is_err() {
            return Err(join_thread(thread).err().unwrap_or_else(|| anyhow!("they did not begin")));
        }
        Ok(Neighbors { counts, began: clock::now(), stop, thread })
    }

    /// Deliveries that their endpoint took and did not answer.
    pub(crate) fn hanging(&self) -> u64 {
        self.counts.hanging()
    }

    /// Ends them and says what came of the flood.
    pub(crate) fn stop(self) -> anyhow::Result<FloodFigures> {
        let seconds = self.began.elapsed().as_secs_f64();
        // Whoever has ended already has the reason.
        let _ = self.stop.send(());
        let FloodTally { requests, errors } = join_thread(self.thread)?;
        let deliveries = self.counts.calls();
        Ok(FloodFigures {
            events_per_second: rate(requests * FLOOD_BATCH, seconds),
            deliveries,
            errors,
        })
    }
}

fn join_thread(thread: JoinHandle<anyhow::Result<FloodTally>>) -> anyhow::Result<FloodTally> {
    thread.join().map_err(|_| anyhow!("the neighbors ended in a panic"))?
}

async fn run(
    address: SocketAddr,
    counts: Arc<CallCounts>,
    flood: Option<Flood>,
    open: mpsc::SyncSender<()>,
    stopped: oneshot::Receiver<()>,
) -> anyhow::Result<FloodTally> {
    let _sink = Sink::open_at(address, Rc::new(Semaphore::new(0)), counts).await?;
    let pool = match flood {
        None => None,
        Some(Flood { events, messages }) => {
            let requests = events.batches(messages, FLOOD_BATCH, None)?;
            Some(ConnectionPool::start(events.address, FLOOD_CONNECTIONS, requests))
        }
    };
    open.send(()).context("nobody waits for the neighbors")?;
    // Whoever is gone wants them to stop too.
    let _ = stopped.await;
    let Some(pool) = pool else {
        return Ok(FloodTally::default());
    };
    let tally = pool.stop().await;
    Ok(FloodTally { requests: tally.done, errors: tally.errors })
}
