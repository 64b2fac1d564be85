//! Limits of the engine: nothing that waits or is held in memory is without one.

use reveille_core::document::limits::{DOCUMENT_BYTES_MAX, INDEXES_MAX, TRANSACTION_BYTES_MAX};
use reveille_core::limits::RULE_READS_MAX;

/// Keys of an ended stream that are removed in one batch.
pub const PURGE_SLICE: usize = 512;

/// Batches that a live reader may fall behind before it reads by offset again.
pub const LIVE_BACKLOG: usize = 16;

/// Bytes that a batch may add to a stream and still be handed to its live readers as they are.
pub const LIVE_DATA_BYTES: u64 = 64 << 10;

/// Less than this is handed to live readers without being counted.
pub const LIVE_UNCOUNTED_BYTES: usize = 4 << 10;

/// Changes that a live query looks at in one step, of its collection or of others.
pub const LIVE_CHANGES: usize = 256;
/// Documents that a live query reads in one step.
pub const LIVE_DOCUMENTS: usize = 500;
/// Bytes of documents after which such a step ends, and that a live query asks for room for.
pub const LIVE_STEP_BYTES: usize = 64 << 10;
/// Milliseconds after which such a step ends.
pub const LIVE_STEP_MS: u64 = 100;
/// Bytes of a collection's changes that are handed to its live queries together; longer ones read
/// them by themselves.
pub const LIVE_BATCH_BYTES: usize = 64 << 10;
/// Batches that a live query may fall behind before it reads by itself again.
pub const LIVE_BATCHES: usize = 16;
/// Documents whose changes have a live query begin anew, because the rules have looked at them.
pub const LIVE_LOOKUPS_MAX: usize = 16;
/// Milliseconds between two times that a live query begins anew because of these.
pub const LIVE_RESET_MS: u64 = 5_000;

/// What a fork that copies a part of an append may hold in memory, at most.
pub const FORK_COPY_BYTES: usize = 16 << 20;

/// Streams in one page of a listing.
pub const LIST_PAGE_MAX: usize = 1_000;

/// Deliveries that one page of a list looks at, where most may be others than those that are asked
/// for.
pub const LIST_LOOKS_MAX: usize = 10_000;

/// Deliveries that are looked at in one go for the oldest ones that are open.
pub const GAUGE_LOOKS_MAX: usize = 2_000;

/// Pairs of a listing that are read at once, and the bytes of them that are held meanwhile: a record
/// can be large although what is shown of it is not.
pub const SCAN_SLICE: usize = 64;
/// See [`SCAN_SLICE`].
pub const SCAN_BYTES: usize = 256 << 10;

/// Hooks and subscriptions that a listing takes from memory at once, under the partition's lock.
pub const INDEX_SLICE: usize = 256;

/// Deliveries of one event that are explained, the newest ones.
pub const EXPLAINED_DELIVERIES_MAX: usize = 10;

/// Streams that are looked at for one page of a listing that leaves most of them out.
pub const LIST_SCAN_MAX: usize = 10_000;

/// Streams that are shown of a consumer that is asked for by name, and in a listing.
pub const INSPECTED_STREAMS_MAX: usize = 1_000;
/// See [`INSPECTED_STREAMS_MAX`].
pub const LISTED_STREAMS_MAX: usize = 20;

/// Chains of the audit log that a list over all tenants looks at in each partition: those that were
/// written to last.
pub const AUDIT_CHAINS_MAX: usize = 1_000;

/// Consumers that are told in the batch of an append, of those whose pattern matches the stream and
/// of those who follow it by name, and hooks that get their delivery in the batch that brings an
/// event; the rest in slices of as many.
pub const FAN_OUT: usize = 64;

/// Steps that finding out whom something is for may take in one decision, and in one slice of what
/// is left to the due index: a hundred microseconds or two.
pub const MATCH_STEPS: usize = 4_096;
/// Steps that each path or type of a decision may take, however many there are.
pub const MATCH_STEPS_ALWAYS: usize = 64;

/// Deliveries that one batch of events may begin; the rest in slices.
pub const DELIVERIES_PER_BATCH: usize = 256;

/// How long the name of a batch of events is remembered.
pub const BATCH_MEMORY_MS: u64 = 86_400_000;

/// Dead letters that a replay makes again in one step.
pub const REPLAY_SLICE: usize = 64;
/// Dead letters that a preview of a replay looks at: what has more is narrowed first.
pub const REPLAY_SCAN_MAX: usize = 100_000;
/// Dead letters that a replay may name: they are written anew with every step of it.
pub const REPLAY_IDS_MAX: usize = 100;
/// Hooks of a tenant that have ended and are remembered for their dead letters.
pub const ENDED_HOOKS_MAX: usize = 1_000;
/// How long a replay may quote a preview.
pub const PREVIEW_MS: u64 = 600_000;
/// Previews of a tenant that are remembered.
pub const PREVIEWS_MAX: usize = 100;

/// Deliveries that are looked at in one step of a clean-up.
pub const CLEAN_UP_SLICE: usize = 256;

/// Events that are looked at together before any of them is forgotten.
pub const TRIM_LOOK: usize = 4_096;

/// Streams that are looked at in one step of telling a subscription that begins before now.
pub const BACKFILL_SLICE: usize = 256;

/// Streams that a wake names; the others come with the next one.
pub const NOTICE_STREAMS_MAX: usize = 1_000;

/// Streams that a subscription may name at once.
pub const EXPLICIT_STREAMS_MAX: usize = 1_000;

/// Indexes of a tenant with those that are still being removed: all are in memory.
pub const INDEX_RECORDS_MAX: usize = 400;

/// Documents that are looked at in one step of building an index, and the bytes of them.
pub const BUILD_SLICE: usize = 256;
/// See [`BUILD_SLICE`].
pub const BUILD_BYTES: usize = 1 << 20;
/// Collections that are looked at in one such step, be the index for them or not.
pub const BUILD_COLLECTIONS: usize = 256;

/// Bytes of documents after which no more are read for a transaction. It may change less, and the
/// rules have looked at less for it: one that would need more has failed before.
pub const TRANSACTION_READ_BYTES: usize = 12 << 20;
const _: () = assert!(
    TRANSACTION_READ_BYTES > TRANSACTION_BYTES_MAX + (RULE_READS_MAX + 1) * DOCUMENT_BYTES_MAX
);

/// Documents that one query looks at, be it with an index; and the bytes and the time that it takes
/// in milliseconds. A page that can end where it has come to ends there.
pub const QUERY_DOCUMENTS_MAX: u64 = 100_000;
/// See [`QUERY_DOCUMENTS_MAX`].
pub const QUERY_BYTES_MAX: u64 = 64 << 20;
/// See [`QUERY_DOCUMENTS_MAX`].
pub const QUERY_MS_MAX: u64 = 2_000;

/// Steps that a look at a write, or one trigger of a slice, may take in conditions, away from the
/// lock: some tens of milliseconds. What is left is found out in slices.
pub const TRIGGER_LOOK_STEPS: usize = 1_000_000;
/// The same where everybody else waits for their turn: a tenth of a millisecond. What is longer has a
/// thread of its own, which costs a write more than a few conditions do.
pub const TRIGGER_TURN_STEPS: usize = 4_096;
/// Triggers that such a look is tried for.
pub const TRIGGERS_PER_TURN: usize = 64;
/// Steps after which a slice of the triggers that a change is still for ends.
pub const TRIGGER_SLICE_STEPS: usize = 100_000;
/// Versions of a trigger that are remembered for changes that are still being told, and the bytes of
/// them: they are in memory, and in every record of the trigger meanwhile.
pub const FORMER_TRIGGERS_MAX: usize = 8;
/// See [`FORMER_TRIGGERS_MAX`].
pub const FORMER_TRIGGERS_BYTES: usize = 256 << 10;
/// Former versions of a trigger that are kept to be looked at and gone back to, and the bytes of
/// them.
pub const TRIGGER_VERSIONS_MAX: usize = 64;
/// See [`TRIGGER_VERSIONS_MAX`].
pub const TRIGGER_VERSIONS_BYTES: u64 = 1 << 20;
/// Secrets of a tenant: all of them are in memory, sealed.
pub const TRIGGER_SECRETS_MAX: usize = 100;
/// Changes that one backtest looks at, the bytes of them and the time that it takes in milliseconds.
/// It ends there, and says where another may go on.
pub const BACKTEST_CHANGES_MAX: u64 = 100_000;
/// See [`BACKTEST_CHANGES_MAX`].
pub const BACKTEST_BYTES_MAX: u64 = 256 << 20;
/// See [`BACKTEST_CHANGES_MAX`].
pub const BACKTEST_MS_MAX: u64 = 5_000;
/// Changes that a backtest shows.
pub const BACKTEST_SAMPLES_MAX: usize = 20;

const _: () = assert!(INDEX_RECORDS_MAX >= 2 * INDEXES_MAX, "all can be declared anew at once");
