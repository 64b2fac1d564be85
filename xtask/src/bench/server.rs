//! A server process and its data directory; both are gone when their values are dropped.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};

use super::clock;
use super::subject::Subject;
use super::workers::Run;

const START_MAX: Duration = Duration::from_secs(120);
const ANSWER_MAX: Duration = Duration::from_secs(30);
/// Between two questions whether a server is ready.
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(2);

pub(super) struct DataDir(PathBuf);

impl DataDir {
    /// An empty directory on the disk that holds `target`.
    pub(super) fn new(root: &Path, name: &str) -> anyhow::Result<DataDir> {
        let path = root.join("target/bench-data").join(name);
        if path.exists() {
            std::fs::remove_dir_all(&path)?;
        }
        std::fs::create_dir_all(&path)?;
        Ok(DataDir(path))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    /// The space that it takes on disk.
    pub(super) fn bytes(&self) -> u64 {
        disk_bytes(&self.0)
    }
}

impl Drop for DataDir {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            eprintln!("cannot remove {}: {error}", self.0.display());
        }
    }
}

fn disk_bytes(directory: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(directory) else {
        return 0;
    };
    let sizes = entries.flatten().map(|entry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => disk_bytes(&entry.path()),
        Ok(metadata) => std::os::unix::fs::MetadataExt::blocks(&metadata) * 512,
        Err(_) => 0,
    });
    sizes.sum()
}

pub(super) struct Server {
    child: Child,
    pub(super) url: String,
    /// When the process was started.
    pub(super) started: Instant,
}

impl Server {
    /// Starts the server and waits until it says where it listens. What it prints goes to
    /// `target/bench/NAME.log`.
    pub(super) fn start(root: &Path, subject: &Subject, data: &DataDir) -> anyhow::Result<Server> {
        Server::start_told(root, subject, data, &Run::default())
    }

    /// The same with something to be told.
    pub(super) fn start_told(
        root: &Path,
        subject: &Subject,
        data: &DataDir,
        told: &Run,
    ) -> anyhow::Result<Server> {
        let log = log_path(root, subject);
        let open = || std::fs::OpenOptions::new().create(true).append(true).open(&log);
        let mut command = subject.command(root, data.path(), told)?;
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(open()?);
        let started = clock::now();
        let child = command.spawn().with_context(|| format!("cannot start {command:?}"))?;
        // From here on the guard ends the process, whatever happens.
        let mut server = Server { child, url: String::new(), started };
        let output = server.child.stdout.take().context("the output is piped")?;
        let said = listening(output, open()?).recv_timeout(START_MAX);
        server.url = said.with_context(|| format!("it did not start; see {}", log.display()))?;
        Ok(server)
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until `/readyz` is answered with 200; the time since the start of the process.
    pub(super) fn ready(&self) -> anyhow::Result<Duration> {
        loop {
            let answer = self.get("/readyz");
            let waited = self.started.elapsed();
            if matches!(answer, Ok((200, _))) {
                return Ok(waited);
            }
            ensure!(waited < START_MAX, "it was not ready in time: {answer:?}");
            std::thread::park_timeout(ASK_AGAIN_AFTER);
        }
    }

    /// One request on a connection of its own: status and body.
    pub(super) fn get(&self, path: &str) -> anyhow::Result<(u16, String)> {
        let host = self.url.strip_prefix("http://").context("a plain URL")?;
        let mut stream = TcpStream::connect(host)?;
        stream.set_read_timeout(Some(ANSWER_MAX))?;
        write!(stream, "GET {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n")?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer)?;
        let answer = String::from_utf8(answer)?;
        let (head, body) = answer.split_once("\r\n\r\n").context("no HTTP answer")?;
        let status = head.split(' ').nth(1).context("no status")?.parse()?;
        Ok((status, body.to_owned()))
    }

    pub(super) fn rss_bytes(&self) -> Option<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
        let kibibytes: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
        Some(kibibytes * 1024)
    }
}

impl Drop for Server {
    /// SIGKILL: no server gets the chance to tidy up, which is also what `million` needs.
    fn drop(&mut self) {
        let ended = self.child.kill().and_then(|()| self.child.wait());
        if let Err(error) = ended {
            eprintln!("cannot end process {}: {error}", self.child.id());
        }
    }
}

fn log_path(root: &Path, subject: &Subject) -> PathBuf {
    root.join("target/bench").join(format!("{}.log", subject.name))
}

/// Empties the log of a subject: it holds what the servers of one run said.
pub(super) fn forget_log(root: &Path, subject: &Subject) -> anyhow::Result<()> {
    std::fs::create_dir_all(root.join("target/bench"))?;
    Ok(std::fs::write(log_path(root, subject), "")?)
}

/// Copies everything that a server prints into its log, and gives its URL when it says it.
fn listening(output: ChildStdout, mut log: std::fs::File) -> mpsc::Receiver<String> {
    let (tell, told) = mpsc::sync_channel(1);
    std::thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            if let Some(url) = url_in(&line) {
                // A server that says it twice is not waited for any more.
                let _ = tell.try_send(url);
            }
            if writeln!(log, "{line}").is_err() {
                return;
            }
        }
    });
    told
}

fn url_in(line: &str) -> Option<String> {
    let (_, rest) = line.split_once("listening on ")?;
    let url = rest.split_ascii_whitespace().next()?;
    url.starts_with("http://").then(|| url.trim_end_matches('/').to_owned())
}

/// A port that was free a moment ago.
pub(super) fn free_port() -> anyhow::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_url_is_found_in_what_servers_print() {
        let check = |line, url: Option<&str>| assert_eq!(url_in(line).as_deref(), url, "{line}");
        check("listening on http://127.0.0.1:4437", Some("http://127.0.0.1:4437"));
        check("x listening on http://127.0.0.1:1/ (data: /d)", Some("http://127.0.0.1:1"));
        check("recovery complete", None);
        check("listening on unix:/run/x", None);
    }
}
