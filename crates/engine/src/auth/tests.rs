//! What is decided about keys: given a state, when a command comes, then these are its writes and
//! its answer.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use reveille_core::key::{Access, Key, KeyHash};
use reveille_core::{Millis, Tenant};
use reveille_kernel::error::{Error, Unavailable};
use reveille_schema::keys::{self, Meta};
use reveille_schema::record;

use super::keys::{ChangeKey, KeyRejection};
use super::server_keys::InstallValue;
use crate::app::Settings;
use crate::testing::Bench;

fn key() -> (KeyHash, Arc<Key>) {
    let hash = KeyHash::of("rv_0123456789").unwrap();
    let access = Access {
        tenant: None,
        roles: BTreeSet::new(),
        entity_uri: None,
        permissions: BTreeSet::new(),
        scopes: BTreeSet::new(),
        description: None,
    };
    (hash, Arc::new(Key { id: "key_1".into(), created_at: Millis(5), access }))
}

#[test]
fn a_key_is_kept_and_forgotten() {
    let mut bench = Bench::new();
    let (hash, key) = key();
    let stored = keys::api_key(&hash);
    let made = bench.when(&ChangeKey { hash, key: Some(key.clone()) });
    let value = made.written(&stored).and_then(Option::as_ref).expect("it is kept");
    assert_eq!(record::decode_key(value).unwrap(), *key);
    assert_eq!((made.effects.len(), made.timer_at, made.outcome), (0, None, Ok(())));
    let revoked = bench.when(&ChangeKey { hash, key: None });
    assert_eq!(revoked.written(&stored), Some(&None));
    assert_eq!((revoked.effects.len(), revoked.outcome), (0, Ok(())));
    assert_eq!(bench.reader().get(&stored).unwrap(), None);
}

/// Each tenant has its own, and those of all tenants are a tenant of their own.
#[test]
fn a_tenant_has_so_many_keys_and_one_that_is_revoked_makes_room() {
    let mut bench = Bench::with(Settings {
        quotas: crate::quota::Quotas { keys: 2, ..Default::default() },
        ..Settings::default()
    });
    let make = |text: &str, tenant: Option<&str>| {
        let (_, key) = key();
        let tenant = tenant.map(|name| Tenant::parse(name).unwrap());
        let access = Access { tenant, ..key.access.clone() };
        let key = Some(Arc::new(Key { access, ..Key::clone(&key) }));
        ChangeKey { hash: KeyHash::of(text).unwrap(), key }
    };
    for tenant in [Some("a"), Some("b"), None] {
        let name = |number: u8| format!("{tenant:?}{number}");
        for number in 0..2 {
            bench.when(&make(&name(number), tenant)).answer();
        }
        let refused = bench.when(&make(&name(2), tenant));
        assert!(refused.writes.is_empty());
        let Err(Error::Rejected(why)) = refused.outcome else { panic!("{:?}", refused.outcome) };
        assert_eq!(why, KeyRejection::TooManyKeys { max: 2 });
        assert!(why.to_string().contains("--max-keys"));
    }
    // Those that are not durable yet are counted, too.
    let hash = KeyHash::of(&format!("{:?}0", Some("a"))).unwrap();
    bench.when(&ChangeKey { hash, key: None }).answer();
    let (mut first, mut second) =
        (bench.submit(&make("x", Some("a"))), bench.submit(&make("y", Some("a"))));
    let full = Err(Error::Rejected(KeyRejection::TooManyKeys { max: 2 }));
    bench.when(&make("z", Some("a"))).outcome.unwrap_err();
    assert_eq!(first.try_recv().unwrap(), Ok(()));
    assert_eq!(second.try_recv().unwrap(), full);
}

#[test]
fn without_room_no_key_is_made_and_any_can_be_revoked() {
    let mut bench = Bench::new();
    let (hash, key) = key();
    bench.when(&ChangeKey { hash, key: Some(key.clone()) }).answer();
    bench.shared.lock().read_only = true;
    let made = bench.when(&ChangeKey { hash, key: Some(key) });
    assert_eq!(made.outcome, Err(Error::Unavailable(Unavailable::DiskFull)));
    assert!(made.writes.is_empty());
    let revoked = bench.when(&ChangeKey { hash, key: None });
    assert_eq!(revoked.written(&keys::api_key(&hash)), Some(&None));
    assert_eq!(revoked.outcome, Ok(()));
}

#[test]
fn a_signing_key_replaces_the_one_that_it_was_made_from_and_no_other() {
    let mut bench = Bench::new();
    let stored = keys::meta(Meta::SigningKeys);
    let install = |value: &'static [u8], expected: Option<&'static [u8]>| InstallValue {
        name: Meta::SigningKeys,
        value: Bytes::from_static(value),
        expected: expected.map(Bytes::from_static),
    };
    let first = bench.when(&install(b"first", None));
    assert_eq!(first.written(&stored), Some(&Some(Bytes::from_static(b"first"))));
    assert_eq!((first.effects.len(), first.outcome), (0, Ok(())));
    let rotated = bench.when(&install(b"second", Some(b"first")));
    assert_eq!(rotated.written(&stored), Some(&Some(Bytes::from_static(b"second"))));
    let stale = bench.when(&install(b"third", Some(b"first")));
    assert!(stale.writes.is_empty() && stale.effects.is_empty());
    assert_eq!(stale.outcome, Ok(()), "somebody else was first");
    assert_eq!(bench.reader().get(&stored).unwrap(), Some(Bytes::from_static(b"second")));
}
