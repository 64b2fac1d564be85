//! Why an event was delivered to a hook, or was not, in sentences.

use reveille_core::Millis;
use reveille_core::delivery::{AttemptRecord, DeadReason, DropReason};
use reveille_engine::deliveries::explain::{Absence, Age, LetterEnd, Reason, Rest};
use reveille_engine::deliveries::face::EventMatch;
use reveille_engine::events::delivery_name;
use serde_json::{Value, json};

use crate::Server;
use crate::http::page::Page;

/// What decided: a word for it, whether it is in favor of a delivery, and a sentence.
type Step = (&'static str, bool, String);

/// What a face calls what there is everywhere.
pub(crate) struct Words {
    /// A hook.
    pub(crate) hook: &'static str,
    /// The step in which a hook is for an event, or is not.
    pub(crate) step: &'static str,
    /// That it is.
    pub(crate) matches: &'static str,
}

/// How a time is written.
type Date<'a> = &'a dyn Fn(Millis) -> String;

impl Words {
    /// Puts every step on the page.
    pub(crate) fn write_steps(&self, server: &Server, page: &mut Page, reasons: &[Reason]) {
        let date = |at: Millis| server.engine.date_of(at).to_rfc3339();
        for reason in reasons {
            page.push(&step_json(self.step_of(reason, &date)));
        }
    }

    fn step_of(&self, reason: &Reason, date: Date<'_>) -> Step {
        let hook = self.hook;
        match reason {
            Reason::Active(true) => ("active", true, format!("the {hook} is active")),
            Reason::Active(false) => ("active", false, format!("the {hook} is not active")),
            Reason::Paused => {
                ("paused", true, format!("the {hook} is paused: what is for it waits"))
            }
            Reason::Age(age) => self.age_step(*age),
            Reason::Match(EventMatch::Matches) => (self.step, true, self.matches.into()),
            Reason::Match(EventMatch::Differs(why)) => (self.step, false, why.clone()),
            Reason::Match(EventMatch::Unknown(why)) => (self.step, true, why.clone()),
            Reason::Gate(gate) => ("gate", gate.is_open, gate.text.clone()),
            Reason::Absent(absence) => self.absence_step(*absence),
            Reason::Older(count) => {
                ("delivery", true, format!("{count} deliveries before these are not shown"))
            }
            Reason::Begun { id, at } => {
                let detail = format!("delivery {} began at {}", delivery_name(*id), date(*at));
                ("delivery", true, detail)
            }
            Reason::Attempt(attempt) => attempt_step(attempt),
            Reason::Rest(rest) => self.rest_step(rest, date),
        }
    }

    fn age_step(&self, age: Age) -> Step {
        let hook = self.hook;
        let (ok, detail) = match age {
            Age::HookFirst => (true, format!("the {hook} was there before the event")),
            Age::Backfilled => {
                (true, "the event is older, and was asked for when it was made".into())
            }
            Age::BackfillComing => {
                (true, "the event is older, and its turn comes: it was asked for".into())
            }
            Age::EventFirst => {
                (false, format!("the event is older than the {hook}, and not asked for"))
            }
        };
        ("age", ok, detail)
    }

    fn absence_step(&self, absence: Absence) -> Step {
        let hook = self.hook;
        match absence {
            Absence::FanOut => {
                ("fan-out", true, format!("many {hook}s get this event, and its turn has not come"))
            }
            Absence::CatchingUp => {
                let detail = format!("the {hook} still gets the events that came before this one");
                ("fan-out", true, detail)
            }
            Absence::Inactive => {
                ("fan-out", false, format!("the {hook} was not active when the event came"))
            }
            Absence::Forgotten => {
                let detail = format!(
                    "there is no delivery: the {hook} was not active when the event came, or the \
                     delivery ended so long ago that it was forgotten"
                );
                ("fan-out", false, detail)
            }
        }
    }

    fn rest_step(&self, rest: &Rest, date: Date<'_>) -> Step {
        let hook = self.hook;
        match rest {
            Rest::Queued { head: None } => {
                ("queue", true, "it waits until those before it have ended".into())
            }
            Rest::Queued { head: Some(head) } => {
                let head = delivery_name(*head);
                let detail =
                    format!("it waits until those before it have ended; it is the turn of {head}");
                ("queue", true, detail)
            }
            Rest::Next { attempt, at } => {
                let text = format!("attempt {attempt} is made at {}: each pause is", date(*at));
                (
                    "next",
                    true,
                    format!("{text} twice the last, up to the longest, and a little more"),
                )
            }
            Rest::Waits { attempt, queued } => {
                ("queue", true, format!("attempt {attempt} waits for its turn among {queued}"))
            }
            Rest::Sent { attempt } => ("queue", true, format!("attempt {attempt} is on its way")),
            Rest::Held => ("queue", false, format!("it is held until the {hook} goes on")),
            Rest::Delivered { at } => ("end", true, format!("delivered at {}", date(*at))),
            Rest::Dead { at, why, since } => {
                let then = match since {
                    None => "",
                    Some(LetterEnd::Retried) => "; it was retried since",
                    Some(LetterEnd::Discarded) => "; it was discarded since",
                };
                ("end", false, format!("given up at {}: {}{then}", date(*at), dead_because(*why)))
            }
            Rest::Dropped { at, why } => {
                ("end", false, format!("dropped at {}: {}", date(*at), dropped_because(*why)))
            }
        }
    }
}

fn step_json((step, ok, detail): Step) -> Value {
    json!({ "step": step, "ok": ok, "detail": detail })
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

fn dead_because(why: DeadReason) -> &'static str {
    match why {
        DeadReason::Exhausted => "no attempts left",
        DeadReason::Refused => "that answer is final",
        DeadReason::Poison => "attempts fail at once and all in the same way",
        DeadReason::PayloadTooLarge => "what is to be delivered is too large",
        DeadReason::HeadersTooLarge => "its headers are too large",
        DeadReason::Blocked => "the address may not be called",
        DeadReason::Redirect => "redirects are not followed",
        DeadReason::SecretMissing => "the secret that signs it cannot be opened",
        DeadReason::HookDeleted => "whoever it was for was deleted",
        DeadReason::Corrupt => "the stored event cannot be read",
        DeadReason::Expired => "it was held for too long",
        DeadReason::LoopGuard => "triggers made each other go off, too many in a row",
    }
}

fn dropped_because(why: DropReason) -> &'static str {
    match why {
        DropReason::NotOwed => "it is not owed any more",
        DropReason::Status => "the answer says that it is not wanted",
        DropReason::Cancelled => "whoever it was for wants nothing any more",
    }
}

/// What it all came to, in a word.
pub(crate) fn outcome(reasons: &[Reason]) -> &'static str {
    let says = |reason: &Reason| match reason {
        Reason::Age(Age::BackfillComing) => Some("backfilling"),
        Reason::Age(Age::EventFirst) => Some("not_asked_for"),
        Reason::Match(EventMatch::Differs(_)) => Some("not_matched"),
        Reason::Absent(Absence::FanOut) => Some("fanning_out"),
        Reason::Absent(Absence::CatchingUp) => Some("backfilling"),
        Reason::Absent(Absence::Inactive) => Some("inactive"),
        Reason::Absent(Absence::Forgotten) => Some("no_delivery"),
        Reason::Rest(Rest::Queued { .. } | Rest::Waits { .. } | Rest::Sent { .. }) => {
            Some("under_way")
        }
        Reason::Rest(Rest::Next { .. }) => Some("waiting_for_retry"),
        Reason::Rest(Rest::Held) => Some("held"),
        Reason::Rest(Rest::Delivered { .. }) => Some("delivered"),
        Reason::Rest(Rest::Dead { .. }) => Some("dead"),
        Reason::Rest(Rest::Dropped { .. }) => Some("dropped"),
        _ => None,
    };
    reasons.iter().rev().find_map(says).unwrap_or("no_delivery")
}
