//! The engine: partitions, and what the domains need of all of them.

use std::any::{Any, TypeId};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::JoinHandle;

use reveille_core::audit::Actor;
use reveille_core::delivery::policy::Poison;
use reveille_core::document::settings::DocumentSettings;
use reveille_core::subscription::Timings;
use reveille_core::{Millis, Tenant};
use reveille_deliver::courier::Courier;
use reveille_deliver::destination::Rules;
use reveille_kernel::budget::{Budget, Permit};
use reveille_kernel::command::{Command, Outcome, ProbePartition};
use reveille_kernel::doors::{Clock, Entropy};
use reveille_kernel::error::{Error, Never, Unavailable};
use reveille_kernel::fairness::Fairness;
use reveille_kernel::keys::partition_of;
use reveille_kernel::limits::{PAGE_BYTES_MAX, PAGES_BYTES};
use reveille_kernel::reply_budget::{ReplyBudget, ReplyPermit, ReplyRoom};
use reveille_kernel::submit::submit;
use reveille_kernel::task;
use reveille_store::directory::Directory;
use tokio::sync::Notify;

use crate::app::{App, Shared};
use crate::encoder::{DeliveryEncoders, Encoder};
use crate::quota::Quotas;
use crate::wall::{self, WallOffset};

/// What an engine needs to know.
pub struct Config {
    /// Everything is kept here.
    pub data_dir: PathBuf,
    /// The key that seals secrets; `None` for one in the data directory.
    pub secrets_key_file: Option<PathBuf>,
    /// Fixed when the data directory is created; `None` takes what it has.
    pub partitions: Option<u32>,
    /// Files of the tables that stay open, in all partitions together.
    pub table_files: usize,
    /// Whether an answer means that it is on disk.
    pub sync: bool,
    /// Below this the server is read-only.
    pub min_free_bytes: u64,
    /// Length of a log segment.
    pub segment_bytes: u64,
    /// Called when the disk has failed and the process must stop.
    pub on_fatal: Arc<dyn Fn(&str) + Send + Sync>,
    pub outbound: OutboundConfig,
    /// How much each tenant may have.
    pub quotas: Quotas,
    pub documents: DocumentSettings,
    /// When a trigger's delivery is given up because nothing will change.
    pub poison: Option<Poison>,
}

/// How consumers are woken and events delivered.
#[derive(Clone)]
pub struct OutboundConfig {
    /// How long things may take.
    pub timings: Timings,
    /// Where requests may go.
    pub rules: Rules,
    /// Carries them.
    pub courier: Arc<dyn Courier>,
    /// Says what is in wakes.
    pub encoder: Arc<dyn Encoder>,
    /// Say what is in deliveries, face by face.
    pub delivery_encoders: DeliveryEncoders,
    /// Registers faces beside those that every server has.
    pub faces: fn(App) -> App,
    /// How many may be on their way in the whole process.
    pub concurrency: usize,
    /// How many of a tenant's may be, of hooks whose policy says so.
    pub tenant_concurrency: usize,
    pub retention: Retention,
}

/// How long what is over is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// Events, after they came.
    pub events_ms: u64,
    /// Deliveries, after their end.
    pub deliveries_ms: u64,
}

/// All partitions. Clones are the same engine.
#[derive(Clone)]
pub struct Engine {
    inner: Arc<Inner>,
    /// In whose name things are done, for the audit log.
    actor: Arc<Actor>,
}

/// An engine that may be gone.
pub(crate) struct WeakEngine(Weak<Inner>);

impl WeakEngine {
    pub(crate) fn upgrade(&self) -> Option<Engine> {
        self.0.upgrade().map(|inner| Engine { inner, actor: Arc::new(Actor::server()) })
    }
}

struct Inner {
    partitions: Vec<Arc<Shared>>,
    clock: Arc<dyn Clock>,
    entropy: Arc<dyn Entropy>,
    budget: Budget,
    pages: Arc<ReplyBudget>,
    replies: Arc<ReplyBudget>,
    fairness: Arc<Fairness>,
    outbound: OutboundConfig,
    extensions: Extensions,
    threads: Mutex<Vec<JoinHandle<()>>>,
    tasks: Mutex<Vec<tokio::task::JoinHandle<()>>>,
    /// Ends what belongs to no partition.
    stop: Arc<Notify>,
    /// Keeps the lock on the data directory until the last clone is gone.
    _directory: Directory,
}

/// What domains keep for the whole process, by its type.
#[derive(Default)]
pub(crate) struct Extensions(Vec<(TypeId, Box<dyn Any + Send + Sync>)>);

impl Extensions {
    pub(crate) fn with<T: Any + Send + Sync>(mut self, extension: T) -> Extensions {
        self.0.push((TypeId::of::<T>(), Box::new(extension)));
        self
    }

    fn get<T: Any>(&self) -> Option<&T> {
        let found = self.0.iter().find(|(id, _)| *id == TypeId::of::<T>());
        found.and_then(|(_, extension)| extension.downcast_ref())
    }
}

/// What an engine is made of.
pub(crate) struct Parts {
    pub(crate) partitions: Vec<Arc<Shared>>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) entropy: Arc<dyn Entropy>,
    pub(crate) fairness: Arc<Fairness>,
    pub(crate) outbound: OutboundConfig,
    pub(crate) extensions: Extensions,
    pub(crate) threads: Vec<JoinHandle<()>>,
    pub(crate) tasks: Vec<tokio::task::JoinHandle<()>>,
    pub(crate) directory: Directory,
}

impl Engine {
    pub(crate) fn new(parts: Parts) -> Engine {
        let Parts { partitions, clock, entropy, fairness, outbound, extensions, .. } = parts;
        let inner = Inner {
            partitions,
            clock,
            entropy,
            budget: Budget::default(),
            pages: Arc::new(ReplyBudget::new(PAGES_BYTES)),
            replies: Arc::default(),
            fairness,
            outbound,
            extensions,
            threads: Mutex::new(parts.threads),
            tasks: Mutex::new(parts.tasks),
            stop: Arc::new(Notify::new()),
            _directory: parts.directory,
        };
        Engine { inner: Arc::new(inner), actor: Arc::new(Actor::server()) }
    }

    /// The same engine, on behalf of somebody: what is done with it is written down under their
    /// name.
    #[must_use]
    pub fn acting_as(&self, actor: Actor) -> Engine {
        Engine { inner: self.inner.clone(), actor: Arc::new(actor) }
    }

    pub(crate) fn actor(&self) -> &Actor {
        &self.actor
    }

    /// Has a task run until the engine stops or nobody has it any more.
    pub(crate) fn spawn<F>(&self, task: impl FnOnce(WeakEngine, Arc<Notify>) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let weak = WeakEngine(Arc::downgrade(&self.inner));
        let task = tokio::spawn(task(weak, self.inner.stop.clone()));
        self.inner.tasks.lock().unwrap_or_else(PoisonError::into_inner).push(task);
    }

    /// Finishes what was decided, brings the table up, and stops. Later commands are refused.
    pub async fn shutdown(&self) {
        self.inner.stop.notify_one();
        for shared in &self.inner.partitions {
            shared.stop();
        }
        let tasks = &self.inner.tasks;
        let tasks = std::mem::take(&mut *tasks.lock().unwrap_or_else(PoisonError::into_inner));
        for task in tasks {
            // It ends by itself; one that panicked has reported it.
            let _ = task.await;
        }
        let threads = &self.inner.threads;
        let threads = std::mem::take(&mut *threads.lock().unwrap_or_else(PoisonError::into_inner));
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

    /// The date of a time that was kept, for those who read it.
    pub fn date_of(&self, at: Millis) -> Millis {
        wall::date_of(self.inner.clock.as_ref(), at)
    }

    /// The time of a date that somebody wrote.
    pub fn time_of(&self, date: Millis) -> Millis {
        wall::time_of(self.inner.clock.as_ref(), date)
    }

    /// The engine's randomness.
    pub fn entropy(&self) -> &Arc<dyn Entropy> {
        &self.inner.entropy
    }

    /// Waits for the right to hold so many bytes for a tenant in memory.
    pub async fn admit(&self, tenant: &Tenant, bytes: usize) -> Result<Permit, Unavailable> {
        self.inner.budget.admit(tenant, bytes, self.inner.clock.as_ref()).await
    }

    /// Waits for the right to hold a page of a list in memory.
    pub async fn admit_page(&self, tenant: &Tenant) -> Result<ReplyPermit, Unavailable> {
        let room = ReplyRoom::new(&self.inner.pages, tenant);
        room.admit(PAGE_BYTES_MAX, self.inner.clock.as_ref()).await
    }

    /// The bytes of all pages that are being made or on their way to their readers.
    pub fn page_bytes(&self) -> usize {
        self.inner.pages.held()
    }

    /// A tenant's place in what answers may take in memory. A page is counted by
    /// `room.admit(bytes, clock)` before it is put together, or by `room.hold(bytes)` after.
    pub fn reply_room(&self, tenant: &Tenant) -> ReplyRoom {
        ReplyRoom::new(&self.inner.replies, tenant)
    }

    /// Bytes of answers that are in memory.
    pub fn reply_bytes(&self) -> usize {
        self.inner.replies.held()
    }

    /// Waits for a tenant's turn to have a request read and decided; see [`Engine::create`],
    /// [`Engine::append`] and [`Engine::ingest`]. Whoever waits here must hold nothing that others
    /// want.
    pub async fn turn(&self, tenant: &Tenant) -> Result<(), Unavailable> {
        self.inner.fairness.enter(tenant).await
    }

    /// Walks the whole way of a write, in every partition.
    pub async fn probe(&self) -> Result<(), Error<Never>> {
        for shared in &self.inner.partitions {
            submit(shared, self.inner.clock.as_ref(), &ProbePartition).await?;
        }
        Ok(())
    }

    /// Brings a command to the partition of its tenant.
    pub async fn submit<C: Command<App>>(
        &self,
        tenant: &Tenant,
        command: &C,
    ) -> Outcome<C::Answer, C::Rejection> {
        self.submit_to(self.partition(tenant), command).await
    }

    /// Brings a command to a partition.
    pub(crate) async fn submit_to<C: Command<App>>(
        &self,
        shared: &Arc<Shared>,
        command: &C,
    ) -> Outcome<C::Answer, C::Rejection> {
        let clock = self.inner.clock.as_ref();
        shared.domains.part::<WallOffset>().follow(clock);
        submit(shared, clock, command).await
    }

    /// Looks at the wall clock, for every partition.
    pub(crate) fn follow_wall_clock(&self) {
        for shared in &self.inner.partitions {
            shared.domains.part::<WallOffset>().follow(self.inner.clock.as_ref());
        }
    }

    pub(crate) fn fairness(&self) -> &Fairness {
        &self.inner.fairness
    }

    pub(crate) fn rules(&self) -> &Rules {
        &self.inner.outbound.rules
    }

    pub(crate) fn courier(&self) -> &Arc<dyn Courier> {
        &self.inner.outbound.courier
    }

    pub(crate) fn timings(&self) -> &Timings {
        &self.inner.outbound.timings
    }

    pub(crate) fn retention(&self) -> Retention {
        self.inner.outbound.retention
    }

    /// What a domain keeps for the whole process.
    pub(crate) fn extension<T: Any>(&self) -> &T {
        self.inner.extensions.get().expect("every extension that is asked for was registered")
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
}
