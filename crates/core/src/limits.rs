//! Every limit of the laws, each with its reason.

/// Longest stream path in bytes: it is part of a key, and keys should stay small.
pub const PATH_BYTES_MAX: usize = 2048;

/// Longest tenant name in bytes: it is the first part of every stream's key.
pub const TENANT_BYTES_MAX: usize = 64;

/// Longest `Content-Type` in bytes: it is stored in every stream's record.
pub const CONTENT_TYPE_BYTES_MAX: usize = 256;

/// Longest `Producer-Id` in bytes: it is part of a key.
pub const PRODUCER_ID_BYTES_MAX: usize = 256;

/// Longest `Stream-Seq` in bytes: it is stored in the stream's record.
pub const STREAM_SEQ_BYTES_MAX: usize = 256;

/// Largest integer that a JavaScript client can send exactly (2^53 - 1).
pub const PRODUCER_INTEGER_MAX: u64 = 9_007_199_254_740_991;

/// Highest position of a stream: sixteen decimal digits, the width of an offset on the wire.
pub const POSITION_MAX: u64 = 9_999_999_999_999_999;

/// Longest sliding lifetime in seconds (about 3,000 years): larger values are a client's mistake
/// and would overflow the due index.
pub const TTL_SECONDS_MAX: u64 = 100_000_000_000;

/// Longest chain of forks of forks: every read walks it.
pub const FORK_DEPTH_MAX: u32 = 64;

/// How deep JSON may be nested: parsers of readers give up on more, or fall over.
pub const JSON_DEPTH_MAX: usize = 512;

/// Longest condition of a subscription in bytes: it bounds how deep one can be, and what it costs.
pub const CONDITION_BYTES_MAX: usize = 256;

/// Longest condition over documents in bytes, of a trigger or a rule: it bounds what parsing costs.
pub const EXPRESSION_BYTES_MAX: usize = 1_024;

/// Brackets inside of brackets in such a condition: each is a dozen frames of the parser's stack.
pub const EXPRESSION_NESTING_MAX: usize = 24;

/// Operators, dots and brackets one after another: each can be a frame of the parser's stack.
pub const EXPRESSION_CHAIN_MAX: usize = 64;

/// How deep such a condition may be once it is parsed: its evaluation recurses.
pub const EXPRESSION_DEPTH_MAX: usize = 32;

/// Operations, names and values of such a condition: all are in memory, and evaluated every time.
pub const EXPRESSION_NODES_MAX: usize = 256;

/// Elements of a list that `all`, `exists` and `exists_one` look at: the rest of a condition is
/// evaluated for each.
pub const EXPRESSION_LIST_MAX: usize = 1_000;

/// Steps of one evaluation of a trigger's condition, a few milliseconds: every change of a
/// collection is held against every condition over it.
pub const EVENT_CONDITION_STEPS_MAX: usize = 100_000;

/// Steps that a request may cause in rules, over all of the documents that it is about.
pub const RULE_STEPS_MAX: usize = 1_000_000;

/// Documents that the rules may read for one request: each is a read of the table.
pub const RULE_READS_MAX: usize = 5;

/// Longest rules of a tenant in bytes: their text is kept, and in memory while they hold.
pub const RULES_BYTES_MAX: usize = 256 * 1024;

/// Patterns of a tenant's rules: every request looks for its own among them.
pub const RULES_MAX: usize = 500;

/// Segments of a rule's pattern: each is a node in memory, and matching recurses.
pub const RULE_SEGMENTS_MAX: usize = 32;

/// Longest name of a subscription in bytes: it is part of keys and of every consumer's name.
pub const SUBSCRIPTION_NAME_BYTES_MAX: usize = 128;

/// Longest description of a subscription in bytes: it is in memory with the subscription.
pub const DESCRIPTION_BYTES_MAX: usize = 1_024;

/// Streams that one consumer follows: all of them are in its record, and in every wake.
pub const CONSUMER_LINKS_MAX: usize = 1_000;

/// All paths that one consumer follows, in bytes: they are in its record, which every event that it
/// is told of writes anew, and dozens of consumers are told at once.
pub const CONSUMER_LINKS_BYTES_MAX: usize = 64 * 1024;

/// Longest pattern in bytes: it is stored with its subscription, and half a path is plenty.
pub const PATTERN_BYTES_MAX: usize = 1024;

/// Most segments of a pattern: each is a node that the matcher keeps in memory.
pub const PATTERN_SEGMENTS_MAX: usize = 32;

/// Most `**` of a pattern: each multiplies the ways in which a path can be matched.
pub const PATTERN_DEEP_MAX: usize = 2;

/// Longest type of an event in characters: every match walks over it.
pub const EVENT_TYPE_CHARS_MAX: usize = 256;

/// Longest pattern over event types in characters, as long as what it is for.
pub const EVENT_PATTERN_CHARS_MAX: usize = 256;

/// Most segments of a pattern over event types: each is a node that the matcher keeps in memory.
pub const EVENT_PATTERN_SEGMENTS_MAX: usize = 10;

/// Longest id that a client gives an event or a batch, in bytes: it is part of keys.
pub const EVENT_ID_BYTES_MAX: usize = 256;

/// Longest `ts` of an event in bytes: nobody needs more digits, and it is kept with every delivery.
pub const EVENT_TS_BYTES_MAX: usize = 64;

/// Largest event in bytes: it is sent whole with every delivery.
pub const EVENT_BYTES_MAX: usize = 256 * 1024;

/// Most events of one batch: all of them are written in one step.
pub const EVENT_BATCH_MAX: usize = 1_000;

/// Longest id of a worker in bytes: the longest name of a host.
pub const WORKER_ID_BYTES_MAX: usize = 253;

/// Longest name of a worker's method in bytes.
pub const RPC_METHOD_BYTES_MAX: usize = 128;

/// Longest token in bytes: it travels in a header, and nothing longer is worth a checksum.
pub const TOKEN_BYTES_MAX: usize = 8192;

/// Longest key in bytes: whatever is longer is not even hashed.
pub const KEY_BYTES_MAX: usize = 512;

/// Longest name of a key's holder in bytes: it is in memory with the key.
pub const ENTITY_URI_BYTES_MAX: usize = 1_024;

/// Most scopes of a key, and the longest in bytes: they are in memory with the key.
pub const SCOPES_MAX: usize = 64;
/// See [`SCOPES_MAX`].
pub const SCOPE_BYTES_MAX: usize = 256;

/// Longest reason for something that is written down in the audit log, in bytes: the row is a part
/// of the batch that does it.
pub const AUDIT_REASON_BYTES_MAX: usize = 1_024;
/// Longest description of a change there, in bytes.
pub const AUDIT_DIFF_BYTES_MAX: usize = 4_096;
/// Longest name of what was changed or of who did it, in bytes.
pub const AUDIT_SUBJECT_BYTES_MAX: usize = 256;
/// Longest `X-Request-Id` that is kept there, in bytes.
pub const AUDIT_REQUEST_ID_BYTES_MAX: usize = 128;

const _: () = assert!(PATTERN_BYTES_MAX <= PATH_BYTES_MAX, "a literal pattern can be a path");
const _: () = assert!(PATH_BYTES_MAX + TENANT_BYTES_MAX + 64 < 65_536, "must fit in a table key");
const _: () = assert!(PATH_BYTES_MAX * 16 <= CONSUMER_LINKS_BYTES_MAX, "a few of the longest");
const _: () = assert!(EXPRESSION_LIST_MAX * 10 < EVENT_CONDITION_STEPS_MAX, "an `all` must end");
const _: () = assert!(EXPRESSION_NESTING_MAX < EXPRESSION_CHAIN_MAX, "brackets are links too");
const _: () = assert!(PRODUCER_INTEGER_MAX < POSITION_MAX);
const _: () = assert!(EVENT_PATTERN_CHARS_MAX <= EVENT_TYPE_CHARS_MAX, "a literal one can match");

/// Patterns that a hook had, while events of their time are still being told.
pub const FORMER_PATTERNS_MAX: usize = 8;
