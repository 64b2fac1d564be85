//! Reading what is stored, for decisions and for everybody else.

use bytes::Bytes;
use reveille_core::key_range::above;
use reveille_kernel::error::Damaged;
use reveille_kernel::txn::ReadError;
use reveille_schema::record::RecordError;
use reveille_store::state::Reader;
use reveille_store::table::Pair;

use crate::app::Txn;
use crate::limits::{SCAN_BYTES, SCAN_SLICE};

/// A stored value that cannot be what was written.
pub fn damaged(error: RecordError) -> Damaged {
    Damaged::new(error)
}

/// Takes an entry of a list, or says that its page has no room for it: the next one begins there.
pub type TakeEntry<'a, T> = &'a mut (dyn FnMut(&T) -> bool + Send);

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

/// Reads single keys: what is durable, or what a decision sees.
pub trait KeyReader {
    fn value_of(&mut self, key: &Bytes) -> Result<Option<Bytes>, ReadError>;
}

impl KeyReader for Txn<'_> {
    fn value_of(&mut self, key: &Bytes) -> Result<Option<Bytes>, ReadError> {
        self.get(key)
    }
}

impl KeyReader for &Reader {
    fn value_of(&mut self, key: &Bytes) -> Result<Option<Bytes>, ReadError> {
        Ok(self.get(key).map_err(Damaged::from)?)
    }
}

/// The pairs of a range, one after another: only a slice of them is in memory.
pub struct Scan<'a> {
    reader: &'a Reader,
    from: Bytes,
    to: Bytes,
    slice: std::vec::IntoIter<Pair>,
}

impl<'a> Scan<'a> {
    pub fn new(reader: &'a Reader, from: Bytes, to: Bytes) -> Scan<'a> {
        Scan { reader, from, to, slice: Vec::new().into_iter() }
    }
}

impl Iterator for Scan<'_> {
    type Item = Result<Pair, Damaged>;

    fn next(&mut self) -> Option<Result<Pair, Damaged>> {
        if let Some(pair) = self.slice.next() {
            return Some(Ok(pair));
        }
        match self.reader.range_within(&self.from, &self.to, SCAN_SLICE, SCAN_BYTES) {
            Ok(slice) => {
                self.from = above(&slice.last()?.0);
                self.slice = slice.into_iter();
                self.slice.next().map(Ok)
            }
            Err(error) => Some(Err(error.into())),
        }
    }
}

/// The same from the last to the first.
pub struct ScanBack<'a> {
    reader: &'a Reader,
    from: Bytes,
    to: Bytes,
    slice: std::vec::IntoIter<Pair>,
}

impl<'a> ScanBack<'a> {
    pub fn new(reader: &'a Reader, from: Bytes, to: Bytes) -> ScanBack<'a> {
        ScanBack { reader, from, to, slice: Vec::new().into_iter() }
    }
}

impl Iterator for ScanBack<'_> {
    type Item = Result<Pair, Damaged>;

    fn next(&mut self) -> Option<Result<Pair, Damaged>> {
        if let Some(pair) = self.slice.next() {
            return Some(Ok(pair));
        }
        match self.reader.range_back_within(&self.from, &self.to, SCAN_SLICE, SCAN_BYTES) {
            Ok(slice) => {
                self.to = slice.last()?.0.clone();
                self.slice = slice.into_iter();
                self.slice.next().map(Ok)
            }
            Err(error) => Some(Err(error.into())),
        }
    }
}
