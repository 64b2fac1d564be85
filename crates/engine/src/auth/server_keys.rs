//! The server's own secrets, kept in the first partition.

use std::sync::Arc;

use bytes::Bytes;
use reveille_core::audit::{AuditEntry, action};
use reveille_core::signature::Ed25519Key;
use reveille_core::trigger::token::TriggerKey;
use reveille_kernel::command::{Command, Decision};
use reveille_kernel::doors::Clock;
use reveille_kernel::error::{Damaged, Error, Never};
use reveille_kernel::submit::submit_blocking;
use reveille_schema::keys::{self, Meta};

use crate::app::{App, Part, Shared, Txn};
use crate::audit::Audited;
use crate::engine::Engine;
use crate::keyring::{KeySet, Keyring};

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

/// The keys that sign webhooks and tokens of triggers follow what is stored.
pub struct SigningKeyFollower(pub Arc<Keyring>);

impl Part for SigningKeyFollower {
    fn ranges(&self) -> Vec<(Bytes, Bytes)> {
        let keys = KeySet::ALL.map(|set| keys::meta(set.meta()));
        keys.map(|key| (key.clone(), reveille_core::key_range::above(&key))).into()
    }

    fn follow(&self, key: &Bytes, value: Option<&Bytes>) -> Result<(), Damaged> {
        let set = KeySet::ALL.into_iter().find(|set| keys::meta(set.meta()) == *key);
        match (set, value) {
            (Some(set), Some(value)) => self.0.adopt(set, value.clone()).map_err(Damaged),
            (None, _) | (_, None) => Ok(()),
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
    let install = |name, value| {
        let command = InstallValue { name, value, expected: None };
        submit_blocking(shared, clock.now(), &command)
    };
    if read(Meta::TokenKey)?.is_none() {
        install(Meta::SigningKeys, keyring.initial_keys(KeySet::Webhooks, clock.now()))?;
        install(Meta::TokenKey, keyring.initial_token_key())?;
    }
    // A data directory may be from before there were triggers.
    if read(Meta::TriggerKeys)?.is_none() {
        install(Meta::TriggerKeys, keyring.initial_keys(KeySet::Triggers, clock.now()))?;
    }
    let missing = || Damaged::new("the server's own keys are missing");
    let token = read(Meta::TokenKey)?.ok_or_else(missing)?;
    keyring.set_token_key(&token).map_err(Damaged)?;
    if KeySet::ALL.into_iter().any(|set| keyring.is_empty(set)) {
        return Err(missing().into());
    }
    Ok(())
}

impl Engine {
    /// The keys that webhooks may be signed with, as the world may know them.
    pub fn published_keys(&self) -> Vec<Ed25519Key> {
        self.extension::<Arc<Keyring>>().published(KeySet::Webhooks, self.clock().now())
    }

    /// The keys that tokens of triggers may be signed with: the first one signs.
    pub fn trigger_keys(&self) -> Vec<TriggerKey> {
        let keys = self.extension::<Arc<Keyring>>();
        let keys = keys.published(KeySet::Triggers, self.clock().now());
        keys.into_iter().map(TriggerKey::new).collect()
    }

    /// Has a new key of a set sign, and publishes the old one for a while longer: what it has
    /// signed is good for as long.
    pub async fn rotate_signing_key(
        &self,
        set: KeySet,
        overlap_ms: u64,
    ) -> Result<Ed25519Key, Error<Never>> {
        let keyring = self.extension::<Arc<Keyring>>();
        let (expected, value) = keyring.rotated(set, self.clock().now(), overlap_ms);
        let command = InstallValue { name: set.meta(), value, expected: Some(expected) };
        let subject = match set {
            KeySet::Webhooks => "signing-keys",
            KeySet::Triggers => "trigger-keys",
        };
        let entry = self.audit_entry(action::SIGNING_KEY_ROTATED, None, subject);
        let describe = move |_: &Txn<'_>, (): &(), entry: &mut AuditEntry| {
            entry.diff = Some(format!("{{\"overlapMs\":[null,{overlap_ms}]}}").into());
        };
        let audited = Audited { command, entry, describe };
        self.submit_to(self.first_partition(), &audited).await?;
        Ok(keyring.current(set))
    }
}
