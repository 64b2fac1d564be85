//! Consumers, for those who want to know: also those that nobody was ever told of.
//!
//! A consumer has a record once it was told something. Before that it is virtual: its stream is
//! there and its subscription matches, and that is all there is of it. Both are shown.

use std::sync::Arc;

use reveille_core::consumer::{Consumer, Dialect};
use reveille_core::key_range::{above, after_prefix};
use reveille_core::stream::Head;
use reveille_core::subscription::{Subscription, SubscriptionId};
use reveille_core::{Offset, StreamPath, Tenant};
use reveille_kernel::error::Damaged;
use reveille_schema::keys::{self, ConsumerKey};
use reveille_schema::record::{self, ConsumerRecord, LinkRecord};
use reveille_store::state::Reader;

use super::send;
use crate::app::Shared;
use crate::encoder::NotifiedStream;
use crate::engine::Engine;
use crate::limits::{INSPECTED_STREAMS_MAX, LIST_PAGE_MAX, LIST_SCAN_MAX, LISTED_STREAMS_MAX};
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

/// A page of consumers.
#[derive(Debug, Clone)]
pub struct ConsumerPage {
    /// The consumers, in order. There may be fewer than asked for, and more on the next page.
    pub items: Vec<ConsumerItem>,
    /// Where the next page begins; `None` at the end.
    pub next: Option<String>,
}

/// A look at all consumers, in the order of their subscriptions' age and then of their paths.
struct Walk<'a> {
    engine: &'a Engine,
    shared: &'a Shared,
    reader: Reader,
    limit: usize,
    /// Streams that may still be looked at for this page.
    looks: usize,
    page: ConsumerPage,
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
            Some(head) => webhooks(&reader, &subscription, path, &head).map(Some),
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

    /// Consumers of all subscriptions, or of those of one name; one page of them.
    pub fn consumers(
        &self,
        tenant: &Tenant,
        named: Option<&str>,
        after: Option<&str>,
        limit: usize,
    ) -> Result<ConsumerPage, Damaged> {
        let mut subscriptions = self.subscriptions(tenant, Dialect::Webhooks)?;
        subscriptions.extend(self.subscriptions(tenant, Dialect::Leases)?);
        subscriptions.retain(|it| named.is_none_or(|name| *it.spec.name == *name));
        subscriptions.sort_by_key(|it| it.id);
        let resume = after.and_then(Resume::parse);
        let shared = self.partition(tenant);
        let mut walk = Walk {
            engine: self,
            shared,
            reader: shared.state.reader(),
            limit: limit.clamp(1, LIST_PAGE_MAX),
            looks: LIST_SCAN_MAX,
            page: ConsumerPage { items: Vec::new(), next: None },
        };
        for subscription in subscriptions.into_iter().map(Arc::new) {
            let path = match &resume {
                Some(it) if subscription.id < it.subscription => continue,
                Some(it) if subscription.id == it.subscription => it.path.as_ref(),
                _ => None,
            };
            if !walk.visit(&subscription, path)? {
                return Ok(walk.page);
            }
        }
        walk.page.next = None;
        Ok(walk.page)
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
    /// Adds the consumers of a subscription. Says whether there is room for those of the next.
    fn visit(
        &mut self,
        subscription: &Arc<Subscription>,
        after: Option<&StreamPath>,
    ) -> Result<bool, Damaged> {
        if self.page.items.len() >= self.limit || self.looks == 0 {
            self.page.next = Some(subscription.id.0.to_string());
            return Ok(false);
        }
        match subscription.spec.dialect {
            Dialect::Leases => {
                self.looks -= 1;
                let item = leases(&self.reader, subscription, LISTED_STREAMS_MAX)?;
                self.page.items.push(item);
                Ok(true)
            }
            Dialect::Webhooks => self.visit_streams(subscription, after),
        }
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
        let mut from = after.map_or(first.clone(), |path| above(path).max(first.clone()));
        loop {
            let slice = self.looks.min(LIST_PAGE_MAX);
            let pairs = self.reader.range(&from, &end, slice)?;
            let full = pairs.len() == slice;
            for (key, value) in pairs {
                self.looks -= 1;
                let Some((_, path)) = keys::parse_stream(&key) else { continue };
                from = above(&path);
                let head = record::decode_head(&value).map_err(Damaged::new)?;
                if pattern.matches(&path) && self.engine.is_there(self.shared, &head) {
                    let item = webhooks(&self.reader, subscription, &path, &head)?;
                    self.page.items.push(item);
                }
                if self.page.items.len() >= self.limit || self.looks == 0 {
                    self.page.next = Some(format!("{}{path}", subscription.id.0));
                    return Ok(false);
                }
            }
            if !full {
                return Ok(true);
            }
        }
    }
}

/// The consumer of a stream. What an earlier stream at its path left behind is not its own.
fn webhooks(
    reader: &Reader,
    subscription: &Arc<Subscription>,
    path: &StreamPath,
    head: &Head,
) -> Result<ConsumerItem, Damaged> {
    let key = ConsumerKey { subscription: subscription.id, path: Some(path.clone()) };
    let record = send::consumer_record(reader, &key)?.filter(|it| it.primary == Some(head.id));
    let (streams, awaits_turn) = match &record {
        Some(record) => (send::streams(reader, subscription, record)?, false),
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
    Ok(ConsumerItem { subscription, path, record, streams, more_streams: false, awaits_turn })
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
    let acked = missed.map_or(Some(head.tail), |mark| mark.before);
    Ok((acked.filter(|_| !subscription.is_older_than(head.id)), missed.is_some()))
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
    let (subscription, awaits_turn) = (subscription.clone(), false);
    Ok(ConsumerItem { subscription, path: None, record, streams, more_streams, awaits_turn })
}
