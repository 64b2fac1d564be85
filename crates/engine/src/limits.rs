//! Limits of the engine: nothing that waits or is held in memory is without one.

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
pub const KEEP_EVERY: Duration = Duration::from_millis(500);

/// Bodies of requests that are held in memory at once: small ones, and large ones, so that a
/// crowd of large uploads never keeps small appends out.
pub const SMALL_BODIES_BYTES: usize = 16 << 20;
/// See [`SMALL_BODIES_BYTES`].
pub const LARGE_BODIES_BYTES: usize = 48 << 20;
/// What counts as small.
pub const SMALL_BODY_BYTES: usize = 64 << 10;

/// How long a request waits for room before it is told to come back.
pub const ROOM_WAIT: Duration = Duration::from_secs(2);

/// How often a decision may ask for more keys before something is wrong.
pub const FETCH_ROUNDS_MAX: usize = 128;

/// Obligations that are worked off between two looks at the due index.
pub const DUE_SLICE: usize = 256;

/// Keys of an ended stream that are removed in one batch.
pub const PURGE_SLICE: usize = 512;

/// Batches that a live reader may fall behind before it reads by offset again.
pub const LIVE_BACKLOG: usize = 16;

/// Bytes that a batch may add to a stream and still be handed to its live readers as they are.
pub const LIVE_DATA_BYTES: u64 = 64 << 10;

/// What a fork that copies a part of an append may hold in memory, at most.
pub const FORK_COPY_BYTES: usize = 16 << 20;

/// Streams in one page of a listing.
pub const LIST_PAGE_MAX: usize = 1_000;

/// Streams that are looked at for one page of a listing that leaves most of them out.
pub const LIST_SCAN_MAX: usize = 10_000;

/// Streams that are shown of a consumer that is asked for by name, and in a listing.
pub const INSPECTED_STREAMS_MAX: usize = 1_000;
/// See [`INSPECTED_STREAMS_MAX`].
pub const LISTED_STREAMS_MAX: usize = 20;

/// Wakes that wait in memory, and deliveries that do; more of them come back by the due index.
pub const OUTBOX_MAX: usize = 100_000;

/// Attempts of one subscription that are on their way at once.
pub const OUTBOUND_PER_SUBSCRIPTION: usize = 512;

/// Attempts whose outcome is being written down; while there are more, no further ones are made.
pub const REPORTING_MAX: usize = 8_192;

/// An attempt that takes longer than this makes room for others.
pub const SLOW_AFTER_MS: u64 = 1_000;

/// Consumers that are told in the batch of an append, of those whose pattern matches the stream and
/// of those who follow it by name, and hooks that get their delivery in the batch that brings an
/// event; the rest in slices of as many.
pub const FAN_OUT: usize = 64;

/// Deliveries that one batch of events may begin; the rest in slices.
pub const DELIVERIES_PER_BATCH: usize = 256;

/// How long the name of a batch of events is remembered.
pub const BATCH_MEMORY_MS: u64 = 86_400_000;

/// Deliveries that are looked at in one step of a clean-up.
pub const CLEAN_UP_SLICE: usize = 256;

/// Events that are looked at together before any of them is forgotten.
pub const TRIM_LOOK: usize = 4_096;

/// Deliveries of one hook that wait in memory; more of them are read when these are sent.
pub const WAITING_PER_HOOK: usize = 16_384;
/// Deliveries of one hook that may wait in memory however many of others do.
pub const WAITING_PER_HOOK_ALWAYS: usize = 16;

/// Words of events that wait in memory with their deliveries; others are read when it is their
/// turn.
pub const WAITING_WORDS_BYTES: usize = 32 << 20;

/// Streams that a wake names; the others come with the next one.
pub const NOTICE_STREAMS_MAX: usize = 1_000;

/// Streams that a subscription may name at once.
pub const EXPLICIT_STREAMS_MAX: usize = 1_000;

/// Keys of a server: all of them are in memory.
pub const KEYS_MAX: usize = 100_000;

const _: () = assert!((APPLY_BYTES + SETTLE_BYTES) * 2 <= OVERLAY_PRESSED_BYTES);
const _: () = assert!(OVERLAY_PRESSED_BYTES < OVERLAY_BYTES_MAX);
const _: () = assert!(SMALL_BODY_BYTES * 16 <= SMALL_BODIES_BYTES);
