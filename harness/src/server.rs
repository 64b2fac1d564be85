//! A server process under test: started on a free port, killed without warning.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};

use crate::command::command_line;
use crate::http::Connection;
use crate::workspace;

const START_MAX: Duration = Duration::from_secs(60);

/// Killed when it is dropped: nothing is left behind when a check fails.
pub struct Server {
    pub address: SocketAddr,
    started: Instant,
    child: Child,
    log: PathBuf,
}

pub enum Startup {
    Listening(Server),
    /// It ended by itself, and this is what it wrote to its log.
    Exited(ExitStatus, String),
}

impl Server {
    /// Returns when the server prints `listening on http://ADDRESS`, or has ended instead.
    /// Standard error is appended to `log`, the lines of standard output are copied to `stdout`.
    pub fn launch(
        command: &mut Command,
        log: &Path,
        stdout: impl Write + Send + 'static,
    ) -> anyhow::Result<Startup> {
        let stderr = OpenOptions::new().create(true).append(true).open(log)?;
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(stderr);
        let started = Instant::now();
        let child = command.spawn();
        let child = child.with_context(|| format!("{}: cannot start", command_line(command)))?;
        // From here on the guard ends the process, whatever happens.
        let nowhere = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut server = Server { address: nowhere, started, child, log: log.to_owned() };
        let output = server.child.stdout.take().context("the output is piped")?;
        match announcement(output, stdout).recv_timeout(START_MAX) {
            Ok(address) => {
                let parsed = address.parse();
                server.address = parsed.with_context(|| format!("listening on {address:?}"))?;
                Ok(Startup::Listening(server))
            }
            Err(RecvTimeoutError::Disconnected) => {
                let status = server.child.wait()?;
                Ok(Startup::Exited(status, server.log_text()))
            }
            Err(RecvTimeoutError::Timeout) => {
                bail!("the server neither listened nor ended within {START_MAX:?}")
            }
        }
    }

    /// Starts the binary under test with an empty log, or learns why it refuses.
    pub fn try_start(data: &Path, log: &Path, flags: &[&str]) -> anyhow::Result<Startup> {
        File::create(log)?;
        let mut command = Command::new(workspace::reveille()?);
        command
            .args(["serve", "--listen", "127.0.0.1:0", "--long-poll-timeout", "500ms"])
            .arg("--data-dir")
            .arg(data)
            .args(flags);
        Server::launch(&mut command, log, io::sink())
    }

    /// Starts the binary under test with an empty log.
    pub fn start(data: &Path, log: &Path, flags: &[&str]) -> anyhow::Result<Server> {
        match Server::try_start(data, log, flags)? {
            Startup::Listening(server) => Ok(server),
            Startup::Exited(status, said) => {
                bail!("the server did not start ({status}), it said:\n{said}")
            }
        }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub fn connect(&self) -> io::Result<Connection> {
        Connection::open(self.address)
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Since the process was started.
    pub fn uptime(&self) -> Duration {
        self.started.elapsed()
    }

    /// What it has written to its log so far.
    pub fn log_text(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    /// How it ended, if it ended by itself.
    pub fn exit_status(&mut self) -> anyhow::Result<Option<ExitStatus>> {
        Ok(self.child.try_wait()?)
    }

    /// `kill -9`, and waits until the process is gone.
    pub fn kill(mut self) -> anyhow::Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Killing what has ended is not an error here.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A port that was free a moment ago.
pub fn free_port() -> anyhow::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// The address that a server prints. Reads on for as long as the server lives, which must not
/// block on a full pipe.
fn announcement(
    output: ChildStdout,
    mut copy: impl Write + Send + 'static,
) -> mpsc::Receiver<String> {
    let (announce, announced) = mpsc::sync_channel(1);
    std::thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            if let Some(address) = address_in(&line) {
                // A server that says it twice is not waited for any more.
                let _ = announce.try_send(address.to_owned());
            }
            // A copy that cannot be written must not stop the reading.
            let _ = writeln!(copy, "{line}");
        }
    });
    announced
}

fn address_in(line: &str) -> Option<&str> {
    let (_, rest) = line.split_once("listening on http://")?;
    Some(rest.split_ascii_whitespace().next()?.trim_end_matches('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_is_found_in_what_servers_print() {
        let check = |line, address: Option<&str>| assert_eq!(address_in(line), address, "{line}");
        check("listening on http://127.0.0.1:4437", Some("127.0.0.1:4437"));
        check("x listening on http://127.0.0.1:1/ (data: /d)", Some("127.0.0.1:1"));
        check("recovery complete", None);
        check("listening on unix:/run/x", None);
    }
}
