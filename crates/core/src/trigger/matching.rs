//! Whether a change is one that a trigger is for, and why not (MAT-1 to MAT-4).

use std::sync::{Arc, OnceLock};

use super::changed::changed_paths;
use super::definition::Definition;
use super::message::{ChangeMessage, MessageError};
use crate::condition::event::{ChangeView, OriginView, OutOfSteps};
use crate::condition::{ConditionError, EvaluationError, excerpt};
use crate::document::change::{Change, ChangeKind};
use crate::document::origin::Origin;
use crate::document::path::DocumentPath;
use crate::document::shape::Fields;
use crate::document::snapshot::{Document, DocumentView};
use crate::limits::EVENT_CONDITION_STEPS_MAX;
use crate::steps::Steps;
use crate::tenant::Tenant;

/// A change, put together once for all triggers that it is held against.
#[derive(Debug)]
pub struct ChangeFields {
    pub kind: ChangeKind,
    pub path: DocumentPath,
    pub tenant: Tenant,
    /// Seconds since 1970.
    pub timestamp_s: u64,
    /// As everybody sees it; `None` if it was deleted.
    pub document: Option<Fields>,
    /// `None` if it was created.
    pub before: Option<Fields>,
    pub origin: Origin,
    path_text: String,
    changed: OnceLock<Vec<String>>,
}

/// Why a change is not one that a trigger is for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoMatch {
    #[error("the change is a `{}`, and the trigger is for {wanted}", kind.as_str())]
    Event { kind: ChangeKind, wanted: String },
    #[error("`collection` is `{pattern}`, which does not match `{path}`")]
    Collection { pattern: Arc<str>, path: String },
    #[error("none of the `filters` matches `{path}`")]
    Filters { path: String },
    #[error("the condition is false")]
    Condition,
    #[error("the condition comes to nothing: {0}")]
    ConditionFailed(EvaluationError),
    #[error("the condition cannot be read: {0}")]
    ConditionUnreadable(ConditionError),
    /// Whoever evaluates has done all that they may: nothing is known.
    #[error("the condition was not evaluated to its end")]
    OutOfSteps,
}

impl NoMatch {
    /// Whether the condition is to blame, and whoever wrote it should know (MAT-4).
    pub fn is_error(&self) -> bool {
        match self {
            NoMatch::ConditionFailed(_) | NoMatch::ConditionUnreadable(_) => true,
            NoMatch::Event { .. }
            | NoMatch::Collection { .. }
            | NoMatch::Filters { .. }
            | NoMatch::Condition
            | NoMatch::OutOfSteps => false,
        }
    }
}

impl ChangeFields {
    /// A change that is about to be made.
    pub fn new(
        change: &Change,
        tenant: &Tenant,
        timestamp_s: u64,
        origin: &Origin,
    ) -> ChangeFields {
        let fields = |document: &Option<Document>| {
            document.as_ref().map(|document| DocumentView::new(&change.path, document).to_fields())
        };
        ChangeFields {
            kind: change.kind,
            path: change.path.clone(),
            tenant: tenant.clone(),
            timestamp_s,
            document: fields(&change.after),
            before: fields(&change.before),
            origin: origin.clone(),
            path_text: change.path.to_string(),
            changed: OnceLock::new(),
        }
    }

    /// A change that was made.
    pub fn of_message(message: &ChangeMessage<'_>) -> Result<ChangeFields, MessageError> {
        Ok(ChangeFields {
            kind: message.kind,
            path: message.path.clone(),
            tenant: message.tenant.clone(),
            timestamp_s: message.ts,
            document: message.after_fields()?,
            before: message.before_fields()?,
            origin: message.origin.clone(),
            path_text: message.path.to_string(),
            changed: OnceLock::new(),
        })
    }

    /// A change that nobody has made, to try a trigger with.
    pub fn of_draft(
        path: DocumentPath,
        tenant: &Tenant,
        timestamp_s: u64,
        before: Option<Fields>,
        document: Option<Fields>,
    ) -> ChangeFields {
        let kind = match (&before, &document) {
            (None, _) => ChangeKind::Create,
            (Some(_), Some(_)) => ChangeKind::Update,
            (Some(_), None) => ChangeKind::Delete,
        };
        ChangeFields {
            kind,
            path_text: path.to_string(),
            path,
            tenant: tenant.clone(),
            timestamp_s,
            document,
            before,
            origin: Origin::CLIENT,
            changed: OnceLock::new(),
        }
    }

    /// The paths of the fields that differ. What is the system's own always does, and is left out.
    pub fn changed(&self) -> &[String] {
        self.changed.get_or_init(|| {
            let user_data = |fields: &Fields| -> Fields {
                let is_own = |name: &str| {
                    ["id", "collection", "version", "createdAt", "updatedAt", "deleted"]
                        .contains(&name)
                };
                let fields = fields.iter().filter(|(name, _)| !is_own(name));
                fields.map(|(name, value)| (name.clone(), value.clone())).collect()
            };
            let before = self.before.as_ref().map(user_data);
            let after = self.document.as_ref().map(user_data);
            changed_paths(before.as_ref(), after.as_ref())
        })
    }

    /// As a condition sees it.
    fn view(&self, reads_changed: bool) -> ChangeView<'_> {
        let origin = self.origin.trigger().map(|trigger| OriginView {
            trigger,
            depth: u32::try_from(self.origin.depth()).unwrap_or(u32::MAX),
        });
        ChangeView {
            kind: self.kind.as_str(),
            timestamp: i64::try_from(self.timestamp_s).unwrap_or(i64::MAX),
            document: self.document.as_ref(),
            before: self.before.as_ref(),
            path: &self.path_text,
            collection: self.path.collection().as_str(),
            id: self.path.id().as_str(),
            tenant: self.tenant.as_str(),
            origin,
            changed: if reads_changed { self.changed() } else { &[] },
        }
    }
}

impl Definition {
    /// The part of the match that costs little: kind, collection and filters.
    pub fn selects(&self, kind: ChangeKind, path: &DocumentPath) -> Result<(), NoMatch> {
        if !self.events.contains(kind) {
            let names: Vec<&str> = self.events.iter().map(ChangeKind::as_str).collect();
            let wanted = format!("`{}`", names.join("`, `"));
            return Err(NoMatch::Event { kind, wanted });
        }
        if !self.collection.matches(path) {
            let (pattern, path) = (self.collection.as_str().into(), excerpt(&path.to_string()));
            return Err(NoMatch::Collection { pattern, path });
        }
        if !self.filters.is_empty() && !self.filters.iter().any(|filter| filter.matches(path)) {
            return Err(NoMatch::Filters { path: excerpt(&path.to_string()) });
        }
        Ok(())
    }

    /// The same, for those who need no reason.
    pub fn is_for(&self, kind: ChangeKind, path: &DocumentPath) -> bool {
        self.events.contains(kind)
            && self.collection.matches(path)
            && (self.filters.is_empty() || self.filters.iter().any(|it| it.matches(path)))
    }

    /// Whether the condition holds; one that is always true does.
    pub fn condition_holds(&self, change: &ChangeFields, steps: &mut Steps) -> Result<(), NoMatch> {
        let Some(condition) = &self.condition else { return Ok(()) };
        let condition = condition.compiled();
        let condition = condition.map_err(|error| NoMatch::ConditionUnreadable(error.clone()))?;
        match condition.holds_within(&change.view(condition.reads_changed()), steps) {
            Ok(Ok(true)) => Ok(()),
            Ok(Ok(false)) => Err(NoMatch::Condition),
            Ok(Err(error)) => Err(NoMatch::ConditionFailed(error)),
            Err(OutOfSteps) => Err(NoMatch::OutOfSteps),
        }
    }

    /// Whether a change is one that the trigger is for, as part of more that is done.
    pub fn matches_within(&self, change: &ChangeFields, steps: &mut Steps) -> Result<(), NoMatch> {
        self.selects(change.kind, &change.path)?;
        self.condition_holds(change, steps)
    }

    /// Whether a change is one that the trigger is for, and why not.
    pub fn matches(&self, change: &ChangeFields) -> Result<(), NoMatch> {
        self.matches_within(change, &mut Steps::new(EVENT_CONDITION_STEPS_MAX))
    }
}

#[cfg(test)]
mod tests;
