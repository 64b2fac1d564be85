//! What came of attempts is written down together: while some batches of outcomes are being made
//! durable, the next one collects.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, Semaphore};

use super::{AttemptHandler, Sender};
use crate::command::Command;
use crate::domains::Domains;
use crate::error::Never;

/// Outcomes that are written down at once: everybody else waits while that is decided.
const BATCH_MAX: usize = 64;
/// Batches of one kind that are being made durable at once.
const BATCHES_MAX: usize = 2;

/// A command that writes outcomes down: as many of the first ones as it answers.
pub trait OutcomeCommand<D: AttemptHandler>:
    Command<D, Answer = usize, Rejection = Never> + 'static
{
    /// What came of one attempt.
    type Outcome: Send + 'static;

    fn new(outcomes: Vec<Self::Outcome>) -> Self;

    fn into_outcomes(self) -> Vec<Self::Outcome>;
}

/// Outcomes of one kind that wait to be written down. While there are many, no further attempts are
/// made.
pub struct OutcomeQueue<O, A> {
    waiting: Mutex<Vec<(O, A)>>,
    /// There is one.
    more: Notify,
    batches: Arc<Semaphore>,
}

impl<O, A> Default for OutcomeQueue<O, A> {
    fn default() -> OutcomeQueue<O, A> {
        let batches = Arc::new(Semaphore::new(BATCHES_MAX));
        OutcomeQueue { waiting: Mutex::default(), more: Notify::new(), batches }
    }
}

impl<O, A> OutcomeQueue<O, A> {
    /// What came of an attempt, which ends when that is written down.
    pub fn push(&self, outcome: O, attempt: A) {
        let mut waiting = self.lock();
        let first = waiting.is_empty();
        waiting.push((outcome, attempt));
        drop(waiting);
        if first {
            self.more.notify_one();
        }
    }

    fn take(&self) -> Vec<(O, A)> {
        let mut waiting = self.lock();
        let few = waiting.len().min(BATCH_MAX);
        waiting.drain(..few).collect()
    }

    async fn wait(&self) {
        while self.lock().is_empty() {
            self.more.notified().await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(O, A)>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where outcomes of one kind wait.
pub type QueueOf<D, O> =
    fn(&<D as AttemptHandler>::Outbound) -> &OutcomeQueue<O, <D as Domains>::Attempt>;

/// Writes outcomes of one kind down until the partition stops.
pub async fn record_outcomes<D: AttemptHandler, C: OutcomeCommand<D>>(
    sender: Arc<Sender<D>>,
    queue: QueueOf<D, C::Outcome>,
) {
    let outcomes = queue(&sender.outbound);
    loop {
        let Ok(permit) = outcomes.batches.clone().acquire_owned().await else { return };
        let stopped = sender.shared.stopped.notified();
        let batch = outcomes.take();
        if batch.is_empty() {
            if sender.shared.lock().stopping {
                // Whoever writes the others down waits for this too.
                return sender.shared.stopped.notify_one();
            }
            tokio::select! {
                () = outcomes.wait() => {}
                () = stopped => {}
            }
            continue;
        }
        let sender = sender.clone();
        tokio::spawn(async move {
            record_batch::<D, C>(&sender, batch).await;
            drop(permit);
        });
    }
}

/// One that cannot be written down must not take the others along: what is too much for one decision
/// is cut, down to single outcomes.
async fn record_batch<D: AttemptHandler, C: OutcomeCommand<D>>(
    sender: &Sender<D>,
    batch: Vec<(C::Outcome, D::Attempt)>,
) {
    let (outcomes, attempts): (Vec<_>, Vec<_>) = batch.into_iter().unzip();
    let mut groups = vec![outcomes];
    while let Some(group) = groups.pop() {
        let few = group.len();
        let command = C::new(group);
        let done = match few {
            1 => sender.record(&command).await.map_or(1, |done| done.max(1)),
            _ => sender.record_some(&command).await,
        };
        let mut left = command.into_outcomes();
        left.drain(..done.min(few));
        if done == 0 && few > 1 {
            groups.push(left.split_off(few / 2));
        }
        if !left.is_empty() {
            groups.push(left);
        }
    }
    sender.shared.outbox.all_ended(&attempts);
}
