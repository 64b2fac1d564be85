//! Deliveries: beginning them, letting them take a step, and keeping what becomes of them.

use std::collections::BTreeSet;

use bytes::Bytes;
use reveille_core::delivery::hook::{DeliveryCounts, Hook, HookId};
use reveille_core::delivery::id::{DeliveryId, DeliveryNo};
use reveille_core::delivery::lane::{Lane, LaneAdvance};
use reveille_core::delivery::{
    AttemptRecord, Delivery, Given, Input, Order, Phase, Transition, Verdict,
};
use reveille_core::{Millis, Tenant};
use reveille_schema::keys::{self, Due};
use reveille_schema::record::{self, DeliveryRecord};

use super::timer_group::TimerGroups;
use super::{Answer, Decided, hook};
use crate::effect::{DeliveryAttempt, Effect, Fresh};
use crate::failure::Refused;
use crate::txn::{ReadError, Txn};

/// An attempt to deliver that has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeliveryOutcome {
    pub id: DeliveryId,
    /// What came of it.
    pub attempt: AttemptRecord,
    /// What that means.
    pub verdict: Verdict,
}

/// Waiting deliveries of a lane that are looked at in one go: those who had their turn a moment ago
/// may be among them.
const WAITING_LOOK: usize = 16;

impl Txn<'_> {
    pub(crate) fn record(&mut self, id: DeliveryId) -> Result<Option<DeliveryRecord>, ReadError> {
        let Some(value) = self.get(&keys::delivery(id))? else {
            return Ok(None);
        };
        let read = record::decode_delivery(&value);
        read.map(Some).map_err(|error| ReadError::Damaged(error.to_string()))
    }

    pub(crate) fn counts(&mut self, hook: &Hook) -> Result<DeliveryCounts, ReadError> {
        if let Some(counts) = self.counts_of_hooks.get(&hook.id) {
            return Ok(*counts);
        }
        let Some(value) = self.get(&keys::counts(hook.id))? else {
            return Ok(DeliveryCounts::default());
        };
        record::decode_delivery_counts(&value)
            .map_err(|error| ReadError::Damaged(error.to_string()))
    }

    /// Reads the tallies of hooks whose deliveries are about to change, and the values of these
    /// keys, or asks for whatever is missing at once. Each is looked up once.
    pub(crate) fn tallies_and(
        &mut self,
        hooks: &BTreeSet<HookId>,
        keys: impl IntoIterator<Item = Bytes>,
    ) -> Result<Vec<Option<Bytes>>, ReadError> {
        let (mut values, mut counts_of_hooks, mut wanted) = (Vec::new(), Vec::new(), Vec::new());
        let mut look = |txn: &mut Self, key: &Bytes| match txn.get(key) {
            Ok(value) => Ok(value),
            Err(ReadError::NotLoaded(more)) => {
                wanted.extend(more);
                Ok(None)
            }
            Err(damaged) => Err(damaged),
        };
        for key in keys {
            values.push(look(self, &key)?);
        }
        let known = self.hooks();
        for hook in hooks.iter().filter(|hook| known.get(**hook).is_some()) {
            counts_of_hooks.push((*hook, look(self, &keys::counts(*hook))?));
        }
        if !wanted.is_empty() {
            return Err(ReadError::NotLoaded(wanted));
        }
        for (hook, value) in counts_of_hooks {
            let counts = value.map(|value| record::decode_delivery_counts(&value)).transpose();
            let counts = counts.map_err(|error| ReadError::Damaged(error.to_string()))?;
            self.counts_of_hooks.entry(hook).or_insert(counts.unwrap_or_default());
        }
        Ok(values)
    }

    fn lane(&mut self, hook: &Hook, lane: u64) -> Result<Option<Lane>, ReadError> {
        let Some(value) = self.get(&keys::lane(hook.id, lane))? else {
            return Ok(None);
        };
        let read = record::decode_lane(&value);
        read.map(Some).map_err(|error| ReadError::Damaged(error.to_string()))
    }
}

/// Lets a delivery take a step.
fn step(txn: &mut Txn<'_>, hook: &Hook, delivery: &Delivery, input: Input) -> Transition {
    let policy = hook.policy(txn.timings().retry_scale_milli);
    let (now, random, active) = (txn.now(), txn.draw(), hook.is_active());
    delivery.step(&Given { now, random, policy: &policy, active }, input)
}

/// Begins a delivery, and tries it if it is its turn.
pub(super) fn begin(
    txn: &mut Txn<'_>,
    groups: &mut TimerGroups,
    hook: &Hook,
    no: DeliveryNo,
    event_at: Millis,
    fresh: Option<&Fresh>,
) -> Result<(), ReadError> {
    let policy = hook.policy(txn.timings().retry_scale_milli);
    let lane = hook.lane().filter(|_| policy.order == Order::Lanes);
    let mut first = true;
    if let Some(number) = lane {
        let (joined, its_turn) = Lane::join(txn.lane(hook, number)?, no);
        txn.set(keys::lane(hook.id, number), record::encode_lane(joined));
        first = its_turn;
        if !first {
            txn.set(keys::waiting(hook.id, number, no), Bytes::new());
        }
    }
    let (now, random, active) = (txn.now(), txn.draw(), hook.is_active());
    let begun = Delivery::begin(&Given { now, random, policy: &policy, active }, first);
    let id = DeliveryId { hook: hook.id, no };
    let in_lot = begun.delivery.deadline().is_some_and(|end| groups.add(end, id));
    let timer_at = if in_lot { None } else { moved_timer(txn, id, None, &begun.delivery) };
    let after = DeliveryRecord {
        delivery: begun.delivery,
        created_at: now,
        event_at,
        timer_at,
        lane,
        retried: false,
    };
    keep(txn, hook, id, None, after, begun.send, fresh)
}

/// Keeps a delivery as it has become, with everything that goes with it.
fn keep(
    txn: &mut Txn<'_>,
    hook: &Hook,
    id: DeliveryId,
    before: Option<&DeliveryRecord>,
    mut after: DeliveryRecord,
    send: Option<u32>,
    fresh: Option<&Fresh>,
) -> Result<(), ReadError> {
    if let Some(before) = before {
        after.timer_at = moved_timer(txn, id, before.timer_at, &after.delivery);
    }
    let was = before.map(|it| it.delivery.phase);
    let is = after.delivery.phase;
    let mut counts = txn.counts(hook)?;
    counts.moved(before.map(|it| &it.delivery), Some(&after.delivery));
    let ended_now = after.delivery.ended_at().is_some()
        && before.is_none_or(|it| it.delivery.ended_at().is_none());
    if let (Phase::Dead { at, .. }, true) = (is, ended_now) {
        txn.set(keys::dead_letter(id, at), Bytes::new());
        counts.dead_letters += 1;
    }
    match (was, is) {
        (Some(Phase::Held), Phase::Held) => {}
        (_, Phase::Held) => txn.set(keys::held(id), Bytes::new()),
        (Some(Phase::Held), _) => txn.remove(&keys::held(id)),
        _ => {}
    }
    txn.counts_of_hooks.insert(hook.id, counts);
    if let Some(attempt) = send {
        let (tenant, fresh) = (hook.tenant.clone(), fresh.cloned());
        txn.effect(Effect::SendDelivery(DeliveryAttempt { id, attempt, tenant, fresh }));
    }
    let lane = after.lane.filter(|_| ended_now);
    txn.set(keys::delivery(id), record::encode_delivery(&after));
    match lane {
        Some(lane) => move_on(txn, hook, lane, id.no),
        None => Ok(()),
    }
}

/// The entry of the due index follows the delivery's next deadline.
fn moved_timer(
    txn: &mut Txn<'_>,
    id: DeliveryId,
    before: Option<Millis>,
    after: &Delivery,
) -> Option<Millis> {
    let due = Due::Delivery(id);
    match (before, after.deadline()) {
        (Some(at), Some(deadline)) if at == deadline => {}
        (before, deadline) => {
            if let Some(at) = before {
                txn.remove(&keys::due(at, &due));
            }
            if let Some(deadline) = deadline {
                txn.set_due(deadline, &due);
            }
        }
    }
    after.deadline()
}

/// A delivery of a lane has ended: if it was the head, it is the turn of the next.
fn move_on(
    txn: &mut Txn<'_>,
    hook: &Hook,
    number: u64,
    ended: DeliveryNo,
) -> Result<(), ReadError> {
    let key = keys::lane(hook.id, number);
    let Some(lane) = txn.lane(hook, number)? else {
        return Ok(());
    };
    match lane.ended(ended) {
        LaneAdvance::Less(left) => {
            txn.remove(&keys::waiting(hook.id, number, ended));
            txn.set(key, record::encode_lane(left));
        }
        LaneAdvance::Empty => txn.remove(&key),
        LaneAdvance::First => {
            let Some(head) = first_waiting(txn, hook, number)? else {
                return Err(ReadError::Damaged(format!("a lane of hook {} is lost", hook.id.0)));
            };
            txn.remove(&keys::waiting(hook.id, number, head));
            txn.set(key, record::encode_lane(lane.led_by(head)));
            advance(txn, hook, DeliveryId { hook: hook.id, no: head }, Input::Turn)?;
        }
    }
    Ok(())
}

/// The first delivery that waits in a lane.
fn first_waiting(
    txn: &mut Txn<'_>,
    hook: &Hook,
    number: u64,
) -> Result<Option<DeliveryNo>, ReadError> {
    let (from, to) = keys::waiting_in(hook.id, number);
    let first = txn.first(from, &to, WAITING_LOOK)?;
    Ok(first.and_then(|key| keys::parse_waiting(&key)))
}

/// Lets a delivery that is kept take a step, and keeps what becomes of it.
pub(super) fn advance(
    txn: &mut Txn<'_>,
    hook: &Hook,
    id: DeliveryId,
    input: Input,
) -> Result<(), ReadError> {
    match txn.record(id)? {
        Some(before) => advance_from(txn, hook, id, &before, input),
        None => Ok(()),
    }
}

/// The same for one that was just read.
fn advance_from(
    txn: &mut Txn<'_>,
    hook: &Hook,
    id: DeliveryId,
    before: &DeliveryRecord,
    input: Input,
) -> Result<(), ReadError> {
    let step = step(txn, hook, &before.delivery, input);
    if step.delivery != before.delivery {
        let after = DeliveryRecord { delivery: step.delivery, ..before.clone() };
        keep(txn, hook, id, Some(before), after, step.send, None)?;
    }
    if step.ends_hook {
        hook::end(txn, hook);
    }
    Ok(())
}

/// Attempts were answered, or failed.
pub(super) fn ended(txn: &mut Txn<'_>, all: &[DeliveryOutcome]) -> Result<Answer, ReadError> {
    txn.rests_on_registry();
    let hooks = all.iter().map(|it| it.id.hook).collect();
    let records = txn.tallies_and(&hooks, all.iter().map(|it| keys::delivery(it.id)))?;
    let mut ids: Vec<DeliveryId> = all.iter().map(|it| it.id).collect();
    ids.sort_unstable();
    let unlike = ids.is_sorted_by(|one, next| one < next);
    for (DeliveryOutcome { id, attempt, verdict }, record) in all.iter().zip(records) {
        let Some(hook) = txn.hooks().get(id.hook).cloned() else { continue };
        let input = Input::Answered { attempt: attempt.clone(), verdict: *verdict };
        // What was read above may have changed only if it is there twice, or by others of its lane.
        if !unlike || hook.lane().is_some() {
            advance(txn, &hook, *id, input)?;
        } else if let Some(record) = record {
            let before = record::decode_delivery(&record);
            let before = before.map_err(|error| ReadError::Damaged(error.to_string()))?;
            advance_from(txn, &hook, *id, &before, input)?;
        }
    }
    Ok(Answer::Done)
}

/// An attempt was not made, because its hook is not active.
pub(super) fn unsent(txn: &mut Txn<'_>, id: DeliveryId, attempt: u32) -> Result<Answer, ReadError> {
    txn.rests_on_registry();
    if let Some(hook) = txn.hooks().get(id.hook).cloned() {
        advance(txn, &hook, id, Input::Unsent { attempt })?;
    }
    Ok(Answer::Done)
}

/// A delivery's time has come, perhaps.
pub(super) fn timer(
    txn: &mut Txn<'_>,
    entry: &Bytes,
    id: DeliveryId,
    in_flight: bool,
) -> Result<Answer, ReadError> {
    let fired = keys::parse_due(entry).map(|(at, _)| at);
    if let Some(hook) = txn.hooks().get(id.hook).cloned()
        && let Some(before) = txn.record(id)?
        && before.timer_at == fired
    {
        let step = step(txn, &hook, &before.delivery, Input::Timer { in_flight });
        let after = DeliveryRecord { delivery: step.delivery, ..before.clone() };
        // An entry that came early stays as it is.
        if after.delivery.deadline() != fired {
            keep(txn, &hook, id, Some(&before), after, step.send, None)?;
        }
        return Ok(Answer::Done);
    }
    txn.remove(entry);
    Ok(Answer::Done)
}

/// A dead delivery is made again, under a number of its own.
pub(super) fn retry(txn: &mut Txn<'_>, tenant: &Tenant, id: DeliveryId) -> Decided {
    txn.rests_on_registry();
    let hook = txn.hooks().get(id.hook).filter(|hook| hook.tenant == *tenant).cloned();
    let Some(hook) = hook else {
        return Ok(Err(Refused::NoDeadLetter.into()));
    };
    let dead = txn.record(id)?.filter(|it| !it.retried);
    let Some((dead, at)) = dead.and_then(|it| match it.delivery.phase {
        Phase::Dead { at, .. } => Some((it, at)),
        _ => None,
    }) else {
        return Ok(Err(Refused::NoDeadLetter.into()));
    };
    let Some(round) = id.no.round.checked_add(1) else {
        return Ok(Err(Refused::NoDeadLetter.into()));
    };
    txn.remove(&keys::dead_letter(id, at));
    let event_at = dead.event_at;
    txn.set(keys::delivery(id), record::encode_delivery(&DeliveryRecord { retried: true, ..dead }));
    let mut counts = txn.counts(&hook)?;
    counts.dead_letters = counts.dead_letters.saturating_sub(1);
    txn.counts_of_hooks.insert(hook.id, counts);
    let no = DeliveryNo { round, ..id.no };
    begin(txn, &mut TimerGroups::of(1), &hook, no, event_at, None)?;
    Ok(Ok(Answer::Begun(DeliveryId { no, ..id })))
}
