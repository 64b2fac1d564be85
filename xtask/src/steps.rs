//! Steps of a longer command: what runs, how long it took, how many tests passed.

use std::time::{Duration, Instant};

use harness::Tally;

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
            println!("{name:<24} {seconds:>7.1} s  {tally}");
            total.add(*tally);
        }
        total.report()
    }
}
