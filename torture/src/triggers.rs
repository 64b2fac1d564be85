//! Triggers and `kill -9`: whatever a trigger was for is delivered, in order, and nothing that came
//! after its end.
//!
//! ```text
//! once          with more than one partition: a key for each of the tenants
//!               of every tenant: a secret, and three triggers for one collection: one for all of
//!               its changes, one with a condition, one that operators disable and enable
//! every round   start on the same data directory, with an endpoint that often fails or hangs up; for
//!               the last trigger it fails always, in the first third of the rounds
//!               read the changes that are new: each is one of the writes, and says which
//!               4 connections write and delete documents of their own; one disables, enables,
//!               changes, rolls back, and has dead letters made again; for 30 to 200 ms
//!               kill -9
//! at the end    an endpoint that accepts; dead letters are made again until there are none
//!               every change was delivered to whom it was for when it was decided, and to nobody
//!               else; those of a document for the first time in their order; a repetition under the
//!               same key; the audit log hangs together, with a row for whatever was answered
//! ```

mod check;
mod endpoint;
mod operator;
mod writer;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow, bail, ensure};
use clap::{Args, value_parser};
use harness::http::Connection;
use harness::{Server, Tally};
use serde_json::{Value, json};

use crate::random::Random;
use crate::requests::{ask, object};
use crate::scratch::Scratch;
use crate::tenants::{self, Tenant, Tenants};
use endpoint::Endpoint;
use operator::{Operator, STOPPED};
use writer::{Ledger, SentWrite, WRITERS, Writer};

const ROUNDS: u64 = 40;

const REPORT_EVERY: u64 = 10;
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

/// What is known of one tenant: its changes, and what operators did to its triggers.
struct TenantState {
    name: String,
    ledger: Ledger,
    operator: Operator,
}

struct World {
    tenants: Tenants,
    states: Vec<TenantState>,
    random: Random,
}

/// All of it is one test.
pub fn run(options: &Options) -> anyhow::Result<Tally> {
    let Options { rounds, seed, partitions } = *options;
    let seed = seed.unwrap_or_else(Random::fresh_seed);
    println!("{rounds} rounds of kill -9 with triggers: --partitions {partitions} --seed {seed}");
    let scratch = Scratch::new("crash-triggers", partitions)?;
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
    let mut world = World::new(tenants::create_as(scratch, &["user", "operator"])?, random);
    let server = start_server(scratch)?;
    world.create_triggers(server.address, &endpoint)?;
    server.kill()?;
    for round in 1..=rounds {
        endpoint.refuse(Some(STOPPED).filter(|_| round <= rounds / 3));
        world.round(round, scratch).with_context(|| format!("round {round}"))?;
        if round % REPORT_EVERY == 0 || round == rounds {
            let (changes, seconds) = (world.changes(), start.elapsed().as_secs_f64());
            let requests = endpoint.requests();
            println!(
                "round {round}, {seconds:.1} s: {changes} changes, {requests} deliveries seen"
            );
        }
    }
    endpoint.accept_everything();
    let server = start_server(scratch)?;
    world.settle(server.address)?;
    world.check(server.address, &endpoint, rounds)?;
    server.kill()
}

fn start_server(scratch: &Scratch) -> anyhow::Result<Server> {
    scratch.start_server(&["--retry-scale", "0.02"])
}

impl World {
    fn new(tenants: Tenants, random: Random) -> World {
        let states = tenants.iter().map(|tenant| TenantState {
            name: tenant.name.clone().unwrap_or_else(|| ONLY_TENANT.to_owned()),
            ledger: Ledger::default(),
            operator: Operator::default(),
        });
        World { states: states.collect(), tenants, random }
    }

    fn create_triggers(&mut self, address: SocketAddr, endpoint: &Endpoint) -> anyhow::Result<()> {
        let mut connection = Connection::open(address)?;
        for (tenant, state) in self.tenants.iter().zip(&mut self.states) {
            let secret = "/admin/v1/tenants/~/secrets/default";
            expect(&mut connection, tenant, "POST", secret, Some(&json!({})), 201)?;
            state.operator.create(address, tenant, endpoint.address)?;
        }
        Ok(())
    }

    fn changes(&self) -> usize {
        self.states.iter().map(|state| state.ledger.changes.len()).sum()
    }

    fn round(&mut self, round: u64, scratch: &Scratch) -> anyhow::Result<()> {
        let server = start_server(scratch)?;
        self.inspect(server.address)?;
        self.load_and_kill(server, round)
    }

    /// What the last round has left.
    fn inspect(&mut self, address: SocketAddr) -> anyhow::Result<()> {
        let mut connection = Connection::open(address)?;
        for (tenant, state) in self.tenants.iter().zip(&mut self.states) {
            let TenantState { name, ledger, operator } = state;
            ledger.follow(&mut connection, tenant, name).with_context(|| name.clone())?;
            operator.find_out(&mut connection, tenant).with_context(|| name.clone())?;
        }
        Ok(())
    }

    fn load_and_kill(&mut self, mut server: Server, round: u64) -> anyhow::Result<()> {
        let address = server.address;
        let random = self.random.branch(round);
        let pause = Duration::from_millis(self.random.between(30, 200));
        let mut writers = Vec::new();
        for number in 0..WRITERS {
            let present = self.states.iter().map(|state| state.ledger.present()).collect();
            writers.push(Writer { number, random: random.branch(1 + number), present });
        }
        let (tenants, states) = (&self.tenants, &mut self.states);
        let mut own = random.branch(0);
        let sent = std::thread::scope(|scope| {
            let threads: Vec<_> = writers
                .into_iter()
                .map(|writer| scope.spawn(move || writer.run(address, tenants)))
                .collect();
            let operating = scope.spawn(move || {
                let operators: Vec<&mut Operator> =
                    states.iter_mut().map(|state| &mut state.operator).collect();
                operator::run(address, tenants, operators, &mut own)
            });
            std::thread::sleep(pause);
            if let Some(status) = server.exit_status()? {
                bail!("the server ended ({status}): {}", server.log_text());
            }
            server.kill()?;
            let mut sent: Vec<SentWrite> = Vec::new();
            for thread in threads {
                sent.extend(thread.join().map_err(|_| anyhow!("a writer's thread failed"))??);
            }
            operating.join().map_err(|_| anyhow!("the operator's thread failed"))??;
            Ok(sent)
        })?;
        // Whatever has no answer was decided before this, or never.
        let killed = Instant::now();
        for write in sent {
            if let Some(state) = self.states.get_mut(write.tenant) {
                state.ledger.sent(write, killed);
            }
        }
        self.states.iter_mut().for_each(|state| state.operator.killed(killed));
        Ok(())
    }
}

/// An answer of this status, in JSON if it is any.
fn expect(
    connection: &mut Connection,
    tenant: &Tenant,
    method: &'static str,
    target: &str,
    body: Option<&Value>,
    status: u16,
) -> anyhow::Result<Value> {
    let body = body.map(Value::to_string);
    let answer = ask(connection, tenant, method, target, body.as_deref())?;
    ensure!(answer.status == status, "{method} {target}: {} {}", answer.status, answer.text());
    Ok(object(&answer).map(Value::Object).unwrap_or_default())
}
