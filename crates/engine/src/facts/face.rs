//! Facts as a source of deliveries: through a gate, each time.

use std::sync::Arc;

use bytes::Bytes;
use reveille_core::delivery::DropReason;
use reveille_core::delivery::hook::{FaceId, Hook, HookId};
use reveille_core::delivery::id::EventNo;
use reveille_core::fact::access::{CancelReason, Ruling};
use reveille_core::fact::name::Id;
use reveille_core::fact::subscription::{EventSubject, FactHookSpec};
use reveille_core::fact::{FACE, Scope};
use reveille_core::stream::Head;
use reveille_core::{Millis, StreamPath, Tenant};
use reveille_kernel::error::Damaged;
use reveille_kernel::timers::DueTimer;
use reveille_kernel::txn::ReadError;
use reveille_schema::facts::{
    CancelledRecord, ChangeRecord, CopyPlace, FactRecord, SubscriptionSpec,
};
use reveille_schema::record::{EventPlace, EventRecord};
use reveille_schema::{Record, keys};
use reveille_store::state::Reader;

use super::audit::SUBSCRIPTION_CANCELLED;
use super::content;
use super::gate;
use super::index::{EventQuery, GardenIndex, SubscriptionIndex, TokenIndex, matching};
use super::publish::fact_stream;
use super::purge::FireFactTimer;
use super::subscription::remember;
use crate::addresses::Addresses;
use crate::app::{App, Shared, Txn};
use crate::deliveries::ended::EndedBy;
use crate::deliveries::face::{DeliveryFace, EndReason, EventMatch, FaceTimer, Gate, GateReason};
use crate::deliveries::spread::{MatchingHooks, SpreadEvent};
use crate::matching::{spend, steps_left};
use crate::records::{KeyReader, ReadRecord, damaged};
use crate::streams::txn::StreamTxn;

/// The face of facts.
#[derive(Default)]
pub struct FactFace {
    specs: Addresses<HookId, Hook, Arc<SubscriptionSpec>>,
}

impl DeliveryFace for FactFace {
    fn id(&self) -> FaceId {
        FACE
    }

    fn register(&self, app: App) -> App {
        app.with_index::<SubscriptionIndex>().with_index::<GardenIndex>().with_index::<TokenIndex>()
    }

    fn next_matching(
        &self,
        txn: &mut Txn<'_>,
        tenant: &Tenant,
        event: SpreadEvent<'_>,
        after: HookId,
    ) -> Result<MatchingHooks, ReadError> {
        let (kind, subject) = (content::kind_of(event.record)?, gate::subject_of(event.record)?);
        let limit = txn.domains().settings.fan_out;
        let accepts = |hook: &Hook| hook.was_active_at(event.no);
        let query = EventQuery { tenant, kind, subject: &subject, after, limit, accepts: &accepts };
        let mut steps = steps_left(txn);
        txn.rests_on_index();
        let list = matching(txn.index(), &query, &mut steps);
        spend(txn, tenant, steps.used());
        Ok(list)
    }

    fn explain_match(
        &self,
        _: &Reader,
        hook: &Hook,
        _: EventNo,
        event: &EventRecord,
    ) -> Result<EventMatch, Damaged> {
        let spec = spec_of(hook)?.spec;
        let (kind, subject) = (content::kind_of(event)?, gate::subject_of(event)?);
        let about = EventSubject {
            kind,
            entity: &subject.entity,
            scope: subject.scope,
            garden: subject.garden,
        };
        if spec.matches(&about) {
            return Ok(EventMatch::Matches);
        }
        let wanted = &spec.wanted;
        Ok(EventMatch::Differs(format!(
            "it is a {} in the scope {}, and the subscription is for {} of {} within {}",
            kind.as_str(),
            subject.scope,
            wanted.filter,
            wanted.target,
            wanted.scope,
        )))
    }

    /// An event is named by its number, by the fact that it tells of, or as a subscription gets it.
    fn event_named(&self, _: &Reader, _: &Tenant, name: &str) -> Result<Option<EventNo>, Damaged> {
        Ok(match Id::parse(name) {
            Some(Id::Event(_, no)) => Some(no),
            Some(Id::Fact(no)) => Some(EventNo(no)),
            Some(Id::Token(_)) => None,
            None => name.parse().ok().map(EventNo),
        })
    }

    fn payload(
        &self,
        reader: &Reader,
        hook: &Hook,
        event: &EventRecord,
    ) -> Result<Option<Bytes>, Damaged> {
        content::envelope(reader, hook, event)
    }

    fn has_gate(&self) -> bool {
        true
    }

    fn gate(
        &self,
        look: &mut dyn KeyReader,
        hook: &Arc<Hook>,
        event: &EventRecord,
        now: Millis,
    ) -> Result<Gate, ReadError> {
        let garden = gate::subject_of(event)?.garden;
        let spec = self.specs.of(hook.id, hook, || spec_of(hook).map(Arc::new))?;
        Ok(match gate::ask(look, hook, &spec, garden, now)? {
            Ruling::Deliver => Gate::Open,
            Ruling::Withhold(_) => Gate::Closed(DropReason::NotOwed),
            Ruling::Cancel(_) => Gate::Cancelled(DropReason::Cancelled),
        })
    }

    fn explain_gate(
        &self,
        reader: &Reader,
        hook: &Hook,
        event: &EventRecord,
        now: Millis,
    ) -> Result<Option<GateReason>, Damaged> {
        let (mut look, garden) = (reader, gate::subject_of(event)?.garden);
        let ruling = match gate::ask(&mut look, hook, &spec_of(hook)?, garden, now) {
            Ok(ruling) => ruling,
            Err(ReadError::Damaged(error)) => return Err(error),
            Err(ReadError::NotLoaded(_)) => return Ok(None),
        };
        Ok(Some(reason_of(ruling)))
    }

    fn explain_ended(
        &self,
        mut reader: &Reader,
        tenant: &Tenant,
        hook: &str,
    ) -> Result<Option<GateReason>, Damaged> {
        let record = reader.read(&keys::cancelled(tenant, hook), CancelledRecord::decode)?;
        Ok(record.map(|record| reason_of(Ruling::Cancel(record.cancelled.why))))
    }

    /// A subscription whose gate has closed for good is remembered for its owner; one that its
    /// endpoint has ended is gone.
    fn hook_ended(
        &self,
        txn: &mut Txn<'_>,
        hook: &Hook,
        by: EndedBy,
    ) -> Result<Option<EndReason>, ReadError> {
        if by == EndedBy::Endpoint {
            return Ok(None);
        }
        let (spec, now) = (spec_of(hook)?, txn.now());
        // Everything before the garden is as it was when the gate was asked, or worse; what is not
        // found there is the garden's.
        let why = match gate::ask(txn, hook, &spec, None, now)? {
            Ruling::Cancel(why) => why,
            Ruling::Deliver | Ruling::Withhold(_) => CancelReason::MembershipEnded,
        };
        remember(txn, hook, &spec, why);
        Ok(Some(EndReason { action: SUBSCRIPTION_CANCELLED, text: why.sentence() }))
    }

    fn forget(
        &self,
        txn: &mut Txn<'_>,
        tenant: &Tenant,
        events: &[(EventNo, EventRecord)],
    ) -> Result<bool, ReadError> {
        let places: Vec<&Bytes> = events.iter().filter_map(|(_, event)| key_of(event)).collect();
        let heads = Scope::ALL.map(|scope| keys::stream(tenant, &fact_stream(scope)));
        let wanted: Vec<Bytes> = places.iter().copied().cloned().chain(heads).collect();
        txn.want(&wanted)?;
        let mut heads: Vec<(StreamPath, Head)> = Vec::new();
        for scope in Scope::ALL {
            let path = fact_stream(scope);
            if let Some(head) = txn.live_head(tenant, &path)? {
                if head.forks > 0 {
                    return Ok(false);
                }
                heads.push((path, head));
            }
        }
        for key in places {
            if let Some(copy) = forget_content(txn, key)?
                && let Some((_, head)) = heads.iter_mut().find(|(_, head)| head.id == copy.stream)
            {
                // A comma follows each.
                head.first = head.first.max(copy.from.plus(copy.len + 1));
            }
        }
        for (path, head) in heads {
            txn.trim_bytes(head.id, head.first);
            txn.set_head(tenant, &path, &head);
        }
        Ok(true)
    }

    fn timer(&self, shared: &Shared, timer: DueTimer) -> Result<FaceTimer, Damaged> {
        Ok(Arc::new(FireFactTimer::new(shared, timer)?))
    }
}

/// What a subscriber wishes, for whoever puts it into words.
pub fn read_spec(hook: &Hook) -> Result<FactHookSpec, Damaged> {
    spec_of(hook).map(|subscription| subscription.spec)
}

/// What a subscriber wishes.
pub(super) fn spec_of(hook: &Hook) -> Result<SubscriptionSpec, Damaged> {
    SubscriptionSpec::decode(&hook.spec).map_err(damaged)
}

fn reason_of(ruling: Ruling) -> GateReason {
    let check = ruling.check().map(|check| format!("{}: ", check.code()));
    let text = format!("{}{}", check.unwrap_or_default(), ruling.sentence());
    GateReason { is_open: ruling == Ruling::Deliver, text }
}

fn key_of(event: &EventRecord) -> Option<&Bytes> {
    match &event.place {
        EventPlace::Key { key, .. } => Some(key),
        EventPlace::Stream { .. } => None,
    }
}

/// Facts stay when their events are forgotten, and everything else goes. Says where the copy is.
fn forget_content(txn: &mut Txn<'_>, key: &Bytes) -> Result<Option<CopyPlace>, ReadError> {
    if let Some((_, no)) = keys::parse_fact(key) {
        let fact = txn.read(key, |value| FactRecord::decode(no, value))?;
        return Ok(fact.and_then(|fact| fact.copy));
    }
    let change = txn.read(key, ChangeRecord::decode)?;
    txn.remove(key);
    Ok(change.and_then(|change| change.copy))
}
