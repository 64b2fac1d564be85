//! Lanes: deliveries that are made one after another, in the order of their events.
//!
//! A lane knows whose turn it is and how many wait. Who they are is found by looking: the keys of
//! waiting deliveries are in the order of their events, also of those that came to wait late.

use aws_lc_rs::digest;

use super::id::DeliveryNo;

/// A lane with somebody in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lane {
    /// Whose turn it is.
    pub head: DeliveryNo,
    /// How many wait for theirs.
    pub waiting: u64,
}

/// What follows when a delivery of a lane has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LaneAdvance {
    /// Nobody is left: the lane is no more.
    Empty,
    /// It is the turn of the first one that waits.
    First,
    /// It was one that waited: the lane has one less.
    Less(Lane),
}

/// The number of a subject's lane; events without a subject share one. It is a part of a hash that
/// nobody finds another subject for, so that no subject is made to wait for another.
pub fn number(subject: Option<&str>) -> u64 {
    let Some(subject) = subject else { return 0 };
    let hash = digest::digest(&digest::SHA256, subject.as_bytes());
    hash.as_ref().first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes))
}

impl Lane {
    /// Lets a delivery in. Says whether it is its turn.
    pub fn join(lane: Option<Lane>, delivery: DeliveryNo) -> (Lane, bool) {
        match lane {
            None => (Lane { head: delivery, waiting: 0 }, true),
            Some(lane) => (Lane { waiting: lane.waiting + 1, ..lane }, false),
        }
    }

    /// A delivery has ended.
    pub fn ended(self, delivery: DeliveryNo) -> LaneAdvance {
        if delivery != self.head {
            LaneAdvance::Less(Lane { waiting: self.waiting.saturating_sub(1), ..self })
        } else if self.waiting == 0 {
            LaneAdvance::Empty
        } else {
            LaneAdvance::First
        }
    }

    /// The lane when it is the turn of one that waited.
    #[must_use]
    pub fn led_by(self, head: DeliveryNo) -> Lane {
        Lane { head, waiting: self.waiting.saturating_sub(1) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subject_has_one_lane_for_ever() {
        assert_eq!(number(None), 0);
        // printf door | sha256sum
        assert_eq!(number(Some("door")), 0x2534_e2de_1dec_24fe);
        assert_ne!(number(Some("door")), number(Some("lamp")));
        assert_ne!(number(Some("")), number(None));
    }
}
