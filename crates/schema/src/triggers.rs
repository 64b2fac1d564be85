//! What triggers keep: what their hooks have in their specs, what is kept of a trigger beside that,
//! and the secrets of tenants.
//!
//! A trigger is a hook for changes of documents. Its definition, and in which state it is, stand in
//! the hook's spec ([`TriggerRecord`]), former versions of it with the former versions of the hook.
//!
//! | tag | key | value |
//! |---|---|---|
//! | `28` secret | tenant, `00`, name | what signs: [`SigningSecret`](reveille_core::trigger::secret::SigningSecret) |
//!
//! | note of a hook | rest of the key | value |
//! |---|---|---|
//! | `01` evaluation errors | – | [`EvaluationErrors`] |
//! | `02` health | – | [`TriggerHealth`] |
//! | `03` hour of a dry run | hour since 1970 modulo 168 `u8` | [`DryRunHour`] |
//! | `04` samples of a dry run | – | [`DryRunSamples`] |
//!
//! Triggers have no timers of their own: what is to be told later is a fan-out of changes, and a
//! rollout is judged when something comes of an attempt.

mod dry_run;
mod note;
mod secret;
mod spec;
#[cfg(test)]
mod tests;

use bytes::Bytes;
use reveille_core::Tenant;
use reveille_core::delivery::hook::HookId;
use reveille_core::key_range::after_prefix;

use crate::deliveries::hook_note_key;
use crate::parts;

pub use dry_run::{DryRunHour, DryRunSamples};
pub use note::{EvaluationErrors, TriggerHealth};
pub use spec::{DryRunCandidate, FormerTrigger, KeptVersion, StoredDefinition, TriggerRecord};

const SECRET: u8 = 0x28;

const EVALUATION_ERRORS: u8 = 1;
const HEALTH: u8 = 2;
const DRY_RUN_HOUR: u8 = 3;
const DRY_RUN_SAMPLES: u8 = 4;

#[cfg(test)]
pub(crate) const TAGS: &[u8] = &[SECRET];

pub fn secret_key(tenant: &Tenant, name: &str) -> Bytes {
    parts::of_tenant(SECRET, tenant, name.as_bytes())
}

/// The keys of a tenant's secrets: from the first, to before the second.
pub fn secret_keys(tenant: &Tenant) -> (Bytes, Bytes) {
    parts::tenant_range(SECRET, tenant)
}

/// The keys of the secrets of all tenants: from the first, to before the second.
pub fn all_secret_keys() -> (Bytes, Bytes) {
    parts::tag_range::<SECRET>()
}

/// Whose a secret is, and its name.
pub fn parse_secret_key(key: &[u8]) -> Option<(Tenant, &str)> {
    let (tenant, name) =
        std::str::from_utf8(key.strip_prefix(&[SECRET])?).ok()?.split_once('\0')?;
    Some((Tenant::parse(tenant).ok()?, name))
}

pub fn evaluation_errors_key(hook: HookId) -> Bytes {
    hook_note_key(hook, EVALUATION_ERRORS, &[])
}

pub fn health_key(hook: HookId) -> Bytes {
    hook_note_key(hook, HEALTH, &[])
}

/// Where the counts of an hour stand: those of a week ago are in the same place.
pub fn dry_run_hour_key(hook: HookId, slot: u8) -> Bytes {
    hook_note_key(hook, DRY_RUN_HOUR, &[slot])
}

/// The keys of all hours of a hook's dry run: from the first, to before the second.
pub fn dry_run_hour_keys(hook: HookId) -> (Bytes, Bytes) {
    let first = hook_note_key(hook, DRY_RUN_HOUR, &[]);
    let end = after_prefix(&first);
    (first, end)
}

pub fn dry_run_samples_key(hook: HookId) -> Bytes {
    hook_note_key(hook, DRY_RUN_SAMPLES, &[])
}
