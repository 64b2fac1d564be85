//! Keys and records of subscriptions and consumers, byte for byte.

use reveille_core::consumer::{
    Consumer, Dialect, GivenUp, Link, Phase, RemovalReason, Stage, SyncDone, WakeId,
};
use reveille_core::fan_out::{FanOutCursor, IdRange, Watermark};
use reveille_core::pattern::Pattern;
use reveille_core::stream::StreamId;
use reveille_core::subscription::{
    Coalescing, PreviousSecret, RetrySettings, Subscription, SubscriptionId, SubscriptionSpec,
    Target,
};
use reveille_core::{Millis, Offset, ReadFrom, StreamPath, Tenant};

use super::*;
use crate::golden::{check, check_range, check_record, decode};

fn path(text: &str) -> StreamPath {
    StreamPath::parse(text).unwrap()
}

fn full_consumer(phase: Phase) -> ConsumerRecord {
    let links = vec![
        Link { path: path("/a"), stream: Some(StreamId(4)), acked: Some(Offset::new(7)) },
        Link { path: path("/b"), stream: None, acked: None },
        Link { path: path("/c"), stream: Some(StreamId(400)), acked: None },
    ];
    let consumer = Consumer {
        epoch: 3,
        wake_id: Some(WakeId([7; 12])),
        phase,
        links,
        failing_since: Some(Millis(1)),
        pending_since: Some(Millis(2)),
        woken_at: Some(Millis(3)),
        holder: Some("w".into()),
        wakes_saved: 9,
        fruitless_dones: 6,
        given_up: Some(GivenUp { at: Millis(7), until: Millis(8) }),
    };
    ConsumerRecord {
        consumer,
        primary: Some(StreamId(4)),
        timer_at: Some(Millis(5)),
        last_error: Some((Millis(6), "no".into())),
        failures: 2,
        trace: Some([1; 24]),
        marked: Some(vec![path("/a"), path("/b")]),
    }
}

fn plain_consumer(phase: Phase) -> ConsumerRecord {
    ConsumerRecord::new(Consumer { phase, ..Consumer::new(0, Vec::new()) }, None)
}

#[test]
fn consumers_have_these_bytes() {
    for (phase, hex) in [
        (Phase::Idle { wake_at: None }, "a300000281000380"),
        (
            Phase::Idle { wake_at: Some(Millis(1_700_000_000_000)) },
            "a300000282001b0000018bcfe568000380",
        ),
        (
            Phase::Waking { attempt: 1, stage: Stage::Sent { until: Millis::NEVER } },
            "a30000028301011bffffffffffffffff0380",
        ),
        (
            Phase::Waking { attempt: 3, stage: Stage::Paused { until: Millis(9) } },
            "a3000002830203090380",
        ),
        (Phase::Live { until: Millis(4) }, "a30000028203040380"),
        (Phase::Gone(RemovalReason::Unsubscribed), "a300000281040380"),
        (Phase::Gone(RemovalReason::Failed), "a300000281050380"),
    ] {
        check_record(&plain_consumer(phase), hex);
    }
    let live = Phase::Live { until: Millis(4) };
    check_record(
        &full_consumer(live.clone()),
        "\
        b1000302820304038383622f61040783622f62f6f683622f63190190f60401050206030a05014c07\
        0707070707070707070707076177080909040b8206626e6f0c020d58180101010101010101010101\
        01010101010101010101010101108207080f060e82622f61622f62",
    );
    let timer_at = Some(Millis(1_700_000_000_000));
    check_record(
        &ConsumerRecord { timer_at, ..plain_consumer(live.clone()) },
        "a400000282030403800a1b0000018bcfe56800",
    );
    check_record(
        &ConsumerRecord { marked: Some(vec![]), ..plain_consumer(live) },
        "a400000282030403800e80",
    );
}

#[test]
fn links_have_these_bytes() {
    for (stream, acked, explicit, hex) in [
        (None, None, true, "a300f601f602f5"),
        (Some(StreamId(1)), Some(Offset::ZERO), false, "a30001010002f4"),
        (Some(StreamId(500)), None, true, "a3001901f401f602f5"),
    ] {
        check_record(&LinkRecord { stream, acked, explicit }, hex);
    }
}

fn full_subscription() -> Subscription {
    Subscription {
        id: SubscriptionId(9),
        tenant: Tenant::default_tenant(),
        created_at: Millis(4),
        secret: Some("whsec_00".into()),
        previous_secret: Some(PreviousSecret { sealed: "whsec_11".into(), until: Millis(700) }),
        created_by: Some("key_1".into()),
        changed_by: Some("key_2".into()),
        paused_at: Some(Millis(5)),
        reviewed_at: Some(Millis(6)),
        spec: SubscriptionSpec {
            dialect: Dialect::Webhooks,
            name: "agents".into(),
            pattern: Some(Pattern::parse("/agents/**").unwrap()),
            streams: vec![path("/a"), path("/b")],
            target: Target::Webhook("https://example.com/hook".into()),
            description: Some("for people".into()),
            lease_ms: Some(1_000),
            coalescing: Coalescing {
                min_interval_ms: 1,
                max_delay_ms: Some(2),
                wake_if: Some("bytes > 3".into()),
                sync_done: SyncDone::Snapshot,
            },
            retry: RetrySettings {
                initial_ms: Some(10),
                max_ms: None,
                give_up_after_ms: Some(60_000),
            },
            start: ReadFrom::Now,
            base_url: Some("http://localhost:4437".into()),
        },
    }
}

fn plain_subscription() -> Subscription {
    Subscription {
        id: SubscriptionId(500),
        tenant: Tenant::parse("acme").unwrap(),
        created_at: Millis(1_700_000_000_000),
        secret: None,
        previous_secret: None,
        created_by: None,
        changed_by: None,
        paused_at: None,
        reviewed_at: None,
        spec: SubscriptionSpec {
            dialect: Dialect::Leases,
            name: "s".into(),
            pattern: None,
            streams: vec![],
            target: Target::Pull(path("/wake")),
            description: None,
            lease_ms: None,
            coalescing: Coalescing::default(),
            retry: RetrySettings::default(),
            start: ReadFrom::Now,
            base_url: None,
        },
    }
}

#[test]
fn subscriptions_have_these_bytes() {
    for (subscription, hex) in [
        (
            full_subscription(),
            "\
        b50009016764656661756c740204040105666167656e74730782622f61622f62036877687365635f\
        3030066a2f6167656e74732f2a2a08781868747470733a2f2f6578616d706c652e636f6d2f686f6f\
        6b0a6a666f722070656f706c650e696279746573203e20331075687474703a2f2f6c6f63616c686f\
        73743a343433370b1903e80c010d020ff511656b65795f3112830af619ea60138268776873\
        65635f31311902bc1482050615656b65795f32",
        ),
        (
            plain_subscription(),
            "a7001901f4016461636d65021b0000018bcfe568000402056173078009652f77616b65",
        ),
    ] {
        check_record(&subscription, hex);
    }
    let plain = "001901f4016461636d65021b0000018bcfe568000402056173078009652f77616b65";
    for (start, hex) in
        [(ReadFrom::Start, "181e8100"), (ReadFrom::At(Offset::new(300)), "181e820119012c")]
    {
        let mut subscription = plain_subscription();
        subscription.spec.start = start;
        check_record(&subscription, &format!("a8{plain}{hex}"));
    }
}

#[test]
fn fan_out_cursors_have_these_bytes() {
    let id = SubscriptionId;
    let range = |after, through| IdRange { after: id(after), through: id(through) };
    let mark = |youngest, before| Watermark { youngest: id(youngest), before };
    for (marks, walk, again, hex) in [
        (vec![mark(9, None)], range(3, 9), None, "a200818209f601820309"),
        (
            vec![mark(9, None), mark(u64::MAX, Some(Offset::new(5)))],
            range(7, u64::MAX),
            Some(range(4, 7)),
            "a300828209f6821bffffffffffffffff050182071bffffffffffffffff02820407",
        ),
        (vec![], range(0, 0), None, "a2008001820000"),
    ] {
        check_record(&FanOutCursor { marks, walk, again }, hex);
    }
}

#[test]
fn keys_have_these_bytes() {
    let (tenant, id) = (Tenant::parse("acme").unwrap(), SubscriptionId(258));
    let consumer = ConsumerKey { subscription: id, path: Some(path("/a/b")) };
    let only = ConsumerKey { subscription: id, path: None };
    check(&subscription_key(&tenant, Dialect::Webhooks, "s"), "0661636d65000173");
    check(&subscription_key(&tenant, Dialect::Leases, "s"), "0661636d65000273");
    check(&consumer_key(&consumer), "0700000000000001022f612f62");
    check(&consumer_key(&only), "070000000000000102");
    check(&resting_key(&consumer), "1f00000000000001022f612f62");
    check_range(all_resting_keys(), "1f", "20");
    check(&link_key(id, &path("/a/b")), "0800000000000001022f612f62");
    check(&backlog_key(id, &path("/a/b")), "0900000000000001022f612f62");
    check(
        &follower_key(&tenant, &path("/a/b"), &consumer),
        "\
        0a61636d65002f612f620000000000000001022f612f62",
    );
    check(&fan_out_key(StreamId(258)), "0c0000000000000102");
    check_range(subscription_keys(), "06", "07");
    check_range(consumer_keys(id), "070000000000000102", "070000000000000103");
    check_range(link_keys(id), "080000000000000102", "080000000000000103");
    check_range(backlog_keys(id), "090000000000000102", "090000000000000103");
    check_range(follower_keys(&tenant, &path("/a")), "0a61636d65002f6100", "0a61636d65002f6101");
    check_range(all_follower_keys(), "0a", "0b");
}

#[test]
fn keys_read_back_and_damage_is_nothing() {
    let (tenant, id) = (Tenant::parse("acme").unwrap(), SubscriptionId(8));
    let stream = path("/s");
    for of in [Some(path("/a/b")), None] {
        let consumer = ConsumerKey { subscription: id, path: of };
        assert_eq!(parse_consumer_key(&consumer_key(&consumer)), Some(consumer.clone()));
        assert_eq!(parse_resting_key(&resting_key(&consumer)), Some(consumer.clone()));
        let (first, _) = follower_keys(&tenant, &stream);
        let key = follower_key(&tenant, &stream, &consumer);
        assert_eq!(parse_follower_key(&first, &key), Some(consumer));
    }
    assert_eq!(parse_linked_path(&link_key(id, &path("/a/b"))), Some(path("/a/b")));
    assert_eq!(parse_linked_path(&backlog_key(id, &path("/a/b"))), Some(path("/a/b")));
    for damaged in [&b""[..], b"\x07\0\0\0\0\0\0\0", b"\x07\0\0\0\0\0\0\0\x08a", b"\x06"] {
        assert_eq!(parse_consumer_key(damaged), None, "{damaged:?}");
        assert_eq!(parse_linked_path(damaged), None, "{damaged:?}");
        assert_eq!(parse_follower_key(b"\x0a", damaged), None, "{damaged:?}");
    }
}

#[test]
fn absent_fields_have_their_default() {
    assert_eq!(decode("a0"), Ok(plain_consumer(Phase::Idle { wake_at: None })));
    assert_eq!(decode("a0"), Ok(LinkRecord { stream: None, acked: None, explicit: false }));
    let walk = IdRange { after: SubscriptionId(1), through: SubscriptionId(2) };
    assert_eq!(decode("a101820102"), Ok(FanOutCursor { marks: vec![], walk, again: None }));
    let subscription = decode::<Subscription>("a4016461636d65040205617309652f77616b65");
    let plain = plain_subscription();
    let expected = Subscription { id: SubscriptionId(0), created_at: Millis(0), ..plain };
    assert_eq!(subscription, Ok(expected));
}

#[test]
fn what_cannot_be_is_damage() {
    // An unknown phase, one without its time, one of nothing; a short wake id; a link of no path.
    for hex in ["a1028106", "a1028103", "a10280", "a1014107", "a1038183617800f6", "a10e816178"] {
        assert!(decode::<ConsumerRecord>(hex).is_err(), "{hex}");
    }
    for hex in ["a0", "a1018101", "a10183010203"] {
        assert!(decode::<FanOutCursor>(hex).is_err(), "{hex}");
    }
    let wrong = |hex: &str| decode::<Subscription>(hex).unwrap_err();
    for (hex, why) in [
        ("a4016461636d65040305617309652f77616b65", "an unknown dialect"),
        ("a3016461636d650402056173", "nobody to wake"),
        ("a5016461636d6504020561730863783a2f09652f77616b65", "two targets"),
        ("a4016461636d650402056173096178", "no path of a wake stream"),
        ("a4016441636d65040205617309652f77616b65", "no tenant"),
        ("a5016461636d65040205617306617809652f77616b65", "no pattern"),
    ] {
        let expected = format!("a stored subscription cannot be read: {why}");
        assert_eq!(wrong(hex), expected);
    }
}
