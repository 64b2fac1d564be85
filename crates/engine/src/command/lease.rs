//! Subscriptions that are one consumer over many streams, whose links are kept apart from it.
//!
//! A stream of such a subscription has a link once it has grown after the subscription began, or
//! was named; and a mark in the backlog while it has more than was acknowledged.

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
use reveille_store::keys::{self, ConsumerKey};
use reveille_store::record::{self, Enrolled, Linked};

use super::callback::{Standing, mark_followed};
use super::consumer::{Tails, note_error, step};
use super::{Answer, Decided, append, crowd};
use crate::failure::{Failure, Refused};
use crate::limits::NOTICE_STREAMS_MAX;
use crate::txn::{Missing, Txn};

/// What a worker asks of its lease.
#[derive(Debug, Clone)]
pub enum LeaseRequest {
    /// To have the work.
    Claim {
        /// Its name.
        worker: Arc<str>,
    },
    /// To report progress, or only that it lives.
    Report {
        /// The token that came with it; its signature is good.
        claims: Claims,
        /// The wake it speaks for.
        generation: u64,
        /// Its name.
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
        /// Its name.
        wake_id: ClaimedWake,
    },
}

/// What a worker is told of the work that it has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// The wake.
    pub wake_id: WakeId,
    /// Its number.
    pub generation: u64,
    /// How long it lasts without a sign of life.
    pub lease_ms: u64,
}

impl Txn<'_> {
    fn linked(
        &mut self,
        subscription: &Subscription,
        path: &StreamPath,
    ) -> Result<Option<Linked>, Missing> {
        let Some(value) = self.get(&keys::link(subscription.id, path))? else {
            return Ok(None);
        };
        let read = record::decode_link(&value);
        read.map(Some).map_err(|error| Missing::Damaged(error.to_string()))
    }

    fn set_link(&mut self, subscription: &Subscription, path: &StreamPath, linked: Linked) {
        self.set(keys::link(subscription.id, path), record::encode_link(linked));
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
) -> Result<(), Missing> {
    if is_wake_stream(subscription, path) {
        return Ok(());
    }
    let (mark, key) = (keys::backlog(subscription.id, path), key_of(subscription));
    let (link_key, consumer_key) = (keys::link(subscription.id, path), keys::consumer(&key));
    txn.want(&[mark.clone(), link_key, consumer_key])?;
    let known = txn.linked(subscription, path)?;
    let linked = match known {
        Some(linked) if linked.stream == Some(head.id) => linked,
        Some(linked) if linked.stream.is_none() => Linked { stream: Some(head.id), ..linked },
        // A stream that took the place of another begins anew.
        Some(linked) => Linked { stream: Some(head.id), acked: None, ..linked },
        None => {
            let acked = if subscription.is_older_than(head.id) { None } else { before };
            Linked { stream: Some(head.id), acked, explicit: false }
        }
    };
    // A mark that an earlier stream at this path left says nothing of this one.
    let marked = txn.is_set(&mark)? && known == Some(linked);
    if Some(head.tail) <= linked.acked || marked {
        return Ok(());
    }
    txn.set_link(subscription, path, linked);
    txn.set(mark, Bytes::new());
    let enrolled = txn.consumer(&key)?;
    let enrolled = enrolled.unwrap_or_else(|| Enrolled::new(Consumer::new(0, Vec::new()), None));
    let tails = Tails(Vec::new());
    let stepped = step(txn, subscription, &key, &enrolled.consumer, &tails, true, &Input::Appended)
        .expect("growth is never refused");
    settle(txn, subscription, &key, enrolled, stepped, Some(path))
}

/// Whether the stream is the one where the subscription's own wakes are announced.
pub(super) fn is_wake_stream(subscription: &Subscription, path: &StreamPath) -> bool {
    matches!(&subscription.asked.target, Target::Pull(wake) if wake == path)
}

/// What a step needs to know of a subscription's streams.
struct View {
    links: Vec<Link>,
    tails: Tails,
    explicit: Vec<StreamPath>,
    more_pending: bool,
}

/// Loads the links of the streams with a backlog, and of those that are named; marks of streams
/// that have ended are taken off.
fn view(
    txn: &mut Txn<'_>,
    subscription: &Subscription,
    named: &[StreamPath],
) -> Result<View, Missing> {
    let (from, to) = keys::backlogs(subscription.id);
    let found = txn.range(&from, &to, NOTICE_STREAMS_MAX)?;
    let mut paths: Vec<StreamPath> =
        found.pairs.iter().filter_map(|(key, _)| keys::parse_linked(key)).collect();
    let marked = paths.len();
    for path in named {
        if !paths.contains(path) {
            paths.push(path.clone());
        }
    }
    let wanted = paths.iter().flat_map(|path| {
        [keys::link(subscription.id, path), keys::stream(&subscription.tenant, path)]
    });
    let wanted: Vec<Bytes> = wanted.collect();
    txn.want(&wanted)?;
    let mut view = View {
        links: Vec::new(),
        tails: Tails(Vec::new()),
        explicit: Vec::new(),
        more_pending: !found.complete,
    };
    for (number, path) in paths.into_iter().enumerate() {
        let head = txn.live_head(&subscription.tenant, &path)?.filter(|head| !head.soft_deleted);
        let linked = match txn.linked(subscription, &path)? {
            Some(linked) => Some(linked),
            None => virtual_link(txn, subscription, &path, head.as_ref())?,
        };
        let Some(linked) = linked else {
            continue;
        };
        let same = head.filter(|head| linked.stream == Some(head.id));
        if same.is_none() && number < marked {
            txn.remove(&keys::backlog(subscription.id, &path));
        }
        if linked.explicit {
            view.explicit.push(path.clone());
        }
        let tail = same.map_or(linked.acked, |head| Some(head.tail));
        view.tails.0.push((path.clone(), tail));
        view.links.push(Link { path, stream: linked.stream, acked: linked.acked });
    }
    Ok(view)
}

/// A stream that the pattern matches and that has not grown since, as far as the subscription was
/// told: all of it is processed.
fn virtual_link(
    txn: &mut Txn<'_>,
    subscription: &Subscription,
    path: &StreamPath,
    head: Option<&Head>,
) -> Result<Option<Linked>, Missing> {
    let pattern = subscription.asked.pattern.as_ref();
    let Some(head) = head.filter(|_| pattern.is_some_and(|it| it.matches(path))) else {
        return Ok(None);
    };
    let whole = (!subscription.is_older_than(head.id)).then_some(head.tail);
    let acked = crowd::missed(txn, subscription, path, head)?.unwrap_or(whole);
    Ok(Some(Linked { stream: Some(head.id), acked, explicit: false }))
}

/// Steps with a view of the streams in question, and writes back what changed of it.
fn step_with(
    txn: &mut Txn<'_>,
    subscription: &Subscription,
    key: &ConsumerKey,
    enrolled: &Enrolled,
    named: &[StreamPath],
    input: &Input,
) -> Result<Result<Consumer, Rejected>, Missing> {
    let view = view(txn, subscription, named)?;
    let consumer = Consumer { links: view.links.clone(), ..enrolled.consumer.clone() };
    let stepped = step(txn, subscription, key, &consumer, &view.tails, view.more_pending, input);
    let mut stepped = match stepped {
        Ok(stepped) => stepped,
        Err(rejected) => return Ok(Err(rejected)),
    };
    for (before, after) in view.links.iter().zip(&stepped.links) {
        let tail = view.tails.0.iter().find(|(path, _)| *path == after.path);
        if tail.is_none_or(|(_, tail)| *tail <= after.acked) {
            txn.remove(&keys::backlog(subscription.id, &after.path));
        }
        if before.acked != after.acked {
            let explicit = view.explicit.contains(&after.path);
            let linked = Linked { stream: after.stream, acked: after.acked, explicit };
            txn.set_link(subscription, &after.path, linked);
        }
    }
    stepped.links.clear();
    Ok(Ok(stepped))
}

/// Keeps what became of the consumer; a wake that is to be pulled is announced in its stream.
fn settle(
    txn: &mut Txn<'_>,
    subscription: &Subscription,
    key: &ConsumerKey,
    before: Enrolled,
    stepped: Consumer,
    cause: Option<&StreamPath>,
) -> Result<(), Missing> {
    let woken =
        stepped.epoch > before.consumer.epoch && matches!(stepped.phase, Phase::Waking { .. });
    if woken && let Target::Pull(wake_stream) = &subscription.asked.target {
        announce(txn, subscription, wake_stream, stepped.epoch, cause)?;
    }
    let after = Enrolled { consumer: stepped, ..before.clone() };
    if after != before {
        txn.keep(key, after);
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
) -> Result<(), Missing> {
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
) -> Result<(), Missing> {
    let Some(subscription) = txn.registry().get(key.subscription).cloned() else {
        return Ok(());
    };
    let Some(mut enrolled) = txn.consumer(key)? else {
        return Ok(());
    };
    if let Input::Answered { epoch, .. } = input {
        note_error(txn, &mut enrolled, *epoch, error);
    }
    let named = match input {
        Input::Answered { answer: reveille_core::consumer::Answer::Done(announced), .. } => {
            announced.iter().map(|(path, _)| path.clone()).collect()
        }
        _ => Vec::new(),
    };
    let stepped = step_with(txn, &subscription, key, &enrolled, &named, input)?
        .expect("what merely happens is never refused");
    settle_noted(txn, &subscription, key, enrolled, stepped)
}

/// As [`settle`], for a record that may have changed otherwise too.
fn settle_noted(
    txn: &mut Txn<'_>,
    subscription: &Subscription,
    key: &ConsumerKey,
    enrolled: Enrolled,
    stepped: Consumer,
) -> Result<(), Missing> {
    let same = stepped == enrolled.consumer;
    settle(txn, subscription, key, enrolled.clone(), stepped, None)?;
    if same {
        txn.keep(key, enrolled);
    }
    Ok(())
}

/// A timer of the consumer has fired.
pub(super) fn fired(
    txn: &mut Txn<'_>,
    key: &ConsumerKey,
    at: Option<Millis>,
    input: &Input,
) -> Result<(), Missing> {
    let Some(subscription) = txn.registry().get(key.subscription).cloned() else {
        return Ok(());
    };
    let Some(mut enrolled) = txn.consumer(key)? else {
        return Ok(());
    };
    if enrolled.timer_at == at {
        enrolled.timer_at = None;
    }
    let stepped = step_with(txn, &subscription, key, &enrolled, &[], input)?
        .expect("a timer is never refused");
    settle_noted(txn, &subscription, key, enrolled, stepped)
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
        return Ok(Err(Refused::NotFound.into()));
    };
    let key = key_of(&subscription);
    let enrolled = txn.consumer(&key)?;
    let enrolled = enrolled.unwrap_or_else(|| Enrolled::new(Consumer::new(0, Vec::new()), None));
    let fenced = || -> Failure { Refused::Consumer(Rejected::Fenced).into() };
    let (input, named) = match request {
        LeaseRequest::Claim { worker } => (Input::Claim { worker: worker.clone() }, Vec::new()),
        LeaseRequest::Report { claims, generation, wake_id, acks, done } => {
            if !is_entitled(claims, &subscription, *generation, txn.now()) {
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
            let entitled = is_entitled(claims, &subscription, *generation, txn.now());
            let (true, Ok(wake_id)) = (entitled, *wake_id) else {
                return Ok(Err(fenced()));
            };
            (Input::Release { epoch: *generation, wake_id }, Vec::new())
        }
    };
    let before = enrolled.consumer.epoch;
    let stepped = match step_with(txn, &subscription, &key, &enrolled, &named, &input)? {
        Ok(stepped) => stepped,
        Err(rejected) => return Ok(Err(Refused::Consumer(rejected).into())),
    };
    let answer = answer(&subscription, txn, &stepped, before, request);
    settle(txn, &subscription, &key, enrolled, stepped, None)?;
    Ok(Ok(answer))
}

fn is_entitled(claims: &Claims, subscription: &Subscription, generation: u64, now: Millis) -> bool {
    claims.subscription == subscription.id.0
        && claims.epoch == generation
        && !claims.is_expired(now)
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
) -> Result<(), Missing> {
    let wanted = paths.iter().flat_map(|path| {
        [keys::link(subscription.id, path), keys::stream(&subscription.tenant, path)]
    });
    let wanted: Vec<Bytes> = wanted.collect();
    txn.want(&wanted)?;
    for path in paths {
        let head = txn.live_head(&subscription.tenant, path)?.filter(|head| !head.soft_deleted);
        let linked = match txn.linked(subscription, path)? {
            Some(linked) => Linked { explicit: true, ..linked },
            None => {
                // What a crowd has still to tell it is told all the same.
                let missed = match &head {
                    Some(head) => crowd::missed(txn, subscription, path, head)?,
                    None => None,
                };
                let tail = head.as_ref().map_or(Offset::ZERO, |head| head.tail);
                let (stream, acked) = (head.map(|head| head.id), missed.unwrap_or(Some(tail)));
                Linked { stream, acked, explicit: true }
            }
        };
        txn.set_link(subscription, path, linked);
        mark_followed(txn, &subscription.tenant, path, &key_of(subscription))?;
    }
    Ok(())
}

/// Names a stream no longer; if the pattern matches it, it stays.
pub(super) fn unlink(
    txn: &mut Txn<'_>,
    subscription: &Subscription,
    path: &StreamPath,
) -> Result<(), Missing> {
    let Some(linked) = txn.linked(subscription, path)? else {
        return Ok(());
    };
    txn.remove(&keys::follower(&subscription.tenant, path, &key_of(subscription)));
    let matched = subscription.asked.pattern.as_ref().is_some_and(|it| it.matches(path));
    if matched {
        txn.set_link(subscription, path, Linked { explicit: false, ..linked });
    } else {
        txn.remove(&keys::link(subscription.id, path));
        txn.remove(&keys::backlog(subscription.id, path));
    }
    Ok(())
}

/// A stream that has ended is followed no longer, unless it was named.
pub(super) fn forget(
    txn: &mut Txn<'_>,
    subscription: &Subscription,
    path: &StreamPath,
    id: StreamId,
) -> Result<(), Missing> {
    if let Some(linked) = txn.linked(subscription, path)?
        && linked.stream == Some(id)
        && !linked.explicit
    {
        txn.remove(&keys::link(subscription.id, path));
        txn.remove(&keys::backlog(subscription.id, path));
    }
    Ok(())
}
