//! What can be asked, and what it may come to.

use reveille_core::fact::token::TokenNo;
use reveille_engine::deliveries::append::AppendDelivery;
use reveille_engine::deliveries::delivery::{DeliveryOutcome, DropDelivery};

use crate::base::engine::Timer;

#[derive(Debug, Clone)]
pub(super) enum Action {
    Open {
        slug: usize,
    },
    Close {
        slug: usize,
    },
    Join {
        person: usize,
        slug: usize,
    },
    Leave {
        person: usize,
        slug: usize,
    },
    Issue {
        person: usize,
    },
    RevokeToken {
        index: usize,
        no: TokenNo,
    },
    MakeKey {
        person: usize,
        key: usize,
    },
    RevokeKey {
        person: usize,
        key: usize,
    },
    /// Without a mark it takes back what was said.
    Say {
        entity: usize,
        relation: usize,
        slug: Option<usize>,
        mark: Option<String>,
    },
    Subscribe {
        person: usize,
        key: usize,
        target: usize,
        name: String,
        wakes: bool,
    },
    RecordOutcome(DeliveryOutcome),
    Drop(DropDelivery),
    Append(Box<AppendDelivery>),
    Timer(Box<Timer>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    Done,
    /// Whether an attempt was made.
    Appended(bool),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Refusal {
    Unavailable,
    /// By the rules of facts.
    Rejected,
    /// Nothing that the model ever expects.
    Other(String),
}
