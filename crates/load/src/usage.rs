//! What a run cost: CPU and memory of the server, of the generator, of everything else.
//!
//! Read from `/proc`, so only on Linux and only for a server on the same machine; elsewhere the
//! figures are absent.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::time::Instant;

use serde::Serialize;

use crate::clock;

/// `/proc` counts CPU time in units of 1/100 s on every Linux that Rust runs on.
const TICKS_PER_SECOND: f64 = 100.0;
/// Levels of directories that are told apart when disk use is reported.
const DISK_DEPTH: u32 = 2;

/// CPU and memory over the measured time. A core is one second of CPU per second.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct ResourceUsage {
    /// CPU time of the server, user and system, in seconds.
    pub server_cpu_seconds: Option<f64>,
    /// Cores the server kept busy.
    pub server_cores: Option<f64>,
    /// CPU time of the server per operation, in microseconds.
    pub server_cpu_us_per_operation: Option<f64>,
    /// Resident memory of the server at the end.
    pub server_rss_bytes: Option<u64>,
    /// The most the server ever had resident.
    pub server_rss_peak_bytes: Option<u64>,
    /// Cores this generator kept busy: near 1 means that it, not the server, was the limit.
    pub generator_cores: Option<f64>,
    /// Cores that everything else on the machine kept busy, the kernel's own threads included:
    /// a figure well above 0.2 means that the machine was not quiet.
    pub others_cores: Option<f64>,
}

impl fmt::Display for ResourceUsage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let (Some(cores), Some(rss)) = (self.server_cores, self.server_rss_bytes) {
            let each = self.server_cpu_us_per_operation.unwrap_or(0.0);
            let rss = rss / 1_000_000;
            writeln!(f, "  server      {cores:.2} cores   {each:.1} µs CPU each   {rss} MB RSS")?;
        }
        if let Some(cores) = self.generator_cores {
            write!(f, "  generator   {cores:.2} cores")?;
            match self.others_cores {
                Some(others) => writeln!(f, "   everything else {others:.2} cores")?,
                None => writeln!(f)?,
            }
        }
        Ok(())
    }
}

/// The counters at one moment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Meter {
    pid: Option<u32>,
    at: Instant,
    server_ticks: Option<u64>,
    own_ticks: Option<u64>,
    machine_ticks: Option<u64>,
}

impl Meter {
    pub(crate) fn read(pid: Option<u32>) -> Meter {
        Meter {
            pid,
            at: clock::now(),
            server_ticks: pid.and_then(server_ticks),
            own_ticks: process_ticks("/proc/self/stat"),
            machine_ticks: text("/proc/stat").as_deref().and_then(parse_machine),
        }
    }

    /// The time between two readings, in seconds.
    pub(crate) fn seconds_until(&self, end: &Meter) -> f64 {
        end.at.duration_since(self.at).as_secs_f64()
    }

    pub(crate) fn usage_until(&self, end: &Meter, operations: u64) -> ResourceUsage {
        let seconds = self.seconds_until(end).max(f64::MIN_POSITIVE);
        let spent = |start: Option<u64>, end: Option<u64>| {
            Some(end?.saturating_sub(start?) as f64 / TICKS_PER_SECOND)
        };
        let server = spent(self.server_ticks, end.server_ticks);
        let own = spent(self.own_ticks, end.own_ticks);
        let machine = spent(self.machine_ticks, end.machine_ticks);
        let others = server.zip(own).zip(machine).map(|((server, own), all)| all - server - own);
        let per_operation = |cpu: f64| (operations > 0).then(|| cpu * 1e6 / operations as f64);
        ResourceUsage {
            server_cpu_seconds: server,
            server_cores: server.map(|cpu| cpu / seconds),
            server_cpu_us_per_operation: server.and_then(per_operation),
            server_rss_bytes: end.pid.and_then(resident_bytes),
            server_rss_peak_bytes: end.pid.and_then(peak_bytes),
            generator_cores: own.map(|cpu| cpu / seconds),
            others_cores: others.map(|cpu| (cpu / seconds).max(0.0)),
        }
    }
}

/// The memory that a server has resident now. What its processes share counts once.
pub(crate) fn resident_bytes(pid: u32) -> Option<u64> {
    let children = children(pid);
    if children.is_empty() {
        return status_bytes(pid, "VmRSS:");
    }
    let share = |pid: u32| parse_status(&text(&format!("/proc/{pid}/smaps_rollup"))?, "Pss:");
    // Who has ended meanwhile has nothing.
    Some(std::iter::once(pid).chain(children).filter_map(share).sum())
}

/// The most that a server of one process ever had.
fn peak_bytes(pid: u32) -> Option<u64> {
    children(pid).is_empty().then(|| status_bytes(pid, "VmHWM:")).flatten()
}

/// The time of a server and of the processes that it has started.
fn server_ticks(pid: u32) -> Option<u64> {
    let own = process_ticks(&format!("/proc/{pid}/stat"))?;
    let children = children(pid).into_iter();
    let theirs = children.filter_map(|pid| process_ticks(&format!("/proc/{pid}/stat")));
    Some(own + theirs.sum::<u64>())
}

fn children(pid: u32) -> Vec<u32> {
    let list = text(&format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    list.split_ascii_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

fn status_bytes(pid: u32, field: &str) -> Option<u64> {
    parse_status(&text(&format!("/proc/{pid}/status"))?, field)
}

/// The space that the files under a directory take on disk, by directory. What lies deeper than
/// `DISK_DEPTH` is counted where the depth ends, so that a line stays readable.
pub(crate) fn disk_bytes(directory: &Path) -> BTreeMap<String, u64> {
    let mut sizes = BTreeMap::new();
    add_disk_bytes(directory, "", DISK_DEPTH, &mut sizes);
    sizes
}

fn add_disk_bytes(directory: &Path, name: &str, depth: u32, sizes: &mut BTreeMap<String, u64>) {
    let Ok(entries) = std::fs::read_dir(directory) else {
        // Whatever is removed while we look takes no space.
        return;
    };
    for entry in entries.flatten() {
        let Ok(metadata) = entry.metadata() else {
            continue;
        };
        if !metadata.is_dir() {
            let label = if name.is_empty() { "." } else { name };
            *sizes.entry(label.to_owned()).or_default() += allocated(&metadata);
            continue;
        }
        let below = match (depth, name) {
            (0, _) => name.to_owned(),
            (_, "") => entry.file_name().to_string_lossy().into_owned(),
            (_, _) => format!("{name}/{}", entry.file_name().to_string_lossy()),
        };
        add_disk_bytes(&entry.path(), &below, depth.saturating_sub(1), sizes);
    }
}

#[cfg(unix)]
fn allocated(metadata: &std::fs::Metadata) -> u64 {
    std::os::unix::fs::MetadataExt::blocks(metadata) * 512
}

#[cfg(not(unix))]
fn allocated(metadata: &std::fs::Metadata) -> u64 {
    metadata.len()
}

fn text(path: &str) -> Option<String> {
    std::fs::read_to_string(path).ok()
}

fn process_ticks(path: &str) -> Option<u64> {
    parse_process(&text(path)?)
}

/// User plus system time out of `/proc/PID/stat`. The name of the program may hold anything, so
/// fields are counted from the last parenthesis.
fn parse_process(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_ascii_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(user + system)
}

/// The busy time of all cores out of `/proc/stat`: everything but idle, waiting and stolen.
fn parse_machine(stat: &str) -> Option<u64> {
    let fields = stat.lines().next()?.strip_prefix("cpu ")?;
    let fields: Vec<u64> =
        fields.split_ascii_whitespace().map_while(|field| field.parse().ok()).collect();
    let [user, nice, system, _idle, _iowait, irq, softirq, ..] = fields.as_slice() else {
        return None;
    };
    Some(user + nice + system + irq + softirq)
}

fn parse_status(status: &str, field: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(field))?;
    let kibibytes: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kibibytes * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_time_is_user_plus_system_whatever_the_name() {
        let stat = "77 (a) b (c) S 1 77 77 0 -1 4194560 900 0 3 0 250 41 7 8 20 0 5 0 1 2 3";
        assert_eq!(parse_process(stat), Some(291));
        assert_eq!(parse_process("77 (a"), None);
    }

    #[test]
    fn machine_time_leaves_out_idle_waiting_and_stolen() {
        let stat = "cpu  100 10 50 9000 800 3 4 70 0 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n";
        assert_eq!(parse_machine(stat), Some(167));
        assert_eq!(parse_machine("intr 1 2"), None);
    }

    #[test]
    fn memory_is_read_in_bytes() {
        let status = "Name:\tx\nVmHWM:\t    2048 kB\nVmRSS:\t    1000 kB\n";
        assert_eq!(parse_status(status, "VmRSS:"), Some(1_024_000));
        assert_eq!(parse_status(status, "VmHWM:"), Some(2_097_152));
        assert_eq!(parse_status(status, "VmSwap:"), None);
    }

    #[test]
    fn disk_use_is_told_apart_by_directory_down_to_a_depth() {
        let root = std::env::temp_dir().join(format!("reveille-load-{}", std::process::id()));
        for (path, bytes) in [("a", 1), ("log/1", 5000), ("table/x/2", 1), ("table/x/y/z/3", 1)] {
            let path = root.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, vec![1; bytes]).unwrap();
        }
        let sizes = disk_bytes(&root);
        std::fs::remove_dir_all(&root).unwrap();
        assert_eq!(sizes.keys().collect::<Vec<_>>(), [".", "log", "table/x"]);
        assert!(sizes["log"] >= 5000, "{sizes:?}");
        assert!(sizes["table/x"] >= 2 * sizes["."].min(2), "{sizes:?}");
        assert_eq!(disk_bytes(&root), BTreeMap::new());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_process_can_be_read() {
        let pid = std::process::id();
        let start = Meter::read(Some(pid));
        let used = start.usage_until(&Meter::read(Some(pid)), 1);
        assert!(used.server_cpu_seconds.is_some() && used.others_cores.is_some(), "{used:?}");
        assert!(used.server_rss_bytes.unwrap() > 100_000, "{used:?}");
    }
}
