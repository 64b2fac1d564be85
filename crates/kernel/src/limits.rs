//! Limits of the kernel: nothing that waits or is held in memory is without one.

use std::time::Duration;

/// A batch closes at this size; the next one is collected meanwhile.
pub const BATCH_BYTES_MAX: usize = 12 << 20;

/// A decision that has written this much leaves whatever can be left to another one: who is still to
/// be told, what is still to be removed. One thing of these may take it further than this.
pub const SLICE_BYTES: usize = 1 << 20;

/// Things of that kind that one decision does, however little each of them writes.
pub const SLICE_ITEMS: usize = 256;

/// A decision that had this much read for it, in bytes and in keys, leaves the rest likewise.
pub const SLICE_READ_BYTES: usize = 4 << 20;
/// See [`SLICE_READ_BYTES`].
pub const SLICE_READ_KEYS: usize = 4_096;

/// The newest batches of the overlay are put together when they have grown this far.
pub const SETTLE_BYTES: usize = 8 << 20;

/// The overlay is applied to the table when it has grown this far.
pub const APPLY_BYTES: usize = 24 << 20;

/// Whatever waits for nobody waits while the overlay is larger than this.
pub const OVERLAY_PRESSED_BYTES: usize = 64 << 20;

/// Writes wait, and then are refused, while the overlay is larger than this.
pub const OVERLAY_BYTES_MAX: usize = 96 << 20;

/// What is large waits while the overlay is larger than this: the rest is for what is small, so
/// that whoever writes much keeps nobody out who writes little.
pub const OVERLAY_LARGE_BYTES: usize = 72 << 20;

/// What counts as large there.
pub const LARGE_COMMAND_BYTES: usize = 64 << 10;

/// A partition's part of the overlay is never smaller: each apply is worth its while.
pub const OVERLAY_PART_BYTES_MIN: usize = 8 << 20;

/// How far the overlay of one partition may grow, of those that the process has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OverlayLimits {
    pub settle: usize,
    pub apply: usize,
    pub pressed: usize,
    pub large: usize,
    pub max: usize,
}

impl OverlayLimits {
    /// All five shrink together: what is refused has been applied long before.
    pub fn of(partitions: u32) -> OverlayLimits {
        let partitions = usize::try_from(partitions.max(1)).unwrap_or(usize::MAX);
        let parts = partitions.min(OVERLAY_BYTES_MAX / OVERLAY_PART_BYTES_MIN);
        OverlayLimits {
            settle: SETTLE_BYTES / parts,
            apply: APPLY_BYTES / parts,
            pressed: OVERLAY_PRESSED_BYTES / parts,
            large: OVERLAY_LARGE_BYTES / parts,
            max: OVERLAY_BYTES_MAX / parts,
        }
    }
}

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

/// A page of a list ends before the entry with which it would have more bytes, unless that is its
/// first.
pub const PAGE_BYTES_MAX: usize = 1 << 20;

/// Pages of lists that are being made or are on their way to their readers, apart from all other
/// answers: an operator whose tenant's readers take nothing can still see who they are. One tenant
/// has half of it at most.
pub const PAGES_BYTES: usize = 16 << 20;

/// Bytes of answers that are held in memory at once: pieces that wait for slow readers, pages, what
/// live readers share. One tenant has half of it at most.
pub const REPLIES_BYTES: usize = 64 << 20;

/// The longest piece in which an answer travels.
pub const REPLY_PIECE_BYTES: usize = 64 << 10;

/// How long a request waits for room before it is told to come back.
pub const ROOM_WAIT: Duration = Duration::from_secs(2);

/// How often a decision may ask for more keys before something is wrong.
pub const FETCH_ROUNDS_MAX: usize = 128;

/// Obligations that are worked off between two looks at the due index.
pub const TIMER_SLICE: usize = 256;

/// Attempts that wait in memory: those that can be read again from the state, and those that come
/// back by the due index alone, each.
pub const OUTBOX_MAX: usize = 100_000;

/// Attempts that are commands of their partition, under way at once. They take no place from those
/// that call: they wait for the log alone.
pub const ATTEMPT_COMMANDS_MAX: usize = 256;

/// Attempts of one source that are on their way at once.
pub const OUTBOUND_PER_SOURCE: usize = 512;

/// Attempts whose outcome is being written down; while there are more, no further ones are made.
pub const OUTCOMES_WAITING_MAX: usize = 8_192;

/// An attempt that takes longer than this makes room for others.
pub const SLOW_AFTER_MS: u64 = 1_000;

/// An attempt that could not be made for want of something of ours keeps its place for this long
/// before it waits for its turn again.
pub const SHORTAGE_PAUSE_MS: u64 = 500;

/// Attempts of one source that wait in memory; more of them are read when these are sent.
pub const WAITING_PER_SOURCE: usize = 16_384;

/// Attempts that wait in memory of a source that has limits of its own: it takes its time.
pub const WAITING_PER_LIMITED_SOURCE: usize = 1_024;

/// Attempts of a tenant under way, of sources that share this limit, unless the server has another.
pub const PER_TENANT_MAX: usize = 64;

/// Attempts of one source that may wait in memory however many of others do.
pub const WAITING_PER_SOURCE_ALWAYS: usize = 16;

/// Payloads that wait in memory with their attempts; others are read when it is their turn.
pub const WAITING_PAYLOAD_BYTES: usize = 32 << 20;

const _: () = assert!((APPLY_BYTES + SETTLE_BYTES) * 2 <= OVERLAY_PRESSED_BYTES);
const _: () = assert!(OVERLAY_PRESSED_BYTES < OVERLAY_LARGE_BYTES);
const _: () = assert!(OVERLAY_LARGE_BYTES < OVERLAY_BYTES_MAX);
const _: () = assert!(SLICE_BYTES * 8 <= BATCH_BYTES_MAX, "others fit beside a slice");
const _: () = assert!(WAITING_PER_SOURCE_ALWAYS < WAITING_PER_LIMITED_SOURCE);
const _: () = assert!(WAITING_PER_LIMITED_SOURCE * 64 <= OUTBOX_MAX, "many of them leave room");
const _: () = assert!(SHORTAGE_PAUSE_MS < SLOW_AFTER_MS);
const _: () = assert!(SMALL_BODY_BYTES * 16 <= SMALL_BODIES_BYTES);
const _: () = assert!(PAGE_BYTES_MAX * 8 <= PAGES_BYTES, "several tenants find room for a page");
const _: () = assert!(REPLY_PIECE_BYTES * 16 <= REPLIES_BYTES);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn however_many_partitions_the_table_is_brought_up_before_writes_wait() {
        for partitions in [0, 1, 2, 4, 12, 64, 256] {
            let OverlayLimits { settle, apply, pressed, large, max } =
                OverlayLimits::of(partitions);
            assert!((apply + settle) * 2 <= pressed, "{partitions} partitions");
            assert!(pressed < large && large < max, "{partitions} partitions");
            assert!(max >= OVERLAY_PART_BYTES_MIN, "{partitions} partitions");
        }
        assert_eq!(OverlayLimits::of(4).max * 4, OVERLAY_BYTES_MAX);
    }
}
