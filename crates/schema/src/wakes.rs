//! Subscriptions to streams, their consumers, and whom a stream that has grown still wakes.
//!
//! | tag | key | value |
//! |---|---|---|
//! | `06` subscription | tenant, `00`, dialect `u8` (`01` webhooks, `02` leases), name | [`Subscription`](reveille_core::subscription::Subscription) |
//! | `07` consumer | subscription id `u64`, path (none where a subscription is one consumer) | [`ConsumerRecord`] |
//! | `08` link | subscription id `u64`, path | [`LinkRecord`]: how far a stream is processed |
//! | `09` backlog | subscription id `u64`, path | empty: the stream has more than was acknowledged, and its subscription has many such streams |
//! | `0a` follower | tenant, `00`, path, `00`, subscription id `u64`, path of its consumer | empty: the consumer follows the stream by name |
//! | `0c` fan-out cursor | stream id `u64` | [`FanOutCursor`](reveille_core::fan_out::FanOutCursor): who is still to be woken because the stream grew |
//! | `1f` resting | subscription id `u64`, path (none where a subscription is one consumer) | empty: the consumer has work, and no timer looks at it |
//!
//! | timer of domain `02` | subject |
//! |---|---|
//! | `01` consumer | subscription id `u64`, path (none where a subscription is one consumer) |
//! | `02` unsubscribe | subscription id `u64`, tenant |
//! | `03` forget | stream id `u64`, tenant, `00`, path |
//! | `04` fan out to followers | stream id `u64`, tenant, `00`, path, `00`, key to go on with |
//! | `05` fan out to subscriptions | stream id `u64`, tenant, `00`, path |
//! | `06` review | subscription id `u64`, tenant |
//! | `07` backfill | subscription id `u64`, tenant |
//!
//! The value of the timer `03` is empty, or the id of the subscription up to which the work is
//! done, `u64`; that of `06` is empty, or the key of the last consumer that was reviewed; that of
//! `07` is empty, or the key of the last stream that was looked at.

mod consumer;
mod fan_out;
mod link;
mod subscription;
#[cfg(test)]
mod tests;
mod timer;

use bytes::{BufMut, Bytes, BytesMut};
use reveille_core::consumer::Dialect;
use reveille_core::stream::StreamId;
use reveille_core::subscription::SubscriptionId;
use reveille_core::{StreamPath, Tenant};

use crate::parts;

pub use consumer::ConsumerRecord;
pub use link::LinkRecord;
pub use timer::WakeTimer;

const SUBSCRIPTION: u8 = 0x06;
const CONSUMER: u8 = 0x07;
const LINK: u8 = 0x08;
const BACKLOG: u8 = 0x09;
const FOLLOWER: u8 = 0x0a;
const FAN_OUT: u8 = 0x0c;
const RESTING: u8 = 0x1f;

#[cfg(test)]
pub(crate) const TAGS: &[u8] = &[SUBSCRIPTION, CONSUMER, LINK, BACKLOG, FOLLOWER, FAN_OUT, RESTING];

/// A consumer of a subscription: the one for a stream, or, without a path, the only one.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConsumerKey {
    /// The subscription's incarnation.
    pub subscription: SubscriptionId,
    /// The stream that the consumer is for.
    pub path: Option<StreamPath>,
}

pub fn subscription_key(tenant: &Tenant, dialect: Dialect, name: &str) -> Bytes {
    let mut key = BytesMut::with_capacity(3 + tenant.as_str().len() + name.len());
    key.put_u8(SUBSCRIPTION);
    key.put_slice(tenant.as_str().as_bytes());
    key.put_u8(0);
    key.put_u8(dialect_number(dialect));
    key.put_slice(name.as_bytes());
    key.freeze()
}

/// The keys of all subscriptions of all tenants: from the first, to before the second.
pub fn subscription_keys() -> (Bytes, Bytes) {
    parts::tag_range::<SUBSCRIPTION>()
}

pub fn consumer_key(consumer: &ConsumerKey) -> Bytes {
    let mut key = BytesMut::with_capacity(64);
    key.put_u8(CONSUMER);
    put_consumer(&mut key, consumer);
    key.freeze()
}

/// The keys of a subscription's consumers: from the first, to before the second.
pub fn consumer_keys(id: SubscriptionId) -> (Bytes, Bytes) {
    parts::numbered_range(CONSUMER, id.0)
}

pub fn parse_consumer_key(key: &[u8]) -> Option<ConsumerKey> {
    parse_consumer(key.strip_prefix(&[CONSUMER])?)
}

pub fn resting_key(consumer: &ConsumerKey) -> Bytes {
    let mut key = BytesMut::with_capacity(64);
    key.put_u8(RESTING);
    put_consumer(&mut key, consumer);
    key.freeze()
}

/// The keys of all consumers that have work and no timer: from the first, to before the second.
pub fn all_resting_keys() -> (Bytes, Bytes) {
    parts::tag_range::<RESTING>()
}

pub fn parse_resting_key(key: &[u8]) -> Option<ConsumerKey> {
    parse_consumer(key.strip_prefix(&[RESTING])?)
}

pub fn link_key(id: SubscriptionId, path: &StreamPath) -> Bytes {
    of_subscription(LINK, id, path)
}

/// The keys of a subscription's links: from the first, to before the second.
pub fn link_keys(id: SubscriptionId) -> (Bytes, Bytes) {
    parts::numbered_range(LINK, id.0)
}

pub fn backlog_key(id: SubscriptionId, path: &StreamPath) -> Bytes {
    of_subscription(BACKLOG, id, path)
}

/// The keys of a subscription's streams with a backlog: from the first, to before the second.
pub fn backlog_keys(id: SubscriptionId) -> (Bytes, Bytes) {
    parts::numbered_range(BACKLOG, id.0)
}

/// The path in the key of a link or a backlog.
pub fn parse_linked_path(key: &[u8]) -> Option<StreamPath> {
    StreamPath::parse(std::str::from_utf8(key.get(9..)?).ok()?).ok()
}

pub fn follower_key(tenant: &Tenant, path: &StreamPath, consumer: &ConsumerKey) -> Bytes {
    let mut key = follower_prefix(tenant, path);
    key.put_u8(0);
    put_consumer(&mut key, consumer);
    key.freeze()
}

/// The keys of all who follow a stream by name: from the first, to before the second.
pub fn follower_keys(tenant: &Tenant, path: &StreamPath) -> (Bytes, Bytes) {
    let mut first = follower_prefix(tenant, path);
    let mut end = first.clone();
    first.put_u8(0);
    end.put_u8(1);
    (first.freeze(), end.freeze())
}

/// The keys of all who follow any stream by name: from the first, to before the second.
pub fn all_follower_keys() -> (Bytes, Bytes) {
    parts::tag_range::<FOLLOWER>()
}

/// Who follows, given the first key of [`follower_keys`].
pub fn parse_follower_key(first: &[u8], key: &[u8]) -> Option<ConsumerKey> {
    parse_consumer(key.strip_prefix(first)?)
}

pub fn fan_out_key(id: StreamId) -> Bytes {
    parts::numbered(FAN_OUT, id.0)
}

fn of_subscription(tag: u8, id: SubscriptionId, path: &StreamPath) -> Bytes {
    let mut key = BytesMut::with_capacity(9 + path.as_str().len());
    key.put_u8(tag);
    key.put_u64(id.0);
    key.put_slice(path.as_str().as_bytes());
    key.freeze()
}

fn follower_prefix(tenant: &Tenant, path: &StreamPath) -> BytesMut {
    let mut key = BytesMut::with_capacity(64);
    key.put_u8(FOLLOWER);
    parts::put_stream(&mut key, tenant, path);
    key
}

/// As it stands in keys and in records.
fn dialect_number(dialect: Dialect) -> u8 {
    match dialect {
        Dialect::Webhooks => 1,
        Dialect::Leases => 2,
    }
}

/// Subscription id `u64`, path.
pub(crate) fn put_consumer(out: &mut BytesMut, consumer: &ConsumerKey) {
    out.put_u64(consumer.subscription.0);
    out.put_slice(consumer.path.as_ref().map_or("", |path| path.as_str()).as_bytes());
}

pub(crate) fn parse_consumer(bytes: &[u8]) -> Option<ConsumerKey> {
    let (id, path) = parts::split_u64(bytes)?;
    let path = match path {
        [] => None,
        path => Some(StreamPath::parse(std::str::from_utf8(path).ok()?).ok()?),
    };
    Some(ConsumerKey { subscription: SubscriptionId(id), path })
}
