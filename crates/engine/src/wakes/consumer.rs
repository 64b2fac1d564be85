//! Consumers: finding them, letting them take a step, and keeping what becomes of them.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use reveille_core::consumer::{
    Answer as WakeResponse, Consumer, Dialect, Effect as Consequence, Given, Input, Link, Phase,
    Rejected, Stage, WakeBy,
};
use reveille_core::key_range::above;
use reveille_core::stream::{Head, StreamId};
use reveille_core::subscription::Subscription;
use reveille_core::{Millis, Offset, StreamPath, Tenant};
use reveille_kernel::command::{Command, Decision};
use reveille_kernel::error::Never;
use reveille_kernel::outbound::OutcomeCommand;
use reveille_kernel::txn::ReadError;
use reveille_schema::keys::{self, ConsumerKey};
use reveille_schema::record::{self, ConsumerRecord};
use reveille_schema::wakes::WakeTimer;

use super::activity::{ConsumerTxn, complain, timer_key};
use super::index::SubscriptionIndex;
use super::{fan_out, lease};
use crate::app::{App, Txn};
use crate::effect::{ConsumerTrouble, Effect, WakeAttempt};
use crate::streams::observer::Growth;
use crate::streams::txn::StreamTxn;

/// How long an error text may be that is kept with a consumer.
const ERROR_BYTES_MAX: usize = 256;

/// The tails of a consumer's streams as far as a step may ask for them, in the order of its links.
#[derive(Default)]
pub(crate) struct StreamTails {
    tails: Vec<(StreamPath, Option<Offset>)>,
    /// Where each is, if there are more than a few: a step asks for all of them.
    places: HashMap<StreamPath, usize, foldhash::fast::RandomState>,
}

/// Up to this many are looked through one by one.
const FEW_TAILS: usize = 8;

impl StreamTails {
    pub(super) fn push(&mut self, path: StreamPath, tail: Option<Offset>) {
        self.tails.push((path, tail));
        if self.tails.len() > FEW_TAILS {
            let fresh = self.tails.iter().enumerate().skip(self.places.len());
            self.places.extend(fresh.map(|(place, (path, _))| (path.clone(), place)));
        }
    }

    /// The tail of a stream, if it was looked at.
    pub(super) fn get(&self, path: &StreamPath) -> Option<Option<Offset>> {
        let known = if self.places.is_empty() {
            self.tails.iter().find(|(known, _)| known == path)
        } else {
            self.places.get(path).and_then(|place| self.tails.get(*place))
        };
        known.map(|(_, tail)| *tail)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = Option<Offset>> {
        self.tails.iter().map(|(_, tail)| *tail)
    }

    fn of(&self, link: &Link) -> Option<Offset> {
        // What nobody looked at has not changed since it was acknowledged.
        self.get(&link.path).unwrap_or(link.acked)
    }
}

/// Lets a consumer take a step.
pub(crate) fn step(
    txn: &mut Txn<'_>,
    subscription: &Subscription,
    key: &ConsumerKey,
    consumer: &Consumer,
    tails: &StreamTails,
    more_pending: bool,
    input: &Input,
) -> Result<Consumer, Rejected> {
    let policy = subscription.policy(&txn.domains().settings.timings);
    let condition = SubscriptionIndex::of_txn(txn).condition(subscription.id);
    let given = Given {
        now: txn.now(),
        fresh_wake_id: txn.wake_id(),
        random: txn.draw(),
        policy: &policy,
        tail: &|link| tails.of(link),
        more_pending,
        worth_waking: &|backlog| condition.is_some_and(|it| it.holds(backlog)),
    };
    let step = consumer.step(&given, input)?;
    for Consequence::Tell { epoch, attempt } in step.effects {
        if policy.wake_by == WakeBy::Webhook {
            let (consumer, tenant) = (key.clone(), subscription.tenant.clone());
            txn.effect(Effect::SendWake(WakeAttempt { consumer, epoch, attempt, tenant }));
        }
    }
    Ok(step.consumer)
}

/// A stream has grown or begun, and whoever is for it is told, but for whoever did that.
pub(crate) fn grown(txn: &mut Txn<'_>, growth: &Growth<'_>) -> Result<(), ReadError> {
    fan_out::grown(txn, growth)?;
    if growth.head.followed {
        let from = keys::followers(growth.tenant, growth.path).0;
        tell_followers(txn, growth, &from)?;
    }
    Ok(())
}

/// The consumer of a subscription that a stream's growth is told to.
pub(crate) fn key_of(subscription: &Subscription, path: &StreamPath) -> ConsumerKey {
    let path = match subscription.spec.dialect {
        Dialect::Webhooks => Some(path.clone()),
        Dialect::Leases => None,
    };
    ConsumerKey { subscription: subscription.id, path }
}

/// The stream that a consumer is for has grown. `before` is where the first event begins that it is
/// to be told of if it was never told of any.
pub(crate) fn primary_grown(
    txn: &mut Txn<'_>,
    subscription: &Subscription,
    key: &ConsumerKey,
    path: &StreamPath,
    head: &Head,
    before: Option<Offset>,
) -> Result<(), ReadError> {
    let stored = txn.consumer(key)?;
    let record = match &stored {
        Some(record) if record.primary == Some(head.id) => record.clone(),
        earlier => begin(txn, subscription, key, head, before, earlier.as_ref()),
    };
    follow_grown(txn, subscription, key, stored.as_ref(), record, path, head)
}

/// The record of a consumer that was virtual so far: how far it has come
/// follows from where its stream ended, `before`, when its subscription began. One of an `earlier` stream at this
/// path goes on counting its epochs.
pub(crate) fn begin(
    txn: &mut Txn<'_>,
    subscription: &Subscription,
    key: &ConsumerKey,
    head: &Head,
    before: Option<Offset>,
    earlier: Option<&ConsumerRecord>,
) -> ConsumerRecord {
    let acked = subscription.start_in(head, before);
    let link = key.path.clone().map(|path| Link { path, stream: Some(head.id), acked });
    let epoch = earlier.map_or(0, |it| it.consumer.epoch);
    for link in earlier.iter().flat_map(|it| &it.consumer.links) {
        txn.remove(&keys::follower(&subscription.tenant, &link.path, key));
    }
    let links = link.into_iter().collect();
    let mut record = ConsumerRecord::new(Consumer::new(epoch, links), Some(head.id));
    record.timer_at = earlier.and_then(|it| it.timer_at);
    record
}

/// A stream that a consumer follows has grown.
fn follow_grown(
    txn: &mut Txn<'_>,
    subscription: &Subscription,
    key: &ConsumerKey,
    stored: Option<&ConsumerRecord>,
    mut record: ConsumerRecord,
    path: &StreamPath,
    head: &Head,
) -> Result<(), ReadError> {
    let tails = if subscription.spec.coalescing.wake_if.is_some() {
        refresh(txn, &subscription.tenant, key, &mut record.consumer, None)?
    } else {
        let mut tails = StreamTails::default();
        tails.push(path.clone(), Some(head.tail));
        tails
    };
    let consumer = &record.consumer;
    let stepped = step(txn, subscription, key, consumer, &tails, false, &Input::Appended)
        .expect("growth is never refused");
    if stepped != record.consumer {
        record.consumer = stepped;
        txn.keep(key, stored, record);
    }
    Ok(())
}

/// Tells those who follow a stream by name, from a key on; what is too much for one batch is left
/// to the due index.
pub(crate) fn tell_followers(
    txn: &mut Txn<'_>,
    growth: &Growth<'_>,
    from: &Bytes,
) -> Result<(), ReadError> {
    let Growth { tenant, path, head, author, .. } = *growth;
    let rest = |txn: &mut Txn<'_>, from: Bytes| {
        let timer = WakeTimer::FanOutToFollowers(tenant.clone(), path.clone(), head.id, from);
        txn.set_wake_timer(txn.now(), &timer);
    };
    if txn.items_left() == 0 {
        rest(txn, from.clone());
        return Ok(());
    }
    let (first, end) = keys::followers(tenant, path);
    let found = txn.range(from, &end, txn.domains().settings.fan_out)?;
    let followers: Vec<(Bytes, ConsumerKey)> = found
        .pairs
        .iter()
        .filter_map(|(key, _)| Some((key.clone(), keys::parse_follower(&first, key)?)))
        .collect();
    let keys: Vec<Bytes> = followers.iter().map(|(_, it)| keys::consumer(it)).collect();
    txn.want(&keys)?;
    let told = txn.gather_slice(&followers, |txn, (follower, key)| {
        if Some(key) == author {
            return Ok(());
        }
        let Some(subscription) = SubscriptionIndex::of_txn(txn).get(key.subscription) else {
            txn.remove(follower);
            return Ok(());
        };
        match subscription.spec.dialect {
            Dialect::Webhooks => follower_grown(txn, subscription, key, path, head, follower),
            Dialect::Leases => lease::grown(txn, subscription, path, head, None),
        }
    })?;
    match (followers.get(told), &found.last) {
        (Some((next, _)), _) => rest(txn, next.clone()),
        (None, Some(last)) => rest(txn, above(last)),
        (None, None) => {}
    }
    Ok(())
}

/// A stream grew that a consumer follows beside the one that it is for.
fn follower_grown(
    txn: &mut Txn<'_>,
    subscription: &Subscription,
    key: &ConsumerKey,
    path: &StreamPath,
    head: &Head,
    follower: &Bytes,
) -> Result<(), ReadError> {
    let Some(stored) = txn.consumer(key)? else {
        txn.remove(follower);
        return Ok(());
    };
    let mut record = stored.clone();
    let link = record.consumer.links.iter_mut().find(|link| link.path == *path);
    let follows = match link {
        Some(link) if link.stream == Some(head.id) => true,
        // The stream that it waited for is there.
        Some(link) if link.stream.is_none() => {
            link.stream = Some(head.id);
            true
        }
        Some(_) | None => false,
    };
    if !follows {
        txn.remove(follower);
        return Ok(());
    }
    follow_grown(txn, subscription, key, Some(&stored), record, path, head)
}

/// Brings a consumer's links up to date with what became of their streams: those that ended are
/// followed no longer, those that began are taken note of. Returns where the others end. The
/// stream that the consumer is for may be known.
pub(crate) fn refresh(
    txn: &mut Txn<'_>,
    tenant: &Tenant,
    key: &ConsumerKey,
    consumer: &mut Consumer,
    primary: Option<&Head>,
) -> Result<StreamTails, ReadError> {
    let links = std::mem::take(&mut consumer.links);
    let heads = txn.gather(&links, |txn, link| {
        match primary.filter(|_| key.path.as_ref() == Some(&link.path)) {
            Some(head) => Ok(Some(head.clone())),
            None => Ok(txn.live_head(tenant, &link.path)?.filter(|head| !head.soft_deleted)),
        }
    })?;
    let mut tails = StreamTails::default();
    for (mut link, head) in links.into_iter().zip(heads) {
        match (link.stream, &head) {
            (Some(id), Some(head)) if id == head.id => {}
            (Some(_), _) => {
                txn.remove(&keys::follower(tenant, &link.path, key));
                continue;
            }
            (None, head) => link.stream = head.as_ref().map(|head| head.id),
        }
        tails.push(link.path.clone(), head.map(|head| head.tail));
        consumer.links.push(link);
    }
    Ok(tails)
}

/// A consumer with its subscription and the tails of its streams, if it still exists.
pub(crate) struct LoadedConsumer {
    pub(crate) subscription: Arc<Subscription>,
    pub(crate) record: ConsumerRecord,
    pub(crate) tails: StreamTails,
}

/// Looks a consumer up that follows streams by itself.
pub(crate) fn present(
    txn: &mut Txn<'_>,
    key: &ConsumerKey,
) -> Result<Option<LoadedConsumer>, ReadError> {
    let Some(subscription) = SubscriptionIndex::of_txn(txn).get(key.subscription).cloned() else {
        return Ok(None);
    };
    let (Some(mut record), Some(path)) = (txn.consumer(key)?, &key.path) else {
        return Ok(None);
    };
    let head = txn.live_head(&subscription.tenant, path)?;
    let head = head.filter(|head| !head.soft_deleted && Some(head.id) == record.primary);
    let Some(head) = head else {
        return Ok(None);
    };
    let tails = refresh(txn, &subscription.tenant, key, &mut record.consumer, Some(&head))?;
    Ok(Some(LoadedConsumer { subscription, record, tails }))
}

/// How an attempt to wake a consumer ended, and what went wrong if it failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WakeOutcome {
    pub attempt: WakeAttempt,
    /// How it ended.
    pub response: WakeResponse,
    /// What went wrong.
    pub error: Option<Arc<str>>,
}

/// Writes down how attempts ended.
#[derive(Debug, Clone)]
pub struct RecordWakeOutcomes(pub Vec<WakeOutcome>);

impl Command<App> for RecordWakeOutcomes {
    /// How many of them, from the first on.
    type Answer = usize;
    type Rejection = Never;

    fn decide(&self, txn: &mut Txn<'_>) -> Decision<usize, Never> {
        Ok(Ok(txn.gather_slice(&self.0, answered)?))
    }

    fn weight(&self) -> usize {
        self.0.len() * 512
    }

    /// Nobody waits for it, unless it lets something happen.
    fn is_urgent(&self, effects: &[Effect]) -> bool {
        effects.iter().any(Effect::is_urgent)
    }
}

impl OutcomeCommand<App> for RecordWakeOutcomes {
    type Outcome = WakeOutcome;

    fn new(outcomes: Vec<WakeOutcome>) -> RecordWakeOutcomes {
        RecordWakeOutcomes(outcomes)
    }

    fn into_outcomes(self) -> Vec<WakeOutcome> {
        self.0
    }
}

/// An attempt was answered, or failed.
fn answered(txn: &mut Txn<'_>, outcome: &WakeOutcome) -> Result<(), ReadError> {
    let WakeOutcome { attempt, response, error } = outcome;
    let WakeAttempt { consumer: key, epoch, attempt, .. } = attempt;
    let (epoch, attempt) = (*epoch, *attempt);
    let input = Input::Answered { epoch, attempt, answer: response.clone() };
    if key.path.is_none() {
        return lease::moved(txn, key, &input, error.as_ref());
    }
    if let Some(present) = present(txn, key)? {
        let LoadedConsumer { subscription, mut record, tails } = present;
        let before = record.clone();
        let consumer = &record.consumer;
        record.consumer = step(txn, &subscription, key, consumer, &tails, false, &input)
            .expect("an answer is never refused");
        note_error(txn, &mut record, epoch, error.as_ref());
        if record != before {
            txn.keep(key, Some(&before), record);
        }
    }
    Ok(())
}

/// Remembers what went wrong with the current wake.
pub(crate) fn note_error(
    txn: &Txn<'_>,
    record: &mut ConsumerRecord,
    epoch: u64,
    error: Option<&Arc<str>>,
) {
    if let Some(error) = error
        && epoch == record.consumer.epoch
    {
        let end = error.floor_char_boundary(ERROR_BYTES_MAX);
        let text = error.get(..end).unwrap_or_default();
        record.last_error = Some((txn.now(), text.into()));
        record.failures += 1;
    }
}

/// What is wrong with an endpoint that leaves a request open. Whether the attempt has failed is not
/// known yet.
pub(crate) const UNANSWERED: &str = "no answer so far";

/// Whether the consumer was told and should have answered by now.
pub(crate) fn is_overdue(consumer: &Consumer, now: Millis) -> bool {
    matches!(consumer.phase, Phase::Waking { stage: Stage::Sent { until }, .. } if until <= now)
}

/// Complains if whoever took the wake on has let its lease run out.
pub(crate) fn note_silence(txn: &mut Txn<'_>, key: &ConsumerKey, before: &Consumer) {
    if matches!(before.phase, Phase::Live { until } if until <= txn.now()) {
        complain(txn, key, ConsumerTrouble::Silent);
    }
}

/// A consumer's time has come, perhaps.
pub(crate) fn fire(
    txn: &mut Txn<'_>,
    entry: &Bytes,
    at: Millis,
    key: &ConsumerKey,
    in_flight: &[(u64, u32)],
) -> Result<(), ReadError> {
    let fired = Some(at);
    // The entry is removed first: it may be written anew, for the same time.
    txn.remove(entry);
    if key.path.is_none() {
        let input = Input::Timer { in_flight: !in_flight.is_empty() };
        lease::fired(txn, key, fired, &input)?;
    } else if let Some(present) = present(txn, key)? {
        let LoadedConsumer { subscription, mut record, tails } = present;
        let before = record.clone();
        if record.timer_at == fired {
            record.timer_at = None;
        }
        let epoch = record.consumer.epoch;
        let in_flight = in_flight.iter().any(|(wake, _)| *wake == epoch);
        let input = Input::Timer { in_flight };
        let consumer = &record.consumer;
        record.consumer = step(txn, &subscription, key, consumer, &tails, false, &input)
            .expect("a timer is never refused");
        if in_flight && is_overdue(&before.consumer, txn.now()) {
            record.last_error = Some((txn.now(), UNANSWERED.into()));
        }
        note_silence(txn, key, &before.consumer);
        txn.keep(key, Some(&before), record);
    } else if SubscriptionIndex::of_txn(txn).get(key.subscription).is_some()
        && txn.consumer(key)?.is_some_and(|left| left.timer_at == fired)
    {
        // Its stream has ended. One that takes its place must not rely on an entry that is gone.
        txn.disarm(key)?;
    }
    Ok(())
}

/// Removes what the consumers of an ended stream left behind, slice by slice: the entry's value is
/// the number of the last subscription whose turn has been.
pub(crate) fn forget(
    txn: &mut Txn<'_>,
    entry: &Bytes,
    tenant: &Tenant,
    path: &StreamPath,
    id: StreamId,
) -> Result<(), ReadError> {
    let Some(value) = txn.get(entry)? else {
        return Ok(());
    };
    let after = record::decode_u64(&value).unwrap_or(0);
    let matching = fan_out::next_matching(txn, tenant, path, fan_out::all_after(after));
    fan_out::want(txn, &matching.found, path)?;
    let mut done = None;
    for subscription in &matching.found {
        if done.is_some() && txn.is_full() {
            break;
        }
        done = Some(subscription.id);
        let key = key_of(subscription, path);
        if subscription.spec.dialect == Dialect::Leases {
            lease::forget(txn, subscription, path, id)?;
            continue;
        }
        if let Some(record) = txn.consumer(&key)?
            && record.primary == Some(id)
        {
            txn.remove_all(&belongings(tenant, &key, &record))?;
        }
    }
    let is_cut = matching.found.last().map(|last| last.id) > done;
    let rest = matching.rest.map(|_| matching.through);
    match if is_cut { done } else { rest } {
        Some(through) => txn.set(entry.clone(), record::encode_u64(through.0)),
        None => txn.remove(entry),
    }
    Ok(())
}

/// Every key of a consumer.
pub fn belongings(tenant: &Tenant, key: &ConsumerKey, record: &ConsumerRecord) -> Vec<Bytes> {
    let links = record.consumer.links.iter();
    let mut keys: Vec<Bytes> = links.map(|it| keys::follower(tenant, &it.path, key)).collect();
    if let Some(at) = record.timer_at {
        keys.push(timer_key(at, key));
    }
    keys.push(keys::consumer(key));
    keys
}
