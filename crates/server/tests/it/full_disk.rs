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

/// A disk of this size, or a loud word that there is none.
fn small_disk(mib: u64) -> Option<SmallDisk> {
    match SmallDisk::mount(mib) {
        Ok(disk) => Some(disk),
        Err(error) => {
            eprintln!("NOT TESTED: a disk that is really full; mounting is not permitted: {error}");
            None
        }
    }
}

/// Fills a disk of 300 MB, waits, makes room, and goes on; then looks again after a restart.
async fn fill_and_recover(min_free_bytes: u64) {
    let Some(disk) = small_disk(300) else { return };
    let ballast = ballast(disk.path(), 100);
    let setup = Setup { min_free_bytes, ..Setup::large() };
    let server = setup.start_in(disk.path()).await;
    server.create("/s", "application/octet-stream").await;
    server.create("/other", "text/plain").await;
    let mut writer = Writer::default();
    fill_until_full(&server, &mut writer).await;
    writer.check(&server, "when full").await;
    // Long enough for everything that runs by itself to have met the full disk.
    stays("alive and read", async || {
        writer.append(&server).await;
        server.head("/s").await.status() == 200 && server.fatal().is_empty()
    })
    .await;
    writer.check(&server, "when full for a while").await;
    assert_eq!(server.fatal(), Vec::<String>::new(), "while full");

    fs::remove_file(&ballast).unwrap();
    eventually("writes after room was made", async || {
        assert_eq!(server.fatal(), Vec::<String>::new());
        (writer.append(&server).await == 204).then_some(())
    })
    .await;
    for _ in 0..50 {
        assert_eq!(writer.append(&server).await, 204, "writes go on");
    }
    server.get("/readyz").await.expect(200);
    writer.check(&server, "after room was made").await;
    server.delete("/other").await.expect(204);
    server.stop().await;

    let server = setup.start_in(disk.path()).await;
    writer.check(&server, "after a restart").await;
    server.head("/other").await.expect(404);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_that_is_really_full_refuses_writes_and_recovers_without_a_restart() {
    fill_and_recover(0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_small_watermark_on_a_small_disk_is_survived_too() {
    fill_and_recover(32 * MIB).await;
}

/// A process that dies on a full disk starts again on the full disk, read-only or not, and has
/// everything that it answered.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_went_down_on_a_full_disk_comes_up_again() {
    let Some(disk) = small_disk(300) else { return };
    let ballast = ballast(disk.path(), 100);
    let server = Setup::large().start_in(disk.path()).await;
    server.create("/s", "application/octet-stream").await;
    let mut writer = Writer::default();
    fill_until_full(&server, &mut writer).await;
    guarded("the engine to stop", server.engine.shutdown()).await;
    server.drop_all().await;
    let started = Setup::large().try_start_in(disk.path()).await;
    let server = match started {
        Ok(server) => server,
        Err(error) => {
            // It may refuse to start without room, but must say so and lose nothing.
            assert!(error.contains("No space left") || error.contains("full"), "{error}");
            fs::remove_file(&ballast).unwrap();
            Setup::large().start_in(disk.path()).await
        }
    };
    writer.check(&server, "after a restart").await;
    let _ = fs::remove_file(&ballast);
    eventually("writes after room was made", async || {
        (writer.append(&server).await == 204).then_some(())
    })
    .await;
    writer.check(&server, "after room was made").await;
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn below_the_watermark_everything_but_writing_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    let text = ("content-type", "text/plain");
    let server = Setup::default().start_in(directory.path()).await;
    server.ask("PUT", "/s", &[text], b"content").await.expect(201);
    server.ask("PUT", "/t", &[text], b"content").await.expect(201);
    server.stop().await;
    let low = Setup { min_free_bytes: u64::MAX / 2, ..Setup::default() };
    let server = low.start_in(directory.path()).await;
    for (method, target, body) in
        [("PUT", "/new", &b""[..]), ("PUT", "/s", b""), ("POST", "/s", b"x"), ("POST", "/no", b"x")]
    {
        let answer = server.ask(method, target, &[text], body).await.expect(507);
        assert_eq!((answer.code().as_str(), answer.need("retry-after")), ("DISK_FULL", "1"));
    }
    assert_eq!(server.get("/s").await.expect(200).text(), "content");
    assert_eq!(server.get("/s?offset=-1&live=long-poll").await.expect(200).text(), "content");
    let mut events = Events::open(&server, "/s?offset=-1&live=sse").await;
    assert_eq!(events.data().await.0, "content");
    server.head("/s").await.expect(200);
    server.delete("/t").await.expect(204);
    server.get("/t").await.expect(404);
    server.get("/healthz").await.expect(200);
    server.get("/readyz").await.expect(503);
    assert_eq!(server.metric("reveille_read_only").await, 1);
    server.stop().await;
    let server = Setup::default().start_in(directory.path()).await;
    assert_eq!(server.get("/s").await.expect(200).text(), "content");
    server.get("/t").await.expect(404);
    server.append("/s", "text/plain", b"!").await.expect(204);
}

#[tokio::test(flavor = "multi_thread")]
async fn room_that_goes_and_comes_back_is_noticed_by_itself() {
    let disk = small_disk(600);
    let directory = match &disk {
        Some(disk) => disk.path().to_owned(),
        None => tempfile::tempdir().unwrap().keep(),
    };
    // What the server itself takes is taken before the measure is.
    Setup::default().start_in(&directory).await.stop().await;
    let min_free_bytes = free_bytes(&directory) - 64 * MIB;
    let server = Setup { min_free_bytes, ..Setup::default() }.start_in(&directory).await;
    server.create("/s", "application/octet-stream").await;
    let mut writer = Writer::default();
    for _ in 0..3 {
        assert_eq!(writer.append(&server).await, 204);
        let ballast = ballast(&directory, 200);
        eventually("the server to be read-only", async || {
            (writer.append(&server).await == 507).then_some(())
        })
        .await;
        writer.check(&server, "when read-only").await;
        fs::remove_file(ballast).unwrap();
        eventually("the server to be writable", async || {
            (writer.append(&server).await == 204).then_some(())
        })
        .await;
    }
    writer.check(&server, "in the end").await;
    server.stop().await;
    if disk.is_none() {
        fs::remove_dir_all(directory).unwrap();
    }
}
