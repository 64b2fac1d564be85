//! What is remembered of a trigger that was held against a change, beside a delivery: conditions that
//! came to nothing, and what a dry run has counted. It is written in the decision that comes past the
//! trigger, and goes with the trigger.

use std::collections::BTreeMap;
use std::sync::Arc;

use reveille_core::delivery::hook::HookId;
use reveille_core::document::change::{ChangeEvent, ChangeKind};
use reveille_core::trigger::dry_run::{DryRun, HourCount, Sample};
use reveille_core::trigger::limits::DRY_RUN_HOURS_MAX;
use reveille_core::trigger::matching::ChangeFields;
use reveille_kernel::error::Damaged;
use reveille_kernel::txn::ReadError;
use reveille_schema::triggers::{DryRunHour, DryRunSamples, EvaluationErrors};
use reveille_schema::{Record, keys};
use reveille_store::state::Reader;

use super::evaluate::{DryEvaluation, Evaluation};
use crate::app::Txn;
use crate::deliveries::spread::MatchNote;
use crate::effect::Effect;
use crate::records::ReadRecord;

/// Which change something is remembered of.
#[derive(Debug, Clone)]
pub(super) struct ChangeMark {
    pub(super) seq: u64,
    pub(super) kind: ChangeKind,
    pub(super) path: Arc<str>,
    /// Too many triggers have led to it.
    pub(super) is_loop: bool,
}

/// What there is to remember.
#[derive(Debug)]
pub(super) struct TriggerNote {
    change: ChangeMark,
    failed: Option<(u64, Arc<str>)>,
    dry: Option<DryEvaluation>,
}

/// Longest sentence about a condition that is kept, in bytes.
const ERROR_BYTES_MAX: usize = 512;

impl ChangeMark {
    pub(super) fn of_event(event: &ChangeEvent) -> ChangeMark {
        ChangeMark {
            seq: event.seq,
            kind: event.change.kind,
            path: event.change.path.to_string().into(),
            is_loop: event.origin.is_exhausted(),
        }
    }

    pub(super) fn of_fields(seq: u64, fields: &ChangeFields) -> ChangeMark {
        let (kind, path) = (fields.kind, fields.path.to_string().into());
        ChangeMark { seq, kind, path, is_loop: fields.origin.is_exhausted() }
    }
}

impl TriggerNote {
    pub(super) fn new(evaluation: Evaluation, change: &ChangeMark) -> TriggerNote {
        let Evaluation { failed, dry, .. } = evaluation;
        TriggerNote { change: change.clone(), failed, dry }
    }
}

/// Remembers it.
pub(super) fn keep(txn: &mut Txn<'_>, notes: &[(HookId, MatchNote)]) -> Result<(), ReadError> {
    let mut by_hook: BTreeMap<HookId, Vec<&TriggerNote>> = BTreeMap::new();
    for (hook, note) in notes {
        by_hook.entry(*hook).or_default().extend(note.downcast_ref::<TriggerNote>());
    }
    let slot = slot_of(txn);
    let read = by_hook.iter().flat_map(|(hook, notes)| {
        let has_failed = notes.iter().any(|note| note.failed.is_some());
        let is_dry = notes.iter().any(|note| note.dry.is_some());
        let failed = has_failed.then(|| keys::evaluation_errors(*hook));
        let dry = is_dry.then(|| [keys::dry_run_hour(*hook, slot), keys::dry_run_samples(*hook)]);
        failed.into_iter().chain(dry.into_iter().flatten())
    });
    let read: Vec<_> = read.collect();
    txn.want(&read)?;
    for (hook, notes) in by_hook {
        keep_failures(txn, hook, &notes)?;
        keep_dry_run(txn, hook, slot, &notes)?;
    }
    Ok(())
}

fn keep_failures(txn: &mut Txn<'_>, hook: HookId, notes: &[&TriggerNote]) -> Result<(), ReadError> {
    let failed = notes.iter().filter_map(|note| note.failed.as_ref());
    let Some((version, why)) = failed.clone().next_back() else { return Ok(()) };
    let count = u64::try_from(failed.count()).unwrap_or(u64::MAX);
    let key = keys::evaluation_errors(hook);
    let before = txn.read(&key, EvaluationErrors::decode)?.map_or(0, |errors| errors.count);
    let last = why.get(..why.floor_char_boundary(ERROR_BYTES_MAX)).unwrap_or_default();
    let errors = EvaluationErrors {
        count: before.saturating_add(count),
        last: last.into(),
        at: txn.now(),
        version: *version,
    };
    txn.set(key, errors.encode());
    txn.effect(Effect::CountEvaluationErrors { hook, count });
    Ok(())
}

fn keep_dry_run(
    txn: &mut Txn<'_>,
    hook: HookId,
    slot: u8,
    notes: &[&TriggerNote],
) -> Result<(), ReadError> {
    if notes.iter().all(|note| note.dry.is_none()) {
        return Ok(());
    }
    let (hour_key, samples_key) = (keys::dry_run_hour(hook, slot), keys::dry_run_samples(hook));
    let hour = txn.read(&hour_key, DryRunHour::decode)?.map(|DryRunHour(hour)| hour);
    // What is in the slot may be of a week ago.
    let now = txn.now();
    let hour = hour.filter(|hour| slot_index(hour.from.0) == slot_index(now.0));
    let samples = txn.read(&samples_key, DryRunSamples::decode)?.unwrap_or_default();
    let mut run = DryRun { hours: hour.into_iter().collect(), samples: samples.0.into() };
    let before = run.samples.clone();
    for note in notes {
        let Some(DryEvaluation { candidate, live }) = note.dry else { continue };
        let ChangeMark { seq, kind, path, .. } = &note.change;
        let sample = || Sample { seq: *seq, at: now, kind: *kind, path: path.clone() };
        run.record(now, Some(candidate), live, sample);
    }
    if let Some(hour) = run.hours.back() {
        txn.set(hour_key, DryRunHour(*hour).encode());
    }
    if run.samples != before {
        txn.set(samples_key, DryRunSamples(run.samples.into()).encode());
    }
    Ok(())
}

const HOUR_MS: u64 = 3_600_000;

fn slot_index(ms: u64) -> u64 {
    ms / HOUR_MS
}

/// Where the counts of the hour stand that it is now.
fn slot_of(txn: &Txn<'_>) -> u8 {
    let slots = u64::try_from(DRY_RUN_HOURS_MAX).unwrap_or(1);
    u8::try_from(slot_index(txn.now().0) % slots).unwrap_or(0)
}

/// A dry run begins: what another has counted goes.
pub(super) fn clear_dry_run(txn: &mut Txn<'_>, hook: HookId) {
    for slot in 0..u8::try_from(DRY_RUN_HOURS_MAX).unwrap_or(u8::MAX) {
        txn.remove(&keys::dry_run_hour(hook, slot));
    }
    txn.remove(&keys::dry_run_samples(hook));
}

/// What a dry run has counted.
pub(super) fn dry_run(mut reader: &Reader, hook: HookId) -> Result<DryRun, Damaged> {
    let (from, to) = keys::dry_run_hours(hook);
    let mut hours: Vec<HourCount> = Vec::new();
    for (_, value) in reader.range(&from, &to, DRY_RUN_HOURS_MAX)? {
        hours.push(DryRunHour::decode(&value).map_err(crate::records::damaged)?.0);
    }
    hours.sort_by_key(|hour| hour.from);
    let samples = reader.read(&keys::dry_run_samples(hook), DryRunSamples::decode)?;
    let samples = samples.unwrap_or_default().0;
    Ok(DryRun { hours: hours.into(), samples: samples.into() })
}
