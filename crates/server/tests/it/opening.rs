//! Data directories that cannot be opened: refused with a clear word, and left alone.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use reveille_core::document::settings::DocumentSettings;
use reveille_engine::doors::{SystemClock, SystemEntropy};
use reveille_engine::quota::Quotas;
use reveille_engine::{Config, Engine};

use crate::harness::*;

const TEXT: (&str, &str) = ("content-type", "text/plain");

/// Every file of a directory with its content.
fn files(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut pending = vec![directory.to_owned()];
    while let Some(directory) = pending.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                pending.push(path);
            } else {
                found.insert(path.clone(), fs::read(&path).unwrap());
            }
        }
    }
    found
}

/// A directory in which a server has written and from which it has gone.
async fn used() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let server = Setup::default().start_in(directory.path()).await;
    server.ask("PUT", "/s", &[TEXT], b"content").await.expect(201);
    server.stop().await;
    directory
}

/// Opening is refused with these words, and nothing was touched.
async fn is_refused(directory: &Path, words: &[&str]) {
    let before = files(directory);
    let error = match Setup::default().try_start_in(directory).await {
        Ok(_) => panic!("it was opened"),
        Err(error) => error,
    };
    for word in words {
        assert!(error.contains(word), "{word:?} in {error:?}");
    }
    let after = files(directory);
    let changed: Vec<_> = after
        .keys()
        .chain(before.keys())
        .filter(|path| before.get(*path) != after.get(*path))
        .collect();
    assert!(changed.is_empty(), "{error}\nbut it changed {changed:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_server_on_the_same_directory_is_refused_and_the_first_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    let first = Setup::default().start_in(directory.path()).await;
    first.create("/s", "text/plain").await;
    for _ in 0..3 {
        let second = Setup::default().try_start_in(directory.path()).await;
        let error = second.err().expect("refused");
        assert!(error.contains("another reveille server uses"), "{error}");
        assert!(error.contains("--data-dir"), "{error}");
        first.append("/s", "text/plain", b"x").await.expect(204);
    }
    first.stop().await;
    let server = Setup::default().start_in(directory.path()).await;
    assert_eq!(server.get("/s").await.expect(200).text(), "xxx");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_of_a_newer_format_is_left_alone() {
    let directory = used().await;
    let format = directory.path().join("data/format");
    let text = fs::read_to_string(&format).unwrap();
    let newer = text.replace("format 5\n", "format 6\n");
    assert_ne!(newer, text);
    fs::write(&format, newer).unwrap();
    is_refused(directory.path(), &["newer reveille", "format 5"]).await;
    fs::write(&format, text).unwrap();
    let server = Setup::default().start_in(directory.path()).await;
    assert_eq!(server.get("/s").await.expect(200).text(), "content");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_of_something_else_is_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    fs::create_dir(directory.path().join("data")).unwrap();
    fs::write(directory.path().join("data/letter.txt"), "dear").unwrap();
    // The lock is the one file that looking may leave.
    fs::write(directory.path().join("data/lock"), "").unwrap();
    is_refused(directory.path(), &["not empty and not a reveille data directory"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_where_the_directory_should_be_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("data"), "a file").unwrap();
    is_refused(directory.path(), &["data"]).await;
}

/// Flips a bit in the middle of a file of the data directory.
fn damage(directory: &Path, file: &str) {
    let path = directory.join("data").join(file);
    let mut bytes = fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&path, bytes).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_format_file_is_named_and_nothing_is_changed() {
    let directory = used().await;
    damage(directory.path(), "format");
    is_refused(directory.path(), &["data/format", "damaged"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_checkpoint_is_named_and_nothing_is_changed() {
    let directory = used().await;
    damage(directory.path(), "partition-0000/log/checkpoint");
    is_refused(directory.path(), &["partition-0000/log", "checkpoint", "damaged"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_number_of_partitions_is_refused() {
    let directory = used().await;
    let config = Config {
        data_dir: directory.path().join("data"),
        secrets_key_file: None,
        partitions: Some(6),
        table_files: 64,
        sync: true,
        min_free_bytes: 0,
        segment_bytes: 2 << 20,
        on_fatal: Arc::new(|error| panic!("{error}")),
        outbound: Setup::default().outbound(),
        quotas: Quotas::default(),
        poison: None,
        documents: DocumentSettings::default(),
    };
    let opened =
        Engine::open(&config, Arc::new(SystemClock::default()), Arc::new(SystemEntropy::default()));
    let error = opened.err().expect("refused").to_string();
    assert!(error.contains("created with"), "{error}");
}

/// A program that embeds the engine may close and open it again: whatever ran for it has ended.
#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_was_shut_down_can_be_opened_again_in_the_same_process() {
    let directory = tempfile::tempdir().unwrap();
    let config = Config {
        data_dir: directory.path().join("data"),
        secrets_key_file: None,
        partitions: None,
        table_files: 64,
        sync: true,
        min_free_bytes: 0,
        segment_bytes: 2 << 20,
        on_fatal: Arc::new(|error| panic!("{error}")),
        outbound: Setup::default().outbound(),
        quotas: Quotas::default(),
        poison: None,
        documents: DocumentSettings::default(),
    };
    let open = || {
        Engine::open(&config, Arc::new(SystemClock::default()), Arc::new(SystemEntropy::default()))
    };
    let engine = open().unwrap();
    guarded("a probe", engine.probe()).await.unwrap();
    guarded("the engine to stop", engine.shutdown()).await;
    drop(engine);
    let engine = open().unwrap_or_else(|error| panic!("{error}"));
    guarded("a probe", engine.probe()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_was_not_stopped_in_order_has_everything_it_answered() {
    let directory = tempfile::tempdir().unwrap();
    let mut expected = String::new();
    for round in 0..3 {
        let server = Setup::default().start_in(directory.path()).await;
        if round == 0 {
            server.create("/s", "text/plain").await;
        }
        assert_eq!(server.get("/s").await.expect(200).text(), expected);
        for number in 0..50 {
            let body = format!("{round}.{number};");
            server.append("/s", "text/plain", body.as_bytes()).await.expect(204);
            expected.push_str(&body);
        }
        guarded("the engine to stop", server.engine.shutdown()).await;
        server.drop_all().await;
    }
}
