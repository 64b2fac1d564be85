//! A backtest: what a definition would have made of the changes that are kept, and what the one in
//! force makes of them. Nothing is sent.

use std::sync::Arc;

use reveille_core::delivery::id::EventNo;
use reveille_core::document::change::{ChangeKind, FACE};
use reveille_core::key_range::above;
use reveille_core::steps::Steps;
use reveille_core::trigger::Definition;
use reveille_core::trigger::matching::ChangeFields;
use reveille_core::{Millis, Tenant};
use reveille_kernel::doors::Clock;
use reveille_kernel::error::Damaged;
use reveille_kernel::task;
use reveille_schema::{keys, record};
use reveille_store::state::Reader;

use super::fan_out::read_message;
use super::status::change_seq;
use crate::deliveries::source;
use crate::engine::Engine;
use crate::limits::{
    BACKTEST_BYTES_MAX, BACKTEST_CHANGES_MAX, BACKTEST_MS_MAX, BACKTEST_SAMPLES_MAX, SCAN_SLICE,
    TRIGGER_LOOK_STEPS,
};
use crate::matching::Shares;
use crate::records::{ReadRecord, damaged};

/// What is to be tried.
#[derive(Debug, Clone)]
pub struct Backtest {
    pub tenant: Tenant,
    /// Changes that came from this time on, and before the other.
    pub from: Millis,
    pub to: Millis,
    /// The change to go on after, for one that came to an end before it had seen all.
    pub after: Option<u64>,
    pub draft: Arc<Definition>,
    /// What it is held beside.
    pub live: Option<Arc<Definition>>,
}

/// What it came to.
#[derive(Debug, Clone, Default)]
pub struct BacktestReport {
    /// Changes that were looked at.
    pub changes: u64,
    pub draft: BacktestCounts,
    /// The same, of what is in force.
    pub live: Option<BacktestCounts>,
    /// Changes that the draft alone is for, and that what is in force alone is for.
    pub only_draft: u64,
    pub only_live: u64,
    /// The first changes that the draft is for, and those that it is for differently.
    pub samples: Vec<BacktestSample>,
    /// The last change that was looked at, if there are more: another goes on there.
    pub next_after: Option<u64>,
    last_error: Option<Arc<str>>,
}

/// What became of changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BacktestCounts {
    /// Changes that got as far as the condition.
    pub evaluated: u64,
    pub matched: u64,
    pub eval_errors: u64,
}

/// A change that is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BacktestSample {
    pub seq: u64,
    pub at: Millis,
    pub kind: ChangeKind,
    pub path: Arc<str>,
    pub draft: bool,
    /// `None` if nothing is in force.
    pub live: Option<bool>,
}

impl BacktestReport {
    /// What the draft's condition came to last when it came to nothing.
    pub fn last_error(&self) -> Option<&str> {
        self.last_error.as_deref()
    }

    fn add(&mut self, at: Millis, seq: u64, fields: &ChangeFields, test: &Backtest) -> usize {
        let mut steps = Steps::new(TRIGGER_LOOK_STEPS);
        self.changes += 1;
        let (draft, error) = self.draft.add(&test.draft, fields, &mut steps);
        self.last_error = error.or(self.last_error.take());
        let live = test.live.as_ref().map(|definition| {
            let counts = self.live.get_or_insert_default();
            counts.add(definition, fields, &mut steps).0
        });
        self.only_draft += u64::from(draft && live == Some(false));
        self.only_live += u64::from(!draft && live == Some(true));
        let is_shown = draft || live == Some(true);
        if is_shown && self.samples.len() < BACKTEST_SAMPLES_MAX {
            let (kind, path) = (fields.kind, fields.path.to_string().into());
            self.samples.push(BacktestSample { seq, at, kind, path, draft, live });
        }
        steps.used()
    }
}

impl BacktestCounts {
    /// Counts what a definition makes of a change: whether it is for it, and what went wrong.
    fn add(
        &mut self,
        definition: &Definition,
        fields: &ChangeFields,
        steps: &mut Steps,
    ) -> (bool, Option<Arc<str>>) {
        if !definition.is_for(fields.kind, &fields.path)
            || !definition.rollout.covers(&fields.tenant, &fields.path)
        {
            return (false, None);
        }
        self.evaluated += 1;
        match definition.condition_holds(fields, steps) {
            Ok(()) => {
                self.matched += 1;
                (true, None)
            }
            Err(why) if why.is_error() => {
                self.eval_errors += 1;
                (false, Some(why.to_string().into()))
            }
            Err(_) => (false, None),
        }
    }
}

impl Engine {
    /// Holds a definition against the changes of a tenant that are kept: as many as one look may
    /// take, and says where another may go on. It ends with whoever waits for it.
    pub async fn backtest_trigger(&self, test: Backtest) -> Result<BacktestReport, Damaged> {
        let shared = self.partition(&test.tenant).clone();
        let (reader, clock) = (shared.state.reader(), self.clock().clone());
        let waits = Arc::new(());
        let waiting = Arc::downgrade(&waits);
        let report = task::blocking(move || {
            let mut steps = 0;
            let is_wanted = || waiting.strong_count() > 0;
            let report = run(&reader, clock.as_ref(), &test, &mut steps, &is_wanted);
            // What it took is known only now; the tenant's next requests wait for it.
            shared.domains.part::<Shares>().count_steps(&test.tenant, steps);
            report
        })
        .await;
        drop(waits);
        report
    }
}

pub(super) fn run(
    reader: &Reader,
    clock: &dyn Clock,
    test: &Backtest,
    steps: &mut usize,
    is_wanted: &dyn Fn() -> bool,
) -> Result<BacktestReport, Damaged> {
    let live = test.live.as_ref().map(|_| BacktestCounts::default());
    let mut report = BacktestReport { live, ..BacktestReport::default() };
    let began = clock.now();
    let after = test.after.map(|seq| after_change(reader, &test.tenant, seq)).transpose()?;
    let (mut from, to) = match after.flatten() {
        Some(no) => keys::events(FACE, &test.tenant, no),
        None => keys::events(FACE, &test.tenant, first_since(reader, &test.tenant, test.from)?),
    };
    let mut bytes = 0_u64;
    loop {
        let found = reader.range(&from, &to, SCAN_SLICE)?;
        let Some((last, _)) = found.last() else { return Ok(report) };
        from = above(last);
        for (_, value) in &found {
            let event = record::decode_event(value).map_err(damaged)?;
            if event.at >= test.to {
                return Ok(report);
            }
            if let Some(message) = source::content(reader, &event)? {
                let (mark, fields) = read_message(&message)?;
                *steps += report.add(event.at, mark.seq, &fields, test);
                bytes += u64::try_from(message.len()).unwrap_or(u64::MAX);
            }
            let is_full = report.changes >= BACKTEST_CHANGES_MAX || bytes >= BACKTEST_BYTES_MAX;
            if is_full || clock.now().since(began) >= BACKTEST_MS_MAX || !is_wanted() {
                report.next_after = Some(change_seq(&event)?);
                return Ok(report);
            }
        }
    }
}

/// Where the changes of a tenant begin that did not come before a time. They are in the order of
/// their times, so their place is found by halving: however much came before takes no time.
fn first_since(reader: &Reader, tenant: &Tenant, since: Millis) -> Result<EventNo, Damaged> {
    let (mut low, mut high) = (0, if since == Millis(0) { 0 } else { u64::MAX });
    while low < high {
        let middle = low + (high - low) / 2;
        let (from, to) = keys::events(FACE, tenant, EventNo(middle));
        let found = reader.range(&from, &to, 1)?;
        let first = found.first().and_then(|(key, value)| Some((keys::parse_event(key)?, value)));
        match first {
            Some((no, value)) if record::decode_event(value).map_err(damaged)?.at < since => {
                low = no.0.saturating_add(1);
            }
            _ => high = middle,
        }
    }
    Ok(EventNo(low))
}

/// Where the changes begin that come after one; `None` if nobody knows where that was.
fn after_change(
    mut reader: &Reader,
    tenant: &Tenant,
    seq: u64,
) -> Result<Option<EventNo>, Damaged> {
    let no = reader.read(&keys::change_place(tenant, seq), record::decode_u64)?;
    Ok(no.map(|no| EventNo(no.saturating_add(1))))
}
