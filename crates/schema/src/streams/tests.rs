//! Keys and records of streams, byte for byte.

use reveille_core::producer::{ProducerState, ProducerTag};
use reveille_core::stream::{Closed, Expiry, Fork, Head};
use reveille_core::{ContentType, Millis, Offset};

use super::*;
use crate::codec::Record;
use crate::golden::{check, check_range, check_record, decode};

fn path(text: &str) -> StreamPath {
    StreamPath::parse(text).unwrap()
}

fn plain_head() -> Head {
    Head {
        id: StreamId(7),
        content_type: ContentType::json(),
        tail: Offset::new(1_000),
        first: Offset::ZERO,
        expiry: Expiry::Never,
        requested_expiry: Expiry::Never,
        created_at: Millis(1_700_000_000_000),
        touched_at: Millis(1_700_000_000_001),
        stream_seq: None,
        closed: None,
        fork: None,
        forks: 0,
        soft_deleted: false,
        followed: false,
        has_fan_out: false,
    }
}

fn full_head() -> Head {
    let tag = ProducerTag { id: "p".into(), epoch: 3, seq: 4 };
    Head {
        id: StreamId(u64::MAX),
        content_type: ContentType::parse("text/plain; charset=utf-8").unwrap(),
        tail: Offset::new(12),
        first: Offset::new(5),
        expiry: Expiry::At(Millis(9), "1970-01-01T00:00:00.009Z".into()),
        requested_expiry: Expiry::Ttl(60),
        created_at: Millis(1),
        touched_at: Millis(2),
        stream_seq: Some("007".into()),
        closed: Some(Closed { by: Some(tag) }),
        fork: Some(Fork {
            source: path("/src"),
            source_id: StreamId(5),
            at: Offset::new(6),
            requested_at: Some(Offset::new(6)),
            sub_offset: 2,
            depth: 1,
        }),
        forks: 3,
        soft_deleted: true,
        followed: true,
        has_fan_out: true,
    }
}

#[test]
fn heads_have_these_bytes() {
    check_record(
        &plain_head(),
        "\
        a5000701706170706c69636174696f6e2f6a736f6e021903e8051b0000018bcfe56800061b000001\
        8bcfe56801",
    );
    check_record(
        &full_head(),
        "\
        af001bffffffffffffffff017819746578742f706c61696e3b20636861727365743d7574662d3802\
        0c050106020382097818313937302d30312d30315430303a30303a30302e3030395a04183c076330\
        303708836170030409a600642f737263010502060306040205010a030bf50cf50df50e05",
    );
    let closed = Some(Closed { by: None });
    let expiry = Expiry::Ttl(u64::MAX);
    check_record(
        &Head { closed, expiry, ..plain_head() },
        "\
        a7000701706170706c69636174696f6e2f6a736f6e021903e8051b0000018bcfe56800061b000001\
        8bcfe56801031bffffffffffffffff0880",
    );
    let requested_expiry = Expiry::At(Millis(u64::MAX), "".into());
    check_record(
        &Head { requested_expiry, has_fan_out: true, ..plain_head() },
        "\
        a7000701706170706c69636174696f6e2f6a736f6e021903e8051b0000018bcfe56800061b000001\
        8bcfe5680104821bffffffffffffffff600df5",
    );
    let mut fork = full_head().fork.unwrap();
    fork.requested_at = None;
    check_record(
        &Head { fork: Some(fork), forks: u32::MAX, ..plain_head() },
        "\
        a7000701706170706c69636174696f6e2f6a736f6e021903e8051b0000018bcfe56800061b000001\
        8bcfe5680109a500642f73726301050206040205010a1affffffff",
    );
}

#[test]
fn producers_and_counters_have_these_bytes() {
    for (epoch, seq, hex) in [
        (0, 0, "a200000100"),
        (7, u64::MAX, "a20007011bffffffffffffffff"),
        (23, 24, "a20017011818"),
        (255, 256, "a20018ff01190100"),
        (65_535, 65_536, "a20019ffff011a00010000"),
    ] {
        let state = ProducerState { epoch, seq };
        check_record(&state, hex);
    }
    check(&258_u64.encode(), "0000000000000102");
}

#[test]
fn keys_have_these_bytes() {
    let (tenant, id) = (Tenant::parse("acme").unwrap(), StreamId(258));
    check(&stream_key(&tenant, &path("/a/b")), "0261636d65002f612f62");
    check(&stream_prefix(&tenant, ""), "0261636d6500");
    check(&producer_key(id, "p-1"), "030000000000000102702d31");
    check_range(producer_keys(id), "030000000000000102", "030000000000000103");
}

#[test]
fn keys_read_back_and_damage_is_nothing() {
    let tenant = Tenant::parse("acme").unwrap();
    let key = stream_key(&tenant, &path("/a/b"));
    assert_eq!(parse_stream_key(&key), Some((tenant, path("/a/b"))));
    for damaged in [&b""[..], b"\x02", b"\x02acme/a", b"\x02acme\0", b"\x03acme\0/a"] {
        assert_eq!(parse_stream_key(damaged), None, "{damaged:?}");
    }
}

#[test]
fn absent_fields_have_their_default() {
    let zero = Millis(0);
    let head = Head { id: StreamId(0), tail: Offset::ZERO, ..plain_head() };
    let head = Head { created_at: zero, touched_at: zero, ..head };
    assert_eq!(decode("a101706170706c69636174696f6e2f6a736f6e"), Ok(head.clone()));
    // A fork with nothing but its source; an expiry that is written down as none.
    let fork = Fork {
        source: path("/src"),
        source_id: StreamId(0),
        at: Offset::ZERO,
        requested_at: None,
        sub_offset: 0,
        depth: 1,
    };
    let hex = "a301706170706c69636174696f6e2f6a736f6e03f609a100642f737263";
    assert_eq!(decode(hex), Ok(Head { fork: Some(fork), ..head }));
    assert_eq!(decode("a0"), Ok(ProducerState { epoch: 0, seq: 0 }));
    assert_eq!(decode("a10107"), Ok(ProducerState { epoch: 0, seq: 7 }));
}

#[test]
fn what_cannot_be_is_damage() {
    let wrong = |hex: &str| decode::<Head>(hex).unwrap_err();
    assert!(wrong("a0").starts_with("a stored stream head cannot be read: "));
    assert_eq!(wrong("a1016178"), "a stored stream head cannot be read: no content type");
    for hex in [
        // A producer without a sequence; a fork of nothing; a fork of no path.
        "a20163612f620882617003",
        "a20163612f6209a0",
        "a20163612f6209a1006178",
        // A text for a number, a number for a text.
        "a20163612f62026178",
        "a10107",
        "80",
        "ff",
    ] {
        assert!(decode::<Head>(hex).is_err(), "{hex}");
    }
}
