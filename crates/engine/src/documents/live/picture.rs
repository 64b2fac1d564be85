//! What one caller sees of a collection, and how far that has come.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use reveille_core::document::change::ChangeKind;
use reveille_core::document::filter::Filter;
use reveille_core::document::live::{ChangeImages, Extent, LivePlace};
use reveille_core::document::order::{Order, SortKey};
use reveille_core::document::path::{CollectionPath, DocumentId, DocumentPath};
use reveille_core::document::query::{PageLimits, Query, QueryError, QuerySpec};
use reveille_core::document::rules::{RuleAuth, RuleSet};
use reveille_core::document::shape::Fields;
use reveille_core::document::snapshot::{Document, DocumentView};
use reveille_core::{Millis, Tenant};
use reveille_kernel::doors::Clock;
use reveille_kernel::error::Damaged;
use reveille_store::state::Reader;

use super::changes::{StoredChange, change_head, changes_after, rules_version};
use crate::documents::error::DocumentError;
use crate::documents::query::QueryRun;
use crate::documents::rules::{RuleLook, TenantRules};
use crate::limits::{LIVE_DOCUMENTS, LIVE_LOOKUPS_MAX, LIVE_RESET_MS, LIVE_STEP_MS};

/// What a change takes that is looked at, in documents of a query.
const WORK_PER_CHANGE: u64 = 4;
/// Bytes of a change that are read and compared for as much.
const WORK_BYTES: u64 = 1 << 10;
/// What it takes to ask the rules.
const WORK_PER_DECISION: u64 = 16;

/// The documents of a collection that somebody follows, as far as they have been told of them.
#[derive(Debug, Clone)]
pub struct LivePicture {
    tenant: Tenant,
    auth: RuleAuth,
    /// By id, whatever it filters.
    query: Query,
    place: LivePlace,
    /// Whether the place is one that a client came with: nobody knows by which rules.
    is_resumed: bool,
    /// Which rules it was made by, once anything of it was.
    rules: Option<Option<u64>>,
    /// Other documents that the rules have looked at.
    lookups: BTreeSet<DocumentPath>,
    /// Whether one of them has changed again so soon that it must wait to begin anew.
    is_stale: bool,
    /// Until when.
    calm_until: Millis,
}

/// One look at a tenant's documents.
pub struct LiveLook {
    pub reader: Reader,
    pub clock: Arc<dyn Clock>,
    /// As they were known before the look.
    pub rules: Option<TenantRules>,
    pub scan_limit: u64,
    /// Bytes of a change for which there is room.
    pub room: usize,
    /// How many documents are read in a step at most.
    pub documents: usize,
    /// Bytes of documents after which a step ends.
    pub bytes: usize,
}

/// What a step has come to.
#[derive(Debug)]
pub enum LiveStep {
    /// This is next. If the picture is current, there is nothing more that is durable.
    Events { events: Vec<LiveEvent>, is_current: bool, work: u64 },
    /// What was told is of no use any more: everything is told again.
    Reset(ResetReason),
    /// The rules are others than those that it was given.
    OtherRules,
    /// The next change takes so many bytes.
    NeedsRoom(usize),
}

/// Something that whoever follows is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveEvent {
    /// How far the picture has come with it.
    pub place: LivePlace,
    pub id: DocumentId,
    pub news: LiveNews,
}

/// What there is to tell of a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LiveNews {
    /// This is how it is, as JSON.
    Document(Bytes),
    /// This is what became of it, as JSON.
    Changed(ChangeKind, Bytes),
    /// It is not there any more, or not for whoever follows.
    Removed,
}

/// Why everything is told again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResetReason {
    /// What has changed meanwhile is forgotten, or never was.
    Forgotten,
    /// The rules are others, or what they look at is.
    Rules,
}

/// What a step has gathered.
struct Gathered {
    events: Vec<LiveEvent>,
    bytes: usize,
    work: u64,
    until: Millis,
}

/// How looking at changes ended.
enum ChangesEnd {
    Done,
    Reset(LiveStep),
    NeedsRoom(usize),
}

impl LiveEvent {
    /// Bytes of the document in it.
    pub(super) fn bytes(&self) -> usize {
        match &self.news {
            LiveNews::Document(json) | LiveNews::Changed(_, json) => json.len(),
            LiveNews::Removed => 0,
        }
    }
}

impl LivePicture {
    /// The documents of a collection that match; from its beginning, or from where somebody stood.
    pub fn new(
        tenant: Tenant,
        auth: RuleAuth,
        collection: CollectionPath,
        filters: Vec<Filter>,
        from: Option<LivePlace>,
    ) -> Result<LivePicture, QueryError> {
        let spec = QuerySpec {
            collection,
            filters,
            order: Order::default(),
            limit: None,
            start_after: None,
            show_deleted: false,
        };
        let limits = PageLimits { default: LIVE_DOCUMENTS, max: LIVE_DOCUMENTS };
        Ok(LivePicture {
            tenant,
            auth,
            query: Query::new(spec, limits)?,
            is_resumed: from.is_some(),
            place: from.unwrap_or(LivePlace::START),
            rules: None,
            lookups: BTreeSet::new(),
            is_stale: false,
            calm_until: Millis(0),
        })
    }

    pub fn place(&self) -> &LivePlace {
        &self.place
    }

    pub fn collection(&self) -> &CollectionPath {
        &self.query.collection
    }

    /// The other documents that the rules have looked at.
    pub(super) fn lookups(&self) -> &BTreeSet<DocumentPath> {
        &self.lookups
    }

    /// Whether everybody who follows the collection as it does is told the same, if these are the
    /// rules.
    pub(super) fn is_plain(&self, rules: Option<u64>) -> bool {
        let is_asked = !self.auth.is_admin() && (rules.is_some() || self.rules != Some(None));
        self.query.filters.is_empty() && !is_asked
    }

    /// It has everything up to this change.
    pub(super) fn has_all_until(&mut self, seq: u64) {
        if self.place.is_whole() {
            self.place.seq = self.place.seq.max(seq);
        }
    }

    /// Begins from nothing.
    fn reset(&mut self, reason: ResetReason) -> LiveStep {
        self.place = LivePlace::START;
        self.is_resumed = false;
        self.rules = None;
        self.lookups.clear();
        self.is_stale = false;
        LiveStep::Reset(reason)
    }

    /// Begins from nothing because what the rules look at has changed, unless it just has: whoever may
    /// write that would have everybody read everything with each write.
    fn reset_by_lookup(&mut self, now: Millis) -> Option<LiveStep> {
        self.is_stale = now < self.calm_until;
        if self.is_stale {
            return None;
        }
        self.calm_until = now + LIVE_RESET_MS;
        Some(self.reset(ResetReason::Rules))
    }

    /// When it begins anew, if what the rules look at has changed.
    pub(super) fn stale_until(&self) -> Option<Millis> {
        self.is_stale.then_some(self.calm_until)
    }

    /// Goes on: first with what has changed of what is known, then with what is not known yet.
    pub fn advance(&mut self, look: &LiveLook) -> Result<LiveStep, DocumentError> {
        let rules = match self.check_rules(look)? {
            Ok(rules) => rules,
            Err(step) => return Ok(step),
        };
        let head = change_head(&look.reader, &self.tenant)?;
        if std::mem::take(&mut self.is_resumed) && !self.auth.is_admin() {
            // It may have come to this place by other rules, or what they looked at was otherwise.
            let are_others = head.rules_seq.is_some_and(|seq| self.place.seq <= seq);
            if are_others || rules.as_ref().is_some_and(RuleSet::read_documents) {
                return Ok(self.reset(ResetReason::Rules));
            }
        }
        if self.place.seq > head.seq {
            return Ok(self.reset(ResetReason::Forgotten));
        }
        if self.is_stale
            && let Some(reset) = self.reset_by_lookup(look.clock.now())
        {
            return Ok(reset);
        }
        if self.place.extent == Extent::Nothing {
            self.place.seq = head.seq;
        }
        let until = look.clock.now() + LIVE_STEP_MS;
        let mut gathered = Gathered { events: Vec::new(), bytes: 0, work: 0, until };
        if self.place.seq < head.seq {
            match self.read_changes(look, rules.as_ref(), &mut gathered)? {
                ChangesEnd::Done => {}
                ChangesEnd::Reset(step) => return Ok(step),
                ChangesEnd::NeedsRoom(bytes) => return Ok(LiveStep::NeedsRoom(bytes)),
            }
        }
        if self.place.seq == head.seq && !self.place.is_whole() && !gathered.is_full(look) {
            self.read_documents(look, rules.as_ref(), &mut gathered)?;
        }
        let is_current = self.place.seq == head.seq && self.place.is_whole();
        let Gathered { events, work, .. } = gathered;
        Ok(LiveStep::Events { events, is_current, work })
    }

    /// The rules of the look, if they must be asked.
    fn check_rules(
        &mut self,
        look: &LiveLook,
    ) -> Result<Result<Option<RuleSet>, LiveStep>, Damaged> {
        if self.auth.is_admin() {
            return Ok(Ok(None));
        }
        let version = rules_version(&look.reader, &self.tenant)?;
        if look.rules.as_ref().map(|it| it.version) != version {
            return Ok(Err(LiveStep::OtherRules));
        }
        if *self.rules.get_or_insert(version) != version {
            return Ok(Err(self.reset(ResetReason::Rules)));
        }
        Ok(Ok(look.rules.as_ref().map(|it| it.rules.clone())))
    }

    /// The changes after the last one that it has, some of them.
    fn read_changes(
        &mut self,
        look: &LiveLook,
        rules: Option<&RuleSet>,
        gathered: &mut Gathered,
    ) -> Result<ChangesEnd, Damaged> {
        let tenant = self.tenant.clone();
        let Some(changes) = changes_after(&look.reader, &tenant, self.place.seq)? else {
            return Ok(ChangesEnd::Reset(self.reset(ResetReason::Forgotten)));
        };
        let mut is_first = true;
        for change in changes {
            let change = change?;
            if self.lookups.contains(&change.path)
                && let Some(reset) = self.reset_by_lookup(look.clock.now())
            {
                return Ok(ChangesEnd::Reset(reset));
            }
            let is_known = change.path.collection() == self.collection()
                && self.place.covers(change.path.id());
            if is_known && change.len() > look.room {
                let end = ChangesEnd::NeedsRoom(change.len());
                return Ok(if is_first { end } else { ChangesEnd::Done });
            }
            if is_known && rules.is_some() {
                gathered.work += WORK_PER_DECISION;
            }
            if is_known && !self.is_plain(None) {
                // It is read, and compared.
                gathered.work += u64::try_from(change.len()).unwrap_or(u64::MAX) / WORK_BYTES;
            }
            let news = if is_known { self.news_of(look, rules, &change)? } else { None };
            self.place.seq = change.seq;
            if let Some(news) = news {
                let (place, id) = (self.place.clone(), change.path.id().clone());
                gathered.push(LiveEvent { place, id, news });
            }
            gathered.work += WORK_PER_CHANGE;
            is_first = false;
            if gathered.is_full(look) {
                break;
            }
        }
        Ok(ChangesEnd::Done)
    }

    /// What a change means for somebody who has the document as it was before, if they could see it.
    fn news_of(
        &mut self,
        look: &LiveLook,
        rules: Option<&RuleSet>,
        change: &StoredChange,
    ) -> Result<Option<LiveNews>, Damaged> {
        let content = change.content(&look.reader)?;
        let images = ChangeImages::parse(&content)
            .map_err(|error| Damaged(format!("change {} is damaged: {error}", change.seq)))?;
        if let Some(after) = images.after()
            && self.is_shown(look, rules, &change.path, after)?
        {
            let json = Bytes::copy_from_slice(after.as_bytes());
            return Ok(Some(LiveNews::Changed(change.kind, json)));
        }
        let was_shown = match images.before() {
            Some(before) => self.is_shown(look, rules, &change.path, before)?,
            None => false,
        };
        Ok(was_shown.then_some(LiveNews::Removed))
    }

    /// Whether a document is one of those that are followed, and may be seen.
    fn is_shown(
        &mut self,
        look: &LiveLook,
        rules: Option<&RuleSet>,
        path: &DocumentPath,
        json: &str,
    ) -> Result<bool, Damaged> {
        if self.query.filters.is_empty() && rules.is_none() {
            return Ok(true);
        }
        let document = Document::from_json(json);
        let document = document.ok_or_else(|| Damaged(format!("a change of {path} has none")))?;
        let view = DocumentView::new(path, &document);
        if !self.query.matches(&view) {
            return Ok(false);
        }
        rules.map_or(Ok(true), |rules| self.may_show(look, rules, path, &view.to_fields()))
    }

    /// Whether the rules let a document be seen. What they look at is remembered: they may say
    /// otherwise when that changes.
    fn may_show(
        &mut self,
        look: &LiveLook,
        rules: &RuleSet,
        path: &DocumentPath,
        fields: &Fields,
    ) -> Result<bool, Damaged> {
        let rule_look = RuleLook::new(&look.reader, &self.tenant, &self.auth, look.clock.now());
        let may = rule_look.may_show(rules, path, fields)?;
        for seen in rule_look.into_seen() {
            if self.lookups.len() < LIVE_LOOKUPS_MAX {
                self.lookups.insert(seen);
            }
        }
        Ok(may)
    }

    /// The documents after the last id that it has, some of them.
    fn read_documents(
        &mut self,
        look: &LiveLook,
        rules: Option<&RuleSet>,
        gathered: &mut Gathered,
    ) -> Result<(), DocumentError> {
        let start_after = match &self.place.extent {
            Extent::UpTo(id) => Some(SortKey::of_id(id)),
            Extent::Nothing | Extent::Everything => None,
        };
        let run = QueryRun {
            reader: look.reader.clone(),
            clock: look.clock.clone(),
            tenant: self.tenant.clone(),
            query: Query { start_after, limit: look.documents, ..self.query.clone() },
            rules: None,
            scan_limit: look.scan_limit,
            page_bytes: look.bytes,
        };
        let answer = run.answer()?;
        gathered.work += answer.cost.documents_read;
        let collection = self.query.collection.clone();
        for (id, document) in answer.page.documents {
            let id = DocumentId::parse(&id).map_err(Damaged::new)?;
            let path = collection.document(id.clone()).map_err(Damaged::new)?;
            let view = DocumentView::new(&path, &document);
            gathered.work += rules.map_or(0, |_| WORK_PER_DECISION);
            let is_shown = match rules {
                Some(rules) => self.may_show(look, rules, &path, &view.to_fields())?,
                None => true,
            };
            self.place.extent = Extent::UpTo(id.clone());
            if is_shown {
                let (place, news) = (self.place.clone(), LiveNews::Document(view.to_json().into()));
                gathered.push(LiveEvent { place, id, news });
            }
            if rules.is_some() && look.clock.now() >= gathered.until {
                return Ok(());
            }
        }
        self.place.extent = match answer.page.next {
            None => Extent::Everything,
            Some(next) => {
                let id = next.key.document_id();
                Extent::UpTo(id.ok_or_else(|| Damaged::new("a page by ids ends at none"))?)
            }
        };
        Ok(())
    }
}

impl Gathered {
    fn push(&mut self, event: LiveEvent) {
        self.bytes += event.bytes();
        self.events.push(event);
    }

    fn is_full(&self, look: &LiveLook) -> bool {
        self.bytes >= look.bytes || look.clock.now() >= self.until
    }
}
