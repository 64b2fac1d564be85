//! What must happen to consumers and subscriptions later, whatever crashes before.

use bytes::{BufMut, Bytes, BytesMut};
use reveille_core::stream::StreamId;
use reveille_core::subscription::SubscriptionId;
use reveille_core::{StreamPath, Tenant};

use super::{ConsumerKey, parse_consumer, put_consumer};
use crate::parts;

const CONSUMER: u8 = 0x01;
const UNSUBSCRIBE: u8 = 0x02;
const FORGET: u8 = 0x03;
const FAN_OUT_TO_FOLLOWERS: u8 = 0x04;
const FAN_OUT_TO_SUBSCRIPTIONS: u8 = 0x05;
const REVIEW: u8 = 0x06;
const BACKFILL: u8 = 0x07;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WakeTimer {
    /// A consumer may have waited long enough for something.
    Consumer(ConsumerKey),
    /// A subscription has ended: its consumers and what belongs to them are to be removed.
    Unsubscribe(Tenant, SubscriptionId),
    /// A stream has ended, and nobody can come back to it any more: what its consumers left is to
    /// be removed. The timer's value says up to which subscription that is done.
    Forget(Tenant, StreamPath, StreamId),
    /// A stream has grown, and more consumers follow it than one batch can wake: the rest of them,
    /// from this key on.
    FanOutToFollowers(Tenant, StreamPath, StreamId, Bytes),
    /// A stream has grown, and more subscriptions match it than one batch can wake: the next of
    /// them.
    FanOutToSubscriptions(Tenant, StreamPath, StreamId),
    /// A subscription is paused no longer, or was changed: its consumers look again whether they
    /// are to be told. The timer's value is the key of the last one that did.
    Review(Tenant, SubscriptionId),
    /// A subscription begins before now: streams that were there before it are to be told. The
    /// timer's value is the key of the last of them that was looked at.
    Backfill(Tenant, SubscriptionId),
}

impl WakeTimer {
    pub const DOMAIN: u8 = 0x02;

    pub fn encode(&self) -> Bytes {
        let begin = |kind| parts::timer(Self::DOMAIN, kind);
        let out = match self {
            WakeTimer::Consumer(key) => {
                let mut out = begin(CONSUMER);
                put_consumer(&mut out, key);
                out
            }
            WakeTimer::Unsubscribe(tenant, id) => {
                let mut out = begin(UNSUBSCRIBE);
                parts::put_numbered(&mut out, tenant, id.0);
                out
            }
            WakeTimer::Forget(tenant, path, id) => {
                let mut out = begin(FORGET);
                put_incarnation(&mut out, tenant, path, *id);
                out
            }
            WakeTimer::FanOutToFollowers(tenant, path, id, from) => {
                let mut out = begin(FAN_OUT_TO_FOLLOWERS);
                put_incarnation(&mut out, tenant, path, *id);
                out.put_u8(0);
                out.put_slice(from);
                out
            }
            WakeTimer::FanOutToSubscriptions(tenant, path, id) => {
                let mut out = begin(FAN_OUT_TO_SUBSCRIPTIONS);
                put_incarnation(&mut out, tenant, path, *id);
                out
            }
            WakeTimer::Review(tenant, id) => {
                let mut out = begin(REVIEW);
                parts::put_numbered(&mut out, tenant, id.0);
                out
            }
            WakeTimer::Backfill(tenant, id) => {
                let mut out = begin(BACKFILL);
                parts::put_numbered(&mut out, tenant, id.0);
                out
            }
        };
        out.freeze()
    }

    /// `None` if the bytes are of another domain, of an unknown kind or damaged.
    pub fn decode(bytes: &[u8]) -> Option<WakeTimer> {
        let (kind, subject) = parts::parse_timer(Self::DOMAIN, bytes)?;
        Some(match kind {
            CONSUMER => WakeTimer::Consumer(parse_consumer(subject)?),
            UNSUBSCRIBE => {
                let (tenant, id) = parts::parse_numbered(subject)?;
                WakeTimer::Unsubscribe(tenant, SubscriptionId(id))
            }
            FORGET => {
                let (tenant, path, id) = parse_incarnation(subject)?;
                WakeTimer::Forget(tenant, path, id)
            }
            FAN_OUT_TO_FOLLOWERS => {
                let (stream, from) = split_followers(subject)?;
                let (tenant, path, id) = parse_incarnation(stream)?;
                WakeTimer::FanOutToFollowers(tenant, path, id, Bytes::copy_from_slice(from))
            }
            FAN_OUT_TO_SUBSCRIPTIONS => {
                let (tenant, path, id) = parse_incarnation(subject)?;
                WakeTimer::FanOutToSubscriptions(tenant, path, id)
            }
            REVIEW => {
                let (tenant, id) = parts::parse_numbered(subject)?;
                WakeTimer::Review(tenant, SubscriptionId(id))
            }
            BACKFILL => {
                let (tenant, id) = parts::parse_numbered(subject)?;
                WakeTimer::Backfill(tenant, SubscriptionId(id))
            }
            _ => return None,
        })
    }
}

/// One incarnation of a stream: its id, then tenant, `00`, path.
fn put_incarnation(out: &mut BytesMut, tenant: &Tenant, path: &StreamPath, id: StreamId) {
    out.put_u64(id.0);
    parts::put_stream(out, tenant, path);
}

fn parse_incarnation(bytes: &[u8]) -> Option<(Tenant, StreamPath, StreamId)> {
    let (id, stream) = parts::split_u64(bytes)?;
    let (tenant, path) = parts::parse_stream(stream)?;
    Some((tenant, path, StreamId(id)))
}

/// The incarnation, and the key after the `00` that ends its path: the second one, since the first
/// ends the tenant. The id may have zeros of its own, and so may the key.
fn split_followers(subject: &[u8]) -> Option<(&[u8], &[u8])> {
    let (_, rest) = parts::split_u64(subject)?;
    let zeros = rest.iter().enumerate().filter(|(_, byte)| **byte == 0);
    let (end, _) = zeros.take(2).nth(1)?;
    let (incarnation, from) = subject.split_at_checked(8 + end)?;
    Some((incarnation, from.strip_prefix(&[0])?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Vec<(WakeTimer, &'static [u8])> {
        let (tenant, path) = (Tenant::parse("acme").unwrap(), StreamPath::parse("/a/b").unwrap());
        let subscription = SubscriptionId(8);
        let of_stream = ConsumerKey { subscription, path: Some(path.clone()) };
        let only = ConsumerKey { subscription, path: None };
        let from = Bytes::from_static(b"\x0a\0\x01");
        vec![
            (WakeTimer::Consumer(of_stream), b"\x02\x01\0\0\0\0\0\0\0\x08/a/b"),
            (WakeTimer::Consumer(only), b"\x02\x01\0\0\0\0\0\0\0\x08"),
            (WakeTimer::Unsubscribe(tenant.clone(), SubscriptionId(4)), {
                b"\x02\x02\0\0\0\0\0\0\0\x04acme"
            }),
            (WakeTimer::Backfill(tenant.clone(), SubscriptionId(4)), {
                b"\x02\x07\0\0\0\0\0\0\0\x04acme"
            }),
            (WakeTimer::Forget(tenant.clone(), path.clone(), StreamId(3)), {
                b"\x02\x03\0\0\0\0\0\0\0\x03acme\0/a/b"
            }),
            (WakeTimer::FanOutToFollowers(tenant.clone(), path.clone(), StreamId(3), from), {
                b"\x02\x04\0\0\0\0\0\0\0\x03acme\0/a/b\0\x0a\0\x01"
            }),
            (
                WakeTimer::FanOutToFollowers(
                    tenant.clone(),
                    path.clone(),
                    StreamId(0),
                    Bytes::new(),
                ),
                b"\x02\x04\0\0\0\0\0\0\0\0acme\0/a/b\0",
            ),
            (WakeTimer::FanOutToSubscriptions(tenant.clone(), path, StreamId(3)), {
                b"\x02\x05\0\0\0\0\0\0\0\x03acme\0/a/b"
            }),
            (WakeTimer::Review(tenant, SubscriptionId(4)), b"\x02\x06\0\0\0\0\0\0\0\x04acme"),
        ]
    }

    #[test]
    fn timers_read_back() {
        for (timer, bytes) in all() {
            assert_eq!(timer.encode(), bytes, "{timer:?}");
            assert_eq!(WakeTimer::decode(bytes), Some(timer));
        }
    }

    #[test]
    fn damaged_timers_are_nothing() {
        for bytes in [
            &b""[..],
            b"\x02",
            b"\x02\x00",
            b"\x02\x08\0\0\0\0\0\0\0\x08",
            b"\x02\x06\0\0\0\0\0\0\0\x08",
            b"\x02\x07\0\0\0\0\0\0\0\x08",
            b"\x01\x01\0\0\0\0\0\0\0\x08",
            b"\x02\x01\0\0\0\0\0\0\0",
            b"\x02\x01\0\0\0\0\0\0\0\x08a",
            b"\x02\x02\0\0\0\0\0\0\0\x04",
            b"\x02\x02\0\0\0\0\0\0\0\x04ac me",
            b"\x02\x03\0\0\0\0\0\0\0\x03acme",
            b"\x02\x03\0\0\0\0\0\0\0\x03acme\0/a\0",
            b"\x02\x04\0\0\0\0\0\0\0\x03acme\0/a",
            b"\x02\x04\0\0\0\0\0\0\0\x03\0/a\0",
            b"\x02\x05\0\0\0\0\0\0\x03acme",
        ] {
            assert_eq!(WakeTimer::decode(bytes), None, "{bytes:?}");
        }
    }
}
