//! Gardens and who belongs to them.
//!
//! A garden is a map of 0 number, 1 slug, 2 name, 3 scope, 4 made by, 5 made at, ms, 6 how many
//! admins, 7 how many members, 8 where in the log and 9 when it was deleted, ms.
//!
//! A membership is a map of 0 role, 1 where in the log and 2 when that began, ms, 3 what it was
//! before, each `[role, from, from ms, to, to ms]`. Roles are 0 admin, 1 writer, 2 reader.

use bytes::Bytes;
use minicbor::{Decode, Encode};
use reveille_core::Millis;
use reveille_core::fact::garden::{
    Garden, GardenNo, GardenRole, GardenSlug, MemberSpan, Membership,
};
use reveille_core::fact::{EntityUri, Hlc, Scope};

use crate::codec::{self, Record, RecordError};

/// A garden, which may be one no longer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GardenRecord {
    pub garden: Garden,
    /// Where in the log, and when, it was deleted.
    pub closed: Option<(u64, Millis)>,
}

const ROLES: [GardenRole; 3] = [GardenRole::Admin, GardenRole::Writer, GardenRole::Reader];

fn role_number(role: GardenRole) -> u8 {
    match role {
        GardenRole::Admin => 0,
        GardenRole::Writer => 1,
        GardenRole::Reader => 2,
    }
}

fn role_of(number: u8) -> Result<GardenRole, &'static str> {
    ROLES.get(usize::from(number)).copied().ok_or("no role")
}

impl Record for GardenRecord {
    fn encode(&self) -> Bytes {
        let Garden { no, slug, name, scope, created_by, created_at, admins, members } =
            &self.garden;
        let fields = GardenFields {
            no: no.0,
            slug: slug.as_str(),
            name,
            scope: scope.as_str(),
            created_by: created_by.as_str(),
            created_at: created_at.0,
            admins: *admins,
            members: *members,
            closed: self.closed.map(|(at, _)| at),
            closed_at: self.closed.map(|(_, at)| at.0),
        };
        codec::write(96 + name.len(), &fields)
    }

    fn decode(value: &[u8]) -> Result<GardenRecord, RecordError> {
        codec::read::<GardenFields<'_>, _>("garden", value)
    }
}

#[derive(Encode, Decode)]
#[cbor(map)]
struct GardenFields<'a> {
    #[n(0)]
    no: u64,
    #[n(1)]
    slug: &'a str,
    #[n(2)]
    name: &'a str,
    #[n(3)]
    scope: &'a str,
    #[n(4)]
    created_by: &'a str,
    #[cbor(n(5), default)]
    created_at: u64,
    #[cbor(n(6), default)]
    admins: u32,
    #[cbor(n(7), default)]
    members: u32,
    #[n(8)]
    closed: Option<u64>,
    #[n(9)]
    closed_at: Option<u64>,
}

impl TryFrom<GardenFields<'_>> for GardenRecord {
    type Error = &'static str;

    fn try_from(fields: GardenFields<'_>) -> Result<GardenRecord, &'static str> {
        let garden = Garden {
            no: GardenNo(fields.no),
            slug: GardenSlug::parse(fields.slug).map_err(|_| "no slug")?,
            name: fields.name.into(),
            scope: Scope::parse(fields.scope).map_err(|_| "no scope")?,
            created_by: EntityUri::parse(fields.created_by).map_err(|_| "nobody made it")?,
            created_at: Millis(fields.created_at),
            admins: fields.admins,
            members: fields.members,
        };
        let closed = fields.closed.zip(fields.closed_at.map(Millis));
        Ok(GardenRecord { garden, closed })
    }
}

impl Record for Membership {
    fn encode(&self) -> Bytes {
        let former = self.former.iter().map(|span| {
            let MemberSpan { role, since, until } = span;
            SpanFields(role_number(*role), since.0, since.1.0, until.0, until.1.0)
        });
        let fields = MembershipFields {
            role: self.current.map(|(role, _)| role_number(role)),
            since: self.current.map(|(_, since)| since.0),
            since_ms: self.current.map(|(_, since)| since.1.0),
            former: former.collect(),
        };
        codec::write(32 + 48 * self.former.len(), &fields)
    }

    fn decode(value: &[u8]) -> Result<Membership, RecordError> {
        codec::read::<MembershipFields, _>("membership", value)
    }
}

#[derive(Encode, Decode)]
#[cbor(map)]
struct MembershipFields {
    #[n(0)]
    role: Option<u8>,
    #[n(1)]
    since: Option<u64>,
    #[n(2)]
    since_ms: Option<u64>,
    #[cbor(n(3), default, skip_if = "Vec::is_empty")]
    former: Vec<SpanFields>,
}

/// The role, and where and when it began and ended.
#[derive(Encode, Decode)]
struct SpanFields(#[n(0)] u8, #[n(1)] u64, #[n(2)] u64, #[n(3)] u64, #[n(4)] u64);

impl TryFrom<MembershipFields> for Membership {
    type Error = &'static str;

    fn try_from(fields: MembershipFields) -> Result<Membership, &'static str> {
        let current = match (fields.role, fields.since, fields.since_ms) {
            (Some(role), Some(since), Some(ms)) => Some((role_of(role)?, (since, Millis(ms)))),
            (None, None, None) => None,
            _ => return Err("half a membership"),
        };
        let former =
            fields.former.into_iter().map(|SpanFields(role, since, since_ms, until, until_ms)| {
                let (since, until) = ((since, Millis(since_ms)), (until, Millis(until_ms)));
                Ok(MemberSpan { role: role_of(role)?, since, until })
            });
        Ok(Membership { current, former: former.collect::<Result<_, &'static str>>()? })
    }
}

impl Record for Hlc {
    fn encode(&self) -> Bytes {
        codec::write(16, &ClockFields { ms: self.ms, counter: self.counter })
    }

    fn decode(value: &[u8]) -> Result<Hlc, RecordError> {
        codec::read::<ClockFields, _>("clock of facts", value)
    }
}

/// A map of 0 milliseconds, 1 counter.
#[derive(Encode, Decode)]
#[cbor(map)]
struct ClockFields {
    #[n(0)]
    ms: u64,
    #[cbor(n(1), default)]
    counter: u16,
}

impl TryFrom<ClockFields> for Hlc {
    type Error = &'static str;

    fn try_from(fields: ClockFields) -> Result<Hlc, &'static str> {
        Ok(Hlc { ms: fields.ms, counter: fields.counter })
    }
}
