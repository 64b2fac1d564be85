//! A partition over memory, for tests of decisions: given a state, when a command comes, then these
//! are its writes, its effects and its answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use reveille_core::{ContentType, Millis, StreamPath, Tenant};
use reveille_kernel::command::{Command, Decision, Outcome};
use reveille_kernel::doors::{Clock, Sleep};
use reveille_kernel::error::Never;
use reveille_kernel::partition::{self, OpenBatch, Submission};
use reveille_kernel::pending::FetchedKeys;
use reveille_kernel::timers::{DueTimer, TimerHandler};
use reveille_store::state::{Reader, State};
use reveille_store::table::MemoryTable;
use tokio::sync::oneshot;

use crate::app::{App, Settings, Shared, Txn};
use crate::effect::Effect;

/// One partition, whose batches are durable as soon as they are taken.
pub(crate) struct Bench {
    pub(crate) shared: Shared,
    pub(crate) tenant: Tenant,
    pub(crate) now: Millis,
    /// How often the last command was decided until everything was at hand.
    pub(crate) rounds: usize,
    /// How many bytes were read for it.
    pub(crate) fetched_bytes: usize,
    seq: u64,
}

/// A clock that goes on by so much whenever somebody looks at it.
pub(crate) struct TickingClock {
    now: AtomicU64,
    tick_ms: u64,
}

impl TickingClock {
    pub(crate) fn new(tick_ms: u64) -> TickingClock {
        TickingClock { now: AtomicU64::new(0), tick_ms }
    }
}

impl Clock for TickingClock {
    fn now(&self) -> Millis {
        Millis(self.now.fetch_add(self.tick_ms, Ordering::Relaxed))
    }

    fn sleep_until(&self, _: Millis) -> Sleep {
        panic!("nobody sleeps")
    }
}

/// Writes these keys.
struct WriteKeys(Vec<(Bytes, Bytes)>);

impl Command<App> for WriteKeys {
    type Answer = ();
    type Rejection = Never;

    fn decide(&self, txn: &mut Txn<'_>) -> Decision<(), Never> {
        for (key, value) in &self.0 {
            txn.set(key.clone(), value.clone());
        }
        Ok(Ok(()))
    }
}

/// What a command came to.
#[derive(Debug)]
pub(crate) struct Decided<A, R> {
    pub(crate) outcome: Outcome<A, R>,
    pub(crate) writes: Vec<(Bytes, Option<Bytes>)>,
    pub(crate) effects: Vec<Effect>,
    /// The earliest timer that was set.
    pub(crate) timer_at: Option<Millis>,
    /// Bytes of the batch.
    pub(crate) bytes: usize,
}

impl<A, R: std::fmt::Debug> Decided<A, R> {
    pub(crate) fn answer(self) -> A {
        self.outcome.unwrap_or_else(|error| panic!("it was not done: {error:?}"))
    }

    /// The value that a key was given, if it was written.
    pub(crate) fn written(&self, key: &Bytes) -> Option<&Option<Bytes>> {
        self.writes.iter().find(|(written, _)| written == key).map(|(_, value)| value)
    }
}

impl Bench {
    pub(crate) fn new() -> Bench {
        Bench::with(Settings::default())
    }

    pub(crate) fn with(settings: Settings) -> Bench {
        let state = Arc::new(State::new(Arc::new(MemoryTable::default()), 0));
        let app = App::with_domains(settings, Millis(0));
        let shared = Shared::new(state, Arc::new(app), partition::Settings::default()).unwrap();
        Bench {
            shared,
            tenant: Tenant::default_tenant(),
            now: Millis(1_000),
            rounds: 0,
            fetched_bytes: 0,
            seq: 0,
        }
    }

    /// The process ends, and another one opens what is durable.
    pub(crate) fn reopen(&mut self) {
        let app = App::with_domains(self.shared.domains.settings.clone(), self.now);
        let (state, settings) = (self.shared.state.clone(), partition::Settings::default());
        self.shared = Shared::new(state, Arc::new(app), settings).unwrap();
    }

    /// Whatever is durable is in the table, and has to be read from there.
    pub(crate) fn empty_memory(&mut self) {
        let frozen = self.shared.state.freeze().expect("something was written");
        self.shared.state.apply(&frozen).unwrap();
    }

    /// Given these keys.
    pub(crate) fn given(&mut self, keys: Vec<(Bytes, Bytes)>) {
        self.when(&WriteKeys(keys)).answer();
    }

    /// From now on decisions leave to others what they can after so many bytes.
    pub(crate) fn set_slice_bytes(&mut self, bytes: usize) {
        self.shared.lock().slice_bytes = bytes;
    }

    /// When a command comes; everything that it needs is read for it.
    pub(crate) fn when<C: Command<App>>(
        &mut self,
        command: &C,
    ) -> Decided<C::Answer, C::Rejection> {
        let mut outcome = self.submit(command);
        let early = outcome.try_recv();
        let batch = self.shared.lock().take();
        let (mut writes, mut effects, mut timer_at, mut bytes) = Default::default();
        if let Some(mut batch) = batch {
            timer_at = batch.timer_at;
            effects = std::mem::take(&mut batch.effects);
            (writes, bytes) = self.commit(&mut batch);
            batch.answer();
        }
        let outcome = early.or_else(|_| outcome.try_recv()).expect("it is answered");
        Decided { outcome, writes, effects, timer_at, bytes }
    }

    /// Decides a command, and leaves it undurable.
    pub(crate) fn submit<C: Command<App>>(
        &mut self,
        command: &C,
    ) -> oneshot::Receiver<Outcome<C::Answer, C::Rejection>> {
        let mut lookups = Vec::new();
        self.rounds = 0;
        loop {
            self.rounds += 1;
            let fetched = FetchedKeys::read(&self.reader(), &lookups).unwrap();
            self.fetched_bytes = fetched.bytes();
            let (reply, outcome) = oneshot::channel();
            match self.shared.lock().submit(command, &fetched, self.now, reply) {
                Submission::Decided => return outcome,
                Submission::Missing(more, _) => lookups.extend(more),
                Submission::NoRoom(_) => panic!("there is room"),
            }
        }
    }

    fn commit(&mut self, batch: &mut OpenBatch<App>) -> (Vec<(Bytes, Option<Bytes>)>, usize) {
        let mut run = None;
        let mut written = (Vec::new(), 0);
        if !batch.batch.is_empty() {
            let (payload, encoded) = std::mem::take(&mut batch.batch).encode();
            let encoded = Arc::new(encoded);
            self.seq += 1;
            self.shared.state.publish(self.seq, encoded.clone(), payload.len());
            let writes = encoded.entries().iter();
            written =
                (writes.map(|it| (it.key.clone(), it.value.clone())).collect(), payload.len());
            run = Some(encoded);
        }
        self.shared.lock().settle(&batch.published(run));
        written
    }

    pub(crate) fn reader(&self) -> Reader {
        self.shared.state.reader()
    }

    /// The timers that are set, in the order of their times.
    pub(crate) fn timers(&self) -> Vec<DueTimer> {
        use reveille_kernel::keys;
        let (from, to) = (keys::timers_from(Millis(0)), keys::timers_end());
        let found = self.reader().keys(&from, &to, usize::MAX).unwrap();
        found.into_iter().map(|key| DueTimer { key }).collect()
    }

    /// A timer fires.
    pub(crate) fn fire(&mut self, timer: DueTimer) -> Decided<(), Never> {
        let command = App::timer_command(&self.shared, timer).unwrap();
        self.when(&command)
    }
}

pub(crate) fn path(path: &str) -> StreamPath {
    StreamPath::parse(path).unwrap()
}

pub(crate) fn text() -> Option<ContentType> {
    ContentType::parse("text/plain")
}
