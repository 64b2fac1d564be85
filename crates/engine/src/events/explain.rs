//! Why events of a type are for a hook, or are not.

use reveille_core::delivery::hook::Hook;
use reveille_core::delivery::id::EventNo;
use reveille_core::event::EventType;
use reveille_kernel::error::Damaged;
use reveille_schema::record::EventRecord;

use super::face::kind_of;
use super::hook::{EventHook, read_spec};
use crate::deliveries::explain::Reason;
use crate::deliveries::face::EventMatch;
use crate::engine::Engine;

impl Engine {
    /// What decides about events of this type that come now.
    pub fn explain_type(&self, hook: &EventHook, kind: &EventType) -> Vec<Reason> {
        let EventHook { hook, spec } = hook;
        let mut reasons = vec![Reason::Active(hook.is_active())];
        reasons.extend(hook.paused.then_some(Reason::Paused));
        let matched = spec.pattern.explain(kind);
        reasons
            .push(Reason::Match(matched.map_or(EventMatch::Matches, |mismatch| {
                EventMatch::Differs(mismatch.to_string())
            })));
        reasons
    }
}

/// Whether the pattern that a hook had when an event came matches its type.
pub(super) fn explain_match(
    hook: &Hook,
    no: EventNo,
    event: &EventRecord,
) -> Result<EventMatch, Damaged> {
    let spec = read_spec(hook)?;
    let Some(pattern) = spec.pattern_at(no) else {
        let why = "the pattern was another one when the event came";
        return Ok(EventMatch::Unknown(why.to_owned()));
    };
    let Some(mismatch) = pattern.explain(&kind_of(event)?) else {
        return Ok(EventMatch::Matches);
    };
    let mut why = mismatch.to_string();
    if *pattern != spec.pattern {
        why.push_str(&format!("; the pattern was `{}` when the event came", pattern.as_str()));
    }
    Ok(EventMatch::Differs(why))
}
