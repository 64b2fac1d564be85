//! What is to happen once a batch is durable.

use std::sync::Arc;

use bytes::Bytes;
use reveille_core::delivery::id::DeliveryId;
use reveille_core::stream::StreamId;
use reveille_core::subscription::SubscriptionId;
use reveille_core::{Millis, Offset, Tenant};
use reveille_store::keys::ConsumerKey;

use crate::activity::Activity;
use crate::keys::KeyChange;

/// A consequence of a decision. It runs after the batch is durable; what must not be forgotten in
/// a crash is in the state as well.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// A stream has grown, or was closed: its live readers are told.
    Grown {
        /// The stream.
        id: StreamId,
        /// Its tail before.
        from: Offset,
        /// What was appended, as it is stored.
        data: Bytes,
        /// Whether that was the last.
        closed: bool,
    },
    /// A stream has ended: its live readers are let go.
    Ended(StreamId),
    /// The due index has an entry for this time.
    Due(Millis),
    /// A consumer is to be told that there is work.
    Tell(Told),
    /// A consumer is busy with something else now: that is counted.
    Moved(Moved),
    /// A key was made or revoked.
    Key(KeyChange),
    /// An event is to be delivered.
    Deliver(Job),
}

impl Effect {
    /// Whether somebody waits for it. What is only counted, or is due some day, can wait.
    pub fn is_pressing(&self) -> bool {
        !matches!(self, Effect::Due(_) | Effect::Moved(_))
    }
}

/// An attempt to deliver an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    /// Which delivery.
    pub id: DeliveryId,
    /// For the how manieth time.
    pub attempt: u32,
    /// Whose.
    pub tenant: Tenant,
    /// The event, if it is at hand: then nothing has to be read.
    pub fresh: Option<Fresh>,
}

/// An event that came a moment ago.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fresh {
    /// Its name.
    pub id: Arc<str>,
    /// When it came.
    pub at: Millis,
    /// What it says.
    pub words: Bytes,
}

/// What became of a consumer, for those who watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moved {
    /// What it was busy with.
    pub from: Activity,
    /// What it is busy with.
    pub to: Activity,
    /// Whether a wake was begun.
    pub woken: bool,
    /// Its subscription, if it was given up because its endpoint failed for too long.
    pub given_up: Option<SubscriptionId>,
}

/// An attempt to tell a consumer.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Told {
    /// Who.
    pub consumer: ConsumerKey,
    /// Of which wake.
    pub epoch: u64,
    /// For the how manieth time.
    pub attempt: u32,
}
