//! Keys and records of the audit log, byte for byte.

use reveille_core::Millis;
use reveille_core::audit::{Actor, AuditEntry, AuditRow, ChainHead};

use super::*;
use crate::codec::Record;
use crate::golden::{check, check_range, check_record};

fn acme() -> Chain {
    Some(Tenant::parse("acme").unwrap())
}

fn row() -> AuditRow {
    let actor = Actor {
        name: "key_1".into(),
        request_id: Some("r".into()),
        ip: Some("127.0.0.1".into()),
        has_signed: false,
    };
    let entry = AuditEntry {
        from_version: Some(1),
        to_version: Some(2),
        diff: Some("{}".into()),
        reason: Some("why".into()),
        ..AuditEntry::new(actor, "hook.updated", acme(), "H")
    };
    AuditRow { id: 512, seq: 3, at: Millis(7), entry }
}

#[test]
fn rows_have_these_bytes() {
    check_record(
        &row(),
        "\
        ad001902000103020703656b65795f31046c686f6f6b2e75706461746564056461636d6506614807\
        01080209627b7d0a637768790b61720c693132372e302e302e31",
    );
    let mut signed = row();
    signed.entry.actor.has_signed = true;
    check_record(
        &signed,
        "\
        ae001902000103020703656b65795f31046c686f6f6b2e75706461746564056461636d6506614807\
        01080209627b7d0a637768790b61720c693132372e302e302e310df5",
    );
    let actor = Actor { name: "local".into(), ..Actor::server() };
    let entry = AuditEntry::new(actor, "key.created", None, "key_2");
    check_record(
        &AuditRow { id: 1, seq: 0, at: Millis(2), entry },
        "a600010100020203656c6f63616c046b6b65792e6372656174656406656b65795f32",
    );
}

#[test]
fn heads_have_these_bytes() {
    let head = ChainHead {
        first: 1,
        anchor: ChainHash([1; 32]),
        next: 4,
        hash: ChainHash([2; 32]),
        last_at: Millis(9),
    };
    check_record(
        &head,
        "\
        a500010158200101010101010101010101010101010101010101010101010101010101010101020403\
        582002020202020202020202020202020202020202020202020202020202020202020409",
    );
}

#[test]
fn keys_have_these_bytes_and_read_back() {
    check(&row_key(&acme(), 258), "1961636d65000000000000000102");
    check(&row_key(&None, 1), "19000000000000000001");
    check_range(row_keys(&None, 0, 2), "19000000000000000000", "19000000000000000002");
    check_range(all_row_keys(), "19", "1a");
    check(&head_key(&acme()), "1a61636d65");
    check(&head_key(&None), "1a");
    check_range(all_head_keys(), "1a", "1b");
    for chain in [None, acme()] {
        assert_eq!(parse_row_key(&row_key(&chain, 7)), Some((chain.clone(), 7)));
        assert_eq!(parse_head_key(&head_key(&chain)), Some(chain));
    }
    for damaged in [&b"\x19"[..], b"\x19acme", b"\x19acme\0\0\0", b"\x1aacme\0\0\0\0\0\0\0\0\0"] {
        assert_eq!(parse_row_key(damaged), None, "{damaged:?}");
    }
}

#[test]
fn a_value_is_a_hash_and_what_it_is_over() {
    let bytes = row().encode();
    let value = row_value(ChainHash([7; 32]), &bytes);
    assert_eq!(split_row_value(&value), Some((ChainHash([7; 32]), &bytes[..])));
    assert_eq!(split_row_value(&value[..31]), None);
}
