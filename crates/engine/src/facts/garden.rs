//! Gardens: making and deleting them, and who belongs to them. What changes holds from the answer
//! on, for everything that is sent or read.

use bytes::Bytes;
use reveille_core::Tenant;
use reveille_core::fact::access::may_manage;
use reveille_core::fact::garden::{Garden, GardenNo, GardenRole, GardenSlug, Membership};
use reveille_core::fact::principal::Principal;
use reveille_core::fact::{EntityUri, Scope};
use reveille_kernel::command::{Command, Decision};
use reveille_kernel::txn::ReadError;
use reveille_schema::facts::{FactTimer, GardenRecord};
use reveille_schema::{Record, keys};

use super::error::FactRejection;
use super::index::GardenIndex;
use super::limits::{
    CLOSED_GARDEN_MS, CLOSED_GARDENS_MAX, GARDEN_MEMBERS_MAX, GARDENS_MAX, GARDENS_OF_MEMBER_MAX,
};
use super::txn::FactTxn;
use crate::app::{App, Txn};

/// Makes a garden, whose maker is its admin.
#[derive(Debug, Clone)]
pub struct CreateGarden {
    pub tenant: Tenant,
    pub by: Principal,
    pub slug: GardenSlug,
    pub name: std::sync::Arc<str>,
    pub scope: Scope,
}

/// Deletes a garden: nobody belongs to it any more.
#[derive(Debug, Clone)]
pub struct DeleteGarden {
    pub tenant: Tenant,
    pub by: Principal,
    pub slug: GardenSlug,
}

/// Makes somebody a member of a garden, or another kind of member.
#[derive(Debug, Clone)]
pub struct GrantRole {
    pub tenant: Tenant,
    pub by: Principal,
    pub slug: GardenSlug,
    pub member: EntityUri,
    pub role: GardenRole,
    /// Whether they must not be a member, or must be one.
    pub is_new: bool,
}

/// Ends a membership; whoever it is may do that, too.
#[derive(Debug, Clone)]
pub struct RemoveMember {
    pub tenant: Tenant,
    pub by: Principal,
    pub slug: GardenSlug,
    pub member: EntityUri,
}

impl Command<App> for CreateGarden {
    type Answer = Garden;
    type Rejection = FactRejection;

    fn decide(&self, txn: &mut Txn<'_>) -> Decision<Garden, FactRejection> {
        let CreateGarden { tenant, by, slug, name, scope } = self;
        txn.rests_on_index();
        let index = txn.index().of::<GardenIndex>();
        if index.named(tenant, slug).is_some() {
            return Ok(Err(FactRejection::GardenExists(slug.to_shared())));
        }
        let (open, closed) = index.counts(tenant);
        if open >= GARDENS_MAX || closed >= CLOSED_GARDENS_MAX {
            return Ok(Err(FactRejection::TooManyGardens));
        }
        if belongs_to_many(txn, tenant, &by.entity)? {
            return Ok(Err(FactRejection::TooManyGardensOfMember));
        }
        let at = txn.place();
        let no = GardenNo(at.0);
        let garden = Garden {
            no,
            slug: slug.clone(),
            name: name.clone(),
            scope: *scope,
            created_by: by.entity.clone(),
            created_at: at.1,
            admins: 1,
            members: 1,
        };
        let membership = Membership { current: Some((GardenRole::Admin, at)), former: Vec::new() };
        keep_member(txn, tenant, no, &by.entity, &membership);
        keep(txn, tenant, &garden);
        Ok(Ok(garden))
    }

    fn needs_room(&self) -> bool {
        true
    }
}

impl Command<App> for DeleteGarden {
    type Answer = ();
    type Rejection = FactRejection;

    fn decide(&self, txn: &mut Txn<'_>) -> Decision<(), FactRejection> {
        let DeleteGarden { tenant, by, slug } = self;
        let garden = match managed(txn, tenant, slug, by)? {
            Ok(garden) => garden,
            Err(rejection) => return Ok(Err(rejection)),
        };
        let (no, at) = (garden.no, txn.place());
        let closed = GardenRecord { garden, closed: Some(at) };
        txn.set(keys::garden(tenant, no), closed.encode());
        let timer = FactTimer::PurgeGarden(tenant.clone(), no);
        txn.set_fact_timer(at.1 + CLOSED_GARDEN_MS, &timer);
        Ok(Ok(()))
    }
}

impl Command<App> for GrantRole {
    type Answer = Membership;
    type Rejection = FactRejection;

    fn decide(&self, txn: &mut Txn<'_>) -> Decision<Membership, FactRejection> {
        let GrantRole { tenant, by, slug, member, role, is_new } = self;
        let mut garden = match managed(txn, tenant, slug, by)? {
            Ok(garden) => garden,
            Err(rejection) => return Ok(Err(rejection)),
        };
        let membership = txn.membership(tenant, garden.no, member)?;
        let was = membership.current.map(|(role, _)| role);
        let who = || member.to_shared();
        match was {
            Some(_) if *is_new => return Ok(Err(FactRejection::MemberExists(who()))),
            None if !is_new => return Ok(Err(FactRejection::MemberNotFound(who()))),
            Some(was) if was == *role => return Ok(Ok(membership)),
            Some(GardenRole::Admin) if garden.admins <= 1 => {
                return Ok(Err(FactRejection::LastAdmin));
            }
            Some(_) => {}
            None if garden.members >= GARDEN_MEMBERS_MAX => {
                return Ok(Err(FactRejection::TooManyMembers));
            }
            None if belongs_to_many(txn, tenant, member)? => {
                return Ok(Err(FactRejection::TooManyGardensOfMember));
            }
            None => {}
        }
        let at = txn.place();
        let before = membership.left(at).unwrap_or(membership);
        // Nobody is a member there now.
        let after = before.joined(*role, at).unwrap_or(before);
        garden.members += u32::from(was.is_none());
        garden.admins += u32::from(*role == GardenRole::Admin);
        garden.admins -= u32::from(was == Some(GardenRole::Admin)).min(garden.admins);
        keep_member(txn, tenant, garden.no, member, &after);
        keep(txn, tenant, &garden);
        Ok(Ok(after))
    }

    fn needs_room(&self) -> bool {
        true
    }
}

impl Command<App> for RemoveMember {
    type Answer = ();
    type Rejection = FactRejection;

    fn decide(&self, txn: &mut Txn<'_>) -> Decision<(), FactRejection> {
        let RemoveMember { tenant, by, slug, member } = self;
        let Some(GardenRecord { mut garden, .. }) = txn.garden_named(tenant, slug)? else {
            return Ok(Err(FactRejection::GardenNotFound(slug.to_shared())));
        };
        let mine = txn.role(tenant, garden.no, &by.entity)?;
        let leaves = by.writes && mine.is_some() && by.entity == *member;
        if !leaves && !may_manage(by, mine) {
            return Ok(Err(FactRejection::NotGardenAdmin));
        }
        let membership = txn.membership(tenant, garden.no, member)?;
        let at = txn.place();
        let (Some((role, _)), Some(left)) = (membership.current, membership.left(at)) else {
            return Ok(Err(FactRejection::MemberNotFound(member.to_shared())));
        };
        if role == GardenRole::Admin && garden.admins <= 1 {
            return Ok(Err(FactRejection::LastAdmin));
        }
        garden.members = garden.members.saturating_sub(1);
        garden.admins -= u32::from(role == GardenRole::Admin);
        keep_member(txn, tenant, garden.no, member, &left);
        keep(txn, tenant, &garden);
        Ok(Ok(()))
    }
}

/// The garden of a slug, if somebody says who belongs to it.
fn managed(
    txn: &mut Txn<'_>,
    tenant: &Tenant,
    slug: &GardenSlug,
    by: &Principal,
) -> Decision<Garden, FactRejection> {
    let Some(GardenRecord { garden, .. }) = txn.garden_named(tenant, slug)? else {
        return Ok(Err(FactRejection::GardenNotFound(slug.to_shared())));
    };
    let role = txn.role(tenant, garden.no, &by.entity)?;
    Ok(if may_manage(by, role) { Ok(garden) } else { Err(FactRejection::NotGardenAdmin) })
}

fn keep(txn: &mut Txn<'_>, tenant: &Tenant, garden: &Garden) {
    let record = GardenRecord { garden: garden.clone(), closed: None };
    txn.set(keys::garden(tenant, garden.no), record.encode());
}

/// Keeps what somebody is in a garden, and was.
fn keep_member(
    txn: &mut Txn<'_>,
    tenant: &Tenant,
    garden: GardenNo,
    member: &EntityUri,
    membership: &Membership,
) {
    txn.set(keys::membership(tenant, garden, member), membership.encode());
    let entry = keys::garden_of(tenant, member, garden);
    match membership.current {
        Some(_) => txn.set(entry, Bytes::new()),
        None => txn.remove(&entry),
    }
}

/// Whether somebody belongs to as many gardens as anybody may. Entries of gardens that were deleted
/// go here, so that they are in nobody's way.
fn belongs_to_many(
    txn: &mut Txn<'_>,
    tenant: &Tenant,
    member: &EntityUri,
) -> Result<bool, ReadError> {
    let (from, to) = keys::gardens_of(tenant, member);
    let found = txn.range(&from, &to, GARDENS_OF_MEMBER_MAX)?;
    if found.pairs.len() < GARDENS_OF_MEMBER_MAX {
        return Ok(false);
    }
    txn.rests_on_index();
    let index = txn.index().of::<GardenIndex>();
    let is_closed =
        |key: &Bytes| keys::parse_garden_of(key).is_none_or(|no| !index.is_open(tenant, no));
    let closed: Vec<Bytes> =
        found.pairs.into_iter().map(|(key, _)| key).filter(is_closed).collect();
    closed.iter().for_each(|key| txn.remove(key));
    Ok(closed.is_empty())
}
