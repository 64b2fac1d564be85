//! Spreading: telling the hooks that an event is for.
//!
//! Whoever is to get an event is decided in the step that takes it in, at its place in the log. The
//! first hooks get their deliveries in that very batch, the rest in slices by the due index, from a
//! cursor that is pinned to the event. Which hooks those are is their face's business.

use std::any::Any;
use std::sync::Arc;

use reveille_core::Tenant;
use reveille_core::delivery::DeadReason;
use reveille_core::delivery::hook::{FaceId, Hook, HookId};
use reveille_core::delivery::id::{DeliveryNo, EventNo};
use reveille_core::delivery::lane;
use reveille_kernel::txn::ReadError;
use reveille_schema::deliveries::DeliveryTimer;
use reveille_schema::keys;
use reveille_schema::record::{self, EventRecord};

use super::delivery::{self, DeliveryTxn, NewDelivery};
use super::face::{DeliveryFaces, PreparedMatch};
use super::source;
use super::timer_group::TimerGroups;
use crate::app::Txn;
use crate::effect::EventPayload;
use crate::limits::DELIVERIES_PER_BATCH;
use crate::records::ReadRecord;

/// Some of the hooks that an event is for.
#[derive(Debug, Clone)]
pub struct MatchingHooks {
    /// Oldest first.
    pub hooks: Vec<MatchingHook>,
    /// None that is not younger than this is left out.
    pub through: HookId,
    /// Whether these are all.
    pub complete: bool,
    /// What there is to remember of hooks that were looked at, in their order.
    pub notes: Vec<(HookId, MatchNote)>,
}

/// What there is to remember of a hook that was held against an event, in the words of its face.
pub type MatchNote = Arc<dyn Any + Send + Sync>;

impl MatchingHooks {
    /// None so far, after a hook.
    pub fn after(after: HookId) -> MatchingHooks {
        MatchingHooks { hooks: Vec::new(), through: after, complete: false, notes: Vec::new() }
    }
}

/// A hook that an event is for, and the version of it that says so: the one that it had at the
/// event's place in the log.
#[derive(Debug, Clone)]
pub struct MatchingHook {
    pub hook: Arc<Hook>,
    pub version: u64,
    /// Why there is a dead letter at once, and no attempt.
    pub dead: Option<DeadReason>,
}

impl From<Arc<Hook>> for MatchingHook {
    /// As the hook is now.
    fn from(hook: Arc<Hook>) -> MatchingHook {
        MatchingHook { version: hook.version, hook, dead: None }
    }
}

/// An event that is spread.
#[derive(Debug, Clone, Copy)]
pub struct SpreadEvent<'a> {
    pub no: EventNo,
    pub record: &'a EventRecord,
    /// What is delivered, if it is at hand: then it is not read for first attempts.
    pub payload: Option<&'a EventPayload>,
    /// What its face has found out before, for an event that came a while ago.
    pub prepared: Option<&'a PreparedMatch>,
}

/// The spread of the events of one decision.
pub struct Spread<'a> {
    face: FaceId,
    tenant: &'a Tenant,
    groups: TimerGroups,
    /// Deliveries that may still begin in this decision.
    room: usize,
    /// Some event is not told to everybody yet: whoever gets events in their order waits.
    waits: bool,
    /// Of hooks that are told, or need not be.
    notes: Vec<(HookId, MatchNote)>,
}

impl<'a> Spread<'a> {
    /// Begins with what decisions about these hooks read. There may be several lists, each for some
    /// events; so many deliveries at most begin at once.
    pub fn begin<'m>(
        txn: &mut Txn<'_>,
        face: FaceId,
        tenant: &'a Tenant,
        lists: impl Iterator<Item = &'m MatchingHooks> + Clone,
        deliveries: usize,
    ) -> Result<Spread<'a>, ReadError> {
        let most = txn.domains().settings.fan_out;
        read_counts(txn, lists.clone().flat_map(|list| list.hooks.iter().take(most)))?;
        let waits = has_ordered(lists.flat_map(|list| &list.hooks))
            && next_fan_out(txn, face, tenant, EventNo(0))?.is_some();
        let groups = TimerGroups::of(deliveries);
        let (room, notes) = (DELIVERIES_PER_BATCH, Vec::new());
        Ok(Spread { face, tenant, groups, room, waits, notes })
    }

    /// Tells the hooks that an event is for, or as many as may be told now.
    pub fn event(
        &mut self,
        txn: &mut Txn<'_>,
        event: SpreadEvent<'_>,
        matches: &MatchingHooks,
    ) -> Result<(), ReadError> {
        let hooks = &matches.hooks;
        // Whoever gets events in their order gets none before those that are still being told.
        let waits_now = (self.waits && has_ordered(hooks)) || txn.is_full();
        let most = if waits_now { 0 } else { txn.domains().settings.fan_out };
        let now = hooks.len().min(most).min(self.room);
        begin_all(txn, &mut self.groups, hooks.iter().take(now), event)?;
        self.room -= now;
        let mut through = HookId(u64::MAX);
        if now < hooks.len() || !matches.complete {
            let told = match now.checked_sub(1).and_then(|last| hooks.get(last)) {
                _ if now == hooks.len() => matches.through,
                told => told.map_or(HookId(0), |it| it.hook.id),
            };
            through = told;
            leave(txn, self.face, self.tenant, event.no, told);
            self.waits = true;
        }
        let noted = matches.notes.iter().take_while(|(hook, _)| *hook <= through);
        self.notes.extend(noted.cloned());
        Ok(())
    }

    /// Writes what all of them share.
    pub fn end(self, txn: &mut Txn<'_>) -> Result<(), ReadError> {
        self.groups.keep(txn);
        note(txn, self.face, &self.notes)
    }
}

/// Tells the hooks that one event is for.
pub fn spread(
    txn: &mut Txn<'_>,
    face: FaceId,
    tenant: &Tenant,
    event: SpreadEvent<'_>,
    matches: &MatchingHooks,
) -> Result<(), ReadError> {
    let lists = std::iter::once(matches);
    let mut spread = Spread::begin(txn, face, tenant, lists, matches.hooks.len())?;
    spread.event(txn, event, matches)?;
    spread.end(txn)
}

/// What there is to remember of hooks that were looked at is remembered.
fn note(txn: &mut Txn<'_>, face: FaceId, notes: &[(HookId, MatchNote)]) -> Result<(), ReadError> {
    if notes.is_empty() {
        return Ok(());
    }
    txn.domains().part::<DeliveryFaces>().get(face)?.noted(txn, notes)
}

fn begin_all<'h>(
    txn: &mut Txn<'_>,
    groups: &mut TimerGroups,
    hooks: impl Iterator<Item = &'h MatchingHook>,
    event: SpreadEvent<'_>,
) -> Result<(), ReadError> {
    let SpreadEvent { no, record, payload, .. } = event;
    let mut lane = None;
    for MatchingHook { hook, version, dead } in hooks {
        let lane = match hook.is_ordered() {
            true => *lane.get_or_insert_with(|| lane::number(record.subject.as_deref())),
            false => 0,
        };
        let no = DeliveryNo { event: no, round: 0 };
        let (version, event_at, dead) = (*version, record.at, *dead);
        let new = NewDelivery { no, version, event_at, lane, event: payload, dead };
        delivery::begin(txn, groups, hook, new)?;
    }
    Ok(())
}

/// Reads what hooks of events that are in order have before these at once, and not one after another.
pub fn want_lanes<'m>(
    txn: &mut Txn<'_>,
    events: impl Iterator<Item = (&'m EventRecord, &'m MatchingHooks)>,
) -> Result<(), ReadError> {
    let most = txn.domains().settings.fan_out;
    let lanes = events.flat_map(|(record, list)| {
        let ordered = list.hooks.iter().take(most).filter(|it| it.hook.is_ordered());
        let mut number = None;
        ordered.map(move |it| {
            let number = number.get_or_insert_with(|| lane::number(record.subject.as_deref()));
            keys::lane(it.hook.id, *number)
        })
    });
    let lanes: Vec<_> = lanes.take(DELIVERIES_PER_BATCH).collect();
    txn.want(&lanes)
}

/// Leaves whoever comes after a hook to the due index.
fn leave(txn: &mut Txn<'_>, face: FaceId, tenant: &Tenant, no: EventNo, told: HookId) {
    txn.set(keys::fan_out(face, tenant, no), record::encode_u64(told.0));
    go_on(txn, face, tenant, no);
}

fn go_on(txn: &mut Txn<'_>, face: FaceId, tenant: &Tenant, no: EventNo) {
    txn.set_delivery_timer(txn.now(), &DeliveryTimer::FanOut(face, tenant.clone(), no));
}

fn has_ordered<'a>(hooks: impl IntoIterator<Item = &'a MatchingHook>) -> bool {
    hooks.into_iter().any(|it| it.hook.is_ordered())
}

/// The first event of a face, from one on, that not everybody was told of.
pub fn next_fan_out(
    txn: &mut Txn<'_>,
    face: FaceId,
    tenant: &Tenant,
    from: EventNo,
) -> Result<Option<EventNo>, ReadError> {
    let (_, to) = keys::fan_outs(face, tenant);
    let first = txn.first(keys::fan_out(face, tenant, from), &to, 2)?;
    Ok(first.and_then(|key| keys::parse_event(&key)))
}

/// Reads what beginning deliveries changes.
fn read_counts<'a>(
    txn: &mut Txn<'_>,
    hooks: impl Iterator<Item = &'a MatchingHook>,
) -> Result<(), ReadError> {
    let begun = hooks.take(DELIVERIES_PER_BATCH).map(|it| it.hook.id).collect();
    txn.counts_and(&begun, []).map(drop)
}

/// Begins the next slice of an event's deliveries. Where some of them are in order, older events
/// come first; the last slice of those calls for this one.
pub(super) fn fan_out(
    txn: &mut Txn<'_>,
    face: FaceId,
    tenant: &Tenant,
    no: EventNo,
    payload: Option<&EventPayload>,
    prepared: Option<&PreparedMatch>,
) -> Result<(), ReadError> {
    let cursor = keys::fan_out(face, tenant, no);
    let told = txn.read(&cursor, record::decode_u64)?;
    let (Some(told), Some(record)) = (told, source::event_of(txn, face, tenant, no)?) else {
        return Ok(());
    };
    let event = SpreadEvent { no, record: &record, payload, prepared };
    let matcher = txn.domains().part::<DeliveryFaces>().get(face)?;
    let list = matcher.next_matching(txn, tenant, event, HookId(told))?;
    let hooks = &list.hooks;
    let first = EventNo(0);
    if has_ordered(hooks) && next_fan_out(txn, face, tenant, first)?.is_some_and(|it| it < no) {
        return Ok(());
    }
    read_counts(txn, hooks.iter())?;
    let mut groups = TimerGroups::of(hooks.len());
    want_lanes(txn, [(&record, &list)].into_iter())?;
    begin_all(txn, &mut groups, hooks.iter(), event)?;
    groups.keep(txn);
    note(txn, face, &list.notes)?;
    if !list.complete {
        leave(txn, face, tenant, no, list.through);
        return Ok(());
    }
    txn.remove(&cursor);
    if let Some(next) = next_fan_out(txn, face, tenant, EventNo(no.0 + 1))? {
        go_on(txn, face, tenant, next);
    }
    Ok(())
}
