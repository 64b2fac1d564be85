//! What came of attempts is written down together: while one lot of reports is being made durable,
//! the next one collects.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, Semaphore};

use super::Outbound;
use crate::command::Command;
use crate::command::consumer::Ended;
use crate::command::delivery::Delivered;
use crate::outbox::Errand;

/// Reports that are written down at once: everybody else waits while that is decided.
const LOT_MAX: usize = 64;
/// Lots that are being made durable at once.
const LOTS_MAX: usize = 2;

/// What came of an attempt.
pub(super) struct Report {
    pub(super) outcome: Outcome,
    /// The errand that ends with it.
    pub(super) errand: Errand,
}

/// What is to be written down of it.
pub(super) enum Outcome {
    /// A consumer was told, or was not.
    Told(Ended),
    /// An event was delivered, or was not.
    Delivered(Delivered),
}

/// Reports that wait to be written down. While there are many, no further attempts are made.
#[derive(Default)]
pub(crate) struct Reports {
    waiting: Mutex<Vec<Report>>,
    /// There is one.
    more: Notify,
}

impl Reports {
    pub(super) fn push(&self, report: Report) {
        let mut waiting = self.lock();
        let first = waiting.is_empty();
        waiting.push(report);
        drop(waiting);
        if first {
            self.more.notify_one();
        }
    }

    fn take(&self) -> Vec<Report> {
        let mut waiting = self.lock();
        let lot = waiting.len().min(LOT_MAX);
        waiting.drain(..lot).collect()
    }

    async fn wait(&self) {
        while self.lock().is_empty() {
            self.more.notified().await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Report>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Writes reports down until the partition stops.
pub(crate) async fn write_down(outbound: Arc<Outbound>) {
    let lots = Arc::new(Semaphore::new(LOTS_MAX));
    loop {
        let Ok(permit) = lots.clone().acquire_owned().await else { return };
        let stopped = outbound.shared.stopped.notified();
        let lot = outbound.reports.take();
        if lot.is_empty() {
            if outbound.shared.lock().stopping {
                return;
            }
            tokio::select! {
                () = outbound.reports.wait() => {}
                () = stopped => {}
            }
            continue;
        }
        let outbound = outbound.clone();
        tokio::spawn(async move {
            outbound.write_lot(lot).await;
            drop(permit);
        });
    }
}

impl Outbound {
    async fn write_lot(&self, lot: Vec<Report>) {
        let (mut told, mut delivered) = (Vec::new(), Vec::new());
        let mut errands = Vec::with_capacity(lot.len());
        for Report { outcome, errand } in lot {
            match outcome {
                Outcome::Told(ended) => told.push(ended),
                Outcome::Delivered(one) => delivered.push(one),
            }
            errands.push(errand);
        }
        tokio::join!(
            self.write_all(Command::Ended(told)),
            self.write_all(Command::Delivered(delivered)),
        );
        self.shared.outbox.all_ended(&errands);
    }

    /// One that cannot be written down must not take the others along.
    async fn write_all(&self, command: Command) {
        let count = match &command {
            Command::Ended(all) => all.len(),
            Command::Delivered(all) => all.len(),
            _ => 0,
        };
        if count == 0 || self.report(&command).await || count == 1 {
            return;
        }
        for one in one_by_one(command) {
            self.report(&one).await;
        }
    }
}

/// The same, each by itself.
fn one_by_one(command: Command) -> Vec<Command> {
    match command {
        Command::Ended(all) => all.into_iter().map(|one| Command::Ended(vec![one])).collect(),
        Command::Delivered(all) => {
            all.into_iter().map(|one| Command::Delivered(vec![one])).collect()
        }
        other => vec![other],
    }
}
