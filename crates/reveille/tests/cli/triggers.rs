//! `trigger` and `secret`: what is written in files and on the command line, as the server gets it.

use std::fs;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use reveille_core::trigger::signature;
use serde_json::{Value, json};

use crate::endpoint::{Endpoint, Seen};
use crate::process::{Ended, Server, run, run_with};
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
    let planned = answer(
        r#"{"triggers":[{"triggerId":"order-paid","version":1,"result":"created","seen":0}]}"#,
    );
    let script = Script::new(&[&planned, &planned, &done, &enabled, &done, &enabled]);
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
    assert_eq!(lines, [apply, apply, apply, &enable("acme"), apply, &enable("globex")]);
    let tenants = ["acme", "globex", "acme", "acme", "globex", "globex"];
    for (request, tenant) in seen.iter().zip(tenants) {
        assert_eq!(request.header("x-tenant-namespace"), Some(tenant));
        check_signed(request);
    }
    let mut expected = json!({
        "tenant": "globex", "reason": "release 42", "retryPolicy": { "maxAttempts": 3 },
        "triggers": { "order-paid": {
            "collection": "orders", "events": ["update"], "url": "https://example.com/ship",
            "condition": "event.document.state == 'paid' && event.before.state != 'paid'",
            "version": 0,
        } },
    });
    assert_eq!(json_of(&seen[4]), expected, "it is for what was looked at: there was none");
    expected["triggers"]["order-paid"].as_object_mut().unwrap().remove("version");
    expected["dryRun"] = json!(true);
    assert_eq!(json_of(&seen[1]), expected, "before it is done anywhere");
}

#[test]
fn adm_2_what_a_file_was_planned_for_is_what_it_is_applied_to() {
    let directory = tempfile::tempdir().unwrap();
    let plan = r#"{"triggers":[
        {"triggerId":"a","version":4,"result":"updated","seen":3},
        {"triggerId":"b","version":7,"result":"unchanged","seen":7},
        {"triggerId":"c","version":2,"result":"updated","seen":1}]}"#;
    let text = "triggers:\n  a: {url: u, version: '1.0'}\n  b: {version: 6}\n  c: {}\n";
    let file = write(&directory, "triggers.yaml", text);
    let message = "the trigger `a` has version 4 by now";
    let body = format!(r#"{{"error":{{"code":"PRECONDITION_FAILED","message":"{message}"}}}}"#);
    let length = body.len();
    let stale =
        format!("HTTP/1.1 412 Precondition Failed\r\ncontent-length: {length}\r\n\r\n{body}");
    let script = Script::new(&[&answer(&plan.replace('\n', " ")), &stale]);
    let (ended, seen) = script.run(&["trigger", "apply", "-f", &file]);
    let triggers = json_of(&seen[1])["triggers"].clone();
    assert_eq!(triggers["a"], json!({ "url": "u", "version": 3, "label": "1.0" }));
    assert_eq!(triggers["b"], json!({ "version": 6 }), "the file says which version it is for");
    assert_eq!(triggers["c"], json!({ "version": 1 }));
    let sentence = ended.error(1);
    for part in ["nothing of it was done", message, "apply --dry-run"] {
        assert!(sentence.contains(part), "{part}: {sentence}");
    }
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
    let (ended, _) = Script::new(&[&done, &done, &done, &done, &refused]).run(&args);
    assert!(ended.out.contains("order-paid  a "), "{ended:?}");
    let sentence = ended.error(1);
    assert!(sentence.contains("for tenant b: ") && sentence.contains("not yours"), "{sentence}");
    let (ended, seen) = Script::new(&[&done, &refused]).run(&args);
    assert!(json_of(&seen[0])["dryRun"] == true && ended.out.is_empty(), "nobody's is done");
    assert!(ended.error(1).contains("for tenant b: "));
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

fn json(ended: Ended) -> Value {
    serde_json::from_str(&ended.ok()).unwrap()
}

fn payload(seen: &Seen) -> Value {
    serde_json::from_slice(&seen.body).unwrap()
}

/// Asks until the answer is as it should be, for a while.
fn until(server: &Server, args: &[&str], is: impl Fn(&Value) -> bool) -> Value {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let answer = json(server.run(&[args, &["--output", "json"]].concat()));
        if is(&answer) {
            return answer;
        }
        assert!(Instant::now() < deadline, "it does not come to it: {answer:#}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// A server with a secret and a trigger for orders that are paid, enabled.
fn with_trigger(flags: &[&str], endpoint: &Endpoint) -> (Server, String) {
    let server = Server::with(flags);
    let secret = json(server.run(&["secret", "create", "--output", "json"]));
    let create = ["trigger", "create", "order-paid", "--collection", "orders", "--event"];
    let condition = ["create,update", "--when", "event.document.state == 'paid'"];
    let more = ["--webhook", &endpoint.url, "--enable"];
    let made = server.run(&[&create[..], &condition, &more].concat()).ok();
    assert!(made.starts_with("triggerId      order-paid\n"), "{made}");
    assert!(made.contains("state          enabled\n"), "{made}");
    assert_eq!(payload(&endpoint.next())["event"], "ping", "ADM-12: it was called before");
    (server, secret["secret"].as_str().unwrap().to_owned())
}

fn verify(secret: &str, seen: &Seen, body: &[u8]) -> Ended {
    // The first line is the request's own.
    let headers = seen.headers.iter().skip(1).flat_map(|header| ["--header", header.as_str()]);
    let args: Vec<&str> = ["verify", "--secret", secret].into_iter().chain(headers).collect();
    run_with(crate::process::reveille(&args), body)
}

#[test]
fn what_a_trigger_is_called_with_verifies_also_while_secrets_are_rotated() {
    let endpoint = Endpoint::answering(200);
    let (server, secret) = with_trigger(&[], &endpoint);
    let tried = server
        .run(&[
            "trigger",
            "test",
            "order-paid",
            "--event",
            r#"{"path":"orders/o1","document":{"state":"paid"}}"#,
        ])
        .ok();
    assert!(tried.starts_with("matched  true\nsent     false\n"), "{tried}");
    server.run(&["doc", "put", "orders/o1", r#"{"state":"new"}"#]).ok();
    server.run(&["doc", "patch", "orders/o1", r#"{"state":"paid"}"#]).ok();
    let called = endpoint.next();
    let body = payload(&called);
    assert_eq!((&body["event"], &body["path"]), (&"update".into(), &"orders/o1".into()));
    assert_eq!(body["before"]["state"], "new", "a test that is not sent calls nobody");
    let good = verify(&secret, &called, &called.body).ok();
    assert!(good.contains("`v1=`"), "{good}");
    let sentence = verify(&secret, &called, b"{}").error(1);
    assert!(sentence.starts_with("SIGNATURE_MISMATCH: "), "{sentence}");

    let rotated = json(server.run(&["secret", "rotate", "--overlap", "24h", "--output", "json"]));
    let new = rotated["secret"].as_str().unwrap();
    let row = server.run(&["secret", "list"]).ok();
    assert!(row.contains("in 23h"), "{row}");
    server.run(&["doc", "put", "orders/o2", r#"{"state":"paid"}"#]).ok();
    let called = endpoint.next();
    for secret in [secret.as_str(), new] {
        verify(secret, &called, &called.body).ok();
    }
    server.run(&["secret", "revoke"]).ok();
    server.run(&["doc", "put", "orders/o3", r#"{"state":"paid"}"#]).ok();
    let called = endpoint.next();
    verify(new, &called, &called.body).ok();
    verify(&secret, &called, &called.body).error(1);
    let sentence = server.run(&["secret", "create"]).error(1);
    assert!(sentence.contains("409"), "{sentence}");
    let sentence = server.run(&["secret", "rotate", "none"]).error(1);
    assert!(sentence.contains("no secret \"none\""), "{sentence}");
    let own = server.command(&["secret", "create", "own", "--value", "-", "--output", "json"]);
    let own: Value =
        serde_json::from_str(&run_with(own, b"my-own-secret-0123456789\n").ok()).unwrap();
    assert_eq!(own["secret"], "my-own-secret-0123456789");
    assert_eq!(server.run(&["secret", "delete", "own"]).ok(), "secret own is deleted\n");
}

#[test]
fn a_trigger_that_nobody_answers_is_not_enabled() {
    let endpoint = Endpoint::answering(503);
    let server = Server::start();
    server.run(&["secret", "create"]).ok();
    let create = ["trigger", "create", "t", "--collection", "c", "--event", "create"];
    let sentence = server.run(&[&create[..], &["--webhook", &endpoint.url, "--enable"]].concat());
    let sentence = sentence.error(1);
    assert!(sentence.contains("is disabled: ") && sentence.contains("503"), "{sentence}");
    let sentence = server.run(&["trigger", "health-check", "t"]).error(1);
    assert!(sentence.contains("does not accept"), "{sentence}");
    let listed = server.run(&["trigger", "list", "--state", "disabled"]).ok();
    assert!(listed.starts_with("ID  TENANT   STATE     VERSION"), "{listed}");
    let forced = ["trigger", "enable", "t", "--force", "--reason", "it comes up later"];
    server.run(&forced).ok();
    let rows = server.run(&["audit", "list", "--trigger", "t"]).ok();
    assert!(rows.contains("trigger.enabled") && rows.contains("it comes up later"), "{rows}");
    let sentence = server.run(&["trigger", "show", "none"]).error(1);
    assert!(sentence.contains("no trigger \"none\""), "{sentence}");
    let sentence = server.run(&["trigger", "create", "t", "--collection", "c"]).error(1);
    assert!(sentence.contains("`events`"), "{sentence}");
}

#[test]
fn changes_of_a_document_come_in_order_across_kill_9() {
    let endpoint = Endpoint::answering(500);
    let flags = ["--retry-scale", "0.01", "--poison", "0"];
    let (mut server, secret) = {
        let healthy = Endpoint::answering(200);
        let (server, secret) = with_trigger(&flags, &healthy);
        let moved = ["trigger", "update", "order-paid", "--webhook", &endpoint.url];
        server.run(&moved).ok();
        (server, secret)
    };
    for n in 1..=3 {
        server.run(&["doc", "put", "orders/o1", &format!(r#"{{"state":"paid","n":{n}}}"#)]).ok();
    }
    assert_eq!(payload(&endpoint.next())["after"]["n"], 1);
    server.kill();
    endpoint.answers(200);
    server.restart();
    let mut accepted = Vec::new();
    while accepted.last() != Some(&3) {
        let called = endpoint.next();
        verify(&secret, &called, &called.body).ok();
        let n = payload(&called)["after"]["n"].as_u64().unwrap();
        if accepted.last() != Some(&n) {
            accepted.push(n);
        }
    }
    assert_eq!(accepted, [1, 2, 3]);
    let shown = until(&server, &["trigger", "show", "order-paid"], |shown| {
        shown["status"]["delivered"] == 3
    });
    assert_eq!(shown["status"]["pending"], 0, "{shown:#}");
    assert_eq!(shown["version"], 2);
}

#[test]
fn versions_dry_runs_and_backtests_say_what_a_change_would_do() {
    let directory = tempfile::tempdir().unwrap();
    let endpoint = Endpoint::answering(200);
    let (server, _) = with_trigger(&[], &endpoint);
    let put = |n: u32| {
        let order = format!(r#"{{"state":"paid","n":{n}}}"#);
        server.run(&["doc", "put", &format!("orders/o{n}"), &order]).ok();
    };
    put(1);
    put(2);
    let draft = write(&directory, "draft.yaml", "condition: event.document.n > 1");
    let tested = ["trigger", "backtest", "order-paid", "--since", "1h", "-f", &draft];
    let report = json(server.run(&[&tested[..], &["--output", "json"]].concat()));
    let counted = [&report["evaluated"], &report["matched"], &report["live"]["matched"]];
    assert_eq!(counted, [&json!(2), &json!(1), &json!(2)], "{report:#}");
    assert_eq!(report["difference"], json!({ "onlyDraft": 0, "onlyLive": 1 }));
    let text = server.run(&tested).ok();
    assert!(text.contains("live.hitRate          100.00 %"), "{text}");

    let sentence = server.run(&["trigger", "dry-run", "order-paid"]).error(1);
    assert!(sentence.contains("--start"), "{sentence}");
    server.run(&["trigger", "dry-run", "order-paid", "--start", "-f", &draft]).ok();
    put(3);
    let report = until(&server, &["trigger", "dry-run", "order-paid"], |it| it["evaluated"] == 1);
    assert_eq!((&report["matched"], &report["baseline"]["matched"]), (&json!(1), &json!(1)));
    server.run(&["trigger", "dry-run", "order-paid", "--stop"]).ok();

    server.run(&["trigger", "update", "order-paid", "-f", &draft, "--label", "large"]).ok();
    let stale = ["trigger", "update", "order-paid", "--label", "x", "--if-version", "1"];
    let sentence = server.run(&stale).error(1);
    assert!(sentence.contains("changed meanwhile"), "{sentence}");
    let versions = json(server.run(&["trigger", "versions", "order-paid", "--output", "json"]));
    assert_eq!(versions[0]["label"], "large", "{versions:#}");
    let back = ["trigger", "rollback", "order-paid", "--to", "1", "--reason", "too much"];
    let text = server.run(&back).ok();
    assert!(text.contains("version        3\n") && text.contains("state == 'paid'"), "{text}");
    let rolled =
        ["trigger", "rollout", "order-paid", "--percent", "10", "--max-error-rate", "0.05"];
    server.run(&rolled).ok();
    let table = server.run(&["trigger", "list"]).ok();
    assert!(table.contains("enabled 10%  4 "), "{table}");
    for disabled in ["disable", "delete"] {
        let reason = ["trigger", disabled, "order-paid", "--reason", "it is over"];
        server.run(&reason).ok();
    }
    assert_eq!(server.run(&["trigger", "list"]).ok(), "");
}

#[test]
fn dlq_4_what_a_trigger_gave_up_is_replayed_under_its_key() {
    let endpoint = Endpoint::answering(200);
    let flags = ["--retry-scale", "0.001"];
    let (server, secret) = with_trigger(&flags, &endpoint);
    endpoint.answers(500);
    server.run(&["doc", "put", "orders/o1", r#"{"state":"paid"}"#]).ok();
    let mine = ["dlq", "list", "--trigger", "order-paid"];
    let letters = until(&server, &mine, |letters| letters[0].is_object());
    let letter = &letters[0];
    // POI-1: three quick failures of one kind are enough.
    assert_eq!((&letter["reason"], &letter["attempts"]), (&json!("POISON"), &json!(3)));
    let first = endpoint.next();
    let table = server.run(&mine).ok();
    assert!(table.starts_with("ID ") && table.contains("  order-paid  POISON"), "{table}");
    // DLQ-2: one of them says which change it is about.
    let shown = server.run(&["dlq", "show", letter["dlqId"].as_str().unwrap()]).ok();
    for part in ["orders/o1\n", "default:order-paid:1\n", "triggerVersion"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let sentence = server.run(&["dlq", "list", "--trigger", "other"]).error(1);
    assert!(sentence.contains("404"), "{sentence}");
    endpoint.answers(200);
    let replay = ["dlq", "replay", "--trigger", "order-paid", "--reason", "mended", "--yes"];
    server.run(&[&replay[..], &["--wait"]].concat()).ok();
    let mut again = endpoint.next();
    while payload(&again)["replay"].is_null() {
        again = endpoint.next();
    }
    verify(&secret, &again, &again.body).ok();
    assert_eq!(payload(&again)["replay"]["reason"], "mended");
    let key = |seen: &Seen| {
        let name = "x-syntrix-idempotency-key: ";
        seen.headers.iter().find_map(|it| it.strip_prefix(name)).unwrap().to_owned()
    };
    assert_eq!(key(&again), key(&first));
    assert_eq!(server.run(&mine).ok(), "");
}

fn keyed<'a>(key: &'a str, args: &[&'a str]) -> Vec<&'a str> {
    [args, &["--key", key]].concat()
}

#[test]
fn aud_3_with_keys_what_changes_the_url_is_signed_by_the_command() {
    let directory = tempfile::tempdir().unwrap();
    let mut server = Server::with(&["--auth", "keys", "--admin-key", KEY, "--allow-http-loopback"]);
    let endpoint = Endpoint::answering(200);
    for tenant in ["acme", "globex"] {
        server.run(&keyed(KEY, &["secret", "create", "--tenant", tenant])).ok();
    }
    let text = FILE.replace("https://example.com/ship", &endpoint.url);
    let file = write(&directory, "triggers.yaml", &text);
    let apply = ["trigger", "apply", "-f", &file, "--tenant", "acme,globex"];
    let table = server.run(&keyed(KEY, &[&apply[..], &["--dry-run"]].concat())).ok();
    assert!(table.contains("order-paid  acme    1        created"), "{table}");
    server.run(&keyed(KEY, &[&apply[..], &["--enable"]].concat())).ok();
    let table = server.run(&keyed(KEY, &apply)).ok();
    assert!(table.contains("order-paid  globex  1        unchanged"), "{table}");
    let moved =
        write(&directory, "moved.yaml", &text.replace(&endpoint.url, "http://127.0.0.1:9/"));
    let apply = ["trigger", "apply", "-f", &moved, "--tenant", "acme", "--reason", "moved"];
    let table = server.run(&keyed(KEY, &apply)).ok();
    assert!(table.contains("order-paid  acme    2        updated"), "{table}");
    // Without the signature nobody is sent elsewhere.
    let body = r#"{"url":"http://127.0.0.1:8/"}"#;
    let head =
        format!("PATCH /admin/v1/triggers/acme/order-paid HTTP/1.1\r\nauthorization: Bearer {KEY}");
    let answer = server.request(&head, body);
    assert!(
        answer.starts_with("HTTP/1.1 403") && answer.contains("SIGNATURE_REQUIRED"),
        "{answer}"
    );
    // A key of the tenant does not know its name, and need not.
    let made = ["key", "create", "--tenant", "acme", "--role", "operator", "--output", "json"];
    let made = json(server.run(&keyed(KEY, &made)));
    let operator = made["key"].as_str().unwrap();
    let table = server.run(&keyed(operator, &["trigger", "list"])).ok();
    assert!(table.contains("acme") && !table.contains("globex"), "{table}");
    server
        .run(&keyed(operator, &["trigger", "update", "order-paid", "--webhook", &endpoint.url]))
        .ok();
    let rows = server.run(&keyed(operator, &["audit", "list", "--trigger", "order-paid"])).ok();
    assert!(rows.contains("moved"), "{rows}");
    server.terminate();
}

#[test]
fn obs_2_lines_about_triggers_name_the_request_and_the_trigger() {
    let server = Server::start();
    let made =
        r#"{"triggerId":"t","collection":"c","events":["create"],"url":"http://127.0.0.1:9/"}"#;
    let asked = |method: &str, path: &str, id: &str, body: &str| {
        let head = format!("{method} /admin/v1/triggers{path} HTTP/1.1\r\nx-request-id: {id}");
        server.request(&head, body)
    };
    let answer = asked("POST", "", "release-42", made);
    assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
    let answer = asked("DELETE", "/~/t", "release-43", "");
    assert!(answer.starts_with("HTTP/1.1 204"), "{answer}");
    for (what, id) in [("a trigger was changed", "release-42"), ("was deleted", "release-43")] {
        let line: Value = serde_json::from_str(&server.process.err.until(what)).unwrap();
        let said = ["request_id", "actor", "tenant", "trigger_id"].map(|name| line[name].clone());
        assert_eq!(said, [json!(id), json!("local"), json!("default"), json!("t")], "{line}");
    }
}
