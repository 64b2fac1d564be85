//! Everything durable about streams, subscriptions and consumers at one moment.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use reveille_core::consumer::{Dialect, Link};
use reveille_core::fan_out::FanOutCursor;
use reveille_core::stream::{Head, StreamId};
use reveille_core::subscription::{Subscription, SubscriptionId};
use reveille_core::{Millis, Offset, StreamPath};
use reveille_schema::keys::{self, ConsumerKey};
use reveille_schema::record::{self, ConsumerRecord, LinkRecord};
use reveille_schema::wakes::WakeTimer;
use reveille_store::state::Reader;

use crate::base::CheckResult;
use crate::base::engine::AnyTimer;
use crate::base::raw_state::{self, unreadable as failed};

/// The durable state, decoded.
#[derive(Debug, Clone, Default)]
pub(super) struct Snapshot {
    /// As it is stored: after a crash the same must be there.
    pub(super) raw: BTreeMap<Bytes, Bytes>,
    pub(super) streams: BTreeMap<StreamPath, Head>,
    pub(super) subscriptions: BTreeMap<SubscriptionId, Subscription>,
    pub(super) consumers: BTreeMap<ConsumerKey, ConsumerRecord>,
    pub(super) links: BTreeMap<(SubscriptionId, StreamPath), LinkRecord>,
    /// Streams with a mark, with their consumer or by a key;
    pub(super) backlog: BTreeSet<(SubscriptionId, StreamPath)>,
    /// and those by a key.
    pub(super) marks: BTreeSet<(SubscriptionId, StreamPath)>,
    pub(super) followers: BTreeSet<(StreamPath, ConsumerKey)>,
    pub(super) fan_outs: BTreeMap<StreamId, FanOutCursor>,
    pub(super) timers: Vec<(Millis, AnyTimer)>,
    /// Consumers that have work and no timer.
    pub(super) resting: BTreeSet<ConsumerKey>,
}

impl Snapshot {
    pub(super) fn read(reader: &Reader) -> CheckResult<Snapshot> {
        let mut snapshot = Snapshot::default();
        // Everything but producers and chunks.
        let tags = [(0x02, 0x03), (0x05, 0x0b), (0x0c, 0x0d), (0x1f, 0x20)];
        for (key, value) in raw_state::read(reader, &tags)? {
            snapshot.add(&key, &value)?;
            snapshot.raw.insert(key, value);
        }
        Ok(snapshot)
    }

    fn add(&mut self, key: &Bytes, value: &Bytes) -> CheckResult {
        let tag = key.first().copied();
        let id = key.get(1..9).and_then(<[u8]>::first_chunk::<8>);
        let id = SubscriptionId(id.map_or(0, |id| u64::from_be_bytes(*id)));
        let path = || keys::parse_linked(key).ok_or_else(|| failed("a link's key"));
        match tag {
            Some(0x02) => {
                let (_, path) = keys::parse_stream(key).ok_or_else(|| failed("a stream's key"))?;
                self.streams.insert(path, record::decode_head(value).map_err(failed)?);
            }
            Some(0x05) => {
                self.timers.push(AnyTimer::parse(key).ok_or_else(|| failed("a timer"))?);
            }
            Some(0x06) => {
                let subscription = record::decode_subscription(value).map_err(failed)?;
                self.subscriptions.insert(subscription.id, subscription);
            }
            Some(0x07) => {
                let consumer =
                    keys::parse_consumer(key).ok_or_else(|| failed("a consumer's key"))?;
                let record = record::decode_consumer(value).map_err(failed)?;
                for path in record.marked.iter().flatten() {
                    self.backlog.insert((consumer.subscription, path.clone()));
                }
                self.consumers.insert(consumer, record);
            }
            Some(0x08) => {
                let link = record::decode_link(value).map_err(failed)?;
                self.links.insert((id, path()?), link);
            }
            Some(0x09) => {
                self.backlog.insert((id, path()?));
                self.marks.insert((id, path()?));
            }
            Some(0x0a) => {
                let follower = parse_follower(key).ok_or_else(|| failed("a follower's key"))?;
                self.followers.insert(follower);
            }
            Some(0x0c) => {
                let fan_out = record::decode_fan_out_cursor(value).map_err(failed)?;
                self.fan_outs.insert(StreamId(id.0), fan_out);
            }
            Some(0x1f) => {
                let resting = keys::parse_resting(key).ok_or_else(|| failed("who rests"))?;
                self.resting.insert(resting);
            }
            _ => {}
        }
        Ok(())
    }

    /// The tail of the stream that is followed; `None` if there is no such stream.
    pub(super) fn tail(&self, link: &Link) -> Option<Offset> {
        let head = self.streams.get(&link.path)?;
        (link.stream == Some(head.id)).then_some(head.tail)
    }

    /// Whether the consumer still is one: its subscription and its stream are there.
    pub(super) fn is_current(&self, key: &ConsumerKey, record: &ConsumerRecord) -> bool {
        let subscribed = self.subscriptions.contains_key(&key.subscription);
        let primary = key.path.as_ref().map(|path| self.streams.get(path).map(|head| head.id));
        subscribed && primary.is_none_or(|id| id.is_some() && id == record.primary)
    }

    /// Whether a fan-out has still to tell the subscription that the stream grew.
    pub(super) fn awaits(&self, id: SubscriptionId, path: &StreamPath) -> bool {
        let head = self.streams.get(path);
        let matches = self.subscriptions.get(&id).and_then(|it| it.spec.pattern.as_ref());
        matches.is_some_and(|pattern| pattern.matches(path))
            && head.is_some_and(|head| self.fan_outs.get(&head.id).is_some_and(|it| it.awaits(id)))
    }

    /// Whether those who follow the stream by name are still being told, this one among them.
    pub(super) fn will_be_told(&self, key: &ConsumerKey, path: &StreamPath) -> bool {
        self.wake_timers().any(|(_, timer)| match timer {
            WakeTimer::FanOutToFollowers(tenant, of, id, from) => {
                let same = of == path && self.streams.get(path).is_some_and(|it| it.id == *id);
                same && *from <= keys::follower(tenant, path, key)
            }
            _ => false,
        })
    }

    /// Whether the subscription of a consumer is paused, or its review has still to come to it.
    pub(super) fn will_be_reviewed(&self, key: &ConsumerKey) -> bool {
        let Some(subscription) = self.subscriptions.get(&key.subscription) else { return false };
        let Some(at) = subscription.reviewed_at else { return subscription.paused_at.is_some() };
        let timer = WakeTimer::Review(subscription.tenant.clone(), subscription.id);
        let cursor = self.raw.get(&reveille_kernel::keys::timer(at, &timer.encode()));
        subscription.paused_at.is_some()
            || cursor.is_some_and(|cursor| *cursor < keys::consumer(key))
    }

    /// The timers of subscriptions and consumers.
    pub(super) fn wake_timers(&self) -> impl Iterator<Item = (Millis, &WakeTimer)> {
        self.timers.iter().filter_map(|(at, timer)| match timer {
            AnyTimer::Wake(timer) => Some((*at, timer)),
            _ => None,
        })
    }

    /// A subscription by its name.
    pub(super) fn named(&self, dialect: Dialect, name: &str) -> Option<&Subscription> {
        let same = |it: &&Subscription| it.spec.dialect == dialect && *it.spec.name == *name;
        self.subscriptions.values().find(same)
    }

    /// Whether a lease subscription has work, as its marks say.
    pub(super) fn has_backlog(&self, id: SubscriptionId) -> bool {
        self.backlog.iter().filter(|(of, _)| *of == id).any(|(_, path)| {
            let link = self.links.get(&(id, path.clone()));
            let head = self.streams.get(path);
            link.zip(head).is_some_and(|(link, head)| {
                link.stream == Some(head.id) && Some(head.tail) > link.acked
            })
        })
    }
}

fn parse_follower(key: &Bytes) -> Option<(StreamPath, ConsumerKey)> {
    let mut zeros = key.iter().enumerate().filter(|(_, byte)| **byte == 0).map(|(at, _)| at);
    let (tenant_end, path_end) = (zeros.next()?, zeros.next()?);
    let path = std::str::from_utf8(key.get(tenant_end + 1..path_end)?).ok()?;
    let consumer = keys::parse_follower(key.get(..=path_end)?, key)?;
    Some((StreamPath::parse(path).ok()?, consumer))
}
