//! Typed events as a source of deliveries.

use std::sync::Arc;

use reveille_core::Tenant;
use reveille_core::delivery::hook::{FaceId, Hook, HookId};
use reveille_core::delivery::id::EventNo;
use reveille_core::event::EventType;
use reveille_core::event::hook::FACE;
use reveille_kernel::error::Damaged;
use reveille_kernel::timers::DueTimer;
use reveille_kernel::txn::ReadError;
use reveille_schema::record::{self, EventPlace, EventRecord};
use reveille_store::state::Reader;

use super::explain;
use super::index::{EventHookIndex, HookQuery, next_matching};
use super::queries::find_event;
use super::timers::FireEventTimer;
use super::txn::named_places;
use crate::app::{App, Shared, Txn};
use crate::deliveries::face::{DeliveryFace, EventMatch, FaceTimer};
use crate::deliveries::spread::{MatchingHooks, SpreadEvent};
use crate::engine::Engine;
use crate::matching::{spend, steps_left};
use crate::records::ReadRecord;
use crate::streams::txn::StreamTxn;

/// The face of typed events.
pub struct EventFace;

impl DeliveryFace for EventFace {
    fn id(&self) -> FaceId {
        FACE
    }

    fn register(&self, app: App) -> App {
        app.with_index_of(EventHookIndex::new)
    }

    fn next_matching(
        &self,
        txn: &mut Txn<'_>,
        tenant: &Tenant,
        event: SpreadEvent<'_>,
        after: HookId,
    ) -> Result<MatchingHooks, ReadError> {
        let kind = &kind_of(event.record)?;
        let (at, limit) = (Some(event.no), txn.domains().settings.fan_out);
        let accepts = |hook: &Hook| hook.was_active_at(event.no) && !hook.is_catching_up();
        let query = HookQuery { tenant, kind, at, after, limit, accepts: &accepts };
        let mut steps = steps_left(txn);
        let list = next_matching(txn.index(), &query, &mut steps);
        spend(txn, tenant, steps.used());
        Ok(list)
    }

    fn explain_match(
        &self,
        _: &Reader,
        hook: &Hook,
        no: EventNo,
        event: &EventRecord,
    ) -> Result<EventMatch, Damaged> {
        explain::explain_match(hook, no, event)
    }

    fn event_named(
        &self,
        reader: &Reader,
        tenant: &Tenant,
        name: &str,
    ) -> Result<Option<EventNo>, Damaged> {
        find_event(reader, tenant, name).map(|found| found.map(|(no, _)| no))
    }

    fn forget(
        &self,
        txn: &mut Txn<'_>,
        tenant: &Tenant,
        events: &[(EventNo, EventRecord)],
    ) -> Result<bool, ReadError> {
        let path = Engine::event_stream(tenant);
        let Some(mut head) = txn.live_head(tenant, &path)?.filter(|head| head.forks == 0) else {
            return Ok(false);
        };
        let names: Vec<_> =
            events.iter().flat_map(|(_, it)| named_places(tenant, &it.id)).collect();
        txn.want(&names.into_iter().map(|(key, _)| key).collect::<Vec<_>>())?;
        for (no, event) in events {
            forget_name(txn, tenant, *no, event)?;
            if let EventPlace::Stream { stream, from, len } = event.place
                && stream == head.id
            {
                // A comma follows each.
                head.first = head.first.max(from.plus(len + 1));
            }
        }
        if !events.is_empty() {
            txn.trim_bytes(head.id, head.first);
            txn.set_head(tenant, &path, &head);
        }
        Ok(true)
    }

    fn timer(&self, _: &Shared, timer: DueTimer) -> Result<FaceTimer, Damaged> {
        Ok(Arc::new(FireEventTimer::new(timer)?))
    }
}

/// The type of an event, as it is kept.
pub fn kind_of(event: &EventRecord) -> Result<EventType, Damaged> {
    EventType::parse(&event.kind)
        .map_err(|error| Damaged(format!("the stored type {:?}: {error}", event.kind)))
}

/// An event has its name no longer; a younger one may have it.
fn forget_name(
    txn: &mut Txn<'_>,
    tenant: &Tenant,
    no: EventNo,
    event: &EventRecord,
) -> Result<(), ReadError> {
    for (key, place) in named_places(tenant, &event.id) {
        let Some(first) = txn.read(&key, record::decode_u64)? else { continue };
        if first.checked_add(place) == Some(no.0) {
            txn.remove(&key);
        }
    }
    Ok(())
}
