//! A consumer's callback: acks, streams to follow, appends, done; all of it or nothing.

use std::collections::HashSet;
use std::sync::Arc;

use bytes::Bytes;
use reveille_core::consumer::{
    Ack, Callback, ClaimedWake, Input, Link, LinkPlaces, Phase, Rejected, RemovalReason,
};
use reveille_core::stream::Head;
use reveille_core::stream::append::Append;
use reveille_core::token::Claims;
use reveille_core::trace::Trace;
use reveille_core::{Offset, StreamPath, Tenant};
use reveille_kernel::command::{Command, Decision};
use reveille_kernel::txn::ReadError;
use reveille_schema::keys::{self, ConsumerKey};

use super::activity::ConsumerTxn;
use super::consumer::{self, LoadedConsumer, StreamTails};
use super::error::WakeRejection;
use crate::app::{App, Txn};
use crate::streams::append::append_to;
use crate::streams::txn::StreamTxn;
use crate::wall::WallOffset;

/// What a consumer says in a callback.
#[derive(Debug, Clone, Default)]
pub struct CallbackBody {
    /// The wake it speaks for.
    pub epoch: u64,
    /// The wake it claims.
    pub wake_id: Option<ClaimedWake>,
    /// How far it has come.
    pub acks: Vec<Ack>,
    /// Streams to follow from now on.
    pub subscribe: Vec<StreamPath>,
    /// Streams to follow no longer.
    pub unsubscribe: Vec<StreamPath>,
    /// Whether it has finished.
    pub done: bool,
    /// What to append in the same step.
    pub appends: Vec<(StreamPath, Append)>,
}

impl CallbackBody {
    /// Streams that are looked at for it, beside those that are appended to.
    pub fn reads(&self) -> usize {
        self.acks.len() + self.subscribe.len() + self.unsubscribe.len()
    }
}

/// Does what a consumer says, by the right of its token.
#[derive(Debug, Clone)]
pub struct ApplyCallback {
    /// The token that came with it; its signature is good.
    pub claims: Claims,
    /// Which consumer, as the request names it.
    pub consumer: ConsumerKey,
    pub body: CallbackBody,
    /// The trace that it is a part of.
    pub trace: Option<Trace>,
}

/// How a consumer stands after its callback.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallbackReceipt {
    /// The wake that counts now; another than the one that it speaks for if it is woken again.
    pub epoch: u64,
    /// What it follows, and how far it has come.
    pub streams: Vec<(StreamPath, Option<Offset>)>,
    /// Whether it follows nothing any more, and is gone.
    pub gone: bool,
    /// Whether it is woken again at once.
    pub next_wake: bool,
    /// Whether its appends were made; not when this was a repetition.
    pub appended: bool,
    /// The trace that the wake belongs to which it speaks for.
    pub trace: Option<Trace>,
}

impl Command<App> for ApplyCallback {
    type Answer = CallbackReceipt;
    type Rejection = WakeRejection;

    fn decide(&self, txn: &mut Txn<'_>) -> Decision<CallbackReceipt, WakeRejection> {
        apply(txn, self)
    }

    fn weight(&self) -> usize {
        self.body.appends.iter().map(|(_, append)| append.body.size()).sum()
    }

    fn needs_room(&self) -> bool {
        !self.body.appends.is_empty()
    }

    fn trace(&self) -> Option<Trace> {
        self.trace
    }
}

fn apply(txn: &mut Txn<'_>, command: &ApplyCallback) -> Decision<CallbackReceipt, WakeRejection> {
    let ApplyCallback { claims, consumer: key, body: report, .. } = command;
    let Some(present) = consumer::present(txn, key)? else {
        txn.rests_on_index();
        return Ok(Err(rejected(Rejected::Gone)));
    };
    let LoadedConsumer { subscription, mut record, tails } = present;
    let incarnation = record.primary.map_or(0, |id| id.0);
    if claims.subscription != key.subscription.0 || claims.stream != incarnation {
        return Ok(Err(rejected(Rejected::Gone)));
    }
    // A token speaks for the wake that it was given out for, whatever the body says.
    let current = record.consumer.epoch;
    if claims.epoch != current {
        return Ok(Err(rejected(Rejected::StaleEpoch { given: claims.epoch, current })));
    }
    let wall = txn.domains().part::<WallOffset>().wall_at(txn.now());
    if claims.is_expired(wall) {
        return Ok(Err(WakeRejection::TokenExpired));
    }
    let before = record.clone();
    let repeated = is_repetition(&record.consumer.links, &report.acks);
    let appends = !report.appends.is_empty() && !repeated;
    let mut tails = tails;
    if appends {
        // Who may not report may not append either.
        let probe = Input::Callback(callback(txn, report, &subscription.tenant)?);
        let consumer = &record.consumer;
        let admitted = txn.without_effects(|txn| {
            consumer::step(txn, &subscription, key, consumer, &tails, false, &probe)
        });
        if let Err(refused) = admitted {
            return Ok(Err(rejected(refused)));
        }
        if let Some(rejection) = write(txn, &subscription.tenant, key, &report.appends)? {
            return Ok(Err(rejection));
        }
        tails = consumer::refresh(txn, &subscription.tenant, key, &mut record.consumer, None)?;
    }
    let input = callback(txn, report, &subscription.tenant)?;
    add_tails(txn, &subscription.tenant, &input, &mut tails)?;
    let consumer = &record.consumer;
    let stepped = match consumer::step(
        txn,
        &subscription,
        key,
        consumer,
        &tails,
        false,
        &Input::Callback(input),
    ) {
        Ok(stepped) => stepped,
        Err(refused) => return Ok(Err(rejected(refused))),
    };
    record.consumer = stepped;
    follow(txn, &subscription.tenant, key, &before.consumer.links, &record.consumer.links)?;
    let receipt = CallbackReceipt {
        epoch: record.consumer.epoch,
        streams: streams(&record.consumer.links),
        gone: record.consumer.phase == Phase::Gone(RemovalReason::Unsubscribed),
        next_wake: record.consumer.epoch > before.consumer.epoch,
        appended: appends,
        trace: before.trace.map(Trace::from_bytes),
    };
    if record != before {
        txn.keep(key, Some(&before), record);
    }
    Ok(Ok(receipt))
}

/// Makes the appends, or says which one is refused.
fn write(
    txn: &mut Txn<'_>,
    tenant: &Tenant,
    key: &ConsumerKey,
    appends: &[(StreamPath, Append)],
) -> Result<Option<WakeRejection>, ReadError> {
    let refused = txn.gather(appends, |txn, (path, request)| {
        let appended = append_to(txn, tenant, path, request, Some(key))?;
        Ok(appended.err().map(|why| (Arc::from(path.as_str()), Box::new(why))))
    })?;
    let first = refused.into_iter().flatten().next();
    Ok(first.map(|(path, why)| WakeRejection::Append { path, why }))
}

fn rejected(rejected: Rejected) -> WakeRejection {
    WakeRejection::Consumer(rejected)
}

/// A report whose acks bring nothing new has been heard before: what it appended is there.
fn is_repetition(links: &[Link], acks: &[Ack]) -> bool {
    let places = LinkPlaces::new(links, acks.len());
    let brings = |ack: &Ack| {
        let link = places.find(links, &ack.path).and_then(|place| links.get(place));
        link.is_some_and(|link| ack.offset.is_none_or(|to| to > link.acked))
    };
    !acks.iter().any(brings)
}

fn callback(
    txn: &mut Txn<'_>,
    report: &CallbackBody,
    tenant: &Tenant,
) -> Result<Callback, ReadError> {
    let heads: Vec<Bytes> = report.subscribe.iter().map(|it| keys::stream(tenant, it)).collect();
    txn.want(&heads)?;
    let mut subscribe = Vec::with_capacity(report.subscribe.len());
    for path in &report.subscribe {
        let head = txn.live_head(tenant, path)?.filter(|head| !head.soft_deleted);
        subscribe.push((path.clone(), head.map(|head| head.id)));
    }
    Ok(Callback {
        epoch: report.epoch,
        wake_id: report.wake_id,
        acks: report.acks.clone(),
        subscribe,
        unsubscribe: report.unsubscribe.clone(),
        done: report.done,
    })
}

/// Streams that are to be followed are followed from where they end.
fn add_tails(
    txn: &mut Txn<'_>,
    tenant: &Tenant,
    callback: &Callback,
    tails: &mut StreamTails,
) -> Result<(), ReadError> {
    for (path, stream) in &callback.subscribe {
        if tails.get(path).is_some() {
            continue;
        }
        let tail = match stream {
            Some(_) => txn.live_head(tenant, path)?.map(|head| head.tail),
            None => None,
        };
        tails.push(path.clone(), tail);
    }
    Ok(())
}

/// Writes down who follows what, so that growth finds them.
fn follow(
    txn: &mut Txn<'_>,
    tenant: &Tenant,
    key: &ConsumerKey,
    before: &[Link],
    after: &[Link],
) -> Result<(), ReadError> {
    let had: HashSet<&StreamPath> = before.iter().map(|link| &link.path).collect();
    let has: HashSet<&StreamPath> = after.iter().map(|link| &link.path).collect();
    for link in before.iter().filter(|link| !has.contains(&link.path)) {
        txn.remove(&keys::follower(tenant, &link.path, key));
    }
    for link in after.iter().filter(|link| !had.contains(&link.path)) {
        mark_followed(txn, tenant, &link.path, key)?;
    }
    Ok(())
}

/// A consumer follows a stream by name from now on.
pub(crate) fn mark_followed(
    txn: &mut Txn<'_>,
    tenant: &Tenant,
    path: &StreamPath,
    key: &ConsumerKey,
) -> Result<(), ReadError> {
    txn.set(keys::follower(tenant, path, key), Bytes::new());
    if let Some(head) = txn.live_head(tenant, path)?
        && !head.followed
    {
        txn.set_head(tenant, path, &Head { followed: true, ..head });
    }
    Ok(())
}

fn streams(links: &[Link]) -> Vec<(StreamPath, Option<Offset>)> {
    links.iter().map(|link| (link.path.clone(), link.acked)).collect()
}
