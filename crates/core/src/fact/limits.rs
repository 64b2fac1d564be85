//! Limits of facts, and why.

/// Longest value of a fact in bytes, as JSON: it is sent whole with every delivery.
pub const FACT_VALUE_BYTES_MAX: usize = 64 * 1024;

/// Longest relation of a fact in bytes: it is part of keys.
pub const RELATION_BYTES_MAX: usize = 256;

/// Longest source of a fact in bytes: it is kept with the fact, and sent with it.
pub const FACT_SOURCE_BYTES_MAX: usize = 1_024;

/// Different values that are remembered of one relation of an entity, to say which contradict: all
/// of them are in one record, which every fact about it writes anew.
pub const LIVE_VALUES_MAX: usize = 64;

/// Longest summary of a card in bytes: it is sent whole with every delivery.
pub const CARD_SUMMARY_BYTES_MAX: usize = 4_096;

/// Longest slug of a garden in bytes: it is part of keys and of paths.
pub const GARDEN_SLUG_BYTES_MAX: usize = 63;

/// Longest name of a garden in bytes: it is kept with the garden.
pub const GARDEN_NAME_BYTES_MAX: usize = 256;

/// Times that somebody was a member of a garden before, as far as they are kept: they are in the
/// membership's record. What access rests on, the latest of them, always is.
pub const FORMER_MEMBERSHIPS_MAX: usize = 16;

/// Longest life of a capability token in seconds: 90 days.
pub const CAPABILITY_TTL_SECONDS_MAX: u64 = 90 * 86_400;

/// Longest reason for revoking a capability token in bytes: it is kept with the token.
pub const REVOKE_REASON_BYTES_MAX: usize = 1_024;

/// Longest `idempotency_key` of a subscription to facts in characters: it is part of keys.
pub const FACT_IDEMPOTENCY_KEY_CHARS_MAX: usize = 128;

/// Longest `webhook_url` of a subscription to facts in bytes: it is in memory with the subscription.
pub const FACT_WEBHOOK_URL_BYTES_MAX: usize = 2_048;

const _: () =
    assert!(FACT_SOURCE_BYTES_MAX < FACT_VALUE_BYTES_MAX, "what is said is the larger part");
