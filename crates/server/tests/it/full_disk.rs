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

/// One producer that remembers what was acknowledged, and repeats what was not.
#[derive(Default)]
struct Writer {
    acknowledged: usize,
}

impl Writer {
    /// Tries the next append; its status.
    async fn append(&mut self, server: &TestServer) -> u16 {
        let seq = self.acknowledged.to_string();
        let headers = [
            ("content-type", "application/octet-stream"),
            ("producer-id", "writer"),
            ("producer-epoch", "0"),
            ("producer-seq", &seq),
        ];
        let answer = server.ask("POST", "/s", &headers, &body(self.acknowledged)).await;
        match answer.status() {
            // A 204 would say that it was stored before, although it was refused.
            200 => self.acknowledged += 1,
            507 => {
                assert_eq!(answer.code(), "DISK_FULL");
                assert_eq!(answer.need("retry-after"), "1");
            }
            503 => assert_eq!(answer.code(), "BUSY"),
            _ => panic!("{answer}"),
        }
        answer.status()
    }

    /// Everything acknowledged is there, in order, and nothing else.
    async fn check(&self, server: &TestServer, when: &str) {
        let answer = server.get("/s").await.expect(200);
        let found: Vec<&[u8]> = answer.body.chunks(BODY_BYTES).collect();
        assert_eq!(found.len(), self.acknowledged, "{when}");
        for (number, stored) in found.into_iter().enumerate() {
            assert!(stored == body(number), "append {number} is not as it was, {when}");
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

/// What is done on a full disk, and when there is room again, and after a restart.
struct Story {
    disk: SmallDisk,
    setup: Setup,
    server: TestServer,
    writer: Writer,
}

impl Story {
    async fn begin(disk: SmallDisk, min_free_bytes: u64) -> Story {
        let setup = Setup { min_free_bytes, segment_bytes: 16 << 20, ..Setup::default() };
        let server = setup.start_in(disk.path()).await;
        server.create("/s", "application/octet-stream").await;
        server.create("/other", "text/plain").await;
        Story { disk, setup, server, writer: Writer::default() }
    }

    /// Everything but writing goes on, and goes on going on.
    async fn endure(&mut self) {
        let Story { server, writer, .. } = self;
        writer.check(server, "when full").await;
        // Long enough for everything that runs by itself to have met the full disk.
        stays("alive", async || {
            writer.append(server).await;
            assert_eq!(server.fatal(), Vec::<String>::new(), "while full");
            let read = server.get("/s?offset=0_0").await;
            assert_eq!(read.status(), 200, "while full: {read}");
            server.head("/s").await.status() == 200
        })
        .await;
        writer.check(server, "when full for a while").await;
    }

    /// There is room: writes go on by themselves, and nothing was lost, now and after a restart.
    async fn recover(mut self) {
        let Story { server, writer, .. } = &mut self;
        let before = writer.acknowledged;
        eventually("writes after room was made", async || {
            assert_eq!(server.fatal(), Vec::<String>::new(), "after room was made");
            writer.append(server).await;
            (writer.acknowledged == before + 50).then_some(())
        })
        .await;
        writer.check(server, "after room was made").await;
        eventually("the server to be ready", async || {
            (server.get("/readyz").await.status() == 200).then_some(())
        })
        .await;
        server.delete("/other").await.expect(204);
        self.server.stop().await;
        let server = self.setup.start_in(self.disk.path()).await;
        self.writer.check(&server, "after a restart").await;
        server.head("/other").await.expect(404);
        server.stop().await;
    }
}

/// Fills a disk with appends, waits, makes room, and goes on.
async fn fill_and_recover(min_free_bytes: u64, ballast_mib: u64) {
    let Some(disk) = small_disk(300) else { return };
    let ballast = ballast(disk.path(), ballast_mib);
    let mut story = Story::begin(disk, min_free_bytes).await;
    fill_until_full(&story.server, &mut story.writer).await;
    story.endure().await;
    fs::remove_file(&ballast).unwrap();
    story.recover().await;
}

/// Where the disk gets full, and who meets it first, depends on how large it is: the log, the
/// table's journal, one of its files, or the checkpoint.
#[tokio::test(flavor = "multi_thread")]
async fn a_disk_that_is_really_full_refuses_writes_and_recovers_without_a_restart() {
    for ballast_mib in [150, 161] {
        fill_and_recover(0, ballast_mib).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_small_watermark_on_a_small_disk_is_survived_too() {
    fill_and_recover(8 * MIB, 150).await;
}

/// The watermark keeps us from filling the disk, and nobody else.
#[tokio::test(flavor = "multi_thread")]
async fn a_disk_that_somebody_else_fills_is_survived() {
    let Some(disk) = small_disk(400) else { return };
    let mut story = Story::begin(disk, 100 * MIB).await;
    for _ in 0..150 {
        assert_eq!(story.writer.append(&story.server).await, 200);
    }
    let path = story.disk.path().join("ballast");
    let file = fs::File::create(&path).unwrap();
    while std::io::Write::write_all(&mut &file, &[1; 4096]).is_ok() {}
    drop(file);
    fill_until_full(&story.server, &mut story.writer).await;
    story.endure().await;
    fs::remove_file(&path).unwrap();
    story.recover().await;
}

/// A process that dies on a full disk starts again on the full disk, read-only or not, and has
/// everything that it answered.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_went_down_on_a_full_disk_comes_up_again() {
    let Some(disk) = small_disk(300) else { return };
    let ballast = ballast(disk.path(), 150);
    // The disk is as large as one partition needs.
    let setup = || Setup { partitions: Some(1), ..Setup::large() };
    let server = setup().start_in(disk.path()).await;
    server.create("/s", "application/octet-stream").await;
    let mut writer = Writer::default();
    fill_until_full(&server, &mut writer).await;
    guarded("the engine to stop", server.engine.shutdown()).await;
    server.drop_all().await;
    let started = setup().try_start_in(disk.path()).await;
    let server = match started {
        Ok(server) => server,
        Err(error) => {
            // It may refuse to start without room, but must say so and lose nothing.
            assert!(error.contains("No space left") || error.contains("full"), "{error}");
            fs::remove_file(&ballast).unwrap();
            setup().start_in(disk.path()).await
        }
    };
    writer.check(&server, "after a restart").await;
    let _ = fs::remove_file(&ballast);
    eventually("writes after room was made", async || {
        (writer.append(&server).await == 200).then_some(())
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
    assert!(server.metric("reveille_read_only").await > 0, "no partition takes writes");
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
        assert_eq!(writer.append(&server).await, 200);
        let ballast = ballast(&directory, 200);
        eventually("the server to be read-only", async || {
            (writer.append(&server).await == 507).then_some(())
        })
        .await;
        writer.check(&server, "when read-only").await;
        fs::remove_file(ballast).unwrap();
        eventually("the server to be writable", async || {
            (writer.append(&server).await == 200).then_some(())
        })
        .await;
    }
    writer.check(&server, "in the end").await;
    server.stop().await;
    if disk.is_none() {
        fs::remove_dir_all(directory).unwrap();
    }
}
