//! Keys and records of hooks and deliveries, byte for byte.

use std::sync::Arc;

use reveille_core::delivery::hook::{
    ActiveSpan, Backfill, DeliveryCounts, EndedHook, FaceId, Hook, HookId, OpenDeliveries,
};
use reveille_core::delivery::id::{DeliveryId, DeliveryNo, EventNo};
use reveille_core::delivery::lane::Lane;
use reveille_core::delivery::policy::{
    Action, Backoff, DeliveryLimits, Jitter, Letters, Order, Poison, Policy, Rule, StatusSet,
    Transport, Versions, When,
};
use reveille_core::delivery::{AttemptRecord, DeadReason, Delivery, DropReason, ErrorKind, Phase};
use reveille_core::rate::Rate;
use reveille_core::{Millis, Tenant};

use super::*;
use crate::golden::{check, check_range, check_record, decode};

fn id(hook: u64, event: u64, round: u16) -> DeliveryId {
    DeliveryId { hook: HookId(hook), no: DeliveryNo { event: EventNo(event), round } }
}

fn full_delivery() -> DeliveryRecord {
    let attempt = |number, status, error: Option<&str>, response: Option<&str>| AttemptRecord {
        number,
        at: Millis(7),
        took_ms: 1_200,
        status,
        error: error.map(Into::into),
        response: response.map(Into::into),
        kind: None,
        headers_hash: None,
        retry_after_s: None,
        is_cut: false,
    };
    let attempts = vec![
        attempt(1, Some(503), Some("answered 503"), None),
        attempt(2, None, Some("timeout"), None),
        attempt(3, Some(200), None, Some("ok")),
    ];
    DeliveryRecord {
        delivery: Delivery { phase: Phase::Leased { attempt: 4, until: Millis(99) }, attempts },
        created_at: Millis(5),
        event_at: Millis(4),
        timer_at: Some(Millis(99)),
        lane: Some(u64::MAX),
        retried: true,
        hook_version: 1,
        discarded: false,
        replay: None,
    }
}

fn plain_delivery(phase: Phase) -> DeliveryRecord {
    let at = Millis(1_700_000_000_000);
    DeliveryRecord {
        delivery: Delivery { phase, attempts: vec![] },
        created_at: at,
        event_at: at,
        timer_at: None,
        lane: None,
        retried: false,
        hook_version: 1,
        discarded: false,
        replay: None,
    }
}

#[test]
fn deliveries_have_these_bytes() {
    let at = Millis(1_700_000_000_001);
    for (phase, hex) in [
        (Phase::Queued, "a2008100011b0000018bcfe56800"),
        (Phase::Pending { at }, "a20082011b0000018bcfe56801011b0000018bcfe56800"),
        (
            Phase::Leased { attempt: 2, until: at },
            "\
            a20083021b0000018bcfe5680102011b0000018bcfe56800",
        ),
        (Phase::Held, "a2008103011b0000018bcfe56800"),
        (Phase::Delivered { at }, "a20082041b0000018bcfe56801011b0000018bcfe56800"),
        (
            Phase::Dead { at, why: DeadReason::Exhausted },
            "\
            a20082051b0000018bcfe56801011b0000018bcfe56800",
        ),
        (
            Phase::Dead { at, why: DeadReason::Refused },
            "\
            a20082061b0000018bcfe56801011b0000018bcfe56800",
        ),
        (
            Phase::Dropped { at, why: DropReason::NotOwed },
            "\
            a20082071b0000018bcfe56801011b0000018bcfe56800",
        ),
        (
            Phase::Dead { at, why: DeadReason::Poison },
            "\
            a20083081b0000018bcfe5680102011b0000018bcfe56800",
        ),
        (
            Phase::Dead { at, why: DeadReason::Expired },
            "\
            a20083081b0000018bcfe568010a011b0000018bcfe56800",
        ),
        (
            Phase::Dropped { at, why: DropReason::Cancelled },
            "\
            a20083091b0000018bcfe5680102011b0000018bcfe56800",
        ),
    ] {
        check_record(&plain_delivery(phase), hex);
    }
    check_record(
        &full_delivery(),
        "\
        a70083021863040105021863031bffffffffffffffff04f50583a500010107021904b0031901f704\
        6c616e73776572656420353033a400020107021904b0046774696d656f7574a500030107021904b0\
        0318c805626f6b0604",
    );
    let held = plain_delivery(Phase::Held);
    check_record(
        &DeliveryRecord { hook_version: 7, ..held.clone() },
        "a3008103011b0000018bcfe568000707",
    );
    check_record(
        &DeliveryRecord { discarded: true, replay: Some(512), ..held.clone() },
        "a4008103011b0000018bcfe5680008f509190200",
    );
    let failed = AttemptRecord {
        status: Some(500),
        kind: Some(ErrorKind::Http),
        headers_hash: Some(Arc::new([0xab; 32])),
        retry_after_s: Some(9),
        is_cut: true,
        ..AttemptRecord::new(1, Millis(7), 3)
    };
    let attempts = vec![failed];
    let tried =
        DeliveryRecord { delivery: Delivery { phase: Phase::Held, attempts }, ..held.clone() };
    let hash = "ab".repeat(32);
    check_record(
        &tried,
        &format!("a3008103011b0000018bcfe568000581a8000101070203031901f40608075820{hash}080909f5"),
    );
    check_record(
        &DeliveryRecord { lane: Some(0), ..held.clone() },
        "a3008103011b0000018bcfe568000300",
    );
    check_record(
        &DeliveryRecord { event_at: Millis(0), ..held },
        "a3008103011b0000018bcfe568000600",
    );
}

#[test]
fn counts_and_lanes_have_these_bytes() {
    let counts = DeliveryCounts {
        begun: 1,
        pending: 2,
        failed: 3,
        delivered: 400,
        died: 5,
        dropped: 6,
        attempts: 70_000,
        dead_letters: 8,
        kept: 9,
        logs: u64::MAX,
        failing_since: None,
    };
    let failing = DeliveryCounts { failing_since: Some(Millis(7)), ..DeliveryCounts::default() };
    for (counts, hex) in [
        (failing, "ab00000100020003000400050006000700080009000a07"),
        (
            counts,
            "\
        aa0001010202030319019004050506061a0001117007080809091bffffffffffffffff",
        ),
        (DeliveryCounts::default(), "aa0000010002000300040005000600070008000900"),
    ] {
        check_record(&counts, hex);
    }
    for (event, round, waiting, hex) in [
        (1, 2, 3, "a2008201020103"),
        (u64::MAX, u16::MAX, 500, "a200821bffffffffffffffff19ffff011901f4"),
    ] {
        let head = DeliveryNo { event: EventNo(event), round };
        check_record(&Lane { head, waiting, next: Vec::new() }, hex);
    }
    let head = DeliveryNo { event: EventNo(1_024), round: 0 };
    let next = [(256, 3), (1_280, 0), (1_280, 1)];
    let next = next.map(|(event, round)| DeliveryNo { event: EventNo(event), round }).into();
    let hex = "a300821904000001050283821901000382190400008200\
        01";
    check_record(&Lane { head, waiting: 5, next }, hex);
}

#[test]
fn delivery_groups_have_these_bytes() {
    let groups: [(&[DeliveryId], &str); 3] = [
        (
            &[id(1, 70_000, 0), id(1, 70_999, 0), id(2, 70_001, 0), id(u64::MAX, 69_000, 0)],
            "\
            a2001a00010d88018383011903e81907cf82021903e9821bffffffffffffffff00",
        ),
        (&[id(3, 5, 0)], "a200050181820300"),
        (&[], "a200000180"),
    ];
    for (ids, hex) in groups {
        check_record(&ids.to_vec(), hex);
    }
}

fn full_hook() -> Hook {
    let backoff = Backoff { base_ms: 1_000, cap_ms: 300_000, jitter: Jitter::Added { ms: 500 } };
    Hook {
        id: HookId(9),
        tenant: Tenant::parse("acme").unwrap(),
        name: "01HQ".into(),
        created_at: Millis(1),
        updated_at: Millis(2),
        version: 3,
        paused: true,
        stopped_at: Some(Millis(7)),
        spans: vec![
            ActiveSpan { from: EventNo(9), to: Some(EventNo(12)) },
            ActiveSpan { from: EventNo(14), to: None },
        ],
        backfill: Some(Backfill { next: EventNo(3) }),
        face: FaceId(4),
        policy: Policy {
            timeout_ms: 30_000,
            attempts: 5,
            backoff,
            refused: StatusSet::Final4xx,
            ends: Some(410),
            order: Order::Lanes,
            rules: vec![
                Rule { when: When::Status { first: 404, last: 410 }, action: Action::Drop },
                Rule { when: When::Kind(ErrorKind::Blocked), action: Action::Dead },
                Rule { when: When::Unreadable, action: Action::Retry },
            ],
            retry_after: true,
            poison: Some(Poison { attempts: 3, within_ms: 250 }),
            versions: Versions::Matched,
            give_up_after_ms: Some(60_000),
            transport: Transport::Append,
            limits: DeliveryLimits {
                concurrency: Some(8),
                rate: Some(Rate { per_s: 100, burst: 10 }),
                per_tenant: true,
            },
            letters: Letters::GoWithHook,
        },
        spec: Bytes::from_static(b"words"),
        created_by: Some("key_1".into()),
    }
}

fn plain_hook() -> Hook {
    let Hook { policy, .. } = full_hook();
    let backoff = Backoff { jitter: Jitter::Shortened, ..policy.backoff };
    let (refused, order) = (StatusSet::Empty, Order::None);
    let policy =
        Policy { refused, order, ..Policy::new(policy.timeout_ms, policy.attempts, backoff) };
    let (spec, created_by) = (Bytes::new(), None);
    let (version, paused, stopped_at) = (1, false, None);
    Hook {
        version,
        paused,
        stopped_at,
        backfill: None,
        spans: vec![],
        policy,
        spec,
        created_by,
        ..full_hook()
    }
}

#[test]
fn hooks_have_these_bytes() {
    for (hook, hex) in [
        (
            full_hook(),
            "\
            ae0009016461636d6502643031485103010402058282090c810e06030745776f726473080409b200\
            1975300105021903e8031a000493e0041901f405010619019a07f508838400190194\
            19019a028401040001840200000009820318fa0af50bf50f19ea601008111864120a\
            13f514010a656b65795f310b030cf50d07",
        ),
        (
            plain_hook(),
            "\
            a90009016461636d650264303148510301040205800740080409a4001975300105021903e8031a00\
            0493e0",
        ),
    ] {
        check_record(&hook, hex);
    }
}

#[test]
fn ended_hooks_have_these_bytes() {
    let Hook { policy, .. } = plain_hook();
    let policy = Policy { letters: Letters::OutliveHook, ..policy };
    let hook = Hook { policy, ..plain_hook() };
    let hook_hex = "\
        a90009016461636d650264303148510301040205800740080409a5001975300105021903e8031a000493e015f5";
    check_record(&hook, hook_hex);
    let (open, after) = (OpenDeliveries::Bury, Bytes::from_static(b"k"));
    let ended = EndedHook { hook, ended_at: Millis(7), open, after, is_cleared: true };
    check_record(&ended, &format!("a500582d{hook_hex}010702f503416b04f5"));
    let (open, after) = (OpenDeliveries::Drop, Bytes::new());
    let ended = EndedHook { open, after, is_cleared: false, ..ended };
    check_record(&ended, &format!("a300582d{hook_hex}01070340"));
    assert!(decode::<EndedHook>("a30041a001070340").is_err(), "no hook");
    let tenant = Tenant::parse("acme").unwrap();
    check(&ended_hook_key(&tenant, HookId(258)), "1e61636d65000000000000000102");
    check_range(ended_hook_keys(&tenant), "1e61636d6500", "1e61636d6501");
    check_range(all_ended_hook_keys(), "1e", "1f");
}

#[test]
fn keys_have_these_bytes() {
    let (tenant, hook, delivery) = (Tenant::parse("acme").unwrap(), HookId(258), id(258, 5, 2));
    check(&hook_key(FaceId(4), &tenant, "h"), "0d0461636d650068");
    check(&hook_version_key(hook, 3), "1d00000000000001020000000000000003");
    check_range(hook_version_keys(hook), "1d0000000000000102", "1d0000000000000103");
    check(&delivery_key(delivery), "10000000000000010200000000000000050002");
    check(&counts_key(hook), "110000000000000102");
    check(
        &dead_letter_key(delivery, Millis(10)),
        "\
        120000000000000102fffffffffffffff500000000000000050002",
    );
    check(&held_key(delivery), "13000000000000010200000000000000050002");
    check(&lane_key(hook, 7), "1400000000000001020000000000000007");
    check(
        &waiting_key(hook, 7, delivery.no),
        "\
        150000000000000102000000000000000700000000000000050002",
    );
    check_range(all_hook_keys(), "0d", "0e");
    check_range(hook_keys(FaceId(4), &tenant), "0d0461636d6500", "0d0461636d6501");
    check_range(delivery_keys(hook), "100000000000000102", "100000000000000103");
    check_range(dead_letter_keys(hook), "120000000000000102", "120000000000000103");
    check_range(held_keys(hook), "130000000000000102", "130000000000000103");
    check_range(lane_keys(hook), "140000000000000102", "140000000000000103");
    check_range(all_waiting_keys(hook), "150000000000000102", "150000000000000103");
    check_range(
        waiting_keys(hook, 7),
        "1500000000000001020000000000000007",
        "1500000000000001020000000000000008",
    );
}

#[test]
fn keys_read_back_and_stand_in_order() {
    assert_eq!(parse_delivery_key(&delivery_key(id(3, 5, 2))), Some(id(3, 5, 2)));
    assert_eq!(parse_held_key(&held_key(id(3, 5, 2))), Some(id(3, 5, 2)));
    let old = dead_letter_key(id(3, 5, 2), Millis(10));
    let new = dead_letter_key(id(3, 4, 0), Millis(11));
    assert!(new < old, "the newest comes first");
    assert_eq!(parse_dead_letter_key(&old), Some(id(3, 5, 2)));
    let (from, to) = waiting_keys(HookId(3), 7);
    for next in [id(3, 0, 0), id(3, 5, 1), id(3, u64::MAX, u16::MAX)] {
        let key = waiting_key(HookId(3), 7, next.no);
        assert!(from <= key && key < to, "{next:?}");
        assert_eq!(parse_waiting_key(&key), Some(next.no));
    }
    assert!(waiting_key(HookId(3), 8, id(3, 6, 0).no) >= to, "another lane");
}

#[test]
fn damaged_keys_are_nothing() {
    let keys = [
        delivery_key(id(3, 5, 2)),
        held_key(id(3, 5, 2)),
        dead_letter_key(id(3, 5, 2), Millis(10)),
        waiting_key(HookId(3), 7, id(3, 5, 2).no),
    ];
    for key in &keys {
        let longer = [key, &b"\0"[..]].concat();
        let cut = (0..key.len()).map(|len| &key[..len]);
        for damaged in cut.chain([&longer[..]]) {
            assert_eq!(parse_delivery_key(damaged), None, "{damaged:?}");
            assert_eq!(parse_held_key(damaged), None, "{damaged:?}");
            assert_eq!(parse_dead_letter_key(damaged), None, "{damaged:?}");
            assert_eq!(parse_waiting_key(damaged), None, "{damaged:?}");
        }
    }
}

#[test]
fn absent_fields_have_their_default() {
    let record = plain_delivery(Phase::Held);
    let expected = DeliveryRecord { created_at: Millis(0), event_at: Millis(0), ..record };
    assert_eq!(decode("a1008103"), Ok(expected));
    let attempt = AttemptRecord {
        number: 0,
        at: Millis(0),
        took_ms: 0,
        status: None,
        error: None,
        response: None,
        kind: None,
        headers_hash: None,
        retry_after_s: None,
        is_cut: false,
    };
    let delivery = decode::<DeliveryRecord>("a20081030581a0").unwrap().delivery;
    assert_eq!(delivery.attempts, [attempt]);
    assert_eq!(decode("a0"), Ok(DeliveryCounts::default()));
    let first = DeliveryNo { event: EventNo(0), round: 0 };
    assert_eq!(decode("a10103"), Ok(Lane { head: first, waiting: 3, next: Vec::new() }));
    assert_eq!(decode("a0"), Ok(Vec::<DeliveryId>::new()));
    let hook = decode::<Hook>("a5016161026168074162080409a0").unwrap();
    assert_eq!((hook.id, hook.spans.len(), hook.backfill), (HookId(0), 0, None));
    assert_eq!((hook.face, &hook.spec[..]), (FaceId(4), &b"b"[..]));
    assert_eq!((hook.version, hook.paused), (1, false));
    let Policy { timeout_ms, attempts, backoff, refused, ends, order, .. } = &hook.policy;
    assert_eq!((*timeout_ms, *attempts, backoff.base_ms, backoff.cap_ms), (0, 0, 0, 0));
    let rules = (backoff.jitter, *refused, *ends, *order);
    assert_eq!(rules, (Jitter::Shortened, StatusSet::Empty, None, Order::None));
    assert_eq!(hook.policy, Policy::new(0, 0, *backoff));
}

#[test]
fn what_cannot_be_is_damage() {
    // No phase, an unknown one, one without its time; deliveries before the first event.
    // A reason or a kind of failure that nobody knows, a hash that is too short.
    for hex in ["a1008308010c", "a10083090103", "a20081030581a1060b", "a20081030581a10741aa"] {
        assert!(decode::<DeliveryRecord>(hex).is_err(), "{hex}");
    }
    for hex in ["a0", "a100810a", "a1008101", "a100820201", "a10080"] {
        assert!(decode::<DeliveryRecord>(hex).is_err(), "{hex}");
    }
    assert!(decode::<Vec<DeliveryId>>("a201818201000005").is_err());
    // A transport that nobody knows.
    assert!(decode::<Hook>("a5016161026168074162080409a11401").is_ok());
    assert!(decode::<Hook>("a5016161026168074162080409a11402").is_err());
    assert!(decode::<Lane>("a1008101").is_err());
    for (hex, why) in [
        ("a5016141026168074162080409a0", "no tenant"),
        ("a5016161026168074162080409a10502", "unknown statuses"),
    ] {
        let expected = format!("a stored hook cannot be read: {why}");
        assert_eq!(decode::<Hook>(hex).unwrap_err(), expected);
    }
    // No spec, no face, no rules.
    for hex in ["a4016161026168080409a0", "a401616102616807416209a0", "a40161610261680741620804"] {
        assert!(decode::<Hook>(hex).is_err(), "{hex}");
    }
}

#[test]
fn replays_have_these_bytes() {
    use reveille_core::delivery::DeadReason;
    use reveille_core::delivery::replay::{
        LetterAction, ReplayRecord, ReplaySelection, ReplayTurns,
    };
    let id = DeliveryId { hook: HookId(7), no: DeliveryNo { event: EventNo(8), round: 9 } };
    let selection = ReplaySelection {
        action: LetterAction::Replay,
        hooks: vec![HookId(7)],
        why: Some(DeadReason::Poison),
        from: Millis(1),
        to: Millis(2),
        ids: vec![id],
        original: true,
    };
    let mut replay =
        ReplayRecord::new(256, Millis(3), "key_1".into(), Some("why".into()), selection, 4);
    check_record(
        &replay,
        "\
        b200190100010302656b65795f31036377687904070566504f49534f4e0601070208520000000000\
        000007000000000000000800090904\
        0a000b000c000d000e000f4010f412f5",
    );
    let turns = ReplayTurns { made: 1, not_dead: 0, hook_gone: 2, version_gone: 0 };
    replay.advance(&turns, bytes::Bytes::from_static(b"k"), true, Millis(9));
    replay.count(reveille_core::delivery::hook::Standing::Delivered, Millis(9));
    let bytes = crate::codec::Record::encode(&replay);
    assert_eq!(<ReplayRecord as crate::codec::Record>::decode(&bytes), Ok(replay.clone()));
    for count in [0, 2] {
        replay.selection.action = LetterAction::Discard;
        replay.selection.hooks = (0..count).map(HookId).collect();
        let bytes = crate::codec::Record::encode(&replay);
        assert_eq!(<ReplayRecord as crate::codec::Record>::decode(&bytes), Ok(replay.clone()));
    }
}

#[test]
fn dead_letters_of_a_tenant_stand_newest_first() {
    let tenant = Tenant::parse("acme").unwrap();
    let id = DeliveryId { hook: HookId(7), no: DeliveryNo { event: EventNo(8), round: 9 } };
    let at = |died_at| TenantDeadLetter { tenant: tenant.clone(), died_at: Millis(died_at), id };
    check(&at(1).key(), "1b61636d6500fffffffffffffffe000000000000000700000000000000080009");
    assert_eq!(TenantDeadLetter::parse(&at(5).key()), Some(at(5)));
    assert_eq!(TenantDeadLetter::parse(b"\x1bacme\0"), None);
    assert!(at(6).key() < at(5).key());
    let within = |from, to, died_at| {
        let (first, end) = tenant_dead_letter_keys(&tenant, Millis(from), Millis(to));
        let key = at(died_at).key();
        first <= key && key < end
    };
    assert!(within(5, 6, 5) && !within(5, 6, 6) && !within(5, 6, 4));
    assert!(within(0, u64::MAX, 0) && within(0, u64::MAX, 5) && !within(0, 0, 0));
    check(&replay_key(&tenant, 258), "1c61636d65000000000000000102");
}
