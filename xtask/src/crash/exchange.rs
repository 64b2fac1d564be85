//! Requests and answers that both the load and the inspection need.

use std::io;

use super::http::{Connection, Request, Response};
use super::message::{self, Kind};
use super::model::{Broken, Closed, Observed, Produced, Stream};

/// Why a conversation ended.
#[derive(Debug)]
pub(crate) enum Ended {
    /// No whole answer came.
    Lost(io::Error),
    /// The server said that it cannot.
    Failed(u16),
    Broken(Broken),
}

impl From<io::Error> for Ended {
    fn from(error: io::Error) -> Ended {
        Ended::Lost(error)
    }
}

impl From<Broken> for Ended {
    fn from(broken: Broken) -> Ended {
        Ended::Broken(broken)
    }
}

impl Ended {
    pub(crate) fn sentence(self) -> Broken {
        match self {
            Ended::Lost(error) => format!("no answer: {error}"),
            Ended::Failed(status) => format!("answered {status}"),
            Ended::Broken(broken) => broken,
        }
    }
}

pub(crate) fn send_produced(
    connection: &mut Connection,
    path: &str,
    kind: Kind,
    index: usize,
    produced: &Produced,
) -> io::Result<Response> {
    let [id, epoch, seq] =
        [format!("p{index}"), produced.epoch.to_string(), produced.seq.to_string()];
    let mut headers = vec![
        ("content-type", kind.content_type()),
        ("producer-id", &id),
        ("producer-epoch", &epoch),
        ("producer-seq", &seq),
    ];
    if produced.close {
        headers.push(("stream-closed", "true"));
    }
    let body = produced.append.body(kind);
    connection.send(Request { method: "POST", target: path, headers: &headers, body: &body })
}

/// The server has this one: the producer goes on with the next.
pub(crate) fn accept_produced(
    stream: &mut Stream,
    index: usize,
    produced: Produced,
    answer: &Response,
) -> Result<(), Broken> {
    if produced.close {
        if !answer.is_closed() {
            return Err(format!("{}: an answer to a close says nothing of it", stream.path));
        }
        if !matches!(stream.closed, Closed::Yes(_)) {
            stream.closed = Closed::Yes(next_offset(&stream.path, answer)?);
        }
    }
    let producer = stream.producers.entry(index).or_default();
    producer.epoch = produced.epoch;
    producer.next_seq = produced.seq + 1;
    producer.unanswered = None;
    producer.last = Some(produced);
    Ok(())
}

/// Reads to the tail, page by page. None if there is no such stream.
pub(crate) fn read_stream(
    connection: &mut Connection,
    path: &str,
    from: &str,
) -> Result<Option<Observed>, Ended> {
    let mut offset = from.to_owned();
    let mut appends = Vec::new();
    loop {
        let target = format!("{path}?offset={offset}");
        let request = Request { method: "GET", target: &target, headers: &[], body: &[] };
        let answer = connection.send(request)?;
        match answer.status {
            200 => {}
            404 => return Ok(None),
            status @ 500.. => return Err(Ended::Failed(status)),
            _ => return Err(unexpected("read", &target, &answer)),
        }
        let kind = match answer.header("content-type") {
            Some("application/json") => Kind::Json,
            Some("text/plain") => Kind::Text,
            other => return Err(format!("{path}: content type {other:?}").into()),
        };
        let page = message::read(kind, &answer.body);
        appends.extend(page.map_err(|broken| format!("{target}: {broken}"))?);
        let next = next_offset(path, &answer)?;
        if answer.header("stream-up-to-date").is_some() {
            return Ok(Some(Observed { kind, appends, end: next, closed: answer.is_closed() }));
        }
        if next <= offset {
            return Err(format!("{target}: more to read, but the next offset is {next}").into());
        }
        offset = next;
    }
}

pub(crate) fn next_offset(path: &str, answer: &Response) -> Result<String, Broken> {
    let offset = answer.header("stream-next-offset").map(str::to_owned);
    offset.ok_or_else(|| format!("{path}: {} without Stream-Next-Offset", answer.status))
}

pub(crate) fn unexpected(what: &str, path: &str, answer: &Response) -> Ended {
    let body = String::from_utf8_lossy(&answer.body);
    let body: String = body.chars().take(200).collect();
    Ended::Broken(format!("{what} {path}: answered {} {body:?}", answer.status))
}
