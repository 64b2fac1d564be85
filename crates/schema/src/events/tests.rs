//! Keys and records of events, byte for byte.

use reveille_core::delivery::Policy;
use reveille_core::delivery::hook::{Hook, HookId};
use reveille_core::delivery::id::EventNo;
use reveille_core::event::hook::{EventHookSpec, FACE, FormerPattern, FormerSpec, Retry};
use reveille_core::event::worker::{RpcMethod, WorkerId};
use reveille_core::event::{EventPattern, EventType, Ulid};
use reveille_core::stream::StreamId;
use reveille_core::{Millis, Offset, Tenant};

use super::*;
use crate::golden::{check, check_range, check_record, decode};

fn event() -> EventRecord {
    EventRecord {
        id: "evt-1".into(),
        kind: EventType::parse("webhook.github.push").unwrap(),
        at: Millis(1_700_000_000_000),
        stream: StreamId(4),
        from: Offset::new(500),
        len: 70_000,
    }
}

#[test]
fn events_have_these_bytes() {
    let first = EventRecord { id: "".into(), from: Offset::ZERO, len: 0, ..event() };
    for (event, hex) in [
        (
            event(),
            "\
        a600656576742d310173776562686f6f6b2e6769746875622e70757368021b0000018bcfe5680003\
        04041901f4051a00011170",
        ),
        (first, "a600600173776562686f6f6b2e6769746875622e70757368021b0000018bcfe56800030404000500"),
    ] {
        check_record(&event, hex);
    }
}

fn spec() -> EventHookSpec {
    EventHookSpec {
        pattern: EventPattern::parse("webhook.**").unwrap(),
        worker: WorkerId::parse("my-worker").unwrap(),
        binding: Some("MY_HANDLER".into()),
        method: RpcMethod::parse("handle").unwrap(),
        max_retries: 5,
        timeout_ms: 30_000,
        secret: Some("whsec_AAAA".into()),
        ordered: true,
        retry: Retry::default(),
        former: FormerSpec::default(),
    }
}

fn hook(policy: Policy, spec: Bytes) -> Hook {
    Hook {
        id: HookId(9),
        tenant: Tenant::default_tenant(),
        name: "h".into(),
        created_at: Millis(1),
        updated_at: Millis(2),
        version: 1,
        paused: false,
        stopped_at: None,
        spans: vec![],
        backfill: None,
        face: FACE,
        policy,
        spec,
        created_by: None,
    }
}

#[test]
fn specs_have_these_bytes() {
    let plain = EventHookSpec {
        binding: None,
        secret: None,
        ordered: false,
        max_retries: 0,
        timeout_ms: 7,
        ..spec()
    };
    let pattern = EventPattern::parse("a").unwrap();
    let former = FormerSpec {
        secret: Some(("old".into(), Millis(7))),
        pattern_since: Some(EventNo(258)),
        patterns: vec![FormerPattern { pattern, until: EventNo(258) }],
    };
    for (spec, hex) in [
        (
            spec(),
            "\
            a5006a776562686f6f6b2e2a2a01696d792d776f726b6572026668616e646c65056a4d595f48414e\
            444c4552066a77687365635f41414141",
        ),
        (
            EventHookSpec { former, ..plain.clone() },
            "\
            a7006a776562686f6f6b2e2a2a01696d792d776f726b6572026668616e646c6507636f6c64080709\
            1901020a81826161190102",
        ),
        (plain, "a3006a776562686f6f6b2e2a2a01696d792d776f726b6572026668616e646c65"),
    ] {
        let bytes = encode_hook_spec(&spec);
        check(&bytes, hex);
        assert_eq!(decode_hook_spec(&hook(spec.policy(), bytes.clone())).as_ref(), Ok(&spec));
        for cut in 0..bytes.len() {
            let cut = hook(spec.policy(), bytes.slice(..cut));
            assert!(decode_hook_spec(&cut).is_err(), "{cut:?}");
        }
    }
    for (bytes, why) in [
        (&b"\xa3\x00\x61 \x01\x61a\x02\x61a"[..], "no pattern"),
        (b"\xa3\x00\x61w\x01\x61 \x02\x61a", "no worker"),
        (b"\xa3\x00\x61w\x01\x61a\x02\x61 ", "no method"),
    ] {
        let error = decode_hook_spec(&hook(spec().policy(), Bytes::from_static(bytes)));
        let expected = format!("a stored event hook cannot be read: {why}");
        assert_eq!(error.unwrap_err().to_string(), expected);
    }
}

#[test]
fn keys_have_these_bytes() {
    let (tenant, no) = (Tenant::parse("acme").unwrap(), EventNo(258));
    check(&event_key(&tenant, no), "0e61636d65000000000000000102");
    check(&event_id_key(&tenant, "evt-1"), "0f61636d65006576742d31");
    check(
        &event_ids_key(&tenant, Ulid::first_of_many(Millis(5), [7; 8])),
        "\
        0f61636d65000000000000000507070707070707070000",
    );
    check(&fan_out_key(&tenant, no), "1661636d65000000000000000102");
    check(&ingested_key(&tenant, "b"), "1761636d650062");
    check(&later_key(Millis(258), b"\x17x"), "1800000000000001021778");
    check_range(event_keys(&tenant, no), "0e61636d65000000000000000102", "0e61636d6501");
    check_range(all_event_keys(), "0e", "0f");
    check_range(fan_out_keys(&tenant), "1661636d6500", "1661636d6501");
    check_range(later_keys_until(Millis(258)), "180000000000000000", "180000000000000103");
    check_range(later_keys_until(Millis::NEVER), "180000000000000000", "18ffffffffffffffff");
}

#[test]
fn keys_read_back_and_stand_in_order() {
    let tenant = Tenant::default_tenant();
    let key = event_key(&tenant, EventNo(9));
    assert_eq!(parse_event_no(&key), Some(EventNo(9)));
    assert_eq!(parse_event_tenant(&key), Some(tenant.clone()));
    let (from, to) = event_keys(&tenant, EventNo(9));
    assert!(from <= key && key < to && event_key(&tenant, EventNo(8)) < from);
    let marker = ingested_key(&tenant, "b");
    assert_eq!(parse_later_key(&later_key(Millis(4), &marker)), Some(marker));
    assert_eq!(parse_later_key(&Bytes::from_static(b"\x18\0\0\0\0\0\0\0\x04")), None);
    assert_eq!(parse_event_no(b"\x0eshort"), None);
    assert_eq!(parse_event_tenant(b"\x0eAcme\0"), None);
    assert_eq!(parse_event_tenant(b"\x0f"), None);
}

#[test]
fn absent_fields_have_their_default_and_what_cannot_be_is_damage() {
    let found = decode::<EventRecord>("a2006161016162").unwrap();
    let expected = EventRecord {
        id: "a".into(),
        kind: EventType::parse("b").unwrap(),
        at: Millis(0),
        stream: StreamId(0),
        from: Offset::ZERO,
        len: 0,
    };
    assert_eq!(found, expected);
    for hex in ["a0", "a1006161", "a1016162", "a20061610160", "a20007016162"] {
        assert!(decode::<EventRecord>(hex).is_err(), "{hex}");
    }
}
