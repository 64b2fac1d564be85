//! Deliveries by append: how they are made, and what must be true of the streams that they go to.
//!
//! Every message is of one delivery, appended in the batch in which that is written down, in the order
//! of its lane, and not after its gate has closed. What a stream rejects is not there.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use reveille_core::delivery::hook::{Hook, HookId};
use reveille_core::delivery::id::{DeliveryId, DeliveryNo, EventNo};
use reveille_core::delivery::policy::{Outcome, Refusal};
use reveille_core::delivery::{AttemptRecord, ErrorKind, Phase, Transport};
use reveille_core::stream::{Head, StreamId};
use reveille_core::{ContentType, Tenant};
use reveille_engine::deliveries::append::AppendDelivery;
use reveille_engine::effect::{DeliveryAttempt, EventPayload};
use reveille_engine::streams::read;
use reveille_schema::record::DeliveryRecord;

use super::action::Action;
use super::branches;
use super::face::path_of;
use super::model::Model;
use super::request::ReminderRequest;
use super::snapshot::Snapshot;
use super::{ENDPOINTS, Reminders};
use crate::base::{CheckResult, Origin, violation};

/// A stream as it was last seen.
#[derive(Debug, Clone, PartialEq, Eq)]
struct StreamSeen {
    id: StreamId,
    is_closed: bool,
    is_json: bool,
    content: Vec<u8>,
}

/// The stream of an endpoint.
type Place = (Tenant, u8);

type Streams = BTreeMap<Place, StreamSeen>;

/// What is known of appends.
#[derive(Default)]
pub(super) struct Appends {
    streams: Streams,
    /// All that ever were.
    appended: BTreeSet<DeliveryId>,
    /// Appended to a stream that was made, closed or deleted in the same batch, which may hide it.
    unseen: BTreeSet<DeliveryId>,
    /// The newest of a lane that was appended.
    newest: BTreeMap<(HookId, u64), DeliveryNo>,
}

/// What was decided in the batches that have just become durable.
#[derive(Default)]
pub(super) struct DecidedAppends {
    /// Deliveries that could be appended when that was decided.
    allowed: BTreeSet<DeliveryId>,
    /// Deliveries whose gate had closed when they were to be appended.
    pub(super) closed: BTreeSet<DeliveryId>,
    /// Where each was to be appended: as its hook was when it was put into words.
    places: BTreeMap<DeliveryId, BTreeSet<Place>>,
    /// Streams that clients have made, closed or deleted.
    touched: BTreeSet<Place>,
}

/// A message of a stream.
#[derive(Debug)]
struct Message {
    id: DeliveryId,
    attempt: u32,
    event: Arc<str>,
    text: String,
}

impl Message {
    fn parse(message: &str) -> Option<Message> {
        let mut parts = message.split('|');
        let (id, attempt) = (parts.next()?, parts.next()?.parse().ok()?);
        let (event, text, _signature) = (parts.next()?.into(), parts.next()?.into(), parts.next()?);
        let mut numbers = id.split('.');
        let hook = HookId(numbers.next()?.parse().ok()?);
        let event_no = EventNo(numbers.next()?.parse().ok()?);
        let no = DeliveryNo { event: event_no, round: numbers.next()?.parse().ok()? };
        Some(Message { id: DeliveryId { hook, no }, attempt, event, text })
    }
}

/// The messages of a stored part of a stream: strings without escapes, each followed by a comma.
fn parse_messages(content: &[u8]) -> Option<Vec<Message>> {
    let text = std::str::from_utf8(content).ok()?;
    let inside = text.split('"').skip(1).step_by(2);
    inside.map(Message::parse).collect()
}

impl DecidedAppends {
    /// An action that was decided, after everything that the model knows of.
    pub(super) fn note(&mut self, model: &Model, seen: &Snapshot, action: &Action) {
        match action {
            Action::Append(append) => {
                let AppendDelivery { id, hook, append, .. } = &**append;
                let endpoint = (0..ENDPOINTS).find(|it| path_of(*it) == append.path);
                let place = endpoint.map(|endpoint| (hook.tenant.clone(), endpoint));
                self.places.entry(*id).or_default().extend(place);
                let subject = seen.came.get(&id.no.event).map(|came| came.subject.clone());
                let subject = subject.map(|subject| (hook.tenant.clone(), subject));
                let is_muted = subject.is_some_and(|subject| model.muted.contains(&subject));
                let is_revoked = model.revoked.contains(&(hook.tenant.clone(), hook.name.clone()));
                let is_active = model.hooks.get(&hook.name).is_some_and(|it| it.is_active);
                if is_muted || is_revoked {
                    self.closed.insert(*id);
                } else if is_active {
                    self.allowed.insert(*id);
                }
            }
            Action::Stream { tenant, endpoint, .. } => {
                self.touched.insert((tenant.clone(), *endpoint));
            }
            _ => {}
        }
    }
}

impl Reminders {
    /// The append of an attempt, in the face's words, or why there is none.
    pub(super) fn encode_append(
        &mut self,
        hook: &Arc<Hook>,
        attempt: &DeliveryAttempt,
        event: EventPayload,
    ) -> CheckResult<Result<AppendDelivery, Refusal>> {
        let notification = self.notification(hook, attempt, event)?;
        let target =
            self.with_context(|world, context| world.encoders.append_target(hook, context));
        let target = target.map_err(|error| violation(error.to_string()))?;
        let encoded = target.encode(&notification);
        let said = encoded.as_ref().map(|_| ()).map_err(|refused| refused.why);
        if let Ok(append) = &encoded {
            let body = std::str::from_utf8(&append.body).ok();
            let message = body.and_then(|body| body.strip_prefix('"')?.strip_suffix('"'));
            self.check_words(attempt, &notification.event, message.unwrap_or_default())?;
        }
        let text_len = self.text_of(&notification.event)?.len();
        let path = encoded.as_ref().ok().map(|append| append.path.clone());
        let number = attempt.attempt;
        let is_right = |spec: &super::face::ReminderSpec| {
            let to = path.as_ref().is_none_or(|path| *path == spec.path());
            to && spec.refusal(number, text_len) == said.err()
        };
        if !self.followed_specs(hook, attempt.id).iter().any(is_right) {
            return Err(violation(format!("{attempt:?} is appended to {path:?}: {said:?}")));
        }
        let (id, began_at) = (attempt.id, self.base.now);
        Ok(encoded.map_err(|refused| refused.why).map(|append| AppendDelivery {
            id,
            attempt: number,
            hook: hook.clone(),
            append,
            began_at,
        }))
    }

    /// An append that was put into words is submitted, perhaps twice.
    pub(super) fn submit_append(&mut self, append: AppendDelivery, number: u64) {
        let action = Action::Append(Box::new(append));
        if !self.base.is_healing && self.base.random.one_in(10) {
            self.base.run(Origin::Background, ReminderRequest::new(action.clone(), None));
        }
        self.base.run(Origin::Background, ReminderRequest::new(action, Some(number)));
    }

    fn read_streams(&self) -> CheckResult<Streams> {
        let reader = self.base.reader();
        let mut streams = Streams::new();
        for tenant in &self.tenants {
            for endpoint in 0..ENDPOINTS {
                let head = read::head(&reader, tenant, &path_of(endpoint));
                let head = head.map_err(crate::base::raw_state::unreadable)?;
                if let Some(head) = head {
                    let seen = self.read_stream(tenant, &head)?;
                    streams.insert((tenant.clone(), endpoint), seen);
                }
            }
        }
        Ok(streams)
    }

    fn read_stream(&self, tenant: &Tenant, head: &Head) -> CheckResult<StreamSeen> {
        let content = self.base.engine().read_stream(tenant, head);
        let content = content.map_err(|error| violation(format!("a stream: {error:?}")))?;
        let is_json = head.content_type.same_media(&ContentType::json());
        let (id, is_closed) = (head.id, head.closed.is_some());
        Ok(StreamSeen { id, is_closed, is_json, content })
    }

    /// A crash changes nothing.
    pub(super) fn check_same_streams(&self) -> CheckResult {
        let found = self.read_streams()?;
        if found == self.appends.streams {
            return Ok(());
        }
        Err(violation(format!("streams are {found:?}, and were {:?}", self.appends.streams)))
    }

    /// What was appended, and what was not, from one batch to the next.
    pub(super) fn check_appends(
        &mut self,
        now: &Snapshot,
        decided: &DecidedAppends,
    ) -> CheckResult {
        let streams = self.read_streams()?;
        let mut found = BTreeSet::new();
        let mut newest = self.appends.newest.clone();
        for (place, stream) in &streams {
            let before = self.appends.streams.get(place).filter(|it| it.id == stream.id);
            let old = before.map_or(&[][..], |it| &it.content);
            let Some(new) = stream.content.strip_prefix(old).filter(|_| stream.is_json) else {
                if stream.content.is_empty() {
                    continue;
                }
                return Err(violation(format!("a stream has changed its past: {stream:?}")));
            };
            let messages = parse_messages(new);
            let unreadable = || violation(format!("no messages of reminders: {stream:?}"));
            let mut lanes = BTreeMap::new();
            for message in messages.ok_or_else(unreadable)? {
                self.check_message(now, decided, place, &message)?;
                self.check_order(now, &message, &mut lanes)?;
                found.insert(message.id);
            }
            if before.is_none() && !new.is_empty() && !decided.touched.contains(place) {
                self.base.branches.take(branches::STREAM_MADE);
            }
            for (lane, no) in lanes {
                let newest = newest.entry(lane).or_insert(no);
                *newest = (*newest).max(no);
            }
        }
        self.check_outcomes(now, decided, &streams, &found)?;
        self.appends.newest = newest;
        self.appends.appended.extend(found);
        self.appends.streams = streams;
        Ok(())
    }

    /// A message is of a delivery that ends with it.
    fn check_message(
        &self,
        now: &Snapshot,
        decided: &DecidedAppends,
        place: &Place,
        message: &Message,
    ) -> CheckResult {
        let wrong = |what: &str| Err(violation(format!("{message:?} {what}")));
        let id = message.id;
        if self.appends.appended.contains(&id) {
            return wrong("is appended twice");
        }
        if !decided.allowed.contains(&id) {
            return wrong("is appended although its gate is closed, or its hook is not active");
        }
        if self.text_of(&message.event)? != message.text {
            return wrong("says something else");
        }
        // Its hook may have ended in the same batch.
        let Some(hook) = now.hooks.get(&id.hook) else { return Ok(()) };
        let Some(record) = now.deliveries.get(&id) else { return wrong("is of no delivery") };
        let was = self.seen.deliveries.get(&id);
        if was.is_some_and(|it| it.delivery.ended_at().is_some()) {
            return wrong("is of a delivery that had ended");
        }
        let last = record.delivery.attempts.last();
        let is_told = |it: &AttemptRecord| it.number == message.attempt && it.error.is_none();
        let is_delivered = matches!(record.delivery.phase, Phase::Delivered { .. });
        if !is_delivered || !last.is_some_and(is_told) {
            return wrong("is not written down as delivered");
        }
        if !decided.places.get(&id).is_some_and(|places| places.contains(place)) {
            return wrong("is in another stream than it was put into words for");
        }
        if hook.tenant != place.0 || hook.policy.transport != Transport::Append {
            return wrong("is of another tenant, or of a hook that is called");
        }
        Ok(())
    }

    /// A message comes after those of its lane.
    fn check_order(
        &self,
        now: &Snapshot,
        message: &Message,
        lanes: &mut BTreeMap<(HookId, u64), DeliveryNo>,
    ) -> CheckResult {
        let lane = now.deliveries.get(&message.id).and_then(|it| it.lane);
        let Some(lane) = lane.filter(|_| message.id.no.round == 0) else { return Ok(()) };
        let lane = (message.id.hook, lane);
        let before = self.appends.newest.get(&lane).max(lanes.get(&lane));
        if let Some(before) = before.filter(|before| **before >= message.id.no) {
            return Err(violation(format!("{message:?} comes after {before:?} of its lane")));
        }
        lanes.insert(lane, message.id.no);
        Ok(())
    }

    /// Whatever is written down as delivered was appended, and what is written down as rejected had a
    /// stream to reject it.
    fn check_outcomes(
        &mut self,
        now: &Snapshot,
        decided: &DecidedAppends,
        streams: &Streams,
        found: &BTreeSet<DeliveryId>,
    ) -> CheckResult {
        let mut unseen = Vec::new();
        for (id, record) in &now.deliveries {
            let Some(hook) = now.hooks.get(&id.hook) else { continue };
            let before = self.seen.deliveries.get(id);
            let had = before.map_or(0, |it| it.delivery.attempts.len());
            let last = record.delivery.attempts.last();
            let Some(last) = last.filter(|_| record.delivery.attempts.len() > had) else {
                continue;
            };
            if hook.policy.transport != Transport::Append {
                continue;
            }
            let wrong = |what: &str| Err(violation(format!("{id:?} {what}: {record:?}")));
            let places = decided.places.get(id).into_iter().flatten();
            let is_touched = places.clone().any(|place| decided.touched.contains(place));
            let mut seen = places.flat_map(|place| {
                self.appends.streams.get(place).into_iter().chain(streams.get(place))
            });
            match last.kind {
                None if last.error.is_none() && !found.contains(id) => {
                    if !is_touched {
                        return wrong("is delivered, and was not appended");
                    }
                    unseen.push(*id);
                }
                Some(ErrorKind::StreamClosed) if !is_touched && !seen.any(|it| it.is_closed) => {
                    return wrong("found no closed stream");
                }
                Some(ErrorKind::StreamMismatch) if !is_touched && seen.all(|it| it.is_json) => {
                    return wrong("found no stream of another type");
                }
                _ => {}
            }
            if let Some(outcome) = outcome_of(last) {
                let verdict = hook.policy.judge(outcome);
                self.take_outcome(outcome, verdict);
            }
        }
        self.appends.unseen.extend(unseen);
        Ok(())
    }

    pub(super) fn was_appended(&self, id: DeliveryId, record: &DeliveryRecord) -> bool {
        let last = record.delivery.attempts.last();
        let is_silent = last.is_some_and(|it| it.status.is_none() && it.error.is_none());
        is_silent && (self.appends.appended.contains(&id) || self.appends.unseen.contains(&id))
    }
}

/// What an attempt that is an append came to in its step.
fn outcome_of(attempt: &AttemptRecord) -> Option<Outcome> {
    match attempt.kind {
        None if attempt.error.is_none() => Some(Outcome::Appended),
        Some(kind @ (ErrorKind::StreamClosed | ErrorKind::StreamMismatch)) => {
            Some(Outcome::Failed(kind))
        }
        _ => None,
    }
}
