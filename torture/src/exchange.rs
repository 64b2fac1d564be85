//! Requests and answers that both the load and the inspection need.

use std::io;

use crate::message::{self, MessageFormat};
use crate::model::{CloseState, ProducerAppend, Stream, StreamRead, Violation};
use crate::tenants::TenantPath;
use harness::http::{Connection, Request, Response};

/// Why a request has no usable answer.
#[derive(Debug)]
pub(crate) enum ExchangeError {
    /// No whole answer came.
    Disconnected(io::Error),
    /// The status, 500 or above.
    ServerError(u16),
    Violation(Violation),
}

impl From<io::Error> for ExchangeError {
    fn from(error: io::Error) -> ExchangeError {
        ExchangeError::Disconnected(error)
    }
}

impl From<Violation> for ExchangeError {
    fn from(violation: Violation) -> ExchangeError {
        ExchangeError::Violation(violation)
    }
}

impl ExchangeError {
    pub(crate) fn into_violation(self) -> Violation {
        match self {
            ExchangeError::Disconnected(error) => format!("no answer: {error}"),
            ExchangeError::ServerError(status) => format!("answered {status}"),
            ExchangeError::Violation(violation) => violation,
        }
    }
}

/// A request in the name of the stream's tenant.
pub(crate) fn send(
    connection: &mut Connection,
    method: &str,
    path: &TenantPath,
    headers: &[(&str, &str)],
    body: &[u8],
) -> io::Result<Response> {
    let headers = path.tenant.headers(headers);
    connection.send(Request { method, target: &path.path, headers: &headers, body })
}

pub(crate) fn send_produced(
    connection: &mut Connection,
    path: &TenantPath,
    kind: MessageFormat,
    index: usize,
    produced: &ProducerAppend,
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
    send(connection, "POST", path, &headers, &body)
}

/// The server has this one: the producer goes on with the next.
pub(crate) fn accept_produced(
    stream: &mut Stream,
    index: usize,
    produced: ProducerAppend,
    answer: &Response,
) -> Result<(), Violation> {
    if produced.close {
        if !is_closed(answer) {
            return Err(format!("{}: an answer to a close says nothing of it", stream.path));
        }
        if !matches!(stream.close_state, CloseState::Closed(_)) {
            stream.close_state = CloseState::Closed(next_offset(&stream.path, answer)?);
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
    path: &TenantPath,
    from: &str,
) -> Result<Option<StreamRead>, ExchangeError> {
    let mut offset = from.to_owned();
    let mut appends = Vec::new();
    loop {
        let target = TenantPath {
            tenant: path.tenant.clone(),
            path: format!("{}?offset={offset}", path.path),
        };
        let answer = send(connection, "GET", &target, &[], &[])?;
        match answer.status {
            200 => {}
            404 => return Ok(None),
            status @ 500.. => return Err(ExchangeError::ServerError(status)),
            _ => return Err(unexpected("read", &target, &answer)),
        }
        let kind = match answer.header("content-type") {
            Some("application/json") => MessageFormat::Json,
            Some("text/plain") => MessageFormat::Text,
            other => return Err(format!("{path}: content type {other:?}").into()),
        };
        let page = message::read(kind, &answer.body);
        appends.extend(page.map_err(|violation| format!("{target}: {violation}"))?);
        let next = next_offset(path, &answer)?;
        if answer.header("stream-up-to-date").is_some() {
            return Ok(Some(StreamRead {
                kind,
                appends,
                end: next,
                is_closed: is_closed(&answer),
            }));
        }
        if next <= offset {
            return Err(format!("{target}: more to read, but the next offset is {next}").into());
        }
        offset = next;
    }
}

pub(crate) fn is_closed(answer: &Response) -> bool {
    answer.header("stream-closed").is_some_and(|value| value.eq_ignore_ascii_case("true"))
}

pub(crate) fn next_offset(path: &TenantPath, answer: &Response) -> Result<String, Violation> {
    let offset = answer.header("stream-next-offset").map(str::to_owned);
    offset.ok_or_else(|| format!("{path}: {} without Stream-Next-Offset", answer.status))
}

pub(crate) fn unexpected(what: &str, path: &TenantPath, answer: &Response) -> ExchangeError {
    let body: String = answer.text().chars().take(200).collect();
    ExchangeError::Violation(format!("{what} {path}: answered {} {body:?}", answer.status))
}
