//! TET-1 to TET-5, SYS-1: what tokens say, who may sign them, and what they are good for.

use serde_json::{Value, json};

use super::*;
use crate::signature::Ed25519Key;
use crate::trigger::token::jwt::TriggerKey;

fn key(seed: u8) -> TriggerKey {
    TriggerKey::new(Ed25519Key::from_seed([seed; 32]))
}

fn issue() -> Issue {
    Issue { id: "d1.1".into(), issued_at_s: 1_000, expires_at_s: 1_300 }
}

fn claims(paths: &[&str]) -> TriggerClaims {
    TriggerClaims {
        tenant: Tenant::parse("acme").unwrap(),
        trigger: "trg_1".into(),
        scopes: Scopes::ALL,
        allow_paths: paths.iter().map(|path| AllowedPath::parse(path).unwrap()).collect(),
        max_ops: Some(5),
        max_payload_kb: None,
        bypass_rules: false,
        origin: Origin::of_chain(["trg_0", "trg_1"]).unwrap(),
        delivery: Some("d1".into()),
        issue: issue(),
    }
}

fn system(roles: &[&str]) -> SystemClaims {
    let roles = roles.iter().map(|role| Arc::from(*role)).collect();
    SystemClaims { tenant: Tenant::parse("acme").unwrap(), roles, issue: issue() }
}

fn verify(token: &str, keys: &[TriggerKey]) -> Result<TokenClaims, TokenError> {
    TokenVerifier { keys }.verify(token, 1_100)
}

fn decoded(token: &str, part: usize) -> Value {
    use base64::Engine as _;
    let part = token.split('.').nth(part).unwrap();
    let bytes = base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(part).unwrap();
    serde_json::from_slice(&bytes).unwrap()
}

/// A token of ours with another header or other claims, signed by us.
fn forged(key: &TriggerKey, header: Value, claims: &str) -> String {
    use base64::Engine as _;
    let encode = |bytes: &[u8]| base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(bytes);
    let signed = format!("{}.{}", encode(header.to_string().as_bytes()), encode(claims.as_bytes()));
    let signature = Ed25519Key::from_seed([7; 32]).sign(signed.as_bytes());
    assert_eq!(key.kid(), self::key(7).kid());
    format!("{signed}.{}", encode(&signature))
}

#[test]
fn tet_1_and_2_a_token_says_what_was_put_into_it() {
    let key = key(7);
    let token = key.mint(&claims(&["/rooms/room-1"])).unwrap();
    assert_eq!(decoded(&token, 0), json!({"alg": "EdDSA", "kid": key.kid(), "typ": "JWT"}));
    let said = json!({
        "aud": "syntrix-trigger", "sub": "trg_1", "tenant": "acme",
        "scopes": ["trigger.read", "trigger.write"], "allow_paths": ["/rooms/room-1/"],
        "max_ops": 5, "origin": ["trg_0", "trg_1"], "dlv": "d1",
        "iat": 1_000, "exp": 1_300, "jti": "d1.1",
    });
    assert_eq!(decoded(&token, 1), said);
    let expected = TokenClaims::Trigger(claims(&["/rooms/room-1/"]));
    assert_eq!(verify(&token, std::slice::from_ref(&key)), Ok(expected));
    let bypass = TriggerClaims { bypass_rules: true, max_ops: None, ..claims(&["/rooms/r1"]) };
    let token = key.mint(&bypass).unwrap();
    assert_eq!(verify(&token, &[key]), Ok(TokenClaims::Trigger(bypass)));
}

#[test]
fn tet_1_it_is_good_until_it_expires() {
    let keys = [key(7)];
    let token = keys[0].mint(&claims(&["/rooms"])).unwrap();
    let at = |now_s| TokenVerifier { keys: &keys }.verify(&token, now_s).err();
    assert_eq!(at(1_299), None);
    assert_eq!(at(1_300), Some(TokenError::Expired));
}

#[test]
fn tet_4_nobody_else_signs_and_no_other_algorithm_is_known() {
    let keys = [key(7), key(8)];
    for signer in &keys {
        let token = signer.mint(&claims(&["/rooms"])).unwrap();
        assert!(verify(&token, &keys).is_ok());
    }
    let stranger = key(9).mint(&claims(&["/rooms"])).unwrap();
    assert_eq!(verify(&stranger, &keys), Err(TokenError::Invalid));
    let token = keys[0].mint(&claims(&["/rooms"])).unwrap();
    assert_eq!(verify(&token, &keys[1..]), Err(TokenError::Invalid), "it was retired");
    for at in 0..token.len() {
        let mut bent = token.clone().into_bytes();
        bent[at] = if bent[at] == b'A' { b'B' } else { b'A' };
        let bent = String::from_utf8(bent).unwrap();
        if bent != token {
            assert_eq!(verify(&bent, &keys), Err(TokenError::Invalid), "{at}");
        }
    }
    let said = decoded(&token, 1).to_string();
    let kid = keys[0].kid();
    assert!(verify(&forged(&keys[0], json!({"alg": "EdDSA", "kid": kid}), &said), &keys).is_ok());
    for header in [
        json!({"alg": "none", "kid": kid}),
        json!({"alg": "HS256", "kid": kid}),
        json!({"alg": "RS256", "kid": kid}),
        json!({"alg": "EdDSA"}),
        json!({"alg": "EdDSA", "kid": kid, "crit": ["b64"]}),
        json!({"alg": "EdDSA", "kid": keys[1].kid()}),
    ] {
        let token = forged(&keys[0], header.clone(), &said);
        assert_eq!(verify(&token, &keys), Err(TokenError::Invalid), "{header}");
    }
    for garbage in ["", ".", "..", "a.b.c", "a.b", &"x".repeat(9_000), &format!("{token}.x")] {
        assert_eq!(verify(garbage, &keys), Err(TokenError::Invalid), "{garbage}");
    }
}

#[test]
fn tet_2_claims_that_are_not_ours_let_nobody_in() {
    let keys = [key(7)];
    let token = keys[0].mint(&claims(&["/rooms"])).unwrap();
    let (header, said) = (decoded(&token, 0), decoded(&token, 1));
    let check = |name: &str, value: Value| {
        let mut said = said.clone();
        said[name] = value;
        let token = forged(&keys[0], header.clone(), &said.to_string());
        assert_eq!(verify(&token, &keys), Err(TokenError::Invalid), "{name}");
    };
    check("aud", json!("somebody"));
    check("tenant", json!("no tenant"));
    check("scopes", json!(["trigger.admin"]));
    check("scopes", Value::Null);
    check("allow_paths", json!(["/rooms/{1}/"]));
    check("allow_paths", json!(["/sys/checkpoints/"]));
    check("max_ops", json!("5"));
    check("origin", json!(vec!["a"; 9]));
    check("exp", Value::Null);
    let token = forged(&keys[0], header.clone(), "[]");
    assert_eq!(verify(&token, &keys), Err(TokenError::Invalid));
}

#[test]
fn tet_5_paths_end_where_segments_do() {
    let check = |allowed: &str, path: &str, admits: bool| {
        let access = TokenAccess::new(TokenClaims::Trigger(claims(&[allowed])));
        let found = access.check_path(path);
        assert_eq!(found.is_ok(), admits, "{allowed} {path}");
    };
    for allowed in ["/rooms/room-1/", "/rooms/room-1", "rooms/room-1", "rooms/room-1/"] {
        check(allowed, "rooms/room-1", true);
        check(allowed, "rooms/room-1/messages", true);
        check(allowed, "rooms/room-1/messages/m9", true);
        check(allowed, "rooms/room-12", false);
        check(allowed, "rooms", false);
        check(allowed, "rooms/room-12/messages/m9", false);
        check(allowed, "xrooms/room-1", false);
    }
    check("/rooms/room-123/messages/", "rooms/room-123/messages", true);
    check("/", "rooms/room-12", true);
    for bad in ["", "//", "/a//b/", "/a b/", "/../", "/rooms/{1}/", "/sys/", "/trigger/x"] {
        assert!(AllowedPath::parse(bad).is_err(), "{bad}");
    }
}

#[test]
fn tet_4_the_tenant_comes_before_the_scope_and_the_scope_before_the_path() {
    let (acme, beta) = (Tenant::parse("acme").unwrap(), Tenant::parse("beta").unwrap());
    let read = Scopes { read: true, write: false };
    let claims = TriggerClaims { scopes: read, ..claims(&["/rooms"]) };
    let access = TokenAccess::new(TokenClaims::Trigger(claims));
    assert_eq!(access.check_scope(None, Scope::Read), Ok(()));
    assert_eq!(access.check_scope(Some(&acme), Scope::Read), Ok(()));
    let other = Err(AccessDenied::OtherTenant(acme));
    assert_eq!(access.check_scope(Some(&beta), Scope::Read), other);
    assert_eq!(access.check_scope(Some(&beta), Scope::Write), other);
    assert_eq!(access.check_scope(None, Scope::Write), Err(AccessDenied::Scope(Scope::Write)));
    assert_eq!(access.idempotency_scope(), "trigger:trg_1");
    assert_eq!(access.origin().trigger(), Some("trg_1"));
}

#[test]
fn sys_1_a_system_token_takes_the_role_and_has_every_path() {
    let keys = [key(7)];
    let token = keys[0].mint_system(&system(&SYSTEM_ROLES)).unwrap();
    let said = decoded(&token, 1);
    assert_eq!(said["sub"], "system:trigger-worker");
    assert_eq!(said["roles"], json!(["system", "service:trigger-worker"]));
    let access = TokenAccess::new(verify(&token, &keys).unwrap());
    assert_eq!(access.check_scope(None, Scope::Write), Ok(()));
    assert_eq!(access.check_path("rooms/r1"), Ok(()));
    assert!(access.is_system() && !access.bypasses_rules());
    let user = keys[0].mint_system(&system(&["user"])).unwrap();
    let access = TokenAccess::new(verify(&user, &keys).unwrap());
    assert_eq!(access.check_scope(None, Scope::Read), Err(AccessDenied::NoSystemRole));
}

#[test]
fn a_token_that_nobody_would_read_is_not_made() {
    let long = format!("/{}/", "r".repeat(1_000));
    let paths = vec![long.as_str(); 8];
    assert_eq!(key(7).mint(&claims(&paths)), Err(TokenTooLong));
}
