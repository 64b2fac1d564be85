//! Subscriptions to streams, their consumers, and whom a stream that has grown still wakes.
//!
//! | timer of domain `02` | subject |
//! |---|---|
//! | `01` consumer | subscription id `u64`, path (none where a subscription is one consumer) |
//! | `02` unsubscribe | subscription id `u64`, tenant |
//! | `03` forget | stream id `u64`, tenant, `00`, path |
//! | `04` fan out to followers | stream id `u64`, tenant, `00`, path, `00`, key to go on with |
//! | `05` fan out to subscriptions | stream id `u64`, tenant, `00`, path |

#[cfg(test)]
mod tests;
mod timer;

use bytes::{BufMut, BytesMut};
use reveille_core::StreamPath;
use reveille_core::subscription::SubscriptionId;

use crate::parts;

pub use timer::WakeTimer;

/// A consumer of a subscription: the one for a stream, or, without a path, the only one.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConsumerKey {
    /// The subscription's incarnation.
    pub subscription: SubscriptionId,
    /// The stream that the consumer is for.
    pub path: Option<StreamPath>,
}

pub(crate) fn put_consumer(out: &mut BytesMut, key: &ConsumerKey) {
    out.put_u64(key.subscription.0);
    out.put_slice(key.path.as_ref().map_or("", |path| path.as_str()).as_bytes());
}

pub(crate) fn parse_consumer_key(bytes: &[u8]) -> Option<ConsumerKey> {
    let (id, path) = parts::split_u64(bytes)?;
    let path = match path {
        [] => None,
        path => Some(StreamPath::parse(std::str::from_utf8(path).ok()?).ok()?),
    };
    Some(ConsumerKey { subscription: SubscriptionId(id), path })
}
