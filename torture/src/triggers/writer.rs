//! Writers, each with documents of its own, and what the changes say that came of their writes.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use harness::http::Connection;
use serde_json::{Value, json};

use crate::random::Random;
use crate::requests::{ask, read_changes};
use crate::tenants::{Tenant, Tenants};

pub(super) const WRITERS: u64 = 4;
/// Documents of each writer; so few that many changes are of one.
const DOCUMENTS: u64 = 3;
/// What triggers are for, and a collection that none is for.
pub(super) const WATCHED: &str = "things";
const OTHERS: &str = "others";

/// A write that was sent.
#[derive(Debug, Clone)]
pub(super) struct SentWrite {
    /// Its place in the list of tenants.
    pub(super) tenant: usize,
    path: String,
    /// What was put, which no other write puts; `None` for a deletion.
    mark: Option<String>,
    begun: Instant,
    /// When it was done; `None` if that is not known.
    answered: Option<Instant>,
}

/// A change, and when it may have been decided.
#[derive(Debug, Clone)]
pub(super) struct KnownChange {
    pub(super) seq: u64,
    pub(super) kind: String,
    pub(super) path: String,
    pub(super) before: Option<Value>,
    pub(super) after: Option<Value>,
    pub(super) begun: Instant,
    pub(super) ended: Instant,
}

/// What was written for one tenant, and what there is of it.
#[derive(Default)]
pub(super) struct Ledger {
    pub(super) changes: Vec<KnownChange>,
    /// Where the changes that are known end.
    offset: Option<String>,
    /// By path, in their order, with when it must have been decided.
    pending: BTreeMap<String, VecDeque<(SentWrite, Instant)>>,
}

impl Ledger {
    pub(super) fn sent(&mut self, write: SentWrite, killed: Instant) {
        let ended = write.answered.unwrap_or(killed);
        self.pending.entry(write.path.clone()).or_default().push_back((write, ended));
    }

    /// The documents that there are.
    pub(super) fn present(&self) -> BTreeSet<String> {
        let mut present = BTreeSet::new();
        for change in &self.changes {
            match change.after {
                Some(_) => present.insert(change.path.clone()),
                None => present.remove(&change.path),
            };
        }
        present
    }

    /// Reads the changes that are new: each is a write, and whatever was answered is one.
    pub(super) fn follow(
        &mut self,
        connection: &mut Connection,
        tenant: &Tenant,
        name: &str,
    ) -> anyhow::Result<()> {
        let from = self.offset.as_deref().unwrap_or("-1");
        let read = read_changes(connection, tenant, name, from);
        let (changes, next) = read.map_err(|error| anyhow::anyhow!(error.into_violation()))?;
        self.offset = Some(next);
        for text in changes {
            let change = serde_json::from_str(&text)?;
            let known = self.write_of(&change).with_context(|| text.clone())?;
            ensure!(
                known.seq == self.changes.len() as u64 + 1,
                "a change has another number: {text}"
            );
            self.changes.push(known);
        }
        for (write, _) in std::mem::take(&mut self.pending).into_values().flatten() {
            ensure!(write.answered.is_none(), "what was answered is not there: {write:?}");
        }
        Ok(())
    }

    /// The write that a change is: the next of its path, but for those that may not have been done.
    fn write_of(&mut self, change: &Value) -> anyhow::Result<KnownChange> {
        let word = |name: &str| change.get(name).and_then(Value::as_str).map(str::to_owned);
        let image = |name: &str| change.get(name).filter(|image| !image.is_null()).cloned();
        let path = word("path").context("a change without a path")?;
        let (before, after) = (image("before"), image("after"));
        let mark = after.as_ref().and_then(|after| after.get("mark")?.as_str());
        let pending = self.pending.get_mut(&path).context("nobody has written there")?;
        while let Some((write, ended)) = pending.pop_front() {
            if write.mark.as_deref() == mark {
                return Ok(KnownChange {
                    seq: change.get("seq").and_then(Value::as_u64).context("without a number")?,
                    kind: word("type").context("without a type")?,
                    path,
                    before,
                    after,
                    begun: write.begun,
                    ended,
                });
            }
            ensure!(write.answered.is_none(), "{write:?} was answered, and left out");
        }
        bail!("nobody has written that")
    }
}

/// One connection.
pub(super) struct Writer {
    pub(super) number: u64,
    pub(super) random: Random,
    /// Of each tenant, the documents that there are.
    pub(super) present: Vec<BTreeSet<String>>,
}

impl Writer {
    /// Writes until the server is killed.
    pub(super) fn run(
        mut self,
        address: SocketAddr,
        tenants: &Tenants,
    ) -> anyhow::Result<Vec<SentWrite>> {
        let mut sent = Vec::new();
        let Ok(mut connection) = Connection::open(address) else { return Ok(sent) };
        loop {
            let number = self.random.between(0, tenants.len() as u64);
            let number = usize::try_from(number)?;
            let (tenant, _) = tenants.turn(number);
            let mut write = self.next_write(number);
            let target = format!("/api/v1/{}", write.path);
            let body = write.mark.as_ref().map(|mark| {
                let n = self.random.between(0, 30);
                json!({ "doc": { "mark": mark, "n": n } }).to_string()
            });
            let method = if body.is_some() { "PUT" } else { "DELETE" };
            let answer = ask(&mut connection, &tenant, method, &target, body.as_deref());
            let done = match answer {
                Ok(answer) if matches!(answer.status, 200 | 201 | 204) => true,
                Ok(answer) if matches!(answer.status, 408 | 429 | 503) => false,
                Ok(answer) => bail!("{method} {target}: {} {}", answer.status, answer.text()),
                Err(_) => {
                    sent.push(write);
                    return Ok(sent);
                }
            };
            if done {
                write.answered = Some(Instant::now());
                let present = self.present.get_mut(number).context("a tenant")?;
                match write.mark {
                    Some(_) => present.insert(write.path.clone()),
                    None => present.remove(&write.path),
                };
            }
            sent.push(write);
            std::thread::sleep(Duration::from_millis(self.random.between(0, 5)));
        }
    }

    fn next_write(&mut self, tenant: usize) -> SentWrite {
        let random = &mut self.random;
        let collection = if random.one_in(8) { OTHERS } else { WATCHED };
        let path = format!("{collection}/w{}-{}", self.number, random.between(0, DOCUMENTS));
        let is_there = self.present.get(tenant).is_some_and(|present| present.contains(&path));
        let deletes = is_there && random.one_in(6);
        let mark = (!deletes).then(|| format!("{:016x}", random.next()));
        SentWrite { tenant, path, mark, begun: Instant::now(), answered: None }
    }
}
