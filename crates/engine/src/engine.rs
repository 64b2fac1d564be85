//! The engine: partitions with their threads, and what the faces may ask of them.

use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::JoinHandle;

use reveille_core::key_range::{above, after_prefix};
use reveille_core::stream::append::{Append, AppendReceipt};
use reveille_core::stream::create::Create;
use reveille_core::stream::{Head, Rejected, StreamId};
use reveille_core::subscription::Timings;
use reveille_core::trace::Trace;
use reveille_core::{Millis, ReadFrom, StreamPath, Tenant};
use reveille_deliver::courier::Courier;
use reveille_deliver::destination::Rules;
use reveille_schema::keys::{self, Meta};
use reveille_schema::record;
use reveille_store::background;
use reveille_store::checkpoint;
use reveille_store::directory::{Directory, DirectoryError};
use reveille_store::disk::{Disk, RealDisk};
use reveille_store::log;
use reveille_store::open::{self, Opened};
use reveille_store::table::{LsmTable, TableError};
use tokio::sync::{Notify, oneshot};

use crate::access_times::AccessTimes;
use crate::budget::{Budget, Permit};
use crate::checkpointer::Checkpointer;
use crate::cleaner::{self, Retention};
use crate::command::{Answer, Command, FetchedAnchor};
use crate::committer::{Committer, Fatal, Shared};
use crate::decide::run;
use crate::doors::{Clock, Entropy};
use crate::encoder::Encoder;
use crate::failure::{Failure, Unavailable};
use crate::fairness::{self, Fairness};
use crate::keyring::{Fresh, Keyring};
use crate::limits::{FORK_COPY_BYTES, LIST_PAGE_MAX, OVERLAY_BYTES_MAX};
use crate::live::TailWatch;
use crate::metrics::Snapshot;
use crate::outbound::{Addresses, Complaints, Outbound, Reports};
use crate::partition::{FetchedKeys, Settings, Submission};
use crate::reading::{self, Reading};
use crate::{due, outbound, task};

/// What an engine needs to know.
pub struct Config {
    /// Everything is kept here.
    pub data_dir: PathBuf,
    /// Fixed when the data directory is created; `None` takes what it has.
    pub partitions: Option<u32>,
    /// Whether an answer means that it is on disk.
    pub sync: bool,
    /// Below this the server is read-only.
    pub min_free_bytes: u64,
    /// Length of a log segment.
    pub segment_bytes: u64,
    /// CallbackRequest when the disk has failed and the process must stop.
    pub on_fatal: Arc<dyn Fn(&str) + Send + Sync>,
    /// How consumers are told.
    pub telling: Telling,
}

/// How consumers are told.
#[derive(Clone)]
pub struct Telling {
    /// How long things may take.
    pub timings: Timings,
    /// Where requests may go.
    pub rules: Rules,
    /// Carries them.
    pub courier: Arc<dyn Courier>,
    /// Words them.
    pub encoder: Arc<dyn Encoder>,
    /// How many may be on their way.
    pub concurrency: usize,
    /// How long what is over is kept.
    pub retention: Retention,
}

/// The data directory cannot be opened; nothing in it was changed.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The directory is somebody else's.
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    /// A partition's store is damaged or unreadable.
    #[error("{path}: {source}")]
    Store {
        /// The partition's directory.
        path: PathBuf,
        /// What is wrong with it.
        source: open::OpenError,
    },
    /// A partition's table is.
    #[error(
        "{path} cannot be opened: {source}. Nothing was changed. \
         If its files are damaged, restore the whole data directory from a backup"
    )]
    Table {
        /// The table's directory.
        path: PathBuf,
        /// What is wrong with it.
        source: TableError,
    },
    /// The rest.
    #[error("{path}: {problem}")]
    Other {
        /// The partition's directory.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
}

/// All partitions. Clones are the same engine.
#[derive(Clone)]
pub struct Engine {
    inner: Arc<Inner>,
}

/// An engine that may be gone.
pub(crate) struct WeakEngine(Weak<Inner>);

impl WeakEngine {
    pub(crate) fn upgrade(&self) -> Option<Engine> {
        self.0.upgrade().map(|inner| Engine { inner })
    }
}

struct Inner {
    partitions: Vec<Arc<Shared>>,
    clock: Arc<dyn Clock>,
    entropy: Arc<dyn Entropy>,
    budget: Budget,
    keyring: Arc<Keyring>,
    fairness: Arc<Fairness>,
    telling: Telling,
    threads: Mutex<Vec<JoinHandle<()>>>,
    due: Mutex<Vec<tokio::task::JoinHandle<()>>>,
    /// Lets the cleaner stop.
    stop: Arc<Notify>,
    /// Keeps the lock on the data directory until the last clone is gone.
    _directory: Directory,
}

/// A page of a listing.
#[derive(Debug, Clone)]
pub struct StreamPage {
    /// The streams, in order.
    pub items: Vec<StreamItem>,
    /// The path after which the next page begins; `None` at the end.
    pub next: Option<String>,
}

/// A stream in a listing.
#[derive(Debug, Clone)]
pub struct StreamItem {
    pub path: StreamPath,
    /// What it is.
    pub head: Head,
}

impl Engine {
    /// Opens the data directory, replays what was not applied yet, and starts to work.
    /// Must be called within a tokio runtime.
    pub fn open(
        config: &Config,
        clock: Arc<dyn Clock>,
        entropy: Arc<dyn Entropy>,
    ) -> Result<Engine, OpenError> {
        let directory = Directory::open(&config.data_dir, config.partitions)?;
        let mut partitions = Vec::new();
        let mut threads = Vec::new();
        for number in 0..directory.partitions() {
            let shared =
                start_partition(config, &directory, number, &clock, &entropy, &mut threads)?;
            partitions.push(shared);
        }
        let first = partitions.first().expect("there is a partition");
        let keyring = open_keyring(first, &clock, &entropy)
            .map_err(|problem| OpenError::Other { path: config.data_dir.clone(), problem })?;
        let keyring = Arc::new(keyring);
        let fairness = Arc::new(Fairness::new(clock.clone()));
        let mut due = Vec::new();
        for shared in &partitions {
            shared.outbox.set_concurrency(config.telling.concurrency);
            due.push(tokio::spawn(due::run(shared.clone(), clock.clone())));
            let outbound = Outbound {
                shared: shared.clone(),
                clock: clock.clone(),
                courier: config.telling.courier.clone(),
                encoder: config.telling.encoder.clone(),
                keyring: keyring.clone(),
                rules: config.telling.rules.clone(),
                timings: config.telling.timings.clone(),
                complaints: Complaints::default(),
                workers: Addresses::default(),
                webhooks: Addresses::default(),
                entropy: entropy.clone(),
                told: Reports::new(Command::RecordWakeOutcomes),
                delivered: Reports::new(Command::RecordDeliveryOutcomes),
                fairness: fairness.clone(),
            };
            let outbound = Arc::new(outbound);
            due.push(tokio::spawn(outbound::write_down(outbound.clone(), |it| &it.told)));
            due.push(tokio::spawn(outbound::write_down(outbound.clone(), |it| &it.delivered)));
            due.push(tokio::spawn(outbound::run(outbound)));
        }
        let inner = Inner {
            partitions,
            clock,
            entropy,
            budget: Budget::default(),
            keyring,
            fairness,
            telling: config.telling.clone(),
            threads: Mutex::new(threads),
            due: Mutex::new(due),
            stop: Arc::new(Notify::new()),
            _directory: directory,
        };
        let engine = Engine { inner: Arc::new(inner) };
        let weak = WeakEngine(Arc::downgrade(&engine.inner));
        let stop = engine.inner.stop.clone();
        let cleaner = cleaner::work(weak, stop, config.telling.retention);
        let cleaner = tokio::spawn(cleaner);
        engine.inner.due.lock().unwrap_or_else(PoisonError::into_inner).push(cleaner);
        Ok(engine)
    }

    /// Finishes what was decided, brings the table up, and stops. Later commands are refused.
    pub async fn shutdown(&self) {
        self.inner.stop.notify_one();
        for shared in &self.inner.partitions {
            shared.lock().stopping = true;
            shared.work.notify_all();
            shared.due.notify_one();
            shared.outbox.ready.notify_one();
            shared.stopped.notify_one();
            shared.wake_checkpointer();
        }
        let due =
            std::mem::take(&mut *self.inner.due.lock().unwrap_or_else(PoisonError::into_inner));
        for task in due {
            // It ends by itself; one that panicked has reported it.
            let _ = task.await;
        }
        let threads =
            std::mem::take(&mut *self.inner.threads.lock().unwrap_or_else(PoisonError::into_inner));
        task::blocking(move || {
            for thread in threads {
                // A thread that panicked has reported it.
                let _ = thread.join();
            }
        })
        .await;
    }

    /// The engine's time.
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.inner.clock
    }

    /// The engine's randomness.
    pub fn entropy(&self) -> &Arc<dyn Entropy> {
        &self.inner.entropy
    }

    /// Waits for the right to hold a body of this size in memory.
    pub async fn admit(&self, bytes: usize) -> Result<Permit, Unavailable> {
        self.inner.budget.admit(bytes, self.inner.clock.as_ref()).await
    }

    /// Waits for a tenant's turn to have a request read and decided; see [`Engine::create`],
    /// [`Engine::append`] and [`Engine::ingest`]. Whoever waits here must hold nothing that others
    /// want.
    pub async fn turn(&self, tenant: &Tenant) -> Result<(), Unavailable> {
        self.inner.fairness.enter(tenant).await
    }

    /// Makes a stream, or finds that it is there as asked for. Wakes that it causes belong to the
    /// trace.
    pub async fn create(
        &self,
        tenant: &Tenant,
        path: &StreamPath,
        request: Create,
        trace: Option<Trace>,
    ) -> Result<(Head, bool), Failure> {
        self.inner.fairness.request(tenant, fairness::TAKEN_IN);
        let shared = self.partition(tenant);
        let copies = request.fork.as_ref().is_some_and(|fork| fork.sub_offset > 0);
        let _permit = if copies { Some(self.admit(FORK_COPY_BYTES).await?) } else { None };
        let anchor = self.fetch_anchor(tenant, &request)?;
        let command =
            Command::Create { tenant: tenant.clone(), path: path.clone(), request, anchor };
        match run(shared, self.inner.clock.as_ref(), &command.within(trace)).await? {
            Answer::Created { head, new } => Ok((*head, new)),
            _ => unreachable!("a create is answered as one"),
        }
    }

    /// Appends to a stream, or closes it. Wakes that it causes belong to the trace.
    pub async fn append(
        &self,
        tenant: &Tenant,
        path: &StreamPath,
        request: Append,
        trace: Option<Trace>,
    ) -> Result<AppendReceipt, Failure> {
        self.inner.fairness.request(tenant, fairness::TAKEN_IN);
        let command = Command::Append { tenant: tenant.clone(), path: path.clone(), request };
        let command = command.within(trace);
        match run(self.partition(tenant), self.inner.clock.as_ref(), &command).await? {
            Answer::Appended(receipt) => Ok(receipt),
            _ => unreachable!("an append is answered as one"),
        }
    }

    /// Ends a stream.
    pub async fn delete(&self, tenant: &Tenant, path: &StreamPath) -> Result<(), Failure> {
        let command = Command::Delete { tenant: tenant.clone(), path: path.clone() };
        run(self.partition(tenant), self.inner.clock.as_ref(), &command).await?;
        Ok(())
    }

    /// Walks the whole way of a write, in every partition.
    pub async fn probe(&self) -> Result<(), Failure> {
        for shared in &self.inner.partitions {
            run(shared, self.inner.clock.as_ref(), &Command::Probe).await?;
        }
        Ok(())
    }

    /// The stream at a path, as readers see it now.
    pub fn head(&self, tenant: &Tenant, path: &StreamPath) -> Result<Head, Failure> {
        let shared = self.partition(tenant);
        let head = reading::head(&shared.state.reader(), tenant, path)?;
        let head = head.ok_or(Rejected::NotFound)?;
        if head.soft_deleted {
            return Err(Rejected::Gone.into());
        }
        if self.inner.clock.now() >= shared.access_times.expires_at(&head) {
            return Err(if head.forks > 0 { Rejected::Gone } else { Rejected::NotFound }.into());
        }
        Ok(head)
    }

    /// Remembers that a stream was read, if that prolongs its life. Nobody waits for it.
    pub fn touch(&self, tenant: &Tenant, path: &StreamPath, head: &Head) {
        let shared = self.partition(tenant);
        let now = self.inner.clock.now();
        if shared.access_times.touch(head, now) {
            let (tenant, path) = (tenant.clone(), path.clone());
            let command = Command::Touch { tenant, path, id: head.id, at: now };
            let (shared, clock) = (shared.clone(), self.inner.clock.clone());
            tokio::spawn(async move {
                if let Err(error) = run(&shared, clock.as_ref(), &command).await {
                    tracing::debug!(%error, "a read was not written down");
                }
            });
        }
    }

    /// The bytes of a stream from a place up to its tail.
    pub fn read(&self, tenant: &Tenant, head: &Head, from: ReadFrom) -> Result<Reading, Failure> {
        let state = &self.partition(tenant).state;
        Reading::open(state, tenant, head, head.offset(from), head.tail)
    }

    /// What a failed read means: bytes of a stream that has ended meanwhile, or was trimmed, are
    /// not damaged, they are gone.
    pub fn explain(
        &self,
        tenant: &Tenant,
        path: &StreamPath,
        was: &Head,
        failure: Failure,
    ) -> Failure {
        match (&failure, self.head(tenant, path)) {
            (Failure::Damaged(_), Err(ended @ Failure::Rejected(_))) => ended,
            (Failure::Damaged(_), Ok(head)) if head.id != was.id => Rejected::NotFound.into(),
            (Failure::Damaged(_), Ok(head)) if head.first > was.first => {
                Rejected::Trimmed { first: head.first }.into()
            }
            _ => failure,
        }
    }

    /// Watches a stream: whatever becomes durable after this call is heard.
    pub fn watch(&self, tenant: &Tenant, id: StreamId) -> TailWatch {
        self.partition(tenant).live.watch(id)
    }

    /// Streams whose path begins with `prefix`, in order, after a path; one page of them.
    pub fn streams(
        &self,
        tenant: &Tenant,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<StreamPage, Failure> {
        let shared = self.partition(tenant);
        let first = keys::stream_prefix(tenant, prefix);
        let end = after_prefix(&first);
        let mut from = first;
        if let Some(after) = after {
            from = from.max(above(&keys::stream_prefix(tenant, after)));
        }
        let limit = limit.min(LIST_PAGE_MAX);
        let pairs = shared.state.reader().range(&from, &end, limit).map_err(reading::damaged)?;
        let now = self.inner.clock.now();
        let mut items = Vec::with_capacity(pairs.len());
        let mut next = None;
        let full = pairs.len() == limit;
        for (key, value) in pairs {
            let head =
                record::decode_head(&value).map_err(|error| Failure::Damaged(error.to_string()))?;
            let Some((_, path)) = keys::parse_stream(&key) else { continue };
            next = full.then(|| path.as_str().to_owned());
            if !head.soft_deleted && now < shared.access_times.expires_at(&head) {
                items.push(StreamItem { path, head });
            }
        }
        Ok(StreamPage { items, next })
    }

    /// Every partition at this moment.
    pub fn snapshots(&self) -> Vec<Snapshot> {
        self.inner.partitions.iter().map(|shared| snapshot(shared)).collect()
    }

    pub(crate) fn fairness(&self) -> &Fairness {
        &self.inner.fairness
    }

    pub(crate) fn keyring(&self) -> &Keyring {
        &self.inner.keyring
    }

    pub(crate) fn rules(&self) -> &Rules {
        &self.inner.telling.rules
    }

    pub(crate) fn retain_deliveries_ms(&self) -> u64 {
        self.inner.telling.retention.deliveries_ms
    }

    pub(crate) fn timings(&self) -> &Timings {
        &self.inner.telling.timings
    }

    pub(crate) fn partitions(&self) -> &[Arc<Shared>] {
        &self.inner.partitions
    }

    /// Where what belongs to no tenant is kept.
    pub(crate) fn first_partition(&self) -> &Arc<Shared> {
        self.inner.partitions.first().expect("there is a partition")
    }

    /// A tenant lives in one partition.
    pub(crate) fn partition(&self, tenant: &Tenant) -> &Arc<Shared> {
        let partitions = &self.inner.partitions;
        let count = u32::try_from(partitions.len()).unwrap_or(u32::MAX);
        let index = partition_of(tenant, count);
        partitions.get(usize::try_from(index).unwrap_or(0)).expect("there is a partition")
    }

    /// Reads what a fork's decision will need of its source's bytes.
    fn fetch_anchor(
        &self,
        tenant: &Tenant,
        request: &Create,
    ) -> Result<Option<FetchedAnchor>, Failure> {
        let Some(spec) = &request.fork else {
            return Ok(None);
        };
        let Some(at) = spec.at else { return Ok(None) };
        let reader = self.partition(tenant).state.reader();
        let Some(source) = reading::head(&reader, tenant, &spec.source)? else {
            return Ok(None);
        };
        let anchor = reading::anchor(&reader, tenant, &source, at)?;
        Ok(Some(FetchedAnchor { source_id: source.id, at, anchor }))
    }
}

/// The partition that a tenant lives in. Persisted by its consequences: never changed.
fn partition_of(tenant: &Tenant, partitions: u32) -> u32 {
    crc32c::crc32c(tenant.as_str().as_bytes()) % partitions.max(1)
}

fn snapshot(shared: &Shared) -> Snapshot {
    let overlay = shared.state.overlay_bytes().total();
    let metrics = &shared.metrics;
    let (read_only, subscriptions, hooks) = {
        let partition = shared.lock();
        let count = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
        let registry = &partition.registry;
        (partition.read_only, count(registry.len()), count(registry.hooks.len()))
    };
    Snapshot {
        batches: metrics.batches.load(Ordering::Relaxed),
        commands: metrics.commands.load(Ordering::Relaxed),
        bytes: metrics.bytes.load(Ordering::Relaxed),
        disk_free: metrics.disk_free.load(Ordering::Relaxed),
        log_bytes: shared.log_bytes.load(Ordering::Relaxed),
        overlay_bytes: u64::try_from(overlay).unwrap_or(u64::MAX),
        watched: u64::try_from(shared.live.len()).unwrap_or(u64::MAX),
        read_only,
        telling: metrics.telling.snapshot(shared.outbox.traffic(), subscriptions),
        delivering: metrics.delivering.snapshot(hooks),
    }
}

/// Opens one partition and starts its threads.
fn start_partition(
    config: &Config,
    directory: &Directory,
    number: u32,
    clock: &Arc<dyn Clock>,
    entropy: &Arc<dyn Entropy>,
    threads: &mut Vec<JoinHandle<()>>,
) -> Result<Arc<Shared>, OpenError> {
    let path = directory.log_path(number);
    let other = |problem: String| OpenError::Other { path: path.clone(), problem };
    let disk = RealDisk::open(&path).map_err(|error| other(error.to_string()))?;
    let disk: Arc<dyn Disk> = Arc::new(disk);
    let store = |source| OpenError::Store { path: path.clone(), source };
    // Looked at before the table is opened, because opening that changes its files.
    checkpoint::read(disk.as_ref()).map_err(|error| store(error.into()))?;
    let table_path = directory.table_path(number);
    let table = LsmTable::open(&table_path)
        .map_err(|source| OpenError::Table { path: table_path, source })?;
    let seeds = entropy.clone();
    let entropy = entropy.clone();
    let salt = Box::new(move || entropy.number());
    let log_config = log::Config { segment_bytes: config.segment_bytes, sync: config.sync };
    let opened = open::open(disk.clone(), Arc::new(table), log_config, OVERLAY_BYTES_MAX / 2, salt);
    let Opened { log, state, checkpoint, recovered } = opened.map_err(store)?;
    report(number, &recovered);
    let access_times = Arc::new(AccessTimes::new(clock.now()));
    let timings = config.telling.timings.clone();
    let settings = Settings { timings, seed: seeds.number(), ..Settings::default() };
    let shared = Arc::new(Shared::new(state, access_times, settings).map_err(other)?);
    shared.log_bytes.store(log.bytes(), Ordering::Relaxed);
    let min_free = config.min_free_bytes;
    let checkpointer = Checkpointer::new(shared.clone(), disk, log.spares(), min_free, checkpoint)
        .with_segments_of(config.segment_bytes)
        .after_replay(recovered.bytes);
    // Before the first command: a server that starts on a full disk starts read-only.
    checkpointer.watch_disk();
    // Before the first command as well: what is counted from here on is a change to this.
    due::recover(&shared, clock.now());
    let committer = Committer::new(log, shared.clone());
    let on_fatal = &config.on_fatal;
    threads.push(spawn(format!("commit-{number}"), on_fatal, move || committer.run()));
    let keep = move || {
        background::step_back();
        checkpointer.run()
    };
    threads.push(spawn(format!("keep-{number}"), on_fatal, keep));
    Ok(shared)
}

/// Reads the server's secrets; the first start makes them.
fn open_keyring(
    shared: &Arc<Shared>,
    clock: &Arc<dyn Clock>,
    entropy: &Arc<dyn Entropy>,
) -> Result<Keyring, String> {
    let read = |name| {
        let stored = shared.state.reader().get(&keys::meta(name));
        stored.map_err(|error| error.to_string())
    };
    if read(Meta::TokenKey)?.is_none() {
        let fresh = Fresh::new(entropy.as_ref(), clock.now());
        for (name, value) in [(Meta::SigningKeys, fresh.signing), (Meta::TokenKey, fresh.token)] {
            let command = Command::Install { name, value, expected: None };
            install(shared, clock.now(), &command)?;
        }
    }
    let missing = || "the server's own keys are missing".to_owned();
    let token = read(Meta::TokenKey)?.ok_or_else(missing)?;
    let signing = read(Meta::SigningKeys)?.ok_or_else(missing)?;
    Keyring::open(entropy.clone(), &token, signing)
}

/// Runs a command before anything else can: nobody waits for this thread.
fn install(shared: &Arc<Shared>, now: Millis, command: &Command) -> Result<(), String> {
    let mut wanted = Vec::new();
    loop {
        let (reply, answer) = oneshot::channel();
        let fetched = FetchedKeys::read(&shared.state.reader(), &wanted);
        let fetched = fetched.map_err(|error| error.to_string())?;
        let submitted = shared.lock().submit(command, &fetched, now, reply);
        match submitted {
            Submission::Missing(more, _) => wanted.extend(more),
            Submission::NoRoom(_) => return Err("there is no room in memory".into()),
            Submission::Decided => {
                shared.work.notify_one();
                // A runtime's own threads must not wait like this; a thread of ours may.
                let waiting = std::thread::spawn(move || answer.blocking_recv());
                let outcome = waiting.join().map_err(|_| "the wait failed".to_owned())?;
                let outcome = outcome.map_err(|_| "the log has stopped".to_owned())?;
                return outcome.map(drop).map_err(|error| error.to_string());
            }
        }
    }
}

fn report(partition: u32, recovered: &log::RecoveryReport) {
    if let Some(torn) = &recovered.torn {
        tracing::warn!(
            partition,
            file = torn.file,
            position = torn.position,
            bytes = torn.bytes,
            "the last write before the crash was incomplete, was never acknowledged, and is dropped"
        );
    }
    tracing::info!(partition, replayed = recovered.records, "the log is open");
}

/// A thread whose failure, or panic, stops the process.
fn spawn(
    name: String,
    on_fatal: &Arc<dyn Fn(&str) + Send + Sync>,
    work: impl FnOnce() -> Result<(), Fatal> + Send + 'static,
) -> JoinHandle<()> {
    struct Guard(Arc<dyn Fn(&str) + Send + Sync>);
    impl Drop for Guard {
        fn drop(&mut self) {
            if std::thread::panicking() {
                (self.0)("a storage thread panicked");
            }
        }
    }
    let guard = Guard(on_fatal.clone());
    let body = move || {
        if let Err(error) = work() {
            (guard.0)(&error.0);
        }
    };
    std::thread::Builder::new().name(name).spawn(body).expect("a thread can be started")
}
