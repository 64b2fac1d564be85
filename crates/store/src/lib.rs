//! Durable bytes: the log, the key table, and the overlay between them.
//!
//! [`log`] makes batches durable, [`state`] is what readers see of them, [`table`] holds what is
//! old. Three doors lead outside: [`disk::Disk`] to files, [`log::Log`] and [`log::Feed`] to whatever
//! keeps batches in order. Nothing here knows what a key means, HTTP or an async runtime.

mod apply;
pub mod background;
pub mod batch;
pub mod checkpoint;
pub mod chunk;
pub mod directory;
pub mod disk;
pub mod key_file;
pub mod keys;
pub mod log;
pub mod open;
pub mod run;
pub mod state;
pub mod table;
