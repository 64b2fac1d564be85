//! Documents: what may be done with them, and by whom.

pub mod rules;
