//! Idempotent producers: an (id, epoch, sequence) on every append, so that a retry changes nothing.

use std::sync::Arc;

use crate::limits::{PRODUCER_ID_BYTES_MAX, PRODUCER_INTEGER_MAX};

/// The producer headers of one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProducerTag {
    /// Who is writing; its state is kept per stream.
    pub id: Arc<str>,
    /// Incremented by a producer that restarts; fences its predecessor.
    pub epoch: u64,
    /// Counts the appends of an epoch from zero.
    pub seq: u64,
}

/// The last append that a stream accepted from a producer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProducerState {
    /// The epoch of that append.
    pub epoch: u64,
    /// Its sequence number.
    pub seq: u64,
}

/// What the tag means for the state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProducerVerdict {
    /// The next append of the producer; the state becomes this.
    Next(ProducerState),
    /// It was accepted before; this is the newest that was.
    Duplicate(ProducerState),
}

/// The producer must not go on like this.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ProducerRejected {
    /// A newer incarnation of the producer has written: this one is a zombie.
    #[error("epoch {current} of this producer has written; a lower epoch is fenced off")]
    Fenced {
        /// The epoch that holds the stream.
        current: u64,
    },
    /// An append in between is missing.
    #[error("sequence {expected} is next; {received} would leave a gap")]
    Gap {
        /// The sequence number that would be accepted.
        expected: u64,
        /// The one that came.
        received: u64,
    },
    /// A new epoch must count from zero.
    #[error("a new epoch begins with sequence 0")]
    EpochStart,
}

/// The headers do not name a producer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TagError {
    /// Some but not all of the three headers.
    #[error("Producer-Id, Producer-Epoch and Producer-Seq come together or not at all")]
    Incomplete,
    /// An empty or oversized id.
    #[error("Producer-Id is 1 to {PRODUCER_ID_BYTES_MAX} bytes")]
    Id,
    /// Not a plain integer.
    #[error("Producer-Epoch and Producer-Seq are integers from 0 to {PRODUCER_INTEGER_MAX}")]
    Integer,
}

impl ProducerTag {
    /// Reads the three headers; all absent is no producer.
    pub fn parse(
        id: Option<&str>,
        epoch: Option<&str>,
        seq: Option<&str>,
    ) -> Result<Option<ProducerTag>, TagError> {
        let (id, epoch, seq) = match (id, epoch, seq) {
            (None, None, None) => return Ok(None),
            (Some(id), Some(epoch), Some(seq)) => (id, epoch, seq),
            _ => return Err(TagError::Incomplete),
        };
        if id.is_empty() || id.len() > PRODUCER_ID_BYTES_MAX {
            return Err(TagError::Id);
        }
        Ok(Some(ProducerTag { id: id.into(), epoch: integer(epoch)?, seq: integer(seq)? }))
    }

    /// Judges this tag against what the stream knows of its producer.
    pub fn judge(&self, known: Option<ProducerState>) -> Result<ProducerVerdict, ProducerRejected> {
        let accepted = ProducerVerdict::Next(ProducerState { epoch: self.epoch, seq: self.seq });
        let Some(known) = known else {
            return self.expect(0).map(|()| accepted);
        };
        if self.epoch < known.epoch {
            return Err(ProducerRejected::Fenced { current: known.epoch });
        }
        if self.epoch > known.epoch {
            return if self.seq == 0 { Ok(accepted) } else { Err(ProducerRejected::EpochStart) };
        }
        if self.seq <= known.seq {
            return Ok(ProducerVerdict::Duplicate(known));
        }
        self.expect(known.seq + 1).map(|()| accepted)
    }

    fn expect(&self, expected: u64) -> Result<(), ProducerRejected> {
        if self.seq == expected {
            Ok(())
        } else {
            Err(ProducerRejected::Gap { expected, received: self.seq })
        }
    }
}

fn integer(text: &str) -> Result<u64, TagError> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(TagError::Integer);
    }
    match text.parse() {
        Ok(value) if value <= PRODUCER_INTEGER_MAX => Ok(value),
        Ok(_) | Err(_) => Err(TagError::Integer),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn tag(epoch: u64, seq: u64) -> ProducerTag {
        ProducerTag { id: "p".into(), epoch, seq }
    }

    #[test]
    fn headers_come_together() {
        assert_eq!(ProducerTag::parse(None, None, None), Ok(None));
        assert_eq!(ProducerTag::parse(Some("p"), None, Some("0")), Err(TagError::Incomplete));
        assert_eq!(ProducerTag::parse(Some(""), Some("0"), Some("0")), Err(TagError::Id));
        for bad in ["", "-1", "+1", "1.5", "x", "9007199254740992", "99999999999999999999"] {
            assert_eq!(ProducerTag::parse(Some("p"), Some(bad), Some("0")), Err(TagError::Integer));
        }
        assert_eq!(ProducerTag::parse(Some("p"), Some("3"), Some("4")), Ok(Some(tag(3, 4))));
    }

    #[test]
    fn a_new_producer_starts_at_zero_in_any_epoch() {
        let state = ProducerState { epoch: 5, seq: 0 };
        assert_eq!(tag(5, 0).judge(None), Ok(ProducerVerdict::Next(state)));
        let gap = ProducerRejected::Gap { expected: 0, received: 1 };
        assert_eq!(tag(0, 1).judge(None), Err(gap));
    }

    #[test]
    fn epochs_fence_and_sequences_count() {
        let known = ProducerState { epoch: 2, seq: 7 };
        let judge = |epoch, seq| tag(epoch, seq).judge(Some(known));
        assert_eq!(judge(1, 8), Err(ProducerRejected::Fenced { current: 2 }));
        assert_eq!(judge(2, 7), Ok(ProducerVerdict::Duplicate(known)));
        assert_eq!(judge(2, 0), Ok(ProducerVerdict::Duplicate(known)));
        assert_eq!(judge(2, 8), Ok(ProducerVerdict::Next(ProducerState { epoch: 2, seq: 8 })));
        assert_eq!(judge(2, 9), Err(ProducerRejected::Gap { expected: 8, received: 9 }));
        assert_eq!(judge(3, 1), Err(ProducerRejected::EpochStart));
        assert_eq!(judge(3, 0), Ok(ProducerVerdict::Next(ProducerState { epoch: 3, seq: 0 })));
    }

    proptest! {
        /// However a producer's requests are repeated and reordered, each sequence number of an
        /// epoch is accepted once, in order.
        #[test]
        fn every_sequence_is_accepted_once_in_order(
            requests in prop::collection::vec((0u64..3, 0u64..6), 0..200)
        ) {
            let mut known = None;
            let mut accepted = Vec::new();
            for (epoch, seq) in requests {
                if let Ok(ProducerVerdict::Next(state)) = tag(epoch, seq).judge(known) {
                    accepted.push((epoch, seq));
                    known = Some(state);
                }
            }
            for pair in accepted.windows(2) {
                let next_in_epoch = pair[1].0 == pair[0].0 && pair[1].1 == pair[0].1 + 1;
                let new_epoch = pair[1].0 > pair[0].0 && pair[1].1 == 0;
                prop_assert!(next_in_epoch || new_epoch, "{:?}", accepted);
            }
        }
    }
}
