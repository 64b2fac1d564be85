//! Decisions about facts.
