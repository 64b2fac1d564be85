//! Tokens that consumers call back with: signed by the server, stored nowhere.
//!
//! ```text
//! token   = base64url(payload) "." base64url(HMAC-SHA256(key, domain ‖ base64url(payload)))
//! domain  = "reveille token 1 callback\0" or "reveille token 1 lease\0"
//! payload = nonce, subscription, stream, epoch, expires at    8 bytes each, big endian
//!           length of tenant                                  1 byte
//!           tenant
//!           form of consumer                                  1 byte: 0 as it is, 1 packed
//!           consumer                                          the rest
//! ```
//!
//! The kind is nowhere in the payload: it is the one under whose domain the checksum is right, so
//! no token can pass for one of another kind, and nothing is read before its checksum is known to
//! be ours. Base64 is without padding, and has one spelling.
//!
//! A consumer's name is mostly a path that was percent-encoded once more, up to three times as
//! long as the path. Packed, an escape `%XY` below 128 is one byte, so that the name of a consumer
//! of the longest path still fits into a token.

use std::fmt;
use std::sync::Arc;

use aws_lc_rs::{constant_time, hmac};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::limits::{TENANT_BYTES_MAX, TOKEN_BYTES_MAX};
use crate::tenant::Tenant;
use crate::time::Millis;

const AS_IT_IS: u8 = 0;
const PACKED: u8 = 1;

const _: () = assert!(TENANT_BYTES_MAX <= 255, "the length of a tenant's name is one byte");

/// The server's key for tokens.
#[derive(Clone)]
pub struct TokenKey(hmac::Key);

/// What a token is good for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TokenKind {
    /// Calling back during a wake that a webhook was told of.
    Callback,
    /// Holding a lease that was claimed.
    Lease,
}

/// What a token says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claims {
    /// What it is good for.
    pub kind: TokenKind,
    pub tenant: Tenant,
    /// The consumer's name, as it stands in its callback URL.
    pub consumer: Arc<str>,
    /// Which incarnation of the subscription.
    pub subscription: u64,
    /// Which incarnation of the stream.
    pub stream: u64,
    /// The wake that it was given out for.
    pub epoch: u64,
    /// When it ends.
    pub expires_at: Millis,
}

/// The token is malformed, or nobody with the server's key signed it. It does not say which: that
/// would help only somebody who guesses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the token is not one that this server gave out; use the newest token as it was received")]
pub struct TokenInvalid;

impl TokenKind {
    const ALL: [TokenKind; 2] = [TokenKind::Callback, TokenKind::Lease];

    /// Keeps checksums of tokens apart from each other and from whatever else a key may sign.
    fn domain(self) -> &'static [u8] {
        match self {
            TokenKind::Callback => b"reveille token 1 callback\0",
            TokenKind::Lease => b"reveille token 1 lease\0",
        }
    }
}

impl TokenKey {
    /// The key made of these bytes.
    pub fn new(secret: [u8; 32]) -> TokenKey {
        TokenKey(hmac::Key::new(hmac::HMAC_SHA256, &secret))
    }

    /// Signs `claims`. Another `nonce` makes another token of the same claims.
    ///
    /// Names of consumers that do not fit into [`TOKEN_BYTES_MAX`] make tokens that are refused.
    pub fn mint(&self, claims: &Claims, nonce: u64) -> String {
        let mut token = URL_SAFE_NO_PAD.encode(encode(claims, nonce));
        let tag = self.tag(claims.kind, &token);
        token.push('.');
        URL_SAFE_NO_PAD.encode_string(tag, &mut token);
        token
    }

    /// What the token says, if it is one of ours. Whether it has expired is the caller's question.
    pub fn verify(&self, token: &str) -> Result<Claims, TokenInvalid> {
        if token.len() > TOKEN_BYTES_MAX {
            return Err(TokenInvalid);
        }
        let (payload, tag) = token.split_once('.').ok_or(TokenInvalid)?;
        let tag = URL_SAFE_NO_PAD.decode(tag).map_err(|_| TokenInvalid)?;
        let signed_as = |kind: &TokenKind| {
            constant_time::verify_slices_are_equal(self.tag(*kind, payload).as_ref(), &tag).is_ok()
        };
        let kind = TokenKind::ALL.into_iter().find(signed_as).ok_or(TokenInvalid)?;
        let payload = URL_SAFE_NO_PAD.decode(payload).map_err(|_| TokenInvalid)?;
        decode(kind, &payload).ok_or(TokenInvalid)
    }

    fn tag(&self, kind: TokenKind, payload: &str) -> hmac::Tag {
        let mut context = hmac::Context::with_key(&self.0);
        context.update(kind.domain());
        context.update(payload.as_bytes());
        context.sign()
    }
}

/// Says that there is a key, and nothing of it.
impl fmt::Debug for TokenKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenKey(..)")
    }
}

impl Claims {
    /// Whether the token has ended.
    pub fn is_expired(&self, now: Millis) -> bool {
        now >= self.expires_at
    }

    /// Whether at most `within_ms` are left, or none.
    pub fn nears_expiry(&self, now: Millis, within_ms: u64) -> bool {
        self.expires_at.since(now) <= within_ms
    }
}

fn encode(claims: &Claims, nonce: u64) -> Vec<u8> {
    let tenant = claims.tenant.as_str();
    let mut payload = Vec::with_capacity(42 + tenant.len() + claims.consumer.len());
    for number in [nonce, claims.subscription, claims.stream, claims.epoch, claims.expires_at.0] {
        payload.extend_from_slice(&number.to_be_bytes());
    }
    payload.push(u8::try_from(tenant.len()).expect("a tenant's name has a limit"));
    payload.extend_from_slice(tenant.as_bytes());
    if claims.consumer.is_ascii() {
        payload.push(PACKED);
        pack(claims.consumer.as_bytes(), &mut payload);
    } else {
        payload.push(AS_IT_IS);
        payload.extend_from_slice(claims.consumer.as_bytes());
    }
    payload
}

fn decode(kind: TokenKind, payload: &[u8]) -> Option<Claims> {
    let (_nonce, rest) = number(payload)?;
    let (subscription, rest) = number(rest)?;
    let (stream, rest) = number(rest)?;
    let (epoch, rest) = number(rest)?;
    let (expires_at, rest) = number(rest)?;
    let (tenant_len, rest) = rest.split_first()?;
    let (tenant, rest) = rest.split_at_checked(usize::from(*tenant_len))?;
    let (form, consumer) = rest.split_first()?;
    let consumer = match *form {
        AS_IT_IS => std::str::from_utf8(consumer).ok()?.to_owned(),
        PACKED => unpack(consumer),
        _ => return None,
    };
    Some(Claims {
        kind,
        tenant: Tenant::parse(std::str::from_utf8(tenant).ok()?).ok()?,
        consumer: consumer.into(),
        subscription,
        stream,
        epoch,
        expires_at: Millis(expires_at),
    })
}

fn number(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (number, rest) = bytes.split_first_chunk()?;
    Some((u64::from_be_bytes(*number), rest))
}

/// Writes ASCII text with every escape `%XY` below 128 as the one byte `0x80 | 0xXY`, which ASCII
/// leaves free. Escapes with small letters stay as they are, because they must come back so.
fn pack(text: &[u8], packed: &mut Vec<u8>) {
    let mut rest = text;
    loop {
        rest = match rest {
            [b'%', high @ b'0'..=b'7', low @ (b'0'..=b'9' | b'A'..=b'F'), after @ ..] => {
                let low = if low.is_ascii_digit() { low - b'0' } else { low - b'A' + 10 };
                packed.push(0x80 | ((high - b'0') << 4) | low);
                after
            }
            [byte, after @ ..] => {
                packed.push(*byte);
                after
            }
            [] => return,
        }
    }
}

fn unpack(packed: &[u8]) -> String {
    let mut text = String::with_capacity(packed.len() * 2);
    for byte in packed {
        if byte.is_ascii() {
            text.push(char::from(*byte));
        } else {
            text.push_str(&format!("%{:02X}", byte & 0x7f));
        }
    }
    text
}

#[cfg(test)]
mod tests;
