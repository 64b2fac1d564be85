//! A reveille process under test: started on a free port, killed without warning.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use anyhow::{Context as _, bail};

const START_MAX: Duration = Duration::from_secs(60);

pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    child: Child,
    log: PathBuf,
}

pub(crate) enum Start {
    Listening(Server),
    /// It ended by itself, and this is what it said.
    Refused(ExitStatus, String),
}

impl Server {
    /// Returns when the server says that it listens, or has ended instead. What it writes to
    /// standard error is in `log`.
    pub(crate) fn try_start(data: &Path, log: &Path, more: &[&str]) -> anyhow::Result<Start> {
        let program = crate::workspace::reveille()?;
        let mut child = Command::new(&program)
            .args(["serve", "--listen", "127.0.0.1:0", "--long-poll-timeout", "500ms"])
            .arg("--data-dir")
            .arg(data)
            .args(more)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(File::create(log)?)
            .spawn()
            .with_context(|| format!("{} cannot be started", program.display()))?;
        let output = child.stdout.take().context("the output is piped")?;
        let nowhere = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut server = Server { address: nowhere, child, log: log.to_owned() };
        let (announce, announced) = mpsc::channel();
        // Reads on for as long as the server lives, which must not block on a full pipe.
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if let Some(address) = line.strip_prefix("listening on http://") {
                    let _ = announce.send(address.trim_end_matches('/').parse());
                }
            }
        });
        match announced.recv_timeout(START_MAX) {
            Ok(address) => {
                server.address = address.context("`listening on` without an address")?;
                Ok(Start::Listening(server))
            }
            Err(RecvTimeoutError::Disconnected) => {
                let status = server.child.wait()?;
                Ok(Start::Refused(status, server.complaints()))
            }
            Err(RecvTimeoutError::Timeout) => {
                bail!("the server neither listened nor ended within {START_MAX:?}")
            }
        }
    }

    pub(crate) fn start(data: &Path, log: &Path) -> anyhow::Result<Server> {
        Server::start_with(data, log, &[])
    }

    /// The same with further settings.
    pub(crate) fn start_with(data: &Path, log: &Path, more: &[&str]) -> anyhow::Result<Server> {
        match Server::try_start(data, log, more)? {
            Start::Listening(server) => Ok(server),
            Start::Refused(status, said) => {
                bail!("the server did not start ({status}), it said:\n{said}")
            }
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// What it has written to standard error so far.
    pub(crate) fn complaints(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    /// How it ended, if it ended by itself.
    pub(crate) fn ended(&mut self) -> anyhow::Result<Option<ExitStatus>> {
        Ok(self.child.try_wait()?)
    }

    /// `kill -9`, and waits until the process is gone.
    pub(crate) fn kill(mut self) -> anyhow::Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Nothing is left behind when a check fails. Killing what has ended is not an error here.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
