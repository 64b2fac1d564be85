//! A server on a port of its own, over a real store in a directory of its own.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use reveille_core::delivery::policy::Poison;
use reveille_core::document::settings::DocumentSettings;
use reveille_core::subscription::Timings;
use reveille_deliver::client::HttpCourier;
use reveille_deliver::destination::Rules;
use reveille_deliver::resolve::{NameResolver, NameServers, Resolve};
use reveille_engine::doors::{Clock, SystemClock, SystemEntropy};
use reveille_engine::quota::Quotas;
use reveille_engine::{Config, Engine, OutboundConfig, Retention};
use reveille_server::{Auth, FactSettings, Workers};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::client::{Answer, Connection, Headers};
use super::clock::HandClock;
use super::guarded;

/// How long a long-poll waits: a number that nothing else waits for.
pub(crate) const LONG_POLL_MS: u64 = 7_777;

/// How long a reader may take nothing: a number that nothing else waits for.
pub(crate) const READER_MS: u64 = 55_555;

/// What a server is started with.
pub(crate) struct Setup {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) min_free_bytes: u64,
    pub(crate) segment_bytes: u64,
    /// Open at once.
    pub(crate) connections_max: usize,
    pub(crate) max_body_bytes: usize,
    pub(crate) sync: bool,
    pub(crate) timings: Timings,
    /// Which addresses may be called.
    pub(crate) rules: Rules,
    /// Knows the addresses of names, instead of the operating system.
    pub(crate) resolver: Option<Arc<dyn Resolve>>,
    /// Who is asked for names otherwise.
    pub(crate) name_servers: Vec<SocketAddr>,
    /// How many partitions there are, where a test needs to know.
    pub(crate) partitions: Option<u32>,
    /// How many attempts may be under way.
    pub(crate) outbound_concurrency: usize,
    pub(crate) public_url: Option<Arc<str>>,
    pub(crate) auth: Auth,
    /// Where the workers are that events are delivered to.
    pub(crate) workers: Workers,
    /// What subscriptions to facts may do.
    pub(crate) facts: FactSettings,
    pub(crate) quotas: Quotas,
    pub(crate) documents: DocumentSettings,
    pub(crate) poison: Option<Poison>,
}

/// A running server. Its threads and tasks are its own: when it is stopped they are gone.
pub(crate) struct TestServer {
    pub(crate) address: SocketAddr,
    pub(crate) engine: Engine,
    fatal: Arc<Mutex<Vec<String>>>,
    stop: Option<oneshot::Sender<()>>,
    serving: Option<JoinHandle<std::io::Result<()>>>,
    runtime: Option<Runtime>,
    /// Removed with the server, unless the test keeps it.
    directory: Option<TempDir>,
}

impl Default for Setup {
    fn default() -> Setup {
        Setup {
            clock: Arc::new(SystemClock::default()),
            min_free_bytes: 0,
            segment_bytes: 2 << 20,
            connections_max: reveille_server::CONNECTIONS_MAX,
            max_body_bytes: 10 << 20,
            sync: true,
            timings: Timings::default(),
            rules: Rules { allow_http_loopback: true, ..Rules::default() },
            resolver: None,
            name_servers: Vec::new(),
            partitions: None,
            outbound_concurrency: 4_096,
            public_url: None,
            auth: Auth::Off,
            workers: Workers::default(),
            facts: FactSettings::default(),
            quotas: Quotas::default(),
            documents: DocumentSettings::default(),
            poison: Some(Poison { attempts: 3, within_ms: 250 }),
        }
    }
}

impl Setup {
    /// A server whose time stands still.
    pub(crate) fn on(clock: &HandClock) -> Setup {
        Setup { clock: Arc::new(clock.clone()), ..Setup::default() }
    }

    /// A server for bodies of the full size.
    pub(crate) fn large() -> Setup {
        Setup { segment_bytes: 64 << 20, ..Setup::default() }
    }

    /// Starts in a directory that is removed afterwards.
    pub(crate) async fn start(&self) -> TestServer {
        let directory = tempfile::tempdir().unwrap();
        let mut server = self.start_in(directory.path()).await;
        server.directory = Some(directory);
        server
    }

    /// Starts in a directory that the test keeps.
    pub(crate) async fn start_in(&self, directory: &Path) -> TestServer {
        self.try_start_in(directory).await.unwrap_or_else(|error| panic!("{error}"))
    }

    /// Starts, or says why not.
    pub(crate) async fn try_start_in(&self, directory: &Path) -> Result<TestServer, String> {
        super::logs::listen();
        let fatal = Arc::new(Mutex::new(Vec::new()));
        let config = self.engine_config(directory.join("data"), &fatal);
        let clock = self.clock.clone();
        let answers = reveille_server::Config {
            long_poll_timeout_ms: LONG_POLL_MS,
            max_trigger_timeout_ms: 30_000,
            reader_timeout_ms: READER_MS,
            connections_max: self.connections_max,
            max_body_bytes: self.max_body_bytes,
            public_url: self.public_url.clone(),
            auth: self.auth.clone(),
            workers: self.workers.clone(),
            facts: self.facts.clone(),
        };
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("server")
            .enable_all()
            .build()
            .unwrap();
        let (stop, stopped) = oneshot::channel();
        let starting = runtime.spawn(async move {
            let engine = Engine::open(&config, clock, Arc::new(SystemEntropy::default()))
                .map_err(|error| error.to_string())?;
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let shutdown = async {
                let _ = stopped.await;
            };
            let serve = reveille_server::serve(listener, engine.clone(), answers, shutdown);
            Ok((engine, address, tokio::spawn(serve)))
        });
        match guarded("the server to start", starting).await.unwrap() {
            Ok((engine, address, serving)) => Ok(TestServer {
                address,
                engine,
                fatal,
                stop: Some(stop),
                serving: Some(serving),
                runtime: Some(runtime),
                directory: None,
            }),
            Err(error) => {
                end(runtime).await;
                Err(error)
            }
        }
    }

    /// Several wherever there may be several tenants, and as many as somebody wants to see all
    /// tests with.
    fn partitions(&self) -> Option<u32> {
        let wanted = std::env::var("REVEILLE_TEST_PARTITIONS").ok();
        let wanted = wanted.map(|wanted| wanted.parse().expect("a number of partitions"));
        self.partitions.or(wanted).or(matches!(self.auth, Auth::Keys { .. }).then_some(4))
    }

    fn engine_config(&self, data_dir: PathBuf, fatal: &Arc<Mutex<Vec<String>>>) -> Config {
        let fatal = fatal.clone();
        Config {
            data_dir,
            secrets_key_file: None,
            partitions: self.partitions(),
            table_files: 64,
            sync: self.sync,
            min_free_bytes: self.min_free_bytes,
            segment_bytes: self.segment_bytes,
            on_fatal: Arc::new(move |error| fatal.lock().unwrap().push(error.to_owned())),
            outbound: self.outbound(),
            quotas: self.quotas,
            poison: self.poison,
            documents: self.documents,
        }
    }
}

impl Setup {
    /// How its consumers are told.
    pub(crate) fn outbound(&self) -> OutboundConfig {
        let clock = self.clock.clone();
        let now: Arc<dyn Fn() -> u64 + Send + Sync> = Arc::new(move || clock.now().0);
        let rules = self.rules.clone();
        let resolver = self.resolver.clone();
        let resolver = resolver.unwrap_or_else(|| {
            let servers = NameServers::These(self.name_servers.clone());
            Arc::new(NameResolver::new(now.clone(), servers))
        });
        OutboundConfig {
            timings: self.timings.clone(),
            rules: rules.clone(),
            courier: Arc::new(HttpCourier::new(rules, resolver, now)),
            encoder: Arc::new(reveille_server::PayloadEncoder {
                public_url: self.public_url.clone(),
            }),
            delivery_encoders: reveille_server::delivery_encoders(
                self.workers.clone(),
                &self.facts,
            ),
            faces: std::convert::identity,
            concurrency: self.outbound_concurrency,
            tenant_concurrency: 64,
            retention: Retention { events_ms: 30 * 86_400_000, deliveries_ms: 30 * 86_400_000 },
        }
    }
}

impl TestServer {
    pub(crate) async fn connect(&self) -> Connection {
        Connection::open(self.address).await
    }

    /// One request on a connection of its own.
    pub(crate) async fn ask(
        &self,
        method: &str,
        target: &str,
        headers: Headers<'_>,
        body: &[u8],
    ) -> Answer {
        self.connect().await.ask(method, target, headers, body).await
    }

    pub(crate) async fn get(&self, target: &str) -> Answer {
        self.ask("GET", target, &[], b"").await
    }

    pub(crate) async fn head(&self, target: &str) -> Answer {
        self.ask("HEAD", target, &[], b"").await
    }

    pub(crate) async fn delete(&self, target: &str) -> Answer {
        self.ask("DELETE", target, &[], b"").await
    }

    /// Makes a stream of this type.
    pub(crate) async fn create(&self, path: &str, content_type: &str) -> Answer {
        self.ask("PUT", path, &[("content-type", content_type)], b"").await.expect(201)
    }

    /// Appends to a stream of this type.
    pub(crate) async fn append(&self, path: &str, content_type: &str, body: &[u8]) -> Answer {
        self.ask("POST", path, &[("content-type", content_type)], body).await
    }

    /// The value of a metric, of all partitions together.
    pub(crate) async fn metric(&self, name: &str) -> u64 {
        let text = self.get("/metrics").await.expect(200).text();
        metric_of(&text, name, &[])
    }

    /// What was reported as the end of the process.
    pub(crate) fn fatal(&self) -> Vec<String> {
        self.fatal.lock().unwrap().clone()
    }

    /// Tells the server to go down.
    pub(crate) fn begin_stop(&mut self) {
        let _ = self.stop.take().unwrap().send(());
    }

    /// Waits until it has answered what it was asked.
    pub(crate) async fn served(&mut self) {
        let serving = self.serving.take().unwrap();
        guarded("the server to finish", serving).await.unwrap().unwrap();
    }

    /// Goes down in order, as the program does.
    pub(crate) async fn stop(mut self) {
        self.begin_stop();
        self.served().await;
        guarded("the engine to stop", self.engine.shutdown()).await;
        assert_eq!(self.fatal(), Vec::<String>::new());
        self.drop_all().await;
    }

    /// Lets go of everything at once. The disk keeps what was synced, and nothing is tidied up.
    pub(crate) async fn drop_all(mut self) {
        let runtime = self.runtime.take().unwrap();
        drop(self);
        end(runtime).await;
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Ends a runtime and everything in it; it must not be dropped where nothing may block.
async fn end(runtime: Runtime) {
    let thread = std::thread::spawn(move || drop(runtime));
    guarded("the server's tasks to end", async {
        while !thread.is_finished() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

/// The sum of a metric's values with all these labels, over all partitions.
pub(crate) fn metric_of(text: &str, name: &str, labels: &[&str]) -> u64 {
    let is_it = |line: &&str| {
        line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' ']))
            && labels.iter().all(|label| line.contains(label))
    };
    let found: Vec<&str> = text.lines().filter(is_it).collect();
    assert!(!found.is_empty(), "no metric {name} {labels:?}");
    let value = |line: &&str| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap();
    found.iter().map(value).sum()
}

/// The directories of the partitions of a server that was stopped.
pub(crate) fn partition_dirs(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory.join("data")).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let is_partition = |path: &PathBuf| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("partition-"))
    };
    paths.filter(is_partition).collect()
}
