//! Answering a query, in one consistent look.

use std::sync::Arc;

use bytes::Bytes;
use reveille_core::document::index::IndexDefinition;
use reveille_core::document::index::plan::{KeyRange, Plan, Source, plan};
use reveille_core::document::index::suggest;
use reveille_core::document::path::DocumentId;
use reveille_core::document::query::Query;
use reveille_core::document::query::page::{Page, PageCollector, Sorted, Wanted};
use reveille_core::document::rules::{RuleAuth, RuleSet};
use reveille_core::document::snapshot::{Document, DocumentView};
use reveille_core::key_range::after_prefix;
use reveille_core::{Millis, Tenant};
use reveille_kernel::doors::Clock;
use reveille_kernel::error::{Damaged, Error};
use reveille_schema::documents::{IndexNo, IndexRecord, IndexState};
use reveille_schema::{Record, keys};
use reveille_store::state::Reader;

use super::error::{DocumentError, DocumentRejection};
use super::rules::RuleLook;
use crate::limits::{QUERY_BYTES_MAX, QUERY_DOCUMENTS_MAX, QUERY_MS_MAX};
use crate::records::{Scan, ScanBack, damaged};

/// A page, and what it took.
#[derive(Debug, Clone, PartialEq)]
pub struct QueryAnswer {
    pub page: Page,
    pub cost: QueryCost,
}

/// What a query took.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueryCost {
    pub plan: QueryPlan,
    /// With those that did not match, and tombstones.
    pub documents_read: u64,
    pub index_entries_read: u64,
    /// Of both.
    pub bytes_read: u64,
    pub took_ms: u64,
    /// Whether all that matched had to be seen before the first of them was known.
    pub sorted_in_memory: bool,
}

/// Where documents were looked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QueryPlan {
    /// In the collection itself, by id.
    Scan,
    Index(IndexDefinition),
}

/// A query that is answered where that may block.
pub(super) struct QueryRun {
    pub(super) reader: Reader,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) tenant: Tenant,
    pub(super) query: Query,
    /// What must allow it.
    pub(super) rules: Option<(RuleSet, RuleAuth)>,
    /// How many documents are looked at without an index.
    pub(super) scan_limit: u64,
    /// How long a page may be, unless its first document alone is longer.
    pub(super) page_bytes: usize,
}

/// What was read so far, and until when there is time.
struct Reading<'q> {
    run: &'q QueryRun,
    /// The index whose entries are read.
    index: Option<IndexNo>,
    is_scan: bool,
    until: Millis,
    documents: u64,
    entries: u64,
    bytes: u64,
}

/// How reading ended.
enum End {
    /// The page is known.
    Known,
    /// It took as much as one request may, at this document.
    Spent(DocumentId, Document),
}

impl QueryRun {
    pub(super) fn answer(&self) -> Result<QueryAnswer, DocumentError> {
        let QueryRun { reader, tenant, query, .. } = self;
        let began = self.clock.now();
        let (numbers, mut definitions) = ready_indexes(reader, tenant)?;
        let plan = plan(query, &definitions);
        let (index, source) = match plan.source {
            Source::Collection => (None, QueryPlan::Scan),
            Source::Index(at) => {
                (numbers.get(at).copied(), QueryPlan::Index(definitions.swap_remove(at)))
            }
        };
        let mut reading = Reading {
            run: self,
            index,
            is_scan: plan.is_scan(query),
            until: began + QUERY_MS_MAX,
            documents: 0,
            entries: 0,
            bytes: 0,
        };
        let mut collector = PageCollector::new(query, plan.sorted, self.page_bytes);
        let page = match reading.read(&plan, &mut collector)? {
            End::Known => collector.finish(),
            End::Spent(id, document) => {
                let documents_read = reading.documents;
                let too_costly = DocumentRejection::QueryTooCostly { documents_read };
                let page = collector.finish_at(id.as_str(), &document);
                page.ok_or(Error::Rejected(too_costly))?
            }
        };
        if let Some((rules, auth)) = &self.rules {
            let look = RuleLook::new(reader, tenant, auth, began);
            if !look.may_list(rules, &query.collection, &page)? {
                return Err(Error::Rejected(DocumentRejection::RuleDenied { op_index: None }));
            }
        }
        let cost = QueryCost {
            plan: source,
            documents_read: reading.documents,
            index_entries_read: reading.entries,
            bytes_read: reading.bytes,
            took_ms: self.clock.now().since(began),
            sorted_in_memory: plan.sorted == Sorted::No,
        };
        Ok(QueryAnswer { page, cost })
    }

    /// The keys of a range, which is without what all of them begin with.
    fn keys(&self, index: Option<IndexNo>, range: &KeyRange) -> (Bytes, Bytes) {
        let (tenant, collection) = (&self.tenant, &self.query.collection);
        let key = |bound: &[u8]| match index {
            None => keys::document_bound(tenant, collection, bound),
            Some(no) => keys::index_entry_bound(tenant, no, collection, bound),
        };
        let end = range.end.as_ref().map(|end| key(end));
        (key(&range.start), end.unwrap_or_else(|| after_prefix(&key(&[]))))
    }
}

impl Reading<'_> {
    fn read(
        &mut self,
        plan: &Plan,
        collector: &mut PageCollector<'_>,
    ) -> Result<End, DocumentError> {
        let run = self.run;
        let query = &run.query;
        for range in &plan.ranges {
            let (from, to) = run.keys(self.index, range);
            let pairs: Box<dyn Iterator<Item = _>> = match plan.is_backwards {
                false => Box::new(Scan::new(&run.reader, from, to)),
                true => Box::new(ScanBack::new(&run.reader, from, to)),
            };
            for pair in pairs {
                let (key, value) = pair?;
                let (id, document) = self.document(&key, &value)?;
                let collection = query.collection.as_str();
                let view = DocumentView { collection, id: id.as_str(), document: &document };
                if query.matches(&view)
                    && collector.offer(id.as_str(), document.clone()) == Wanted::Enough
                {
                    return Ok(End::Known);
                }
                if self.is_scan && self.documents > run.scan_limit {
                    return Err(Error::Rejected(self.too_many_documents()));
                }
                if self.is_spent() {
                    return Ok(End::Spent(id, document));
                }
            }
        }
        Ok(End::Known)
    }

    /// The document of a pair that was read.
    fn document(&mut self, key: &Bytes, value: &Bytes) -> Result<(DocumentId, Document), Damaged> {
        let QueryRun { reader, tenant, query, .. } = self.run;
        self.bytes += length(key) + length(value);
        self.documents += 1;
        if self.index.is_none() {
            let unreadable = || Damaged::new("the key of a document is damaged");
            let (_, path) = keys::parse_document(key).ok_or_else(unreadable)?;
            return Ok((path.id().clone(), Document::decode(value).map_err(damaged)?));
        }
        self.entries += 1;
        let unreadable = || Damaged::new("an entry of an index is damaged");
        let id = keys::parse_index_entry_id(key, value).ok_or_else(unreadable)?;
        let path = query.collection.document(id.clone()).map_err(Damaged::new)?;
        let stored = reader.get(&keys::document(tenant, &path))?;
        let stored = stored.ok_or_else(|| Damaged(format!("an index has {path}, which is not")))?;
        self.bytes += length(&stored);
        Ok((id, Document::decode(&stored).map_err(damaged)?))
    }

    fn too_many_documents(&self) -> DocumentRejection {
        match suggest(&self.run.query) {
            Some(definition) => DocumentRejection::MissingIndex(definition),
            None => DocumentRejection::QueryTooCostly { documents_read: self.documents },
        }
    }

    /// Whether it took as much as one request may.
    fn is_spent(&self) -> bool {
        self.documents >= QUERY_DOCUMENTS_MAX
            || self.bytes >= QUERY_BYTES_MAX
            || self.run.clock.now() >= self.until
    }
}

fn length(bytes: &Bytes) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}

/// Those that have entries of all documents.
fn ready_indexes(
    reader: &Reader,
    tenant: &Tenant,
) -> Result<(Vec<IndexNo>, Vec<IndexDefinition>), Damaged> {
    let (mut numbers, mut definitions) = (Vec::new(), Vec::new());
    for (no, index) in indexes(reader, tenant)? {
        if index.state == IndexState::Ready {
            numbers.push(no);
            definitions.push(index.definition);
        }
    }
    Ok((numbers, definitions))
}

/// The indexes of a tenant, in the order in which they were declared.
pub(super) fn indexes(
    reader: &Reader,
    tenant: &Tenant,
) -> Result<Vec<(IndexNo, IndexRecord)>, Damaged> {
    let (from, to) = keys::indexes(tenant);
    let unreadable = || Damaged::new("the key of an index is damaged");
    let parse = |(key, value): (Bytes, Bytes)| {
        let (_, no) = keys::parse_index(&key).ok_or_else(unreadable)?;
        Ok((no, IndexRecord::decode(&value).map_err(damaged)?))
    };
    // There are a few hundred at most.
    reader.range(&from, &to, usize::MAX)?.into_iter().map(parse).collect()
}
