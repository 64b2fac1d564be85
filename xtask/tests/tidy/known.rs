//! What is not yet as it should be. These tables only get shorter.

use crate::{domains, modules, sizes};

/// Top modules that form a cycle, by crate.
pub(crate) const CYCLES: &modules::Table = &[];

/// Domains of the engine that reach sideways into another.
///
/// Triggers are hooks for changes of documents: they take part in a write through its door.
pub(crate) const SIDEWAYS: &domains::Table = &[("triggers", "documents")];

/// Files over 700 lines, with what they may have at most.
pub(crate) const LONG_FILES: &sizes::Table = &[];

/// Functions over 70 lines, with what they may have at most.
pub(crate) const LONG_FUNCTIONS: &sizes::Table = &[];
