//! The settings of `reveille serve`: a flag, else an environment variable, else a key of the file.
//!
//! Every setting stands here once. clap reads the flag `--max-body` and the variable
//! `REVEILLE_MAX_BODY` into a field, serde the key `max-body` of the configuration file into the
//! same field of a second value, and [`Settings::or`] lays the first over the second.

mod checks;
mod units;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use clap::builder::BoolishValueParser;
use clap::{Args, ValueEnum};
use reveille_core::delivery::policy::Poison;
use reveille_core::document::settings::DocumentSettings;
use reveille_core::subscription::Timings;
use reveille_deliver::client::Authorities;
use reveille_deliver::resolve::NameServers;
use reveille_engine::quota::Quotas;
use reveille_engine::{Retention, Rules};
use reveille_server::{Auth, FactSettings, Workers};
use serde::Deserialize;

use crate::failure::usage_error;
use checks::{
    check_auth, check_ca_file, check_concurrency, check_exposure, check_facts, check_max_body,
    check_otlp_endpoint, check_retention, check_workers, replay_window_of_protocol,
};
use units::{
    Address, AdminKey, Factor, Networks, Period, PoisonRule, PublicUrl, ServerAddresses, Size,
    WakeStreamTemplate, WorkerBinding, WorkerUrlTemplate,
};

const LISTEN_DEFAULT: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 4437);
const DATA_DIR_DEFAULT: &str = "./reveille-data";
const LONG_POLL_TIMEOUT_DEFAULT_MS: u64 = 30_000;
const READER_TIMEOUT_DEFAULT_MS: u64 = 60_000;
const MAX_BODY_DEFAULT_BYTES: u64 = 10 << 20;
const MIN_FREE_DISK_DEFAULT_BYTES: u64 = 256 << 20;
const LOG_SEGMENT_DEFAULT_BYTES: u64 = 64 << 20;
const POISON_DEFAULT: Option<Poison> = Some(Poison { attempts: 3, within_ms: 250 });
const OUTBOUND_DEFAULT: u32 = 4_096;
const TENANT_OUTBOUND_DEFAULT: u32 = 64;
/// Longer than anybody means it.
const PERIOD_LIMIT_MS: u64 = 3_650 * 86_400_000;
/// A body and the batch that it joins must fit into one segment of the log.
const MAX_BODY_LIMIT_BYTES: u64 = LOG_SEGMENT_DEFAULT_BYTES / 2;
/// A segment begins with a block of its own; below this there is hardly room for anything else.
const LOG_SEGMENT_LIMIT_BYTES: u64 = 1 << 20;

/// What `reveille serve` takes.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// A TOML file with settings; its keys are the names of the flags without the dashes in front
    #[arg(long, value_name = "FILE", env = "REVEILLE_CONFIG", hide_env_values = true)]
    config: Option<PathBuf>,
    #[command(flatten)]
    settings: Settings,
}

/// Settings from one source; what is absent was not said there.
#[derive(Debug, Default, Args, Deserialize)]
#[serde(default, rename_all = "kebab-case", deny_unknown_fields)]
struct Settings {
    /// Address to listen on; port 0 picks a free one [default: 127.0.0.1:4437]
    #[arg(long, value_name = "ADDR", env = "REVEILLE_LISTEN", hide_env_values = true)]
    listen: Option<Address>,

    /// Directory for everything the server keeps; created if absent [default: ./reveille-data]
    #[arg(long, value_name = "DIR", env = "REVEILLE_DATA_DIR", hide_env_values = true)]
    data_dir: Option<PathBuf>,

    /// The key that seals secrets in the data directory; made at the first start, and needed at
    /// every other [default: secrets.key in the data directory]
    #[arg(long, value_name = "FILE", env = "REVEILLE_SECRETS_KEY_FILE", hide_env_values = true)]
    secrets_key_file: Option<PathBuf>,

    /// Base of the URLs in answers [default: from the request's Host]
    #[arg(long, value_name = "URL", env = "REVEILLE_PUBLIC_URL", hide_env_values = true)]
    public_url: Option<PublicUrl>,

    /// What an answer to a write means [default: fsync]
    #[arg(long, value_name = "HOW", env = "REVEILLE_DURABILITY", hide_env_values = true)]
    durability: Option<Durability>,

    /// Who may use the server [default: off]
    #[arg(long, value_name = "WHO", env = "REVEILLE_AUTH", hide_env_values = true)]
    auth: Option<AuthKind>,

    /// A key of at least 16 characters that may do everything, for as long as it is given here;
    /// better as REVEILLE_ADMIN_KEY or in the file than on the command line [default: none]
    #[arg(long, value_name = "KEY", env = "REVEILLE_ADMIN_KEY", hide_env_values = true)]
    admin_key: Option<AdminKey>,

    /// Serve /metrics without a key, also with --auth keys
    #[arg(
        long,
        value_name = "BOOL",
        env = "REVEILLE_METRICS_OPEN",
        hide_env_values = true,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        value_parser = BoolishValueParser::new(),
        hide_possible_values = true,
    )]
    metrics_open: Option<bool>,

    /// Listen on a non-loopback address although nobody needs a key
    #[arg(
        long,
        value_name = "BOOL",
        env = "REVEILLE_INSECURE",
        hide_env_values = true,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        value_parser = BoolishValueParser::new(),
        hide_possible_values = true,
    )]
    insecure: Option<bool>,

    /// How long a long-poll waits for news [default: 30s]
    #[arg(long, value_name = "TIME", env = "REVEILLE_LONG_POLL_TIMEOUT", hide_env_values = true)]
    long_poll_timeout: Option<Period>,

    /// A reader that has bytes waiting and takes none for so long is let go [default: 60s]
    #[arg(long, value_name = "TIME", env = "REVEILLE_READER_TIMEOUT", hide_env_values = true)]
    reader_timeout: Option<Period>,

    /// How long one webhook request may take [default: 30s]
    #[arg(long, value_name = "TIME", env = "REVEILLE_WEBHOOK_TIMEOUT", hide_env_values = true)]
    webhook_timeout: Option<Period>,

    /// How long a wake may go unclaimed before the next attempt [default: 10s]
    #[arg(long, value_name = "TIME", env = "REVEILLE_WAKING_TIMEOUT", hide_env_values = true)]
    waking_timeout: Option<Period>,

    /// How long a consumer may be silent before it is taken for dead [default: 45s]
    #[arg(long, value_name = "TIME", env = "REVEILLE_LIVENESS_TIMEOUT", hide_env_values = true)]
    liveness_timeout: Option<Period>,

    /// How long a callback token is valid [default: 1h]
    #[arg(long, value_name = "TIME", env = "REVEILLE_CALLBACK_TOKEN_TTL", hide_env_values = true)]
    callback_token_ttl: Option<Period>,

    /// A consumer whose endpoint fails for this long is removed [default: 3d]
    #[arg(long, value_name = "TIME", env = "REVEILLE_CONSUMER_GC_AFTER", hide_env_values = true)]
    consumer_gc_after: Option<Period>,

    /// Call webhooks on this machine, also without TLS [default: true on a loopback address, unless
    /// --auth keys is given]
    #[arg(
        long,
        value_name = "BOOL",
        env = "REVEILLE_ALLOW_HTTP_LOOPBACK",
        hide_env_values = true,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        value_parser = BoolishValueParser::new(),
        hide_possible_values = true,
    )]
    allow_http_loopback: Option<bool>,

    /// Private networks that webhooks may be in, as CIDRs with commas between them [default: none]
    #[arg(
        long,
        value_name = "CIDRS",
        env = "REVEILLE_ALLOW_PRIVATE_NETWORKS",
        hide_env_values = true
    )]
    allow_private_networks: Option<Networks>,

    /// Certificate authorities that webhooks may have beside the well-known ones, as PEM
    /// [default: none]
    #[arg(long, value_name = "FILE", env = "REVEILLE_CA_FILE", hide_env_values = true)]
    ca_file: Option<PathBuf>,

    /// Name servers for the hosts of webhooks, as addresses with commas between them
    /// [default: those of /etc/resolv.conf]
    #[arg(long, value_name = "ADDRS", env = "REVEILLE_NAME_SERVERS", hide_env_values = true)]
    name_servers: Option<ServerAddresses>,

    /// Multiplies every retry delay, for tests [default: 1.0]
    #[arg(long, value_name = "FACTOR", env = "REVEILLE_RETRY_SCALE", hide_env_values = true)]
    retry_scale: Option<Factor>,

    /// Outbound requests in flight; slow ones count apart [default: 4096]
    #[arg(
        long,
        value_name = "N",
        env = "REVEILLE_OUTBOUND_CONCURRENCY",
        hide_env_values = true,
        value_parser = clap::value_parser!(u32).range(1..=OUTBOUND_MAX),
    )]
    outbound_concurrency: Option<u32>,

    /// Deliveries of triggers that a tenant has in flight [default: 64]
    #[arg(
        long,
        value_name = "N",
        env = "REVEILLE_TENANT_CONCURRENCY",
        hide_env_values = true,
        value_parser = clap::value_parser!(u32).range(1..=OUTBOUND_MAX),
    )]
    tenant_concurrency: Option<u32>,

    /// Subscriptions to streams that a tenant may have [default: 10000]
    #[arg(long, value_name = "N", env = "REVEILLE_MAX_SUBSCRIPTIONS", hide_env_values = true)]
    max_subscriptions: Option<usize>,

    /// Subscriptions to events and facts, and triggers, that a tenant may have in all [default: 10000]
    #[arg(long, value_name = "N", env = "REVEILLE_MAX_HOOKS", hide_env_values = true)]
    max_hooks: Option<usize>,

    /// Where workers are called [default: https://{workerId}.workers.dev/rpc/{rpcMethod}]
    #[arg(long, value_name = "URL", env = "REVEILLE_WORKER_URL_TEMPLATE", hide_env_values = true)]
    worker_url_template: Option<WorkerUrlTemplate>,

    /// A worker by name, NAME=URL, may be given again; called at URL/{rpcMethod} [default: none]
    #[arg(
        long = "binding",
        value_name = "NAME=URL",
        env = "REVEILLE_BINDING",
        hide_env_values = true,
        value_delimiter = ','
    )]
    #[serde(rename = "binding")]
    bindings: Option<Vec<WorkerBinding>>,

    /// How long events are kept after they came and were delivered to all [default: 30d]
    #[arg(long, value_name = "TIME", env = "REVEILLE_RETAIN_EVENTS", hide_env_values = true)]
    retain_events: Option<Period>,

    /// How long deliveries that have ended are kept [default: 30d]
    #[arg(long, value_name = "TIME", env = "REVEILLE_RETAIN_DELIVERIES", hide_env_values = true)]
    retain_deliveries: Option<Period>,

    /// The stream that wakes an agent of subscriptions to facts, like /agents/{wake_agent_id}
    /// [default: nobody is woken]
    #[arg(
        long,
        value_name = "PATH",
        env = "REVEILLE_WAKE_STREAM_TEMPLATE",
        hide_env_values = true
    )]
    wake_stream_template: Option<WakeStreamTemplate>,

    /// How long subscribers to facts may have events once more; STIGMEM_SUBSCRIPTION_REPLAY_S, in
    /// seconds, is read too [default: 3600s]
    #[arg(long, value_name = "TIME", env = "REVEILLE_REPLAY_WINDOW", hide_env_values = true)]
    replay_window: Option<Period>,

    /// Send traces to this OpenTelemetry collector, as OTLP over HTTP [default: no traces]
    #[arg(long, value_name = "URL", env = "REVEILLE_OTLP_ENDPOINT", hide_env_values = true)]
    otlp_endpoint: Option<PublicUrl>,

    /// Writers that work side by side; fixed when the data directory is created [default: 1]
    #[arg(
        long,
        value_name = "N",
        env = "REVEILLE_PARTITIONS",
        hide_env_values = true,
        value_parser = clap::value_parser!(u32).range(1..=PARTITIONS_MAX),
    )]
    partitions: Option<u32>,

    /// Largest body of a request, at most 32MiB; larger ones get 413 [default: 10MiB]
    #[arg(long, value_name = "SIZE", env = "REVEILLE_MAX_BODY", hide_env_values = true)]
    max_body: Option<Size>,

    /// Free disk space below which writes get 507 until there is room again [default: 256MiB]
    #[arg(long, value_name = "SIZE", env = "REVEILLE_MIN_FREE_DISK", hide_env_values = true)]
    min_free_disk: Option<Size>,

    /// API keys of one tenant [default: 1000]
    #[arg(long, value_name = "N", env = "REVEILLE_MAX_KEYS", hide_env_values = true)]
    max_keys: Option<usize>,

    /// Triggers of one tenant [default: 1000]
    #[arg(long, value_name = "N", env = "REVEILLE_MAX_TRIGGERS", hide_env_values = true)]
    max_triggers: Option<usize>,

    /// The longest time that a trigger may give its calls [default: 30s]
    #[arg(long, value_name = "TIME", env = "REVEILLE_MAX_TRIGGER_TIMEOUT", hide_env_values = true)]
    max_trigger_timeout: Option<Period>,

    /// So many failures of one kind, each within this time, end a trigger's delivery in a dead
    /// letter; 0 turns it off [default: 3/250ms]
    #[arg(long, value_name = "N/DURATION", env = "REVEILLE_POISON", hide_env_values = true)]
    poison: Option<PoisonRule>,

    /// Writes of one transaction of documents [default: 500]
    #[arg(long, value_name = "N", env = "REVEILLE_MAX_OPS", hide_env_values = true)]
    max_ops: Option<usize>,

    /// Documents of a page of a query [default: 1000]
    #[arg(long, value_name = "N", env = "REVEILLE_QUERY_LIMIT_MAX", hide_env_values = true)]
    query_limit_max: Option<usize>,

    /// Documents of a collection that a query without an index may look at [default: 10000]
    #[arg(long, value_name = "N", env = "REVEILLE_SCAN_LIMIT", hide_env_values = true)]
    scan_limit: Option<u64>,

    /// By when a write of documents is decided, or gets 408 [default: 5s]
    #[arg(long, value_name = "TIME", env = "REVEILLE_TRANSACTION_TIMEOUT", hide_env_values = true)]
    transaction_timeout: Option<Period>,

    /// How long a write waits that has met another one, before it is tried once more
    /// [default: 25ms]
    #[arg(long, value_name = "TIME", env = "REVEILLE_CONFLICT_DELAY", hide_env_values = true)]
    conflict_delay: Option<Period>,

    /// How long a transaction is known by its idempotency key [default: 8h]
    #[arg(long, value_name = "TIME", env = "REVEILLE_IDEMPOTENCY_TTL", hide_env_values = true)]
    idempotency_ttl: Option<Period>,

    /// How long what is left of a deleted document is kept [default: 30d]
    #[arg(long, value_name = "TIME", env = "REVEILLE_TOMBSTONE_TTL", hide_env_values = true)]
    tombstone_ttl: Option<Period>,

    /// Calls in a second with tokens of one trigger; 0 is no limit [default: 100]
    #[arg(long, value_name = "N", env = "REVEILLE_TRIGGER_CALLS", hide_env_values = true)]
    trigger_calls: Option<u32>,

    /// Length of a segment of the log, for tests
    #[arg(
        long,
        value_name = "SIZE",
        env = "REVEILLE_LOG_SEGMENT_BYTES",
        hide_env_values = true,
        hide = true
    )]
    log_segment_bytes: Option<Size>,
}

/// Each is a socket.
const OUTBOUND_MAX: i64 = 65_536;

/// Each has two threads and a log of its own.
const PARTITIONS_MAX: i64 = 256;

/// What an answer to a write means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Durability {
    /// It is on disk
    Fsync,
    /// The operating system has it; a power failure or a crash of the machine may lose it
    Os,
}

/// Who may use the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
enum AuthKind {
    /// Everybody who can reach it
    Off,
    /// Whoever has a key
    Keys,
}

/// Everything that `reveille serve` needs to know, checked.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Config {
    pub(crate) listen: SocketAddr,
    pub(crate) data_dir: PathBuf,
    pub(crate) secrets_key_file: Option<PathBuf>,
    pub(crate) public_url: Option<Arc<str>>,
    pub(crate) durability: Durability,
    pub(crate) long_poll_timeout_ms: u64,
    pub(crate) reader_timeout_ms: u64,
    pub(crate) partitions: Option<u32>,
    pub(crate) max_body_bytes: usize,
    pub(crate) min_free_bytes: u64,
    pub(crate) segment_bytes: u64,
    pub(crate) timings: Timings,
    pub(crate) rules: Rules,
    pub(crate) authorities: Authorities,
    pub(crate) name_servers: NameServers,
    pub(crate) outbound_concurrency: usize,
    pub(crate) tenant_concurrency: usize,
    pub(crate) quotas: Quotas,
    pub(crate) poison: Option<Poison>,
    pub(crate) max_trigger_timeout_ms: u64,
    pub(crate) documents: DocumentSettings,
    pub(crate) otlp_endpoint: Option<Arc<str>>,
    pub(crate) auth: Auth,
    pub(crate) workers: Workers,
    pub(crate) facts: FactSettings,
    pub(crate) retention: Retention,
}

impl Arguments {
    /// Reads the configuration file, if there is one, and checks what comes out of it all.
    pub(crate) fn resolve(self) -> anyhow::Result<Config> {
        let file = match &self.config {
            Some(path) => {
                let text = std::fs::read_to_string(path).with_context(|| {
                    format!("cannot read the configuration file {}", path.display())
                })?;
                parse_file(path, &text)?
            }
            None => Settings::default(),
        };
        let mut given = self.settings;
        if given.replay_window.is_none() {
            given.replay_window = replay_window_of_protocol()?;
        }
        given.or(file).check()
    }
}

fn parse_file(path: &Path, text: &str) -> anyhow::Result<Settings> {
    let broken = |error: toml::de::Error| {
        let before = error.span().and_then(|span| text.get(..span.start));
        let line = before.map_or(1, |before| before.matches('\n').count() + 1);
        // The message of the parser may have several lines; ours is one sentence.
        let message = error.message().replace('\n', ", ");
        usage_error(format!("{}, line {line}: {message}", path.display()))
    };
    let table: toml::Table = toml::from_str(text).map_err(broken)?;
    if let Some(unknown) = table.keys().find(|key| !is_setting(key)) {
        return Err(usage_error(unknown_key(path, unknown)));
    }
    toml::from_str(text).map_err(broken)
}

fn unknown_key(path: &Path, key: &str) -> String {
    let path = path.display();
    let dashed = key.to_lowercase().replace('_', "-");
    if is_setting(&dashed) {
        return format!("{path}: unknown key {key:?}; it is written {dashed:?}");
    }
    let known = setting_names().join(", ");
    format!("{path}: unknown key {key:?}; the keys are {known}")
}

fn is_setting(key: &str) -> bool {
    let command = Settings::augment_args(clap::Command::new("settings"));
    command.get_arguments().any(|arg| arg.get_long() == Some(key))
}

/// The settings that are meant for everybody.
fn setting_names() -> Vec<String> {
    let command = Settings::augment_args(clap::Command::new("settings"));
    let shown = command.get_arguments().filter(|arg| !arg.is_hide_set());
    shown.filter_map(|arg| arg.get_long().map(str::to_owned)).collect()
}

impl Settings {
    /// These, and the others where these say nothing.
    fn or(self, others: Settings) -> Settings {
        Settings {
            listen: self.listen.or(others.listen),
            data_dir: self.data_dir.or(others.data_dir),
            secrets_key_file: self.secrets_key_file.or(others.secrets_key_file),
            public_url: self.public_url.or(others.public_url),
            durability: self.durability.or(others.durability),
            auth: self.auth.or(others.auth),
            admin_key: self.admin_key.or(others.admin_key),
            metrics_open: self.metrics_open.or(others.metrics_open),
            insecure: self.insecure.or(others.insecure),
            long_poll_timeout: self.long_poll_timeout.or(others.long_poll_timeout),
            reader_timeout: self.reader_timeout.or(others.reader_timeout),
            partitions: self.partitions.or(others.partitions),
            max_body: self.max_body.or(others.max_body),
            min_free_disk: self.min_free_disk.or(others.min_free_disk),
            max_keys: self.max_keys.or(others.max_keys),
            max_triggers: self.max_triggers.or(others.max_triggers),
            max_trigger_timeout: self.max_trigger_timeout.or(others.max_trigger_timeout),
            poison: self.poison.or(others.poison),
            max_ops: self.max_ops.or(others.max_ops),
            query_limit_max: self.query_limit_max.or(others.query_limit_max),
            scan_limit: self.scan_limit.or(others.scan_limit),
            transaction_timeout: self.transaction_timeout.or(others.transaction_timeout),
            conflict_delay: self.conflict_delay.or(others.conflict_delay),
            idempotency_ttl: self.idempotency_ttl.or(others.idempotency_ttl),
            tombstone_ttl: self.tombstone_ttl.or(others.tombstone_ttl),
            trigger_calls: self.trigger_calls.or(others.trigger_calls),
            log_segment_bytes: self.log_segment_bytes.or(others.log_segment_bytes),
            webhook_timeout: self.webhook_timeout.or(others.webhook_timeout),
            waking_timeout: self.waking_timeout.or(others.waking_timeout),
            liveness_timeout: self.liveness_timeout.or(others.liveness_timeout),
            callback_token_ttl: self.callback_token_ttl.or(others.callback_token_ttl),
            consumer_gc_after: self.consumer_gc_after.or(others.consumer_gc_after),
            allow_http_loopback: self.allow_http_loopback.or(others.allow_http_loopback),
            allow_private_networks: self.allow_private_networks.or(others.allow_private_networks),
            ca_file: self.ca_file.or(others.ca_file),
            name_servers: self.name_servers.or(others.name_servers),
            retry_scale: self.retry_scale.or(others.retry_scale),
            outbound_concurrency: self.outbound_concurrency.or(others.outbound_concurrency),
            tenant_concurrency: self.tenant_concurrency.or(others.tenant_concurrency),
            max_subscriptions: self.max_subscriptions.or(others.max_subscriptions),
            max_hooks: self.max_hooks.or(others.max_hooks),
            worker_url_template: self.worker_url_template.or(others.worker_url_template),
            bindings: self.bindings.or(others.bindings),
            retain_events: self.retain_events.or(others.retain_events),
            retain_deliveries: self.retain_deliveries.or(others.retain_deliveries),
            wake_stream_template: self.wake_stream_template.or(others.wake_stream_template),
            replay_window: self.replay_window.or(others.replay_window),
            otlp_endpoint: self.otlp_endpoint.or(others.otlp_endpoint),
        }
    }

    fn check(self) -> anyhow::Result<Config> {
        let bytes = |size: Option<Size>, default| size.map_or(default, |size| size.bytes);
        let listen = self.listen.map_or(LISTEN_DEFAULT, |address| address.0);
        let auth = check_auth(self.auth, self.admin_key, self.metrics_open == Some(true))?;
        check_exposure(listen, &auth, self.insecure == Some(true))?;
        let long_poll_timeout_ms =
            self.long_poll_timeout.map_or(LONG_POLL_TIMEOUT_DEFAULT_MS, |period| period.ms);
        if long_poll_timeout_ms == 0 {
            return Err(usage_error(
                "--long-poll-timeout must be longer than 0; the default is 30s",
            ));
        }
        let reader_timeout_ms =
            self.reader_timeout.map_or(READER_TIMEOUT_DEFAULT_MS, |period| period.ms);
        if reader_timeout_ms == 0 {
            return Err(usage_error("--reader-timeout must be longer than 0; the default is 60s"));
        }
        if !self.partitions.is_none_or(|count| (1..=PARTITIONS_MAX).contains(&count.into())) {
            return Err(usage_error(format!("--partitions must be from 1 to {PARTITIONS_MAX}")));
        }
        let segment_bytes = bytes(self.log_segment_bytes, LOG_SEGMENT_DEFAULT_BYTES);
        if segment_bytes < LOG_SEGMENT_LIMIT_BYTES {
            return Err(usage_error("--log-segment-bytes must be at least 1MiB"));
        }
        let (timings, documents) = (self.timings()?, self.documents()?);
        let (quotas, max_trigger_timeout_ms) = (self.quotas()?, self.max_trigger_timeout()?);
        let retention = Retention {
            events_ms: check_retention("--retain-events", self.retain_events)?,
            deliveries_ms: check_retention("--retain-deliveries", self.retain_deliveries)?,
        };
        // With keys there are tenants, and what listens on this machine is not theirs to call.
        let own_machine = listen.ip().to_canonical().is_loopback() && auth == Auth::Off;
        let rules = Rules {
            allow_http_loopback: self.allow_http_loopback.unwrap_or(own_machine),
            private_networks: self.allow_private_networks.map_or_else(Vec::new, |it| it.0),
        };
        let outbound = self.outbound_concurrency.unwrap_or(OUTBOUND_DEFAULT);
        let of_tenant = self.tenant_concurrency.unwrap_or(TENANT_OUTBOUND_DEFAULT);
        Ok(Config {
            auth,
            workers: check_workers(self.worker_url_template, self.bindings)?,
            facts: check_facts(self.wake_stream_template, self.replay_window)?,
            retention,
            timings,
            rules,
            authorities: check_ca_file(self.ca_file.as_deref())?,
            name_servers: self.name_servers.map_or(NameServers::System, |it| it.into()),
            outbound_concurrency: check_concurrency("--outbound-concurrency", outbound)?,
            tenant_concurrency: check_concurrency("--tenant-concurrency", of_tenant)?,
            quotas,
            max_trigger_timeout_ms,
            poison: self.poison.map_or(POISON_DEFAULT, |it| it.0),
            documents,
            otlp_endpoint: self.otlp_endpoint.map(check_otlp_endpoint).transpose()?,
            listen,
            data_dir: self.data_dir.unwrap_or_else(|| DATA_DIR_DEFAULT.into()),
            secrets_key_file: self.secrets_key_file,
            public_url: self.public_url.map(|url| url.0.into()),
            durability: self.durability.unwrap_or(Durability::Fsync),
            long_poll_timeout_ms,
            reader_timeout_ms,
            partitions: self.partitions,
            max_body_bytes: check_max_body(bytes(self.max_body, MAX_BODY_DEFAULT_BYTES))?,
            min_free_bytes: bytes(self.min_free_disk, MIN_FREE_DISK_DEFAULT_BYTES),
            segment_bytes,
        })
    }
}

#[cfg(test)]
mod tests;
