//! Headers against values computed elsewhere, and every way in which one is refused.

use proptest::prelude::*;

use super::*;

const SECRET: &str = "whsec_0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
const BODY: &[u8] = br#"{"consumer_id":"my-sub:%2Fagents%2Ftask-123","epoch":7}"#;
const AT: u64 = 1_704_067_200;
/// Computed with Python's `hmac`.
const HMAC: &str =
    "t=1704067200,sha256=9080a4a9200751a8a15d027b5fc9723e88ee0dceb3a10ead7d4977b9f6a489d2";
/// Computed with Python's `cryptography`, with the key of RFC 8037.
const ED25519_HEADER: &str = "t=1704067200,kid=ds_kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k,\
    ed25519=uNLbmYsIJxGYMw7MHfTO_FggZbPjMhTF20xjpwEUlhALkO3zMlWkC2_9F3CoWkZ3u4uuBX749btEf-32chd1Bw";

fn bytes<const N: usize>(hex: &str) -> [u8; N] {
    std::array::from_fn(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).unwrap())
}

/// The key of RFC 8037, appendix A.1, and of the first test of RFC 8032.
fn key() -> Ed25519Key {
    Ed25519Key::from_seed(bytes("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60"))
}

fn check_hmac(header: &str, expected: Result<(), SignatureError>) {
    assert_eq!(verify_hmac(SECRET, header, BODY, AT + 1, 300), expected, "{header}");
}

fn check_ed25519(header: &str, expected: Result<(), SignatureError>) {
    assert_eq!(verify_ed25519(&key().public(), header, BODY, AT + 1, 300), expected, "{header}");
}

#[test]
fn the_known_hmac() {
    assert_eq!(hmac_header(SECRET, AT, BODY), HMAC);
    check_hmac(HMAC, Ok(()));
    let empty = "t=0,sha256=894be2e2d080058ff66d1682af73977e1d22a91dede8fbb5313502a1a9bd8537";
    assert_eq!(hmac_header(SECRET, 0, b""), empty);
}

#[test]
fn the_known_ed25519() {
    assert_eq!(key().header(AT, BODY), ED25519_HEADER);
    check_ed25519(ED25519_HEADER, Ok(()));
}

#[test]
fn the_tests_of_rfc_8032() {
    let check = |seed, public, message: &[u8], signature| {
        let key = Ed25519Key::from_seed(bytes(seed));
        assert_eq!(key.public(), bytes(public));
        assert_eq!(key.pair.sign(message).as_ref(), bytes::<64>(signature));
    };
    check(
        "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
        "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
        &[],
        "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e3970\
         1cf9b46bd25bf5f0595bbe24655141438e7a100b",
    );
    check(
        "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
        "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
        &[0x72],
        "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613\
         d0f11d8c387b2eaeb4302aeeb00d291612bb0c00",
    );
    check(
        "c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7",
        "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025",
        &[0xaf, 0x82],
        "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac18ff9b538d16f290ae67f760\
         984dc6594a7c15e9716ed28dc027beceea1ec40a",
    );
}

#[test]
fn the_key_of_rfc_8037() {
    // Appendices A.2 and A.3.
    let kid = "ds_kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k";
    assert_eq!(key().kid(), kid);
    let jwk = json!({
        "kty": "OKP", "crv": "Ed25519", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo",
        "kid": kid, "alg": "EdDSA", "use": "sig",
    });
    assert_eq!(key().jwk(), jwk);
    assert_eq!(format!("{:?}", key().clone()), format!("Ed25519Key({kid})"));
}

#[test]
fn spaces_and_unknown_parts_are_no_trouble() {
    let (_, hex) = HMAC.split_once(",sha256=").unwrap();
    let (_, signature) = ED25519_HEADER.split_once("ed25519=").unwrap();
    check_hmac(&format!("t={AT}, sha256={hex}"), Ok(()));
    check_hmac(&format!("v1=x=y, sha256={hex}, t={AT},  later="), Ok(()));
    check_hmac(&format!("t={AT},sha256={hex},kid=x,ed25519=!"), Ok(()));
    check_ed25519(&format!("t={AT},ed25519={signature}"), Ok(()));
    // A key may go by another name; the signature is what counts.
    check_ed25519(&format!("t={AT}, kid=renamed, ed25519={signature}"), Ok(()));
}

#[test]
fn malformed_headers_say_what_is_wrong() {
    let (_, hex) = HMAC.split_once(",sha256=").unwrap();
    check_hmac("", Err(SignatureError::NotAPair(1)));
    check_hmac("t=1,sha256", Err(SignatureError::NotAPair(2)));
    check_hmac(&format!("{HMAC},"), Err(SignatureError::NotAPair(3)));
    check_hmac(&format!("sha256={hex}"), Err(SignatureError::NoTimestamp));
    check_hmac(&format!("T={AT},sha256={hex}"), Err(SignatureError::NoTimestamp));
    for bad in ["", "+1", "-1", "1.5", "1e9", " 1", "now", "99999999999999999999"] {
        check_hmac(&format!("t={bad},sha256={hex}"), Err(SignatureError::BadTimestamp));
    }
    check_hmac(&format!("t=1,{HMAC}"), Err(SignatureError::Repeated("t")));
    check_hmac(&format!("{HMAC},sha256={hex}"), Err(SignatureError::Repeated("sha256")));
    let bad = [String::new(), hex.to_uppercase(), hex[..62].to_owned(), hex[..63].to_owned()];
    for bad in bad.into_iter().chain([format!("{hex}00"), "é".repeat(32), "g".repeat(64)]) {
        check_hmac(&format!("t={AT},sha256={bad}"), Err(SignatureError::BadHmac));
    }
    check_ed25519("t=1,ed25519=AAAA", Err(SignatureError::BadEd25519));
    check_ed25519(&format!("{ED25519_HEADER}=="), Err(SignatureError::BadEd25519));
    check_ed25519(&format!("t=1,ed25519={}", "+".repeat(86)), Err(SignatureError::BadEd25519));
}

#[test]
fn the_scheme_asked_for_must_be_there() {
    check_hmac(ED25519_HEADER, Err(SignatureError::SchemeMissing("sha256")));
    check_ed25519(HMAC, Err(SignatureError::SchemeMissing("ed25519")));
}

#[test]
fn old_and_new_are_told_by_how_much() {
    let check = |now_s, expected| {
        assert_eq!(verify_hmac(SECRET, HMAC, BODY, now_s, 300), expected);
        let public = key().public();
        assert_eq!(verify_ed25519(&public, ED25519_HEADER, BODY, now_s, 300), expected);
    };
    check(AT - 300, Ok(()));
    check(AT + 300, Ok(()));
    check(AT + 301, Err(SignatureError::TooOld { by_s: 1, tolerance_s: 300 }));
    check(AT + 3900, Err(SignatureError::TooOld { by_s: 3600, tolerance_s: 300 }));
    check(AT - 310, Err(SignatureError::TooNew { by_s: 10, tolerance_s: 300 }));
    check(0, Err(SignatureError::TooNew { by_s: AT - 300, tolerance_s: 300 }));
    check(u64::MAX, Err(SignatureError::TooOld { by_s: u64::MAX - AT - 300, tolerance_s: 300 }));
}

#[test]
fn other_bytes_secrets_and_keys_do_not_match() {
    let verify = |secret, body| verify_hmac(secret, HMAC, body, AT, 300);
    let mismatch = Err(SignatureError::HmacMismatch);
    assert_eq!(verify(SECRET.strip_prefix("whsec_").unwrap(), BODY), mismatch);
    assert_eq!(verify("", BODY), mismatch);
    assert_eq!(verify(SECRET, b"{}"), mismatch);
    assert_eq!(verify(SECRET, [BODY, b"\n"].concat().as_slice()), mismatch);
    check_hmac(&HMAC.replace("t=1704067200", "t=1704067201"), mismatch);
    // The same moment, but not the same text.
    check_hmac(&HMAC.replace("t=1704067200", "t=01704067200"), mismatch);

    let verify = |public: &[u8; 32], header: &str, body: &[u8]| {
        verify_ed25519(public, header, body, AT, 300)
    };
    let (mine, other) = (key().public(), Ed25519Key::from_seed([1; 32]));
    assert_eq!(verify(&mine, ED25519_HEADER, b"{}"), Err(SignatureError::Ed25519Mismatch));
    assert_eq!(verify(&other.public(), ED25519_HEADER, BODY), Err(SignatureError::OtherKey));
    let header = other.header(AT, BODY);
    assert_eq!(verify(&mine, &header, BODY), Err(SignatureError::OtherKey));
    let posing = header.replace(other.kid(), key().kid());
    assert_eq!(verify(&mine, &posing, BODY), Err(SignatureError::Ed25519Mismatch));
    // Not every 32 bytes are a point of the curve.
    assert_eq!(verify(&[0xff; 32], ED25519_HEADER, BODY), Err(SignatureError::OtherKey));
}

#[test]
fn refusals_say_what_to_check() {
    let old = SignatureError::TooOld { by_s: 7, tolerance_s: 300 }.to_string();
    assert!(old.contains("signed 7 s too long ago (up to 300 s are tolerated); check"), "{old}");
    let mismatch = SignatureError::HmacMismatch.to_string();
    assert!(mismatch.contains("raw bytes of the body"), "{mismatch}");
    assert!(mismatch.contains("`whsec_`"), "{mismatch}");
    let missing = SignatureError::SchemeMissing("sha256").to_string();
    assert!(missing.contains("no `sha256=`"), "{missing}");
}

proptest! {
    #[test]
    fn what_was_signed_verifies(
        secret in ".{0,80}",
        seed: [u8; 32],
        at: u64,
        body in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        prop_assert_eq!(verify_hmac(&secret, &hmac_header(&secret, at, &body), &body, at, 0), Ok(()));
        let key = Ed25519Key::from_seed(seed);
        prop_assert_eq!(verify_ed25519(&key.public(), &key.header(at, &body), &body, at, 0), Ok(()));
    }

    #[test]
    fn any_header_is_judged(
        header in prop_oneof![
            ".{0,60}",
            "(t=[0-9]{0,22}|kid=[a-z]{0,3}|sha256=[0-9a-f]{64}|ed25519=[A-Za-z0-9_-]{86}|,| ){0,8}",
        ],
        public: [u8; 32],
    ) {
        prop_assert!(verify_hmac(SECRET, &header, BODY, AT, u64::MAX).is_err());
        prop_assert!(verify_ed25519(&public, &header, BODY, AT, u64::MAX).is_err());
    }

    #[test]
    fn one_other_byte_of_the_signature_is_enough(at in 20..HMAC.len(), flip in 1u8..128) {
        let mut header = HMAC.as_bytes().to_vec();
        header[at] ^= flip;
        let header = String::from_utf8(header).unwrap();
        prop_assert!(verify_hmac(SECRET, &header, BODY, AT, 300).is_err());
    }
}

#[test]
fn a_published_key_is_read_back() {
    let key = Ed25519Key::from_seed([7; 32]);
    let jwk = key.jwk();
    assert_eq!(jwk_public_key(&jwk), Some(key.public()));
    assert_eq!(named_key(&key.header(1, b"")), Some(key.kid()));
    assert_eq!(named_key("t=1,sha256=00"), None);
    for (name, other) in [("kty", "EC"), ("crv", "X25519"), ("x", "AA")] {
        let mut jwk = jwk.clone();
        jwk[name] = other.into();
        assert_eq!(jwk_public_key(&jwk), None, "{name}");
    }
}
