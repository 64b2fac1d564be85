//! Every limit of documents, each with its reason.

/// Longest path of a document or a collection in bytes: it is part of a key.
pub const DOCUMENT_PATH_BYTES_MAX: usize = 1_024;

/// Longest id of a document in bytes: it ends every key of every index.
pub const DOCUMENT_ID_BYTES_MAX: usize = 64;

/// Largest data of a document in bytes, as compact JSON: it is in the log, in its change event
/// and in the state, before and after.
pub const DOCUMENT_BYTES_MAX: usize = 1 << 20;

/// How deep data may be nested, the document itself counted: everything that walks it recurses.
pub const DOCUMENT_DEPTH_MAX: usize = 32;

/// Most values of a document at any depth: each takes many times its bytes once it is read.
pub const DOCUMENT_VALUES_MAX: usize = 10_000;

/// Longest dotted name of a field in bytes.
pub const FIELD_BYTES_MAX: usize = 512;

/// Most filters of a query, and most preconditions of a write: each candidate meets all of them.
pub const FILTERS_MAX: usize = 32;

/// Most values of `in` and `not-in`: each may be a range of its own to be read.
pub const FILTER_LIST_MAX: usize = 100;

/// Largest value of a filter in bytes, as compact JSON.
pub const FILTER_VALUE_BYTES_MAX: usize = 16 * 1024;

/// Most fields to order by.
pub const ORDER_FIELDS_MAX: usize = 8;

/// Documents of a page when the query does not say.
pub const QUERY_LIMIT: usize = 100;

/// Most documents of a page.
pub const QUERY_LIMIT_MAX: usize = 1_000;

/// Longest cursor in characters: whatever is longer is not even decoded.
pub const CURSOR_BYTES_MAX: usize = 8 * 1024;

/// Most fields of an index.
pub const INDEX_FIELDS_MAX: usize = 8;

/// Most segments of an index's collection: each write is held against all indexes of its tenant.
pub const INDEX_SEGMENTS_MAX: usize = 32;

/// How much of a value takes part in an order, in bytes of its encoding: keys stay small. The
/// first 500 characters of a text are plenty to sort by.
pub const INDEX_VALUE_BYTES_MAX: usize = 512;

/// Most indexes that a collection can have: each write of a document writes all of them.
pub const INDEXES_PER_COLLECTION_MAX: usize = 10;

/// Most indexes of a tenant: they are in memory.
pub const INDEXES_MAX: usize = 200;

/// Most writes of one transaction.
pub const TRANSACTION_OPS_MAX: usize = 500;

/// Most bytes of documents, before and after, that one transaction changes: it is one batch of
/// the log, with its change events.
pub const TRANSACTION_BYTES_MAX: usize = 4 << 20;

/// Most elements of arrays that the preconditions of one transaction look through: it is decided
/// while others wait.
pub const PRECONDITION_ELEMENTS_MAX: usize = 1_000_000;

/// Longest idempotency key in bytes: it is part of a key.
pub const IDEMPOTENCY_KEY_BYTES_MAX: usize = 256;

/// How much is kept of the sentence that a recorded failure was answered with, in bytes.
pub const OUTCOME_MESSAGE_BYTES_MAX: usize = 512;

/// How many triggers may make each other go off by their writes: what goes on for longer is a loop.
pub const ORIGIN_DEPTH_MAX: usize = 8;

/// Longest id of a trigger in bytes: up to eight are in every change that triggers led to.
pub const ORIGIN_TRIGGER_BYTES_MAX: usize = 64;

const _: () = assert!(DOCUMENT_ID_BYTES_MAX < DOCUMENT_PATH_BYTES_MAX);
const _: () =
    assert!(DOCUMENT_BYTES_MAX * 2 <= TRANSACTION_BYTES_MAX, "the largest can be changed");
const _: () = assert!(
    FILTERS_MAX * DOCUMENT_VALUES_MAX <= PRECONDITION_ELEMENTS_MAX,
    "whatever guards one write is looked at"
);
const _: () = assert!(INDEX_FIELDS_MAX * (INDEX_VALUE_BYTES_MAX + 2) < 65_536 - 2_048, "is a key");
const _: () = assert!(
    (ORDER_FIELDS_MAX * (INDEX_VALUE_BYTES_MAX + 2) + DOCUMENT_ID_BYTES_MAX + 32) * 4 / 3
        < CURSOR_BYTES_MAX,
    "every cursor that we make is short enough"
);
