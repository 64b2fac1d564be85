//! Keys and records of who may what, byte for byte.

use reveille_core::key::{Access, Key, KeyHash, Permission, Role};
use reveille_core::{Millis, Tenant};

use crate::golden::check;
use crate::keys::Meta;
use crate::record::SigningKey;
use crate::{keys, record};

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
        check(&record::encode_key(&key), hex);
        assert_eq!(record::decode_key(&record::encode_key(&key)), Ok(key));
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
        let bytes = record::encode_signing_keys(&keys);
        check(&bytes, hex);
        assert!(record::decode_signing_keys(&bytes).unwrap() == keys);
    }
}

#[test]
fn keys_have_these_bytes() {
    check(
        &keys::api_key(&KeyHash([7; 32])),
        "\
        0b0707070707070707070707070707070707070707070707070707070707070707",
    );
    let (from, to) = keys::api_keys();
    check(&from, "0b");
    check(&to, "0c");
    check(&keys::meta(Meta::Probe), "0170726f6265");
    check(&keys::meta(Meta::NextStreamId), "016e6578745f73747265616d5f6964");
    check(&keys::meta(Meta::TokenKey), "01746f6b656e5f6b6579");
    check(&keys::meta(Meta::SigningKeys), "017369676e696e675f6b657973");
}
