//! What is to happen once a batch is durable.

use std::sync::Arc;

use bytes::Bytes;
use reveille_core::delivery::id::DeliveryId;
use reveille_core::stream::StreamId;
use reveille_core::subscription::SubscriptionId;
use reveille_core::{Millis, Offset, Tenant};
use reveille_schema::keys::ConsumerKey;

use crate::activity::ConsumerActivity;
use crate::keys::KeyChange;

/// A consequence of a decision. It runs after the batch is durable; what must not be forgotten in
/// a crash is in the state as well.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// A stream has grown, or was closed: its live readers are told.
    NotifyReaders {
        id: StreamId,
        /// Its tail before.
        from: Offset,
        /// What was appended, as it is stored.
        data: Bytes,
        /// Whether that was the last.
        closed: bool,
    },
    /// A stream has ended: its live readers are let go.
    ReleaseReaders(StreamId),
    /// The due index has an entry for this time.
    SetTimer(Millis),
    /// A consumer is to be told that there is work.
    SendWake(WakeAttempt),
    /// A consumer is busy with something else now: that is counted.
    CountActivity(ActivityChange),
    /// A key was made or revoked.
    Key(KeyChange),
    /// An event is to be delivered.
    SendDelivery(DeliveryAttempt),
}

impl Effect {
    /// Whether somebody waits for it. What is only counted, or is due some day, can wait.
    pub fn is_urgent(&self) -> bool {
        !matches!(self, Effect::SetTimer(_) | Effect::CountActivity(_))
    }
}

/// An attempt to deliver an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeliveryAttempt {
    pub id: DeliveryId,
    /// Counted from 1.
    pub attempt: u32,
    pub tenant: Tenant,
    /// The event, if it is at hand: then nothing has to be read.
    pub fresh: Option<Fresh>,
}

/// An event that came a moment ago.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fresh {
    pub id: Arc<str>,
    /// When it came.
    pub at: Millis,
    /// What it says.
    pub payload: Bytes,
}

/// What became of a consumer, for those who watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ActivityChange {
    /// What it was busy with.
    pub from: ConsumerActivity,
    /// What it is busy with.
    pub to: ConsumerActivity,
    /// Whether a wake was begun.
    pub woken: bool,
    /// Its subscription, if it was given up because its endpoint failed for too long.
    pub given_up: Option<SubscriptionId>,
}

/// An attempt to tell a consumer.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct WakeAttempt {
    pub consumer: ConsumerKey,
    /// Of which wake.
    pub epoch: u64,
    /// Counted from 1.
    pub attempt: u32,
}
