//! `reveille serve`: opens the data directory, listens, and goes down in order.

use std::io::Write as _;
use std::net::SocketAddr;
use std::process;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use reveille_core::key::Role;
use reveille_deliver::client::HttpCourier;
use reveille_deliver::resolve::{NameResolver, NameServers};
use reveille_engine::doors::{Clock, SystemClock, SystemEntropy};
use reveille_engine::spans::Spans;
use reveille_engine::{Engine, OutboundConfig};
use reveille_server::{Auth, PayloadEncoder, delivery_encoders};
use tokio::net::{TcpListener, TcpSocket};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;
use tokio::task::{JoinError, JoinHandle};

use crate::config::{Arguments, Config, Durability};
use crate::descriptors::{self, DescriptorBudget};
use crate::otlp::{self, Exporter};
use crate::{clock, logs};

/// Connections that the operating system holds for us until they are accepted.
const BACKLOG: u32 = 1024;
/// Requests that were begun have this long to finish; longer than the server itself gives them.
const GRACE: Duration = Duration::from_secs(12);
/// The last spans have this long to be delivered; longer than the exporter gives them.
const LAST_SPANS: Duration = Duration::from_secs(3);
/// How a program ends that was interrupted.
const EXIT_INTERRUPTED: i32 = 130;
/// One for what waits, one for what works.
const WORKERS_MIN: usize = 2;

pub(crate) fn run(arguments: Arguments) -> anyhow::Result<()> {
    let config = arguments.resolve()?;
    logs::start()?;
    use_small_pages();
    let workers = std::thread::available_parallelism().map_or(WORKERS_MIN, usize::from);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(workers.max(WORKERS_MIN))
        .thread_name("serve")
        .enable_all()
        .build()
        .context("cannot start threads")?;
    let result = runtime.block_on(serve(config));
    // Whatever is still running has had its time.
    runtime.shutdown_background();
    result
}

/// Memory comes and goes here in pieces of some kilobytes. In huge pages the kernel would clear two
/// megabytes for each of them, and that is a tenth of all work when deliveries are many.
fn use_small_pages() {
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::thread::disable_transparent_huge_pages(true) {
        tracing::debug!(%error, "huge pages stay");
    }
}

async fn serve(config: Config) -> anyhow::Result<()> {
    let descriptors = divide_descriptors(&config)?;
    let concurrency = descriptors.concurrency(config.outbound_concurrency);
    let config = Config { outbound_concurrency: concurrency, ..config };
    // The address is claimed first, but nobody can connect before the data is there.
    let socket = bind(config.listen)?;
    let engine = open(&config, descriptors)?;
    let signals = Signals::new().context("cannot listen for signals")?;
    let listener = listen(socket, config.listen)?;
    let address = listener.local_addr()?;
    warn_without_admin(&engine, &config.auth);
    announce(address, &config);

    let (stop, stopped) = oneshot::channel();
    let server_config = reveille_server::Config {
        long_poll_timeout_ms: config.long_poll_timeout_ms,
        max_trigger_timeout_ms: config.max_trigger_timeout_ms,
        reader_timeout_ms: config.reader_timeout_ms,
        connections_max: descriptors.connections,
        max_body_bytes: config.max_body_bytes,
        public_url: config.public_url,
        auth: config.auth,
        workers: config.workers,
        facts: config.facts,
    };
    let shutdown = async {
        // A sender that is gone means the same.
        let _ = stopped.await;
    };
    let exporter = config.otlp_endpoint.as_deref().map(|endpoint| {
        let servers = config.name_servers.clone();
        export(&engine, endpoint, servers)
    });
    let exporter = exporter.transpose()?;
    let server =
        tokio::spawn(reveille_server::serve(listener, engine.clone(), server_config, shutdown));
    let result = run_until_signal(server, signals, stop).await;
    engine.shutdown().await;
    if let Some((stop, exporting)) = exporter {
        // It ends by itself, with or without the collector.
        let _ = stop.send(());
        let _ = clock::within(LAST_SPANS, exporting).await;
    }
    tracing::info!("stopped");
    result
}

/// Divides what this process may open, and says so if that is less than was asked for.
fn divide_descriptors(config: &Config) -> anyhow::Result<DescriptorBudget> {
    let limit = descriptors::raise_limit();
    let partitions = reveille_engine::partitions_of(&config.data_dir).or(config.partitions);
    let partitions = usize::try_from(partitions.unwrap_or(1)).unwrap_or(usize::MAX);
    let wanted = config.outbound_concurrency;
    let budget = DescriptorBudget::divide(limit, partitions, wanted)?;
    let concurrency = budget.concurrency(wanted);
    if concurrency < wanted {
        tracing::warn!(
            limit,
            wanted,
            concurrency,
            connections = budget.connections,
            "--outbound-concurrency is lowered: this process may not open enough files; raise its \
             limit (ulimit -Hn)"
        );
    }
    tracing::debug!(limit, ?budget, "descriptors");
    Ok(budget)
}

fn bind(address: SocketAddr) -> anyhow::Result<TcpSocket> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4(),
        SocketAddr::V6(_) => TcpSocket::new_v6(),
    };
    let bound = socket.and_then(|socket| {
        // A restart must not wait for the connections of the last run to fade.
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        Ok(socket)
    });
    bound.map_err(|error| cannot_listen(address, &error))
}

fn listen(socket: TcpSocket, address: SocketAddr) -> anyhow::Result<TcpListener> {
    let listening = socket.listen(BACKLOG);
    listening.map_err(|error| cannot_listen(address, &error))
}

fn cannot_listen(address: SocketAddr, error: &std::io::Error) -> anyhow::Error {
    anyhow!("cannot listen on {address} ({error}); choose another address with --listen")
}

fn open(config: &Config, descriptors: DescriptorBudget) -> anyhow::Result<Engine> {
    // Whatever is kept is for the owner alone, whoever makes the files.
    rustix::process::umask(rustix::fs::Mode::RWXG | rustix::fs::Mode::RWXO);
    let clock = Arc::new(SystemClock::default());
    let engine_config = reveille_engine::Config {
        data_dir: config.data_dir.clone(),
        secrets_key_file: config.secrets_key_file.clone(),
        partitions: config.partitions,
        table_files: descriptors.table_files,
        sync: config.durability == Durability::Fsync,
        min_free_bytes: config.min_free_bytes,
        segment_bytes: config.segment_bytes,
        on_fatal: Arc::new(|error| {
            tracing::error!(error, "the disk has failed: the server stops at once");
            process::exit(1);
        }),
        outbound: outbound(config, descriptors, clock.clone()),
        quotas: config.quotas,
        poison: config.poison,
        documents: config.documents,
    };
    // The sentences of these errors tell their causes themselves.
    Engine::open(&engine_config, clock, Arc::new(SystemEntropy::default()))
        .map_err(|error| anyhow!("{error}"))
}

/// Has spans collected and sent.
fn export(
    engine: &Engine,
    endpoint: &str,
    servers: NameServers,
) -> anyhow::Result<(oneshot::Sender<()>, JoinHandle<()>)> {
    let exporter = Exporter::new(engine.clock().clone(), servers, otlp::destination(endpoint)?);
    let (spans, collected) = Spans::new();
    engine.collect_spans(spans);
    let (stop, stopped) = oneshot::channel();
    Ok((stop, tokio::spawn(exporter.run(collected, stopped))))
}

/// How consumers are called from this machine.
fn outbound(
    config: &Config,
    descriptors: DescriptorBudget,
    clock: Arc<SystemClock>,
) -> OutboundConfig {
    let now: Arc<dyn Fn() -> u64 + Send + Sync> = Arc::new(move || clock.now().0);
    let resolver = Arc::new(NameResolver::new(now.clone(), config.name_servers.clone()));
    let (rules, authorities) = (config.rules.clone(), config.authorities.clone());
    OutboundConfig {
        timings: config.timings.clone(),
        rules: config.rules.clone(),
        courier: Arc::new(
            HttpCourier::trusting(rules, resolver, now, authorities)
                .with_connections_max(descriptors.calls),
        ),
        encoder: Arc::new(PayloadEncoder { public_url: config.public_url.clone() }),
        delivery_encoders: delivery_encoders(config.workers.clone(), &config.facts),
        faces: std::convert::identity,
        concurrency: config.outbound_concurrency,
        tenant_concurrency: config.tenant_concurrency,
        retention: config.retention,
    }
}

/// A server that asks for keys and has nobody who could make one is of little use.
fn warn_without_admin(engine: &Engine, auth: &Auth) {
    let Auth::Keys { admin_key: None, .. } = auth else { return };
    if !engine.keys().iter().any(|key| key.access.is(Role::Admin)) {
        tracing::warn!(
            "--auth keys: there is no admin key, so nobody can make keys; start with --admin-key"
        );
    }
}

fn announce(address: SocketAddr, config: &Config) {
    if config.durability == Durability::Os {
        tracing::warn!(
            "--durability os: an answer means that the operating system has the data, not that it \
             is on disk; a power failure or a crash of the machine may lose acknowledged writes"
        );
    }
    if matches!(config.auth, Auth::Off) && !address.ip().to_canonical().is_loopback() {
        tracing::warn!(%address, "--insecure: everybody who reaches this address may read and write");
    }
    tracing::info!(
        %address,
        data_dir = %config.data_dir.display(),
        version = env!("CARGO_PKG_VERSION"),
        "ready"
    );
    let mut out = std::io::stdout().lock();
    // Whoever started us may have closed our output; the server is of use without it.
    let _ = writeln!(out, "listening on http://{address}").and_then(|()| out.flush());
}

type ServerTask = JoinHandle<std::io::Result<()>>;

/// Waits for the first signal, then for the requests that were begun.
async fn run_until_signal(
    mut server: ServerTask,
    mut signals: Signals,
    stop: oneshot::Sender<()>,
) -> anyhow::Result<()> {
    tokio::select! {
        biased;
        ended = &mut server => return check_ended(ended),
        name = signals.next() => tracing::info!(signal = name, "stopping; requests that were begun are finished"),
    }
    // The server has the receiver for as long as it runs.
    let _ = stop.send(());
    tokio::spawn(async move {
        signals.next().await;
        tracing::warn!("a second signal: the server stops at once");
        process::exit(EXIT_INTERRUPTED);
    });
    match clock::within(GRACE, &mut server).await {
        Some(ended) => check_ended(ended),
        None => {
            tracing::warn!("some requests did not finish in time and are cut off");
            server.abort();
            Ok(())
        }
    }
}

fn check_ended(ended: Result<std::io::Result<()>, JoinError>) -> anyhow::Result<()> {
    ended.context("the server failed")?.context("the server cannot accept connections any more")
}

/// The two ways to ask a server to stop.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    fn new() -> std::io::Result<Signals> {
        Ok(Signals {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    async fn next(&mut self) -> &'static str {
        tokio::select! {
            biased;
            _ = self.interrupt.recv() => "SIGINT",
            _ = self.terminate.recv() => "SIGTERM",
        }
    }
}
