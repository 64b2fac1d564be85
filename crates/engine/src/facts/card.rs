//! Cards: what holds of an entity in a scope, made anew when somebody asks for that.

use reveille_core::Tenant;
use reveille_core::fact::card::{Card, Summary};
use reveille_core::fact::envelope::{FactEvent, card_payload};
use reveille_core::fact::principal::Principal;
use reveille_core::fact::slot::Slot;
use reveille_core::fact::subscription::FactEventKind;
use reveille_core::fact::{EntityUri, FactNo, Scope};
use reveille_kernel::command::{Command, Decision};
use reveille_kernel::error::Damaged;
use reveille_kernel::txn::ReadError;
use reveille_schema::facts::{ChangeKind, ChangeRecord, FactRecord, FactSubject, encode_card};
use reveille_schema::{Record, keys};

use super::error::FactRejection;
use super::limits::{CARD_FACTS_MAX, CARD_SLOTS_MAX};
use super::publish;
use super::publish::{NewEvent, append_copies};
use super::txn::FactTxn;
use crate::app::{App, Txn};
use crate::records::damaged;

/// Makes a card anew.
#[derive(Debug, Clone)]
pub struct RefreshCard {
    pub tenant: Tenant,
    pub by: Principal,
    pub entity: EntityUri,
    pub scope: Scope,
}

impl Command<App> for RefreshCard {
    type Answer = Card;
    type Rejection = FactRejection;

    fn decide(&self, txn: &mut Txn<'_>) -> Decision<Card, FactRejection> {
        let RefreshCard { tenant, by, entity, scope } = self;
        if !by.writes {
            return Ok(Err(reveille_core::fact::access::WriteDenied::Permission.into()));
        }
        if !by.may_read(*scope) {
            return Ok(Err(FactRejection::ScopeForbidden(scope.as_str().into())));
        }
        let (fact_count, summary) = self.summary(txn)?;
        let (no, hlc, wall) = (txn.take_event(), txn.tick(tenant)?, txn.wall());
        let event = FactEvent {
            kind: FactEventKind::Card,
            subject: Some((entity.clone(), *scope)),
            fact: None,
            hlc: Some(hlc),
        };
        let copy = event.copy(card_payload(&summary, fact_count));
        let copy = append_copies(txn, tenant, *scope, &[copy])?.into_iter().next();
        let record = ChangeRecord {
            entity: entity.clone(),
            scope: *scope,
            garden: None,
            hlc,
            kind: ChangeKind::Card { summary: summary.as_str().into(), fact_count },
            copy,
        };
        let card = Card {
            entity: entity.clone(),
            scope: *scope,
            summary,
            fact_count,
            refreshed_at: wall,
            hlc,
        };
        txn.set(keys::card(tenant, entity, *scope), encode_card(&card));
        let (key, record) = (keys::fact_change(tenant, no), record.encode());
        let place = (key.clone(), record.len());
        txn.set(key, record);
        let subject = FactSubject { scope: *scope, garden: None, entity: entity.clone() };
        publish::tell(txn, tenant, &subject, &[NewEvent { no, kind: FactEventKind::Card, place }])?;
        Ok(Ok(card))
    }

    fn weight(&self) -> usize {
        16 << 10
    }

    fn needs_room(&self) -> bool {
        true
    }
}

impl RefreshCard {
    /// How many facts hold that are in no garden, and what the first of them say.
    fn summary(&self, txn: &mut Txn<'_>) -> Result<(u64, String), ReadError> {
        let RefreshCard { tenant, entity, scope, .. } = self;
        let (from, to) = keys::slots(tenant, None, Some(entity));
        let slots = txn.range(&from, &to, CARD_SLOTS_MAX)?;
        let (wall, mut holding) = (txn.wall(), Vec::<FactNo>::new());
        for (key, value) in &slots.pairs {
            let (_, name) = keys::parse_slot(key).ok_or_else(|| Damaged::new("no slot"))?;
            if name.scope == *scope {
                holding.extend(Slot::decode(value).map_err(damaged)?.holding(wall));
            }
        }
        let read: Vec<FactNo> = holding.iter().take(CARD_FACTS_MAX).copied().collect();
        let facts = txn.gather(read, |txn, no| Ok((no, txn.get(&keys::fact(tenant, no))?)))?;
        let mut summary = Summary::default();
        for (no, value) in facts {
            let Some(value) = value else { continue };
            // Few fit: the others are not even decoded, which would keep everybody waiting.
            if !summary.add(&FactRecord::decode(no, &value).map_err(damaged)?.fact) {
                break;
            }
        }
        let count = u64::try_from(holding.len()).unwrap_or(u64::MAX);
        Ok((count, summary.finish(count)))
    }
}
