//! One trigger is held against one change: by its version that is in force for the document, and by
//! what runs dry beside that.

use std::cell::OnceCell;
use std::fmt;
use std::sync::Arc;

use reveille_core::Tenant;
use reveille_core::delivery::hook::HookId;
use reveille_core::delivery::id::EventNo;
use reveille_core::document::change::{Change, ChangeEvent, ChangeKind};
use reveille_core::document::origin::Origin;
use reveille_core::document::path::DocumentPath;
use reveille_core::steps::Steps;
use reveille_core::trigger::Definition;
use reveille_core::trigger::dry_run;
use reveille_core::trigger::matching::{ChangeFields, NoMatch};

use super::index::TriggerEntry;

/// Bytes of documents that are made ready for conditions within a step.
const BYTES_PER_STEP: usize = 64;

/// A change that triggers are held against. What conditions look at is made ready once, for the
/// first of them that asks.
pub(super) struct ChangeCase<'a> {
    pub(super) tenant: &'a Tenant,
    pub(super) kind: ChangeKind,
    pub(super) path: &'a DocumentPath,
    /// For a change of a while ago.
    at: Option<EventNo>,
    source: Source<'a>,
    fields: OnceCell<ChangeFields>,
}

/// What conditions look at, or what that is made of.
enum Source<'a> {
    Change { change: &'a Change, timestamp: u64, origin: &'a Origin },
    Fields(&'a ChangeFields),
}

/// What came of holding a trigger against a change.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Evaluation {
    /// The version that it is for.
    pub(super) matched: Option<u64>,
    /// The version whose condition came to nothing, and why.
    pub(super) failed: Option<(u64, Arc<str>)>,
    pub(super) dry: Option<DryEvaluation>,
    /// Its condition was false; there is nothing to be done about that.
    pub(super) is_miss: bool,
}

/// What a dry run counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DryEvaluation {
    pub(super) candidate: dry_run::Evaluated,
    /// What the version that sends has made of it; `None` if none does.
    pub(super) live: Option<bool>,
}

/// Why the version that counts for a document is not for a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Miss {
    /// It is for a share of the documents, and no version is for the others.
    Rollout {
        percent: u8,
    },
    Differs(NoMatch),
}

/// The version that counts for a document, and whether it is for a change.
pub(super) type LiveMatch = (u64, Result<(), Miss>);

/// There were not enough steps to find out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct OutOfSteps;

/// A trigger with what came of holding it against a change.
#[derive(Debug, Clone)]
pub(super) struct Evaluated {
    pub(super) hook: HookId,
    pub(super) evaluation: Evaluation,
}

impl fmt::Display for Miss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Miss::Rollout { percent } => {
                write!(f, "it is for {percent} % of the documents, and this is none of them")
            }
            Miss::Differs(why) => why.fmt(f),
        }
    }
}

impl<'a> ChangeCase<'a> {
    /// A change that comes now.
    pub(super) fn new(
        tenant: &'a Tenant,
        change: &'a Change,
        timestamp: u64,
        origin: &'a Origin,
    ) -> ChangeCase<'a> {
        let source = Source::Change { change, timestamp, origin };
        let (kind, path) = (change.kind, &change.path);
        ChangeCase { tenant, kind, path, at: None, source, fields: OnceCell::new() }
    }

    /// A change that is decided now.
    pub(super) fn of_event(event: &'a ChangeEvent) -> ChangeCase<'a> {
        ChangeCase::new(&event.tenant, &event.change, event.ts(), &event.origin)
    }

    /// One of a while ago, or one that nobody has made.
    pub(super) fn of_fields(fields: &'a ChangeFields, at: Option<EventNo>) -> ChangeCase<'a> {
        let ChangeFields { tenant, kind, path, .. } = fields;
        let source = Source::Fields(fields);
        ChangeCase { tenant, kind: *kind, path, at, source, fields: OnceCell::new() }
    }

    /// What conditions look at. Making it ready takes steps, the first time.
    fn fields(&self, steps: &mut Steps) -> Result<&ChangeFields, OutOfSteps> {
        let (change, timestamp, origin) = match self.source {
            Source::Fields(fields) => return Ok(fields),
            Source::Change { change, timestamp, origin } => (change, timestamp, origin),
        };
        if self.fields.get().is_none() {
            let documents = [&change.before, &change.after].into_iter().flatten();
            let bytes: usize = documents.map(|document| document.bytes()).sum();
            if !steps.count(bytes / BYTES_PER_STEP) {
                return Err(OutOfSteps);
            }
        }
        let make = || ChangeFields::new(change, self.tenant, timestamp, origin);
        Ok(self.fields.get_or_init(make))
    }

    /// Whether the condition of a definition that is for the document holds.
    fn holds(
        &self,
        definition: &Definition,
        steps: &mut Steps,
    ) -> Result<Result<(), NoMatch>, OutOfSteps> {
        if definition.condition.is_none() {
            return Ok(Ok(()));
        }
        let fields = self.fields(steps)?;
        match definition.condition_holds(fields, steps) {
            Err(NoMatch::OutOfSteps) => Err(OutOfSteps),
            outcome => Ok(outcome),
        }
    }

    /// The version of a trigger that counts for the document, and whether it is for the change; `None`
    /// if the trigger did not send then, or that is not known any more.
    pub(super) fn live(
        &self,
        entry: &TriggerEntry,
        steps: &mut Steps,
    ) -> Result<Option<LiveMatch>, OutOfSteps> {
        let epoch = entry.epoch_at(self.at).filter(|_| entry.is_sending_at(self.at));
        let Some(epoch) = epoch else { return Ok(None) };
        let rollout = &epoch.definition.rollout;
        let (version, definition) = match &epoch.stable {
            _ if rollout.covers(self.tenant, self.path) => (epoch.version, &epoch.definition),
            Some((version, definition)) => (*version, definition),
            None => {
                let percent = rollout.percent;
                return Ok(Some((epoch.version, Err(Miss::Rollout { percent }))));
            }
        };
        let outcome = match definition.is_for(self.kind, self.path) {
            true => self.holds(definition, steps)?,
            false => definition.selects(self.kind, self.path),
        };
        Ok(Some((version, outcome.map_err(Miss::Differs))))
    }

    /// Holds a trigger against it.
    pub(super) fn evaluate(
        &self,
        entry: &TriggerEntry,
        steps: &mut Steps,
    ) -> Result<Evaluation, OutOfSteps> {
        if !steps.count(1) {
            return Err(OutOfSteps);
        }
        let mut evaluation = Evaluation::default();
        let live = self.live(entry, steps)?;
        match &live {
            Some((version, Ok(()))) => evaluation.matched = Some(*version),
            Some((_, Err(Miss::Differs(NoMatch::Condition)))) => evaluation.is_miss = true,
            Some((version, Err(Miss::Differs(why)))) if why.is_error() => {
                evaluation.failed = Some((*version, why.to_string().into()));
            }
            _ => {}
        }
        if let Some(definition) = entry.dry_at(self.at)
            && definition.is_for(self.kind, self.path)
        {
            let candidate = match self.holds(definition, steps)? {
                Ok(()) => dry_run::Evaluated::Match,
                Err(why) if why.is_error() => dry_run::Evaluated::Error,
                Err(_) => dry_run::Evaluated::NoMatch,
            };
            let live = live.map(|(_, outcome)| outcome.is_ok());
            evaluation.dry = Some(DryEvaluation { candidate, live });
        }
        Ok(evaluation)
    }

    /// Whether what a trigger makes of it may depend on the moment in which it is decided.
    pub(super) fn reads_time(&self, entry: &TriggerEntry) -> bool {
        entry.read_at(self.at).any(|definition| definition.reads_time())
    }
}

impl Evaluation {
    /// Whether there is nothing to be done about it.
    pub(super) fn is_nothing(&self) -> bool {
        self.matched.is_none() && !self.has_note()
    }

    /// Whether there is something to remember beside a delivery.
    pub(super) fn has_note(&self) -> bool {
        self.failed.is_some() || self.dry.is_some()
    }
}
