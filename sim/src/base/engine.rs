//! The real engine without its threads: the one file of the base that calls it.
//!
//! What a world alone needs of the engine (its commands, what it reads, the outbox) is in the
//! world's own `engine.rs`.

mod following;
mod memory;

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use reveille_core::stream::Head;
use reveille_core::{Millis, Offset, Tenant};
pub(crate) use reveille_engine::app::{App, Settings, Shared};
use reveille_engine::deliveries::send;
use reveille_engine::handlers::{self, FireTimer};
use reveille_engine::streams::StreamError;
use reveille_engine::streams::read::Reading;
use reveille_kernel::checkpointer::Checkpointer;
pub(crate) use reveille_kernel::command::{Command, Outcome, ProbePartition};
use reveille_kernel::committer::Committer;
pub(crate) use reveille_kernel::error::Fatal;
use reveille_kernel::error::{Damaged, Error};
use reveille_kernel::keys;
pub(crate) use reveille_kernel::outbox::PlacePool;
use reveille_kernel::partition::{self, Submission};
use reveille_kernel::pending::{FetchedKeys, Lookup};
use reveille_kernel::timers::{self, DueTimer, TimerHandler, TimerLookahead, fires_once};
pub(crate) use reveille_kernel::txn::ID_STRIDE;
use reveille_schema::deliveries::DeliveryTimer;
use reveille_schema::events::EventTimer;
use reveille_schema::streams::StreamTimer;
use reveille_schema::wakes::WakeTimer;
use reveille_store::log::{RecoveryReport, SparePool};
use reveille_store::state::{Reader, State};
use tokio::sync::oneshot;

pub(crate) use following::FollowingEngine;
pub(crate) use memory::check_memory;

use super::check::{CheckResult, violation};
use super::storage::{OpenedStorage, Storage};

/// A batch on its way to the log.
pub(crate) type OpenBatch = partition::OpenBatch<App>;

pub(crate) struct Engine {
    shared: Arc<Shared>,
    committer: Committer<App>,
    checkpointer: Checkpointer<App>,
    spares: Option<SparePool>,
}

#[derive(Clone, Default)]
pub(crate) struct EngineSettings {
    /// What decisions depend on beside the state.
    pub(crate) app: Settings,
    /// Where the partition's random numbers begin.
    pub(crate) seed: u64,
    /// The server is read-only while the disk has less room than this.
    pub(crate) min_free_bytes: u64,
    /// Registers faces that no server has.
    pub(crate) faces: Option<fn(App) -> App>,
    /// Attempts that may be under way.
    pub(crate) concurrency: Option<usize>,
    /// How many of a tenant's may be, of hooks that share this limit.
    pub(crate) tenant_concurrency: Option<usize>,
    /// Or those that it shares with other partitions.
    pub(crate) places: Option<Arc<PlacePool>>,
    /// Deliveries of one hook that may wait in memory.
    pub(crate) waiting_per_hook: Option<usize>,
    /// What a decision writes before it leaves the rest to another; 0 for what a server has.
    pub(crate) slice_bytes: usize,
}

impl std::fmt::Debug for EngineSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EngineSettings")
            .field("app", &self.app)
            .field("min_free_bytes", &self.min_free_bytes)
            .field("concurrency", &self.concurrency)
            .field("tenant_concurrency", &self.tenant_concurrency)
            .field("waiting_per_hook", &self.waiting_per_hook)
            .field("slice_bytes", &self.slice_bytes)
            .finish_non_exhaustive()
    }
}

/// What the threads of a partition would share, over a state that is open.
fn share(
    state: Arc<State>,
    number: u8,
    settings: &EngineSettings,
    now: Millis,
) -> Result<Arc<Shared>, String> {
    let mut app = App::with_domains(settings.app.clone(), now);
    if let Some(register) = settings.faces {
        app = register(app);
    }
    let partition = partition::Settings { number, seed: settings.seed, partitions: 1 };
    let shared = Shared::new(state, Arc::new(app), partition);
    let shared = Arc::new(shared.map_err(|error| error.to_string())?);
    match &settings.places {
        Some(places) => shared.outbox.join(places),
        None => settings.concurrency.into_iter().for_each(|it| shared.outbox.set_concurrency(it)),
    }
    if let Some(most) = settings.tenant_concurrency {
        shared.outbox.set_per_tenant_max(most);
    }
    if settings.slice_bytes > 0 {
        shared.lock().slice_bytes = settings.slice_bytes;
    }
    if let Some(most) = settings.waiting_per_hook {
        shared.outbox.set_waiting_per_source(most);
    }
    Ok(shared)
}

impl Engine {
    /// Opens the store of a partition and recovers what was left, as a server does when it starts.
    pub(crate) fn start(
        storage: &mut dyn Storage,
        number: u8,
        settings: EngineSettings,
        now: Millis,
        salt: u64,
    ) -> Result<(Engine, RecoveryReport), String> {
        let OpenedStorage { log, spares, state, checkpoint, recovered } = storage.open(salt)?;
        let shared = share(state, number, &settings, now)?;
        let checkpointer = Checkpointer::new(
            shared.clone(),
            storage.disk(),
            spares.clone(),
            settings.min_free_bytes,
            checkpoint,
        );
        // Every start has another salt, so no two writers have the same number.
        shared.log_bytes.store(log.bytes(), Ordering::Relaxed);
        let committer = Committer::new(log, shared.clone(), salt);
        let engine = Engine { shared, committer, checkpointer, spares };
        engine.take_up_work(now)?;
        Ok((engine, recovered))
    }

    /// The partition has become the writer: what was on its way is made again.
    fn take_up_work(&self, now: Millis) -> Result<(), String> {
        self.checkpointer.watch_disk();
        let time = self.shared.lock().time();
        handlers::recover(&self.shared, now.max(time));
        send::recover(&self.shared).map_err(|error| error.to_string())
    }

    /// Looks for attempts that were passed over, if there may be any.
    pub(crate) fn recover_attempts(&self) -> CheckResult {
        if self.shared.outbox.takes_recovery() {
            send::recover(&self.shared).map_err(super::raw_state::unreadable)?;
        }
        Ok(())
    }

    /// For what only one world needs.
    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    pub(crate) fn reader(&self) -> Reader {
        self.shared.state.reader()
    }

    /// Whether everything that was decided is durable.
    pub(crate) fn is_idle(&self) -> bool {
        self.shared.lock().is_idle()
    }

    pub(crate) fn is_read_only(&self) -> bool {
        self.shared.lock().read_only
    }

    /// Whether it knows that somebody else writes this partition.
    pub(crate) fn is_deposed(&self) -> bool {
        self.shared.lock().deposed
    }

    /// The latest time that a decision has had; no later one has an earlier.
    pub(crate) fn time(&self) -> Millis {
        self.shared.lock().time()
    }

    /// Whether all of the state is in the table.
    pub(crate) fn is_applied(&self) -> bool {
        self.shared.state.overlay_bytes().total() == 0
    }

    /// All bytes of a stream.
    pub(crate) fn read_stream(&self, tenant: &Tenant, head: &Head) -> Result<Vec<u8>, StreamError> {
        let state = &self.shared.state;
        let mut reading = Reading::open(state, tenant, head, Offset::ZERO, head.tail)?;
        let mut content = Vec::new();
        while let Some(piece) = reading.next_blocking()? {
            content.extend_from_slice(&piece);
        }
        Ok(content)
    }
}

// Decisions.

/// What a decision asked for, and what was found.
#[derive(Default)]
pub(crate) struct Lookups {
    wanted: Vec<Lookup>,
    fetched: FetchedKeys,
}

impl Lookups {
    /// Adds what is missing; says how much of that was there and has become stale.
    pub(crate) fn add(&mut self, missing: Vec<Lookup>) -> u64 {
        let before = self.wanted.len() + missing.len();
        for lookup in missing {
            if !self.wanted.contains(&lookup) {
                self.wanted.push(lookup);
            }
        }
        (before - self.wanted.len()) as u64
    }

    pub(crate) fn fetch(&mut self, reader: &Reader) -> CheckResult {
        let fetched = FetchedKeys::read(reader, &self.wanted);
        self.fetched = fetched.map_err(|error| violation(format!("a read failed: {error}")))?;
        Ok(())
    }
}

/// What became of an attempt to decide a command.
pub(crate) enum SubmitResult {
    Decided,
    Missing(Vec<Lookup>),
    NoRoom,
}

pub(crate) enum AnswerState<O> {
    Ready(O),
    Pending,
    /// There will be none.
    Dropped,
    /// Stored bytes cannot be read.
    Damaged(String),
}

/// A command that can be submitted. Whatever type its answer has, its world gets the outcome in its
/// own words.
pub(crate) trait Call<O> {
    fn submit(&mut self, engine: &Engine, lookups: &Lookups, now: Millis) -> SubmitResult;
    fn poll(&mut self) -> AnswerState<O>;
}

/// A command, and what its outcome is in the words of a world.
pub(crate) fn call<C: Command<App> + 'static, O: 'static>(
    command: C,
    translate: fn(CommandOutcome<C>) -> O,
) -> Box<dyn Call<O>> {
    Box::new(CommandCall { command, translate, answer: None })
}

/// What a command comes to.
type CommandOutcome<C> = Outcome<<C as Command<App>>::Answer, <C as Command<App>>::Rejection>;

struct CommandCall<C: Command<App>, O> {
    command: C,
    translate: fn(CommandOutcome<C>) -> O,
    /// Where the answer to the last submission arrives.
    answer: Option<oneshot::Receiver<CommandOutcome<C>>>,
}

impl<C: Command<App>, O> Call<O> for CommandCall<C, O> {
    fn submit(&mut self, engine: &Engine, lookups: &Lookups, now: Millis) -> SubmitResult {
        let (reply, answer) = oneshot::channel();
        self.answer = Some(answer);
        match engine.shared.lock().submit(&self.command, &lookups.fetched, now, reply) {
            Submission::Decided => SubmitResult::Decided,
            Submission::Missing(missing, _) => SubmitResult::Missing(missing),
            Submission::NoRoom(_) => SubmitResult::NoRoom,
        }
    }

    fn poll(&mut self) -> AnswerState<O> {
        match self.answer.as_mut().map(oneshot::Receiver::try_recv) {
            Some(Ok(Err(Error::Damaged(Damaged(what))))) => AnswerState::Damaged(what),
            Some(Ok(outcome)) => AnswerState::Ready((self.translate)(outcome)),
            Some(Err(oneshot::error::TryRecvError::Empty)) => AnswerState::Pending,
            Some(Err(oneshot::error::TryRecvError::Closed)) | None => AnswerState::Dropped,
        }
    }
}

impl Engine {
    /// From now on every command is refused.
    pub(crate) fn stop(&self) {
        self.shared.lock().stopping = true;
    }
}

// Batches, and what follows them.

impl Engine {
    /// The log's number of the newest batch that readers see.
    pub(crate) fn sequence(&self) -> u64 {
        self.reader().seq()
    }

    pub(crate) fn take(&mut self) -> Option<OpenBatch> {
        self.committer.take()
    }

    /// Whether a batch has only answers.
    pub(crate) fn is_without_changes(batch: &OpenBatch) -> bool {
        batch.batch.is_empty()
    }

    pub(crate) fn commit(&mut self, batch: OpenBatch) -> Result<(), Fatal> {
        self.committer.commit(batch)
    }

    pub(crate) fn trim(&mut self) -> Result<(), Fatal> {
        self.committer.trim()
    }

    pub(crate) fn seal(&mut self) -> Result<(), Fatal> {
        self.committer.seal()
    }

    pub(crate) fn settle(&self) {
        self.shared.state.settle();
    }

    pub(crate) fn freeze(&self) {
        drop(self.shared.state.freeze());
    }

    pub(crate) fn apply(&mut self) -> Result<(), Fatal> {
        self.checkpointer.apply()
    }

    pub(crate) fn checkpoint(&mut self) -> Result<(), Fatal> {
        self.checkpointer.checkpoint()
    }

    /// Failing is not the end: the committer tries again when it needs one.
    pub(crate) fn fill_spares(&self) {
        if let Some(spares) = &self.spares {
            drop(spares.fill(|| {}));
        }
    }

    pub(crate) fn watch_disk(&self) {
        self.checkpointer.watch_disk();
    }
}

// Timers.

/// After a failure, timers are tried again this much later.
pub(crate) const TIMER_PAUSE_MS: u64 = timers::PAUSE_MS;

/// A timer of any domain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum AnyTimer {
    Stream(StreamTimer),
    Wake(WakeTimer),
    Delivery(DeliveryTimer),
    Event(EventTimer),
    /// Of a face that no server has.
    Face(Bytes),
}

impl AnyTimer {
    /// When a timer is due, and what it is, by its key.
    pub(crate) fn parse(key: &[u8]) -> Option<(Millis, AnyTimer)> {
        let (at, name) = keys::parse_timer(key)?;
        let timer = match *name.first()? {
            StreamTimer::DOMAIN => AnyTimer::Stream(StreamTimer::decode(name)?),
            WakeTimer::DOMAIN => AnyTimer::Wake(WakeTimer::decode(name)?),
            DeliveryTimer::DOMAIN => AnyTimer::Delivery(DeliveryTimer::decode(name)?),
            EventTimer::DOMAIN => AnyTimer::Event(EventTimer::decode(name)?),
            _ => AnyTimer::Face(Bytes::copy_from_slice(name)),
        };
        Some((at, timer))
    }
}

/// The keys of all timers: from the first, to before the second.
pub(crate) fn timer_keys() -> (Bytes, Bytes) {
    (keys::timers_from(Millis(0)), keys::timers_end())
}

/// An entry of the due index whose time has come.
#[derive(Debug, Clone)]
pub(crate) struct Timer {
    pub(crate) timer: AnyTimer,
    /// How many keys it has still to remove.
    pub(crate) remains: usize,
    pub(crate) command: FireTimer,
}

/// What is known of the due index without another look at it.
#[derive(Debug)]
pub(crate) struct Lookahead(TimerLookahead);

impl Default for Lookahead {
    fn default() -> Lookahead {
        Lookahead(TimerLookahead::new(fires_once::<App>))
    }
}

impl Lookahead {
    pub(crate) fn note(&mut self, at: Millis) {
        self.0.note(at);
    }

    pub(crate) fn forget(&mut self) {
        self.0.forget();
    }

    /// Entries that are due now.
    pub(crate) fn due(
        &mut self,
        engine: &Engine,
        since: Millis,
        now: Millis,
    ) -> CheckResult<Vec<Bytes>> {
        let found = self.0.look(&engine.reader(), &keys::timers_from(since), now);
        found.map_err(index_unreadable)
    }

    /// When there will be something to do, as far as is known now.
    pub(crate) fn next(&mut self, engine: &Engine, now: Millis) -> CheckResult<Millis> {
        self.0.next(&engine.reader(), now).map_err(index_unreadable)
    }
}

fn index_unreadable(error: impl std::fmt::Display) -> super::check::Violation {
    violation(format!("the due index cannot be read: {error}"))
}

/// When all of these are done, there is nothing left before this.
pub(crate) fn done_until(found: &[Bytes], now: Millis) -> Millis {
    timers::done_until(found, now, fires_once::<App>)
}

impl Engine {
    /// The earliest entry that became durable since this was last asked.
    pub(crate) fn newly_due(&self) -> Millis {
        self.shared.timers.newest()
    }

    /// Whether a batch has told that something is due sooner.
    pub(crate) fn was_notified_of_timers(&self) -> bool {
        let notified = pin!(self.shared.timers.rings());
        let mut context = Context::from_waker(Waker::noop());
        notified.poll(&mut context) == Poll::Ready(())
    }

    pub(crate) fn timer(&self, key: Bytes) -> CheckResult<Timer> {
        let Some((_, timer)) = AnyTimer::parse(&key) else {
            return Err(index_unreadable(format!("{key:?}")));
        };
        let command = App::timer_command(&self.shared, DueTimer { key });
        let command = command.map_err(index_unreadable)?;
        Ok(Timer { timer, remains: command.removals(), command })
    }

    /// The first entry that is due and not done.
    pub(crate) fn first_due(&self, now: Millis) -> CheckResult<Option<AnyTimer>> {
        let (from, to) = (keys::timers_from(Millis(0)), keys::timers_after(now));
        let found = self.reader().keys(&from, &to, 1).map_err(index_unreadable)?;
        found.first().map_or(Ok(None), |key| match AnyTimer::parse(key) {
            Some((_, timer)) => Ok(Some(timer)),
            None => Err(index_unreadable(format!("{key:?}"))),
        })
    }
}
