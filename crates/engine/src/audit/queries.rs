//! Looking at the audit log: its rows, newest first, and whether its chains are whole.

use std::cmp::Ordering;
use std::collections::{BTreeSet, BinaryHeap};
use std::sync::Arc;

use reveille_core::audit::{AuditEntry, AuditRow, ChainBreak, ChainCheck, ChainHash, ChainHead};
use reveille_core::key_range::above;
use reveille_core::{Millis, Tenant};
use reveille_kernel::error::{Damaged, Error, Never};
use reveille_kernel::task;
use reveille_schema::audit::{Chain, split_row_value};
use reveille_schema::{Record, keys};
use reveille_store::state::Reader;

use super::chain::{TrimAudit, read_row};
use crate::app::Shared;
use crate::engine::Engine;
use crate::limits::{AUDIT_CHAINS_MAX, LIST_SCAN_MAX, SCAN_SLICE};
use crate::records::{ReadRecord, Scan, TakeEntry};

/// A row as it is shown.
#[derive(Debug, Clone)]
pub struct ListedRow {
    pub row: AuditRow,
    pub hash: ChainHash,
}

/// Which rows are looked for.
#[derive(Debug, Clone, Default)]
pub struct AuditFilter {
    /// Those of this tenant; `None` for all, and those that concern all.
    pub tenant: Option<Tenant>,
    pub action: Option<Arc<str>>,
    /// Who did it.
    pub actor: Option<Arc<str>>,
    /// What it was done to.
    pub subject: Option<Subject>,
    /// Not before.
    pub from: Option<Millis>,
    /// Before.
    pub to: Option<Millis>,
}

/// What something was done to.
#[derive(Debug, Clone)]
pub struct Subject {
    pub name: Arc<str>,
    /// Whether it is a trigger, and nothing else of that name.
    pub is_trigger: bool,
}

/// Whether a row is about a trigger: that was changed, or whose code has read or written something.
pub fn is_about_trigger(entry: &AuditEntry) -> bool {
    entry.action.starts_with("trigger.") || entry.actor.name.starts_with("trigger:")
}

impl AuditFilter {
    /// Whether it is about such a row, whenever that was.
    fn wants(&self, row: &AuditRow) -> bool {
        let entry = &row.entry;
        let is = |wanted: &Option<Arc<str>>, found: &str| {
            wanted.as_deref().is_none_or(|wanted| wanted == found)
        };
        is(&self.action, &entry.action)
            && is(&self.actor, &entry.actor.name)
            && self.subject.as_ref().is_none_or(|subject| {
                *subject.name == *entry.subject && (!subject.is_trigger || is_about_trigger(entry))
            })
    }
}

/// A row's place among all rows, newest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct AuditCursor {
    pub at: Millis,
    pub id: u64,
}

impl AuditCursor {
    fn of(row: &AuditRow) -> AuditCursor {
        AuditCursor { at: row.at, id: row.id }
    }
}

/// What a look at a chain has come to.
#[derive(Debug, Clone)]
pub struct CheckedChain {
    pub chain: Chain,
    pub head: ChainHead,
    /// The first thing that does not fit, with the id of the row if it can be read.
    pub broken: Option<(ChainBreak, Option<u64>)>,
}

impl Engine {
    /// Rows of the audit log, newest first, after one. Returns the last one that was taken or looked
    /// at if there may be more.
    pub async fn audit_rows(
        &self,
        filter: AuditFilter,
        after: Option<AuditCursor>,
        limit: usize,
        take: TakeEntry<'_, ListedRow>,
    ) -> Result<Option<AuditCursor>, Damaged> {
        let mut walks = BinaryHeap::new();
        for shared in self.audited_partitions(filter.tenant.as_ref()) {
            let (reader, filter) = (shared.state.reader(), filter.clone());
            let found = task::blocking(move || ChainWalk::begin_all(&reader, &filter, after)).await;
            walks.extend(found?);
        }
        let (mut left, mut seen, mut last) = (limit, 0, after);
        while let Some(mut walk) = walks.pop() {
            let Some(listed) = walk.current.take() else { continue };
            let place = AuditCursor::of(&listed.row);
            if filter.from.is_some_and(|from| listed.row.at < from) {
                // Whatever is left of this chain is older still.
                continue;
            }
            if filter.wants(&listed.row) {
                if left == 0 || !take(&listed) {
                    return Ok(last);
                }
                left -= 1;
            }
            last = Some(place);
            seen += 1;
            if seen == LIST_SCAN_MAX {
                return Ok(last);
            }
            walk.advance()?;
            walks.push(walk);
            if seen % SCAN_SLICE == 0 {
                // Others have waited meanwhile.
                tokio::task::yield_now().await;
            }
        }
        Ok(None)
    }

    /// Checks the chain of a tenant, or every chain that there is, each in slices and away from
    /// whoever serves requests.
    pub async fn check_audit(&self, tenant: Option<&Tenant>) -> Result<Vec<CheckedChain>, Damaged> {
        let mut checked = Vec::new();
        for shared in self.audited_partitions(tenant) {
            let (reader, only) = (shared.state.reader(), tenant.cloned());
            checked.extend(task::blocking(move || check_all(&reader, only)).await?);
        }
        Ok(checked)
    }

    /// Forgets rows from before a time. Returns how many.
    pub async fn trim_audit(&self, cutoff: Millis) -> Result<u64, Error<Never>> {
        let mut all = 0;
        for shared in self.partitions() {
            let (mut from, to) = keys::audit_heads();
            loop {
                let first = shared.state.reader().keys(&from, &to, 1).map_err(Damaged::from)?;
                let Some(key) = first.first() else { break };
                from = above(key);
                let Some(chain) = keys::parse_audit_head(key) else { continue };
                loop {
                    let command = TrimAudit { chain: chain.clone(), cutoff };
                    match self.submit_to(shared, &command).await? {
                        0 => break,
                        forgotten => all += forgotten,
                    }
                }
            }
        }
        Ok(all)
    }

    fn audited_partitions(&self, tenant: Option<&Tenant>) -> Vec<&Arc<Shared>> {
        match tenant {
            Some(tenant) => vec![self.partition(tenant)],
            None => self.partitions().iter().collect(),
        }
    }
}

/// A look at one chain, newest row first.
struct ChainWalk {
    reader: Reader,
    chain: Chain,
    /// The first place that is kept.
    first: u64,
    /// Places from this one on were shown.
    next: u64,
    /// The row whose turn it is; the places between are filled from slices.
    current: Option<ListedRow>,
    slice: Vec<ListedRow>,
}

impl ChainWalk {
    /// The walks over the chains that are asked for, each at its first row.
    fn begin_all(
        reader: &Reader,
        filter: &AuditFilter,
        after: Option<AuditCursor>,
    ) -> Result<Vec<ChainWalk>, Damaged> {
        let mut heads = Vec::new();
        match &filter.tenant {
            Some(tenant) => {
                let (chain, mut of) = (Some(tenant.clone()), reader);
                let head = of.read(&keys::audit_head(&chain), ChainHead::decode)?;
                heads.extend(head.map(|head| (chain, head)));
            }
            None => {
                let (from, to) = keys::audit_heads();
                for pair in Scan::new(reader, from, to) {
                    let (key, value) = pair?;
                    let Some(chain) = keys::parse_audit_head(&key) else { continue };
                    heads.push((chain, ChainHead::decode(&value).map_err(Damaged::new)?));
                }
                // So many have anything to tell at all that is worth a list over all of them.
                heads.sort_by_key(|(_, head)| std::cmp::Reverse(head.last_at));
                heads.truncate(AUDIT_CHAINS_MAX);
            }
        }
        let mut walks = Vec::with_capacity(heads.len());
        for (chain, head) in heads {
            let (first, next) = (head.first, head.next);
            let (reader, current) = (reader.clone(), None);
            let mut walk = ChainWalk { reader, chain, first, next, current, slice: Vec::new() };
            walk.seek(filter.to, after)?;
            walk.advance()?;
            walks.push(walk);
        }
        Ok(walks)
    }

    /// Goes to the newest row that is before a time and after one in the list. Rows of a chain are in
    /// the order of their times and ids, so their places are found by halving.
    fn seek(&mut self, to: Option<Millis>, after: Option<AuditCursor>) -> Result<(), Damaged> {
        let is_before = |row: &AuditRow| {
            to.is_none_or(|to| row.at < to)
                && after.is_none_or(|after| AuditCursor::of(row) < after)
        };
        let (mut low, mut high) = (self.first, self.next);
        while low < high {
            let middle = low + (high - low) / 2;
            match self.row(middle)? {
                Some(listed) if is_before(&listed.row) => low = middle + 1,
                _ => high = middle,
            }
        }
        self.next = low;
        Ok(())
    }

    fn row(&self, seq: u64) -> Result<Option<ListedRow>, Damaged> {
        let value = self.reader.get(&keys::audit_row(&self.chain, seq))?;
        let read = value.map(|value| read_row(&value)).transpose()?;
        Ok(read.map(|(row, hash)| ListedRow { row, hash }))
    }

    fn advance(&mut self) -> Result<(), Damaged> {
        while self.slice.is_empty() && self.next > self.first {
            let from = self.next.saturating_sub(16).max(self.first);
            let (first, end) = keys::audit_rows(&self.chain, from, self.next);
            for (_, value) in self.reader.range(&first, &end, 16)? {
                let (row, hash) = read_row(&value)?;
                self.slice.push(ListedRow { row, hash });
            }
            self.next = from;
        }
        self.current = self.slice.pop();
        Ok(())
    }

    fn place(&self) -> Option<AuditCursor> {
        self.current.as_ref().map(|listed| AuditCursor::of(&listed.row))
    }
}

impl PartialEq for ChainWalk {
    fn eq(&self, other: &ChainWalk) -> bool {
        self.place() == other.place()
    }
}

impl Eq for ChainWalk {}

impl PartialOrd for ChainWalk {
    fn partial_cmp(&self, other: &ChainWalk) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ChainWalk {
    fn cmp(&self, other: &ChainWalk) -> Ordering {
        self.place().cmp(&other.place())
    }
}

/// Checks one chain, or all that have a head or rows.
pub(super) fn check_all(
    reader: &Reader,
    only: Option<Tenant>,
) -> Result<Vec<CheckedChain>, Damaged> {
    let mut chains = BTreeSet::new();
    if let Some(tenant) = only {
        chains.insert(Some(tenant));
    } else {
        let (from, to) = keys::audit_heads();
        for pair in Scan::new(reader, from, to) {
            chains.extend(keys::parse_audit_head(&pair?.0));
        }
        // Rows whose head is gone are found as well.
        let (mut from, to) = keys::all_audit_rows();
        while let Some(key) = reader.keys(&from, &to, 1)?.into_iter().next() {
            let found = keys::parse_audit_row(&key);
            from = above(&key);
            if let Some((chain, _)) = found {
                from = above(&keys::audit_row(&chain, u64::MAX));
                chains.insert(chain);
            }
        }
    }
    chains.into_iter().map(|chain| check_one(reader, chain)).collect()
}

fn check_one(mut reader: &Reader, chain: Chain) -> Result<CheckedChain, Damaged> {
    let head = reader.read(&keys::audit_head(&chain), ChainHead::decode)?.unwrap_or_default();
    let mut check = ChainCheck::new(head);
    let (from, to) = keys::audit_rows(&chain, 0, u64::MAX);
    for pair in Scan::new(reader, from, to) {
        let (key, value) = pair?;
        let Some((_, seq)) = keys::parse_audit_row(&key) else { continue };
        let found = match split_row_value(&value) {
            Some((hash, row)) => check.row(seq, row, hash),
            None => Err(ChainBreak::Changed { seq }),
        };
        if let Err(broken) = found {
            let id = read_row(&value).ok().map(|(row, _)| row.id);
            return Ok(CheckedChain { chain, head, broken: Some((broken, id)) });
        }
    }
    let broken = check.end().err().map(|broken| (broken, None));
    Ok(CheckedChain { chain, head, broken })
}
