//! What an event of facts is about, as its record has it: enough to say whom it is for and who may
//! see it, and nothing of what was said.
//!
//! ```text
//! company/1792/user:alice        scope / number of the garden, 0 for none / entity
//! ```

use std::fmt;

use reveille_core::fact::garden::GardenNo;
use reveille_core::fact::{EntityUri, Scope};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FactSubject {
    pub scope: Scope,
    pub garden: Option<GardenNo>,
    pub entity: EntityUri,
}

impl FactSubject {
    /// Reads what is written.
    pub fn parse(text: &str) -> Option<FactSubject> {
        let mut parts = text.splitn(3, '/');
        let (scope, garden, entity) = (parts.next()?, parts.next()?, parts.next()?);
        let garden: u64 = garden.parse().ok()?;
        Some(FactSubject {
            scope: Scope::parse(scope).ok()?,
            garden: (garden > 0).then_some(GardenNo(garden)),
            entity: EntityUri::parse(entity).ok()?,
        })
    }
}

impl fmt::Display for FactSubject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let FactSubject { scope, garden, entity } = self;
        write!(f, "{scope}/{}/{entity}", garden.map_or(0, |garden| garden.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subjects_read_back() {
        for (garden, text) in [
            (None, "company/0/stigmem://co/user/a"),
            (Some(GardenNo(512)), "company/512/stigmem://co/user/a"),
        ] {
            let entity = EntityUri::parse("stigmem://co/user/a").unwrap();
            let subject = FactSubject { scope: Scope::Company, garden, entity };
            assert_eq!(subject.to_string(), text);
            assert_eq!(FactSubject::parse(text), Some(subject));
        }
        for bad in ["", "company", "company/0", "company/x/a", "nowhere/0/a", "company/0/"] {
            assert_eq!(FactSubject::parse(bad), None, "{bad}");
        }
    }
}
