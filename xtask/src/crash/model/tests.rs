//! A judge that lets something pass is worse than none: every kind of broken promise is noticed.

use super::*;

/// Settled 1, 2; acknowledged 3 and 4 in the order of their offsets; 5 and 6 without an answer.
fn log() -> Log {
    let mut log = Log { settled: vec![1, 2], ..Log::default() };
    for id in [3, 4, 5, 6, 7] {
        log.asked(id);
    }
    log.acknowledged(4, "0020".to_owned());
    log.acknowledged(3, "0010".to_owned());
    log.refused(7);
    log
}

fn check(mut log: Log, observed: &[AppendId], expected: Result<(), &str>) {
    match (log.settle(observed.to_vec(), "0099".to_owned()), expected) {
        (Ok(()), Ok(())) => assert_eq!(log.settled, observed),
        (Err(broken), Err(expected)) => assert!(broken.contains(expected), "{broken}"),
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
    shown.shown(vec![5, 3], 0).unwrap();
    check(shown, &[1, 2, 3, 4], Err("a reader was shown something else"));

    let mut shown = log();
    shown.shown(vec![5, 3], 0).unwrap();
    shown.shown(vec![5], 0).unwrap();
    assert!(shown.shown(vec![3], 0).unwrap_err().contains("two reads"));
    check(shown, &[1, 2, 5, 3, 4], Ok(()));
}

#[test]
fn a_read_shows_what_was_acknowledged_before_it() {
    let mut log = log();
    assert_eq!(log.acknowledged_now(), 2);
    assert!(log.shown(vec![4], 2).unwrap_err().contains("3 was acknowledged"));
    log.shown(vec![3, 4], 2).unwrap();
}

fn stream(life: Life, closed: Closed) -> Stream {
    let mut stream = Stream::absent("/s".to_owned(), Kind::Json);
    stream.life = life;
    stream.closed = closed;
    stream.log.asked(1);
    stream.log.acknowledged(1, "0010".to_owned());
    stream.log.asked(2);
    stream
}

fn observed(appends: &[AppendId], closed: bool) -> Option<Observed> {
    let appends = appends.to_vec();
    Some(Observed { kind: Kind::Json, appends, end: "0099".to_owned(), closed })
}

#[test]
fn a_stream_lives_if_it_was_promised() {
    let gone = |life| stream(life, Closed::No).settle(None);
    assert!(gone(Life::Present).unwrap_err().contains("is gone"));
    for life in [Life::Absent, Life::Creating, Life::Deleting] {
        gone(life).unwrap();
    }
    let there = |life| stream(life, Closed::No).settle(observed(&[1], false));
    assert!(there(Life::Absent).unwrap_err().contains("is there"));
    for life in [Life::Present, Life::Creating, Life::Deleting] {
        there(life).unwrap();
    }
}

#[test]
fn a_stream_is_closed_if_it_was_promised() {
    let settle = |closed, appends: &[AppendId], is_closed| {
        stream(Life::Present, closed).settle(observed(appends, is_closed))
    };
    settle(Closed::No, &[1], false).unwrap();
    assert!(settle(Closed::No, &[1], true).unwrap_err().contains("nobody asked"));
    let yes = |end: &str| Closed::Yes(end.to_owned());
    settle(yes("0099"), &[1], true).unwrap();
    assert!(settle(yes("0098"), &[1], true).unwrap_err().contains("closed at 0098"));
    assert!(settle(yes("0099"), &[1], false).unwrap_err().contains("open again"));
    settle(Closed::Asked(None), &[1], true).unwrap();
    settle(Closed::Asked(None), &[1], false).unwrap();
    // The closing append and the close are one.
    settle(Closed::Asked(Some(2)), &[1, 2], true).unwrap();
    settle(Closed::Asked(Some(2)), &[1], false).unwrap();
    assert!(settle(Closed::Asked(Some(2)), &[1], true).unwrap_err().contains("does not end"));
    assert!(settle(Closed::Asked(Some(2)), &[1, 2], false).unwrap_err().contains("is open"));
}
