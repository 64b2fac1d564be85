//! The sender: takes attempts out of the outbox, has them made, and goes on with the next.

mod outcomes;

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderName, HeaderValue};
use reveille_core::{Millis, Tenant};
use reveille_deliver::courier::{Answer, Courier, EarlyAnswer, Request, SendError};
use reveille_deliver::destination::Destination;

use crate::command::Command;
use crate::domains::Domains;
use crate::doors::Clock;
use crate::error::{Error, Never, Unavailable};
use crate::fairness::Fairness;
use crate::limits::{SHORTAGE_PAUSE_MS, SLOW_AFTER_MS};
use crate::outbox::Attempt;
use crate::shared::Shared;
use crate::submit::submit;
use crate::task;
use crate::timers::PAUSE_MS;
pub use outcomes::{OutcomeCommand, OutcomeQueue, QueueOf, record_outcomes};

/// Attempts that are dispatched at once.
const DISPATCH_MAX: usize = 64;

/// How attempts are made.
pub trait AttemptHandler: Domains {
    /// What that takes beside the kernel's own part.
    type Outbound: Send + Sync + 'static;
    /// Whose attempt it is, as it is known when its turn comes.
    type Owner: Send + 'static;

    /// Whose attempt it is; `None` if that has ended, and so has the attempt.
    fn owner(index: &Self::Index, attempt: &Self::Attempt) -> Option<Self::Owner>;

    /// Makes an attempt, and returns the next one to make.
    fn attempt(
        sender: &Sender<Self>,
        attempt: Self::Attempt,
        owner: Self::Owner,
    ) -> impl Future<Output = Option<Self::Attempt>> + Send;

    /// A source with more attempts than fit into memory has room for more, from here on. May read.
    fn refill(
        shared: &Shared<Self>,
        source: <Self::Attempt as Attempt>::Source,
        from: <Self::Attempt as Attempt>::Cursor,
    );

    /// After a start: attempts that were on their way are made again. May read.
    fn recover_attempts(shared: &Shared<Self>);
}

/// Everything that sending takes.
pub struct Sender<D: AttemptHandler> {
    pub shared: Arc<Shared<D>>,
    pub clock: Arc<dyn Clock>,
    pub courier: Arc<dyn Courier>,
    pub fairness: Arc<Fairness>,
    /// What the domains need.
    pub outbound: D::Outbound,
}

/// A request to an endpoint, but for its address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EncodedRequest {
    pub headers: Vec<(HeaderName, HeaderValue)>,
    pub body: Bytes,
}

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PostError {
    Failed(SendFailure),
    /// Nobody failed but us: the attempt waits in the outbox again, under the same number.
    PutBack,
}

/// Why nothing came back: a kind to count, and a sentence to keep and to show to whoever the
/// endpoint belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SendFailure {
    pub kind: &'static str,
    pub text: String,
    /// What operators alone may know.
    pub detail: Option<String>,
}

impl SendFailure {
    /// A failure of which everybody may know everything.
    pub fn new(kind: &'static str, text: String) -> SendFailure {
        SendFailure { kind, text, detail: None }
    }
}

impl From<SendError> for SendFailure {
    fn from(error: SendError) -> SendFailure {
        let detail = error.detail();
        SendFailure { kind: error.kind(), text: error.to_string(), detail }
    }
}

/// When there is more to dispatch.
enum NextDispatch {
    AtOnce,
    /// When a tenant that uses much may go on, or a source that waits for its time.
    At(Millis),
    WhenReady,
}

/// Makes attempts until the partition stops.
pub async fn run<D: AttemptHandler>(sender: Arc<Sender<D>>) {
    let shared = sender.shared.clone();
    tokio::spawn(task::blocking(move || D::recover_attempts(&shared)));
    loop {
        let mut next = sender.dispatch();
        while let NextDispatch::AtOnce = next {
            // However many there are, others have their turns between them.
            tokio::task::yield_now().await;
            next = sender.dispatch();
        }
        if sender.shared.outbox.takes_recovery() {
            let shared = sender.shared.clone();
            tokio::spawn(task::blocking(move || D::recover_attempts(&shared)));
        }
        while let Some((source, from)) = sender.shared.outbox.next_refill() {
            let shared = sender.shared.clone();
            tokio::spawn(task::blocking(move || D::refill(&shared, source, from)));
        }
        if sender.shared.lock().stopping {
            return;
        }
        let ready = sender.shared.outbox.ready.notified();
        match next {
            NextDispatch::At(time) => tokio::select! {
                () = ready => {}
                () = sender.clock.sleep_until(time) => {}
            },
            NextDispatch::AtOnce | NextDispatch::WhenReady => ready.await,
        }
    }
}

impl<D: AttemptHandler> Sender<D> {
    /// Has the next attempts made.
    fn dispatch(self: &Arc<Sender<D>>) -> NextDispatch {
        let mut later: Option<Millis> = None;
        let now = self.clock.now();
        let attempts = self.shared.outbox.next_few(DISPATCH_MAX, now, |tenant| {
            let entered = self.fairness.try_attempt(tenant);
            later = later.into_iter().chain(entered.err()).min();
            entered.is_ok()
        });
        let limited = self.shared.outbox.next_look();
        let next = match later.into_iter().chain(limited).min() {
            _ if attempts.len() == DISPATCH_MAX => NextDispatch::AtOnce,
            Some(time) => NextDispatch::At(time),
            None => NextDispatch::WhenReady,
        };
        for (attempt, owner) in self.with_owners(attempts) {
            tokio::spawn(self.clone().run_attempts(attempt, owner));
        }
        next
    }

    /// Makes an attempt, and goes on with the next one as long as there is one.
    async fn run_attempts(self: Arc<Sender<D>>, attempt: D::Attempt, owner: Option<D::Owner>) {
        let mut current = Some((attempt, owner));
        while let Some((attempt, owner)) = current {
            let next = match owner {
                Some(owner) => D::attempt(&self, attempt, owner).await,
                // Whose it was has ended, and so has it.
                None => {
                    self.shared.outbox.ended(&attempt);
                    None
                }
            };
            current = next.and_then(|attempt| self.with_owners(vec![attempt]).pop());
            // Attempts that fail at once must not keep others from the processor.
            tokio::task::coop::consume_budget().await;
        }
    }

    /// Whose attempts these are: one look for all of them. None are made when the server stops:
    /// what came of them could not be written down.
    fn with_owners(&self, attempts: Vec<D::Attempt>) -> Vec<(D::Attempt, Option<D::Owner>)> {
        if attempts.is_empty() {
            return Vec::new();
        }
        let partition = self.shared.lock();
        if partition.stopping {
            return Vec::new();
        }
        let owned = attempts.into_iter().map(|attempt| {
            let owner = D::owner(&partition.index, &attempt);
            (attempt, owner)
        });
        owned.collect()
    }

    /// An attempt was answered, after so long if that was good; what is next, if anything may be
    /// sent now.
    pub fn answered(&self, attempt: &D::Attempt, took_ms: Option<u64>) -> Option<D::Attempt> {
        let may = |tenant: &Tenant| self.fairness.try_attempt(tenant).is_ok();
        self.shared.outbox.answered(attempt, took_ms, self.clock.now(), may)
    }

    /// Sends a request and waits for its answer, but no longer than this; one that takes a while
    /// makes room for others. The status is the answer: for the rest of it nobody waits any longer.
    pub async fn post(
        &self,
        destination: Destination,
        request: EncodedRequest,
        timeout_ms: u64,
        attempt: &D::Attempt,
    ) -> Result<Answer, PostError> {
        let EncodedRequest { headers, body } = request;
        let (tenant, early) = (attempt.tenant().to_shared(), EarlyAnswer::default());
        let request = Request { tenant, destination, headers, body, early: early.clone() };
        let mut response = self.courier.post(request);
        let now = self.clock.now();
        let deadline = now + timeout_ms;
        let mut until = deadline.min(now + SLOW_AFTER_MS);
        loop {
            tokio::select! {
                biased;
                answer = &mut response => return self.judge(answer, attempt).await,
                () = self.clock.sleep_until(until) => {}
            }
            let is_over = until == deadline;
            if !is_over && self.shared.outbox.slows(attempt) {
                until = deadline;
                continue;
            }
            // Its connection is closed before anybody makes another attempt.
            drop(response);
            if let Some(answer) = early.take() {
                return Ok(answer);
            }
            if is_over {
                return Err(PostError::Failed(SendError::TimedOut.into()));
            }
            self.shared.outbox.put_back(attempt.clone(), true);
            return Err(PostError::PutBack);
        }
    }

    /// What we run short of is nobody's failure: the attempt is made again in a while.
    async fn judge(
        &self,
        answer: Result<Answer, SendError>,
        attempt: &D::Attempt,
    ) -> Result<Answer, PostError> {
        match answer {
            Ok(answer) => Ok(answer),
            Err(SendError::Shortage) => {
                tracing::debug!("an attempt waits: the machine has no descriptor or memory for it");
                let later = self.clock.now() + SHORTAGE_PAUSE_MS;
                self.clock.sleep_until(later).await;
                self.shared.outbox.put_back(attempt.clone(), false);
                Err(PostError::PutBack)
            }
            Err(error) => Err(PostError::Failed(error.into())),
        }
    }

    /// What came of an attempt is written down, however long that takes: until then nobody makes
    /// the next one. `None` if it cannot be.
    pub async fn record<C>(&self, command: &C) -> Option<C::Answer>
    where
        C: Command<D, Rejection = Never>,
    {
        let unheard = |error| tracing::debug!(%error, "an answer could not be written down");
        self.submit(command).await.map_err(unheard).ok()
    }

    /// A command of this partition, however long it has to wait for room.
    pub async fn submit<C>(&self, command: &C) -> Result<C::Answer, Error<Never>>
    where
        C: Command<D, Rejection = Never>,
    {
        loop {
            match self.try_record(command).await {
                Err(Error::Unavailable(Unavailable::Busy)) => {
                    let later = self.clock.now() + PAUSE_MS;
                    self.clock.sleep_until(later).await;
                }
                outcome => return outcome,
            }
        }
    }

    /// How many outcomes of a group were written down; none if the group is too much.
    async fn record_some<C>(&self, command: &C) -> usize
    where
        C: Command<D, Answer = usize, Rejection = Never>,
    {
        match self.try_record(command).await {
            Ok(done) => done,
            Err(Error::Unavailable(Unavailable::Busy)) => {
                let later = self.clock.now() + PAUSE_MS;
                self.clock.sleep_until(later).await;
                0
            }
            Err(_) => 0,
        }
    }

    async fn try_record<C>(&self, command: &C) -> Result<C::Answer, Error<Never>>
    where
        C: Command<D, Rejection = Never>,
    {
        submit(&self.shared, self.clock.as_ref(), command).await
    }
}
