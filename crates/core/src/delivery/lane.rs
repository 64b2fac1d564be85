//! Lanes: deliveries that are made one after another, in the order of their events.
//!
//! A lane knows whose turn it is, how many wait, and the first of these. The others are marked, each
//! by a key, and found by looking: the keys are in the order of their events, also those of deliveries
//! that came to wait late. So a lane that is not long is one record.

use aws_lc_rs::digest;

use super::id::DeliveryNo;

/// So many that wait are known to their lane.
pub const NEXT_MAX: usize = 16;

/// A lane with somebody in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lane {
    /// Whose turn it is.
    pub head: DeliveryNo,
    /// How many wait for theirs.
    pub waiting: u64,
    /// The first of these, in order: whoever else waits comes after them, and is marked.
    pub next: Vec<DeliveryNo>,
}

/// How a delivery is let into a lane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaneJoin {
    pub lane: Lane,
    pub is_first: bool,
    /// One that waits and that the lane does not know: it is to be marked.
    pub mark: Option<DeliveryNo>,
}

/// What follows when a delivery of a lane has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LaneAdvance {
    /// Nobody is left: the lane is no more.
    Empty,
    /// It is the turn of the next one, who is the head now.
    Next(Lane),
    /// It is the turn of the first one that waits, and that has to be looked for.
    Look,
    /// It was one that waited: the lane has one less.
    Less {
        lane: Lane,
        /// Whether it was marked.
        was_marked: bool,
    },
}

/// The number of a subject's lane; events without a subject share one. It is a part of a hash that
/// nobody finds another subject for, so that no subject is made to wait for another.
pub fn number(subject: Option<&str>) -> u64 {
    let Some(subject) = subject else { return 0 };
    let hash = digest::digest(&digest::SHA256, subject.as_bytes());
    hash.as_ref().first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes))
}

impl Lane {
    /// Lets a delivery in.
    pub fn join(lane: Option<Lane>, delivery: DeliveryNo) -> LaneJoin {
        let Some(mut lane) = lane else {
            let lane = Lane { head: delivery, waiting: 0, next: Vec::new() };
            return LaneJoin { lane, is_first: true, mark: None };
        };
        // After the last one that is known there may be others before this one.
        let is_next = lane.knows_all() || lane.next.last().is_some_and(|last| delivery < *last);
        let mark = if is_next {
            let at = lane.next.partition_point(|it| *it < delivery);
            lane.next.insert(at, delivery);
            (lane.next.len() > NEXT_MAX).then(|| lane.next.pop()).flatten()
        } else {
            Some(delivery)
        };
        lane.waiting += 1;
        LaneJoin { lane, is_first: false, mark }
    }

    fn knows_all(&self) -> bool {
        u64::try_from(self.next.len()).is_ok_and(|known| known == self.waiting)
    }

    /// A delivery has ended.
    pub fn ended(mut self, delivery: DeliveryNo) -> LaneAdvance {
        let waiting = self.waiting.saturating_sub(1);
        if delivery != self.head {
            let known = self.next.len();
            self.next.retain(|it| *it != delivery);
            let was_marked = self.next.len() == known;
            LaneAdvance::Less { lane: Lane { waiting, ..self }, was_marked }
        } else if self.waiting == 0 {
            LaneAdvance::Empty
        } else if self.next.is_empty() {
            LaneAdvance::Look
        } else {
            let head = self.next.remove(0);
            LaneAdvance::Next(Lane { head, waiting, next: self.next })
        }
    }

    /// The lane when it is the turn of the first of those that were found: the first of all that are
    /// marked, in order, and no more than it can know. None of them is marked from now on. `None` if
    /// there are none.
    pub fn led_by(self, found: &[DeliveryNo]) -> Option<Lane> {
        let (head, next) = found.split_first()?;
        let waiting = self.waiting.saturating_sub(1);
        Some(Lane { head: *head, waiting, next: next.to_vec() })
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
