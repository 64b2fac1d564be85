//! What timers of consumers and subscriptions ask for.

use bytes::Bytes;
use reveille_core::subscription::SubscriptionId;
use reveille_core::{Millis, Tenant};
use reveille_kernel::command::{Command, Decision};
use reveille_kernel::domains::Pages;
use reveille_kernel::error::{Damaged, Never};
use reveille_kernel::limits::SLICE_BYTES;
use reveille_kernel::timers::{DueTimer, TimerTraits};
use reveille_schema::keys::{self, ConsumerKey};
use reveille_schema::record;
use reveille_schema::wakes::WakeTimer;
use reveille_store::batch::change_bytes;
use reveille_store::state::Reader;

use super::activity::ConsumerTxn;
use super::consumer::{self, belongings};
use super::{backfill, fan_out, review};
use crate::app::{App, Shared, Txn};
use crate::effect::{AttemptKey, Effect};
use crate::limits::PURGE_SLICE;
use crate::streams::observer::Growth;
use crate::streams::txn::StreamTxn;

/// Consumers of an ended subscription that are read at once: each may have a large record.
const CONSUMERS_AT_ONCE: usize = 16;

/// A timer of a consumer or a subscription is due.
#[derive(Debug, Clone)]
pub struct FireWakeTimer {
    timer: WakeTimer,
    entry: DueTimer,
    /// Attempts to wake the consumer that are on their way.
    in_flight: Vec<(u64, u32)>,
    /// What to remove, for a subscription that has ended.
    found: Remains,
}

impl FireWakeTimer {
    /// How many keys it removes, for one that clears up in slices.
    pub(crate) fn removals(&self) -> usize {
        self.found.items.iter().map(Vec::len).sum()
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
            WakeTimer::Unsubscribe(tenant, id) => Remains::read(reader, tenant, *id)?,
            _ => Remains::default(),
        };
        Ok(FireWakeTimer { timer, entry, in_flight, found })
    }

    /// What is known of a timer of this domain.
    pub fn traits(name: &[u8]) -> TimerTraits {
        let timer = WakeTimer::decode(name);
        let is_consumer = matches!(timer, Some(WakeTimer::Consumer(_)));
        // Slices of what many are told, which may be many.
        let is_patient = matches!(
            timer,
            Some(
                WakeTimer::FanOutToSubscriptions(..)
                    | WakeTimer::Review(..)
                    | WakeTimer::Backfill(..)
            )
        );
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
            WakeTimer::Review(_, id) => review::walk(txn, key, *id)?,
            WakeTimer::Backfill(tenant, id) => backfill::walk(txn, key, tenant, *id)?,
            WakeTimer::Unsubscribe(..) => {
                txn.gather_slice(&self.found.items, |txn, item| txn.remove_all(item))?;
                // The entry stays until a look finds nothing more.
                if self.found.items.is_empty() {
                    txn.remove(key);
                }
            }
        }
        Ok(Ok(()))
    }

    fn weight(&self) -> usize {
        self.found.bytes
    }

    /// What was put off for seconds may come a moment later still.
    fn is_urgent(&self, _: &[Effect]) -> bool {
        !matches!(self.timer, WakeTimer::Consumer(_))
    }

    fn not_before(&self) -> Millis {
        self.entry.at()
    }
}

/// The first of what an ended subscription has left, each with all that goes with it: a consumer with
/// what belongs to it, a link with who follows by it.
#[derive(Debug, Clone, Default)]
struct Remains {
    items: Vec<Vec<Bytes>>,
    /// What removing them adds to a batch.
    bytes: usize,
}

impl Remains {
    fn read(reader: &Reader, tenant: &Tenant, id: SubscriptionId) -> Result<Remains, Damaged> {
        let mut remains = Remains::default();
        let (from, to) = keys::consumers(id);
        let mut pages = Pages::new(from, to, CONSUMERS_AT_ONCE);
        while !remains.is_enough()
            && let Some(consumers) = pages.next(reader)?
        {
            for (key, value) in consumers {
                let known = keys::parse_consumer(&key).zip(record::decode_consumer(&value).ok());
                remains.add(match known {
                    Some((consumer, record)) => belongings(tenant, &consumer, &record),
                    None => vec![key],
                });
            }
        }
        let consumer = ConsumerKey { subscription: id, path: None };
        if !remains.is_enough() {
            let (from, to) = keys::links(id);
            for key in reader.keys(&from, &to, PURGE_SLICE)? {
                let path = keys::parse_linked(&key);
                let follower = path.map(|path| keys::follower(tenant, &path, &consumer));
                remains.add(follower.into_iter().chain([key]).collect());
            }
        }
        if !remains.is_enough() {
            let (from, to) = keys::backlogs(id);
            reader.keys(&from, &to, PURGE_SLICE)?.into_iter().for_each(|it| remains.add(vec![it]));
        }
        Ok(remains)
    }

    fn add(&mut self, item: Vec<Bytes>) {
        self.bytes += item.iter().map(|key| change_bytes(key, None)).sum::<usize>();
        self.items.push(item);
    }

    fn is_enough(&self) -> bool {
        self.bytes >= SLICE_BYTES || self.items.len() >= PURGE_SLICE
    }
}
