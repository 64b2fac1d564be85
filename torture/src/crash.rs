//! `cargo xtask crash`: a real server, real files, `kill -9` under load, again and again.
//!
//! ```text
//! once          with more than one partition: a key for each of the tenants
//! every round   start on the same data directory
//!               inspect: the streams of the last round and a few older ones
//!               load: 8 connections, 20 streams, for 50 to 300 ms
//!               kill -9
//! at the end    inspect every stream there ever was
//!               flip bits in copies of the data directory: noticed, or harmless
//! ```

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow};
use clap::{Args, value_parser};
use harness::{Server, Tally};

use crate::load::{AppendCounts, StreamSlot, Worker};
use crate::message::MessageFormat;
use crate::model::{CloseState, Stream};
use crate::random::Random;
use crate::scratch::Scratch;
use crate::tenants::{TenantPath, Tenants};
use crate::{flips, inspect, tenants};

const ROUNDS: u64 = 200;
const FLIPS: u64 = 60;

const CONNECTIONS: usize = 8;
const STREAMS: usize = 20;
/// Older streams inspected after every restart.
const SAMPLE: usize = 3;
/// One in so many streams is retired after a round, and only sampled from then on.
const RETIRE_ONE_IN: u64 = 10;
const REPORT_EVERY: u64 = 20;

#[derive(Debug, Clone, PartialEq, Eq, Args)]
#[command(args_override_self = true)]
pub struct Options {
    /// How often the server is killed
    #[arg(long, value_name = "N", default_value_t = ROUNDS)]
    pub rounds: u64,
    /// How many bits are flipped afterwards, each in a copy of the data
    #[arg(long, value_name = "N", default_value_t = FLIPS)]
    pub flips: u64,
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
        Options { rounds: ROUNDS, flips: FLIPS, seed: None, partitions: 1 }
    }
}

/// Everything the server has promised.
struct World {
    tenants: Tenants,
    slots: Vec<StreamSlot>,
    retired: Vec<Stream>,
    /// Streams there ever were: the last one's number.
    streams_created: usize,
    next_append: AtomicU64,
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

/// Every stream that is kept is part of one test, every flip is one more.
pub fn run(options: &Options) -> anyhow::Result<Tally> {
    let Options { rounds, flips, seed, partitions } = *options;
    let seed = seed.unwrap_or_else(Random::fresh_seed);
    println!("{rounds} rounds of kill -9: --partitions {partitions} --seed {seed}");
    let scratch = Scratch::new("crash", partitions)?;
    let advice = scratch.advice(seed);
    match run_rounds(rounds, flips, seed, &scratch) {
        Ok(tally) => {
            if tally.failed == 0 {
                scratch.remove()?;
            } else {
                println!("{advice}");
            }
            Ok(tally)
        }
        Err(error) => {
            scratch.print_end_of_log();
            Err(error.context(advice))
        }
    }
}

fn run_rounds(rounds: u64, flips: u64, seed: u64, scratch: &Scratch) -> anyhow::Result<Tally> {
    let start = Instant::now();
    let tenants = tenants::create(scratch)?;
    let mut world = World::new(Random::new(seed), tenants.clone());
    let mut totals = Totals::default();
    for round in 1..=rounds {
        let finished = world.round(round, scratch, &mut totals);
        finished.with_context(|| format!("round {round}"))?;
        if round % REPORT_EVERY == 0 || round == rounds {
            println!("round {round}, {:.1} s: {totals}", start.elapsed().as_secs_f64());
        }
    }
    let streams = world.inspect_everything(scratch).context("after the last round")?;
    println!("{} streams inspected: nothing lost, torn or repeated", streams.len());
    let mut tally = Tally::one(());
    if flips > 0 {
        let random = Random::new(seed).branch(u64::MAX);
        tally.add(flips::run(flips, scratch, &tenants, streams, random)?);
    }
    Ok(tally)
}

impl World {
    fn new(random: Random, tenants: Tenants) -> World {
        let mut world = World {
            tenants,
            slots: Vec::new(),
            retired: Vec::new(),
            streams_created: 0,
            next_append: AtomicU64::new(1),
            random,
        };
        for _ in 0..STREAMS {
            let stream = world.new_stream();
            world.slots.push(StreamSlot::new(stream));
        }
        world
    }

    fn round(&mut self, round: u64, scratch: &Scratch, totals: &mut Totals) -> anyhow::Result<()> {
        let start = Instant::now();
        let server = scratch.start_server(&[])?;
        totals.starting += start.elapsed();
        let start = Instant::now();
        let sample = self.sample();
        inspect::inspect_all(server.address, sample).map_err(|violation| anyhow!(violation))?;
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
        chosen.extend(self.slots.iter_mut().map(StreamSlot::stream_mut));
        chosen
    }

    fn retire_some(&mut self) {
        let mut slots = std::mem::take(&mut self.slots);
        for slot in &mut slots {
            let closed = slot.stream_mut().close_state != CloseState::Open;
            if self.random.one_in(if closed { 2 } else { RETIRE_ONE_IN }) {
                let fresh = StreamSlot::new(self.new_stream());
                self.retired.push(std::mem::replace(slot, fresh).into_stream());
            }
        }
        self.slots = slots;
    }

    fn load_and_kill(&mut self, mut server: Server, round: u64) -> anyhow::Result<AppendCounts> {
        let random = self.random.branch(round);
        let pause = Duration::from_millis(self.random.between(50, 300));
        let killed = AtomicBool::new(false);
        let (slots, next_append) = (&self.slots, &self.next_append);
        let mut workers = Vec::new();
        for index in 0..CONNECTIONS {
            let own = random.branch(1 + index as u64);
            workers.push(Worker::connect(index, server.address, own, slots, next_append)?);
        }
        std::thread::scope(|scope| {
            let threads: Vec<_> =
                workers.into_iter().map(|worker| scope.spawn(|| worker.run(&killed))).collect();
            std::thread::sleep(pause);
            let exit = server.exit_status()?.map(|status| (status, server.log_text()));
            killed.store(true, Ordering::SeqCst);
            server.kill()?;
            let mut counts = AppendCounts::default();
            for thread in threads {
                let worked = thread.join().map_err(|_| anyhow!("a connection's thread failed"))?;
                let worked = worked.map_err(|violation| anyhow!(violation))?;
                counts.acknowledged += worked.acknowledged;
                counts.busy += worked.busy;
            }
            match exit {
                Some((status, log)) => Err(anyhow!("the server ended ({status}): {log}")),
                None => Ok(counts),
            }
        })
    }

    /// Ends the world: every stream, settled and read once more.
    fn inspect_everything(mut self, scratch: &Scratch) -> anyhow::Result<Vec<Stream>> {
        let server = scratch.start_server(&[])?;
        let mut streams = std::mem::take(&mut self.retired);
        streams.extend(std::mem::take(&mut self.slots).into_iter().map(StreamSlot::into_stream));
        let all = streams.iter_mut().collect();
        inspect::inspect_all(server.address, all).map_err(|violation| anyhow!(violation))?;
        server.kill()?;
        Ok(streams)
    }

    /// What one tenant calls its stream the next one does as well.
    fn new_stream(&mut self) -> Stream {
        let (tenant, turn) = self.tenants.turn(self.streams_created);
        self.streams_created += 1;
        let path = format!("/crash/{}/stream", turn + 1);
        Stream::absent(TenantPath { tenant, path }, MessageFormat::Json)
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
