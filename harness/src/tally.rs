//! How many tests passed and failed.

use std::fmt;

use anyhow::bail;

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Tally {
    pub passed: u64,
    pub failed: u64,
}

impl Tally {
    /// For a step that is one test by itself.
    pub fn one((): ()) -> Tally {
        Tally { passed: 1, failed: 0 }
    }

    /// For a step that tests nothing.
    pub fn none((): ()) -> Tally {
        Tally::default()
    }

    pub fn add(&mut self, other: Tally) {
        self.passed += other.passed;
        self.failed += other.failed;
    }

    /// Prints the totals alone on a line; an error if anything failed.
    pub fn report(self) -> anyhow::Result<()> {
        println!("{self}");
        if self.failed > 0 {
            bail!("{} failed", self.failed);
        }
        Ok(())
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed", self.passed, self.failed)
    }
}
