//! Subscriptions that are one consumer over many streams, whose links are kept apart from it.
//!
//! A stream of such a subscription has a link once it has grown after the subscription began, or
//! was named; and a mark while it has more than was acknowledged. A few marks are kept with the
//! consumer, many are keys of the backlog.

use std::sync::Arc;

use bytes::Bytes;
use reveille_core::consumer::{
    Ack, Callback, ClaimedWake, Consumer, Input, Link, Phase, Rejected, WakeId,
};
use reveille_core::media::ContentType;
use reveille_core::stream::append::Append;
use reveille_core::stream::{Body, Head, StreamId};
use reveille_core::subscription::{Subscription, Target, wake_event};
use reveille_core::token::Claims;
use reveille_core::{Millis, Offset, StreamPath, Tenant};
use reveille_schema::keys::{self, ConsumerKey};
use reveille_schema::record::{self, ConsumerRecord, LinkRecord};

use super::callback::{Standing, mark_followed};
use super::consumer::{StreamTails, UNANSWERED, is_overdue, note_error, step};
use super::{Answer, Decided, append, fan_out};
use crate::failure::{Failure, Refused};
use crate::limits::NOTICE_STREAMS_MAX;
use crate::txn::{ReadError, Txn};

/// As many marks are kept with their consumer: nobody has to look for them.
const MARKED_MAX: usize = 4;
/// Marks that are keys go back to their consumer when no more than this are left.
const MARKED_AGAIN_MAX: usize = 2;

/// What a worker asks of its lease.
#[derive(Debug, Clone)]
pub enum LeaseRequest {
    /// To have the work.
    Claim { worker: Arc<str> },
    /// To report progress, or only that it lives.
    Report {
        /// The token that came with it; its signature is good.
        claims: Claims,
        /// The wake it speaks for.
        generation: u64,
        wake_id: ClaimedWake,
        /// How far it has come.
        acks: Vec<Ack>,
        /// Whether it has finished.
        done: bool,
    },
    /// To give the work back.
    Release {
        /// The token that came with it; its signature is good.
        claims: Claims,
        /// The wake it speaks for.
        generation: u64,
        wake_id: ClaimedWake,
    },
}

/// What a worker is told of the work that it has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    pub wake_id: WakeId,
    pub generation: u64,
    /// How long it lasts without a sign of life.
    pub lease_ms: u64,
}

impl Txn<'_> {
    fn link(
        &mut self,
        subscription: &Subscription,
        path: &StreamPath,
    ) -> Result<Option<LinkRecord>, ReadError> {
        let Some(value) = self.get(&keys::link(subscription.id, path))? else {
            return Ok(None);
        };
        let read = record::decode_link(&value);
        read.map(Some).map_err(|error| ReadError::Damaged(error.to_string()))
    }

    fn set_link(&mut self, subscription: &Subscription, path: &StreamPath, link: LinkRecord) {
        self.set(keys::link(subscription.id, path), record::encode_link(link));
    }
}

pub(super) fn key_of(subscription: &Subscription) -> ConsumerKey {
    ConsumerKey { subscription: subscription.id, path: None }
}

/// A stream of the subscription has grown or begun.
pub(super) fn grown(
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
    let (known, stored) = (txn.link(subscription, path), txn.consumer(&key));
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
        txn.set_link(subscription, path, link);
    }
    let mut record = stored.clone().unwrap_or_else(fresh);
    if !is_marked {
        mark(txn, subscription, &mut record, path);
    }
    let (consumer, tails) = (&record.consumer, StreamTails(Vec::new()));
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
pub(super) fn is_wake_stream(subscription: &Subscription, path: &StreamPath) -> bool {
    matches!(&subscription.spec.target, Target::Pull(wake) if wake == path)
}

/// What a step needs to know of a subscription's streams.
struct View {
    links: Vec<Link>,
    tails: StreamTails,
    /// What else is known of each link's stream.
    seen: Vec<Seen>,
    /// Streams with a mark and without a link.
    strays: Vec<StreamPath>,
    /// Whether these are all with a mark.
    complete: bool,
}

struct Seen {
    explicit: bool,
    marked: bool,
}

/// Loads the links of the streams with a backlog, and of those that are named.
fn view(
    txn: &mut Txn<'_>,
    subscription: &Subscription,
    known: Option<&Vec<StreamPath>>,
    named: &[StreamPath],
) -> Result<View, ReadError> {
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
    for path in named {
        if !paths.contains(path) {
            paths.push(path.clone());
        }
    }
    let (links, tails) = (Vec::with_capacity(paths.len()), Vec::with_capacity(paths.len()));
    let (seen, strays) = (Vec::with_capacity(paths.len()), Vec::new());
    let mut view = View { links, tails: StreamTails(tails), seen, strays, complete };
    let mut wanted = Vec::new();
    for (number, path) in paths.into_iter().enumerate() {
        match look(txn, subscription, &path) {
            Ok(Some((link, tail))) => {
                let LinkRecord { stream, acked, explicit } = link;
                // Of those that are named, only a complete view says that they have no mark.
                view.seen.push(Seen { explicit, marked: number < marked || !complete });
                view.tails.0.push((path.clone(), tail));
                view.links.push(Link { path, stream, acked });
            }
            Ok(None) if number < marked => view.strays.push(path),
            Ok(None) => {}
            // Whatever the others lack is asked for along with it.
            Err(ReadError::NotLoaded(more)) => wanted.extend(more),
            Err(damaged) => return Err(damaged),
        }
    }
    if wanted.is_empty() { Ok(view) } else { Err(ReadError::NotLoaded(wanted)) }
}

/// How far a stream is processed, and where it ends; one that has ended has no more than that.
fn look(
    txn: &mut Txn<'_>,
    subscription: &Subscription,
    path: &StreamPath,
) -> Result<Option<(LinkRecord, Option<Offset>)>, ReadError> {
    let (head, link) = (txn.live_head(&subscription.tenant, path), txn.link(subscription, path));
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
    for (((before, after), (_, tail)), seen) in links.zip(&view.tails.0).zip(&view.seen) {
        if seen.marked && *tail > after.acked {
            marked.push(after.path.clone());
        } else if seen.marked && by_key {
            txn.remove(&keys::backlog(subscription.id, &after.path));
        }
        if before.acked != after.acked {
            let (stream, acked, explicit) = (after.stream, after.acked, seen.explicit);
            txn.set_link(subscription, &after.path, LinkRecord { stream, acked, explicit });
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
    let silent = append::grow_silently(txn, &subscription.tenant, wake_stream, &request)?;
    if let Err(rejected) = silent {
        tracing::debug!(%wake_stream, %rejected, "a wake could not be announced");
    }
    Ok(())
}

/// Something happened to the consumer that it did not ask for.
pub(super) fn moved(
    txn: &mut Txn<'_>,
    key: &ConsumerKey,
    input: &Input,
    error: Option<&Arc<str>>,
) -> Result<(), ReadError> {
    let Some(subscription) = txn.registry().get(key.subscription).cloned() else {
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
pub(super) fn fired(
    txn: &mut Txn<'_>,
    key: &ConsumerKey,
    at: Option<Millis>,
    input: &Input,
) -> Result<(), ReadError> {
    let Some(subscription) = txn.registry().get(key.subscription).cloned() else {
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
    settle(txn, &subscription, key, Some(&stored), record, None)
}

/// A worker asks for something.
pub(super) fn decide(
    txn: &mut Txn<'_>,
    tenant: &Tenant,
    name: &Arc<str>,
    request: &LeaseRequest,
) -> Decided {
    let dialect = reveille_core::consumer::Dialect::Leases;
    let Some(subscription) = txn.registry().named(tenant, dialect, name).cloned() else {
        txn.rests_on_registry();
        return Ok(Err(Refused::NotFound.into()));
    };
    let key = key_of(&subscription);
    let stored = txn.consumer(&key)?;
    let mut record = stored.clone().unwrap_or_else(fresh);
    let fenced = || -> Failure { Refused::Consumer(Rejected::Fenced).into() };
    let (input, named) = match request {
        LeaseRequest::Claim { worker } => (Input::Claim { worker: worker.clone() }, Vec::new()),
        LeaseRequest::Report { claims, generation, wake_id, acks, done } => {
            if !is_entitled(claims, &subscription, *generation) {
                return Ok(Err(fenced()));
            }
            let named = acks.iter().filter_map(|ack| StreamPath::parse(&ack.path).ok()).collect();
            let callback = Callback {
                epoch: *generation,
                wake_id: Some(*wake_id),
                acks: acks.clone(),
                done: *done,
                ..Callback::default()
            };
            (Input::Callback(callback), named)
        }
        LeaseRequest::Release { claims, generation, wake_id } => {
            let entitled = is_entitled(claims, &subscription, *generation);
            let (true, Ok(wake_id)) = (entitled, *wake_id) else {
                return Ok(Err(fenced()));
            };
            (Input::Release { epoch: *generation, wake_id }, Vec::new())
        }
    };
    let before = record.consumer.epoch;
    if let Err(rejected) = step_with(txn, &subscription, &key, &mut record, &named, &input)? {
        return Ok(Err(Refused::Consumer(rejected).into()));
    }
    let answer = answer(&subscription, txn, &record.consumer, before, request);
    settle(txn, &subscription, &key, stored.as_ref(), record, None)?;
    Ok(Ok(answer))
}

/// A token is good for as long as the lease that it came with: signs of life keep both.
fn is_entitled(claims: &Claims, subscription: &Subscription, generation: u64) -> bool {
    claims.subscription == subscription.id.0 && claims.epoch == generation
}

fn answer(
    subscription: &Subscription,
    txn: &Txn<'_>,
    stepped: &Consumer,
    before: u64,
    request: &LeaseRequest,
) -> Answer {
    let policy = subscription.policy(txn.timings());
    match (request, stepped.wake_id) {
        (LeaseRequest::Claim { .. }, Some(wake_id)) => Answer::Leased(Box::new(Lease {
            wake_id,
            generation: stepped.epoch,
            lease_ms: policy.lease_ms,
        })),
        (LeaseRequest::Report { .. } | LeaseRequest::Claim { .. }, _) => {
            let standing = Standing {
                epoch: stepped.epoch,
                streams: Vec::new(),
                gone: false,
                next_wake: stepped.epoch > before,
                appended: false,
                trace: None,
            };
            Answer::Reported(Box::new(standing))
        }
        (LeaseRequest::Release { .. }, _) => Answer::Done,
    }
}

/// Names streams that the subscription is for, each from its tail on.
pub(super) fn link(
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
        let link = match txn.link(subscription, path)? {
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
        txn.set_link(subscription, path, link);
        mark_followed(txn, &subscription.tenant, path, &key_of(subscription))?;
    }
    Ok(())
}

/// Names a stream no longer; if the pattern matches it, it stays.
pub(super) fn unlink(
    txn: &mut Txn<'_>,
    subscription: &Subscription,
    path: &StreamPath,
) -> Result<(), ReadError> {
    let Some(link) = txn.link(subscription, path)? else {
        return Ok(());
    };
    txn.remove(&keys::follower(&subscription.tenant, path, &key_of(subscription)));
    let matched = subscription.spec.pattern.as_ref().is_some_and(|it| it.matches(path));
    if matched {
        txn.set_link(subscription, path, LinkRecord { explicit: false, ..link });
    } else {
        txn.remove(&keys::link(subscription.id, path));
        unmark(txn, subscription, path)?;
    }
    Ok(())
}

/// A stream that has ended is followed no longer, unless it was named.
pub(super) fn forget(
    txn: &mut Txn<'_>,
    subscription: &Subscription,
    path: &StreamPath,
    id: StreamId,
) -> Result<(), ReadError> {
    if let Some(link) = txn.link(subscription, path)?
        && link.stream == Some(id)
        && !link.explicit
    {
        txn.remove(&keys::link(subscription.id, path));
        unmark(txn, subscription, path)?;
    }
    Ok(())
}
