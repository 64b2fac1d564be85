//! What the owner of a hook for typed events wishes, as its hook keeps it.
//!
//! A map of 0 pattern, 1 worker, 2 method, 5 binding, 6 secret, sealed. How often and how long a delivery is
//! tried, and whether one comes after another, is in the rules of the hook itself.

use bytes::Bytes;
use minicbor::{Decode, Encode};
use reveille_core::delivery::hook::Hook;
use reveille_core::event::EventPattern;
use reveille_core::event::hook::EventHookSpec;
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
    })
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
}
