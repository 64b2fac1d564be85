//! A test in a process of its own, so that what it measures is its own.

use std::process::Command;

/// Says to the child which test it is.
const CHILD: &str = "REVEILLE_IT_CHILD";

/// Runs the body of the test with this name (`module::test`) in a process of its own, and fails
/// if it fails there.
pub(crate) fn alone(name: &str, body: impl Future<Output = ()>) {
    if std::env::var(CHILD).is_ok_and(|child| child == name) {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        runtime.block_on(body);
        return;
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", name, "--nocapture", "--test-threads", "1"]).env(CHILD, name);
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    println!("{out}");
    assert!(output.status.success(), "{out}\n{err}");
    assert!(out.contains("1 passed"), "no such test: {name}\n{out}");
}

/// How far the memory of this process grows. Outside of Linux nobody can tell, and nothing is
/// asserted.
pub(crate) struct Memory {
    before: Option<u64>,
}

impl Memory {
    /// Begins to measure.
    pub(crate) fn measure() -> Memory {
        // Forgets the peak so far.
        let _ = std::fs::write("/proc/self/clear_refs", "5");
        Memory { before: status("VmRSS") }
    }

    /// The peak since then, in MiB.
    pub(crate) fn grown_mib(&self) -> u64 {
        match (self.before, status("VmHWM")) {
            (Some(before), Some(peak)) => peak.saturating_sub(before) / 1_024,
            _ => 0,
        }
    }
}

/// A line of the process's status, in KiB.
fn status(name: &str) -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim_matches(|c: char| !c.is_ascii_digit()).parse().ok()
}
