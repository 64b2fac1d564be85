//! By what documents are sorted: some fields, each up or down, then the id.

use super::field::{Field, FieldError};
use super::index_key::{complement, encode};
use super::limits::ORDER_FIELDS_MAX;
use super::path::DocumentId;
use super::snapshot::DocumentView;

/// Which way a field is sorted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Direction {
    Asc,
    Desc,
}

/// A field and its direction.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SortField {
    pub field: Field,
    pub direction: Direction,
}

/// A total order of the documents of a collection. Unless it says otherwise it ends with the id,
/// ascending.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Order {
    /// Neither the id, which is last, nor the collection, which is the same for all.
    fields: Vec<SortField>,
    id: Direction,
}

/// What cannot be sorted by.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OrderError {
    #[error(transparent)]
    Field(#[from] FieldError),
    #[error("the direction of an order is `asc` or `desc`")]
    Direction,
    #[error("documents are sorted by at most {ORDER_FIELDS_MAX} fields")]
    TooMany,
    #[error("`{0}` is there twice; sort by it once")]
    Repeated(Field),
}

/// Where a document stands in an order: bytes that compare as the documents do. Reused from one
/// document to the next, it takes no memory anew.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SortKey {
    /// A part for each field, then the id.
    pub(super) bytes: Vec<u8>,
    /// Where each field's part ends.
    pub(super) ends: Vec<u16>,
}

impl Direction {
    pub fn parse(text: &str) -> Result<Direction, OrderError> {
        match text {
            "asc" => Ok(Direction::Asc),
            "desc" => Ok(Direction::Desc),
            _ => Err(OrderError::Direction),
        }
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Direction::Asc => "asc",
            Direction::Desc => "desc",
        }
    }

    pub fn reversed(self) -> Direction {
        match self {
            Direction::Asc => Direction::Desc,
            Direction::Desc => Direction::Asc,
        }
    }
}

impl SortField {
    pub fn new(field: &str, direction: Direction) -> Result<SortField, FieldError> {
        Ok(SortField { field: Field::parse(field)?, direction })
    }
}

impl Default for Order {
    fn default() -> Order {
        Order { fields: Vec::new(), id: Direction::Asc }
    }
}

impl Order {
    /// Fields after `id` never decide, and are left out.
    pub fn new(mut fields: Vec<SortField>) -> Result<Order, OrderError> {
        if fields.len() > ORDER_FIELDS_MAX {
            return Err(OrderError::TooMany);
        }
        if let Some(field) = repeated(&fields) {
            return Err(OrderError::Repeated(field.clone()));
        }
        let mut id = Direction::Asc;
        if let Some(at) = fields.iter().position(|it| it.field == Field::Id) {
            id = fields.get(at).map_or(id, |it| it.direction);
            fields.truncate(at);
        }
        fields.retain(|it| it.field != Field::Collection);
        Ok(Order { fields, id })
    }

    pub fn fields(&self) -> &[SortField] {
        &self.fields
    }

    /// Which way the id goes, which comes last.
    pub fn id(&self) -> Direction {
        self.id
    }

    /// Leaves out fields that are the same in all documents.
    pub(super) fn retain(&mut self, differs: impl Fn(&Field) -> bool) {
        self.fields.retain(|by| differs(&by.field));
    }

    /// Makes `key` that of this document.
    pub fn write_key(&self, view: &DocumentView<'_>, key: &mut SortKey) {
        key.bytes.clear();
        key.ends.clear();
        for SortField { field, direction } in &self.fields {
            encode(field.value(view), *direction, &mut key.bytes);
            // So many fields of so many bytes are less.
            key.ends.push(u16::try_from(key.bytes.len()).unwrap_or(u16::MAX));
        }
        let begin = key.bytes.len();
        key.bytes.extend_from_slice(view.id.as_bytes());
        if self.id == Direction::Desc {
            // No id has this byte, so that a longer one comes first.
            key.bytes.push(0);
            complement(key.bytes.get_mut(begin..).unwrap_or_default());
        }
    }
}

impl SortKey {
    /// Where a document stands that is sorted by its id alone, ascending.
    pub fn of_id(id: &DocumentId) -> SortKey {
        SortKey { bytes: id.as_str().into(), ends: Vec::new() }
    }

    /// The id, in an order by ascending ids.
    pub fn document_id(&self) -> Option<DocumentId> {
        let id = std::str::from_utf8(self.bytes.get(self.id_at()..)?).ok()?;
        DocumentId::parse(id).ok()
    }

    /// The part before the id: who shares it is a tie.
    pub fn fields(&self) -> &[u8] {
        self.bytes.get(..self.id_at()).unwrap_or(&self.bytes)
    }

    pub(super) fn id_at(&self) -> usize {
        self.ends.last().map_or(0, |end| usize::from(*end))
    }

    /// The part of one field.
    pub(super) fn part(&self, at: usize) -> &[u8] {
        let begin =
            at.checked_sub(1).and_then(|before| self.ends.get(before)).copied().unwrap_or(0);
        let end = self.ends.get(at).copied().unwrap_or(begin);
        self.bytes.get(usize::from(begin)..usize::from(end)).unwrap_or_default()
    }

    /// The part of the id, if the key is that of a document.
    pub(super) fn id(&self) -> &[u8] {
        self.bytes.get(self.id_at()..).unwrap_or_default()
    }
}

impl PartialOrd for SortKey {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for SortKey {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.bytes.cmp(&other.bytes)
    }
}

/// The first field that was there before.
pub(super) fn repeated(fields: &[SortField]) -> Option<&Field> {
    let mut seen = Vec::with_capacity(fields.len());
    for SortField { field, .. } in fields {
        if seen.contains(&field) {
            return Some(field);
        }
        seen.push(field);
    }
    None
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::document::snapshot::{Data, Document};
    use crate::time::Millis;

    fn order(fields: &[(&str, &str)]) -> Result<Order, OrderError> {
        let field = |(name, direction): &(&str, &str)| {
            Ok(SortField::new(name, Direction::parse(direction)?)?)
        };
        Order::new(fields.iter().map(field).collect::<Result<_, OrderError>>()?)
    }

    fn sorted(fields: &[(&str, &str)]) -> String {
        let order = order(fields).unwrap();
        let all = [
            ("aa", json!({"n": 2})),
            ("b", json!({"n": 1, "t": "x"})),
            ("a", json!({"n": 1, "t": "y"})),
            ("c", json!({"n": "1"})),
            ("d", json!({"n": null})),
            ("e", json!({})),
        ];
        let mut keys = Vec::new();
        for (id, data) in all {
            let data = Data::new(data.as_object().unwrap().clone()).unwrap();
            let document = Document {
                version: 1,
                created_at: Millis(0),
                updated_at: Millis(0),
                data: Some(data.into()),
            };
            let mut key = SortKey::default();
            let view = DocumentView { collection: "rooms", id, document: &document };
            order.write_key(&view, &mut key);
            keys.push((key, id));
        }
        keys.sort();
        keys.into_iter().map(|(_, id)| id).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn documents_are_sorted_by_fields_and_then_by_id() {
        assert_eq!(sorted(&[]), "a aa b c d e");
        assert_eq!(sorted(&[("id", "desc")]), "e d c b aa a");
        assert_eq!(sorted(&[("n", "asc")]), "e d a b aa c");
        assert_eq!(sorted(&[("n", "desc")]), "c aa a b d e");
        assert_eq!(sorted(&[("n", "asc"), ("id", "desc")]), "e d b a aa c");
        assert_eq!(sorted(&[("n", "asc"), ("t", "asc")]), "e d b a aa c");
        assert_eq!(sorted(&[("n", "desc"), ("t", "desc")]), "c aa a b d e");
    }

    #[test]
    fn what_never_decides_is_left_out() {
        let short = order(&[("n", "desc")]).unwrap();
        let long = order(&[("collection", "asc"), ("n", "desc"), ("id", "asc"), ("t", "asc")]);
        assert_eq!(long.unwrap(), short);
    }

    #[test]
    fn what_is_no_order_says_why() {
        assert_eq!(order(&[("n", "up")]), Err(OrderError::Direction));
        let n = Field::parse("n").unwrap();
        assert_eq!(order(&[("n", "asc"), ("n", "desc")]), Err(OrderError::Repeated(n)));
        assert_eq!(order(&[("a", "asc"); 9]), Err(OrderError::TooMany));
        assert!(matches!(order(&[("a.", "asc")]), Err(OrderError::Field(_))));
    }
}
