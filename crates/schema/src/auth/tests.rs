//! Keys and records of who may what, byte for byte.

use reveille_core::key::{Access, Key, KeyHash, Permission, Role};
use reveille_core::{Millis, Tenant};

use super::*;
use crate::codec::Record;
use crate::golden::{check, check_range, check_record, decode};
use crate::meta;

fn full_key() -> Key {
    Key {
        id: "key_1".into(),
        created_at: Millis(7),
        access: Access {
            tenant: Some(Tenant::parse("acme").unwrap()),
            roles: [Role::Operator, Role::User].into(),
            entity_uri: Some("stigmem://x/agent/1".into()),
            permissions: [Permission::Read].into(),
            scopes: ["team".into(), "company".into()].into(),
            description: Some("for people".into()),
        },
    }
}

#[test]
fn keys_of_the_api_have_these_bytes() {
    let nobody = Access { roles: [].into(), ..Access::admin(None) };
    let both = Access {
        permissions: [Permission::Read, Permission::Write].into(),
        description: Some("".into()),
        ..Access::admin(None)
    };
    for (key, hex) in [
        (
            full_key(),
            "\
            a800656b65795f310107026461636d650473737469676d656d3a2f2f782f6167656e742f31076a66\
            6f722070656f706c650382686f70657261746f72647573657205816472656164068267636f6d7061\
            6e79647465616d",
        ),
        (Key { access: Access::admin(None), ..full_key() }, "a300656b65795f31010703816561646d696e"),
        (Key { access: nobody, ..full_key() }, "a200656b65795f310107"),
        (
            Key { access: both, ..full_key() },
            "\
            a500656b65795f310107076003816561646d696e05826472656164657772697465",
        ),
    ] {
        check_record(&key, hex);
    }
}

#[test]
fn signing_keys_have_these_bytes() {
    let signing = SigningKey { seed: [1; 32], created_at: Millis(3), retires_at: None };
    let retired = SigningKey { seed: [2; 32], created_at: Millis(1), retires_at: Some(Millis(9)) };
    for (keys, hex) in [
        (vec![], "80"),
        (
            vec![signing.clone()],
            "\
        81a200582001010101010101010101010101010101010101010101010101010101010101010103",
        ),
        (
            vec![signing, retired],
            "\
            82a200582001010101010101010101010101010101010101010101010101010101010101010103a3\
            005820020202020202020202020202020202020202020202020202020202020202020201010209",
        ),
    ] {
        let bytes = keys.encode();
        check(&bytes, hex);
        assert!(Vec::<SigningKey>::decode(&bytes).unwrap() == keys);
        for cut in 0..bytes.len() {
            assert!(Vec::<SigningKey>::decode(&bytes[..cut]).is_err(), "cut at {cut}");
        }
    }
}

#[test]
fn keys_have_these_bytes() {
    check(
        &api_key(&KeyHash([7; 32])),
        "\
        0b0707070707070707070707070707070707070707070707070707070707070707",
    );
    check_range(api_keys(), "0b", "0c");
    check(&meta::probe_key(), "0170726f6265");
    check(&meta::next_stream_id_key(), "016e6578745f73747265616d5f6964");
    check(&token_key(), "01746f6b656e5f6b6579");
    check(&signing_keys(), "017369676e696e675f6b657973");
    check(&trigger_keys(), "01747269676765725f6b657973");
}

#[test]
fn keys_read_back_and_damage_is_nothing() {
    let hash = KeyHash([7; 32]);
    assert_eq!(parse_api_key(&api_key(&hash)), Some(hash));
    assert_eq!(parse_api_key(b"\x0bshort"), None);
    assert_eq!(parse_api_key(&[0x0c; 33]), None);
}

#[test]
fn absent_fields_have_their_default() {
    let access = Access { roles: [].into(), ..Access::admin(None) };
    let key = Key { id: "k".into(), created_at: Millis(0), access };
    assert_eq!(decode("a100616b"), Ok(key));
}

/// A role of a later version is not taken for none, and a tenant not for every one.
#[test]
fn less_than_a_key_was_given_does_not_become_more() {
    let whole = full_key().encode();
    for (known, other) in [("operator", "operatoR"), ("acme", "Acme"), ("read", "reaD")] {
        let at = whole.windows(known.len()).position(|it| it == known.as_bytes()).unwrap();
        let mut changed = whole.to_vec();
        changed[at..at + known.len()].copy_from_slice(other.as_bytes());
        assert!(Key::decode(&changed).is_err(), "{other}");
    }
}

#[test]
fn a_signing_key_has_its_seed() {
    for hex in ["81", "81a0", "81a10041ff", "a0"] {
        assert!(decode::<Vec<SigningKey>>(hex).is_err(), "{hex}");
    }
}
