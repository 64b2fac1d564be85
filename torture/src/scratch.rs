//! The directory of one run: its data, the log of its servers, and what is kept of a failure.

use std::path::{Path, PathBuf};

use harness::{Server, workspace};

/// Short segments of the log bring what they held into the table every time that one is full, so
/// that kills meet that too.
const SHORT_SEGMENTS: [&str; 2] = ["--log-segment-bytes", "2MiB"];
/// How much of the server's log is shown with a failure.
const LOG_LINES: usize = 20;

pub(crate) struct Scratch {
    name: &'static str,
    directory: PathBuf,
}

impl Scratch {
    /// An empty `target/xtask/NAME`.
    pub(crate) fn new(name: &'static str) -> anyhow::Result<Scratch> {
        Ok(Scratch { name, directory: workspace::scratch(name)? })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.directory
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.directory.join("data")
    }

    pub(crate) fn log(&self) -> PathBuf {
        self.directory.join("server.log")
    }

    /// A server with short segments on the data of this run.
    pub(crate) fn start_server(&self, flags: &[&str]) -> anyhow::Result<Server> {
        Server::start(&self.data(), &self.log(), &[flags, &SHORT_SEGMENTS].concat())
    }

    pub(crate) fn print_end_of_log(&self) {
        let log = std::fs::read_to_string(self.log()).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        println!("the end of the server's log:");
        for line in lines.iter().skip(lines.len().saturating_sub(LOG_LINES)) {
            println!("  {line}");
        }
    }

    /// How to repeat a failure, and where to look.
    pub(crate) fn advice(&self, seed: u64) -> String {
        format!("--seed {seed}, kept in target/xtask/{}", self.name)
    }

    pub(crate) fn remove(self) -> anyhow::Result<()> {
        Ok(std::fs::remove_dir_all(self.directory)?)
    }
}
