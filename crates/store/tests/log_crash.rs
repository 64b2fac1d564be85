//! The log on a disk that crashes, fills up and rots: nothing acknowledged is lost or invented.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use std::sync::Arc;

use reveille_store::disk::{Disk, SimDisk};
use reveille_store::log::{CommitError, Config, OpenError, RecoveryReport, Salt, SegmentLog};

const SMALL: Config = Config { segment_bytes: 16384, sync: true };
const UNSYNCED: Config = Config { segment_bytes: 16384, sync: false };

/// SplitMix64, the source of everything random here.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }
}

type Records = Vec<(u64, Vec<u8>)>;

fn open(
    disk: &SimDisk,
    config: &Config,
    after: u64,
) -> Result<(SegmentLog, RecoveryReport, Records), OpenError> {
    let mut random = Random(disk.trace_hash());
    let salt: Salt = Box::new(move || random.below(u64::MAX));
    let mut records = Records::new();
    let mut recovery = SegmentLog::open(Arc::new(disk.clone()), config.clone(), salt, after)?;
    while let Some(record) = recovery.next_record()? {
        records.push((record.sequence, record.payload.to_vec()));
    }
    let (log, recovered) = recovery.finish()?;
    Ok((log, recovered, records))
}

#[derive(Debug, Clone, Copy)]
enum Step {
    Commit(usize),
    Seal,
    /// The table catches up with everything, and the log is trimmed.
    Trim,
    Fill,
    /// The process is killed and started again, the machine goes on.
    Restart,
}

/// A log with what is known of it from outside.
struct Model {
    disk: SimDisk,
    config: Config,
    log: Option<SegmentLog>,
    /// What was acknowledged and the table does not hold.
    acknowledged: Records,
    /// What the table holds.
    after: u64,
    /// The record whose commit was interrupted.
    in_flight: Option<(u64, Vec<u8>)>,
    commits: u64,
}

impl Model {
    fn new(seed: u64, config: Config) -> Model {
        Model {
            disk: SimDisk::new(seed),
            config,
            log: None,
            acknowledged: Records::new(),
            after: 0,
            in_flight: None,
            commits: 0,
        }
    }

    /// Opens the log and compares. `Err` if the disk crashed meanwhile.
    fn reopen(&mut self) -> Result<(), ()> {
        self.log = None;
        let (log, recovered, records) = match open(&self.disk, &self.config, self.after) {
            Ok(opened) => opened,
            Err(OpenError::Io { .. }) => return Err(()),
            Err(error) => panic!("{error}"),
        };
        assert_eq!(recovered.records, records.len() as u64);
        let mut expected = self.acknowledged.clone();
        if records.len() > expected.len() {
            expected.extend(self.in_flight.take());
        }
        if !self.config.sync {
            expected.truncate(records.len());
        }
        assert!(records == expected, "got {}, want {}", summary(&records), summary(&expected));
        let last = expected.last().map_or(self.after, |(seq, _)| *seq);
        assert_eq!(log.next_seq(), last + 1);
        self.acknowledged = expected;
        self.in_flight = None;
        self.log = Some(log);
        Ok(())
    }

    /// `Err` if the disk crashed.
    fn step(&mut self, step: Step) -> Result<(), ()> {
        let Some(log) = &mut self.log else {
            return Err(());
        };
        let done = match step {
            Step::Commit(len) => {
                self.commits += 1;
                let payload = payload(self.commits, len);
                let (left, right) = payload.split_at(len / 2);
                let seq = log.next_seq();
                match log.commit(&[left, right]) {
                    Ok(committed) => {
                        assert_eq!(committed, seq);
                        self.acknowledged.push((seq, payload));
                        Ok(())
                    }
                    Err(error) => {
                        self.in_flight = Some((seq, payload));
                        Err(error)
                    }
                }
            }
            Step::Seal => log.seal(),
            Step::Trim => {
                self.after = self.acknowledged.last().map_or(self.after, |(seq, _)| *seq);
                self.acknowledged.clear();
                log.trim(self.after)
            }
            Step::Fill => return log.spares().fill(|| {}).map(|_| ()).map_err(|_| ()),
            Step::Restart => return self.reopen(),
        };
        match done {
            Ok(()) => Ok(()),
            Err(CommitError::Broken { .. }) => {
                assert!(matches!(log.commit(&[b"x"]), Err(CommitError::Stopped)));
                Err(())
            }
            Err(error) => panic!("{error}"),
        }
    }

    fn run(&mut self, steps: &[Step]) -> Result<(), ()> {
        steps.iter().try_for_each(|step| self.step(*step))
    }
}

fn summary(records: &Records) -> String {
    records.iter().map(|(seq, payload)| format!("{seq}({}) ", payload.len())).collect()
}

/// Bytes that tell one commit from another; some end in zeros, as a fresh segment does.
fn payload(commit: u64, len: usize) -> Vec<u8> {
    let mut random = Random(commit);
    let mut payload: Vec<u8> = (0..len).map(|_| random.below(256) as u8).collect();
    if commit.is_multiple_of(3) {
        let zeros = len / 2;
        payload[len - zeros..].fill(0);
    }
    payload
}

const WORKLOAD: &[Step] = &[
    Step::Commit(10),
    Step::Commit(0),
    Step::Commit(3000),
    Step::Seal,
    Step::Commit(1),
    Step::Fill,
    Step::Commit(7000),
    Step::Commit(2500),
    Step::Seal,
    Step::Seal,
    Step::Commit(6000),
    Step::Commit(9000),
    Step::Trim,
    Step::Commit(4000),
    Step::Commit(488),
    Step::Restart,
    Step::Commit(11_000),
    Step::Commit(700),
    Step::Trim,
    Step::Commit(12_000),
    Step::Commit(5),
    Step::Commit(8000),
    Step::Seal,
    Step::Restart,
    Step::Commit(512),
];

/// A second life: shorter records than the first, so that leftovers would show.
const AFTERWARDS: &[Step] = &[
    Step::Commit(3),
    Step::Commit(600),
    Step::Seal,
    Step::Restart,
    Step::Commit(9000),
    Step::Commit(40),
    Step::Commit(5000),
];

#[test]
fn a_crash_at_any_operation_loses_and_invents_nothing() {
    for seed in 0..30 {
        for k in 1.. {
            let mut model = Model::new(seed * 1_000_003 + k, SMALL);
            model.disk.fail_after(k);
            let finished = model.reopen().and_then(|()| model.run(WORKLOAD)).is_ok();
            model.disk.crash();
            model.reopen().unwrap();
            model.run(AFTERWARDS).unwrap();
            model.disk.crash();
            model.reopen().unwrap();
            if finished {
                assert!(k > 80, "the workload has more operations than {k}");
                break;
            }
        }
    }
}

#[test]
fn without_sync_a_crash_leaves_a_prefix() {
    for seed in 0..500 {
        let mut random = Random(seed);
        let mut model = Model::new(seed, UNSYNCED);
        model.reopen().unwrap();
        // Equal lengths in half of the lives: what a crash cuts off must not continue what is
        // written in its place, though it lies exactly where that goes on.
        let equal = random.below(2) == 0;
        for _ in 0..3 {
            model.disk.fail_after(1 + random.below(60));
            for _ in 0..40 {
                let len = if equal { 700 } else { random.below(3000) as usize };
                if model.step(Step::Commit(len)).is_err() {
                    break;
                }
            }
            model.disk.crash();
            model.reopen().unwrap();
            model.run(&[Step::Commit(700), Step::Restart]).unwrap();
        }
    }
}

#[test]
fn without_sync_a_killed_process_loses_nothing() {
    let mut model = Model::new(5, UNSYNCED);
    model.reopen().unwrap();
    model.run(WORKLOAD).unwrap();
    let acknowledged = model.acknowledged.clone();
    model.reopen().unwrap();
    assert_eq!(model.acknowledged, acknowledged);
}

#[test]
fn without_sync_a_power_cut_may_leave_the_table_ahead() {
    let mut ahead = 0;
    for seed in 0..50 {
        let mut model = Model::new(seed, UNSYNCED);
        model.reopen().unwrap();
        model.run(&[Step::Commit(100); 20]).unwrap();
        model.run(&[Step::Trim]).unwrap();
        model.disk.crash();
        let (mut log, recovered, records) = open(&model.disk, &UNSYNCED, 20).unwrap();
        ahead += u32::from(recovered.last_seq < 20);
        assert_eq!((log.next_seq(), records.len()), (21, 0));
        log.commit(&[b"next"]).unwrap();
        let (.., records) = open(&model.disk, &UNSYNCED, 20).unwrap();
        assert_eq!(records, [(21, b"next".to_vec())]);
    }
    assert!(ahead > 10, "{ahead}");
}

fn random_life(seed: u64) -> u64 {
    let mut random = Random(seed);
    let mut model = Model::new(seed, SMALL);
    let mut crashes = 0;
    while crashes < 6 {
        model.disk.fail_after(1 + random.below(80));
        // Half of the time this crashes again while recovering.
        let mut alive = model.reopen();
        while alive.is_ok() {
            let step = match random.below(20) {
                0 => Step::Trim,
                1 => Step::Fill,
                2 => Step::Restart,
                3..6 => Step::Seal,
                6..12 => Step::Commit(random.below(64) as usize),
                12..17 => Step::Commit(random.below(2000) as usize),
                _ => Step::Commit(random.below(12_000) as usize),
            };
            alive = model.step(step);
        }
        if random.below(2) == 0 {
            model.disk.crash();
            model.disk.fail_after(1 + random.below(6));
            let _ = model.reopen();
        }
        model.disk.crash();
        crashes += 1;
    }
    model.reopen().unwrap();
    model.run(AFTERWARDS).unwrap();
    model.disk.trace_hash()
}

#[test]
fn random_lives_with_crashes_during_recovery() {
    for seed in 0..4000 {
        random_life(seed);
    }
}

#[test]
fn the_same_seed_lives_the_same_life() {
    for seed in 0..20 {
        assert_eq!(random_life(seed), random_life(seed));
    }
    assert_ne!(random_life(1), random_life(2));
}

/// A log of two segments: the disk, the end of the used part of the last, and its last record.
fn flippable(sealed: bool) -> (SimDisk, [(&'static str, u64); 2], u64) {
    let disk = SimDisk::new(1);
    let (mut log, ..) = open(&disk, &SMALL, 0).unwrap();
    let sizes = [100, 4000, 0, 33, 8000, 60, 300];
    let frame = |size: &usize| (24 + *size as u64).next_multiple_of(16);
    for (n, size) in sizes.iter().enumerate() {
        log.commit(&[&payload(n as u64 + 1, *size)]).unwrap();
    }
    if sealed {
        log.seal().unwrap();
    }
    assert_eq!(log.bytes(), 2 * SMALL.segment_bytes);
    let first: u64 = 4096 + sizes[..4].iter().map(frame).sum::<u64>();
    let second: u64 = 4096 + sizes[4..].iter().map(frame).sum::<u64>();
    let files = [("0000000000000001.seg", first), ("0000000000000002.seg", second)];
    (disk, files, second - frame(&300))
}

fn check_flips(sealed: bool) {
    let (disk, files, last_record) = flippable(sealed);
    let mut random = Random(9);
    for (file, used) in files {
        for byte in 0..used {
            let bit = random.below(8) as u8;
            disk.flip_bit(file, byte, bit);
            let before = disk.operations();
            let opened = open(&disk, &SMALL, 0);
            let in_last = file == files[1].0 && byte >= last_record;
            match opened {
                Err(
                    OpenError::Corrupt { file: named, .. } | OpenError::Header { file: named, .. },
                ) => {
                    assert_eq!(named, file, "byte {byte}");
                    assert_eq!(disk.operations(), before, "nothing was changed");
                    disk.flip_bit(file, byte, bit);
                }
                Err(error) => panic!("byte {byte} of {file}: {error}"),
                Ok((_, recovered, records)) => {
                    assert!(!sealed && in_last, "byte {byte} of {file} went unnoticed");
                    assert_eq!(recovered.torn.unwrap().position, last_record);
                    assert_eq!(records.len(), 6);
                    // It was wiped: begin again.
                    let (fresh, ..) = flippable(sealed);
                    copy(&fresh, &disk, file);
                }
            }
        }
    }
    let (_, recovered, records) = open(&disk, &SMALL, 0).unwrap();
    assert_eq!((recovered.torn, records.len()), (None, 7));
}

fn copy(from: &SimDisk, to: &SimDisk, file: &str) {
    let from = from.open(file).unwrap();
    let mut bytes = vec![0; from.len().unwrap() as usize];
    from.read_at(&mut bytes, 0).unwrap();
    to.open(file).unwrap().write_at(&bytes, 0).unwrap();
}

#[test]
fn every_flipped_bit_of_a_sealed_log_is_refused() {
    check_flips(true);
}

#[test]
fn every_flipped_bit_of_an_unsealed_log_is_refused_or_reported() {
    check_flips(false);
}

#[test]
fn a_flipped_bit_in_the_mark_costs_nothing() {
    for byte in 0..24 {
        let (disk, files, _) = flippable(true);
        disk.flip_bit(files[1].0, files[1].1 + byte, 3);
        let (_, recovered, records) = open(&disk, &SMALL, 0).unwrap();
        assert_eq!(records.len(), 7);
        assert_eq!(recovered.torn.unwrap().position, files[1].1);
    }
}

#[test]
fn what_the_table_holds_is_not_read_again() {
    let (disk, files, _) = flippable(true);
    disk.flip_bit(files[0].0, 4096 + 30, 0);
    disk.flip_bit(files[0].0, 8, 0);
    let (mut log, _, records) = open(&disk, &SMALL, 5).unwrap();
    assert_eq!(records.len(), 2);
    log.trim(5).unwrap();
    assert_eq!(log.bytes(), SMALL.segment_bytes);
}

#[test]
fn damage_is_described() {
    let (disk, files, last_record) = flippable(true);
    disk.flip_bit(files[1].0, last_record + 30, 0);
    let error = open(&disk, &SMALL, 0).err().unwrap().to_string();
    assert_eq!(
        error,
        format!(
            "0000000000000002.seg is damaged at byte {last_record}: record 7 should be there, and \
             the end mark before record 8 at byte {} proves that it once was. Nothing was changed. \
             Restore 0000000000000002.seg from a copy, or the whole data directory from a backup",
            files[1].1
        )
    );
}

#[test]
fn a_full_disk_refuses_a_segment_and_goes_on_later() {
    let disk = SimDisk::new(1);
    let (mut log, ..) = open(&disk, &SMALL, 0).unwrap();
    log.commit(&[&[1; 10_000]]).unwrap();
    log.seal().unwrap();
    for free in [0, 1, 5000, 16383] {
        disk.set_free(free);
        assert!(matches!(log.commit(&[&[2; 10_000]]), Err(CommitError::NoSpace)));
        assert!(log.spares().fill(|| {}).is_err());
        assert_eq!((log.next_seq(), log.bytes()), (2, SMALL.segment_bytes));
        assert_eq!(disk.free_bytes().unwrap(), free, "nothing half-made is left");
        let (.., records) = open(&disk, &SMALL, 0).unwrap();
        assert_eq!(records.len(), 1);
    }
    log.commit(&[b"a small one still fits"]).unwrap();
    disk.set_free(1 << 20);
    assert_eq!(log.commit(&[&[2; 10_000]]).unwrap(), 3);
    disk.crash();
    assert_eq!(open(&disk, &SMALL, 0).unwrap().2.len(), 3);
}

#[test]
fn a_record_that_found_the_disk_full_never_comes_back() {
    for seed in 0..200 {
        let mut random = Random(seed);
        let disk = SimDisk::new(seed);
        let (mut log, ..) = open(&disk, &SMALL, 0).unwrap();
        let mut acknowledged = Records::new();
        for n in 1..30 {
            // Mostly zeros: a write that is cut short looks like a whole one.
            let mut payload = vec![0; random.below(3000) as usize];
            payload.extend_from_slice(&[n, 0, 0, 0]);
            payload.extend_from_slice(&vec![0; random.below(3000) as usize]);
            let seq = log.next_seq();
            if random.below(3) == 0 {
                disk.fill_next_write();
            }
            match log.commit(&[&payload]) {
                Ok(_) => acknowledged.push((seq, payload)),
                Err(CommitError::NoSpace) => assert_eq!(log.next_seq(), seq),
                Err(error) => panic!("{error}"),
            }
            if random.below(4) == 0 {
                let (reopened, _, records) = open(&disk, &SMALL, 0).unwrap();
                assert!(
                    records == acknowledged,
                    "{} {}",
                    summary(&records),
                    summary(&acknowledged)
                );
                log = reopened;
            }
        }
        disk.crash();
        let (.., records) = open(&disk, &SMALL, 0).unwrap();
        assert!(records == acknowledged, "{} {}", summary(&records), summary(&acknowledged));
    }
}

#[test]
fn a_failed_sync_is_final() {
    let disk = SimDisk::new(1);
    let (mut log, ..) = open(&disk, &SMALL, 0).unwrap();
    log.commit(&[b"one"]).unwrap();
    disk.fail_next_sync();
    let error = log.commit(&[b"two"]).unwrap_err();
    assert!(error.is_broken() && error.to_string().contains("byte 4128 of"), "{error}");
    assert!(matches!(log.commit(&[b"three"]), Err(CommitError::Stopped)));
    assert!(matches!(log.seal(), Err(CommitError::Stopped)));
    assert!(matches!(log.trim(1), Err(CommitError::Stopped)));

    // The operating system still shows the record. Whoever has seen it must see it again, though
    // its first sync failed: recovery writes it anew.
    let (.., records) = open(&disk, &SMALL, 0).unwrap();
    assert_eq!(records.len(), 2);
    disk.crash();
    assert_eq!(open(&disk, &SMALL, 0).unwrap().2, records);
}

#[test]
fn a_recycled_segment_never_replays_old_records() {
    for seed in 0..100 {
        let mut model = Model::new(seed, SMALL);
        model.reopen().unwrap();
        for round in 0..12 {
            // Equal lengths: the new frames lie exactly where old ones lay.
            model.run(&[Step::Commit(1000); 15]).unwrap();
            model.run(&[Step::Trim, Step::Commit(1000)]).unwrap();
            model.disk.fail_after(1 + (seed + round) % 2);
            let _ = model.step(Step::Commit(1000));
            model.disk.crash();
            model.reopen().unwrap();
        }
        assert!(model.disk.list().unwrap().len() <= 7, "segments are used again");
    }
}

#[test]
fn a_crash_never_leaves_a_segment_with_the_header_of_another() {
    for seed in 0..40 {
        for k in 1..12 {
            let disk = SimDisk::new(seed);
            let (mut log, ..) = open(&disk, &SMALL, 0).unwrap();
            for _ in 0..3 {
                log.commit(&[&[1; 10_000]]).unwrap();
            }
            disk.fail_after(k);
            let _ = log.trim(2).and_then(|()| log.commit(&[&[1; 10_000]]));
            disk.crash();
            // SubscriptionSpec for records that were trimmed, the log says so, or still has them.
            match open(&disk, &SMALL, 0) {
                Ok((.., records)) => assert!(records.len() >= 3),
                Err(OpenError::Gap { want: 1, .. } | OpenError::Missing { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
    }
}

#[test]
fn missing_pieces_are_named() {
    let three = || {
        let disk = SimDisk::new(1);
        let (mut log, ..) = open(&disk, &SMALL, 0).unwrap();
        for _ in 0..3 {
            log.commit(&[&[1; 10_000]]).unwrap();
        }
        disk
    };
    let disk = three();
    disk.remove("0000000000000002.seg").unwrap();
    let error = open(&disk, &SMALL, 0).err().unwrap();
    assert!(matches!(&error, OpenError::Missing { file } if file == "0000000000000002.seg"));

    let disk = three();
    disk.remove("0000000000000001.seg").unwrap();
    let error = open(&disk, &SMALL, 0).err().unwrap();
    assert!(matches!(error, OpenError::Gap { have: 2, want: 1, .. }), "{error}");
    assert_eq!(open(&disk, &SMALL, 1).unwrap().2.len(), 2);

    // A segment under the name of another.
    let disk = three();
    disk.rename("0000000000000002.seg", "0000000000000001.seg").unwrap();
    disk.rename("0000000000000003.seg", "0000000000000002.seg").unwrap();
    let error = open(&disk, &SMALL, 0).err().unwrap();
    assert!(matches!(&error, OpenError::Header { file, .. } if file == "0000000000000002.seg"));
}

/// Of the renames of a trim a crash may keep the later ones alone.
#[test]
fn segments_are_given_up_in_any_order() {
    let mut holes = 0;
    for seed in 0..200 {
        let mut model = Model::new(seed, SMALL);
        model.reopen().unwrap();
        model.run(&[Step::Commit(10_000); 5]).unwrap();
        // Four segments are renamed; the sync of the directory is interrupted.
        model.disk.fail_after(5);
        let _ = model.step(Step::Trim);
        model.disk.crash();
        let mut names = model.disk.list().unwrap();
        names.retain(|name| name.ends_with(".seg"));
        let numbers: Vec<u32> = names.iter().map(|name| name[..16].parse().unwrap()).collect();
        holes += u32::from(numbers.windows(2).any(|pair| pair[1] > pair[0] + 1));
        model.reopen().unwrap();
        model.run(AFTERWARDS).unwrap();
        model.run(&[Step::Trim]).unwrap();
        model.run(AFTERWARDS).unwrap();
    }
    assert!(holes > 20, "{holes}");
}

/// Running out of descriptors is a state to wait in: the commit was not made, the log is as it was
/// and takes the same commit when there is a descriptor again. Only a failed sync ends it.
#[test]
fn without_a_descriptor_for_the_next_segment_the_same_commit_is_made_later() {
    for spare in [false, true] {
        let mut model = Model::new(7, SMALL);
        model.reopen().unwrap();
        model.run(&[Step::Commit(10_000)]).unwrap();
        if spare {
            model.run(&[Step::Fill]).unwrap();
        }
        let files = model.disk.list().unwrap();
        model.disk.exhaust(3);
        for _ in 0..3 {
            let error = model.log.as_mut().unwrap().commit(&[&[7; 9_000]]).unwrap_err();
            assert!(error.is_ambiguous() && error.to_string().contains("spare"), "{error}");
        }
        assert_eq!(model.disk.list().unwrap(), files, "no spare is lost");
        model.run(&[Step::Commit(9_000), Step::Commit(100), Step::Restart]).unwrap();
        // Nobody waits for a spare that is made ahead.
        model.disk.exhaust(1);
        let filled = model.log.as_ref().unwrap().spares().fill(|| {});
        assert!(filled.is_err_and(|error| reveille_store::disk::is_exhausted(&error)));
        model.run(AFTERWARDS).unwrap();
        model.disk.crash();
        model.reopen().unwrap();
    }
}

#[test]
fn a_newer_format_is_named() {
    let disk = SimDisk::new(1);
    let (mut log, ..) = open(&disk, &SMALL, 0).unwrap();
    log.commit(&[b"x"]).unwrap();
    let name = "0000000000000001.seg";
    let file = disk.open(name).unwrap();
    let mut block = vec![0; 4096];
    file.read_at(&mut block, 0).unwrap();
    block[8] = 2;
    let crc = crc32c::crc32c(&block[..4092]);
    block[4092..].copy_from_slice(&crc.to_le_bytes());
    file.write_at(&block, 0).unwrap();
    let error = open(&disk, &SMALL, 0).err().unwrap();
    assert!(matches!(error, OpenError::NewerFormat { version: 2, known: 1, .. }), "{error}");
}
