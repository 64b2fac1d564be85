//! Every limit of triggers, each with its reason.

/// Longest id of a trigger in bytes: it is in tokens, in origins and in labels of metrics.
pub const TRIGGER_ID_BYTES_MAX: usize = 64;

/// Longest name of a secret in bytes: it is part of a key.
pub const SECRET_REF_BYTES_MAX: usize = 64;

/// Longest pattern over collections in bytes: every change is held against it.
pub const COLLECTION_PATTERN_BYTES_MAX: usize = 128;

/// Most path filters of a trigger: a change may be held against all of them.
pub const PATH_FILTERS_MAX: usize = 32;
/// Longest path filter in bytes.
pub const PATH_FILTER_BYTES_MAX: usize = 256;

/// Longest label in bytes: it is shown in lists.
pub const LABEL_BYTES_MAX: usize = 256;

/// Largest definition in bytes, as compact JSON: former versions are kept beside it.
pub const DEFINITION_BYTES_MAX: usize = 32 * 1024;

/// Most triggers of one file: they are made in one step.
pub const APPLY_TRIGGERS_MAX: usize = 100;

/// Longest URL in bytes.
pub const TARGET_URL_BYTES_MAX: usize = 2_048;

/// Largest body that is sent, in bytes.
pub const TRIGGER_BODY_BYTES_MAX: usize = 256 * 1024;

/// Most bytes of names and values of all headers that are sent.
pub const TRIGGER_HEADERS_BYTES_MAX: usize = 16 * 1024;
/// Most headers of a trigger's own.
pub const TRIGGER_HEADERS_MAX: usize = 64;

/// Most attempts of a delivery.
pub const TRIGGER_ATTEMPTS_MAX: u32 = 10;
/// Longest pause between two attempts in milliseconds, a day.
pub const TRIGGER_BACKOFF_MS_MAX: u64 = 86_400_000;
/// Shortest time in milliseconds that an attempt may be given, and shortest pause.
pub const TRIGGER_WAIT_MS_MIN: u64 = 10;

/// Most rules about statuses, and most codes of one of them.
pub const STATUS_RULES_MAX: usize = 16;

/// Most attempts of one trigger at once: as many as a tenant has by default.
pub const TRIGGER_CONCURRENCY_MAX: u32 = 64;
/// Most attempts of one trigger in a second.
pub const TRIGGER_RATE_MAX: u32 = 100_000;

/// Most prefixes of paths that a trigger's token allows: they are in every token.
pub const ALLOW_PATHS_MAX: usize = 16;
/// Longest of them in bytes.
pub const ALLOW_PATH_BYTES_MAX: usize = 256;
/// Most operations that a token can allow in one call.
pub const TOKEN_OPS_MAX: u32 = 10_000;
/// Most KiB of a call that a token can allow.
pub const TOKEN_PAYLOAD_KB_MAX: u32 = 1_048_576;

/// Most paths of a field mask, of each of its kinds: each is looked up in every payload, twice.
pub const MASK_PATHS_MAX: usize = 64;

/// Shortest and longest window of an SLO in milliseconds, a second and a day.
pub const SLO_WINDOW_MS_MIN: u64 = 1_000;
/// See [`SLO_WINDOW_MS_MIN`].
pub const SLO_WINDOW_MS_MAX: u64 = 86_400_000;
/// Most samples that an SLO can ask for.
pub const SLO_SAMPLES_MAX: u32 = 1_000_000;

/// Hours for which a dry run is counted: a week.
pub const DRY_RUN_HOURS_MAX: usize = 168;
/// Latest matches of a dry run that are kept to be looked at.
pub const DRY_RUN_SAMPLES_MAX: usize = 20;

/// Most paths in `event.changed`: as many as `all` and `exists` look at.
pub const CHANGED_PATHS_MAX: usize = 1_000;

/// Longest time in days for which a secret and the one after it are both valid.
pub const SECRET_OVERLAP_DAYS_MAX: u64 = 30;

const _: () = assert!(CHANGED_PATHS_MAX <= crate::limits::EXPRESSION_LIST_MAX);
const _: () = assert!(
    PATH_FILTERS_MAX * PATH_FILTER_BYTES_MAX + TRIGGER_HEADERS_BYTES_MAX + TARGET_URL_BYTES_MAX
        < DEFINITION_BYTES_MAX,
    "one that keeps to every other limit is not refused for all of them"
);
