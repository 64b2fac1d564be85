//! What timers of consumers and subscriptions ask for.

use bytes::Bytes;
use reveille_core::subscription::SubscriptionId;
use reveille_core::{Millis, Tenant};
use reveille_kernel::command::{Command, Decision};
use reveille_kernel::error::{Damaged, Never};
use reveille_kernel::timers::{DueTimer, TimerTraits};
use reveille_schema::keys::{self, ConsumerKey};
use reveille_schema::record;
use reveille_schema::wakes::WakeTimer;
use reveille_store::state::Reader;

use super::activity::ConsumerTxn;
use super::consumer::{self, belongings};
use super::fan_out;
use crate::app::{App, Shared, Txn};
use crate::effect::{AttemptKey, Effect};
use crate::limits::PURGE_SLICE;
use crate::streams::observer::Growth;
use crate::streams::txn::StreamTxn;

/// A timer of a consumer or a subscription is due.
#[derive(Debug, Clone)]
pub struct FireWakeTimer {
    timer: WakeTimer,
    entry: DueTimer,
    /// Attempts to wake the consumer that are on their way.
    in_flight: Vec<(u64, u32)>,
    /// Keys to remove, for a subscription that has ended.
    found: Vec<Bytes>,
}

impl FireWakeTimer {
    /// How many keys it removes, for one that clears up in slices.
    pub(crate) fn removals(&self) -> usize {
        self.found.len()
    }

    pub fn new(shared: &Shared, entry: DueTimer) -> Result<FireWakeTimer, Damaged> {
        let timer = decode(&entry)?;
        let in_flight = match &timer {
            WakeTimer::Consumer(key) => shared.outbox.sent(&AttemptKey::Consumer(key.clone())),
            _ => Vec::new(),
        };
        FireWakeTimer::with(&shared.state.reader(), entry, in_flight)
    }

    /// The same, given what is on its way.
    pub fn with(
        reader: &Reader,
        entry: DueTimer,
        in_flight: Vec<(u64, u32)>,
    ) -> Result<FireWakeTimer, Damaged> {
        let timer = decode(&entry)?;
        let found = match &timer {
            WakeTimer::Unsubscribe(tenant, id) => remains(reader, tenant, *id)?,
            _ => Vec::new(),
        };
        Ok(FireWakeTimer { timer, entry, in_flight, found })
    }

    /// What is known of a timer of this domain.
    pub fn traits(name: &[u8]) -> TimerTraits {
        let timer = WakeTimer::decode(name);
        let is_consumer = matches!(timer, Some(WakeTimer::Consumer(_)));
        // Slices of what many are told, which may be many.
        let is_patient = matches!(timer, Some(WakeTimer::FanOutToSubscriptions(..)));
        TimerTraits { fires_once: is_consumer, is_patient, reads: !is_consumer }
    }
}

fn decode(entry: &DueTimer) -> Result<WakeTimer, Damaged> {
    let damaged = || Damaged::new("a timer of a consumer cannot be read");
    WakeTimer::decode(entry.name()).ok_or_else(damaged)
}

impl Command<App> for FireWakeTimer {
    type Answer = ();
    type Rejection = Never;

    fn decide(&self, txn: &mut Txn<'_>) -> Decision<(), Never> {
        let key = &self.entry.key;
        match &self.timer {
            WakeTimer::Consumer(consumer) => {
                consumer::fire(txn, key, self.entry.at(), consumer, &self.in_flight)?;
            }
            WakeTimer::Forget(tenant, path, id) => consumer::forget(txn, key, tenant, path, *id)?,
            WakeTimer::FanOutToSubscriptions(tenant, path, id) => {
                fan_out::walk(txn, key, tenant, path, *id)?;
            }
            WakeTimer::FanOutToFollowers(tenant, path, id, from) => {
                if let Some(head) = txn.live_head(tenant, path)?
                    && head.id == *id
                {
                    let growth = Growth { tenant, path, head: &head, before: None, author: None };
                    consumer::tell_followers(txn, &growth, from)?;
                }
                txn.remove(key);
            }
            WakeTimer::Unsubscribe(..) => {
                txn.remove_all(&self.found)?;
                // The entry stays until a look finds nothing more.
                if self.found.is_empty() {
                    txn.remove(key);
                }
            }
        }
        Ok(Ok(()))
    }

    fn weight(&self) -> usize {
        self.found.len() * 32
    }

    /// What was put off for seconds may come a moment later still.
    fn is_urgent(&self, _: &[Effect]) -> bool {
        !matches!(self.timer, WakeTimer::Consumer(_))
    }

    fn not_before(&self) -> Millis {
        self.entry.at()
    }
}

/// The first keys that an ended subscription has left. Consumers go with what belongs to them;
/// links take along who follows by them.
fn remains(reader: &Reader, tenant: &Tenant, id: SubscriptionId) -> Result<Vec<Bytes>, Damaged> {
    let mut found = Vec::new();
    let (from, to) = keys::consumers(id);
    for (key, value) in reader.range(&from, &to, PURGE_SLICE)? {
        let known = keys::parse_consumer(&key);
        match (known, record::decode_consumer(&value)) {
            (Some(consumer), Ok(record)) => found.extend(belongings(tenant, &consumer, &record)),
            _ => found.push(key),
        }
    }
    if found.len() < PURGE_SLICE {
        let consumer = ConsumerKey { subscription: id, path: None };
        let (from, to) = keys::links(id);
        for key in reader.keys(&from, &to, PURGE_SLICE)? {
            if let Some(path) = keys::parse_linked(&key) {
                found.push(keys::follower(tenant, &path, &consumer));
            }
            found.push(key);
        }
        let (from, to) = keys::backlogs(id);
        found.extend(reader.keys(&from, &to, PURGE_SLICE)?);
    }
    Ok(found)
}
