//! What the simulated disk promises to those who test with it.

use super::*;

fn read(disk: &SimDisk, name: &str) -> Vec<u8> {
    let file = disk.open(name).unwrap();
    let mut bytes = vec![0; file.len().unwrap() as usize];
    file.read_at(&mut bytes, 0).unwrap();
    bytes
}

/// A disk with one durable file of four sectors of ones.
fn prepared(seed: u64) -> (SimDisk, Arc<dyn DiskFile>) {
    let disk = SimDisk::new(seed);
    let file = disk.create("a").unwrap();
    file.write_at(&[1; 2048], 0).unwrap();
    file.sync().unwrap();
    disk.sync_dir().unwrap();
    (disk, file)
}

#[test]
fn a_crash_keeps_what_was_synced_and_any_mix_of_the_rest() {
    let (mut reordered, mut torn, mut lost, mut kept) = (0, 0, 0, 0);
    for seed in 0..400 {
        let (disk, file) = prepared(seed);
        file.write_at(&[2; 1024], 0).unwrap();
        file.write_at(&[3; 1024], 512).unwrap();
        disk.crash();
        let bytes = read(&disk, "a");
        assert_eq!(bytes.len(), 2048);
        assert!(bytes[1536..].iter().all(|byte| *byte == 1), "nobody wrote there");
        let sector = |n: usize| &bytes[n * 512..(n + 1) * 512];
        let whole = |n: usize, value: u8| sector(n).iter().all(|byte| *byte == value);
        lost += u32::from(whole(0, 1) && whole(1, 1) && whole(2, 1));
        kept += u32::from(whole(0, 2) && whole(1, 3) && whole(2, 3));
        reordered += u32::from(whole(0, 1) && whole(2, 3));
        torn += u32::from(sector(2).starts_with(&[3]) && sector(2).ends_with(&[1]));
    }
    for count in [reordered, torn, lost, kept] {
        assert!(count > 10, "{reordered} {torn} {lost} {kept}");
    }
}

#[test]
fn directory_operations_survive_in_any_order_but_that_of_a_name() {
    let mut seen = std::collections::BTreeSet::new();
    for seed in 0..100 {
        let (disk, _) = prepared(seed);
        disk.rename("a", "b").unwrap();
        disk.create("c").unwrap();
        disk.remove("b").unwrap();
        assert_eq!(disk.list().unwrap(), ["c"]);
        disk.crash();
        seen.insert(disk.list().unwrap().join(" "));
    }
    assert_eq!(Vec::from_iter(seen), ["", "a", "a c", "b", "b c", "c"]);
}

#[test]
fn handles_die_in_a_crash() {
    let (disk, file) = prepared(1);
    disk.crash();
    assert!(file.write_at(b"x", 0).is_err());
    assert!(file.len().is_err());
    assert_eq!(read(&disk, "a"), [1; 2048]);
}

#[test]
fn an_interrupted_operation_takes_everything_down() {
    let (disk, file) = prepared(1);
    disk.fail_after(2);
    file.write_at(b"x", 0).unwrap();
    let before = disk.operations();
    assert!(file.sync().is_err());
    assert_eq!(disk.operations(), before + 1);
    assert!(file.write_at(b"x", 0).is_err());
    assert!(disk.list().is_err());
    disk.crash();
    assert_eq!(disk.list().unwrap(), ["a"]);
}

#[test]
fn without_descriptors_nothing_is_opened_and_nothing_changed() {
    let (disk, file) = prepared(1);
    let before = disk.operations();
    disk.exhaust(2);
    assert!(disk.open("a").is_err_and(|error| crate::disk::is_exhausted(&error)));
    assert!(disk.create("b").is_err_and(|error| crate::disk::is_exhausted(&error)));
    assert_eq!((disk.list().unwrap(), disk.operations()), (vec!["a".to_owned()], before));
    file.write_at(b"x", 0).unwrap();
    disk.open("a").unwrap();
}

#[test]
fn a_full_disk_takes_what_fits() {
    let (disk, file) = prepared(1);
    disk.set_free(100);
    assert_eq!(disk.free_bytes().unwrap(), 100);
    let error = file.write_at(&[7; 300], 2048).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    assert_eq!(file.len().unwrap(), 2148);
    file.write_at(&[8; 300], 0).unwrap();
    disk.remove("a").unwrap();
    assert_eq!(disk.free_bytes().unwrap(), 2148);
}

#[test]
fn what_a_failed_sync_dropped_no_later_sync_saves() {
    let (disk, file) = prepared(1);
    file.write_at(&[5; 512], 0).unwrap();
    disk.fail_next_sync();
    assert!(file.sync().is_err());
    file.sync().unwrap();
    assert_eq!(read(&disk, "a")[0], 5);
    disk.crash();
    assert_eq!(read(&disk, "a")[0], 1);
}

#[test]
fn a_flipped_bit_is_there_at_once_and_after_a_crash() {
    let (disk, _) = prepared(1);
    disk.flip_bit("a", 600, 1);
    assert_eq!(read(&disk, "a")[600], 3);
    disk.crash();
    assert_eq!(read(&disk, "a")[600], 3);
}
