//! A document as it is at one moment: its data, or the tombstone that is left of it.

use std::sync::{Arc, OnceLock};

use serde::de::{Error as _, IgnoredAny};
use serde_json::{Map, Value};

use super::limits::{DOCUMENT_BYTES_MAX, DOCUMENT_DEPTH_MAX, DOCUMENT_VALUES_MAX};
use super::path::DocumentPath;
use crate::time::Millis;

/// A document, without where it is. Copies share their data.
#[derive(Debug, Clone, PartialEq)]
pub struct Document {
    /// 1 when it is created, and one more with every write, through deletion and creation anew:
    /// so a version names one state of a path.
    pub version: u64,
    /// When it was created; again when it was after it had been deleted.
    pub created_at: Millis,
    /// Never before the write before it.
    pub updated_at: Millis,
    /// `None` once it is deleted: a tombstone, which keeps the version.
    pub data: Option<Arc<Data>>,
}

/// A document and where it is: what filters, orders and conditions look at.
#[derive(Debug, Clone, Copy)]
pub struct DocumentView<'a> {
    pub collection: &'a str,
    pub id: &'a str,
    pub document: &'a Document,
}

/// User data within its limits: as values or as JSON, whichever it came as. The other is made when
/// somebody asks for it, for most are stored and sent as they were written.
#[derive(Debug, Clone, Default)]
pub struct Data {
    fields: OnceLock<Map<String, Value>>,
    json: OnceLock<Box<[u8]>>,
    bytes: usize,
}

impl PartialEq for Data {
    fn eq(&self, other: &Data) -> bool {
        self.fields() == other.fields()
    }
}

/// The data cannot be a document's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DataError {
    #[error("a document is at most {DOCUMENT_BYTES_MAX} bytes long, and this one has {0}")]
    TooLarge(usize),
    #[error("a document is nested at most {DOCUMENT_DEPTH_MAX} arrays and objects deep")]
    TooDeep,
    #[error("a document has at most {DOCUMENT_VALUES_MAX} values, those inside of others counted")]
    TooManyValues,
}

impl<'a> DocumentView<'a> {
    pub fn new(path: &'a DocumentPath, document: &'a Document) -> DocumentView<'a> {
        DocumentView { collection: path.collection().as_str(), id: path.id().as_str(), document }
    }
}

impl Document {
    pub fn is_tombstone(&self) -> bool {
        self.data.is_none()
    }

    /// Bytes of its data as JSON.
    pub fn bytes(&self) -> usize {
        self.data.as_ref().map_or(0, |data| data.bytes)
    }
}

impl Data {
    /// Checks what a client sent, or what a patch has made of a document.
    pub fn new(fields: Map<String, Value>) -> Result<Data, DataError> {
        let mut values = 0;
        let bytes = object_size(&fields, 1, &mut values)?;
        if bytes > DOCUMENT_BYTES_MAX {
            return Err(DataError::TooLarge(bytes));
        }
        Ok(Data { fields: fields.into(), json: OnceLock::new(), bytes })
    }

    /// Takes what was stored as JSON, and checked before it was.
    pub fn from_json(json: &[u8]) -> Result<Data, serde_json::Error> {
        serde_json::from_slice::<IgnoredAny>(json)?;
        if !json.starts_with(b"{") {
            return Err(serde_json::Error::custom("the data of a document is an object"));
        }
        let (bytes, json): (usize, Box<[u8]>) = (json.len(), json.into());
        Ok(Data { fields: OnceLock::new(), json: json.into(), bytes })
    }

    /// As JSON, compact.
    pub fn json(&self) -> &[u8] {
        self.json.get_or_init(|| {
            let json = serde_json::to_vec(self.fields());
            json.expect("names are texts, and memory does not fail").into()
        })
    }

    pub fn fields(&self) -> &Map<String, Value> {
        self.fields.get_or_init(|| match self.json.get() {
            Some(json) => serde_json::from_slice(json).expect("it was read as JSON before"),
            None => Map::new(),
        })
    }

    pub fn into_fields(self) -> Map<String, Value> {
        self.fields();
        self.fields.into_inner().unwrap_or_default()
    }

    /// Bytes as compact JSON.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

/// The bytes of a value as compact JSON, without writing it. Stops at what is too deep, before
/// there is too much of a stack, and at too many values.
pub(super) fn size(value: &Value, depth: usize, values: &mut usize) -> Result<usize, DataError> {
    *values += 1;
    if *values > DOCUMENT_VALUES_MAX {
        return Err(DataError::TooManyValues);
    }
    Ok(match value {
        Value::Null => 4,
        Value::Bool(value) => 5 - usize::from(*value),
        Value::Number(number) => number_size(number),
        Value::String(text) => text_size(text),
        Value::Object(fields) => return object_size(fields, depth + 1, values),
        Value::Array(elements) => {
            let depth = nested(depth + 1)?;
            let mut bytes = 1 + elements.len().max(1);
            for element in elements {
                bytes += size(element, depth, values)?;
            }
            bytes
        }
    })
}

fn object_size(
    fields: &Map<String, Value>,
    depth: usize,
    values: &mut usize,
) -> Result<usize, DataError> {
    let depth = nested(depth)?;
    // Two braces, a colon for each field and the commas between them.
    let mut bytes = 1 + fields.len() + fields.len().max(1);
    for (key, value) in fields {
        bytes += text_size(key) + size(value, depth, values)?;
    }
    Ok(bytes)
}

fn nested(depth: usize) -> Result<usize, DataError> {
    if depth > DOCUMENT_DEPTH_MAX { Err(DataError::TooDeep) } else { Ok(depth) }
}

fn number_size(number: &serde_json::Number) -> usize {
    struct Count(usize);
    impl std::fmt::Write for Count {
        fn write_str(&mut self, text: &str) -> std::fmt::Result {
            self.0 += text.len();
            Ok(())
        }
    }
    let mut count = Count(0);
    // Counting does not fail.
    let _ = std::fmt::Write::write_fmt(&mut count, format_args!("{number}"));
    count.0
}

fn text_size(text: &str) -> usize {
    let escaped = text.bytes().map(|byte| match byte {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 8 | 12 => 2,
        0..=31 => 6,
        _ => 1,
    });
    2 + escaped.sum::<usize>()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::document::arbitrary::value;

    fn data(value: Value) -> Result<usize, DataError> {
        let Value::Object(fields) = json!({ "a": value }) else { panic!("is an object") };
        Data::new(fields).map(|data| data.bytes())
    }

    #[test]
    fn a_document_has_its_limits() {
        // {"a":"…"} is eight bytes longer than its text.
        let text = |len| json!("x".repeat(len));
        assert_eq!(data(text(DOCUMENT_BYTES_MAX - 8)), Ok(DOCUMENT_BYTES_MAX));
        let more = DOCUMENT_BYTES_MAX + 1;
        assert_eq!(data(text(DOCUMENT_BYTES_MAX - 7)), Err(DataError::TooLarge(more)));
        let deep = |levels| (0..levels).fold(json!(1), |inner, _| json!([inner]));
        assert!(data(deep(DOCUMENT_DEPTH_MAX - 1)).is_ok());
        assert_eq!(data(deep(DOCUMENT_DEPTH_MAX)), Err(DataError::TooDeep));
        let many = |len: usize| json!(vec![0; len]);
        assert!(data(many(DOCUMENT_VALUES_MAX - 1)).is_ok());
        assert_eq!(data(many(DOCUMENT_VALUES_MAX)), Err(DataError::TooManyValues));
    }

    #[test]
    fn what_is_no_object_is_no_data() {
        for json in ["", "[]", "1", "{", "{\"a\":}", "{} ,", "null"] {
            assert!(Data::from_json(json.as_bytes()).is_err(), "{json}");
        }
        assert_eq!(Data::from_json(b"{}").unwrap().into_fields(), Map::new());
    }

    proptest! {
        #[test]
        fn its_size_is_that_of_its_json(value in value()) {
            let written = serde_json::to_vec(&json!({ "a": &value })).unwrap().len();
            prop_assert_eq!(data(value), Ok(written));
        }

        #[test]
        fn it_is_stored_and_read_again_as_it_is(value in value()) {
            let Value::Object(fields) = json!({ "a": value }) else { panic!("is an object") };
            let data = Data::new(fields).unwrap();
            let stored = Data::from_json(data.json()).unwrap();
            prop_assert_eq!((stored.json(), stored.bytes()), (data.json(), data.bytes()));
            prop_assert_eq!(stored, data);
        }
    }
}
