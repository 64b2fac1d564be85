//! Whether a report must be heard: told once more, from what is durable.

use std::collections::BTreeMap;

use reveille_core::consumer::{ClaimedWake, Dialect, Link, Phase, WakeId};
use reveille_core::stream::{Head, StreamId};
use reveille_core::token::Claims;
use reveille_core::{Millis, Offset, StreamPath};
use reveille_schema::keys::ConsumerKey;

use super::Wakes;
use super::action::{Action, TokenAction, WakeAnswer, WakeResult};
use super::engine::{self, ApplyCallback, ReleaseLease, RenewLease, WakeAttempt};
use crate::base::{CheckResult, violation};

/// What must become of an action.
#[derive(Debug, Clone, Default)]
pub(super) struct Expectation {
    /// It must be refused, because of this.
    pub(super) refuse: Option<&'static str>,
    /// It must be accepted, or not: everything that it depends on was durable.
    pub(super) exactly: Option<bool>,
    /// Nothing may follow from it: it answers wakes that are over.
    pub(super) is_silent: bool,
    /// The streams that were at the paths it appends to.
    pub(super) targets: Vec<Option<StreamId>>,
    /// The streams that were there at all.
    pub(super) heads: BTreeMap<StreamPath, StreamId>,
}

/// By what right somebody speaks for a lease.
struct LeaseSpeaker<'a> {
    claims: &'a Claims,
    generation: u64,
    wake_id: ClaimedWake,
}

fn must_refuse(why: &'static str) -> Expectation {
    Expectation { refuse: Some(why), ..Expectation::default() }
}

impl Wakes {
    /// What must become of an action that was decided at this time; `was_idle` if everything that
    /// was decided before is durable.
    pub(super) fn expect(&self, asked: &TokenAction, now: Millis, was_idle: bool) -> Expectation {
        let mut expectation = match &asked.action {
            Action::Callback(callback) => self.expect_callback(callback, now),
            Action::Claim { name, .. } => self.expect_claim(name),
            Action::Renew(renew) => {
                let RenewLease { claims, generation, wake_id, acks, .. } = renew;
                let speaker = LeaseSpeaker { claims, generation: *generation, wake_id: *wake_id };
                self.expect_lease(&speaker, acks.len(), false)
            }
            Action::Release(release) => {
                let ReleaseLease { claims, generation, wake_id } = release;
                let speaker = LeaseSpeaker { claims, generation: *generation, wake_id: *wake_id };
                self.expect_lease(&speaker, 0, true)
            }
            Action::RecordOutcomes(outcomes) => {
                let over = outcomes.iter().all(|outcome| self.is_over(&outcome.attempt, now));
                Expectation { is_silent: was_idle && over, ..Expectation::default() }
            }
            _ => Expectation::default(),
        };
        if !was_idle {
            expectation.exactly = None;
        }
        if matches!(asked.action, Action::Callback(_)) {
            let heads = self.seen.streams.iter();
            expectation.heads = heads.map(|(path, head)| (path.clone(), head.id)).collect();
        }
        let targets = asked.tokens.iter().map(|(path, _)| self.seen.streams.get(path));
        expectation.targets = targets.map(|head| head.map(|head| head.id)).collect();
        expectation
    }

    /// The outcome is as it must be, and what was promised is durable.
    pub(super) fn check_expectation(
        &self,
        action: &Action,
        expectation: &Expectation,
        outcome: &WakeResult,
    ) -> CheckResult {
        if let Some(why) = expectation.refuse
            && outcome.is_ok()
        {
            return Err(violation(format!("{why}: {action:?} was heard: {outcome:?}")));
        }
        if expectation.exactly.is_some_and(|expected| expected != outcome.is_ok()) {
            return Err(violation(format!("{action:?} came to {outcome:?}")));
        }
        let (Action::Callback(callback), Ok(WakeAnswer::Heard(receipt))) = (action, outcome) else {
            return Ok(());
        };
        // Answered means durable.
        let key = &callback.consumer;
        let Some(record) = self.seen.consumers.get(key) else {
            return Ok(());
        };
        if record.consumer.epoch < receipt.epoch {
            return Err(violation(format!("{key:?} was told of an epoch that is not durable")));
        }
        if record.primary != Some(StreamId(callback.claims.stream)) {
            return Ok(());
        }
        for (path, acked) in &receipt.streams {
            let link = record.consumer.links.iter().find(|link| link.path == *path);
            let before = expectation.heads.get(path);
            let same = |link: &&Link| link.stream.as_ref() == before && before.is_some();
            if link.filter(same).is_some_and(|link| link.acked < *acked) {
                return Err(violation(format!("{key:?} was told {acked:?}, durable is {link:?}")));
            }
        }
        Ok(())
    }

    /// The stream at a path, if it is alive for whoever asks at this time.
    fn living(&self, path: &StreamPath, now: Millis) -> Option<&Head> {
        let head = self.seen.streams.get(path)?;
        let expires_at = engine::expires_at(self.base.engine(), head);
        (!head.soft_deleted && now < expires_at).then_some(head)
    }

    /// Whether an answer comes after its wake, to a consumer whose streams are all there.
    fn is_over(&self, attempt: &WakeAttempt, now: Millis) -> bool {
        let alive = |path: &StreamPath, id: Option<StreamId>| {
            let head = self.seen.streams.get(path);
            let ended = head.is_some() && self.living(path, now).is_none();
            !ended && id.is_none_or(|id| head.is_some_and(|head| head.id == id))
        };
        let record = self.seen.consumers.get(&attempt.consumer);
        let path = attempt.consumer.path.as_ref();
        record.zip(path).is_some_and(|(record, path)| {
            let links = &record.consumer.links;
            attempt.epoch < record.consumer.epoch
                && alive(path, record.primary)
                && links.iter().all(|link| alive(&link.path, link.stream))
        })
    }

    fn expect_callback(&self, callback: &ApplyCallback, now: Millis) -> Expectation {
        let (key, body) = (&callback.consumer, &callback.body);
        if self.history.deleted.contains(&key.subscription) {
            return must_refuse("S7");
        }
        let record = self.seen.consumers.get(key);
        if record.is_some_and(|it| body.epoch < it.consumer.epoch) {
            return Expectation { exactly: Some(false), ..must_refuse("S6") };
        }
        let admitted = self.admits(callback, now);
        let exactly = match admitted {
            true if !body.appends.is_empty() => None,
            admitted => Some(admitted),
        };
        Expectation { exactly, ..Expectation::default() }
    }

    /// Whether a callback is good, appends aside.
    fn admits(&self, callback: &ApplyCallback, now: Millis) -> bool {
        let ApplyCallback { claims, consumer: key, body, .. } = callback;
        let Some(record) = self.seen.consumers.get(key) else {
            return false;
        };
        let head = key.path.as_ref().and_then(|path| self.living(path, now));
        let incarnation = head.map(|head| head.id);
        let consumer = &record.consumer;
        let wake = match (body.wake_id, consumer.wake_id) {
            (_, None) | (Some(Err(())), _) => false,
            (None, _) => true,
            (Some(Ok(claimed)), Some(wake)) => claimed == wake,
        };
        let entitled = self.seen.subscriptions.contains_key(&key.subscription)
            && incarnation.is_some()
            && incarnation == record.primary
            && claims.stream == incarnation.map_or(0, |id| id.0)
            && now < claims.expires_at
            && body.epoch == consumer.epoch
            && wake
            && !matches!(consumer.phase, Phase::Gone(_));
        entitled && body.acks.iter().all(|ack| self.may_ack(key, &ack.path, ack.offset, now))
    }

    /// Whether an ack is one that the stream can have: what is not followed is not looked at.
    fn may_ack(
        &self,
        key: &ConsumerKey,
        path: &str,
        offset: Option<Option<Offset>>,
        now: Millis,
    ) -> bool {
        let links = &self.seen.consumers[key].consumer.links;
        let Some(link) = links.iter().find(|link| link.path.as_str() == path) else {
            return true;
        };
        let head = self.living(&link.path, now);
        let tail = match (link.stream, head) {
            (Some(id), Some(head)) if id == head.id => Some(head.tail),
            (Some(_), _) => return true,
            (None, head) => head.map(|head| head.tail),
        };
        offset.is_some_and(|to| to <= tail)
    }

    /// Somebody asks for work.
    fn expect_claim(&self, name: &str) -> Expectation {
        let Some(subscription) = self.seen.named(Dialect::Leases, name) else {
            return Expectation { exactly: Some(false), ..Expectation::default() };
        };
        let key = ConsumerKey { subscription: subscription.id, path: None };
        let work = match self.seen.consumers.get(&key).map(|it| &it.consumer.phase) {
            Some(Phase::Waking { .. }) => true,
            Some(Phase::Idle { .. }) => {
                return Expectation::default();
            }
            _ => false,
        };
        Expectation { exactly: Some(work), ..Expectation::default() }
    }

    /// Somebody reports on its work, with so many acks, or gives it back.
    fn expect_lease(&self, speaker: &LeaseSpeaker<'_>, acks: usize, release: bool) -> Expectation {
        let LeaseSpeaker { claims, generation, wake_id } = *speaker;
        let Some(subscription) = self.seen.named(Dialect::Leases, &claims.consumer) else {
            return Expectation { exactly: Some(false), ..Expectation::default() };
        };
        let key = ConsumerKey { subscription: subscription.id, path: None };
        let phase = self.seen.consumers.get(&key).map(|it| it.consumer.phase.clone());
        let current = self.seen.consumers.get(&key).map(|it| &it.consumer);
        let epoch = current.map_or(0, |it| it.epoch);
        if self.history.deleted.iter().any(|id| id.0 == claims.subscription) {
            return must_refuse("S7");
        }
        if generation < epoch {
            return Expectation { exactly: Some(false), ..must_refuse("S6") };
        }
        let at_work = match phase {
            Some(Phase::Live { .. }) => true,
            Some(Phase::Waking { .. }) => !release,
            _ => false,
        };
        let wake: Option<WakeId> = current.and_then(|it| it.wake_id);
        let good = at_work
            && claims.subscription == subscription.id.0
            && claims.epoch == generation
            && generation == epoch
            && wake_id.is_ok_and(|claimed| Some(claimed) == wake);
        let exactly = if good && acks > 0 { None } else { Some(good) };
        Expectation { exactly, ..Expectation::default() }
    }
}
