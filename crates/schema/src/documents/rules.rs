//! The rules of a tenant as they are kept.
//!
//! A map of 0 number of this version, which no other rules of the partition have had, 1 text.

use std::sync::Arc;

use bytes::Bytes;
use minicbor::{Decode, Encode};

use crate::codec::{self, Record, RecordError};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RulesRecord {
    /// Which rules these are: others have another number, be their text the same.
    pub version: u64,
    /// The text that they were read from.
    pub source: Arc<str>,
}

impl RulesRecord {
    /// Which rules these are, without a copy of their text.
    pub fn decode_version(value: &[u8]) -> Result<u64, RecordError> {
        codec::read::<RulesFields<'_>, RulesVersion>("rule set", value).map(|it| it.0)
    }
}

struct RulesVersion(u64);

impl TryFrom<RulesFields<'_>> for RulesVersion {
    type Error = &'static str;

    fn try_from(fields: RulesFields<'_>) -> Result<RulesVersion, &'static str> {
        Ok(RulesVersion(fields.version))
    }
}

impl Record for RulesRecord {
    fn encode(&self) -> Bytes {
        let fields = RulesFields { version: self.version, source: &self.source };
        codec::write(16 + self.source.len(), &fields)
    }

    fn decode(value: &[u8]) -> Result<RulesRecord, RecordError> {
        codec::read::<RulesFields<'_>, _>("rule set", value)
    }
}

#[derive(Encode, Decode)]
#[cbor(map)]
struct RulesFields<'a> {
    #[n(0)]
    version: u64,
    #[n(1)]
    source: &'a str,
}

impl TryFrom<RulesFields<'_>> for RulesRecord {
    type Error = &'static str;

    fn try_from(fields: RulesFields<'_>) -> Result<RulesRecord, &'static str> {
        if fields.source.is_empty() {
            return Err("no text");
        }
        Ok(RulesRecord { version: fields.version, source: fields.source.into() })
    }
}
