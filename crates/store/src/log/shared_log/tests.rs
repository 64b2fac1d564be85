//! Each promise of the doors, held against the shared log.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;

fn id(number: u64) -> BatchId {
    BatchId { writer: 7, number }
}

fn commit(writer: &mut SharedLogWriter, number: u64) -> Result<u64, CommitError> {
    writer.commit(id(number), &payload(number))
}

fn payload(number: u64) -> Bytes {
    Bytes::from(vec![1; usize::try_from(number).unwrap()])
}

/// The numbers of the batches in the log after a sequence.
fn numbers(log: &SharedLog, after: u64) -> Vec<u64> {
    let mut feed = log.feed(after);
    let batches = std::iter::from_fn(|| feed.next_batch().unwrap());
    batches.map(|batch| batch.id.unwrap().number).collect()
}

#[test]
fn batches_are_read_in_the_order_in_which_they_were_committed() {
    let log = SharedLog::default();
    let mut early = log.feed(0);
    assert_eq!(early.next_batch().unwrap(), None);
    let mut writer = log.writer();
    assert_eq!(writer.last_sequence(), 0);
    for number in 1..=3 {
        assert_eq!(commit(&mut writer, number).unwrap(), number);
    }
    assert_eq!((writer.last_sequence(), log.writer().last_sequence()), (3, 3));
    let first = FeedBatch { sequence: 1, id: Some(id(1)), payload: payload(1) };
    assert_eq!(early.next_batch().unwrap(), Some(first));
    assert_eq!(
        (numbers(&log, 0), numbers(&log, 2), numbers(&log, 3)),
        (vec![1, 2, 3], vec![3], vec![])
    );
}

#[test]
fn a_newer_writer_deposes_the_older_one() {
    let log = SharedLog::default();
    let mut old = log.writer();
    commit(&mut old, 1).unwrap();
    let mut new = log.writer();
    assert!(new.term() > old.term());
    assert!(matches!(commit(&mut old, 2), Err(CommitError::Deposed)));
    assert!(matches!(old.release(1), Err(CommitError::Deposed)));
    assert_eq!(commit(&mut new, 3).unwrap(), 2);
    assert!(matches!(commit(&mut old, 2), Err(CommitError::Deposed)), "for good");
    assert_eq!(numbers(&log, 0), [1, 3], "nothing of it was kept");
}

#[test]
fn a_batch_whose_answer_was_lost_is_in_the_log_once() {
    let log = SharedLog::default();
    let mut writer = log.writer();
    commit(&mut writer, 1).unwrap();
    log.lose_next_answer();
    assert!(commit(&mut writer, 2).unwrap_err().is_ambiguous());
    assert_eq!(numbers(&log, 0), [1, 2]);
    log.lose_next_answer();
    assert!(commit(&mut writer, 2).unwrap_err().is_ambiguous(), "the second answer, too");
    assert_eq!(commit(&mut writer, 2).unwrap(), 2);
    assert_eq!((numbers(&log, 0), writer.last_sequence()), (vec![1, 2], 2));
}

#[test]
fn a_batch_that_was_lost_is_committed_by_asking_again() {
    let log = SharedLog::default();
    let mut writer = log.writer();
    log.lose_next_batch();
    assert!(commit(&mut writer, 1).unwrap_err().is_ambiguous());
    assert_eq!(numbers(&log, 0), []);
    assert_eq!(commit(&mut writer, 1).unwrap(), 1);
}

#[test]
fn a_deposed_writer_learns_the_truth_about_its_last_batch() {
    for is_in in [true, false] {
        let log = SharedLog::default();
        let mut old = log.writer();
        if is_in {
            log.lose_next_answer()
        } else {
            log.lose_next_batch()
        }
        assert!(commit(&mut old, 1).unwrap_err().is_ambiguous());
        let mut new = log.writer();
        let before = new.last_sequence();
        assert_eq!(commit(&mut new, 2).unwrap(), before + 1);
        match commit(&mut old, 1) {
            Ok(sequence) => assert!(is_in && sequence == 1),
            Err(CommitError::Deposed) => assert!(!is_in),
            Err(error) => panic!("{error}"),
        }
        assert!(matches!(commit(&mut old, 3), Err(CommitError::Deposed)));
    }
}

#[test]
fn what_is_too_large_or_finds_no_room_is_refused_and_the_log_goes_on() {
    let log = SharedLog::default();
    let mut writer = log.writer();
    log.set_batch_bytes_max(5);
    assert_eq!(writer.batch_bytes_max(), 5);
    assert!(matches!(commit(&mut writer, 6), Err(CommitError::TooLarge { bytes: 6, max: 5 })));
    log.set_full(true);
    assert!(matches!(commit(&mut writer, 5), Err(CommitError::NoSpace)));
    log.set_full(false);
    assert_eq!(commit(&mut writer, 5).unwrap(), 1);
    assert_eq!((numbers(&log, 0), writer.bytes()), (vec![5], 5));
}

#[test]
fn what_was_released_is_gone_and_who_needs_it_is_told() {
    let log = SharedLog::default();
    let mut writer = log.writer();
    for number in 1..=4 {
        commit(&mut writer, number).unwrap();
    }
    let (mut slow, mut fast) = (log.feed(1), log.feed(2));
    writer.release(2).unwrap();
    writer.idle().unwrap();
    assert!(matches!(slow.next_batch(), Err(FeedError::Released { wanted: 2, oldest: 3 })));
    assert_eq!(fast.next_batch().unwrap().unwrap().sequence, 3);
    writer.release(99).unwrap();
    assert_eq!((writer.bytes(), log.writer().last_sequence()), (0, 4));
    assert_eq!(commit(&mut log.writer(), 5).unwrap(), 5, "sequences go on");
}

#[test]
fn a_feed_says_when_there_is_more() {
    let log = SharedLog::default();
    let mut writer = log.writer();
    let mut feed = log.feed(0);
    let woken = Arc::new(AtomicUsize::new(0));
    let count = woken.clone();
    feed.wake_by(Arc::new(move || {
        count.fetch_add(1, Ordering::Relaxed);
    }));
    commit(&mut writer, 1).unwrap();
    assert_eq!(woken.load(Ordering::Relaxed), 1);
    assert!(feed.next_batch().unwrap().is_some());
    log.lose_next_answer();
    commit(&mut writer, 2).unwrap_err();
    assert_eq!(woken.load(Ordering::Relaxed), 2, "the batch is there, whoever knows");
    drop(feed);
    commit(&mut writer, 3).unwrap();
    assert_eq!(woken.load(Ordering::Relaxed), 2);
}
