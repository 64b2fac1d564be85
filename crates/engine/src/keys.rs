//! Keys: all of them in memory, so that whoever asks is known without a lock or the disk.
//!
//! They are kept in the first partition, and change like everything else: a command is decided,
//! becomes durable, and then its effect swaps the map, before the answer leaves.

use std::collections::HashMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use reveille_core::Tenant;
use reveille_core::key::{self, Access, Key, KeyHash};
use reveille_core::key_range::above;
use reveille_schema::{keys, record};
use reveille_store::state::Reader;

use crate::command::{Answer, Command};
use crate::decide::run;
use crate::effect::Effect;
use crate::engine::Engine;
use crate::failure::{Failure, Refused};
use crate::limits::{KEYS_MAX, LIST_PAGE_MAX};
use crate::txn::Txn;

/// A change of one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyChange {
    pub hash: KeyHash,
    /// What it is from now on; nothing if it was revoked.
    pub key: Option<Arc<Key>>,
}

type ByHash = HashMap<KeyHash, Arc<Key>>;

/// The keys of a partition.
#[derive(Default)]
pub struct Keys {
    by_hash: ArcSwap<ByHash>,
}

impl Keys {
    /// What is stored.
    pub(crate) fn load(reader: &Reader) -> Result<Keys, String> {
        let mut by_hash = ByHash::new();
        let (mut from, to) = keys::api_keys();
        loop {
            let pairs =
                reader.range(&from, &to, LIST_PAGE_MAX).map_err(|error| error.to_string())?;
            let full = pairs.len() == LIST_PAGE_MAX;
            for (key, value) in pairs {
                let hash = keys::parse_api_key(&key).ok_or("the key of a key is damaged")?;
                let known = record::decode_key(&value).map_err(|error| error.to_string())?;
                by_hash.insert(hash, Arc::new(known));
                from = above(&key);
            }
            if !full {
                return Ok(Keys { by_hash: ArcSwap::from_pointee(by_hash) });
            }
        }
    }

    /// What is durable takes effect. CallbackRequest by the committer alone.
    pub(crate) fn apply(&self, change: &KeyChange) {
        let mut by_hash = ByHash::clone(&self.by_hash.load());
        match &change.key {
            Some(key) => by_hash.insert(change.hash, key.clone()),
            None => by_hash.remove(&change.hash),
        };
        self.by_hash.store(Arc::new(by_hash));
    }

    fn get(&self, hash: &KeyHash) -> Option<Arc<Key>> {
        self.by_hash.load().get(hash).cloned()
    }
}

/// Keeps a key, or forgets it.
pub(crate) fn change(txn: &mut Txn<'_>, change: &KeyChange) -> Answer {
    let key = keys::api_key(&change.hash);
    match &change.key {
        Some(known) => txn.set(key, record::encode_key(known)),
        None => txn.remove(&key),
    }
    txn.effect(Effect::Key(change.clone()));
    Answer::Done
}

impl Engine {
    /// Makes a key. Its text is nowhere but in this answer.
    pub async fn create_key(&self, access: Access) -> Result<(Arc<Key>, String), Failure> {
        if self.api_keys().by_hash.load().len() >= KEYS_MAX {
            return Err(Refused::TooManyKeys { max: KEYS_MAX }.into());
        }
        let mut random = [0; 32];
        self.entropy().fill(&mut random);
        let text = key::text(&random);
        let hash = KeyHash::of(&text).expect("a key is short enough to be one");
        let created_at = self.clock().now();
        // Sorted by name they are in the order in which they were made.
        let id = format!("key_{:011x}{:08x}", created_at.0, self.entropy().number() >> 32);
        let key = Arc::new(Key { id: id.into(), created_at, access });
        self.change_key(KeyChange { hash, key: Some(key.clone()) }).await?;
        let tenant = key.access.tenant.as_ref().map(Tenant::as_str);
        tracing::info!(id = &*key.id, tenant, "a key was made");
        Ok((key, text))
    }

    /// Revokes a key: from the answer on nobody is let in by it. False if there is none.
    pub async fn revoke_key(&self, id: &str) -> Result<bool, Failure> {
        let hash = {
            let by_hash = self.api_keys().by_hash.load();
            by_hash.iter().find(|(_, key)| *key.id == *id).map(|(hash, _)| *hash)
        };
        let Some(hash) = hash else { return Ok(false) };
        self.change_key(KeyChange { hash, key: None }).await?;
        tracing::info!(id, "a key was revoked");
        Ok(true)
    }

    async fn change_key(&self, change: KeyChange) -> Result<(), Failure> {
        let command = Command::Key(change);
        run(self.first_partition(), self.clock().as_ref(), &command).await?;
        Ok(())
    }

    /// All keys, oldest first.
    pub fn keys(&self) -> Vec<Arc<Key>> {
        let mut all: Vec<_> = self.api_keys().by_hash.load().values().cloned().collect();
        all.sort_by(|left, right| left.id.cmp(&right.id));
        all
    }

    /// The key of this id.
    pub fn key(&self, id: &str) -> Option<Arc<Key>> {
        self.api_keys().by_hash.load().values().find(|key| *key.id == *id).cloned()
    }

    /// The key with this text.
    pub fn access_of(&self, text: &str) -> Option<Arc<Key>> {
        self.key_of(&KeyHash::of(text)?)
    }

    /// The key with this hash.
    pub fn key_of(&self, hash: &KeyHash) -> Option<Arc<Key>> {
        self.api_keys().get(hash)
    }

    fn api_keys(&self) -> &Keys {
        &self.first_partition().keys
    }
}
