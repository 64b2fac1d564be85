//! How everybody sees a document: its data, and over it what is the document's own. So it is in
//! answers, in rules, in conditions and in changes.
//!
//! ```text
//! {"id":"r1","collection":"rooms","version":3,"createdAt":…,"updatedAt":…,"status":"open"}
//! ```
//!
//! A tombstone has `"deleted": true` and no data.

use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::{Map, Value};

use super::change::{Change, ChangeEvent};
use super::field::Field;
use super::snapshot::{Data, Document, DocumentView};
use crate::time::Millis;

/// Names with values, as JSON has them.
pub type Fields = Map<String, Value>;

/// What a document's own fields take as JSON, names and numbers and all, but for the texts in them.
const OWN_BYTES: usize = 160;

/// The same of a change, but for its documents.
const CHANGE_BYTES: usize = 192;

/// A value of a document's own.
#[derive(Clone, Copy, serde::Serialize)]
#[serde(untagged)]
enum Own<'a> {
    Text(&'a str),
    Number(u64),
    True(bool),
}

impl From<Own<'_>> for Value {
    fn from(own: Own<'_>) -> Value {
        match own {
            Own::Text(text) => text.into(),
            Own::Number(number) => number.into(),
            Own::True(is_true) => is_true.into(),
        }
    }
}

impl DocumentView<'_> {
    /// The document as everybody sees it.
    pub fn to_fields(&self) -> Fields {
        let own = self.own().map(|(name, value)| (name.to_owned(), value.into()));
        let data = self.document.data.iter().flat_map(|data| data.fields());
        // Its own fields win.
        data.map(|(name, value)| (name.clone(), value.clone())).chain(own).collect()
    }

    /// The same as JSON.
    pub fn to_json(&self) -> Vec<u8> {
        let mut json = Vec::with_capacity(
            OWN_BYTES + self.id.len() + self.collection.len() + self.document.bytes(),
        );
        self.write_json(&mut json);
        json
    }

    /// Writes it as JSON, its data as they are stored.
    pub fn write_json(&self, json: &mut Vec<u8>) {
        json.push(b'{');
        let mut comma = false;
        for (name, value) in self.own() {
            if comma {
                json.push(b',');
            }
            comma = true;
            write_entry(json, name, &value);
        }
        // No user data has the name of one of these.
        match self.document.data.as_deref().and_then(|data| data.json().strip_prefix(b"{")) {
            None | Some(b"}") => json.push(b'}'),
            Some(data) => {
                json.push(b',');
                json.extend_from_slice(data);
            }
        }
    }

    fn own(&self) -> impl Iterator<Item = (&'static str, Own<'_>)> {
        let document = self.document;
        let own = [
            (Field::Id, Some(Own::Text(self.id))),
            (Field::Collection, Some(Own::Text(self.collection))),
            (Field::Version, Some(Own::Number(document.version))),
            (Field::CreatedAt, Some(Own::Number(document.created_at.0))),
            (Field::UpdatedAt, Some(Own::Number(document.updated_at.0))),
            (Field::Deleted, document.is_tombstone().then_some(Own::True(true))),
        ];
        own.into_iter().filter_map(|(field, value)| Some((field.own_name()?, value?)))
    }
}

impl Document {
    /// What [`DocumentView::to_fields`] was made of; none if these fields are no document's.
    pub fn from_fields(mut fields: Fields) -> Option<Document> {
        let mut take = |field: Field| fields.remove(field.own_name()?);
        let mut number = |field| take(field).as_ref().and_then(Value::as_u64);
        let version = number(Field::Version)?;
        let created_at = Millis(number(Field::CreatedAt)?);
        let updated_at = Millis(number(Field::UpdatedAt)?);
        take(Field::Id)?;
        take(Field::Collection)?;
        let is_tombstone = take(Field::Deleted).is_some();
        let data = if is_tombstone { None } else { Some(Data::new(fields).ok()?.into()) };
        Some(Document { version, created_at, updated_at, data })
    }

    /// The same of JSON.
    pub fn from_json(json: &str) -> Option<Document> {
        serde_json::from_str(json).ok().and_then(Document::from_fields)
    }
}

/// The same, written without a copy of the data.
impl Serialize for DocumentView<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (name, value) in self.own() {
            map.serialize_entry(name, &value)?;
        }
        // No user data has the name of one of these.
        for (name, value) in self.document.data.iter().flat_map(|data| data.fields()) {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

impl ChangeEvent {
    /// The change as it stands in the log of its tenant: an object, in which `before` is null for a
    /// document that was created and `after` for one that was deleted. What no trigger led to has no
    /// `origin`.
    pub fn to_json(&self) -> Vec<u8> {
        let Change { kind, path, before, after, .. } = &self.change;
        let bytes = [before, after].into_iter().flatten().map(|it| OWN_BYTES + it.bytes());
        let head = ChangeHead {
            seq: self.seq,
            lsn: self.lsn.to_string(),
            tenant: self.tenant.as_str(),
            kind: kind.as_str(),
            path: path.to_string(),
            collection: path.collection().as_str(),
            id: path.id().as_str(),
        };
        let mut json =
            Vec::with_capacity(CHANGE_BYTES + 3 * head.path.len() + bytes.sum::<usize>());
        write_value(&mut json, &head);
        // The rest belongs to it.
        json.pop();
        for (name, document) in [("before", before), ("after", after)] {
            json.push(b',');
            write_name(&mut json, name);
            match document {
                Some(document) => DocumentView::new(path, document).write_json(&mut json),
                None => json.extend_from_slice(b"null"),
            }
        }
        json.push(b',');
        write_entry(&mut json, "ts", &self.ts());
        if !self.origin.is_client() {
            json.push(b',');
            write_entry(&mut json, "origin", &self.origin);
        }
        json.push(b'}');
        json
    }
}

/// What a change has before its documents.
#[derive(serde::Serialize)]
struct ChangeHead<'a> {
    seq: u64,
    lsn: String,
    tenant: &'a str,
    #[serde(rename = "type")]
    kind: &'a str,
    path: String,
    collection: &'a str,
    id: &'a str,
}

fn write_entry(json: &mut Vec<u8>, name: &str, value: &impl Serialize) {
    write_name(json, name);
    write_value(json, value);
}

/// Names are ours: nothing in them must be escaped.
fn write_name(json: &mut Vec<u8>, name: &str) {
    json.push(b'"');
    json.extend_from_slice(name.as_bytes());
    json.extend_from_slice(b"\":");
}

fn write_value(json: &mut Vec<u8>, value: &impl Serialize) {
    serde_json::to_writer(json, value).expect("names are texts, and memory does not fail");
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::document::change::{ChangeKind, Lsn};
    use crate::document::origin::Origin;
    use crate::document::path::DocumentPath;
    use crate::tenant::Tenant;

    fn document(data: Option<Value>) -> Document {
        let data = data.map(|data| {
            let Value::Object(fields) = data else { panic!("is an object") };
            Arc::new(Data::new(fields).unwrap())
        });
        Document { version: 3, created_at: Millis(5), updated_at: Millis(7), data }
    }

    #[test]
    fn what_is_its_own_wins_however_it_is_written() {
        let path = DocumentPath::parse("rooms/r1").unwrap();
        let live = document(Some(json!({"status": "open", "at": {"x": 1}})));
        let view = DocumentView::new(&path, &live);
        let expected = json!({
            "id": "r1", "collection": "rooms", "version": 3, "createdAt": 5, "updatedAt": 7,
            "status": "open", "at": {"x": 1},
        });
        assert_eq!(Value::Object(view.to_fields()), expected);
        assert_eq!(serde_json::to_value(view).unwrap(), expected);
        assert_eq!(Document::from_fields(view.to_fields()).as_ref(), Some(&live));
        let json = String::from_utf8(view.to_json()).unwrap();
        assert_eq!(json, serde_json::to_string(&view).unwrap());
        assert_eq!(Document::from_json(&json).as_ref(), Some(&live));
        let empty = document(Some(json!({})));
        let view = DocumentView::new(&path, &empty);
        assert_eq!(view.to_json(), serde_json::to_vec(&view).unwrap());
        assert_eq!(Document::from_json("{}"), None);
        let gone = document(None);
        let view = DocumentView::new(&path, &gone);
        let expected = json!({
            "id": "r1", "collection": "rooms", "version": 3, "createdAt": 5, "updatedAt": 7,
            "deleted": true,
        });
        assert_eq!(Value::Object(view.to_fields()), expected);
        assert_eq!(Document::from_fields(view.to_fields()).as_ref(), Some(&gone));
        assert_eq!(serde_json::to_value(view).unwrap(), expected);
        assert_eq!(view.to_json(), serde_json::to_vec(&view).unwrap());
    }

    #[test]
    fn a_change_has_what_was_and_what_is() {
        let change = Change {
            kind: ChangeKind::Delete,
            path: DocumentPath::parse("rooms/r1").unwrap(),
            before: Some(document(Some(json!({"a": 1})))),
            after: None,
            ordinal: 0,
        };
        let lsn = Lsn { second: 9, ordinal: 2 };
        let tenant = Tenant::parse("acme").unwrap();
        let mut event = ChangeEvent { seq: 4, lsn, tenant, origin: Origin::CLIENT, change };
        let found: Value = serde_json::from_slice(&event.to_json()).unwrap();
        let before = json!({
            "id": "r1", "collection": "rooms", "version": 3, "createdAt": 5, "updatedAt": 7, "a": 1,
        });
        let mut expected = json!({
            "seq": 4, "lsn": "9:2", "tenant": "acme", "type": "delete", "path": "rooms/r1",
            "collection": "rooms", "id": "r1", "before": before, "after": null, "ts": 9,
        });
        assert_eq!(found, expected);
        event.origin = Origin::CLIENT.followed_by("trg_a").unwrap();
        expected["origin"] = json!({"trigger": "trg_a", "depth": 1, "chain": ["trg_a"]});
        let found: Value = serde_json::from_slice(&event.to_json()).unwrap();
        assert_eq!(found, expected);
    }
}
