//! A change as it stands in the log of its tenant, read again to be delivered or looked at.

use serde_json::value::RawValue;

use crate::document::change::ChangeKind;
use crate::document::origin::Origin;
use crate::document::path::DocumentPath;
use crate::document::shape::Fields;
use crate::tenant::Tenant;

/// A change, with the documents as they were written.
#[derive(Debug)]
pub struct ChangeMessage<'m> {
    pub seq: u64,
    pub lsn: String,
    pub tenant: Tenant,
    pub kind: ChangeKind,
    pub path: DocumentPath,
    pub before: Option<&'m RawValue>,
    pub after: Option<&'m RawValue>,
    /// Seconds since 1970.
    pub ts: u64,
    pub origin: Origin,
}

/// The bytes are no change.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a change in the log cannot be read: {0}")]
pub struct MessageError(String);

#[derive(serde::Deserialize)]
struct Message<'m> {
    seq: u64,
    lsn: String,
    tenant: String,
    #[serde(rename = "type")]
    kind: String,
    path: String,
    #[serde(borrow)]
    before: Option<&'m RawValue>,
    #[serde(borrow)]
    after: Option<&'m RawValue>,
    ts: u64,
    #[serde(default)]
    origin: Option<serde_json::Value>,
}

impl<'m> ChangeMessage<'m> {
    pub fn parse(bytes: &'m [u8]) -> Result<ChangeMessage<'m>, MessageError> {
        let failed = |what: &str| MessageError(what.to_owned());
        let message: Message<'_> =
            serde_json::from_slice(bytes).map_err(|error| MessageError(error.to_string()))?;
        let Message { seq, lsn, tenant, kind, path, before, after, ts, origin } = message;
        Ok(ChangeMessage {
            seq,
            lsn,
            tenant: Tenant::parse(&tenant).map_err(|_| failed("its tenant"))?,
            kind: ChangeKind::parse(&kind).ok_or_else(|| failed("its type"))?,
            path: DocumentPath::parse(&path).map_err(|_| failed("its path"))?,
            before,
            after,
            ts,
            origin: Origin::of_json(origin.as_ref()).map_err(|_| failed("its origin"))?,
        })
    }

    /// The document before the change, as everybody saw it.
    pub fn before_fields(&self) -> Result<Option<Fields>, MessageError> {
        fields(self.before)
    }

    /// The document after it.
    pub fn after_fields(&self) -> Result<Option<Fields>, MessageError> {
        fields(self.after)
    }
}

pub(super) fn fields(document: Option<&RawValue>) -> Result<Option<Fields>, MessageError> {
    let document = document.map(|it| serde_json::from_str(it.get())).transpose();
    document.map_err(|error| MessageError(error.to_string()))
}
