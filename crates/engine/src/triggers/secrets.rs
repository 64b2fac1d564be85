//! Secrets that sign what triggers send: made, replaced and revoked by name, within one tenant. The
//! value is told once, to whoever made it, and is stored sealed.

use std::sync::Arc;

use reveille_core::Tenant;
use reveille_core::audit::{AuditEntry, Diff, action};
use reveille_core::trigger::SecretRef;
use reveille_core::trigger::secret::{SecretVersion, SigningSecret};
use reveille_kernel::command::{Command, Decision};
use reveille_kernel::error::Damaged;
use reveille_kernel::txn::ReadError;
use reveille_schema::{Record, keys};

use super::error::{TriggerError, TriggerRejection};
use super::index::TriggerIndex;
use crate::app::{App, Txn};
use crate::audit;
use crate::engine::Engine;
use crate::keyring::Keyring;
use crate::limits::TRIGGER_SECRETS_MAX;
use crate::records::{ReadRecord, damaged};

/// The name of the secret of triggers that name none.
pub const DEFAULT_SECRET: &str = "default";

/// What is done with a secret.
#[derive(Debug, Clone)]
pub struct ChangeSecret {
    pub tenant: Tenant,
    pub name: SecretRef,
    pub change: SecretChange,
    pub entry: AuditEntry,
}

/// What is to become of a secret.
#[derive(Debug, Clone)]
pub enum SecretChange {
    Create {
        version: SecretVersion,
    },
    /// Another value takes over; both sign for a while.
    Rotate {
        version: SecretVersion,
        overlap_ms: u64,
    },
    /// The value before signs no longer.
    RevokePrevious,
    Delete,
}

impl Command<App> for ChangeSecret {
    /// As it is now; `None` if it is no more.
    type Answer = Option<SigningSecret>;
    type Rejection = TriggerRejection;

    fn decide(&self, txn: &mut Txn<'_>) -> Decision<Self::Answer, TriggerRejection> {
        let key = keys::trigger_secret(&self.tenant, self.name.as_str());
        let before = txn.read(&key, SigningSecret::decode)?;
        let known = before.clone().ok_or_else(|| self.missing());
        txn.rests_on_index();
        let (action, after) = match (&self.change, known) {
            (SecretChange::Create { .. }, Ok(_)) => {
                return Ok(Err(TriggerRejection::SecretExists { name: self.name.clone() }));
            }
            (SecretChange::Create { version }, Err(_)) => {
                if TriggerIndex::of_txn(txn).secret_count(&self.tenant) >= TRIGGER_SECRETS_MAX {
                    return Ok(Err(TriggerRejection::TooManySecrets { max: TRIGGER_SECRETS_MAX }));
                }
                let version = SecretVersion { created_at: txn.now(), ..version.clone() };
                (action::SECRET_CREATED, Some(SigningSecret::new(version)))
            }
            (_, Err(missing)) => return Ok(Err(missing)),
            (SecretChange::Rotate { version, overlap_ms }, Ok(known)) => {
                let version = SecretVersion { created_at: txn.now(), ..version.clone() };
                let rotated = known.rotated(version, *overlap_ms, txn.now());
                (action::SECRET_ROTATED, Some(rotated))
            }
            (SecretChange::RevokePrevious, Ok(known)) => {
                (action::SECRET_REVOKED, Some(known.without_previous()))
            }
            (SecretChange::Delete, Ok(_)) => {
                if let Some(id) = self.user(txn) {
                    let name = self.name.clone();
                    return Ok(Err(TriggerRejection::SecretInUse { name, id }));
                }
                (action::SECRET_DELETED, None)
            }
        };
        if before == after {
            return Ok(Ok(after));
        }
        match &after {
            Some(secret) => txn.set(key, secret.encode()),
            None => txn.remove(&key),
        }
        self.write_down(txn, action, before.as_ref(), after.as_ref())?;
        Ok(Ok(after))
    }

    fn needs_room(&self) -> bool {
        matches!(self.change, SecretChange::Create { .. } | SecretChange::Rotate { .. })
    }
}

impl ChangeSecret {
    fn missing(&self) -> TriggerRejection {
        TriggerRejection::NoSecret { name: self.name.as_str().into() }
    }

    /// A trigger that sends, and signs with it.
    fn user(&self, txn: &Txn<'_>) -> Option<Arc<str>> {
        let triggers = TriggerIndex::of_txn(txn).of_tenant(&self.tenant)?;
        let user = triggers.all().find(|entry| {
            let mut names = entry.current.definitions().map(|definition| {
                definition.secrets_ref.as_ref().map_or(DEFAULT_SECRET, |name| name.as_str())
            });
            entry.record.state.is_sending() && names.any(|name| name == self.name.as_str())
        });
        user.map(|entry| entry.hook.name.clone())
    }

    fn write_down(
        &self,
        txn: &mut Txn<'_>,
        action: &str,
        before: Option<&SigningSecret>,
        after: Option<&SigningSecret>,
    ) -> Result<(), ReadError> {
        let mut entry = AuditEntry { action: action.into(), ..self.entry.clone() };
        let value = |it: Option<&SigningSecret>| it.map(|it| it.current.sealed.to_string());
        let until = |it: Option<&SigningSecret>| {
            it.and_then(|it| it.previous.as_ref()).map(|previous| previous.valid_until.0)
        };
        let diff = Diff::default().secret("value", value(before), value(after));
        entry.diff = diff.field("previousValidUntil", until(before), until(after)).text();
        audit::record(txn, &entry).map(drop)
    }
}

/// A secret with its name, as it is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretView {
    pub name: Arc<str>,
    pub secret: SigningSecret,
}

impl Engine {
    /// Makes a secret of a tenant. The value is somebody's own or drawn by whoever asks.
    pub async fn create_trigger_secret(
        &self,
        tenant: &Tenant,
        name: &SecretRef,
        value: &str,
    ) -> Result<SigningSecret, TriggerError> {
        let version = self.sealed_secret(tenant, value);
        self.change_secret(tenant, name, SecretChange::Create { version }).await
    }

    /// Another value takes over; both sign for a while.
    pub async fn rotate_trigger_secret(
        &self,
        tenant: &Tenant,
        name: &SecretRef,
        value: &str,
        overlap_ms: u64,
    ) -> Result<SigningSecret, TriggerError> {
        let version = self.sealed_secret(tenant, value);
        self.change_secret(tenant, name, SecretChange::Rotate { version, overlap_ms }).await
    }

    /// The value before signs no longer.
    pub async fn revoke_previous_trigger_secret(
        &self,
        tenant: &Tenant,
        name: &SecretRef,
    ) -> Result<SigningSecret, TriggerError> {
        self.change_secret(tenant, name, SecretChange::RevokePrevious).await
    }

    /// Removes a secret that no trigger that sends signs with.
    pub async fn delete_trigger_secret(
        &self,
        tenant: &Tenant,
        name: &SecretRef,
    ) -> Result<(), TriggerError> {
        self.submit_secret(tenant, name, SecretChange::Delete).await.map(drop)
    }

    /// The secrets of a tenant, by name.
    pub fn trigger_secrets(&self, tenant: &Tenant) -> Result<Vec<SecretView>, Damaged> {
        let (from, to) = keys::trigger_secrets(tenant);
        let found = self.partition(tenant).state.reader().range(&from, &to, TRIGGER_SECRETS_MAX)?;
        let view = |(key, value): &(bytes::Bytes, bytes::Bytes)| {
            let (_, name) = keys::parse_trigger_secret(key)?;
            let secret = SigningSecret::decode(value).map_err(damaged);
            Some(secret.map(|secret| SecretView { name: name.into(), secret }))
        };
        found.iter().filter_map(view).collect()
    }

    /// A secret of a tenant.
    pub fn trigger_secret(
        &self,
        tenant: &Tenant,
        name: &SecretRef,
    ) -> Result<Option<SigningSecret>, Damaged> {
        let reader = self.partition(tenant).state.reader();
        (&reader).read(&keys::trigger_secret(tenant, name.as_str()), SigningSecret::decode)
    }

    fn sealed_secret(&self, tenant: &Tenant, value: &str) -> SecretVersion {
        SecretVersion {
            sealed: self.extension::<Arc<Keyring>>().seal_webhook_secret(tenant, value),
            prefix: reveille_core::trigger::secret::shown_prefix(value),
            created_at: self.clock().now(),
        }
    }

    async fn change_secret(
        &self,
        tenant: &Tenant,
        name: &SecretRef,
        change: SecretChange,
    ) -> Result<SigningSecret, TriggerError> {
        let secret = self.submit_secret(tenant, name, change).await?;
        secret.ok_or_else(|| TriggerRejection::NoSecret { name: name.as_str().into() }.into())
    }

    async fn submit_secret(
        &self,
        tenant: &Tenant,
        name: &SecretRef,
        change: SecretChange,
    ) -> Result<Option<SigningSecret>, TriggerError> {
        let entry = self.audit_entry("", Some(tenant), name.as_str());
        let (tenant_of_secret, name) = (tenant.clone(), name.clone());
        let command = ChangeSecret { tenant: tenant_of_secret, name, change, entry };
        self.submit(tenant, &command).await
    }
}
