//! What is to happen once a batch is durable.

use bytes::Bytes;
use reveille_core::stream::StreamId;
use reveille_core::{Millis, Offset};
use reveille_store::keys::ConsumerKey;

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
