//! Whether a report must be heard: told once more, from what is durable.

use std::collections::BTreeMap;

use reveille_core::consumer::{Dialect, Link, Phase, WakeId};
use reveille_core::stream::{Head, StreamId};
use reveille_core::{Offset, StreamPath};
use reveille_schema::keys::ConsumerKey;

use super::Wakes;
use super::action::{Action, TokenAction, WakeAnswer, WakeResult};
use super::engine::{self, LeaseRequest, Report, WakeAttempt};
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

fn must_refuse(why: &'static str) -> Expectation {
    Expectation { refuse: Some(why), ..Expectation::default() }
}

impl Wakes {
    /// What must become of an action that was decided now; `was_idle` if everything that was
    /// decided before is durable.
    pub(super) fn expect(&self, asked: &TokenAction, was_idle: bool) -> Expectation {
        let mut expectation = match &asked.action {
            Action::Report(report) => self.expect_report(report),
            Action::Lease { name, request } => self.expect_lease(name, request),
            Action::RecordOutcomes(outcomes) => {
                let over = outcomes.iter().all(|outcome| self.is_over(&outcome.told));
                Expectation { is_silent: was_idle && over, ..Expectation::default() }
            }
            _ => Expectation::default(),
        };
        if !was_idle {
            expectation.exactly = None;
        }
        if matches!(asked.action, Action::Report(_)) {
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
        let (Action::Report(report), Ok(WakeAnswer::Reported(standing))) = (action, outcome) else {
            return Ok(());
        };
        // Answered means durable.
        let key = &report.consumer;
        let Some(record) = self.seen.consumers.get(key) else {
            return Ok(());
        };
        if record.consumer.epoch < standing.epoch {
            return Err(violation(format!("{key:?} was told of an epoch that is not durable")));
        }
        if record.primary != Some(StreamId(report.claims.stream)) {
            return Ok(());
        }
        for (path, acked) in &standing.streams {
            let link = record.consumer.links.iter().find(|link| link.path == *path);
            let before = expectation.heads.get(path);
            let same = |link: &&Link| link.stream.as_ref() == before && before.is_some();
            if link.filter(same).is_some_and(|link| link.acked < *acked) {
                return Err(violation(format!("{key:?} was told {acked:?}, durable is {link:?}")));
            }
        }
        Ok(())
    }

    /// The stream at a path, if it is alive for whoever asks now.
    fn living(&self, path: &StreamPath) -> Option<&Head> {
        let head = self.seen.streams.get(path)?;
        let expires_at = engine::expires_at(self.base.engine(), head);
        (!head.soft_deleted && self.base.now < expires_at).then_some(head)
    }

    /// Whether an answer comes after its wake, to a consumer whose streams are all there.
    fn is_over(&self, attempt: &WakeAttempt) -> bool {
        let alive = |path: &StreamPath, id: Option<StreamId>| {
            let head = self.seen.streams.get(path);
            let ended = head.is_some() && self.living(path).is_none();
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

    fn expect_report(&self, report: &Report) -> Expectation {
        let key = &report.consumer;
        if self.history.deleted.contains(&key.subscription) {
            return must_refuse("S7");
        }
        let record = self.seen.consumers.get(key);
        if record.is_some_and(|it| report.epoch < it.consumer.epoch) {
            return Expectation { exactly: Some(false), ..must_refuse("S6") };
        }
        let admitted = self.admits(report);
        let exactly = match admitted {
            true if !report.appends.is_empty() => None,
            admitted => Some(admitted),
        };
        Expectation { exactly, ..Expectation::default() }
    }

    /// Whether a callback is good, appends aside.
    fn admits(&self, report: &Report) -> bool {
        let key = &report.consumer;
        let claims = &report.claims;
        let Some(record) = self.seen.consumers.get(key) else {
            return false;
        };
        let head = key.path.as_ref().and_then(|path| self.living(path));
        let incarnation = head.map(|head| head.id);
        let consumer = &record.consumer;
        let wake = match (report.wake_id, consumer.wake_id) {
            (_, None) | (Some(Err(())), _) => false,
            (None, _) => true,
            (Some(Ok(claimed)), Some(wake)) => claimed == wake,
        };
        let entitled = self.seen.subscriptions.contains_key(&key.subscription)
            && incarnation.is_some()
            && incarnation == record.primary
            && claims.stream == incarnation.map_or(0, |id| id.0)
            && self.base.now < claims.expires_at
            && report.epoch == consumer.epoch
            && wake
            && !matches!(consumer.phase, Phase::Gone(_));
        entitled && report.acks.iter().all(|ack| self.may_ack(key, &ack.path, ack.offset))
    }

    /// Whether an ack is one that the stream can have: what is not followed is not looked at.
    fn may_ack(&self, key: &ConsumerKey, path: &str, offset: Option<Option<Offset>>) -> bool {
        let links = &self.seen.consumers[key].consumer.links;
        let Some(link) = links.iter().find(|link| link.path.as_str() == path) else {
            return true;
        };
        let head = self.living(&link.path);
        let tail = match (link.stream, head) {
            (Some(id), Some(head)) if id == head.id => Some(head.tail),
            (Some(_), _) => return true,
            (None, head) => head.map(|head| head.tail),
        };
        offset.is_some_and(|to| to <= tail)
    }

    fn expect_lease(&self, name: &str, request: &LeaseRequest) -> Expectation {
        let Some(subscription) = self.seen.named(Dialect::Leases, name) else {
            return Expectation { exactly: Some(false), ..Expectation::default() };
        };
        let key = ConsumerKey { subscription: subscription.id, path: None };
        let phase = self.seen.consumers.get(&key).map(|it| it.consumer.phase.clone());
        let (claims, generation, wake_id, acks) = match request {
            LeaseRequest::Claim { .. } => {
                let work = match phase {
                    Some(Phase::Waking { .. }) => true,
                    Some(Phase::Idle { .. }) => {
                        return Expectation::default();
                    }
                    _ => false,
                };
                return Expectation { exactly: Some(work), ..Expectation::default() };
            }
            LeaseRequest::Report { claims, generation, wake_id, acks, .. } => {
                (claims, *generation, *wake_id, acks.len())
            }
            LeaseRequest::Release { claims, generation, wake_id } => {
                (claims, *generation, *wake_id, 0)
            }
        };
        let current = self.seen.consumers.get(&key).map(|it| &it.consumer);
        let epoch = current.map_or(0, |it| it.epoch);
        if self.history.deleted.iter().any(|id| id.0 == claims.subscription) {
            return must_refuse("S7");
        }
        if generation < epoch {
            return Expectation { exactly: Some(false), ..must_refuse("S6") };
        }
        let release = matches!(request, LeaseRequest::Release { .. });
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
