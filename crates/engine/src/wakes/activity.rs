//! Who is busy: how many consumers are being told, at work, or collecting events.
//!
//! A consumer is busy while the due index has an entry for it. Those that are not are never
//! counted: there may be millions of them, and most have no record at all.

use bytes::Bytes;
use reveille_core::Millis;
use reveille_core::consumer::{FRUITLESS_FREE, Phase, RemovalReason, WakeId};
use reveille_core::trace::Trace;
use reveille_kernel::keys as kernel_keys;
use reveille_kernel::txn::ReadError;
use reveille_schema::keys::{self, ConsumerKey};
use reveille_schema::record::{self, ConsumerRecord};
use reveille_schema::wakes::WakeTimer;

use super::gauges::{load_of, rests};
use crate::app::Txn;
use crate::effect::{
    ActivityChange, ConsumerActivity, ConsumerComplaint, ConsumerTrouble, Effect, LoadChange,
};
use crate::records::ReadRecord;

/// What a consumer is busy with, by its record.
pub(crate) fn activity_of(record: &ConsumerRecord) -> ConsumerActivity {
    match record.consumer.phase {
        _ if record.timer_at.is_none() => ConsumerActivity::None,
        Phase::Idle { wake_at: Some(_) } => ConsumerActivity::Collecting,
        Phase::Waking { .. } => ConsumerActivity::Waking,
        Phase::Live { .. } => ConsumerActivity::Live,
        Phase::Idle { wake_at: None } | Phase::Gone(_) => ConsumerActivity::None,
    }
}

/// Consumers, as a decision sees them.
pub(crate) trait ConsumerTxn {
    fn consumer(&mut self, key: &ConsumerKey) -> Result<Option<ConsumerRecord>, ReadError>;

    /// A name for a wake.
    fn wake_id(&mut self) -> WakeId;

    fn set_wake_timer(&mut self, at: Millis, timer: &WakeTimer);

    /// Keeps a consumer that was kept as `before` so far, with a timer for when something must
    /// happen by itself.
    fn keep(&mut self, key: &ConsumerKey, before: Option<&ConsumerRecord>, record: ConsumerRecord);

    /// A consumer's timer is taken out, although the consumer is of no use any more: whoever takes
    /// its place must not rely on it.
    fn disarm(&mut self, key: &ConsumerKey) -> Result<(), ReadError>;

    /// Removes these keys; the consumers among them are busy no longer.
    fn remove_all(&mut self, found: &[Bytes]) -> Result<(), ReadError>;
}

/// The key of a consumer's timer.
pub(crate) fn timer_key(at: Millis, consumer: &ConsumerKey) -> Bytes {
    kernel_keys::timer(at, &WakeTimer::Consumer(consumer.clone()).encode())
}

impl ConsumerTxn for Txn<'_> {
    fn consumer(&mut self, key: &ConsumerKey) -> Result<Option<ConsumerRecord>, ReadError> {
        self.read(&keys::consumer(key), record::decode_consumer)
    }

    fn wake_id(&mut self) -> WakeId {
        let mut bytes = [0; 12];
        let (high, low) = (self.draw().to_be_bytes(), self.draw().to_be_bytes());
        for (byte, random) in bytes.iter_mut().zip(high.into_iter().chain(low)) {
            *byte = random;
        }
        WakeId(bytes)
    }

    fn set_wake_timer(&mut self, at: Millis, timer: &WakeTimer) {
        self.set_timer(at, &timer.encode());
    }

    fn keep(
        &mut self,
        key: &ConsumerKey,
        before: Option<&ConsumerRecord>,
        mut record: ConsumerRecord,
    ) {
        match (record.timer_at, record.consumer.deadline()) {
            (Some(at), None) => {
                self.remove(&timer_key(at, key));
                record.timer_at = None;
            }
            // A timer that is early sets itself anew: a sign of life need not move it.
            (Some(at), Some(deadline)) if at <= deadline => {}
            (before, Some(deadline)) => {
                if let Some(at) = before {
                    self.remove(&timer_key(at, key));
                }
                self.set_wake_timer(deadline, &WakeTimer::Consumer(key.clone()));
                record.timer_at = Some(deadline);
            }
            (None, None) => {}
        }
        if is_caused_now(before, &record) {
            record.trace = self.trace.map(Trace::to_bytes);
        }
        note_change(self, key, before, Some(&record));
        match (before.is_some_and(rests), rests(&record)) {
            (false, true) => self.set(keys::resting(key), Bytes::new()),
            (true, false) => self.remove(&keys::resting(key)),
            (true, true) | (false, false) => {}
        }
        self.set(keys::consumer(key), record::encode_consumer(&record));
    }

    fn disarm(&mut self, key: &ConsumerKey) -> Result<(), ReadError> {
        let stored = keys::consumer(key);
        if let Some(before) = kept(self, &stored)?
            && before.timer_at.is_some()
        {
            let after = ConsumerRecord { timer_at: None, ..before.clone() };
            note_change(self, key, Some(&before), Some(&after));
            self.set(stored, record::encode_consumer(&after));
        }
        Ok(())
    }

    fn remove_all(&mut self, found: &[Bytes]) -> Result<(), ReadError> {
        let consumers: Vec<(ConsumerKey, Bytes)> = found
            .iter()
            .filter_map(|key| Some((keys::parse_consumer(key)?, key.clone())))
            .collect();
        let wanted: Vec<Bytes> = consumers.iter().map(|(_, key)| key.clone()).collect();
        self.want(&wanted)?;
        for (consumer, key) in consumers {
            let before = kept(self, &key)?;
            note_change(self, &consumer, before.as_ref(), None);
            if before.as_ref().is_some_and(rests) {
                self.remove(&keys::resting(&consumer));
            }
        }
        for key in found {
            self.remove(key);
        }
        Ok(())
    }
}

fn kept(txn: &mut Txn<'_>, key: &Bytes) -> Result<Option<ConsumerRecord>, ReadError> {
    let Some(value) = txn.get(key)? else {
        return Ok(None);
    };
    // What cannot be read is as good as absent: it is only counted here.
    Ok(record::decode_consumer(&value).ok())
}

fn note_change(
    txn: &mut Txn<'_>,
    key: &ConsumerKey,
    before: Option<&ConsumerRecord>,
    after: Option<&ConsumerRecord>,
) {
    let activity = |it: Option<&ConsumerRecord>| it.map_or(ConsumerActivity::None, activity_of);
    let epoch = |it: Option<&ConsumerRecord>| it.map_or(0, |it| it.consumer.epoch);
    let woken = epoch(after) > epoch(before) && is_waking(after);
    let change = ActivityChange { from: activity(before), to: activity(after), woken };
    if change.from != change.to || change.woken {
        txn.effect(Effect::CountActivity(change));
    }
    let [from, to] = [before, after].map(|it| it.map(load_of).unwrap_or_default());
    if from != to {
        let subscription = key.subscription;
        txn.effect(Effect::CountLoad(LoadChange { subscription, from, to }));
    }
    let failed = |it: Option<&ConsumerRecord>| {
        it.is_some_and(|it| it.consumer.phase == Phase::Gone(RemovalReason::Failed))
    };
    if failed(after) && !failed(before) {
        complain(txn, key, ConsumerTrouble::GivenUp);
    }
    let fruitless = |it: Option<&ConsumerRecord>| it.map_or(0, |it| it.consumer.fruitless_dones);
    if fruitless(after) > fruitless(before).max(FRUITLESS_FREE) {
        complain(txn, key, ConsumerTrouble::Fruitless);
    }
}

/// An epoch that nobody is told of is no wake.
fn is_waking(record: Option<&ConsumerRecord>) -> bool {
    let phase = record.map(|it| &it.consumer.phase);
    matches!(phase, Some(Phase::Waking { .. } | Phase::Live { .. }))
}

/// Something is wrong with a consumer that its operators should know of.
pub(crate) fn complain(txn: &mut Txn<'_>, key: &ConsumerKey, trouble: ConsumerTrouble) {
    let (consumer, at) = (key.clone(), txn.now());
    txn.effect(Effect::Complain(ConsumerComplaint { consumer, trouble, at }));
}

/// Whether what happens now causes a wake, the one that begins or the one that events are collected
/// for; events that come later are told along with the one that caused it.
fn is_caused_now(before: Option<&ConsumerRecord>, after: &ConsumerRecord) -> bool {
    let collects =
        |it: &ConsumerRecord| matches!(it.consumer.phase, Phase::Idle { wake_at: Some(_) });
    let woken = before.is_none_or(|it| it.consumer.epoch < after.consumer.epoch);
    (woken || collects(after)) && !before.is_some_and(collects)
}
