//! What a subscriber wishes, as its hook keeps it, and what is left of one that was cancelled.
//!
//! A spec is a map of 0 target, 1 how they are told: 0 webhook, 1 wake, 2 the URL or the agent,
//! 3 kinds of events, a bit each, 4 scope id, 5 idempotency key, 6 subscriber, 7 number of the token,
//! 8 number of the garden, 9 SHA-256 of the subscriber's key; absent for one that was made without a
//! key that is kept.
//!
//! A cancelled subscription is a map of 0 its spec, 1 number of the hook, 2 made at, ms, 3 cancelled
//! at, ms, 4 why: 0 token revoked, 1 expired, 2 unknown, 3 key revoked, 4 scope revoked, 5 membership
//! ended, 5 number of the event that says so and is sent to nobody.

use bytes::Bytes;
use minicbor::{Decode, Encode};
use reveille_core::Millis;
use reveille_core::delivery::hook::HookId;
use reveille_core::delivery::id::EventNo;
use reveille_core::fact::EntityUri;
use reveille_core::fact::access::CancelReason;
use reveille_core::fact::garden::GardenNo;
use reveille_core::fact::name::ScopeId;
use reveille_core::fact::subscription::{Cancelled, Channel, EventFilter, FactHookSpec, Wanted};
use reveille_core::fact::target::Target;
use reveille_core::fact::token::TokenNo;
use reveille_core::key::KeyHash;

use crate::codec::{self, Record, RecordError};

/// A subscription, and the key by which it was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubscriptionSpec {
    pub spec: FactHookSpec,
    /// `None`: whoever made it needed no key that is kept, and lets in by none.
    pub key: Option<KeyHash>,
}

/// A subscription that was cancelled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CancelledRecord {
    pub subscription: SubscriptionSpec,
    pub hook: HookId,
    pub created_at: Millis,
    pub cancelled: Cancelled,
}

const REASONS: [CancelReason; 6] = [
    CancelReason::TokenRevoked,
    CancelReason::TokenExpired,
    CancelReason::TokenUnknown,
    CancelReason::KeyRevoked,
    CancelReason::ScopeRevoked,
    CancelReason::MembershipEnded,
];

impl Record for SubscriptionSpec {
    fn encode(&self) -> Bytes {
        let FactHookSpec { wanted, subscriber, token, garden } = &self.spec;
        let (target, scope) = (wanted.target.to_string(), wanted.scope.to_string());
        let (channel, to) = match &wanted.channel {
            Channel::Webhook(to) => (0, to),
            Channel::Wake(to) => (1, to),
        };
        let fields = SpecFields {
            target: &target,
            channel,
            to,
            filter: wanted.filter.bits(),
            scope: &scope,
            idempotency_key: wanted.idempotency_key.as_deref(),
            subscriber: subscriber.as_str(),
            token: token.0,
            garden: garden.map(|garden| garden.0),
            key: self.key.map(|key| key.0.into()),
        };
        codec::write(128 + target.len() + to.len(), &fields)
    }

    fn decode(value: &[u8]) -> Result<SubscriptionSpec, RecordError> {
        codec::read::<SpecFields<'_>, _>("subscription to facts", value)
    }
}

impl Record for CancelledRecord {
    fn encode(&self) -> Bytes {
        let spec = self.subscription.encode();
        let Cancelled { at, why, event } = self.cancelled;
        let why = REASONS.iter().position(|it| *it == why).and_then(|at| u8::try_from(at).ok());
        let fields = CancelledFields {
            spec: &spec,
            hook: self.hook.0,
            created_at: self.created_at.0,
            at: at.0,
            why: why.expect("every reason has a number"),
            event: event.0,
        };
        codec::write(48 + spec.len(), &fields)
    }

    fn decode(value: &[u8]) -> Result<CancelledRecord, RecordError> {
        codec::read::<CancelledFields<'_>, _>("cancelled subscription", value)
    }
}

#[derive(Encode, Decode)]
#[cbor(map)]
struct SpecFields<'a> {
    #[n(0)]
    target: &'a str,
    #[n(1)]
    channel: u8,
    #[n(2)]
    to: &'a str,
    #[n(3)]
    filter: u8,
    #[n(4)]
    scope: &'a str,
    #[n(5)]
    idempotency_key: Option<&'a str>,
    #[n(6)]
    subscriber: &'a str,
    #[n(7)]
    token: u64,
    #[n(8)]
    garden: Option<u64>,
    #[n(9)]
    key: Option<minicbor::bytes::ByteArray<32>>,
}

/// Whatever cannot be read is an error: less than was asked for must not become more.
impl TryFrom<SpecFields<'_>> for SubscriptionSpec {
    type Error = &'static str;

    fn try_from(fields: SpecFields<'_>) -> Result<SubscriptionSpec, &'static str> {
        let channel = match fields.channel {
            0 => Channel::Webhook(fields.to.into()),
            1 => Channel::Wake(fields.to.into()),
            _ => return Err("nobody is told"),
        };
        let wanted = Wanted {
            target: Target::parse(fields.target).map_err(|_| "no target")?,
            channel,
            filter: EventFilter::from_bits(fields.filter).ok_or("no events")?,
            scope: ScopeId::parse(fields.scope).map_err(|_| "no scope")?,
            idempotency_key: fields.idempotency_key.map(Into::into),
        };
        let spec = FactHookSpec {
            wanted,
            subscriber: EntityUri::parse(fields.subscriber).map_err(|_| "no subscriber")?,
            token: TokenNo(fields.token),
            garden: fields.garden.map(GardenNo),
        };
        Ok(SubscriptionSpec { spec, key: fields.key.map(|key| KeyHash(key.into())) })
    }
}

#[derive(Encode, Decode)]
#[cbor(map)]
struct CancelledFields<'a> {
    #[cbor(n(0), with = "minicbor::bytes")]
    spec: &'a [u8],
    #[n(1)]
    hook: u64,
    #[cbor(n(2), default)]
    created_at: u64,
    #[n(3)]
    at: u64,
    #[n(4)]
    why: u8,
    #[n(5)]
    event: u64,
}

impl TryFrom<CancelledFields<'_>> for CancelledRecord {
    type Error = String;

    fn try_from(fields: CancelledFields<'_>) -> Result<CancelledRecord, String> {
        let why = REASONS.get(usize::from(fields.why)).ok_or("no reason")?;
        let (at, event) = (Millis(fields.at), EventNo(fields.event));
        Ok(CancelledRecord {
            subscription: SubscriptionSpec::decode(fields.spec).map_err(|it| it.to_string())?,
            hook: HookId(fields.hook),
            created_at: Millis(fields.created_at),
            cancelled: Cancelled { at, why: *why, event },
        })
    }
}
