//! What a trigger keeps in the spec of its hook.
//!
//! | field | type | what |
//! |---|---|---|
//! | 0 | bytes | the definition of this version, JSON as the face writes it |
//! | 1 | integer | state: 0 disabled, 1 enabled, 2 dry run, 3 rolled back to another version, 4 rolled back to nothing |
//! | 2 | integer | the first change that this version is for |
//! | 3 | array | the stable version, if it counts: `[version, definition]` |
//! | 4 | array | versions of changes that are still being told, oldest first, each `[version, definition, first change that it is not for, stable version or null]` |
//! | 5 | array | a definition that runs dry beside this one: `[definition, first change that it is for]` |
//! | 6 | integer | the first change that the trigger itself runs dry for |
//! | 7 | array | former versions that are kept, oldest first, each `[version, bytes]` |
//! | 8 | text | why it is in its state, in the words of whoever brought that about |
//! | 9 | boolean | whether nobody has signed where and how this version sends; absent: no |

use bytes::Bytes;
use minicbor::bytes::ByteSlice;
use minicbor::{Decode, Encode};
use reveille_core::delivery::id::EventNo;
use reveille_core::trigger::deployment::State;
use std::sync::Arc;

use crate::codec::{self, Record, RecordError};

/// A trigger, beside what every hook has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TriggerRecord {
    pub definition: Bytes,
    pub state: State,
    /// The first change that this version is for.
    pub since: EventNo,
    /// Whom the documents follow that this version is not for.
    pub stable: Option<StoredDefinition>,
    /// Versions of changes that not everybody was told of yet, oldest first.
    pub former: Vec<FormerTrigger>,
    pub candidate: Option<DryRunCandidate>,
    pub dry_since: Option<EventNo>,
    /// Former versions that are kept, oldest first.
    pub kept: Vec<KeptVersion>,
    pub reason: Option<Arc<str>>,
    /// Whether nobody has signed where and how it sends: enabling it takes that.
    pub is_unsigned: bool,
}

/// A version that is not the current one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredDefinition {
    pub version: u64,
    pub definition: Bytes,
}

/// What was in force before a change of the trigger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FormerTrigger {
    pub current: StoredDefinition,
    pub stable: Option<StoredDefinition>,
    /// The first change that it is not for.
    pub until: EventNo,
}

/// A definition that is only counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DryRunCandidate {
    pub definition: Bytes,
    /// The first change that it is for.
    pub since: EventNo,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeptVersion {
    pub version: u64,
    pub bytes: u64,
}

impl Record for TriggerRecord {
    fn encode(&self) -> Bytes {
        let former = self.former.iter().map(|it| {
            FormerFields(
                it.current.version,
                (&it.current.definition[..]).into(),
                it.until.0,
                it.stable.as_ref().map(StoredFields::of),
            )
        });
        let fields = SpecFields {
            definition: (&self.definition[..]).into(),
            state: match self.state {
                State::Disabled => 0,
                State::Enabled => 1,
                State::DryRun => 2,
                State::RolledBack { is_active: true } => 3,
                State::RolledBack { is_active: false } => 4,
            },
            since: self.since.0,
            stable: self.stable.as_ref().map(StoredFields::of),
            former: (!self.former.is_empty()).then(|| former.collect()),
            candidate: self
                .candidate
                .as_ref()
                .map(|it| CandidateFields((&it.definition[..]).into(), it.since.0)),
            dry_since: self.dry_since.map(|since| since.0),
            kept: self.kept.iter().map(|it| KeptFields(it.version, it.bytes)).collect(),
            reason: self.reason.as_deref(),
            is_unsigned: self.is_unsigned.then_some(true),
        };
        codec::write(self.definition.len() + 64, &fields)
    }

    fn decode(value: &[u8]) -> Result<TriggerRecord, RecordError> {
        codec::read::<SpecFields<'_>, _>("trigger", value)
    }
}

#[derive(Encode, Decode)]
#[cbor(map)]
struct SpecFields<'a> {
    #[b(0)]
    definition: &'a ByteSlice,
    #[n(1)]
    state: u8,
    #[n(2)]
    since: u64,
    #[b(3)]
    stable: Option<StoredFields<'a>>,
    #[b(4)]
    former: Option<Vec<FormerFields<'a>>>,
    #[b(5)]
    candidate: Option<CandidateFields<'a>>,
    #[n(6)]
    dry_since: Option<u64>,
    #[cbor(n(7), default)]
    kept: Vec<KeptFields>,
    #[n(8)]
    reason: Option<&'a str>,
    #[n(9)]
    is_unsigned: Option<bool>,
}

/// Version and definition.
#[derive(Encode, Decode)]
struct StoredFields<'a>(#[n(0)] u64, #[b(1)] &'a ByteSlice);

/// Version, definition, first change that it is not for, stable version.
#[derive(Encode, Decode)]
struct FormerFields<'a>(
    #[n(0)] u64,
    #[b(1)] &'a ByteSlice,
    #[n(2)] u64,
    #[b(3)] Option<StoredFields<'a>>,
);

/// Definition, and the first change that it is for.
#[derive(Encode, Decode)]
struct CandidateFields<'a>(#[b(0)] &'a ByteSlice, #[n(1)] u64);

/// Version and bytes.
#[derive(Encode, Decode)]
struct KeptFields(#[n(0)] u64, #[n(1)] u64);

impl<'a> StoredFields<'a> {
    fn of(stored: &'a StoredDefinition) -> StoredFields<'a> {
        StoredFields(stored.version, (&stored.definition[..]).into())
    }

    fn stored(&self) -> StoredDefinition {
        StoredDefinition { version: self.0, definition: Bytes::copy_from_slice(self.1) }
    }
}

impl TryFrom<SpecFields<'_>> for TriggerRecord {
    type Error = &'static str;

    fn try_from(fields: SpecFields<'_>) -> Result<TriggerRecord, &'static str> {
        let former = |FormerFields(version, definition, until, stable): FormerFields<'_>| {
            let definition = Bytes::copy_from_slice(definition);
            FormerTrigger {
                current: StoredDefinition { version, definition },
                stable: stable.as_ref().map(StoredFields::stored),
                until: EventNo(until),
            }
        };
        Ok(TriggerRecord {
            definition: Bytes::copy_from_slice(fields.definition),
            state: match fields.state {
                0 => State::Disabled,
                1 => State::Enabled,
                2 => State::DryRun,
                3 => State::RolledBack { is_active: true },
                4 => State::RolledBack { is_active: false },
                _ => return Err("an unknown state"),
            },
            since: EventNo(fields.since),
            stable: fields.stable.as_ref().map(StoredFields::stored),
            former: fields.former.unwrap_or_default().into_iter().map(former).collect(),
            candidate: fields.candidate.map(|CandidateFields(definition, since)| {
                let definition = Bytes::copy_from_slice(definition);
                DryRunCandidate { definition, since: EventNo(since) }
            }),
            dry_since: fields.dry_since.map(EventNo),
            kept: fields
                .kept
                .into_iter()
                .map(|KeptFields(version, bytes)| KeptVersion { version, bytes })
                .collect(),
            reason: fields.reason.map(Into::into),
            is_unsigned: fields.is_unsigned.unwrap_or(false),
        })
    }
}
