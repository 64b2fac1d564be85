//! A full disk: read-only with 507, nothing lost, and writable again without a restart.

#![allow(clippy::disallowed_methods, reason = "fills a disk, and mounts one to fill")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::harness::*;

const MIB: u64 = 1 << 20;
const BODY_BYTES: usize = 256 << 10;

/// A small file system in memory, gone when dropped.
struct SmallDisk {
    path: tempfile::TempDir,
}

impl SmallDisk {
    /// Mounts one, which takes the rights of root.
    fn mount(mib: u64) -> Result<SmallDisk, String> {
        let path = tempfile::tempdir().unwrap();
        let mut command = Command::new("mount");
        command.args(["-t", "tmpfs", "-o", &format!("size={mib}m"), "reveille-test"]);
        let output = command.arg(path.path()).output().map_err(|error| error.to_string())?;
        if output.status.success() {
            Ok(SmallDisk { path })
        } else {
            Err(String::from_utf8_lossy(&output.stderr).into_owned())
        }
    }

    fn path(&self) -> &Path {
        self.path.path()
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.path.path()).status();
    }
}

/// A file that takes room until it is removed.
fn ballast(directory: &Path, mib: u64) -> PathBuf {
    let path = directory.join("ballast");
    let file = fs::File::create(&path).unwrap();
    let block = vec![1; 1 << 20];
    for _ in 0..mib {
        std::io::Write::write_all(&mut &file, &block).unwrap();
    }
    path
}

fn free_bytes(directory: &Path) -> u64 {
    let stats = rustix::fs::statvfs(directory).unwrap();
    stats.f_bavail * stats.f_frsize
}

/// The body of the append with this number: no two are alike.
fn body(number: usize) -> Vec<u8> {
    let mut body = vec![u8::try_from(number % 251).unwrap(); BODY_BYTES];
    body[..8].copy_from_slice(&(number as u64).to_be_bytes());
    body
}

/// One writer that remembers what was acknowledged.
#[derive(Default)]
struct Writer {
    acknowledged: Vec<usize>,
    next: usize,
}

impl Writer {
    async fn append(&mut self, server: &TestServer) -> u16 {
        let answer = server.append("/s", "application/octet-stream", &body(self.next)).await;
        match answer.status() {
            204 => self.acknowledged.push(self.next),
            507 => {
                assert_eq!(answer.code(), "DISK_FULL");
                assert_eq!(answer.need("retry-after"), "1");
            }
            503 => {}
            _ => panic!("{answer}"),
        }
        self.next += 1;
        answer.status()
    }

    /// Everything acknowledged is there, in order, and nothing else.
    async fn check(&self, server: &TestServer, when: &str) {
        let answer = server.get("/s").await.expect(200);
        let found: Vec<u64> = answer
            .body
            .chunks(BODY_BYTES)
            .map(|chunk| u64::from_be_bytes(chunk[..8].try_into().unwrap()))
            .collect();
        let expected: Vec<u64> = self.acknowledged.iter().map(|number| *number as u64).collect();
        assert_eq!(found, expected, "{when}");
        for (chunk, number) in answer.body.chunks(BODY_BYTES).zip(&self.acknowledged) {
            assert!(chunk == body(*number), "append {number} is damaged, {when}");
        }
    }
}

async fn fill_until_full(server: &TestServer, writer: &mut Writer) {
    for _ in 0..4_000 {
        if writer.append(server).await == 507 {
            return;
        }
        assert_eq!(server.fatal(), Vec::<String>::new());
    }
    panic!("the disk never got full");
}

/// The whole story on a disk of 300 MB.
async fn fill_and_recover(min_free_bytes: u64) {
    let disk = match SmallDisk::mount(300) {
        Ok(disk) => disk,
        Err(error) => {
            eprintln!("NOT TESTED: a full disk for real; mounting is not permitted: {error}");
            return;
        }
    };
    let ballast = ballast(disk.path(), 100);
    let setup = Setup { segment_bytes: 64 << 20, min_free_bytes, ..Setup::default() };
    let server = setup.start_in(disk.path()).await;
    server.create("/s", "application/octet-stream").await;
    server.create("/other", "text/plain").await;
    let mut writer = Writer::default();
    fill_until_full(&server, &mut writer).await;
    println!("full after {} appends", writer.acknowledged.len());
    writer.check(&server, "when full").await;
    server.head("/other").await.expect(200);
    // Long enough for everything that runs by itself to have met the full disk.
    stays("read-only", async || {
        writer.append(&server).await;
        server.head("/s").await.status() == 200 && server.fatal().is_empty()
    })
    .await;
    println!("fatal {:?}", server.fatal());
    writer.check(&server, "when full for a while").await;
    assert_eq!(server.fatal(), Vec::<String>::new(), "while full");

    fs::remove_file(&ballast).unwrap();
    eventually("writes after room was made", async || {
        (writer.append(&server).await == 204).then_some(())
    })
    .await;
    for _ in 0..100 {
        writer.append(&server).await;
    }
    writer.check(&server, "after room was made").await;
    server.stop().await;

    let server = setup.start_in(disk.path()).await;
    writer.check(&server, "after a restart").await;
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_that_is_really_full_refuses_writes_and_recovers_without_a_restart() {
    fill_and_recover(0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_watermark_keeps_a_small_disk_from_getting_really_full() {
    fill_and_recover(32 * MIB).await;
}
