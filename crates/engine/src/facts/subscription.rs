//! Subscriptions to facts: who is subscribed, who was before they asked twice, and who is no longer
//! because their access was revoked.

use std::sync::Arc;

use bytes::Bytes;
use reveille_core::Tenant;
use reveille_core::delivery::hook::{Hook, HookId, OpenDeliveries};
use reveille_core::fact::access::{CancelReason, Ruling, may_follow};
use reveille_core::fact::garden::GardenNo;
use reveille_core::fact::name::ScopeId;
use reveille_core::fact::principal::Principal;
use reveille_core::fact::subscription::{Cancelled, FactHookSpec, Wanted};
use reveille_core::fact::token::{CapabilityError, TokenNo, TokenRecord, Verb};
use reveille_core::fact::{EntityUri, FACE};
use reveille_core::key::KeyHash;
use reveille_kernel::command::{Command, Decision};
use reveille_kernel::error::Never;
use reveille_kernel::txn::ReadError;
use reveille_schema::facts::{CancelledRecord, GardenRecord, SubscriptionSpec};
use reveille_schema::{Record, keys};

use super::error::FactRejection;
use super::gate;
use super::index::{SubscriptionIndex, TokenIndex};
use super::limits::{CANCELLED_MAX, CANCELLED_MS};
use super::txn::FactTxn;
use crate::app::{App, Txn};
use crate::deliveries::DeliveryRejection;
use crate::deliveries::ended::{EndedBy, end, end_unasked};
use crate::deliveries::hook::{NewHook, create, named};
use crate::deliveries::index::HookIndex;

/// Subscribes somebody, unless they are.
#[derive(Debug, Clone)]
pub struct CreateSubscription {
    pub tenant: Tenant,
    pub by: Principal,
    /// The id of their key, and its hash if it is kept.
    pub key: (Option<Arc<str>>, Option<KeyHash>),
    pub wanted: Wanted,
    /// The token that they have shown; without one, that which they hold.
    pub token: Option<TokenNo>,
    /// The name that a new one has.
    pub name: Arc<str>,
}

/// Ends a subscription of somebody, or what is left of one that was cancelled.
#[derive(Debug, Clone)]
pub struct DeleteSubscription {
    pub tenant: Tenant,
    pub by: EntityUri,
    pub name: Arc<str>,
}

/// Cancels a subscription whose access was found to be revoked.
#[derive(Debug, Clone)]
pub struct CancelSubscription {
    pub hook: HookId,
}

/// A subscription that there is now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subscribed {
    pub hook: Arc<Hook>,
    /// Whether it was not there before.
    pub is_new: bool,
}

impl Command<App> for CreateSubscription {
    type Answer = Subscribed;
    type Rejection = FactRejection;

    /// Whoever may not have it learns nothing of what there is already.
    fn decide(&self, txn: &mut Txn<'_>) -> Decision<Subscribed, FactRejection> {
        let CreateSubscription { tenant, by, key, wanted, name, .. } = self;
        txn.rests_on_index();
        if let Some(hash) = &key.1
            && !txn.is_set(&keys::api_key(hash))?
        {
            return Ok(Err(FactRejection::KeyRevoked));
        }
        let token = match self.capability(txn)? {
            Ok(token) => token,
            Err(error) => return Ok(Err(error.into())),
        };
        let Some(garden) = self.followed(txn)? else {
            return Ok(Err(FactRejection::InsufficientScope));
        };
        let index = txn.index().of::<SubscriptionIndex>();
        let known = index.identical(tenant, wanted.dedup(&by.entity));
        if let Some(hook) = known.and_then(|id| HookIndex::of_txn(txn).get(id))
            && let Some(spec) = index.spec(hook.id)
        {
            let (own, now) = (spec.spec.garden, txn.now());
            match gate::ask(txn, hook, spec, own, now)? {
                Ruling::Deliver | Ruling::Withhold(_) => {
                    return Ok(Ok(Subscribed { hook: hook.clone(), is_new: false }));
                }
                // It is one only until something happens: it ends now, and another begins.
                Ruling::Cancel(_) => end_unasked(txn, hook, EndedBy::Gate)?,
            }
        }
        let spec =
            FactHookSpec { wanted: wanted.clone(), subscriber: by.entity.clone(), token, garden };
        let new = NewHook {
            face: FACE,
            tenant: tenant.clone(),
            name: name.clone(),
            policy: wanted.policy(),
            spec: SubscriptionSpec { spec, key: key.1 }.encode(),
            backfill: None,
            created_by: key.0.clone(),
        };
        Ok(match create(txn, new) {
            Ok(hook) => Ok(Subscribed { hook, is_new: true }),
            Err(DeliveryRejection::TooManyHooks { max }) => {
                Err(FactRejection::TooManySubscriptions { max })
            }
            Err(_) => Err(FactRejection::SubscriptionNotFound),
        })
    }

    fn weight(&self) -> usize {
        4_096
    }

    fn needs_room(&self) -> bool {
        true
    }
}

impl CreateSubscription {
    /// The token that lets them subscribe.
    fn capability(&self, txn: &mut Txn<'_>) -> Decision<TokenNo, CapabilityError> {
        let CreateSubscription { tenant, by, wanted, token, .. } = self;
        let held = || txn.index().of::<TokenIndex>().held_for(tenant, &by.entity, &wanted.target);
        let Some(no) = token.or_else(held) else {
            return Ok(Err(CapabilityError::Insufficient));
        };
        let record = txn.token(tenant, no)?;
        let what = (Verb::Subscribe, &wanted.target);
        let checked = TokenRecord::check(record.as_ref(), &by.entity, what, txn.now());
        // One that was not shown is none.
        let hidden = |error| if token.is_some() { error } else { CapabilityError::Insufficient };
        Ok(checked.map(|()| no).map_err(hidden))
    }

    /// The garden that it is for, if it is for one; `None` if they may not read what it is for.
    fn followed(&self, txn: &mut Txn<'_>) -> Result<Option<Option<GardenNo>>, ReadError> {
        let CreateSubscription { tenant, by, wanted, .. } = self;
        let ScopeId::Garden(slug) = &wanted.scope else {
            return Ok(may_follow(by, &wanted.scope, None).then_some(None));
        };
        // Whoever does not belong to a garden does not learn whether there is one.
        let Some(GardenRecord { garden, .. }) = txn.garden_named(tenant, slug)? else {
            return Ok(None);
        };
        let member = txn.role(tenant, garden.no, &by.entity)?;
        Ok(may_follow(by, &wanted.scope, Some(member)).then_some(Some(garden.no)))
    }
}

impl Command<App> for DeleteSubscription {
    type Answer = ();
    type Rejection = FactRejection;

    fn decide(&self, txn: &mut Txn<'_>) -> Decision<(), FactRejection> {
        let DeleteSubscription { tenant, by, name } = self;
        let not_found = Ok(Err(FactRejection::SubscriptionNotFound));
        if let Some(hook) = named(txn, FACE, tenant, name) {
            let spec = txn.index().of::<SubscriptionIndex>().spec(hook.id);
            if spec.is_none_or(|spec| spec.spec.subscriber != *by) {
                return not_found;
            }
            end(txn, hook, OpenDeliveries::Drop);
            return Ok(Ok(()));
        }
        let key = keys::cancelled(tenant, name);
        let Some(value) = txn.get(&key)? else { return not_found };
        let record = CancelledRecord::decode(&value).map_err(crate::records::damaged)?;
        if record.subscription.spec.subscriber != *by {
            return not_found;
        }
        txn.remove(&key);
        Ok(Ok(()))
    }
}

impl Command<App> for CancelSubscription {
    type Answer = ();
    type Rejection = Never;

    fn decide(&self, txn: &mut Txn<'_>) -> Decision<(), Never> {
        txn.rests_on_index();
        if let Some(hook) = HookIndex::of_txn(txn).get(self.hook) {
            end_unasked(txn, hook, EndedBy::Gate)?;
        }
        Ok(Ok(()))
    }
}

/// Keeps what its owner may know of a subscription that was cancelled, and nothing of any event.
pub(super) fn remember(txn: &mut Txn<'_>, hook: &Hook, spec: &SubscriptionSpec, why: CancelReason) {
    let (tenant, now) = (&hook.tenant, txn.now());
    txn.rests_on_index();
    let index = txn.index().of::<SubscriptionIndex>();
    if let Some(first) = index.cancelled_first(tenant, CANCELLED_MAX) {
        txn.remove(&keys::cancelled(tenant, first));
    }
    let event = txn.take_event();
    let record = CancelledRecord {
        subscription: spec.clone(),
        hook: hook.id,
        created_at: hook.created_at,
        cancelled: Cancelled { at: now, why, event },
    };
    let key = keys::cancelled(tenant, &hook.name);
    txn.set(keys::later(now + CANCELLED_MS, &key), Bytes::new());
    txn.set(key, record.encode());
}
