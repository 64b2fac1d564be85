//! Definitions: every field, what is refused, patches, what is shown.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::delivery::outcome::{DeadReason, DropReason, ErrorKind};
use crate::delivery::policy::{Outcome, Refusal, Verdict};
use crate::tenant::Tenant;
use crate::trigger::name::TriggerId;

const LIMITS: DefinitionLimits = DefinitionLimits { max_timeout_ms: 30_000 };

/// The least that a trigger is, with more fields.
fn with(fields: Value) -> Value {
    let mut body = json!({
        "collection": "orders", "events": ["create"], "url": "https://example.com/hook",
    });
    for (name, value) in fields.as_object().unwrap() {
        body[name] = value.clone();
    }
    body
}

fn parse(fields: Value) -> Result<Definition, String> {
    let draft = Draft::parse(&with(fields), &LIMITS);
    draft.map(|draft| draft.definition).map_err(|error| error.to_string())
}

fn good(fields: Value) -> Definition {
    parse(fields).unwrap()
}

fn full() -> Value {
    json!({
        "label": "v2 of the hook",
        "collection": "chats/*/members",
        "events": ["create", "update", "delete"],
        "condition": "event.type == 'create'",
        "url": "https://example.com/hook?x=1",
        "headers": {"X-Team": "blue", "Authorization": "Bearer abc"},
        "secretsRef": "hooks",
        "concurrency": 3,
        "rateLimit": 20,
        "includeBefore": false,
        "retryPolicy": {
            "maxAttempts": 4, "initialBackoff": "250ms", "maxBackoff": "1m30s",
            "statusRules": [
                {"codes": ["404", "410"], "action": "drop"},
                {"codes": ["4xx"], "action": "retry"},
                {"codes": ["500-503"], "action": "dlq"},
            ],
        },
        "filters": ["chats/*/members/*"],
        "timeout": "12s",
        "token": {
            "scopes": ["trigger.read"], "allowPaths": ["/chats/{1}/"], "maxOps": 5, "maxPayloadKb": 64,
            "bypassRules": true,
        },
        "rollout": {
            "percent": 10,
            "slo": {"maxErrorRate": 0.05, "maxP95LatencyMs": 2000, "window": "5m", "minSamples": 30},
        },
        "payloadDetail": "task",
        "transform": {"include": ["a", "b.c"], "exclude": ["b.d"], "rename": {"a": "x.y"}},
        "target": {"type": "webhook"},
        "ordering": "standard",
    })
}

#[test]
fn def_1_the_defaults_are_these() {
    let expected = json!({
        "collection": "orders", "events": ["create"], "condition": "",
        "url": "https://example.com/hook", "headers": {}, "secretsRef": null, "concurrency": 8,
        "rateLimit": 0, "includeBefore": true,
        "retryPolicy": {
            "maxAttempts": 10, "initialBackoff": "1s", "maxBackoff": "300s", "statusRules": [],
        },
        "filters": [], "timeout": "5s",
        "token": {
            "scopes": ["trigger.read", "trigger.write"], "allowPaths": [], "maxOps": null,
            "maxPayloadKb": null, "bypassRules": false,
        },
        "rollout": {"percent": 100, "slo": null}, "payloadDetail": "standard", "transform": null,
        "label": null, "target": {"type": "webhook"},
    });
    assert_eq!(Value::Object(good(json!({})).to_json()), expected);
    let nulls = json!({"condition": null, "retryPolicy": null, "transform": {}, "timeout": null});
    assert_eq!(good(nulls), good(json!({})), "null is as good as absent");
}

#[test]
fn def_1_every_field_is_kept_and_shown() {
    let definition = good(full());
    let shown = Value::Object(definition.to_json());
    let mut expected = full();
    expected["headers"] = json!({"X-Team": "redacted", "Authorization": "redacted"});
    expected["retryPolicy"]["maxBackoff"] = json!("90s");
    expected["rollout"]["slo"]["window"] = json!("300s");
    expected.as_object_mut().unwrap().remove("ordering");
    assert_eq!(shown, expected);
    let stored = Definition::from_stored(&definition.to_stored()).unwrap();
    assert_eq!(stored, definition);
    assert!(definition.is_compiled() && !stored.is_compiled(), "def_4: compiled when it is made");
    assert!(stored.matches(&change()).is_err());
    assert!(!format!("{definition:?}").contains("Bearer"), "no log shows a credential");
}

fn change() -> crate::trigger::matching::ChangeFields {
    let path = crate::document::path::DocumentPath::parse("orders/o1").unwrap();
    let tenant = crate::tenant::Tenant::parse("acme").unwrap();
    crate::trigger::matching::ChangeFields::of_draft(path, &tenant, 1, None, None)
}

#[test]
fn def_1_ids_tenants_versions_and_labels_are_read() {
    let body = with(json!({"triggerId": "trg_1", "tenant": "acme", "version": 3, "label": "x"}));
    let draft = Draft::parse(&body, &LIMITS).unwrap();
    assert_eq!(draft.id, Some(TriggerId::parse("trg_1").unwrap()));
    assert_eq!(draft.tenant, Some(Tenant::parse("acme").unwrap()));
    assert_eq!((draft.version, draft.definition.label.as_deref()), (Some(3), Some("x")));
    assert_eq!(good(json!({"version": "1.0"})).label.as_deref(), Some("1.0"), "C-14");
    assert_eq!(good(json!({"version": "a", "label": "a"})).label.as_deref(), Some("a"));
}

fn refused(fields: Value, sentence: &str) {
    match parse(fields.clone()) {
        Err(said) => assert!(said.contains(sentence), "{fields}: {said}"),
        Ok(_) => panic!("{fields} was taken"),
    }
}

#[test]
fn def_1_what_is_of_another_kind_is_refused_by_its_name() {
    for (name, kind) in [
        ("triggerId", "a string"),
        ("tenant", "a string"),
        ("label", "a string"),
        ("collection", "a string"),
        ("condition", "a string"),
        ("url", "a string"),
        ("secretsRef", "a string"),
        ("payloadDetail", "a string"),
        ("ordering", "a string"),
        ("headers", "an object"),
        ("retryPolicy", "an object"),
        ("token", "an object"),
        ("rollout", "an object"),
        ("transform", "an object"),
        ("target", "an object"),
        ("events", "an array"),
        ("filters", "an array"),
        ("includeBefore", "true or false"),
        ("concurrency", "a whole number from 1 to 64"),
        ("rateLimit", "a whole number from 0 to 100000"),
        ("timeout", "a string with a unit"),
    ] {
        for value in [json!(1.5), json!(true), json!("x"), json!([1]), json!({"a": 1}), json!(-1)] {
            let fits = match (&value, kind) {
                (Value::String(_), "a string") => true,
                (Value::Bool(_), "true or false") => true,
                (Value::Array(_), "an array") => true,
                (Value::Object(_), "an object") => true,
                (Value::String(_), "a string with a unit") => true,
                (Value::Array(_), "a string") => name == "tenant",
                _ => false,
            };
            if !fits {
                refused(json!({ name: value }), &format!("`{name}` must be {kind}"));
            }
        }
    }
    for body in [json!([]), json!("x"), json!(null), json!(1)] {
        let said = Draft::parse(&body, &LIMITS).unwrap_err().to_string();
        assert!(said.starts_with("the trigger must be an object"), "{said}");
    }
}

#[test]
fn def_1_bad_values_are_refused_by_name_and_with_what_to_do() {
    for (fields, sentence) in [
        (json!({"colection": "x"}), "unknown field `colection`; did you mean `collection`?"),
        (json!({"retryPolicy": {"maxRetries": 3}}), "`retryPolicy`: unknown field `maxRetries`"),
        (json!({"rollout": {"slo": {"window": 1}}}), "`rollout.slo.maxErrorRate` is missing"),
        (json!({"token": {"allowpaths": []}}), "did you mean `allowPaths`?"),
        (json!({"triggerId": "a b"}), "`triggerId` the id of a trigger is 1 to 64"),
        (json!({"tenant": "*"}), "reveille trigger apply -f FILE --tenant a,b,c"),
        (json!({"tenant": ["a"]}), "reveille trigger apply -f FILE --tenant a,b,c"),
        (json!({"tenant": "A B"}), "`tenant` a tenant's name is"),
        (json!({"rollout": {"tenants": ["a"]}}), "reveille trigger apply -f FILE --tenant a,b,c"),
        (json!({"version": -1}), "`version` must be the whole number"),
        (json!({"version": 1.5}), "`version` must be the whole number"),
        (json!({"version": "a", "label": "b"}), "`version` is counted by the server"),
        (json!({"label": "x".repeat(257)}), "`label` must be at most 256 bytes"),
        (json!({"state": "enabled"}), "`state` is shown, and not written"),
        (json!({"collection": ""}), "`collection` must be a collection"),
        (json!({"collection": "**"}), "`collection` must not have `**`"),
        (json!({"collection": "["}), "`collection` is no pattern: a `[` has no `]`"),
        (json!({"collection": "sys/x/y"}), "reserved"),
        (json!({"events": []}), "`events` is missing: name some of"),
        (json!({"events": null}), "`events` is missing: name some of"),
        (
            json!({"events": ["insert"]}),
            "must be one of `create`, `update` and `delete`, and is `insert`",
        ),
        (json!({"events": ["create", "create"]}), "`events` has `create` twice"),
        (json!({"events": [1]}), "`events` must be an array of strings"),
        (json!({"condition": "1 +"}), "`condition` the condition cannot be read"),
        (json!({"condition": "now() > 1"}), "no function `now`"),
        (json!({"condition": "event.document.name.matches('^A')"}), "no function `matches`"),
        (json!({"condition": "'x'"}), "must be true or false"),
        (json!({"condition": "x".repeat(1_025)}), "at most 1024 bytes"),
        (json!({"url": null}), "`url` is missing: where changes are sent"),
        (json!({"url": "ftp://x"}), "`url` must be an address like"),
        (json!({"url": "https://"}), "`url` must be an address like"),
        (json!({"url": "https:///x"}), "`url` must be an address like"),
        (json!({"url": "https://a b"}), "`url` must be an address like"),
        (
            json!({"url": format!("https://a/{}", "x".repeat(2_048))}),
            "`url` must be at most 2048 bytes",
        ),
        (json!({"headers": {"Host": "x"}}), "has `Host`, which the server sets itself"),
        (json!({"headers": {"X-Syntrix-Anything": "x"}}), "which the server sets itself"),
        (json!({"headers": {"content-type": "x"}}), "which the server sets itself"),
        (json!({"headers": {"a b": "x"}}), "has `a b`, which is no name of a header"),
        (json!({"headers": {"": "x"}}), "which is no name of a header"),
        (json!({"headers": {"A": "x\r\nB: y"}}), "`A` has a value with other characters"),
        (json!({"headers": {"A": 1}}), "`headers` must be an object of names and strings"),
        (json!({"headers": {"A": "1", "a": "2"}}), "twice"),
        (json!({"headers": {"A": "redacted"}}), "there is none to keep"),
        (json!({"headers": {"A": "x".repeat(16_384)}}), "at most 16384 bytes of names and values"),
        (json!({"secretsRef": "a/b"}), "`secretsRef` the name of a secret is"),
        (json!({"concurrency": 0}), "`concurrency` must be a whole number from 1 to 64"),
        (json!({"concurrency": 65}), "`concurrency` must be a whole number from 1 to 64"),
        (
            json!({"retryPolicy": {"maxAttempts": 11}}),
            "`retryPolicy.maxAttempts` must be a whole number from 1 to 10",
        ),
        (
            json!({"retryPolicy": {"initialBackoff": 1_000_000}}),
            "`retryPolicy.initialBackoff` must be a string with a unit",
        ),
        (json!({"retryPolicy": {"initialBackoff": "1d"}}), "must be a duration like"),
        (
            json!({"retryPolicy": {"maxBackoff": "25h"}}),
            "`retryPolicy.maxBackoff` must be from 10ms to 86400s",
        ),
        (
            json!({"retryPolicy": {"initialBackoff": "2s", "maxBackoff": "1s"}}),
            "`retryPolicy.maxBackoff` is shorter",
        ),
        (
            json!({"retryPolicy": {"statusRules": [{"codes": ["200"], "action": "drop"}]}}),
            "`retryPolicy.statusRules[0].codes` has `200`",
        ),
        (
            json!({"retryPolicy": {"statusRules": [{"codes": [], "action": "drop"}]}}),
            "`retryPolicy.statusRules[0].codes` is missing",
        ),
        (
            json!({"retryPolicy": {"statusRules": [{"codes": ["404"]}]}}),
            "`retryPolicy.statusRules[0].action` is missing",
        ),
        (
            json!({"retryPolicy": {"statusRules": [{"codes": ["404"], "action": "end"}]}}),
            "must be one of `retry`, `dlq` and `drop`",
        ),
        (json!({"filters": ["*/x"]}), "`filters` must begin with the name"),
        (json!({"filters": ["orders"]}), "`filters` must be for documents"),
        (json!({"filters": vec!["orders/x"; 33]}), "`filters` must have at most 32 entries"),
        (json!({"timeout": "31s"}), "`timeout` must be from 10ms to 30s"),
        (json!({"timeout": "0"}), "`timeout` must be from 10ms to 30s"),
        (json!({"timeout": 5_000_000_000_u64}), "`timeout` must be a string with a unit"),
        (
            json!({"token": {"scopes": ["admin"]}}),
            "must be one of `trigger.read` and `trigger.write`",
        ),
        (json!({"token": {"allowPaths": ["/a/{1}/"]}}), "`collection` has only 0 segments"),
        (json!({"token": {"bypassRules": true}}), "`token.bypassRules` is only for a token whose"),
        (
            json!({"token": {"bypassRules": true, "allowPaths": ["/"]}}),
            "`token.bypassRules` is only",
        ),
        (json!({"token": {"maxOps": 0}}), "`token.maxOps` must be a whole number from 1"),
        (
            json!({"rollout": {"percent": 101}}),
            "`rollout.percent` must be a whole number from 0 to 100",
        ),
        (json!({"rollout": {"percent": 0.5}}), "`rollout.percent` must be a whole number"),
        (
            json!({"rollout": {"slo": {"maxErrorRate": 1.5}}}),
            "`rollout.slo.maxErrorRate` must be a number from 0 to 1",
        ),
        (
            json!({"rollout": {"slo": {"maxErrorRate": 0.1, "window": "25h"}}}),
            "`rollout.slo.window` must be from",
        ),
        (json!({"payloadDetail": "full"}), "must be one of `standard` and `task`, and is `full`"),
        (json!({"transform": {"template": "x"}}), "`transform`: unknown field `template`"),
        (json!({"transform": {"include": ["a..b"]}}), "`transform.include` has `a..b`"),
        (json!({"transform": {"exclude": [1]}}), "`transform.exclude` must be an array of strings"),
        (
            json!({"transform": {"rename": {"a": 1}}}),
            "`transform.rename` must be an object of paths",
        ),
        (json!({"transform": {"include": ["a", "a.b"]}}), "`transform` has `a` and what is inside"),
        (
            json!({"target": {"type": "function"}}),
            "`target.type` must be one of `webhook`, and is `function`",
        ),
        (json!({"target": {"url": "x"}}), "`target`: unknown field `url`"),
        (json!({"ordering": "strict"}), "`ordering` must be one of `standard`"),
    ] {
        refused(fields, sentence);
    }
    let wide: Vec<String> = (0..64).map(|it| format!("f{it}{}", "x".repeat(500))).collect();
    refused(
        json!({"transform": {"exclude": wide}}),
        "the trigger is at most 32768 bytes long, as JSON without spaces",
    );
}

#[test]
fn def_3_a_file_is_for_one_tenant_and_lends_its_retry_policy() {
    let file = json!({
        "database": "acme", "retryPolicy": {"maxAttempts": 2},
        "triggers": {
            "b": with(json!({})),
            "a": with(json!({"retryPolicy": {"maxAttempts": 3}, "version": 4})),
        },
    });
    let file = Draft::parse_file(&file, &LIMITS).unwrap();
    assert_eq!(file.tenant.as_ref().map(Tenant::as_str), Some("acme"));
    let found = file.triggers.iter();
    let found: Vec<_> =
        found.map(|(id, version, it)| (id.as_str(), *version, it.retry.max_attempts)).collect();
    assert_eq!(found, [("a", Some(4), 3), ("b", None, 2)]);
    let refused = |file: Value, sentence: &str| {
        let said = Draft::parse_file(&file, &LIMITS).unwrap_err().to_string();
        assert!(said.contains(sentence), "{said}");
    };
    refused(json!({}), "`triggers` is missing");
    refused(json!({"tenant": "*", "triggers": {}}), "--tenant a,b,c");
    refused(json!({"tenant": "a", "database": "a", "triggers": {}}), "leave one of them out");
    refused(json!({"triggers": {"x y": {}}}), "`triggers.x y`");
    refused(json!({"triggers": {"x": {}}}), "`triggers.x.collection` is missing");
    refused(json!({"triggers": {"x": with(json!({"triggerId": "y"}))}}), "`triggers.x.triggerId`");
    refused(
        json!({"tenant": "a", "triggers": {"x": with(json!({"tenant": "b"}))}}),
        "`triggers.x.tenant`",
    );
    refused(
        json!({"retryPolicy": {"maxAttempts": 0}, "triggers": {}}),
        "`retryPolicy.maxAttempts`",
    );
    let many: Value = (0..101).map(|it| (format!("t{it}"), with(json!({})))).collect();
    refused(json!({ "triggers": many }), "`triggers` must have at most 100 entries");
}

#[test]
fn adm_2_a_patch_changes_what_it_names() {
    let before = good(full());
    let patched = |patch: Value| before.patched(&patch, &LIMITS).unwrap().definition;
    assert_eq!(patched(json!({})), before);
    let shown = Value::Object(before.to_json());
    assert_eq!(patched(shown), before, "what is shown, sent back, changes nothing");
    let next = patched(
        json!({"retryPolicy": {"maxAttempts": 2}, "headers": {"X-Team": null, "X-New": "1"}}),
    );
    assert_eq!((next.retry.max_attempts, next.retry.initial_backoff_ms), (2, 250));
    let headers: Vec<_> = next.headers.iter().collect();
    assert_eq!(headers, [("Authorization", "Bearer abc"), ("X-New", "1")]);
    let plain =
        patched(json!({"rollout": null, "condition": null, "transform": null, "label": null}));
    assert_eq!((plain.rollout, plain.condition, plain.transform), (Rollout::default(), None, None));
    let version = before.patched(&json!({"version": 7}), &LIMITS).unwrap().version;
    assert_eq!(version, Some(7));
    let refused = |patch: Value, sentence: &str| {
        let said = before.patched(&patch, &LIMITS).unwrap_err().to_string();
        assert!(said.contains(sentence), "{said}");
    };
    refused(json!({"triggerId": "x"}), "`triggerId` never changes");
    refused(json!({"tenant": "x"}), "`tenant` never changes");
    refused(json!({"url": null}), "`url` is missing");
    refused(json!({"headers": {"X-Other": "redacted"}}), "none to keep");
    refused(json!({"timeuot": 1}), "did you mean `timeout`?");
    refused(json!([]), "the trigger must be changed by an object");
}

#[test]
fn aud_3_what_leads_elsewhere_or_signs_is_sensitive() {
    let before = good(full());
    let check = |patch: Value, expected: &[&str]| {
        let next = before.patched(&patch, &LIMITS).unwrap().definition;
        assert_eq!(before.sensitive_changes(&next), expected, "{patch}");
    };
    check(json!({"condition": "", "timeout": "1s", "rollout": {"percent": 20}}), &[]);
    check(json!({"url": "https://other"}), &["url"]);
    check(json!({"secretsRef": "x", "headers": {"A": "b"}}), &["secretsRef", "headers"]);
    check(json!({"headers": {"X-Team": "redacted"}}), &[]);
}

#[test]
fn aud_1_a_diff_shows_no_secret() {
    let before = good(full());
    let patch = json!({
        "url": "https://user:pw@example.com/other?token=abc", "headers": {"Authorization": "new"},
        "concurrency": 4,
    });
    let next = before.patched(&patch, &LIMITS).unwrap().definition;
    let text = Definition::diff(Some(&before), Some(&next)).text().unwrap();
    let expected = json!({
        "concurrency": [3, 4], "headers": ["redacted", "redacted"],
        "url": ["https://example.com/hook?\u{2026}", "https://\u{2026}@example.com/other?\u{2026}"],
    });
    assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), expected);
    assert_eq!(Definition::diff(Some(&before), Some(&before)).text(), None);
    let made = Definition::diff(None, Some(&before)).text().unwrap();
    assert!(made.contains("\"headers\":[null,\"redacted\"]"), "{made}");
    assert!(!made.contains("Bearer"), "{made}");
    let ending = |end: &str| format!("event.id == '{}{end}'", "x".repeat(1_000));
    let long = |end: &str| good(json!({ "condition": ending(end) }));
    let text = Definition::diff(Some(&long("a")), Some(&long("b"))).text().unwrap();
    let diff: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(diff["condition"], json!([ending("a"), ending("b")]), "both are whole");
}

#[test]
fn del_1_to_4_the_policy_is_the_definition() {
    let policy = good(full()).policy();
    assert_eq!((policy.timeout_ms, policy.attempts), (12_000, 4));
    assert_eq!((policy.backoff.base_ms, policy.backoff.cap_ms), (250, 90_000));
    assert_eq!(policy.limits.concurrency, Some(3));
    assert_eq!(policy.limits.rate, Some(Rate::even(20)));
    assert!(policy.limits.per_tenant, "LIM-5");
    assert_eq!((policy.order, policy.versions), (Order::Lanes, Versions::Matched));
    assert_eq!(policy.letters, Letters::OutliveHook);
    let answered = |status| policy.judge(Outcome::Answered { status, retry_after_s: None });
    assert_eq!(answered(404), Verdict::Dropped(DropReason::Status), "the first that fits");
    assert_eq!(answered(400), Verdict::Failed, "its own rule retries");
    assert_eq!(answered(500), Verdict::Dead(DeadReason::Refused));
    assert_eq!(answered(504), Verdict::Failed);
    let plain = good(json!({})).policy();
    assert_eq!(plain.limits.rate, None);
    let judge = |outcome| plain.judge(outcome);
    let answered = |status| judge(Outcome::Answered { status, retry_after_s: Some(7) });
    assert_eq!(answered(200), Verdict::Delivered, "PAY-5");
    assert_eq!(answered(204), Verdict::Delivered);
    assert_eq!(answered(301), Verdict::Dead(DeadReason::Redirect), "PAY-5");
    assert_eq!(answered(400), Verdict::Dead(DeadReason::Refused), "DEL-2");
    assert_eq!(answered(410), Verdict::Dead(DeadReason::Refused));
    assert_eq!(answered(429), Verdict::FailedFor { ms: 7_000 }, "DEL-3");
    assert_eq!(answered(503), Verdict::FailedFor { ms: 7_000 });
    let blocked = judge(Outcome::Failed(ErrorKind::Blocked));
    assert_eq!(blocked, Verdict::Dead(DeadReason::Blocked), "DLQ-1: URL_BLOCKED");
    assert_eq!(judge(Outcome::Refused(Refusal::SecretMissing)), Verdict::Failed, "DEL-5");
    assert_eq!(judge(Outcome::Unreadable), Verdict::Dead(DeadReason::Corrupt), "POI-3");
    for status in [408, 425, 500, 502, 504] {
        assert_eq!(answered(status), Verdict::Failed, "{status}");
    }
    for kind in [ErrorKind::Dns, ErrorKind::Connect, ErrorKind::Tls, ErrorKind::Timeout] {
        assert_eq!(judge(Outcome::Failed(kind)), Verdict::Failed);
    }
}

prop_compose! {
    fn fields()(
        events in prop::sample::subsequence(vec!["create", "update", "delete"], 1..=3),
        condition in prop::sample::select(vec!["", "event.type == 'create'", "'a' in event.changed"]),
        concurrency in 1_u32..=64,
        rate in 0_u32..1_000,
        before in any::<bool>(),
        (initial, more) in (10_u64..10_000, 0_u64..100_000),
        attempts in 1_u32..=10,
        timeout in 10_u64..30_000,
        percent in 0_u8..=100,
        ppm in prop::option::of(0_u32..=1_000_000),
        header in prop::option::of("[ -~]{0,20}"),
        label in prop::option::of(".{0,20}"),
        mask in prop::option::of(prop::collection::btree_set("[a-c]{1,3}", 0..4)),
    ) -> Value {
        let mut fields = json!({
            "events": events, "condition": condition, "concurrency": concurrency, "rateLimit": rate,
            "includeBefore": before, "timeout": format!("{timeout}ms"), "label": label,
            "retryPolicy": {
                "maxAttempts": attempts, "initialBackoff": format!("{initial}ms"),
                "maxBackoff": format!("{}ms", initial + more),
            },
            "rollout": {
                "percent": percent,
                "slo": ppm.map(|ppm| json!({"maxErrorRate": f64::from(ppm) / 1e6})),
            },
            "transform": mask.map(|mask| json!({"include": mask})),
        });
        if let Some(value) = header.filter(|value| value != "redacted") {
            fields["headers"] = json!({"X-Any": value});
        }
        fields
    }
}

proptest! {
    #[test]
    fn what_is_stored_and_what_is_shown_reads_back(fields in fields(), other in fields()) {
        let definition = parse(fields).unwrap();
        prop_assert_eq!(&Definition::from_stored(&definition.to_stored()).unwrap(), &definition);
        let shown = Value::Object(definition.to_json());
        let same = definition.patched(&shown, &LIMITS).unwrap().definition;
        prop_assert_eq!(&same, &definition);
        let other = parse(other).unwrap();
        // All that is shown of another one, as a patch, makes this the other one, but for headers.
        let mut patch = Value::Object(other.to_json());
        let names = definition.headers.iter().map(|(name, _)| (name.to_owned(), Value::Null));
        patch["headers"] = Value::Object(names.collect());
        for (name, value) in other.headers.iter() {
            patch["headers"][name] = value.into();
        }
        let became = definition.patched(&patch, &LIMITS).unwrap().definition;
        prop_assert_eq!(became, other);
    }

    #[test]
    fn no_json_is_a_danger(text in "[\\[\\]{}\":,a-z0-9.*/]{0,60}") {
        if let Ok(value) = serde_json::from_str::<Value>(&text) {
            let _ = Draft::parse(&value, &LIMITS);
            let _ = Draft::parse_file(&value, &LIMITS);
            let _ = good(json!({})).patched(&value, &LIMITS);
        }
    }
}
