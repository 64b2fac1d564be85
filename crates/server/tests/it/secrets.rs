//! Secrets at rest: nobody who finds the files can read or forge anything.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use serde_json::json;

use crate::harness::*;

/// Whether a text is anywhere in the files of a directory.
fn contains(directory: &Path, text: &[u8]) -> bool {
    fs::read_dir(directory).unwrap().any(|entry| {
        let path = entry.unwrap().path();
        if path.is_dir() {
            return contains(&path, text);
        }
        fs::read(&path).unwrap().windows(text.len()).any(|window| window == text)
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn no_secret_of_a_subscription_is_in_any_file() {
    let directory = tempfile::tempdir().unwrap();
    let server = Setup::default().start_in(directory.path()).await;
    let body = json!({ "webhook": "http://127.0.0.1:1/", "description": "findable-text" });
    let made = server
        .ask("PUT", "/a/*?subscription=s", &[], body.to_string().as_bytes())
        .await
        .expect(201)
        .json();
    let secret = made["webhook_secret"].as_str().unwrap().to_owned();
    let own = format!("whsec_{}", "QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVo0MTIzNDU2");
    let hook = json!({ "workerId": "w", "pattern": "a.*", "rpcMethod": "m", "secret": own });
    server
        .ask("POST", "/subscriptions/subscribe", &[], hook.to_string().as_bytes())
        .await
        .expect(200);
    server.stop().await;
    let data = directory.path().join("data");
    assert!(contains(&data, b"findable-text"), "what is not secret is found where it is kept");
    for secret in [secret, own] {
        assert!(!contains(&data, secret.as_bytes()));
        assert!(!contains(&data, secret.trim_start_matches("whsec_").as_bytes()));
    }
    let mode = |name: &str| fs::metadata(data.join(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode("."), mode("secrets.key")), (0o700, 0o600));
}

#[tokio::test(flavor = "multi_thread")]
#[expect(clippy::disallowed_methods, reason = "somebody removes the key while nothing runs")]
async fn a_directory_without_its_key_is_refused_with_a_sentence() {
    let directory = tempfile::tempdir().unwrap();
    let server = Setup::default().start_in(directory.path()).await;
    server.stop().await;
    let key = directory.path().join("data/secrets.key");
    let text = fs::read_to_string(&key).unwrap();

    fs::remove_file(&key).unwrap();
    let error = Setup::default().try_start_in(directory.path()).await.err().expect("refused");
    for word in ["secrets.key", "is missing", "--secrets-key-file"] {
        assert!(error.contains(word), "{word:?} in {error:?}");
    }
    assert!(!key.exists(), "no other key is put in its place");

    let line = text.lines().nth(1).unwrap();
    let other: String = line.chars().rev().collect();
    fs::write(&key, text.replace(line, &other)).unwrap();
    let error = Setup::default().try_start_in(directory.path()).await.err().expect("refused");
    for word in ["cannot be opened with this secrets key", "is damaged", "--secrets-key-file"] {
        assert!(error.contains(word), "{word:?} in {error:?}");
    }

    fs::write(&key, text).unwrap();
    Setup::default().start_in(directory.path()).await.stop().await;
}
