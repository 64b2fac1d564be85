//! More subscriptions match a stream than one batch can tell: who is still to be told, and of what.
//!
//! An append tells the first of them in its own batch and leaves the others to a *walk*, which tells
//! slice after slice in the order of their numbers. What it needs to know is a crowd:
//!
//! ```text
//!            told           after                through
//!   ──────────┼───────────────┼─────────────────────┼──────▶ numbers of subscriptions
//!    told by  │ told by this  │ still to be told    │
//!    appends  │ walk          │ by this walk        │
//! ```
//!
//! Whoever is above `after` is told of appends that came while the walk was on, too; whoever is
//! below and was not told by such an append itself is in `again`, and another walk comes for them.
//!
//! # Nobody misses an event, and nobody is told of one from before its time
//!
//! A consumer that was never told of a stream has no record, so how far it has come must be known
//! without it: up to the first append after its subscription began, since that append, and every
//! later one, would have told it. A *mark* is an append, by the youngest number that matched then
//! and the tail before it. Numbers grow with time, so a mark is of an append that a subscription
//! witnessed if and only if its number is not above the mark's youngest. Every append that leaves
//! somebody to a walk adds a mark if its youngest is above all earlier ones. Hence the first mark
//! that a subscription witnessed is the first append that it witnessed and was not told of; if there
//! is none, the append that is telling now is the first.
//!
//! - Subscriptions that end meanwhile leave their numbers in marks and bounds; these stay true,
//!   because they are only compared. A consumer that moves into an append's own slice because of
//!   that is begun from the same mark as the walk would have begun it from.
//! - When a walk ends, everybody up to the last mark's youngest has a record. Earlier marks are
//!   needed no longer.
//! - A crowd belongs to one incarnation of a stream. The next one at the path has another.
//! - The crowd, its entry in the due index, the head's flag and the records of those who were told
//!   change in one batch, which the log has whole or not at all: whatever is undone or lost, the
//!   four agree.

use crate::offset::Offset;
use crate::subscription::SubscriptionId;

/// An append, by who witnessed it and where the stream ended before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Watermark {
    /// The youngest subscription that matched.
    pub youngest: SubscriptionId,
    /// The tail before; `None` if the stream began with it.
    pub before: Option<Offset>,
}

/// Subscriptions in the order of their numbers: those above the first and not above the second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IdRange {
    /// All are above this.
    pub after: SubscriptionId,
    /// None is above this.
    pub through: SubscriptionId,
}

impl IdRange {
    /// Whether the subscription is one of them.
    pub fn contains(&self, id: SubscriptionId) -> bool {
        self.after < id && id <= self.through
    }
}

/// What the batches of appends have left to be told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FanOutCursor {
    /// Appends that somebody is told of as the first one ever; the oldest is first.
    pub marks: Vec<Watermark>,
    /// Whom the walk has still to tell.
    pub walk: IdRange,
    /// Whom it had told already when the stream grew once more.
    pub again: Option<IdRange>,
}

impl FanOutCursor {
    /// An append has told everybody up to a number, and leaves the rest.
    pub fn new(mark: Watermark, told: SubscriptionId) -> FanOutCursor {
        let walk = IdRange { after: told, through: mark.youngest };
        FanOutCursor { marks: vec![mark], walk, again: None }
    }

    /// Another append has told everybody up to a number, and leaves the rest.
    pub fn grown(&mut self, mark: Watermark, told: SubscriptionId) {
        if self.marks.last().is_none_or(|last| last.youngest < mark.youngest) {
            self.marks.push(mark);
        }
        let walked = self.walk.after;
        self.walk.through = self.walk.through.max(mark.youngest);
        if told >= walked {
            self.walk.after = told;
            return;
        }
        let again = self.again.unwrap_or(IdRange { after: told, through: walked });
        self.again =
            Some(IdRange { after: again.after.min(told), through: again.through.max(walked) });
    }

    /// The walk has told everybody up to a number. What is left of the crowd.
    pub fn told(mut self, through: SubscriptionId) -> Option<FanOutCursor> {
        self.walk.after = through;
        if self.walk.through <= through {
            self.walk = self.again.take()?;
            self.marks.drain(..self.marks.len().saturating_sub(1));
        }
        Some(self)
    }

    /// How far a subscription has come that was never told of the stream; `None` if it has missed
    /// nothing yet.
    pub fn first_missed(&self, id: SubscriptionId) -> Option<Watermark> {
        self.marks.iter().find(|mark| id <= mark.youngest).copied()
    }

    /// Whether the subscription is still to be told of something.
    pub fn awaits(&self, id: SubscriptionId) -> bool {
        self.walk.contains(id) || self.again.is_some_and(|it| it.contains(id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(youngest: u64, before: u64) -> Watermark {
        Watermark { youngest: SubscriptionId(youngest), before: Some(Offset::new(before)) }
    }

    fn stretch(after: u64, through: u64) -> IdRange {
        IdRange { after: SubscriptionId(after), through: SubscriptionId(through) }
    }

    fn missed(fan_out: &FanOutCursor, id: u64) -> Option<u64> {
        let mark = fan_out.first_missed(SubscriptionId(id))?;
        mark.before.map(Offset::position)
    }

    #[test]
    fn a_walk_goes_on_until_everybody_is_told() {
        let fan_out = FanOutCursor::new(mark(10, 0), SubscriptionId(4));
        assert_eq!(fan_out.walk, stretch(4, 10));
        let fan_out = fan_out.told(SubscriptionId(8)).unwrap();
        assert!(!fan_out.awaits(SubscriptionId(8)) && fan_out.awaits(SubscriptionId(9)));
        assert_eq!(fan_out.told(SubscriptionId(10)), None);
    }

    #[test]
    fn those_who_were_told_before_the_stream_grew_again_are_told_again() {
        let mut fan_out = FanOutCursor::new(mark(10, 0), SubscriptionId(2));
        fan_out.grown(mark(10, 5), SubscriptionId(2));
        assert_eq!((fan_out.walk, fan_out.again), (stretch(2, 10), None));
        fan_out = fan_out.told(SubscriptionId(6)).unwrap();
        fan_out.grown(mark(12, 9), SubscriptionId(3));
        assert_eq!((fan_out.walk, fan_out.again), (stretch(6, 12), Some(stretch(3, 6))));
        fan_out = fan_out.told(SubscriptionId(8)).unwrap();
        fan_out.grown(mark(12, 11), SubscriptionId(2));
        assert_eq!(fan_out.again, Some(stretch(2, 8)));
        fan_out = fan_out.told(SubscriptionId(12)).unwrap();
        assert_eq!((fan_out.walk, fan_out.again), (stretch(2, 8), None));
        // Somebody who came in the meantime is told by this walk, too.
        fan_out.grown(mark(14, 13), SubscriptionId(4));
        assert_eq!((fan_out.walk, fan_out.again), (stretch(4, 14), None));
        assert_eq!(fan_out.told(SubscriptionId(14)), None);
    }

    #[test]
    fn an_append_that_tells_more_than_the_walk_has_told_moves_it_on() {
        let mut fan_out = FanOutCursor::new(mark(10, 0), SubscriptionId(4));
        // Some of the first four have ended.
        fan_out.grown(mark(10, 5), SubscriptionId(6));
        assert_eq!((fan_out.walk, fan_out.again), (stretch(6, 10), None));
    }

    #[test]
    fn everybody_begins_with_the_first_append_after_its_subscription() {
        let mut fan_out = FanOutCursor::new(mark(10, 0), SubscriptionId(4));
        fan_out.grown(mark(10, 5), SubscriptionId(4));
        fan_out.grown(mark(12, 9), SubscriptionId(4));
        fan_out.grown(mark(15, 13), SubscriptionId(4));
        for (id, before) in [(3, 0), (10, 0), (11, 9), (12, 9), (13, 13), (15, 13)] {
            assert_eq!(missed(&fan_out, id), Some(before), "{id}");
        }
        assert_eq!(missed(&fan_out, 16), None);
    }

    #[test]
    fn marks_go_when_everybody_was_told() {
        let mut fan_out = FanOutCursor::new(mark(10, 0), SubscriptionId(4));
        fan_out = fan_out.told(SubscriptionId(7)).unwrap();
        fan_out.grown(mark(12, 9), SubscriptionId(4));
        fan_out = fan_out.told(SubscriptionId(12)).unwrap();
        assert_eq!(fan_out.marks, [mark(12, 9)]);
        fan_out.grown(mark(13, 20), SubscriptionId(4));
        assert_eq!((missed(&fan_out, 13), missed(&fan_out, 14)), (Some(20), None));
    }
}
