//! A document as it is kept.
//!
//! A map of 0 version, 1 created at in ms, 2 updated at in ms, 3 its data as JSON. A tombstone has
//! no data.

use std::sync::Arc;

use bytes::Bytes;
use minicbor::{Decode, Encode};
use reveille_core::Millis;
use reveille_core::document::snapshot::{Data, Document};

use crate::codec::{self, Record, RecordError};

impl Record for Document {
    fn encode(&self) -> Bytes {
        let fields = DocumentFields {
            version: self.version,
            created_at: self.created_at.0,
            updated_at: self.updated_at.0,
            data: self.data.as_deref().map(Data::json),
        };
        codec::write(40 + self.bytes(), &fields)
    }

    fn decode(value: &[u8]) -> Result<Document, RecordError> {
        codec::read::<DocumentFields<'_>, _>("document", value)
    }
}

#[derive(Encode, Decode)]
#[cbor(map)]
struct DocumentFields<'a> {
    #[n(0)]
    version: u64,
    #[cbor(n(1), default)]
    created_at: u64,
    #[cbor(n(2), default)]
    updated_at: u64,
    #[cbor(n(3), with = "minicbor::bytes")]
    data: Option<&'a [u8]>,
}

impl TryFrom<DocumentFields<'_>> for Document {
    type Error = String;

    fn try_from(fields: DocumentFields<'_>) -> Result<Document, String> {
        let data = fields.data.map(Data::from_json).transpose();
        Ok(Document {
            version: fields.version,
            created_at: Millis(fields.created_at),
            updated_at: Millis(fields.updated_at),
            data: data.map_err(|error| error.to_string())?.map(Arc::new),
        })
    }
}
