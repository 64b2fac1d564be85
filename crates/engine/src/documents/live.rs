//! Live queries: the documents of a collection as they are, then what becomes of them.
//!
//! ```text
//! picture    what one caller sees of a collection: each step reads on, in one look
//! changes    the changes after one, as they are durable
//! hub        who follows a tenant's documents is told of what they have missed: one task for all
//! feed       a picture and its place in the hub: what a face sends
//! ```
//!
//! Nothing waits for anybody who is slow: a picture knows its place, and reads on from there when
//! it is asked for more.

mod changes;
mod feed;
mod hub;
mod picture;

pub use feed::{LiveFeed, LiveUpdate};
pub use hub::{ChangeBatch, LiveQueries};
pub use picture::{LiveEvent, LiveLook, LiveNews, LivePicture, LiveStep, ResetReason};
