//! Bytes of triggers.
