//! What a trigger would have sent: counted by the hour, with the latest matches to be looked at.

use std::collections::VecDeque;
use std::sync::Arc;

use serde_json::{Value, json};

use super::limits::{DRY_RUN_HOURS_MAX, DRY_RUN_SAMPLES_MAX};
use crate::document::change::ChangeKind;
use crate::time::Millis;

/// The dry run of a definition. Another definition begins with an empty one.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DryRun {
    /// Oldest first; hours in which nothing was evaluated are left out.
    pub hours: VecDeque<HourCount>,
    /// The latest matches, oldest first.
    pub samples: VecDeque<Sample>,
}

/// The changes of an hour that got as far as the condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HourCount {
    /// When it began.
    pub from: Millis,
    pub counts: Counts,
}

/// What became of changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    pub evaluated: u64,
    pub matched: u64,
    /// The condition came to nothing.
    pub eval_errors: u64,
    /// The same changes, as the version that is in force has them.
    pub live_evaluated: u64,
    pub live_matched: u64,
}

/// A change that would have been delivered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sample {
    pub seq: u64,
    pub at: Millis,
    pub kind: ChangeKind,
    pub path: Arc<str>,
}

/// What a condition has come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Evaluated {
    Match,
    NoMatch,
    Error,
}

const HOUR_MS: u64 = 3_600_000;

impl DryRun {
    /// Counts a change. `live` is what the version in force has made of it, if it was held against
    /// that, too.
    pub fn record(
        &mut self,
        now: Millis,
        candidate: Option<Evaluated>,
        live: Option<bool>,
        sample: impl FnOnce() -> Sample,
    ) {
        let from = Millis(now.0 - now.0 % HOUR_MS);
        // A clock that was set back counts on where it was.
        if self.hours.back().is_none_or(|hour| hour.from < from) {
            self.hours.push_back(HourCount { from, ..HourCount::default() });
            while self.hours.len() > DRY_RUN_HOURS_MAX {
                self.hours.pop_front();
            }
        }
        let Some(HourCount { counts, .. }) = self.hours.back_mut() else { return };
        counts.evaluated += u64::from(candidate.is_some());
        counts.matched += u64::from(candidate == Some(Evaluated::Match));
        counts.eval_errors += u64::from(candidate == Some(Evaluated::Error));
        counts.live_evaluated += u64::from(live.is_some());
        counts.live_matched += u64::from(live == Some(true));
        if candidate == Some(Evaluated::Match) {
            self.samples.push_back(sample());
            while self.samples.len() > DRY_RUN_SAMPLES_MAX {
                self.samples.pop_front();
            }
        }
    }

    /// All that was counted in hours that have something of the time from the first to before the
    /// second.
    pub fn counts(&self, from: Millis, to: Millis) -> Counts {
        let is_within = |hour: &&HourCount| hour.from < to && from < hour.from + HOUR_MS;
        self.hours.iter().filter(is_within).fold(Counts::default(), |sum, hour| {
            let Counts { evaluated, matched, eval_errors, live_evaluated, live_matched } =
                hour.counts;
            Counts {
                evaluated: sum.evaluated + evaluated,
                matched: sum.matched + matched,
                eval_errors: sum.eval_errors + eval_errors,
                live_evaluated: sum.live_evaluated + live_evaluated,
                live_matched: sum.live_matched + live_matched,
            }
        })
    }

    /// As it is shown (ROL-1). `live` is the version in force, if there is one beside it.
    pub fn report(&self, from: Millis, to: Millis, live: Option<u64>) -> Value {
        let counts = self.counts(from, to);
        let within = self.samples.iter().filter(|it| from <= it.at && it.at < to);
        let samples: Vec<Value> = within.rev().map(Sample::to_json).collect();
        let baseline = live.map(|version| {
            let rate = rate(counts.live_matched, counts.live_evaluated);
            json!({
                "version": version,
                "evaluated": counts.live_evaluated,
                "matched": counts.live_matched,
                "hitRate": rate,
            })
        });
        json!({
            "evaluated": counts.evaluated,
            "matched": counts.matched,
            "hitRate": rate(counts.matched, counts.evaluated),
            "evalErrors": counts.eval_errors,
            "samples": samples,
            "baseline": baseline,
        })
    }
}

/// A share; null of nothing.
pub fn rate(part: u64, whole: u64) -> Option<f64> {
    const EXACT: u64 = 1 << 53;
    // Beyond that a share of it is as good without the last digits.
    let (part, whole) = if whole > EXACT { (part >> 11, whole >> 11) } else { (part, whole) };
    (whole > 0).then(|| part as f64 / whole as f64)
}

impl Sample {
    pub fn to_json(&self) -> Value {
        json!({
            "seq": self.seq,
            "at": self.at.to_rfc3339(),
            "event": self.kind.as_str(),
            "path": &*self.path,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(seq: u64, at: Millis) -> Sample {
        Sample { seq, at, kind: ChangeKind::Update, path: "orders/o1".into() }
    }

    #[test]
    fn rol_1_what_matched_is_counted_beside_what_is_in_force() {
        let mut run = DryRun::default();
        let results = [Evaluated::Match, Evaluated::NoMatch, Evaluated::Error, Evaluated::NoMatch];
        for (seq, result) in (1..).zip(results) {
            let at = Millis(seq * 1_000);
            run.record(at, Some(result), Some(seq == 4), || sample(seq, at));
        }
        run.record(Millis(9_000), None, Some(true), || sample(9, Millis(9_000)));
        let report = run.report(Millis(0), Millis::NEVER, Some(3));
        assert_eq!(
            report,
            json!({
                "evaluated": 4, "matched": 1, "hitRate": 0.25, "evalErrors": 1,
                "samples": [{
                    "seq": 1, "at": "1970-01-01T00:00:01.000Z", "event": "update", "path": "orders/o1",
                }],
                "baseline": {"version": 3, "evaluated": 5, "matched": 2, "hitRate": 0.4},
            })
        );
        let nothing = run.report(Millis(HOUR_MS), Millis::NEVER, None);
        assert_eq!(
            nothing,
            json!({
                "evaluated": 0, "matched": 0, "hitRate": null, "evalErrors": 0, "samples": [],
                "baseline": null,
            })
        );
    }

    #[test]
    fn rol_1_a_dry_run_stays_small() {
        let mut run = DryRun::default();
        for seq in 0..1_000 {
            let at = Millis(seq * HOUR_MS / 2);
            run.record(at, Some(Evaluated::Match), None, || sample(seq, at));
        }
        run.record(Millis(0), Some(Evaluated::Match), None, || sample(0, Millis(0)));
        assert_eq!((run.hours.len(), run.samples.len()), (DRY_RUN_HOURS_MAX, DRY_RUN_SAMPLES_MAX));
        assert_eq!(run.samples.back().map(|it| it.seq), Some(0));
        assert_eq!(run.counts(Millis(0), Millis::NEVER).matched, 2 * 168 + 1);
        assert_eq!(rate(u64::MAX, u64::MAX), Some(1.0));
    }
}
