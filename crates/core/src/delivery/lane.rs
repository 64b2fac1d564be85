//! Lanes: deliveries that are made one after another, in the order of their events.
//!
//! A lane is known by its first delivery that has not ended and its last. What lies between is
//! found by looking for the next one above the first: the keys of waiting deliveries are in order.

use super::id::DeliveryNo;

/// A lane with somebody in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lane {
    /// Whose turn it is.
    pub head: DeliveryNo,
    /// Who joined last.
    pub last: DeliveryNo,
}

/// What follows when the head of a lane has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Nobody waits: the lane is no more.
    Empty,
    /// It is the turn of the first one above the head.
    Above,
    /// It was not the head: nothing follows.
    Nothing,
}

impl Lane {
    /// Lets a delivery in, which comes after all that are there. Says whether it is its turn.
    pub fn join(lane: Option<Lane>, delivery: DeliveryNo) -> (Lane, bool) {
        match lane {
            None => (Lane { head: delivery, last: delivery }, true),
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
            Next::Above
        }
    }
}
