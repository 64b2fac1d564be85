//! Who is busy: how many consumers are being told, at work, or collecting events.
//!
//! A consumer is busy while the due index has an entry for it. Those that are not are never
//! counted: there may be millions of them, and most have no record at all.

use reveille_core::consumer::{Phase, RemovalReason};
use reveille_core::subscription::SubscriptionId;
use reveille_core::trace::Trace;
use reveille_schema::keys::{self, ConsumerKey, Due};
use reveille_schema::record::{self, ConsumerRecord};

use bytes::Bytes;

use crate::effect::{ActivityChange, Effect};
use crate::txn::{ReadError, Txn};

/// What a consumer is busy with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConsumerActivity {
    /// Nothing that has an end of its own.
    None,
    /// Its events are collected, to be told together.
    Collecting,
    /// It is being told, or waits to be told again.
    Waking,
    /// It works.
    Live,
}

impl ConsumerActivity {
    /// What a consumer is busy with, by its record.
    pub(crate) fn of(record: &ConsumerRecord) -> ConsumerActivity {
        match record.consumer.phase {
            _ if record.timer_at.is_none() => ConsumerActivity::None,
            Phase::Idle { wake_at: Some(_) } => ConsumerActivity::Collecting,
            Phase::Waking { .. } => ConsumerActivity::Waking,
            Phase::Live { .. } => ConsumerActivity::Live,
            Phase::Idle { wake_at: None } | Phase::Gone(_) => ConsumerActivity::None,
        }
    }
}

impl Txn<'_> {
    /// Keeps a consumer that was kept as `before` so far, with an entry in the due index for when
    /// something must happen by itself.
    pub(crate) fn keep(
        &mut self,
        key: &ConsumerKey,
        before: Option<&ConsumerRecord>,
        mut record: ConsumerRecord,
    ) {
        let due = Due::Consumer(key.clone());
        match (record.timer_at, record.consumer.deadline()) {
            (Some(at), None) => {
                self.remove(&keys::due(at, &due));
                record.timer_at = None;
            }
            // A timer that is early sets itself anew: a sign of life need not move it.
            (Some(at), Some(deadline)) if at <= deadline => {}
            (before, Some(deadline)) => {
                if let Some(at) = before {
                    self.remove(&keys::due(at, &due));
                }
                self.set_due(deadline, &due);
                record.timer_at = Some(deadline);
            }
            (None, None) => {}
        }
        if is_caused_now(before, &record) {
            record.trace = self.trace.map(Trace::to_bytes);
        }
        self.note_move(key.subscription, before, Some(&record));
        self.set(keys::consumer(key), record::encode_consumer(&record));
    }

    /// A consumer's entry of the due index is taken out, although the consumer is of no use any
    /// more: whoever takes its place must not rely on that entry.
    pub(crate) fn disarm(&mut self, key: &ConsumerKey) -> Result<(), ReadError> {
        let stored = keys::consumer(key);
        if let Some(before) = self.kept(&stored)?
            && before.timer_at.is_some()
        {
            let after = ConsumerRecord { timer_at: None, ..before.clone() };
            self.note_move(key.subscription, Some(&before), Some(&after));
            self.set(stored, record::encode_consumer(&after));
        }
        Ok(())
    }

    /// Removes these keys; the consumers among them are busy no longer.
    pub(crate) fn remove_all(&mut self, found: &[Bytes]) -> Result<(), ReadError> {
        let consumers: Vec<(SubscriptionId, Bytes)> = found
            .iter()
            .filter_map(|key| Some((keys::parse_consumer(key)?.subscription, key.clone())))
            .collect();
        let wanted: Vec<Bytes> = consumers.iter().map(|(_, key)| key.clone()).collect();
        self.want(&wanted)?;
        for (subscription, key) in consumers {
            let before = self.kept(&key)?;
            self.note_move(subscription, before.as_ref(), None);
        }
        for key in found {
            self.remove(key);
        }
        Ok(())
    }

    fn kept(&mut self, key: &Bytes) -> Result<Option<ConsumerRecord>, ReadError> {
        let Some(value) = self.get(key)? else {
            return Ok(None);
        };
        // What cannot be read is as good as absent: it is only counted here.
        Ok(record::decode_consumer(&value).ok())
    }

    fn note_move(
        &mut self,
        subscription: SubscriptionId,
        before: Option<&ConsumerRecord>,
        after: Option<&ConsumerRecord>,
    ) {
        let activity =
            |it: Option<&ConsumerRecord>| it.map_or(ConsumerActivity::None, ConsumerActivity::of);
        let epoch = |it: Option<&ConsumerRecord>| it.map_or(0, |it| it.consumer.epoch);
        let failed = |it: Option<&ConsumerRecord>| {
            it.is_some_and(|it| it.consumer.phase == Phase::Gone(RemovalReason::Failed))
        };
        let moved = ActivityChange {
            from: activity(before),
            to: activity(after),
            woken: epoch(after) > epoch(before),
            given_up: (failed(after) && !failed(before)).then_some(subscription),
        };
        if moved.from != moved.to || moved.woken || moved.given_up.is_some() {
            self.effect(Effect::CountActivity(moved));
        }
    }
}

/// Whether what happens now causes a wake, the one that begins or the one that events are collected
/// for; events that come later are told along with the one that caused it.
fn is_caused_now(before: Option<&ConsumerRecord>, after: &ConsumerRecord) -> bool {
    let collects =
        |it: &ConsumerRecord| matches!(it.consumer.phase, Phase::Idle { wake_at: Some(_) });
    let woken = before.is_none_or(|it| it.consumer.epoch < after.consumer.epoch);
    (woken || collects(after)) && !before.is_some_and(collects)
}
