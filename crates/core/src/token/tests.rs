//! Tokens come back as what they were made of, and nothing else comes back at all.

use proptest::prelude::*;

use super::*;
use crate::limits::PATH_BYTES_MAX;

fn key() -> TokenKey {
    TokenKey::new(std::array::from_fn(|index| u8::try_from(index).unwrap()))
}

fn claims() -> Claims {
    Claims {
        kind: TokenKind::Callback,
        tenant: Tenant::parse("acme").unwrap(),
        consumer: "my-sub:%2Fagents%2Ftask-123".into(),
        subscription: 7,
        stream: 8,
        epoch: 9,
        expires_at: Millis(1_794_776_400_250),
    }
}

/// Computed with Python's `hmac`, `struct` and `base64`.
const KNOWN: &str = "AAAAAAAAACoAAAAAAAAABwAAAAAAAAAIAAAAAAAAAAkAAAGh4QKBegRhY21lAW15LXN1YjqvYWdlbnRzr3Rhc2stMTI\
    z.ac_nr2I7IqVzRiodYm15sgInTVCbBDMtRJadPUzZfF4";

#[test]
fn the_known_token() {
    assert_eq!(key().mint(&claims(), 42), KNOWN);
    assert_eq!(key().verify(KNOWN), Ok(claims()));
}

#[test]
fn a_nonce_makes_another_token_of_the_same_claims() {
    let (one, two) = (key().mint(&claims(), 1), key().mint(&claims(), 2));
    assert_ne!(one, two);
    assert_eq!(key().verify(&one), key().verify(&two));
}

#[test]
fn one_kind_never_passes_for_another() {
    let lease = Claims { kind: TokenKind::Lease, ..claims() };
    let (one, two) = (key().mint(&claims(), 1), key().mint(&lease, 1));
    assert_eq!(key().verify(&two).unwrap().kind, TokenKind::Lease);
    // The payloads are the same, the checksums are not.
    assert_eq!(one.split_once('.').unwrap().0, two.split_once('.').unwrap().0);
    assert_ne!(one, two);
}

#[test]
fn another_key_refuses() {
    assert_eq!(TokenKey::new([7; 32]).verify(KNOWN), Err(TokenInvalid));
}

#[test]
fn other_spellings_are_refused() {
    let (payload, tag) = KNOWN.split_once('.').unwrap();
    // The last character of 43 carries four bits: `A` and `B` would decode to the same bytes.
    let (rest, last) = tag.split_at(42);
    let alphabet = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    for other in alphabet.iter().map(|byte| char::from(*byte).to_string()) {
        let spelled = format!("{payload}.{rest}{other}");
        assert_eq!(key().verify(&spelled).is_ok(), other == last, "{other}");
    }
    for bad in [
        "totally-invalid-token".to_owned(),
        String::new(),
        ".".to_owned(),
        payload.to_owned(),
        format!("{payload}."),
        format!(".{tag}"),
        format!("{KNOWN}="),
        format!("{KNOWN}."),
        format!("{KNOWN}.{tag}"),
        format!(" {KNOWN}"),
        format!("{KNOWN}\n"),
        format!("{payload}=.{tag}"),
    ] {
        assert_eq!(key().verify(&bad), Err(TokenInvalid), "{bad}");
    }
}

#[test]
fn what_is_signed_but_makes_no_sense_is_refused() {
    let sign = |payload: &[u8]| {
        let payload = URL_SAFE_NO_PAD.encode(payload);
        let tag = URL_SAFE_NO_PAD.encode(key().tag(TokenKind::Callback, &payload));
        format!("{payload}.{tag}")
    };
    let good = encode(&claims(), 42);
    assert_eq!(sign(&good), KNOWN);
    // Up to the form of the consumer's name; a shorter name would only be another one.
    for length in 0..46 {
        assert_eq!(key().verify(&sign(&good[..length])), Err(TokenInvalid), "{length}");
    }
    let mut other_form = good.clone();
    other_form[45] = 2;
    assert_eq!(key().verify(&sign(&other_form)), Err(TokenInvalid));
    let mut no_tenant = good;
    no_tenant[41] = b'/';
    assert_eq!(key().verify(&sign(&no_tenant)), Err(TokenInvalid));
}

#[test]
fn the_consumer_of_the_longest_path_fits() {
    let longest = Claims {
        tenant: Tenant::parse(&"t".repeat(TENANT_BYTES_MAX)).unwrap(),
        consumer: format!("{}:{}", "s".repeat(256), "%2F".repeat(PATH_BYTES_MAX)).into(),
        ..claims()
    };
    let token = key().mint(&longest, 1);
    assert!(token.len() < TOKEN_BYTES_MAX / 2, "{}", token.len());
    assert_eq!(key().verify(&token), Ok(longest));
}

#[test]
fn what_is_too_long_is_refused() {
    let endless = Claims { consumer: "s".repeat(TOKEN_BYTES_MAX).into(), ..claims() };
    assert_eq!(key().verify(&key().mint(&endless, 1)), Err(TokenInvalid));
}

#[test]
fn expiry_is_a_moment() {
    let claims = claims();
    let at = claims.expires_at.0;
    assert!(!claims.is_expired(Millis(at - 1)));
    assert!(claims.is_expired(Millis(at)));
    assert!(!claims.nears_expiry(Millis(at - 301), 300));
    assert!(claims.nears_expiry(Millis(at - 300), 300));
    assert!(claims.nears_expiry(Millis(at + 1), 300));
}

#[test]
fn the_key_is_not_printed() {
    assert_eq!(format!("{:?}", key()), "TokenKey(..)");
}

prop_compose! {
    fn any_claims()(
        lease: bool,
        tenant in "[a-z0-9_-]{1,64}",
        consumer in prop_oneof![".{0,60}", "[a-z%:]{0,9}(%[0-9A-Fa-f]{2}|[a-z0-9]){0,60}"],
        numbers: [u64; 4],
    ) -> Claims {
        Claims {
            kind: if lease { TokenKind::Lease } else { TokenKind::Callback },
            tenant: Tenant::parse(&tenant).unwrap(),
            consumer: consumer.into(),
            subscription: numbers[0],
            stream: numbers[1],
            epoch: numbers[2],
            expires_at: Millis(numbers[3]),
        }
    }
}

proptest! {
    #[test]
    fn every_claim_comes_back(claims in any_claims(), nonce: u64) {
        let token = key().mint(&claims, nonce);
        prop_assert!(token.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b)));
        prop_assert_eq!(key().verify(&token), Ok(claims));
    }

    #[test]
    fn arbitrary_text_is_refused(text in prop_oneof![".{0,200}", "[A-Za-z0-9_-]{0,90}\\.[A-Za-z0-9_-]{43}"]) {
        prop_assert_eq!(key().verify(&text), Err(TokenInvalid));
    }

    #[test]
    fn one_other_byte_is_enough(at in 0..KNOWN.len(), flip in 1u8..128) {
        let mut bytes = KNOWN.as_bytes().to_vec();
        bytes[at] ^= flip;
        let text = String::from_utf8(bytes).unwrap();
        prop_assert_eq!(key().verify(&text), Err(TokenInvalid));
    }

    #[test]
    fn whatever_the_payload_is_it_is_no_danger(payload in prop::collection::vec(any::<u8>(), 0..120)) {
        let _ = decode(TokenKind::Callback, &payload);
    }
}
