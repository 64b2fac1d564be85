//! Keys and records of events, byte for byte.

use reveille_core::delivery::Policy;
use reveille_core::delivery::hook::{Hook, HookId};
use reveille_core::delivery::id::EventNo;
use reveille_core::delivery::policy::DeliveryLimits;
use reveille_core::event::hook::{EventHookSpec, FACE, FormerPattern, FormerSpec, Retry};
use reveille_core::event::worker::{RpcMethod, WorkerId};
use reveille_core::event::{EventPattern, Ulid};
use reveille_core::{Millis, Tenant};

use super::*;
use crate::golden::{check, check_range};

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
        limits: DeliveryLimits::default(),
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
    let tenant = Tenant::parse("acme").unwrap();
    check(&event_id_key(&tenant, "evt-1"), "0f61636d65006576742d31");
    check(
        &event_ids_key(&tenant, Ulid::first_of_many(Millis(5), [7; 8])),
        "\
        0f61636d65000000000000000507070707070707070000",
    );
    check(&ingested_key(&tenant, "b"), "1761636d650062");
    check(&later_key(Millis(258), b"\x17x"), "1800000000000001021778");
    check_range(later_keys_until(Millis(258)), "180000000000000000", "180000000000000103");
    check_range(later_keys_until(Millis::NEVER), "180000000000000000", "18ffffffffffffffff");
}

#[test]
fn keys_read_back() {
    let marker = ingested_key(&Tenant::default_tenant(), "b");
    assert_eq!(parse_later_key(&later_key(Millis(4), &marker)), Some(marker));
    assert_eq!(parse_later_key(&Bytes::from_static(b"\x18\0\0\0\0\0\0\0\x04")), None);
}
