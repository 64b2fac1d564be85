//! A server that does what a script says, and the generator against it.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use clap::Parser;
use reveille_load::{Report, Workload};

#[derive(Parser)]
struct Options {
    #[command(subcommand)]
    work: Workload,
}

/// What a scripted server does with a request.
pub(crate) enum Act {
    Answer(String),
    HangUp,
}

pub(crate) struct Request {
    pub(crate) method: String,
    pub(crate) path: String,
    /// The header lines.
    pub(crate) head: String,
    /// Counts the requests with this method, from zero.
    pub(crate) number: u64,
    pub(crate) body: Vec<u8>,
}

type Script = Arc<dyn Fn(&Request) -> Act + Send + Sync>;

/// Starts a server that lives as long as the test process, and returns its URL.
pub(crate) fn serve(script: impl Fn(&Request) -> Act + Send + Sync + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let script: Script = Arc::new(script);
    let counts = Arc::new([const { AtomicU64::new(0) }; 3]);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (script, counts) = (Arc::clone(&script), Arc::clone(&counts));
            std::thread::spawn(move || connection(stream.unwrap(), &script, &counts));
        }
    });
    url
}

fn connection(stream: TcpStream, script: &Script, counts: &[AtomicU64; 3]) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut writer = stream;
    while let Some(request) = receive(&mut reader, counts) {
        match script(&request) {
            Act::HangUp => return,
            Act::Answer(answer) => {
                if writer.write_all(answer.as_bytes()).is_err() || answer.contains("close\r\n") {
                    return;
                }
            }
        }
    }
}

fn receive(reader: &mut BufReader<TcpStream>, counts: &[AtomicU64; 3]) -> Option<Request> {
    let mut first = String::new();
    if reader.read_line(&mut first).ok()? == 0 {
        return None;
    }
    let (mut length, mut head) = (0, String::new());
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        if line.trim().is_empty() {
            break;
        }
        if let Some(value) = line.strip_prefix("content-length: ") {
            length = value.trim().parse().unwrap();
        }
        head += &line;
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let mut words = first.split(' ').map(str::to_owned);
    let (method, path) = (words.next()?, words.next()?);
    let index = ["PUT", "POST", "GET"].iter().position(|name| *name == method)?;
    let number = counts[index].fetch_add(1, Ordering::Relaxed);
    Some(Request { method, path, head, number, body })
}

pub(crate) fn answer(status: &str, headers: &str, body: &str) -> Act {
    let length = body.len();
    Act::Answer(format!("HTTP/1.1 {status}\r\n{headers}content-length: {length}\r\n\r\n{body}"))
}

pub(crate) fn run(url: &str, arguments: &str) -> anyhow::Result<Report> {
    let mut all = vec!["load"];
    all.extend(arguments.split(' '));
    all.extend(["--url", url]);
    reveille_load::run(&Options::try_parse_from(all).unwrap().work)
}
