//! A subscription.
//!
//! | field | type | what |
//! |---|---|---|
//! | 0 | integer | id, of the same sequence as those of streams: the larger of two is the younger |
//! | 1 | text | tenant |
//! | 2 | integer | created at, ms |
//! | 3 | text | secret, sealed |
//! | 4 | integer | dialect: 1 webhooks, 2 leases |
//! | 5 | text | name |
//! | 6 | text | pattern |
//! | 7 | array | paths of the streams that were named at creation |
//! | 8 | text | webhook URL |
//! | 9 | text | path of the wake stream |
//! | 10 | text | description |
//! | 11, 12, 13 | integer | lease, least interval, longest delay, in ms |
//! | 14 | text | condition under which events wait no longer |
//! | 15 | bool | `done` acknowledges what was announced |
//! | 16 | text | base of callback URLs |
//! | 17 | text | id of the key by which it was made |
//! | 18 | array | retries: `[first pause, longest pause, given up after]`, each in ms or null |
//! | 19 | array | the secret before this one: `[sealed, signs until]` |
//! | 20 | array | `[paused at, reviewed at]`, each in ms or null |
//! | 21 | text | id of the key by which it was changed last |
//! | 30 | array | where it begins in streams that are older: absent for their tail, `[0]` for their beginning, `[1, position]` |
//!
//! There is a webhook URL or a wake stream.
//!
//! Written by hand: field 3 comes after 7, and 10, 14 and 16 before 11.

use bytes::Bytes;
use minicbor::{Decode, Decoder, Encode, decode};
use reveille_core::consumer::{Dialect, SyncDone};
use reveille_core::pattern::Pattern;
use reveille_core::subscription::{
    Coalescing, PreviousSecret, RetrySettings, Subscription, SubscriptionId, SubscriptionSpec,
    Target,
};
use reveille_core::{Millis, Offset, ReadFrom, StreamPath, Tenant};

use super::dialect_number;
use crate::codec::{self, List, MapWriter, Record, RecordError};

impl Record for Subscription {
    fn encode(&self) -> Bytes {
        let SubscriptionSpec {
            dialect,
            name,
            pattern,
            streams,
            target,
            description,
            lease_ms,
            coalescing,
            retry,
            start,
            base_url,
        } = &self.spec;
        let (webhook, wake_stream) = match target {
            Target::Webhook(url) => (Some(&**url), None),
            Target::Pull(path) => (None, Some(path.as_str())),
        };
        let is_snapshot = coalescing.sync_done == SyncDone::Snapshot;
        let mut map = MapWriter::new(256);
        map.put(0, self.id.0);
        map.put(1, self.tenant.as_str());
        map.put(2, self.created_at.0);
        map.put(4, dialect_number(*dialect));
        map.put(5, &**name);
        map.put(7, List(streams.iter().map(StreamPath::as_str)));
        map.put_some(3, self.secret.as_deref());
        map.put_some(6, pattern.as_ref().map(Pattern::as_str));
        map.put_some(8, webhook);
        map.put_some(9, wake_stream);
        map.put_some(10, description.as_deref());
        map.put_some(14, coalescing.wake_if.as_deref());
        map.put_some(16, base_url.as_deref());
        map.put_some(11, *lease_ms);
        map.put_some(12, Some(coalescing.min_interval_ms).filter(|ms| *ms > 0));
        map.put_some(13, coalescing.max_delay_ms);
        map.put_some(15, is_snapshot.then_some(true));
        map.put_some(17, self.created_by.as_deref());
        let RetrySettings { initial_ms, max_ms, give_up_after_ms } = *retry;
        let is_chosen = *retry != RetrySettings::default();
        map.put_some(18, is_chosen.then_some((initial_ms, max_ms, give_up_after_ms)));
        let previous = self.previous_secret.as_ref();
        map.put_some(19, previous.map(|it| (&*it.sealed, it.until.0)));
        let times = (self.paused_at.map(|at| at.0), self.reviewed_at.map(|at| at.0));
        map.put_some(20, Some(times).filter(|times| *times != (None, None)));
        map.put_some(21, self.changed_by.as_deref());
        map.put_some(30, StartFields::new(*start));
        map.finish()
    }

    fn decode(value: &[u8]) -> Result<Subscription, RecordError> {
        codec::read::<SubscriptionFields<'_>, _>("subscription", value)
    }
}

#[derive(Decode)]
#[cbor(map)]
struct SubscriptionFields<'a> {
    #[cbor(n(0), default)]
    id: u64,
    #[n(1)]
    tenant: &'a str,
    #[cbor(n(2), default)]
    created_at: u64,
    #[n(3)]
    secret: Option<&'a str>,
    #[n(4)]
    dialect: u8,
    #[n(5)]
    name: &'a str,
    #[n(6)]
    pattern: Option<&'a str>,
    #[cbor(n(7), default, decode_with = "read_paths")]
    streams: Vec<StreamPath>,
    #[n(8)]
    webhook: Option<&'a str>,
    #[n(9)]
    wake_stream: Option<&'a str>,
    #[n(10)]
    description: Option<&'a str>,
    #[n(11)]
    lease_ms: Option<u64>,
    #[cbor(n(12), default)]
    min_interval_ms: u64,
    #[n(13)]
    max_delay_ms: Option<u64>,
    #[n(14)]
    wake_if: Option<&'a str>,
    #[cbor(n(15), default)]
    is_snapshot: bool,
    #[n(16)]
    base_url: Option<&'a str>,
    #[n(17)]
    created_by: Option<&'a str>,
    #[cbor(n(18), default)]
    retry: (Option<u64>, Option<u64>, Option<u64>),
    #[cbor(b(19), decode_with = "codec::some")]
    previous_secret: Option<(&'a str, u64)>,
    #[cbor(n(20), default)]
    times: (Option<u64>, Option<u64>),
    #[n(21)]
    changed_by: Option<&'a str>,
    #[n(30)]
    start: Option<StartFields>,
}

#[derive(Encode, Decode)]
#[cbor(flat)]
enum StartFields {
    #[n(0)]
    Beginning,
    #[n(1)]
    At(#[n(0)] u64),
}

impl StartFields {
    fn new(start: ReadFrom) -> Option<StartFields> {
        match start {
            ReadFrom::Now => None,
            ReadFrom::Start => Some(StartFields::Beginning),
            ReadFrom::At(offset) => Some(StartFields::At(offset.position())),
        }
    }
}

impl From<StartFields> for ReadFrom {
    fn from(fields: StartFields) -> ReadFrom {
        match fields {
            StartFields::Beginning => ReadFrom::Start,
            StartFields::At(position) => ReadFrom::At(Offset::new(position)),
        }
    }
}

impl TryFrom<SubscriptionFields<'_>> for Subscription {
    type Error = &'static str;

    fn try_from(fields: SubscriptionFields<'_>) -> Result<Subscription, &'static str> {
        let dialect = match fields.dialect {
            1 => Dialect::Webhooks,
            2 => Dialect::Leases,
            _ => return Err("an unknown dialect"),
        };
        let target = match (fields.webhook, fields.wake_stream) {
            (Some(url), None) => Target::Webhook(url.into()),
            (None, Some(path)) => {
                Target::Pull(StreamPath::parse(path).map_err(|_| "no path of a wake stream")?)
            }
            (None, None) => return Err("nobody to wake"),
            (Some(_), Some(_)) => return Err("two targets"),
        };
        let pattern = fields.pattern.map(Pattern::parse).transpose().map_err(|_| "no pattern")?;
        let coalescing = Coalescing {
            min_interval_ms: fields.min_interval_ms,
            max_delay_ms: fields.max_delay_ms,
            wake_if: fields.wake_if.map(Into::into),
            sync_done: match fields.is_snapshot {
                true => SyncDone::Snapshot,
                false => SyncDone::default(),
            },
        };
        let (initial_ms, max_ms, give_up_after_ms) = fields.retry;
        let retry = RetrySettings { initial_ms, max_ms, give_up_after_ms };
        let previous = |(sealed, until): (&str, u64)| PreviousSecret {
            sealed: sealed.into(),
            until: Millis(until),
        };
        let (paused_at, reviewed_at) = fields.times;
        let spec = SubscriptionSpec {
            dialect,
            name: fields.name.into(),
            pattern,
            streams: fields.streams,
            target,
            description: fields.description.map(Into::into),
            lease_ms: fields.lease_ms,
            coalescing,
            retry,
            start: fields.start.map_or(ReadFrom::Now, Into::into),
            base_url: fields.base_url.map(Into::into),
        };
        Ok(Subscription {
            id: SubscriptionId(fields.id),
            tenant: Tenant::parse(fields.tenant).map_err(|_| "no tenant")?,
            created_at: Millis(fields.created_at),
            secret: fields.secret.map(Into::into),
            previous_secret: fields.previous_secret.map(previous),
            created_by: fields.created_by.map(Into::into),
            changed_by: fields.changed_by.map(Into::into),
            paused_at: paused_at.map(Millis),
            reviewed_at: reviewed_at.map(Millis),
            spec,
        })
    }
}

fn read_paths<C>(input: &mut Decoder<'_>, _: &mut C) -> Result<Vec<StreamPath>, decode::Error> {
    codec::read_paths(input)
}
