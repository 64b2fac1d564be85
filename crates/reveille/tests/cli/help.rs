//! The help of every command, as files under `tests/golden`.
//! `REVEILLE_WRITE_GOLDEN=1 cargo test -p reveille --test cli help` writes them anew.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::process::run;

const COMMANDS: &[&str] = &[
    "",
    "serve",
    "append",
    "read",
    "streams",
    "sub",
    "sub create",
    "sub list",
    "sub show",
    "sub update",
    "sub pause",
    "sub resume",
    "sub rotate-secret",
    "sub delete",
    "consumers",
    "consumers show",
    "consumers wake",
    "consumers seek",
    "consumers revive",
    "ingest",
    "hooks",
    "hooks list",
    "hooks show",
    "hooks update",
    "hooks pause",
    "hooks resume",
    "hooks rotate-secret",
    "deliveries",
    "deliveries list",
    "deliveries show",
    "deliveries explain",
    "doc",
    "doc get",
    "doc put",
    "doc patch",
    "doc delete",
    "doc query",
    "doc watch",
    "doc import",
    "doc export",
    "trigger",
    "trigger create",
    "trigger apply",
    "trigger list",
    "trigger show",
    "trigger update",
    "trigger enable",
    "trigger disable",
    "trigger health-check",
    "trigger versions",
    "trigger rollback",
    "trigger test",
    "trigger dry-run",
    "trigger rollout",
    "trigger backtest",
    "trigger delete",
    "secret",
    "secret create",
    "secret list",
    "secret rotate",
    "secret revoke",
    "secret delete",
    "fact",
    "fact assert",
    "fact retract",
    "fact query",
    "garden",
    "garden create",
    "garden list",
    "garden show",
    "garden delete",
    "garden members",
    "garden add",
    "garden remove",
    "token",
    "token issue",
    "token list",
    "token revoke",
    "dlq",
    "dlq list",
    "dlq show",
    "dlq replay",
    "dlq discard",
    "audit",
    "audit list",
    "audit verify",
    "key",
    "key create",
    "key list",
    "key revoke",
    "verify",
    "bench",
    "bench append",
    "bench read",
    "bench latency",
    "bench create",
    "bench idle",
    "bench soak",
    "bench wake",
    "bench wakes",
    "bench consumers",
    "bench deliveries",
    "bench delivery",
    "bench documents",
    "bench facts",
];

#[test]
fn help_is_as_agreed() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let write = std::env::var_os("REVEILLE_WRITE_GOLDEN").is_some();
    let mut names = BTreeSet::new();
    for command in COMMANDS {
        let mut args: Vec<&str> = command.split_ascii_whitespace().collect();
        let name = [&["reveille"], &args[..]].concat().join("-") + ".txt";
        args.push("--help");
        let help = run(&args).ok();
        let path = golden.join(&name);
        if write {
            fs::write(&path, &help).unwrap();
        }
        let agreed = fs::read_to_string(&path).unwrap_or_default();
        assert_eq!(help, agreed, "{name}: see this file's first lines for how to write it anew");
        names.insert(name);
    }
    let files = fs::read_dir(&golden).unwrap();
    let files = files.map(|file| file.unwrap().file_name().into_string().unwrap());
    assert_eq!(files.collect::<BTreeSet<_>>(), names);
}

/// A command that is new must come into the list above.
#[test]
fn every_command_has_a_file() {
    for outer in [
        "",
        "sub",
        "consumers",
        "hooks",
        "deliveries",
        "doc",
        "fact",
        "garden",
        "token",
        "trigger",
        "secret",
        "key",
        "bench",
    ] {
        let mut args: Vec<&str> = outer.split_ascii_whitespace().collect();
        args.push("--help");
        let help = run(&args).ok();
        let (_, list) = help.split_once("Commands:\n").unwrap();
        let (list, _) = list.split_once("\n\n").unwrap();
        for line in list.lines() {
            let name = line.split_ascii_whitespace().next().unwrap();
            let known = COMMANDS.contains(&format!("{outer} {name}").trim());
            assert!(known || name == "help", "{outer} {name}");
        }
    }
}

#[test]
fn wrong_usage_is_told_apart() {
    for args in [
        &["nonsense"][..],
        &["serve", "--no-such-flag"],
        // Settings of features that are not there yet.
        &["serve", "--log", "nats://localhost"],
        &["serve", "--webhook-timeout", "3"],
        &["sub", "create", "s", "no-slash", "--webhook", "https://example.com/"],
        &["sub", "create", "s", "/a", "--webhook", "https://example.com/", "--max-delay", "3"],
        &["sub", "create", "s", "/a"],
        &["verify", "--header", "t=1,sha256=00"],
        &["key", "create", "--role", "user"],
        &["key", "create", "--tenant", "acme"],
        &["key", "create", "--tenant", "Acme", "--role", "user"],
        &["key", "create", "--tenant", "acme", "--role", "owner"],
        &["key", "create", "--tenant", "acme", "--all-tenants", "--role", "admin"],
        &["serve", "--auth", "keys", "--admin-key", "too-short"],
        &["serve", "--admin-key", "0123456789abcdef"],
        &["serve", "--listen", "0.0.0.0:0"],
        &["verify", "--header", "t=1,ed25519=00", "--public-key", "short"],
        &["serve", "--long-poll-timeout", "3"],
        &["append"],
        &["append", "no-slash", "x"],
        &["append", "/a", "x", "--lines"],
        &["read", "/a", "--offset", "x"],
        &["read", "/a", "--url", "ftp://localhost"],
        &["verify", "--secret", "s", "--header", "webhook-id: x"],
        &["read", "/a", "--key", "two\nlines"],
        &["fact", "assert", "user:a", "age", "x", "--type", "number"],
        &["fact", "assert", "user:a", "age", "4", "--scope", "global"],
        &["fact", "retract", "user:a"],
        &["garden", "add", "atlas", "user:a", "--role", "owner"],
        &["token", "issue", "--subject", "user:a"],
        &["token", "issue", "--subject", "user:a", "--object", "*", "--ttl", "3"],
        &["serve", "--wake-stream-template", "/agents"],
        &["trigger", "create"],
        &["trigger", "create", "-f", "no-such-file.yaml"],
        &["trigger", "create", "t", "--header", "no-colon"],
        &["trigger", "apply"],
        &["trigger", "apply", "-f", "t.yaml", "--enable", "--dry-run"],
        &["trigger", "update", "t"],
        &["trigger", "enable", "t", "--force"],
        &["trigger", "disable", "t"],
        &["trigger", "rollback", "t", "--to", "2"],
        &["trigger", "rollout", "t"],
        &["trigger", "rollout", "t", "--percent", "101"],
        &["trigger", "rollout", "t", "--max-error-rate", "5"],
        &["trigger", "rollout", "t", "--no-slo", "--window", "5m"],
        &["trigger", "test", "t"],
        &["trigger", "test", "t", "--path", "a/b", "--event", "{}"],
        &["trigger", "test", "t", "--event", "1"],
        &["trigger", "dry-run", "t", "--start", "--stop"],
        &["trigger", "dry-run", "t", "-f", "draft.yaml"],
        &["trigger", "backtest", "t"],
        &["trigger", "backtest", "--since", "7d"],
        &["trigger", "backtest", "t", "--since", "7"],
        &["trigger", "delete", "t", "--pending", "keep"],
        &["secret", "rotate", "--overlap", "3"],
        &["dlq", "list", "--hook", "a", "--trigger", "b"],
    ] {
        let sentence = run(args).error(2);
        assert!(!sentence.is_empty(), "{args:?}");
    }
    assert!(run(&["--version"]).ok().starts_with("reveille "));
    assert_eq!(run(&[]).code, Some(2));
}
