//! Whether a report must be heard: told once more, from what is durable.

use std::collections::BTreeMap;

use reveille_core::consumer::{Dialect, Link, Phase, WakeId};
use reveille_core::stream::{Head, StreamId};
use reveille_core::{Offset, StreamPath};
use reveille_engine::command::callback::Report;
use reveille_engine::command::lease::LeaseRequest;
use reveille_engine::command::{Answer, Command};
use reveille_engine::effect::WakeAttempt;
use reveille_engine::partition::Outcome;
use reveille_schema::keys::ConsumerKey;

use super::errand::Errand;
use super::world::Wakes;
use crate::server::Server;
use crate::world::{Checked, violated};

/// What must become of a command.
#[derive(Debug, Clone, Default)]
pub(crate) struct Verdict {
    /// It must be refused, because of this.
    pub(crate) refuse: Option<&'static str>,
    /// It must be accepted, or not: everything that it depends on was durable.
    pub(crate) exactly: Option<bool>,
    /// Nothing may follow from it: it answers wakes that are over.
    pub(crate) silent: bool,
    /// The streams that were at the paths it appends to.
    pub(crate) streams: Vec<Option<StreamId>>,
    /// The streams that were there at all.
    pub(crate) heads: BTreeMap<StreamPath, StreamId>,
}

fn must_refuse(why: &'static str) -> Verdict {
    Verdict { refuse: Some(why), ..Verdict::default() }
}

impl Wakes {
    /// What must become of a command that is decided now; `idle` if nothing is decided that is
    /// not durable.
    pub(crate) fn judge(&self, command: &Command, idle: bool) -> Verdict {
        let mut verdict = match command {
            Command::Report(report) => self.judge_report(report),
            Command::Lease { name, request, .. } => self.judge_lease(name, request),
            Command::RecordWakeOutcomes(all) => {
                let over = all.iter().all(|ended| self.is_over(&ended.told));
                Verdict { silent: idle && over, ..Verdict::default() }
            }
            _ => Verdict::default(),
        };
        if !idle {
            verdict.exactly = None;
        }
        if matches!(command, Command::Report(_)) {
            let heads = self.seen.streams.iter();
            verdict.heads = heads.map(|(path, head)| (path.clone(), head.id)).collect();
        }
        verdict
    }

    /// The outcome is as it must be, and what was promised is durable.
    pub(crate) fn check_verdict(&self, errand: &Errand, outcome: &Outcome) -> Checked {
        let command = &errand.command;
        if let Some(why) = errand.verdict.refuse
            && outcome.is_ok()
        {
            return Err(violated(format!("{why}: {command:?} was heard: {outcome:?}")));
        }
        if errand.verdict.exactly.is_some_and(|expected| expected != outcome.is_ok()) {
            return Err(violated(format!("{command:?} came to {outcome:?}")));
        }
        let (Command::Report(report), Ok(Answer::Reported(standing))) = (command, outcome) else {
            return Ok(());
        };
        // Answered means durable.
        let key = &report.consumer;
        let Some(record) = self.seen.consumers.get(key) else {
            return Ok(());
        };
        if record.consumer.epoch < standing.epoch {
            return Err(violated(format!("{key:?} was told of an epoch that is not durable")));
        }
        if record.primary != Some(StreamId(report.claims.stream)) {
            return Ok(());
        }
        for (path, acked) in &standing.streams {
            let link = record.consumer.links.iter().find(|link| link.path == *path);
            let before = errand.verdict.heads.get(path);
            let same = |link: &&Link| link.stream.as_ref() == before && before.is_some();
            if link.filter(same).is_some_and(|link| link.acked < *acked) {
                return Err(violated(format!("{key:?} was told {acked:?}, durable is {link:?}")));
            }
        }
        Ok(())
    }

    /// The stream at a path, if it is alive for whoever asks now.
    fn living(&self, path: &StreamPath) -> Option<&Head> {
        let head = self.seen.streams.get(path)?;
        let expires_at = self.life().shared.access_times.expires_at(head);
        (!head.soft_deleted && self.base.now < expires_at).then_some(head)
    }

    /// Whether an answer comes after its wake, to a consumer whose streams are all there.
    fn is_over(&self, told: &WakeAttempt) -> bool {
        let alive = |path: &StreamPath, id: Option<StreamId>| {
            let head = self.seen.streams.get(path);
            let ended = head.is_some() && self.living(path).is_none();
            !ended && id.is_none_or(|id| head.is_some_and(|head| head.id == id))
        };
        let record = self.seen.consumers.get(&told.consumer);
        let path = told.consumer.path.as_ref();
        record.zip(path).is_some_and(|(record, path)| {
            let links = &record.consumer.links;
            told.epoch < record.consumer.epoch
                && alive(path, record.primary)
                && links.iter().all(|link| alive(&link.path, link.stream))
        })
    }

    fn judge_report(&self, report: &Report) -> Verdict {
        let key = &report.consumer;
        if self.history.deleted.contains(&key.subscription) {
            return must_refuse("S7");
        }
        let record = self.seen.consumers.get(key);
        if record.is_some_and(|it| report.epoch < it.consumer.epoch) {
            return Verdict { exactly: Some(false), ..must_refuse("S6") };
        }
        let admitted = self.admits(report);
        let exactly = match admitted {
            true if !report.appends.is_empty() => None,
            admitted => Some(admitted),
        };
        Verdict { exactly, ..Verdict::default() }
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

    fn judge_lease(&self, name: &str, request: &LeaseRequest) -> Verdict {
        let Some(subscription) = self.seen.named(Dialect::Leases, name) else {
            return Verdict { exactly: Some(false), ..Verdict::default() };
        };
        let key = ConsumerKey { subscription: subscription.id, path: None };
        let phase = self.seen.consumers.get(&key).map(|it| it.consumer.phase.clone());
        let (claims, generation, wake_id, acks) = match request {
            LeaseRequest::Claim { .. } => {
                let work = match phase {
                    Some(Phase::Waking { .. }) => true,
                    Some(Phase::Idle { .. }) => {
                        return Verdict::default();
                    }
                    _ => false,
                };
                return Verdict { exactly: Some(work), ..Verdict::default() };
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
            return Verdict { exactly: Some(false), ..must_refuse("S6") };
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
        Verdict { exactly, ..Verdict::default() }
    }
}
