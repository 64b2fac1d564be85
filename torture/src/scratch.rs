//! The directory of one run: its data, the log of its servers, and what is kept of a failure.

use std::path::{Path, PathBuf};

use harness::{Server, Startup, workspace};

use crate::random::Random;

/// Short segments of the log bring what they held into the table every time that one is full, so
/// that kills meet that too.
const SHORT_SEGMENTS: [&str; 2] = ["--log-segment-bytes", "2MiB"];
/// How much of the server's log is shown with a failure.
const LOG_LINES: usize = 20;

pub(crate) struct Scratch {
    name: String,
    directory: PathBuf,
    partitions: u32,
    /// With more than one partition keys are asked for, and this one makes them.
    admin_key: Option<String>,
    /// What every server needs to be told about the two.
    flags: Vec<String>,
}

impl Scratch {
    /// An empty `target/xtask/NAME`, or `NAME-4` for four partitions.
    pub(crate) fn new(name: &str, partitions: u32) -> anyhow::Result<Scratch> {
        let (mut name, mut admin_key, mut flags) = (name.to_owned(), None, Vec::new());
        if partitions > 1 {
            name = format!("{name}-{partitions}");
            let key = admin_key.insert(fresh_key()).clone();
            flags.extend(["--partitions".to_owned(), partitions.to_string()]);
            flags.extend(["--auth".to_owned(), "keys".to_owned(), "--admin-key".to_owned(), key]);
            flags.push("--allow-http-loopback".to_owned());
        }
        let directory = workspace::scratch(&name)?;
        Ok(Scratch { name, directory, partitions, admin_key, flags })
    }

    pub(crate) fn partitions(&self) -> u32 {
        self.partitions
    }

    pub(crate) fn admin_key(&self) -> Option<&str> {
        self.admin_key.as_deref()
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
        self.start_server_as_is(&[flags, &SHORT_SEGMENTS].concat())
    }

    /// A server with these flags alone, and those that the data and its tenants need.
    pub(crate) fn start_server_as_is(&self, flags: &[&str]) -> anyhow::Result<Server> {
        Server::start(&self.data(), &self.log(), &self.with_own_flags(flags))
    }

    /// A server on a copy of the data, or why it refuses.
    pub(crate) fn try_start_on(&self, copy: &Path) -> anyhow::Result<Startup> {
        Server::try_start(copy, &self.log(), &self.with_own_flags(&[]))
    }

    fn with_own_flags<'a>(&'a self, flags: &[&'a str]) -> Vec<&'a str> {
        flags.iter().copied().chain(self.flags.iter().map(String::as_str)).collect()
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
        let Scratch { name, partitions, .. } = self;
        format!("--partitions {partitions} --seed {seed}, kept in target/xtask/{name}")
    }

    pub(crate) fn remove(self) -> anyhow::Result<()> {
        Ok(std::fs::remove_dir_all(self.directory)?)
    }
}

/// 32 characters: a run has an admin key that no other knows.
fn fresh_key() -> String {
    let mut random = Random::new(Random::fresh_seed());
    format!("{:016x}{:016x}", random.next(), random.next())
}
