//! Why a batch was not committed, and what follows from that.

use std::io;

/// Why the log did not take a batch, or did not do something else.
///
/// | | is the batch in the log? | what follows |
/// |---|---|---|
/// | [`NoSpace`](Self::NoSpace), [`TooLarge`](Self::TooLarge) | no | it is rolled back, the log goes on |
/// | [`Deposed`](Self::Deposed) | no | it is rolled back, the writer is done |
/// | [`Unavailable`](Self::Unavailable) | nobody knows | the same commit again |
/// | [`Broken`](Self::Broken), [`Stopped`](Self::Stopped) | nobody knows | the process ends; recovery finds out |
#[derive(Debug, thiserror::Error)]
pub enum CommitError {
    /// The log is as it was; the same may succeed later.
    #[error("no space left for the log")]
    NoSpace,
    /// The log is as it was, and will never take it.
    #[error("a batch of {bytes} bytes is larger than the log takes ({max})")]
    TooLarge { bytes: u64, max: u64 },
    /// A newer writer has taken over. Nothing of this batch is in the log, and nothing that this
    /// writer commits later will be.
    #[error("another writer has taken over the log")]
    Deposed,
    /// There was no answer in time. See [`Log::commit`](super::Log::commit) for what must follow.
    #[error("the log did not answer: {reason}")]
    Unavailable { reason: String },
    /// What was written is not known any more, and nothing is taken from now on. A sync that failed
    /// must not be tried again, since the data may be gone.
    #[error("the log failed at {place}: {source}")]
    Broken { place: String, source: io::Error },
    #[error("the log is stopped since an earlier failure")]
    Stopped,
}

impl CommitError {
    /// Whether the batch is surely not in the log: whatever was decided in it can be undone.
    pub fn is_refused(&self) -> bool {
        match self {
            Self::NoSpace | Self::TooLarge { .. } | Self::Deposed => true,
            Self::Unavailable { .. } | Self::Broken { .. } | Self::Stopped => false,
        }
    }

    /// Whether the same batch must be committed again, to learn what became of it.
    pub fn is_ambiguous(&self) -> bool {
        match self {
            Self::Unavailable { .. } => true,
            Self::NoSpace
            | Self::TooLarge { .. }
            | Self::Deposed
            | Self::Broken { .. }
            | Self::Stopped => false,
        }
    }

    /// Whether this log, as it is open now, can never be used again.
    pub fn is_broken(&self) -> bool {
        match self {
            Self::Broken { .. } | Self::Stopped => true,
            Self::NoSpace | Self::TooLarge { .. } | Self::Deposed | Self::Unavailable { .. } => {
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_error_has_one_consequence() {
        let broken = CommitError::Broken { place: "byte 7".into(), source: io::Error::other("x") };
        let (refused, ambiguous, over) =
            ((true, false, false), (false, true, false), (false, false, true));
        for (error, expected) in [
            (CommitError::NoSpace, refused),
            (CommitError::TooLarge { bytes: 9, max: 8 }, refused),
            (CommitError::Deposed, refused),
            (CommitError::Unavailable { reason: "timeout".into() }, ambiguous),
            (broken, over),
            (CommitError::Stopped, over),
        ] {
            let found = (error.is_refused(), error.is_ambiguous(), error.is_broken());
            assert_eq!(found, expected, "{error}");
        }
    }
}
