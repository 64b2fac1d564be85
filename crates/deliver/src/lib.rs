//! deliver.
