//! What is measured of documents: writes beside appends, and everything beside a table of `jsonb`.

use std::time::Duration;

use super::{Cell, rate};
use crate::options::Work;
use crate::setup::Setup;
use crate::subject::{DOCUMENT_SERVERS, REVEILLE_ONLY};

const CONNECTIONS: u32 = 64;
/// More than are written in a run: most are created, some replaced.
const WRITTEN: u32 = 100_000;
const READ: u32 = 10_000;
/// Fields of a document, each of which can have an index.
const FIELDS: u32 = 10;

pub(super) fn all(quick: bool) -> Vec<Cell> {
    let seconds = if quick { 2 } else { 5 };
    let work = |mode: &str, count: u32, more: &str| {
        format!(
            "documents --mode {mode} --connections {CONNECTIONS} --count {count} \
             --seconds {seconds} {more}"
        )
    };
    let with_fields = format!("--body 300 --fields {FIELDS}");
    let append = format!("append --connections {CONNECTIONS} --streams 1000 --seconds {seconds}");
    vec![
        Cell {
            baseline_of: Some(Work::Facts),
            ..cell(
                "documents-append",
                REVEILLE_ONLY,
                "appends/s",
                append,
                "Durable appends of 100 B to 1,000 streams, beside which documents and facts are \
                 measured"
                    .to_owned(),
            )
        },
        cell(
            "documents-write",
            DOCUMENT_SERVERS,
            "writes/s",
            work("writes", WRITTEN, ""),
            format!("Durable writes of one document of 100 B each, {CONNECTIONS} connections"),
        ),
        cell(
            "documents-batch",
            REVEILLE_ONLY,
            "transactions/s",
            work("transactions", WRITTEN, ""),
            "The same, as transactions of one write under an idempotency key".to_owned(),
        ),
        cell(
            "documents-read",
            DOCUMENT_SERVERS,
            "reads/s",
            work("reads", READ, ""),
            format!("Reads of one document by its path, {CONNECTIONS} connections"),
        ),
        cell(
            "documents-query",
            DOCUMENT_SERVERS,
            "queries/s",
            work("queries", READ, ""),
            format!(
                "Queries for 20 of 10,000 documents by an index, in order, {CONNECTIONS} connections"
            ),
        ),
        cell(
            "documents-plain",
            DOCUMENT_SERVERS,
            "writes/s",
            work("writes", WRITTEN, &with_fields),
            "Durable writes of one document of 300 B with ten fields".to_owned(),
        ),
        cell(
            "documents-indexed",
            DOCUMENT_SERVERS,
            "writes/s",
            work("writes", WRITTEN, &format!("{with_fields} --indexed")),
            format!("The same with {FIELDS} indexes"),
        ),
    ]
}

fn cell(
    key: &'static str,
    subjects: &'static [&'static str],
    unit: &'static str,
    arguments: String,
    title: String,
) -> Cell {
    Cell {
        key,
        work: Work::Documents,
        baseline_of: None,
        subjects,
        setup: Setup::Plain,
        title,
        figures: rate(unit),
        limit: Duration::from_secs(180),
        slow_arguments: None,
        arguments,
    }
}
