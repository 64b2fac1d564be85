//! The load: one connection that writes, reads and repeats, and notes what it was told, until the
//! server is killed under it.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use harness::http::{Connection, Request, Response};
use serde_json::{Value, json};

use super::model::{Answer, OpResult, Sent, Shown};
use super::repeat::{Repeatable, check_repeated};
use super::write::{COLLECTIONS, DocumentWrite, Fields, OWN, Op, OpKind, Sending, data};
use crate::exchange::ExchangeError;
use crate::model::Violation;
use crate::random::Random;
use crate::requests::{ask, object, unexpected};
use crate::tenants::{Tenant, Tenants};

/// Documents of its own that each client makes and deletes.
const OWN_DOCUMENTS: u64 = 3;

/// What all clients of a round have in common.
pub(super) struct Round<'a> {
    pub(super) address: SocketAddr,
    pub(super) tenants: &'a Tenants,
    pub(super) next_write: &'a AtomicU64,
    /// What was answered in earlier rounds.
    pub(super) repeatable: &'a [Repeatable],
    pub(super) killed: &'a AtomicBool,
}

/// What one client has done, by the time that its connection broke.
#[derive(Default)]
pub(super) struct Worked {
    pub(super) sent: Vec<Sent>,
    /// By tenant.
    pub(super) shown: Vec<(usize, Shown)>,
    pub(super) repeated: u64,
}

pub(super) struct Worker<'a> {
    client: usize,
    round: &'a Round<'a>,
    connection: Connection,
    random: Random,
    worked: Worked,
    /// Which of its own documents are there, by tenant and path: what it alone writes it knows.
    own: HashMap<(usize, String), bool>,
    /// The version that a document had at least, for this client has been told.
    versions: HashMap<(usize, String), u64>,
}

impl<'a> Worker<'a> {
    /// `own` is what the rounds before have left.
    pub(super) fn connect(
        client: usize,
        round: &'a Round<'a>,
        random: Random,
        own: HashMap<(usize, String), bool>,
    ) -> io::Result<Worker<'a>> {
        let connection = Connection::open(round.address)?;
        let (worked, versions) = Default::default();
        Ok(Worker { client, round, connection, random, worked, own, versions })
    }

    /// Works until the connection breaks, which it may only do once the server was killed.
    pub(super) fn run(mut self) -> Result<Worked, Violation> {
        loop {
            match self.act() {
                Ok(()) => {}
                Err(ExchangeError::Disconnected(_)) if self.round.killed.load(Ordering::SeqCst) => {
                    return Ok(self.worked);
                }
                Err(error) => return Err(error.into_violation()),
            }
        }
    }

    fn act(&mut self) -> Result<(), ExchangeError> {
        let id = self.round.next_write.fetch_add(1, Ordering::Relaxed);
        let number = usize::try_from(id).unwrap_or(usize::MAX);
        let tenant = number % self.round.tenants.len();
        match self.random.between(0, 100) {
            0..50 => {
                let ops = Op::several(id, &mut self.random);
                let mark = Op::mark(self.client, id, ops.len());
                // What one tenant calls its transaction the next one does as well.
                let key = format!("k{}", number / self.round.tenants.len());
                self.write(DocumentWrite::transaction(id, tenant, key, mark, ops))
            }
            50..72 => {
                let op = Op::any(id, 0, &mut self.random);
                let is_delete = op.is_delete();
                // Who deletes what others write cannot be told from others.
                if is_delete { Ok(()) } else { self.write(DocumentWrite::single(id, tenant, op)) }
            }
            72..82 => {
                let op = self.own_write(id, tenant);
                self.write(DocumentWrite::single(id, tenant, op))
            }
            82..90 => self.read(tenant),
            90..94 => self.query(tenant),
            _ => self.repeat(),
        }
    }

    /// Its own document is written, or deleted if it is there.
    fn own_write(&mut self, id: u64, tenant: usize) -> Op {
        let path = format!("{OWN}/c{}-{}", self.client, self.random.between(0, OWN_DOCUMENTS));
        let is_there = self.own.get(&(tenant, path.clone())).copied().unwrap_or(false);
        let kind = match is_there {
            true => OpKind::Delete,
            false => OpKind::Set(data(id, 0, &mut self.random)),
        };
        self.own.insert((tenant, path.clone()), !is_there);
        Op { path, kind, guard: None }
    }

    fn write(&mut self, write: DocumentWrite) -> Result<(), ExchangeError> {
        let sending = write.sending();
        let tenant = tenant(self.round.tenants, write.tenant)?;
        let answer = send(&mut self.connection, tenant, &sending);
        let failed = match answer {
            Ok(answer) => {
                let told = read_answer(&write, &answer)?;
                let is_own = write.ops.iter().any(|op| op.path.starts_with(&format!("{OWN}/")));
                if is_own && matches!(told, Answer::Failed(..)) {
                    return Err(unexpected("what nobody else writes", &answer));
                }
                self.note(&write, &told);
                self.worked.sent.push(Sent { write, answer: Some(told) });
                return Ok(());
            }
            Err(failed) => failed,
        };
        self.worked.sent.push(Sent { write, answer: None });
        Err(failed.into())
    }

    fn note(&mut self, write: &DocumentWrite, answer: &Answer) {
        let own = |op: &Op| op.path.starts_with(&format!("{OWN}/"));
        match answer {
            Answer::Done(results) => {
                for (op, result) in write.ops.iter().zip(results) {
                    let known = self.versions.entry((write.tenant, op.path.clone())).or_default();
                    *known = result.version.max(*known);
                }
            }
            // It is as it was.
            _ => {
                for op in write.ops.iter().filter(|op| own(op)) {
                    self.own.insert((write.tenant, op.path.clone()), op.is_delete());
                }
            }
        }
    }

    /// One document, which must be as new as this client knows it to be.
    fn read(&mut self, number: usize) -> Result<(), ExchangeError> {
        let path = Op::any(0, 0, &mut self.random).path;
        let target = format!("/api/v1/{path}");
        let answer =
            ask(&mut self.connection, tenant(self.round.tenants, number)?, "GET", &target, None)?;
        match answer.status {
            200 => self.show(number, object(&answer)?),
            404 => Ok(()),
            _ => Err(unexpected(&format!("GET {target}"), &answer)),
        }
    }

    fn show(&mut self, tenant: usize, document: Fields) -> Result<(), ExchangeError> {
        let text = |name: &str| document.get(name).and_then(Value::as_str).unwrap_or_default();
        let path = format!("{}/{}", text("collection"), text("id"));
        let version = document.get("version").and_then(Value::as_u64).unwrap_or(0);
        let known = self.versions.get(&(tenant, path.clone())).copied().unwrap_or(0);
        if version < known {
            return Err(format!("{path} was version {known}, and is {version} later").into());
        }
        self.worked.shown.push((tenant, Shown { path, document }));
        Ok(())
    }

    fn query(&mut self, number: usize) -> Result<(), ExchangeError> {
        let collection = self.random.pick(&COLLECTIONS).copied().unwrap_or_default();
        let group = json!([{ "field": "group", "op": "==", "value": self.random.between(0, 4) }]);
        let query = json!({ "collection": collection, "filters": group, "limit": 1_000,
                            "orderBy": [{ "field": "n", "direction": "desc" }] });
        let tenant = tenant(self.round.tenants, number)?;
        let answer =
            ask(&mut self.connection, tenant, "POST", "/api/v1/query", Some(&query.to_string()))?;
        if answer.status != 200 {
            return Err(unexpected("a query", &answer));
        }
        let page = object(&answer)?;
        let documents = page.get("documents").and_then(Value::as_array).cloned();
        for document in documents.unwrap_or_default() {
            let document = document.as_object().cloned();
            self.show(number, document.ok_or_else(|| "a page of something else".to_owned())?)?;
        }
        Ok(())
    }

    /// A transaction that was answered is answered in the same way.
    fn repeat(&mut self) -> Result<(), ExchangeError> {
        let own = self.worked.sent.iter().rev().take(20).filter_map(Repeatable::of);
        let own: Vec<Repeatable> = own.collect();
        let chosen = match self.random.one_in(2) {
            true => self.random.pick(&own).or_else(|| self.random.pick(self.round.repeatable)),
            false => self.random.pick(self.round.repeatable),
        };
        let Some(chosen) = chosen else { return Ok(()) };
        let tenant = tenant(self.round.tenants, chosen.write.tenant)?;
        check_repeated(&mut self.connection, tenant, chosen)?;
        self.worked.repeated += 1;
        Ok(())
    }
}

pub(super) fn tenant(tenants: &Tenants, number: usize) -> Result<&Tenant, Violation> {
    tenants.iter().nth(number).map(AsRef::as_ref).ok_or_else(|| format!("no tenant {number}"))
}

pub(super) fn send(
    connection: &mut Connection,
    tenant: &Tenant,
    sending: &Sending,
) -> io::Result<Response> {
    let mut headers = vec![("content-type", "application/json")];
    headers.extend(sending.key.as_deref().map(|key| ("idempotency-key", key)));
    let headers = tenant.headers(&headers);
    let (method, target, body) = (sending.method, &*sending.target, sending.body.as_bytes());
    connection.send(Request { method, target, headers: &headers, body })
}

/// What a client learns from the answer to a write that it sent for the first time.
pub(super) fn read_answer(
    write: &DocumentWrite,
    answer: &Response,
) -> Result<Answer, ExchangeError> {
    let what = || format!("request {} ({:?})", write.id, write.key);
    let is_batch = write.key.is_some();
    match answer.status {
        200 if is_batch => {
            let body = object(answer)?;
            let results = body.get("results").and_then(Value::as_array);
            let results = results.ok_or_else(|| unexpected(&what(), answer))?;
            let results = results.iter().map(|result| {
                let number = |name| result.get(name).and_then(Value::as_u64);
                Some(OpResult { version: number("version")?, updated_at: number("updatedAt") })
            });
            let results: Option<Vec<OpResult>> = results.collect();
            let results = results.filter(|results| results.len() == write.ops.len());
            Ok(Answer::Done(results.ok_or_else(|| unexpected(&what(), answer))?))
        }
        200 | 201 => {
            let document = object(answer)?;
            let number = |name| document.get(name).and_then(Value::as_u64);
            let version = number("version").ok_or_else(|| unexpected(&what(), answer))?;
            Ok(Answer::Done(vec![OpResult { version, updated_at: number("updatedAt") }]))
        }
        204 if !is_batch => Ok(Answer::Done(Vec::new())),
        status @ (404 | 412) => Ok(Answer::Failed(status, code_of(answer)?)),
        409 if !is_batch => Ok(Answer::Failed(409, code_of(answer)?)),
        408 | 429 | 503 => Ok(Answer::Busy),
        _ => Err(unexpected(&what(), answer)),
    }
}

/// The code of a refusal, in either of its shapes.
pub(super) fn code_of(answer: &Response) -> Result<String, ExchangeError> {
    let body = object(answer)?;
    let error = body.get("error").and_then(Value::as_object).unwrap_or(&body);
    let code = error.get("code").and_then(Value::as_str).map(str::to_owned);
    code.ok_or_else(|| unexpected("a refusal", answer))
}
