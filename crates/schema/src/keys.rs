//! Every key of the state, in one place.
//!
//! A key begins with a tag byte. Tags are persisted: they are never changed and never reused.
//! Integers are big-endian, so that byte order is the order of the numbers.
//!
//! | tag | key | value |
//! |---|---|---|
//! | `01` meta | name | see [`Meta`] |
//! | `02` stream | tenant, `00`, path | [`Head`](reveille_core::stream::Head) as CBOR ([`crate::record`]) |
//! | `03` producer | stream id `u64`, producer id | epoch and sequence as CBOR |
//! | `04` chunk | stream id `u64`, first position `u64` | consecutive appends ([`crate::chunk`]); see [`trim`] |
//! | `05` due | due time in ms `u64`, kind `u8`, subject | empty: the key says it all ([`Due`]); how far a [`Due::Forget`] has come |
//! | `06` subscription | tenant, `00`, dialect `u8`, name | [`Subscription`](reveille_core::subscription::Subscription) as CBOR |
//! | `07` consumer | subscription id `u64`, path (none where a subscription is one consumer) | [`ConsumerRecord`](crate::record::ConsumerRecord) as CBOR |
//! | `08` link | subscription id `u64`, path | how far a stream is processed, as CBOR |
//! | `09` backlog | subscription id `u64`, path | empty: the stream has more than was acknowledged, and its subscription has many such streams |
//! | `0a` follower | tenant, `00`, path, `00`, subscription id `u64`, path of its consumer | empty: the consumer follows the stream by name |
//! | `0b` key | SHA-256 of the key (32) | [`Key`](reveille_core::key::Key) as CBOR; in the first partition |
//! | `0c` crowd | stream id `u64` | [`Crowd`](reveille_core::fan_out::Crowd) as CBOR: who is still to be told that the stream grew |
//! | `0d` hook | tenant, `00`, name | [`Hook`](reveille_core::delivery::hook::Hook) as CBOR |
//! | `0e` event | tenant, `00`, number `u64` | [`EventRecord`](crate::record::EventRecord) as CBOR |
//! | `0f` event id | tenant, `00`, id | number of the event that had it last, `u64` |
//! | `0f` event ids | tenant, `00`, `00`, first id `u128` | number of the event with the first of these ids, `u64` |
//! | `10` delivery | hook `u64`, event `u64`, round `u16` | [`DeliveryRecord`](crate::record::DeliveryRecord) as CBOR |
//! | `11` tally | hook `u64` | [`DeliveryCounts`](reveille_core::delivery::hook::DeliveryCounts) as CBOR |
//! | `12` dead letter | hook `u64`, `ff…` minus time of death `u64`, event `u64`, round `u16` | empty: newest first |
//! | `13` held | hook `u64`, event `u64`, round `u16` | empty: waits for its hook to be active |
//! | `14` lane | hook `u64`, lane `u64` | [`Lane`](reveille_core::delivery::lane::Lane) as CBOR |
//! | `15` waiting | hook `u64`, lane `u64`, event `u64`, round `u16` | empty: waits for its turn in the lane |
//! | `16` fan-out | tenant, `00`, event `u64` | number of the last hook that has its delivery, `u64` |
//! | `17` ingested | tenant, `00`, id of a batch | how many events it had, `u64` |
//! | `18` later | time in ms `u64`, key | empty: the key is of no use after that time |

mod deliveries;

use bytes::{BufMut, Bytes, BytesMut};
use reveille_core::consumer::Dialect;
use reveille_core::delivery::hook::HookId;
use reveille_core::delivery::id::{DeliveryId, EventNo};
use reveille_core::key::KeyHash;
use reveille_core::stream::StreamId;
use reveille_core::subscription::SubscriptionId;
use reveille_core::{Millis, StreamPath, Tenant};

pub use crate::wakes::ConsumerKey;
use crate::wakes::{parse_consumer_key, put_consumer};

pub use deliveries::*;
use deliveries::{parse_id, put_delivery};

const META: u8 = 0x01;
const STREAM: u8 = 0x02;
const PRODUCER: u8 = 0x03;
const DUE: u8 = 0x05;
const SUBSCRIPTION: u8 = 0x06;
const CONSUMER: u8 = 0x07;
const LINK: u8 = 0x08;
const BACKLOG: u8 = 0x09;
const FOLLOWER: u8 = 0x0a;
const KEY: u8 = 0x0b;
const CROWD: u8 = 0x0c;
const HOOK: u8 = 0x0d;
const EVENT: u8 = 0x0e;
const EVENT_ID: u8 = 0x0f;
const DELIVERY: u8 = 0x10;
const TALLY: u8 = 0x11;
const DEAD_LETTER: u8 = 0x12;
const HELD: u8 = 0x13;
const LANE: u8 = 0x14;
const WAITING: u8 = 0x15;
const FAN_OUT: u8 = 0x16;
const INGESTED: u8 = 0x17;
const LATER: u8 = 0x18;

const DUE_EXPIRE: u8 = 0x01;
const DUE_PURGE: u8 = 0x02;
const DUE_RELEASE: u8 = 0x03;
const DUE_CONSUMER: u8 = 0x04;
const DUE_UNSUBSCRIBE: u8 = 0x05;
const DUE_FORGET: u8 = 0x06;
const DUE_FAN_OUT_TO_FOLLOWERS: u8 = 0x07;
const DUE_FAN_OUT_TO_SUBSCRIPTIONS: u8 = 0x08;
const DUE_DELIVERY: u8 = 0x09;
const DUE_FAN_OUT_TO_HOOKS: u8 = 0x0a;
const DUE_BACKFILL: u8 = 0x0b;
const DUE_RESUME: u8 = 0x0c;
const DUE_UNHOOK: u8 = 0x0d;
const DUE_DELIVERY_GROUP: u8 = 0x0e;

/// The names under the meta tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Meta {
    /// `probe`: when somebody last asked whether writing works, ms, `u64` big-endian.
    Probe,
    /// `next_stream_id`: an id that no stream and no subscription has had yet, `u64` big-endian.
    NextStreamId,
    /// `token_key`: signs callback tokens, 32 bytes.
    TokenKey,
    /// `signing_keys`: sign webhooks, as CBOR ([`crate::record`]).
    SigningKeys,
}

/// The key of a meta value.
pub fn meta(name: Meta) -> Bytes {
    match name {
        Meta::Probe => named("probe"),
        Meta::NextStreamId => named("next_stream_id"),
        Meta::TokenKey => named("token_key"),
        Meta::SigningKeys => named("signing_keys"),
    }
}

fn named(name: &str) -> Bytes {
    let mut key = BytesMut::with_capacity(1 + name.len());
    key.put_u8(META);
    key.put_slice(name.as_bytes());
    key.freeze()
}

/// The key of a stream's head.
pub fn stream(tenant: &Tenant, path: &StreamPath) -> Bytes {
    stream_prefix(tenant, path.as_str())
}

/// The beginning of the keys of all streams of a tenant whose path begins with `prefix`.
pub fn stream_prefix(tenant: &Tenant, prefix: &str) -> Bytes {
    let mut key = BytesMut::with_capacity(2 + tenant.as_str().len() + prefix.len());
    key.put_u8(STREAM);
    key.put_slice(tenant.as_str().as_bytes());
    key.put_u8(0);
    key.put_slice(prefix.as_bytes());
    key.freeze()
}

/// The tenant and path of a stream's key.
pub fn parse_stream(key: &[u8]) -> Option<(Tenant, StreamPath)> {
    parse_subject(key.strip_prefix(&[STREAM])?)
}

/// The key of a producer's state in a stream.
pub fn producer(id: StreamId, producer: &str) -> Bytes {
    let mut key = BytesMut::with_capacity(9 + producer.len());
    key.put_u8(PRODUCER);
    key.put_u64(id.0);
    key.put_slice(producer.as_bytes());
    key.freeze()
}

/// All keys of a stream's producers: from the first, to before the second.
pub fn producers(id: StreamId) -> (Bytes, Bytes) {
    (tagged(PRODUCER, id.0), tagged(PRODUCER, id.0 + 1))
}

fn tagged(tag: u8, id: u64) -> Bytes {
    let mut key = BytesMut::with_capacity(9);
    key.put_u8(tag);
    key.put_u64(id);
    key.freeze()
}

/// An obligation: something that must happen at a time, whatever crashes before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Due {
    /// The stream may have expired: look, and end it or come back later.
    Expire(Tenant, StreamPath),
    /// The bytes and producers of an ended incarnation are to be removed.
    Purge(StreamId),
    /// A fork of this stream has ended: count it off, and end the stream if it was kept for it.
    Release(Tenant, StreamPath),
    /// A consumer may have waited long enough for something.
    Consumer(ConsumerKey),
    /// A subscription has ended: its consumers and what belongs to them are to be removed.
    Unsubscribe(Tenant, SubscriptionId),
    /// A stream has ended, and nobody can come back to it any more: what its consumers left is to
    /// be removed.
    Forget(Tenant, StreamPath, StreamId),
    /// A stream has grown, and more consumers follow it than one batch can tell: the rest of them,
    /// from this key on.
    FanOutToFollowers(Tenant, StreamPath, StreamId, Bytes),
    /// A stream has grown, and more subscriptions match it than one batch can tell: the next of
    /// them.
    FanOutToSubscriptions(Tenant, StreamPath, StreamId),
    /// A delivery is to be tried, or may have waited long enough for an attempt.
    Delivery(DeliveryId),
    /// Deliveries that began together, this one first, may have waited long enough for their first
    /// attempts. The value says which they are.
    DeliveryGroup(DeliveryId),
    /// An event is for more hooks than one batch has deliveries for: the next of them.
    FanOutToHooks(Tenant, EventNo),
    /// A hook is to get events from before its time: the next of them.
    Backfill(Tenant, HookId),
    /// A hook is active again: what was held meanwhile is to be tried.
    Resume(Tenant, HookId),
    /// A hook has ended: its deliveries and what belongs to them are to be removed.
    Unhook(Tenant, HookId),
}

/// The key of an obligation.
pub fn due(at: Millis, due: &Due) -> Bytes {
    let mut key = BytesMut::with_capacity(64);
    key.put_u8(DUE);
    key.put_u64(at.0);
    match due {
        Due::Expire(tenant, path) => put_subject(&mut key, DUE_EXPIRE, tenant, path),
        Due::Release(tenant, path) => put_subject(&mut key, DUE_RELEASE, tenant, path),
        Due::Purge(id) => {
            key.put_u8(DUE_PURGE);
            key.put_u64(id.0);
        }
        Due::Consumer(consumer_key) => {
            key.put_u8(DUE_CONSUMER);
            put_consumer(&mut key, consumer_key);
        }
        Due::Unsubscribe(tenant, id) => put_numbered(&mut key, DUE_UNSUBSCRIBE, tenant, id.0),
        Due::Forget(tenant, path, id) => {
            key.put_u8(DUE_FORGET);
            key.put_u64(id.0);
            put_named(&mut key, tenant, path);
        }
        Due::FanOutToSubscriptions(tenant, path, id) => {
            key.put_u8(DUE_FAN_OUT_TO_SUBSCRIPTIONS);
            key.put_u64(id.0);
            put_named(&mut key, tenant, path);
        }
        Due::FanOutToFollowers(tenant, path, id, from) => {
            key.put_u8(DUE_FAN_OUT_TO_FOLLOWERS);
            key.put_u64(id.0);
            put_named(&mut key, tenant, path);
            key.put_u8(0);
            key.put_slice(from);
        }
        Due::Delivery(id) => put_delivery(&mut key, DUE_DELIVERY, *id),
        Due::DeliveryGroup(first) => put_delivery(&mut key, DUE_DELIVERY_GROUP, *first),
        Due::FanOutToHooks(tenant, event) => {
            put_numbered(&mut key, DUE_FAN_OUT_TO_HOOKS, tenant, event.0)
        }
        Due::Backfill(tenant, hook) => put_numbered(&mut key, DUE_BACKFILL, tenant, hook.0),
        Due::Resume(tenant, hook) => put_numbered(&mut key, DUE_RESUME, tenant, hook.0),
        Due::Unhook(tenant, hook) => put_numbered(&mut key, DUE_UNHOOK, tenant, hook.0),
    }
    key.freeze()
}

fn put_numbered(key: &mut BytesMut, kind: u8, tenant: &Tenant, number: u64) {
    key.put_u8(kind);
    key.put_u64(number);
    key.put_slice(tenant.as_str().as_bytes());
}

fn parse_numbered(subject: &[u8]) -> Option<(Tenant, u64)> {
    let (number, tenant) = subject.split_first_chunk::<8>()?;
    let tenant = Tenant::parse(std::str::from_utf8(tenant).ok()?).ok()?;
    Some((tenant, u64::from_be_bytes(*number)))
}

/// A release is told apart from others of the same source by the fork that ended.
pub fn due_release(at: Millis, tenant: &Tenant, source: &StreamPath, fork: StreamId) -> Bytes {
    let mut key = BytesMut::from(due(at, &Due::Release(tenant.clone(), source.clone())).as_ref());
    key.put_u8(0);
    key.put_u64(fork.0);
    key.freeze()
}

/// Where the obligations of a time begin.
pub fn due_from(at: Millis) -> Bytes {
    tagged(DUE, at.0)
}

/// After the last obligation.
pub fn due_end() -> Bytes {
    Bytes::from_static(&[DUE + 1])
}

/// All obligations up to and including a time: from the first key, to before the second.
pub fn due_until(at: Millis) -> (Bytes, Bytes) {
    (tagged(DUE, 0), tagged(DUE, at.0.saturating_add(1)))
}

/// The time and content of an obligation's key.
pub fn parse_due(key: &[u8]) -> Option<(Millis, Due)> {
    let (at, rest) = key.strip_prefix(&[DUE])?.split_first_chunk::<8>()?;
    let (kind, subject) = rest.split_first()?;
    let due = match *kind {
        DUE_EXPIRE => parse_subject(subject).map(|(tenant, path)| Due::Expire(tenant, path))?,
        DUE_PURGE => Due::Purge(StreamId(u64::from_be_bytes(subject.try_into().ok()?))),
        DUE_RELEASE => {
            let (subject, _fork) = subject.split_at_checked(subject.len().checked_sub(9)?)?;
            parse_subject(subject).map(|(tenant, path)| Due::Release(tenant, path))?
        }
        DUE_CONSUMER => Due::Consumer(parse_consumer_key(subject)?),
        DUE_UNSUBSCRIBE => {
            parse_numbered(subject).map(|(t, id)| Due::Unsubscribe(t, SubscriptionId(id)))?
        }
        DUE_DELIVERY => Due::Delivery(parse_id(subject)?),
        DUE_DELIVERY_GROUP => Due::DeliveryGroup(parse_id(subject)?),
        DUE_FAN_OUT_TO_HOOKS => {
            parse_numbered(subject).map(|(t, no)| Due::FanOutToHooks(t, EventNo(no)))?
        }
        DUE_BACKFILL => parse_numbered(subject).map(|(t, id)| Due::Backfill(t, HookId(id)))?,
        DUE_RESUME => parse_numbered(subject).map(|(t, id)| Due::Resume(t, HookId(id)))?,
        DUE_UNHOOK => parse_numbered(subject).map(|(t, id)| Due::Unhook(t, HookId(id)))?,
        DUE_FORGET => {
            let (id, named) = subject.split_first_chunk::<8>()?;
            let (tenant, path) = parse_subject(named)?;
            Due::Forget(tenant, path, StreamId(u64::from_be_bytes(*id)))
        }
        DUE_FAN_OUT_TO_SUBSCRIPTIONS => {
            let (id, named) = subject.split_first_chunk::<8>()?;
            let (tenant, path) = parse_subject(named)?;
            Due::FanOutToSubscriptions(tenant, path, StreamId(u64::from_be_bytes(*id)))
        }
        DUE_FAN_OUT_TO_FOLLOWERS => {
            let (id, rest) = subject.split_first_chunk::<8>()?;
            let ends = rest.iter().enumerate().filter(|(_, byte)| **byte == 0).map(|(at, _)| at);
            let (named, from) = rest.split_at_checked(ends.take(2).nth(1)?)?;
            let (tenant, path) = parse_subject(named)?;
            let from = Bytes::copy_from_slice(from.get(1..)?);
            Due::FanOutToFollowers(tenant, path, StreamId(u64::from_be_bytes(*id)), from)
        }
        _ => return None,
    };
    Some((Millis(u64::from_be_bytes(*at)), due))
}

fn put_subject(key: &mut BytesMut, kind: u8, tenant: &Tenant, path: &StreamPath) {
    key.put_u8(kind);
    put_named(key, tenant, path);
}

fn put_named(key: &mut BytesMut, tenant: &Tenant, path: &StreamPath) {
    key.put_slice(tenant.as_str().as_bytes());
    key.put_u8(0);
    key.put_slice(path.as_str().as_bytes());
}

fn parse_subject(subject: &[u8]) -> Option<(Tenant, StreamPath)> {
    let text = std::str::from_utf8(subject).ok()?;
    let (tenant, path) = text.split_once('\0')?;
    Some((Tenant::parse(tenant).ok()?, StreamPath::parse(path).ok()?))
}

/// The key of a subscription.
pub fn subscription(tenant: &Tenant, dialect: Dialect, name: &str) -> Bytes {
    let mut key = BytesMut::with_capacity(3 + tenant.as_str().len() + name.len());
    key.put_u8(SUBSCRIPTION);
    key.put_slice(tenant.as_str().as_bytes());
    key.put_u8(0);
    key.put_u8(match dialect {
        Dialect::Webhooks => 1,
        Dialect::Leases => 2,
    });
    key.put_slice(name.as_bytes());
    key.freeze()
}

/// All subscriptions: from the first key, to before the second.
pub fn subscriptions() -> (Bytes, Bytes) {
    (Bytes::from_static(&[SUBSCRIPTION]), Bytes::from_static(&[SUBSCRIPTION + 1]))
}

/// The key of a consumer.
pub fn consumer(key: &ConsumerKey) -> Bytes {
    let mut out = BytesMut::with_capacity(64);
    out.put_u8(CONSUMER);
    put_consumer(&mut out, key);
    out.freeze()
}

/// All consumers of a subscription: from the first key, to before the second.
pub fn consumers(id: SubscriptionId) -> (Bytes, Bytes) {
    (tagged(CONSUMER, id.0), tagged(CONSUMER, id.0 + 1))
}

/// Which consumer a key is of.
pub fn parse_consumer(key: &[u8]) -> Option<ConsumerKey> {
    parse_consumer_key(key.strip_prefix(&[CONSUMER])?)
}

/// The key of a subscription's link to a stream.
pub fn link(id: SubscriptionId, path: &StreamPath) -> Bytes {
    of_subscription(LINK, id, path)
}

/// All links of a subscription: from the first key, to before the second.
pub fn links(id: SubscriptionId) -> (Bytes, Bytes) {
    (tagged(LINK, id.0), tagged(LINK, id.0 + 1))
}

/// The key that says that a stream of a subscription has more than was acknowledged.
pub fn backlog(id: SubscriptionId, path: &StreamPath) -> Bytes {
    of_subscription(BACKLOG, id, path)
}

/// All of a subscription's streams with a backlog: from the first key, to before the second.
pub fn backlogs(id: SubscriptionId) -> (Bytes, Bytes) {
    (tagged(BACKLOG, id.0), tagged(BACKLOG, id.0 + 1))
}

/// The path of a link's or a backlog's key.
pub fn parse_linked(key: &[u8]) -> Option<StreamPath> {
    StreamPath::parse(std::str::from_utf8(key.get(9..)?).ok()?).ok()
}

/// The key that says that a consumer follows a stream by name.
pub fn follower(tenant: &Tenant, path: &StreamPath, consumer: &ConsumerKey) -> Bytes {
    let mut key = BytesMut::from(followers(tenant, path).0.as_ref());
    put_consumer(&mut key, consumer);
    key.freeze()
}

/// All who follow a stream by name: from the first key, to before the second.
pub fn followers(tenant: &Tenant, path: &StreamPath) -> (Bytes, Bytes) {
    let mut key = BytesMut::with_capacity(64);
    key.put_u8(FOLLOWER);
    put_named(&mut key, tenant, path);
    let mut end = key.clone();
    key.put_u8(0);
    end.put_u8(1);
    (key.freeze(), end.freeze())
}

/// Everybody who follows any stream by name: from the first key, to before the second.
pub fn all_followers() -> (Bytes, Bytes) {
    (Bytes::from_static(&[FOLLOWER]), Bytes::from_static(&[FOLLOWER + 1]))
}

/// Who follows, given the first key of [`followers`].
pub fn parse_follower(first: &[u8], key: &[u8]) -> Option<ConsumerKey> {
    parse_consumer_key(key.strip_prefix(first)?)
}

/// The key of what is known of an API key.
pub fn api_key(hash: &KeyHash) -> Bytes {
    let mut key = BytesMut::with_capacity(33);
    key.put_u8(KEY);
    key.put_slice(&hash.0);
    key.freeze()
}

/// All API keys: from the first key, to before the second.
pub fn api_keys() -> (Bytes, Bytes) {
    (Bytes::from_static(&[KEY]), Bytes::from_static(&[KEY + 1]))
}

/// The hash of an API key's key.
pub fn parse_api_key(key: &[u8]) -> Option<KeyHash> {
    key.strip_prefix(&[KEY])?.try_into().ok().map(KeyHash)
}

/// The key of a stream's crowd.
pub fn subscription_fan_out(id: StreamId) -> Bytes {
    tagged(CROWD, id.0)
}

fn of_subscription(tag: u8, id: SubscriptionId, path: &StreamPath) -> Bytes {
    let mut key = BytesMut::with_capacity(9 + path.as_str().len());
    key.put_u8(tag);
    key.put_u64(id.0);
    key.put_slice(path.as_str().as_bytes());
    key.freeze()
}

#[cfg(test)]
mod tests {
    use reveille_core::delivery::id::DeliveryNo;

    use super::*;

    fn subject() -> (Tenant, StreamPath) {
        (Tenant::parse("acme").unwrap(), StreamPath::parse("/a/b").unwrap())
    }

    #[test]
    fn keys_read_back() {
        let (tenant, path) = subject();
        assert_eq!(parse_stream(&stream(&tenant, &path)), Some((tenant.clone(), path.clone())));
        let consumer_key =
            ConsumerKey { subscription: SubscriptionId(8), path: Some(path.clone()) };
        let from = Bytes::from_static(b"\x0a\0\x01");
        for obligation in [
            Due::Expire(tenant.clone(), path.clone()),
            Due::Purge(StreamId(9)),
            Due::Consumer(consumer_key.clone()),
            Due::Consumer(ConsumerKey { path: None, ..consumer_key.clone() }),
            Due::Unsubscribe(tenant.clone(), SubscriptionId(4)),
            Due::Forget(tenant.clone(), path.clone(), StreamId(3)),
            Due::FanOutToFollowers(tenant.clone(), path.clone(), StreamId(3), from),
            Due::FanOutToSubscriptions(tenant.clone(), path.clone(), StreamId(3)),
            Due::Delivery(DeliveryId {
                hook: HookId(7),
                no: DeliveryNo { event: EventNo(8), round: 9 },
            }),
            Due::DeliveryGroup(DeliveryId {
                hook: HookId(7),
                no: DeliveryNo { event: EventNo(8), round: 0 },
            }),
            Due::FanOutToHooks(tenant.clone(), EventNo(8)),
            Due::Backfill(tenant.clone(), HookId(7)),
            Due::Resume(tenant.clone(), HookId(7)),
            Due::Unhook(tenant.clone(), HookId(7)),
        ] {
            let key = due(Millis(5), &obligation);
            assert_eq!(parse_due(&key), Some((Millis(5), obligation)));
        }
        assert_eq!(parse_consumer(&consumer(&consumer_key)), Some(consumer_key.clone()));
        let (first, _) = followers(&tenant, &path);
        let key = follower(&tenant, &path, &consumer_key);
        assert_eq!(parse_follower(&first, &key), Some(consumer_key.clone()));
        let hash = KeyHash([7; 32]);
        assert_eq!(parse_api_key(&api_key(&hash)), Some(hash));
        assert_eq!(parse_linked(&link(SubscriptionId(1), &path)), Some(path.clone()));
        let key = due_release(Millis(5), &tenant, &path, StreamId(3));
        assert_eq!(parse_due(&key), Some((Millis(5), Due::Release(tenant, path))));
    }

    #[test]
    fn damaged_keys_are_nothing() {
        assert_eq!(parse_stream(b"\x02acme/a"), None);
        assert_eq!(parse_api_key(b"\x0bshort"), None);
        assert_eq!(parse_due(b"\x05\0\0\0\0\0\0\0\x01\x09x"), None);
        assert_eq!(parse_due(b"\x05\0\0\0\0\0\0\0\x01\x03x"), None);
    }

    #[test]
    fn byte_order_is_time_order() {
        let (tenant, path) = subject();
        let early = due(Millis(255), &Due::Expire(tenant, path));
        let late = due(Millis(256), &Due::Purge(StreamId(1)));
        assert!(early < late);
        let (from, to) = due_until(Millis(255));
        assert!(from <= early && early < to && to <= late);
    }
}
