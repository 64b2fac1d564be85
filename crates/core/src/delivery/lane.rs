//! Lanes: deliveries that are made one after another, in the order of their events.
//!
//! A lane knows whose turn it is, how many wait, and the first of these. Who the others are is found
//! by looking: the keys of waiting deliveries are in the order of their events, also of those that
//! came to wait late.

use aws_lc_rs::digest;

use super::id::DeliveryNo;

/// So many that wait are known to their lane: one that is not long is never looked through.
pub const NEXT_MAX: usize = 16;

/// A lane with somebody in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lane {
    /// Whose turn it is.
    pub head: DeliveryNo,
    /// How many wait for theirs.
    pub waiting: u64,
    /// The first of these, in order: whoever else waits comes after them.
    pub next: Vec<DeliveryNo>,
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
            None => (Lane { head: delivery, waiting: 0, next: Vec::new() }, true),
            Some(mut lane) => {
                let knows_all = lane.knows_all();
                // After the last one that is known there may be others before this one.
                if knows_all || lane.next.last().is_some_and(|last| delivery < *last) {
                    let at = lane.next.partition_point(|it| *it < delivery);
                    lane.next.insert(at, delivery);
                    lane.next.truncate(NEXT_MAX);
                }
                lane.waiting += 1;
                (lane, false)
            }
        }
    }

    fn knows_all(&self) -> bool {
        u64::try_from(self.next.len()).is_ok_and(|known| known == self.waiting)
    }

    /// A delivery has ended.
    pub fn ended(mut self, delivery: DeliveryNo) -> LaneAdvance {
        let waiting = self.waiting.saturating_sub(1);
        if delivery != self.head {
            self.next.retain(|it| *it != delivery);
            LaneAdvance::Less(Lane { waiting, ..self })
        } else if self.waiting == 0 {
            LaneAdvance::Empty
        } else if self.next.is_empty() {
            LaneAdvance::Look
        } else {
            let head = self.next.remove(0);
            LaneAdvance::Next(Lane { head, waiting, next: self.next })
        }
    }

    /// The lane when it is the turn of the first of those that were found waiting: the first of all
    /// that wait, in order. `None` if there are none.
    pub fn led_by(self, found: impl IntoIterator<Item = DeliveryNo>) -> Option<Lane> {
        let mut found = found.into_iter();
        let head = found.next()?;
        let next = found.take(NEXT_MAX).collect();
        Some(Lane { head, waiting: self.waiting.saturating_sub(1), next })
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
