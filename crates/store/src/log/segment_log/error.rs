//! Why the log cannot be opened, each with what the operator should do about it.

use std::fmt;
use std::io;

/// Why the log could not be opened. Nothing was changed, and what was read must be dropped.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error(
        "{file} is damaged at byte {position}: record {expected_seq} should be there, and {evidence} \
         proves that it once was. Nothing was changed. Restore {file} from a copy, or the whole \
         data directory from a backup"
    )]
    Corrupt { file: String, position: u64, expected_seq: u64, evidence: DurabilityEvidence },
    #[error(
        "the header of {file} is damaged: {problem}. Nothing was changed. Restore {file} from a \
         copy, or the whole data directory from a backup"
    )]
    Header { file: String, problem: &'static str },
    #[error(
        "the log segment {file} is missing. Nothing was changed. Put it back, or restore the whole \
         data directory from a backup"
    )]
    Missing { file: String },
    #[error(
        "the log begins with record {have} in {file}, and the table needs record {want} next. \
         Nothing was changed. Put the older segments back, or restore the whole data directory \
         from a backup"
    )]
    Gap { file: String, have: u64, want: u64 },
    #[error(
        "the log ends with record {last} in {file}, and the table holds up to record {after}: the \
         log has lost synced records or belongs to an older copy. Nothing was changed. Restore \
         the whole data directory from a backup"
    )]
    Behind { file: String, last: u64, after: u64 },
    #[error(
        "the log is empty, and the table holds up to record {after}. Nothing was changed. Put the \
         segments back, or restore the whole data directory from a backup"
    )]
    Empty { after: u64 },
    #[error("{file} has format version {version}, and this program knows versions up to {known}")]
    NewerFormat { file: String, version: u32, known: u32 },
    #[error("cannot read or repair the log at {file}: {source}")]
    Io { file: String, source: io::Error },
}

/// What proves that a record that cannot be read was once durable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DurabilityEvidence {
    /// A later record in the same segment.
    Record { position: u64, seq: u64 },
    /// A mark, written after record `seq - 1` was synced.
    Mark { position: u64, seq: u64 },
    /// The next segment, which begins with record `first_seq`.
    Segment { file: String, first_seq: u64 },
}

impl fmt::Display for DurabilityEvidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DurabilityEvidence::Record { position, seq } => {
                write!(f, "record {seq} at byte {position}")
            }
            DurabilityEvidence::Mark { position, seq } => {
                write!(f, "the end mark before record {seq} at byte {position}")
            }
            DurabilityEvidence::Segment { file, first_seq } => {
                write!(f, "{file}, which begins with record {first_seq},")
            }
        }
    }
}
