//! Secrets at rest: sealed with the one key of an installation, and opened only to be used.
//!
//! A sealed secret is the text `1.` and base64url of a nonce (12 bytes), what was sealed and a tag
//! (16 bytes), by AES-256-GCM. What it is for is authenticated with it: a secret that was moved to
//! another place, or another tenant, does not open there.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::tenant::Tenant;

/// Says how what follows was sealed.
const VERSION: &str = "1.";

/// A secret that nobody can read without the key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SealedSecret(Arc<str>);

impl Deref for SealedSecret {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl From<&str> for SealedSecret {
    fn from(stored: &str) -> SealedSecret {
        SealedSecret(stored.into())
    }
}

/// What a secret is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SecretPurpose<'a> {
    /// Signs callback tokens.
    TokenKey,
    /// Sign webhooks of subscriptions without a secret of their own.
    SigningKeys,
    /// Sign tokens of triggers.
    TriggerKeys,
    /// Signs what a tenant's endpoint is sent.
    Webhook(&'a Tenant),
    /// Says where a page of a tenant's facts ended.
    FactCursor(&'a Tenant),
}

impl SecretPurpose<'_> {
    fn authenticated(&self) -> Aad<Vec<u8>> {
        let (name, tenant) = match self {
            SecretPurpose::TokenKey => ("token-key", ""),
            SecretPurpose::SigningKeys => ("signing-keys", ""),
            SecretPurpose::TriggerKeys => ("trigger-keys", ""),
            SecretPurpose::Webhook(tenant) => ("webhook", tenant.as_str()),
            SecretPurpose::FactCursor(tenant) => ("fact-cursor", tenant.as_str()),
        };
        Aad::from([name.as_bytes(), &[0], tenant.as_bytes()].concat())
    }
}

/// A sealed secret does not open: it is damaged, is for something else, or the key is another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a stored secret cannot be opened with this secrets key")]
pub struct SealBroken;

/// Seals and opens secrets.
pub struct SecretCipher(LessSafeKey);

impl fmt::Debug for SecretCipher {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("SecretCipher")
    }
}

impl SecretCipher {
    pub fn new(key: &[u8; 32]) -> SecretCipher {
        let key = UnboundKey::new(&AES_256_GCM, key).expect("a key has 32 bytes");
        SecretCipher(LessSafeKey::new(key))
    }

    /// Seals a secret. No two may have the same nonce: it is drawn at random for each.
    pub fn seal(
        &self,
        purpose: SecretPurpose<'_>,
        nonce: [u8; NONCE_LEN],
        secret: &[u8],
    ) -> SealedSecret {
        let mut bytes = secret.to_vec();
        let unique = Nonce::assume_unique_for_key(nonce);
        self.0
            .seal_in_place_append_tag(unique, purpose.authenticated(), &mut bytes)
            .expect("a secret is far shorter than what can be sealed");
        let all = [nonce.as_slice(), &bytes].concat();
        SealedSecret(format!("{VERSION}{}", URL_SAFE_NO_PAD.encode(all)).into())
    }

    /// What was sealed for this purpose.
    pub fn open(&self, purpose: SecretPurpose<'_>, sealed: &str) -> Result<Vec<u8>, SealBroken> {
        let text = sealed.strip_prefix(VERSION).ok_or(SealBroken)?;
        let all = URL_SAFE_NO_PAD.decode(text).map_err(|_| SealBroken)?;
        let (nonce, rest) = all.split_first_chunk::<NONCE_LEN>().ok_or(SealBroken)?;
        let mut bytes = rest.to_vec();
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let opened = self.0.open_in_place(nonce, purpose.authenticated(), &mut bytes);
        let len = opened.map_err(|_| SealBroken)?.len();
        bytes.truncate(len);
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenant(name: &str) -> Tenant {
        Tenant::parse(name).unwrap()
    }

    #[test]
    fn a_secret_opens_for_its_purpose_and_with_its_key_alone() {
        let cipher = SecretCipher::new(&[7; 32]);
        let (acme, beta) = (tenant("acme"), tenant("beta"));
        let sealed = cipher.seal(SecretPurpose::Webhook(&acme), [1; 12], b"whsec_x");
        assert!(!sealed.contains("whsec"));
        assert_eq!(cipher.open(SecretPurpose::Webhook(&acme), &sealed).unwrap(), b"whsec_x");
        for purpose in [
            SecretPurpose::Webhook(&beta),
            SecretPurpose::TokenKey,
            SecretPurpose::SigningKeys,
            SecretPurpose::TriggerKeys,
            SecretPurpose::FactCursor(&acme),
        ] {
            assert_eq!(cipher.open(purpose, &sealed), Err(SealBroken));
        }
        let other = SecretCipher::new(&[8; 32]);
        assert_eq!(other.open(SecretPurpose::Webhook(&acme), &sealed), Err(SealBroken));
    }

    #[test]
    fn no_changed_character_goes_unnoticed() {
        let cipher = SecretCipher::new(&[7; 32]);
        let sealed = cipher.seal(SecretPurpose::TokenKey, [1; 12], &[9; 32]);
        for at in 0..sealed.len() {
            let mut bent = sealed.as_bytes().to_vec();
            bent[at] = if bent[at] == b'A' { b'B' } else { b'A' };
            let bent = String::from_utf8(bent).unwrap();
            assert_eq!(cipher.open(SecretPurpose::TokenKey, &bent), Err(SealBroken), "{at}");
        }
        for text in ["", "1.", "1.AAAA", "2.AAAA", "whsec_plain"] {
            assert_eq!(cipher.open(SecretPurpose::TokenKey, text), Err(SealBroken));
        }
    }
}
