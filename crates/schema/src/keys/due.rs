//! All timers in one, as the on-disk format 1 has them.

use bytes::{BufMut, Bytes, BytesMut};
use reveille_core::delivery::hook::HookId;
use reveille_core::delivery::id::{DeliveryId, EventNo};
use reveille_core::stream::StreamId;
use reveille_core::subscription::SubscriptionId;
use reveille_core::{Millis, StreamPath, Tenant};

use crate::deliveries::{parse_id, put_id};
use crate::parts;
use crate::wakes::{ConsumerKey, parse_consumer, put_consumer};

const DUE: u8 = 0x05;

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
            parts::put_stream(&mut key, tenant, path);
        }
        Due::FanOutToSubscriptions(tenant, path, id) => {
            key.put_u8(DUE_FAN_OUT_TO_SUBSCRIPTIONS);
            key.put_u64(id.0);
            parts::put_stream(&mut key, tenant, path);
        }
        Due::FanOutToFollowers(tenant, path, id, from) => {
            key.put_u8(DUE_FAN_OUT_TO_FOLLOWERS);
            key.put_u64(id.0);
            parts::put_stream(&mut key, tenant, path);
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
    parts::put_numbered(key, tenant, number);
}

fn put_delivery(key: &mut BytesMut, kind: u8, id: DeliveryId) {
    key.put_u8(kind);
    put_id(key, id);
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
    parts::numbered(DUE, at.0)
}

/// After the last obligation.
pub fn due_end() -> Bytes {
    Bytes::from_static(&[DUE + 1])
}

/// All obligations up to and including a time: from the first key, to before the second.
pub fn due_until(at: Millis) -> (Bytes, Bytes) {
    (parts::numbered(DUE, 0), parts::numbered(DUE, at.0.saturating_add(1)))
}

/// The time and content of an obligation's key.
pub fn parse_due(key: &[u8]) -> Option<(Millis, Due)> {
    let (at, rest) = key.strip_prefix(&[DUE])?.split_first_chunk::<8>()?;
    let (kind, subject) = rest.split_first()?;
    let due = match *kind {
        DUE_EXPIRE => {
            parts::parse_stream(subject).map(|(tenant, path)| Due::Expire(tenant, path))?
        }
        DUE_PURGE => Due::Purge(StreamId(u64::from_be_bytes(subject.try_into().ok()?))),
        DUE_RELEASE => {
            let (subject, _fork) = subject.split_at_checked(subject.len().checked_sub(9)?)?;
            parts::parse_stream(subject).map(|(tenant, path)| Due::Release(tenant, path))?
        }
        DUE_CONSUMER => Due::Consumer(parse_consumer(subject)?),
        DUE_UNSUBSCRIBE => {
            parts::parse_numbered(subject).map(|(t, id)| Due::Unsubscribe(t, SubscriptionId(id)))?
        }
        DUE_DELIVERY => Due::Delivery(parse_id(subject)?),
        DUE_DELIVERY_GROUP => Due::DeliveryGroup(parse_id(subject)?),
        DUE_FAN_OUT_TO_HOOKS => {
            parts::parse_numbered(subject).map(|(t, no)| Due::FanOutToHooks(t, EventNo(no)))?
        }
        DUE_BACKFILL => {
            parts::parse_numbered(subject).map(|(t, id)| Due::Backfill(t, HookId(id)))?
        }
        DUE_RESUME => parts::parse_numbered(subject).map(|(t, id)| Due::Resume(t, HookId(id)))?,
        DUE_UNHOOK => parts::parse_numbered(subject).map(|(t, id)| Due::Unhook(t, HookId(id)))?,
        DUE_FORGET => {
            let (id, named) = subject.split_first_chunk::<8>()?;
            let (tenant, path) = parts::parse_stream(named)?;
            Due::Forget(tenant, path, StreamId(u64::from_be_bytes(*id)))
        }
        DUE_FAN_OUT_TO_SUBSCRIPTIONS => {
            let (id, named) = subject.split_first_chunk::<8>()?;
            let (tenant, path) = parts::parse_stream(named)?;
            Due::FanOutToSubscriptions(tenant, path, StreamId(u64::from_be_bytes(*id)))
        }
        DUE_FAN_OUT_TO_FOLLOWERS => {
            let (id, rest) = subject.split_first_chunk::<8>()?;
            let ends = rest.iter().enumerate().filter(|(_, byte)| **byte == 0).map(|(at, _)| at);
            let (named, from) = rest.split_at_checked(ends.take(2).nth(1)?)?;
            let (tenant, path) = parts::parse_stream(named)?;
            let from = Bytes::copy_from_slice(from.get(1..)?);
            Due::FanOutToFollowers(tenant, path, StreamId(u64::from_be_bytes(*id)), from)
        }
        _ => return None,
    };
    Some((Millis(u64::from_be_bytes(*at)), due))
}

fn put_subject(key: &mut BytesMut, kind: u8, tenant: &Tenant, path: &StreamPath) {
    key.put_u8(kind);
    parts::put_stream(key, tenant, path);
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
        let consumer_key =
            ConsumerKey { subscription: SubscriptionId(8), path: Some(path.clone()) };
        let from = Bytes::from_static(b"\x0a\0\x01");
        for obligation in [
            Due::Expire(tenant.clone(), path.clone()),
            Due::Purge(StreamId(9)),
            Due::Consumer(consumer_key.clone()),
            Due::Consumer(ConsumerKey { path: None, ..consumer_key }),
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
        let key = due_release(Millis(5), &tenant, &path, StreamId(3));
        assert_eq!(parse_due(&key), Some((Millis(5), Due::Release(tenant, path))));
    }

    #[test]
    fn damaged_keys_are_nothing() {
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
