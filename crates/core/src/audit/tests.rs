//! A chain that is whole is found whole, and every other is not.

use super::*;

/// A chain of these rows, each with its hash.
fn chain(rows: &[&'static str]) -> (ChainHead, Vec<(u64, &'static str, ChainHash)>) {
    let mut head = ChainHead::default();
    let mut all = Vec::new();
    for row in rows {
        let seq = head.next;
        head = head.appended(Millis(seq), row.as_bytes());
        all.push((seq, *row, head.hash));
    }
    (head, all)
}

fn check(head: ChainHead, rows: &[(u64, &str, ChainHash)]) -> Result<(), ChainBreak> {
    let mut check = ChainCheck::new(head);
    for (seq, row, hash) in rows {
        check.row(*seq, row.as_bytes(), *hash)?;
    }
    check.end()
}

#[test]
fn a_chain_as_it_was_written_is_whole() {
    for count in 0..5 {
        let (head, rows) = chain(&["a", "b", "c", "d"][..count]);
        assert_eq!(check(head, &rows), Ok(()));
        assert_eq!(head.rows(), rows.len() as u64);
    }
}

#[test]
fn a_row_that_was_changed_removed_added_or_moved_is_named() {
    let (head, rows) = chain(&["a", "b", "c", "d"]);
    let mut changed = rows.clone();
    changed[1].1 = "B";
    assert_eq!(check(head, &changed), Err(ChainBreak::Changed { seq: 1 }));
    // Whoever changes a row and its hash is betrayed by the next one.
    changed[1].2 = rows[0].2.follow(b"B");
    assert_eq!(check(head, &changed), Err(ChainBreak::Changed { seq: 2 }));
    let mut removed = rows.clone();
    removed.remove(2);
    assert_eq!(check(head, &removed), Err(ChainBreak::Missing { seq: 2 }));
    let mut moved = rows.clone();
    moved.swap(1, 2);
    (moved[1].0, moved[2].0) = (1, 2);
    assert_eq!(check(head, &moved), Err(ChainBreak::Changed { seq: 1 }));
    let mut twice = rows.clone();
    twice.insert(1, twice[1]);
    assert_eq!(check(head, &twice), Err(ChainBreak::Extra { seq: 1 }));
}

#[test]
fn a_tail_that_was_cut_off_or_put_on_is_noticed() {
    let (head, rows) = chain(&["a", "b", "c"]);
    assert_eq!(check(head, &rows[..2]), Err(ChainBreak::Missing { seq: 2 }));
    assert_eq!(check(head, &[]), Err(ChainBreak::Missing { seq: 0 }));
    let (_, longer) = chain(&["a", "b", "c", "d"]);
    assert_eq!(check(head, &longer), Err(ChainBreak::Extra { seq: 3 }));
    // The last row and its hash made anew: only the head knows.
    let mut last = rows.clone();
    last[2] = (2, "C", rows[1].2.follow(b"C"));
    assert_eq!(check(head, &last), Err(ChainBreak::Head));
    assert_eq!(check(ChainHead::default(), &rows), Err(ChainBreak::Extra { seq: 0 }));
}

#[test]
fn a_chain_without_its_beginning_follows_its_anchor() {
    let (head, rows) = chain(&["a", "b", "c", "d"]);
    let trimmed = head.trimmed(2, rows[1].2);
    assert_eq!(check(trimmed, &rows[2..]), Ok(()));
    assert_eq!(check(trimmed, &rows[3..]), Err(ChainBreak::Missing { seq: 2 }));
    let wrong = head.trimmed(2, rows[0].2);
    assert_eq!(check(wrong, &rows[2..]), Err(ChainBreak::Changed { seq: 2 }));
    // Nothing is left but the hash, which the next row follows.
    let empty = head.trimmed(4, head.hash);
    assert_eq!(check(empty, &[]), Ok(()));
    let more = empty.appended(Millis(9), b"e");
    assert_eq!(check(more, &[(4, "e", head.hash.follow(b"e"))]), Ok(()));
}

#[test]
fn what_is_too_long_is_cut_and_a_diff_left_out() {
    let long: Arc<str> = "é".repeat(10_000).into();
    let actor = Actor { name: LOCAL.into(), request_id: Some(long.clone()), ..Actor::server() };
    let mut entry = AuditEntry::new(actor, action::HOOK_UPDATED, None, long.clone());
    entry.diff = Some(long.clone());
    entry.reason = Some(long);
    let short = entry.within_limits();
    assert_eq!(short.subject.len(), AUDIT_SUBJECT_BYTES_MAX);
    assert_eq!(short.reason.as_ref().map(|it| it.len()), Some(AUDIT_REASON_BYTES_MAX));
    let request_id = short.actor.request_id.as_ref();
    assert_eq!(request_id.map(|it| it.len()), Some(AUDIT_REQUEST_ID_BYTES_MAX));
    assert_eq!((short.diff.as_ref(), &short.action), (None, &entry.action));
    assert_eq!(short.within_limits(), short);
}
