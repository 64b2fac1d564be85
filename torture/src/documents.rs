//! Documents and `kill -9`: a transaction is there whole or not at all, and its changes once.
//!
//! ```text
//! once          with more than one partition: a key for each of the tenants
//! every round   start on the same data directory
//!               inspect: read the changes that are new and decide each a second time; what was
//!               answered is there; what was not is sent again under its key; documents, scans and
//!               queries from indexes are what the changes have made of them
//!               load: 8 connections with transactions of several writes, single writes, reads and
//!               repetitions, one that declares indexes, one that reads the changes, for 30 to
//!               250 ms
//!               kill -9
//! at the end    inspect once more, and read all changes again from the first on
//! ```

mod indexes;
mod inspect;
mod model;
mod repeat;
mod worker;
mod write;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow, ensure};
use clap::{Args, value_parser};
use harness::http::Connection;
use harness::{Server, Tally};

use crate::exchange::ExchangeError;
use crate::model::Violation;
use crate::random::Random;
use crate::requests::read_changes;
use crate::scratch::Scratch;
use crate::tenants::{self, Tenants};
use inspect::{Findings, Inspection, TenantState};
use model::Model;
use repeat::Repeatable;
use worker::{Round, Worked, Worker, tenant};

const ROUNDS: u64 = 60;

const CLIENTS: usize = 8;
/// Of the transactions that were answered so many are sent again in later rounds.
const REPEATABLE_MAX: usize = 400;
const REPORT_EVERY: u64 = 20;
/// What the tenant is called when nobody is asked for a key.
const ONLY_TENANT: &str = "default";

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

struct World {
    tenants: Tenants,
    states: Vec<TenantState>,
    repeatable: Vec<Repeatable>,
    next_write: AtomicU64,
    random: Random,
    totals: Totals,
}

#[derive(Default)]
struct Totals {
    requests: u64,
    done: u64,
    refused: u64,
    unanswered: u64,
    repeated: u64,
    findings: Findings,
}

/// All of it is one test.
pub fn run(options: &Options) -> anyhow::Result<Tally> {
    let Options { rounds, seed, partitions } = *options;
    let seed = seed.unwrap_or_else(Random::fresh_seed);
    println!("{rounds} rounds of kill -9 with documents: --partitions {partitions} --seed {seed}");
    let scratch = Scratch::new("crash-documents", partitions)?;
    if let Err(error) = run_rounds(rounds, seed, &scratch) {
        scratch.print_end_of_log();
        return Err(error.context(scratch.advice(seed)));
    }
    scratch.remove().map(Tally::one)
}

fn run_rounds(rounds: u64, seed: u64, scratch: &Scratch) -> anyhow::Result<()> {
    let start = Instant::now();
    let mut world =
        World::new(tenants::create_as(scratch, &["user", "operator"])?, Random::new(seed));
    for round in 1..=rounds {
        world.round(round, scratch).with_context(|| format!("round {round}"))?;
        if round % REPORT_EVERY == 0 || round == rounds {
            println!("round {round}, {:.1} s: {}", start.elapsed().as_secs_f64(), world.totals);
        }
    }
    world.inspect_everything(scratch).context("after the last round")
}

impl World {
    fn new(tenants: Tenants, random: Random) -> World {
        let states = tenants.iter().enumerate().map(|(number, tenant)| TenantState {
            number,
            name: tenant.name.clone().unwrap_or_else(|| ONLY_TENANT.to_owned()),
            model: Model::default(),
            seen: Vec::new(),
            shown: Vec::new(),
            indexes: indexes::Declared::default(),
        });
        World {
            states: states.collect(),
            tenants,
            repeatable: Vec::new(),
            next_write: AtomicU64::new(0),
            random,
            totals: Totals::default(),
        }
    }

    fn round(&mut self, round: u64, scratch: &Scratch) -> anyhow::Result<()> {
        let server = scratch.start_server(&[])?;
        self.inspect(server.address).map_err(|violation| anyhow!(violation))?;
        self.load_and_kill(server, round)
    }

    /// What the last round has left, of all tenants.
    fn inspect(&mut self, address: SocketAddr) -> Result<(), Violation> {
        let failed = ExchangeError::into_violation;
        let mut connection = Connection::open(address).map_err(|error| failed(error.into()))?;
        for (tenant, state) in self.tenants.iter().zip(&mut self.states) {
            let mut inspection = Inspection {
                connection: &mut connection,
                tenant,
                random: &mut self.random,
                findings: &mut self.totals.findings,
            };
            let repeatable: Vec<Repeatable> = self
                .repeatable
                .iter()
                .filter(|known| known.write.tenant == state.number)
                .cloned()
                .collect();
            let inspected = inspection.inspect(state, &repeatable);
            inspected.map_err(|error| format!("{}: {}", state.name, failed(error)))?;
        }
        let ended = std::mem::take(&mut self.totals.findings.repeatable);
        self.remember(ended);
        Ok(())
    }

    /// Some of what was answered is asked again later, the older the less likely.
    fn remember(&mut self, ended: impl IntoIterator<Item = Repeatable>) {
        for known in ended {
            if self.repeatable.len() < REPEATABLE_MAX {
                self.repeatable.push(known);
            } else if self.random.one_in(10) {
                let at = self.random.between(0, REPEATABLE_MAX as u64) as usize;
                self.repeatable.splice(at..=at, [known]);
            }
        }
    }

    fn load_and_kill(&mut self, mut server: Server, round: u64) -> anyhow::Result<()> {
        let random = self.random.branch(round);
        let pause = Duration::from_millis(self.random.between(30, 250));
        let killed = AtomicBool::new(false);
        let own = self.own_documents();
        let shared = Round {
            address: server.address,
            tenants: &self.tenants,
            next_write: &self.next_write,
            repeatable: &self.repeatable,
            killed: &killed,
        };
        let mut workers = Vec::new();
        for client in 0..CLIENTS {
            let random = random.branch(1 + client as u64);
            workers.push(Worker::connect(client, &shared, random, own.clone())?);
        }
        let states = &mut self.states;
        let mut own_random = random.branch(0);
        let (worked, exit) = std::thread::scope(|scope| {
            let threads: Vec<_> =
                workers.into_iter().map(|worker| scope.spawn(|| worker.run())).collect();
            let watching = scope.spawn(|| watch(&shared, states, &mut own_random));
            std::thread::sleep(pause);
            let exit = server.exit_status()?.map(|status| (status, server.log_text()));
            killed.store(true, Ordering::SeqCst);
            server.kill()?;
            let mut worked = Vec::new();
            for thread in threads {
                let one = thread.join().map_err(|_| anyhow!("a connection's thread failed"))?;
                worked.push(one.map_err(|violation| anyhow!(violation))?);
            }
            let watched = watching.join().map_err(|_| anyhow!("the reader's thread failed"))?;
            watched.map_err(|violation| anyhow!(violation))?;
            anyhow::Ok((worked, exit))
        })?;
        if let Some((status, log)) = exit {
            return Err(anyhow!("the server ended ({status}): {log}"));
        }
        for worked in worked {
            self.take_in(worked);
        }
        Ok(())
    }

    /// Which of the documents that one client alone writes are there.
    fn own_documents(&self) -> HashMap<(usize, String), bool> {
        let states = self.states.iter();
        let own = states.flat_map(|state| {
            let live = state.model.collection(write::OWN).filter(|it| !model::is_tombstone(it));
            let ids = live.filter_map(|it| it.get("id")?.as_str());
            ids.map(|id| ((state.number, format!("{}/{id}", write::OWN)), true))
        });
        own.collect()
    }

    fn take_in(&mut self, worked: Worked) {
        let Worked { sent, shown, repeated } = worked;
        self.totals.repeated += repeated;
        let ended: Vec<Repeatable> = sent.iter().filter_map(Repeatable::of).collect();
        self.remember(ended);
        for sent in sent {
            self.totals.count(&sent);
            if let Some(state) = self.states.get_mut(sent.write.tenant) {
                state.model.pending.insert(sent.write.id, sent);
            }
        }
        for (tenant, shown) in shown {
            if let Some(state) = self.states.get_mut(tenant) {
                state.shown.push(shown);
            }
        }
    }

    /// Ends the world: all of it, and the changes from the first on.
    fn inspect_everything(&mut self, scratch: &Scratch) -> anyhow::Result<()> {
        let server = scratch.start_server(&[])?;
        let mut connection = server.connect()?;
        self.inspect(server.address).map_err(|violation| anyhow!(violation))?;
        let mut changes = 0;
        for (tenant, state) in self.tenants.iter().zip(&self.states) {
            let mut inspection = Inspection {
                connection: &mut connection,
                tenant,
                random: &mut self.random,
                findings: &mut self.totals.findings,
            };
            let read = inspection.read_again(state).and_then(|read| {
                inspection.wait_for_indexes(state)?;
                inspection.check_queries(&state.model)?;
                Ok(read)
            });
            changes +=
                read.map_err(|error| anyhow!("{}: {}", state.name, error.into_violation()))?;
        }
        server.kill()?;
        println!("{changes} changes read again: nothing lost, torn or repeated; {}", self.totals);
        // A run that never met what it is about shows nothing.
        let Totals { done, findings, .. } = &self.totals;
        ensure!(*done > 0 && changes > 0, "nothing was done before the kills");
        ensure!(findings.from_indexes > 0, "no query was answered from an index");
        Ok(())
    }
}

/// One connection that reads the changes as they come, and another that declares indexes.
fn watch(
    round: &Round<'_>,
    states: &mut [TenantState],
    random: &mut Random,
) -> Result<(), Violation> {
    let watched = watch_until_killed(round, states, random);
    match watched {
        Err(ExchangeError::Disconnected(_)) if round.killed.load(Ordering::SeqCst) => Ok(()),
        Err(error) => Err(error.into_violation()),
        Ok(()) => Ok(()),
    }
}

fn watch_until_killed(
    round: &Round<'_>,
    states: &mut [TenantState],
    random: &mut Random,
) -> Result<(), ExchangeError> {
    let mut connection = Connection::open(round.address)?;
    let mut offsets: Vec<String> = states
        .iter()
        .map(|state| state.model.next_offset.clone().unwrap_or_else(|| "-1".to_owned()))
        .collect();
    loop {
        for (state, offset) in states.iter_mut().zip(&mut offsets) {
            let tenant = tenant(round.tenants, state.number)?;
            if random.one_in(8) {
                state.indexes.change(&mut connection, tenant, &state.name, random)?;
            }
            let (changes, next) = read_changes(&mut connection, tenant, &state.name, offset)?;
            state.seen.extend(changes);
            *offset = next;
        }
    }
}

impl Totals {
    fn count(&mut self, sent: &model::Sent) {
        self.requests += 1;
        match &sent.answer {
            Some(model::Answer::Done(_)) => self.done += 1,
            Some(_) => self.refused += 1,
            None => self.unanswered += 1,
        }
    }
}

impl std::fmt::Display for Totals {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Totals { requests, done, refused, unanswered, repeated, findings } = self;
        let Findings { found, done_now, from_indexes, .. } = findings;
        write!(f, "{requests} requests, {done} done, {refused} refused, {unanswered} cut off")?;
        write!(
            f,
            " ({found} were there, {done_now} were done when sent again); {repeated} repetitions"
        )?;
        write!(f, ", {from_indexes} pages from indexes")
    }
}
