//! How subscriptions, and the keys that sign for them, are written.

use std::sync::Arc;

use bytes::Bytes;
use minicbor::Decoder;
use reveille_core::consumer::{Dialect, SyncDone};
use reveille_core::pattern::Pattern;
use reveille_core::subscription::{
    Coalescing, Subscription, SubscriptionId, SubscriptionSpec, Target,
};
use reveille_core::{Millis, StreamPath, Tenant};

use super::{Read, RecordError, Writer, Written, fields, finish};

mod field {
    pub(super) const ID: u32 = 0;
    pub(super) const TENANT: u32 = 1;
    pub(super) const CREATED_AT: u32 = 2;
    pub(super) const SECRET: u32 = 3;
    pub(super) const DIALECT: u32 = 4;
    pub(super) const NAME: u32 = 5;
    pub(super) const PATTERN: u32 = 6;
    pub(super) const STREAMS: u32 = 7;
    pub(super) const WEBHOOK: u32 = 8;
    pub(super) const WAKE_STREAM: u32 = 9;
    pub(super) const DESCRIPTION: u32 = 10;
    pub(super) const LEASE_MS: u32 = 11;
    pub(super) const MIN_INTERVAL_MS: u32 = 12;
    pub(super) const MAX_DELAY_MS: u32 = 13;
    pub(super) const WAKE_IF: u32 = 14;
    pub(super) const SYNC_DONE_SNAPSHOT: u32 = 15;
    pub(super) const BASE_URL: u32 = 16;
}

/// A key that signs webhooks.
#[derive(Clone, PartialEq, Eq)]
pub struct SigningKey {
    /// The secret.
    pub seed: [u8; 32],
    /// Since when it signs.
    pub created_at: Millis,
    /// Until when it is still published, once another one signs.
    pub retires_at: Option<Millis>,
}

/// Writes a subscription.
pub fn encode_subscription(subscription: &Subscription) -> Bytes {
    finish(256, |out| write_subscription(out, subscription))
}

/// Reads a subscription.
pub fn decode_subscription(value: &[u8]) -> Result<Subscription, RecordError> {
    read_subscription(&mut Decoder::new(value))
        .map_err(|why| RecordError { what: "subscription", why: why.to_string() })
}

/// Writes the keys that sign webhooks; the first one signs.
pub fn encode_signing_keys(keys: &[SigningKey]) -> Bytes {
    finish(64, |out| {
        out.array(u64::try_from(keys.len()).unwrap_or(0))?;
        for key in keys {
            out.map(2 + u64::from(key.retires_at.is_some()))?;
            out.u32(0)?.bytes(&key.seed)?.u32(1)?.u64(key.created_at.0)?;
            if let Some(at) = key.retires_at {
                out.u32(2)?.u64(at.0)?;
            }
        }
        Ok(())
    })
}

/// Reads the keys that sign webhooks.
pub fn decode_signing_keys(value: &[u8]) -> Result<Vec<SigningKey>, RecordError> {
    let mut input = Decoder::new(value);
    let read = |input: &mut Decoder<'_>| -> Read<Vec<SigningKey>> {
        let mut keys = Vec::new();
        for _ in 0..input.array()?.unwrap_or(0) {
            let mut key = SigningKey { seed: [0; 32], created_at: Millis(0), retires_at: None };
            fields(input, |field, input| {
                match field {
                    0 => {
                        let seed = input.bytes()?.try_into();
                        key.seed =
                            seed.map_err(|_| minicbor::decode::Error::message("a short key"))?;
                    }
                    1 => key.created_at = Millis(input.u64()?),
                    2 => key.retires_at = Some(Millis(input.u64()?)),
                    _ => input.skip()?,
                }
                Ok(())
            })?;
            keys.push(key);
        }
        Ok(keys)
    };
    read(&mut input).map_err(|why| RecordError { what: "signing key", why: why.to_string() })
}

fn write_subscription(out: &mut Writer, subscription: &Subscription) -> Written {
    let SubscriptionSpec {
        dialect,
        name,
        pattern,
        streams,
        target,
        description,
        lease_ms,
        coalescing,
        base_url,
    } = &subscription.spec;
    let (webhook, wake_stream) = match target {
        Target::Webhook(url) => (Some(&**url), None),
        Target::Pull(path) => (None, Some(path.as_str())),
    };
    let texts = [
        (field::SECRET, subscription.secret.as_deref()),
        (field::PATTERN, pattern.as_ref().map(Pattern::as_str)),
        (field::WEBHOOK, webhook),
        (field::WAKE_STREAM, wake_stream),
        (field::DESCRIPTION, description.as_deref()),
        (field::WAKE_IF, coalescing.wake_if.as_deref()),
        (field::BASE_URL, base_url.as_deref()),
    ];
    let numbers = [
        (field::LEASE_MS, *lease_ms),
        (field::MIN_INTERVAL_MS, Some(coalescing.min_interval_ms).filter(|ms| *ms > 0)),
        (field::MAX_DELAY_MS, coalescing.max_delay_ms),
    ];
    let snapshot = coalescing.sync_done == SyncDone::Snapshot;
    let count = texts.iter().filter(|(_, text)| text.is_some()).count()
        + numbers.iter().filter(|(_, number)| number.is_some()).count();
    out.map(6 + u64::try_from(count).unwrap_or(0) + u64::from(snapshot))?;
    out.u32(field::ID)?.u64(subscription.id.0)?;
    out.u32(field::TENANT)?.str(subscription.tenant.as_str())?;
    out.u32(field::CREATED_AT)?.u64(subscription.created_at.0)?;
    let dialect = match dialect {
        Dialect::Webhooks => 1,
        Dialect::Leases => 2,
    };
    out.u32(field::DIALECT)?.u8(dialect)?;
    out.u32(field::NAME)?.str(name)?;
    out.u32(field::STREAMS)?.array(u64::try_from(streams.len()).unwrap_or(0))?;
    for path in streams {
        out.str(path.as_str())?;
    }
    for (field, text) in texts {
        if let Some(text) = text {
            out.u32(field)?.str(text)?;
        }
    }
    for (field, number) in numbers {
        if let Some(number) = number {
            out.u32(field)?.u64(number)?;
        }
    }
    if snapshot {
        out.u32(field::SYNC_DONE_SNAPSHOT)?.bool(true)?;
    }
    Ok(())
}

fn read_subscription(input: &mut Decoder<'_>) -> Read<Subscription> {
    let wrong = minicbor::decode::Error::message;
    let (mut id, mut tenant, mut created_at, mut secret) = (0, None, Millis(0), None);
    let (mut dialect, mut name, mut target) = (None, None, None);
    let (mut pattern, mut streams, mut description) = (None, Vec::new(), None);
    let (mut lease_ms, mut coalescing, mut base_url) = (None, Coalescing::default(), None);
    fields(input, |field, input| {
        match field {
            field::ID => id = input.u64()?,
            field::TENANT => tenant = Tenant::parse(input.str()?).ok(),
            field::CREATED_AT => created_at = Millis(input.u64()?),
            field::SECRET => secret = Some(Arc::from(input.str()?)),
            field::DIALECT => {
                dialect = Some(match input.u8()? {
                    1 => Dialect::Webhooks,
                    2 => Dialect::Leases,
                    _ => return Err(wrong("an unknown dialect")),
                });
            }
            field::NAME => name = Some(Arc::from(input.str()?)),
            field::PATTERN => {
                let text = input.str()?;
                pattern = Some(Pattern::parse(text).map_err(|_| wrong("no pattern"))?);
            }
            field::STREAMS => {
                for _ in 0..input.array()?.unwrap_or(0) {
                    let path = StreamPath::parse(input.str()?);
                    streams.push(path.map_err(|_| wrong("no path"))?);
                }
            }
            field::WEBHOOK => target = Some(Target::Webhook(input.str()?.into())),
            field::WAKE_STREAM => target = StreamPath::parse(input.str()?).ok().map(Target::Pull),
            field::DESCRIPTION => description = Some(Arc::from(input.str()?)),
            field::LEASE_MS => lease_ms = Some(input.u64()?),
            field::MIN_INTERVAL_MS => coalescing.min_interval_ms = input.u64()?,
            field::MAX_DELAY_MS => coalescing.max_delay_ms = Some(input.u64()?),
            field::WAKE_IF => coalescing.wake_if = Some(input.str()?.into()),
            field::SYNC_DONE_SNAPSHOT if input.bool()? => coalescing.sync_done = SyncDone::Snapshot,
            field::SYNC_DONE_SNAPSHOT => {}
            field::BASE_URL => base_url = Some(Arc::from(input.str()?)),
            _ => input.skip()?,
        }
        Ok(())
    })?;
    let spec = SubscriptionSpec {
        dialect: dialect.ok_or_else(|| wrong("no dialect"))?,
        name: name.ok_or_else(|| wrong("no name"))?,
        pattern,
        streams,
        target: target.ok_or_else(|| wrong("nobody to tell"))?,
        description,
        lease_ms,
        coalescing,
        base_url,
    };
    let tenant = tenant.ok_or_else(|| wrong("no tenant"))?;
    Ok(Subscription { id: SubscriptionId(id), tenant, created_at, secret, spec })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subscriptions_read_back_and_damage_is_an_error() {
        let full = Subscription {
            id: SubscriptionId(9),
            tenant: Tenant::default_tenant(),
            created_at: Millis(4),
            secret: Some("whsec_00".into()),
            spec: SubscriptionSpec {
                dialect: Dialect::Webhooks,
                name: "agents".into(),
                pattern: Some(Pattern::parse("/agents/**").unwrap()),
                streams: vec![StreamPath::parse("/a").unwrap()],
                target: Target::Webhook("https://example.com/hook".into()),
                description: Some("for people".into()),
                lease_ms: Some(1_000),
                coalescing: Coalescing {
                    min_interval_ms: 1,
                    max_delay_ms: Some(2),
                    wake_if: Some("bytes > 3".into()),
                    sync_done: SyncDone::Snapshot,
                },
                base_url: Some("http://localhost:4437".into()),
            },
        };
        let whole = encode_subscription(&full);
        assert_eq!(decode_subscription(&whole), Ok(full.clone()));
        for cut in 0..whole.len() {
            assert!(decode_subscription(&whole[..cut]).is_err(), "cut at {cut}");
        }
        let mut pull = full;
        pull.spec.target = Target::Pull(StreamPath::parse("/wake").unwrap());
        pull.spec.dialect = Dialect::Leases;
        pull.secret = None;
        pull.spec.coalescing = Coalescing::default();
        assert_eq!(decode_subscription(&encode_subscription(&pull)), Ok(pull));
    }

    #[test]
    fn signing_keys_read_back() {
        let keys = [
            SigningKey { seed: [1; 32], created_at: Millis(3), retires_at: None },
            SigningKey { seed: [2; 32], created_at: Millis(1), retires_at: Some(Millis(9)) },
        ];
        assert!(decode_signing_keys(&encode_signing_keys(&keys)).unwrap() == keys);
        assert!(decode_signing_keys(b"\x81").is_err());
    }
}
