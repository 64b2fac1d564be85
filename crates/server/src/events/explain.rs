//! Why an event was delivered to a subscription, or was not, in sentences.

use http::StatusCode;
use reveille_core::Millis;
use reveille_core::delivery::AttemptRecord;
use reveille_engine::deliveries::DeliveryRejection;
use reveille_engine::events::delivery_name;
use reveille_engine::events::explain::{Absence, Age, Reason, Rest};
use serde_json::{Value, json};

use super::Scope;
use super::error::Error;
use super::show::{find_hook, parse_event_type};
use crate::Server;
use crate::http::page::Page;
use crate::http::query::Query;
use crate::http::reply::Reply;

/// What decided: a word for it, whether it is in favor of a delivery, and a sentence.
type Step = (&'static str, bool, String);

/// `GET /subscriptions/{id}/explain?eventId=ID`, or `?eventType=TYPE` for events that may come.
pub(super) async fn answer(
    server: &Server,
    scope: &Scope,
    id: &str,
    query: Option<&str>,
) -> Result<Reply, Error> {
    let query = Query::parse(query);
    let mut page = Page::begin(&server.engine, &scope.tenant, "steps").await?;
    let hook = find_hook(server, scope, id)?;
    let (reasons, outcome) = match (query.get("eventId")?, query.get("eventType")?) {
        (Some(id), None) => {
            let event = server.engine.find_event(&hook.hook.tenant, id)?;
            let (no, event) = event.ok_or(DeliveryRejection::NoEvent)?;
            let reasons = server.engine.explain_event(&hook, no, &event)?;
            let outcome = outcome(&reasons);
            (reasons, outcome)
        }
        (None, Some(kind)) => {
            let reasons = server.engine.explain_type(&hook, &parse_event_type(kind)?);
            let outcome = prospect(&reasons);
            (reasons, outcome)
        }
        _ => {
            let text = "Missing required query param: eventId, or eventType instead of it";
            return Err(Error::bad_request("MISSING_PARAM", text));
        }
    };
    let date = |at: Millis| server.engine.date_of(at).to_rfc3339();
    for reason in &reasons {
        page.push(&step_json(step(reason, &date)));
    }
    let fields = [("subscriptionId", id), ("outcome", outcome)];
    let fields = fields.into_iter().map(|(name, value)| (name.to_owned(), value.into())).collect();
    Ok(page.finish(StatusCode::OK, &fields))
}

fn step_json((step, ok, detail): Step) -> Value {
    json!({ "step": step, "ok": ok, "detail": detail })
}

/// How a time is written.
type Date<'a> = &'a dyn Fn(Millis) -> String;

fn step(reason: &Reason, date: Date<'_>) -> Step {
    match reason {
        Reason::Active(true) => ("active", true, "the subscription is active".into()),
        Reason::Active(false) => ("active", false, "the subscription is not active".into()),
        Reason::Paused => {
            ("paused", true, "the subscription is paused: what is for it waits".into())
        }
        Reason::Age(age) => age_step(*age),
        Reason::Pattern(None) => ("pattern", true, "the pattern matches the type".into()),
        Reason::Pattern(Some(mismatch)) => ("pattern", false, mismatch.to_string()),
        Reason::OtherPattern => {
            ("pattern", true, "the pattern was another one when the event came".into())
        }
        Reason::Absent(absence) => absence_step(*absence),
        Reason::Older(count) => {
            ("delivery", true, format!("{count} deliveries before these are not shown"))
        }
        Reason::Begun { id, at } => {
            let detail = format!("delivery {} began at {}", delivery_name(*id), date(*at));
            ("delivery", true, detail)
        }
        Reason::Attempt(attempt) => attempt_step(attempt),
        Reason::Rest(rest) => rest_step(rest, date),
    }
}

fn age_step(age: Age) -> Step {
    let (ok, detail) = match age {
        Age::HookFirst => (true, "the subscription was there before the event"),
        Age::Backfilled => (true, "the event is older, and was asked for when it was made"),
        Age::BackfillComing => (true, "the event is older, and its turn comes: it was asked for"),
        Age::EventFirst => (false, "the event is older than the subscription, and not asked for"),
    };
    ("age", ok, detail.into())
}

fn absence_step(absence: Absence) -> Step {
    match absence {
        Absence::FanOut => {
            ("fan-out", true, "many subscriptions get this event, and its turn has not come".into())
        }
        Absence::Inactive => {
            ("fan-out", false, "the subscription was not active when the event came".into())
        }
        Absence::Forgotten => {
            let detail = "there is no delivery: the subscription was not active when the event \
                          came, or the delivery ended so long ago that it was forgotten";
            ("fan-out", false, detail.into())
        }
    }
}

fn attempt_step(attempt: &AttemptRecord) -> Step {
    let AttemptRecord { number, took_ms, status, error, .. } = attempt;
    let answer = match (error, status) {
        (Some(error), _) => format!("failed: {error}"),
        (None, Some(status)) => format!("was answered {status}"),
        (None, None) => "was accepted".into(),
    };
    ("attempt", error.is_none(), format!("attempt {number} {answer}, after {took_ms} ms"))
}

fn rest_step(rest: &Rest, date: Date<'_>) -> Step {
    let (step, ok, detail) = match rest {
        Rest::Queued => ("queue", true, "it waits until those before it have ended".into()),
        Rest::Next { attempt, at } => {
            let text = format!("attempt {attempt} is made at {}: each pause is", date(*at));
            ("next", true, format!("{text} twice the last, up to the longest, and a little more"))
        }
        Rest::Waits { attempt, queued } => {
            ("queue", true, format!("attempt {attempt} waits for its turn among {queued}"))
        }
        Rest::Sent { attempt } => ("queue", true, format!("attempt {attempt} is on its way")),
        Rest::Held => ("queue", false, "it is held until the subscription goes on".into()),
        Rest::Delivered { at } => ("end", true, format!("delivered at {}", date(*at))),
        Rest::Dead { at, retried, .. } => {
            let then = if *retried { "; it was retried since" } else { "" };
            ("end", false, format!("given up at {}: no attempts left{then}", date(*at)))
        }
        Rest::Dropped { at, .. } => ("end", false, format!("dropped at {}", date(*at))),
    };
    (step, ok, detail)
}

/// What it all came to, in a word.
fn outcome(reasons: &[Reason]) -> &'static str {
    let says = |reason: &Reason| match reason {
        Reason::Age(Age::BackfillComing) => Some("backfilling"),
        Reason::Age(Age::EventFirst) => Some("not_asked_for"),
        Reason::Pattern(Some(_)) => Some("not_matched"),
        Reason::Absent(Absence::FanOut) => Some("fanning_out"),
        Reason::Absent(Absence::Inactive) => Some("inactive"),
        Reason::Absent(Absence::Forgotten) => Some("no_delivery"),
        Reason::Rest(Rest::Queued | Rest::Waits { .. } | Rest::Sent { .. }) => Some("under_way"),
        Reason::Rest(Rest::Next { .. }) => Some("waiting_for_retry"),
        Reason::Rest(Rest::Held) => Some("held"),
        Reason::Rest(Rest::Delivered { .. }) => Some("delivered"),
        Reason::Rest(Rest::Dead { .. }) => Some("dead"),
        Reason::Rest(Rest::Dropped { .. }) => Some("dropped"),
        _ => None,
    };
    reasons.iter().rev().find_map(says).unwrap_or("no_delivery")
}

/// What would become of an event that comes now.
fn prospect(reasons: &[Reason]) -> &'static str {
    if reasons.iter().any(|reason| matches!(reason, Reason::Pattern(Some(_)))) {
        "not_matched"
    } else if reasons.contains(&Reason::Active(false)) {
        "inactive"
    } else if reasons.contains(&Reason::Paused) {
        "would_be_held"
    } else {
        "would_be_delivered"
    }
}
