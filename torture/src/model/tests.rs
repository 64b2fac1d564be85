//! A judge that lets something pass is worse than none: every kind of broken promise is noticed.

use std::sync::Arc;

use super::*;
use crate::tenants::Tenant;

/// Settled 1, 2; acknowledged 3 and 4 in the order of their offsets; 5 and 6 without an answer.
fn log() -> Log {
    let mut log = Log { settled: vec![1, 2], ..Log::default() };
    for id in [3, 4, 5, 6, 7] {
        log.requested(id);
    }
    log.acknowledged(4, "0020".to_owned());
    log.acknowledged(3, "0010".to_owned());
    log.refused(7);
    log
}

fn check(mut log: Log, observed: &[AppendId], expected: Result<(), &str>) {
    match (log.settle(observed.to_vec(), "0099".to_owned()), expected) {
        (Ok(()), Ok(())) => assert_eq!(log.settled, observed),
        (Err(violation), Err(expected)) => assert!(violation.contains(expected), "{violation}"),
        (settled, expected) => panic!("{observed:?}: {settled:?} instead of {expected:?}"),
    }
}

#[test]
fn unanswered_appends_may_be_there_or_not() {
    for observed in [&[1, 2, 3, 4][..], &[1, 2, 5, 3, 4], &[1, 2, 3, 6, 4, 5], &[1, 2, 5, 6, 3, 4]]
    {
        check(log(), observed, Ok(()));
    }
}

#[test]
fn broken_promises_are_noticed() {
    check(log(), &[1, 2, 3], Err("4 was acknowledged and is lost"));
    check(log(), &[1, 2], Err("3 was acknowledged and is lost"));
    check(log(), &[1, 2, 4, 3], Err("append 4 where acknowledged 3"));
    check(log(), &[1, 2, 3, 3, 4], Err("append 3 where acknowledged 4"));
    check(log(), &[1, 2, 3, 4, 4], Err("4 is there twice"));
    check(log(), &[1, 2, 3, 4, 5, 5], Err("5 is there twice"));
    check(log(), &[1, 2, 3, 4, 7], Err("7 is there twice, or was refused"));
    check(log(), &[1, 2, 3, 4, 99], Err("63 is there twice, or was refused"));
    check(log(), &[1, 3, 4], Err("position 1 there was append 2, now there is append 3"));
    check(log(), &[1], Err("position 1 there was append 2, now there is nothing"));
    check(log(), &[], Err("position 0"));
    check(log(), &[2, 1, 3, 4], Err("position 0"));
}

#[test]
fn two_appends_cannot_share_an_offset() {
    let mut log = log();
    log.acknowledged(8, "0020".to_owned());
    check(log, &[1, 2, 3, 4, 8], Err("offset 0020 of another"));
}

#[test]
fn what_is_settled_stays() {
    let mut log = log();
    log.settle(vec![1, 2, 3, 4, 5], "0030".to_owned()).unwrap();
    // 6 was not there after the restart, so it must not appear later.
    check(log, &[1, 2, 3, 4, 5, 6], Err("6 is there twice, or was refused"));
}

#[test]
fn offsets_stay() {
    let mut log = log();
    log.settle(vec![1, 2, 3, 4], "0098".to_owned()).unwrap();
    check(log, &[1, 2, 3, 4], Err("ended at 0098, now at 0099"));
}

#[test]
fn what_a_reader_was_shown_survives() {
    let mut shown = log();
    shown.record_read(vec![5, 3], 0).unwrap();
    check(shown, &[1, 2, 3, 4], Err("a reader was shown something else"));

    let mut shown = log();
    shown.record_read(vec![5, 3], 0).unwrap();
    shown.record_read(vec![5], 0).unwrap();
    assert!(shown.record_read(vec![3], 0).unwrap_err().contains("two reads"));
    check(shown, &[1, 2, 5, 3, 4], Ok(()));
}

#[test]
fn a_read_shows_what_was_acknowledged_before_it() {
    let mut log = log();
    assert_eq!(log.acknowledged_now(), 2);
    assert!(log.record_read(vec![4], 2).unwrap_err().contains("3 was acknowledged"));
    log.record_read(vec![3, 4], 2).unwrap();
}

fn stream(lifecycle: Lifecycle, closed: CloseState) -> Stream {
    let path = TenantPath { tenant: Arc::new(Tenant::unnamed()), path: "/s".to_owned() };
    let mut stream = Stream::absent(path, MessageFormat::Json);
    stream.lifecycle = lifecycle;
    stream.close_state = closed;
    stream.log.requested(1);
    stream.log.acknowledged(1, "0010".to_owned());
    stream.log.requested(2);
    stream
}

fn observed(appends: &[AppendId], is_closed: bool) -> Option<StreamRead> {
    let appends = appends.to_vec();
    Some(StreamRead { kind: MessageFormat::Json, appends, end: "0099".to_owned(), is_closed })
}

#[test]
fn a_stream_lives_if_it_was_promised() {
    let gone = |lifecycle| stream(lifecycle, CloseState::Open).settle(None);
    assert!(gone(Lifecycle::Present).unwrap_err().contains("is gone"));
    for lifecycle in [Lifecycle::Absent, Lifecycle::Creating, Lifecycle::Deleting] {
        gone(lifecycle).unwrap();
    }
    let there = |lifecycle| stream(lifecycle, CloseState::Open).settle(observed(&[1], false));
    assert!(there(Lifecycle::Absent).unwrap_err().contains("is there"));
    for lifecycle in [Lifecycle::Present, Lifecycle::Creating, Lifecycle::Deleting] {
        there(lifecycle).unwrap();
    }
}

#[test]
fn a_stream_is_closed_if_it_was_promised() {
    let settle = |closed, appends: &[AppendId], is_closed| {
        stream(Lifecycle::Present, closed).settle(observed(appends, is_closed))
    };
    settle(CloseState::Open, &[1], false).unwrap();
    assert!(settle(CloseState::Open, &[1], true).unwrap_err().contains("nobody asked"));
    let yes = |end: &str| CloseState::Closed(end.to_owned());
    settle(yes("0099"), &[1], true).unwrap();
    assert!(settle(yes("0098"), &[1], true).unwrap_err().contains("closed at 0098"));
    assert!(settle(yes("0099"), &[1], false).unwrap_err().contains("open again"));
    settle(CloseState::Requested(None), &[1], true).unwrap();
    settle(CloseState::Requested(None), &[1], false).unwrap();
    // The closing append and the close are one.
    settle(CloseState::Requested(Some(2)), &[1, 2], true).unwrap();
    settle(CloseState::Requested(Some(2)), &[1], false).unwrap();
    assert!(
        settle(CloseState::Requested(Some(2)), &[1], true).unwrap_err().contains("does not end")
    );
    assert!(
        settle(CloseState::Requested(Some(2)), &[1, 2], false).unwrap_err().contains("is open")
    );
}
