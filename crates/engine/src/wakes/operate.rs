//! What an operator does to one consumer: wakes it now, moves it, brings it back.

use std::collections::BTreeMap;
use std::sync::Arc;

use reveille_core::consumer::{Consumer, Dialect, Input, Link, Rejected};
use reveille_core::offset::ReadFrom;
use reveille_core::subscription::Subscription;
use reveille_core::{Offset, StreamPath, Tenant};
use reveille_kernel::command::{Command, Decision};
use reveille_schema::keys::ConsumerKey;

use super::activity::ConsumerTxn;
use super::error::WakeRejection;
use super::index::SubscriptionIndex;
use super::{consumer, fan_out, lease};
use crate::app::{App, Txn};
use crate::streams::txn::StreamTxn;

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConsumerOrder {
    /// Tell it now of what there is to do.
    Wake {
        /// Also if somebody is at work, who is fenced off.
        force: bool,
    },
    /// Let it go on from another place, in one stream or in all that it follows.
    Seek { stream: Option<StreamPath>, to: ReadFrom },
    /// It was given up: let it go on where it stood.
    Revive,
}

impl ConsumerOrder {
    fn input(&self) -> Input {
        match self.clone() {
            ConsumerOrder::Wake { force } => Input::Wake { force },
            ConsumerOrder::Seek { stream, to } => Input::Seek { stream, to },
            ConsumerOrder::Revive => Input::Revive,
        }
    }
}

/// Does something to the consumer of a subscription for a stream, or, without one, to the only one.
#[derive(Debug, Clone)]
pub struct OperateConsumer {
    pub tenant: Tenant,
    pub subscription: Arc<str>,
    pub path: Option<StreamPath>,
    pub order: ConsumerOrder,
}

/// What an order has changed, from and to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConsumerMove {
    pub epoch: (u64, u64),
    pub given_up: (bool, bool),
    /// How far streams were acknowledged, and are, where that has changed.
    pub streams: Vec<(StreamPath, Option<Offset>, Option<Offset>)>,
}

impl ConsumerMove {
    /// Of one consumer that has become another.
    pub(super) fn between(before: &Consumer, after: &Consumer) -> ConsumerMove {
        let was: BTreeMap<_, _> = before.links.iter().map(|it| (&it.path, it.acked)).collect();
        let moved = |link: &Link| {
            let from = *was.get(&link.path)?;
            (from != link.acked).then(|| (link.path.clone(), from, link.acked))
        };
        ConsumerMove {
            epoch: (before.epoch, after.epoch),
            given_up: (before.given_up.is_some(), after.given_up.is_some()),
            streams: after.links.iter().filter_map(moved).collect(),
        }
    }
}

impl Command<App> for OperateConsumer {
    type Answer = ConsumerMove;
    type Rejection = WakeRejection;

    fn decide(&self, txn: &mut Txn<'_>) -> Decision<ConsumerMove, WakeRejection> {
        let OperateConsumer { tenant, subscription, path, order } = self;
        let dialect = if path.is_some() { Dialect::Webhooks } else { Dialect::Leases };
        let index = SubscriptionIndex::of_txn(txn);
        let Some(known) = index.named(tenant, dialect, subscription).cloned() else {
            txn.rests_on_index();
            return Ok(Err(WakeRejection::NotFound));
        };
        match path {
            Some(path) => operate(txn, &known, path, &order.input()),
            None => lease::operate(txn, &known, &order.input()),
        }
    }
}

/// Does something to the consumer for a stream, also if nobody was ever told of it.
fn operate(
    txn: &mut Txn<'_>,
    subscription: &Subscription,
    path: &StreamPath,
    input: &Input,
) -> Decision<ConsumerMove, WakeRejection> {
    let tenant = &subscription.tenant;
    let matches = subscription.spec.pattern.as_ref().is_some_and(|it| it.matches(path));
    let head = txn.live_head(tenant, path)?.filter(|head| matches && !head.soft_deleted);
    let Some(head) = head else {
        return Ok(Err(WakeRejection::NoConsumer { path: path.as_str().into() }));
    };
    let key = ConsumerKey { subscription: subscription.id, path: Some(path.clone()) };
    let stored = txn.consumer(&key)?;
    let mut record = match &stored {
        Some(record) if record.primary == Some(head.id) => record.clone(),
        // One that nobody was ever told of has nothing to do as long as its stream is empty.
        _ if head.tail == Offset::ZERO && matches!(input, Input::Wake { .. }) => {
            return Ok(Err(Rejected::NothingPending.into()));
        }
        earlier => {
            let missed = fan_out::missed(txn, subscription, path, &head)?;
            let before = missed.unwrap_or(Some(head.tail));
            consumer::begin(txn, subscription, &key, &head, before, earlier.as_ref())
        }
    };
    let tails = consumer::refresh(txn, tenant, &key, &mut record.consumer, Some(&head))?;
    let before = &record.consumer;
    match consumer::step(txn, subscription, &key, before, &tails, false, input) {
        Ok(stepped) => {
            let moved = ConsumerMove::between(before, &stepped);
            record.consumer = stepped;
            txn.keep(&key, stored.as_ref(), record);
            Ok(Ok(moved))
        }
        Err(rejected) => Ok(Err(rejected.into())),
    }
}
