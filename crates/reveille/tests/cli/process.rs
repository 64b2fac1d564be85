//! Processes of the program: a server that can be killed, and commands that end.

use std::hash::{BuildHasher as _, RandomState};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// Long enough for a loaded machine; a test that waits longer has failed.
const PATIENCE: Duration = Duration::from_secs(30);

/// The program, without any settings of whoever runs the tests.
pub(crate) fn reveille(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_reveille"));
    for (name, _) in std::env::vars_os() {
        let ours = name.to_str().is_some_and(|name| name.starts_with("REVEILLE_"));
        if ours || name == "RUST_LOG" || name == "RUST_BACKTRACE" {
            command.env_remove(name);
        }
    }
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// What a command came to.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ended {
    /// The output of a command that did what it was asked for.
    pub(crate) fn ok(self) -> String {
        assert_eq!(self.code, Some(0), "{self:?}");
        self.out
    }

    /// The one sentence of a command that did not, with this exit code.
    pub(crate) fn error(self, code: i32) -> String {
        assert_eq!(self.code, Some(code), "{self:?}");
        let mut errors = self.err.lines().filter_map(|line| line.strip_prefix("error: "));
        let sentence = errors.next().unwrap_or_else(|| panic!("no sentence: {self:?}"));
        assert_eq!(errors.next(), None, "{self:?}");
        sentence.to_owned()
    }
}

/// Runs a command to its end with this standard input.
pub(crate) fn run_with(mut command: Command, input: &[u8]) -> Ended {
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    // A command that fails early does not read its input.
    thread::spawn(move || stdin.write_all(&input));
    let (out, err) = (collect(child.stdout.take().unwrap()), collect(child.stderr.take().unwrap()));
    let code = wait(&mut child).code();
    let (out, err) = (out.recv_timeout(PATIENCE).unwrap(), err.recv_timeout(PATIENCE).unwrap());
    Ended { code, out, err }
}

pub(crate) fn run(args: &[&str]) -> Ended {
    run_with(reveille(args), b"")
}

fn collect(mut pipe: impl std::io::Read + Send + 'static) -> Receiver<String> {
    let (tell, told) = mpsc::channel();
    thread::spawn(move || {
        let mut text = Vec::new();
        pipe.read_to_end(&mut text).unwrap();
        let _ = tell.send(String::from_utf8(text).unwrap());
    });
    told
}

fn wait(child: &mut Child) -> ExitStatus {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        if Instant::now() > deadline {
            child.kill().unwrap();
            panic!("the process does not end");
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// Lines of a process as they come.
pub(crate) struct Lines(Receiver<String>);

impl Lines {
    fn of(pipe: impl std::io::Read + Send + 'static) -> Lines {
        let (tell, told) = mpsc::channel();
        thread::spawn(move || {
            for line in BufReader::new(pipe).lines() {
                if tell.send(line.unwrap()).is_err() {
                    return;
                }
            }
        });
        Lines(told)
    }

    /// The next line; `None` at the end.
    pub(crate) fn next(&self) -> Option<String> {
        match self.0.recv_timeout(PATIENCE) {
            Ok(line) => Some(line),
            Err(mpsc::RecvTimeoutError::Disconnected) => None,
            Err(mpsc::RecvTimeoutError::Timeout) => panic!("no line and no end"),
        }
    }

    /// The next line, if it is there already.
    pub(crate) fn ready(&self) -> Option<String> {
        self.0.try_recv().ok()
    }

    /// Goes on to a line with this in it.
    pub(crate) fn until(&self, part: &str) -> String {
        let mut seen = Vec::new();
        while let Some(line) = self.next() {
            if line.contains(part) {
                return line;
            }
            seen.push(line);
        }
        panic!("{part:?} does not come; these did: {seen:#?}");
    }
}

/// A process that runs until it is told otherwise, or dropped.
pub(crate) struct Running {
    child: Child,
    pub(crate) out: Lines,
    pub(crate) err: Lines,
}

impl Running {
    pub(crate) fn start(mut command: Command) -> Running {
        let mut child = command.spawn().unwrap();
        let out = Lines::of(child.stdout.take().unwrap());
        let err = Lines::of(child.stderr.take().unwrap());
        Running { child, out, err }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.child.id().try_into().unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    pub(crate) fn wait(&mut self) -> ExitStatus {
        wait(&mut self.child)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A server with a data directory of its own.
pub(crate) struct Server {
    pub(crate) process: Running,
    pub(crate) url: String,
    directory: tempfile::TempDir,
    flags: Vec<String>,
}

impl Server {
    pub(crate) fn start() -> Server {
        Server::with(&[])
    }

    pub(crate) fn with(flags: &[&str]) -> Server {
        let directory = tempfile::tempdir().unwrap();
        let data = directory.path().join("data");
        let (process, url) = launch(&free_address(), &data, flags);
        Server {
            process,
            url,
            directory,
            flags: flags.iter().map(|flag| (*flag).to_owned()).collect(),
        }
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    pub(crate) fn address(&self) -> &str {
        self.url.strip_prefix("http://").unwrap()
    }

    /// kill -9.
    pub(crate) fn kill(&mut self) {
        self.process.signal(Signal::KILL);
        assert_eq!(self.process.wait().code(), None);
    }

    pub(crate) fn terminate(&mut self) {
        self.process.signal(Signal::TERM);
        assert_eq!(self.process.wait().code(), Some(0));
    }

    /// Starts it again at the same address on the same data.
    pub(crate) fn restart(&mut self) {
        let flags: Vec<&str> = self.flags.iter().map(String::as_str).collect();
        let (process, url) = launch(self.address(), &self.data(), &flags);
        assert_eq!(url, self.url);
        self.process = process;
    }

    /// A command for this server.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = reveille(args);
        command.env("REVEILLE_URL", &self.url);
        command
    }

    pub(crate) fn run(&self, args: &[&str]) -> Ended {
        run_with(self.command(args), b"")
    }

    /// One request by hand: the whole answer.
    pub(crate) fn request(&self, head: &str, body: &str) -> String {
        let mut socket = self.connect();
        let length = body.len();
        write!(
            socket,
            "{head}\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}"
        )
        .unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).unwrap();
        answer
    }

    pub(crate) fn connect(&self) -> TcpStream {
        let socket = TcpStream::connect(self.address()).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket
    }

    pub(crate) fn close(&self, path: &str) {
        let answer = self.request(&format!("POST {path} HTTP/1.1\r\nstream-closed: true"), "");
        assert!(answer.starts_with("HTTP/1.1 204"), "{answer}");
    }
}

/// An address below those that the system hands to outgoing connections: while a server is away,
/// nobody else gets its port.
fn free_address() -> String {
    loop {
        let random = RandomState::new().hash_one(0);
        let address = format!("127.0.0.1:{}", 20_000 + random % 10_000);
        if TcpListener::bind(&address).is_ok() {
            return address;
        }
    }
}

fn launch(listen: &str, data: &Path, flags: &[&str]) -> (Running, String) {
    let mut command = reveille(&["serve", "--listen", listen]);
    command.arg("--data-dir").arg(data).args(flags);
    let process = Running::start(command);
    let Some(line) = process.out.next() else {
        let mut errors = Vec::new();
        while let Some(line) = process.err.next() {
            errors.push(line);
        }
        panic!("the server did not start: {errors:#?}");
    };
    let url = line.strip_prefix("listening on ").expect("the line that scripts wait for");
    (process, url.to_owned())
}
