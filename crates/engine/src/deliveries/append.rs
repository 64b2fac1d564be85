//! Deliveries by append: an attempt that is a command of the partition. It asks the gate, appends and
//! writes down what came of that in one step, so that nothing is appended twice and nothing is lost.
//!
//! ```text
//! gate ─▶ payload ─▶ encoder ─▶ AppendDelivery ─▶ is it leased? ─▶ is it owed? ─▶ the stream's law
//!   outside of the step          in the step        no: nothing      no: it ends     appended, or why not
//! ```

use std::sync::Arc;

use reveille_core::Millis;
use reveille_core::delivery::hook::Hook;
use reveille_core::delivery::id::DeliveryId;
use reveille_core::delivery::policy::{Outcome, Refusal};
use reveille_core::delivery::{AttemptRecord, ErrorKind, Input, Verdict};
use reveille_core::stream::append::{Append, AppendReceipt, append};
use reveille_core::stream::create::{Create, Creation, create};
use reveille_core::stream::{Body, Rejected, StreamId};
use reveille_kernel::command::{Command, Decision};
use reveille_kernel::error::{Damaged, Error, Never, Unavailable};
use reveille_kernel::outbound::Sender;
use reveille_kernel::txn::ReadError;

use super::delivery::{DeliveryOutcome, DeliveryTxn, advance_from, is_leased};
use super::ended::{self, EndedBy};
use super::face::{DeliveryFaces, Gate};
use super::index::HookIndex;
use super::send::{
    DeliverySender, end_span, report, secret_missing, tell_operators, unreadable,
    with_target_context,
};
use super::{outcome, source};
use crate::app::{App, Txn};
use crate::effect::Attempt;
use crate::encoder::{
    AppendTarget, DeliveryNotification, EncodedAppend, RefusedDelivery, TargetError,
};
use crate::metrics::DeliveryMetrics;
use crate::outbound::OutboundContext;
use crate::spans::OpenSpan;
use crate::streams::append::append_to;
use crate::streams::create::create_stream;
use crate::streams::txn::StreamTxn;

/// Makes an attempt by appending to a stream of the hook's tenant.
#[derive(Debug, Clone)]
pub struct AppendDelivery {
    pub id: DeliveryId,
    pub attempt: u32,
    /// As the attempt follows it.
    pub hook: Arc<Hook>,
    pub append: EncodedAppend,
    pub began_at: Millis,
}

impl Command<App> for AppendDelivery {
    /// What was written down; `None` if no attempt was made.
    type Answer = Option<DeliveryOutcome>;
    type Rejection = Never;

    fn decide(&self, txn: &mut Txn<'_>) -> Decision<Option<DeliveryOutcome>, Never> {
        let AppendDelivery { id, attempt, .. } = self;
        txn.rests_on_index();
        let Some(hook) = HookIndex::of_txn(txn).get(id.hook) else { return Ok(Ok(None)) };
        let before = txn.delivery(*id)?.filter(|it| is_leased(&it.delivery, *attempt));
        let Some(before) = before else { return Ok(Ok(None)) };
        if !hook.is_sending() {
            advance_from(txn, hook, *id, &before, Input::Unsent { attempt: *attempt })?;
            return Ok(Ok(None));
        }
        let gate = self.ask_gate(txn)?;
        if let Gate::Closed(why) | Gate::Cancelled(why) = gate {
            advance_from(txn, hook, *id, &before, Input::Drop(why))?;
            if matches!(gate, Gate::Cancelled(_)) {
                ended::end_unasked(txn, hook, EndedBy::Gate)?;
            }
            return Ok(Ok(None));
        }
        let rejected = match self.append.body.is_empty() {
            true => Some((ErrorKind::StreamMismatch, "there is nothing to append".to_owned())),
            false => {
                let rejected = append_or_create(txn, hook, &self.append)?.err();
                rejected.map(|it| (ErrorKind::of_append(&it), it.to_string()))
            }
        };
        let outcome = self.outcome(txn.now(), rejected);
        let (attempt, verdict) = (outcome.attempt.clone(), outcome.verdict);
        advance_from(txn, hook, *id, &before, Input::Answered { attempt, verdict })?;
        Ok(Ok(Some(outcome)))
    }

    fn weight(&self) -> usize {
        self.append.body.len() + 1_024
    }

    fn needs_room(&self) -> bool {
        true
    }
}

impl AppendDelivery {
    /// A gate that has closed since the delivery was put into words closes on it still.
    fn ask_gate(&self, txn: &mut Txn<'_>) -> Result<Gate, ReadError> {
        let AppendDelivery { id, hook, .. } = self;
        let face = txn.domains().part::<DeliveryFaces>().get(hook.face)?;
        if !face.has_gate() {
            return Ok(Gate::Open);
        }
        let no = id.no.event;
        let event = source::event_of(txn, hook.face, &hook.tenant, no)?;
        let event = event.ok_or_else(|| Damaged(format!("event {} is gone", no.0)))?;
        let now = txn.now();
        face.gate(txn, hook, &event, now)
    }

    fn outcome(&self, now: Millis, rejected: Option<(ErrorKind, String)>) -> DeliveryOutcome {
        let (outcome, text) = match rejected {
            None => (Outcome::Appended, None),
            Some((kind, text)) => {
                (Outcome::Failed(kind), Some(format!("{}: {text}", self.append.path)))
            }
        };
        outcome_of(&self.hook, (self.id, self.attempt), (self.began_at, now), outcome, text)
    }
}

fn outcome_of(
    hook: &Hook,
    (id, number): (DeliveryId, u32),
    (began_at, now): (Millis, Millis),
    outcome: Outcome,
    error: Option<String>,
) -> DeliveryOutcome {
    let attempt = AttemptRecord {
        error: error.map(|text| outcome::cut(&text, outcome::ERROR_BYTES_MAX)),
        kind: outcome.kind(),
        ..AttemptRecord::new(number, now, now.since(began_at))
    };
    DeliveryOutcome { id, attempt, verdict: hook.policy.judge(outcome) }
}

/// Appends to a stream, which the first append to it makes.
fn append_or_create(
    txn: &mut Txn<'_>,
    hook: &Hook,
    encoded: &EncodedAppend,
) -> Decision<AppendReceipt, Rejected> {
    let EncodedAppend { path, content_type, body } = encoded;
    let content_type = Some(content_type.clone());
    let body = Body::new(body.clone(), content_type.as_ref());
    let request = Append { content_type: content_type.clone(), body, ..Append::default() };
    if txn.live_head(&hook.tenant, path)?.is_none() {
        let new = Create { content_type, ..Create::default() };
        // What would be rejected makes no stream: a rejection changes nothing.
        if let Ok(Creation::New { head, .. }) = create(&new, None, StreamId(0), txn.now())
            && let Err(rejected) = append(&head, None, &request, txn.now())
        {
            return Ok(Err(rejected));
        }
        if let Err(rejected) = create_stream(txn, &hook.tenant, path, &new, None)? {
            return Ok(Err(rejected));
        }
    }
    append_to(txn, &hook.tenant, path, &request, None)
}

/// Why nothing is appended, before the stream is asked.
enum NotAppended {
    Refused(RefusedDelivery),
    /// What is known of the hook cannot be read.
    Damaged(Damaged),
}

/// Makes an attempt by append, and returns the next one to make.
pub(super) async fn attempt(
    sender: &Sender<App>,
    context: &OutboundContext,
    deliveries: &DeliverySender,
    notification: DeliveryNotification,
    attempt: Attempt,
    span: Option<OpenSpan>,
) -> Option<Attempt> {
    let DeliveryNotification { hook, id, attempt: number, now: began_at, .. } = &notification;
    let (id, number, began_at) = (*id, *number, *began_at);
    let end = |outcome: &DeliveryOutcome| {
        if let Some(span) = span {
            end_span(sender, span, hook, outcome);
        }
    };
    let not_made = |outcome, text| {
        let now = sender.clock.now();
        let it = outcome_of(hook, (id, number), (began_at, now), outcome, Some(text));
        tell(sender, context, &notification, &it, None);
        end(&it);
        report(sender, deliveries, it, attempt.clone())
    };
    let append = match encode(context, deliveries, &notification) {
        Ok(append) => append,
        Err(NotAppended::Refused(RefusedDelivery { why, text })) => {
            return not_made(Outcome::Refused(why), text);
        }
        Err(NotAppended::Damaged(error)) => {
            tracing::error!(%error, "an event cannot be delivered");
            let outcome = unreadable(sender, &hook.policy, id, number);
            return report(sender, deliveries, outcome, attempt);
        }
    };
    let path = append.path.clone();
    let command = AppendDelivery { id, attempt: number, hook: hook.clone(), append, began_at };
    match sender.submit(&command).await {
        Ok(made) => {
            // It is written down: whoever is told of it next may go on.
            let mut good = None;
            if let Some(outcome) = made {
                tell(sender, context, &notification, &outcome, Some(path.as_str()));
                end(&outcome);
                let is_good = outcome.verdict == Verdict::Delivered;
                good = is_good.then_some(outcome.attempt.took_ms);
            }
            let next = sender.answered(&attempt, good);
            sender.shared.outbox.ended(&attempt);
            next
        }
        Err(Error::Unavailable(Unavailable::TooLarge)) => {
            let text = "this is more than the server's log takes at once".to_owned();
            not_made(Outcome::Refused(Refusal::PayloadTooLarge), text)
        }
        Err(Error::Damaged(error)) => {
            tracing::error!(%error, path = path.as_str(), "nothing can be appended");
            let outcome = unreadable(sender, &hook.policy, id, number);
            report(sender, deliveries, outcome, attempt)
        }
        // What we run short of is nobody's failure: the attempt is made again when its lease ends.
        Err(Error::Unavailable(error)) => {
            tracing::debug!(%error, path = path.as_str(), "an append waits");
            let next = sender.answered(&attempt, None);
            sender.shared.outbox.ended(&attempt);
            next
        }
        Err(Error::Rejected(never)) => match never {},
    }
}

fn encode(
    context: &OutboundContext,
    deliveries: &DeliverySender,
    notification: &DeliveryNotification,
) -> Result<EncodedAppend, NotAppended> {
    let hook = &notification.hook;
    let find = || -> Result<Arc<dyn AppendTarget>, NotAppended> {
        let encoders = &context.delivery_encoders;
        let target = with_target_context(context, hook, |it| encoders.append_target(hook, it));
        target.map_err(|error| match error {
            TargetError::Secret => NotAppended::Refused(secret_missing()),
            TargetError::Damaged(damaged) => NotAppended::Damaged(damaged),
        })
    };
    let target = deliveries.append_targets.of((hook.id, hook.version), hook, find)?;
    target.encode(notification).map_err(NotAppended::Refused)
}

fn tell(
    sender: &Sender<App>,
    context: &OutboundContext,
    notification: &DeliveryNotification,
    outcome: &DeliveryOutcome,
    path: Option<&str>,
) {
    let DeliveryOutcome { attempt, verdict, .. } = outcome;
    let metrics = sender.shared.domains.part::<DeliveryMetrics>();
    metrics.attempted(*verdict, "refused", attempt.took_ms);
    let whom = || (path.unwrap_or_default().to_owned(), String::new());
    let error = attempt.error.as_deref();
    tell_operators(sender, context, notification, *verdict, error, attempt.took_ms, whom);
}
