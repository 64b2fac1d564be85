//! Keys and records of streams, byte for byte.

use reveille_core::producer::{ProducerState, ProducerTag};
use reveille_core::stream::{Closed, Expiry, Fork, Head, StreamId};
use reveille_core::{ContentType, Millis, Offset, StreamPath, Tenant};

use crate::golden::check;
use crate::{keys, record};

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
    let check_head = |head: &Head, hex| {
        check(&record::encode_head(head), hex);
        assert_eq!(record::decode_head(&record::encode_head(head)).as_ref(), Ok(head));
    };
    check_head(
        &plain_head(),
        "\
        a5000701706170706c69636174696f6e2f6a736f6e021903e8051b0000018bcfe56800061b000001\
        8bcfe56801",
    );
    check_head(
        &full_head(),
        "\
        af001bffffffffffffffff017819746578742f706c61696e3b20636861727365743d7574662d3802\
        0c050106020382097818313937302d30312d30315430303a30303a30302e3030395a04183c076330\
        303708836170030409a600642f737263010502060306040205010a030bf50cf50df50e05",
    );
    let closed = Some(Closed { by: None });
    let expiry = Expiry::Ttl(u64::MAX);
    check_head(
        &Head { closed, expiry, ..plain_head() },
        "\
        a7000701706170706c69636174696f6e2f6a736f6e021903e8051b0000018bcfe56800061b000001\
        8bcfe56801031bffffffffffffffff0880",
    );
    let requested_expiry = Expiry::At(Millis(u64::MAX), "".into());
    check_head(
        &Head { requested_expiry, has_fan_out: true, ..plain_head() },
        "\
        a7000701706170706c69636174696f6e2f6a736f6e021903e8051b0000018bcfe56800061b000001\
        8bcfe5680104821bffffffffffffffff600df5",
    );
    let mut fork = full_head().fork.unwrap();
    fork.requested_at = None;
    check_head(
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
        check(&record::encode_producer(state), hex);
        assert_eq!(record::decode_producer(&record::encode_producer(state)), Ok(state));
    }
    check(&record::encode_u64(258), "0000000000000102");
}

#[test]
fn keys_have_these_bytes() {
    let (tenant, id) = (Tenant::parse("acme").unwrap(), StreamId(258));
    check(&keys::stream(&tenant, &path("/a/b")), "0261636d65002f612f62");
    check(&keys::stream_prefix(&tenant, ""), "0261636d6500");
    check(&keys::producer(id, "p-1"), "030000000000000102702d31");
    let (from, to) = keys::producers(id);
    check(&from, "030000000000000102");
    check(&to, "030000000000000103");
}
