//! Consumers, for those who want to know: also those that nobody was ever told of.
//!
//! A consumer has a record once it was told something. Before that it is virtual: its stream is
//! there and its subscription matches, and that is all there is of it. Both are shown.

use std::sync::Arc;

use reveille_core::consumer::{Consumer, Dialect};
use reveille_core::key_range::{above, after_prefix};
use reveille_core::stream::Head;
use reveille_core::subscription::{Subscription, SubscriptionId, SubscriptionSpec};
use reveille_core::{Offset, StreamPath, Tenant};
use reveille_kernel::error::Damaged;
use reveille_schema::keys::{self, ConsumerKey};
use reveille_schema::record::{self, ConsumerRecord, LinkRecord};
use reveille_store::state::Reader;

use super::index::SubscriptionIndex;
use super::send;
use crate::app::Shared;
use crate::encoder::NotifiedStream;
use crate::engine::Engine;
use crate::limits::{
    INDEX_SLICE, INSPECTED_STREAMS_MAX, LIST_PAGE_MAX, LIST_SCAN_MAX, LISTED_STREAMS_MAX,
};
use crate::records::{Scan, TakeEntry};
use crate::streams::access_times::AccessTimes;
use crate::streams::read;

/// A consumer.
#[derive(Debug, Clone)]
pub struct ConsumerItem {
    pub subscription: Arc<Subscription>,
    /// The stream that it is for, if it is for one.
    pub path: Option<StreamPath>,
    /// What is known of it; `None` while it is virtual.
    pub record: Option<ConsumerRecord>,
    /// What it follows.
    pub streams: Vec<NotifiedStream>,
    /// Whether it follows more than that.
    pub more_streams: bool,
    /// How many it follows, if that is known.
    pub stream_count: Option<usize>,
    /// Whether it is virtual only because it is still to be told that its stream has grown.
    pub awaits_turn: bool,
}

impl ConsumerItem {
    /// Its life so far, or that of one that has not begun.
    pub fn consumer(&self) -> Consumer {
        let known = self.record.as_ref().map(|it| it.consumer.clone());
        known.unwrap_or_else(|| Consumer::new(0, Vec::new()))
    }

    /// Whether any stream has more than was acknowledged. What is virtual has nothing to do, unless
    /// its turn to be told is still to come.
    pub fn is_pending(&self) -> bool {
        (self.record.is_some() || self.awaits_turn)
            && self.streams.iter().any(NotifiedStream::is_pending)
    }
}

/// Which consumers are listed.
#[derive(Default)]
pub struct ConsumerFilter<'a> {
    /// Those of subscriptions of this name.
    pub named: Option<&'a str>,
    /// Those of which this is true.
    pub is_wanted: Option<&'a dyn Fn(&ConsumerItem) -> bool>,
}

/// A look at all consumers, in the order of their subscriptions' age and then of their paths.
struct Walk<'a> {
    engine: &'a Engine,
    shared: &'a Shared,
    reader: Reader,
    take: TakeEntry<'a, ConsumerItem>,
    is_wanted: Option<&'a dyn Fn(&ConsumerItem) -> bool>,
    /// How many are still wanted.
    left: usize,
    /// Streams and subscriptions that may still be looked at for this page.
    looks: usize,
    /// Where the next page begins.
    next: String,
}

/// Where a page begins: after the consumer of this path, or with the subscription.
struct Resume {
    subscription: SubscriptionId,
    path: Option<StreamPath>,
}

impl Engine {
    /// One consumer; `None` if there is none, not even a virtual one.
    pub fn consumer(
        &self,
        subscription: &Subscription,
        path: Option<&StreamPath>,
    ) -> Result<Option<ConsumerItem>, Damaged> {
        let shared = self.partition(&subscription.tenant);
        let reader = shared.state.reader();
        let subscription = Arc::new(subscription.clone());
        let Some(path) = path else {
            return leases(&reader, &subscription, INSPECTED_STREAMS_MAX).map(Some);
        };
        let head = read::head(&reader, &subscription.tenant, path)?;
        let matches = subscription.spec.pattern.as_ref().is_some_and(|it| it.matches(path));
        match head.filter(|head| matches && self.is_there(shared, head)) {
            Some(head) => {
                webhooks(&reader, &subscription, path, &head, INSPECTED_STREAMS_MAX).map(Some)
            }
            None => Ok(None),
        }
    }

    /// How far a subscription has come in a stream that it has no link to.
    pub fn processed(
        &self,
        subscription: &Subscription,
        head: &Head,
    ) -> Result<Option<Offset>, Damaged> {
        let reader = self.partition(&subscription.tenant).state.reader();
        processed(&reader, subscription, head).map(|(acked, _)| acked)
    }

    /// Consumers of all subscriptions, or some of them, in order. Returns where the next
    /// page begins if there may be more: a page can have fewer than asked for.
    pub fn consumers(
        &self,
        tenant: &Tenant,
        filter: &ConsumerFilter<'_>,
        after: Option<&str>,
        limit: usize,
        take: TakeEntry<'_, ConsumerItem>,
    ) -> Result<Option<String>, Damaged> {
        let resume = after.and_then(Resume::parse);
        let shared = self.partition(tenant);
        let reader = shared.state.reader();
        let left = limit.clamp(1, LIST_PAGE_MAX);
        let (looks, next) = (LIST_SCAN_MAX, String::new());
        let ConsumerFilter { named, is_wanted } = *filter;
        let mut walk = Walk { engine: self, shared, reader, take, is_wanted, left, looks, next };
        let mut first = resume.as_ref().map_or(SubscriptionId(0), |it| it.subscription);
        loop {
            let subscriptions = match named {
                Some(name) => self.named_subscriptions(tenant, name, first)?,
                None => {
                    let partition = shared.lock();
                    partition.index.of::<SubscriptionIndex>().from(tenant, first, INDEX_SLICE)
                }
            };
            let Some(youngest) = subscriptions.last() else { return Ok(None) };
            first = SubscriptionId(youngest.id.0 + 1);
            for subscription in &subscriptions {
                let resume = resume.as_ref().filter(|it| it.subscription == subscription.id);
                let path = resume.and_then(|it| it.path.as_ref());
                if !walk.visit(subscription, path)? {
                    return Ok(Some(walk.next));
                }
            }
        }
    }

    /// The subscriptions of a name, of both dialects, oldest first, from a number on.
    fn named_subscriptions(
        &self,
        tenant: &Tenant,
        name: &str,
        first: SubscriptionId,
    ) -> Result<Vec<Arc<Subscription>>, Damaged> {
        let mut found = Vec::new();
        for dialect in [Dialect::Webhooks, Dialect::Leases] {
            let subscription = self.subscription(tenant, dialect, name)?;
            found.extend(subscription.filter(|it| it.id >= first).map(Arc::new));
        }
        found.sort_by_key(|it| it.id);
        Ok(found)
    }

    /// Whether readers find the stream.
    fn is_there(&self, shared: &Shared, head: &Head) -> bool {
        !head.soft_deleted
            && self.clock().now() < shared.domains.part::<AccessTimes>().expires_at(head)
    }
}

impl Resume {
    fn parse(text: &str) -> Option<Resume> {
        let (id, path) = match text.find('/') {
            Some(at) => text.split_at_checked(at)?,
            None => (text, ""),
        };
        let path = StreamPath::parse(path).ok();
        Some(Resume { subscription: SubscriptionId(id.parse().ok()?), path })
    }
}

impl Walk<'_> {
    /// Shows the consumers of a subscription. Says whether there is room for those of the next.
    fn visit(
        &mut self,
        subscription: &Arc<Subscription>,
        after: Option<&StreamPath>,
    ) -> Result<bool, Damaged> {
        let id = subscription.id.0;
        self.next = after.map_or_else(|| id.to_string(), |path| format!("{id}{path}"));
        if self.left == 0 || self.looks == 0 {
            return Ok(false);
        }
        self.looks -= 1;
        // What is decided but not durable yet is not shown.
        let SubscriptionSpec { dialect, name, .. } = &subscription.spec;
        let durable = self.engine.subscription(&subscription.tenant, *dialect, name)?;
        let Some(subscription) = durable.filter(|it| it.id == subscription.id).map(Arc::new) else {
            return Ok(true);
        };
        match subscription.spec.dialect {
            Dialect::Leases => {
                let item = leases(&self.reader, &subscription, LISTED_STREAMS_MAX)?;
                Ok(self.show(&item))
            }
            Dialect::Webhooks => self.visit_streams(&subscription, after),
        }
    }

    fn show(&mut self, item: &ConsumerItem) -> bool {
        // Whatever it follows was read with it.
        let links = item.record.as_ref().map_or(0, |it| it.consumer.links.len());
        self.looks = self.looks.saturating_sub(links);
        if self.is_wanted.is_some_and(|is_wanted| !is_wanted(item)) {
            return true;
        }
        let is_taken = (self.take)(item);
        self.left -= usize::from(is_taken);
        is_taken
    }

    /// Every stream that the pattern matches has a consumer.
    fn visit_streams(
        &mut self,
        subscription: &Arc<Subscription>,
        after: Option<&StreamPath>,
    ) -> Result<bool, Damaged> {
        let Some(pattern) = &subscription.spec.pattern else { return Ok(true) };
        let tenant = &subscription.tenant;
        let first = keys::stream_prefix(tenant, pattern.literal_prefix());
        let end = after_prefix(&first);
        let above = |path: &StreamPath| above(&keys::stream(tenant, path));
        let from = after.map_or(first.clone(), |path| above(path).max(first));
        let reader = self.reader.clone();
        for pair in Scan::new(&reader, from, end) {
            let (key, value) = pair?;
            self.looks = self.looks.saturating_sub(1);
            let Some((_, path)) = keys::parse_stream(&key) else { continue };
            let head = record::decode_head(&value).map_err(Damaged::new)?;
            if pattern.matches(&path) && self.engine.is_there(self.shared, &head) {
                let item = webhooks(&reader, subscription, &path, &head, LISTED_STREAMS_MAX)?;
                if !self.show(&item) {
                    return Ok(false);
                }
            }
            self.next = format!("{}{path}", subscription.id.0);
            if self.left == 0 || self.looks == 0 {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// The consumer of a stream. What an earlier stream at its path left behind is not its own.
fn webhooks(
    reader: &Reader,
    subscription: &Arc<Subscription>,
    path: &StreamPath,
    head: &Head,
    max: usize,
) -> Result<ConsumerItem, Damaged> {
    let key = ConsumerKey { subscription: subscription.id, path: Some(path.clone()) };
    let record = send::consumer_record(reader, &key)?.filter(|it| it.primary == Some(head.id));
    let (streams, awaits_turn) = match &record {
        Some(record) => {
            let links = record.consumer.links.get(..max).unwrap_or(&record.consumer.links);
            (send::followed(reader, &subscription.tenant, links)?, false)
        }
        None => {
            let (acked, missed) = processed(reader, subscription, head)?;
            let (path, tail) = (path.clone(), Some(head.tail));
            (
                vec![NotifiedStream { path, stream: Some(head.id), acked, tail, explicit: false }],
                missed,
            )
        }
    };
    let (subscription, path) = (subscription.clone(), Some(path.clone()));
    let links = record.as_ref().map_or(streams.len(), |it| it.consumer.links.len());
    let (more_streams, stream_count) = (links > streams.len(), Some(links));
    Ok(ConsumerItem {
        subscription,
        path,
        record,
        streams,
        more_streams,
        stream_count,
        awaits_turn,
    })
}

/// How far a subscription has come that has no record of a stream, and whether it has missed
/// something that it is still to be told of.
fn processed(
    reader: &Reader,
    subscription: &Subscription,
    head: &Head,
) -> Result<(Option<Offset>, bool), Damaged> {
    let mut missed = None;
    if head.has_fan_out
        && let Some(value) = reader.get(&keys::subscription_fan_out(head.id))?
    {
        let fan_out = record::decode_fan_out_cursor(&value);
        let fan_out = fan_out.map_err(Damaged::new)?;
        missed = fan_out.first_missed(subscription.id);
    }
    let before = missed.map_or(Some(head.tail), |mark| mark.before);
    let acked = subscription.start_in(head, before);
    // Of a stream that is older it is still to be told what it began before.
    let is_behind = !subscription.is_older_than(head.id) && acked < Some(head.tail);
    Ok((acked, missed.is_some() || (is_behind && head.tail > Offset::ZERO)))
}

/// The one consumer of a subscription, with the streams that it has come to know.
fn leases(
    reader: &Reader,
    subscription: &Arc<Subscription>,
    max: usize,
) -> Result<ConsumerItem, Damaged> {
    let key = ConsumerKey { subscription: subscription.id, path: None };
    let record = send::consumer_record(reader, &key)?;
    let (from, to) = keys::links(subscription.id);
    let pairs = reader.range(&from, &to, max + 1)?;
    let more_streams = pairs.len() > max;
    let mut streams = Vec::with_capacity(pairs.len().min(max));
    for (key, value) in pairs.iter().take(max) {
        let Some(path) = keys::parse_linked(key) else { continue };
        let link = record::decode_link(value).map_err(Damaged::new)?;
        let head = read::head(reader, &subscription.tenant, &path)?;
        let head = head.filter(|head| !head.soft_deleted && link.stream == Some(head.id));
        let (acked, tail) = (link.acked, head.map(|head| head.tail));
        let LinkRecord { stream, explicit, .. } = link;
        streams.push(NotifiedStream { path, stream, acked, tail, explicit });
    }
    let stream_count = (!more_streams).then_some(streams.len());
    let (subscription, path, awaits_turn) = (subscription.clone(), None, false);
    Ok(ConsumerItem {
        subscription,
        path,
        record,
        streams,
        more_streams,
        stream_count,
        awaits_turn,
    })
}
