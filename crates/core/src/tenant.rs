//! The tenant that everything belongs to.

use std::fmt;
use std::sync::Arc;

use crate::limits::TENANT_BYTES_MAX;

/// The name of a tenant; `default` when the server runs without keys.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tenant(Arc<str>);

/// Names that nobody may choose.
const RESERVED: [&str; 6] = ["admin", "system", "internal", "default", "public", "global"];

/// The name is not one that a tenant can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a tenant's name is 1 to {TENANT_BYTES_MAX} small letters, digits, `-` or `_`")]
pub struct TenantError;

impl Tenant {
    /// Reads a tenant's name.
    pub fn parse(name: &str) -> Result<Tenant, TenantError> {
        let allowed =
            |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_".contains(&byte);
        if name.is_empty() || name.len() > TENANT_BYTES_MAX || !name.bytes().all(allowed) {
            return Err(TenantError);
        }
        Ok(Tenant(name.into()))
    }

    /// The tenant of a server without keys.
    pub fn default_tenant() -> Tenant {
        Tenant("default".into())
    }

    /// Whether the name means something else in some face, so that nobody may choose it.
    pub fn is_reserved(&self) -> bool {
        RESERVED.contains(&self.as_str())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name, for those who know no tenants and must tell them apart.
    pub fn to_shared(&self) -> Arc<str> {
        self.0.clone()
    }
}

impl fmt::Display for Tenant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_plain_words() {
        assert!(Tenant::parse("acme-1_eu").is_ok());
        assert!(Tenant::parse(&"x".repeat(64)).is_ok());
        for bad in ["", "a/b", "a b", "a.b", "a:b", "Acme", "é", &"x".repeat(65)] {
            assert_eq!(Tenant::parse(bad), Err(TenantError), "{bad}");
        }
    }
}
