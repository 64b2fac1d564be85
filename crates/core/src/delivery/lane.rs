//! Lanes: deliveries that are made one after another, in the order of their events.
//!
//! A lane is known by the delivery whose turn it is and the last of those that wait behind it. Who
//! comes next is found by looking for the first above: the keys of waiting deliveries are in order.
//! One that is made again may come before the one whose turn it is; then the first of all is looked
//! for.

use super::id::DeliveryNo;

/// A lane with somebody in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lane {
    /// Whose turn it is.
    pub head: DeliveryNo,
    /// None that waits comes after this; whose turn it is if none comes after that.
    pub last: DeliveryNo,
    /// Whether some that wait come before the one whose turn it is.
    pub below: bool,
}

/// What follows when the head of a lane has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Nobody waits: the lane is no more.
    Empty,
    /// It is the turn of the first one above the head.
    Above,
    /// It is the turn of the first one of all.
    First,
    /// It was not the head: nothing follows.
    Nothing,
}

impl Lane {
    /// Lets a delivery in. Says whether it is its turn.
    pub fn join(lane: Option<Lane>, delivery: DeliveryNo) -> (Lane, bool) {
        match lane {
            None => (Lane { head: delivery, last: delivery, below: false }, true),
            Some(lane) if delivery < lane.head => (Lane { below: true, ..lane }, false),
            Some(lane) => (Lane { last: lane.last.max(delivery), ..lane }, false),
        }
    }

    /// A delivery has ended.
    pub fn ended(&self, delivery: DeliveryNo) -> Next {
        if delivery != self.head {
            Next::Nothing
        } else if self.below {
            Next::First
        } else if self.head == self.last {
            Next::Empty
        } else {
            Next::Above
        }
    }

    /// The lane when its head has ended and it is the turn of the one that was looked for.
    pub fn moved_on(&self, head: DeliveryNo) -> Lane {
        Lane { head, last: self.last.max(self.head), below: false }
    }
}
