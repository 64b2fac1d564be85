//! What is kept of a trigger beside its hook: what went wrong with its condition, and what came of
//! its attempts.

use std::sync::Arc;

use bytes::Bytes;
use minicbor::{Decode, Encode};
use reveille_core::Millis;
use reveille_core::trigger::rollout::{SloSlot, SloWindow};

use crate::codec::{self, Record, RecordError};

/// Changes of which a condition came to nothing. A map of 0 how many, 1 the last sentence, 2 when
/// that was, ms, 3 the version of the trigger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EvaluationErrors {
    pub count: u64,
    pub last: Arc<str>,
    pub at: Millis,
    pub version: u64,
}

/// What came of the attempts of a trigger. A map of 0 when one was accepted last, ms, 1 when one
/// failed last, ms, 2 with which sentence, 3 the version that the window counts, 4 slots of the
/// window, oldest first, each `[begun at, attempts, failed, slow]`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TriggerHealth {
    pub last_success_at: Option<Millis>,
    pub last_failure_at: Option<Millis>,
    pub last_error: Option<Arc<str>>,
    /// Whose attempts the window counts.
    pub version: u64,
    pub window: SloWindow,
}

impl Record for EvaluationErrors {
    fn encode(&self) -> Bytes {
        let EvaluationErrors { count, last, at, version } = self;
        let fields = ErrorFields { count: *count, last, at: at.0, version: *version };
        codec::write(48 + self.last.len(), &fields)
    }

    fn decode(value: &[u8]) -> Result<EvaluationErrors, RecordError> {
        codec::read::<ErrorFields<'_>, _>("evaluation error", value)
    }
}

#[derive(Encode, Decode)]
#[cbor(map)]
struct ErrorFields<'a> {
    #[n(0)]
    count: u64,
    #[n(1)]
    last: &'a str,
    #[n(2)]
    at: u64,
    #[n(3)]
    version: u64,
}

impl TryFrom<ErrorFields<'_>> for EvaluationErrors {
    type Error = &'static str;

    fn try_from(fields: ErrorFields<'_>) -> Result<EvaluationErrors, &'static str> {
        let ErrorFields { count, last, at, version } = fields;
        Ok(EvaluationErrors { count, last: last.into(), at: Millis(at), version })
    }
}

impl Record for TriggerHealth {
    fn encode(&self) -> Bytes {
        let slot = |it: &SloSlot| SlotFields(it.from.0, it.samples, it.failed, it.slow);
        let fields = HealthFields {
            last_success_at: self.last_success_at.map(|at| at.0),
            last_failure_at: self.last_failure_at.map(|at| at.0),
            last_error: self.last_error.as_deref(),
            version: self.version,
            slots: self.window.slots.iter().map(slot).collect(),
        };
        codec::write(96, &fields)
    }

    fn decode(value: &[u8]) -> Result<TriggerHealth, RecordError> {
        codec::read::<HealthFields<'_>, _>("trigger health", value)
    }
}

#[derive(Encode, Decode)]
#[cbor(map)]
struct HealthFields<'a> {
    #[n(0)]
    last_success_at: Option<u64>,
    #[n(1)]
    last_failure_at: Option<u64>,
    #[n(2)]
    last_error: Option<&'a str>,
    #[cbor(n(3), default)]
    version: u64,
    #[cbor(n(4), default)]
    slots: Vec<SlotFields>,
}

/// Begun at, attempts, failed, slow.
#[derive(Encode, Decode)]
struct SlotFields(#[n(0)] u64, #[n(1)] u32, #[n(2)] u32, #[n(3)] u32);

impl TryFrom<HealthFields<'_>> for TriggerHealth {
    type Error = &'static str;

    fn try_from(fields: HealthFields<'_>) -> Result<TriggerHealth, &'static str> {
        let slot = |SlotFields(from, samples, failed, slow): SlotFields| SloSlot {
            from: Millis(from),
            samples,
            failed,
            slow,
        };
        Ok(TriggerHealth {
            last_success_at: fields.last_success_at.map(Millis),
            last_failure_at: fields.last_failure_at.map(Millis),
            last_error: fields.last_error.map(Into::into),
            version: fields.version,
            window: SloWindow { slots: fields.slots.into_iter().map(slot).collect() },
        })
    }
}
