//! A row of the audit log, as its hash is over it.
//!
//! | field | type | what |
//! |---|---|---|
//! | 0 | integer | id |
//! | 1 | integer | place in its chain |
//! | 2 | integer | at, ms |
//! | 3 | text | who did it |
//! | 4 | text | what was done |
//! | 5 | text | tenant; absent: it concerns all of them |
//! | 6 | text | what it was done to |
//! | 7 | integer | version before |
//! | 8 | integer | version after |
//! | 9 | text | what has changed, JSON without secrets |
//! | 10 | text | why |
//! | 11 | text | name of the request |
//! | 12 | text | address that it came from |
//! | 13 | boolean | whether who did it has signed the request with their key; absent: no |

use bytes::Bytes;
use minicbor::{Decode, Encode};
use reveille_core::audit::{Actor, AuditEntry, AuditRow};
use reveille_core::{Millis, Tenant};

use crate::codec::{self, Record, RecordError};

impl Record for AuditRow {
    fn encode(&self) -> Bytes {
        codec::write(192, &RowFields::from(self))
    }

    fn decode(value: &[u8]) -> Result<AuditRow, RecordError> {
        codec::read::<RowFields<'_>, _>("audit row", value)
    }
}

#[derive(Encode, Decode)]
#[cbor(map)]
struct RowFields<'a> {
    #[n(0)]
    id: u64,
    #[n(1)]
    seq: u64,
    #[n(2)]
    at: u64,
    #[n(3)]
    actor: &'a str,
    #[n(4)]
    action: &'a str,
    #[n(5)]
    tenant: Option<&'a str>,
    #[n(6)]
    subject: &'a str,
    #[n(7)]
    from_version: Option<u64>,
    #[n(8)]
    to_version: Option<u64>,
    #[n(9)]
    diff: Option<&'a str>,
    #[n(10)]
    reason: Option<&'a str>,
    #[n(11)]
    request_id: Option<&'a str>,
    #[n(12)]
    ip: Option<&'a str>,
    #[n(13)]
    has_signed: Option<bool>,
}

impl<'a> From<&'a AuditRow> for RowFields<'a> {
    fn from(row: &'a AuditRow) -> RowFields<'a> {
        let entry = &row.entry;
        RowFields {
            id: row.id,
            seq: row.seq,
            at: row.at.0,
            actor: &entry.actor.name,
            action: &entry.action,
            tenant: entry.tenant.as_ref().map(Tenant::as_str),
            subject: &entry.subject,
            from_version: entry.from_version,
            to_version: entry.to_version,
            diff: entry.diff.as_deref(),
            reason: entry.reason.as_deref(),
            request_id: entry.actor.request_id.as_deref(),
            ip: entry.actor.ip.as_deref(),
            has_signed: entry.actor.has_signed.then_some(true),
        }
    }
}

impl TryFrom<RowFields<'_>> for AuditRow {
    type Error = &'static str;

    fn try_from(fields: RowFields<'_>) -> Result<AuditRow, &'static str> {
        let tenant = fields.tenant.map(Tenant::parse).transpose().map_err(|_| "no tenant")?;
        let actor = Actor {
            name: fields.actor.into(),
            request_id: fields.request_id.map(Into::into),
            ip: fields.ip.map(Into::into),
            has_signed: fields.has_signed.unwrap_or(false),
        };
        let entry = AuditEntry {
            actor,
            action: fields.action.into(),
            tenant,
            subject: fields.subject.into(),
            from_version: fields.from_version,
            to_version: fields.to_version,
            diff: fields.diff.map(Into::into),
            reason: fields.reason.map(Into::into),
        };
        Ok(AuditRow { id: fields.id, seq: fields.seq, at: Millis(fields.at), entry })
    }
}
