//! Forgetting deliveries that ended long ago.

use std::sync::Arc;

use bytes::Bytes;
use reveille_core::Millis;
use reveille_core::delivery::hook::{Hook, HookId};
use reveille_core::delivery::id::DeliveryId;
use reveille_core::delivery::{DeadReason, Input, Phase};
use reveille_core::key_range::above;
use reveille_kernel::command::{Command, Decision};
use reveille_kernel::error::Never;
use reveille_schema::{keys, record};

use super::dead_letter;
use super::delivery::{self, DeliveryTxn};
use super::ended::{self, KnownHook};
use super::index::HookIndex;
use crate::app::{App, Txn};
use crate::limits::CLEAN_UP_SLICE;
use crate::records::damaged;

/// Forgets deliveries of a hook that ended before a time: one slice of them.
#[derive(Debug, Clone)]
pub struct ForgetDeliveries {
    pub hook: HookId,
    pub cutoff: Millis,
    /// The key after which to begin; empty for the first.
    pub after: Bytes,
}

/// What one slice has come to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ForgottenSlice {
    /// The key after which there may be more.
    pub next: Option<Bytes>,
    pub forgotten: u64,
}

impl Command<App> for ForgetDeliveries {
    type Answer = ForgottenSlice;
    type Rejection = Never;

    fn decide(&self, txn: &mut Txn<'_>) -> Decision<ForgottenSlice, Never> {
        let ForgetDeliveries { hook: id, cutoff, after } = self;
        // What an ended hook has left is first cleared up, then forgotten.
        let known = ended::known(txn, *id)?.filter(|known| !known.is_clearing());
        let Some(known) = known else {
            return Ok(Ok(ForgottenSlice::default()));
        };
        let hook = known.hook();
        let (first, to) = keys::deliveries(*id);
        let from = if after.is_empty() { first } else { above(after) };
        let found = txn.range(&from, &to, CLEAN_UP_SLICE)?;
        let mut counts = txn.counts(hook)?;
        let (mut forgotten, mut is_younger) = (0, false);
        for (key, value) in &found.pairs {
            let record = record::decode_delivery(value).map_err(damaged)?;
            // Deliveries are in the order of their events: whatever comes after this is younger
            // still.
            is_younger = record.event_at >= *cutoff;
            if is_younger {
                break;
            }
            if record.delivery.ended_at().is_none_or(|at| at >= *cutoff) {
                continue;
            }
            let Some(delivery) = keys::parse_delivery(key) else { continue };
            if let Phase::Dead { at, .. } = record.delivery.phase {
                dead_letter::forget(txn, hook, at, delivery);
                if !record.retried {
                    txn.remove(&keys::dead_letter(delivery, at));
                    counts.dead_letters = counts.dead_letters.saturating_sub(1);
                }
            }
            counts.moved(Some(&record.delivery), None);
            txn.remove(key);
            forgotten += 1;
        }
        match &known {
            _ if forgotten == 0 => {}
            KnownHook::Live(_) => drop(txn.scratch.counts.insert(*id, counts)),
            KnownHook::Ended(ended) => ended::keep(txn, ended, counts),
        }
        let next = found.last.filter(|_| !is_younger);
        Ok(Ok(ForgottenSlice { next, forgotten }))
    }
}

/// Gives up deliveries that have waited since before a time because nothing is sent to their hook:
/// one slice of them.
#[derive(Debug, Clone)]
pub struct ExpireDeliveries {
    pub hook: HookId,
    pub cutoff: Millis,
    /// The key after which to begin; empty for the first.
    pub after: Bytes,
}

impl Command<App> for ExpireDeliveries {
    type Answer = ForgottenSlice;
    type Rejection = Never;

    fn decide(&self, txn: &mut Txn<'_>) -> Decision<ForgottenSlice, Never> {
        let ExpireDeliveries { hook: id, cutoff, after } = self;
        txn.rests_on_index();
        let hook = HookIndex::of_txn(txn).get(*id);
        let is_old = |hook: &&Arc<Hook>| hook.stopped_since().is_some_and(|since| since < *cutoff);
        let Some(hook) = hook.filter(is_old) else {
            return Ok(Ok(ForgottenSlice::default()));
        };
        let (first, to) = keys::all_held(*id);
        let from = if after.is_empty() { first } else { above(after) };
        let found = txn.range(&from, &to, CLEAN_UP_SLICE)?;
        let held: Vec<DeliveryId> =
            found.pairs.iter().filter_map(|(key, _)| keys::parse_held(key)).collect();
        txn.counts_and(&[*id].into(), held.iter().map(|id| keys::delivery(*id)))?;
        let (mut expired, mut is_younger) = (0, false);
        let done = txn.gather_slice(&held, |txn, id| {
            let Some(record) = txn.delivery(*id)? else { return Ok(()) };
            // They are in the order of their events: what comes after this is younger still.
            is_younger |= record.event_at >= *cutoff;
            if !is_younger && record.created_at < *cutoff {
                delivery::advance(txn, hook, *id, Input::Bury(DeadReason::Expired))?;
                expired += 1;
            }
            Ok(())
        })?;
        let last = done.checked_sub(1).and_then(|last| held.get(last)).map(|id| keys::held(*id));
        let more = (!found.complete || done < held.len()) && !is_younger;
        Ok(Ok(ForgottenSlice { next: last.filter(|_| more), forgotten: expired }))
    }
}

/// Forgets replays that ended long ago.
#[derive(Debug, Clone)]
pub struct ForgetReplays {
    pub found: Vec<Bytes>,
}

impl Command<App> for ForgetReplays {
    type Answer = ();
    type Rejection = Never;

    fn decide(&self, txn: &mut Txn<'_>) -> Decision<(), Never> {
        self.found.iter().for_each(|key| txn.remove(key));
        Ok(Ok(()))
    }
}

/// Removes keys that are of no use any more.
#[derive(Debug, Clone)]
pub struct SweepKeys {
    /// Entries that say which. One that is gone when this is decided says nothing: what it was about
    /// has been written anew.
    pub found: Vec<Bytes>,
}

impl Command<App> for SweepKeys {
    type Answer = ();
    type Rejection = Never;

    fn decide(&self, txn: &mut Txn<'_>) -> Decision<(), Never> {
        txn.want(&self.found)?;
        for entry in &self.found {
            if !txn.is_set(entry)? {
                continue;
            }
            if let Some(key) = keys::parse_later(entry) {
                txn.remove(&key);
            }
            txn.remove(entry);
        }
        Ok(Ok(()))
    }

    fn weight(&self) -> usize {
        self.found.len() * 128
    }
}
