//! The server's own secrets: what signs callback tokens, webhooks, and tokens of triggers.

use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use bytes::Bytes;
use reveille_core::consumer::Dialect;
use reveille_core::fact::cursor::CursorKey;
use reveille_core::fact::token::CapabilityKey;
use reveille_core::secret::{SealBroken, SealedSecret, SecretCipher, SecretPurpose};
use reveille_core::signature::Ed25519Key;
use reveille_core::stream::StreamId;
use reveille_core::subscription::Subscription;
use reveille_core::token::{Claims, TokenInvalid, TokenKey, TokenKind};
use reveille_core::trigger::token::TriggerKey;
use reveille_core::{Millis, StreamPath, Tenant};
use reveille_schema::keys::Meta;
use reveille_schema::record::{self, SigningKey};

use reveille_kernel::doors::Entropy;

use crate::encoder::Signer;

/// Signing keys that are published at once: whoever replaces keys faster than that gives up the
/// oldest early.
const SIGNING_KEYS_MAX: usize = 16;

/// Keys that sign, and keys that are still published; and what seals them and all other secrets.
pub struct Keyring {
    entropy: Arc<dyn Entropy>,
    cipher: SecretCipher,
    token: OnceLock<TokenKey>,
    capability: OnceLock<CapabilityKey>,
    cursors: OnceLock<CursorKey>,
    webhooks: RwLock<SigningKeys>,
    triggers: RwLock<SigningKeys>,
}

/// What keys sign. Each has its own, so that nothing that one signs passes for the other's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeySet {
    Webhooks,
    /// Tokens of triggers.
    Triggers,
}

#[derive(Default)]
struct SigningKeys {
    stored: Bytes,
    /// The first one signs.
    keys: Vec<(SigningKey, Ed25519Key)>,
}

impl KeySet {
    pub const ALL: [KeySet; 2] = [KeySet::Webhooks, KeySet::Triggers];

    pub(crate) fn meta(self) -> Meta {
        match self {
            KeySet::Webhooks => Meta::SigningKeys,
            KeySet::Triggers => Meta::TriggerKeys,
        }
    }

    fn purpose(self) -> SecretPurpose<'static> {
        match self {
            KeySet::Webhooks => SecretPurpose::SigningKeys,
            KeySet::Triggers => SecretPurpose::TriggerKeys,
        }
    }
}

impl Keyring {
    /// A keyring without keys: they follow what is stored.
    pub(crate) fn new(entropy: Arc<dyn Entropy>, cipher: SecretCipher) -> Keyring {
        let (token, capability, cursors, webhooks, triggers) = Default::default();
        Keyring { entropy, cipher, token, capability, cursors, webhooks, triggers }
    }

    /// A new key for callback tokens, as it is stored.
    pub(crate) fn initial_token_key(&self) -> Bytes {
        let mut token = [0; 32];
        self.entropy.fill(&mut token);
        self.seal_stored(SecretPurpose::TokenKey, &token)
    }

    /// A new key of a set, as it is stored.
    pub(crate) fn initial_keys(&self, set: KeySet, now: Millis) -> Bytes {
        let key = self.fresh_key(now);
        self.seal_signing_keys(set, &[key])
    }

    fn fresh_key(&self, now: Millis) -> SigningKey {
        let mut seed = [0; 32];
        self.entropy.fill(&mut seed);
        SigningKey { seed, created_at: now, retires_at: None }
    }

    fn set(&self, set: KeySet) -> &RwLock<SigningKeys> {
        match set {
            KeySet::Webhooks => &self.webhooks,
            KeySet::Triggers => &self.triggers,
        }
    }

    fn seal(&self, purpose: SecretPurpose<'_>, secret: &[u8]) -> SealedSecret {
        let mut nonce = [0; 12];
        self.entropy.fill(&mut nonce);
        self.cipher.seal(purpose, nonce, secret)
    }

    fn seal_stored(&self, purpose: SecretPurpose<'_>, secret: &[u8]) -> Bytes {
        Bytes::copy_from_slice(self.seal(purpose, secret).as_bytes())
    }

    fn open_stored(&self, purpose: SecretPurpose<'_>, stored: &[u8]) -> Result<Vec<u8>, String> {
        let text = std::str::from_utf8(stored).map_err(|_| SealBroken);
        let opened = text.and_then(|text| self.cipher.open(purpose, text));
        opened.map_err(|error| {
            format!(
                "{error}: the key is damaged, or is another one than this data directory was \
                 written with; restore it from a backup, or name it with --secrets-key-file"
            )
        })
    }

    /// Seals what signs requests to a tenant's endpoint.
    pub fn seal_webhook_secret(&self, tenant: &Tenant, secret: &str) -> SealedSecret {
        self.seal(SecretPurpose::Webhook(tenant), secret.as_bytes())
    }

    /// What signs requests to a tenant's endpoint. One that does not open is no reason to send
    /// without a signature.
    pub fn open_webhook_secret(
        &self,
        tenant: &Tenant,
        sealed: &SealedSecret,
    ) -> Result<String, SealBroken> {
        let secret = self.cipher.open(SecretPurpose::Webhook(tenant), sealed)?;
        String::from_utf8(secret).map_err(|_| SealBroken)
    }

    fn seal_signing_keys(&self, set: KeySet, keys: &[SigningKey]) -> Bytes {
        self.seal_stored(set.purpose(), &record::encode_signing_keys(keys))
    }

    /// The key that signs tokens; it never changes.
    pub(crate) fn set_token_key(&self, stored: &Bytes) -> Result<(), String> {
        let key = self.open_stored(SecretPurpose::TokenKey, stored)?;
        let key: [u8; 32] =
            key.try_into().map_err(|_| "the stored token key is damaged".to_owned())?;
        self.capability.get_or_init(|| CapabilityKey::of_server(&key));
        self.cursors.get_or_init(|| CursorKey::of_server(&key));
        self.token.get_or_init(|| TokenKey::new(key));
        Ok(())
    }

    /// Whether a set has no key.
    pub(crate) fn is_empty(&self, set: KeySet) -> bool {
        self.set(set).read().unwrap_or_else(PoisonError::into_inner).keys.is_empty()
    }

    fn token(&self) -> &TokenKey {
        self.token.get().expect("the token key was read when the engine opened")
    }

    /// What signs capability tokens; it follows from the key that signs callback tokens.
    pub fn capability(&self) -> &CapabilityKey {
        self.capability.get().expect("the token key was read when the engine opened")
    }

    fn cursors(&self) -> &CursorKey {
        self.cursors.get().expect("the token key was read when the engine opened")
    }

    /// Where a page of facts ended, for whoever asks for the next one.
    pub fn seal_cursor(&self, tenant: &Tenant, place: &[u8]) -> String {
        let mut nonce = [0; 12];
        self.entropy.fill(&mut nonce);
        self.cursors().seal(tenant, nonce, place)
    }

    /// Where the page before ended.
    pub fn open_cursor(&self, tenant: &Tenant, text: &str) -> Result<Bytes, SealBroken> {
        self.cursors().open(tenant, text).map(Bytes::from)
    }

    /// A token for a consumer's callbacks.
    pub fn mint(
        &self,
        subscription: &Subscription,
        path: Option<&StreamPath>,
        stream: Option<StreamId>,
        epoch: u64,
        expires_at: Millis,
    ) -> String {
        let kind = match subscription.spec.dialect {
            Dialect::Webhooks => TokenKind::Callback,
            Dialect::Leases => TokenKind::Lease,
        };
        let name = &subscription.spec.name;
        let consumer = match path {
            Some(path) => format!("{name}:{path}").into(),
            None => name.clone(),
        };
        let claims = Claims {
            kind,
            tenant: subscription.tenant.clone(),
            consumer,
            subscription: subscription.id.0,
            stream: stream.map_or(0, |id| id.0),
            epoch,
            expires_at,
        };
        self.renew(&claims)
    }

    /// A token that says this.
    pub fn renew(&self, claims: &Claims) -> String {
        self.token().mint(claims, self.entropy.number())
    }

    /// What a token says, if it is one of ours.
    pub fn verify(&self, token: &str) -> Result<Claims, TokenInvalid> {
        self.token().verify(token)
    }

    /// The key that signs webhooks.
    pub fn signing(&self) -> Ed25519Key {
        self.current(KeySet::Webhooks)
    }

    /// The key of a set that signs.
    pub fn current(&self, set: KeySet) -> Ed25519Key {
        let signing = self.set(set).read().unwrap_or_else(PoisonError::into_inner);
        let (_, key) = signing.keys.first().expect("there is always a key");
        key.clone()
    }

    /// The keys of a set that are published: the one that signs, and those that did until lately.
    pub fn published(&self, set: KeySet, now: Millis) -> Vec<Ed25519Key> {
        let signing = self.set(set).read().unwrap_or_else(PoisonError::into_inner);
        let current = signing.keys.iter().filter(|(it, _)| it.retires_at.is_none_or(|at| now < at));
        current.map(|(_, key)| key.clone()).collect()
    }

    /// What is stored now, and what is to be stored to have a new key sign while the old one is
    /// published for a while.
    pub(crate) fn rotated(&self, set: KeySet, now: Millis, overlap_ms: u64) -> (Bytes, Bytes) {
        let signing = self.set(set).read().unwrap_or_else(PoisonError::into_inner);
        let mut keys = vec![self.fresh_key(now)];
        for (key, _) in &signing.keys {
            let at = key.retires_at.unwrap_or(now + overlap_ms);
            if now < at {
                keys.push(SigningKey { retires_at: Some(at), ..key.clone() });
            }
        }
        keys.truncate(SIGNING_KEYS_MAX);
        (signing.stored.clone(), self.seal_signing_keys(set, &keys))
    }

    /// Signs with what is stored now.
    pub(crate) fn adopt(&self, set: KeySet, stored: Bytes) -> Result<(), String> {
        let opened = self.open_stored(set.purpose(), &stored)?;
        let read = SigningKeys::read(stored, &opened)?;
        *self.set(set).write().unwrap_or_else(PoisonError::into_inner) = read;
        Ok(())
    }
}

impl Signer for Keyring {
    fn current_key(&self) -> Ed25519Key {
        self.signing()
    }

    fn trigger_key(&self) -> TriggerKey {
        TriggerKey::new(self.current(KeySet::Triggers))
    }
}

impl SigningKeys {
    fn read(stored: Bytes, opened: &[u8]) -> Result<SigningKeys, String> {
        let keys = record::decode_signing_keys(opened).map_err(|error| error.to_string())?;
        if keys.is_empty() {
            return Err("there is no stored signing key".into());
        }
        let keys = keys.into_iter().map(|key| {
            let signer = Ed25519Key::from_seed(key.seed);
            (key, signer)
        });
        Ok(SigningKeys { stored, keys: keys.collect() })
    }
}
