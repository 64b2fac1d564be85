//! Events, hooks and `kill -9`: whatever was taken in reaches everybody it is for.
//!
//! ```text
//! once          hooks: more of them for one type than one batch has deliveries for
//! every round   start on the same data directory, with an endpoint that often fails or hangs
//!               4 connections send batches of events, each under a name, for 30 to 200 ms
//!               kill -9
//!               what was not answered is sent again next time under the same name
//! at the end    an endpoint that accepts; wait until nothing is owed
//!               every event reached every hook that it is for, as it was sent, as one delivery
//! ```

mod endpoint;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow, bail, ensure};
use serde_json::{Value, json};

use super::SHORT_SEGMENTS;
use super::http::{Connection, Request, Response};
use super::random::Random;
use crate::server::Server;
use crate::steps::Tally;
use crate::workspace;
use endpoint::{Endpoint, Seen};

const CONNECTIONS: u64 = 4;
/// More than get their delivery in the batch that brings an event.
const HOOKS_FOR_ALL: usize = 70;
/// Types, and how many hooks are for each of them alone.
const TYPES: [(&str, usize); 3] = [("crash.a", 3), ("crash.b.c", 1), ("crash.rare", 0)];
/// Batches of one connection in one round.
const BATCHES: u64 = 3;
const SETTLE_MAX: Duration = Duration::from_secs(120);
const REPORT_EVERY: u64 = 20;

/// A batch of events, until it is acknowledged.
#[derive(Clone)]
struct Batch {
    name: String,
    events: Vec<(String, &'static str)>,
}

struct World {
    hooks: Vec<(String, &'static str)>,
    acknowledged: Vec<Batch>,
    /// Sent, and the answer never came.
    open: Vec<Batch>,
    ids: AtomicU64,
    random: Random,
}

pub(crate) fn run(rounds: u64, seed: Option<u64>) -> anyhow::Result<Tally> {
    let seed = seed.unwrap_or_else(Random::fresh_seed);
    println!("{rounds} rounds of kill -9 with deliveries: --seed {seed}");
    let scratch = workspace::scratch("crash-deliveries")?;
    let played = play(rounds, seed, &scratch);
    match &played {
        Ok(()) => std::fs::remove_dir_all(&scratch)?,
        Err(_) => super::show_end(&scratch.join("server.log")),
    }
    let why = || format!("--seed {seed}, kept in target/xtask/crash-deliveries");
    played.map(Tally::one).with_context(why)
}

fn play(rounds: u64, seed: u64, scratch: &Path) -> anyhow::Result<()> {
    let start = Instant::now();
    let random = Random::new(seed);
    let endpoint = Endpoint::open(random.branch(7))?;
    let hooks = Vec::new();
    let (acknowledged, open, ids) = (Vec::new(), Vec::new(), AtomicU64::new(1));
    let mut world = World { hooks, acknowledged, open, ids, random };
    let server = serve(scratch, &endpoint)?;
    world.subscribe(server.address)?;
    server.kill()?;
    for round in 1..=rounds {
        world.round(round, scratch, &endpoint).with_context(|| format!("round {round}"))?;
        if round % REPORT_EVERY == 0 || round == rounds {
            let (taken, seen) = (world.acknowledged.len(), endpoint.posts());
            let seconds = start.elapsed().as_secs_f64();
            println!(
                "round {round}, {seconds:.1} s: {taken} batches taken in, {seen} deliveries seen"
            );
        }
    }
    endpoint.be_kind();
    let server = serve(scratch, &endpoint)?;
    world.send_again(server.address)?;
    world.settle(server.address, &endpoint)?;
    server.kill()?;
    world.check(&endpoint)
}

fn serve(scratch: &Path, endpoint: &Endpoint) -> anyhow::Result<Server> {
    let template = format!("http://{}/{{workerId}}/{{rpcMethod}}", endpoint.address);
    let told = ["--worker-url-template", &template, "--retry-scale", "0.02"];
    let more = [&told[..], &SHORT_SEGMENTS].concat();
    Server::start_with(&scratch.join("data"), &scratch.join("server.log"), &more)
}

impl World {
    fn subscribe(&mut self, address: SocketAddr) -> anyhow::Result<()> {
        let mut connection = Connection::open(address)?;
        let all = (0..HOOKS_FOR_ALL).map(|index| (format!("all{index}"), "crash.**"));
        let some = TYPES.iter().flat_map(|(kind, count)| {
            (0..*count).map(move |index| (format!("{}{index}", kind.replace('.', "_")), *kind))
        });
        for (method, pattern) in all.chain(some) {
            // Each of them is owed every event, however often the endpoint fails.
            let body = json!({
                "workerId": "crash", "pattern": pattern, "rpcMethod": method,
                "maxRetries": 100, "timeoutMs": 500,
            });
            let answer = post(&mut connection, "/subscriptions/subscribe", &body)?;
            ensure!(answer.status == 200, "subscribing: {}", text(&answer));
            self.hooks.push((method, pattern));
        }
        Ok(())
    }

    fn round(&mut self, round: u64, scratch: &Path, endpoint: &Endpoint) -> anyhow::Result<()> {
        let mut server = serve(scratch, endpoint)?;
        let address = server.address;
        let random = self.random.branch(round);
        let pause = Duration::from_millis(self.random.between(30, 200));
        let killed = AtomicBool::new(false);
        let mut again = std::mem::take(&mut self.open);
        let mut lots: Vec<Vec<Batch>> = Vec::new();
        for index in 0..CONNECTIONS {
            let mut own = random.branch(1 + index);
            let share = again.len().div_ceil(usize::try_from(CONNECTIONS - index)?);
            let mut lot: Vec<Batch> = again.drain(..share).collect();
            lot.extend((0..own.between(1, BATCHES + 1)).map(|_| self.new_batch(&mut own)));
            lots.push(lot);
        }
        let sent = std::thread::scope(|scope| {
            let threads: Vec<_> = lots
                .into_iter()
                .map(|lot| scope.spawn(|| send_all(address, lot, &killed)))
                .collect();
            std::thread::sleep(pause);
            let ended = server.ended()?;
            killed.store(true, Ordering::SeqCst);
            if let Some(status) = ended {
                bail!("the server ended ({status}): {}", server.complaints());
            }
            server.kill()?;
            let mut sent = Vec::new();
            for thread in threads {
                sent.push(thread.join().map_err(|_| anyhow!("a connection's thread failed"))??);
            }
            Ok(sent)
        })?;
        for (acknowledged, open) in sent {
            self.acknowledged.extend(acknowledged);
            self.open.extend(open);
        }
        Ok(())
    }

    fn new_batch(&self, random: &mut Random) -> Batch {
        let mut event = || {
            let id = format!("event-{}", self.ids.fetch_add(1, Ordering::Relaxed));
            (id, random.pick(&TYPES).map_or("crash.a", |(kind, _)| *kind))
        };
        let events: Vec<_> = std::iter::repeat_with(&mut event).take(2).collect();
        Batch { name: format!("batch-{}", self.ids.fetch_add(1, Ordering::Relaxed)), events }
    }

    /// What was never answered is taken in now, or was all along.
    fn send_again(&mut self, address: SocketAddr) -> anyhow::Result<()> {
        let open = std::mem::take(&mut self.open);
        let (acknowledged, left) = send_all(address, open, &AtomicBool::new(false))?;
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
            let missing = self.missing(&endpoint.seen());
            let owed = owed(&mut connection)?;
            if missing.is_none() && owed == 0 {
                return Ok(());
            }
            let late = Instant::now() >= until;
            ensure!(!late, "after {SETTLE_MAX:?} {owed} are owed, missing is {missing:?}");
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// What should have arrived: each event at every hook that it is for.
    fn expected(&self) -> impl Iterator<Item = (String, String)> {
        let events = self.acknowledged.iter().flat_map(|batch| &batch.events);
        events.flat_map(|(id, kind)| {
            let wants = move |pattern: &str| pattern == "crash.**" || pattern == *kind;
            let hooks = self.hooks.iter().filter(move |(_, pattern)| wants(pattern));
            hooks.map(move |(method, _)| (method.clone(), id.clone()))
        })
    }

    fn missing(&self, seen: &Seen) -> Option<(String, String)> {
        self.expected().find(|pair| !seen.contains_key(pair))
    }

    /// Every event has reached every hook that it is for, as one delivery with its own words, and
    /// nobody else.
    fn check(&self, endpoint: &Endpoint) -> anyhow::Result<()> {
        let seen = endpoint.seen();
        let expected: BTreeSet<(String, String)> = self.expected().collect();
        for (pair, deliveries) in &seen {
            ensure!(expected.contains(pair), "{pair:?} is of nothing known");
            ensure!(deliveries.len() == 1, "{pair:?} came as {deliveries:?}");
        }
        let missing = self.missing(&seen);
        ensure!(missing.is_none(), "{missing:?} never arrived");
        let (owed, posts) = (expected.len(), endpoint.posts());
        println!("{owed} deliveries owed and made, {posts} requests for them");
        Ok(())
    }
}

/// Sends batches until the server is killed. Returns those that were acknowledged, and the others.
fn send_all(
    address: SocketAddr,
    lot: Vec<Batch>,
    killed: &AtomicBool,
) -> anyhow::Result<(Vec<Batch>, Vec<Batch>)> {
    let (mut acknowledged, mut open) = (Vec::new(), Vec::new());
    let mut connection = Connection::open(address).ok();
    for batch in lot {
        let events: Vec<Value> =
            batch.events.iter().map(|(id, kind)| json!({"id": id, "type": kind, "n": 1})).collect();
        let body = json!({"events": events, "batchId": batch.name});
        let answer = connection.as_mut().map(|it| post(it, "/ingest", &body));
        match answer {
            Some(Ok(answer)) if answer.status == 200 => acknowledged.push(batch),
            Some(Ok(answer)) if answer.status == 503 => open.push(batch),
            Some(Ok(answer)) => bail!("ingest: {}", text(&answer)),
            Some(Err(error)) if !killed.load(Ordering::SeqCst) => {
                // The kill and the answer may cross: give the flag a moment to follow.
                std::thread::sleep(Duration::from_millis(200));
                ensure!(killed.load(Ordering::SeqCst), "the server hung up: {error}");
                connection = None;
                open.push(batch);
            }
            Some(Err(_)) | None => {
                connection = None;
                open.push(batch);
            }
        }
    }
    Ok((acknowledged, open))
}

fn owed(connection: &mut Connection) -> anyhow::Result<u64> {
    let list = get(connection, "/subscriptions/list?limit=1000")?;
    let ids = list.pointer("/subscriptions").and_then(Value::as_array).context("no list")?;
    let mut owed = 0;
    for id in ids.iter().filter_map(|it| it.get("id")?.as_str()) {
        let status = get(connection, &format!("/subscriptions/status/{id}"))?;
        let stat = |name: &str| {
            status.pointer(&format!("/stats/{name}")).and_then(Value::as_u64).unwrap_or(u64::MAX)
        };
        owed += stat("pendingDeliveries") + stat("failedDeliveries");
        ensure!(stat("deadLetters") == 0, "a dead letter: {status}");
    }
    Ok(owed)
}

fn get(connection: &mut Connection, target: &str) -> anyhow::Result<Value> {
    let answer = connection.send(Request { method: "GET", target, headers: &[], body: b"" })?;
    ensure!(answer.status == 200, "{target}: {}", text(&answer));
    Ok(serde_json::from_slice(&answer.body)?)
}

fn post(connection: &mut Connection, target: &str, body: &Value) -> std::io::Result<Response> {
    let body = body.to_string();
    let headers = [("content-type", "application/json")];
    connection.send(Request { method: "POST", target, headers: &headers, body: body.as_bytes() })
}

fn text(answer: &Response) -> String {
    format!("{} {}", answer.status, String::from_utf8_lossy(&answer.body))
}
