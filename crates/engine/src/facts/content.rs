//! What an event says, in the envelope in which a subscription gets it. It is read behind the gate,
//! in the same look, and kept nowhere.

use bytes::Bytes;
use reveille_core::delivery::hook::Hook;
use reveille_core::delivery::id::EventNo;
use reveille_core::fact::envelope::{FactEvent, card_payload, contradiction_payload};
use reveille_core::fact::subscription::FactEventKind;
use reveille_kernel::error::Damaged;
use reveille_schema::facts::{ChangeKind, ChangeRecord, FactRecord};
use reveille_schema::record::{EventPlace, EventRecord};
use reveille_schema::{Record, keys};
use reveille_store::state::Reader;

use super::assert::event_of;
use crate::records::damaged;

/// The kind of an event.
pub(super) fn kind_of(event: &EventRecord) -> Result<FactEventKind, Damaged> {
    let kind = FactEventKind::parse(&event.kind);
    kind.ok_or_else(|| Damaged(format!("facts have no events {:?}", event.kind)))
}

/// The number of an event, which is its name.
pub(super) fn number_of(event: &EventRecord) -> Result<EventNo, Damaged> {
    let number = event.id.parse().map(EventNo);
    number.map_err(|_| Damaged(format!("an event of facts has the name {:?}", event.id)))
}

/// The envelope of an event; `None` if what it tells of is there no more.
pub(super) fn envelope(
    reader: &Reader,
    hook: &Hook,
    event: &EventRecord,
) -> Result<Option<Bytes>, Damaged> {
    let EventPlace::Key { key, .. } = &event.place else {
        return Err(Damaged(format!("event {} has no content of its own", event.id)));
    };
    let Some(value) = reader.get(key)? else { return Ok(None) };
    let place = (hook.id, number_of(event)?);
    if let Some((_, no)) = keys::parse_fact(key) {
        let FactRecord { fact, .. } = FactRecord::decode(no, &value).map_err(damaged)?;
        return Ok(Some(event_of(&fact).envelope(&hook.name, place, &fact).into()));
    }
    let ChangeRecord { entity, scope, hlc, kind, .. } =
        ChangeRecord::decode(&value).map_err(damaged)?;
    let subject = Some((entity, scope));
    let (kind, fact, payload) = match kind {
        ChangeKind::Contradiction { relation, fact, existing } => {
            let payload = contradiction_payload(&relation, fact, &existing);
            (FactEventKind::Contradiction, Some(fact), payload)
        }
        ChangeKind::Card { summary, fact_count } => {
            (FactEventKind::Card, None, card_payload(&summary, fact_count))
        }
    };
    let told = FactEvent { kind, subject, fact, hlc: Some(hlc) };
    Ok(Some(told.envelope(&hook.name, place, payload).into()))
}
