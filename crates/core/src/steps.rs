//! Work that a client chooses, counted while it is done: whoever reaches the limit stops.
//!
//! A step is a few tens of nanoseconds: a node of a trie that is looked at, a segment that is
//! compared, a value that is found.

/// How much of something was done, and how much may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Steps {
    used: usize,
    max: usize,
}

impl Steps {
    /// Nothing done yet, and at most so much to do.
    pub fn new(max: usize) -> Steps {
        Steps { used: 0, max }
    }

    /// For those who choose the work themselves.
    pub fn unlimited() -> Steps {
        Steps::new(usize::MAX)
    }

    /// Counts steps. Says whether they were within the limit.
    pub fn count(&mut self, steps: usize) -> bool {
        self.used = self.used.saturating_add(steps);
        !self.is_exceeded()
    }

    pub fn used(&self) -> usize {
        self.used
    }

    /// How many more there may be.
    pub fn left(&self) -> usize {
        self.max.saturating_sub(self.used)
    }

    /// Whether more was done than may be.
    pub fn is_exceeded(&self) -> bool {
        self.used > self.max
    }
}
