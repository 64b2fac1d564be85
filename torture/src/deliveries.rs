//! Events, hooks and `kill -9`: whatever was taken in reaches everybody it is for.
//!
//! ```text
//! once          with more than one partition: a key for each of the tenants
//!               hooks of every tenant: more for one type than one batch has deliveries for
//! every round   start on the same data directory, with an endpoint that often fails or hangs
//!               4 connections send batches of events, each under a name, for 30 to 200 ms
//!               kill -9
//!               what was not answered is sent again next time under the same name
//! at the end    an endpoint that accepts; wait until nothing is owed
//!               every event reached every hook of its tenant that it is for, as it was sent,
//!               as one delivery
//! ```

mod endpoint;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow, bail, ensure};
use clap::{Args, value_parser};
use harness::http::{Connection, Request, Response};
use harness::{Server, Tally};
use serde_json::{Value, json};

use crate::random::Random;
use crate::scratch::Scratch;
use crate::tenants::{self, Tenant, Tenants};
use endpoint::{DeliveryIds, Endpoint};

const ROUNDS: u64 = 100;

const CONNECTIONS: u64 = 4;
/// More than get their delivery in the batch that brings an event.
const HOOKS_FOR_ALL: usize = 70;
/// Types, and how many hooks are for each of them alone.
const TYPES: [(&str, usize); 3] = [("crash.a", 3), ("crash.b.c", 1), ("crash.rare", 0)];
/// Batches of one connection in one round.
const BATCHES: u64 = 3;
const SETTLE_MAX: Duration = Duration::from_secs(120);
const REPORT_EVERY: u64 = 20;

#[derive(Debug, Clone, PartialEq, Eq, Args)]
#[command(args_override_self = true)]
pub struct Options {
    /// How often the server is killed
    #[arg(long, value_name = "N", default_value_t = ROUNDS)]
    pub rounds: u64,
    /// Repeats the choices of an earlier run
    #[arg(long, value_name = "S")]
    pub seed: Option<u64>,
    /// Partitions of the server; with more than one, tenants with keys are in all of them
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = value_parser!(u32).range(1..=4))]
    pub partitions: u32,
}

impl Default for Options {
    fn default() -> Options {
        Options { rounds: ROUNDS, seed: None, partitions: 1 }
    }
}

/// A batch of events, until it is acknowledged.
#[derive(Clone)]
struct Batch {
    tenant: Arc<Tenant>,
    name: String,
    events: Vec<(String, &'static str)>,
}

struct Hook {
    tenant: Arc<Tenant>,
    method: String,
    pattern: &'static str,
}

struct World {
    tenants: Tenants,
    hooks: Vec<Hook>,
    acknowledged: Vec<Batch>,
    /// Sent, and the answer never came.
    unanswered: Vec<Batch>,
    batches_created: AtomicUsize,
    random: Random,
}

/// All of it is one test.
pub fn run(options: &Options) -> anyhow::Result<Tally> {
    let Options { rounds, seed, partitions } = *options;
    let seed = seed.unwrap_or_else(Random::fresh_seed);
    println!("{rounds} rounds of kill -9 with deliveries: --partitions {partitions} --seed {seed}");
    let scratch = Scratch::new("crash-deliveries", partitions)?;
    if let Err(error) = run_rounds(rounds, seed, &scratch) {
        scratch.print_end_of_log();
        return Err(error.context(scratch.advice(seed)));
    }
    scratch.remove().map(Tally::one)
}

fn run_rounds(rounds: u64, seed: u64, scratch: &Scratch) -> anyhow::Result<()> {
    let start = Instant::now();
    let random = Random::new(seed);
    let endpoint = Endpoint::open(random.branch(7))?;
    let mut world = World {
        tenants: tenants::create(scratch)?,
        hooks: Vec::new(),
        acknowledged: Vec::new(),
        unanswered: Vec::new(),
        batches_created: AtomicUsize::new(0),
        random,
    };
    let server = start_server(scratch, &endpoint)?;
    world.subscribe(server.address)?;
    server.kill()?;
    for round in 1..=rounds {
        world.round(round, scratch, &endpoint).with_context(|| format!("round {round}"))?;
        if round % REPORT_EVERY == 0 || round == rounds {
            let (batches, requests) = (world.acknowledged.len(), endpoint.requests());
            let seconds = start.elapsed().as_secs_f64();
            println!(
                "round {round}, {seconds:.1} s: {batches} batches taken in, \
                 {requests} deliveries seen"
            );
        }
    }
    endpoint.accept_everything();
    let server = start_server(scratch, &endpoint)?;
    world.send_again(server.address)?;
    world.settle(server.address, &endpoint)?;
    server.kill()?;
    world.check(&endpoint)
}

fn start_server(scratch: &Scratch, endpoint: &Endpoint) -> anyhow::Result<Server> {
    let template = format!("http://{}/{{workerId}}/{{rpcMethod}}", endpoint.address);
    scratch.start_server(&["--worker-url-template", &template, "--retry-scale", "0.02"])
}

impl World {
    fn subscribe(&mut self, address: SocketAddr) -> anyhow::Result<()> {
        let mut connection = Connection::open(address)?;
        for tenant in self.tenants.clone().iter() {
            self.subscribe_tenant(&mut connection, tenant)?;
        }
        Ok(())
    }

    fn subscribe_tenant(
        &mut self,
        connection: &mut Connection,
        tenant: &Arc<Tenant>,
    ) -> anyhow::Result<()> {
        let all = (0..HOOKS_FOR_ALL).map(|index| (format!("all{index}"), "crash.**"));
        let some = TYPES.iter().flat_map(|(kind, count)| {
            (0..*count).map(move |index| (format!("{}{index}", kind.replace('.', "_")), *kind))
        });
        for (method, pattern) in all.chain(some) {
            // Each of them is owed every event, however often the endpoint fails.
            let body = json!({
                "workerId": worker_id(tenant), "pattern": pattern, "rpcMethod": method,
                "maxRetries": 100, "timeoutMs": 500,
            });
            let answer = post(connection, tenant, "/subscriptions/subscribe", &body)?;
            ensure!(answer.status == 200, "subscribing: {}", status_and_text(&answer));
            self.hooks.push(Hook { tenant: tenant.clone(), method, pattern });
        }
        Ok(())
    }

    fn round(&mut self, round: u64, scratch: &Scratch, endpoint: &Endpoint) -> anyhow::Result<()> {
        let mut server = start_server(scratch, endpoint)?;
        let address = server.address;
        let random = self.random.branch(round);
        let pause = Duration::from_millis(self.random.between(30, 200));
        let killed = AtomicBool::new(false);
        let mut again = std::mem::take(&mut self.unanswered);
        let mut work: Vec<Vec<Batch>> = Vec::new();
        for index in 0..CONNECTIONS {
            let mut own = random.branch(1 + index);
            let share = again.len().div_ceil(usize::try_from(CONNECTIONS - index)?);
            let mut batches: Vec<Batch> = again.drain(..share).collect();
            batches.extend((0..own.between(1, BATCHES + 1)).map(|_| self.new_batch(&mut own)));
            work.push(batches);
        }
        let sent = std::thread::scope(|scope| {
            let threads: Vec<_> = work
                .into_iter()
                .map(|batches| scope.spawn(|| send_all(address, batches, &killed)))
                .collect();
            std::thread::sleep(pause);
            let exit = server.exit_status()?;
            killed.store(true, Ordering::SeqCst);
            if let Some(status) = exit {
                bail!("the server ended ({status}): {}", server.log_text());
            }
            server.kill()?;
            let mut sent = Vec::new();
            for thread in threads {
                sent.push(thread.join().map_err(|_| anyhow!("a connection's thread failed"))??);
            }
            Ok(sent)
        })?;
        for (acknowledged, unanswered) in sent {
            self.acknowledged.extend(acknowledged);
            self.unanswered.extend(unanswered);
        }
        Ok(())
    }

    /// What one tenant calls its batch and events the next one does as well.
    fn new_batch(&self, random: &mut Random) -> Batch {
        let created = self.batches_created.fetch_add(1, Ordering::Relaxed);
        let (tenant, number) = self.tenants.turn(created);
        let mut event = |index| {
            let kind = random.pick(&TYPES).map_or("crash.a", |(kind, _)| *kind);
            (format!("event-{number}-{index}"), kind)
        };
        Batch { tenant, name: format!("batch-{number}"), events: vec![event(1), event(2)] }
    }

    /// What was never answered is taken in now, or was all along.
    fn send_again(&mut self, address: SocketAddr) -> anyhow::Result<()> {
        let unanswered = std::mem::take(&mut self.unanswered);
        let (acknowledged, left) = send_all(address, unanswered, &AtomicBool::new(false))?;
        ensure!(left.is_empty(), "{} batches are not answered by a server that runs", left.len());
        self.acknowledged.extend(acknowledged);
        Ok(())
    }

    /// Waits until everything that was taken in has arrived and no hook is owed anything.
    fn settle(&self, address: SocketAddr, endpoint: &Endpoint) -> anyhow::Result<()> {
        let mut connection = Connection::open(address)?;
        let until = Instant::now() + SETTLE_MAX;
        loop {
            // Hooks that an event has not come to yet are owed nothing, by their own count.
            let missing = self.missing(&endpoint.delivery_ids());
            let owed = self.owed(&mut connection)?;
            if missing.is_none() && owed == 0 {
                return Ok(());
            }
            let late = Instant::now() >= until;
            ensure!(!late, "after {SETTLE_MAX:?} {owed} are owed, missing is {missing:?}");
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// What all hooks of all tenants are owed, by their own count.
    fn owed(&self, connection: &mut Connection) -> anyhow::Result<u64> {
        let mut sum = 0;
        for tenant in self.tenants.iter() {
            let hooks = self.hooks.iter().filter(|hook| Arc::ptr_eq(&hook.tenant, tenant));
            sum += owed(connection, tenant, hooks.count())?;
        }
        Ok(sum)
    }

    /// What should have arrived: each event at every hook of its tenant that it is for.
    fn expected(&self) -> impl Iterator<Item = (String, String)> {
        let events = self
            .acknowledged
            .iter()
            .flat_map(|batch| batch.events.iter().map(|event| (&batch.tenant, event)));
        events.flat_map(|(tenant, (id, kind))| {
            let wants = move |pattern: &str| pattern == "crash.**" || pattern == *kind;
            let hooks = self.hooks.iter().filter(move |hook| Arc::ptr_eq(&hook.tenant, tenant));
            let hooks = hooks.filter(move |hook| wants(hook.pattern));
            hooks.map(move |hook| (endpoint_path(hook), id.clone()))
        })
    }

    fn missing(&self, arrived: &DeliveryIds) -> Option<(String, String)> {
        self.expected().find(|pair| !arrived.contains_key(pair))
    }

    /// Every event has reached every hook that it is for, as one delivery with its own words, and
    /// nobody else.
    fn check(&self, endpoint: &Endpoint) -> anyhow::Result<()> {
        let arrived = endpoint.delivery_ids();
        let expected: BTreeSet<(String, String)> = self.expected().collect();
        for (pair, deliveries) in &arrived {
            ensure!(expected.contains(pair), "{pair:?} is of nothing known");
            ensure!(deliveries.len() == 1, "{pair:?} came as {deliveries:?}");
        }
        let missing = self.missing(&arrived);
        ensure!(missing.is_none(), "{missing:?} never arrived");
        let (owed, requests) = (expected.len(), endpoint.requests());
        println!("{owed} deliveries owed and made, {requests} requests for them");
        Ok(())
    }
}

/// The worker that gets a tenant's deliveries, and nobody else's.
fn worker_id(tenant: &Tenant) -> &str {
    tenant.name.as_deref().unwrap_or("crash")
}

/// Where the endpoint sees what is for this hook, as [`start_server`] has told the server.
fn endpoint_path(hook: &Hook) -> String {
    format!("/{}/{}", worker_id(&hook.tenant), hook.method)
}

/// Sends batches until the server is killed. Returns those that were acknowledged, and the others.
fn send_all(
    address: SocketAddr,
    batches: Vec<Batch>,
    killed: &AtomicBool,
) -> anyhow::Result<(Vec<Batch>, Vec<Batch>)> {
    let (mut acknowledged, mut unanswered) = (Vec::new(), Vec::new());
    let mut connection = Connection::open(address).ok();
    for batch in batches {
        let events: Vec<Value> =
            batch.events.iter().map(|(id, kind)| json!({"id": id, "type": kind, "n": 1})).collect();
        let body = json!({"events": events, "batchId": batch.name});
        let answer = connection.as_mut().map(|it| post(it, &batch.tenant, "/ingest", &body));
        match answer {
            Some(Ok(answer)) if answer.status == 200 => acknowledged.push(batch),
            Some(Ok(answer)) if answer.status == 503 => unanswered.push(batch),
            Some(Ok(answer)) => bail!("ingest: {}", status_and_text(&answer)),
            Some(Err(error)) if !killed.load(Ordering::SeqCst) => {
                // The kill and the answer may cross: give the flag a moment to follow.
                std::thread::sleep(Duration::from_millis(200));
                ensure!(killed.load(Ordering::SeqCst), "the server hung up: {error}");
                connection = None;
                unanswered.push(batch);
            }
            Some(Err(_)) | None => {
                connection = None;
                unanswered.push(batch);
            }
        }
    }
    Ok((acknowledged, unanswered))
}

/// What a tenant's hooks are owed: so many of them, or some could be owed unseen.
fn owed(connection: &mut Connection, tenant: &Tenant, hooks: usize) -> anyhow::Result<u64> {
    let list = get(connection, tenant, "/subscriptions/list?limit=1000")?;
    let ids = list.pointer("/subscriptions").and_then(Value::as_array).context("no list")?;
    ensure!(ids.len() == hooks, "{} of {hooks} hooks are listed", ids.len());
    let mut owed = 0;
    for id in ids.iter().filter_map(|it| it.get("id")?.as_str()) {
        let status = get(connection, tenant, &format!("/subscriptions/status/{id}"))?;
        let stat = |name: &str| {
            status.pointer(&format!("/stats/{name}")).and_then(Value::as_u64).unwrap_or(u64::MAX)
        };
        owed += stat("pendingDeliveries") + stat("failedDeliveries");
        ensure!(stat("deadLetters") == 0, "a dead letter: {status}");
    }
    Ok(owed)
}

fn get(connection: &mut Connection, tenant: &Tenant, target: &str) -> anyhow::Result<Value> {
    let headers = tenant.headers(&[]);
    let request = Request { method: "GET", target, headers: &headers, body: &[] };
    let answer = connection.send(request)?;
    ensure!(answer.status == 200, "{target}: {}", status_and_text(&answer));
    Ok(serde_json::from_slice(&answer.body)?)
}

fn post(
    connection: &mut Connection,
    tenant: &Tenant,
    target: &str,
    body: &Value,
) -> std::io::Result<Response> {
    let body = body.to_string();
    let headers = tenant.headers(&[("content-type", "application/json")]);
    connection.send(Request { method: "POST", target, headers: &headers, body: body.as_bytes() })
}

fn status_and_text(answer: &Response) -> String {
    format!("{} {}", answer.status, answer.text())
}
