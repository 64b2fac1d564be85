//! Indexes that a tenant declares: entries of some fields in order, for every document of a
//! collection.
//!
//! An entry is the fields' encodings and the document's id. Tombstones have entries too, and
//! documents that lack a field, so that an index is all of its collection: whoever walks over one
//! sees every document once.

pub mod plan;
mod range;
mod suggest;

use std::fmt;
use std::sync::Arc;

use super::field::{Field, FieldError};
use super::index_key::encode;
use super::limits::{
    DOCUMENT_PATH_BYTES_MAX, INDEX_FIELDS_MAX, INDEX_SEGMENTS_MAX, INDEXES_MAX,
    INDEXES_PER_COLLECTION_MAX,
};
use super::order::{SortField, repeated};
use super::path::{CollectionPath, PathError};
use super::snapshot::DocumentView;

pub use self::suggest::suggest;

/// Which collections an index is for: a path, where `*` is any one segment.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CollectionPattern(Arc<str>);

/// What is indexed, and which way.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct IndexDefinition {
    pub collection: CollectionPattern,
    fields: Vec<SortField>,
}

/// The index cannot be declared.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IndexError {
    #[error("the collection of an index: {0}; `*` stands for any one segment")]
    Collection(PathError),
    #[error("`*` stands for a whole segment, as in `rooms/*/messages`")]
    PartialStar,
    #[error(transparent)]
    Field(#[from] FieldError),
    #[error("an index has at least one field")]
    NoFields,
    #[error("an index has at most {INDEX_FIELDS_MAX} fields")]
    TooManyFields,
    #[error("`{0}` is there twice; index it once")]
    Repeated(Field),
    /// The id ends every index, and the others are the same for every document.
    #[error("`{0}` needs no index; leave it out")]
    NotIndexed(Field),
    #[error("the collection of an index has at most {INDEX_SEGMENTS_MAX} segments")]
    TooManySegments,
    #[error("there is this index already")]
    Exists,
    #[error(
        "a collection has at most {INDEXES_PER_COLLECTION_MAX} indexes; remove one that nobody uses"
    )]
    TooManyOfCollection,
    #[error("there are at most {INDEXES_MAX} indexes; remove one that nobody uses")]
    TooMany,
}

impl CollectionPattern {
    pub fn parse(raw: &str) -> Result<CollectionPattern, IndexError> {
        if raw.split('/').any(|segment| segment.contains('*') && segment != "*") {
            return Err(IndexError::PartialStar);
        }
        if raw.len() > DOCUMENT_PATH_BYTES_MAX {
            return Err(IndexError::Collection(PathError::TooLong));
        }
        // What it is for has some name where it has a `*`.
        let example = raw.replace('*', "x");
        CollectionPath::parse(&example).map_err(IndexError::Collection)?;
        Ok(CollectionPattern(raw.into()))
    }

    /// Of all collections that differ from this one in the documents above alone.
    fn around(collection: &CollectionPath) -> CollectionPattern {
        let segments = collection.segments().enumerate();
        let segments = segments.map(|(at, segment)| if at % 2 == 1 { "*" } else { segment });
        CollectionPattern(segments.collect::<Vec<_>>().join("/").into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub fn matches(&self, collection: &CollectionPath) -> bool {
        let mut segments = collection.segments();
        self.0
            .split('/')
            .all(|wanted| segments.next().is_some_and(|it| wanted == "*" || wanted == it))
            && segments.next().is_none()
    }

    /// Whether no index may be declared for it.
    fn is_too_deep(&self) -> bool {
        self.0.split('/').count() > INDEX_SEGMENTS_MAX
    }

    /// Whether there can be a collection that both are for.
    fn overlaps(&self, other: &CollectionPattern) -> bool {
        let mut others = other.0.split('/');
        self.0.split('/').all(|one| {
            others.next().is_some_and(|other| one == "*" || other == "*" || one == other)
        }) && others.next().is_none()
    }
}

impl IndexDefinition {
    pub fn new(
        collection: CollectionPattern,
        fields: Vec<SortField>,
    ) -> Result<IndexDefinition, IndexError> {
        if fields.is_empty() {
            return Err(IndexError::NoFields);
        }
        if fields.len() > INDEX_FIELDS_MAX {
            return Err(IndexError::TooManyFields);
        }
        if let Some(field) = repeated(&fields) {
            return Err(IndexError::Repeated(field.clone()));
        }
        if let Some(useless) = fields.iter().find(|it| !is_indexed(&it.field)) {
            return Err(IndexError::NotIndexed(useless.field.clone()));
        }
        Ok(IndexDefinition { collection, fields })
    }

    pub fn fields(&self) -> &[SortField] {
        &self.fields
    }

    /// Appends the entry of a document: compared as bytes, entries have the order of the index.
    /// What it was before tells which entry a write removes.
    pub fn write_entry(&self, view: &DocumentView<'_>, out: &mut Vec<u8>) {
        for SortField { field, direction } in &self.fields {
            encode(field.value(view), *direction, out);
        }
        out.extend_from_slice(view.id.as_bytes());
    }

    /// Whether it may be declared beside those that a tenant has.
    pub fn check_beside(&self, existing: &[IndexDefinition]) -> Result<(), IndexError> {
        if self.collection.is_too_deep() {
            return Err(IndexError::TooManySegments);
        }
        if existing.contains(self) {
            return Err(IndexError::Exists);
        }
        if existing.len() >= INDEXES_MAX {
            return Err(IndexError::TooMany);
        }
        // More than those of any one collection, if patterns overlap: too strict rather than lax.
        let of_collection =
            existing.iter().filter(|it| it.collection.overlaps(&self.collection)).count();
        if of_collection >= INDEXES_PER_COLLECTION_MAX {
            return Err(IndexError::TooManyOfCollection);
        }
        Ok(())
    }
}

/// Reads the name of a field in a definition. User data may be written `data.status`, as
/// suggestions are; a field `data` of the user's own is `data.data` then.
pub fn parse_index_field(name: &str) -> Result<Field, FieldError> {
    match name.strip_prefix("data.") {
        Some(user) => match Field::parse(user)? {
            Field::User(path) => Ok(Field::User(path)),
            // `data.version` is no field: user data has no `version`.
            Field::Id
            | Field::Collection
            | Field::Version
            | Field::CreatedAt
            | Field::UpdatedAt
            | Field::Deleted => Err(FieldError::NotUserData(name.to_owned())),
        },
        None => Field::parse(name),
    }
}

/// The name of a field in a suggestion.
pub fn index_field_name(field: &Field) -> String {
    match field {
        Field::User(path) => format!("data.{}", path.as_str()),
        own => own.to_string(),
    }
}

/// Whether a field can be one of an index.
fn is_indexed(field: &Field) -> bool {
    !matches!(field, Field::Id | Field::Collection | Field::Deleted)
}

impl fmt::Display for CollectionPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests;
