//! Limits of the kernel: nothing that waits or is held in memory is without one.

use std::time::Duration;

/// A batch closes at this size; the next one is collected meanwhile.
pub const BATCH_BYTES_MAX: usize = 12 << 20;

/// The newest batches of the overlay are put together when they have grown this far.
pub const SETTLE_BYTES: usize = 8 << 20;

/// The overlay is applied to the table when it has grown this far.
pub const APPLY_BYTES: usize = 24 << 20;

/// Writes wait, and then are refused, while the overlay is larger than this.
pub const OVERLAY_BYTES_MAX: usize = 96 << 20;

/// Whatever waits for nobody waits while the overlay is larger than this.
pub const OVERLAY_PRESSED_BYTES: usize = 64 << 20;

/// The overlay is applied after this many bytes of log, so that segments can be recycled and a
/// start after a crash is quick.
pub const CHECKPOINT_LOG_BYTES: u64 = 64 << 20;

/// How often an idle server looks after its disk.
pub const CHECKPOINTER_INTERVAL: Duration = Duration::from_millis(500);

/// Bodies of requests that are held in memory at once: small ones, and large ones, so that a
/// crowd of large uploads never keeps small appends out.
pub const SMALL_BODIES_BYTES: usize = 16 << 20;

/// See [`SMALL_BODIES_BYTES`].
pub const LARGE_BODIES_BYTES: usize = 64 << 20;

/// One tenant has this part of either at most, so that another always finds room.
pub const BODIES_TENANT_PART: usize = 2;

/// What counts as small.
pub const SMALL_BODY_BYTES: usize = 64 << 10;

/// How long a request waits for room before it is told to come back.
pub const ROOM_WAIT: Duration = Duration::from_secs(2);

/// How often a decision may ask for more keys before something is wrong.
pub const FETCH_ROUNDS_MAX: usize = 128;

/// Obligations that are worked off between two looks at the due index.
pub const TIMER_SLICE: usize = 256;

/// Attempts that wait in memory: those that can be read again from the state, and those that come
/// back by the due index alone, each.
pub const OUTBOX_MAX: usize = 100_000;

/// Attempts of one source that are on their way at once.
pub const OUTBOUND_PER_SOURCE: usize = 512;

/// Attempts whose outcome is being written down; while there are more, no further ones are made.
pub const OUTCOMES_WAITING_MAX: usize = 8_192;

/// An attempt that takes longer than this makes room for others.
pub const SLOW_AFTER_MS: u64 = 1_000;

/// Attempts of one source that wait in memory; more of them are read when these are sent.
pub const WAITING_PER_SOURCE: usize = 16_384;

/// Attempts of one source that may wait in memory however many of others do.
pub const WAITING_PER_SOURCE_ALWAYS: usize = 16;

/// Payloads that wait in memory with their attempts; others are read when it is their turn.
pub const WAITING_PAYLOAD_BYTES: usize = 32 << 20;

const _: () = assert!((APPLY_BYTES + SETTLE_BYTES) * 2 <= OVERLAY_PRESSED_BYTES);
const _: () = assert!(OVERLAY_PRESSED_BYTES < OVERLAY_BYTES_MAX);
const _: () = assert!(SMALL_BODY_BYTES * 16 <= SMALL_BODIES_BYTES);
