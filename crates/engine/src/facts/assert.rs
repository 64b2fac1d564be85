//! A fact is written: with what it does to its slot, the contradiction that it causes, its copy for
//! those who read the scope, and whoever is told of all that, in one batch.

use reveille_core::Tenant;
use reveille_core::delivery::id::EventNo;
use reveille_core::fact::access::check_write;
use reveille_core::fact::envelope::{FactEvent, contradiction_payload};
use reveille_core::fact::principal::Principal;
use reveille_core::fact::slot::{LiveValue, Said, Slot};
use reveille_core::fact::statement::Statement;
use reveille_core::fact::subscription::FactEventKind;
use reveille_core::fact::value::ValueId;
use reveille_core::fact::{Fact, FactNo};
use reveille_kernel::command::{Command, Decision};
use reveille_kernel::txn::ReadError;
use reveille_schema::facts::{ChangeKind, ChangeRecord, FactRecord, FactSubject, SlotName};
use reveille_schema::{Record, keys};

use super::error::FactRejection;
use super::publish::{NewEvent, append_copies, fact_stream, tell};
use super::txn::FactTxn;
use crate::app::{App, Txn};
use crate::records::ReadRecord;

/// Says something, or takes back what was said.
#[derive(Debug, Clone)]
pub struct AssertFact {
    pub tenant: Tenant,
    pub principal: Principal,
    pub said: Statement,
    /// Which values are the same: it takes a while to tell.
    pub value: ValueId,
}

impl AssertFact {
    pub fn new(tenant: Tenant, principal: Principal, said: Statement) -> AssertFact {
        let value = said.value.id();
        AssertFact { tenant, principal, said, value }
    }
}

/// A contradiction that a fact causes.
struct Contradiction {
    no: EventNo,
    record: ChangeRecord,
}

impl Command<App> for AssertFact {
    type Answer = Box<Fact>;
    type Rejection = FactRejection;

    fn decide(&self, txn: &mut Txn<'_>) -> Decision<Box<Fact>, FactRejection> {
        let AssertFact { tenant, principal, said, value } = self;
        let garden = match &said.garden {
            None => None,
            Some(slug) => {
                let Some(record) = txn.garden_named(tenant, slug)? else {
                    return Ok(Err(FactRejection::GardenNotFound(slug.to_shared())));
                };
                let role = txn.role(tenant, record.garden.no, &principal.entity)?;
                Some((record.garden, role))
            }
        };
        let at = garden.as_ref().map(|(garden, role)| (garden.scope, *role));
        if let Err(denied) = check_write(principal, said.scope, at) {
            return Ok(Err(denied.into()));
        }
        let garden = garden.map(|(garden, _)| garden.no);
        let (entity, relation) = (said.entity.clone(), said.relation.clone());
        let name = SlotName { garden, entity, relation, scope: said.scope };
        let slot_key = keys::slot(tenant, &name);
        // However it ends, all of this is read: it is asked for at once.
        txn.want(&[
            slot_key.clone(),
            keys::fact_clock(tenant),
            keys::stream(tenant, &fact_stream(said.scope)),
        ])?;
        let (no, wall) = (FactNo(txn.take_id()), txn.wall());
        let hlc = txn.tick(tenant)?;
        let slot = txn.read(&slot_key, Slot::decode)?.unwrap_or_default();
        let Said { slot, contradicts } = if said.is_retraction() {
            Said { slot: slot.retracted(), contradicts: Vec::new() }
        } else {
            let new = LiveValue { fact: no, value: *value, until: said.valid_until };
            slot.asserted(new, wall)
        };
        if slot.live.is_empty() {
            txn.remove(&slot_key);
        } else {
            txn.set(slot_key, slot.encode());
        }
        let contradicted = !contradicts.is_empty();
        let fact = Fact { no, said: said.clone(), garden, at: wall, hlc, contradicted };
        let contradiction = match contradicts.is_empty() {
            true => None,
            false => Some(Contradiction::new(txn, tenant, &fact, contradicts)?),
        };
        write(txn, tenant, &name, &fact, contradiction)?;
        Ok(Ok(Box::new(fact)))
    }

    fn weight(&self) -> usize {
        let said = &self.said;
        let text = said.value.json().len() + said.source.len();
        2 * text + 3 * (said.entity.as_str().len() + said.relation.len()) + 4_096
    }

    fn needs_room(&self) -> bool {
        true
    }
}

impl Contradiction {
    fn new(
        txn: &mut Txn<'_>,
        tenant: &Tenant,
        fact: &Fact,
        existing: Vec<FactNo>,
    ) -> Result<Contradiction, ReadError> {
        let relation = fact.said.relation.clone();
        let record = ChangeRecord {
            entity: fact.said.entity.clone(),
            scope: fact.said.scope,
            garden: fact.garden,
            hlc: txn.tick(tenant)?,
            kind: ChangeKind::Contradiction { relation, fact: fact.no, existing },
            copy: None,
        };
        Ok(Contradiction { no: txn.take_event(), record })
    }

    fn copy(&self) -> String {
        let ChangeRecord { entity, scope, hlc, kind, .. } = &self.record;
        let ChangeKind::Contradiction { relation, fact, existing } = kind else {
            return String::new();
        };
        let event = FactEvent {
            kind: FactEventKind::Contradiction,
            subject: Some((entity.clone(), *scope)),
            fact: Some(*fact),
            hlc: Some(*hlc),
        };
        event.copy(contradiction_payload(relation, *fact, existing))
    }
}

/// What kind of event a fact is.
pub(super) fn kind_of(said: &Statement) -> FactEventKind {
    if said.is_retraction() { FactEventKind::Retract } else { FactEventKind::Assert }
}

/// A fact, as an event.
pub(super) fn event_of(fact: &Fact) -> FactEvent {
    FactEvent {
        kind: kind_of(&fact.said),
        subject: Some((fact.said.entity.clone(), fact.said.scope)),
        fact: Some(fact.no),
        hlc: Some(fact.hlc),
    }
}

/// Writes a fact and its contradiction, with their copies unless they are in a garden, and tells
/// whoever they are for.
fn write(
    txn: &mut Txn<'_>,
    tenant: &Tenant,
    name: &SlotName,
    fact: &Fact,
    contradiction: Option<Contradiction>,
) -> Result<(), ReadError> {
    let (mut copy, mut contradiction) = (None, contradiction);
    if fact.garden.is_none() {
        let mut copies = vec![event_of(fact).copy(fact)];
        copies.extend(contradiction.as_ref().map(Contradiction::copy));
        let mut places = append_copies(txn, tenant, name.scope, &copies)?.into_iter();
        copy = places.next();
        if let Some(contradiction) = &mut contradiction {
            contradiction.record.copy = places.next();
        }
    }
    let record = FactRecord { fact: fact.clone(), copy }.encode();
    let key = keys::fact(tenant, fact.no);
    let place = (key.clone(), record.len());
    let mut events = vec![NewEvent { no: EventNo(fact.no.0), kind: kind_of(&fact.said), place }];
    txn.set(key, record);
    txn.set(keys::fact_of(tenant, name, fact.no), bytes::Bytes::new());
    if let Some(Contradiction { no, record }) = contradiction {
        let (key, record) = (keys::fact_change(tenant, no), record.encode());
        let place = (key.clone(), record.len());
        events.push(NewEvent { no, kind: FactEventKind::Contradiction, place });
        txn.set(key, record);
    }
    let (scope, entity) = (name.scope, name.entity.clone());
    tell(txn, tenant, &FactSubject { scope, garden: name.garden, entity }, &events)
}
