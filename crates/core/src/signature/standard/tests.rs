//! Signatures against values computed elsewhere, and every way in which one is refused.

use proptest::prelude::*;

use super::super::SignatureError;
use super::*;

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const ID: &str = "msg_p5jXN8AQM9LWM0D4loKWxJek";
const AT: u64 = 1_614_265_330;
const BODY: &[u8] = br#"{"test": 2432232314}"#;
/// Computed with Python's `hmac`.
const SIGNATURE: &str = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";

fn secret() -> StandardSecret {
    StandardSecret::parse(SECRET).unwrap()
}

fn check(timestamp: &str, signature: &str, expected: Result<(), StandardError>) {
    let headers = StandardHeaders { id: ID, timestamp, signature };
    assert_eq!(secret().verify(headers, BODY, AT + 1, 300), expected, "{timestamp} {signature}");
}

#[test]
fn the_known_signatures() {
    assert_eq!(secret().signature(ID, AT, BODY), SIGNATURE);
    check("1614265330", SIGNATURE, Ok(()));
    let longest = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8gISIjJCUmJygpKissLS4vMDEyMzQ1\
        Njc4OTo7PD0+Pw==";
    let signature =
        StandardSecret::parse(longest).unwrap().signature("01HQXYZ0000000000000000000", 0, b"");
    assert_eq!(signature, "v1,ijEqGzqmDUGuVgBZ2eOUF01CQvneOB+mmNO38o8ZYv4=");
}

#[test]
fn secrets_have_24_to_64_bytes() {
    let text = |bytes: usize| format!("whsec_{}", STANDARD.encode(vec![7; bytes]));
    for bytes in 0..100 {
        let expected = (24..=64).contains(&bytes);
        assert_eq!(StandardSecret::parse(&text(bytes)).is_ok(), expected, "{bytes}");
    }
    let long = format!("whsec_{}", "A".repeat(1_000_000));
    for bad in ["", "whsec_", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", &text(32)[..40], &long] {
        assert_eq!(StandardSecret::parse(bad).err(), Some(SecretError), "{bad}");
    }
    assert!(StandardSecret::parse(&StandardSecret::text(&[9; 32])).is_ok());
    assert_eq!(format!("{:?}", secret()), "StandardSecret(..)");
}

#[test]
fn one_right_signature_is_enough() {
    let other = format!("v1,{}", STANDARD.encode([0; 32]));
    check("1614265330", &format!("{other} v1a,abc {SIGNATURE}"), Ok(()));
    check("1614265330", &format!("v1,%% {SIGNATURE}"), Ok(()));
    check("1614265330", &other, Err(StandardError::Mismatch));
    check("1614265330", "v1,%%", Err(StandardError::Mismatch));
    check("1614265330", "v1a,abc", Err(StandardError::VersionMissing));
    check("1614265330", "", Err(StandardError::VersionMissing));
    check("1614265330", &SIGNATURE[3..], Err(StandardError::VersionMissing));
    let many = format!("{}{SIGNATURE}", format!("{other} ").repeat(16));
    check("1614265330", &many, Err(StandardError::Mismatch));
}

#[test]
fn the_time_is_what_was_signed() {
    check("1614265331", SIGNATURE, Err(StandardError::Mismatch));
    check("01614265330", SIGNATURE, Err(StandardError::Mismatch));
    for bad in ["", "+1614265330", "1614265330.5", "now", "99999999999999999999"] {
        check(bad, SIGNATURE, Err(StandardError::BadTimestamp));
    }
    let too_old = SignatureError::TooOld { by_s: 31, tolerance_s: 300 };
    check("1614265000", SIGNATURE, Err(StandardError::Time(too_old)));
    let too_new = SignatureError::TooNew { by_s: 69, tolerance_s: 300 };
    check("1614265700", SIGNATURE, Err(StandardError::Time(too_new)));
}

proptest! {
    #[test]
    fn what_is_signed_verifies_and_nothing_else(
        key: [u8; 32],
        id in "[!-~]{1,40}",
        at in 0..1_000_000_000_000u64,
        body: Vec<u8>,
        flipped: prop::sample::Index,
    ) {
        let secret = StandardSecret::parse(&StandardSecret::text(&key)).unwrap();
        let signature = secret.signature(&id, at, &body);
        let timestamp = at.to_string();
        let headers = StandardHeaders { id: &id, timestamp: &timestamp, signature: &signature };
        prop_assert_eq!(secret.verify(headers, &body, at, 0), Ok(()));
        let mut other = body.clone();
        other.push(0);
        let at_index = flipped.index(other.len());
        other[at_index] ^= 1;
        let refused = secret.verify(headers, &other, at, 0);
        prop_assert_eq!(refused, Err(StandardError::Mismatch));
    }
}
