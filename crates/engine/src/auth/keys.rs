//! API keys: all of them in memory, so that whoever asks is known without a lock or the disk.
//!
//! A key lives in the partition of its tenant, whose number is in its text; one of all tenants in
//! the first. Memory follows what is durable: a key that was revoked lets nobody in once the answer
//! has left, and whoever was let in by it and stays is told.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwap;
use bytes::Bytes;
use reveille_core::Tenant;
use reveille_core::audit::{AuditEntry, action};
use reveille_core::key::{self, Access, BOOTSTRAP_KEY_ID, Key, KeyHash, Right};
use reveille_kernel::command::{Command, Decision};
use reveille_kernel::error::{Damaged, Error};
use reveille_kernel::keys::partition_of;
use reveille_schema::{keys, record};
use tokio::sync::Notify;

use crate::app::{App, IndexPart, Part, Shared, Txn};
use crate::audit::Audited;
use crate::engine::Engine;
use crate::records::damaged;

/// Why something was not done with a key.
pub type KeyError = Error<KeyRejection>;

/// Why something cannot be done with a key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyRejection {
    /// The tenant has as many keys as it may have.
    #[error("a tenant has at most {max} keys (--max-keys); revoke some that nobody uses")]
    TooManyKeys { max: usize },
}

/// Keeps a key, or forgets it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangeKey {
    pub hash: KeyHash,
    /// What it is from now on; nothing if it was revoked.
    pub key: Option<Arc<Key>>,
}

impl Command<App> for ChangeKey {
    type Answer = ();
    type Rejection = KeyRejection;

    fn decide(&self, txn: &mut Txn<'_>) -> Decision<(), KeyRejection> {
        let key = keys::api_key(&self.hash);
        let Some(known) = &self.key else {
            txn.remove(&key);
            return Ok(Ok(()));
        };
        txn.rests_on_index();
        let max = txn.domains().settings.quotas.keys;
        if txn.index().of::<KeyCounts>().of(known.access.tenant.as_ref()) >= max {
            return Ok(Err(KeyRejection::TooManyKeys { max }));
        }
        txn.set(key, record::encode_key(known));
        Ok(Ok(()))
    }

    fn needs_room(&self) -> bool {
        self.key.is_some()
    }
}

/// How many keys each tenant has, for decisions; those of all tenants are counted by themselves.
#[derive(Default)]
pub struct KeyCounts {
    tenants: HashMap<KeyHash, Option<Tenant>>,
    counts: HashMap<Option<Tenant>, usize>,
}

impl KeyCounts {
    fn of(&self, tenant: Option<&Tenant>) -> usize {
        self.counts.get(&tenant.cloned()).copied().unwrap_or(0)
    }
}

impl IndexPart for KeyCounts {
    fn ranges(&self) -> Vec<(Bytes, Bytes)> {
        vec![keys::api_keys()]
    }

    fn follow(&mut self, key: &Bytes, value: Option<&Bytes>) -> Result<(), Damaged> {
        let hash = parse_hash(key)?;
        if let Some(tenant) = self.tenants.remove(&hash)
            && let Some(count) = self.counts.get_mut(&tenant)
        {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&tenant);
            }
        }
        if let Some(value) = value {
            let tenant = record::decode_key(value).map_err(damaged)?.access.tenant;
            *self.counts.entry(tenant.clone()).or_default() += 1;
            self.tenants.insert(hash, tenant);
        }
        Ok(())
    }
}

fn parse_hash(key: &Bytes) -> Result<KeyHash, Damaged> {
    keys::parse_api_key(key).ok_or_else(|| Damaged::new("the key of a key is damaged"))
}

/// A key that lets its holders in, until it is revoked.
#[derive(Debug)]
pub struct ActiveKey {
    pub key: Arc<Key>,
    is_revoked: AtomicBool,
    /// Those who were let in by it and wait for something.
    waiting: Notify,
}

impl ActiveKey {
    fn new(key: Key) -> ActiveKey {
        ActiveKey { key: Arc::new(key), is_revoked: AtomicBool::new(false), waiting: Notify::new() }
    }

    pub fn is_revoked(&self) -> bool {
        self.is_revoked.load(Ordering::Acquire)
    }

    /// Waits until it is revoked.
    pub async fn revoked(&self) {
        let mut told = pin!(self.waiting.notified());
        // Waiting begins before looking: nothing can fall in between.
        told.as_mut().enable();
        if !self.is_revoked() {
            told.await;
        }
    }

    fn revoke(&self) {
        self.is_revoked.store(true, Ordering::Release);
        self.waiting.notify_waiters();
    }
}

type ByHash = HashMap<KeyHash, Arc<ActiveKey>>;

/// The keys of a partition.
#[derive(Default)]
pub struct ApiKeys {
    by_hash: ArcSwap<ByHash>,
}

impl Part for ApiKeys {
    fn ranges(&self) -> Vec<(Bytes, Bytes)> {
        vec![keys::api_keys()]
    }

    fn follow(&self, key: &Bytes, value: Option<&Bytes>) -> Result<(), Damaged> {
        let hash = parse_hash(key)?;
        let mut by_hash = ByHash::clone(&self.by_hash.load());
        let before = match value {
            Some(value) => {
                let known = record::decode_key(value).map_err(damaged)?;
                by_hash.insert(hash, Arc::new(ActiveKey::new(known)))
            }
            None => by_hash.remove(&hash),
        };
        self.by_hash.store(Arc::new(by_hash));
        // Nobody is let in by it any more, and then whoever is in is sent out.
        if let Some(before) = before {
            before.revoke();
        }
        Ok(())
    }
}

impl Engine {
    /// Makes a key. Its text is nowhere but in this answer.
    pub async fn create_key(&self, access: Access) -> Result<(Arc<Key>, String), KeyError> {
        let mut random = [0; 32];
        self.entropy().fill(&mut random);
        let partition = self.partition_number(access.tenant.as_ref());
        let text = key::text(partition, &random);
        let hash = KeyHash::of(&text).expect("a key is short enough to be one");
        let created_at = self.clock().now();
        // Sorted by name they are in the order in which they were made.
        let id = format!("key_{:011x}{:08x}", created_at.0, self.entropy().number() >> 32);
        let key = Arc::new(Key { id: id.into(), created_at, access });
        let change = ChangeKey { hash, key: Some(key.clone()) };
        self.change_key(partition, change, action::KEY_CREATED, &key).await?;
        let tenant = key.access.tenant.as_ref().map(Tenant::as_str);
        tracing::info!(id = &*key.id, tenant, "a key was made");
        Ok((key, text))
    }

    /// Revokes a key: from the answer on nobody is let in by it. False if there is none.
    pub async fn revoke_key(&self, id: &str) -> Result<bool, KeyError> {
        for (partition, keys) in self.all_api_keys().enumerate() {
            let known = keys.by_hash.load();
            let found = known.iter().find(|(_, it)| *it.key.id == *id);
            let Some((hash, key)) = found.map(|(hash, it)| (*hash, it.key.clone())) else {
                continue;
            };
            drop(known);
            let partition = u8::try_from(partition).unwrap_or(0);
            let change = ChangeKey { hash, key: None };
            self.change_key(partition, change, action::KEY_REVOKED, &key).await?;
            tracing::info!(id, "a key was revoked");
            return Ok(true);
        }
        Ok(false)
    }

    async fn change_key(
        &self,
        partition: u8,
        command: ChangeKey,
        action: &str,
        key: &Key,
    ) -> Result<(), KeyError> {
        let mut entry = self.audit_entry(action, key.access.tenant.as_ref(), &key.id);
        entry.diff = Some(key_diff(key, action));
        let describe = |_: &Txn<'_>, (): &(), _: &mut AuditEntry| {};
        let audited = Audited { command, entry, describe };
        self.submit_to(self.numbered_partition(partition), &audited).await
    }

    /// All keys, oldest first.
    pub fn keys(&self) -> Vec<Arc<Key>> {
        let of = |keys: &ApiKeys| {
            let known = keys.by_hash.load();
            known.values().map(|it| it.key.clone()).collect::<Vec<_>>()
        };
        let mut all: Vec<_> = self.all_api_keys().flat_map(of).collect();
        all.sort_by(|left, right| left.id.cmp(&right.id));
        all
    }

    /// The key of this id.
    pub fn key(&self, id: &str) -> Option<Arc<Key>> {
        let of = |keys: &ApiKeys| {
            let known = keys.by_hash.load();
            known.values().find(|it| *it.key.id == *id).map(|it| it.key.clone())
        };
        self.all_api_keys().find_map(of)
    }

    /// Whether whoever made something by a key may do this now: nobody may by one that was revoked.
    /// What was made without keys was made by the admin.
    pub(crate) fn may_creator(&self, created_by: Option<&str>, right: Right<'_>) -> bool {
        match created_by {
            None | Some(BOOTSTRAP_KEY_ID) => true,
            Some(id) => self.key(id).is_some_and(|key| key.access.may(right)),
        }
    }

    /// What is kept of the key of this id in the partition of a tenant, where it can be looked at
    /// together with everything else of the tenant.
    pub(crate) fn key_hash(&self, tenant: &Tenant, id: &str) -> Option<KeyHash> {
        let known = api_keys(self.partition(tenant)).by_hash.load();
        known.iter().find(|(_, it)| *it.key.id == *id).map(|(hash, _)| *hash)
    }

    /// The key with this text.
    pub fn access_of(&self, text: &str) -> Option<Arc<ActiveKey>> {
        let hash = KeyHash::of(text)?;
        let shared = self.numbered_partition(key::partition(text)?);
        api_keys(shared).by_hash.load().get(&hash).cloned()
    }

    fn all_api_keys(&self) -> impl Iterator<Item = &ApiKeys> {
        self.partitions().iter().map(|shared| api_keys(shared))
    }

    /// Where what belongs to a tenant lives; what belongs to all lives in the first.
    fn partition_number(&self, tenant: Option<&Tenant>) -> u8 {
        let count = u32::try_from(self.partitions().len()).unwrap_or(u32::MAX);
        let number = tenant.map_or(0, |tenant| partition_of(tenant, count));
        u8::try_from(number).expect("there are at most 256 partitions")
    }

    /// A partition by its number; the first if there is none of that number.
    fn numbered_partition(&self, number: u8) -> &Arc<Shared> {
        self.partitions().get(usize::from(number)).unwrap_or_else(|| self.first_partition())
    }
}

/// What a key may, as it is written down: names alone, and nothing of its text.
fn key_diff(key: &Key, action: &str) -> Arc<str> {
    let roles: Vec<String> =
        key.access.roles.iter().map(|role| format!("\"{}\"", role.as_str())).collect();
    let roles = format!("[{}]", roles.join(","));
    let (before, after) =
        if action == action::KEY_REVOKED { (&*roles, "null") } else { ("null", &*roles) };
    format!("{{\"roles\":[{before},{after}]}}").into()
}

fn api_keys(shared: &Shared) -> &ApiKeys {
    shared.domains.part()
}
