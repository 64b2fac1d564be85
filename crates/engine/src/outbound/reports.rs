//! What came of deliveries is written down together: while one lot of reports is being made
//! durable, the next one collects.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{Notify, Semaphore};

use super::Outbound;
use crate::command::Command;
use crate::command::delivery::Delivered;
use crate::outbox::Errand;

/// Reports that are written down at once.
const LOT_MAX: usize = 64;
/// Lots that are being made durable at once.
const LOTS_MAX: usize = 2;

/// What came of an attempt.
pub(super) struct Report {
    pub(super) delivered: Delivered,
    /// The errand that ends with it.
    pub(super) errand: Errand,
}

/// Reports that wait to be written down. While there are many, no further attempts are made.
#[derive(Default)]
pub(crate) struct Reports {
    waiting: Mutex<Vec<Report>>,
    more: Notify,
}

impl Reports {
    pub(super) fn push(&self, report: Report) {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).push(report);
        self.more.notify_one();
    }

    fn take(&self) -> Vec<Report> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let lot = waiting.len().min(LOT_MAX);
        waiting.drain(..lot).collect()
    }
}

/// Writes reports down until the partition stops.
pub(crate) async fn write_down(outbound: Arc<Outbound>) {
    let lots = Arc::new(Semaphore::new(LOTS_MAX));
    loop {
        let Ok(permit) = lots.clone().acquire_owned().await else { return };
        let lot = outbound.reports.take();
        if lot.is_empty() {
            drop(permit);
            if outbound.shared.lock().stopping {
                return;
            }
            tokio::select! {
                () = outbound.reports.more.notified() => {}
                () = outbound.shared.stopped.notified() => {}
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
        let mut delivered = Vec::with_capacity(lot.len());
        let mut ended = Vec::with_capacity(lot.len());
        for report in lot {
            delivered.push(report.delivered);
            ended.push(report.errand);
        }
        let single = delivered.len() == 1;
        let command = Command::Delivered(delivered);
        // One that cannot be written down must not take the others along.
        if !self.report(&command).await
            && !single
            && let Command::Delivered(all) = command
        {
            for one in all {
                self.report(&Command::Delivered(vec![one])).await;
            }
        }
        for errand in &ended {
            self.shared.outbox.ended(errand, false);
        }
    }
}
