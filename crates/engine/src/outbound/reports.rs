//! What came of attempts is written down together: while some lots of reports are being made
//! durable, the next one collects.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, Semaphore};

use super::Outbound;
use crate::command::Command;
use crate::outbox::Attempt;

/// Reports that are written down at once: everybody else waits while that is decided.
const LOT_MAX: usize = 64;
/// TimerGroups of one kind that are being made durable at once.
const LOTS_MAX: usize = 2;

/// Reports of one kind that wait to be written down. While there are many, no further attempts are
/// made.
pub(crate) struct Reports<T> {
    waiting: Mutex<Vec<Report<T>>>,
    /// There is one.
    more: Notify,
    /// TimerGroups that are being made durable at once.
    lots: Arc<Semaphore>,
    into_command: fn(Vec<T>) -> Command,
}

/// What came of an attempt, and the errand that ends with it.
struct Report<T> {
    outcome: T,
    attempt: Attempt,
}

impl<T> Reports<T> {
    /// Reports that become such commands.
    pub(crate) fn new(into_command: fn(Vec<T>) -> Command) -> Reports<T> {
        let (waiting, more) = (Mutex::default(), Notify::new());
        Reports { waiting, more, lots: Arc::new(Semaphore::new(LOTS_MAX)), into_command }
    }

    pub(super) fn push(&self, outcome: T, attempt: Attempt) {
        let mut waiting = self.lock();
        let first = waiting.is_empty();
        waiting.push(Report { outcome, attempt });
        drop(waiting);
        if first {
            self.more.notify_one();
        }
    }

    fn take(&self) -> Vec<Report<T>> {
        let mut waiting = self.lock();
        let lot = waiting.len().min(LOT_MAX);
        waiting.drain(..lot).collect()
    }

    async fn wait(&self) {
        while self.lock().is_empty() {
            self.more.notified().await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Report<T>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Writes reports of one kind down until the partition stops.
pub(crate) async fn write_down<T: Send + 'static>(
    outbound: Arc<Outbound>,
    of: fn(&Outbound) -> &Reports<T>,
) {
    let reports = of(&outbound);
    loop {
        let Ok(permit) = reports.lots.clone().acquire_owned().await else { return };
        let stopped = outbound.shared.stopped.notified();
        let lot = reports.take();
        if lot.is_empty() {
            if outbound.shared.lock().stopping {
                // Whoever writes the others down waits for this too.
                return outbound.shared.stopped.notify_one();
            }
            tokio::select! {
                () = reports.wait() => {}
                () = stopped => {}
            }
            continue;
        }
        let (outbound, into_command) = (outbound.clone(), reports.into_command);
        tokio::spawn(async move {
            outbound.write_lot(lot, into_command).await;
            drop(permit);
        });
    }
}

impl Outbound {
    /// One that cannot be written down must not take the others along.
    async fn write_lot<T>(&self, lot: Vec<Report<T>>, into_command: fn(Vec<T>) -> Command) {
        let (outcomes, attempts): (Vec<T>, Vec<Attempt>) =
            lot.into_iter().map(|it| (it.outcome, it.attempt)).unzip();
        let command = into_command(outcomes);
        if !self.report(&command).await && attempts.len() > 1 {
            for one in one_by_one(command) {
                self.report(&one).await;
            }
        }
        self.shared.outbox.all_ended(&attempts);
    }
}

/// The same, each by itself.
fn one_by_one(command: Command) -> Vec<Command> {
    match command {
        Command::RecordWakeOutcomes(all) => {
            all.into_iter().map(|one| Command::RecordWakeOutcomes(vec![one])).collect()
        }
        Command::RecordDeliveryOutcomes(all) => {
            all.into_iter().map(|one| Command::RecordDeliveryOutcomes(vec![one])).collect()
        }
        other => vec![other],
    }
}
