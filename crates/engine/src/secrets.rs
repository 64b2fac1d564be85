//! Secrets of tenants that sign deliveries, by name: as they are durable, and opened to be used.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use reveille_core::trigger::secret::SigningSecret;
use reveille_core::{Millis, Tenant};
use reveille_kernel::error::Damaged;
use reveille_schema::{Record, keys};

use crate::app::Part;
use crate::encoder::{SecretSource, SecretUnavailable, Signer};
use crate::engine::Engine;
use crate::keyring::Keyring;
use crate::records::damaged;

type Stored = HashMap<(Tenant, Arc<str>), Arc<SigningSecret>, foldhash::fast::RandomState>;

/// All of them, sealed.
#[derive(Clone, Default)]
pub struct TenantSecrets(Arc<Mutex<Stored>>);

/// Opens them.
pub(crate) struct SecretOpener {
    pub(crate) stored: TenantSecrets,
    pub(crate) keyring: Arc<Keyring>,
}

impl Part for TenantSecrets {
    fn ranges(&self) -> Vec<(Bytes, Bytes)> {
        vec![keys::all_trigger_secrets()]
    }

    fn follow(&self, key: &Bytes, value: Option<&Bytes>) -> Result<(), Damaged> {
        let unreadable = || Damaged::new("the key of a secret is damaged");
        let (tenant, name) = keys::parse_trigger_secret(key).ok_or_else(unreadable)?;
        let secret = value.map(|value| SigningSecret::decode(value)).transpose();
        let mut stored = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match secret.map_err(damaged)? {
            Some(secret) => stored.insert((tenant, name.into()), Arc::new(secret)),
            None => stored.remove(&(tenant, name.into())),
        };
        Ok(())
    }
}

impl TenantSecrets {
    /// A secret of a tenant.
    pub fn get(&self, tenant: &Tenant, name: &str) -> Option<Arc<SigningSecret>> {
        let stored = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        stored.get(&(tenant.clone(), name.into())).cloned()
    }
}

impl SecretSource for SecretOpener {
    fn signing(
        &self,
        tenant: &Tenant,
        name: &str,
        now: Millis,
    ) -> Result<Vec<String>, SecretUnavailable> {
        let secret = self.stored.get(tenant, name).ok_or(SecretUnavailable::Missing)?;
        let open = |sealed| self.keyring.open_webhook_secret(tenant, sealed);
        secret.signing(now).map(|it| open(it).map_err(|_| SecretUnavailable::Sealed)).collect()
    }
}

impl Engine {
    /// The secrets of a tenant, for whoever signs with them outside of a delivery.
    pub fn secret_source(&self, tenant: &Tenant) -> Arc<dyn SecretSource> {
        let stored = self.partition(tenant).domains.part::<TenantSecrets>().clone();
        Arc::new(SecretOpener { stored, keyring: self.extension::<Arc<Keyring>>().clone() })
    }

    /// The server's own keys.
    pub fn signer(&self) -> Arc<dyn Signer> {
        self.extension::<Arc<Keyring>>().clone()
    }
}
