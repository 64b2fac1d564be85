//! What the log does while nothing crashes.

use super::*;
use crate::disk::SimDisk;
use crate::log::{Feed as _, FeedError};

const SMALL: Config = Config { segment_bytes: 8192, sync: true };
const UNSYNCED: Config = Config { segment_bytes: 8192, sync: false };

fn salts(mut salt: u64) -> Salt {
    Box::new(move || {
        salt = salt.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        salt ^ (salt >> 31)
    })
}

type Records = Vec<(u64, Vec<u8>)>;

fn try_open(
    disk: &SimDisk,
    config: &Config,
    after: u64,
) -> Result<(SegmentLog, RecoveryReport, Records), OpenError> {
    let salt = salts(disk.operations());
    let mut records = Records::new();
    let mut recovery = SegmentLog::open(Arc::new(disk.clone()), config.clone(), salt, after)?;
    while let Some(record) = recovery.next_record()? {
        records.push((record.sequence, record.payload.to_vec()));
    }
    let (log, recovered) = recovery.finish()?;
    Ok((log, recovered, records))
}

fn open(disk: &SimDisk, config: &Config, after: u64) -> (SegmentLog, RecoveryReport, Records) {
    try_open(disk, config, after).unwrap()
}

fn refused(disk: &SimDisk, config: &Config, after: u64) -> OpenError {
    try_open(disk, config, after).err().unwrap()
}

fn segments(disk: &SimDisk) -> Vec<String> {
    disk.list().unwrap().into_iter().filter(|name| name.ends_with(".seg")).collect()
}

#[test]
fn records_come_back_in_order() {
    let disk = SimDisk::new(1);
    let (mut log, recovered, records) = open(&disk, &SMALL, 0);
    assert_eq!((recovered, records, log.next_seq()), (RecoveryReport::default(), vec![], 1));
    assert_eq!(log.commit(&[b"one"]).unwrap(), 1);
    assert_eq!(log.commit(&[]).unwrap(), 2);
    assert_eq!(log.commit(&[b"thr", b"", b"ee"]).unwrap(), 3);

    let (log, recovered, records) = open(&disk, &SMALL, 0);
    assert_eq!(records, [(1, b"one".to_vec()), (2, vec![]), (3, b"three".to_vec())]);
    assert_eq!((recovered.records, recovered.bytes, recovered.last_seq), (3, 8, 3));
    assert_eq!((recovered.torn, log.next_seq()), (None, 4));
    let (_, recovered, records) = open(&disk, &SMALL, 2);
    assert_eq!((records, recovered.records), (vec![(3, b"three".to_vec())], 1));
}

#[test]
fn the_largest_record_fills_a_segment_and_a_larger_one_is_refused() {
    let disk = SimDisk::new(1);
    let (mut log, ..) = open(&disk, &SMALL, 0);
    let max = log.max_record();
    let large = vec![7; max as usize];
    log.commit(&[b"x"]).unwrap();
    log.commit(&[&large]).unwrap();
    let error = log.commit(&[&large, b"x"]).unwrap_err();
    assert!(
        matches!(error, CommitError::TooLarge { bytes, max: m } if bytes == max + 1 && m == max)
    );
    log.commit(&[b"y"]).unwrap();
    log.seal().unwrap();
    assert_eq!(log.bytes(), 3 * SMALL.segment_bytes);
    let (_, _, records) = open(&disk, &SMALL, 0);
    assert_eq!(records, [(1, b"x".to_vec()), (2, large), (3, b"y".to_vec())]);
}

#[test]
fn trimming_keeps_what_is_needed_and_makes_spares() {
    let disk = SimDisk::new(1);
    let (mut log, ..) = open(&disk, &SMALL, 0);
    for _ in 0..10 {
        log.commit(&[&[1; 3000]]).unwrap();
    }
    assert_eq!(segments(&disk).len(), 10);
    log.trim(0).unwrap();
    assert_eq!(segments(&disk).len(), 10);
    log.trim(7).unwrap();
    assert_eq!(
        segments(&disk),
        ["0000000000000008.seg", "0000000000000009.seg", "000000000000000a.seg"]
    );
    assert_eq!(disk.list().unwrap().len(), 3 + 4, "no more spares than wanted");
    log.trim(u64::MAX).unwrap();
    assert_eq!((segments(&disk).len(), log.bytes()), (1, SMALL.segment_bytes));

    // A recycled segment is full of old records, and none of them is seen again.
    log.commit(&[&[2; 3000]]).unwrap();
    log.commit(&[b"end"]).unwrap();
    let (_, recovered, records) = open(&disk, &SMALL, 9);
    assert_eq!(records.iter().map(|(seq, _)| *seq).collect::<Vec<_>>(), [10, 11, 12]);
    assert_eq!(recovered.torn, None);
}

#[test]
fn the_pool_makes_one_spare_and_rotation_takes_it() {
    let disk = SimDisk::new(1);
    let (mut log, ..) = open(&disk, &SMALL, 0);
    let spares = log.spares();
    assert!(spares.fill(|| {}).unwrap());
    assert!(!spares.fill(|| {}).unwrap(), "one is enough");
    log.commit(&[&[1; 3000]]).unwrap();
    let before = disk.operations();
    log.commit(&[&[1; 3000]]).unwrap();
    // Header, sync, rename, sync of the directory, mark; then the record and its sync.
    assert_eq!(disk.operations() - before, 7);
    assert_eq!(disk.list().unwrap().len(), 2);
    // Somebody who needs space may remove a spare by hand.
    spares.fill(|| {}).unwrap();
    let spare = disk.list().unwrap().into_iter().find(|name| name.starts_with("spare-")).unwrap();
    disk.remove(&spare).unwrap();
    log.commit(&[&[1; 3000]]).unwrap();
}

#[test]
fn the_length_of_segments_may_change() {
    let disk = SimDisk::new(1);
    let (mut log, ..) = open(&disk, &SMALL, 0);
    log.commit(&[&[1; 3000]]).unwrap();
    log.spares().fill(|| {}).unwrap();
    let larger = Config { segment_bytes: 16384, sync: true };
    let (mut log, ..) = open(&disk, &larger, 0);
    assert_eq!(disk.list().unwrap().len(), 1, "a spare of the old length is of no use");
    log.commit(&[&[2; 10_000]]).unwrap();
    assert_eq!(log.bytes(), 8192 + 16384);
    log.trim(1).unwrap();
    assert_eq!(disk.list().unwrap(), ["0000000000000002.seg"]);
    let (_, _, records) = open(&disk, &larger, 1);
    assert_eq!(records, [(2, vec![2; 10_000])]);
}

#[test]
fn a_change_of_mode_begins_a_segment() {
    let disk = SimDisk::new(1);
    for (round, config) in [SMALL, UNSYNCED, SMALL].iter().enumerate() {
        let (mut log, _, records) = open(&disk, config, 0);
        assert_eq!(records.len(), 2 * round);
        log.seal().unwrap();
        log.commit(&[b"a"]).unwrap();
        log.commit(&[b"b"]).unwrap();
        log.seal().unwrap();
        assert_eq!(segments(&disk).len(), round + 1);
    }
    assert_eq!(open(&disk, &SMALL, 0).2.len(), 6);
}

#[test]
fn a_table_ahead_of_an_unsynced_log_begins_a_segment() {
    let disk = SimDisk::new(1);
    let (mut log, ..) = open(&disk, &UNSYNCED, 0);
    log.commit(&[b"a"]).unwrap();
    let (mut log, recovered, records) = open(&disk, &UNSYNCED, 9);
    assert_eq!((recovered.last_seq, records), (1, vec![]));
    assert_eq!(log.commit(&[b"j"]).unwrap(), 10);
    log.trim(9).unwrap();
    let (log, _, records) = open(&disk, &UNSYNCED, 9);
    assert_eq!((log.next_seq(), records), (11, vec![(10, b"j".to_vec())]));
}

#[test]
fn a_table_ahead_of_a_synced_or_empty_log_is_refused() {
    let disk = SimDisk::new(1);
    let error = refused(&disk, &SMALL, 9);
    assert!(matches!(error, OpenError::Empty { after: 9 }), "{error}");
    assert_eq!(disk.operations(), 0, "nothing was changed");
    let (mut log, ..) = open(&disk, &SMALL, 0);
    log.commit(&[b"a"]).unwrap();
    let error = refused(&disk, &SMALL, 2);
    assert!(matches!(error, OpenError::Behind { last: 1, after: 2, .. }), "{error}");
}

#[test]
fn a_log_may_begin_where_a_restored_table_ends() {
    let disk = SimDisk::new(1);
    let mut log = SegmentLog::create(Arc::new(disk.clone()), SMALL, salts(1), 41).unwrap();
    assert_eq!(log.commit(&[b"x"]).unwrap(), 42);
    assert_eq!(open(&disk, &SMALL, 41).2, [(42, b"x".to_vec())]);
    let error = refused(&disk, &SMALL, 40);
    assert!(matches!(error, OpenError::Gap { have: 42, want: 41, .. }), "{error}");
    assert!(SegmentLog::create(Arc::new(disk), SMALL, salts(1), 41).is_err(), "there is a log");
}

#[test]
fn a_lost_newest_segment_is_missed() {
    let disk = SimDisk::new(1);
    let (mut log, ..) = open(&disk, &SMALL, 0);
    for _ in 0..3 {
        log.commit(&[&[1; 3000]]).unwrap();
    }
    disk.remove("0000000000000003.seg").unwrap();
    let error = refused(&disk, &SMALL, 0);
    assert!(
        matches!(&error, OpenError::Missing { file } if file == "0000000000000003.seg"),
        "{error}"
    );
}

#[test]
fn a_log_that_is_being_opened_is_a_feed() {
    let disk = SimDisk::new(1);
    let (mut log, ..) = open(&disk, &SMALL, 0);
    for payload in [b"a", b"b", b"c"] {
        log.commit(&[payload, &[1; 3000]]).unwrap();
    }
    let open_feed = || SegmentLog::open(Arc::new(disk.clone()), SMALL, salts(1), 1).unwrap();
    let mut feed = open_feed();
    assert_eq!(feed.next_batch().unwrap().unwrap().sequence, 2);
    // Whoever stops reading loses nothing of the log.
    let (log, recovered) = feed.finish().unwrap();
    assert_eq!((log.next_seq(), recovered.records), (4, 2));
    disk.flip_bit("0000000000000002.seg", 4096 + 24, 0);
    let mut feed = open_feed();
    for _ in 0..2 {
        let error = feed.next_batch().unwrap_err();
        assert!(matches!(&error, FeedError::Broken { problem } if problem.contains("damaged")));
    }
    assert!(matches!(feed.finish(), Err(OpenError::Corrupt { .. })));
}

#[test]
fn the_door_does_what_the_log_does() {
    let disk = SimDisk::new(1);
    let (mut log, ..) = open(&disk, &SMALL, 0);
    let max = log.max_record();
    let door: &mut dyn Log = &mut log;
    let mut commit = |bytes: u64| {
        let payload = Bytes::from(vec![1; bytes as usize]);
        door.commit(BatchId { writer: 1, number: bytes }, &payload)
    };
    assert_eq!(commit(max).unwrap(), 1);
    assert!(matches!(commit(max + 1), Err(CommitError::TooLarge { .. })));
    assert_eq!(commit(1).unwrap(), 2);
    assert_eq!((door.batch_bytes_max() as u64, door.last_sequence()), (max, 2));
    assert_eq!(door.bytes(), 2 * SMALL.segment_bytes);
    door.release(1).unwrap();
    assert_eq!(door.bytes(), SMALL.segment_bytes);
    assert!(door.syncer().is_none());
    // There may be no room for the mark.
    disk.fill_next_write();
    door.idle().unwrap();
    assert_eq!(door.commit(BatchId { writer: 1, number: 9 }, &Bytes::new()).unwrap(), 3);
    disk.fail_next_sync();
    let error = door.commit(BatchId { writer: 1, number: 10 }, &Bytes::new()).unwrap_err();
    assert!(error.is_broken(), "{error}");
    assert!(matches!(door.release(3), Err(CommitError::Stopped)));
    assert!(matches!(door.idle(), Err(CommitError::Stopped)));
    let unsynced = open(&SimDisk::new(1), &UNSYNCED, 0).0;
    assert!(Log::syncer(&unsynced).is_some());
}

#[test]
fn a_copy_of_the_log_inside_the_log_is_only_bytes() {
    let disk = SimDisk::new(3);
    let (mut log, ..) = open(&disk, &SMALL, 0);
    log.commit(&[b"a"]).unwrap();
    log.commit(&[b"b"]).unwrap();
    log.seal().unwrap();
    let mut copy = vec![0; 4096 + 256];
    disk.open("0000000000000001.seg").unwrap().read_at(&mut copy, 0).unwrap();
    // At every shift, so that the copied frames lie where frames may lie.
    for shift in 0..16 {
        log.commit(&[&copy[4096 - shift..]]).unwrap();
    }
    log.commit(&[&copy[4096..]]).unwrap();
    let tail = log.active.tail - frame::frame_bytes(256);
    let file = log.active.segment.name();
    // Even if the record that holds the copy is torn.
    disk.flip_bit(&file, tail, 0);
    let (_, recovered, records) = open(&disk, &SMALL, 0);
    assert_eq!((recovered.torn.unwrap().position, records.len()), (tail, 18));
}

#[test]
fn spares_of_a_longer_log_do_no_harm_to_a_restored_one() {
    let disk = SimDisk::new(1);
    let (mut log, ..) = open(&disk, &SMALL, 0);
    for _ in 0..50 {
        log.commit(&[&[1; 300]]).unwrap();
    }
    log.trim(50).unwrap();
    for name in segments(&disk) {
        disk.remove(&name).unwrap();
    }
    let mut log = SegmentLog::create(Arc::new(disk.clone()), SMALL, salts(99), 4).unwrap();
    log.commit(&[&[2; 300]]).unwrap();
    assert_eq!(open(&disk, &SMALL, 4).2, [(5, vec![2; 300])]);
}

#[test]
fn what_lies_behind_the_start_of_the_next_segment_is_ignored() {
    let disk = SimDisk::new(1);
    let (mut log, ..) = open(&disk, &SMALL, 0);
    log.commit(&[&[1; 3000]]).unwrap();
    let (keys, tail) = (log.active.keys, log.active.tail);
    log.commit(&[&[2; 3000]]).unwrap();
    // A full disk cut the first attempt at record 2 short, where nobody can tell, and then took
    // neither zeros nor a mark.
    let mut frame = Vec::new();
    frame::write_record(&mut frame, keys, 2, &[b"refused"]);
    disk.open("0000000000000001.seg").unwrap().write_at(&frame, tail).unwrap();
    assert_eq!(open(&disk, &SMALL, 0).2, [(1, vec![1; 3000]), (2, vec![2; 3000])]);
}

#[test]
fn every_pause_is_sealed() {
    let disk = SimDisk::new(1);
    let (mut log, ..) = open(&disk, &SMALL, 0);
    for seq in 1..4 {
        let position = log.active.tail;
        log.commit(&[b"x"]).unwrap();
        log.seal().unwrap();
        disk.flip_bit("0000000000000001.seg", position + 24, 0);
        let error = refused(&disk, &SMALL, 0);
        assert!(matches!(error, OpenError::Corrupt { expected_seq, .. } if expected_seq == seq));
        disk.flip_bit("0000000000000001.seg", position + 24, 0);
    }
    // The mark is recognized after a restart, and nothing needs to be repaired.
    let before = disk.operations();
    let (mut log, recovered, _) = open(&disk, &SMALL, 0);
    log.seal().unwrap();
    assert_eq!((disk.operations(), recovered.torn), (before, None));
}

#[test]
fn a_spare_that_found_the_disk_full_is_used_later() {
    let disk = SimDisk::new(1);
    let (mut log, ..) = open(&disk, &SMALL, 0);
    log.commit(&[&[1; 3000]]).unwrap();
    log.spares().fill(|| {}).unwrap();
    disk.set_free(0);
    disk.fill_next_write();
    assert!(matches!(log.commit(&[&[1; 3000]]), Err(CommitError::NoSpace)));
    assert_eq!(log.commit(&[&[1; 3000]]).unwrap(), 2);
    assert_eq!(disk.list().unwrap().len(), 2);
}

/// Found by the simulator: one crash leaves a record without its first sector, the next crash the
/// first sector of another record of the same length, and the two together were the first record.
#[test]
fn a_record_that_was_lost_does_not_come_back() {
    let disk = SimDisk::new(1);
    let (mut log, ..) = open(&disk, &SMALL, 0);
    let file = disk.open(&segments(&disk)[0]).unwrap();
    let at = log.active.tail;
    log.commit(&[b"lost"]).unwrap();
    file.write_at(&[0; 16], at).unwrap();

    let (mut log, _, records) = open(&disk, &SMALL, 0);
    assert_eq!(records, []);
    let mut left = [0; 32];
    file.read_at(&mut left, at + 16).unwrap();
    log.commit(&[b"next"]).unwrap();
    file.write_at(&left, at + 16).unwrap();

    let (_, _, records) = open(&disk, &SMALL, 0);
    assert_eq!(records, []);
}
