//! Where a page of facts ended. That may be behind something that its reader may not know of, so it is
//! sealed.

use std::fmt;

use aws_lc_rs::hmac;

use crate::secret::{SealBroken, SecretCipher, SecretPurpose};
use crate::tenant::Tenant;

/// Seals places that pages ended at.
pub struct CursorKey(SecretCipher);

/// Says that there is one, and nothing of it.
impl fmt::Debug for CursorKey {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("CursorKey")
    }
}

impl CursorKey {
    /// The key that follows from the server's own, which signs other things.
    pub fn of_server(key: &[u8; 32]) -> CursorKey {
        let own = hmac::Key::new(hmac::HMAC_SHA256, key);
        let tag = hmac::sign(&own, b"reveille fact cursor key");
        let key = tag.as_ref().first_chunk().expect("HMAC-SHA256 has 32 bytes");
        CursorKey(SecretCipher::new(key))
    }

    /// A place as its reader gets it. `nonce` is drawn at random for each.
    pub fn seal(&self, tenant: &Tenant, nonce: [u8; 12], place: &[u8]) -> String {
        self.0.seal(SecretPurpose::FactCursor(tenant), nonce, place).to_string()
    }

    /// The place, if it is one that was sealed for this tenant.
    pub fn open(&self, tenant: &Tenant, text: &str) -> Result<Vec<u8>, SealBroken> {
        self.0.open(SecretPurpose::FactCursor(tenant), text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_says_nothing_and_opens_for_its_tenant_alone() {
        let (key, other) = (CursorKey::of_server(&[7; 32]), CursorKey::of_server(&[8; 32]));
        let [acme, beta] = ["acme", "beta"].map(|name| Tenant::parse(name).unwrap());
        let cursor = key.seal(&acme, [1; 12], b"salary");
        assert_eq!(key.open(&acme, &cursor).unwrap(), b"salary");
        assert!(!cursor.contains("salary") && !cursor.contains("73616c617279"));
        assert_eq!(key.open(&beta, &cursor), Err(SealBroken));
        assert_eq!(other.open(&acme, &cursor), Err(SealBroken));
    }
}
