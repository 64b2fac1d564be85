//! The little of PostgreSQL's protocol that a comparison needs: one prepared statement over one
//! connection, each execution answered before the next is sent.

use std::net::SocketAddr;
use std::rc::Rc;

use anyhow::{Context as _, bail};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::connection::Failure;
use crate::pool::Exchange;

/// Version 3.0.
const PROTOCOL: i32 = 196_608;
/// Whoever starts the server for a measurement lets this one in without a password.
const USER: &str = "bench";
const DATABASE: &str = "postgres";
const BUFFER: usize = 64 * 1024;
/// Longer than any message to us.
const MESSAGE_BYTES_MAX: usize = 16 << 20;

/// What each connection of a pool prepares, and how many rows come of each execution.
#[derive(Debug, Clone)]
pub(crate) struct Statement {
    pub(crate) sql: Rc<str>,
    pub(crate) rows: u64,
}

/// A connection that executes one statement again and again; opened when it is needed.
pub(crate) struct PgClient {
    address: SocketAddr,
    statement: Statement,
    connection: Option<PgConnection>,
}

struct PgConnection {
    stream: TcpStream,
    buffer: Vec<u8>,
    /// How much of the buffer is done with.
    used: usize,
}

/// What the server said up to the point where it waits for us again.
#[derive(Debug, Default, PartialEq, Eq)]
struct Said {
    rows: u64,
    error: Option<String>,
}

impl PgClient {
    pub(crate) fn new(address: SocketAddr, statement: Statement) -> PgClient {
        PgClient { address, statement, connection: None }
    }
}

impl Exchange for PgClient {
    /// 200 if it was executed and gave the rows that it must, 404 if it gave others.
    async fn exchange(&mut self, request: &[u8]) -> Result<u16, Failure> {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => PgConnection::open(self.address, &self.statement.sql).await?,
        };
        let said = connection.ask(request).await?;
        self.connection = Some(connection);
        Ok(match said {
            Said { error: Some(_), .. } => 500,
            Said { rows, .. } if rows == self.statement.rows => 200,
            Said { .. } => 404,
        })
    }
}

/// Runs statements that give nothing, one after another.
pub(crate) async fn run(address: SocketAddr, statements: &[String]) -> anyhow::Result<()> {
    let opened = PgConnection::open(address, "SELECT 1").await;
    let mut connection =
        opened.map_err(|failure| anyhow::anyhow!("{address}: {}", failure.label()))?;
    for sql in statements {
        let mut request = Vec::new();
        message(b'Q', &mut request, |body| text(sql, body));
        let said = connection.ask(&request).await;
        let said = said.map_err(|failure| anyhow::anyhow!("{sql}: {}", failure.label()))?;
        if let Some(error) = said.error {
            bail!("{sql}: {error}");
        }
    }
    Ok(())
}

/// Writes one execution of the prepared statement into `request`, in place of what was there.
pub(crate) fn execute(values: &[&[u8]], request: &mut Vec<u8>) -> anyhow::Result<()> {
    request.clear();
    let count = i16::try_from(values.len()).context("so many values are none of ours")?;
    message(b'B', request, |body| {
        // The portal and the statement have no names; everything is text, both ways.
        body.extend_from_slice(&[0, 0, 0, 0]);
        body.extend_from_slice(&count.to_be_bytes());
        for value in values {
            body.extend_from_slice(&length(value.len()).to_be_bytes());
            body.extend_from_slice(value);
        }
        body.extend_from_slice(&[0, 0]);
    });
    message(b'E', request, |body| body.extend_from_slice(&[0, 0, 0, 0, 0]));
    message(b'S', request, |_| {});
    Ok(())
}

impl PgConnection {
    async fn open(address: SocketAddr, sql: &str) -> Result<PgConnection, Failure> {
        let failed = |error: std::io::Error| Failure::Connect(error.kind());
        let stream = TcpStream::connect(address).await.map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        let mut connection = PgConnection { stream, buffer: Vec::with_capacity(BUFFER), used: 0 };
        let mut startup = vec![0; 4];
        startup.extend_from_slice(&PROTOCOL.to_be_bytes());
        for word in ["user", USER, "database", DATABASE] {
            text(word, &mut startup);
        }
        startup.push(0);
        let whole = length(startup.len()).to_be_bytes();
        startup.splice(..4, whole);
        let mut prepare = Vec::new();
        message(b'P', &mut prepare, |body| {
            text("", body);
            text(sql, body);
            body.extend_from_slice(&[0, 0]);
        });
        message(b'S', &mut prepare, |_| {});
        for request in [startup, prepare] {
            if connection.ask(&request).await?.error.is_some() {
                return Err(Failure::Malformed);
            }
        }
        Ok(connection)
    }

    /// Sends and waits until the server is ready for more.
    async fn ask(&mut self, request: &[u8]) -> Result<Said, Failure> {
        let failed = |error: std::io::Error| Failure::Transport(error.kind());
        self.stream.write_all(request).await.map_err(failed)?;
        let mut said = Said::default();
        loop {
            let arrived = self.buffer.get(self.used..).unwrap_or_default();
            match parse(arrived).ok_or(Failure::Malformed)? {
                Parsed::Whole { kind, body, len } => {
                    let is_ready = hear(kind, body, &mut said)?;
                    self.used += len;
                    if is_ready {
                        return Ok(said);
                    }
                }
                Parsed::Incomplete => {
                    self.buffer.drain(..self.used);
                    self.used = 0;
                    let read = self.stream.read_buf(&mut self.buffer).await.map_err(failed)?;
                    if read == 0 {
                        return Err(Failure::Closed);
                    }
                }
            }
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Parsed<'a> {
    Whole { kind: u8, body: &'a [u8], len: usize },
    Incomplete,
}

/// One message of the server: its kind, its length without the kind, its body.
fn parse(arrived: &[u8]) -> Option<Parsed<'_>> {
    let Some((kind, rest)) = arrived.split_first() else { return Some(Parsed::Incomplete) };
    let Some(digits) = rest.first_chunk::<4>() else { return Some(Parsed::Incomplete) };
    let length = usize::try_from(u32::from_be_bytes(*digits)).ok()?;
    if !(4..=MESSAGE_BYTES_MAX).contains(&length) {
        return None;
    }
    Some(match rest.get(4..length) {
        Some(body) => Parsed::Whole { kind: *kind, body, len: 1 + length },
        None => Parsed::Incomplete,
    })
}

/// Takes one message in; `true` when the server waits for us again.
fn hear(kind: u8, body: &[u8], said: &mut Said) -> Result<bool, Failure> {
    match kind {
        b'Z' => return Ok(true),
        b'D' => said.rows += 1,
        b'E' => said.error = Some(describe(body)),
        // Any other way of letting us in than at once.
        b'R' if body != [0, 0, 0, 0] => return Err(Failure::Malformed),
        _ => {}
    }
    Ok(false)
}

/// The code and the sentence of an error: fields with a letter before each.
fn describe(body: &[u8]) -> String {
    let fields = body.split(|byte| *byte == 0);
    let wanted = fields.filter_map(|field| match field.split_first() {
        Some((b'C' | b'M', value)) => Some(String::from_utf8_lossy(value).into_owned()),
        _ => None,
    });
    wanted.collect::<Vec<_>>().join(": ")
}

fn message(kind: u8, out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    out.push(kind);
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    write(out);
    let whole = length(out.len() - start).to_be_bytes();
    out.splice(start..start + 4, whole);
}

fn text(text: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(text.as_bytes());
    out.push(0);
}

fn length(len: usize) -> i32 {
    i32::try_from(len).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_execution_is_three_messages_with_their_lengths() {
        let mut request = b"left over".to_vec();
        execute(&[b"ab", b""], &mut request).unwrap();
        let bind = b"B\0\0\0\x16\0\0\0\0\0\x02\0\0\0\x02ab\0\0\0\0\0\0";
        let rest = b"E\0\0\0\x09\0\0\0\0\0S\0\0\0\x04";
        assert_eq!(request, [bind.as_slice(), rest].concat());
    }

    #[test]
    fn messages_are_heard_whole_or_not_at_all() {
        let whole = b"D\0\0\0\x06xyE";
        let expected = Parsed::Whole { kind: b'D', body: b"xy", len: 7 };
        assert_eq!(parse(whole), Some(expected));
        for cut in 0..7 {
            assert_eq!(parse(&whole[..cut]), Some(Parsed::Incomplete), "{cut}");
        }
        assert_eq!(parse(b"D\0\0\0\x03"), None);
        assert_eq!(parse(b"D\xff\0\0\0"), None);
    }

    #[test]
    fn rows_are_counted_and_errors_are_said() {
        let mut said = Said::default();
        assert_eq!(hear(b'D', b"", &mut said), Ok(false));
        assert_eq!(hear(b'E', b"SERROR\0C42P01\0Mno such table\0\0", &mut said), Ok(false));
        assert_eq!(hear(b'Z', b"I", &mut said), Ok(true));
        assert_eq!(said, Said { rows: 1, error: Some("42P01: no such table".to_owned()) });
        // A password is asked for.
        assert_eq!(hear(b'R', &[0, 0, 0, 3], &mut said), Err(Failure::Malformed));
    }
}
