//! Making, changing and ending subscriptions. Each is one record, however many streams they are for.

use std::sync::Arc;

use reveille_core::consumer::Dialect;
use reveille_core::secret::SealedSecret;
use reveille_core::subscription::{
    Subscription, SubscriptionChange, SubscriptionId, SubscriptionSpec,
};
use reveille_core::{ReadFrom, StreamPath, Tenant};
use reveille_kernel::command::{Command, Decision};
use reveille_kernel::error::Never;
use reveille_kernel::keys as kernel_keys;
use reveille_schema::wakes::WakeTimer;
use reveille_schema::{keys, record};

use super::activity::ConsumerTxn;
use super::error::WakeRejection;
use super::index::SubscriptionIndex;
use super::lease;
use crate::app::{App, Txn};
use crate::limits::EXPLICIT_STREAMS_MAX;
use crate::wall::WallOffset;

/// Makes a subscription, or finds that it is there as asked for.
#[derive(Debug, Clone)]
pub struct CreateSubscription {
    pub tenant: Tenant,
    pub spec: SubscriptionSpec,
    /// The secret that it gets if it is new.
    pub secret: Option<SealedSecret>,
    /// The key by which it is asked for.
    pub created_by: Option<Arc<str>>,
}

/// A subscription that is there, as it was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreatedSubscription {
    pub subscription: Arc<Subscription>,
    /// Whether this request made it.
    pub is_new: bool,
}

impl Command<App> for CreateSubscription {
    type Answer = CreatedSubscription;
    type Rejection = WakeRejection;

    fn decide(&self, txn: &mut Txn<'_>) -> Decision<CreatedSubscription, WakeRejection> {
        let CreateSubscription { tenant, spec, secret, created_by } = self;
        let index = SubscriptionIndex::of_txn(txn);
        if let Some(known) = index.named(tenant, spec.dialect, &spec.name).cloned() {
            // Others may be made in the same batch: what is answered rests on them.
            txn.rests_on_index();
            return Ok(if known.spec.is_same(spec) {
                Ok(CreatedSubscription { subscription: known, is_new: false })
            } else {
                Err(WakeRejection::Exists)
            });
        }
        let max = txn.domains().settings.quotas.subscriptions;
        if index.counts().get(tenant) >= max {
            txn.rests_on_index();
            return Ok(Err(WakeRejection::TooManySubscriptions { max }));
        }
        if spec.streams.len() > EXPLICIT_STREAMS_MAX {
            return Ok(Err(WakeRejection::TooManyStreams { max: EXPLICIT_STREAMS_MAX }));
        }
        let subscription = Arc::new(Subscription {
            id: SubscriptionId(txn.next_id()),
            tenant: tenant.clone(),
            created_at: txn.now(),
            secret: secret.clone(),
            previous_secret: None,
            created_by: created_by.clone(),
            changed_by: None,
            paused_at: None,
            reviewed_at: None,
            spec: spec.clone(),
        });
        lease::link(txn, &subscription, &spec.streams)?;
        txn.take_id();
        let key = keys::subscription(tenant, spec.dialect, &spec.name);
        txn.set(key, record::encode_subscription(&subscription));
        if spec.start != ReadFrom::Now {
            let timer = WakeTimer::Backfill(tenant.clone(), subscription.id);
            txn.set_wake_timer(txn.now(), &timer);
        }
        Ok(Ok(CreatedSubscription { subscription, is_new: true }))
    }

    fn weight(&self) -> usize {
        self.spec.streams.len() * 128
    }

    fn needs_room(&self) -> bool {
        true
    }
}

/// Changes a subscription in place: it is told by the new rules from the next attempt on, and what its
/// consumers have done stays.
#[derive(Debug, Clone)]
pub struct ChangeSubscription {
    pub tenant: Tenant,
    pub name: Arc<str>,
    pub change: SubscriptionChange,
}

impl Command<App> for ChangeSubscription {
    type Answer = Arc<Subscription>;
    type Rejection = WakeRejection;

    fn decide(&self, txn: &mut Txn<'_>) -> Decision<Arc<Subscription>, WakeRejection> {
        let ChangeSubscription { tenant, name, change } = self;
        txn.rests_on_index();
        let index = SubscriptionIndex::of_txn(txn);
        let Some(known) = index.named(tenant, Dialect::Webhooks, name).cloned() else {
            return Ok(Err(WakeRejection::NotFound));
        };
        let wall = txn.domains().part::<WallOffset>().wall_at(txn.now());
        let mut next = match known.changed(change, wall) {
            Ok(next) => next,
            Err(wrong) => return Ok(Err(WakeRejection::Spec(wrong))),
        };
        if next == *known {
            return Ok(Ok(known));
        }
        let is_reviewed = next.is_to_be_reviewed(&known);
        let timer = WakeTimer::Review(tenant.clone(), known.id);
        // One walk at a time, however often somebody changes their mind.
        if let Some(at) = known.reviewed_at
            && (is_reviewed || next.paused_at.is_some())
        {
            txn.remove(&kernel_keys::timer(at, &timer.encode()));
            next.reviewed_at = None;
        }
        if is_reviewed {
            txn.set_wake_timer(txn.now(), &timer);
            next.reviewed_at = Some(txn.now());
        }
        let key = keys::subscription(tenant, Dialect::Webhooks, name);
        txn.set(key, record::encode_subscription(&next));
        Ok(Ok(Arc::new(next)))
    }

    /// To stop it, or to let it go on, is possible on a full disk.
    fn needs_room(&self) -> bool {
        !self.change.is_pause_alone()
    }
}

/// Ends a subscription: at once for everybody, while what it leaves is removed in slices.
#[derive(Debug, Clone)]
pub struct DeleteSubscription {
    pub tenant: Tenant,
    pub dialect: Dialect,
    pub name: Arc<str>,
}

impl Command<App> for DeleteSubscription {
    type Answer = ();
    type Rejection = Never;

    fn decide(&self, txn: &mut Txn<'_>) -> Decision<(), Never> {
        let DeleteSubscription { tenant, dialect, name } = self;
        txn.rests_on_index();
        if let Some(known) = SubscriptionIndex::of_txn(txn).named(tenant, *dialect, name) {
            txn.remove(&keys::subscription(tenant, *dialect, name));
            let timer = WakeTimer::Unsubscribe(tenant.clone(), known.id);
            txn.set_wake_timer(txn.now(), &timer);
        }
        Ok(Ok(()))
    }
}

/// Names more streams, or one fewer, that a subscription is for.
#[derive(Debug, Clone)]
pub struct EditSubscriptionStreams {
    pub tenant: Tenant,
    pub name: Arc<str>,
    pub add: Vec<StreamPath>,
    pub remove: Option<StreamPath>,
}

impl Command<App> for EditSubscriptionStreams {
    type Answer = ();
    type Rejection = WakeRejection;

    fn decide(&self, txn: &mut Txn<'_>) -> Decision<(), WakeRejection> {
        let EditSubscriptionStreams { tenant, name, add, remove } = self;
        let index = SubscriptionIndex::of_txn(txn);
        let Some(known) = index.named(tenant, Dialect::Leases, name) else {
            txn.rests_on_index();
            return Ok(Err(WakeRejection::NotFound));
        };
        if add.len() > EXPLICIT_STREAMS_MAX {
            return Ok(Err(WakeRejection::TooManyStreams { max: EXPLICIT_STREAMS_MAX }));
        }
        lease::link(txn, known, add)?;
        if let Some(path) = remove {
            lease::unlink(txn, known, path)?;
        }
        Ok(Ok(()))
    }

    fn weight(&self) -> usize {
        self.add.len() * 128
    }

    fn needs_room(&self) -> bool {
        true
    }
}
