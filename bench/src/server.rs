//! A server that is measured, and its data directory; both are gone when their values are dropped.

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{bail, ensure};
use harness::{Server, Startup};

use crate::setup::RunSettings;
use crate::subject::Subject;

const READY_MAX: Duration = Duration::from_secs(120);
/// How often the directory of a server is removed before that is given up, and how soon again.
const REMOVALS: u32 = 50;
const REMOVE_AGAIN_AFTER: Duration = Duration::from_millis(20);
/// Between two questions whether a server is ready.
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(2);

pub(crate) struct DataDir(PathBuf);

impl DataDir {
    /// An empty directory on the disk that holds `target`.
    pub(crate) fn new(target: &Path, name: &str) -> anyhow::Result<DataDir> {
        let path = target.join("bench-data").join(name);
        if path.exists() {
            std::fs::remove_dir_all(&path)?;
        }
        std::fs::create_dir_all(&path)?;
        Ok(DataDir(path))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// The space that it takes on disk.
    pub(crate) fn bytes(&self) -> u64 {
        disk_bytes(&self.0)
    }
}

impl Drop for DataDir {
    fn drop(&mut self) {
        // The processes of a server that was killed may write for another moment.
        let mut removed = std::fs::remove_dir_all(&self.0);
        for _ in 0..REMOVALS {
            if removed.is_ok() {
                return;
            }
            std::thread::park_timeout(REMOVE_AGAIN_AFTER);
            removed = std::fs::remove_dir_all(&self.0);
        }
        if let Err(error) = removed {
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

/// Starts a subject and waits until it says where it listens. What it prints goes to
/// `target/bench/NAME.log`.
pub(crate) fn start(
    target: &Path,
    subject: &Subject,
    data: &DataDir,
    settings: &RunSettings,
) -> anyhow::Result<Server> {
    let log = log_path(target, subject);
    let stdout = OpenOptions::new().create(true).append(true).open(&log)?;
    let mut command = subject.command(target, data.path(), settings)?;
    match Server::launch(&mut command, &log, stdout)? {
        Startup::Listening(server) => Ok(server),
        Startup::Exited(status, _) => {
            bail!("it did not start ({status}); see {}", log.display())
        }
    }
}

/// Waits until `/readyz` is answered with 200; the time since the start of the process.
pub(crate) fn wait_until_ready(server: &Server) -> anyhow::Result<Duration> {
    loop {
        let answer = server.connect().and_then(|mut connection| connection.get("/readyz"));
        let waited = server.uptime();
        if answer.as_ref().is_ok_and(|answer| answer.status == 200) {
            return Ok(waited);
        }
        ensure!(waited < READY_MAX, "it was not ready in time: {answer:?}");
        std::thread::park_timeout(ASK_AGAIN_AFTER);
    }
}

/// Resident memory.
pub(crate) fn rss_bytes(server: &Server) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kibibytes * 1024)
}

/// Empties the log of a subject: it holds what the servers of one run said.
pub(crate) fn empty_log(target: &Path, subject: &Subject) -> anyhow::Result<()> {
    std::fs::create_dir_all(target.join("bench"))?;
    Ok(std::fs::write(log_path(target, subject), "")?)
}

fn log_path(target: &Path, subject: &Subject) -> PathBuf {
    target.join("bench").join(format!("{}.log", subject.name))
}
