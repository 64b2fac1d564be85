//! `cargo xtask crash`: a real server, real files, `kill -9` under load, again and again.
//!
//! ```text
//! every round   start on the same data directory
//!               inspect: the streams of the last round and a few older ones
//!               load: 8 connections, 20 streams, for 50 to 300 ms
//!               kill -9
//! at the end    inspect every stream there ever was
//!               flip bits in copies of the data directory: noticed, or harmless
//! ```

pub(crate) mod deliveries;
mod message;
mod model;

mod work;

mod flips;
mod inspect;

mod exchange;
mod http;
mod random;

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow};

use crate::server::Server;
use crate::steps::Tally;
use crate::workspace;

use message::Kind;
use model::{Closed, Stream};
use random::Random;
use work::{Counts, Slot, Worker};

const CONNECTIONS: usize = 8;
const STREAMS: usize = 20;
/// Older streams inspected after every restart.
const SAMPLE: usize = 3;
/// One in so many streams is retired after a round, and only sampled from then on.
const RETIRE_ONE_IN: u64 = 10;
const REPORT_EVERY: u64 = 20;
/// Short segments of the log bring what they held into the table every time that one is full, so
/// that kills meet that too.
const SHORT_SEGMENTS: [&str; 2] = ["--log-segment-bytes", "2MiB"];

/// How much of the server's log is shown with a failure.
const LOG_LINES: usize = 20;

/// Everything the server has promised.
struct World {
    slots: Vec<Slot>,
    retired: Vec<Stream>,
    /// How many streams there ever were.
    named: usize,
    /// The next append's name.
    ids: AtomicU64,
    random: Random,
}

#[derive(Default)]
struct Totals {
    acknowledged: u64,
    busy: u64,
    unanswered: u64,
    starting: Duration,
    inspecting: Duration,
}

pub(crate) fn run(rounds: u64, flips: u64, seed: Option<u64>) -> anyhow::Result<Tally> {
    let seed = seed.unwrap_or_else(Random::fresh_seed);
    println!("{rounds} rounds of kill -9: --seed {seed}");
    let scratch = workspace::scratch("crash")?;
    let played = play(rounds, flips, seed, &scratch);
    match &played {
        Ok(tally) if tally.failed == 0 => std::fs::remove_dir_all(&scratch)?,
        Ok(_) => println!("--seed {seed}, kept in target/xtask/crash"),
        Err(_) => show_end(&scratch.join("server.log")),
    }
    played.with_context(|| format!("--seed {seed}, kept in target/xtask/crash"))
}

fn show_end(log: &Path) {
    let log = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = log.lines().collect();
    println!("the end of the server's log:");
    for line in lines.iter().skip(lines.len().saturating_sub(LOG_LINES)) {
        println!("  {line}");
    }
}

fn play(rounds: u64, flips: u64, seed: u64, scratch: &Path) -> anyhow::Result<Tally> {
    let start = Instant::now();
    let mut world = World::new(Random::new(seed));
    let mut totals = Totals::default();
    for round in 1..=rounds {
        let played = world.round(round, scratch, &mut totals);
        played.with_context(|| format!("round {round}"))?;
        if round % REPORT_EVERY == 0 || round == rounds {
            println!("round {round}, {:.1} s: {totals}", start.elapsed().as_secs_f64());
        }
    }
    let streams = world.inspect_everything(scratch).context("after the last round")?;
    println!("{} streams inspected: nothing lost, torn or repeated", streams.len());
    let mut tally = Tally::one(());
    if flips > 0 {
        let random = Random::new(seed).branch(u64::MAX);
        tally.add(flips::run(flips, scratch, streams, random)?);
    }
    Ok(tally)
}

fn serve(scratch: &Path) -> anyhow::Result<Server> {
    Server::start_with(&scratch.join("data"), &scratch.join("server.log"), &SHORT_SEGMENTS)
}

impl World {
    fn new(random: Random) -> World {
        let mut world = World {
            slots: Vec::new(),
            retired: Vec::new(),
            named: 0,
            ids: AtomicU64::new(1),
            random,
        };
        for _ in 0..STREAMS {
            let stream = world.new_stream();
            world.slots.push(Slot::new(stream));
        }
        world
    }

    fn round(&mut self, round: u64, scratch: &Path, totals: &mut Totals) -> anyhow::Result<()> {
        let start = Instant::now();
        let server = serve(scratch)?;
        totals.starting += start.elapsed();
        let start = Instant::now();
        let sample = self.sample();
        inspect::inspect_all(server.address, sample).map_err(|broken| anyhow!(broken))?;
        totals.inspecting += start.elapsed();
        self.retire_some();
        let counts = self.load_and_kill(server, round)?;
        totals.acknowledged += counts.acknowledged;
        totals.busy += counts.busy;
        let unanswered = self.slots.iter().map(|slot| slot.stream().log.unanswered() as u64);
        totals.unanswered += unanswered.sum::<u64>();
        Ok(())
    }

    /// The streams that were used in the last round, and a few that were not.
    fn sample(&mut self) -> Vec<&mut Stream> {
        let mut older: Vec<&mut Stream> = self.retired.iter_mut().collect();
        let mut chosen = Vec::new();
        while chosen.len() < SAMPLE && !older.is_empty() {
            let index = self.random.between(0, older.len() as u64);
            chosen.push(older.swap_remove(index as usize));
        }
        chosen.extend(self.slots.iter_mut().map(Slot::stream_mut));
        chosen
    }

    fn retire_some(&mut self) {
        let mut slots = std::mem::take(&mut self.slots);
        for slot in &mut slots {
            let closed = slot.stream_mut().closed != Closed::No;
            if self.random.one_in(if closed { 2 } else { RETIRE_ONE_IN }) {
                let fresh = Slot::new(self.new_stream());
                self.retired.push(std::mem::replace(slot, fresh).into_stream());
            }
        }
        self.slots = slots;
    }

    fn load_and_kill(&mut self, mut server: Server, round: u64) -> anyhow::Result<Counts> {
        let random = self.random.branch(round);
        let pause = Duration::from_millis(self.random.between(50, 300));
        let killed = AtomicBool::new(false);
        let mut workers = Vec::new();
        for index in 0..CONNECTIONS {
            let own = random.branch(1 + index as u64);
            workers.push(Worker::connect(index, server.address, own, &self.slots, &self.ids)?);
        }
        std::thread::scope(|scope| {
            let threads: Vec<_> =
                workers.into_iter().map(|worker| scope.spawn(|| worker.run(&killed))).collect();
            std::thread::sleep(pause);
            let ended = server.ended()?;
            let said = ended.map(|_| server.complaints());
            killed.store(true, Ordering::SeqCst);
            server.kill()?;
            let mut counts = Counts::default();
            for thread in threads {
                let worked = thread.join().map_err(|_| anyhow!("a connection's thread failed"))?;
                let worked = worked.map_err(|broken| anyhow!(broken))?;
                counts.acknowledged += worked.acknowledged;
                counts.busy += worked.busy;
            }
            match (ended, said) {
                (Some(status), Some(said)) => Err(anyhow!("the server ended ({status}): {said}")),
                _ => Ok(counts),
            }
        })
    }

    /// Ends the world: every stream, settled and read once more.
    fn inspect_everything(mut self, scratch: &Path) -> anyhow::Result<Vec<Stream>> {
        let server = serve(scratch)?;
        let mut streams = std::mem::take(&mut self.retired);
        streams.extend(std::mem::take(&mut self.slots).into_iter().map(Slot::into_stream));
        let all = streams.iter_mut().collect();
        inspect::inspect_all(server.address, all).map_err(|broken| anyhow!(broken))?;
        server.kill()?;
        Ok(streams)
    }

    fn new_stream(&mut self) -> Stream {
        self.named += 1;
        Stream::absent(format!("/crash/{}/stream", self.named), Kind::Json)
    }
}

impl std::fmt::Display for Totals {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Totals { acknowledged, busy, unanswered, .. } = self;
        let (starting, inspecting) = (self.starting.as_secs_f64(), self.inspecting.as_secs_f64());
        write!(
            f,
            "{acknowledged} appends acknowledged, {unanswered} cut off, {busy} told to wait"
        )?;
        write!(f, "; {starting:.1} s starting, {inspecting:.1} s inspecting")
    }
}
