//! Deliveries: beginning them, letting them take a step, and keeping what becomes of them.

use std::collections::BTreeSet;

use bytes::Bytes;
use reveille_core::delivery::hook::{DeliveryCounts, FaceId, Hook, HookId};
use reveille_core::delivery::id::{DeliveryId, DeliveryNo};
use reveille_core::delivery::lane::{Lane, LaneAdvance, LaneJoin, NEXT_MAX};
use reveille_core::delivery::{
    AttemptRecord, DeadReason, Delivery, DropReason, Given, Input, Phase, Policy, Transition,
    Verdict,
};
use reveille_core::key_range::above;
use reveille_core::{Millis, Tenant};
use reveille_kernel::command::{Command, Decision};
use reveille_kernel::error::{Damaged, Never};
use reveille_kernel::outbound::OutcomeCommand;
use reveille_kernel::txn::ReadError;
use reveille_schema::deliveries::DeliveryTimer;
use reveille_schema::keys;
use reveille_schema::record::{self, DeliveryRecord};

use super::dead_letter::{self, LetterState};
use super::ended::{self, EndedBy, EndedHookIndex, EndedHookName};
use super::error::DeliveryRejection;
use super::face::DeliveryFaces;
use super::index::HookIndex;
use super::replay;
use super::timer_group::TimerGroups;
use crate::app::{App, Txn};
use crate::effect::{DeliveryAttempt, Effect, EventPayload};
use crate::records::{ReadRecord, damaged};

/// What came of an attempt to deliver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeliveryOutcome {
    pub id: DeliveryId,
    pub attempt: AttemptRecord,
    /// What that means.
    pub verdict: Verdict,
}

/// Writes down what came of attempts.
#[derive(Debug, Clone)]
pub struct RecordDeliveryOutcomes(pub Vec<DeliveryOutcome>);

/// Writes down that an attempt was not made, because its hook is not active.
#[derive(Debug, Clone, Copy)]
pub struct HoldDelivery {
    pub id: DeliveryId,
    pub attempt: u32,
}

/// Ends a delivery whose attempt was not made, because it is not owed any more.
#[derive(Debug, Clone, Copy)]
pub struct DropDelivery {
    pub id: DeliveryId,
    pub attempt: u32,
    pub why: DropReason,
    /// Whether its hook ends with it.
    pub ends_hook: bool,
}

/// A delivery that is to begin.
#[derive(Debug, Clone, Copy)]
pub struct NewDelivery<'a> {
    pub no: DeliveryNo,
    /// The version of the hook that it is of.
    pub version: u64,
    /// When its event came.
    pub event_at: Millis,
    /// Those of one lane come one after another, where the hook's policy says so.
    pub lane: u64,
    /// The event, if it is at hand: then it is not read for the first attempt.
    pub event: Option<&'a EventPayload>,
    /// Why it is a dead letter from the beginning, and is not tried.
    pub dead: Option<DeadReason>,
}

/// Makes a dead delivery again, under a number of its own.
#[derive(Debug, Clone)]
pub struct RetryDelivery {
    pub face: FaceId,
    pub tenant: Tenant,
    pub id: DeliveryId,
}

/// Waiting deliveries of a lane that are looked at in one go: those who had their turn a moment ago
/// may be among them.
const WAITING_LOOK: usize = NEXT_MAX + 1;

/// Deliveries, as a decision sees them.
pub trait DeliveryTxn {
    fn delivery(&mut self, id: DeliveryId) -> Result<Option<DeliveryRecord>, ReadError>;

    fn counts(&mut self, hook: &Hook) -> Result<DeliveryCounts, ReadError>;

    /// Reads the counts of hooks whose deliveries are about to change, and the values of these
    /// keys, or asks for whatever is missing at once. Each is looked up once.
    fn counts_and(
        &mut self,
        hooks: &BTreeSet<HookId>,
        keys: impl IntoIterator<Item = Bytes>,
    ) -> Result<Vec<Option<Bytes>>, ReadError>;

    fn set_delivery_timer(&mut self, at: Millis, timer: &DeliveryTimer);
}

impl DeliveryTxn for Txn<'_> {
    fn delivery(&mut self, id: DeliveryId) -> Result<Option<DeliveryRecord>, ReadError> {
        self.read(&keys::delivery(id), record::decode_delivery)
    }

    fn counts(&mut self, hook: &Hook) -> Result<DeliveryCounts, ReadError> {
        if let Some(counts) = self.scratch.counts.get(&hook.id) {
            return Ok(*counts);
        }
        let counts = self.read(&keys::counts(hook.id), record::decode_delivery_counts)?;
        Ok(counts.unwrap_or_default())
    }

    fn counts_and(
        &mut self,
        hooks: &BTreeSet<HookId>,
        keys: impl IntoIterator<Item = Bytes>,
    ) -> Result<Vec<Option<Bytes>>, ReadError> {
        let known = HookIndex::of_txn(self);
        let present = hooks.iter().filter(|hook| known.get(**hook).is_some());
        let of_hooks: Vec<(HookId, Bytes)> = present.map(|it| (*it, keys::counts(*it))).collect();
        let mut looked_up: Vec<Bytes> = keys.into_iter().collect();
        let wanted = looked_up.len();
        looked_up.extend(of_hooks.iter().map(|(_, key)| key.clone()));
        let mut values = self.gather(&looked_up, |txn, key| txn.get(key))?;
        let counts = values.split_off(wanted);
        for ((hook, _), value) in of_hooks.into_iter().zip(counts) {
            let decoded = value.map(|value| record::decode_delivery_counts(&value)).transpose();
            let counts = decoded.map_err(damaged)?.unwrap_or_default();
            self.scratch.counts.entry(hook).or_insert(counts);
        }
        Ok(values)
    }

    fn set_delivery_timer(&mut self, at: Millis, timer: &DeliveryTimer) {
        self.set_timer(at, &timer.encode());
    }
}

fn lane_of(txn: &mut Txn<'_>, hook: &Hook, lane: u64) -> Result<Option<Lane>, ReadError> {
    txn.read(&keys::lane(hook.id, lane), record::decode_lane)
}

/// Lets a delivery take a step, by the rules of the version of its hook that it follows.
fn step(
    txn: &mut Txn<'_>,
    hook: &Hook,
    record: &DeliveryRecord,
    input: Input,
) -> Result<Transition, ReadError> {
    let former = former(txn, hook, record.hook_version)?;
    let policy = former.as_ref().map_or(&hook.policy, |former| &former.policy);
    Ok(record.delivery.step(&given(txn, hook, policy, record.created_at)?, input))
}

/// The hook as it was, if deliveries of this version follow it so.
fn former(txn: &mut Txn<'_>, hook: &Hook, version: u64) -> Result<Option<Hook>, ReadError> {
    match hook.follows(version) {
        Some(version) => txn.read(&keys::hook_version(hook.id, version), record::decode_hook),
        None => Ok(None),
    }
}

fn given<'a>(
    txn: &mut Txn<'_>,
    hook: &Hook,
    policy: &'a Policy,
    began_at: Millis,
) -> Result<Given<'a>, Damaged> {
    let face = txn.domains().part::<DeliveryFaces>().get(hook.face)?;
    Ok(Given {
        now: txn.now(),
        random: txn.draw(),
        policy,
        poison: face.poison(policy, &txn.domains().settings),
        retry_scale_milli: txn.domains().settings.timings.retry_scale_milli,
        active: hook.is_sending(),
        began_at,
    })
}

/// Begins a delivery, and tries it if it is its turn.
pub fn begin(
    txn: &mut Txn<'_>,
    groups: &mut TimerGroups,
    hook: &Hook,
    new: NewDelivery<'_>,
) -> Result<(), ReadError> {
    begin_for(txn, groups, hook, new, None)
}

/// The same for one that a replay makes.
fn begin_for(
    txn: &mut Txn<'_>,
    groups: &mut TimerGroups,
    hook: &Hook,
    new: NewDelivery<'_>,
    replay: Option<u64>,
) -> Result<(), ReadError> {
    let NewDelivery { no, version, event_at, lane, event, dead } = new;
    let former = former(txn, hook, version)?;
    let policy = former.as_ref().map_or(&hook.policy, |former| &former.policy);
    let lane = hook.is_ordered().then_some(lane);
    let mut first = true;
    if let Some(number) = lane {
        let LaneJoin { lane, is_first, mark } = Lane::join(lane_of(txn, hook, number)?, no);
        txn.set(keys::lane(hook.id, number), record::encode_lane(&lane));
        first = is_first;
        if let Some(marked) = mark {
            txn.set(keys::waiting(hook.id, number, marked), Bytes::new());
        }
    }
    let now = txn.now();
    let given = given(txn, hook, policy, now)?;
    let mut begun = Delivery::begin(&given, first);
    if let Some(why) = dead {
        begun = begun.delivery.step(&given, Input::Bury(why));
    }
    let id = DeliveryId { hook: hook.id, no };
    let in_lot = begun.delivery.deadline().is_some_and(|end| groups.add(end, id));
    let timer_at = if in_lot { None } else { moved_timer(txn, id, None, &begun.delivery) };
    let after = DeliveryRecord {
        delivery: begun.delivery,
        created_at: txn.now(),
        event_at,
        timer_at,
        lane,
        retried: false,
        hook_version: version,
        discarded: false,
        replay,
    };
    keep(txn, hook, id, None, after, begun.send, event)
}

/// Keeps a delivery as it has become, with everything that goes with it.
fn keep(
    txn: &mut Txn<'_>,
    hook: &Hook,
    id: DeliveryId,
    before: Option<&DeliveryRecord>,
    mut after: DeliveryRecord,
    send: Option<u32>,
    event: Option<&EventPayload>,
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
    if let (Phase::Dead { at, why }, true) = (is, ended_now) {
        txn.effect(Effect::CountDeadLetter(why));
        txn.set(keys::dead_letter(id, at), Bytes::new());
        dead_letter::enter(txn, hook, at, id, LetterState::Dead);
        counts.dead_letters += 1;
    }
    match (was, is) {
        (Some(Phase::Held), Phase::Held) => {}
        (_, Phase::Held) => txn.set(keys::held(id), Bytes::new()),
        (Some(Phase::Held), _) => txn.remove(&keys::held(id)),
        _ => {}
    }
    txn.scratch.counts.insert(hook.id, counts);
    if let Some(attempt) = send {
        let (tenant, event) = (hook.tenant.clone(), event.cloned());
        let transport = hook.policy.transport;
        let attempt = DeliveryAttempt { id, attempt, tenant, transport, event };
        txn.effect(Effect::SendDelivery(attempt));
    }
    let lane = after.lane.filter(|_| ended_now);
    txn.set(keys::delivery(id), record::encode_delivery(&after));
    if let Some(replay) = after.replay.filter(|_| ended_now) {
        replay::count_end(txn, &hook.tenant, replay, &after.delivery)?;
    }
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
    let timer = DeliveryTimer::Delivery(id);
    match (before, after.deadline()) {
        (Some(at), Some(deadline)) if at == deadline => {}
        (before, deadline) => {
            if let Some(at) = before {
                txn.cancel_timer(at, &timer.encode());
            }
            if let Some(deadline) = deadline {
                txn.set_delivery_timer(deadline, &timer);
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
    let Some(lane) = lane_of(txn, hook, number)? else {
        return Ok(());
    };
    let next = match lane.clone().ended(ended) {
        LaneAdvance::Less { lane, was_marked } => {
            if was_marked {
                txn.remove(&keys::waiting(hook.id, number, ended));
            }
            txn.set(key, record::encode_lane(&lane));
            return Ok(());
        }
        LaneAdvance::Empty => {
            txn.remove(&key);
            return Ok(());
        }
        LaneAdvance::Next(next) => next,
        LaneAdvance::Look => {
            let found = first_marked(txn, hook, number)?;
            for marked in &found {
                txn.remove(&keys::waiting(hook.id, number, *marked));
            }
            let lost = || Damaged(format!("a lane of hook {} is lost", hook.id.0));
            lane.led_by(&found).ok_or_else(lost)?
        }
    };
    txn.set(key, record::encode_lane(&next));
    advance(txn, hook, DeliveryId { hook: hook.id, no: next.head }, Input::Turn)
}

/// The first deliveries that wait in a lane and are marked, in order; as many as a lane can know.
fn first_marked(txn: &mut Txn<'_>, hook: &Hook, number: u64) -> Result<Vec<DeliveryNo>, ReadError> {
    let (mut from, to) = keys::waiting_in(hook.id, number);
    loop {
        let found = txn.range(&from, &to, WAITING_LOOK)?;
        let waiting = found.pairs.iter().filter_map(|(key, _)| keys::parse_waiting(key));
        let waiting: Vec<DeliveryNo> = waiting.take(WAITING_LOOK).collect();
        // All that was read may be gone meanwhile, and there may be more.
        match found.last {
            Some(last) if waiting.is_empty() => from = above(&last),
            _ => return Ok(waiting),
        }
    }
}

/// Lets a delivery that is kept take a step, and keeps what becomes of it.
pub(crate) fn advance(
    txn: &mut Txn<'_>,
    hook: &Hook,
    id: DeliveryId,
    input: Input,
) -> Result<(), ReadError> {
    match txn.delivery(id)? {
        Some(before) => advance_from(txn, hook, id, &before, input),
        None => Ok(()),
    }
}

/// The same for one that was just read.
pub(super) fn advance_from(
    txn: &mut Txn<'_>,
    hook: &Hook,
    id: DeliveryId,
    before: &DeliveryRecord,
    input: Input,
) -> Result<(), ReadError> {
    let answered = matches!(input, Input::Answered { .. });
    let step = step(txn, hook, before, input)?;
    if step.delivery != before.delivery {
        let after = DeliveryRecord { delivery: step.delivery, ..before.clone() };
        if answered && let Some(attempt) = after.delivery.attempts.last() {
            let face = txn.domains().part::<DeliveryFaces>().get(hook.face)?;
            face.attempted(txn, hook, &after, attempt)?;
        }
        keep(txn, hook, id, Some(before), after, step.send, None)?;
    }
    match step.ends_hook {
        true => ended::end_unasked(txn, hook, EndedBy::Endpoint),
        false => Ok(()),
    }
}

impl Command<App> for RecordDeliveryOutcomes {
    /// How many of them, from the first on.
    type Answer = usize;
    type Rejection = Never;

    fn decide(&self, txn: &mut Txn<'_>) -> Decision<usize, Never> {
        let all = &self.0;
        txn.rests_on_index();
        let hooks = all.iter().map(|it| it.id.hook).collect();
        let records = txn.counts_and(&hooks, all.iter().map(|it| keys::delivery(it.id)))?;
        let mut ids: Vec<DeliveryId> = all.iter().map(|it| it.id).collect();
        ids.sort_unstable();
        let unlike = ids.is_sorted_by(|one, next| one < next);
        // Lanes that move on read more, each of them something else: that is asked for at once.
        let done = txn.gather_slice(all.iter().zip(records), |txn, (outcome, record)| {
            let DeliveryOutcome { id, attempt, verdict } = outcome;
            let Some(hook) = HookIndex::of_txn(txn).get(id.hook) else { return Ok(()) };
            let input = Input::Answered { attempt: attempt.clone(), verdict: *verdict };
            // What was read above may have changed only if it is there twice, or by others of its
            // lane.
            if !unlike || hook.is_ordered() {
                advance(txn, hook, *id, input)
            } else if let Some(record) = record {
                let before = record::decode_delivery(&record).map_err(damaged)?;
                advance_from(txn, hook, *id, &before, input)
            } else {
                Ok(())
            }
        })?;
        Ok(Ok(done))
    }

    fn weight(&self) -> usize {
        self.0.len() * 512
    }

    /// Nobody waits for it, unless it lets something happen.
    fn is_urgent(&self, effects: &[Effect]) -> bool {
        effects.iter().any(Effect::is_urgent)
    }
}

impl OutcomeCommand<App> for RecordDeliveryOutcomes {
    type Outcome = DeliveryOutcome;

    fn new(outcomes: Vec<DeliveryOutcome>) -> RecordDeliveryOutcomes {
        RecordDeliveryOutcomes(outcomes)
    }

    fn into_outcomes(self) -> Vec<DeliveryOutcome> {
        self.0
    }
}

impl Command<App> for HoldDelivery {
    type Answer = ();
    type Rejection = Never;

    fn decide(&self, txn: &mut Txn<'_>) -> Decision<(), Never> {
        txn.rests_on_index();
        if let Some(hook) = HookIndex::of_txn(txn).get(self.id.hook) {
            advance(txn, hook, self.id, Input::Unsent { attempt: self.attempt })?;
        }
        Ok(Ok(()))
    }
}

impl Command<App> for DropDelivery {
    type Answer = ();
    type Rejection = Never;

    fn decide(&self, txn: &mut Txn<'_>) -> Decision<(), Never> {
        txn.rests_on_index();
        if let Some(hook) = HookIndex::of_txn(txn).get(self.id.hook)
            && let Some(before) = txn.delivery(self.id)?
            && is_leased(&before.delivery, self.attempt)
        {
            advance_from(txn, hook, self.id, &before, Input::Drop(self.why))?;
            if self.ends_hook {
                ended::end_unasked(txn, hook, EndedBy::Gate)?;
            }
        }
        Ok(Ok(()))
    }
}

/// Whether this attempt is being made.
pub(crate) fn is_leased(delivery: &Delivery, number: u32) -> bool {
    matches!(delivery.phase, Phase::Leased { attempt, .. } if attempt == number)
}

/// A delivery's time has come, perhaps.
pub(crate) fn fire(
    txn: &mut Txn<'_>,
    entry: &Bytes,
    at: Millis,
    id: DeliveryId,
    in_flight: bool,
) -> Result<(), ReadError> {
    let fired = Some(at);
    if let Some(hook) = HookIndex::of_txn(txn).get(id.hook)
        && let Some(before) = txn.delivery(id)?
        && before.timer_at == fired
    {
        let step = step(txn, hook, &before, Input::Timer { in_flight })?;
        let after = DeliveryRecord { delivery: step.delivery, ..before.clone() };
        // An entry that came early stays as it is.
        if after.delivery.deadline() != fired {
            keep(txn, hook, id, Some(&before), after, step.send, None)?;
        }
        return Ok(());
    }
    txn.remove(entry);
    Ok(())
}

/// The replay by which a dead letter is made again.
#[derive(Debug, Clone, Copy)]
pub(super) struct RetryBy {
    pub(super) replay: u64,
    /// Whether it follows the version of its hook that it had.
    pub(super) original: bool,
}

/// What has become of a dead letter that was to be made again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Retried {
    Made(DeliveryId),
    /// It is no dead letter, or one that this replay has made.
    NotDead,
    /// The version of its hook that it was to follow is not kept any more.
    VersionGone,
}

/// Makes a dead letter again, for a replay or because somebody asked for this one.
pub(super) fn retry(
    txn: &mut Txn<'_>,
    hook: &Hook,
    id: DeliveryId,
    by: Option<RetryBy>,
) -> Result<Retried, ReadError> {
    let letter = dead_letter::open_letter(txn, id)?;
    let replay = by.map(|by| by.replay);
    let letter = letter.filter(|(it, _)| replay.is_none() || it.replay != replay);
    let (Some((letter, at)), Some(round)) = (letter, id.no.round.checked_add(1)) else {
        return Ok(Retried::NotDead);
    };
    let mut version = hook.version;
    if by.is_some_and(|by| by.original) && letter.hook_version != version {
        version = letter.hook_version;
        let is_followed = hook.follows(version).is_some();
        if !is_followed || !txn.is_set(&keys::hook_version(hook.id, version))? {
            return Ok(Retried::VersionGone);
        }
    }
    let (event_at, lane) = (letter.event_at, letter.lane.unwrap_or(0));
    dead_letter::close(txn, hook, id, letter, at, LetterState::Retried)?;
    let no = DeliveryNo { round, ..id.no };
    let new = NewDelivery { no, version, event_at, lane, event: None, dead: None };
    begin_for(txn, &mut TimerGroups::of(1), hook, new, replay)?;
    Ok(Retried::Made(DeliveryId { no, ..id }))
}

impl Command<App> for RetryDelivery {
    /// The delivery that was begun.
    type Answer = DeliveryId;
    type Rejection = DeliveryRejection;

    fn decide(&self, txn: &mut Txn<'_>) -> Decision<DeliveryId, DeliveryRejection> {
        let RetryDelivery { face, tenant, id } = self;
        txn.rests_on_index();
        let hook = HookIndex::of_txn(txn).get(id.hook);
        let Some(hook) = hook.filter(|hook| hook.tenant == *tenant && hook.face == *face) else {
            let ended = EndedHookIndex::of_txn(txn).get(id.hook);
            let ended = ended.filter(|it| it.tenant == *tenant && it.face == *face);
            let gone = |it: &EndedHookName| DeliveryRejection::HookGone { hook: it.name.clone() };
            return Ok(Err(ended.map_or(DeliveryRejection::NoDeadLetter, gone)));
        };
        Ok(match retry(txn, hook, *id, None)? {
            Retried::Made(id) => Ok(id),
            Retried::NotDead | Retried::VersionGone => Err(DeliveryRejection::NoDeadLetter),
        })
    }

    fn needs_room(&self) -> bool {
        true
    }
}
