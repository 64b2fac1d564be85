//! What a dry run has counted.

use bytes::Bytes;
use minicbor::{Decode, Encode};
use reveille_core::Millis;
use reveille_core::document::change::ChangeKind;
use reveille_core::trigger::dry_run::{Counts, HourCount, Sample};

use crate::codec::{self, Record, RecordError};

/// The changes of an hour. A map of 0 when it began, ms, 1 how many were evaluated, 2 matched,
/// 3 how often the condition came to nothing, 4 how many the version that sends was held against,
/// 5 how many of those it was for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DryRunHour(pub HourCount);

/// The latest matches, oldest first: a map of 0 the list, each `[seq, at in ms, kind, path]` with the
/// kinds 0 create, 1 update, 2 delete.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DryRunSamples(pub Vec<Sample>);

impl Record for DryRunHour {
    fn encode(&self) -> Bytes {
        let HourCount { from, counts } = self.0;
        let fields = HourFields {
            from: from.0,
            evaluated: counts.evaluated,
            matched: counts.matched,
            eval_errors: counts.eval_errors,
            live_evaluated: counts.live_evaluated,
            live_matched: counts.live_matched,
        };
        codec::write(48, &fields)
    }

    fn decode(value: &[u8]) -> Result<DryRunHour, RecordError> {
        codec::read::<HourFields, _>("hour of a dry run", value)
    }
}

#[derive(Encode, Decode)]
#[cbor(map)]
struct HourFields {
    #[n(0)]
    from: u64,
    #[n(1)]
    evaluated: u64,
    #[n(2)]
    matched: u64,
    #[n(3)]
    eval_errors: u64,
    #[n(4)]
    live_evaluated: u64,
    #[n(5)]
    live_matched: u64,
}

impl From<HourFields> for DryRunHour {
    fn from(fields: HourFields) -> DryRunHour {
        let HourFields { from, evaluated, matched, eval_errors, live_evaluated, live_matched } =
            fields;
        let counts = Counts { evaluated, matched, eval_errors, live_evaluated, live_matched };
        DryRunHour(HourCount { from: Millis(from), counts })
    }
}

impl Record for DryRunSamples {
    fn encode(&self) -> Bytes {
        let sample = |it: &Sample| {
            let kind = match it.kind {
                ChangeKind::Create => 0,
                ChangeKind::Update => 1,
                ChangeKind::Delete => 2,
            };
            SampleFields(it.seq, it.at.0, kind, it.path.to_string())
        };
        let fields = SamplesFields { samples: self.0.iter().map(sample).collect() };
        codec::write(64 * self.0.len(), &fields)
    }

    fn decode(value: &[u8]) -> Result<DryRunSamples, RecordError> {
        codec::read::<SamplesFields, _>("samples of a dry run", value)
    }
}

#[derive(Encode, Decode)]
#[cbor(map)]
struct SamplesFields {
    #[n(0)]
    samples: Vec<SampleFields>,
}

/// Seq, at, kind, path.
#[derive(Encode, Decode)]
struct SampleFields(#[n(0)] u64, #[n(1)] u64, #[n(2)] u8, #[n(3)] String);

impl TryFrom<SamplesFields> for DryRunSamples {
    type Error = &'static str;

    fn try_from(fields: SamplesFields) -> Result<DryRunSamples, &'static str> {
        let sample = |SampleFields(seq, at, kind, path): SampleFields| {
            let kind = match kind {
                0 => ChangeKind::Create,
                1 => ChangeKind::Update,
                2 => ChangeKind::Delete,
                _ => return Err("an unknown kind"),
            };
            Ok(Sample { seq, at: Millis(at), kind, path: path.into() })
        };
        fields.samples.into_iter().map(sample).collect::<Result<_, _>>().map(DryRunSamples)
    }
}
