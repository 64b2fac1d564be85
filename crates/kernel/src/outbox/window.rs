//! How many attempts of one source may be under way: as many as it has shown that it can take.
//!
//! An endpoint that answers within a millisecond needs few at once, one that is far away or takes
//! its time needs many, and one that never answers must not have the places of others. So the
//! window of a hook begins small, grows with every good answer up to what the quickest answers are
//! worth, and shrinks with every attempt that nobody answered.

use crate::limits::OUTBOUND_PER_SOURCE;

/// At first.
const FIRST: usize = 16;
/// Never less: whoever comes back to life must be noticed.
const LEAST: usize = 4;
/// However quick the answers.
const LEAST_MOST: usize = 32;
/// For every millisecond that the quickest answers take.
const PER_MS: usize = 16;
/// The quickest answer is looked for among so many.
const AMONG: u32 = 4_096;

#[derive(Debug, Clone, Copy)]
pub(super) struct Window {
    size: usize,
    quickest_ms: u64,
    answers: u32,
}

impl Window {
    /// For somebody who has shown nothing yet.
    pub(super) fn new() -> Window {
        Window { size: FIRST, quickest_ms: u64::MAX, answers: 0 }
    }

    /// For somebody whose consumers have been promised their attempts, quick or not.
    pub(super) fn wide() -> Window {
        Window { size: OUTBOUND_PER_SOURCE, quickest_ms: u64::MAX, answers: 0 }
    }

    pub(super) fn size(&self) -> usize {
        self.size
    }

    /// An attempt was accepted after so long.
    pub(super) fn answered(&mut self, took_ms: u64) {
        self.answers += 1;
        if self.answers > AMONG {
            *self = Window { size: self.size, quickest_ms: took_ms, answers: 0 };
        }
        self.quickest_ms = self.quickest_ms.min(took_ms);
        let worth = usize::try_from(self.quickest_ms).unwrap_or(usize::MAX);
        let most = worth.saturating_mul(PER_MS).clamp(LEAST_MOST, OUTBOUND_PER_SOURCE);
        self.size = (self.size + 1).min(most);
    }

    /// An attempt was given up after a while.
    pub(super) fn unanswered(&mut self) {
        self.size = (self.size / 2).max(LEAST);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(answers: usize, took_ms: u64) -> Window {
        let mut window = Window::new();
        for _ in 0..answers {
            window.answered(took_ms);
        }
        window
    }

    #[test]
    fn a_window_grows_to_what_answers_are_worth() {
        assert_eq!(after(1, 0).size(), FIRST + 1);
        assert_eq!(after(10_000, 0).size(), LEAST_MOST);
        assert_eq!(after(10_000, 10).size(), 160);
        assert_eq!(after(10_000, 5_000).size(), OUTBOUND_PER_SOURCE);
    }

    #[test]
    fn one_that_never_answers_keeps_a_few_places_and_can_win_others_back() {
        let mut window = after(10_000, 100);
        for _ in 0..20 {
            window.unanswered();
        }
        assert_eq!(window.size(), LEAST);
        for _ in 0..10_000 {
            window.answered(1_500);
        }
        assert_eq!(window.size(), OUTBOUND_PER_SOURCE);
    }
}
