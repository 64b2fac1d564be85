//! A page is collected: of all documents that are offered, the first ones in the query's order.
//!
//! At most one page is in memory, in number and in bytes. What is not among the first is
//! forgotten, but for the place of the first that was.

use super::Query;
use super::cursor::Cursor;
use crate::document::order::SortKey;
use crate::document::snapshot::{Document, DocumentView};

/// What each document of a page takes besides its data, about.
const ENTRY_BYTES: usize = 256;

/// In which order documents are offered, compared with that of the query.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sorted {
    /// In any. The page is known when all have been offered.
    No,
    /// In that of the query's fields; those that are equal in them come in any.
    ExceptTies,
    Exactly,
}

/// Whether more documents are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    More,
    /// None that would come now could be on the page.
    Enough,
}

/// Collects a page.
pub struct PageCollector<'q> {
    query: &'q Query,
    sorted: Sorted,
    bytes_max: usize,
    /// In the query's order.
    kept: Vec<Entry>,
    kept_bytes: usize,
    /// The first that is not on the page: nothing from here on is.
    ceiling: Option<SortKey>,
    /// Of the document that is looked at.
    key: SortKey,
}

struct Entry {
    key: SortKey,
    id: String,
    document: Document,
}

/// What a client gets at once.
#[derive(Debug, Clone, PartialEq)]
pub struct Page {
    /// Ids and documents, in order.
    pub documents: Vec<(String, Document)>,
    /// Where the next page begins, `None` if this is the last one.
    pub next: Option<Cursor>,
}

impl<'q> PageCollector<'q> {
    /// A page ends before `bytes_max`, unless its first document alone is larger.
    pub fn new(query: &'q Query, sorted: Sorted, bytes_max: usize) -> PageCollector<'q> {
        PageCollector {
            query,
            sorted,
            bytes_max,
            kept: Vec::new(),
            kept_bytes: 0,
            ceiling: None,
            key: SortKey::default(),
        }
    }

    /// Takes a document that matches the query.
    pub fn offer(&mut self, id: &str, document: Document) -> Wanted {
        self.look_at(id, &document);
        if self.query.start_after.as_ref().is_some_and(|after| self.key <= *after) {
            return Wanted::More;
        }
        if let Some(ceiling) = self.ceiling.as_ref().filter(|ceiling| self.key >= **ceiling) {
            return match self.sorted {
                Sorted::Exactly => Wanted::Enough,
                Sorted::ExceptTies if self.key.fields() > ceiling.fields() => Wanted::Enough,
                Sorted::ExceptTies | Sorted::No => Wanted::More,
            };
        }
        let at = self.kept.partition_point(|entry| entry.key < self.key);
        self.kept_bytes += document.bytes() + ENTRY_BYTES;
        self.kept.insert(at, Entry { key: self.key.clone(), id: id.to_owned(), document });
        while self.kept.len() > self.query.limit
            || (self.kept_bytes > self.bytes_max && self.kept.len() > 1)
        {
            let Some(last) = self.kept.pop() else { break };
            self.kept_bytes -= last.document.bytes() + ENTRY_BYTES;
            self.ceiling = Some(last.key);
        }
        match (&self.ceiling, self.sorted) {
            (Some(_), Sorted::Exactly) => Wanted::Enough,
            _ => Wanted::More,
        }
    }

    fn look_at(&mut self, id: &str, document: &Document) {
        let collection = self.query.collection.as_str();
        self.query.order.write_key(&DocumentView { collection, id, document }, &mut self.key);
    }

    /// The page, once everything was offered or enough was.
    pub fn finish(self) -> Page {
        let last = self.kept.last().filter(|_| self.ceiling.is_some());
        let next = last.map(|last| last.key.clone());
        self.page(next)
    }

    /// The page as far as it is certain when this document was the last that was read, whether it
    /// matched or not: it may be short, and the next one goes on from there. `None` if nothing is
    /// certain yet, so that nobody would come further by asking again.
    pub fn finish_at(mut self, id: &str, document: &Document) -> Option<Page> {
        self.look_at(id, document);
        match self.sorted {
            Sorted::No => return None,
            Sorted::Exactly => {}
            Sorted::ExceptTies => {
                // Of the documents that are equal to this one more may come, in any order.
                let end = self.key.id_at();
                self.key.bytes.truncate(end);
                let certain = self.kept.partition_point(|entry| entry.key < self.key);
                if let Some(first) = self.kept.get(certain) {
                    self.ceiling = Some(first.key.clone());
                }
                self.kept.truncate(certain);
            }
        }
        if let Some(ceiling) = self.ceiling.as_ref().filter(|ceiling| **ceiling <= self.key)
            && let Some(last) = self.kept.last()
        {
            debug_assert!(last.key < *ceiling);
            let next = last.key.clone();
            return Some(self.page(Some(next)));
        }
        if self.query.start_after.as_ref().is_some_and(|after| self.key <= *after) {
            return None;
        }
        let next = self.key.clone();
        Some(self.page(Some(next)))
    }

    fn page(self, next: Option<SortKey>) -> Page {
        let query = self.query.fingerprint();
        let next = next.map(|key| Cursor { query, key });
        let documents = self.kept.into_iter().map(|entry| (entry.id, entry.document));
        Page { documents: documents.collect(), next }
    }
}
