//! The end: everything is delivered, and what came is held against what was owed.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use harness::http::Connection;
use serde_json::Value;

use super::endpoint::{Arrival, Endpoint};
use super::operator::Watched;
use super::writer::KnownChange;
use super::{TenantState, World, expect};
use crate::tenants::Tenant;

const SETTLE_MAX: Duration = Duration::from_secs(180);
/// Fewer rounds may never meet everything that a run is about.
const ROUNDS_FOR_ALL: u64 = 20;

/// What a run has met.
#[derive(Default)]
struct Findings {
    owed: usize,
    /// Which of two versions was in force when they were decided is not known.
    unsure: usize,
    left_out: usize,
    replayed: usize,
    repeated: usize,
}

/// The first delivery of a document's change, until that of the next.
struct Head<'a> {
    seq: u64,
    delivery: &'a str,
    is_accepted: bool,
}

impl World {
    /// Waits until nothing is owed any more.
    pub(super) fn settle(&mut self, address: SocketAddr) -> anyhow::Result<()> {
        self.inspect(address)?;
        let mut connection = Connection::open(address)?;
        for (tenant, state) in self.tenants.iter().zip(&mut self.states) {
            state.operator.enable_all(&mut connection, tenant)?;
        }
        let until = Instant::now() + SETTLE_MAX;
        loop {
            let mut open = None;
            for (tenant, state) in self.tenants.iter().zip(&mut self.states) {
                open = state.operator.unfinished(&mut connection, tenant)?.or(open);
            }
            let Some(open) = open else { return Ok(()) };
            ensure!(Instant::now() < until, "after {SETTLE_MAX:?} {open}");
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Holds everything that came against what was owed.
    pub(super) fn check(
        &self,
        address: SocketAddr,
        endpoint: &Endpoint,
        rounds: u64,
    ) -> anyhow::Result<()> {
        let mut connection = Connection::open(address)?;
        let (arrivals, mut findings) = (endpoint.arrivals(), Findings::default());
        for (tenant, state) in self.tenants.iter().zip(&self.states) {
            let letters = letters(&mut connection, tenant)?;
            for trigger in &state.operator.triggers {
                let own = arrivals.iter().filter(|it| {
                    it.text("tenant") == state.name && it.text("triggerId") == trigger.id
                });
                let own: Vec<&Arrival> = own.collect();
                let about = || format!("{} of {}", trigger.id, state.name);
                check_owed(state, trigger, &own, &mut findings).with_context(about)?;
                check_order(&own, &letters).with_context(about)?;
            }
            check_audit(&mut connection, tenant, state).with_context(|| state.name.clone())?;
        }
        let Findings { owed, unsure, left_out, replayed, repeated } = findings;
        println!(
            "{owed} deliveries owed and made, {left_out} changes left out, {unsure} at the moment \
             of a change; {replayed} replayed, {repeated} repeated"
        );
        let has_met_all = owed > 0 && left_out > 0 && replayed > 0 && repeated > 0;
        ensure!(rounds < ROUNDS_FOR_ALL || has_met_all, "a run that has not met all of it");
        Ok(())
    }
}

/// Every change has come to whom it was for, as it was, and to nobody else.
fn check_owed(
    state: &TenantState,
    trigger: &Watched,
    arrivals: &[&Arrival],
    findings: &mut Findings,
) -> anyhow::Result<()> {
    let mut by_seq: BTreeMap<u64, Vec<&Arrival>> = BTreeMap::new();
    for arrival in arrivals {
        by_seq.entry(arrival.number("seq")).or_default().push(arrival);
    }
    for change in &state.ledger.changes {
        let (versions, is_certain) = trigger.versions_for(change);
        let came = by_seq.remove(&change.seq).unwrap_or_default();
        let is_made = came.iter().any(|it| it.is_accepted);
        ensure!(is_made || !is_certain || versions.is_empty(), "{change:?} was never delivered");
        match (is_certain, is_made) {
            (true, true) => findings.owed += 1,
            (false, _) if !versions.is_empty() => findings.unsure += 1,
            _ => findings.left_out += 1,
        }
        findings.repeated += came.len().saturating_sub(1);
        let mut deliveries = BTreeSet::new();
        for arrival in came {
            let version = arrival.number("triggerVersion");
            // What is replayed follows the trigger as it is then.
            let is_replayed = arrival.replay.is_some() && !versions.is_empty();
            ensure!(
                is_replayed || versions.contains(&version),
                "{change:?} came by version {version}, and those in force were {versions:?}"
            );
            check_words(state, trigger, change, arrival)?;
            match &arrival.replay {
                Some(_) => findings.replayed += 1,
                None => drop(deliveries.insert(arrival.delivery.as_str())),
            }
        }
        ensure!(deliveries.len() <= 1, "{change:?} came as {deliveries:?}");
    }
    ensure!(by_seq.is_empty(), "of no change there is: {:?}", by_seq.keys());
    Ok(())
}

/// A delivery says what has changed, and has the key that all of this change have.
fn check_words(
    state: &TenantState,
    trigger: &Watched,
    change: &KnownChange,
    arrival: &Arrival,
) -> anyhow::Result<()> {
    let key = format!("{}:{}:{}", state.name, trigger.id, change.seq);
    ensure!(arrival.key == key, "{change:?} came under {:?}", arrival.key);
    ensure!(arrival.is_signed, "{change:?} came unsigned");
    let is_same = arrival.body.get("before") == change.before.as_ref()
        && arrival.body.get("after") == change.after.as_ref()
        && arrival.text("event") == change.kind
        && arrival.text("path") == change.path;
    ensure!(is_same, "{change:?} came as {}", arrival.body);
    Ok(())
}

/// Of a document nothing comes for the first time before what was first is accepted or given up.
fn check_order(arrivals: &[&Arrival], letters: &BTreeSet<String>) -> anyhow::Result<()> {
    let mut heads: BTreeMap<&str, Head<'_>> = BTreeMap::new();
    let mut seen = BTreeSet::new();
    for arrival in arrivals.iter().filter(|it| it.replay.is_none()) {
        let (seq, path) = (arrival.number("seq"), arrival.text("path"));
        let is_first = seen.insert(seq);
        let next = Head { seq, delivery: &arrival.delivery, is_accepted: arrival.is_accepted };
        match heads.get_mut(path) {
            Some(head) if seq == head.seq => head.is_accepted |= arrival.is_accepted,
            Some(head) if is_first => {
                ensure!(seq > head.seq, "{path}: {seq} came after {}", head.seq);
                let is_over = head.is_accepted || letters.contains(head.delivery);
                ensure!(is_over, "{path}: {seq} came while {} was not done", head.seq);
                *head = next;
            }
            // Of a server that was killed, and read late.
            Some(_) => {}
            None => drop(heads.insert(path, next)),
        }
    }
    Ok(())
}

/// Deliveries that were dead letters; all have been made again.
fn letters(connection: &mut Connection, tenant: &Tenant) -> anyhow::Result<BTreeSet<String>> {
    let (mut letters, mut after) = (BTreeSet::new(), String::new());
    loop {
        let target = format!("/admin/v1/dlq?state=replayed&limit=1000{after}");
        let page = expect(connection, tenant, "GET", &target, None, 200)?;
        let list = page.get("deadLetters").and_then(Value::as_array).context("no letters")?;
        letters.extend(list.iter().filter_map(|it| Some(it.get("dlqId")?.as_str()?.to_owned())));
        let Some(next) = page.get("next").and_then(Value::as_str) else { return Ok(letters) };
        after = format!("&after={next}");
    }
}

/// The log of who changed what is whole, and has a row for whatever was answered.
fn check_audit(
    connection: &mut Connection,
    tenant: &Tenant,
    state: &TenantState,
) -> anyhow::Result<()> {
    let verified = expect(connection, tenant, "GET", "/admin/v1/audit/verify", None, 200)?;
    ensure!(verified.get("ok") == Some(&Value::Bool(true)), "the audit log is broken: {verified}");
    for (action, answered) in &state.operator.answered {
        let (mut rows, mut after) = (0, String::new());
        loop {
            let target = format!("/admin/v1/audit?action={action}&limit=1000{after}");
            let page = expect(connection, tenant, "GET", &target, None, 200)?;
            rows += page.get("audit").and_then(Value::as_array).context("no rows")?.len() as u64;
            let Some(next) = page.get("next").and_then(Value::as_str) else { break };
            after = format!("&after={next}");
        }
        ensure!(rows >= *answered, "{rows} rows of {action}, and {answered} were answered");
    }
    Ok(())
}
