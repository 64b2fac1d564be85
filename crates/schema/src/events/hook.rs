//! What the owner of a hook for typed events wishes, as its hook keeps it.
//!
//! A map of 0 pattern, 1 worker, 2 method, 5 binding, 6 secret, sealed, 7 the secret before it, sealed,
//! 8 until when that is valid, ms, 9 the first event that the pattern is for, 10 patterns before it,
//! oldest first, each `[pattern, first event that it is not for]`. How often and how long a delivery
//! is tried, how much is sent at once, and whether one comes after another, is in the rules of the hook
//! itself.

use bytes::Bytes;
use minicbor::{Decode, Encode};
use reveille_core::Millis;
use reveille_core::delivery::hook::Hook;
use reveille_core::delivery::id::EventNo;
use reveille_core::event::EventPattern;
use reveille_core::event::hook::{EventHookSpec, FormerPattern, FormerSpec, Retry};
use reveille_core::event::worker::{RpcMethod, WorkerId};

use crate::codec::{self, RecordError};

/// The spec of a hook, but for what is in its policy.
pub fn encode_spec(spec: &EventHookSpec) -> Bytes {
    let fields = SpecFields {
        pattern: spec.pattern.as_str(),
        worker: spec.worker.as_str(),
        method: spec.method.as_str(),
        binding: spec.binding.as_deref(),
        secret: spec.secret.as_deref(),
        former_secret: spec.former.secret.as_ref().map(|(secret, _)| &**secret),
        former_secret_until: spec.former.secret.as_ref().map(|(_, until)| until.0),
        pattern_since: spec.former.pattern_since.map(|since| since.0),
        former_patterns: former_patterns(spec),
    };
    codec::write(96, &fields)
}

/// What the owner of a hook wishes; the hook is one for typed events.
pub fn decode_spec(hook: &Hook) -> Result<EventHookSpec, RecordError> {
    let wrong = |why| RecordError::new("event hook", why);
    let fields: SpecFields<'_> =
        minicbor::decode(&hook.spec).map_err(|why| RecordError::new("event hook", why))?;
    Ok(EventHookSpec {
        pattern: EventPattern::parse(fields.pattern).map_err(|_| wrong("no pattern"))?,
        worker: WorkerId::parse(fields.worker).map_err(|_| wrong("no worker"))?,
        binding: fields.binding.map(Into::into),
        method: RpcMethod::parse(fields.method).map_err(|_| wrong("no method"))?,
        max_retries: hook.policy.attempts,
        timeout_ms: hook.policy.timeout_ms,
        secret: fields.secret.map(Into::into),
        ordered: hook.is_ordered(),
        retry: Retry {
            initial_ms: hook.policy.backoff.base_ms,
            max_ms: hook.policy.backoff.cap_ms,
            give_up_after_ms: hook.policy.give_up_after_ms,
        },
        limits: hook.policy.limits,
        former: FormerSpec {
            secret: fields
                .former_secret
                .zip(fields.former_secret_until)
                .map(|(secret, until)| (secret.into(), Millis(until))),
            pattern_since: fields.pattern_since.map(EventNo),
            patterns: decode_former_patterns(fields.former_patterns)?,
        },
    })
}

fn former_patterns(spec: &EventHookSpec) -> Option<Vec<FormerPatternFields<'_>>> {
    let patterns = &spec.former.patterns;
    let all = patterns.iter().map(|it| FormerPatternFields(it.pattern.as_str(), it.until.0));
    (!patterns.is_empty()).then(|| all.collect())
}

fn decode_former_patterns(
    fields: Option<Vec<FormerPatternFields<'_>>>,
) -> Result<Vec<FormerPattern>, RecordError> {
    let decode = |FormerPatternFields(pattern, until): FormerPatternFields<'_>| {
        let pattern = EventPattern::parse(pattern);
        let pattern = pattern.map_err(|_| RecordError::new("event hook", "no former pattern"))?;
        Ok(FormerPattern { pattern, until: EventNo(until) })
    };
    fields.unwrap_or_default().into_iter().map(decode).collect()
}

#[derive(Encode, Decode)]
#[cbor(map)]
struct SpecFields<'a> {
    #[n(0)]
    pattern: &'a str,
    #[n(1)]
    worker: &'a str,
    #[n(2)]
    method: &'a str,
    #[n(5)]
    binding: Option<&'a str>,
    #[n(6)]
    secret: Option<&'a str>,
    #[n(7)]
    former_secret: Option<&'a str>,
    #[n(8)]
    former_secret_until: Option<u64>,
    #[n(9)]
    pattern_since: Option<u64>,
    #[b(10)]
    former_patterns: Option<Vec<FormerPatternFields<'a>>>,
}

/// The pattern, and the first event that it is not for.
#[derive(Encode, Decode)]
struct FormerPatternFields<'a>(#[b(0)] &'a str, #[n(1)] u64);
