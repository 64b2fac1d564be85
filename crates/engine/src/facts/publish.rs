//! Changes of facts are events: told to whom they are for, and copied for those who read their scope,
//! in the batch that makes them.

use bytes::{BufMut, Bytes, BytesMut};
use reveille_core::delivery::hook::{Hook, HookId};
use reveille_core::delivery::id::EventNo;
use reveille_core::fact::subscription::FactEventKind;
use reveille_core::fact::{FACE, Scope};
use reveille_core::trace::Trace;
use reveille_core::{StreamPath, Tenant};
use reveille_kernel::error::Damaged;
use reveille_kernel::txn::ReadError;
use reveille_schema::facts::{CopyPlace, FactSubject};
use reveille_schema::record::{EventPlace, EventRecord};

use super::index::{EventQuery, matching};
use crate::app::Txn;
use crate::deliveries::source::put_event;
use crate::deliveries::spread::{MatchingHooks, Spread, SpreadEvent};
use crate::effect::EventPayload;
use crate::matching::{spend, steps_left};
use crate::streams::own::append_own;

/// An event that is to be told.
pub(super) struct NewEvent {
    pub(super) no: EventNo,
    pub(super) kind: FactEventKind,
    /// Where its content is, and how long that is.
    pub(super) place: (Bytes, usize),
}

/// The stream that has copies of what is in a scope and in no garden.
pub(super) fn fact_stream(scope: Scope) -> StreamPath {
    let path = StreamPath::parse(&format!("/_facts/{scope}"));
    path.expect("the name of a scope can be a part of a path")
}

/// Appends copies to the stream of a scope. Says where each of them is.
pub(super) fn append_copies(
    txn: &mut Txn<'_>,
    tenant: &Tenant,
    scope: Scope,
    copies: &[String],
) -> Result<Vec<CopyPlace>, ReadError> {
    let mut messages = BytesMut::with_capacity(copies.iter().map(|it| it.len() + 1).sum());
    for copy in copies {
        messages.put_slice(copy.as_bytes());
        messages.put_u8(b',');
    }
    let stream = fact_stream(scope);
    let appended = append_own(txn, tenant, &stream, messages.freeze())?;
    let (head, mut from) =
        appended.map_err(|rejected| Damaged(format!("{stream} takes no facts: {rejected:?}")))?;
    let places = copies.iter().map(|copy| {
        let len = u64::try_from(copy.len()).unwrap_or(u64::MAX);
        let place = CopyPlace { stream: head.id, from, len };
        // A comma follows each.
        from = from.plus(len + 1);
        place
    });
    Ok(places.collect())
}

/// Tells events to whom they are for: the first in this batch, the others in slices.
pub(super) fn tell(
    txn: &mut Txn<'_>,
    tenant: &Tenant,
    subject: &FactSubject,
    events: &[NewEvent],
) -> Result<(), ReadError> {
    txn.rests_on_index();
    let lists: Vec<MatchingHooks> =
        events.iter().map(|event| subscribers(txn, tenant, event.kind, subject)).collect();
    let most = txn.domains().settings.fan_out;
    let told = lists.iter().map(|list| list.hooks.len().min(most)).sum();
    let mut spread = Spread::begin(txn, FACE, tenant, lists.iter(), told)?;
    let (at, trace, about) = (txn.now(), txn.trace, subject.to_string());
    for (event, list) in events.iter().zip(&lists) {
        let (key, len) = event.place.clone();
        let record = EventRecord {
            id: event.no.0.to_string().into(),
            kind: event.kind.as_str().into(),
            subject: Some(about.as_str().into()),
            at,
            place: EventPlace::Key { key, len: u64::try_from(len).unwrap_or(u64::MAX) },
            trace: trace.map(Trace::to_bytes),
        };
        put_event(txn, FACE, tenant, event.no, &record);
        // What is sent is read behind the gate, never taken from here.
        let nothing = EventPayload { id: record.id.clone(), at, payload: Bytes::new(), trace };
        let (no, payload) = (event.no, Some(&nothing));
        let spread_event = SpreadEvent { no, record: &record, payload, prepared: None };
        spread.event(txn, spread_event, list)?;
    }
    spread.end(txn)
}

/// The first subscriptions that an event is for that comes now.
fn subscribers(
    txn: &mut Txn<'_>,
    tenant: &Tenant,
    kind: FactEventKind,
    subject: &FactSubject,
) -> MatchingHooks {
    let (limit, accepts) = (txn.domains().settings.fan_out, |hook: &Hook| hook.is_active());
    let query = EventQuery { tenant, kind, subject, after: HookId(0), limit, accepts: &accepts };
    let mut steps = steps_left(txn);
    let list = matching(txn.index(), &query, &mut steps);
    spend(txn, tenant, steps.used());
    list
}
