//! Facts, page by page, as far as somebody may read them: where nothing may be read, nothing is looked
//! at.
//!
//! Facts of an entity, or of a garden, are found by their entries, garden by garden; all others by
//! their numbers. A page ends when it is full, or has looked at as much as one may.

use bytes::Bytes;
use reveille_core::Millis;
use reveille_core::Tenant;
use reveille_core::fact::access::may_read;
use reveille_core::fact::garden::{GardenNo, GardenSlug, Membership};
use reveille_core::fact::principal::Principal;
use reveille_core::fact::slot::Slot;
use reveille_core::fact::{EntityUri, Fact, FactNo, Scope};
use reveille_core::key_range::above;
use reveille_kernel::error::Damaged;
use reveille_schema::facts::{FactRecord, GardenRecord, SlotName};
use reveille_schema::{Record, keys};
use reveille_store::state::Reader;

use super::error::{FactError, FactRejection};
use super::limits::{
    FACT_LOOK_BYTES_MAX, FACT_LOOKS_MAX, FACT_PAGE_BYTES_MAX, FACTS_PAGE_MAX, GARDENS_OF_MEMBER_MAX,
};
use crate::records::{ReadRecord, Scan, damaged};

/// Which facts are asked for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FactFilter {
    pub entity: Option<EntityUri>,
    pub relation: Option<std::sync::Arc<str>>,
    pub scope: Option<Scope>,
    pub garden: Option<GardenSlug>,
    /// Whether only those that hold are.
    pub live: bool,
}

/// Some facts; `C` is a place, or what its reader gets of that.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FactPage<C = String> {
    pub facts: Vec<Fact>,
    /// Where the next page begins; `None` if there is none.
    pub next: Option<C>,
}

/// A page that is read, from one look.
pub(super) struct PageRun {
    pub(super) reader: Reader,
    pub(super) tenant: Tenant,
    pub(super) principal: Principal,
    pub(super) filter: FactFilter,
    /// The garden that the filter names.
    pub(super) garden: Option<GardenNo>,
    pub(super) limit: usize,
    /// What was looked at last.
    pub(super) after: Option<Bytes>,
    pub(super) wall: Millis,
}

/// What a page holds until now.
struct Collector {
    page: FactPage<Bytes>,
    looks: usize,
    /// Bytes of what is on the page, and of all that was read for it.
    bytes: (usize, usize),
    limit: usize,
}

impl PageRun {
    /// Reads the page.
    pub(super) fn read(&self) -> Result<FactPage<Bytes>, FactError> {
        let (page, limit) = (FactPage::default(), self.limit.clamp(1, FACTS_PAGE_MAX));
        let mut collector = Collector { page, looks: 0, bytes: (0, 0), limit };
        let gardens = self.visible_gardens()?;
        match (&self.filter.entity, self.garden) {
            (None, None) => self.by_number(&gardens, &mut collector)?,
            (_, Some(garden)) => self.by_entry(&[Some(garden)], &mut collector)?,
            (Some(_), None) => {
                let all: Vec<_> = [None].into_iter().chain(gardens.into_iter().map(Some)).collect();
                self.by_entry(&all, &mut collector)?;
            }
        }
        Ok(collector.page)
    }

    /// The gardens that somebody belongs to now, in the order of their numbers.
    fn visible_gardens(&self) -> Result<Vec<GardenNo>, FactError> {
        let PageRun { reader, tenant, principal, garden, .. } = self;
        if let Some(garden) = garden {
            return match is_member(reader, tenant, *garden, &principal.entity)? {
                true if principal.reads => Ok(vec![*garden]),
                _ => Err(FactRejection::NotMember.into()),
            };
        }
        if !principal.reads {
            return Err(FactRejection::ReadDenied.into());
        }
        gardens_of(reader, tenant, &principal.entity).map_err(FactError::from)
    }

    /// Entries of facts, garden by garden.
    fn by_entry(
        &self,
        gardens: &[Option<GardenNo>],
        collector: &mut Collector,
    ) -> Result<(), FactError> {
        let PageRun { reader, tenant, filter, after, .. } = self;
        for garden in gardens {
            let (entity, relation) = (filter.entity.as_ref(), filter.relation.as_deref());
            let (first, to) = keys::facts_of(tenant, *garden, entity, relation);
            let from = match after {
                Some(after) if *after >= to => continue,
                Some(after) if *after >= first => above(after),
                _ => first,
            };
            for pair in Scan::new(reader, from, to) {
                let (key, _) = pair?;
                let parsed = keys::parse_fact_of(&key);
                let (_, name, no) =
                    parsed.ok_or_else(|| Damaged::new("an entry of a fact is damaged"))?;
                collector.looks += 1;
                if self.is_wanted(&name) && self.may_read(&name) {
                    self.offer(no, collector)?;
                }
                if collector.is_full() {
                    collector.page.next = Some(key);
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// All facts in the order in which they were written.
    fn by_number(&self, gardens: &[GardenNo], collector: &mut Collector) -> Result<(), FactError> {
        let PageRun { reader, tenant, after, .. } = self;
        let (first, to) = keys::facts(tenant, FactNo(0));
        let from = after.as_ref().map_or(first.clone(), |after| above(after).max(first));
        for pair in Scan::new(reader, from, to) {
            let (key, value) = pair?;
            let parsed = keys::parse_fact(&key);
            let (_, no) = parsed.ok_or_else(|| Damaged::new("the key of a fact is damaged"))?;
            let fact = FactRecord::decode(no, &value).map_err(damaged)?.fact;
            let name = SlotName {
                garden: fact.garden,
                entity: fact.said.entity.clone(),
                relation: fact.said.relation.clone(),
                scope: fact.said.scope,
            };
            let is_visible = match fact.garden {
                Some(garden) => gardens.binary_search(&garden).is_ok(),
                None => self.may_read(&name),
            };
            collector.looks += 1;
            collector.bytes.1 += value.len();
            if is_visible && self.is_wanted(&name) && self.holds(&fact, &name)? {
                collector.take(fact, value.len());
            }
            if collector.is_full() {
                collector.page.next = Some(key);
                return Ok(());
            }
        }
        Ok(())
    }

    fn is_wanted(&self, name: &SlotName) -> bool {
        let FactFilter { relation, scope, entity, .. } = &self.filter;
        relation.as_ref().is_none_or(|it| **it == *name.relation)
            && scope.is_none_or(|it| it == name.scope)
            && entity.as_ref().is_none_or(|it| *it == name.entity)
    }

    /// Those of gardens are only looked at if they may be read.
    fn may_read(&self, name: &SlotName) -> bool {
        name.garden.is_some() || may_read(&self.principal, name.scope, None)
    }

    fn offer(&self, no: FactNo, collector: &mut Collector) -> Result<(), FactError> {
        let mut look = &self.reader;
        let key = keys::fact(&self.tenant, no);
        let Some(value) = look.value(&key)? else { return Ok(()) };
        collector.bytes.1 += value.len();
        let fact = FactRecord::decode(no, &value).map_err(damaged)?.fact;
        let name = SlotName {
            garden: fact.garden,
            entity: fact.said.entity.clone(),
            relation: fact.said.relation.clone(),
            scope: fact.said.scope,
        };
        if self.holds(&fact, &name)? {
            collector.take(fact, value.len());
        }
        Ok(())
    }

    /// Whether a fact is one that is asked for because it holds.
    fn holds(&self, fact: &Fact, name: &SlotName) -> Result<bool, Damaged> {
        if !self.filter.live {
            return Ok(true);
        }
        let mut look = &self.reader;
        let slot = look.read(&keys::slot(&self.tenant, name), Slot::decode)?;
        Ok(slot.is_some_and(|slot| slot.holding(self.wall).any(|no| no == fact.no)))
    }
}

impl Collector {
    fn take(&mut self, fact: Fact, bytes: usize) {
        self.bytes.0 += bytes;
        self.page.facts.push(fact);
    }

    fn is_full(&self) -> bool {
        self.page.facts.len() >= self.limit
            || self.bytes.0 >= FACT_PAGE_BYTES_MAX
            || self.bytes.1 >= FACT_LOOK_BYTES_MAX
            || self.looks >= FACT_LOOKS_MAX
    }
}

/// Whether somebody belongs to a garden now.
pub(super) fn is_member(
    reader: &Reader,
    tenant: &Tenant,
    garden: GardenNo,
    member: &EntityUri,
) -> Result<bool, Damaged> {
    let mut look = reader;
    let known = look.read(&keys::garden(tenant, garden), GardenRecord::decode)?;
    if known.is_none_or(|known| known.closed.is_some()) {
        return Ok(false);
    }
    let membership = look.read(&keys::membership(tenant, garden, member), Membership::decode)?;
    Ok(membership.is_some_and(|it| it.current.is_some()))
}

/// The gardens that somebody belongs to now, in the order of their numbers.
pub(super) fn gardens_of(
    reader: &Reader,
    tenant: &Tenant,
    member: &EntityUri,
) -> Result<Vec<GardenNo>, Damaged> {
    let (from, to) = keys::gardens_of(tenant, member);
    let mut found = Vec::new();
    for key in reader.keys(&from, &to, 2 * GARDENS_OF_MEMBER_MAX)? {
        let no = keys::parse_garden_of(&key);
        let no = no.ok_or_else(|| Damaged::new("an entry of a garden is damaged"))?;
        if is_member(reader, tenant, no, member)? {
            found.push(no);
        }
    }
    Ok(found)
}
