//! What a run has covered, so that a change which makes the simulator blind is noticed.

/// What a run has covered.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Coverage {
    /// Steps taken.
    pub steps: u64,
    /// Batches committed.
    pub batches: u64,
    /// Commands that were answered.
    pub answers: u64,
    /// Power cuts, kills and restarts.
    pub crashes: u64,
    /// Crashes that lost the batch that was being committed.
    pub lost: u64,
    /// Crashes that kept it.
    pub kept: u64,
    /// Times that another machine took over.
    pub takeovers: u64,
    /// Batches that found the disk full, or another writer.
    pub refused: u64,
    /// Keys that had to be fetched.
    pub fetches: u64,
    /// Keys that had to be fetched again because they had become stale.
    pub stale: u64,
    /// Entries of the due index that were worked off.
    pub timers: u64,
    /// Streams that were read to the end, or hooks that found room in memory again.
    pub reads: u64,
    /// Attempts to wake a consumer or to deliver an event.
    pub attempts: u64,
}

impl Coverage {
    /// Adds what another run has covered.
    pub fn add(&mut self, other: &Coverage) {
        self.steps += other.steps;
        self.batches += other.batches;
        self.answers += other.answers;
        self.crashes += other.crashes;
        self.lost += other.lost;
        self.kept += other.kept;
        self.takeovers += other.takeovers;
        self.refused += other.refused;
        self.fetches += other.fetches;
        self.stale += other.stale;
        self.timers += other.timers;
        self.reads += other.reads;
        self.attempts += other.attempts;
    }
}
