//! Steps of a longer command: what runs, how long it took, how many tests passed.

use std::fmt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
}

impl Tally {
    /// For a step that is one test by itself.
    pub(crate) fn one((): ()) -> Tally {
        Tally { passed: 1, failed: 0 }
    }

    /// For a step that tests nothing.
    pub(crate) fn none((): ()) -> Tally {
        Tally::default()
    }

    pub(crate) fn add(&mut self, other: Tally) {
        self.passed += other.passed;
        self.failed += other.failed;
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed", self.passed, self.failed)
    }
}

#[derive(Default)]
pub(crate) struct Steps {
    done: Vec<(&'static str, Duration, Tally)>,
}

impl Steps {
    /// Runs one step; an error counts as one failure. Returns whether nothing failed.
    pub(crate) fn run(
        &mut self,
        name: &'static str,
        step: impl FnOnce() -> anyhow::Result<Tally>,
    ) -> bool {
        println!("== {name}");
        let start = Instant::now();
        let tally = step().unwrap_or_else(|error| {
            println!("error: {error:#}");
            Tally { passed: 0, failed: 1 }
        });
        let elapsed = start.elapsed();
        println!("== {name}: {tally} in {:.1} s\n", elapsed.as_secs_f64());
        self.done.push((name, elapsed, tally));
        tally.failed == 0
    }

    /// Prints the steps and, alone on the last line, the totals.
    pub(crate) fn finish(self) -> anyhow::Result<()> {
        let mut total = Tally::default();
        for (name, elapsed, tally) in &self.done {
            let seconds = elapsed.as_secs_f64();
            println!("{name:<12} {seconds:>7.1} s  {tally}");
            total.add(*tally);
        }
        println!("{total}");
        if total.failed > 0 {
            bail!("{} failed", total.failed);
        }
        Ok(())
    }
}

/// Runs a program to its end, with its output on ours and nothing on its input.
pub(crate) fn call(command: &mut Command) -> anyhow::Result<()> {
    let shown = shown(command);
    println!("$ {shown}");
    let status = command.stdin(Stdio::null()).status();
    let status = status.with_context(|| format!("{shown}: cannot be started"))?;
    if !status.success() {
        bail!("{shown}: {status}");
    }
    Ok(())
}

/// The command as one would type it: the program's name without its directory.
pub(crate) fn shown(command: &Command) -> String {
    let program = std::path::Path::new(command.get_program());
    let name = program.file_name().unwrap_or(program.as_os_str());
    let words = std::iter::once(name).chain(command.get_args());
    let words: Vec<_> = words.map(|word| word.to_string_lossy()).collect();
    words.join(" ")
}
