//! A hook.
//!
//! | field | type | what |
//! |---|---|---|
//! | 0 | integer | id, of the same sequence as those of streams, subscriptions and events |
//! | 1 | text | tenant |
//! | 2 | text | name |
//! | 3, 4 | integer | created at; updated at; in ms |
//! | 5 | array | spans of event numbers in which it was active, each `[from]` or `[from, to]` |
//! | 6 | integer | the next event from before its time |
//! | 7 | map | what its owner wishes: 0 pattern, 1 worker, 2 method, 3 attempts, 4 timeout in ms, 5 binding, 6 secret, 7 whether events are delivered one after another |

use bytes::Bytes;
use minicbor::{Decode, Encode};
use reveille_core::delivery::hook::{ActiveSpan, Backfill, EventHookSpec, Hook, HookId, HookSpec};
use reveille_core::delivery::id::EventNo;
use reveille_core::event::EventPattern;
use reveille_core::event::worker::{RpcMethod, WorkerId};
use reveille_core::{Millis, Tenant};

use crate::codec::{self, Record, RecordError};

impl Record for Hook {
    fn encode(&self) -> Bytes {
        codec::write(192, &HookFields::from(self))
    }

    fn decode(value: &[u8]) -> Result<Hook, RecordError> {
        codec::read::<HookFields<'_>, _>("hook", value)
    }
}

#[derive(Encode, Decode)]
#[cbor(map)]
struct HookFields<'a> {
    #[cbor(n(0), default)]
    id: u64,
    #[n(1)]
    tenant: &'a str,
    #[n(2)]
    name: &'a str,
    #[cbor(n(3), default)]
    created_at: u64,
    #[cbor(n(4), default)]
    updated_at: u64,
    #[cbor(n(5), default)]
    spans: Vec<SpanFields>,
    #[n(6)]
    backfill: Option<u64>,
    #[b(7)]
    events: EventsFields<'a>,
}

impl<'a> From<&'a Hook> for HookFields<'a> {
    fn from(hook: &'a Hook) -> HookFields<'a> {
        let span = |span: &ActiveSpan| SpanFields(span.from.0, span.to.map(|to| to.0));
        let HookSpec::Events(events) = &hook.spec;
        HookFields {
            id: hook.id.0,
            tenant: hook.tenant.as_str(),
            name: &hook.name,
            created_at: hook.created_at.0,
            updated_at: hook.updated_at.0,
            spans: hook.spans.iter().map(span).collect(),
            backfill: hook.backfill.map(|backfill| backfill.next.0),
            events: EventsFields::from(events),
        }
    }
}

impl TryFrom<HookFields<'_>> for Hook {
    type Error = &'static str;

    fn try_from(fields: HookFields<'_>) -> Result<Hook, &'static str> {
        let span = |SpanFields(from, to)| ActiveSpan { from: EventNo(from), to: to.map(EventNo) };
        Ok(Hook {
            id: HookId(fields.id),
            tenant: Tenant::parse(fields.tenant).map_err(|_| "no tenant")?,
            name: fields.name.into(),
            created_at: Millis(fields.created_at),
            updated_at: Millis(fields.updated_at),
            spans: fields.spans.into_iter().map(span).collect(),
            backfill: fields.backfill.map(|next| Backfill { next: EventNo(next) }),
            spec: HookSpec::Events(fields.events.try_into()?),
        })
    }
}

/// From, and to if it has ended.
#[derive(Encode, Decode)]
struct SpanFields(#[n(0)] u64, #[n(1)] Option<u64>);

#[derive(Encode, Decode)]
#[cbor(map)]
struct EventsFields<'a> {
    #[n(0)]
    pattern: &'a str,
    #[n(1)]
    worker: &'a str,
    #[n(2)]
    method: &'a str,
    #[cbor(n(3), default)]
    max_retries: u32,
    #[cbor(n(4), default)]
    timeout_ms: u64,
    #[n(5)]
    binding: Option<&'a str>,
    #[n(6)]
    secret: Option<&'a str>,
    #[cbor(n(7), skip_if = "codec::is_false")]
    ordered: bool,
}

impl<'a> From<&'a EventHookSpec> for EventsFields<'a> {
    fn from(spec: &'a EventHookSpec) -> EventsFields<'a> {
        EventsFields {
            pattern: spec.pattern.as_str(),
            worker: spec.worker.as_str(),
            method: spec.method.as_str(),
            max_retries: spec.max_retries,
            timeout_ms: spec.timeout_ms,
            binding: spec.binding.as_deref(),
            secret: spec.secret.as_deref(),
            ordered: spec.ordered,
        }
    }
}

impl TryFrom<EventsFields<'_>> for EventHookSpec {
    type Error = &'static str;

    fn try_from(fields: EventsFields<'_>) -> Result<EventHookSpec, &'static str> {
        Ok(EventHookSpec {
            pattern: EventPattern::parse(fields.pattern).map_err(|_| "no pattern")?,
            worker: WorkerId::parse(fields.worker).map_err(|_| "no worker")?,
            binding: fields.binding.map(Into::into),
            method: RpcMethod::parse(fields.method).map_err(|_| "no method")?,
            max_retries: fields.max_retries,
            timeout_ms: fields.timeout_ms,
            secret: fields.secret.map(Into::into),
            ordered: fields.ordered,
        })
    }
}
