//! What becomes of streams, as far as consumers must know in the same step.

use reveille_core::stream::Head;
use reveille_core::subscription::Timings;
use reveille_core::{StreamPath, Tenant};
use reveille_kernel::txn::ReadError;
use reveille_schema::keys;
use reveille_schema::wakes::WakeTimer;

use super::activity::ConsumerTxn;
use super::consumer;
use super::index::SubscriptionIndex;
use crate::app::Txn;
use crate::matching::{spend, steps_left};
use crate::streams::observer::{Growth, StreamObserver};

/// Wakes whoever a stream is for.
pub struct WakeConsumers;

impl StreamObserver for WakeConsumers {
    fn grown(&self, txn: &mut Txn<'_>, growth: &Growth<'_>) -> Result<(), ReadError> {
        consumer::grown(txn, growth)
    }

    /// Whether consumers follow the path by name although nothing was there.
    fn is_awaited(
        &self,
        txn: &mut Txn<'_>,
        tenant: &Tenant,
        path: &StreamPath,
    ) -> Result<bool, ReadError> {
        if !SubscriptionIndex::of_txn(txn).any_followers {
            return Ok(false);
        }
        let (from, to) = keys::followers(tenant, path);
        let found = txn.range(&from, &to, 1)?;
        // The first may just have left, and others not been looked at.
        Ok(!found.pairs.is_empty() || !found.complete)
    }

    /// What the consumers of an ended stream left is kept until no token of theirs is valid any
    /// more: a stream that takes its place goes on counting their epochs.
    fn ended(&self, txn: &mut Txn<'_>, tenant: &Tenant, path: &StreamPath, head: &Head) {
        let mut steps = steps_left(txn);
        let may_match = SubscriptionIndex::of_txn(txn).may_match(tenant, path, &mut steps);
        spend(txn, tenant, steps.used());
        if (may_match || head.followed) && !head.soft_deleted {
            // Neither a token nor an answer that is under way may meet a record that begins anew.
            let Timings { token_ttl_ms, webhook_timeout_ms, .. } = txn.domains().settings.timings;
            let at = txn.now() + token_ttl_ms.max(webhook_timeout_ms);
            txn.set_wake_timer(at, &WakeTimer::Forget(tenant.clone(), path.clone(), head.id));
        }
    }
}
