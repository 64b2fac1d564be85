//! Attacks on a real server, and a tenant who wants nothing but to be served meanwhile.
//!
//! ```text
//! every attack  a new data directory, a server with 256 descriptors, two tenants with keys
//!               the quiet one: every few milliseconds a new connection, a stream, an event,
//!               a document, a query; it is woken for each stream and gets each event delivered
//!               the loud one, or strangers without a key: the attack, for some seconds
//! then          the server lives, never had more than 512 MB in memory, and what the quiet
//!               tenant was promised has come or comes now
//!               kill -9, and the server starts again on what the attack has left
//! ```
//!
//! Every class of resource has an attack of its own: bytes of a batch, memory on the way in and on
//! the way out, descriptors, threads, outbound places, time under a lock, names.

mod clients;
mod documents;
mod endpoint;
mod facts;
mod http2;
mod quiet;
mod sockets;
mod triggers;
mod work;

use std::net::{SocketAddr, UdpSocket};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use clap::Args;
use harness::http::{Connection, Request, Response};
use harness::{Server, Startup, Tally, workspace};
use serde_json::{Value, json};

use endpoint::Endpoint;
use quiet::{QuietTenant, Report};

/// What the server may hold at its worst.
const MEMORY_MAX_KB: u64 = 512 << 10;
/// What it may open.
const DESCRIPTORS: u32 = 256;
/// What the quiet tenant may wait at most beside an attack: so many times what it waited before,
/// or so long.
const LATENCY_RATIO_MAX: u32 = 3;
const LATENCY_MAX: Duration = Duration::from_millis(50);
/// Whoever is served so many times less often than when alone is not served.
const STALLED_RATIO: f64 = 8.0;
const ADMIN_KEY: &str = "adversary-admin-key-0123456789";
const SECONDS: u64 = 10;

#[derive(Debug, Clone, PartialEq, Eq, Args)]
#[command(args_override_self = true)]
pub struct Options {
    /// Only this attack
    #[arg(long, value_name = "NAME")]
    pub attack: Option<String>,
    /// How long an attack lasts
    #[arg(long, value_name = "SECONDS", default_value_t = SECONDS)]
    pub seconds: u64,
    /// Leave out how long the quiet tenant waits, which a busy machine decides
    #[arg(long)]
    pub no_latency: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options { attack: None, seconds: SECONDS, no_latency: false }
    }
}

/// An attack: what it uses up, and how.
struct Attack {
    name: &'static str,
    resource: &'static str,
    run: fn(&Target) -> anyhow::Result<String>,
}

const ATTACKS: &[Attack] = &[
    Attack { name: "large-batches", resource: "bytes of a batch", run: work::large_batches },
    Attack { name: "idle-sockets", resource: "descriptors", run: sockets::idle },
    Attack { name: "hanging-webhooks", resource: "outbound places", run: work::hanging_webhooks },
    Attack { name: "slow-readers", resource: "memory on the way out", run: sockets::slow_readers },
    Attack { name: "http2-readers", resource: "memory on the way out", run: http2::readers },
    Attack { name: "pipelining", resource: "memory on the way out", run: sockets::pipelining },
    Attack { name: "large-pages", resource: "memory on the way out", run: work::large_pages },
    Attack { name: "dripping-bodies", resource: "memory on the way in", run: sockets::dripping },
    Attack { name: "http2-bodies", resource: "memory on the way in", run: http2::bodies },
    Attack { name: "large-trees", resource: "memory on the way in", run: work::large_trees },
    Attack { name: "patterns", resource: "time under a lock", run: work::patterns },
    Attack { name: "event-patterns", resource: "time under a lock", run: work::event_patterns },
    Attack {
        name: "large-documents",
        resource: "bytes of a batch",
        run: documents::large_documents,
    },
    Attack { name: "hot-document", resource: "time under a lock", run: documents::hot_document },
    Attack { name: "document-queries", resource: "threads", run: documents::document_queries },
    Attack {
        name: "live-queries",
        resource: "memory on the way out",
        run: documents::live_queries,
    },
    Attack { name: "collections", resource: "disk and memory", run: documents::many_collections },
    Attack { name: "index-churn", resource: "time in background", run: documents::index_churn },
    Attack { name: "costly-rules", resource: "threads", run: documents::costly_rules },
    Attack {
        name: "costly-conditions",
        resource: "time under a lock",
        run: triggers::costly_conditions,
    },
    Attack {
        name: "hanging-triggers",
        resource: "outbound places",
        run: triggers::hanging_triggers,
    },
    Attack { name: "contradictions", resource: "time under a lock", run: facts::contradictions },
    Attack {
        name: "fact-subscriptions",
        resource: "time under a lock",
        run: facts::fact_subscriptions,
    },
    Attack { name: "fact-queries", resource: "threads", run: facts::fact_queries },
    Attack { name: "slow-names", resource: "names and threads", run: work::slow_names },
];

/// What an attack lasts at least once everything for it is there.
const PREPARED_FOR: Duration = Duration::from_secs(2);

/// What an attack is aimed at.
#[derive(Clone)]
struct Target {
    server: SocketAddr,
    endpoint: SocketAddr,
    /// The header with the loud tenant's key, and with that of its admin.
    authorization: String,
    admin: String,
    until: Instant,
}

impl Target {
    fn is_over(&self) -> bool {
        Instant::now() >= self.until
    }

    /// The same for an attack that took a while to prepare.
    fn prepared(&self) -> Target {
        Target { until: self.until.max(Instant::now() + PREPARED_FOR), ..self.clone() }
    }

    /// A request of the loud tenant's. It may be refused, and it may get no answer.
    fn send(&self, method: &str, target: &str, body: &[u8]) -> std::io::Result<Response> {
        let mut connection = Connection::open(self.server)?;
        self.send_on(&mut connection, method, target, body)
    }

    fn send_on(
        &self,
        connection: &mut Connection,
        method: &str,
        target: &str,
        body: &[u8],
    ) -> std::io::Result<Response> {
        let headers =
            [("authorization", &*self.authorization), ("content-type", "application/json")];
        connection.send(Request { method, target, headers: &headers, body })
    }

    /// Something that an admin of the tenant alone may do.
    fn administer(&self, target: &str, body: &Value) -> anyhow::Result<Response> {
        let headers = [("authorization", &*self.admin), ("content-type", "application/json")];
        let body = body.to_string();
        let request = Request { method: "POST", target, headers: &headers, body: body.as_bytes() };
        let answer = Connection::open(self.server)?.send(request)?;
        let (status, text) = (answer.status, answer.text().into_owned());
        ensure!((200..300).contains(&status), "{target}: {status} {text}");
        Ok(answer)
    }

    /// A request of the loud tenant's without which the attack cannot go on.
    fn expect(&self, method: &str, target: &str, body: &Value) -> anyhow::Result<Response> {
        let answer = self.send(method, target, body.to_string().as_bytes())?;
        let (status, text) = (answer.status, answer.text().into_owned());
        ensure!((200..300).contains(&status), "{method} {target}: {status} {text}");
        Ok(answer)
    }
}

/// Each attack is one test.
pub fn run(options: &Options) -> anyhow::Result<Tally> {
    let chosen: Vec<&Attack> = ATTACKS
        .iter()
        .filter(|attack| options.attack.as_deref().is_none_or(|name| name == attack.name))
        .collect();
    if chosen.is_empty() {
        let names: Vec<&str> = ATTACKS.iter().map(|attack| attack.name).collect();
        bail!("there is no such attack; there are {}", names.join(", "));
    }
    let mut tally = Tally::default();
    for attack in chosen {
        match run_attack(attack, options) {
            Ok(summary) => {
                println!("{:17} {:22} {summary}", attack.name, attack.resource);
                tally.passed += 1;
            }
            Err(error) => {
                println!("{:17} {:22} FAILED: {error:#}", attack.name, attack.resource);
                tally.failed += 1;
            }
        }
    }
    Ok(tally)
}

fn run_attack(attack: &Attack, options: &Options) -> anyhow::Result<String> {
    let directory = workspace::scratch(&format!("adversary-{}", attack.name))?;
    let endpoint = Endpoint::open()?;
    // Whoever asks it for a name hears nothing.
    let silent = UdpSocket::bind("127.0.0.1:0")?;
    let names = silent.local_addr()?;
    let mut server = start(&directory, endpoint.address, names)?;
    let quiet = QuietTenant::new(
        server.address,
        &create_key(server.address, "quiet", &["user"])?,
        &endpoint,
    )?;
    let loud = create_key(server.address, "loud", &["user", "operator"])?;
    let admin = create_key(server.address, "loud", &["admin"])?;
    let calm_for = Duration::from_secs(options.seconds.clamp(1, 3));
    let calm = quiet.run_while(|| {
        std::thread::sleep(calm_for);
        Ok(String::new())
    })?;
    let until = Instant::now() + Duration::from_secs(options.seconds);
    let (authorization, admin) = (format!("Bearer {loud}"), format!("Bearer {admin}"));
    let address = server.address;
    let target =
        Target { server: address, endpoint: endpoint.address, authorization, admin, until };
    let began = Instant::now();
    let beside = quiet.run_while(|| (attack.run)(&target))?;
    ensure!(
        beside.per_second(began.elapsed()) * STALLED_RATIO >= calm.per_second(calm_for),
        "{}: the quiet tenant came {} times in {:?}, and {} times in {calm_for:?} when alone",
        beside.attack,
        beside.tried,
        began.elapsed(),
        calm.tried
    );
    if let Some(status) = server.exit_status()? {
        bail!("the server ended ({status}): {}", end_of(&server.log_text()));
    }
    let memory_kb = peak_memory_kb(server.pid())?;
    ensure!(memory_kb <= MEMORY_MAX_KB, "{} MB in memory", memory_kb >> 10);
    endpoint.stop_hanging();
    quiet.settle().with_context(|| format!("after {}", beside.attack))?;
    server.kill()?;
    let server = start(&directory, endpoint.address, names).context("starting again")?;
    quiet.check_kept(server.address)?;
    server.kill()?;
    if !options.no_latency {
        check_latency(&calm, &beside)?;
    }
    std::fs::remove_dir_all(&directory)?;
    Ok(format!(
        "{}; {} MB; quiet tenant: {} of {} served, p99 {:?} (alone {:?})",
        beside.attack,
        memory_kb >> 10,
        beside.served,
        beside.tried,
        beside.p99,
        calm.p99,
    ))
}

fn check_latency(calm: &Report, beside: &Report) -> anyhow::Result<()> {
    let allowed = (calm.p99 * LATENCY_RATIO_MAX).max(LATENCY_MAX);
    ensure!(
        beside.p99 <= allowed,
        "{}: the quiet tenant waited {:?} (p99), {:?} when alone",
        beside.attack,
        beside.p99,
        calm.p99
    );
    Ok(())
}

/// A server that may open so many files and no more.
fn start(directory: &Path, endpoint: SocketAddr, names: SocketAddr) -> anyhow::Result<Server> {
    let log = directory.join("server.log");
    let limited = format!("ulimit -n {DESCRIPTORS} && exec \"$0\" \"$@\"");
    let mut command = Command::new("sh");
    command.arg("-c").arg(limited).arg(workspace::reveille()?).args(["serve", "--data-dir"]);
    command.arg(directory.join("data"));
    command.args(["--listen", "127.0.0.1:0", "--auth", "keys", "--admin-key", ADMIN_KEY]);
    command.args(["--allow-http-loopback", "--retry-scale", "0.01"]);
    command.args(["--outbound-concurrency", "64", "--name-servers", &names.to_string()]);
    // So short that an attack sees its readers let go.
    command.args(["--reader-timeout", "3s"]);
    command.arg("--worker-url-template");
    command.arg(format!("http://{endpoint}/{{workerId}}/{{rpcMethod}}"));
    match Server::launch(&mut command, &log, std::io::sink())? {
        Startup::Listening(server) => Ok(server),
        Startup::Exited(status, said) => {
            bail!("the server did not start ({status}): {}", end_of(&said))
        }
    }
}

fn end_of(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    let last = lines.iter().skip(lines.len().saturating_sub(5));
    last.copied().collect::<Vec<_>>().join("\n")
}

fn create_key(server: SocketAddr, tenant: &str, roles: &[&str]) -> anyhow::Result<String> {
    let authorization = format!("Bearer {ADMIN_KEY}");
    let headers = [("authorization", &*authorization), ("content-type", "application/json")];
    let entity = format!("agent:{tenant}");
    let body = json!({ "tenant": tenant, "roles": roles, "entity_uri": entity, "scopes": ["*"] });
    let body = body.to_string();
    let request = Request {
        method: "POST",
        target: "/admin/v1/keys",
        headers: &headers,
        body: body.as_bytes(),
    };
    let answer = Connection::open(server)?.send(request)?;
    ensure!(answer.status == 201, "a key for {tenant}: {} {}", answer.status, answer.text());
    let created: Value = serde_json::from_slice(&answer.body)?;
    let key = created.get("key").and_then(Value::as_str).context("an answer without a key")?;
    Ok(key.to_owned())
}

/// The most that a process has had in memory.
fn peak_memory_kb(pid: u32) -> anyhow::Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let digits = line.and_then(|line| line.trim().strip_suffix(" kB")).context("no VmHWM")?;
    Ok(digits.trim().parse()?)
}
