//! `trigger` and `secret`: what is written in files and on the command line, as the server gets it.

use std::fs;
use std::path::PathBuf;

use reveille_core::trigger::signature;
use serde_json::{Value, json};

use crate::process::run;
use crate::scripted::{Request, Script, answer};

const KEY: &str = "rv_0123456789abcdef";

const FILE: &str = "\
retryPolicy: {maxAttempts: 3}
triggers:
  order-paid:
    collection: orders
    events: [update]
    condition: >-
      event.document.state == 'paid'
      && event.before.state != 'paid'
    url: https://example.com/ship
";

/// A file of that name with this in it, for as long as the directory is there.
fn write(directory: &tempfile::TempDir, name: &str, text: &str) -> String {
    let path: PathBuf = directory.path().join(name);
    fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

/// AUD-3: whether the caller's own key wants this very body.
fn check_signed(request: &Request) {
    let header = request.header("x-syntrix-admin-signature");
    let time = header.unwrap().strip_prefix("t=").unwrap().split_once(',').unwrap().0;
    let now_s = time.parse().unwrap();
    signature::verify([KEY], header, request.body.as_bytes(), now_s).unwrap();
}

fn json_of(request: &Request) -> Value {
    serde_json::from_str(&request.body).unwrap()
}

#[test]
fn rol_2_a_file_is_applied_to_each_tenant_in_one_signed_call() {
    let directory = tempfile::tempdir().unwrap();
    let file = write(&directory, "triggers.yaml", FILE);
    let done =
        answer(r#"{"triggers":[{"triggerId":"order-paid","version":1,"result":"created"}]}"#);
    let enabled = answer(r#"{"triggerId":"order-paid","version":1,"state":"enabled"}"#);
    let args = [
        "trigger",
        "apply",
        "-f",
        &file,
        "--tenant",
        "acme,globex",
        "--reason",
        "release 42",
        "--enable",
        "--key",
        KEY,
    ];
    let script = Script::new(&[&done, &enabled, &done, &enabled]);
    let (ended, seen) = script.run(&args);
    let table = "\
ID          TENANT  VERSION  RESULT
order-paid  acme    1        created
order-paid  globex  1        created
";
    assert_eq!(ended.ok(), table);
    let lines: Vec<&str> = seen.iter().map(|request| request.line.as_str()).collect();
    let apply = "POST /admin/v1/triggers/apply HTTP/1.1";
    let enable = |tenant| format!("POST /admin/v1/triggers/{tenant}/order-paid/enable HTTP/1.1");
    assert_eq!(lines, [apply, &enable("acme"), apply, &enable("globex")]);
    for (request, tenant) in seen.iter().zip(["acme", "acme", "globex", "globex"]) {
        assert_eq!(request.header("x-tenant-namespace"), Some(tenant));
        check_signed(request);
    }
    assert_eq!(
        json_of(&seen[2]),
        json!({
            "tenant": "globex", "reason": "release 42", "retryPolicy": { "maxAttempts": 3 },
            "triggers": { "order-paid": {
                "collection": "orders", "events": ["update"], "url": "https://example.com/ship",
                "condition":
                    "event.document.state == 'paid' && event.before.state != 'paid'",
            } },
        })
    );
}

#[test]
fn what_was_applied_before_a_refusal_is_said() {
    let directory = tempfile::tempdir().unwrap();
    let file = write(&directory, "triggers.yaml", FILE);
    let done =
        answer(r#"{"triggers":[{"triggerId":"order-paid","version":1,"result":"unchanged"}]}"#);
    let body = r#"{"error":{"code":"FORBIDDEN","message":"not yours"}}"#;
    let length = body.len();
    let refused = format!("HTTP/1.1 403 Forbidden\r\ncontent-length: {length}\r\n\r\n{body}");
    let args = ["trigger", "apply", "-f", &file, "--tenant", "a,b,c"];
    let (ended, _) = Script::new(&[&done, &refused]).run(&args);
    assert!(ended.out.contains("order-paid  a "), "{ended:?}");
    let sentence = ended.error(1);
    assert!(sentence.contains("for tenant b: ") && sentence.contains("not yours"), "{sentence}");
}

#[test]
fn a_change_is_for_the_version_that_was_looked_at() {
    let now = answer(r#"{"triggerId":"t","version":7}"#);
    let changed = answer(r#"{"triggerId":"t","version":8}"#);
    let args = ["trigger", "update", "t", "--webhook", "https://example.com/", "--key", KEY];
    let (ended, seen) = Script::new(&[&now, &changed]).run(&args);
    assert!(ended.ok().starts_with("triggerId  t\n"));
    assert_eq!(seen[0].line, "GET /admin/v1/triggers/~/t HTTP/1.1");
    assert_eq!(seen[0].header("x-syntrix-admin-signature"), None, "who reads signs nothing");
    assert_eq!(seen[1].line, "PATCH /admin/v1/triggers/~/t HTTP/1.1");
    assert_eq!(seen[1].header("if-match"), Some("7"));
    check_signed(&seen[1]);
    assert_eq!(json_of(&seen[1]), json!({ "url": "https://example.com/" }));

    let rollout = ["trigger", "rollout", "t", "--percent", "10", "--max-p95", "2s"];
    let more = ["--window", "5m", "--if-version", "3"];
    let (ended, seen) = Script::new(&[&changed]).run(&[&rollout[..], &more].concat());
    ended.ok();
    assert_eq!(seen[0].header("if-match"), Some("3"));
    let slo = json!({ "maxP95LatencyMs": 2_000, "window": "5m" });
    assert_eq!(json_of(&seen[0]), json!({ "rollout": { "percent": 10, "slo": slo } }));
}

#[test]
fn def_3_files_that_cannot_be_meant_are_refused_before_anything_is_asked() {
    let directory = tempfile::tempdir().unwrap();
    let check = |name: &str, text: &str, more: &[&str], part: &str| {
        let file = write(&directory, name, text);
        let args = [&["trigger", "apply", "-f", &file], more].concat();
        let sentence = run(&args).error(2);
        assert!(sentence.contains(part), "{sentence}");
    };
    check("a.yaml", "a: 1\na: 2", &[], "line 2: the key `a` is there twice");
    check("a.json", "{\"a\": }", &[], "line 1");
    check("a.yaml", "tenant: '*'\ntriggers: {}", &[], "--tenant a,b,c");
    check("a.yaml", "url: u", &[], "`triggerId`");
    check("a.yaml", "tenant: a\ntriggers: {}", &["--tenant", "b"], "tenant `a`");
    let other = write(&directory, "b.yaml", "tenant: a\ntriggers: {}");
    check("a.yaml", "tenant: a\ntriggers: {}", &["-f", &other], "both for a");
    let sentence = run(&["trigger", "apply", "-f", "/no/such.yaml"]).error(2);
    assert!(sentence.contains("cannot read /no/such.yaml"), "{sentence}");
}
