//! Which branches of a world its runs have taken. A world lists those that must be: one that is
//! never taken, over many seeds, says that the simulator has gone blind.

use std::collections::BTreeMap;
use std::fmt;

/// Runs of so many seeds take every branch that a world lists.
pub const SEEDS_FOR_ALL_BRANCHES: u64 = 300;

/// How often each branch was taken.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Branches(BTreeMap<String, u64>);

impl Branches {
    /// All of a world's, none of them taken.
    pub(crate) fn of(listed: impl IntoIterator<Item = String>) -> Branches {
        Branches(listed.into_iter().map(|name| (name, 0)).collect())
    }

    pub(crate) fn take(&mut self, name: &str) {
        let taken = self.0.get_mut(name);
        *taken.unwrap_or_else(|| panic!("the world lists no branch {name:?}")) += 1;
    }

    /// Adds those that another run has taken.
    pub fn add(&mut self, other: &Branches) {
        for (name, taken) in &other.0 {
            *self.0.entry(name.clone()).or_default() += taken;
        }
    }

    /// Those that were not taken.
    pub fn never_taken(&self) -> Vec<&str> {
        let never = self.0.iter().filter(|(_, taken)| **taken == 0);
        never.map(|(name, _)| name.as_str()).collect()
    }
}

/// One line for each.
impl fmt::Display for Branches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|(name, taken)| writeln!(f, "{taken:>8}  {name}"))
    }
}
