//! Making and ending subscriptions. Either is one record, however many streams they are for.

use std::sync::Arc;

use reveille_core::consumer::Dialect;
use reveille_core::subscription::{Subscription, SubscriptionId, SubscriptionSpec};
use reveille_core::{StreamPath, Tenant};
use reveille_schema::keys::{self, Due};
use reveille_schema::record;

use super::{Answer, Decided, lease};
use crate::failure::Refused;
use crate::limits::EXPLICIT_STREAMS_MAX;
use crate::registry::Change;
use crate::txn::Txn;

/// Makes a subscription, or finds that it is there as asked for.
pub(super) fn subscribe(
    txn: &mut Txn<'_>,
    tenant: &Tenant,
    spec: &SubscriptionSpec,
    secret: Option<&Arc<str>>,
) -> Decided {
    if let Some(known) = txn.registry().named(tenant, spec.dialect, &spec.name).cloned() {
        // Others may be made in the same batch: what is answered rests on them.
        txn.saw_pending = true;
        if known.spec.is_same(spec) {
            return Ok(Ok(Answer::Subscribed { subscription: known, new: false }));
        }
        return Ok(Err(Refused::Exists.into()));
    }
    if spec.streams.len() > EXPLICIT_STREAMS_MAX {
        return Ok(Err(Refused::TooManyStreams { max: EXPLICIT_STREAMS_MAX }.into()));
    }
    let subscription = Arc::new(Subscription {
        id: SubscriptionId(txn.next_id()),
        tenant: tenant.clone(),
        created_at: txn.now(),
        secret: secret.cloned(),
        spec: spec.clone(),
    });
    lease::link(txn, &subscription, &spec.streams)?;
    txn.take_id();
    let key = keys::subscription(tenant, spec.dialect, &spec.name);
    txn.set(key, record::encode_subscription(&subscription));
    txn.changes.push(Change::Added(subscription.clone()));
    Ok(Ok(Answer::Subscribed { subscription, new: true }))
}

/// Ends a subscription: at once for everybody, while what it leaves is removed in slices.
pub(super) fn unsubscribe(
    txn: &mut Txn<'_>,
    tenant: &Tenant,
    dialect: Dialect,
    name: &Arc<str>,
) -> Decided {
    txn.rests_on_registry();
    if let Some(known) = txn.registry().named(tenant, dialect, name).cloned() {
        txn.remove(&keys::subscription(tenant, dialect, name));
        txn.set_due(txn.now(), &Due::Unsubscribe(tenant.clone(), known.id));
        txn.changes.push(Change::Removed(known));
    }
    Ok(Ok(Answer::Done))
}

/// Names more streams, or one fewer, that a subscription is for.
pub(super) fn edit(
    txn: &mut Txn<'_>,
    tenant: &Tenant,
    name: &Arc<str>,
    add: &[StreamPath],
    remove: Option<&StreamPath>,
) -> Decided {
    let Some(known) = txn.registry().named(tenant, Dialect::Leases, name).cloned() else {
        txn.rests_on_registry();
        return Ok(Err(Refused::NotFound.into()));
    };
    if add.len() > EXPLICIT_STREAMS_MAX {
        return Ok(Err(Refused::TooManyStreams { max: EXPLICIT_STREAMS_MAX }.into()));
    }
    lease::link(txn, &known, add)?;
    if let Some(path) = remove {
        lease::unlink(txn, &known, path)?;
    }
    Ok(Ok(Answer::Done))
}
