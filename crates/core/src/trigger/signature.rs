//! `X-Syntrix-Signature: t=<seconds>,v1=<hex>`: HMAC-SHA256 with the secret over `<seconds>.<body>`.
//!
//! While one secret takes over from another there are two `v1=`, the newest secret's first; one that
//! is right is enough (SEC-2, SEC-3). Sensitive changes of triggers are signed the same way, with the
//! caller's own key (AUD-3).

use std::fmt::Write as _;

use aws_lc_rs::constant_time;

use crate::signature::{check_time, hex_bytes, hmac_tag};

/// The header of a delivery.
pub const HEADER: &str = "X-Syntrix-Signature";
/// The header of a sensitive change.
pub const ADMIN_HEADER: &str = "X-Syntrix-Admin-Signature";
/// How far apart the clocks of both sides may be, in seconds.
pub const TOLERANCE_S: u64 = 300;
/// More than anybody rotates secrets, and no more work than they are worth.
const SIGNATURES_MAX: usize = 16;

/// Why a signature does not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TriggerSignatureError {
    #[error("the request is not signed: it has no `t=…,v1=…` header")]
    Required,
    #[error(
        "the signature is not `t=<seconds>,v1=<64 digits of hexadecimal>`; pass it on unchanged"
    )]
    Malformed,
    #[error(
        "the signature's `t=` is more than {tolerance_s} s away from this machine's clock: check \
         the clock, and whether an old request was sent again"
    )]
    TimestampOutOfRange {
        /// How far they may be apart.
        tolerance_s: u64,
    },
    #[error(
        "the signature does not match: check that the raw bytes of the body are verified, not JSON \
         that was parsed and written again, and that the secret is whole"
    )]
    Mismatch,
}

impl TriggerSignatureError {
    /// The code that the world knows it by; it never changes (SEC-5).
    pub fn code(self) -> &'static str {
        match self {
            TriggerSignatureError::Required => "SIGNATURE_REQUIRED",
            TriggerSignatureError::Malformed => "SIGNATURE_MALFORMED",
            TriggerSignatureError::TimestampOutOfRange { .. } => "SIGNATURE_TIMESTAMP_OUT_OF_RANGE",
            TriggerSignatureError::Mismatch => "SIGNATURE_MISMATCH",
        }
    }
}

/// The header of a body, signed with these secrets, the newest first.
pub fn header<'s>(
    secrets: impl IntoIterator<Item = &'s str>,
    timestamp_s: u64,
    body: &[u8],
) -> String {
    let timestamp = timestamp_s.to_string();
    let mut header = format!("t={timestamp}");
    for secret in secrets {
        header.push_str(",v1=");
        for byte in hmac_tag(secret, &timestamp, body).as_ref() {
            // Writing to a string cannot fail.
            let _ = write!(header, "{byte:02x}");
        }
    }
    header
}

/// Whether a header was made by [`header`] with one of these secrets and this body, around `now_s`.
pub fn verify<'s>(
    secrets: impl IntoIterator<Item = &'s str>,
    header: Option<&str>,
    body: &[u8],
    now_s: u64,
) -> Result<(), TriggerSignatureError> {
    verify_within(secrets, header, body, now_s, TOLERANCE_S)
}

/// The same, for clocks that may be this far apart.
pub fn verify_within<'s>(
    secrets: impl IntoIterator<Item = &'s str>,
    header: Option<&str>,
    body: &[u8],
    now_s: u64,
    tolerance_s: u64,
) -> Result<(), TriggerSignatureError> {
    let header = header.map(str::trim).filter(|header| !header.is_empty());
    let header = header.ok_or(TriggerSignatureError::Required)?;
    let (mut timestamp, mut signatures) = (None, Vec::new());
    for part in header.split(',') {
        let (name, value) = part.trim().split_once('=').ok_or(TriggerSignatureError::Malformed)?;
        match name {
            // Which of two counts is a question on which both sides may differ.
            "t" if timestamp.is_some() => return Err(TriggerSignatureError::Malformed),
            "t" => timestamp = Some(value),
            "v1" if signatures.len() < SIGNATURES_MAX => {
                signatures.push(hex_bytes(value).ok_or(TriggerSignatureError::Malformed)?);
            }
            "v1" => return Err(TriggerSignatureError::Malformed),
            _ => {}
        }
    }
    let timestamp = timestamp.ok_or(TriggerSignatureError::Malformed)?;
    let is_plain = timestamp.bytes().all(|byte| byte.is_ascii_digit());
    let timestamp_s: Option<u64> = timestamp.parse().ok().filter(|_| is_plain);
    let timestamp_s = timestamp_s.ok_or(TriggerSignatureError::Malformed)?;
    if signatures.is_empty() {
        return Err(TriggerSignatureError::Malformed);
    }
    check_time(timestamp_s, now_s, tolerance_s)
        .map_err(|_| TriggerSignatureError::TimestampOutOfRange { tolerance_s })?;
    let is_right = |secret: &str| {
        let tag = hmac_tag(secret, timestamp, body);
        signatures.iter().any(|it| constant_time::verify_slices_are_equal(tag.as_ref(), it).is_ok())
    };
    if secrets.into_iter().any(is_right) { Ok(()) } else { Err(TriggerSignatureError::Mismatch) }
}

#[cfg(test)]
mod tests {
    use super::TriggerSignatureError::{Malformed, Mismatch, Required};
    use super::*;

    const OUT_OF_RANGE: TriggerSignatureError =
        TriggerSignatureError::TimestampOutOfRange { tolerance_s: TOLERANCE_S };

    const SECRET: &str = "whsec_test_secret";
    const BODY: &[u8] = br#"{"triggerId":"trg_123","tenant":"acme","event":"update"}"#;
    const T: u64 = 1_697_041_234;
    const TAG: &str = "fa8c461f6d24b4ee4178e6c0086be2029aa88e1aedef6fcb5f518c4e6df1f057";

    #[test]
    fn sec_2_the_published_vector_holds() {
        let header = header([SECRET], T, BODY);
        assert_eq!(header, format!("t={T},v1={TAG}"));
        assert_eq!(verify([SECRET], Some(&header), BODY, T), Ok(()));
    }

    #[test]
    fn sec_3_either_secret_verifies_while_both_sign_and_the_newest_comes_first() {
        let both = header(["new", SECRET], T, BODY);
        assert!(both.ends_with(TAG));
        for secret in ["new", SECRET] {
            assert_eq!(verify([secret], Some(&both), BODY, T), Ok(()));
        }
        assert_eq!(verify(["other"], Some(&both), BODY, T), Err(Mismatch));
        let new = header(["new"], T, BODY);
        assert_eq!(verify([SECRET], Some(&new), BODY, T), Err(Mismatch));
        assert_eq!(verify([SECRET, "new"], Some(&new), BODY, T), Ok(()));
    }

    #[test]
    fn sec_5_clocks_may_be_300_seconds_apart_and_no_more() {
        let header = header([SECRET], T, BODY);
        for now in [T - 300, T + 300] {
            assert_eq!(verify([SECRET], Some(&header), BODY, now), Ok(()));
        }
        for now in [T - 301, T + 301, 0, u64::MAX] {
            assert_eq!(verify([SECRET], Some(&header), BODY, now), Err(OUT_OF_RANGE));
        }
    }

    #[test]
    fn whoever_verifies_may_choose_how_far_clocks_are_apart() {
        let header = header([SECRET], T, BODY);
        let check = |now| verify_within([SECRET], Some(&header), BODY, now, 10);
        assert_eq!(check(T + 10), Ok(()));
        let error = check(T + 11).unwrap_err();
        assert!(error.to_string().contains("more than 10 s"), "{error}");
    }

    #[test]
    fn sec_5_every_refusal_has_its_code() {
        let check = |header: Option<&str>, expected: TriggerSignatureError, code: &str| {
            assert_eq!(verify([SECRET], header, BODY, T), Err(expected), "{header:?}");
            assert_eq!(expected.code(), code);
        };
        check(None, Required, "SIGNATURE_REQUIRED");
        check(Some("  "), Required, "SIGNATURE_REQUIRED");
        let tag = TAG.to_owned();
        for bad in [
            "nonsense".to_owned(),
            format!("v1={tag}"),
            format!("t={T}"),
            format!("t={T},v1={}", tag.to_uppercase()),
            format!("t={T},v1={}", &tag[1..]),
            format!("t=+{T},v1={tag}"),
            format!("t=,v1={tag}"),
            format!("t={T},t={T},v1={tag}"),
            format!("t={T},{}", vec![format!("v1={tag}"); 17].join(",")),
            format!("t=18446744073709551616,v1={tag}"),
        ] {
            check(Some(&bad), Malformed, "SIGNATURE_MALFORMED");
        }
        let other = format!("t={},v1={tag}", T + 1);
        check(Some(&other), Mismatch, "SIGNATURE_MISMATCH");
        let old = format!("t={},v1={tag}", T - 301);
        check(Some(&old), OUT_OF_RANGE, "SIGNATURE_TIMESTAMP_OUT_OF_RANGE");
        assert_eq!(verify([SECRET], Some(&header([SECRET], T, BODY)), b"{}", T), Err(Mismatch));
        assert_eq!(verify([], Some(&header([SECRET], T, BODY)), BODY, T), Err(Mismatch));
    }
}
