//! Reading what is stored, for decisions and for everybody else.

use bytes::Bytes;
use reveille_kernel::error::Damaged;
use reveille_kernel::txn::ReadError;
use reveille_schema::record::RecordError;
use reveille_store::state::Reader;

use crate::app::Txn;

/// A stored value that cannot be what was written.
pub fn damaged(error: RecordError) -> Damaged {
    Damaged::new(error)
}

/// Reads records, each with its own codec.
pub trait ReadRecord {
    type Error: From<Damaged>;

    fn value(&mut self, key: &Bytes) -> Result<Option<Bytes>, Self::Error>;

    /// The record at a key.
    fn read<T>(
        &mut self,
        key: &Bytes,
        decode: impl FnOnce(&[u8]) -> Result<T, RecordError>,
    ) -> Result<Option<T>, Self::Error> {
        let Some(value) = self.value(key)? else { return Ok(None) };
        Ok(Some(decode(&value).map_err(damaged)?))
    }
}

impl ReadRecord for Txn<'_> {
    type Error = ReadError;

    fn value(&mut self, key: &Bytes) -> Result<Option<Bytes>, ReadError> {
        self.get(key)
    }
}

impl ReadRecord for &Reader {
    type Error = Damaged;

    fn value(&mut self, key: &Bytes) -> Result<Option<Bytes>, Damaged> {
        Ok(self.get(key)?)
    }
}
