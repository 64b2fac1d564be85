//! What decisions read and write of facts.

use reveille_core::delivery::id::EventNo;
use reveille_core::fact::garden::{GardenNo, GardenRole, GardenSlug, Membership};
use reveille_core::fact::token::{TokenNo, TokenRecord};
use reveille_core::fact::{EntityUri, Hlc};
use reveille_core::{Millis, Tenant};
use reveille_kernel::txn::ReadError;
use reveille_schema::facts::{FactTimer, GardenRecord, decode_token};
use reveille_schema::{Record, keys};

use super::index::GardenIndex;
use crate::app::Txn;
use crate::records::ReadRecord;
use crate::wall::WallOffset;

/// Facts, as a decision sees them.
pub(super) trait FactTxn {
    /// The garden of this slug.
    fn garden_named(
        &mut self,
        tenant: &Tenant,
        slug: &GardenSlug,
    ) -> Result<Option<GardenRecord>, ReadError>;

    fn membership(
        &mut self,
        tenant: &Tenant,
        garden: GardenNo,
        member: &EntityUri,
    ) -> Result<Membership, ReadError>;

    /// What somebody is in a garden.
    fn role(
        &mut self,
        tenant: &Tenant,
        garden: GardenNo,
        member: &EntityUri,
    ) -> Result<Option<GardenRole>, ReadError>;

    fn token(&mut self, tenant: &Tenant, no: TokenNo) -> Result<Option<TokenRecord>, ReadError>;

    /// The next logical time of a tenant, which is the last from now on.
    fn tick(&mut self, tenant: &Tenant) -> Result<Hlc, ReadError>;

    /// The date that it is.
    fn wall(&self) -> Millis;

    /// A place in the log, and the time.
    fn place(&mut self) -> (u64, Millis);

    /// A number for an event.
    fn take_event(&mut self) -> EventNo;

    fn set_fact_timer(&mut self, at: Millis, timer: &FactTimer);
}

impl FactTxn for Txn<'_> {
    fn garden_named(
        &mut self,
        tenant: &Tenant,
        slug: &GardenSlug,
    ) -> Result<Option<GardenRecord>, ReadError> {
        self.rests_on_index();
        let Some(no) = self.index().of::<GardenIndex>().named(tenant, slug) else {
            return Ok(None);
        };
        self.read(&keys::garden(tenant, no), GardenRecord::decode)
    }

    fn membership(
        &mut self,
        tenant: &Tenant,
        garden: GardenNo,
        member: &EntityUri,
    ) -> Result<Membership, ReadError> {
        let key = keys::membership(tenant, garden, member);
        Ok(self.read(&key, Membership::decode)?.unwrap_or_default())
    }

    fn role(
        &mut self,
        tenant: &Tenant,
        garden: GardenNo,
        member: &EntityUri,
    ) -> Result<Option<GardenRole>, ReadError> {
        Ok(self.membership(tenant, garden, member)?.current.map(|(role, _)| role))
    }

    fn token(&mut self, tenant: &Tenant, no: TokenNo) -> Result<Option<TokenRecord>, ReadError> {
        self.read(&keys::token(tenant, no), |value| decode_token(tenant, no, value))
    }

    fn tick(&mut self, tenant: &Tenant) -> Result<Hlc, ReadError> {
        let key = keys::fact_clock(tenant);
        let last = self.read(&key, Hlc::decode)?.unwrap_or_default();
        let next = Hlc::after(last, self.wall());
        self.set(key, next.encode());
        Ok(next)
    }

    fn wall(&self) -> Millis {
        self.domains().part::<WallOffset>().wall_at(self.now())
    }

    fn place(&mut self) -> (u64, Millis) {
        (self.take_id(), self.now())
    }

    fn take_event(&mut self) -> EventNo {
        EventNo(self.take_id())
    }

    fn set_fact_timer(&mut self, at: Millis, timer: &FactTimer) {
        self.set_timer(at, &timer.encode());
    }
}
