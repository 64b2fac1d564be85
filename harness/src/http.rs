//! The one HTTP client of the tools: the little HTTP/1.1 they need, on a connection that is kept
//! open.

use std::borrow::Cow;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// An answer that takes longer is a failure of the server.
const ANSWER_MAX: Duration = Duration::from_secs(30);

pub struct Connection {
    stream: BufReader<TcpStream>,
    host: SocketAddr,
}

#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    pub method: &'a str,
    pub target: &'a str,
    pub headers: &'a [(&'a str, &'a str)],
    pub body: &'a [u8],
}

#[derive(Debug)]
pub struct Response {
    pub status: u16,
    headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Response {
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(key, _)| key.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    pub fn text(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.body)
    }
}

impl Connection {
    pub fn open(address: SocketAddr) -> io::Result<Connection> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(ANSWER_MAX))?;
        stream.set_write_timeout(Some(ANSWER_MAX))?;
        Ok(Connection { stream: BufReader::with_capacity(64 * 1024, stream), host: address })
    }

    pub fn get(&mut self, target: &str) -> io::Result<Response> {
        self.send(Request { method: "GET", target, headers: &[], body: &[] })
    }

    /// An error means that no whole answer came; what the server did is not known.
    pub fn send(&mut self, request: Request<'_>) -> io::Result<Response> {
        let Request { method, target, headers, body } = request;
        let host = self.host;
        let mut message = format!("{method} {target} HTTP/1.1\r\nhost: {host}\r\n").into_bytes();
        for (name, value) in headers {
            message.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
        }
        message.extend_from_slice(format!("content-length: {}\r\n\r\n", body.len()).as_bytes());
        message.extend_from_slice(body);
        self.stream.get_mut().write_all(&message)?;
        read_response(&mut self.stream, method == "HEAD")
    }
}

fn read_response(input: &mut impl io::BufRead, head_only: bool) -> io::Result<Response> {
    let status_line = read_line(input)?;
    let status = status_line.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3));
    let status = status.and_then(|digits| digits.parse().ok());
    let status: u16 = status.ok_or_else(|| malformed("status line", &status_line))?;
    let mut headers = Vec::new();
    loop {
        let line = read_line(input)?;
        if line.is_empty() {
            break;
        }
        let (name, value) = line.split_once(':').ok_or_else(|| malformed("header", &line))?;
        headers.push((name.to_owned(), value.trim().to_owned()));
    }
    let mut response = Response { status, headers, body: Vec::new() };
    if head_only || matches!(status, 204 | 304) {
        return Ok(response);
    }
    if response.header("transfer-encoding").is_some_and(|coding| coding == "chunked") {
        response.body = read_chunks(input)?;
    } else if let Some(length) = response.header("content-length") {
        let length = length.parse().map_err(|_| malformed("content-length", length))?;
        read_exactly(input, length, &mut response.body)?;
    } else {
        return Err(malformed("answer without a length", &status_line));
    }
    Ok(response)
}

fn read_chunks(input: &mut impl io::BufRead) -> io::Result<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let line = read_line(input)?;
        let digits = line.split(';').next().unwrap_or_default().trim();
        let length = u64::from_str_radix(digits, 16).map_err(|_| malformed("chunk", &line))?;
        if length == 0 {
            // No trailers are expected, only the empty line.
            read_line(input)?;
            return Ok(body);
        }
        read_exactly(input, length, &mut body)?;
        read_line(input)?;
    }
}

fn read_exactly(input: &mut impl io::BufRead, length: u64, into: &mut Vec<u8>) -> io::Result<()> {
    let read = input.take(length).read_to_end(into)?;
    if read as u64 == length { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

fn read_line(input: &mut impl io::BufRead) -> io::Result<String> {
    let mut line = Vec::new();
    input.take(64 * 1024).read_until(b'\n', &mut line)?;
    if line.pop() != Some(b'\n') {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    if line.last() == Some(&b'\r') {
        line.pop();
    }
    String::from_utf8(line).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

fn malformed(what: &str, text: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("malformed {what}: {text:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(input: &str, expected: Result<(u16, &str), io::ErrorKind>) {
        let answer = read_response(&mut input.as_bytes(), false);
        match (answer, expected) {
            (Ok(answer), Ok((status, body))) => {
                assert_eq!((answer.status, answer.body.as_slice()), (status, body.as_bytes()));
            }
            (Err(error), Err(kind)) => assert_eq!(error.kind(), kind, "{input:?}"),
            (answer, expected) => panic!("{input:?}: {answer:?} instead of {expected:?}"),
        }
    }

    #[test]
    fn an_answer_is_whole_or_an_error() {
        check("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", Ok((200, "hi")));
        check("HTTP/1.1 204 No Content\r\n\r\n", Ok((204, "")));
        let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        check(&format!("{chunked}2\r\nhi\r\n1\r\n!\r\n0\r\n\r\n"), Ok((200, "hi!")));
        check(&format!("{chunked}2\r\nhi\r\n"), Err(io::ErrorKind::UnexpectedEof));
        check(&format!("{chunked}5\r\nhi"), Err(io::ErrorKind::UnexpectedEof));
        let cut = "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhi";
        check(cut, Err(io::ErrorKind::UnexpectedEof));
        check("HTTP/1.1 200", Err(io::ErrorKind::UnexpectedEof));
        check("nonsense\r\n\r\n", Err(io::ErrorKind::InvalidData));
        check("HTTP/1.1 200 OK\r\n\r\n", Err(io::ErrorKind::InvalidData));
    }
}
