//! What keys allow, case by case.

use super::*;

fn tenant(name: &str) -> Tenant {
    Tenant::parse(name).unwrap()
}

fn access(at: Option<&str>, roles: &[Role], permissions: &[Permission]) -> Access {
    Access {
        tenant: at.map(tenant),
        roles: roles.iter().copied().collect(),
        permissions: permissions.iter().copied().collect(),
        ..Access::admin(None)
    }
}

#[test]
fn a_key_is_its_partition_and_32_bytes_that_are_kept_as_a_hash() {
    let key = text(7, &[0xff; 32]);
    assert_eq!(key, "rv_B___________________________________________");
    assert_eq!((key.len(), partition(&key)), (47, Some(7)));
    // What an operator chose says nothing of a partition, whatever it looks like.
    for chosen in ["", "rv_", "rv_Bw", "rv_not base64", "a secret of an operator", &key[3..]] {
        assert_eq!(partition(chosen), None, "{chosen}");
    }
    // openssl dgst -sha256
    let hash = KeyHash::of("abc").unwrap();
    assert_eq!(&hash.0[..4], [0xba, 0x78, 0x16, 0xbf]);
    assert!(hash.is_same(&KeyHash::of("abc").unwrap()));
    assert!(!hash.is_same(&KeyHash::of("abd").unwrap()));
    assert_eq!(KeyHash::of(&"x".repeat(KEY_BYTES_MAX + 1)), None);
    assert_eq!(format!("{hash:?}"), "KeyHash(..)");
}

#[test]
fn names_read_back() {
    for role in Role::ALL {
        assert_eq!(Role::parse(role.as_str()), Some(role));
    }
    for permission in Permission::ALL {
        assert_eq!(Permission::parse(permission.as_str()), Some(permission));
    }
    assert_eq!(Role::parse("Admin"), None);
    assert_eq!(Permission::parse(""), None);
}

/// Every role against every right.
#[test]
fn roles_allow_what_they_are_for() {
    use Permission::{Read, Write};
    let rights = [
        Right::Any,
        Right::Data(Read),
        Right::Data(Write),
        Right::Facts("team"),
        Right::Operate(Read),
        Right::Manage(Read),
        Right::ManageAll,
    ];
    let check = |access: &Access, allowed: [bool; 7]| {
        assert_eq!(rights.map(|right| access.may(right)), allowed, "{access:?}");
    };
    let (yes, no) = (true, false);
    check(&access(None, &[Role::Admin], &[]), [yes, yes, yes, yes, yes, yes, yes]);
    check(&access(Some("a"), &[Role::Admin], &[]), [yes, yes, yes, yes, yes, yes, no]);
    check(&access(Some("a"), &[Role::Operator], &[]), [yes, no, no, no, yes, no, no]);
    check(&access(Some("a"), &[Role::User], &[]), [yes, yes, yes, no, no, no, no]);
    check(&access(Some("a"), &[Role::User], &[Read]), [yes, yes, no, no, no, no, no]);
    check(&access(Some("a"), &[Role::User], &[Write]), [yes, no, yes, no, no, no, no]);
    check(&access(Some("a"), &[Role::Admin], &[Write]), [yes, no, yes, no, no, no, no]);
    check(&access(None, &[Role::Admin], &[Read]), [yes, yes, no, yes, yes, yes, no]);
    let both = [Role::User, Role::Operator];
    check(&access(Some("a"), &both, &[Read, Write]), [yes, yes, yes, no, yes, no, no]);
    let scopes = BTreeSet::from(["team".into()]);
    let reader = Access { scopes, ..access(Some("a"), &[Role::User], &[]) };
    check(&reader, [yes, yes, yes, yes, no, no, no]);
    check(&access(Some("a"), &[], &[]), [no; 7]);
}

/// Who looks at subscriptions, runs them, and makes them; and who changes what there is to manage.
#[test]
fn subscribing_takes_both_permissions_and_operators_only_run_what_there_is() {
    use Permission::{Read, Write};
    let rights = [
        Right::Subscriptions(Read),
        Right::Subscriptions(Write),
        Right::Subscribe,
        Right::Operate(Write),
        Right::Manage(Write),
    ];
    let check = |roles: &[Role], permissions: &[Permission], allowed: [bool; 5]| {
        let access = access(Some("a"), roles, permissions);
        assert_eq!(rights.map(|right| access.may(right)), allowed, "{access:?}");
    };
    let (yes, no) = (true, false);
    check(&[Role::Admin], &[], [yes, yes, yes, yes, yes]);
    check(&[Role::Admin], &[Read], [yes, no, no, no, no]);
    check(&[Role::Admin], &[Write], [no, yes, no, yes, yes]);
    check(&[Role::Operator], &[], [yes, yes, no, yes, no]);
    check(&[Role::Operator], &[Read], [yes, no, no, no, no]);
    check(&[Role::User], &[], [yes, yes, yes, no, no]);
    check(&[Role::User], &[Read], [yes, no, no, no, no]);
    check(&[Role::User], &[Write], [no, yes, no, no, no]);
    check(&[Role::User], &[Read, Write], [yes, yes, yes, no, no]);
}

/// Whatever a key allows that another covers, the other allows.
#[test]
fn no_key_covers_one_that_may_more() {
    use Permission::{Read, Write};
    let rights = |access: &Access| {
        let mut all = vec![Right::Any, Right::Subscribe, Right::ManageAll];
        all.extend(["team", "other"].map(Right::Facts));
        for permission in Permission::ALL {
            all.extend([Right::Data(permission), Right::Subscriptions(permission)]);
            all.extend([Right::Operate(permission), Right::Manage(permission)]);
        }
        all.retain(|right| access.may(*right));
        all
    };
    let mut keys = Vec::new();
    for roles in 0..8 {
        let roles = Role::ALL.into_iter().enumerate().filter(|(at, _)| roles & (1 << at) != 0);
        let roles: Vec<Role> = roles.map(|(_, role)| role).collect();
        for permissions in [&[][..], &[Read], &[Write], &[Read, Write]] {
            for scopes in [&[][..], &["team"], &["team", "other"], &["*"], &["global", "team"]] {
                let scopes = scopes.iter().map(|scope| Arc::from(*scope)).collect();
                keys.push(Access { scopes, ..access(Some("a"), &roles, permissions) });
            }
        }
    }
    for mine in &keys {
        // One that may nothing but what it is for all can be given away by anybody.
        assert!(mine.covers(mine), "{mine:?}");
        for theirs in keys.iter().filter(|theirs| mine.is(Role::Admin) && mine.covers(theirs)) {
            let more: Vec<_> =
                rights(theirs).into_iter().filter(|right| !mine.may(*right)).collect();
            assert!(more.is_empty(), "{mine:?} gives {more:?} to {theirs:?}");
        }
    }
    let admin = Access::admin(Some(tenant("a")));
    let reader = access(Some("a"), &[Role::Admin], &[Read]);
    assert!(admin.covers(&reader) && !reader.covers(&admin));
}

#[test]
fn the_servers_own_streams_are_not_for_everybody() {
    let check = |path, right| assert_eq!(Right::to_read(path), right, "{path}");
    check("/a/_system/b", Right::Data(Permission::Read));
    check("/_events/default", Right::Data(Permission::Read));
    check("/_facts/team", Right::Facts("team"));
    for path in ["/_system/events", "/_changes/a", "/_events", "/_eventsx/a", "/_", "/_new/x"] {
        check(path, Right::Operate(Permission::Read));
    }
}

#[test]
fn admins_manage_keys_of_their_own_tenant_alone() {
    let everywhere = Access::admin(None);
    let (here, there) = (Access::admin(Some(tenant("a"))), Access::admin(Some(tenant("b"))));
    let user = access(Some("a"), &[Role::User], &[]);
    assert!(everywhere.manages(&everywhere) && everywhere.manages(&here));
    assert!(here.manages(&here) && here.manages(&user));
    assert!(!here.manages(&there) && !here.manages(&everywhere));
    assert!(!user.manages(&user));
    assert!(!access(Some("a"), &[Role::Operator], &[]).manages(&user));
}

#[test]
fn some_keys_cannot_be() {
    let check = |access: Access, expected| assert_eq!(access.check(), expected, "{access:?}");
    check(Access::admin(None), Ok(()));
    check(access(Some("acme"), &[Role::User], &[]), Ok(()));
    check(access(Some("default"), &[Role::User], &[]), Ok(()));
    check(access(Some("acme"), &[], &[]), Err(AccessError::NoRole));
    check(access(None, &[Role::User], &[]), Err(AccessError::NoTenant));
    check(access(None, &[Role::Admin, Role::User], &[]), Err(AccessError::NoTenant));
    for name in ["admin", "system", "internal", "public", "global"] {
        let reserved = access(Some(name), &[Role::User], &[]);
        check(reserved, Err(AccessError::Reserved(tenant(name))));
    }
    let named = |text: &str| Access { entity_uri: Some(text.into()), ..Access::admin(None) };
    check(named("stigmem://x/agent/1"), Ok(()));
    for bad in ["", "a\nb", &"x".repeat(ENTITY_URI_BYTES_MAX + 1)] {
        let max = ENTITY_URI_BYTES_MAX;
        check(named(bad), Err(AccessError::Text { field: "entity_uri", max }));
    }
    let scopes = (0..=SCOPES_MAX).map(|number| number.to_string().into()).collect();
    check(Access { scopes, ..Access::admin(None) }, Err(AccessError::Scopes));
    let sentence = AccessError::Reserved(tenant("admin")).to_string();
    assert!(sentence.contains("reserved") && sentence.contains("default"), "{sentence}");
}
