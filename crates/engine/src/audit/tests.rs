//! What is written down, and when.

use reveille_core::audit::{Actor, AuditEntry, AuditRow, ChainBreak, ChainHead, action};
use reveille_core::{Millis, Tenant};
use reveille_kernel::command::{Command, Decision};
use reveille_kernel::error::{Error, Never};
use reveille_schema::{Record, keys};

use super::chain::read_row;
use super::*;
use crate::app::{App, Txn};
use crate::testing::Bench;

/// Changes something, nothing, or is refused.
enum Change {
    Something,
    Nothing,
    Refused,
}

impl Command<App> for Change {
    type Answer = ();
    type Rejection = &'static str;

    fn decide(&self, txn: &mut Txn<'_>) -> Decision<(), &'static str> {
        match self {
            Change::Something => txn.set("\u{1}changed".into(), "so".into()),
            Change::Nothing => {}
            Change::Refused => return Ok(Err("no")),
        }
        Ok(Ok(()))
    }
}

fn entry(chain: Option<&str>) -> AuditEntry {
    let tenant = chain.map(|name| Tenant::parse(name).unwrap());
    AuditEntry::new(Actor::server(), action::HOOK_UPDATED, tenant, "H")
}

fn audited(
    command: Change,
    chain: Option<&str>,
) -> Audited<Change, impl Fn(&Txn<'_>, &(), &mut AuditEntry) + Send + Sync> {
    let describe = |_: &Txn<'_>, (): &(), entry: &mut AuditEntry| entry.to_version = Some(7);
    Audited { command, entry: entry(chain), describe }
}

fn rows(bench: &Bench, chain: Option<&str>) -> Vec<AuditRow> {
    let chain = chain.map(|name| Tenant::parse(name).unwrap());
    let (from, to) = keys::audit_rows(&chain, 0, u64::MAX);
    let found = bench.reader().range(&from, &to, usize::MAX).unwrap();
    found.iter().map(|(_, value)| read_row(value).unwrap().0).collect()
}

fn head(bench: &Bench, chain: Option<&str>) -> ChainHead {
    let chain = chain.map(|name| Tenant::parse(name).unwrap());
    let value = bench.reader().get(&keys::audit_head(&chain)).unwrap().unwrap();
    ChainHead::decode(&value).unwrap()
}

fn check(bench: &Bench) -> Vec<Option<ChainBreak>> {
    let checked = super::queries::check_all(&bench.reader(), None).unwrap();
    checked.into_iter().map(|it| it.broken.map(|(broken, _)| broken)).collect()
}

#[test]
fn a_change_and_its_row_are_one_batch() {
    let mut bench = Bench::new();
    let done = bench.when(&audited(Change::Something, Some("acme")));
    let written: Vec<u8> = done.writes.iter().map(|(key, _)| key[0]).collect();
    assert!([0x01, 0x19, 0x1a].iter().all(|tag| written.contains(tag)), "{written:?}");
    done.answer();
    let rows = rows(&bench, Some("acme"));
    assert_eq!(rows.len(), 1);
    assert_eq!((rows[0].seq, rows[0].at, rows[0].entry.to_version), (0, bench.now, Some(7)));
    assert_eq!(check(&bench), [None]);
}

#[test]
fn what_changes_nothing_or_is_refused_has_no_row() {
    let mut bench = Bench::new();
    let done = bench.when(&audited(Change::Nothing, None));
    assert_eq!((done.writes.len(), done.outcome), (0, Ok(())));
    let done = bench.when(&audited(Change::Refused, None));
    assert_eq!((done.writes.len(), done.outcome), (0, Err(Error::Rejected("no"))));
}

#[test]
fn chains_of_two_tenants_never_meet() {
    let mut bench = Bench::new();
    for chain in [Some("a"), None, Some("b"), Some("a")] {
        bench.when(&audited(Change::Something, chain)).answer();
    }
    let seqs = |chain| rows(&bench, chain).iter().map(|row| row.seq).collect::<Vec<_>>();
    assert_eq!((seqs(Some("a")), seqs(Some("b")), seqs(None)), (vec![0, 1], vec![0], vec![0]));
    assert_eq!(check(&bench), [None, None, None]);
    let ids: std::collections::BTreeSet<u64> = [None, Some("a"), Some("b")]
        .iter()
        .flat_map(|it| rows(&bench, *it))
        .map(|it| it.id)
        .collect();
    assert_eq!(ids.len(), 4);
}

#[test]
fn a_row_that_was_touched_is_found() {
    let mut bench = Bench::new();
    for _ in 0..3 {
        bench.when(&audited(Change::Something, None)).answer();
    }
    let key = keys::audit_row(&None, 1);
    let mut value = bench.reader().get(&key).unwrap().unwrap().to_vec();
    *value.last_mut().unwrap() ^= 1;
    bench.given(vec![(key, value.into())]);
    assert_eq!(check(&bench), [Some(ChainBreak::Changed { seq: 1 })]);
}

/// Removes a key.
struct Remove(bytes::Bytes);

impl Command<App> for Remove {
    type Answer = ();
    type Rejection = Never;

    fn decide(&self, txn: &mut Txn<'_>) -> Decision<(), Never> {
        txn.remove(&self.0);
        Ok(Ok(()))
    }
}

#[test]
fn a_tail_or_a_head_that_is_gone_is_found() {
    let mut bench = Bench::new();
    for _ in 0..3 {
        bench.when(&audited(Change::Something, Some("acme"))).answer();
    }
    let acme = Some(Tenant::parse("acme").unwrap());
    bench.when(&Remove(keys::audit_row(&acme, 2))).answer();
    assert_eq!(check(&bench), [Some(ChainBreak::Missing { seq: 2 })]);
    bench.when(&Remove(keys::audit_head(&acme))).answer();
    assert_eq!(check(&bench), [Some(ChainBreak::Extra { seq: 0 })]);
}

#[test]
fn old_rows_go_from_the_beginning_in_slices_and_the_chain_stays_whole() {
    let mut bench = Bench::new();
    for at in 0..600_u64 {
        bench.now = Millis(10_000 + at);
        bench.when(&audited(Change::Something, None)).answer();
    }
    let trim = TrimAudit { chain: None, cutoff: Millis(10_500) };
    let mut slices = Vec::new();
    loop {
        match bench.when(&trim).answer() {
            0 => break,
            forgotten => slices.push(forgotten),
        }
        assert_eq!(check(&bench), [None]);
    }
    assert!(slices.len() > 1 && slices.iter().sum::<u64>() == 500, "{slices:?}");
    assert_eq!(rows(&bench, None).first().map(|row| row.seq), Some(500));
    let all = TrimAudit { chain: None, cutoff: Millis::NEVER };
    while bench.when(&all).answer() > 0 {}
    assert_eq!((rows(&bench, None).len(), head(&bench, None).next), (0, 600));
    bench.when(&audited(Change::Something, None)).answer();
    assert_eq!(rows(&bench, None).first().map(|row| row.seq), Some(600));
    assert_eq!(check(&bench), [None]);
}
