//! An endpoint that is called: it answers every request the same, and hands over what it was sent.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

/// A request that came.
pub(crate) struct Seen {
    /// As they stand in the request, `name: value`.
    pub(crate) headers: Vec<String>,
    pub(crate) body: Vec<u8>,
}

pub(crate) struct Endpoint {
    pub(crate) url: String,
    seen: Receiver<Seen>,
    status: Arc<AtomicU16>,
}

impl Endpoint {
    /// One that answers with this status and an empty object.
    pub(crate) fn answering(status: u16) -> Endpoint {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (tell, seen) = mpsc::channel();
        let status = Arc::new(AtomicU16::new(status));
        let answered = status.clone();
        thread::spawn(move || {
            for socket in listener.incoming() {
                let status = answered.load(Ordering::SeqCst);
                let Some(request) = read_request(&socket.unwrap(), status) else { continue };
                if tell.send(request).is_err() {
                    return;
                }
            }
        });
        Endpoint { url, seen, status }
    }

    /// From now on it answers with this status.
    pub(crate) fn answers(&self, status: u16) {
        self.status.store(status, Ordering::SeqCst);
    }

    pub(crate) fn next(&self) -> Seen {
        self.seen.recv_timeout(Duration::from_secs(30)).expect("a request comes")
    }
}

fn read_request(socket: &TcpStream, status: u16) -> Option<Seen> {
    let mut reader = BufReader::new(socket);
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        match line.trim_end() {
            "" => break,
            line => headers.push(line.to_owned()),
        }
    }
    let length = headers.iter().find_map(|line| line.strip_prefix("content-length: "));
    let mut body = vec![0; length?.parse().unwrap()];
    reader.read_exact(&mut body).ok()?;
    write!(
        reader.get_mut(),
        "HTTP/1.1 {status} X\r\nconnection: close\r\ncontent-length: 2\r\n\r\n{{}}"
    )
    .ok()?;
    Some(Seen { headers, body })
}
