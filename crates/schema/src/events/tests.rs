//! Keys and records of events, byte for byte.

use reveille_core::delivery::id::EventNo;
use reveille_core::event::{EventType, Ulid};
use reveille_core::stream::StreamId;
use reveille_core::{Millis, Offset, Tenant};

use crate::golden::check;
use crate::record::EventRecord;
use crate::{keys, record};

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
        check(&record::encode_event(&event), hex);
        assert_eq!(record::decode_event(&record::encode_event(&event)), Ok(event));
    }
}

#[test]
fn keys_have_these_bytes() {
    let (tenant, no) = (Tenant::parse("acme").unwrap(), EventNo(258));
    check(&keys::event(&tenant, no), "0e61636d65000000000000000102");
    check(&keys::event_id(&tenant, "evt-1"), "0f61636d65006576742d31");
    check(
        &keys::event_ids(&tenant, Ulid::first_of_many(Millis(5), [7; 8])),
        "\
        0f61636d65000000000000000507070707070707070000",
    );
    check(&keys::fan_out(&tenant, no), "1661636d65000000000000000102");
    check(&keys::ingested(&tenant, "b"), "1761636d650062");
    check(&keys::later(Millis(258), b"\x17x"), "1800000000000001021778");
    for ((from, to), first, end) in [
        (keys::events(&tenant, no), "0e61636d65000000000000000102", "0e61636d6501"),
        (keys::all_events(), "0e", "0f"),
        (keys::fan_outs(&tenant), "1661636d6500", "1661636d6501"),
        (keys::later_until(Millis(258)), "180000000000000000", "180000000000000103"),
        (keys::later_until(Millis::NEVER), "180000000000000000", "18ffffffffffffffff"),
    ] {
        check(&from, first);
        check(&to, end);
    }
}
