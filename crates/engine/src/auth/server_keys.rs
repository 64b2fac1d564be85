//! The server's own secrets, kept in the first partition.

use std::sync::Arc;

use bytes::Bytes;
use reveille_core::audit::{AuditEntry, action};
use reveille_core::signature::Ed25519Key;
use reveille_kernel::command::{Command, Decision};
use reveille_kernel::doors::Clock;
use reveille_kernel::error::{Damaged, Error, Never};
use reveille_kernel::submit::submit_blocking;
use reveille_schema::keys::{self, Meta};

use crate::app::{App, Part, Shared, Txn};
use crate::audit::Audited;
use crate::engine::Engine;
use crate::keyring::Keyring;

/// Keeps something of the server's own, unless somebody else was quicker.
#[derive(Debug, Clone)]
pub struct InstallValue {
    pub name: Meta,
    pub value: Bytes,
    /// What must be there now.
    pub expected: Option<Bytes>,
}

impl Command<App> for InstallValue {
    type Answer = ();
    type Rejection = Never;

    fn decide(&self, txn: &mut Txn<'_>) -> Decision<(), Never> {
        let key = keys::meta(self.name);
        if txn.get(&key)? == self.expected {
            txn.set(key, self.value.clone());
        }
        Ok(Ok(()))
    }
}

/// The keys that sign webhooks follow what is stored.
pub struct SigningKeyFollower(pub Arc<Keyring>);

impl Part for SigningKeyFollower {
    fn ranges(&self) -> Vec<(Bytes, Bytes)> {
        let key = keys::meta(Meta::SigningKeys);
        let end = reveille_core::key_range::above(&key);
        vec![(key, end)]
    }

    fn follow(&self, _: &Bytes, value: Option<&Bytes>) -> Result<(), Damaged> {
        match value {
            Some(value) => self.0.adopt(value.clone()).map_err(Damaged),
            None => Ok(()),
        }
    }
}

/// Makes the server's secrets at the first start, and reads the one that signs tokens.
pub(crate) fn open(
    shared: &Arc<Shared>,
    keyring: &Keyring,
    clock: &Arc<dyn Clock>,
) -> Result<(), Error<Never>> {
    let read = |name| shared.state.reader().get(&keys::meta(name)).map_err(Damaged::from);
    if read(Meta::TokenKey)?.is_none() {
        let fresh = keyring.initial_keys(clock.now());
        for (name, value) in [(Meta::SigningKeys, fresh.signing), (Meta::TokenKey, fresh.token)] {
            let command = InstallValue { name, value, expected: None };
            submit_blocking(shared, clock.now(), &command)?;
        }
    }
    let missing = || Damaged::new("the server's own keys are missing");
    let token = read(Meta::TokenKey)?.ok_or_else(missing)?;
    keyring.set_token_key(&token).map_err(Damaged)?;
    if keyring.is_empty() {
        return Err(missing().into());
    }
    Ok(())
}

impl Engine {
    /// The keys that webhooks may be signed with, as the world may know them.
    pub fn published_keys(&self) -> Vec<Ed25519Key> {
        self.extension::<Arc<Keyring>>().published(self.clock().now())
    }

    /// Has a new key sign webhooks, and publishes the old one for a while longer.
    pub async fn rotate_signing_key(&self, overlap_ms: u64) -> Result<Ed25519Key, Error<Never>> {
        let keyring = self.extension::<Arc<Keyring>>();
        let (expected, value) = keyring.rotated(self.clock().now(), overlap_ms);
        let command = InstallValue { name: Meta::SigningKeys, value, expected: Some(expected) };
        let entry = self.audit_entry(action::SIGNING_KEY_ROTATED, None, "signing-keys");
        let describe = move |_: &Txn<'_>, (): &(), entry: &mut AuditEntry| {
            entry.diff = Some(format!("{{\"overlapMs\":[null,{overlap_ms}]}}").into());
        };
        let audited = Audited { command, entry, describe };
        self.submit_to(self.first_partition(), &audited).await?;
        Ok(keyring.signing())
    }
}
