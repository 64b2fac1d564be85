//! The server under load: its address, the streams of this run, and the requests to them.

use std::fmt::Display;
use std::io::Write as _;
use std::net::SocketAddr;

use anyhow::{Context as _, bail, ensure};
use clap::{Args, ValueEnum};

use crate::clock;

/// Where the load goes and how the report is printed.
#[derive(Debug, Clone, Args)]
pub struct Target {
    /// The server
    #[arg(long, default_value = "http://127.0.0.1:4437")]
    pub url: String,
    /// The path under which the streams of the run are created
    #[arg(long, default_value = "/v1/stream/bench")]
    pub prefix: String,
    /// A name for the run, part of the path of its streams [default: one never used before]
    #[arg(long, value_name = "NAME")]
    pub run: Option<String>,
    /// The server's process, to report its CPU and memory (Linux, same machine)
    #[arg(long)]
    pub pid: Option<u32>,
    /// How to print the report
    #[arg(long, value_enum, default_value_t = Output::Human)]
    pub output: Output,
}

/// How to print the report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// Lines for people.
    Human,
    /// One JSON object.
    Json,
}

/// A target that has been looked up, with everything a request head needs.
#[derive(Debug, Clone)]
pub(crate) struct Streams {
    pub(crate) address: SocketAddr,
    host: String,
    /// Prefix and run; a stream is this, a slash and a number.
    base: String,
}

impl Target {
    pub(crate) async fn resolve(&self) -> anyhow::Result<Streams> {
        let (host, address) = self.look_up().await?;
        ensure!(self.prefix.starts_with('/'), "--prefix must begin with a slash");
        let run = self.run_name();
        let base = format!("{}/{run}", self.prefix.trim_end_matches('/'));
        ensure!(
            base.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'?' && byte != b'#'),
            "--prefix and --run must be usable in a URL: {base:?} is not"
        );
        Ok(Streams { address, host, base })
    }

    /// The server as it is named in requests, and its address.
    pub(crate) async fn look_up(&self) -> anyhow::Result<(String, SocketAddr)> {
        let host = parse_url(&self.url)?;
        let address = tokio::net::lookup_host(&host)
            .await
            .with_context(|| format!("cannot look up {host}"))?
            .next()
            .with_context(|| format!("{host} has no address"))?;
        Ok((host, address))
    }

    /// The name of this run.
    pub(crate) fn run_name(&self) -> String {
        self.run.clone().unwrap_or_else(clock::run_name)
    }
}

/// `http://HOST[:PORT][/]` to `HOST:PORT`.
fn parse_url(url: &str) -> anyhow::Result<String> {
    let Some(rest) = url.strip_prefix("http://") else {
        bail!("--url must begin with http:// (the generator speaks plain HTTP/1.1), not {url:?}");
    };
    let host = rest.strip_suffix('/').unwrap_or(rest);
    ensure!(
        !host.is_empty() && !host.contains(['/', '?', '#', '@']),
        "--url must be http://HOST:PORT without a path; the path goes into --prefix"
    );
    let has_port = host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    Ok(if has_port { host.to_owned() } else { format!("{host}:80") })
}

impl Streams {
    /// Streams of the same run under a name of their own.
    pub(crate) fn group(&self, name: &str) -> Streams {
        Streams { base: format!("{}/{name}", self.base), ..self.clone() }
    }

    /// The path that they have in common: a stream is this, a slash and a number.
    pub(crate) fn base(&self) -> &str {
        &self.base
    }

    /// Writes a `PUT` of something that is no stream of ours.
    pub(crate) fn put_at(&self, path: &str, body: &[u8], request: &mut Vec<u8>) {
        write_head("PUT", path, &self.host, "", body.len(), request);
        request.extend_from_slice(body);
    }

    /// Writes a `PUT` that creates stream `number`, with a first message unless `body` is empty.
    pub(crate) fn put(&self, number: u64, body: &[u8], request: &mut Vec<u8>) {
        self.write("PUT", number, body, request);
    }

    /// Writes a `POST` that appends `body` to stream `number`.
    pub(crate) fn post(&self, number: u64, body: &[u8], request: &mut Vec<u8>) {
        self.write("POST", number, body, request);
    }

    /// Writes a `GET` of stream `number`; `query` begins with a question mark.
    pub(crate) fn get(&self, number: u64, query: &str, request: &mut Vec<u8>) {
        request.clear();
        let (base, host) = (&self.base, &self.host);
        write!(request, "GET {base}/{number}{query} HTTP/1.1\r\nhost: {host}\r\n\r\n")
            .expect("a vector takes every byte");
    }

    fn write(&self, method: &str, number: u64, body: &[u8], request: &mut Vec<u8>) {
        let path = format_args!("{}/{number}", self.base);
        write_head(method, path, &self.host, "", body.len(), request);
        request.extend_from_slice(body);
    }
}

/// Writes the head of a request with a JSON body; `headers` are lines, or empty.
pub(crate) fn write_head(
    method: &str,
    path: impl Display,
    host: &str,
    headers: &str,
    length: usize,
    request: &mut Vec<u8>,
) {
    request.clear();
    write!(
        request,
        "{method} {path} HTTP/1.1\r\nhost: {host}\r\n{headers}\
         content-type: application/json\r\ncontent-length: {length}\r\n\r\n"
    )
    .expect("a vector takes every byte");
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn streams() -> Streams {
        Streams {
            address: ([127, 0, 0, 1], 4437).into(),
            host: "h:1".to_owned(),
            base: "/v1/stream/bench/r".to_owned(),
        }
    }

    #[test]
    fn a_url_is_a_host_and_a_port() {
        let check = |url: &str, host: &str| assert_eq!(parse_url(url).unwrap(), host, "{url}");
        check("http://127.0.0.1:4437", "127.0.0.1:4437");
        check("http://localhost:4437/", "localhost:4437");
        check("http://[::1]:4437", "[::1]:4437");
        check("http://example.test", "example.test:80");
        for url in ["127.0.0.1:4437", "https://localhost", "http://a/b", "http://", "http://a?b"] {
            assert!(parse_url(url).is_err(), "{url}");
        }
    }

    #[test]
    fn a_request_is_complete_and_replaces_the_last_one() {
        let streams = streams();
        let mut request = b"left over".to_vec();
        streams.post(7, b"{}", &mut request);
        let expected = "POST /v1/stream/bench/r/7 HTTP/1.1\r\nhost: h:1\r\n\
                        content-type: application/json\r\ncontent-length: 2\r\n\r\n{}";
        assert_eq!(String::from_utf8(request.clone()).unwrap(), expected);
        streams.get(7, "?offset=-1", &mut request);
        assert_eq!(request, b"GET /v1/stream/bench/r/7?offset=-1 HTTP/1.1\r\nhost: h:1\r\n\r\n");
    }
}
