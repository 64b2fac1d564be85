//! How records are written: CBOR maps with small integer keys.
//!
//! A field's number is persisted and never reused; absent fields have their default, unknown ones
//! are skipped, so that a newer server reads what an older one wrote. Fields are derived on structs
//! whose names end in `Fields`; converting one into what it stands for checks it.

use std::convert::Infallible;
use std::fmt;

use bytes::Bytes;
use minicbor::encode::Write;
use minicbor::{Decode, Decoder, Encode, Encoder, decode, encode};
use reveille_core::StreamPath;

/// A value of the state.
pub trait Record: Sized {
    fn encode(&self) -> Bytes;

    fn decode(value: &[u8]) -> Result<Self, RecordError>;
}

/// The value is damaged, or of a kind that this server does not know.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a stored {what} cannot be read: {why}")]
pub struct RecordError {
    what: &'static str,
    why: String,
}

impl RecordError {
    pub(crate) fn new(what: &'static str, why: impl fmt::Display) -> RecordError {
        RecordError { what, why: why.to_string() }
    }
}

/// Writes a value that probably fits into `capacity` bytes.
pub(crate) fn write(capacity: usize, fields: &impl Encode<()>) -> Bytes {
    let mut out = Encoder::new(Vec::with_capacity(capacity));
    written(fields.encode(&mut out, &mut ()));
    out.into_writer().into()
}

/// Reads the fields, and makes of them what they stand for.
pub(crate) fn read<'b, F, T>(what: &'static str, value: &'b [u8]) -> Result<T, RecordError>
where
    F: Decode<'b, ()>,
    T: TryFrom<F, Error: fmt::Display>,
{
    let fields: F = minicbor::decode(value).map_err(|why| RecordError::new(what, why))?;
    T::try_from(fields).map_err(|why| RecordError::new(what, why))
}

/// Reads a list, item by item, without a list of fields in between.
pub(crate) fn read_list<'b, F, T>(input: &mut Decoder<'b>) -> Result<Vec<T>, decode::Error>
where
    F: Decode<'b, ()>,
    T: TryFrom<F, Error: fmt::Display>,
{
    let mut items = Vec::new();
    for fields in input.array_iter::<F>()? {
        items.push(T::try_from(fields?).map_err(decode::Error::message)?);
    }
    Ok(items)
}

pub(crate) fn read_paths(input: &mut Decoder<'_>) -> Result<Vec<StreamPath>, decode::Error> {
    let path = |text: &str| StreamPath::parse(text).map_err(|_| decode::Error::message("no path"));
    input.array_iter::<&str>()?.map(|text| path(text?)).collect()
}

/// What an iterator yields, as a list.
pub(crate) struct List<I>(pub(crate) I);

impl<C, I> Encode<C> for List<I>
where
    I: ExactSizeIterator<Item: Encode<C>> + Clone,
{
    fn encode<W: Write>(
        &self,
        out: &mut Encoder<W>,
        ctx: &mut C,
    ) -> Result<(), encode::Error<W::Error>> {
        out.array(u64::try_from(self.0.len()).expect("a length is no more than 64 bits"))?;
        self.0.clone().try_for_each(|item| item.encode(out, ctx))
    }
}

/// The most fields of a map whose head is a single byte.
const MAP_FIELDS_MAX: u8 = 23;
const EMPTY_MAP: u8 = 0xa0;

/// Writes a map whose fields are not in the order of their numbers, which is the only one that can
/// be derived. How many there are is written last, into the first byte.
pub(crate) struct MapWriter {
    out: Encoder<Vec<u8>>,
    fields: u8,
}

impl MapWriter {
    pub(crate) fn new(capacity: usize) -> MapWriter {
        let mut out = Vec::with_capacity(capacity);
        out.push(EMPTY_MAP);
        MapWriter { out: Encoder::new(out), fields: 0 }
    }

    pub(crate) fn put(&mut self, field: u8, value: impl Encode<()>) {
        written(self.out.u8(field).map(|_| ()));
        written(value.encode(&mut self.out, &mut ()));
        self.fields += 1;
    }

    /// Writes nothing for `None`.
    pub(crate) fn put_some(&mut self, field: u8, value: Option<impl Encode<()>>) {
        if let Some(value) = value {
            self.put(field, value);
        }
    }

    pub(crate) fn finish(self) -> Bytes {
        assert!(self.fields <= MAP_FIELDS_MAX, "the number of fields fits into one byte");
        let mut out = self.out.into_writer();
        if let Some(head) = out.first_mut() {
            *head = EMPTY_MAP + self.fields;
        }
        out.into()
    }
}

/// Reads a field that is never null: it has a value, or it is absent. To look for null first, as
/// is derived, takes as long as to read a number.
pub(crate) fn some<'b, C, T: Decode<'b, C>>(
    input: &mut Decoder<'b>,
    ctx: &mut C,
) -> Result<Option<T>, decode::Error> {
    T::decode(input, ctx).map(Some)
}

/// The same for bytes.
pub(crate) fn some_bytes<C, const N: usize>(
    input: &mut Decoder<'_>,
    _: &mut C,
) -> Result<Option<[u8; N]>, decode::Error> {
    let wrong = |_| decode::Error::message("bytes of another length");
    input.bytes()?.try_into().map(Some).map_err(wrong)
}

/// For fields that are written only when they are set.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "derived code calls it with a reference")]
pub(crate) fn is_false(flag: &bool) -> bool {
    !flag
}

/// For fields that are written even when there is nothing to say, then as null.
pub(crate) fn is_never_nil<T>(_: &T) -> bool {
    false
}

fn written(result: Result<(), encode::Error<Infallible>>) {
    result.expect("writing to memory cannot fail");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_counts_its_fields() {
        assert_eq!(MapWriter::new(0).finish(), b"\xa0"[..]);
        let mut map = MapWriter::new(0);
        map.put(7, "a");
        map.put_some(3, None::<u64>);
        map.put_some(2, Some(List([1, 2].iter())));
        assert_eq!(map.finish(), b"\xa2\x07\x61a\x02\x82\x01\x02"[..]);
    }
}
