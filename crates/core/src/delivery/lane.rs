//! Lanes: deliveries that are made one after another, in the order of their events.
//!
//! A lane is known by the delivery whose turn it is and the last of those that wait behind it. Who
//! comes next is found by looking for the first: the keys of waiting deliveries are in order. One
//! that is made again may come before the one whose turn it is.

use super::id::DeliveryNo;

/// A lane with somebody in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lane {
    /// Whose turn it is.
    pub head: DeliveryNo,
    /// The last of those that wait; whose turn it is if nobody does.
    pub last: DeliveryNo,
}

/// What follows when the head of a lane has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Nobody waits: the lane is no more.
    Empty,
    /// It is the turn of the first one that waits.
    First,
    /// It was not the head: nothing follows.
    Nothing,
}

impl Lane {
    /// Lets a delivery in. Says whether it is its turn.
    pub fn join(lane: Option<Lane>, delivery: DeliveryNo) -> (Lane, bool) {
        match lane {
            None => (Lane { head: delivery, last: delivery }, true),
            Some(Lane { head, last }) if head == last => (Lane { head, last: delivery }, false),
            Some(Lane { head, last }) => (Lane { head, last: last.max(delivery) }, false),
        }
    }

    /// A delivery has ended.
    pub fn ended(&self, delivery: DeliveryNo) -> Next {
        if delivery != self.head {
            Next::Nothing
        } else if self.head == self.last {
            Next::Empty
        } else {
            Next::First
        }
    }
}
