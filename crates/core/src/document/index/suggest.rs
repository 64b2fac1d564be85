//! The index that a query lacks.

use super::plan::wants_ids;
use super::{CollectionPattern, IndexDefinition, is_indexed};
use crate::document::field::Field;
use crate::document::filter::FilterOp;
use crate::document::limits::INDEX_FIELDS_MAX;
use crate::document::order::{Direction, SortField};
use crate::document::query::Query;

/// An index by which a query is found: fields that it wants equal, then those that it sorts by,
/// or if it does not, one that it wants in a range. `None` if no index helps: with `!=`, `not-in`
/// or `array-contains` alone there is nothing to look up, who names ids needs none, and a collection
/// may be too deep for one.
///
/// It is for the same collection below any document: what one room's messages lack, all lack.
pub fn suggest(query: &Query) -> Option<IndexDefinition> {
    let collection = CollectionPattern::around(&query.collection);
    if wants_ids(query) || collection.is_too_deep() {
        return None;
    }
    let mut fields: Vec<SortField> = Vec::new();
    for filter in query.filters.iter().filter(|filter| is_indexed(&filter.field)) {
        let is_new = fields.iter().all(|by| by.field != filter.field);
        if is_new && query.equal_to(&filter.field).is_some() {
            fields.push(SortField { field: filter.field.clone(), direction: Direction::Asc });
        }
    }
    let order = query.order.fields();
    if order.is_empty() {
        fields.extend(ranged(query, fields.is_empty()));
    } else if order.iter().all(|by| is_indexed(&by.field)) {
        // Ids go up in every index. Where they are to go down, it is read backwards.
        let is_backwards = query.order.id() == Direction::Desc;
        fields.extend(order.iter().map(|by| SortField {
            field: by.field.clone(),
            direction: if is_backwards { by.direction.reversed() } else { by.direction },
        }));
    }
    fields.truncate(INDEX_FIELDS_MAX);
    IndexDefinition::new(collection, fields).ok()
}

/// A field of a range, or of a list of values.
fn ranged(query: &Query, is_first: bool) -> Option<SortField> {
    let is_range = |op: FilterOp| op.is_range() || op == FilterOp::In;
    let of_id = query.filters.iter().any(|it| it.field == Field::Id && it.op.is_range());
    if of_id && is_first {
        // The collection itself is sorted by id.
        return None;
    }
    let mut filters = query.filters.iter().filter(|it| is_range(it.op) && is_indexed(&it.field));
    let filter = filters.find(|it| query.equal_to(&it.field).is_none())?;
    Some(SortField { field: filter.field.clone(), direction: Direction::Asc })
}
