//! What comes of a trigger's attempts: how it fares, and whether a version that is on trial keeps to
//! its objective. If it does not, the version before takes over, in the very decision that writes
//! the attempt down.

use std::sync::Arc;

use reveille_core::audit::{Actor, AuditEntry, action};
use reveille_core::delivery::hook::Hook;
use reveille_core::delivery::replay::ReplayResult;
use reveille_core::delivery::{AttemptRecord, Phase};
use reveille_core::trigger::rollout::{Breach, Slo, SloWindow};
use reveille_kernel::txn::ReadError;
use reveille_schema::record::DeliveryRecord;
use reveille_schema::triggers::TriggerHealth;
use reveille_schema::{Record, keys};

use super::change::{self, Replacement};
use super::describe::describe;
use super::index::{TriggerEntry, TriggerIndex};
use crate::app::Txn;
use crate::audit;
use crate::effect::{Effect, TriggerAttempt};
use crate::records::ReadRecord;

/// In whose name versions are rolled back.
const ACTOR: &str = "system:rollout";

/// Longest sentence about an attempt that is kept, in bytes.
const ERROR_BYTES_MAX: usize = 512;

/// An attempt was made.
pub(super) fn attempted(
    txn: &mut Txn<'_>,
    hook: &Hook,
    delivery: &DeliveryRecord,
    attempt: &AttemptRecord,
) -> Result<(), ReadError> {
    let key = keys::trigger_health(hook.id);
    let mut health = txn.read(&key, TriggerHealth::decode)?.unwrap_or_default();
    let is_ok = matches!(delivery.delivery.phase, Phase::Delivered { .. });
    txn.effect(Effect::CountTriggerAttempt(TriggerAttempt {
        hook: hook.id,
        status: attempt.status,
        took_ms: attempt.took_ms,
        number: attempt.number,
        replayed: delivery.replay.and_then(|_| ReplayResult::of(delivery.delivery.standing())),
    }));
    if is_ok {
        health.last_success_at = Some(attempt.at);
    } else {
        let why = attempt.error.as_deref().unwrap_or("it was not accepted");
        let end = why.floor_char_boundary(ERROR_BYTES_MAX);
        health.last_failure_at = Some(attempt.at);
        health.last_error = Some(why.get(..end).unwrap_or_default().into());
    }
    let entry = TriggerIndex::of_txn(txn).get(&hook.tenant, hook.id);
    let on_trial = entry.and_then(|entry| {
        let is_current = delivery.hook_version == entry.hook.version;
        let slo = entry.current.definition.rollout.slo.filter(|_| is_current)?;
        // An earlier attempt of the same decision may have rolled it back.
        (health.version <= entry.hook.version).then_some((entry, slo))
    });
    if let Some((entry, slo)) = on_trial {
        if health.version < entry.hook.version {
            health.version = entry.hook.version;
            health.window = SloWindow::default();
        }
        let now = txn.now();
        health.window.record(&slo, now, is_ok, attempt.took_ms);
        let breach = health.window.breach(&slo, now).filter(|_| entry.record.state.is_sending());
        if let Some(breach) = breach {
            health.version = roll_back(txn, entry, &slo, breach)?;
            health.window = SloWindow::default();
        }
    }
    txn.set(key, health.encode());
    Ok(())
}

/// The version before takes over, or nothing does. Returns the first version whose attempts count
/// from now on.
fn roll_back(
    txn: &mut Txn<'_>,
    entry: &Arc<TriggerEntry>,
    slo: &Slo,
    breach: Breach,
) -> Result<u64, ReadError> {
    let reason = format!("{breach} within {} ms", slo.window_ms);
    let after = match &entry.current.stable {
        Some((_, definition)) => {
            let replacement = Replacement {
                definition: definition.clone(),
                state: change::rolled_back(true),
                stable: None,
                reason: Some(reason.as_str().into()),
                is_unsigned: entry.record.is_unsigned,
            };
            match change::replace(txn, entry, replacement)? {
                Ok(hook) => hook,
                // There is no room to remember one more version: nothing matches any more.
                Err(_) => change::stop(txn, entry, &reason)?,
            }
        }
        None => change::stop(txn, entry, &reason)?,
    };
    let tenant = Some(entry.hook.tenant.clone());
    let actor = Actor { name: ACTOR.into(), ..Actor::server() };
    let name = entry.hook.name.clone();
    let mut row = AuditEntry::new(actor, action::TRIGGER_ROLLED_BACK, tenant, name);
    row.reason = Some(reason.into());
    describe(Some(entry), Some(&after), &mut row);
    audit::record(txn, &row)?;
    txn.effect(Effect::CountRollback(entry.hook.id));
    // The same version may come back, by an operator's wish alone.
    let is_same = after.version == entry.hook.version;
    Ok(if is_same { after.version.saturating_add(1) } else { after.version })
}
