//! `documents`: writes, reads and queries of documents per second, of reveille or, for comparison,
//! of a table of `jsonb` in PostgreSQL.

mod body;
mod http;
mod table;

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use anyhow::ensure;
use clap::{Args, ValueEnum};

use crate::clock;
use crate::pool::{ConnectionPool, RequestPlan};
use crate::postgres::PgClient;
use crate::report::Report;
use crate::target::Target;
use crate::usage::Meter;
use body::{Bodies, GROUP_SIZE};
use http::HttpDocuments;
use table::TableDocuments;

const INDEXES_MAX: u32 = 10;
/// Odd and no divisor of round numbers, so that reads come by every document out of order.
const STRIDE: u64 = 7_919;
/// Filling may not take longer.
const FILL_MAX: Duration = Duration::from_secs(600);

/// Documents per second.
#[derive(Debug, Clone, Args)]
pub struct Documents {
    #[command(flatten)]
    pub target: Target,
    /// What is measured
    #[arg(long, value_enum, default_value_t = DocumentMode::Writes)]
    pub mode: DocumentMode,
    /// Connections, each with one request in flight
    #[arg(long, default_value_t = 64)]
    pub connections: usize,
    /// Documents that are written in turn, or read
    #[arg(long, default_value_t = 10_000)]
    pub count: u64,
    /// Measured time; for `fill`, after which it stops even when some are missing
    #[arg(long, default_value_t = 5.0)]
    pub seconds: f64,
    /// Time before it that is not measured
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0)]
    pub warmup: f64,
    /// Bytes of each document's data
    #[arg(long, value_name = "BYTES", default_value_t = 100)]
    pub body: usize,
    /// Fields of each document that could be indexed, at most 10
    #[arg(long, value_name = "N", default_value_t = 0)]
    #[arg(value_parser = clap::value_parser!(u32).range(0..=i64::from(INDEXES_MAX)))]
    pub fields: u32,
    /// Index all of these fields first
    #[arg(long)]
    pub indexed: bool,
    /// The server is PostgreSQL, for comparison: user `bench`, database `postgres`, no password
    #[arg(long)]
    pub postgres: bool,
}

/// What is done with documents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum DocumentMode {
    /// Each request writes one document
    Writes,
    /// Each request is a transaction of one write under an idempotency key
    Transactions,
    /// Each request reads one document by its path
    Reads,
    /// Each request finds twenty documents by an index, in order
    Queries,
    /// Each document is written once
    Fill,
}

/// Requests about documents to some kind of server.
trait DocumentRequests {
    fn write(&self, number: u64, document: u64, body: &[u8], request: &mut Vec<u8>);
    fn transact(&self, number: u64, document: u64, body: &[u8], request: &mut Vec<u8>);
    fn read(&self, document: u64, request: &mut Vec<u8>);
    fn query(&self, group: u64, request: &mut Vec<u8>);
}

/// A server that has documents.
enum Server {
    Http(Rc<HttpDocuments>),
    Table(Rc<TableDocuments>),
}

pub(crate) async fn run(work: &Documents) -> anyhow::Result<Report> {
    let warmup = clock::parse_seconds("--warmup", work.warmup)?;
    let measured_time = clock::parse_seconds("--seconds", work.seconds)?;
    ensure!(work.connections > 0, "--connections must be at least 1");
    ensure!(work.count >= GROUP_SIZE, "--count must be at least {GROUP_SIZE}");
    ensure!(
        !(work.postgres && work.mode == DocumentMode::Transactions),
        "PostgreSQL knows no idempotency keys; --mode writes is the same there"
    );
    let bodies = Rc::new(Bodies::new(work.body, work.fields, work.count)?);
    let server = Server::resolve(work).await?;
    let indexed = if work.indexed { work.fields } else { 0 };
    server.prepare(indexed, work.mode == DocumentMode::Queries).await?;
    if matches!(work.mode, DocumentMode::Reads | DocumentMode::Queries) {
        let mut fill = server.pool(work, DocumentMode::Fill, &bodies);
        ensure!(fill.finish(FILL_MAX).await, "the documents were not written within {FILL_MAX:?}");
        let tally = fill.stop().await;
        ensure!(
            tally.done == work.count,
            "{} of {} documents were written: {:?}",
            tally.done,
            work.count,
            tally.errors
        );
        server.settle(work.mode, &bodies).await?;
    }
    let Documents { mode, connections, count, body, .. } = work;
    let name = mode.to_possible_value().map_or_else(String::new, |it| it.get_name().to_owned());
    let mut settings =
        format!("{name}, {count} documents of {body} B over {connections} connections");
    if indexed > 0 {
        settings += &format!(", {indexed} indexes");
    }
    let pid = work.target.pid;
    if *mode == DocumentMode::Fill {
        let start = Meter::read(pid);
        let mut pool = server.pool(work, *mode, &bodies);
        if !pool.finish(measured_time).await {
            settings += &format!(", stopped after {} s", work.seconds);
        }
        let measured = pool.take_tally();
        let end = Meter::read(pid);
        let elsewhere = pool.stop().await;
        return Ok(Report::new("documents", settings, &measured, &elsewhere, (start, end)));
    }
    let pool = server.pool(work, *mode, &bodies);
    let measured = pool.measure(warmup, measured_time, pid).await;
    Ok(measured.report("documents", settings))
}

impl Server {
    async fn resolve(work: &Documents) -> anyhow::Result<Server> {
        let (host, address) = work.target.look_up().await?;
        let run = work.target.run_name();
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        ensure!(
            !run.is_empty() && run.bytes().all(plain),
            "--run must be usable in the name of a collection: {run:?} is not"
        );
        let collection = format!("bench-{run}");
        Ok(match work.postgres {
            false => Server::Http(Rc::new(HttpDocuments { address, host, collection })),
            true => Server::Table(Rc::new(TableDocuments { address, collection })),
        })
    }

    /// The indexes of some fields, and the one that queries use.
    async fn prepare(&self, fields: u32, queries: bool) -> anyhow::Result<()> {
        match self {
            Server::Http(documents) => documents.declare(fields, queries).await,
            Server::Table(documents) => documents.create(fields, queries).await,
        }
    }

    /// Has what was written be found as it will be after a while, and looks that it is.
    async fn settle(&self, mode: DocumentMode, bodies: &Bodies) -> anyhow::Result<()> {
        match self {
            Server::Http(documents) if mode == DocumentMode::Queries => {
                documents.check(bodies).await
            }
            Server::Http(_) => Ok(()),
            Server::Table(documents) => documents.analyze().await,
        }
    }

    fn pool(&self, work: &Documents, mode: DocumentMode, bodies: &Rc<Bodies>) -> ConnectionPool {
        match self {
            Server::Http(documents) => {
                let plan = plan(work, mode, bodies, documents.clone());
                ConnectionPool::start(documents.address, work.connections, plan)
            }
            Server::Table(documents) => {
                let statement = documents.statement(mode);
                let clients = (0..work.connections)
                    .map(|_| PgClient::new(documents.address, statement.clone()))
                    .collect();
                let plan = plan(work, mode, bodies, documents.clone());
                ConnectionPool::start_with(clients, plan)
            }
        }
    }
}

fn plan(
    work: &Documents,
    mode: DocumentMode,
    bodies: &Rc<Bodies>,
    documents: Rc<impl DocumentRequests + 'static>,
) -> RequestPlan {
    let (count, bodies) = (work.count, bodies.clone());
    let bytes = match mode {
        DocumentMode::Queries => bodies.bytes() * GROUP_SIZE,
        _ => bodies.bytes(),
    };
    let body = RefCell::new(Vec::new());
    let write = Box::new(move |number: u64, request: &mut Vec<u8>| {
        let mut body = body.borrow_mut();
        body.clear();
        match mode {
            DocumentMode::Writes | DocumentMode::Fill => {
                bodies.write(number, &mut body);
                documents.write(number, number % count, &body, request);
            }
            DocumentMode::Transactions => {
                bodies.write(number, &mut body);
                documents.transact(number, number % count, &body, request);
            }
            DocumentMode::Reads => documents.read(number.wrapping_mul(STRIDE) % count, request),
            DocumentMode::Queries => {
                documents.query(bodies.group_of(number.wrapping_mul(STRIDE)), request);
            }
        }
    });
    let limit = (mode == DocumentMode::Fill).then_some(count);
    RequestPlan { limit, expect: 200, bytes, write, ahead_limit: None }
}
