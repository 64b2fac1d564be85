//! The names of facts: entities, scopes, relations, and ids that the world sees.
//!
//! ```text
//! id = UUIDv8: hook's number (56 bits) | what it is (4 bits) | 0 (6 bits) | event's number (56 bits)
//!      the version (8) and the variant (RFC 9562) stand where every UUID has them
//! ```
//!
//! So an id of an event, a fact, a card or a token is read back without an index, and is the same on
//! every retry and every replay. The round of a delivery is no part of it.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

use super::garden::GardenSlug;
use super::limits::{FACT_SOURCE_BYTES_MAX, RELATION_BYTES_MAX};
use crate::delivery::hook::HookId;
use crate::delivery::id::EventNo;
use crate::limits::ENTITY_URI_BYTES_MAX;
use crate::time::Millis;

/// Whom facts are about, and who somebody is: small letters, no space at the ends, `-` for those
/// within.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntityUri(Arc<str>);

/// A name in a fact is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    #[error(
        "an entity is 1 to {ENTITY_URI_BYTES_MAX} bytes of printable text, such as \"user:alice\""
    )]
    Entity,
    #[error(
        "a relation is 1 to {RELATION_BYTES_MAX} bytes of printable text, such as \"works_at\""
    )]
    Relation,
    #[error("a source is 1 to {FACT_SOURCE_BYTES_MAX} bytes of printable text")]
    Source,
    #[error("a scope is one of \"local\", \"team\", \"company\" and \"public\"")]
    Scope,
}

impl EntityUri {
    /// Reads an entity. All ways of writing it are one.
    pub fn parse(text: &str) -> Result<EntityUri, NameError> {
        let text = text.trim();
        if !is_plain(text, ENTITY_URI_BYTES_MAX) {
            return Err(NameError::Entity);
        }
        let text: String = text.to_lowercase().replace(' ', "-");
        // A small letter may be longer than the capital that it was.
        if text.len() > ENTITY_URI_BYTES_MAX {
            Err(NameError::Entity)
        } else {
            Ok(EntityUri(text.into()))
        }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The text, for whoever keeps it.
    pub fn to_shared(&self) -> Arc<str> {
        self.0.clone()
    }
}

impl Borrow<str> for EntityUri {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for EntityUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Checks a relation.
pub fn check_relation(text: &str) -> Result<(), NameError> {
    if is_plain(text, RELATION_BYTES_MAX) { Ok(()) } else { Err(NameError::Relation) }
}

/// Checks where a fact is from.
pub fn check_source(text: &str) -> Result<(), NameError> {
    if is_plain(text, FACT_SOURCE_BYTES_MAX) { Ok(()) } else { Err(NameError::Source) }
}

fn is_plain(text: &str, max: usize) -> bool {
    !text.trim().is_empty() && text.len() <= max && !text.chars().any(char::is_control)
}

/// How far a fact is meant to go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    Local,
    Team,
    Company,
    Public,
}

impl Scope {
    pub const ALL: [Scope; 4] = [Scope::Local, Scope::Team, Scope::Company, Scope::Public];

    pub fn as_str(self) -> &'static str {
        match self {
            Scope::Local => "local",
            Scope::Team => "team",
            Scope::Company => "company",
            Scope::Public => "public",
        }
    }

    /// The scope of this name.
    pub fn parse(name: &str) -> Result<Scope, NameError> {
        Scope::ALL.into_iter().find(|scope| scope.as_str() == name).ok_or(NameError::Scope)
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What a subscription or a token speaks of: every scope, one of them, or a garden.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ScopeId {
    /// Every scope of the tenant.
    Global,
    One(Scope),
    Garden(GardenSlug),
}

/// The text is the id of no scope.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "a scope id is \"global\", \"local\", \"team\", \"company\", \"public\" or \"garden:SLUG\""
)]
pub struct ScopeIdError;

impl ScopeId {
    /// Reads the id of a scope; a garden may be written by its URI, too.
    pub fn parse(text: &str) -> Result<ScopeId, ScopeIdError> {
        if text == "global" {
            return Ok(ScopeId::Global);
        }
        if let Ok(scope) = Scope::parse(text) {
            return Ok(ScopeId::One(scope));
        }
        let is_garden = text.starts_with("garden:") || text.starts_with("stigmem://");
        let slug = is_garden.then(|| GardenSlug::parse_id(text).ok()).flatten();
        slug.map(ScopeId::Garden).ok_or(ScopeIdError)
    }
}

impl fmt::Display for ScopeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ScopeId::Global => f.write_str("global"),
            ScopeId::One(scope) => f.write_str(scope.as_str()),
            ScopeId::Garden(slug) => write!(f, "garden:{slug}"),
        }
    }
}

/// A name that the world knows something by, and that is read back into its numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Id {
    /// An event, as one hook gets it.
    Event(HookId, EventNo),
    Fact(u64),
    Token(u64),
}

const NUMBER_BITS: u32 = 56;
const NUMBER_MAX: u64 = (1 << NUMBER_BITS) - 1;
const KIND_SHIFT: u32 = 64;
const VERSION: u128 = 8 << 76;
const VARIANT: u128 = 0b10 << 62;

impl Id {
    /// The number of the UUID.
    fn to_u128(self) -> u128 {
        let (kind, hook, number) = match self {
            Id::Event(hook, event) => (1_u128, hook.0, event.0),
            Id::Fact(number) => (2, 0, number),
            Id::Token(number) => (3, 0, number),
        };
        let hook = u128::from(hook & NUMBER_MAX);
        let (high, low) = (hook >> 8, hook & 0xff);
        high << 80
            | VERSION
            | low << 68
            | kind << KIND_SHIFT
            | VARIANT
            | u128::from(number & NUMBER_MAX)
    }

    /// Reads what [`Display`](fmt::Display) writes, in letters of either size, and nothing else.
    pub fn parse(text: &str) -> Option<Id> {
        let number = parse_uuid(text)?;
        let part = |shift: u32, mask: u64| {
            u64::try_from((number >> shift) & u128::from(mask)).unwrap_or_default()
        };
        let hook = part(80, (1 << 48) - 1) << 8 | part(68, 0xff);
        let last = part(0, NUMBER_MAX);
        let id = match part(KIND_SHIFT, 0xf) {
            1 => Id::Event(HookId(hook), EventNo(last)),
            2 => Id::Fact(last),
            3 => Id::Token(last),
            _ => return None,
        };
        // What is not a part of it is as we write it.
        (id.to_u128() == number).then_some(id)
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(uuid(self.to_u128()).as_str())
    }
}

/// A UUIDv7: the milliseconds of `now`, and what was drawn.
pub fn uuid_v7(now: Millis, drawn: [u8; 10]) -> String {
    let mut bytes = [0; 16];
    let (_, low) = bytes.split_at_mut(6);
    low.copy_from_slice(&drawn);
    let random = u128::from_be_bytes(bytes) & !(0xf << 76) & !(0b11 << 62);
    let ms = u128::from(now.0 & ((1 << 48) - 1));
    uuid(ms << 80 | 7 << 76 | VARIANT | random).as_str().to_owned()
}

/// Whether a text is a UUID of any kind.
pub fn is_uuid(text: &str) -> bool {
    parse_uuid(text).is_some()
}

/// The text of a UUID.
struct Uuid([u8; 36]);

impl Uuid {
    fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).expect("digits and hyphens are ASCII")
    }
}

fn uuid(number: u128) -> Uuid {
    let mut digits = number.to_be_bytes().into_iter().flat_map(|byte| [byte >> 4, byte & 0xf]);
    let mut text = [b'-'; 36];
    for (at, place) in text.iter_mut().enumerate() {
        if !matches!(at, 8 | 13 | 18 | 23) {
            let digit = digits.next().unwrap_or(0);
            *place = if digit < 10 { b'0' + digit } else { b'a' + digit - 10 };
        }
    }
    Uuid(text)
}

fn parse_uuid(text: &str) -> Option<u128> {
    if text.len() != 36 {
        return None;
    }
    let mut number = 0_u128;
    for (at, byte) in text.bytes().enumerate() {
        if matches!(at, 8 | 13 | 18 | 23) {
            if byte != b'-' {
                return None;
            }
            continue;
        }
        number = number << 4 | u128::from(char::from(byte).to_digit(16)?);
    }
    Some(number)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_entity_is_the_same_however_it_is_written() {
        let entity = |text: &str| EntityUri::parse(text).unwrap();
        assert_eq!(
            entity(" stigmem://Company.Example/User/Alice "),
            entity("stigmem://company.example/user/alice")
        );
        assert_eq!(entity("User:Alice Smith").as_str(), "user:alice-smith");
        for bad in ["", "  ", "a\nb", "a\0b", &"x".repeat(1_025)] {
            assert_eq!(EntityUri::parse(bad), Err(NameError::Entity), "{bad:?}");
        }
        // A capital of two bytes has a small letter of three.
        let grows = "\u{23a}".repeat(512);
        assert_eq!(EntityUri::parse(&grows), Err(NameError::Entity));
    }

    #[test]
    fn relations_and_sources_have_a_length_and_are_printable() {
        assert_eq!(check_relation("works_at"), Ok(()));
        for bad in ["", " ", "a\tb", &"x".repeat(257)] {
            assert_eq!(check_relation(bad), Err(NameError::Relation), "{bad:?}");
        }
        assert_eq!(check_source("agent:scribe"), Ok(()));
        assert_eq!(check_source(&"x".repeat(1_025)), Err(NameError::Source));
    }

    #[test]
    fn scope_ids_are_the_words_and_gardens() {
        for text in ["global", "local", "team", "company", "public", "garden:atlas"] {
            assert_eq!(ScopeId::parse(text).unwrap().to_string(), text);
        }
        let by_uri = ScopeId::parse("stigmem://co.example/garden/atlas").unwrap();
        assert_eq!(by_uri.to_string(), "garden:atlas");
        for bad in ["", "nowhere", "Global", "atlas", "garden:", "garden:A", "stigmem://co/user/a"]
        {
            assert_eq!(ScopeId::parse(bad), Err(ScopeIdError), "{bad}");
        }
    }

    #[test]
    fn an_event_id_is_a_uuid_of_version_8_that_is_read_back() {
        let id = Id::Event(HookId(0x0012_3456_789a_bcde), EventNo(0x00fe_dcba_9876_5432));
        assert_eq!(id.to_string(), "12345678-9abc-8de1-80fe-dcba98765432");
        assert_eq!(Id::parse(&id.to_string()), Some(id));
        assert_eq!(Id::parse(&id.to_string().to_uppercase()), Some(id));
        for bad in [
            "",
            "12345678-9abc-8de1-80fe-dcba9876543",
            "12345678-9abc-4de1-80fe-dcba98765432",
            "12345678-9abc-8de0-80fe-dcba98765432",
            "12345678-9abc-8de1-81fe-dcba98765432",
            "12345678-9abc-8de1-c0fe-dcba98765432",
            "12345678-9abc-8de2-80fe-dcba98765432",
            "1234567809abc08de1080fe0dcba98765432",
            "g2345678-9abc-8de1-80fe-dcba98765432",
        ] {
            assert_eq!(Id::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_random_uuid_is_of_version_7() {
        let text = uuid_v7(Millis(0x0192_0000_1234), [0xff; 10]);
        assert_eq!(text, "01920000-1234-7fff-bfff-ffffffffffff");
        assert!(is_uuid(&text) && Id::parse(&text).is_none());
    }

    proptest! {
        #[test]
        fn ids_read_back(hook in 0..=NUMBER_MAX, number in 0..=NUMBER_MAX) {
            for id in [Id::Event(HookId(hook), EventNo(number)), Id::Fact(number), Id::Token(number)] {
                prop_assert_eq!(Id::parse(&id.to_string()), Some(id));
            }
        }

        #[test]
        fn whatever_reads_is_what_is_written(text in "[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-80[0-9a-f]{2}-[0-9a-f]{12}") {
            if let Some(id) = Id::parse(&text) {
                prop_assert_eq!(id.to_string(), text);
            }
        }
    }
}
