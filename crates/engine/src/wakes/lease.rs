//! Subscriptions that are one consumer over many streams, whose links are kept apart from it.
//!
//! A stream of such a subscription has a link once it has grown after the subscription began, or
//! was named; and a mark while it has more than was acknowledged. A few marks are kept with the
//! consumer, many are keys of the backlog.

use std::collections::HashSet;
use std::sync::Arc;

use bytes::Bytes;
use reveille_core::consumer::{
    Ack, Callback, ClaimedWake, Consumer, Dialect, Input, Link, Phase, Rejected, WakeId,
};
use reveille_core::media::ContentType;
use reveille_core::offset::ReadFrom;
use reveille_core::stream::append::Append;
use reveille_core::stream::{Body, Head, StreamId};
use reveille_core::subscription::{Subscription, Target, wake_event};
use reveille_core::token::Claims;
use reveille_core::{Millis, Offset, StreamPath, Tenant};
use reveille_kernel::command::{Command, Decision};
use reveille_kernel::txn::ReadError;
use reveille_schema::keys::{self, ConsumerKey};
use reveille_schema::record::{self, ConsumerRecord, LinkRecord};

use super::activity::ConsumerTxn;
use super::callback::mark_followed;
use super::consumer::{StreamTails, UNANSWERED, is_overdue, note_error, note_silence, step};
use super::error::WakeRejection;
use super::fan_out;
use super::index::SubscriptionIndex;
use super::operate::ConsumerMove;
use crate::app::{App, Txn};
use crate::limits::NOTICE_STREAMS_MAX;
use crate::records::ReadRecord;
use crate::streams::append::append_silently;
use crate::streams::txn::StreamTxn;

/// As many marks are kept with their consumer: nobody has to look for them.
const MARKED_MAX: usize = 4;
/// Marks that are keys go back to their consumer when no more than this are left.
const MARKED_AGAIN_MAX: usize = 2;

/// A worker asks to have the work.
#[derive(Debug, Clone)]
pub struct ClaimLease {
    pub tenant: Tenant,
    /// Of which subscription.
    pub name: Arc<str>,
    pub worker: Arc<str>,
}

/// A worker reports progress, or only that it lives.
#[derive(Debug, Clone)]
pub struct RenewLease {
    /// The token that came with it; its signature is good.
    pub claims: Claims,
    /// The wake it speaks for.
    pub generation: u64,
    pub wake_id: ClaimedWake,
    /// How far it has come.
    pub acks: Vec<Ack>,
    /// Whether it has finished.
    pub done: bool,
}

/// A worker gives its work back.
#[derive(Debug, Clone)]
pub struct ReleaseLease {
    /// The token that came with it; its signature is good.
    pub claims: Claims,
    /// The wake it speaks for.
    pub generation: u64,
    pub wake_id: ClaimedWake,
}

/// What a worker is told of the work that it has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    pub wake_id: WakeId,
    pub generation: u64,
    /// How long it lasts without a sign of life.
    pub lease_ms: u64,
}

fn link_of(
    txn: &mut Txn<'_>,
    subscription: &Subscription,
    path: &StreamPath,
) -> Result<Option<LinkRecord>, ReadError> {
    txn.read(&keys::link(subscription.id, path), record::decode_link)
}

fn set_link(txn: &mut Txn<'_>, subscription: &Subscription, path: &StreamPath, link: LinkRecord) {
    txn.set(keys::link(subscription.id, path), record::encode_link(link));
}

pub(crate) fn key_of(subscription: &Subscription) -> ConsumerKey {
    ConsumerKey { subscription: subscription.id, path: None }
}

/// A stream of the subscription has grown or begun.
pub(crate) fn grown(
    txn: &mut Txn<'_>,
    subscription: &Subscription,
    path: &StreamPath,
    head: &Head,
    before: Option<Offset>,
) -> Result<(), ReadError> {
    if is_wake_stream(subscription, path) {
        return Ok(());
    }
    let key = key_of(subscription);
    let (known, stored) = (link_of(txn, subscription, path), txn.consumer(&key));
    if known.is_err() || stored.is_err() {
        // What is missing is asked for at once.
        txn.want(&[keys::link(subscription.id, path), keys::consumer(&key)])?;
    }
    let (known, stored) = (known?, stored?);
    let link = match known {
        Some(link) if link.stream == Some(head.id) => link,
        Some(link) if link.stream.is_none() => LinkRecord { stream: Some(head.id), ..link },
        // A stream that took the place of another begins anew.
        Some(link) => LinkRecord { stream: Some(head.id), acked: None, ..link },
        None => {
            let acked = if subscription.is_older_than(head.id) { None } else { before };
            LinkRecord { stream: Some(head.id), acked, explicit: false }
        }
    };
    let is_marked = match stored.as_ref().map(|it| &it.marked) {
        None => false,
        Some(Some(few)) => few.contains(path),
        Some(None) => txn.is_set(&keys::backlog(subscription.id, path))?,
    };
    // A mark that an earlier stream at this path left says nothing of this one.
    let is_current = is_marked && known == Some(link);
    if Some(head.tail) <= link.acked || is_current {
        return Ok(());
    }
    if known != Some(link) {
        set_link(txn, subscription, path, link);
    }
    let mut record = stored.clone().unwrap_or_else(fresh);
    if !is_marked {
        mark(txn, subscription, &mut record, path);
    }
    let (consumer, tails) = (&record.consumer, StreamTails::default());
    record.consumer = step(txn, subscription, &key, consumer, &tails, true, &Input::Appended)
        .expect("growth is never refused");
    settle(txn, subscription, &key, stored.as_ref(), record, Some(path))
}

/// A consumer that was not kept so far: none of its streams has a mark.
fn fresh() -> ConsumerRecord {
    let record = ConsumerRecord::new(Consumer::new(0, Vec::new()), None);
    ConsumerRecord { marked: Some(Vec::new()), ..record }
}

/// Marks a stream that has no mark: with the consumer, or by a key once there are many.
fn mark(
    txn: &mut Txn<'_>,
    subscription: &Subscription,
    record: &mut ConsumerRecord,
    path: &StreamPath,
) {
    if let Some(few) = &mut record.marked {
        let at = few.binary_search(path).unwrap_or_else(|at| at);
        few.insert(at, path.clone());
        if few.len() <= MARKED_MAX {
            return;
        }
    }
    let many = record.marked.take().unwrap_or_else(|| vec![path.clone()]);
    for path in &many {
        txn.set(keys::backlog(subscription.id, path), Bytes::new());
    }
}

/// Takes a stream's mark off.
fn unmark(
    txn: &mut Txn<'_>,
    subscription: &Subscription,
    path: &StreamPath,
) -> Result<(), ReadError> {
    let key = key_of(subscription);
    let Some(stored) = txn.consumer(&key)? else {
        return Ok(());
    };
    let mut record = stored.clone();
    match &mut record.marked {
        Some(few) => few.retain(|it| it != path),
        None => txn.remove(&keys::backlog(subscription.id, path)),
    }
    if record != stored {
        txn.keep(&key, Some(&stored), record);
    }
    Ok(())
}

/// Whether the stream is the one where the subscription's own wakes are announced.
pub(crate) fn is_wake_stream(subscription: &Subscription, path: &StreamPath) -> bool {
    matches!(&subscription.spec.target, Target::Pull(wake) if wake == path)
}

/// What a step needs to know of a subscription's streams.
struct LeaseView {
    links: Vec<Link>,
    tails: StreamTails,
    /// What else is known of each link's stream.
    seen: Vec<SeenStream>,
    /// Streams with a mark and without a link.
    strays: Vec<StreamPath>,
    /// Whether these are all with a mark.
    complete: bool,
}

struct SeenStream {
    explicit: bool,
    marked: bool,
}

/// Loads the links of the streams with a backlog, and of those that are named.
fn view(
    txn: &mut Txn<'_>,
    subscription: &Subscription,
    known: Option<&Vec<StreamPath>>,
    named: &[StreamPath],
) -> Result<LeaseView, ReadError> {
    let (mut paths, complete) = match known {
        Some(marked) => (marked.clone(), true),
        None => {
            let (from, to) = keys::backlogs(subscription.id);
            let found = txn.range(&from, &to, NOTICE_STREAMS_MAX)?;
            let paths = found.pairs.iter().filter_map(|(key, _)| keys::parse_linked(key));
            (paths.collect(), found.complete)
        }
    };
    let marked = paths.len();
    let mut known: HashSet<StreamPath> = paths.iter().cloned().collect();
    paths.extend(named.iter().filter(|path| known.insert((*path).clone())).cloned());
    let (links, tails) = (Vec::with_capacity(paths.len()), StreamTails::default());
    let (seen, strays) = (Vec::with_capacity(paths.len()), Vec::new());
    let mut view = LeaseView { links, tails, seen, strays, complete };
    let found = txn.gather(&paths, |txn, path| look(txn, subscription, path))?;
    for (number, (path, found)) in paths.into_iter().zip(found).enumerate() {
        match found {
            Some((link, tail)) => {
                let LinkRecord { stream, acked, explicit } = link;
                // Of those that are named, only a complete view says that they have no mark.
                view.seen.push(SeenStream { explicit, marked: number < marked || !complete });
                view.tails.push(path.clone(), tail);
                view.links.push(Link { path, stream, acked });
            }
            None if number < marked => view.strays.push(path),
            None => {}
        }
    }
    Ok(view)
}

/// How far a stream is processed, and where it ends; one that has ended has no more than that.
fn look(
    txn: &mut Txn<'_>,
    subscription: &Subscription,
    path: &StreamPath,
) -> Result<Option<(LinkRecord, Option<Offset>)>, ReadError> {
    let (head, link) =
        (txn.live_head(&subscription.tenant, path), link_of(txn, subscription, path));
    if head.is_err() || link.is_err() {
        let stream = keys::stream(&subscription.tenant, path);
        txn.want(&[keys::link(subscription.id, path), stream])?;
    }
    let head = head?.filter(|head| !head.soft_deleted);
    let link = match link? {
        Some(link) => Some(link),
        None => virtual_link(txn, subscription, path, head.as_ref())?,
    };
    Ok(link.map(|link| {
        let same = head.filter(|head| link.stream == Some(head.id));
        (link, same.map_or(link.acked, |head| Some(head.tail)))
    }))
}

/// A stream that the pattern matches and that has not grown since, as far as the subscription was
/// told: all of it is processed.
fn virtual_link(
    txn: &mut Txn<'_>,
    subscription: &Subscription,
    path: &StreamPath,
    head: Option<&Head>,
) -> Result<Option<LinkRecord>, ReadError> {
    let pattern = subscription.spec.pattern.as_ref();
    let Some(head) = head.filter(|_| pattern.is_some_and(|it| it.matches(path))) else {
        return Ok(None);
    };
    let whole = (!subscription.is_older_than(head.id)).then_some(head.tail);
    let acked = fan_out::missed(txn, subscription, path, head)?.unwrap_or(whole);
    Ok(Some(LinkRecord { stream: Some(head.id), acked, explicit: false }))
}

/// Steps with a view of the streams in question, and writes back what changed of it.
fn step_with(
    txn: &mut Txn<'_>,
    subscription: &Subscription,
    key: &ConsumerKey,
    record: &mut ConsumerRecord,
    named: &[StreamPath],
    input: &Input,
) -> Result<Result<(), Rejected>, ReadError> {
    let by_key = record.marked.is_none();
    let view = view(txn, subscription, record.marked.as_ref(), named)?;
    record.consumer.links = view.links;
    let (consumer, more) = (&record.consumer, !view.complete);
    let mut stepped = match step(txn, subscription, key, consumer, &view.tails, more, input) {
        Ok(stepped) => stepped,
        Err(rejected) => return Ok(Err(rejected)),
    };
    let mut marked = view.strays;
    let links = record.consumer.links.iter().zip(&stepped.links);
    for (((before, after), tail), seen) in links.zip(view.tails.iter()).zip(&view.seen) {
        if seen.marked && tail > after.acked {
            marked.push(after.path.clone());
        } else if seen.marked && by_key {
            txn.remove(&keys::backlog(subscription.id, &after.path));
        }
        if before.acked != after.acked {
            let (stream, acked, explicit) = (after.stream, after.acked, seen.explicit);
            set_link(txn, subscription, &after.path, LinkRecord { stream, acked, explicit });
        }
    }
    let few_again = by_key && view.complete && marked.len() <= MARKED_AGAIN_MAX;
    if few_again {
        for path in &marked {
            txn.remove(&keys::backlog(subscription.id, path));
        }
    }
    if few_again || !by_key {
        marked.sort_unstable();
        record.marked = Some(marked);
    }
    stepped.links.clear();
    record.consumer = stepped;
    Ok(Ok(()))
}

/// Keeps what became of the consumer; a wake that is to be pulled is announced in its stream.
fn settle(
    txn: &mut Txn<'_>,
    subscription: &Subscription,
    key: &ConsumerKey,
    stored: Option<&ConsumerRecord>,
    record: ConsumerRecord,
    cause: Option<&StreamPath>,
) -> Result<(), ReadError> {
    let Consumer { epoch, phase, .. } = &record.consumer;
    let woken = *epoch > stored.map_or(0, |it| it.consumer.epoch);
    if woken
        && matches!(phase, Phase::Waking { .. })
        && let Target::Pull(wake_stream) = &subscription.spec.target
    {
        let some = || record.marked.as_ref().and_then(|few| few.first());
        announce(txn, subscription, wake_stream, *epoch, cause.or_else(some))?;
    }
    let same = match stored {
        Some(stored) => *stored == record,
        None => record == fresh(),
    };
    if !same {
        txn.keep(key, stored, record);
    }
    Ok(())
}

/// Puts an event where workers look. A stream that is not there, or takes no JSON, gets none: the
/// work can be claimed all the same.
fn announce(
    txn: &mut Txn<'_>,
    subscription: &Subscription,
    wake_stream: &StreamPath,
    generation: u64,
    cause: Option<&StreamPath>,
) -> Result<(), ReadError> {
    let event = wake_event(subscription, generation, cause, txn.now());
    let kind = ContentType::parse("application/json");
    let body = Body::new(event.into(), kind.as_ref());
    let request = Append { content_type: kind, body, ..Append::default() };
    let silent = append_silently(txn, &subscription.tenant, wake_stream, &request)?;
    if let Err(rejected) = silent {
        tracing::debug!(%wake_stream, %rejected, "a wake could not be announced");
    }
    Ok(())
}

/// Something happened to the consumer that it did not ask for.
pub(crate) fn moved(
    txn: &mut Txn<'_>,
    key: &ConsumerKey,
    input: &Input,
    error: Option<&Arc<str>>,
) -> Result<(), ReadError> {
    let Some(subscription) = SubscriptionIndex::of_txn(txn).get(key.subscription).cloned() else {
        return Ok(());
    };
    let Some(stored) = txn.consumer(key)? else {
        return Ok(());
    };
    let mut record = stored.clone();
    if let Input::Answered { epoch, .. } = input {
        note_error(txn, &mut record, *epoch, error);
    }
    let named: Vec<StreamPath> = match input {
        Input::Answered { answer: reveille_core::consumer::Answer::Done(announced), .. } => {
            announced.iter().map(|it| it.path.clone()).collect()
        }
        _ => Vec::new(),
    };
    step_with(txn, &subscription, key, &mut record, &named, input)?
        .expect("what merely happens is never refused");
    settle(txn, &subscription, key, Some(&stored), record, None)
}

/// A timer of the consumer has fired.
pub(crate) fn fired(
    txn: &mut Txn<'_>,
    key: &ConsumerKey,
    at: Option<Millis>,
    input: &Input,
) -> Result<(), ReadError> {
    let Some(subscription) = SubscriptionIndex::of_txn(txn).get(key.subscription).cloned() else {
        return Ok(());
    };
    let Some(stored) = txn.consumer(key)? else {
        return Ok(());
    };
    let mut record = stored.clone();
    if record.timer_at == at {
        record.timer_at = None;
    }
    step_with(txn, &subscription, key, &mut record, &[], input)?.expect("a timer is never refused");
    if *input == (Input::Timer { in_flight: true }) && is_overdue(&stored.consumer, txn.now()) {
        record.last_error = Some((txn.now(), UNANSWERED.into()));
    }
    note_silence(txn, key, &stored.consumer);
    settle(txn, &subscription, key, Some(&stored), record, None)
}

impl Command<App> for ClaimLease {
    type Answer = Lease;
    type Rejection = WakeRejection;

    fn decide(&self, txn: &mut Txn<'_>) -> Decision<Lease, WakeRejection> {
        let input = Input::Claim { worker: self.worker.clone() };
        let stepped = match advance(txn, &self.tenant, &self.name, &[], &input, None)? {
            Ok(stepped) => stepped,
            Err(rejection) => return Ok(Err(rejection)),
        };
        let policy = stepped.subscription.policy(&txn.domains().settings.timings);
        let Consumer { wake_id, epoch, .. } = stepped.consumer;
        let wake_id = wake_id.expect("a consumer that was claimed has a wake");
        Ok(Ok(Lease { wake_id, generation: epoch, lease_ms: policy.lease_ms }))
    }
}

impl Command<App> for RenewLease {
    /// Whether the next wake has begun.
    type Answer = bool;
    type Rejection = WakeRejection;

    fn decide(&self, txn: &mut Txn<'_>) -> Decision<bool, WakeRejection> {
        let paths = self.acks.iter().filter_map(|ack| StreamPath::parse(&ack.path).ok());
        let callback = Callback {
            epoch: self.generation,
            wake_id: Some(self.wake_id),
            acks: self.acks.clone(),
            done: self.done,
            ..Callback::default()
        };
        let named: Vec<StreamPath> = paths.collect();
        let (claims, input) = (&self.claims, Input::Callback(callback));
        let fence = Some((claims, self.generation));
        let stepped = advance(txn, &claims.tenant, &claims.consumer, &named, &input, fence)?;
        Ok(stepped.map(|stepped| stepped.consumer.epoch > stepped.epoch_before))
    }
}

impl Command<App> for ReleaseLease {
    type Answer = ();
    type Rejection = WakeRejection;

    fn decide(&self, txn: &mut Txn<'_>) -> Decision<(), WakeRejection> {
        let Ok(wake_id) = self.wake_id else {
            // Whether there is such a subscription is asked first.
            let (tenant, name) = (&self.claims.tenant, &self.claims.consumer);
            if named(txn, tenant, name).is_none() {
                txn.rests_on_index();
                return Ok(Err(WakeRejection::NotFound));
            }
            return Ok(Err(WakeRejection::Consumer(Rejected::Fenced)));
        };
        let (claims, input) = (&self.claims, Input::Release { epoch: self.generation, wake_id });
        let fence = Some((claims, self.generation));
        let stepped = advance(txn, &claims.tenant, &claims.consumer, &[], &input, fence)?;
        Ok(stepped.map(drop))
    }
}

/// A consumer that did what its worker asked for.
struct SteppedLease {
    subscription: Arc<Subscription>,
    consumer: Consumer,
    epoch_before: u64,
}

fn named<'a>(txn: &Txn<'a>, tenant: &Tenant, name: &Arc<str>) -> Option<&'a Arc<Subscription>> {
    SubscriptionIndex::of_txn(txn).named(tenant, Dialect::Leases, name)
}

/// Does what a worker asks for, if it is entitled to that.
fn advance(
    txn: &mut Txn<'_>,
    tenant: &Tenant,
    name: &Arc<str>,
    paths: &[StreamPath],
    input: &Input,
    fence: Option<(&Claims, u64)>,
) -> Decision<SteppedLease, WakeRejection> {
    let Some(subscription) = named(txn, tenant, name) else {
        txn.rests_on_index();
        return Ok(Err(WakeRejection::NotFound));
    };
    let key = key_of(subscription);
    let stored = txn.consumer(&key)?;
    if fence.is_some_and(|(claims, generation)| !is_entitled(claims, subscription, generation)) {
        return Ok(Err(WakeRejection::Consumer(Rejected::Fenced)));
    }
    let mut record = stored.clone().unwrap_or_else(fresh);
    let epoch_before = record.consumer.epoch;
    if let Err(rejected) = step_with(txn, subscription, &key, &mut record, paths, input)? {
        return Ok(Err(WakeRejection::Consumer(rejected)));
    }
    let (subscription, consumer) = (subscription.clone(), record.consumer.clone());
    settle(txn, &subscription, &key, stored.as_ref(), record, None)?;
    Ok(Ok(SteppedLease { subscription, consumer, epoch_before }))
}

/// Does what an operator asks for.
pub(crate) fn operate(
    txn: &mut Txn<'_>,
    subscription: &Subscription,
    input: &Input,
) -> Decision<ConsumerMove, WakeRejection> {
    let key = key_of(subscription);
    let stored = txn.consumer(&key)?;
    let mut record = stored.clone().unwrap_or_else(fresh);
    let (before, mut streams) = (record.consumer.clone(), Vec::new());
    let named: Vec<StreamPath> = match input {
        Input::Seek { stream, .. } => stream.iter().cloned().collect(),
        _ => Vec::new(),
    };
    if let Input::Seek { to, .. } = input {
        for path in &named {
            match place(txn, subscription, &mut record, path, *to)? {
                Ok((from, to)) if from == to => {}
                Ok((from, to)) => streams.push((path.clone(), from, to)),
                Err(rejected) => return Ok(Err(rejected.into())),
            }
        }
    }
    if let Err(rejected) = step_with(txn, subscription, &key, &mut record, &named, input)? {
        return Ok(Err(rejected.into()));
    }
    let moved = ConsumerMove { streams, ..ConsumerMove::between(&before, &record.consumer) };
    settle(txn, subscription, &key, stored.as_ref(), record, None)?;
    Ok(Ok(moved))
}

/// From one offset to another.
type OffsetMove = (Option<Offset>, Option<Offset>);

/// Moves the link of a stream, with its mark, to where somebody wants it.
fn place(
    txn: &mut Txn<'_>,
    subscription: &Subscription,
    record: &mut ConsumerRecord,
    path: &StreamPath,
    to: ReadFrom,
) -> Result<Result<OffsetMove, Rejected>, ReadError> {
    let Some((link, tail)) = look(txn, subscription, path)? else {
        return Ok(Err(Rejected::NotFollowed { path: path.as_str().into() }));
    };
    let acked = match to {
        ReadFrom::Start => None,
        ReadFrom::Now => tail,
        ReadFrom::At(offset) if Some(offset) <= tail => Some(offset),
        ReadFrom::At(_) => {
            return Ok(Err(Rejected::OutOfRange { path: path.as_str().into(), tail }));
        }
    };
    let from = link.acked;
    set_link(txn, subscription, path, LinkRecord { acked, ..link });
    let is_marked = match &record.marked {
        Some(few) => few.contains(path),
        None => txn.is_set(&keys::backlog(subscription.id, path))?,
    };
    if tail > acked && !is_marked {
        mark(txn, subscription, record, path);
    }
    Ok(Ok((from, acked)))
}

/// A token is good for as long as the lease that it came with: signs of life keep both.
fn is_entitled(claims: &Claims, subscription: &Subscription, generation: u64) -> bool {
    claims.subscription == subscription.id.0 && claims.epoch == generation
}

/// Names streams that the subscription is for, each from its tail on.
pub(crate) fn link(
    txn: &mut Txn<'_>,
    subscription: &Subscription,
    paths: &[StreamPath],
) -> Result<(), ReadError> {
    let wanted = paths.iter().flat_map(|path| {
        [keys::link(subscription.id, path), keys::stream(&subscription.tenant, path)]
    });
    let wanted: Vec<Bytes> = wanted.collect();
    txn.want(&wanted)?;
    for path in paths {
        let head = txn.live_head(&subscription.tenant, path)?.filter(|head| !head.soft_deleted);
        let link = match link_of(txn, subscription, path)? {
            Some(link) => LinkRecord { explicit: true, ..link },
            None => {
                // What a crowd has still to tell it is told all the same.
                let missed = match &head {
                    Some(head) => fan_out::missed(txn, subscription, path, head)?,
                    None => None,
                };
                let tail = head.as_ref().map_or(Offset::ZERO, |head| head.tail);
                let (stream, acked) = (head.map(|head| head.id), missed.unwrap_or(Some(tail)));
                LinkRecord { stream, acked, explicit: true }
            }
        };
        set_link(txn, subscription, path, link);
        mark_followed(txn, &subscription.tenant, path, &key_of(subscription))?;
    }
    Ok(())
}

/// Names a stream no longer; if the pattern matches it, it stays.
pub(crate) fn unlink(
    txn: &mut Txn<'_>,
    subscription: &Subscription,
    path: &StreamPath,
) -> Result<(), ReadError> {
    let Some(link) = link_of(txn, subscription, path)? else {
        return Ok(());
    };
    txn.remove(&keys::follower(&subscription.tenant, path, &key_of(subscription)));
    let matched = subscription.spec.pattern.as_ref().is_some_and(|it| it.matches(path));
    if matched {
        set_link(txn, subscription, path, LinkRecord { explicit: false, ..link });
    } else {
        txn.remove(&keys::link(subscription.id, path));
        unmark(txn, subscription, path)?;
    }
    Ok(())
}

/// A stream that has ended is followed no longer, unless it was named.
pub(crate) fn forget(
    txn: &mut Txn<'_>,
    subscription: &Subscription,
    path: &StreamPath,
    id: StreamId,
) -> Result<(), ReadError> {
    if let Some(link) = link_of(txn, subscription, path)?
        && link.stream == Some(id)
        && !link.explicit
    {
        txn.remove(&keys::link(subscription.id, path));
        unmark(txn, subscription, path)?;
    }
    Ok(())
}
