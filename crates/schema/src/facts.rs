//! Facts of tenants, who belongs to their gardens, and what lets somebody be told of them.
//!
//! | tag | key | value |
//! |---|---|---|
//! | `30` fact | tenant, `00`, number `u64` | [`FactRecord`] |
//! | `31` fact of an entity | tenant, `00`, garden `u64`, entity, `00`, relation, `00`, scope, `00`, number of the fact `u64` | empty |
//! | `32` slot | tenant, `00`, garden `u64`, entity, `00`, relation, `00`, scope | [`Slot`](reveille_core::fact::slot::Slot): the values that hold |
//! | `33` change | tenant, `00`, number of the event `u64` | [`ChangeRecord`]: a contradiction, or a card that was made anew |
//! | `34` clock | tenant | [`Hlc`](reveille_core::fact::Hlc) of the last change |
//! | `35` garden | tenant, `00`, number `u64` | [`GardenRecord`] |
//! | `36` membership | tenant, `00`, number of the garden `u64`, entity | [`Membership`](reveille_core::fact::garden::Membership) |
//! | `37` gardens of somebody | tenant, `00`, entity, `00`, number of the garden `u64` | empty: they are a member |
//! | `38` card | tenant, `00`, entity, `00`, scope | [`Card`](reveille_core::fact::card::Card) |
//! | `39` token | tenant, `00`, number `u64` | [`TokenRecord`](reveille_core::fact::token::TokenRecord) |
//! | `3a` cancelled subscription | tenant, `00`, id | [`CancelledRecord`] |
//!
//! | timer of domain `07` | subject |
//! |---|---|
//! | `01` purge garden | number `u64`, tenant: the next of what a deleted garden has left is to be removed |
//!
//! Numbers are those of events, too: a fact has that of the event that tells of it. The garden of
//! facts that are in none is 0. Hooks for facts have the number of this domain as their face, and in
//! their spec what [`SubscriptionSpec`] writes. The events of a hook in their order, which a
//! replay reads, are its deliveries.

mod change;
mod fact;
mod garden;
mod spec;
mod subject;
#[cfg(test)]
mod tests;
mod timer;
mod token;

use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use reveille_core::Tenant;
use reveille_core::delivery::id::EventNo;
use reveille_core::fact::garden::GardenNo;
use reveille_core::fact::token::TokenNo;
use reveille_core::fact::{EntityUri, FactNo, Scope};
use reveille_core::key_range::after_prefix;

use crate::parts;

pub use change::{ChangeKind, ChangeRecord, decode_card, encode_card};
pub use fact::{CopyPlace, FactRecord};
pub use garden::GardenRecord;
pub use spec::{CancelledRecord, SubscriptionSpec};
pub use subject::FactSubject;
pub use timer::FactTimer;
pub use token::{decode_token, encode_token};

const FACT: u8 = 0x30;
const FACT_OF: u8 = 0x31;
const SLOT: u8 = 0x32;
const CHANGE: u8 = 0x33;
const CLOCK: u8 = 0x34;
const GARDEN: u8 = 0x35;
const MEMBERSHIP: u8 = 0x36;
const GARDEN_OF: u8 = 0x37;
const CARD: u8 = 0x38;
const TOKEN: u8 = 0x39;
const CANCELLED: u8 = 0x3a;

#[cfg(test)]
pub(crate) const TAGS: &[u8] =
    &[FACT, FACT_OF, SLOT, CHANGE, CLOCK, GARDEN, MEMBERSHIP, GARDEN_OF, CARD, TOKEN, CANCELLED];

/// The longest number and three ends of names.
const FACT_OF_BYTES: usize = 2 + 8 + 3 + 8;

/// What is said of one relation of an entity, in one scope and one garden.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct SlotName {
    pub garden: Option<GardenNo>,
    pub entity: EntityUri,
    pub relation: Arc<str>,
    pub scope: Scope,
}

pub fn fact_key(tenant: &Tenant, no: FactNo) -> Bytes {
    parts::of_tenant(FACT, tenant, &no.0.to_be_bytes())
}

/// The keys of a tenant's facts from one on: from the first, to before the second.
pub fn fact_keys(tenant: &Tenant, from: FactNo) -> (Bytes, Bytes) {
    (fact_key(tenant, from), parts::tenant_range(FACT, tenant).1)
}

/// The keys of the facts of all tenants: from the first, to before the second.
pub fn all_fact_keys() -> (Bytes, Bytes) {
    parts::tag_range::<FACT>()
}

pub fn parse_fact_key(key: &[u8]) -> Option<(Tenant, FactNo)> {
    let (tenant, no) = parse_of_tenant(FACT, key)?;
    Some((tenant, FactNo(parts::parse_u64(no)?)))
}

/// The entry of a fact among those of its slot.
pub fn fact_of_key(tenant: &Tenant, slot: &SlotName, no: FactNo) -> Bytes {
    let mut key = of_slot(FACT_OF, tenant, slot);
    key.put_u8(0);
    key.put_u64(no.0);
    key.freeze()
}

/// The entries of the facts of a garden, or of none: of an entity, and a relation, if they are
/// named. From the first, to before the second.
pub fn fact_of_keys(
    tenant: &Tenant,
    garden: Option<GardenNo>,
    entity: Option<&EntityUri>,
    relation: Option<&str>,
) -> (Bytes, Bytes) {
    let first = prefix_of_slot(FACT_OF, tenant, garden, entity, relation);
    let end = after_prefix(&first);
    (first, end)
}

/// The slot and the fact of an entry.
pub fn parse_fact_of_key(key: &[u8]) -> Option<(Tenant, SlotName, FactNo)> {
    let (rest, no) = key.split_last_chunk::<8>()?;
    let (tenant, slot) = parse_slot(FACT_OF, rest.strip_suffix(&[0])?)?;
    Some((tenant, slot, FactNo(u64::from_be_bytes(*no))))
}

pub fn slot_key(tenant: &Tenant, slot: &SlotName) -> Bytes {
    of_slot(SLOT, tenant, slot).freeze()
}

/// The keys of the slots of an entity in a garden, or in none: from the first, to before the
/// second.
pub fn slot_keys(
    tenant: &Tenant,
    garden: Option<GardenNo>,
    entity: Option<&EntityUri>,
) -> (Bytes, Bytes) {
    let first = prefix_of_slot(SLOT, tenant, garden, entity, None);
    let end = after_prefix(&first);
    (first, end)
}

/// The keys of the slots of all tenants: from the first, to before the second.
pub fn all_slot_keys() -> (Bytes, Bytes) {
    parts::tag_range::<SLOT>()
}

pub fn parse_slot_key(key: &[u8]) -> Option<(Tenant, SlotName)> {
    parse_slot(SLOT, key)
}

pub fn change_key(tenant: &Tenant, no: EventNo) -> Bytes {
    parts::of_tenant(CHANGE, tenant, &no.0.to_be_bytes())
}

pub fn clock_key(tenant: &Tenant) -> Bytes {
    let mut key = BytesMut::with_capacity(1 + tenant.as_str().len());
    key.put_u8(CLOCK);
    key.put_slice(tenant.as_str().as_bytes());
    key.freeze()
}

pub fn garden_key(tenant: &Tenant, no: GardenNo) -> Bytes {
    parts::of_tenant(GARDEN, tenant, &no.0.to_be_bytes())
}

/// The keys of the gardens of all tenants: from the first, to before the second.
pub fn all_garden_keys() -> (Bytes, Bytes) {
    parts::tag_range::<GARDEN>()
}

pub fn parse_garden_key(key: &[u8]) -> Option<(Tenant, GardenNo)> {
    let (tenant, no) = parse_of_tenant(GARDEN, key)?;
    Some((tenant, GardenNo(parts::parse_u64(no)?)))
}

pub fn membership_key(tenant: &Tenant, garden: GardenNo, member: &EntityUri) -> Bytes {
    let rest = [&garden.0.to_be_bytes(), member.as_str().as_bytes()].concat();
    parts::of_tenant(MEMBERSHIP, tenant, &rest)
}

/// The keys of the memberships of a garden: from the first, to before the second.
pub fn membership_keys(tenant: &Tenant, garden: GardenNo) -> (Bytes, Bytes) {
    let first = parts::of_tenant(MEMBERSHIP, tenant, &garden.0.to_be_bytes());
    let end = after_prefix(&first);
    (first, end)
}

/// The keys of all memberships: from the first, to before the second.
pub fn all_membership_keys() -> (Bytes, Bytes) {
    parts::tag_range::<MEMBERSHIP>()
}

pub fn parse_membership_key(key: &[u8]) -> Option<(Tenant, GardenNo, EntityUri)> {
    let (tenant, rest) = parse_of_tenant(MEMBERSHIP, key)?;
    let (garden, member) = parts::split_u64(rest)?;
    Some((tenant, GardenNo(garden), parse_entity(member)?))
}

pub fn garden_of_key(tenant: &Tenant, member: &EntityUri, garden: GardenNo) -> Bytes {
    let rest = [member.as_str().as_bytes(), &[0], &garden.0.to_be_bytes()].concat();
    parts::of_tenant(GARDEN_OF, tenant, &rest)
}

/// The keys of the gardens that somebody is a member of: from the first, to before the second.
pub fn garden_of_keys(tenant: &Tenant, member: &EntityUri) -> (Bytes, Bytes) {
    let first = parts::of_tenant(GARDEN_OF, tenant, &[member.as_str().as_bytes(), &[0]].concat());
    let end = after_prefix(&first);
    (first, end)
}

/// Which garden somebody is a member of.
pub fn parse_garden_of_key(key: &[u8]) -> Option<GardenNo> {
    let (_, no) = key.strip_prefix(&[GARDEN_OF])?.split_last_chunk::<8>()?;
    Some(GardenNo(u64::from_be_bytes(*no)))
}

pub fn card_key(tenant: &Tenant, entity: &EntityUri, scope: Scope) -> Bytes {
    let rest = [entity.as_str().as_bytes(), &[0], scope.as_str().as_bytes()].concat();
    parts::of_tenant(CARD, tenant, &rest)
}

pub fn token_key(tenant: &Tenant, no: TokenNo) -> Bytes {
    parts::of_tenant(TOKEN, tenant, &no.0.to_be_bytes())
}

/// The keys of the tokens of all tenants: from the first, to before the second.
pub fn all_token_keys() -> (Bytes, Bytes) {
    parts::tag_range::<TOKEN>()
}

pub fn parse_token_key(key: &[u8]) -> Option<(Tenant, TokenNo)> {
    let (tenant, no) = parse_of_tenant(TOKEN, key)?;
    Some((tenant, TokenNo(parts::parse_u64(no)?)))
}

pub fn cancelled_key(tenant: &Tenant, id: &str) -> Bytes {
    parts::of_tenant(CANCELLED, tenant, id.as_bytes())
}

/// The keys of all subscriptions that were cancelled: from the first, to before the second.
pub fn all_cancelled_keys() -> (Bytes, Bytes) {
    parts::tag_range::<CANCELLED>()
}

pub fn parse_cancelled_key(key: &[u8]) -> Option<(Tenant, Arc<str>)> {
    let (tenant, id) = parse_of_tenant(CANCELLED, key)?;
    Some((tenant, std::str::from_utf8(id).ok()?.into()))
}

/// Tag, tenant, `00`, garden, entity, `00`, relation, `00`, scope.
fn of_slot(tag: u8, tenant: &Tenant, slot: &SlotName) -> BytesMut {
    let SlotName { garden, entity, relation, scope } = slot;
    let mut key = begin_slot(tag, tenant, *garden, entity.as_str().len() + relation.len());
    key.put_slice(entity.as_str().as_bytes());
    key.put_u8(0);
    key.put_slice(relation.as_bytes());
    key.put_u8(0);
    key.put_slice(scope.as_str().as_bytes());
    key
}

/// The beginning of such keys, as far as it is named.
fn prefix_of_slot(
    tag: u8,
    tenant: &Tenant,
    garden: Option<GardenNo>,
    entity: Option<&EntityUri>,
    relation: Option<&str>,
) -> Bytes {
    let mut key = begin_slot(tag, tenant, garden, 0);
    for name in
        entity.map(EntityUri::as_str).into_iter().chain(relation.filter(|_| entity.is_some()))
    {
        key.put_slice(name.as_bytes());
        key.put_u8(0);
    }
    key.freeze()
}

fn begin_slot(tag: u8, tenant: &Tenant, garden: Option<GardenNo>, names: usize) -> BytesMut {
    let tenant = tenant.as_str();
    let mut key = BytesMut::with_capacity(FACT_OF_BYTES + tenant.len() + names + 8);
    key.put_u8(tag);
    key.put_slice(tenant.as_bytes());
    key.put_u8(0);
    key.put_u64(garden.map_or(0, |garden| garden.0));
    key
}

fn parse_slot(tag: u8, key: &[u8]) -> Option<(Tenant, SlotName)> {
    let (tenant, rest) = parse_of_tenant(tag, key)?;
    let (garden, rest) = parts::split_u64(rest)?;
    let mut names = std::str::from_utf8(rest).ok()?.split('\0');
    let (entity, relation, scope) = (names.next()?, names.next()?, names.next()?);
    let entity = EntityUri::parse(entity).ok()?;
    let scope = Scope::parse(scope).ok()?;
    let garden = (garden > 0).then_some(GardenNo(garden));
    let slot = SlotName { garden, entity, relation: relation.into(), scope };
    names.next().is_none().then_some((tenant, slot))
}

/// The tenant of a key, and what comes after its `00`.
fn parse_of_tenant(tag: u8, key: &[u8]) -> Option<(Tenant, &[u8])> {
    let key = key.strip_prefix(&[tag])?;
    let at = key.iter().position(|byte| *byte == 0)?;
    let (tenant, rest) = key.split_at(at);
    let tenant = Tenant::parse(std::str::from_utf8(tenant).ok()?).ok()?;
    Some((tenant, rest.split_first()?.1))
}

fn parse_entity(bytes: &[u8]) -> Option<EntityUri> {
    EntityUri::parse(std::str::from_utf8(bytes).ok()?).ok()
}
