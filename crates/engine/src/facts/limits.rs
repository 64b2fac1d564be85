//! Limits of facts: how much a tenant may have of what is not in memory, or is slow to walk.

/// Gardens of a tenant: all of them are in memory.
pub const GARDENS_MAX: usize = 1_000;

/// Members of a garden.
pub const GARDEN_MEMBERS_MAX: u32 = 1_000;

/// Gardens that somebody may be a member of: a query without an entity looks into each.
pub const GARDENS_OF_MEMBER_MAX: usize = 256;

/// Capability tokens of a tenant that are kept: all of them are in memory.
pub const TOKENS_MAX: usize = 10_000;

/// How long a token is kept that was revoked or has expired, in milliseconds.
pub const ENDED_TOKEN_MS: u64 = 86_400_000;

/// Subscriptions of a tenant that were cancelled and are remembered.
pub const CANCELLED_MAX: usize = 1_000;

/// How long a subscription that was cancelled is remembered, in milliseconds.
pub const CANCELLED_MS: u64 = 2_592_000_000;

/// How long a garden that was deleted leaves what was in it, in milliseconds: for as long as
/// somebody may still be owed something of it.
pub const CLOSED_GARDEN_MS: u64 = 2_592_000_000;

/// Facts in one page.
pub const FACTS_PAGE_MAX: usize = 500;

/// Facts that one page looks at, where most may be others than those that are asked for.
pub const FACT_LOOKS_MAX: usize = 10_000;

/// Bytes of facts that one page reads, most of which may be others than those that are asked for.
pub const FACT_LOOK_BYTES_MAX: usize = 16 << 20;

/// Events in one page of a replay.
pub const REPLAY_PAGE_MAX: usize = 500;

/// Deliveries that one page of a replay looks at.
pub const REPLAY_LOOKS_MAX: usize = 2_000;

/// Bytes of facts or events in one page.
pub const FACT_PAGE_BYTES_MAX: usize = 1 << 20;

/// Relations of an entity that a card is made of.
pub const CARD_SLOTS_MAX: usize = 1_024;

/// Deliveries that are looked at for when a subscription was last sent something.
pub const LAST_EVENT_LOOKS_MAX: usize = 64;

/// Gardens of a tenant that were deleted and have still left something: all of them are in memory.
pub const CLOSED_GARDENS_MAX: usize = 10_000;

/// Facts that are read for a card.
pub const CARD_FACTS_MAX: usize = 256;
