//! The triggers that a change of a while ago is still for: found out away from the lock, by what was
//! in force when it came, so that the answer is the one that the write itself would have had.

use std::sync::Arc;

use reveille_core::Tenant;
use reveille_core::delivery::hook::{Hook, HookId};
use reveille_core::delivery::id::EventNo;
use reveille_core::document::change::FACE;
use reveille_core::steps::Steps;
use reveille_core::trigger::matching::ChangeFields;
use reveille_core::trigger::message::ChangeMessage;
use reveille_kernel::error::Damaged;
use reveille_schema::keys;
use reveille_schema::record::{self, EventRecord};
use reveille_store::state::Reader;

use super::evaluate::{ChangeCase, Evaluated};
use super::index::{TriggerEntry, TriggerIndex};
use super::look::triggers_of;
use super::matching::add;
use super::notes::ChangeMark;
use crate::app::{Shared, Txn};
use crate::deliveries::face::{EventMatch, PreparedMatch};
use crate::deliveries::source;
use crate::deliveries::spread::{MatchingHooks, SpreadEvent};
use crate::limits::{TRIGGER_LOOK_STEPS, TRIGGER_SLICE_STEPS};
use crate::matching::Shares;
use crate::records::ReadRecord;

/// The next triggers that a change is for.
#[derive(Debug)]
struct PreparedSlice {
    change: ChangeMark,
    /// After this one.
    after: HookId,
    found: Vec<Evaluated>,
    /// None that is not younger than this is left out.
    through: HookId,
    complete: bool,
}

/// Finds the next triggers that a change is for.
pub(super) fn prepare(
    shared: &Shared,
    tenant: &Tenant,
    no: EventNo,
) -> Result<Option<PreparedMatch>, Damaged> {
    let reader = &shared.state.reader();
    let mut look = reader;
    let told = look.read(&keys::fan_out(FACE, tenant, no), record::decode_u64)?;
    let event = source::event(reader, FACE, tenant, no)?;
    let (Some(told), Some(event)) = (told, event) else { return Ok(None) };
    let Some((mark, fields)) = read_change(reader, &event)? else { return Ok(None) };
    let (after, limit) = (HookId(told), shared.domains.settings.fan_out);
    let mut steps = Steps::new(TRIGGER_SLICE_STEPS);
    let mut slice =
        PreparedSlice { change: mark, after, found: Vec::new(), through: after, complete: true };
    let triggers = triggers_of(shared, tenant).unwrap_or_default();
    let case = ChangeCase::of_fields(&fields, Some(no));
    for entry in triggers.candidates(case.path, after) {
        let is_enough = slice.found.len() >= limit || steps.is_exceeded();
        if is_enough && slice.through != after {
            slice.complete = false;
            break;
        }
        // One of them is always found out about: so every slice comes further.
        let mut own = Steps::new(TRIGGER_LOOK_STEPS);
        let evaluation = case.evaluate(entry, &mut own).unwrap_or_default();
        steps.count(own.used());
        if evaluation.is_miss {
            entry.count_miss();
        }
        if !evaluation.is_nothing() {
            slice.found.push(Evaluated { hook: entry.hook.id, evaluation });
        }
        slice.through = entry.hook.id;
    }
    shared.domains.part::<Shares>().count_steps(tenant, steps.used());
    Ok(Some(Arc::new(slice)))
}

/// The same, as they are now. What has ended meanwhile gets nothing; what was changed is held
/// against the change by what was in force then, whatever that is called now.
pub(super) fn next_matching(
    txn: &mut Txn<'_>,
    tenant: &Tenant,
    event: SpreadEvent<'_>,
    after: HookId,
) -> MatchingHooks {
    let mut list = MatchingHooks::after(after);
    let slice = event.prepared.and_then(|it| it.downcast_ref::<PreparedSlice>());
    // Without a look that begins where this one does it comes again, with another.
    let Some(slice) = slice.filter(|slice| slice.after == after) else { return list };
    let index = TriggerIndex::of_txn(txn);
    for Evaluated { hook, evaluation } in &slice.found {
        if let Some(entry) = index.get(tenant, *hook) {
            add(&mut list, entry, evaluation.clone(), &slice.change);
        }
    }
    list.through = slice.through;
    list.complete = slice.complete;
    list
}

/// The change that an event is, ready for conditions; `None` if its content is not kept any more.
pub(super) fn read_change(
    reader: &Reader,
    event: &EventRecord,
) -> Result<Option<(ChangeMark, ChangeFields)>, Damaged> {
    let Some(message) = source::content(reader, event)? else { return Ok(None) };
    read_message(&message).map(Some)
}

/// The same of a message of the stream of changes.
pub(super) fn read_message(message: &[u8]) -> Result<(ChangeMark, ChangeFields), Damaged> {
    let parsed = ChangeMessage::parse(message).and_then(|message| {
        let fields = ChangeFields::of_message(&message)?;
        Ok((message.seq, fields))
    });
    let (seq, fields) = parsed.map_err(|error| Damaged(error.to_string()))?;
    Ok((ChangeMark::of_fields(seq, &fields), fields))
}

/// Whether a trigger was for a change, by what was in force then.
pub(super) fn explain(
    reader: &Reader,
    hook: &Hook,
    no: EventNo,
    event: &EventRecord,
) -> Result<EventMatch, Damaged> {
    let Some((_, fields)) = read_change(reader, event)? else {
        return Ok(EventMatch::Unknown("what the change was is not kept any more".into()));
    };
    let entry = TriggerEntry::of(hook.clone())?;
    let case = ChangeCase::of_fields(&fields, Some(no));
    if entry.epoch_at(Some(no)).is_none() {
        let unknown = "the version of then is not kept any more";
        return Ok(EventMatch::Unknown(unknown.into()));
    }
    let mut steps = Steps::new(TRIGGER_LOOK_STEPS);
    Ok(match case.live(&entry, &mut steps) {
        Ok(Some((_, Ok(())))) => EventMatch::Matches,
        Ok(Some((version, Err(why)))) => EventMatch::Differs(format!("version {version}: {why}")),
        Ok(None) => EventMatch::Differs("the trigger was not enabled".into()),
        Err(_) => EventMatch::Differs("its condition takes too many steps".into()),
    })
}
