//! Settings: their forms, their order of precedence, and what is refused.

use clap::Parser;
use reveille_core::event::worker::{Binding, WorkerTemplate};
use reveille_core::fact::wake::WakeTemplate;

use reveille_core::key::KeyHash;

use super::*;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    arguments: Arguments,
}

/// What the flags say, over what the file says. (That a variable comes between the two is tested
/// with the program itself.)
fn resolve(flags: &[&str], file: &str) -> anyhow::Result<Config> {
    let line = Line::try_parse_from([&["serve"], flags].concat())?;
    let file = parse_file(Path::new("r.toml"), file)?;
    line.arguments.settings.or(file).check()
}

fn refusal(flags: &[&str], file: &str) -> String {
    resolve(flags, file).unwrap_err().to_string()
}

fn defaults() -> Config {
    Config {
        listen: LISTEN_DEFAULT,
        data_dir: "./reveille-data".into(),
        secrets_key_file: None,
        public_url: None,
        durability: Durability::Fsync,
        long_poll_timeout_ms: 30_000,
        reader_timeout_ms: 60_000,
        partitions: None,
        max_body_bytes: 10 << 20,
        min_free_bytes: 256 << 20,
        segment_bytes: 64 << 20,
        timings: Timings::default(),
        rules: Rules { allow_http_loopback: true, private_networks: Vec::new() },
        authorities: Authorities::default(),
        name_servers: NameServers::System,
        outbound_concurrency: 4_096,
        tenant_concurrency: 64,
        quotas: Quotas { subscriptions: 10_000, hooks: 10_000, triggers: 1_000, keys: 1_000 },
        max_trigger_timeout_ms: 30_000,
        poison: Some(Poison { attempts: 3, within_ms: 250 }),
        documents: DocumentSettings {
            ops_max: 500,
            query_limit_max: 1_000,
            scan_limit: 10_000,
            transaction_timeout_ms: 5_000,
            conflict_delay_ms: 25,
            idempotency_ttl_ms: 8 * 3_600_000,
            tombstone_ttl_ms: 30 * 86_400_000,
            trigger_calls_per_s: 100,
        },
        otlp_endpoint: None,
        auth: Auth::Off,
        workers: Workers::default(),
        facts: FactSettings::default(),
        retention: Retention { events_ms: 30 * 86_400_000, deliveries_ms: 30 * 86_400_000 },
    }
}

fn workers(template: &str, bindings: &[&str]) -> Workers {
    let binding = |text: &&str| Binding::parse(text).unwrap();
    Workers {
        template: WorkerTemplate::parse(template).unwrap(),
        bindings: bindings.iter().map(binding).collect(),
    }
}

fn facts(template: &str, replay_window_s: u64) -> FactSettings {
    FactSettings { wake_template: WakeTemplate::parse(template).ok(), replay_window_s }
}

fn keys(admin_key: Option<&str>, metrics_open: bool) -> Auth {
    Auth::Keys { admin_key: admin_key.map(|key| KeyHash::of(key).unwrap()), metrics_open }
}

#[test]
fn nothing_said_gives_the_defaults() {
    assert_eq!(resolve(&[], "").unwrap(), defaults());
}

#[test]
fn flags_come_before_the_file() {
    let file = r#"
        listen = "127.0.0.1:1"
        data-dir = "/from/file"
        secrets-key-file = "/from/file.key"
        public-url = "https://file.example"
        durability = "os"
        auth = "keys"
        admin-key = "from-file-0123456789"
        metrics-open = true
        insecure = false
        long-poll-timeout = "1s"
        reader-timeout = "7s"
        partitions = 2
        max-body = "1MiB"
        min-free-disk = 1000
        max-keys = 5
        max-triggers = 7
        max-trigger-timeout = "31s"
        poison = "5/1s"
        log-segment-bytes = "2MiB"
        webhook-timeout = "1s"
        waking-timeout = "2s"
        liveness-timeout = "3s"
        callback-token-ttl = "4s"
        consumer-gc-after = "5s"
        allow-http-loopback = false
        allow-private-networks = "10.0.0.0/8, fd00::/8"
        name-servers = "10.0.0.2, 10.0.0.3:5353"
        retry-scale = 0.25
        outbound-concurrency = 7
        tenant-concurrency = 17
        max-subscriptions = 8
        max-hooks = 9
        max-ops = 11
        query-limit-max = 12
        scan-limit = 13
        transaction-timeout = "8s"
        conflict-delay = "14ms"
        idempotency-ttl = "9s"
        tombstone-ttl = "10s"
        wake-stream-template = "/file/{wake_agent_id}"
        replay-window = "10s"
        trigger-calls = 14
        otlp-endpoint = "https://file.example/otlp"
        worker-url-template = "https://{workerId}.file.example/{rpcMethod}"
        binding = ["A=https://a.example", "B=https://b.example/rpc"]
        retain-events = "5s"
        retain-deliveries = "6s"
    "#;
    let from_file = Config {
        listen: ([127, 0, 0, 1], 1).into(),
        data_dir: "/from/file".into(),
        secrets_key_file: Some("/from/file.key".into()),
        public_url: Some("https://file.example".into()),
        durability: Durability::Os,
        long_poll_timeout_ms: 1_000,
        reader_timeout_ms: 7_000,
        partitions: Some(2),
        max_body_bytes: 1 << 20,
        min_free_bytes: 1_000,
        segment_bytes: 2 << 20,
        timings: Timings {
            webhook_timeout_ms: 1_000,
            waking_timeout_ms: 2_000,
            liveness_timeout_ms: 3_000,
            token_ttl_ms: 4_000,
            give_up_after_ms: 5_000,
            keep_given_up_ms: 6_000,
            retry_scale_milli: 250,
        },
        rules: Rules {
            allow_http_loopback: false,
            private_networks: vec!["10.0.0.0/8".parse().unwrap(), "fd00::/8".parse().unwrap()],
        },
        authorities: Authorities::default(),
        name_servers: NameServers::These(vec![
            ([10, 0, 0, 2], 53).into(),
            ([10, 0, 0, 3], 5353).into(),
        ]),
        outbound_concurrency: 7,
        tenant_concurrency: 17,
        quotas: Quotas { subscriptions: 8, hooks: 9, triggers: 7, keys: 5 },
        max_trigger_timeout_ms: 31_000,
        poison: Some(Poison { attempts: 5, within_ms: 1_000 }),
        documents: DocumentSettings {
            ops_max: 11,
            query_limit_max: 12,
            scan_limit: 13,
            transaction_timeout_ms: 8_000,
            conflict_delay_ms: 14,
            idempotency_ttl_ms: 9_000,
            tombstone_ttl_ms: 10_000,
            trigger_calls_per_s: 14,
        },
        otlp_endpoint: Some("https://file.example/otlp".into()),
        auth: keys(Some("from-file-0123456789"), true),
        facts: facts("/file/{wake_agent_id}", 10),
        workers: workers(
            "https://{workerId}.file.example/{rpcMethod}",
            &["A=https://a.example", "B=https://b.example/rpc"],
        ),
        retention: Retention { events_ms: 5_000, deliveries_ms: 6_000 },
    };
    assert_eq!(resolve(&[], file).unwrap(), from_file);
    let flags = [
        "--listen=0.0.0.0:2",
        "--data-dir=/from/flag",
        "--secrets-key-file=/from/flag.key",
        "--public-url=https://flag.example/",
        "--durability=fsync",
        "--auth=keys",
        "--admin-key=from-flag-0123456789",
        "--metrics-open=false",
        "--insecure",
        "--long-poll-timeout=2s",
        "--reader-timeout=70s",
        "--partitions=3",
        "--max-body=2MiB",
        "--min-free-disk=2000",
        "--max-keys=6",
        "--max-triggers=0",
        "--max-trigger-timeout=32s",
        "--poison=0",
        "--log-segment-bytes=3MiB",
        "--webhook-timeout=10s",
        "--waking-timeout=20s",
        "--liveness-timeout=30s",
        "--callback-token-ttl=40s",
        "--consumer-gc-after=50s",
        "--allow-http-loopback",
        "--allow-private-networks=192.168.0.0/16",
        "--name-servers=127.0.0.1:5353",
        "--retry-scale=2",
        "--outbound-concurrency=8",
        "--tenant-concurrency=18",
        "--max-subscriptions=9",
        "--max-hooks=0",
        "--max-ops=21",
        "--query-limit-max=22",
        "--scan-limit=0",
        "--transaction-timeout=80s",
        "--conflict-delay=24ms",
        "--idempotency-ttl=90s",
        "--tombstone-ttl=100s",
        "--wake-stream-template=/flag/{wake_agent_id}",
        "--replay-window=100s",
        "--trigger-calls=0",
        "--otlp-endpoint=http://127.0.0.1:4318/",
        "--worker-url-template=https://flag.example/{workerId}/{rpcMethod}",
        "--binding=C=https://c.example",
        "--binding=D=https://d.example",
        "--retain-events=50s",
        "--retain-deliveries=60s",
    ];
    let from_flags = Config {
        listen: ([0, 0, 0, 0], 2).into(),
        data_dir: "/from/flag".into(),
        secrets_key_file: Some("/from/flag.key".into()),
        public_url: Some("https://flag.example".into()),
        durability: Durability::Fsync,
        long_poll_timeout_ms: 2_000,
        reader_timeout_ms: 70_000,
        partitions: Some(3),
        max_body_bytes: 2 << 20,
        min_free_bytes: 2_000,
        segment_bytes: 3 << 20,
        timings: Timings {
            webhook_timeout_ms: 10_000,
            waking_timeout_ms: 20_000,
            liveness_timeout_ms: 30_000,
            token_ttl_ms: 40_000,
            give_up_after_ms: 50_000,
            keep_given_up_ms: 60_000,
            retry_scale_milli: 2_000,
        },
        rules: Rules {
            allow_http_loopback: true,
            private_networks: vec!["192.168.0.0/16".parse().unwrap()],
        },
        authorities: Authorities::default(),
        name_servers: NameServers::These(vec![([127, 0, 0, 1], 5353).into()]),
        outbound_concurrency: 8,
        tenant_concurrency: 18,
        quotas: Quotas { subscriptions: 9, hooks: 0, triggers: 0, keys: 6 },
        max_trigger_timeout_ms: 32_000,
        poison: None,
        documents: DocumentSettings {
            ops_max: 21,
            query_limit_max: 22,
            scan_limit: 0,
            transaction_timeout_ms: 80_000,
            conflict_delay_ms: 24,
            idempotency_ttl_ms: 90_000,
            tombstone_ttl_ms: 100_000,
            trigger_calls_per_s: 0,
        },
        otlp_endpoint: Some("http://127.0.0.1:4318".into()),
        auth: keys(Some("from-flag-0123456789"), false),
        facts: facts("/flag/{wake_agent_id}", 100),
        workers: workers(
            "https://flag.example/{workerId}/{rpcMethod}",
            &["C=https://c.example", "D=https://d.example"],
        ),
        retention: Retention { events_ms: 50_000, deliveries_ms: 60_000 },
    };
    assert_eq!(resolve(&flags, file).unwrap(), from_flags);
    assert_eq!(resolve(&flags, "").unwrap(), from_flags);
}

/// With keys there are tenants, and what listens on the machine is not theirs to call.
#[test]
fn webhooks_on_this_machine_are_for_its_owner_unless_said_otherwise() {
    let allows = |flags: &[&str]| resolve(flags, "").unwrap().rules.allow_http_loopback;
    assert!(allows(&[]) && allows(&["--listen=[::1]:0"]) && allows(&["--auth=off"]));
    assert!(!allows(&["--auth=keys"]) && !allows(&["--listen=0.0.0.0:0", "--insecure"]));
    assert!(allows(&["--auth=keys", "--allow-http-loopback"]));
    assert!(!allows(&["--allow-http-loopback=false"]));
}

#[test]
fn a_tenant_may_have_a_key() {
    assert!(refusal(&[], "max-keys = 0").contains("--max-keys"));
}

#[test]
fn poison_is_so_many_failures_within_a_time() {
    for wrong in ["3", "3/", "/250ms", "0/250ms", "x/250ms", "3/250", "101/1s", "3/2h"] {
        let refused = refusal(&[&format!("--poison={wrong}")], "");
        assert!(refused.contains("3/250ms"), "{wrong}: {refused}");
    }
}

#[test]
fn settings_of_documents_are_within_bounds() {
    for (setting, name) in [
        ("max-ops = 0", "--max-ops"),
        ("max-ops = 2001", "--max-ops"),
        ("query-limit-max = 0", "--query-limit-max"),
        ("query-limit-max = 10001", "--query-limit-max"),
        ("scan-limit = 1000001", "--scan-limit"),
        ("transaction-timeout = \"0s\"", "--transaction-timeout"),
        ("transaction-timeout = \"11m\"", "--transaction-timeout"),
        ("conflict-delay = \"5s\"", "--conflict-delay"),
        ("idempotency-ttl = \"0s\"", "--idempotency-ttl"),
        ("tombstone-ttl = \"3651d\"", "--tombstone-ttl"),
    ] {
        assert!(refusal(&[], setting).contains(name), "{setting}");
    }
    assert_eq!(resolve(&["--conflict-delay=0s"], "").unwrap().documents.conflict_delay_ms, 0);
}

#[test]
fn only_loopback_is_open_to_everybody() {
    for address in ["127.0.0.1:0", "127.8.8.8:80", "[::1]:80", "[::ffff:127.0.0.1]:80"] {
        resolve(&["--listen", address], "").unwrap();
    }
    for address in ["0.0.0.0:80", "[::]:80", "192.168.1.1:80"] {
        let sentence = refusal(&["--listen", address], "");
        assert!(sentence.contains("not a loopback address"), "{sentence}");
        assert!(sentence.contains("--auth keys"), "{sentence}");
        assert!(sentence.contains("--insecure"), "{sentence}");
        resolve(&["--listen", address, "--auth", "keys"], "").unwrap();
        resolve(&["--listen", address, "--insecure"], "").unwrap();
        resolve(&["--listen", address], "insecure = true").unwrap();
        // A flag can also take back what the file allows.
        refusal(&["--listen", address, "--insecure=false"], "insecure = true");
    }
}

#[test]
fn an_admin_key_is_long_enough_and_of_use() {
    assert_eq!(resolve(&["--auth", "keys"], "").unwrap().auth, keys(None, false));
    let chosen = ["--auth", "keys", "--admin-key", "0123456789abcdef"];
    assert_eq!(resolve(&chosen, "").unwrap().auth, keys(Some("0123456789abcdef"), false));
    for flags in [&["--auth", "off"][..], &[]] {
        let sentence = refusal(flags, "admin-key = \"0123456789abcdef\"");
        assert!(sentence.contains("--auth keys"), "{sentence}");
    }
    for bad in ["0123456789abcde", "0123456789 abcdef", "0123456789abcd\u{e9}f"] {
        let sentence = refusal(&[], &format!("auth = \"keys\"\nadmin-key = {bad:?}"));
        assert!(sentence.contains("16 to 512 characters"), "{sentence}");
        assert!(!sentence.contains(bad), "{sentence}");
    }
}

#[test]
fn values_out_of_range_are_refused() {
    let check = |flags: &[&str], file: &str, part: &str| {
        let sentence = refusal(flags, file);
        assert!(sentence.contains(part), "{sentence}");
    };
    check(&["--max-body", "33MiB"], "", "at most 32MiB");
    check(&[], "max-body = 0", "at most 32MiB");
    check(&["--long-poll-timeout", "0s"], "", "longer than 0");
    check(&["--reader-timeout", "0s"], "", "longer than 0");
    check(&["--partitions", "0"], "", "partitions");
    check(&[], "partitions = 0", "from 1 to 256");
    check(&[], "partitions = 257", "from 1 to 256");
    check(&["--log-segment-bytes", "4096"], "", "at least 1MiB");
    check(&["--webhook-timeout", "0s"], "", "longer than 0");
    check(&[], "consumer-gc-after = \"9999d\"", "at most 3650d");
    check(&["--retry-scale=-1"], "", "not a factor");
    check(&[], "retry-scale = \"1e3\"", "not a factor");
    check(&[], "outbound-concurrency = 0", "from 1 to 65536");
    check(&[], "tenant-concurrency = 0", "--tenant-concurrency must be from 1 to 65536");
    check(&[], "max-trigger-timeout = \"2h\"", "--max-trigger-timeout must be from 10ms to 1h");
    check(&["--max-trigger-timeout=0s"], "", "from 10ms");
    check(&["--ca-file=/no/such.pem"], "", "--ca-file: cannot read /no/such.pem");
    check(&[], "ca-file = \"/dev/null\"", "--ca-file /dev/null: there is no certificate in it");
    check(&["--name-servers=dns.example"], "", "is no name server; write its address");
    check(&["--otlp-endpoint", "http://otel.example"], "", "use https");
    check(&["--worker-url-template", "https://a.example/{rpcMethod}"], "", "no `{workerId}`");
    check(&[], "worker-url-template = \"ftp://{workerId}/{rpcMethod}\"", "begins with `http://`");
    check(&["--binding", "https://a.example"], "", "NAME=URL");
    check(&["--binding=A=https://a.example", "--binding=A=https://b.example"], "", "given twice");
    check(&[], "binding = [\"A=nowhere\"]", "not a binding");
    check(&["--wake-stream-template", "/agents"], "", "{wake_agent_id}");
    check(&[], "wake-stream-template = \"/_agents/{wake_agent_id}\"", "the server's own");
    check(&["--replay-window", "0s"], "", "--replay-window must be longer than 0");
    check(&[], "replay-window = \"3651d\"", "at most 3650d");
    check(&["--retain-deliveries", "0s"], "", "longer than 0");
    check(&["--retain-events", "0s"], "", "--retain-events must be longer than 0");
    check(&[], "retain-deliveries = \"3651d\"", "at most 3650d");
    check(&["--allow-private-networks", "10.0.0.0/33"], "", "10.0.0.0/33");
    resolve(&["--max-body", "32MiB"], "").unwrap();
}

#[test]
fn a_file_that_is_wrong_says_where() {
    let check = |file: &str, sentence: &str| assert_eq!(refusal(&[], file), sentence);
    check("data_dir = \"/d\"", "r.toml: unknown key \"data_dir\"; it is written \"data-dir\"");
    check(
        "color = 1",
        "r.toml: unknown key \"color\"; the keys are listen, data-dir, secrets-key-file, public-url, durability, \
         auth, admin-key, metrics-open, insecure, long-poll-timeout, reader-timeout, webhook-timeout, waking-timeout, liveness-timeout, \
         callback-token-ttl, consumer-gc-after, allow-http-loopback, allow-private-networks, \
         ca-file, name-servers, retry-scale, outbound-concurrency, tenant-concurrency, max-subscriptions, max-hooks, worker-url-template, binding, retain-events, retain-deliveries, wake-stream-template, replay-window, \
         otlp-endpoint, partitions, max-body, min-free-disk, max-keys, max-triggers, max-trigger-timeout, poison, max-ops, query-limit-max, scan-limit, transaction-timeout, conflict-delay, idempotency-ttl, tombstone-ttl, trigger-calls",
    );
    let says = |file: &str, parts: &[&str]| {
        let sentence = refusal(&[], file);
        assert!(!sentence.contains('\n'), "{sentence}");
        for part in parts {
            assert!(sentence.contains(part), "{sentence}");
        }
    };
    says("\n\nlisten = 4437", &["r.toml, line 3", "string"]);
    says("\nlong-poll-timeout = \"45\"", &["r.toml, line 2", "500ms"]);
    says("max-body = \"10MB\"", &["r.toml, line 1", "size"]);
    says("max-body = true", &["r.toml, line 1", "a size is"]);
    says("durability = \"never\"", &["r.toml, line 1", "never", "fsync"]);
    says("listen = ", &["r.toml, line 1"]);
}
