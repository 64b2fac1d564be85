//! Facts and `kill -9`: whoever lost their access is sent nothing more, whatever crashes, and everybody
//! else is sent everything.
//!
//! ```text
//! once          an admin, a garden
//! every round   start on the same data directory, with an endpoint that fails and hangs
//!               somebody new gets a key, a token and a membership, and subscribes
//!               3 connections say facts, in the garden and outside; one takes access away: a token,
//!               a key or a membership; for 30 to 200 ms
//!               kill -9
//! at the end    an endpoint that accepts; everybody who may is sent everything that was answered
//!               what was said after an answered revocation has reached nobody whom it was for, and
//!               no server that was started after it has sent them anything
//!               whoever lost their access knows why
//! ```

mod endpoint;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow, bail, ensure};
use clap::Args;
use harness::http::{Connection, Request, Response};
use harness::{Server, Tally};
use serde_json::{Value, json};

use crate::random::Random;
use crate::scratch::Scratch;
use endpoint::{Arrival, Endpoint};

const ROUNDS: u64 = 60;

const WRITERS: u64 = 3;
const ADMIN_KEY: &str = "an-admin-key-for-this-run-alone";
const SETTLE_MAX: Duration = Duration::from_secs(120);
const REPORT_EVERY: u64 = 20;
/// What is said in the garden, and outside, begins with these.
const INSIDE: &str = "inside-";
const OUTSIDE: &str = "outside-";

#[derive(Debug, Clone, PartialEq, Eq, Args)]
#[command(args_override_self = true)]
pub struct Options {
    /// How often the server is killed
    #[arg(long, value_name = "N", default_value_t = ROUNDS)]
    pub rounds: u64,
    /// Repeats the choices of an earlier run
    #[arg(long, value_name = "S")]
    pub seed: Option<u64>,
}

impl Default for Options {
    fn default() -> Options {
        Options { rounds: ROUNDS, seed: None }
    }
}

/// Somebody who is subscribed to the team's scope and belongs to the garden.
struct Person {
    name: String,
    key: String,
    key_id: String,
    token: String,
    subscription: String,
    /// How many facts were said before they were subscribed.
    since: u64,
    end: Option<End>,
}

/// How somebody's access was taken away.
#[derive(Clone)]
struct End {
    how: Loss,
    round: u64,
    /// When that was answered; `None` if the server was killed before.
    answered: Option<Instant>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Loss {
    Token,
    Key,
    Membership,
}

/// A fact that was acknowledged.
struct Said {
    number: u64,
    mark: String,
    begun: Instant,
}

struct World {
    admin: String,
    people: Vec<Person>,
    said: Vec<Said>,
    next: AtomicU64,
    random: Random,
}

/// All of it is one test.
pub fn run(options: &Options) -> anyhow::Result<Tally> {
    let Options { rounds, seed } = *options;
    let seed = seed.unwrap_or_else(Random::fresh_seed);
    println!("{rounds} rounds of kill -9 with facts: --seed {seed}");
    let scratch = Scratch::new("crash-facts", 1)?;
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
    let server = start_server(scratch)?;
    let mut world = World {
        admin: create_admin(server.address)?,
        people: Vec::new(),
        said: Vec::new(),
        next: AtomicU64::new(0),
        random,
    };
    server.kill()?;
    for round in 1..=rounds {
        endpoint.begin_round(round);
        world.round(round, scratch, &endpoint).with_context(|| format!("round {round}"))?;
        world.check_nothing_leaked(&endpoint).with_context(|| format!("after round {round}"))?;
        if round % REPORT_EVERY == 0 || round == rounds {
            let (facts, arrivals) = (world.said.len(), endpoint.arrivals().len());
            let seconds = start.elapsed().as_secs_f64();
            println!("round {round}, {seconds:.1} s: {facts} facts said, {arrivals} arrived");
        }
    }
    endpoint.accept_everything();
    endpoint.begin_round(rounds + 1);
    let server = start_server(scratch)?;
    world.say_last_words(server.address)?;
    world.settle(&endpoint)?;
    world.check_nothing_leaked(&endpoint)?;
    world.check_everybody_knows(server.address)?;
    server.kill()
}

fn start_server(scratch: &Scratch) -> anyhow::Result<Server> {
    let keys = ["--auth", "keys", "--admin-key", ADMIN_KEY];
    scratch.start_server(&[&keys[..], &["--allow-http-loopback", "--retry-scale", "0.02"]].concat())
}

/// Makes the tenant's admin, and the garden.
fn create_admin(address: SocketAddr) -> anyhow::Result<String> {
    let mut connection = Connection::open(address)?;
    let body = json!({"tenant": "t", "roles": ["admin"], "entity_uri": "user:ada"});
    let made = post(&mut connection, ADMIN_KEY, "/admin/v1/keys", &body, 201)?;
    let admin = text(&made, "key")?;
    let garden = json!({"slug": "atlas", "name": "Atlas", "scope": "team"});
    post(&mut connection, &admin, "/v1/gardens", &garden, 201)?;
    Ok(admin)
}

impl World {
    fn round(&mut self, round: u64, scratch: &Scratch, endpoint: &Endpoint) -> anyhow::Result<()> {
        let mut server = start_server(scratch)?;
        let address = server.address;
        self.welcome(round, address, endpoint)?;
        let random = self.random.branch(round);
        let pause = Duration::from_millis(self.random.between(30, 200));
        let loses = (!self.random.one_in(4)).then(|| self.pick_somebody()).flatten();
        let how = *self.random.pick(&[Loss::Token, Loss::Key, Loss::Membership]).context("one")?;
        let said = Mutex::new(Vec::new());
        let ended = std::thread::scope(|scope| {
            for index in 0..WRITERS {
                let (mut own, said) = (random.branch(1 + index), &said);
                let (admin, next) = (self.admin.as_str(), &self.next);
                scope.spawn(move || say_until_killed(address, admin, next, &mut own, said));
            }
            let (admin, people) = (self.admin.as_str(), &self.people);
            let wait = Duration::from_millis(self.random.between(0, 60));
            let taking = scope.spawn(move || {
                std::thread::sleep(wait);
                let person = people.get(loses?)?;
                Some(take_away(address, admin, person, how))
            });
            std::thread::sleep(pause);
            if let Some(status) = server.exit_status()? {
                bail!("the server ended ({status}): {}", server.log_text());
            }
            server.kill()?;
            let answered = taking.join().map_err(|_| anyhow!("a thread failed"))?;
            Ok(answered.map(|answered| End { how, round, answered }))
        })?;
        if let (Some(place), Some(end)) = (loses, ended)
            && let Some(person) = self.people.get_mut(place)
        {
            person.end = Some(end);
        }
        self.said.extend(said.into_inner().unwrap_or_else(PoisonError::into_inner));
        Ok(())
    }

    /// Somebody new, who may read everything from now on.
    fn welcome(
        &mut self,
        round: u64,
        address: SocketAddr,
        endpoint: &Endpoint,
    ) -> anyhow::Result<()> {
        let mut connection = Connection::open(address)?;
        let (name, admin) = (format!("p{round}"), self.admin.clone());
        let entity = format!("user:{name}");
        let body = json!({
            "tenant": "t", "roles": ["user"], "entity_uri": entity, "scopes": ["team"],
        });
        let made = post(&mut connection, ADMIN_KEY, "/admin/v1/keys", &body, 201)?;
        let (key, key_id) = (text(&made, "key")?, text(&made, "id")?);
        let body = json!({
            "subject": entity, "verb": "subscribe", "object": "scope:team", "ttl_seconds": 86_400,
        });
        let tokens = "/v1/federation/capability-tokens";
        let token = text(&post(&mut connection, &admin, tokens, &body, 201)?, "token_id")?;
        let body = json!({"entity_uri": entity, "role": "reader"});
        post(&mut connection, &admin, "/v1/gardens/atlas/members", &body, 201)?;
        let url = format!("http://{}/{name}", endpoint.address);
        let body = json!({"target": "scope:team", "on_change": "webhook", "webhook_url": url});
        let made = post(&mut connection, &key, "/v1/subscriptions", &body, 201)?;
        let (subscription, since) = (text(&made, "id")?, self.next.load(Ordering::SeqCst));
        self.people.push(Person { name, key, key_id, token, subscription, since, end: None });
        Ok(())
    }

    fn pick_somebody(&mut self) -> Option<usize> {
        let whole = self.people.iter().enumerate().filter(|(_, person)| person.end.is_none());
        let places: Vec<usize> = whole.map(|(place, _)| place).collect();
        self.random.pick(&places).copied()
    }

    /// Something is said once more of everything, so that every subscription is looked at.
    fn say_last_words(&mut self, address: SocketAddr) -> anyhow::Result<()> {
        let mut connection = Connection::open(address)?;
        for place in [INSIDE, OUTSIDE] {
            let said = say(&mut connection, &self.admin, &self.next, place)?;
            self.said.push(said.context("a server that runs answers")?);
        }
        Ok(())
    }

    /// Everybody who never lost anything is sent everything that was said since they subscribed,
    /// each as one event.
    fn settle(&self, endpoint: &Endpoint) -> anyhow::Result<()> {
        let until = Instant::now() + SETTLE_MAX;
        loop {
            let arrivals = endpoint.arrivals();
            let mut ids: BTreeMap<(&str, &str), &str> = BTreeMap::new();
            for Arrival { person, mark, event, .. } in &arrivals {
                let known = ids.entry((person, mark)).or_insert(event);
                ensure!(*known == event, "{mark} came to {person} as {known} and as {event}");
            }
            let whole = self.people.iter().filter(|person| person.end.is_none());
            let missing = whole.flat_map(|person| {
                let owed = self.said.iter().filter(|said| said.number >= person.since);
                owed.map(move |said| (person.name.as_str(), said.mark.as_str()))
            });
            let Some(missing) = missing.into_iter().find(|pair| !ids.contains_key(pair)) else {
                let whole = self.people.iter().filter(|person| person.end.is_none()).count();
                println!("{whole} were sent everything, {} arrivals in all", arrivals.len());
                return Ok(());
            };
            ensure!(Instant::now() < until, "after {SETTLE_MAX:?} {missing:?} is missing");
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Nothing has reached anybody who had lost the right to it.
    fn check_nothing_leaked(&self, endpoint: &Endpoint) -> anyhow::Result<()> {
        let begun: BTreeMap<&str, Instant> =
            self.said.iter().map(|said| (said.mark.as_str(), said.begun)).collect();
        for Arrival { person, mark, round, .. } in endpoint.arrivals() {
            let known = self.people.iter().find(|it| it.name == person);
            let end = known.context("nobody of this name")?.end.as_ref();
            let Some((end, answered)) = end.and_then(|end| Some((end, end.answered?))) else {
                continue;
            };
            let is_lost = end.how != Loss::Membership || mark.starts_with(INSIDE);
            let is_later = round > end.round
                || begun.get(mark.as_str()).is_some_and(|begun| *begun > answered);
            ensure!(
                !(is_lost && is_later),
                "{mark} came to {person}, who lost their {:?}",
                end.how
            );
        }
        Ok(())
    }

    /// Whoever lost their access was cancelled, and may know it.
    fn check_everybody_knows(&self, address: SocketAddr) -> anyhow::Result<()> {
        let mut connection = Connection::open(address)?;
        let mut count = 0;
        for person in &self.people {
            let Some(End { how, answered: Some(_), .. }) = person.end else { continue };
            // Whoever's key was revoked cannot ask; an admin may.
            let key = if how == Loss::Key { &self.admin } else { &person.key };
            let target = format!("/v1/subscriptions/{}", person.subscription);
            let until = Instant::now() + SETTLE_MAX;
            loop {
                let shown = request(&mut connection, key, "GET", &target, None, 200)?;
                if shown.get("cancelled_at").is_some_and(|at| !at.is_null()) {
                    break;
                }
                ensure!(Instant::now() < until, "{} is never cancelled: {shown}", person.name);
                std::thread::sleep(Duration::from_millis(50));
            }
            count += 1;
        }
        println!("{count} lost their access, and were cancelled");
        Ok(())
    }
}

/// Says facts until the server is killed, and keeps those that were answered.
fn say_until_killed(
    address: SocketAddr,
    admin: &str,
    next: &AtomicU64,
    random: &mut Random,
    kept: &Mutex<Vec<Said>>,
) {
    let Ok(mut connection) = Connection::open(address) else { return };
    loop {
        let place = if random.one_in(2) { INSIDE } else { OUTSIDE };
        let Ok(Some(said)) = say(&mut connection, admin, next, place) else { return };
        kept.lock().unwrap_or_else(PoisonError::into_inner).push(said);
        std::thread::sleep(Duration::from_millis(random.between(1, 12)));
    }
}

/// Says a fact; `None` if it was not answered.
fn say(
    connection: &mut Connection,
    admin: &str,
    next: &AtomicU64,
    place: &str,
) -> anyhow::Result<Option<Said>> {
    let begun = Instant::now();
    let number = next.fetch_add(1, Ordering::SeqCst);
    let mark = format!("{place}{number}-");
    let mut body = json!({
        "entity": format!("e{}", number % 5),
        "relation": format!("r{number}"),
        "value": {"type": "string", "v": mark},
        "scope": "team",
    });
    if let (INSIDE, Some(body)) = (place, body.as_object_mut()) {
        body.insert("garden_id".into(), "atlas".into());
    }
    let body = body.to_string();
    match send(connection, admin, "POST", "/v1/facts", Some(&body)) {
        Ok(answer) if answer.status == 201 => Ok(Some(Said { number, mark, begun })),
        Ok(answer) if answer.status == 503 => Ok(None),
        Ok(answer) => bail!("a fact: {} {}", answer.status, answer.text()),
        Err(_) => Ok(None),
    }
}

/// Takes somebody's access away. Says when that was answered, if it was.
fn take_away(address: SocketAddr, admin: &str, person: &Person, how: Loss) -> Option<Instant> {
    let mut connection = Connection::open(address).ok()?;
    let (key, method, target, body) = match how {
        Loss::Token => {
            let target = format!("/v1/federation/capability-tokens/{}/revoke", person.token);
            (admin, "POST", target, Some("{\"reason\":\"torture\"}"))
        }
        Loss::Key => (ADMIN_KEY, "DELETE", format!("/admin/v1/keys/{}", person.key_id), None),
        Loss::Membership => {
            let target = format!("/v1/gardens/atlas/members/user:{}", person.name);
            (admin, "DELETE", target, None)
        }
    };
    let answer = send(&mut connection, key, method, &target, body).ok()?;
    assert!(matches!(answer.status, 200 | 204 | 503), "{how:?}: {}", answer.text());
    (answer.status != 503).then(Instant::now)
}

fn text(answer: &Value, field: &str) -> anyhow::Result<String> {
    let found = answer.get(field).and_then(Value::as_str);
    found.map(str::to_owned).with_context(|| format!("no {field} in {answer}"))
}

fn post(
    connection: &mut Connection,
    key: &str,
    target: &str,
    body: &Value,
    status: u16,
) -> anyhow::Result<Value> {
    request(connection, key, "POST", target, Some(&body.to_string()), status)
}

fn request(
    connection: &mut Connection,
    key: &str,
    method: &str,
    target: &str,
    body: Option<&str>,
    status: u16,
) -> anyhow::Result<Value> {
    let answer = send(connection, key, method, target, body)?;
    let told = answer.text();
    ensure!(answer.status == status, "{method} {target}: {} {told}", answer.status);
    Ok(serde_json::from_slice(&answer.body).unwrap_or_default())
}

fn send(
    connection: &mut Connection,
    key: &str,
    method: &str,
    target: &str,
    body: Option<&str>,
) -> std::io::Result<Response> {
    let authorization = format!("Bearer {key}");
    let json = ("content-type", "application/json");
    let headers = [("authorization", authorization.as_str()), json];
    let headers = headers.get(..if body.is_some() { 2 } else { 1 }).unwrap_or_default();
    let body = body.unwrap_or_default().as_bytes();
    connection.send(Request { method, target, headers, body })
}
