//! The machine that the figures belong to.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

pub(crate) fn describe(target: &Path) -> Value {
    json!({
        "kernel": read("/proc/sys/kernel/osrelease"),
        "cpu": field("/proc/cpuinfo", "model name"),
        "cores": std::thread::available_parallelism().map_or(0, usize::from),
        "memory": field("/proc/meminfo", "MemTotal"),
        "filesystem": filesystem(target),
        "load_before": read("/proc/loadavg"),
        "rustc": output("rustc"),
        "node": output("node"),
    })
}

fn read(path: &str) -> Option<String> {
    Some(std::fs::read_to_string(path).ok()?.trim().to_owned())
}

fn field(path: &str, name: &str) -> Option<String> {
    let text = read(path)?;
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    Some(line.trim_start_matches([' ', '\t', ':']).to_owned())
}

fn output(program: &str) -> Option<String> {
    let output = Command::new(program).arg("--version").output().ok()?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
}

/// The type and options of the filesystem that the data directories are on.
fn filesystem(target: &Path) -> Option<String> {
    let path = target.canonicalize().ok()?;
    let mounts = read("/proc/mounts")?;
    // The longest mount point that the path lies under; a later mount hides an earlier one.
    let of = |line: &str| {
        let mut words = line.split(' ').skip(1).map(str::to_owned);
        let (point, kind, options) = (words.next()?, words.next()?, words.next()?);
        path.starts_with(&point).then(|| (point.len(), format!("{kind} ({options})")))
    };
    mounts.lines().filter_map(of).max_by_key(|(length, _)| *length).map(|(_, text)| text)
}
