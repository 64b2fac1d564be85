//! Decisions about triggers.
