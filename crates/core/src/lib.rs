//! Vocabulary and laws of reveille: what may happen to a stream, and what it means.
//!
//! Nothing in here does I/O, waits, reads a clock or draws a random number. Time, identifiers and
//! randomness arrive as arguments, so that unit tests, property tests, the simulator and the
//! server all run the very same code.

pub mod audit;
pub mod condition;
pub mod consumer;
pub mod cursor;
pub mod delivery;
pub mod document;
pub mod event;
pub mod fact;
pub mod fan_out;
pub mod json;
pub mod key;
pub mod key_range;
pub mod known;
pub mod limits;
pub mod matcher;
pub mod media;
pub mod offset;
pub mod path;
pub mod pattern;
pub mod producer;
pub mod rate;
pub mod secret;
pub mod signature;
pub mod steps;
pub mod stream;
pub mod subscription;
pub mod tenant;
pub mod time;
pub mod token;
pub mod trace;
mod trie;
pub mod trigger;
mod wildcard;

pub use media::ContentType;
pub use offset::{Offset, ReadFrom};
pub use path::StreamPath;
pub use tenant::Tenant;
pub use time::Millis;
