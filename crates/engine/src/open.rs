//! Opening an engine: partitions with their threads and tasks, wired to the domains.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;

use reveille_core::secret::SecretCipher;
use reveille_kernel::checkpointer::Checkpointer;
use reveille_kernel::committer::Committer;
use reveille_kernel::doors::{Clock, Entropy, SteadyClock};
use reveille_kernel::error::Fatal;
use reveille_kernel::fairness::Fairness;
use reveille_kernel::limits::OverlayLimits;
use reveille_kernel::outbound::{self, Sender, record_outcomes};
use reveille_kernel::outbox::PlacePool;
use reveille_kernel::{partition, timers};
use reveille_store::background;
use reveille_store::checkpoint;
use reveille_store::directory::{Directory, DirectoryError};
use reveille_store::disk::{Disk, RealDisk};
use reveille_store::key_file::{self, KeyFileError};
use reveille_store::log::{self, SegmentLog};
use reveille_store::open::{self, OpenedStore};
use reveille_store::table::{LsmTable, TableError};

use crate::app::{App, Settings, Shared};
use crate::auth::server_keys::{self, SigningKeyFollower};
use crate::cleaner;
use crate::complaints::Complaints;
use crate::deliveries::delivery::RecordDeliveryOutcomes;
use crate::deliveries::send::DeliverySender;
use crate::engine::{Config, Engine, Extensions, Parts};
use crate::handlers::{self, Outbound};
use crate::keyring::Keyring;
use crate::matching::Shares;
use crate::outbound::OutboundContext;
use crate::secrets::{SecretOpener, TenantSecrets};
use crate::wakes::consumer::RecordWakeOutcomes;
use crate::wakes::send::WakeSender;

/// The most partitions that a directory may have: their number is one byte of a key's text and of
/// every id.
pub(crate) const PARTITIONS_MAX: u32 = 256;

/// The data directory cannot be opened; nothing in it was changed.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The directory is somebody else's.
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    /// A partition's store is damaged or unreadable.
    #[error("{path}: {source}")]
    Store { path: PathBuf, source: open::OpenError },
    /// A partition's table is.
    #[error(
        "{path} cannot be opened: {source}. Nothing was changed. \
         If its files are damaged, restore the whole data directory from a backup"
    )]
    Table { path: PathBuf, source: TableError },
    /// There is no key to open secrets with.
    #[error(transparent)]
    SecretsKey(#[from] KeyFileError),
    #[error("{path}: {problem}")]
    Other { path: PathBuf, problem: String },
}

/// A store that was opened, before its partition has begun to work.
struct OpenedPartition {
    number: u32,
    disk: Arc<dyn Disk>,
    log: SegmentLog,
    shared: Arc<Shared>,
    checkpoint: u64,
    replayed_bytes: u64,
}

impl Engine {
    /// Opens the data directory, replays what was not applied yet, and starts to work.
    /// Must be called within a tokio runtime.
    pub fn open(
        config: &Config,
        clock: Arc<dyn Clock>,
        entropy: Arc<dyn Entropy>,
    ) -> Result<Engine, OpenError> {
        let other = |problem: String| OpenError::Other { path: config.data_dir.clone(), problem };
        if config.partitions.is_some_and(|partitions| partitions > PARTITIONS_MAX) {
            return Err(other(format!("there can be at most {PARTITIONS_MAX} partitions")));
        }
        let directory = Directory::open(&config.data_dir, config.partitions)?;
        let cipher = open_secrets(config, &directory, entropy.as_ref())?;
        let keyring = Arc::new(Keyring::new(entropy.clone(), cipher));
        let mut opened = Vec::new();
        for number in 0..directory.partitions() {
            opened.push(open_partition(config, &directory, number, &clock, &entropy, &keyring)?);
        }
        // No partition's time goes back, whatever happened to the clock while the server was down.
        let latest = opened.iter().map(|it| it.shared.lock().time()).max().unwrap_or_default();
        let clock: Arc<dyn Clock> = Arc::new(SteadyClock::new(clock, latest));
        let mut threads = Vec::new();
        let mut partitions = Vec::new();
        for partition in opened {
            partitions.push(start_partition(config, partition, &clock, &entropy, &mut threads));
        }
        let first = partitions.first().expect("there is a partition");
        server_keys::open(first, &keyring, &clock).map_err(|error| other(error.to_string()))?;
        let fairness = Arc::new(Fairness::new(clock.clone()));
        let mut tasks = Vec::new();
        let places = PlacePool::new(config.outbound.concurrency, partitions.len());
        for shared in &partitions {
            shared.outbox.join(&places);
            shared.outbox.set_per_tenant_max(config.outbound.tenant_concurrency);
            shared.domains.part::<Shares>().follow(&fairness);
            tasks.push(tokio::spawn(timers::run(shared.clone(), clock.clone())));
            let sender = Arc::new(Sender {
                shared: shared.clone(),
                clock: clock.clone(),
                courier: config.outbound.courier.clone(),
                fairness: fairness.clone(),
                outbound: Outbound {
                    context: context(config, shared, &keyring, &entropy),
                    wakes: WakeSender::default(),
                    deliveries: DeliverySender::default(),
                },
            });
            let wakes = record_outcomes::<App, RecordWakeOutcomes>;
            tasks.push(tokio::spawn(wakes(sender.clone(), Outbound::wake_outcomes)));
            let deliveries = record_outcomes::<App, RecordDeliveryOutcomes>;
            tasks.push(tokio::spawn(deliveries(sender.clone(), Outbound::delivery_outcomes)));
            tasks.push(tokio::spawn(outbound::run(sender)));
        }
        let engine = Engine::new(Parts {
            partitions,
            clock,
            entropy,
            fairness,
            outbound: config.outbound.clone(),
            extensions: Extensions::default().with(keyring),
            threads,
            tasks,
            directory,
        });
        let retention = config.outbound.retention;
        engine.spawn(|weak, stop| cleaner::work(weak, stop, retention));
        Ok(engine)
    }
}

/// How many partitions a data directory that exists was created with.
pub fn partitions_of(data_dir: &Path) -> Option<u32> {
    Directory::partitions_of(data_dir)
}

/// What opens the secrets of the data directory. Its key is made before anything is stored.
fn open_secrets(
    config: &Config,
    directory: &Directory,
    entropy: &dyn Entropy,
) -> Result<SecretCipher, OpenError> {
    let mut fresh = [0; 32];
    entropy.fill(&mut fresh);
    let own = directory.secrets_key_path();
    let path = config.secrets_key_file.as_ref().unwrap_or(&own);
    let key = key_file::load_or_create(path, directory.is_unused(), fresh)?;
    Ok(SecretCipher::new(&key))
}

fn context(
    config: &Config,
    shared: &Shared,
    keyring: &Arc<Keyring>,
    entropy: &Arc<dyn Entropy>,
) -> OutboundContext {
    let stored = shared.domains.part::<TenantSecrets>().clone();
    let secrets = SecretOpener { stored, keyring: keyring.clone() };
    OutboundContext {
        encoder: config.outbound.encoder.clone(),
        delivery_encoders: config.outbound.delivery_encoders.clone(),
        keyring: keyring.clone(),
        secrets: Arc::new(secrets),
        rules: config.outbound.rules.clone(),
        timings: config.outbound.timings.clone(),
        entropy: entropy.clone(),
        complaints: Complaints::default(),
    }
}

/// Opens the store of one partition.
fn open_partition(
    config: &Config,
    directory: &Directory,
    number: u32,
    clock: &Arc<dyn Clock>,
    entropy: &Arc<dyn Entropy>,
    keyring: &Arc<Keyring>,
) -> Result<OpenedPartition, OpenError> {
    let path = directory.log_path(number);
    let other = |problem: String| OpenError::Other { path: path.clone(), problem };
    let disk = RealDisk::open(&path).map_err(|error| other(error.to_string()))?;
    let disk: Arc<dyn Disk> = Arc::new(disk);
    let store = |source| OpenError::Store { path: path.clone(), source };
    // Looked at before the table is opened, because opening that changes its files.
    checkpoint::read(disk.as_ref()).map_err(|error| store(error.into()))?;
    let table_path = directory.table_path(number);
    let table = LsmTable::open_among(&table_path, directory.partitions(), config.table_files)
        .map_err(|source| OpenError::Table { path: table_path, source })?;
    let salts = entropy.clone();
    let salt = Box::new(move || salts.number());
    let log_config = log::Config { segment_bytes: config.segment_bytes, sync: config.sync };
    // What is in memory at once is for the process: partitions have equal parts of it.
    let overlay = OverlayLimits::of(directory.partitions()).max / 2;
    let opened = open::open(disk.clone(), Arc::new(table), log_config, overlay, salt);
    let OpenedStore { log, state, checkpoint, recovered } = opened.map_err(store)?;
    report(number, &recovered);
    let settings = Settings {
        timings: config.outbound.timings.clone(),
        quotas: config.quotas,
        documents: config.documents,
        poison: config.poison,
        hash_seed: entropy.number(),
        ..Settings::default()
    };
    let latest = partition::stored_time(&state.reader());
    let latest = latest.map_err(|error| other(error.to_string()))?;
    let started = clock.now().max(latest);
    let app = (config.outbound.faces)(App::with_domains(settings, started));
    let app = if number == 0 { app.with(SigningKeyFollower(keyring.clone())) } else { app };
    let settings = partition::Settings {
        number: u8::try_from(number).unwrap_or(u8::MAX),
        seed: entropy.number(),
        partitions: directory.partitions(),
    };
    let shared = Shared::new(state, Arc::new(app), settings);
    let shared = Arc::new(shared.map_err(|error| other(error.to_string()))?);
    shared.log_bytes.store(log.bytes(), Ordering::Relaxed);
    let replayed_bytes = recovered.bytes;
    Ok(OpenedPartition { number, disk, log, shared, checkpoint, replayed_bytes })
}

/// Has a partition begin to work.
fn start_partition(
    config: &Config,
    opened: OpenedPartition,
    clock: &Arc<dyn Clock>,
    entropy: &Arc<dyn Entropy>,
    threads: &mut Vec<JoinHandle<()>>,
) -> Arc<Shared> {
    let OpenedPartition { number, disk, log, shared, checkpoint, replayed_bytes } = opened;
    let min_free = config.min_free_bytes;
    let spares = Some(log.spares());
    let checkpointer = Checkpointer::new(shared.clone(), disk, spares, min_free, checkpoint)
        .with_segments_of(config.segment_bytes)
        .after_replay(replayed_bytes);
    // Before the first command: a server that starts on a full disk starts read-only.
    checkpointer.watch_disk();
    // Before the first command as well: what is counted from here on is a change to this.
    handlers::recover(&shared, clock.now());
    let committer = Committer::new(Box::new(log), shared.clone(), entropy.number());
    let on_fatal = &config.on_fatal;
    threads.push(spawn(format!("commit-{number}"), on_fatal, move || committer.run()));
    let checkpoints = move || {
        background::step_back();
        checkpointer.run()
    };
    threads.push(spawn(format!("keep-{number}"), on_fatal, checkpoints));
    shared
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
