//! The `Webhook-Signature` header: who made a request, and when.
//!
//! | scheme  | header                                     | key                                  |
//! |---------|--------------------------------------------|--------------------------------------|
//! | HMAC    | `t=<seconds>,sha256=<lower-case hex>`      | the subscription's secret            |
//! | Ed25519 | `t=<seconds>,kid=<key>,ed25519=<base64url>` | the server's, published as a JWK set |
//!
//! While one secret takes over from another the first header has two `sha256=`, and the earlier
//! secret's comes first.
//!
//! Both sign `<seconds>.<body>`, the body byte for byte as it is sent. The secret is the whole
//! text that the subscriber was given, its `whsec_` included. Base64 is without padding.
//!
//! The headers of Standard Webhooks are another way to say the same, in [`standard`].

pub mod standard;

use std::fmt::{self, Write as _};
use std::sync::Arc;

use aws_lc_rs::signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey};
use aws_lc_rs::{constant_time, digest, hmac};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

/// Why a request cannot be trusted, and what to look at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SignatureError {
    /// A part has no `=`.
    #[error("part {0} of the signature header is not `name=value`; pass the header on unchanged")]
    NotAPair(usize),
    /// A part that decides is there twice.
    #[error("the signature header has `{0}=` more than once; pass the header on unchanged")]
    Repeated(&'static str),
    /// There is no timestamp.
    #[error("the signature header has no `t=`; it should begin like `t=1704067200,`")]
    NoTimestamp,
    /// The timestamp is no number.
    #[error("`t=` of the signature header is not a whole number of seconds since 1970")]
    BadTimestamp,
    /// Nothing was signed in the scheme that is asked for.
    #[error(
        "the signature header has no `{0}=`; check in which scheme this subscription is signed"
    )]
    SchemeMissing(&'static str),
    /// The value is not spelled as an HMAC is.
    #[error("`sha256=` of the signature header is not 64 digits of lower-case hexadecimal")]
    BadHmac,
    /// The value is not spelled as a signature is.
    #[error("`ed25519=` of the signature header is not 86 characters of unpadded base64url")]
    BadEd25519,
    /// Signed too long ago.
    #[error(
        "the request was signed {by_s} s too long ago (up to {tolerance_s} s are tolerated); check \
         this machine's clock, and whether an old request was sent again"
    )]
    TooOld {
        /// Seconds beyond what is tolerated.
        by_s: u64,
        /// What is tolerated.
        tolerance_s: u64,
    },
    /// Signed in the future.
    #[error(
        "the request was signed {by_s} s too far in the future (up to {tolerance_s} s are \
         tolerated); check this machine's clock"
    )]
    TooNew {
        /// Seconds beyond what is tolerated.
        by_s: u64,
        /// What is tolerated.
        tolerance_s: u64,
    },
    /// Another secret, or other bytes.
    #[error(
        "`sha256=` does not match; check that the raw bytes of the body are verified, not JSON \
         that was parsed and written again, and that the secret is whole, with its `whsec_`"
    )]
    HmacMismatch,
    /// Another key, by its own name.
    #[error("`ed25519=` was made with another key; fetch the key that `kid=` names")]
    OtherKey,
    /// Other bytes, or another key of that name.
    #[error(
        "`ed25519=` does not match; check that the raw bytes of the body are verified, not JSON \
         that was parsed and written again, and that the public key is this server's"
    )]
    Ed25519Mismatch,
}

/// The header of a request signed with a subscription's secret.
pub fn hmac_header(secret: &str, timestamp_s: u64, body: &[u8]) -> String {
    hmac_header_of([secret], timestamp_s, body)
}

/// The header of a request signed with several secrets, while one takes over from another.
pub fn hmac_header_of<'a>(
    secrets: impl IntoIterator<Item = &'a str>,
    timestamp_s: u64,
    body: &[u8],
) -> String {
    let timestamp = timestamp_s.to_string();
    let mut header = format!("t={timestamp}");
    for secret in secrets {
        header.push_str(",sha256=");
        for byte in hmac_tag(secret, &timestamp, body).as_ref() {
            write!(header, "{byte:02x}").expect("a string takes all that is written");
        }
    }
    header
}

/// Whether `header` was made by [`hmac_header`] with this secret and body, around `now_s`.
pub fn verify_hmac(
    secret: &str,
    header: &str,
    body: &[u8],
    now_s: u64,
    tolerance_s: u64,
) -> Result<(), SignatureError> {
    let header = Header::parse(header)?;
    let signature = header.sha256.ok_or(SignatureError::SchemeMissing("sha256"))?;
    let signature = hex_bytes(signature).ok_or(SignatureError::BadHmac)?;
    header.check_time(now_s, tolerance_s)?;
    let tag = hmac_tag(secret, header.timestamp, body);
    constant_time::verify_slices_are_equal(tag.as_ref(), &signature)
        .map_err(|_| SignatureError::HmacMismatch)
}

/// The server's key for signatures that anybody can verify.
#[derive(Clone)]
pub struct Ed25519Key {
    pair: Arc<Ed25519KeyPair>,
    public: [u8; 32],
    kid: Arc<str>,
}

impl Ed25519Key {
    /// The key that this seed makes (RFC 8032 calls it the private key).
    pub fn from_seed(seed: [u8; 32]) -> Ed25519Key {
        let pair = Ed25519KeyPair::from_seed_unchecked(&seed).expect("every 32 bytes are a seed");
        let public =
            pair.public_key().as_ref().try_into().expect("a public key has 32 bytes, as a seed");
        Ed25519Key { pair: Arc::new(pair), public, kid: kid(&public).into() }
    }

    /// The name by which receivers find the public key.
    pub fn kid(&self) -> &str {
        &self.kid
    }

    /// The public key.
    pub fn public(&self) -> [u8; 32] {
        self.public
    }

    /// The public key as one of a JWK set (RFC 8037).
    pub fn jwk(&self) -> Value {
        json!({
            "kty": "OKP",
            "crv": "Ed25519",
            "x": URL_SAFE_NO_PAD.encode(self.public),
            "kid": self.kid(),
            "alg": "EdDSA",
            "use": "sig",
        })
    }

    /// The signature over these bytes, as they are.
    pub(crate) fn sign(&self, bytes: &[u8]) -> Vec<u8> {
        self.pair.sign(bytes).as_ref().to_vec()
    }

    /// The header of a request signed with this key.
    pub fn header(&self, timestamp_s: u64, body: &[u8]) -> String {
        let signature = self.pair.sign(&signed_bytes(&timestamp_s.to_string(), body));
        let signature = URL_SAFE_NO_PAD.encode(signature);
        format!("t={timestamp_s},kid={},ed25519={signature}", self.kid)
    }
}

/// Names the key, and shows nothing of its secret.
impl fmt::Debug for Ed25519Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ed25519Key({})", self.kid)
    }
}

/// Whether `header` was made by [`Ed25519Key::header`] with this key and body, around `now_s`.
pub fn verify_ed25519(
    public: &[u8; 32],
    header: &str,
    body: &[u8],
    now_s: u64,
    tolerance_s: u64,
) -> Result<(), SignatureError> {
    let header = Header::parse(header)?;
    let signature = header.ed25519.ok_or(SignatureError::SchemeMissing("ed25519"))?;
    let signature = URL_SAFE_NO_PAD.decode(signature).ok().filter(|bytes| bytes.len() == 64);
    let signature = signature.ok_or(SignatureError::BadEd25519)?;
    header.check_time(now_s, tolerance_s)?;
    let signed = signed_bytes(header.timestamp, body);
    UnparsedPublicKey::new(&ED25519, public).verify(&signed, &signature).map_err(|_| {
        // The name is a hint and no proof: it only says which advice is the better one.
        match header.kid {
            Some(named) if named != kid(public) => SignatureError::OtherKey,
            Some(_) | None => SignatureError::Ed25519Mismatch,
        }
    })
}

/// The name of the key that `header` says it was made with. It is a hint and no proof.
pub fn named_key(header: &str) -> Option<&str> {
    Header::parse(header).ok()?.kid
}

/// The public key that a JWK holds (RFC 8037), if it holds one for these signatures.
pub fn jwk_public_key(jwk: &Value) -> Option<[u8; 32]> {
    let is = |name, value| jwk.get(name).and_then(Value::as_str) == Some(value);
    let x = jwk.get("x").and_then(Value::as_str);
    x.filter(|_| is("kty", "OKP") && is("crv", "Ed25519")).and_then(public_key)
}

/// The public key that unpadded base64url spells.
pub fn public_key(text: &str) -> Option<[u8; 32]> {
    URL_SAFE_NO_PAD.decode(text).ok()?.try_into().ok()
}

/// The parts of a header that decide; others may come along.
struct Header<'a> {
    /// As it is written, because that is what was signed.
    timestamp: &'a str,
    timestamp_s: u64,
    kid: Option<&'a str>,
    sha256: Option<&'a str>,
    ed25519: Option<&'a str>,
}

impl<'a> Header<'a> {
    fn parse(text: &'a str) -> Result<Header<'a>, SignatureError> {
        let (mut timestamp, mut kid, mut sha256, mut ed25519) = (None, None, None, None);
        for (part, number) in text.split(',').zip(1..) {
            let (name, value) =
                part.trim().split_once('=').ok_or(SignatureError::NotAPair(number))?;
            let (known, name) = match name {
                "t" => (&mut timestamp, "t"),
                "kid" => (&mut kid, "kid"),
                "sha256" => (&mut sha256, "sha256"),
                "ed25519" => (&mut ed25519, "ed25519"),
                _ => continue,
            };
            // Which of two values counts is a question on which sender and receiver may differ.
            if known.replace(value).is_some() {
                return Err(SignatureError::Repeated(name));
            }
        }
        let timestamp = timestamp.ok_or(SignatureError::NoTimestamp)?;
        let plain = timestamp.bytes().all(|byte| byte.is_ascii_digit());
        let timestamp_s = timestamp.parse().ok().filter(|_| plain);
        let timestamp_s = timestamp_s.ok_or(SignatureError::BadTimestamp)?;
        Ok(Header { timestamp, timestamp_s, kid, sha256, ed25519 })
    }

    fn check_time(&self, now_s: u64, tolerance_s: u64) -> Result<(), SignatureError> {
        check_time(self.timestamp_s, now_s, tolerance_s)
    }
}

pub(crate) fn check_time(
    timestamp_s: u64,
    now_s: u64,
    tolerance_s: u64,
) -> Result<(), SignatureError> {
    let beyond = timestamp_s.abs_diff(now_s).saturating_sub(tolerance_s);
    if beyond == 0 {
        Ok(())
    } else if timestamp_s < now_s {
        Err(SignatureError::TooOld { by_s: beyond, tolerance_s })
    } else {
        Err(SignatureError::TooNew { by_s: beyond, tolerance_s })
    }
}

/// `ds_` and the thumbprint of the key (RFC 7638: its required members, sorted, without spaces).
fn kid(public: &[u8; 32]) -> String {
    let x = URL_SAFE_NO_PAD.encode(public);
    let members = format!(r#"{{"crv":"Ed25519","kty":"OKP","x":"{x}"}}"#);
    let thumbprint = digest::digest(&digest::SHA256, members.as_bytes());
    format!("ds_{}", URL_SAFE_NO_PAD.encode(thumbprint))
}

pub(crate) fn hmac_tag(secret: &str, timestamp: &str, body: &[u8]) -> hmac::Tag {
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    let mut context = hmac::Context::with_key(&key);
    context.update(timestamp.as_bytes());
    context.update(b".");
    context.update(body);
    context.sign()
}

/// Ed25519 reads what it signs twice, so it needs it in one piece.
fn signed_bytes(timestamp: &str, body: &[u8]) -> Vec<u8> {
    [timestamp.as_bytes(), b".", body].concat()
}

/// The 32 bytes that 64 digits of lower-case hexadecimal spell.
pub(crate) fn hex_bytes(text: &str) -> Option<[u8; 32]> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let (pairs, rest) = text.as_bytes().as_chunks();
    if pairs.len() != 32 || !rest.is_empty() {
        return None;
    }
    let mut bytes = [0; 32];
    for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
        *byte = (digit(*high)? << 4) | digit(*low)?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests;
