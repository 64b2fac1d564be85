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
//! | 7 | bytes | what its owner wishes; its face alone reads them |
//! | 8 | integer | its face |
//! | 9 | map | the rules of its deliveries: 0 an attempt's time in ms, 1 attempts, 2 first pause in ms, 3 longest pause in ms, 4 at most this many ms are added to a pause at random (absent: it is shortened by at most half), 5 statuses that are final (absent: none; 1: 400 to 499 but 408, 425 and 429), 6 the status that ends the hook, 7 whether deliveries of a lane come one after another, 8 what outcomes mean: arrays `[0, first status, last, action]`, `[1, kind of failure, 0, action]`, `[2, 0, 0, action]` for what cannot be read, where actions are 0 retry, 1 dead, 2 drop, 3 end the hook, 9 poison: `[attempts, ms]`, 10 whether `Retry-After` is heard, 11 whether a delivery follows the version of its hook that matched, 15 one that fails when it is older than so many ms is tried no more, 16 attempts on their way at most, 17 attempts in a second at most, 18 how many of these at once after a pause, 19 whether they count among those of which a tenant has only so many on their way, 20 how an attempt is made (absent: a request; 1: an append), 21 whether its dead letters outlive it |
//! | 10 | text | id of the key by which it was made |
//! | 11 | integer | its version; absent: 1 |
//! | 12 | bool | it is paused |
//! | 13 | integer | nothing is sent to it since, ms |

use bytes::Bytes;
use minicbor::{Decode, Encode};
use reveille_core::delivery::ErrorKind;
use reveille_core::delivery::hook::{ActiveSpan, Backfill, FIRST_VERSION, FaceId, Hook, HookId};
use reveille_core::delivery::id::EventNo;
use reveille_core::delivery::policy::{
    Action, Backoff, DeliveryLimits, Jitter, Letters, Order, Poison, Policy, Rule, StatusSet,
    Transport, Versions, When,
};
use reveille_core::rate::Rate;
use reveille_core::{Millis, Tenant};

use super::delivery::kind_number;
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
    #[cbor(b(7), with = "minicbor::bytes")]
    spec: &'a [u8],
    #[n(8)]
    face: u8,
    #[n(9)]
    policy: PolicyFields,
    #[n(10)]
    created_by: Option<&'a str>,
    #[cbor(n(11), decode_with = "codec::some")]
    version: Option<u64>,
    #[cbor(n(12), skip_if = "codec::is_false")]
    paused: bool,
    #[cbor(n(13), decode_with = "codec::some")]
    stopped_at: Option<u64>,
}

impl<'a> From<&'a Hook> for HookFields<'a> {
    fn from(hook: &'a Hook) -> HookFields<'a> {
        let span = |span: &ActiveSpan| SpanFields(span.from.0, span.to.map(|to| to.0));
        HookFields {
            id: hook.id.0,
            tenant: hook.tenant.as_str(),
            name: &hook.name,
            created_at: hook.created_at.0,
            updated_at: hook.updated_at.0,
            spans: hook.spans.iter().map(span).collect(),
            backfill: hook.backfill.map(|backfill| backfill.next.0),
            spec: &hook.spec,
            face: hook.face.0,
            policy: PolicyFields::from(&hook.policy),
            created_by: hook.created_by.as_deref(),
            version: (hook.version != FIRST_VERSION).then_some(hook.version),
            paused: hook.paused,
            stopped_at: hook.stopped_at.map(|at| at.0),
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
            face: FaceId(fields.face),
            policy: fields.policy.try_into()?,
            spec: Bytes::copy_from_slice(fields.spec),
            created_by: fields.created_by.map(Into::into),
            version: fields.version.unwrap_or(FIRST_VERSION),
            paused: fields.paused,
            stopped_at: fields.stopped_at.map(Millis),
        })
    }
}

/// From, and to if it has ended.
#[derive(Encode, Decode)]
struct SpanFields(#[n(0)] u64, #[n(1)] Option<u64>);

const FINAL_4XX: u8 = 1;
const APPEND: u8 = 1;

#[derive(Encode, Decode)]
#[cbor(map)]
struct PolicyFields {
    #[cbor(n(0), default)]
    timeout_ms: u64,
    #[cbor(n(1), default)]
    attempts: u32,
    #[cbor(n(2), default)]
    base_ms: u64,
    #[cbor(n(3), default)]
    cap_ms: u64,
    #[n(4)]
    jitter_ms: Option<u64>,
    #[n(5)]
    refused: Option<u8>,
    #[n(6)]
    ends: Option<u16>,
    #[cbor(n(7), skip_if = "codec::is_false")]
    ordered: bool,
    #[cbor(n(8), default, skip_if = "Vec::is_empty")]
    rules: Vec<RuleFields>,
    #[n(9)]
    poison: Option<PoisonFields>,
    #[cbor(n(10), skip_if = "codec::is_false")]
    retry_after: bool,
    #[cbor(n(11), skip_if = "codec::is_false")]
    matched: bool,
    #[cbor(n(15), decode_with = "codec::some")]
    give_up_after_ms: Option<u64>,
    #[cbor(n(16), decode_with = "codec::some")]
    concurrency: Option<u32>,
    #[cbor(n(17), decode_with = "codec::some")]
    rate_per_s: Option<u32>,
    #[cbor(n(18), decode_with = "codec::some")]
    burst: Option<u32>,
    #[cbor(n(19), skip_if = "codec::is_false")]
    per_tenant: bool,
    #[cbor(n(20), decode_with = "codec::some")]
    transport: Option<u8>,
    #[cbor(n(21), skip_if = "codec::is_false")]
    outlived: bool,
}

/// What, from, to, action.
#[derive(Encode, Decode)]
struct RuleFields(#[n(0)] u8, #[n(1)] u16, #[n(2)] u16, #[n(3)] u8);

/// Attempts, ms.
#[derive(Encode, Decode)]
struct PoisonFields(#[n(0)] u32, #[n(1)] u64);

const ACTIONS: [Action; 4] = [Action::Retry, Action::Dead, Action::Drop, Action::End];

impl From<&Rule> for RuleFields {
    fn from(rule: &Rule) -> RuleFields {
        let action = match rule.action {
            Action::Retry => 0,
            Action::Dead => 1,
            Action::Drop => 2,
            Action::End => 3,
        };
        match rule.when {
            When::Status { first, last } => RuleFields(0, first, last, action),
            When::Kind(kind) => RuleFields(1, u16::from(kind_number(kind)), 0, action),
            When::Unreadable => RuleFields(2, 0, 0, action),
        }
    }
}

impl TryFrom<RuleFields> for Rule {
    type Error = &'static str;

    fn try_from(fields: RuleFields) -> Result<Rule, &'static str> {
        let RuleFields(what, first, last, action) = fields;
        let when = match what {
            0 => When::Status { first, last },
            1 => {
                let kind = ErrorKind::ALL.get(usize::from(first));
                When::Kind(*kind.ok_or("unknown kind of failure")?)
            }
            2 => When::Unreadable,
            _ => return Err("unknown rule"),
        };
        let action = ACTIONS.get(usize::from(action)).ok_or("unknown action")?;
        Ok(Rule { when, action: *action })
    }
}

impl From<&Policy> for PolicyFields {
    fn from(policy: &Policy) -> PolicyFields {
        PolicyFields {
            timeout_ms: policy.timeout_ms,
            attempts: policy.attempts,
            base_ms: policy.backoff.base_ms,
            cap_ms: policy.backoff.cap_ms,
            jitter_ms: match policy.backoff.jitter {
                Jitter::Added { ms } => Some(ms),
                Jitter::Shortened => None,
            },
            refused: match policy.refused {
                StatusSet::Empty => None,
                StatusSet::Final4xx => Some(FINAL_4XX),
            },
            ends: policy.ends,
            ordered: policy.order == Order::Lanes,
            rules: policy.rules.iter().map(RuleFields::from).collect(),
            poison: policy.poison.map(|it| PoisonFields(it.attempts, it.within_ms)),
            retry_after: policy.retry_after,
            matched: policy.versions == Versions::Matched,
            give_up_after_ms: policy.give_up_after_ms,
            concurrency: policy.limits.concurrency,
            rate_per_s: policy.limits.rate.map(|it| it.per_s),
            burst: policy.limits.rate.map(|it| it.burst),
            per_tenant: policy.limits.per_tenant,
            transport: match policy.transport {
                Transport::Http => None,
                Transport::Append => Some(APPEND),
            },
            outlived: policy.letters == Letters::OutliveHook,
        }
    }
}

impl TryFrom<PolicyFields> for Policy {
    type Error = &'static str;

    fn try_from(fields: PolicyFields) -> Result<Policy, &'static str> {
        let poison = |PoisonFields(attempts, within_ms)| Poison { attempts, within_ms };
        let jitter = fields.jitter_ms.map_or(Jitter::Shortened, |ms| Jitter::Added { ms });
        Ok(Policy {
            timeout_ms: fields.timeout_ms,
            attempts: fields.attempts,
            backoff: Backoff { base_ms: fields.base_ms, cap_ms: fields.cap_ms, jitter },
            refused: match fields.refused {
                None => StatusSet::Empty,
                Some(FINAL_4XX) => StatusSet::Final4xx,
                Some(_) => return Err("unknown statuses"),
            },
            ends: fields.ends,
            order: if fields.ordered { Order::Lanes } else { Order::None },
            rules: fields.rules.into_iter().map(Rule::try_from).collect::<Result<_, _>>()?,
            poison: fields.poison.map(poison),
            retry_after: fields.retry_after,
            versions: if fields.matched { Versions::Matched } else { Versions::Current },
            give_up_after_ms: fields.give_up_after_ms,
            transport: match fields.transport {
                None => Transport::Http,
                Some(APPEND) => Transport::Append,
                Some(_) => return Err("unknown transport"),
            },
            limits: DeliveryLimits {
                concurrency: fields.concurrency,
                rate: fields
                    .rate_per_s
                    .map(|per_s| Rate { per_s, burst: fields.burst.unwrap_or(1) }),
                per_tenant: fields.per_tenant,
            },
            letters: if fields.outlived { Letters::OutliveHook } else { Letters::GoWithHook },
        })
    }
}
